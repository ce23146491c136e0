/* test_breaker.c: the circuit breaker on a fake clock: trips, the one probe, lost probes, epochs, forced states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "shm/spw_admission.h"
#include "tests/support/state_fixture.h"

#define MS UINT64_C(1000000)
#define S  SPW_TEST_S

static struct spw_state_fixture f;
static struct spw_account *account;
static struct spw_account_words *words;
static struct spw_account_conf conf;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f,
                           "limit: {rate: 1000000/s, burst: 1000000, pods: 1}\n"
                           "    deadline: 1s\n"
                           "    breaker: {consecutive_429: 5, ratio_429: 50%, minimum: 20, window: 10s, "
                           "cooldown: 5s..12s}",
                           NULL);
    account = spw_account_at(f.map, 0);
    words = spw_account_words_at(f.map, 0);
    assert_true(spw_account_conf_read(account, &conf));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static struct spw_breaker_answer enter(uint64_t now)
{
    return spw_breaker_enter(f.map, account, words, &conf, now, true);
}

static bool end(uint64_t now, uint32_t epoch, enum spw_outcome outcome)
{
    return spw_breaker_outcome(f.map, words, &conf, now, epoch, outcome);
}

static struct spw_breaker_word word(void)
{
    return spw_breaker_unpack(words->breaker);
}

/* Calls that all ended this way at one instant; returns how many were let through. */
static unsigned calls(uint64_t now, unsigned count, enum spw_outcome outcome)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++) {
        struct spw_breaker_answer a = enter(now);
        if (a.verdict == SPW_BREAKER_REFUSE)
            continue;
        passed++;
        end(now, a.epoch, outcome);
    }
    return passed;
}

/* BRK-H1: a probe's result alone decides; the minimum sample belongs to the closed state. */
static void failed_probe_opens_again(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    assert_int_equal(calls(t, 20, SPW_OUTCOME_FAILED), 20);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
    assert_int_equal(enter(t + 4 * S).verdict, SPW_BREAKER_REFUSE);
    struct spw_breaker_answer probe = enter(t + 15 * S);
    assert_int_equal(probe.verdict, SPW_BREAKER_PROBE);
    assert_true(end(t + 15 * S, probe.epoch, SPW_OUTCOME_FAILED));
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
    assert_int_equal(enter(t + 17 * S).verdict, SPW_BREAKER_REFUSE);
    struct spw_breaker_answer again = enter(t + 15 * S + 10 * S + MS); /* the cooldown has doubled */
    assert_int_equal(again.verdict, SPW_BREAKER_PROBE);
    assert_true(end(t + 26 * S, again.epoch, SPW_OUTCOME_OK));
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    assert_int_equal(enter(t + 26 * S).verdict, SPW_BREAKER_PASS);
}

/* The cooldown: minimum, doubled, never above the maximum; a success starts at the minimum again. */
static void cooldown_grows_to_its_maximum(void **state)
{
    static const uint64_t cooldown_s[] = {5, 10, 12, 12, 12};
    uint64_t now = f.t0_ns;
    (void)state;
    calls(now, 5, SPW_OUTCOME_THROTTLED);
    for (unsigned i = 0; i < 5; i++) {
        struct spw_breaker_answer refused = enter(now);
        assert_int_equal(refused.verdict, SPW_BREAKER_REFUSE);
        assert_in_range(refused.wait_ns, cooldown_s[i] * S, cooldown_s[i] * S + MS);
        assert_int_equal(enter(now + refused.wait_ns - 1).verdict, SPW_BREAKER_REFUSE);
        now += refused.wait_ns;
        struct spw_breaker_answer probe = enter(now);
        assert_int_equal(probe.verdict, SPW_BREAKER_PROBE);
        end(now, probe.epoch, i < 4 ? SPW_OUTCOME_THROTTLED : SPW_OUTCOME_OK);
    }
    calls(now, 5, SPW_OUTCOME_THROTTLED);
    assert_in_range(enter(now).wait_ns, 5 * S, 5 * S + MS);
}

