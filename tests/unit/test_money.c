/* test_money.c: the fallback's cents: published rounding examples, places and amounts as shops send them, learned rates,
 * and every assumption named. */
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

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1/s, burst: 1, pods: 1}",
                           "segment: {slots: 16, cells: 64, rate_records: 1024}\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static struct spw_rate_row row(const char *country, const char *region, uint32_t zip, uint32_t combined_ppb)
{
    struct spw_rate_row r;
    memset(&r, 0, sizeof r);
    memcpy(r.country, country, 2);
    memcpy(r.state, region, strlen(region));
    r.zip5 = zip;
    r.plus4_lo = r.plus4_hi = 0xFFFF;
    r.combined_ppb = combined_ppb;
    return r;
}

static void rates(const struct spw_rate_row *rows, size_t count)
{
    struct spw_rates_source source;
    struct spw_error err;
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "table");
    source.as_of_day = spw_state_fixture_today() - 27;
    source.rows = rows;
    source.rows_count = count;
    assert_int_equal(spw_state_rates_replace(f.state, &source, 1, NULL, &err), SPW_STATUS_OK);
}

static void one_rate(uint32_t combined_ppb)
{
    const struct spw_rate_row only = row("US", "WA", 98110, combined_ppb);
    rates(&only, 1);
}

static struct spw_quote_request quote(const struct spw_line *line, uint32_t count, const char *state,
                                      const char *zip)
{
    struct spw_quote_request q;
    memset(&q, 0, sizeof q);
    q.account = "main";
    q.lines = line;
    q.line_count = count;
    q.ship_from.state = "TX";
    q.ship_to.state = state;
    q.ship_to.zip = zip;
    return q;
}

static void compute(const struct spw_quote_request *q)
{
    spw_fallback_compute(f.map, q, spw_state_fixture_today() * INT64_C(86400000) + NIGHT_MS, lines, &answer);
}

static void learn(const char *zip, const char *code, uint32_t ppb, int32_t day)
{
    const struct spw_address from = {.state = "TX"}, to = {.state = "WA", .zip = zip};
    struct spw_learned_fact fact = {.account = "main",
                                    .ship_from = &from,
                                    .ship_to = &to,
                                    .tax_code = code,
                                    .combined_ppb = ppb,
                                    .unix_ms = (int64_t)day * 86400000 + 1};
    spw_state_rates_learn(f.state, &fact);
}

static void learn_codes(struct spw_conf_fallback *fallback)
{
    fallback->tax_codes_count = 1;
    snprintf(fallback->tax_codes[0].code, sizeof fallback->tax_codes[0].code, "PC040100");
    fallback->tax_codes[0].rule = SPW_RULE_LEARNED;
}

static void per_order(struct spw_conf_fallback *fallback)
{
    fallback->rounding = SPW_ROUNDING_HALF_UP_ORDER;
}

/* The published order: 39.98 and 25.00 and 7.95 of shipping at 9.2 %: 3.68 + 2.30 + 0.73 = 6.71, where the provider,
 * rounding each line's state and city part, has 6.72. */
static void order_of_three_parts(void **state)
{
    const struct spw_line line[2] = {{"1", "P0000000", 2000000, 3998}, {"2", "PC040100", 1000000, 2500}};
    (void)state;
    spw_state_fixture_policy(&f, learn_codes);
    one_rate(92000000);
    struct spw_quote_request q = quote(line, 2, "WA", "98110-1234");
    q.shipping_minor = 795;
    q.shipping_tax_code = "FR020100";
    compute(&q);
    assert_int_equal(answer.tax_minor, 671);
    assert_int_equal(lines[0].tax_minor, 368);
    assert_int_equal(lines[1].tax_minor, 230);
    assert_int_equal(lines[2].tax_minor, 73);
    assert_int_equal(answer.match, SPW_MATCH_ZIP5);
    assert_int_equal(answer.age_days, 27);
    assert_string_equal(answer.assumptions, "line 2: PC040100 at general rate\n");
    /* By parts: state 6.5 % and city 2.7 % of each line. */
    static const int64_t amounts[] = {3998, 2500, 795};
    int64_t by_parts = 0;
    for (unsigned i = 0; i < 3; i++)
        by_parts += spw_tax_minor(amounts[i], 65000000) + spw_tax_minor(amounts[i], 27000000);
    assert_int_equal(by_parts, 672);
}

