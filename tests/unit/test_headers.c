/* test_headers.c: the reader of rate-limit headers against the samples in tests/data/headers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "sidecar/provider/decimal.h"
#include "sidecar/provider/provider.h"

#define N_MS INT64_C(1700000000000) /* receipt, unless the row says otherwise */
#define NO   INT64_C(-1)            /* must be unknown */

static void expect(const char *name, const char *key, const json_t *vector, unsigned scale, bool has,
                   int64_t value)
{
    const json_t *wanted = json_object_get(vector, key);
    int64_t number = NO;
    char text[64];
    if (json_is_string(wanted)) /* more digits than a double carries */
        snprintf(text, sizeof text, "%s", json_string_value(wanted));
    else
        snprintf(text, sizeof text, "%.6f", json_number_value(wanted));
    if (!json_is_null(wanted) &&
        spw_decimal_parse(text, strlen(text), scale, SPW_DECIMAL_HALF_UP, &number) == SPW_DECIMAL_BAD)
        fail_msg("vector %s: %s is no number", name, key);
    if ((has ? value : NO) != number)
        fail_msg("vector %s: %s is %lld, wanted %lld (-1 = unknown)", name, key,
                 (long long)(has ? value : NO), (long long)number);
}

static enum spw_reset_unit unit_of(const json_t *vector)
{
    static const char *const words[] = {"auto", "delta_s", "delta_ms", "epoch_s", "epoch_ms"};
    const char *unit = json_string_value(json_object_get(vector, "reset_unit"));
    for (int i = 0; unit && i < 5; i++)
        if (strcmp(unit, words[i]) == 0)
            return (enum spw_reset_unit)i;
    assert_null(unit);
    return SPW_RESET_AUTO;
}

static void check_vector(const json_t *v, const char *line_end)
{
    const char *name = json_string_value(json_object_get(v, "name"));
    const json_t *now = json_object_get(v, "now"), *line;
    struct spw_headers_options options = {.reset_unit = unit_of(v)};
    struct spw_rate_signals s;
    char headers[2048] = "";
    size_t i;
    json_array_foreach(json_object_get(v, "headers"), i, line)
    {
        strcat(headers, json_string_value(line));
        strcat(headers, line_end);
    }
    spw_headers_read_as(headers, strlen(headers), (uint32_t)json_integer_value(json_object_get(v, "status")),
                        now ? (int64_t)(json_number_value(now) * 1000) : N_MS, &options, &s);
    expect(name, "limit", v, 0, s.has_limit, (int64_t)s.limit_count);
    expect(name, "remaining", v, 0, s.has_remaining, (int64_t)s.remaining_count);
    expect(name, "reset_at", v, 6, s.has_reset, s.reset_unix_us);
    expect(name, "window_s", v, 3, s.has_window, (int64_t)s.window_ms);
    expect(name, "retry_at", v, 6, s.has_retry, s.retry_unix_us);
    /* The instants in ms are the same, rounded up; each value has its rule, and only then. */
    assert_int_equal(s.reset_unix_ms, (s.reset_unix_us + 999) / 1000);
    assert_int_equal(s.retry_unix_ms, (s.retry_unix_us + 999) / 1000);
    assert_true(s.has_limit == (s.limit_rule[0] != 0) && s.has_remaining == (s.remaining_rule[0] != 0));
    assert_true(s.has_reset == (s.reset_rule[0] != 0) && s.has_window == (s.window_rule[0] != 0));
    assert_true(s.has_retry == (s.retry_rule[0] != 0));
}

static void test_vectors(void **state)
{
    (void)state;
    json_error_t error;
    json_t *vectors = json_load_file("tests/data/headers/vectors.json", JSON_REJECT_DUPLICATES, &error), *v;
    size_t i;
    if (!vectors)
        fail_msg("vectors.json:%d: %s", error.line, error.text);
    assert_true(json_array_size(vectors) > 400);
    json_array_foreach(vectors, i, v)
    {
        check_vector(v, "\r\n");
        check_vector(v, "\n");
    }
    json_decref(vectors);
}

