/* test_units.c: units as people write them: exact both ways, and refused with a remedy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/conf/conf.h"

#define NS_PER_S 1000000000ull

/* xorshift64: the same numbers in every run, so that a failure can be found again. */
static uint64_t random_state = 88172645463325252ull;
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void reads_rates(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint64_t tokens, period_ns;
        const char *back; /* NULL = the same */
    } CASES[] = {
        {"100/s", 100, NS_PER_S, NULL},
        {"0/s", 0, NS_PER_S, NULL},
        {"7/min", 7, 60 * NS_PER_S, NULL},
        {"7/m", 7, 60 * NS_PER_S, "7/min"},
        {"3/10s", 3, 10 * NS_PER_S, NULL},
        {"3600/h", 3600, 3600 * NS_PER_S, NULL},
        {"1/d", 1, 86400 * NS_PER_S, NULL},
        {"7/7d", 7, 7ull * 86400 * NS_PER_S, NULL},
        {"10000000/s", 10000000, NS_PER_S, NULL},
        {"10000/ms", 10000, 1000000, NULL},
        {"1/1500ms", 1, 1500000000, NULL},
        {"5/60s", 5, 60 * NS_PER_S, "5/min"},
        {"001/s", 1, NS_PER_S, "1/s"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct spw_rate rate;
        struct spw_error err = {0};
        char back[32];
        print_message("%s\n", CASES[i].text);
        assert_int_equal(spw_parse_rate(CASES[i].text, &rate, &err), SPW_STATUS_OK);
        assert_int_equal(rate.tokens_count, CASES[i].tokens);
        assert_int_equal(rate.period_ns, CASES[i].period_ns);
        spw_format_rate(&rate, back, sizeof back);
        assert_string_equal(back, CASES[i].back ? CASES[i].back : CASES[i].text);
    }
}

static void refuses_rates(void **unused)
{
    (void)unused;
    static const char *const CASES[] = {
        "",
        "100",
        "/s",
        "100/",
        "100 / s",
        "100/sec",
        "1e2/s",
        "0.5/s",
        "-1/s",
        "+1/s",
        "100/s ",
        " 100/s",
        "100/S",
        "0x10/s",
        "100per s",
        "10000001/s",
        "1/2d",
        "1/367d",
        "365/366d",
        "100/0s",
        "100/-1s",
        "10001/ms",
        "1/us",
        "18446744073709551616/s",
        "100/s/s",
        "1/18446744073709551616s",
        "1/99999999999999d",
        "100/1.5s",
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct spw_rate rate = {77, 77};
        struct spw_error err = {0};
        print_message("\"%s\"\n", CASES[i]);
        assert_int_not_equal(spw_parse_rate(CASES[i], &rate, &err), SPW_STATUS_OK);
        assert_int_equal(rate.tokens_count, 77); /* untouched */
        assert_true(strlen(err.text) > 20);
    }
}

static void rates_survive_the_round_trip(void **unused)
{
    (void)unused;
    static const uint64_t UNITS_NS[] = {1000000, NS_PER_S, 60 * NS_PER_S, 3600 * NS_PER_S, 86400 * NS_PER_S};
    unsigned kept = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct spw_rate rate = {0, UNITS_NS[next_random() % 5] * (1 + next_random() % 366)};
        rate.tokens_count = next_random() % (rate.period_ns / 100 + 1);
        char text[64];
        spw_format_rate(&rate, text, sizeof text);
        struct spw_rate back;
        enum spw_status status = spw_parse_rate(text, &back, NULL);
        bool too_slow = rate.tokens_count && rate.tokens_count < rate.period_ns / (86400 * NS_PER_S) + 1;
        if (status != SPW_STATUS_OK) {
            assert_true(too_slow);
            continue;
        }
        kept++;
        assert_int_equal(back.tokens_count, rate.tokens_count);
        assert_int_equal(back.period_ns, rate.period_ns);
    }
    assert_true(kept > 19000);
}

static void reads_durations(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint64_t ms;
    } GOOD[] = {{"1800ms", 1800}, {"0s", 0},       {"30s", 30000},      {"5m", 300000},
                {"5min", 300000}, {"2h", 7200000}, {"45d", 3888000000}, {"106751d", 9223286400000}};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        uint64_t ms;
        assert_int_equal(spw_parse_duration_ms(GOOD[i].text, &ms, NULL), SPW_STATUS_OK);
        assert_int_equal(ms, GOOD[i].ms);
    }
    static const char *const BAD[] = {"",
                                      "1800",
                                      "1.5s",
                                      "s",
                                      "-1s",
                                      "30 s",
                                      "30S",
                                      "1h30m",
                                      "106752d",
                                      "18446744073709551615d",
                                      "18446744073709551616s",
                                      "5mins",
                                      "1e3ms"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        uint64_t ms = 77;
        struct spw_error err = {0};
        print_message("\"%s\"\n", BAD[i]);
        assert_int_not_equal(spw_parse_duration_ms(BAD[i], &ms, &err), SPW_STATUS_OK);
        assert_int_equal(ms, 77);
        assert_true(strlen(err.text) > 20);
    }
}

