/* test_variance.c: what was collected against the live tax, to the cent: its causes, its verdict, its day; the forecast. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "shm/spw_rates.h"
#include "sidecar/reconcile/forecast.h"
#include "sidecar/reconcile/variance.h"

static const struct spw_conf_reconcile conf = {.absorb_under_minor = 50, .absorb_period_minor = 25000};

static struct spw_variance split(const struct spw_line_tax *collected, const struct spw_line_tax *live,
                                 const struct spw_line_rate *rates, uint32_t count, uint32_t ppb, uint32_t j)
{
    struct spw_variance_sides s = {.collected = collected,
                                   .live = live,
                                   .live_rates = rates,
                                   .lines_count = count,
                                   .rate_ppb = ppb,
                                   .jurisdictions_count = j};
    struct spw_variance v;
    for (uint32_t i = 0; i < count; i++) {
        s.tax_collected_minor += collected[i].tax_minor;
        s.live_tax_minor += live[i].tax_minor;
    }
    spw_variance_split(&s, &v);
    assert_int_equal(v.variance_minor, v.rounding_noise_minor + v.rate_minor + v.base_minor + v.nexus_minor);
    assert_int_equal(v.live_tax_minor, s.live_tax_minor);
    return v;
}

static void is(struct spw_variance v, int64_t noise, int64_t rate, int64_t base, int64_t nexus)
{
    assert_int_equal(noise, v.rounding_noise_minor);
    assert_int_equal(rate, v.rate_minor);
    assert_int_equal(base, v.base_minor);
    assert_int_equal(nexus, v.nexus_minor);
}

/* 39.98, 25.00 and 7.95 at 9.2 %: 6.71 by the combined rate, 6.72 by state and city on their own. */
static void the_designs_cart_is_a_cent_of_noise(void **state)
{
    (void)state;
    const struct spw_line_tax collected[3] = {{3998, 368}, {2500, 230}, {795, 73}};
    const struct spw_line_tax live[3] = {{3998, 368}, {2500, 231}, {795, 73}};
    const struct spw_line_rate known[3] = {{true, 92000000}, {true, 92000000}, {true, 92000000}};
    is(split(collected, live, known, 3, 92000000, 4), -1, 0, 0, 0);
    is(split(collected, live, NULL, 3, 92000000, 4), -1, 0, 0, 0);
    is(split(collected, collected, known, 3, 92000000, 4), 0, 0, 0, 0);
}

/* 4.99 at .0625 + .0125 + .005 + .0025: 0.41 combined, 0.40 by parts. 15.00: 1.35 and 1.36. 10.75 x 1.5 at 9.025 %: 1.46
 * both ways. A document of 5.19 by line, 5.20 by sum. */
static void published_samples_of_rounding(void **state)
{
    (void)state;
    is(split(&(struct spw_line_tax){499, 41}, &(struct spw_line_tax){499, 40}, NULL, 1, 82500000, 4), 1, 0, 0,
       0);
    is(split(&(struct spw_line_tax){1500, 135}, &(struct spw_line_tax){1500, 136}, NULL, 1, 90000000, 4), -1,
       0, 0, 0);
    is(split(&(struct spw_line_tax){1613, 146}, &(struct spw_line_tax){1613, 146}, NULL, 1, 90250000, 0), 0,
       0, 0, 0);
    is(split(&(struct spw_line_tax){5200, 520}, &(struct spw_line_tax){5200, 519}, NULL, 1, 100000000, 4), 1,
       0, 0, 0);
}

/* An override of 10.00 answered with 9 calculated: over-collected by 1.00. */
static void another_rate(void **state)
{
    (void)state;
    const struct spw_line_rate nine = {true, 90000000};
    is(split(&(struct spw_line_tax){10000, 1000}, &(struct spw_line_tax){10000, 900}, &nine, 1, 100000000, 4),
       0, 100, 0, 0);
    is(split(&(struct spw_line_tax){10000, 1000}, &(struct spw_line_tax){10000, 900}, NULL, 1, 100000000, 4),
       0, 100, 0, 0);
    /* A thousandth of a percent on a cart of 20,000.00 is 20 cents of rate, no noise. */
    is(split(&(struct spw_line_tax){2000000, 184000}, &(struct spw_line_tax){2000000, 184020},
             &(struct spw_line_rate){true, 92010000}, 1, 92000000, 4),
       0, -20, 0, 0);
}