/* Parts or combined: the published examples, each to the cent. */
static void published_rounding(void **state)
{
    static const struct {
        int64_t amount;
        uint32_t part[4];
        int64_t by_parts, combined;
    } cases[] = {
        {499, {62500000, 12500000, 5000000, 2500000}, 40, 41}, /* .31 + .06 + .02 + .01 against .41 */
        {1500, {62500000, 2500000, 25000000, 0}, 136, 135},    /* .94 + .04 + .38 against 1.35 */
        {1613, {90250000, 0, 0, 0}, 146, 146},                 /* 10.75 x 1.5, rounded after multiplying */
        {10000, {65000000, 27000000, 0, 0}, 920, 920},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t by_parts = 0, jurisdictions = 0;
        uint32_t ppb = 0;
        for (unsigned k = 0; k < 4; k++) {
            by_parts += spw_tax_minor(cases[i].amount, cases[i].part[k]);
            jurisdictions += cases[i].part[k] != 0;
            ppb += cases[i].part[k];
        }
        one_rate(ppb);
        const struct spw_line line = {"1", NULL, 0, cases[i].amount};
        struct spw_quote_request q = quote(&line, 1, "WA", "98110");
        compute(&q);
        assert_int_equal(by_parts, cases[i].by_parts);
        assert_int_equal(answer.tax_minor, cases[i].combined);
        /* What rounding alone can do: half a cent for each part and one for the whole. */
        int64_t off = 2 * (by_parts - answer.tax_minor);
        assert_true((off < 0 ? -off : off) <= jurisdictions + 1);
    }
}

/* Ten times 0.07 at 9.2 %: a cent each line, or six for the order; the lines add up to it. */
static void line_or_order(void **state)
{
    struct spw_line line[10];
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        line[i] = (struct spw_line){"x", NULL, 0, 7};
    one_rate(92000000);
    struct spw_quote_request q = quote(line, 10, "WA", "98110");
    compute(&q);
    assert_int_equal(answer.tax_minor, 10);
    spw_state_fixture_policy(&f, per_order);
    one_rate(92000000);
    compute(&q);
    assert_int_equal(answer.tax_minor, 6);
    int64_t sum = 0;
    for (unsigned i = 0; i < 10; i++)
        sum += lines[i].tax_minor;
    assert_int_equal(sum, 6);
}

/* Credits, refunds, discounts and nothing at all: half a cent goes away from zero, so that a refund undoes a sale. */
static void signs(void **state)
{
    (void)state;
    one_rate(72500000);
    static const int64_t amounts[] = {200, 2200, 1, 99999999, 0};
    for (unsigned i = 0; i < 5; i++) {
        const struct spw_line pair[2] = {{"sale", NULL, 1000000, amounts[i]},
                                         {"refund", NULL, -1000000, -amounts[i]}};
        struct spw_quote_request q = quote(pair, 2, "WA", "98110");
        compute(&q);
        assert_int_equal(answer.why_not, SPW_ANSWERED);
        assert_int_equal(lines[0].tax_minor, -lines[1].tax_minor);
        assert_int_equal(answer.tax_minor, 0);
        assert_int_equal(answer.total_minor, 0);
    }
    const struct spw_line discounted[2] = {{"item", NULL, 0, 10000}, {"coupon", NULL, 0, -2500}};
    struct spw_quote_request q = quote(discounted, 2, "WA", "98110");
    compute(&q);
    assert_int_equal(answer.tax_minor, 725 - 181); /* 1.8125 */
    const struct spw_line largest = {"1", NULL, 0, SPW_AMOUNT_MAX_MINOR};
    q = quote(&largest, 1, "WA", "98110");
    compute(&q);
    assert_int_equal(answer.tax_minor, INT64_C(72500000000000));
}

