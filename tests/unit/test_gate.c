/* test_gate.c: the gate on a fake clock: who may shut, shorten and open it, and the one call that asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm/spw_admission.h"
#include "tests/support/state_fixture.h"

#define MS UINT64_C(1000000)
#define S  SPW_TEST_S

static struct spw_state_fixture f;
static struct spw_account_words *words;
static struct spw_account_conf conf;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1000000/s, burst: 1000000, pods: 1}\n    deadline: 1s", NULL);
    words = spw_account_words_at(f.map, 0);
    assert_true(spw_account_conf_read(spw_account_at(f.map, 0), &conf));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static enum spw_gate_verdict enter(uint64_t now, bool take)
{
    uint64_t wait_ns;
    uint32_t source;
    return spw_gate_enter(f.map, words, &conf, now, take, &wait_ns, &source);
}

/* What the provider asked for in words is kept to its end, rounded up; 3,600 s keep nobody waiting (WAIT-H2). */
static void retry_after(void **state)
{
    uint64_t t = f.t0_ns, wait_ns = 0;
    uint32_t source = 0;
    (void)state;
    spw_gate_shut(f.map, words, t + 3600 * S, SPW_GATE_RETRY_AFTER, t, t);
    assert_int_equal(spw_gate_enter(f.map, words, &conf, t, true, &wait_ns, &source), SPW_GATE_SHUT);
    assert_in_range(wait_ns, 3600 * S, 3600 * S + MS);
    assert_int_equal(source, SPW_GATE_RETRY_AFTER);
    spw_gate_open(f.map, words, t + 10 * S, t + 10 * S,
                  false); /* a newer call went through: the words still hold */
    assert_int_equal(enter(t + 3599 * S, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + wait_ns - 1, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + wait_ns, true), SPW_GATE_PASS);
}

/* Answers arrive in any order: only one to a newer call may shorten the wait or open the gate. */
static void order_of_answers(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    spw_gate_shut(f.map, words, t + 60 * S, SPW_GATE_RESET, t + 10 * S, t + 11 * S);
    spw_gate_shut(f.map, words, t + 20 * S, SPW_GATE_RESET, t + 5 * S,
                  t + 11 * S); /* older and shorter: no */
    assert_int_equal(enter(t + 30 * S, true), SPW_GATE_SHUT);
    spw_gate_open(f.map, words, t + 5 * S, t + 5 * S, false); /* older: no */
    assert_int_equal(enter(t + 30 * S, true), SPW_GATE_SHUT);
    spw_gate_shut(f.map, words, t + 90 * S, SPW_GATE_RESET, t + 5 * S,
                  t + 11 * S); /* older and longer: yes */
    assert_int_equal(enter(t + 80 * S, true), SPW_GATE_SHUT);
    spw_gate_shut(f.map, words, t + 40 * S, SPW_GATE_RESET, t + 12 * S,
                  t + 13 * S); /* newer and shorter: yes */
    assert_int_equal(enter(t + 39 * S, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + 41 * S, true), SPW_GATE_PASS);
    spw_gate_open(f.map, words, t + 14 * S, t + 14 * S, false);
    assert_int_equal(enter(t + 14 * S, true), SPW_GATE_PASS);
    assert_true(words->gate == 0);
}

/* Nobody said when: shut for a moment, then one call asks for all, and its answer decides. */
static void one_call_asks(void **state)
{
    uint64_t t = f.t0_ns, probe_ns = conf.probe_ms * MS;
    (void)state;
    spw_gate_shut(f.map, words, t + S, SPW_GATE_UNKNOWN_429, t, t);
    assert_int_equal(enter(t + 999 * MS, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + S + MS, false), SPW_GATE_PASS); /* a look claims nothing */
    assert_int_equal(enter(t + S + MS, true), SPW_GATE_PASS_REFRESH);
    assert_int_equal(enter(t + S + MS, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + S + probe_ns, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + S + probe_ns + 2 * MS, true), SPW_GATE_PASS_REFRESH); /* the first one died */
    spw_gate_shut(f.map, words, t + 10 * S, SPW_GATE_RESET, t + 4 * S, t + 4 * S);   /* now it is known */
    assert_int_equal(enter(t + 9 * S, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + 11 * S, true), SPW_GATE_PASS);

    words->gate = 0;
    spw_gate_shut(f.map, words, t + 21 * S, SPW_GATE_UNKNOWN_BUFFER, t + 20 * S, t + 20 * S);
    assert_int_equal(enter(t + 22 * S, true), SPW_GATE_PASS_REFRESH);
    spw_gate_open(f.map, words, t + 22 * S, t + 22 * S, true);
    assert_int_equal(enter(t + 22 * S, true), SPW_GATE_PASS);
}