/* BRK-H2: 8 processes with 50 callers each find the cooldown over at one instant: one of the 400 is the probe. */
static void one_probe_for_all(void **state)
{
    uint64_t t = f.t0_ns;
    int go[2], result[2];
    (void)state;
    calls(t, 5, SPW_OUTCOME_THROTTLED);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(result), 0);
    for (int p = 0; p < 8; p++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            char byte;
            close(go[1]);
            (void)!read(go[0], &byte, 1); /* ends for all when the parent closes */
            uint32_t count[2] = {0, 0};
            for (int i = 0; i < 50; i++) {
                enum spw_breaker_verdict verdict = enter(t + 5 * S + MS).verdict;
                count[0] += verdict == SPW_BREAKER_PROBE;
                count[1] += verdict == SPW_BREAKER_REFUSE;
            }
            (void)!write(result[1], count, sizeof count);
            _exit(0);
        }
    }
    close(go[0]);
    close(go[1]);
    uint32_t probes = 0, refused = 0;
    for (int p = 0; p < 8; p++) {
        uint32_t count[2];
        assert_int_equal(read(result[0], count, sizeof count), sizeof count);
        probes += count[0];
        refused += count[1];
        assert_true(wait(NULL) > 0);
    }
    close(result[0]);
    close(result[1]);
    assert_int_equal(probes, 1);
    assert_int_equal(refused, 399);
    uint32_t epoch = word().epoch;
    assert_true(end(t + 5 * S + 200 * MS, epoch, SPW_OUTCOME_FAILED));
    assert_int_equal(enter(t + 10 * S).verdict, SPW_BREAKER_REFUSE);
}

/* BRK-H3: the caller's own faults are answers like any other: spw_report makes OK of a 400, and the breaker stays. */
static void bad_input_is_no_failure(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    assert_int_equal(calls(t, 210, SPW_OUTCOME_OK), 210);
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    assert_int_equal(calls(t + 15 * S, 20, SPW_OUTCOME_FAILED), 20);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
}

/* Five 429s in a row open it at once; a success between them starts the count again; 500s do not count as 429s. */
static void consecutive_429(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    for (int i = 0; i < 3; i++) {
        calls(t, 4, SPW_OUTCOME_THROTTLED);
        calls(t, 10, SPW_OUTCOME_OK);
    }
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    calls(t, 4, SPW_OUTCOME_THROTTLED);
    calls(t, 1, SPW_OUTCOME_FAILED); /* not in a row any more */
    calls(t, 4, SPW_OUTCOME_THROTTLED);
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    calls(t, 1, SPW_OUTCOME_THROTTLED);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
}

/* The share counts over the window only, above the ratio only, and from the minimum sample on. */
static void share_of_the_window(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    calls(t, 19, SPW_OUTCOME_FAILED); /* below the minimum */
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    calls(t + 30 * S, 20, SPW_OUTCOME_OK); /* the 19 have left the window */
    calls(t + 30 * S, 20, SPW_OUTCOME_FAILED);
    assert_int_equal(word().state, SPW_BREAKER_CLOSED); /* exactly half is not above half */
    calls(t + 30 * S, 1, SPW_OUTCOME_FAILED);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
}

/* What came before the breaker closed does not open it again. */
static void closed_starts_afresh(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    calls(t, 40, SPW_OUTCOME_FAILED);
    struct spw_breaker_answer probe = enter(t + 6 * S);
    end(t + 6 * S, probe.epoch, SPW_OUTCOME_OK);
    /* One below the minimum, in the tick of the closing; with those of before they would be far above it. */
    assert_int_equal(calls(t + 6 * S, 19, SPW_OUTCOME_FAILED), 19);
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    calls(t + 6 * S, 1, SPW_OUTCOME_FAILED);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
}

