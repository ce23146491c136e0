/* test_sums.c: taxes of native calculations whose lines are named as nobody asked. */
#include "tests/unit/profile_kit.h"

/* The kit's quote sells 39.98 + 25.00 and ships for 7.95: no tax is above 72.93. */
static const struct {
    const char *provider, *body;
    int64_t tax_minor; /* -1 = must be refused */
} cases[] = {
    {"avatax", "{\"totalTax\":6.72}", 672},
    {"avatax", "{\"totalTax\":72.93,\"currencyCode\":\"USD\",\"lines\":[]}", 7293},
    {"avatax", "{\"totalTax\":72.94}", -1},
    {"avatax", "{\"totalTax\":-0.01}", -1},
    {"avatax", "{\"totalTax\":\"6.72\"}", -1},
    {"avatax", "{\"totalTax\":1e30}", -1},
    {"avatax", "{\"totalTax\":null}", -1},
    {"avatax", "{\"totalTax\":6.72,\"currencyCode\":\"CAD\"}", -1},
    {"avatax", "{\"totalTax\":6.72,\"totalTax\":6.72}", -1},
    {"avatax",
     "{\"totalTax\":6.72,\"lines\":[{\"lineNumber\":\"A\",\"lineAmount\":39.98,\"taxableAmount\":39.98,"
     "\"tax\":3.68},{\"lineNumber\":\"B\",\"tax\":3.04}]}",
     672},
    {"avatax", "{\"totalTax\":6.72,\"lines\":[{\"lineNumber\":\"A\",\"tax\":3.68}]}", -1},
    {"avatax", "{\"totalTax\":0.28,\"lines\":[{\"lineNumber\":\"FEE\",\"lineAmount\":0,\"tax\":0.28}]}", 28},
    {"avatax", "{\"totalTax\":3.68,\"lines\":[{\"lineAmount\":39.98,\"taxableAmount\":40.98,\"tax\":3.68}]}",
     -1},
    {"avatax", "{\"totalTax\":0,\"lines\":[{\"tax\":3.68},{\"tax\":-3.68}]}", -1},
    {"taxjar", "{\"tax\":{\"amount_to_collect\":6.72}}", 672},
    {"taxjar", "{\"tax\":{\"amount_to_collect\":-6.72}}", -1},
    {"taxjar", "{\"tax\":{\"amount_to_collect\":100}}", -1},
    {"taxjar",
     "{\"tax\":{\"amount_to_collect\":6.72,\"breakdown\":{\"shipping\":{\"tax_collectable\":0.73},"
     "\"line_items\":[{\"id\":\"x\",\"tax_collectable\":3.68},{\"id\":\"y\",\"tax_collectable\":2.31}]}}}",
     672},
    {"taxjar",
     "{\"tax\":{\"amount_to_collect\":6.72,\"breakdown\":{\"line_items\":[{\"tax_collectable\":3.68}]}}}",
     -1},
    {"taxjar", "{\"tax\":{\"amount_to_collect\":6.72,\"breakdown\":{\"tax_collectable\":6.72}}}", 672},
    {"stripe", "{\"tax_amount_exclusive\":672,\"currency\":\"usd\"}", 672},
    {"stripe", "{\"tax_amount_exclusive\":672,\"currency\":\"eur\"}", -1},
    {"stripe", "{\"tax_amount_exclusive\":-1}", -1},
    {"stripe", "{\"tax_amount_exclusive\":7294}", -1},
    {"stripe",
     "{\"tax_amount_exclusive\":672,\"shipping_cost\":{\"amount\":795,\"amount_tax\":73},\"line_items\":"
     "{\"data\":[{\"reference\":\"a\",\"amount\":3998,\"amount_tax\":368}],\"has_more\":true}}",
     672},
    {"stripe",
     "{\"tax_amount_exclusive\":672,\"line_items\":{\"data\":[{\"amount\":3998,\"amount_tax\":368}],"
     "\"has_more\":false}}",
     -1},
    {"taxcloud", "{\"items\":[{\"lineItems\":[{\"index\":8,\"tax\":{\"amount\":6.72}}]}]}", 672},
    {"taxcloud", "{\"items\":[{\"lineItems\":[{\"index\":8,\"tax\":{\"amount\":-6.72}}]}]}", -1},
    {"taxcloud", "{\"items\":[{\"lineItems\":[]}]}", -1},
    {"taxcloud", "{\"items\":[]}", -1},
    {"taxcloud", "{\"items\":[{\"lineItems\":[{\"tax\":{\"amount\":6.72,\"rate\":0.092}}]}]}", 672},
    {"taxcloud", "{\"items\":[{\"lineItems\":[{\"tax\":{\"amount\":6.72,\"rate\":-0.1}}]}]}", -1},
    {"taxcloud", "{\"items\":[{\"lineItems\":[{\"tax\":{\"amount\":6.72,\"rate\":1.1}}]}]}", -1},
    {"avatax", "{\"totalTax\":4,\"lines\":[{\"tax\":1},{\"tax\":1},{\"tax\":1},{\"tax\":1}]}", -1},
};

static void test_sums(void **state)
{
    (void)state;
    struct spw_quote_request quote = kit_quote();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_answer out;
        kit_profile(cases[i].provider)->check(&quote, cases[i].body, strlen(cases[i].body), &out);
        int64_t seen_minor = out.kind == SPW_ANSWER_OK ? out.tax_minor : -1;
        if (seen_minor != cases[i].tax_minor || (seen_minor < 0 && out.kind != SPW_ANSWER_BROKEN))
            fail_msg("%s: %lld: %s: %s", cases[i].provider, (long long)seen_minor, cases[i].body, out.detail);
        assert_int_equal(out.lines_count, 0);
        assert_true((out.kind == SPW_ANSWER_OK) == (out.detail[0] == 0));
    }
}

/* A line that takes off widens what a tax can be on its side of zero only. */
static void test_lines_below_zero(void **state)
{
    (void)state;
    static const struct spw_line lines[] = {{.id = "1", .amount_minor = 1000},
                                            {.id = "2", .amount_minor = -1000}};
    struct spw_quote_request quote = {.currency = "USD", .lines = lines, .line_count = 2};
    struct spw_answer out;
    static const char body[] =
        "{\"totalTax\":0.92,\"lines\":[{\"lineAmount\":10,\"tax\":0.92},{\"lineAmount\":-10,"
        "\"taxableAmount\":0,\"tax\":0}]}";
    kit_profile("avatax")->check(&quote, body, sizeof body - 1, &out);
    assert_int_equal(out.kind, SPW_ANSWER_OK);
    assert_int_equal(out.tax_minor, 92);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_lines_below_zero)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