/* Places as shops send them. */
static void places(void **state)
{
    const struct spw_rate_row rows[] = {row("US", "NY", 501, 86250000),   row("US", "MA", 2134, 62500000),
                                        row("US", "PR", 901, 115000000),  row("US", "AE", 9012, 0),
                                        row("US", "WA", 98110, 92000000), row("CA", "", 0, 50000000),
                                        row("CA", "ON", 0, 130000000)};
    static const struct {
        const char *country, *state, *zip;
        int64_t tax; /* -1: the place makes no sense; -2: nothing is known of it */
        enum spw_match match;
        const char *assumed;
    } cases[] = {
        {NULL, "NY", "00501", 863, SPW_MATCH_ZIP5, ""},
        {NULL, "NY", "501", 863, SPW_MATCH_ZIP5, "00501 read for a ZIP code without its leading zeros\n"},
        {NULL, "MA", "2134", 625, SPW_MATCH_ZIP5, "02134 read for a ZIP code without its leading zeros\n"},
        {NULL, "ma", " 2134-1001 ", 625, SPW_MATCH_ZIP5, "02134 read"},
        {NULL, "WA", "2134", -1, SPW_MATCH_NONE, ""}, /* no ZIP code of WA begins with a zero */
        {NULL, NULL, "2134", -1, SPW_MATCH_NONE, ""},
        {NULL, "MA", "21", -1, SPW_MATCH_NONE, ""},
        {NULL, "MA", "2134x", -1, SPW_MATCH_NONE, ""},
        {NULL, "PR", "00901", 1150, SPW_MATCH_ZIP5, ""},
        {"US", "PR", "901", 1150, SPW_MATCH_ZIP5, "00901 read"},
        {NULL, "AE", "09012", 0, SPW_MATCH_ZIP5, ""}, /* a forces' post office: a true zero */
        {NULL, "AE", "09013", -2, SPW_MATCH_NONE, ""},
        {"us", "WA", "981101234", 920, SPW_MATCH_ZIP5, ""},
        {"US", "WA", "98110-", 920, SPW_MATCH_ZIP5, ""},
        {"US", "WA", "98110-12", -1, SPW_MATCH_NONE, ""},
        {"US", "WA", "K1A 0B1", -1, SPW_MATCH_NONE, ""},
        {"CA", "ON", "K1A 0B1", 1300, SPW_MATCH_STATE, "ON rate of the whole state"},
        {"CA", "AB", "T2P 2M5", 500, SPW_MATCH_COUNTRY, "CA rate of the whole country\n"},
        {"CA", NULL, NULL, 500, SPW_MATCH_COUNTRY, "CA rate of the whole country\n"},
        {"MX", NULL, "01000", -2, SPW_MATCH_NONE, ""},
    };
    (void)state;
    rates(rows, sizeof rows / sizeof rows[0]);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct spw_line line = {"1", NULL, 0, 10000};
        struct spw_quote_request q = quote(&line, 1, cases[i].state, cases[i].zip);
        q.ship_to.country = cases[i].country;
        compute(&q);
        if (cases[i].tax < 0) {
            assert_int_equal(answer.why_not, cases[i].tax == -1 ? SPW_NO_ANSWER_PLACE : SPW_NO_ANSWER_RATE);
            continue;
        }
        assert_int_equal(answer.why_not, SPW_ANSWERED);
        assert_int_equal(answer.tax_minor, cases[i].tax);
        assert_int_equal(answer.match, cases[i].match);
        if (strstr(answer.assumptions, cases[i].assumed) != answer.assumptions)
            fail_msg("case %u: \"%s\"", i, answer.assumptions);
        assert_int_equal(cases[i].assumed[0] == 0, answer.assumptions[0] == 0);
    }
}

/* Amounts are counted in hundredths: what has none, or thousandths, is not served a guess. */
static void currencies(void **state)
{
    static const struct {
        const char *currency;
        enum spw_no_answer why_not;
    } cases[] = {{NULL, SPW_ANSWERED},  {"USD", SPW_ANSWERED},           {"EUR", SPW_ANSWERED},
                 {"CAD", SPW_ANSWERED}, {"JPY", SPW_NO_ANSWER_CURRENCY}, {"KWD", SPW_NO_ANSWER_CURRENCY},
                 {"", SPW_ANSWERED}};
    const struct spw_line line = {"1", NULL, 0, 10000};
    (void)state;
    one_rate(92000000);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_quote_request q = quote(&line, 1, "WA", "98110");
        q.currency = cases[i].currency;
        compute(&q);
        assert_int_equal(answer.why_not, cases[i].why_not);
    }
}

static void no_shipping_in_wa(struct spw_conf_fallback *fallback)
{
    fallback->shipping_except_count = 1;
    memcpy(fallback->shipping_except[0], "WA", 3);
}

static void shipping_only_in_wa(struct spw_conf_fallback *fallback)
{
    fallback->shipping_taxable = false;
    no_shipping_in_wa(fallback);
}

