/* test_signals.c: what an answer does to gate and breaker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/provider/signals.h"

#define NOW_NS  UINT64_C(5000000000)
#define WALL_MS INT64_C(1784030400000) /* Tue, 14 Jul 2026 12:00:00 GMT */
#define OPEN    UINT64_MAX             /* shows that calls are accepted */
#define NOTHING UINT64_C(0)            /* leaves the gate alone */

static const struct row {
    enum spw_outcome outcome;
    uint32_t status;
    const char *headers;
    uint64_t shut_ms; /* or OPEN, NOTHING */
    uint32_t source;
    bool has_evidence;
} rows[] = {
    {SPW_OUTCOME_OK, 200, "", OPEN, 0, false},
    {SPW_OUTCOME_OK, 422, "X-RateLimit-Remaining: 9\r\n", OPEN, 0, true},
    {SPW_OUTCOME_OK, 200, "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 20\r\nX-RateLimit-Reset: 7\r\n",
     OPEN, 0, true},
    {SPW_OUTCOME_OK, 200, "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 19\r\nX-RateLimit-Reset: 7\r\n",
     7000, SPW_GATE_BUFFER_RESET, true},
    {SPW_OUTCOME_OK, 200, "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 19\r\n", 1000,
     SPW_GATE_UNKNOWN_BUFFER, true},
    {SPW_OUTCOME_OK, 200, "X-RateLimit-Remaining: 0\r\n", 1000, SPW_GATE_UNKNOWN_BUFFER, true},
    {SPW_OUTCOME_OK, 200, "X-RateLimit-Remaining: 1\r\n", OPEN, 0, true},
    {SPW_OUTCOME_THROTTLED, 429, "", 1000, SPW_GATE_UNKNOWN_429, true},
    {SPW_OUTCOME_THROTTLED, 429, "Retry-After: 0.503\r\n", 503, SPW_GATE_RETRY_AFTER, true},
    {SPW_OUTCOME_THROTTLED, 429, "Retry-After: 0\r\n", 1000, SPW_GATE_UNKNOWN_429, true},
    {SPW_OUTCOME_THROTTLED, 429, "Retry-After: 999999\r\n", SPW_GATE_MAX_MS, SPW_GATE_RETRY_AFTER, true},
    {SPW_OUTCOME_THROTTLED, 429, "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1784030430\r\n", 30000,
     SPW_GATE_RETRY_AFTER, true},
    {SPW_OUTCOME_THROTTLED, 429, "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1784030300\r\n", 1000,
     SPW_GATE_UNKNOWN_429, true},
    {SPW_OUTCOME_NEUTRAL, 429, "Retry-After: 9\r\n", NOTHING, 0, true},
    {SPW_OUTCOME_FAILED, 500, "", NOTHING, 0, false},
    {SPW_OUTCOME_FAILED, 503, "Retry-After: 30\r\n", 30000, SPW_GATE_RETRY_AFTER, false},
    {SPW_OUTCOME_FAILED, 503, "Retry-After: 0\r\n", NOTHING, 0, false},
    {SPW_OUTCOME_FAILED, 503, "X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: 40\r\n", NOTHING, 0, true},
    {SPW_OUTCOME_OK, 403, "X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: 40\r\n", NOTHING, 0, true},
    {SPW_OUTCOME_OK, 403, "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 40\r\n", 40000,
     SPW_GATE_RETRY_AFTER, true},
    {SPW_OUTCOME_OK, 401, "", NOTHING, 0, false},
    {SPW_OUTCOME_OK, 404, "", OPEN, 0, false},
};

