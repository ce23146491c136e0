/* test_fallback.c: the cached answer: rounding to the cent, nexus, exemption, tax codes, age, and what is not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm/spw_fallback.h"
#include "tests/support/state_fixture.h"

#define NIGHT_MS INT64_C(79200000) /* 22:00 UTC: the same day everywhere in the US */

static struct spw_state_fixture f;
static struct spw_fallback_answer answer;
static struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];

#define ACCOUNT "limit: {rate: 1/s, burst: 1, pods: 1}"
#define SEGMENT "segment: {slots: 16, cells: 64, rate_records: 1024}\n"

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, ACCOUNT, SEGMENT);
    spw_state_fixture_rates(&f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static void compute(const struct spw_quote_request *q, int32_t day)
{
    spw_fallback_compute(f.map, q, day * INT64_C(86400000) + NIGHT_MS, lines, &answer);
}

static struct spw_quote_request quote(const struct spw_line *line, uint32_t count, const char *state,
                                      const char *zip)
{
    struct spw_quote_request q;
    memset(&q, 0, sizeof q);
    q.account = "main";
    q.lines = line;
    q.line_count = count;
    q.ship_to.state = state;
    q.ship_to.zip = zip;
    return q;
}

static void one_rate(uint32_t combined_ppb)
{
    struct spw_rate_row row;
    struct spw_rates_source source;
    struct spw_error err;
    memset(&row, 0, sizeof row);
    memcpy(row.country, "US", 3);
    memcpy(row.state, "TX", 3);
    row.zip5 = 79703;
    row.plus4_lo = row.plus4_hi = 0xFFFF;
    row.combined_ppb = combined_ppb;
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "one");
    source.as_of_day = spw_state_fixture_today();
    source.rows = &row;
    source.rows_count = 1;
    assert_int_equal(spw_state_rates_replace(f.state, &source, 1, NULL, &err), SPW_STATUS_OK);
}

/* TAX-H1: every spelling of a ZIP+4 finds its five-digit rate, and the answer says which it was. */
static void zip_plus_4(void **state)
{
    static const char *const zips[] = {"79703-2104", "797032104", " 79703 ", "79703-"};
    const struct spw_line line = {"1", NULL, 0, 10000};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct spw_quote_request q = quote(&line, 1, "TX", zips[i]);
        compute(&q, spw_state_fixture_today());
        assert_int_equal(answer.why_not, SPW_ANSWERED);
        assert_int_equal(answer.tax_minor, 825);
        assert_int_equal(answer.match, SPW_MATCH_ZIP5);
    }
    struct spw_quote_request q = quote(&line, 1, "TX", "7970");
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_PLACE);
}

/* TAX-H2: not known is not zero, and a true zero is zero. */
static void unknown_is_not_zero(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    (void)state;
    struct spw_quote_request q = quote(&line, 1, "TX", "79999");
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
    q = quote(&line, 1, "OR", "97201");
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_ANSWERED);
    assert_int_equal(answer.match, SPW_MATCH_ZIP5);
    assert_int_equal(answer.tax_minor, 0);
    q = quote(&line, 1, NULL, NULL);
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
}

/* TAX-H3: the exemption belongs to the buyer who states it. */
static void exemption(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 5000};
    (void)state;
    one_rate(80000000);
    struct spw_quote_request seven = quote(&line, 1, "TX", "79703"), eight = seven;
    seven.customer_id = "7";
    seven.exemption = "resale";
    eight.customer_id = "8";
    compute(&seven, spw_state_fixture_today());
    assert_int_equal(answer.match, SPW_MATCH_EXEMPT);
    assert_int_equal(answer.tax_minor, 0);
    assert_int_equal(answer.taxable_minor, 0);
    assert_non_null(strstr(answer.assumptions, "resale"));
    compute(&eight, spw_state_fixture_today());
    assert_int_equal(answer.tax_minor, 400);
    eight.exemption = "";
    compute(&eight, spw_state_fixture_today());
    assert_int_equal(answer.tax_minor, 400);
}

static void no_shipping_tax(struct spw_conf_fallback *fallback)
{
    fallback->shipping_taxable = false;
}