static void reads_percents(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint32_t ppm;
    } GOOD[] = {{"15%", 150000}, {"0%", 0},         {"2.5%", 25000},
                {"0.0001%", 1},  {"100%", 1000000}, {"12.50000%", 125000}};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        uint32_t ppm;
        assert_int_equal(spw_parse_percent_ppm(GOOD[i].text, &ppm, NULL), SPW_STATUS_OK);
        assert_int_equal(ppm, GOOD[i].ppm);
    }
    static const char *const BAD[] = {
        "",       "%",    "15",       "0.15", "15 %", "15%%", "-1%",
        "100.1%", "1e1%", "0.00001%", ".5%",  "5.%",  "1,5%", "99999999999999999999%"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        uint32_t ppm = 77;
        print_message("\"%s\"\n", BAD[i]);
        assert_int_not_equal(spw_parse_percent_ppm(BAD[i], &ppm, NULL), SPW_STATUS_OK);
        assert_int_equal(ppm, 77);
    }
}

static void reads_tax_rates(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint32_t ppb;
        const char *back;
    } GOOD[] = {{"0.0825", 82500000, "0.0825"},    {"8.25%", 82500000, "0.0825"},
                {"0.092", 92000000, "0.092"},      {"0", 0, "0"},
                {"0.000000001", 1, "0.000000001"}, {"1", 1000000000, "1"},
                {"0.10", 100000000, "0.1"},        {"9.0250000%", 90250000, "0.09025"},
                {"0.0000001%", 1, "0.000000001"},  {"0.0825000000000", 82500000, "0.0825"}};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        uint32_t ppb;
        char back[32];
        print_message("%s\n", GOOD[i].text);
        assert_int_equal(spw_parse_rate_ppb(GOOD[i].text, &ppb, NULL), SPW_STATUS_OK);
        assert_int_equal(ppb, GOOD[i].ppb);
        spw_format_rate_ppb(ppb, back, sizeof back);
        assert_string_equal(back, GOOD[i].back);
    }
    static const char *const BAD[] = {"",     "8.25",   "1.1",       "-0.1", "0.1.2",        "0,0825",
                                      "101%", "8.25 %", "1e-2",      ".08",  "0.0000000001", "0.00000001%",
                                      "abc",  "%",      "4294967296"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        uint32_t ppb = 77;
        struct spw_error err = {0};
        print_message("\"%s\"\n", BAD[i]);
        assert_int_not_equal(spw_parse_rate_ppb(BAD[i], &ppb, &err), SPW_STATUS_OK);
        assert_int_equal(ppb, 77);
        assert_true(strlen(err.text) > 20);
    }
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t ppb = (uint32_t)(next_random() % 1000000001), again;
        char text[32];
        spw_format_rate_ppb(ppb, text, sizeof text);
        assert_int_equal(spw_parse_rate_ppb(text, &again, NULL), SPW_STATUS_OK);
        assert_int_equal(again, ppb);
    }
}

static void reads_dates(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        int32_t day;
    } GOOD[] = {{"1970-01-01", 0},     {"1970-03-01", 59},    {"2000-02-29", 11016},
                {"2025-11-01", 20393}, {"2100-02-28", 47540}, {"9999-12-31", 2932896}};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        int32_t day;
        assert_int_equal(spw_parse_date_day(GOOD[i].text, &day, NULL), SPW_STATUS_OK);
        assert_int_equal(day, GOOD[i].day);
    }
    static const char *const BAD[] = {"",           "2025-11",    "2025-13-01",           "2025-00-01",
                                      "2025-11-31", "2025-02-29", "2100-02-29",           "2025-11-00",
                                      "25-11-01",   "2025/11/01", "2025-11-01T00:00:00Z", "1969-12-31",
                                      "01-11-2025", "2025-1-01"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        int32_t day = 77;
        print_message("\"%s\"\n", BAD[i]);
        assert_int_not_equal(spw_parse_date_day(BAD[i], &day, NULL), SPW_STATUS_OK);
        assert_int_equal(day, 77);
    }
    /* Every day of 800 years, written and read back, follows the one before. */
    for (int32_t day = 0; day < 292194; day++) {
        char text[32];
        int32_t again;
        spw_format_day(day, text, sizeof text);
        assert_int_equal(spw_parse_date_day(text, &again, NULL), SPW_STATUS_OK);
        assert_int_equal(again, day);
    }
    char text[32];
    spw_format_day(-1, text, sizeof text);
    assert_string_equal(text, "1969-12-31");
}

