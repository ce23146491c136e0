/* test_headers.c: the reader of rate-limit headers against samples of every dialect seen in public documents, captures
 * and drafts. The numbers are the samples' own; a gap in them is a sample that says nothing new. */
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

#include "sidecar/provider/decimal.h"
#include "sidecar/provider/provider.h"

#define N_MS INT64_C(1700000000000) /* receipt, unless the row says otherwise */
#define NO   INT64_C(-1)            /* must be unknown */

struct vector {
    const char *number;
    const char *headers;
    int64_t limit, remaining, reset_unix_ms, window_ms, retry_unix_ms;
    uint32_t status;     /* 0 = 200 */
    int64_t received_ms; /* 0 = N_MS */
    enum spw_reset_unit unit;
};

static const struct vector vectors[] = {
    {"1 refused with remaining above 0",
     "Date: Mon, 13 Jun 2022 11:48:53 GMT\r\nX-RateLimit-Limit: 30\r\nX-RateLimit-Remaining: 14\r\n"
     "X-RateLimit-Reset: 1655120964\r\nX-RateLimit-Used: 16\r\n",
     30, 14, 1655120964000, NO, 1655120964000, 403, 1655120933400, 0},
    {"2 x-rate-limit",
     "x-rate-limit-limit: 900\r\nx-rate-limit-remaining: 847\r\nx-rate-limit-reset: 1705420800\r\n", 900, 847,
     1705420800000, NO, NO, 0, 0, 0},
    {"4 float epoch and float span",
     "X-RateLimit-Limit: 50\r\nX-RateLimit-Remaining: 47\r\nX-RateLimit-Reset: 1740249601.000\r\n"
     "X-RateLimit-Reset-After: 0.850\r\n",
     50, 47, N_MS + 850, NO, NO, 0, 0, 0},
    {"5 float span, not 1970",
     "x-ratelimit-limit: 30\r\nx-ratelimit-remaining: 29\r\nx-ratelimit-reset: 1.0\r\n", 30, 29, N_MS + 1000,
     NO, NO, 0, 0, 0},
    {"7 -Ms, weekday of Date wrong",
     "Date: Mon, 03 Feb 2017 20:36:00 GMT\r\nX-Rate-Limit-Time-Reset-Ms: 15000\r\n", NO, NO, 1486154175000,
     NO, 1486154175000, 429, 1486154160200, 0},
    {"8 unit override",
     "X-Rate-Limit-Limit: 10000\r\nX-Rate-Limit-Remaining: 0\r\nX-Rate-Limit-Reset: 600000\r\n", 10000, 0,
     N_MS + 600000, NO, N_MS + 600000, 429, 0, SPW_RESET_DELTA_MS},
    {"8 without override",
     "X-Rate-Limit-Limit: 10000\r\nX-Rate-Limit-Remaining: 0\r\nX-Rate-Limit-Reset: 600000\r\n", 10000, 0,
     N_MS + 600000000, NO, N_MS + 600000000, 429, 0, 0},
    {"10 two policies",
     "x-ratelimit-limit: 10, 10;w=1, 100;w=60\r\nx-ratelimit-remaining: 2\r\nx-ratelimit-reset: 1\r\n", 10, 2,
     N_MS + 1000, 1000, NO, 0, 0, 0},
    {"11 duplicate policy alone", "x-ratelimit-limit: 10, 10;w=1, 10;w=1\r\n", 10, NO, NO, 1000, NO, 0, 0, 0},
    {"13 mixed case", "RateLimit-Limit: 100, 100;w=60\r\nRatelimit-Remaining: 99\r\nRatelimit-Reset: 50\r\n",
     100, 99, N_MS + 50000, 60000, NO, 0, 0, 0},
    {"14 policy of another quota",
     "RateLimit-Limit: 10, 100;w=60\r\nRateLimit-Remaining: 9\r\nRateLimit-Reset: 50\r\n", 10, 9,
     N_MS + 50000, NO, NO, 0, 0, 0},
    {"16 limit 0",
     "RateLimit-Limit: 0\r\nRateLimit-Policy: 15;w=20\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 20\r\n",
     0, 0, N_MS + 20000, NO, NO, 0, 0, 0},
    {"17 HTTP-date",
     "Date: Mon, 05 Aug 2019 09:27:00 GMT\r\nRetry-After: Mon, 05 Aug 2019 09:27:05 GMT\r\nRateLimit-Reset: "
     "5\r\n"
     "RateLimit-Limit: 100\r\nRatelimit-Remaining: 0\r\n",
     100, 0, 1564997225000, NO, 1564997225000, 429, 1564997220300, 0},
    {"19 draft 7", "RateLimit: limit=100, remaining=50, reset=5\r\nRateLimit-Policy: 100;w=10\r\n", 100, 50,
     N_MS + 5000, 10000, NO, 0, 0, 0},
    {"20 absent remaining is not 0", "RateLimit: limit=10, reset=1\r\n", 10, NO, N_MS + 1000, NO, NO, 0, 0,
     0},
    {"22 no t, with pk", "RateLimit: \"default\";r=999;pk=:dHJpYWwxMjEzMjM=:\r\n", NO, 999, NO, NO, NO, 0, 0,
     0},
    {"23 two windows",
     "RateLimit-Policy: \"burst\";q=10;w=10, \"daily\";q=5000;w=86400\r\n"
     "RateLimit: \"burst\";r=8;t=1, \"daily\";r=4998;t=69076\r\n",
     10, 8, N_MS + 1000, 10000, NO, 0, 0, 0},
    {"25 names that do not join",
     "Ratelimit: \"default\";r=50;t=30\r\nRatelimit-Policy: \"burst\";q=100;w=60\r\n", NO, 50, N_MS + 30000,
     NO, NO, 0, 0, 0},
    {"26 blank after semicolon",
     "RateLimit: \"100-in-15min\"; r=99; t=900\r\n"
     "RateLimit-Policy: \"100-in-15min\"; q=100; w=900; pk=:YWJjZGVmMDEyMzQ1:\r\n",
     100, 99, N_MS + 900000, 900000, NO, 0, 0, 0},
    {"28 policy only", "Ratelimit-Policy: \"project.create.user\";q=4;w=86400;pk=:user:\r\n", 4, NO, NO,
     86400000, NO, 0, 0, 0},
    {"29 pk of the wrong type",
     "RateLimit-Policy: \"free-user\";q=10;w=60;pk=\"user-12345\"\r\nRateLimit: "
     "\"free-user\";r=7;t=45;pk=\"user-12345\"\r\n",
     10, 7, N_MS + 45000, 60000, NO, 0, 0, 0},
    {"31 call limit, float Retry-After", "X-Shopify-Shop-Api-Call-Limit: 40/40\r\nRetry-After: 2.0\r\n", 40,
     0, NO, NO, N_MS + 2000, 429, 0, 0},
    {"32 vendor family with three windows",
     "x-hubspot-ratelimit-daily: 250000\r\nx-hubspot-ratelimit-daily-remaining: 249998\r\n"
     "x-hubspot-ratelimit-interval-milliseconds: 10000\r\nx-hubspot-ratelimit-max: 100\r\n"
     "x-hubspot-ratelimit-remaining: 98\r\nx-hubspot-ratelimit-secondly: "
     "10\r\nx-hubspot-ratelimit-secondly-remaining: 9\r\n",
     10, 9, NO, 1000, NO, 0, 0, 0},
    {"32 the interval's own window when it governs",
     "x-hubspot-ratelimit-interval-milliseconds: 10000\r\nx-hubspot-ratelimit-max: 100\r\n"
     "x-hubspot-ratelimit-remaining: 1\r\nx-hubspot-ratelimit-secondly: "
     "10\r\nx-hubspot-ratelimit-secondly-remaining: 9\r\n",
     100, 1, NO, 10000, NO, 0, 0, 0},
    {"34 Go duration 12ms",
     "x-ratelimit-limit-requests: 5000\r\nx-ratelimit-remaining-requests: "
     "4999\r\nx-ratelimit-reset-requests: 12ms\r\n",
     5000, 4999, N_MS + 12, NO, NO, 0, 0, 0},
    {"34 Go duration 1s",
     "x-ratelimit-limit-requests: 5000\r\nx-ratelimit-remaining-requests: "
     "4999\r\nx-ratelimit-reset-requests: 1s\r\n",
     5000, 4999, N_MS + 1000, NO, NO, 0, 0, 0},
    {"34 Go duration 6m0s",
     "x-ratelimit-limit-requests: 5000\r\nx-ratelimit-remaining-requests: "
     "4999\r\nx-ratelimit-reset-requests: 6m0s\r\n",
     5000, 4999, N_MS + 360000, NO, NO, 0, 0, 0},
    {"35 sentinel -1",
     "x-ratelimit-limit-tokens: -1\r\nx-ratelimit-remaining-tokens: -1\r\nx-ratelimit-reset-tokens: 0\r\n",
     NO, NO, NO, NO, NO, 0, 0, 0},
    {"35 the same sentinel for requests",
     "x-ratelimit-limit: -1\r\nx-ratelimit-remaining: -1\r\nx-ratelimit-reset: 0\r\n", NO, NO, NO, NO, NO, 0,
     0, 0},
    {"37 microseconds, rounded up",
     "X-RateLimit-Limit: 300\r\nX-RateLimit-Remaining: 299\r\nX-RateLimit-Reset: "
     "2026-10-09T12:35:00.123456Z\r\n",
     300, 299, 1791549300124, NO, NO, 0, 0, 0},
    {"38 JavaScript date",
     "Retry-After: 2\r\nX-RateLimit-Limit: 20\r\nX-RateLimit-Remaining: 7\r\n"
     "X-RateLimit-Reset: Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)\r\n",
     20, 7, 1613462562000, NO, N_MS + 2000, 0, 0, 0},
    {"40 Retry-After wins", "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1.5\r\nRetry-After: 2\r\n", NO, 0,
     N_MS + 1500, NO, N_MS + 2000, 429, 0, 0},
    {"41 two dots", "x-ratelimit-reset: 1.5.5\r\n", NO, NO, NO, NO, NO, 429, 0, 0},
    {"41 too many digits", "x-ratelimit-reset: 99999999999999999999999\r\n", NO, NO, NO, NO, NO, 429, 0, 0},
    {"43 a 429 that says nothing",
     "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Type: application/json\r\n", NO, NO, NO, NO, NO, 429, 0,
     0},
    {"44 a success that says nothing",
     "HTTP/1.1 200 OK\r\ndate: Thu, 09 Oct 2025 10:00:00 GMT\r\ncontent-type: "
     "application/json\r\ncontent-length: 812\r\n"
     "x-request-id: 7\r\nlink: </schemas/Carts.json>; rel=\"describedBy\"\r\n",
     NO, NO, NO, NO, NO, 0, 0, 0},
    {"46 list over two lines", "RateLimit: \"a\";r=5;t=9\r\nRateLimit: \"b\";r=1;t=3\r\n", NO, 1, N_MS + 3000,
     NO, NO, 0, 0, 0},
    {"47 epoch milliseconds", "X-RateLimit-Reset: 1700000060000\r\n", NO, NO, 1700000060000, NO, NO, 0, 0, 0},
    {"R5 empty", "X-RateLimit-Limit: \r\nX-RateLimit-Remaining:\r\nRetry-After: \r\n", NO, NO, NO, NO, NO,
     429, 0, 0},
    {"R5 hexadecimal, exponent, sign, word",
     "X-RateLimit-Limit: 0x10\r\nX-RateLimit-Remaining: 1e3\r\nRetry-After: +5\r\n"
     "X-RateLimit-Reset: soon\r\n",
     NO, NO, NO, NO, NO, 429, 0, 0},
    {"R9 used without remaining", "X-RateLimit-Limit: 30\r\nX-RateLimit-Used: 12\r\n", 30, 18, NO, NO, NO, 0,
     0, 0},
    {"R9 used above the limit", "X-RateLimit-Limit: 30\r\nX-RateLimit-Used: 31\r\n", 30, 0, NO, NO, NO, 0, 0,
     0},
    {"minute and hour of one gateway",
     "X-RateLimit-Limit-Minute: 20\r\nX-RateLimit-Remaining-Minute: 19\r\nX-RateLimit-Limit-Hour: 500\r\n"
     "X-RateLimit-Remaining-Hour: 3\r\n",
     500, 3, NO, 3600000, NO, 0, 0, 0},
    {"bare name and window size",
     "X-RateLimit: 100\r\nX-RateLimit-Remaining: 42\r\nX-RateLimit-Window-Size: 600s\r\n", 100, 42, NO,
     600000, NO, 0, 0, 0},
    {"vendor Retry-After below the standard one", "X-RateLimit-Retry-After: 7\r\nRetry-After: 3\r\n", NO, NO,
     NO, NO, N_MS + 3000, 429, 0, 0},
    {"vendor Retry-After alone", "X-RateLimit-Retry-After: 7\r\n", NO, NO, NO, NO, N_MS + 7000, 429, 0, 0},
    {"Retry-After twice: the longer", "Retry-After: 2\r\nRetry-After: 9\r\n", NO, NO, NO, NO, N_MS + 9000,
     429, 0, 0},
    {"Retry-After in ms", "retry-after-ms: 1250\r\n", NO, NO, NO, NO, N_MS + 1250, 429, 0, 0},
    {"quota unit of bytes",
     "RateLimit-Policy: \"b\";q=65535;qu=\"content-bytes\";w=10\r\nRateLimit: \"b\";r=100;t=3\r\n", NO, NO,
     NO, NO, NO, 0, 0, 0},
    {"trailing comma is malformed", "RateLimit: \"a\";r=5;t=9,\r\n", NO, NO, NO, NO, NO, 0, 0, 0},
    {"the newest dialect is believed",
     "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 1\r\nRateLimit: \"d\";r=60;t=5\r\n", NO, 60,
     N_MS + 5000, NO, NO, 0, 0, 0},
    {"rfc850", "Retry-After: Tuesday, 14-Nov-23 22:13:25 GMT\r\n", NO, NO, NO, NO, N_MS + 5000, 429, 0, 0},
    {"asctime", "Retry-After: Tue Nov 14 22:13:25 2023\r\n", NO, NO, NO, NO, N_MS + 5000, 429, 0, 0},
    {"a zone by name is not guessed", "Retry-After: Tue, 14 Nov 2023 22:13:25 PST\r\n", NO, NO, NO, NO, NO,
     429, 0, 0},
    {"31 February", "Retry-After: Fri, 31 Feb 2023 22:13:25 GMT\r\n", NO, NO, NO, NO, NO, 429, 0, 0},
    {"RFC 3339 with offset", "X-RateLimit-Reset: 2023-11-14T23:13:25+01:00\r\n", NO, NO, N_MS + 5000, NO, NO,
     0, 0, 0},
    {"from a cache", "Age: 40\r\nX-RateLimit-Limit: 10\r\nX-RateLimit-Remaining: 0\r\nRetry-After: 5\r\n", NO,
     NO, NO, NO, NO, 200, 0, 0},
    {"HDR-H4 a two lines",
     "X-RateLimit-Remaining: 0\r\nX-RateLimit-Remaining: 4821\r\nX-RateLimit-Reset: 12\r\n"
     "X-RateLimit-Reset: 41000\r\n",
     NO, 0, N_MS + 12000, NO, N_MS + 12000, 429, 0, 0},
    {"HDR-H4 b one line", "X-RateLimit-Remaining: 0, 4821\r\nX-RateLimit-Reset: 12, 41000\r\n", NO, 0,
     N_MS + 12000, NO, N_MS + 12000, 429, 0, 0},
    {"HDR-H4 lower case",
     "x-ratelimit-remaining: 0\nx-ratelimit-remaining: 4821\nx-ratelimit-reset: 12\nx-ratelimit-reset: 41000",
     NO, 0, N_MS + 12000, NO, N_MS + 12000, 429, 0, 0},
    {"HDR-H4 unpaired waits longer", "x-ratelimit-remaining: 0, 4821\r\nx-ratelimit-reset: 12, 41000, 90\r\n",
     NO, 0, N_MS + 41000000, NO, N_MS + 41000000, 429, 0, 0},
};

static void expect(const char *number, const char *what, bool has, int64_t value, int64_t wanted)
{
    int64_t shown = has ? value : NO;
    if (shown != wanted)
        fail_msg("vector %s: %s is %lld, wanted %lld (-1 = unknown)", number, what, (long long)shown,
                 (long long)wanted);
}

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct vector *v = &vectors[i];
        struct spw_headers_options options = {.reset_unit = v->unit};
        struct spw_rate_signals s;
        spw_headers_read_as(v->headers, strlen(v->headers), v->status ? v->status : 200,
                            v->received_ms ? v->received_ms : N_MS, &options, &s);
        expect(v->number, "limit", s.has_limit, (int64_t)s.limit_count, v->limit);
        expect(v->number, "remaining", s.has_remaining, (int64_t)s.remaining_count, v->remaining);
        expect(v->number, "reset", s.has_reset, s.reset_unix_ms, v->reset_unix_ms);
        expect(v->number, "window", s.has_window, (int64_t)s.window_ms, v->window_ms);
        expect(v->number, "retry", s.has_retry, s.retry_unix_ms, v->retry_unix_ms);
    }
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
