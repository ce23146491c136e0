/* test_learn.c: which of a live answer's lines say something that holds for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/http/learn.h"

static struct spw_answer answer;

static void line_of(int64_t taxable_minor, int64_t tax_minor, bool known, uint32_t ppb)
{
    memset(&answer, 0, sizeof answer);
    answer.kind = SPW_ANSWER_OK;
    answer.lines_count = 2;
    answer.lines[0] = answer.lines[1] = (struct spw_line_tax){taxable_minor, tax_minor};
    answer.line_rates[0] = answer.line_rates[1] = (struct spw_line_rate){known, ppb};
}

static const char *ship_to_state;

/* The rate learned from a line of this amount, -1 = none. */
static int64_t learned(int64_t amount_minor, const char *customer)
{
    const struct spw_line line = {"1", "PC", 0, amount_minor};
    struct spw_quote_request quote;
    uint32_t ppb = 0;
    memset(&quote, 0, sizeof quote);
    quote.lines = &line;
    quote.line_count = 1;
    quote.customer_id = customer;
    quote.ship_to.state = ship_to_state;
    quote.shipping_minor = amount_minor;
    bool goods = spw_learn_rate(&quote, &answer, 0, &ppb);
    int64_t rate = goods ? (int64_t)ppb : -1;
    /* Shipping teaches nothing without a code of its own, and with one what goods teach. */
    assert_false(spw_learn_rate(&quote, &answer, 1, &ppb));
    quote.shipping_tax_code = "FR";
    assert_int_equal(spw_learn_rate(&quote, &answer, 1, &ppb), goods);
    return rate;
}

static void rates(void **state)
{
    (void)state;
    line_of(10000, 920, true, 92000000);
    assert_int_equal(learned(10000, "c_7"), 92000000);
    assert_int_equal(learned(10001, "c_7"), -1); /* taxed in part */
    line_of(10000, 920, false, 0);
    assert_int_equal(learned(10000, NULL), -1); /* no rate is stated, and one is not made from cents */
    line_of(10000, 922, true, 92000000);
    assert_int_equal(learned(10000, NULL), -1); /* its tax does not follow */
    answer.jurisdictions_count = 2;
    assert_int_equal(learned(10000, NULL), 92000000); /* each rounded on its own */
    line_of(3, 0, true, 92000000);
    assert_int_equal(learned(3, NULL), 92000000); /* no cent yet, but the rate is stated */
    line_of(-10000, -920, true, 92000000);
    assert_int_equal(learned(-10000, NULL), -1); /* a credit */
}

static void zeros(void **state)
{
    (void)state;
    line_of(0, 0, true, 0);
    assert_int_equal(learned(10000, NULL), 0);
    assert_int_equal(learned(100, NULL), 0);
    assert_int_equal(learned(99, NULL), -1);     /* too small for a rate to show */
    assert_int_equal(learned(10000, "c_7"), -1); /* perhaps this customer's exemption */
    assert_int_equal(learned(10000, ""), 0);
    ship_to_state = "TX";
    assert_int_equal(learned(10000, "c_7"), -1);
    ship_to_state = "OR"; /* no sales tax there, for nobody */
    assert_int_equal(learned(10000, "c_7"), 0);
    ship_to_state = NULL;
    line_of(0, 0, true, 92000000); /* a rate of the place, but nothing of the line is taxable */
    assert_int_equal(learned(10000, NULL), 0);
    line_of(0, 0, false, 0);
    assert_int_equal(learned(10000, NULL), -1);
    line_of(10000, 0, true, 0);
    assert_int_equal(learned(10000, NULL), -1); /* taxable and yet no tax: says nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates), cmocka_unit_test(zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