static void another_base(void **state)
{
    (void)state;
    /* the second line is exempt for the provider, and shipping is not taxed */
    const struct spw_line_tax collected[3] = {{3998, 368}, {2500, 230}, {795, 73}};
    const struct spw_line_tax live[3] = {{3998, 368}, {0, 0}, {0, 0}};
    is(split(collected, live, NULL, 3, 92000000, 4), 0, 0, 303, 0);
    /* the other way round: the cache held shipping untaxed */
    const struct spw_line_tax less[2] = {{3998, 368}, {0, 0}}, more[2] = {{3998, 368}, {795, 73}};
    is(split(less, more, NULL, 2, 92000000, 4), 0, 0, -73, 0);
}

static void nexus_is_all_of_it(void **state)
{
    (void)state;
    struct spw_variance v;
    const struct spw_line_tax collected = {10000, 920}, none = {0, 0};
    struct spw_variance_sides s = {.collected = &collected,
                                   .live = &none,
                                   .lines_count = 1,
                                   .tax_collected_minor = 920,
                                   .rate_ppb = 92000000,
                                   .live_no_nexus = true,
                                   .jurisdictions_count = 4};
    spw_variance_split(&s, &v);
    is(v, 0, 0, 0, 920);
    s = (struct spw_variance_sides){.collected = &none,
                                    .live = &collected,
                                    .lines_count = 1,
                                    .live_tax_minor = 920,
                                    .cached_no_nexus = true,
                                    .jurisdictions_count = 4};
    spw_variance_split(&s, &v);
    is(v, 0, 0, 0, -920);
}

/* Whatever the amounts, noise stays within N x (J + 1) / 2, and the parts add up (in split). */
static void noise_is_bounded(void **state)
{
    (void)state;
    uint64_t dice = 42;
    for (int round = 0; round < 20000; round++) {
        struct spw_line_tax collected[5], live[5];
        uint32_t count = 1 + (uint32_t)(round % 5), j = (uint32_t)(round / 5 % 5);
        for (uint32_t i = 0; i < count; i++) {
            dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
            collected[i] = (struct spw_line_tax){(int64_t)(dice >> 40), (int64_t)(dice >> 45 & 0xFFFF)};
            dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
            live[i] = (struct spw_line_tax){round & 1 ? collected[i].taxable_minor : (int64_t)(dice >> 40),
                                            (int64_t)(dice >> 45 & 0xFFFF)};
        }
        struct spw_variance v = split(collected, live, NULL, count, 92000000, j);
        int64_t noise = v.rounding_noise_minor < 0 ? -v.rounding_noise_minor : v.rounding_noise_minor;
        assert_true(2 * noise <= (int64_t)count * (j + 1));
    }
}

static enum spw_reconcile_state judge(int64_t rate_minor, bool verified, int64_t absorbed_minor, bool refund,
                                      char *why)
{
    struct spw_conf_reconcile mine = conf;
    struct spw_verdict_facts f = {.variance = {.variance_minor = rate_minor, .rate_minor = rate_minor},
                                  .verified = verified,
                                  .tax_shown_minor = 671,
                                  .tax_collected_minor = 671,
                                  .bound_halves = 15,
                                  .absorbed_minor = absorbed_minor};
    mine.refund = refund;
    return spw_variance_judge(&f, &mine, why, 256);
}