static void test_gate_and_evidence(void **state)
{
    (void)state;
    struct spw_conf_account account;
    memset(&account, 0, sizeof account);
    account.header_buffer_ppm = 200000;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct spw_signals s;
        spw_signals_read(row->outcome, row->status, row->headers, strlen(row->headers), &account, WALL_MS,
                         NOW_NS, &s);
        bool shut = row->shut_ms != OPEN && row->shut_ms != NOTHING;
        if (s.end.gate_shut != shut || s.end.gate_open != (row->shut_ms == OPEN) ||
            (shut &&
             (s.end.gate_until_ns != NOW_NS + row->shut_ms * 1000000 || s.end.gate_source != row->source)) ||
            s.has_evidence != row->has_evidence || s.end.outcome != row->outcome)
            fail_msg("row %zu: status %u, %s: shut %d until %llu source %u", i, row->status, row->headers,
                     s.end.gate_shut, (unsigned long long)(s.end.gate_until_ns - NOW_NS), s.end.gate_source);
        if (s.has_evidence) {
            assert_int_equal(s.evidence.status, row->status);
            assert_int_equal(s.evidence.observed_ns, NOW_NS);
        }
    }
}

/* The account says what a bare number counts where the number is misread. */
static void test_reset_unit(void **state)
{
    (void)state;
    static const char headers[] = "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 6000\r\n";
    struct spw_conf_account account;
    struct spw_signals s;
    memset(&account, 0, sizeof account);
    account.reset_unit = SPW_RESET_DELTA_MS;
    spw_signals_read(SPW_OUTCOME_THROTTLED, 429, headers, sizeof headers - 1, &account, WALL_MS, NOW_NS, &s);
    assert_int_equal(s.end.gate_until_ns, NOW_NS + UINT64_C(6000000000));
    assert_int_equal(s.evidence.reset_unix_ms, WALL_MS + 6000);
}

static void test_status_alone(void **state)
{
    (void)state;
    static const struct {
        uint32_t status;
        enum spw_answer_kind kind;
        enum spw_outcome outcome;
    } kinds[] = {{200, SPW_ANSWER_OK, SPW_OUTCOME_OK},
                 {299, SPW_ANSWER_OK, SPW_OUTCOME_OK},
                 {400, SPW_ANSWER_REJECTED, SPW_OUTCOME_OK},
                 {422, SPW_ANSWER_REJECTED, SPW_OUTCOME_OK},
                 {429, SPW_ANSWER_THROTTLED, SPW_OUTCOME_THROTTLED},
                 {401, SPW_ANSWER_ERROR, SPW_OUTCOME_OK}, /* falls back, but the provider answers */
                 {403, SPW_ANSWER_ERROR, SPW_OUTCOME_OK},
                 {404, SPW_ANSWER_ERROR, SPW_OUTCOME_OK},
                 {405, SPW_ANSWER_ERROR, SPW_OUTCOME_OK},
                 {408, SPW_ANSWER_ERROR, SPW_OUTCOME_FAILED},
                 {302, SPW_ANSWER_ERROR, SPW_OUTCOME_FAILED},
                 {500, SPW_ANSWER_ERROR, SPW_OUTCOME_FAILED},
                 {999, SPW_ANSWER_ERROR, SPW_OUTCOME_FAILED}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        assert_int_equal(spw_answer_of_status(kinds[i].status), kinds[i].kind);
        assert_int_equal(spw_answer_outcome(kinds[i].kind, kinds[i].status), kinds[i].outcome);
        if (kinds[i].status >= 400) /* what spw_report makes of it */
            assert_int_equal(spw_outcome_of_status(kinds[i].status), kinds[i].outcome);
    }
    assert_int_equal(spw_answer_outcome(SPW_ANSWER_BUSY, 429), SPW_OUTCOME_NEUTRAL);
    assert_int_equal(spw_answer_outcome(SPW_ANSWER_BROKEN, 200), SPW_OUTCOME_FAILED);
    assert_int_equal(spw_answer_outcome(SPW_ANSWER_REJECTED, 408), SPW_OUTCOME_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gate_and_evidence),
                                       cmocka_unit_test(test_reset_unit),
                                       cmocka_unit_test(test_status_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