/* A probe whose process died is replaced after its permit has expired, by one caller. */
static void lost_probe_is_replaced(void **state)
{
    uint64_t t = f.t0_ns, probe_ns = conf.probe_ms * MS;
    (void)state;
    calls(t, 5, SPW_OUTCOME_THROTTLED);
    struct spw_breaker_answer lost = enter(t + 6 * S);
    assert_int_equal(lost.verdict, SPW_BREAKER_PROBE);
    assert_int_equal(enter(t + 6 * S).verdict, SPW_BREAKER_REFUSE);
    assert_int_equal(enter(t + 6 * S + probe_ns - MS).verdict, SPW_BREAKER_REFUSE);
    struct spw_breaker_answer probe = enter(t + 6 * S + probe_ns + MS);
    assert_int_equal(probe.verdict, SPW_BREAKER_PROBE);
    assert_false(
        end(t + 9 * S, lost.epoch, SPW_OUTCOME_OK)); /* the lost one comes back after all: not applied */
    assert_int_equal(word().state, SPW_BREAKER_HALF_OPEN);
    assert_true(end(t + 9 * S, probe.epoch, SPW_OUTCOME_OK));
}

/* Outcomes of calls that began in another state are counted in the window and change nothing. */
static void late_outcomes(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    uint32_t before = enter(t).epoch;
    calls(t, 5, SPW_OUTCOME_THROTTLED);
    assert_false(end(t + S, before, SPW_OUTCOME_OK));
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
    struct spw_breaker_answer probe = enter(t + 6 * S);
    for (int i = 0; i < 50; i++)
        assert_false(end(t + 6 * S, before, SPW_OUTCOME_FAILED));
    assert_int_equal(word().state, SPW_BREAKER_HALF_OPEN);
    assert_true(end(t + 6 * S, probe.epoch, SPW_OUTCOME_OK));
    for (int i = 0; i < 50; i++)
        assert_false(end(t + 6 * S, before, SPW_OUTCOME_THROTTLED));
    assert_int_equal(word().state, SPW_BREAKER_CLOSED);
    assert_false(end(t + 6 * S, word().epoch, SPW_OUTCOME_NEUTRAL));
}

/* By hand: open, closed, disabled, observe win over the word; looking claims no probe. */
static void forced_states(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    calls(t, 5, SPW_OUTCOME_THROTTLED);
    uint64_t open = words->breaker;
    static const int passing[] = {SPW_FORCED_CLOSED, SPW_FORCED_DISABLED, SPW_FORCED_OBSERVE};
    struct spw_breaker_view view;
    for (unsigned i = 0; i < 3; i++) {
        struct spw_breaker_change change = {NULL, passing[i], false, false};
        assert_int_equal(spw_state_breaker_set(f.state, "main", &change, 0, false, t, &view, NULL),
                         SPW_STATUS_OK);
        assert_int_equal(enter(t).verdict, SPW_BREAKER_PASS);
    }
    struct spw_breaker_change shut = {NULL, SPW_FORCED_OPEN, false, false};
    assert_int_equal(spw_state_breaker_set(f.state, "main", &shut, 0, false, t, &view, NULL), SPW_STATUS_OK);
    struct spw_breaker_answer a = enter(t + 100 * S);
    assert_int_equal(a.verdict, SPW_BREAKER_REFUSE);
    assert_true(a.forced && a.wait_ns == UINT64_MAX);
    struct spw_breaker_change not_forced = {NULL, SPW_FORCED_NOT, false, false};
    assert_int_equal(spw_state_breaker_set(f.state, "main", &not_forced, 0, false, t, &view, NULL),
                     SPW_STATUS_OK);
    assert_true(words->breaker == open);
    assert_int_equal(spw_breaker_enter(f.map, account, words, &conf, t + 6 * S, false).verdict,
                     SPW_BREAKER_PASS);
    assert_true(words->breaker == open);
    struct spw_breaker_change reset = {NULL, -1, true, false};
    assert_int_equal(spw_state_breaker_set(f.state, "main", &reset, 0, false, t, &view, NULL), SPW_STATUS_OK);
    assert_string_equal(view.state, "closed");
    assert_int_equal(enter(t).verdict, SPW_BREAKER_PASS);
}