/* Shipping by state, both ways round; the ZIP code's state counts where none is given. */
static void shipping(void **state)
{
    const struct spw_rate_row rows[] = {row("US", "WA", 98110, 100000000), row("US", "OR", 97201, 100000000)};
    const struct spw_line line = {"1", NULL, 0, 10000};
    (void)state;
    for (int round = 0; round < 2; round++) {
        spw_state_fixture_policy(&f, round ? shipping_only_in_wa : no_shipping_in_wa);
        rates(rows, 2);
        for (int wa = 0; wa < 2; wa++) {
            struct spw_quote_request q = quote(&line, 1, NULL, wa ? "98110" : "97201");
            bool taxed = wa == round;
            q.shipping_minor = 795;
            compute(&q);
            assert_int_equal(answer.tax_minor, taxed ? 1080 : 1000);
            assert_int_equal(lines[1].taxable_minor, taxed ? 795 : 0);
            assert_string_equal(answer.assumptions, taxed ? "" : "shipping not taxed by rule\n");
        }
    }
}

/* The rule `learned`: the rate of the code where there is one, the general rate with a note where there is none. */
static void learned_rule(void **state)
{
    const struct spw_line line[2] = {{"1", "P0000000", 0, 10000}, {"2", "PC040100", 0, 10000}};
    (void)state;
    spw_state_fixture_policy(&f, learn_codes);
    one_rate(92000000);
    struct spw_quote_request q = quote(line, 2, "WA", "98110-1234");
    learn("98110-1234", "PC040100", 25000000, spw_state_fixture_today());
    learn("98110-1234", "P0000000", 1, spw_state_fixture_today()); /* its rule is the general rate */
    compute(&q);
    assert_int_equal(lines[0].tax_minor, 920);
    assert_int_equal(lines[1].tax_minor, 250);
    assert_int_equal(answer.match, SPW_MATCH_MIXED);
    assert_int_equal(answer.rate.combined_ppb, 92000000);
    assert_non_null(strstr(answer.assumptions, "line 2: PC040100 at 0.025, learned 20"));
    /* Its lines alone: the answer is learned. */
    q = quote(line + 1, 1, "WA", "98110");
    compute(&q);
    assert_int_equal(answer.match, SPW_MATCH_LEARNED);
    assert_int_equal(answer.tax_minor, 250);
    assert_string_equal(answer.source.name, "learned");
    assert_int_equal(answer.age_days, 0);
    /* Another account, another origin: not theirs. */
    q.account = "second";
    compute(&q);
    assert_int_equal(answer.tax_minor, 920);
    q.account = "main";
    q.ship_from.state = "OR";
    compute(&q);
    assert_int_equal(answer.tax_minor, 920);
    assert_string_equal(answer.assumptions, "line 2: PC040100 at general rate\n");
    /* Too old, or learned after the day of the sale: it says nothing. */
    q.ship_from.state = "TX";
    spw_fallback_compute(f.map, &q, (spw_state_fixture_today() + 93) * INT64_C(86400000) + NIGHT_MS, lines,
                         &answer);
    assert_int_equal(answer.tax_minor, 250);
    learn("98110", "PC040100", 25000000, spw_state_fixture_today() - 121);
    compute(&q);
    assert_int_equal(answer.tax_minor, 920);
    learn("98110", "PC040100", 25000000, spw_state_fixture_today());
    char date[16];
    spw_format_day(spw_state_fixture_today() - 10, date, sizeof date);
    q.date = date;
    compute(&q);
    assert_int_equal(answer.tax_minor, 920);
}