static struct spw_rate_signals read_at(const char *headers, uint32_t status, int64_t received_ms)
{
    struct spw_rate_signals s;
    spw_headers_read(headers, strlen(headers), status, received_ms, &s);
    return s;
}

/* HDR-H1: fractions of a second are kept, never cut to nothing. */
static void test_fractions(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t in_ms;
    } cases[] = {{"Retry-After: 0.503\r\n", 503},
                 {"Retry-After: 1.5\r\n", 1500},
                 {"Retry-After: 2.0\r\n", 2000},
                 {"Retry-After: 0.0\r\n", 0},
                 {"Retry-After: 0.0001\r\n", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_rate_signals s = read_at(cases[i].header, 429, N_MS);
        assert_true(s.has_retry);
        assert_int_equal(s.retry_in_ms, cases[i].in_ms);
    }
}

/* HDR-H2: an HTTP date is GMT whatever the machine's zone is. */
static void test_zone(void **state)
{
    (void)state;
    static const char *const zones[] = {"America/Los_Angeles", "Asia/Jerusalem", "UTC", "XYZ+11"};
    const int64_t now_ms = INT64_C(1782448100000); /* 2026-06-26 04:28:20 UTC */
    for (size_t i = 0; i < sizeof zones / sizeof zones[0]; i++) {
        setenv("TZ", zones[i], 1);
        tzset();
        struct spw_rate_signals s = read_at("Retry-After: Fri, 26 Jun 2026 04:30:00 GMT\r\n", 429, now_ms);
        assert_true(s.has_retry);
        assert_int_equal(s.retry_in_ms, 100000);
    }
    unsetenv("TZ");
    tzset();
}

/* HDR-H3: a reset that is past is an instant, not a length: the wait is 0 and the caller's own back-off applies. */
static void test_past(void **state)
{
    (void)state;
    struct spw_rate_signals s =
        read_at("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1784030400\r\n", 429, INT64_C(1784030405000));
    assert_true(s.has_reset && s.has_retry);
    assert_int_equal(s.reset_unix_ms, INT64_C(1784030400000));
    assert_int_equal(s.reset_in_ms, 0);
    assert_int_equal(s.retry_in_ms, 0);
}

/* CLK-H3: the wait is measured on the server's own clock. */
static void test_skew(void **state)
{
    (void)state;
    static const char headers[] = "Date: Tue, 14 Jul 2026 12:00:00 GMT\r\nX-RateLimit-Remaining: 0\r\n"
                                  "X-RateLimit-Reset: 1784030430\r\n";
    for (int64_t skew_ms = -45000; skew_ms <= 45000; skew_ms += 90000) {
        struct spw_rate_signals s = read_at(headers, 429, INT64_C(1784030400000) + skew_ms);
        assert_true(s.has_date && s.has_reset && s.has_retry);
        assert_int_equal(s.reset_in_ms, 30000);
        assert_int_equal(s.retry_in_ms, 30000);
    }
    /* A span does not depend on either clock, even when Date is far off; only its base moves to receipt. */
    struct spw_rate_signals s =
        read_at("Date: Tue, 14 Jul 2020 12:00:00 GMT\r\nRetry-After: 30\r\n", 429, N_MS);
    assert_int_equal(s.retry_in_ms, 30000);
    assert_int_equal(s.retry_unix_ms, N_MS + 30000);
}

/* Hostile bytes: whatever comes, the reader ends, and with the same answer for the same bytes. The buffer is exactly
 * as long as its contents, so that a read past the end is seen by the address sanitizer. */