/* No provider's word is believed beyond a day; a word further ahead is damage and does not shut. */
static void beyond_a_day(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    spw_gate_shut(f.map, words, t + 400 * 86400 * S, SPW_GATE_RETRY_AFTER, t, t);
    assert_int_equal(enter(t + 86399 * S, true), SPW_GATE_SHUT);
    assert_int_equal(enter(t + 86401 * S, true), SPW_GATE_PASS);
    words->gate = spw__gate_word(SPW_GATE_RESET, 0, SPW_TIME_MASK);
    assert_int_equal(enter(t, true), SPW_GATE_PASS);
    words->gate = SPW_MOVED;
    assert_int_equal(enter(t, true), SPW_GATE_GONE);
    spw_gate_shut(f.map, words, t + S, SPW_GATE_RESET, t, t);
    spw_gate_open(f.map, words, t + S, t + S, false);
    assert_true(words->gate == SPW_MOVED);
}

/* A retry is not held by the pause its own 429 caused, nor by the header buffer; the provider's own words hold it. */
static void retries(void **state)
{
    uint64_t t = f.t0_ns;
    struct spw_ticket ticket;
    (void)state;
    static const struct {
        uint32_t source;
        enum spw_cause first;
        bool retry_passes;
    } cases[] = {{SPW_GATE_UNKNOWN_429, SPW_CAUSE_GATE_SHUT, true},
                 {SPW_GATE_BUFFER_RESET, SPW_CAUSE_REMAINING_BELOW_BUFFER, true},
                 {SPW_GATE_UNKNOWN_BUFFER, SPW_CAUSE_REMAINING_BELOW_BUFFER, true},
                 {SPW_GATE_RETRY_AFTER, SPW_CAUSE_GATE_SHUT, false},
                 {SPW_GATE_RESET, SPW_CAUSE_GATE_SHUT, false},
                 {SPW_GATE_GOAWAY, SPW_CAUSE_GATE_SHUT, false}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        words->gate = 0;
        spw_gate_shut(f.map, words, t + S, cases[i].source, t, t);
        struct spw_admission a = spw_admit(f.map, 0, 1, 0, 1, 0, t, &ticket);
        assert_int_equal(a.verdict, SPW_DENY);
        assert_int_equal(a.cause, cases[i].first);
        assert_in_range(a.wait_ns, S, S + MS);
        a = spw_admit(f.map, 0, 1, SPW_ACQUIRE_RETRY, 1, 0, t, &ticket);
        assert_int_equal(a.may_call, cases[i].retry_passes);
    }
}

/* A gate that is carried into the next segment keeps its end and its place in time (here: another capacity). */
static void carried_to_the_next_segment(void **state)
{
    (void)state;
    uint64_t now = spw_now_ns(), until = now + 60 * S;
    /* As if the segment had been made a day ago: observations in it are large numbers. */
    ((struct spw_header *)(void *)f.map->pub)->base_ns = ((struct spw_header *)(void *)f.map->rw)->base_ns =
        1;
    f.map->base_ns = 1;
    spw_gate_shut(f.map, words, until, SPW_GATE_RESET, now, now);
    spw_state_fixture_close(&f, true);
    spw_state_fixture_configure(&f, "limit: {rate: 1000000/s, burst: 1000000, pods: 1}\n    deadline: 1s",
                                "segment: {slots: 32, cells: 64, rate_records: 1024}");
    spw_state_fixture_open(&f);
    assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
    words = spw_account_words_at(f.map, 0);
    uint64_t wait_ns = 0;
    uint32_t source = 0;
    assert_int_equal(spw_gate_enter(f.map, words, &conf, now, true, &wait_ns, &source), SPW_GATE_SHUT);
    assert_int_equal(source, SPW_GATE_RESET);
    assert_in_range(now + wait_ns, until, until + 2 * MS);
    spw_gate_open(f.map, words, spw_now_ns() + S, spw_now_ns() + S,
                  false); /* a call sent later than the one that shut it */
    assert_int_equal(enter(now, true), SPW_GATE_PASS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(retry_after, set_up, tear_down),
        cmocka_unit_test_setup_teardown(order_of_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_call_asks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beyond_a_day, set_up, tear_down),
        cmocka_unit_test_setup_teardown(retries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(carried_to_the_next_segment, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