static void verdicts(void **state)
{
    (void)state;
    char why[256];
    assert_int_equal(SPW_RECONCILE_NOISE, judge(0, true, 0, false, why));
    assert_int_equal(SPW_RECONCILE_ABSORBED_UNDER, judge(-50, true, 0, false, why));
    assert_int_equal(SPW_RECONCILE_EXCEPTION, judge(-51, true, 0, false, why));
    assert_string_equal("under-collected by 0.51, more than absorb_under 0.50", why);
    assert_int_equal(SPW_RECONCILE_ABSORBED_UNDER, judge(-50, true, 24950, false, why));
    assert_int_equal(SPW_RECONCILE_EXCEPTION, judge(-50, true, 24951, false, why));
    assert_non_null(strstr(why, "absorb_period 250.00 is used up"));
    assert_int_equal(SPW_RECONCILE_OVER_REMIT, judge(1, true, 25000, false, why));
    assert_int_equal(SPW_RECONCILE_OVER_REFUND, judge(100000, true, 25000, true, why));
    assert_int_equal(SPW_RECONCILE_EXCEPTION, judge(-1, false, 0, false, why));
    assert_int_equal(SPW_RECONCILE_EXCEPTION, judge(1, false, 0, false, why));
    assert_int_equal(SPW_RECONCILE_NOISE, judge(0, false, 0, false, why));
    /* The order was charged something else than the fallback had answered. */
    struct spw_verdict_facts f = {
        .verified = true, .tax_shown_minor = 671, .tax_collected_minor = 500, .bound_halves = 15};
    assert_int_equal(SPW_RECONCILE_EXCEPTION, spw_variance_judge(&f, &conf, why, sizeof why));
    assert_non_null(strstr(why, "5.00 was collected, the fallback had answered 6.71"));
}

static int32_t day(const char *destination, int64_t hours)
{
    return spw_day_there(destination, hours * 3600000);
}

static void the_day_is_the_destinations(void **state)
{
    (void)state;
    assert_int_equal(1, day("", 24));
    assert_int_equal(0, day("NY", 28));
    assert_int_equal(1, day("NY", 29));
    assert_int_equal(0, day("TX", 29));
    assert_int_equal(1, day("TX", 30));
    assert_int_equal(0, day("CO", 30));
    assert_int_equal(1, day("CO", 31));
    assert_int_equal(0, day("WA", 31));
    assert_int_equal(1, day("WA", 32));
    assert_int_equal(1, day("AK", 33));
    assert_int_equal(0, day("HI", 33));
    assert_int_equal(-1, day("NY", 4));
}

/* 2025-07-29, 07:00 UTC is midnight in Seattle by daylight saving time, 08:00 by standard time. */
static bool same(const char *destination, const char *from, const char *until, const char *date)
{
    struct tm a = {0}, b = {0};
    assert_non_null(strptime(from, "%Y-%m-%d %H:%M", &a));
    assert_non_null(strptime(until, "%Y-%m-%d %H:%M", &b));
    return spw_destination_same_day(destination, timegm(&a) * INT64_C(1000), timegm(&b) * INT64_C(1000),
                                    date);
}

static void a_midnight_by_either_time_ends_the_day(void **state)
{
    (void)state;
    assert_true(same("WA", "2025-07-29 02:00", "2025-07-29 05:59", ""));
    assert_false(same("WA", "2025-07-29 06:45", "2025-07-29 07:15", "")); /* daylight saving: over */
    assert_false(same("WA", "2025-12-29 07:45", "2025-12-29 08:15", "")); /* standard time: over */
    assert_true(same("WA", "2025-07-29 07:15", "2025-07-29 07:45", "2025-07-29"));
    assert_true(same("WA", "2025-07-29 07:15", "2025-07-29 07:45", "2025-07-28")); /* who can tell */
    assert_false(same("WA", "2025-07-29 07:15", "2025-07-29 07:45", "2025-07-27"));
    assert_false(same("TX", "2025-12-29 06:45", "2025-12-29 07:15", "")); /* El Paso's midnight */
    assert_true(same("NY", "2025-12-29 14:00", "2025-12-29 20:00", "2025-12-29"));
    assert_false(same("NY", "2025-12-29 14:00", "2025-12-29 20:00", "2025-12-28"));
    assert_false(same("NY", "2025-12-29 14:00", "2025-12-28 20:00", "")); /* a clock put back */
    assert_true(same("", "2025-12-29 02:00", "2025-12-29 20:00", "2025-12-29"));
    assert_false(same("", "2025-12-29 23:59", "2025-12-30 00:01", ""));
}