/* TAX-H4: half up to the cent, in whole numbers. */
static void half_up(void **state)
{
    static const struct {
        int64_t amount;
        uint32_t ppb;
        int64_t tax;
    } cases[] = {{2499, 107500000, 269}, {200, 72500000, 15},     {2200, 72500000, 160}, {1000, 82500000, 83},
                 {-200, 72500000, -15},  {-2200, 72500000, -160}, {1, 72500000, 0},      {0, 107500000, 0},
                 {7, 71428571, 0},       {7, 71428572, 1},        {100, 4999999, 0},     {100, 5000000, 1}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(spw_tax_minor(cases[i].amount, cases[i].ppb), cases[i].tax);
    spw_state_fixture_policy(&f, no_shipping_tax);
    one_rate(107500000);
    const struct spw_line line = {"1", NULL, 0, 2499};
    struct spw_quote_request q = quote(&line, 1, "TX", "79703");
    q.shipping_minor = 644;
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.tax_minor, 269);
    assert_int_equal(answer.total_minor + answer.tax_minor, 3412);
    assert_int_equal(answer.taxable_minor, 2499);
    assert_int_equal(lines[1].tax_minor, 0);
}

static void per_order(struct spw_conf_fallback *fallback)
{
    fallback->rounding = SPW_ROUNDING_HALF_UP_ORDER;
}

/* Per line or once per order; either way the lines add up to the tax. */
static void rounding(void **state)
{
    struct spw_line many[100];
    (void)state;
    one_rate(72500000);
    for (unsigned i = 0; i < 100; i++)
        many[i] = (struct spw_line){NULL, NULL, 0, 200 + (int64_t)i % 3 * 7 - (i % 10 == 9 ? 500 : 0)};
    int64_t tax[2], exact = 0;
    for (unsigned i = 0; i < 100; i++)
        exact += many[i].amount_minor;
    for (unsigned k = 0; k < 2; k++) {
        if (k)
            spw_state_fixture_policy(&f, per_order);
        struct spw_quote_request q = quote(many, 100, "TX", "79703");
        compute(&q, spw_state_fixture_today());
        assert_int_equal(answer.why_not, SPW_ANSWERED);
        tax[k] = answer.tax_minor;
        int64_t sum = 0;
        for (unsigned i = 0; i <= 100; i++)
            sum += lines[i].tax_minor;
        assert_int_equal(sum, tax[k]);
        assert_int_equal(answer.rounding, k ? SPW_ROUNDING_HALF_UP_ORDER : SPW_ROUNDING_HALF_UP_LINE);
    }
    assert_int_equal(tax[1], spw_tax_minor(exact, 72500000));
    assert_int_not_equal(tax[0], tax[1]);
}

static void nexus_wa_only(struct spw_conf_fallback *fallback)
{
    fallback->nexus_all = false;
    fallback->nexus_count = 1;
    memcpy(fallback->nexus[0], "WA", 3);
}

/* Without nexus nothing is owed, known rate or not; the state may come from the ZIP code alone. */
static void nexus(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    (void)state;
    spw_state_fixture_policy(&f, nexus_wa_only);
    static const struct {
        const char *state, *zip;
        enum spw_match match;
        int64_t tax;
    } cases[] = {{"WA", "98110", SPW_MATCH_ZIP5, 920},
                 {"TX", "79703", SPW_MATCH_NO_NEXUS, 0},
                 {NULL, "79703", SPW_MATCH_NO_NEXUS, 0},
                 {NULL, "98110", SPW_MATCH_ZIP5, 920},
                 {"tx", "79999", SPW_MATCH_NO_NEXUS, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_quote_request q = quote(&line, 1, cases[i].state, cases[i].zip);
        compute(&q, spw_state_fixture_today());
        assert_int_equal(answer.why_not, SPW_ANSWERED);
        assert_int_equal(answer.match, cases[i].match);
        assert_int_equal(answer.tax_minor, cases[i].tax);
    }
    struct spw_quote_request q =
        quote(&line, 1, NULL, "99999"); /* an unknown state is not taken for one without */
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
}

static void some_codes(struct spw_conf_fallback *fallback)
{
    static const char *const code[] = {"FOOD", "LEARN", "NEVER"};
    static const enum spw_tax_code_rule rule[] = {SPW_RULE_EXEMPT, SPW_RULE_LEARNED, SPW_RULE_REFUSE};
    fallback->tax_codes_count = 3;
    for (unsigned i = 0; i < 3; i++) {
        snprintf(fallback->tax_codes[i].code, sizeof fallback->tax_codes[i].code, "%s", code[i]);
        fallback->tax_codes[i].rule = rule[i];
    }
}

/* Tax codes: exempt ones are not taxed, learned ones at the general rate with a note, refused ones not at all. */
static void tax_codes(void **state)
{
    struct spw_line line[3] = {{"a", "FOOD", 0, 10000}, {"b", "LEARN", 0, 10000}, {"c", "OTHER", 0, 10000}};
    (void)state;
    spw_state_fixture_policy(&f, some_codes);
    struct spw_quote_request q = quote(line, 3, "TX", "79703");
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.tax_minor, 1650);
    assert_int_equal(lines[0].taxable_minor, 0);
    assert_non_null(strstr(answer.assumptions, "line a: FOOD exempt by rule\n"));
    assert_non_null(strstr(answer.assumptions, "line b: LEARN at general rate\n"));
    assert_int_equal(answer.assumptions_bytes, strlen(answer.assumptions));
    line[2].tax_code = "NEVER";
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_TAX_CODE);
    q.exemption = "resale"; /* an exempt buyer owes nothing on it either */
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_ANSWERED);
    assert_int_equal(answer.tax_minor, 0);
}