static void writes_amounts(void **unused)
{
    (void)unused;
    static const struct {
        int64_t minor;
        const char *text;
    } GOOD[] = {{3998, "39.98"},
                {0, "0.00"},
                {-5, "-0.05"},
                {750, "7.50"},
                {-1200, "-12.00"},
                {INT64_MAX, "92233720368547758.07"},
                {INT64_MIN, "-92233720368547758.08"}};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        char text[32];
        spw_format_minor(GOOD[i].minor, text, sizeof text);
        assert_string_equal(text, GOOD[i].text);
    }
}

static void checks_limits(void **unused)
{
    (void)unused;
    static const struct {
        struct spw_conf_limit limit;
        const char *fault; /* NULL = good */
    } CASES[] = {
        {{.rate = {100, NS_PER_S}, .burst_count = 250, .pods_count = 40}, NULL},
        {{.rate = {0, NS_PER_S}, .burst_count = 0, .pods_count = 1}, NULL},
        {{.rate = {0, NS_PER_S}, .burst_count = 5, .pods_count = 40}, NULL},
        {{.rate = {10000000, NS_PER_S}, .burst_count = 4000000000ull, .pods_count = 100000}, NULL},
        {{.rate = {1, 86400 * NS_PER_S}, .burst_count = 1, .pods_count = 1}, NULL},
        {{.rate = {100, NS_PER_S}, .burst_count = 250, .pods_count = 0}, "pods: is missing"},
        {{.rate = {100, NS_PER_S}, .burst_count = 250, .pods_count = 100001}, "pods: 100001"},
        {{.rate = {100, NS_PER_S}, .burst_count = 39, .pods_count = 40}, "burst: 39 is less"},
        {{.rate = {100, NS_PER_S}, .burst_count = 4000000001ull, .pods_count = 40},
         "burst: 4000000001 is too large"},
        {{.rate = {100, 0}, .burst_count = 250, .pods_count = 40}, "rate: has a period"},
        {{.rate = {10000001, NS_PER_S}, .burst_count = 250, .pods_count = 40}, "rate: is too fast"},
        {{.rate = {UINT64_MAX, UINT64_MAX}, .burst_count = 250, .pods_count = 40}, "rate: has a period"},
        {{.rate = {39, 86400 * NS_PER_S}, .burst_count = 40, .pods_count = 40}, "rate: divided by 40 pods"},
        {{.rate = {40, 86400 * NS_PER_S}, .burst_count = 40, .pods_count = 40}, NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct spw_error err = {0};
        enum spw_status status = spw_conf_limit_check(&CASES[i].limit, &err);
        if (CASES[i].fault) {
            assert_int_equal(status, SPW_STATUS_INVALID);
            assert_true(strstr(err.text, CASES[i].fault) == err.text);
        } else {
            assert_int_equal(status, SPW_STATUS_OK);
        }
    }
}

static void checks_breakers(void **unused)
{
    (void)unused;
    const struct spw_conf_breaker good = {5, 200000, 20, 10000, 30000, 60000, SPW_BREAKER_ENFORCE};
    struct spw_error err = {0};
    assert_int_equal(spw_conf_breaker_check(&good, &err), SPW_STATUS_OK);
    struct spw_conf_breaker b = good;
    b.consecutive_429_count = 256;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "consecutive_429: 256"));
    b = good;
    b.ratio_429_ppm = 0;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
    b = good;
    b.minimum_count = 0;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
    b = good;
    b.window_ms = 160001;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
    b = good;
    b.cooldown_min_ms = 60001;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "cooldown: ends before it begins"));
    b = good;
    b.mode = (enum spw_breaker_mode)7;
    assert_int_equal(spw_conf_breaker_check(&b, &err), SPW_STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rates),
        cmocka_unit_test(refuses_rates),
        cmocka_unit_test(rates_survive_the_round_trip),
        cmocka_unit_test(reads_durations),
        cmocka_unit_test(reads_percents),
        cmocka_unit_test(reads_tax_rates),
        cmocka_unit_test(reads_dates),
        cmocka_unit_test(writes_amounts),
        cmocka_unit_test(checks_limits),
        cmocka_unit_test(checks_breakers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