/* The instants around midnight by the wall clock there, and around both changes of the clock. */
static void the_day_goes_by_the_clocks_there(void **state)
{
    (void)state;
    static const struct {
        const char *state, *utc, *day;
    } cases[] = {
        {"WA", "2025-07-01 06:59", "2025-06-30"}, {"WA", "2025-07-01 07:00", "2025-07-01"},
        {"WA", "2026-01-01 07:59", "2025-12-31"}, {"WA", "2026-01-01 08:00", "2026-01-01"},
        {"NY", "2025-10-01 03:59", "2025-09-30"}, {"NY", "2025-10-01 04:00", "2025-10-01"},
        {"AZ", "2025-07-01 06:59", "2025-06-30"}, {"AZ", "2025-07-01 07:00", "2025-07-01"},
        {"HI", "2025-07-01 09:59", "2025-06-30"}, {"HI", "2025-07-01 10:00", "2025-07-01"},
        {"TX", "2025-03-09 05:59", "2025-03-08"}, {"TX", "2025-03-09 06:00", "2025-03-09"}, /* not yet */
        {"TX", "2025-03-10 04:59", "2025-03-09"}, {"TX", "2025-03-10 05:00", "2025-03-10"}, /* since 2:00 */
        {"TX", "2025-11-02 04:59", "2025-11-01"}, {"TX", "2025-11-02 05:00", "2025-11-02"}, /* still */
        {"TX", "2025-11-03 05:59", "2025-11-02"}, {"TX", "2025-11-03 06:00", "2025-11-03"}, /* over */
        {"PR", "2025-07-01 03:59", "2025-06-30"}, {"PR", "2025-12-01 04:00", "2025-12-01"},
        {"GU", "2025-07-01 13:59", "2025-07-01"}, {"GU", "2025-07-01 14:00", "2025-07-02"},
        {"AS", "2025-07-01 10:59", "2025-06-30"}, {"AS", "2025-07-01 11:00", "2025-07-01"},
        {"", "2025-07-01 23:59", "2025-07-01"},   {"", "2025-07-02 00:00", "2025-07-02"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tm t = {0};
        char day[16];
        assert_non_null(strptime(cases[i].utc, "%Y-%m-%d %H:%M", &t));
        spw_format_day(spw_day_there(cases[i].state, timegm(&t) * INT64_C(1000)), day, sizeof day);
        if (strcmp(day, cases[i].day) != 0)
            fail_msg("%s at %s: want %s, have %s", cases[i].state, cases[i].utc, cases[i].day, day);
    }
    const struct spw_address lower = {.state = "wa"}, abroad = {.country = "CA", .state = "ON"};
    assert_int_equal(0, spw_address_day(&lower, INT64_C(86400000)));
    assert_int_equal(1, spw_address_day(&abroad, INT64_C(86400000)));
}

static void forecasts(void **state)
{
    (void)state;
    struct spw_forecast f;
    struct spw_forecast_facts facts = {.pending_count = 10000,
                                       .batch_count = 1,
                                       .calls_per_filing = 2,
                                       .spare_milli_per_s = 20000,
                                       .oldest_age_ms = 600000,
                                       .within_ms = 3600000};
    spw_forecast_make(&facts, &f);
    assert_int_equal(30000, f.calls_count);
    assert_int_equal(1500000, f.takes_ms);
    assert_false(f.late);
    assert_int_equal(20000, f.pace_milli_per_s);
    facts.spare_milli_per_s = 9000; /* 3,334 s, and 3,000 s are left */
    spw_forecast_make(&facts, &f);
    assert_true(f.late);
    facts.spare_milli_per_s = 0;
    spw_forecast_make(&facts, &f);
    assert_true(f.late && f.takes_ms == SPW_FORECAST_NEVER_MS);
    facts = (struct spw_forecast_facts){.pending_count = 51, .batch_count = 25, .spare_milli_per_s = 1000};
    spw_forecast_make(&facts, &f);
    assert_int_equal(3, f.calls_count);
    facts = (struct spw_forecast_facts){.spare_milli_per_s = 0, .oldest_age_ms = 0, .within_ms = 1};
    spw_forecast_make(&facts, &f);
    assert_true(!f.late && f.takes_ms == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_designs_cart_is_a_cent_of_noise),
        cmocka_unit_test(published_samples_of_rounding),
        cmocka_unit_test(another_rate),
        cmocka_unit_test(another_base),
        cmocka_unit_test(nexus_is_all_of_it),
        cmocka_unit_test(noise_is_bounded),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(the_day_is_the_destinations),
        cmocka_unit_test(the_day_goes_by_the_clocks_there),
        cmocka_unit_test(a_midnight_by_either_time_ends_the_day),
        cmocka_unit_test(forecasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