static void settle(uint64_t now, enum spw_outcome outcome, bool *observed)
{
    struct spw_ticket ticket;
    struct spw_admission a = spw_admit(f.map, 0, account->record_generation, 0, 1, 0, now, &ticket);
    assert_true(a.may_call);
    *observed = a.observed;
    struct spw_call_end call = {.outcome = outcome};
    (void)spw_settle(f.map, &ticket, now, &call);
}

/* Observe: it opens, says so, and closes again by its probes, while every call passes. Disabled: nothing moves. */
static void observed_and_disabled(void **state)
{
    uint64_t t = f.t0_ns;
    bool observed;
    (void)state;
    account->forced = SPW_FORCED_DISABLED;
    for (int i = 0; i < 50; i++)
        settle(t, SPW_OUTCOME_THROTTLED, &observed);
    assert_true(words->breaker == 0);
    account->forced = SPW_FORCED_OBSERVE;
    for (int i = 0; i < 5; i++) {
        settle(t, SPW_OUTCOME_THROTTLED, &observed);
        assert_false(observed);
    }
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
    settle(t + S, SPW_OUTCOME_OK, &observed);
    assert_true(observed);
    assert_int_equal(word().state, SPW_BREAKER_OPEN);
    struct spw_breaker_answer probe = enter(t + 6 * S);
    assert_int_equal(probe.verdict, SPW_BREAKER_PROBE);
    settle(t + 6 * S, SPW_OUTCOME_FAILED, &observed); /* let through beside it: no verdict on the probe */
    assert_true(observed);
    assert_int_equal(word().state, SPW_BREAKER_HALF_OPEN);
    assert_true(end(t + 6 * S, probe.epoch, SPW_OUTCOME_OK));
    settle(t + 6 * S, SPW_OUTCOME_OK, &observed);
    assert_false(observed);
}

/* A state that does not exist, or a time far ahead, counts as open for one minimum cooldown and then heals. */
static void damaged_word(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    const uint64_t damaged[] = {
        UINT64_C(3) << 62,
        (uint64_t)SPW_BREAKER_OPEN << 62 | SPW_TIME_MASK,
        (uint64_t)SPW_BREAKER_HALF_OPEN << 62 | (SPW_TIME_MASK - 1),
    };
    for (unsigned i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        words->breaker = damaged[i];
        struct spw_breaker_answer a = enter(t);
        assert_int_equal(a.verdict, SPW_BREAKER_REFUSE);
        assert_in_range(a.wait_ns, 1, 5 * S + MS);
        assert_int_equal(enter(t + 6 * S).verdict, SPW_BREAKER_PROBE);
    }
    words->breaker = SPW_MOVED;
    assert_int_equal(enter(t).verdict, SPW_BREAKER_GONE);
    assert_false(end(t, 0, SPW_OUTCOME_FAILED));
    assert_true(words->breaker == SPW_MOVED);
}

/* CLK-H2: 36,000 s asleep: the breaker offers its probe at the first call. */
static void asleep(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    calls(t, 5, SPW_OUTCOME_THROTTLED);
    assert_int_equal(enter(t + 36000 * S).verdict, SPW_BREAKER_PROBE);
}

/* An open breaker is still open after the sidecar was restarted. */
static void survives_a_restart(void **state)
{
    (void)state;
    calls(spw_now_ns(), 5, SPW_OUTCOME_THROTTLED);
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    account = spw_account_at(f.map, 0);
    words = spw_account_words_at(f.map, 0);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_int_equal(enter(spw_now_ns()).verdict, SPW_BREAKER_REFUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failed_probe_opens_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cooldown_grows_to_its_maximum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_probe_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_input_is_no_failure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(consecutive_429, set_up, tear_down),
        cmocka_unit_test_setup_teardown(share_of_the_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closed_starts_afresh, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_probe_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(late_outcomes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forced_states, set_up, tear_down),
        cmocka_unit_test_setup_teardown(observed_and_disabled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_word, set_up, tear_down),
        cmocka_unit_test_setup_teardown(asleep, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_a_restart, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