static void test_noise(void **state)
{
    (void)state;
    static const char alphabet[] = "xX-rRaAtTeElLiImM:;,\"= \r\n0123456789.-wqt(\0\xff";
    uint32_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        size_t bytes = (size_t)(round % 200);
        char *text = malloc(bytes ? bytes : 1);
        assert_non_null(text);
        size_t filled = 0;
        static const char starts[] = "RateLimit: ";
        if (round % 2 && bytes > sizeof starts) {
            memcpy(text, starts, sizeof starts - 1);
            filled = sizeof starts - 1;
        }
        for (; filled < bytes; filled++) {
            seed = seed * 1664525u + 1013904223u;
            text[filled] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
        }
        struct spw_rate_signals a, b;
        spw_headers_read(text, bytes, 429, N_MS, &a);
        spw_headers_read(text, bytes, 429, N_MS, &b);
        assert_memory_equal(&a, &b, sizeof a);
        free(text);
    }
    struct spw_rate_signals s = {.has_limit = true};
    spw_headers_read(NULL, 0, 200, N_MS, &s);
    assert_false(s.has_limit);
    assert_string_equal(s.dialect, "");
}

static void test_long_fields(void **state)
{
    (void)state;
    /* A list too long to hold is malformed: a cut number would be another number. */
    char text[4096] = "X-RateLimit-Remaining: 1";
    for (int i = 0; i < 300; i++)
        strcat(text, ", 12345");
    struct spw_rate_signals s = read_at(text, 200, N_MS);
    assert_false(s.has_remaining);
    /* Many groups: the first ones are read, the rest is left out, nothing overflows. */
    text[0] = 0;
    for (int i = 0; i < 60; i++) {
        char line[64];
        snprintf(line, sizeof line, "X-RateLimit-Remaining-k%d: %d\r\n", i, 100 + i);
        strcat(text, line);
    }
    s = read_at(text, 200, N_MS);
    assert_true(s.has_remaining);
    assert_int_equal(s.remaining_count, 100);
}

static void test_decimal(void **state)
{
    (void)state;
    int64_t v = 0;
    assert_int_equal(spw_decimal_from_double(39.98, 2, &v), SPW_DECIMAL_EXACT);
    assert_int_equal(v, 3998);
    assert_int_equal(spw_decimal_from_double(0.1 + 0.2, 2, &v), SPW_DECIMAL_EXACT);
    assert_int_equal(v, 30);
    assert_int_equal(spw_decimal_from_double(1.4553, 2, &v), SPW_DECIMAL_ROUNDED);
    assert_int_equal(v, 146);
    assert_int_equal(spw_decimal_from_double(0.145, 2, &v), SPW_DECIMAL_ROUNDED);
    assert_int_equal(v, 15); /* the double lies below 0.145; the decimal does not */
    assert_int_equal(spw_decimal_from_double(2.675, 2, &v), SPW_DECIMAL_ROUNDED);
    assert_int_equal(v, 268);
    assert_int_equal(spw_decimal_from_double(-0.005, 2, &v), SPW_DECIMAL_ROUNDED);
    assert_int_equal(v, -1);
    assert_int_equal(spw_decimal_from_double(0.09025, 9, &v), SPW_DECIMAL_EXACT);
    assert_int_equal(v, 90250000);
    assert_int_equal(spw_decimal_from_double(1e-300, 9, &v), SPW_DECIMAL_ROUNDED);
    assert_int_equal(v, 0);
    assert_int_equal(spw_decimal_from_double(1e300, 2, &v), SPW_DECIMAL_BAD);
    assert_int_equal(spw_decimal_from_double((double)INFINITY, 2, &v), SPW_DECIMAL_BAD);
    /* Every cent up to a million comes back through a double as itself. */
    for (int64_t cents = 0; cents <= 100000000; cents += 37) {
        assert_int_equal(spw_decimal_from_double((double)cents / 100, 2, &v), SPW_DECIMAL_EXACT);
        assert_int_equal(v, cents);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),     cmocka_unit_test(test_fractions), cmocka_unit_test(test_zone),
        cmocka_unit_test(test_past),        cmocka_unit_test(test_skew),      cmocka_unit_test(test_noise),
        cmocka_unit_test(test_long_fields), cmocka_unit_test(test_decimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