static void use_default_rate(struct spw_conf_fallback *fallback)
{
    fallback->on_no_rate = SPW_NO_RATE_DEFAULT;
    fallback->default_rate_ppb = 100000000;
}
static void use_state_average(struct spw_conf_fallback *fallback)
{
    fallback->on_no_rate = SPW_NO_RATE_STATE_AVERAGE;
}

/* Where no rate is known the policy decides, and the answer says so. */
static void no_rate_policies(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line, 1, "TX", "79999");
    (void)state;
    spw_state_fixture_policy(&f, use_state_average);
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.match, SPW_MATCH_STATE);
    assert_int_equal(answer.tax_minor, 825);
    q.ship_to.state = "NY";
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
    spw_state_fixture_policy(&f, use_default_rate);
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.match, SPW_MATCH_DEFAULT);
    assert_int_equal(answer.tax_minor, 1000);
    assert_int_equal(answer.source.as_of_day, 0);
}

/* Old tables are marked, and too old ones not served. */
static void age(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line, 1, "TX", "79703");
    int32_t day = spw_state_fixture_today();
    (void)state;
    compute(&q, day - 5); /* a clock behind the table's date */
    assert_int_equal(answer.age_days, 0);
    compute(&q, day + 45);
    assert_int_equal(answer.age_days, 45);
    assert_false(answer.stale);
    compute(&q, day + 46);
    assert_true(answer.stale);
    compute(&q, day + 120);
    assert_int_equal(answer.why_not, SPW_ANSWERED);
    compute(&q, day + 121);
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_TOO_OLD);
    spw_state_fixture_policy(&f, use_default_rate);
    compute(&q, day + 121);
    assert_int_equal(answer.match, SPW_MATCH_DEFAULT);
    assert_false(answer.stale);
}

/* A ZIP code of another state: the ZIP code decides, with a note. */
static void state_and_zip_disagree(void **state)
{
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line, 1, "NY", "98110");
    (void)state;
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.tax_minor, 920);
    assert_non_null(strstr(answer.assumptions, "WA is the state of the ZIP code"));
}

/* More notes than there is room for: dropped whole, the answer stands. */
static void many_notes(void **state)
{
    static struct spw_line many[SPW_LINES_MAX_COUNT];
    (void)state;
    spw_state_fixture_policy(&f, some_codes);
    for (unsigned i = 0; i < SPW_LINES_MAX_COUNT; i++)
        many[i] = (struct spw_line){"a line with a long name of its own", "LEARN", 0, 100};
    struct spw_quote_request q = quote(many, SPW_LINES_MAX_COUNT, "TX", "79703");
    compute(&q, spw_state_fixture_today());
    assert_int_equal(answer.why_not, SPW_ANSWERED);
    assert_int_equal(answer.tax_minor, 8 * SPW_LINES_MAX_COUNT);
    assert_in_range(answer.assumptions_bytes, SPW_ASSUMPTIONS_MAX_BYTES - 100, SPW_ASSUMPTIONS_MAX_BYTES - 1);
    assert_int_equal(answer.assumptions[answer.assumptions_bytes - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(zip_plus_4, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_is_not_zero, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exemption, set_up, tear_down),
        cmocka_unit_test_setup_teardown(half_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rounding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nexus, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tax_codes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_rate_policies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(age, set_up, tear_down),
        cmocka_unit_test_setup_teardown(state_and_zip_disagree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_notes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