/* Nothing in the table: what was learned for general goods serves, and a true zero is a zero. */
static void learned_without_table(void **state)
{
    const struct spw_line plain = {"1", NULL, 0, 10000}, known = {"2", "P9", 0, 10000};
    struct spw_quote_request q = quote(&plain, 1, "WA", "98110");
    (void)state;
    compute(&q);
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
    learn("98110", NULL, 72500000, spw_state_fixture_today());
    compute(&q);
    assert_int_equal(answer.tax_minor, 725);
    assert_int_equal(answer.match, SPW_MATCH_LEARNED);
    assert_non_null(strstr(answer.assumptions, "at 0.0725, learned 20"));
    learn("98110", NULL, 0, spw_state_fixture_today());
    compute(&q);
    assert_int_equal(answer.why_not, SPW_ANSWERED);
    assert_int_equal(answer.tax_minor, 0);
    q = quote(&known, 1, "OR", "97201");
    compute(&q);
    assert_int_equal(answer.why_not, SPW_NO_ANSWER_RATE);
    learn("97201", "P9", 11000000,
          spw_state_fixture_today()); /* whatever the code's rule: better than nothing */
    compute(&q);
    assert_int_equal(answer.tax_minor, 110);
    assert_int_equal(answer.match, SPW_MATCH_LEARNED);
    q.exemption = "resale"; /* and for an exempt buyer it is nothing all the same */
    compute(&q);
    assert_int_equal(answer.tax_minor, 0);
    assert_string_equal(answer.assumptions, "resale exemption taken as stated\n");
}

/* Lines at rates of their own, rounded once for the order: the lines add up. */
static void mixed_per_order(void **state)
{
    const struct spw_line line[3] = {{"1", NULL, 0, 1005}, {"2", "PC040100", 0, 1005}, {"3", NULL, 0, 1005}};
    (void)state;
    spw_state_fixture_policy(&f, learn_codes);
    spw_state_fixture_policy(&f, per_order);
    one_rate(92000000);
    learn("98110", "PC040100", 50000000, spw_state_fixture_today());
    struct spw_quote_request q = quote(line, 3, "WA", "98110");
    compute(&q);
    /* 0.9246 + 0.50250 + 0.9246 = 2.3517 */
    assert_int_equal(answer.tax_minor, 235);
    assert_int_equal(lines[0].tax_minor + lines[1].tax_minor + lines[2].tax_minor, 235);
}

/* The quote's date says which rates hold; a table's own record for the code goes before the general rate. */
static void day_and_code(void **state)
{
    struct spw_rate_row rows[] = {row("US", "WA", 98110, 90000000), row("US", "WA", 98110, 92000000),
                                  row("US", "WA", 0, 0)};
    const struct spw_line line[2] = {{"1", NULL, 0, 10000}, {"2", "BOOKS", 0, 10000}};
    char date[16];
    (void)state;
    rows[0].valid_to_day = (uint32_t)spw_state_fixture_today() - 1;
    rows[1].valid_from_day = (uint32_t)spw_state_fixture_today();
    rows[2].tax_code_hash = spw_tax_code_hash("BOOKS");
    rates(rows, 3);
    struct spw_quote_request q = quote(line, 2, "WA", "98110");
    compute(&q);
    assert_int_equal(lines[0].tax_minor, 920);
    assert_int_equal(lines[1].tax_minor, 0);
    assert_int_equal(answer.match, SPW_MATCH_MIXED);
    assert_string_equal(answer.assumptions, "line 2: BOOKS at 0, its own rate of table\n");
    spw_format_day(spw_state_fixture_today() - 1, date, sizeof date);
    q.date = date;
    compute(&q);
    assert_int_equal(lines[0].tax_minor, 900);
}

/* A rate that changes at midnight changes at the destination's: seven o'clock UTC in Phoenix, all year round. */
static void midnight(void **state)
{
    struct spw_rate_row rows[] = {row("US", "AZ", 85001, 86000000), row("US", "AZ", 85001, 91000000)};
    const struct spw_line line = {"1", NULL, 0, 10000};
    struct spw_quote_request q = quote(&line, 1, "AZ", "85001");
    int64_t midnight_ms = (spw_state_fixture_today() + 1) * INT64_C(86400000) + INT64_C(7) * 3600000;
    (void)state;
    rows[0].valid_to_day = (uint32_t)spw_state_fixture_today();
    rows[1].valid_from_day = (uint32_t)spw_state_fixture_today() + 1;
    rates(rows, 2);
    spw_fallback_compute(f.map, &q, midnight_ms - 1, lines, &answer);
    assert_int_equal(lines[0].tax_minor, 860);
    spw_fallback_compute(f.map, &q, midnight_ms, lines, &answer);
    assert_int_equal(lines[0].tax_minor, 910);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order_of_three_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(published_rounding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(line_or_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(signs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(currencies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shipping, set_up, tear_down),
        cmocka_unit_test_setup_teardown(learned_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(learned_without_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mixed_per_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(day_and_code, set_up, tear_down),
        cmocka_unit_test_setup_teardown(midnight, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
