/* test_admission.c: the whole decision: several limiters at once, switches, reserve, tickets, handles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_admission.h"
#include "tests/support/state_fixture.h"

#define MS  UINT64_C(1000000)
#define S   SPW_TEST_S
#define MIN (60 * S)

static struct spw_state_fixture f;
static struct spw_account *account;
static struct spw_ticket ticket;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f,
                           "limit: {rate: 100/min, burst: 100, pods: 1}\n    concurrency: 8\n"
                           "    batch_reserve: 20%",
                           NULL);
    account = spw_account_at(f.map, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

/* A second limiter, made by hand: index 20, narrower than the account-wide one, which stays last. */
static void add_narrow(uint64_t tokens, uint64_t period_ns, uint64_t burst)
{
    struct spw_limiter *limiter = spw_limiter_at(f.map, 20);
    assert_true(spw_bucket_configure(limiter, spw_limiter_words_at(f.map, 20), tokens, period_ns, burst, 0, 1,
                                     f.t0_ns, true));
    limiter->state = SPW_RECORD_LIVE;
    account->limiters[1] = account->limiters[0];
    account->limiters[0] = 20;
    account->limiters_count = 2;
}

static struct spw_admission admit(uint64_t now, uint32_t flags)
{
    return spw_admit(f.map, 0, account->record_generation, flags, 1, 0, now, &ticket);
}

static void settle_ok(uint64_t now)
{
    struct spw_call_end end = {.outcome = SPW_OUTCOME_OK, .gate_open = true};
    (void)spw_settle(f.map, &ticket, now, &end);
}

static unsigned admit_many(uint64_t now, unsigned count, uint32_t flags)
{
    unsigned passed = 0;
    for (unsigned i = 0; i < count; i++) {
        if (admit(now, flags).may_call) {
            passed++;
            settle_ok(now);
        }
    }
    return passed;
}

/* WIN-H1: what the narrow limit refuses costs the broad one nothing. */
static void refused_call_is_free(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    add_narrow(5, MIN, 5);
    assert_int_equal(admit_many(t, 8, 0), 5);
    account->limiters[0] = account->limiters[1]; /* the other stores: the broad limit alone */
    account->limiters_count = 1;
    assert_int_equal(admit_many(t, 96, 0), 95);
    assert_int_equal(admit(t, 0).cause, SPW_CAUSE_BUCKET_EMPTY);
}

/* The other way round: what the broad limit refuses costs the narrow one nothing, also when the race is lost late. */
static void all_or_nothing(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    add_narrow(1000, MIN, 1000);
    assert_int_equal(admit_many(t, 200, 0), 100);
    struct spw_bucket_answer look =
        spw_bucket_take(spw_limiter_at(f.map, 20), spw_limiter_words_at(f.map, 20), t, 1, false, 0, false);
    assert_int_equal(look.available_units / look.units_per_token, 900);

    /* Lost late: looked at while there was a token, taken when there is none any more. */
    struct spw__account_view v;
    struct spw_admission a = {0};
    struct spw_ticket late = {.tokens = 1};
    uint64_t now = t + 600 * MS, wait; /* one token */
    assert_true(spw__account_open(f.map, 0, account->record_generation, &v));
    spw__view_ask(&v, 0, 1, 0, now);
    assert_true(spw__admit_look(&v, &a, &late, &wait));
    assert_true(admit(now, 0).may_call);
    settle_ok(now);
    uint64_t before = spw_limiter_words_at(f.map, 20)->level;
    assert_false(spw__admit_take(&v, wait, &a, &late));
    assert_true(spw_limiter_words_at(f.map, 20)->level == before);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, now), 8);
}

/* A refusal, and a look, write to nothing that another process writes; only this process's own statistics move. */
static void refusal_writes_nothing(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    admit_many(t, 100, 0);
    uint64_t rw_bytes = f.map->rw_bytes;
    uint8_t *before = malloc(rw_bytes);
    assert_non_null(before);
    memcpy(before, f.map->rw, rw_bytes);
    for (int i = 0; i < 50; i++)
        assert_false(admit(t, 0).may_call);
    struct spw_stats *mine = spw__stats(f.map, 0);
    struct spw_stats was;
    memcpy(&was, before + ((uint8_t *)mine - f.map->rw), sizeof was);
    assert_int_equal(mine->count[SPW_STAT_DENY_BUCKET] - was.count[SPW_STAT_DENY_BUCKET], 50);
    memcpy(before + ((uint8_t *)mine - f.map->rw), mine, sizeof *mine);
    assert_memory_equal(f.map->rw, before, rw_bytes);
    for (int i = 0; i < 50; i++)
        assert_false(admit(t, SPW_ACQUIRE_PEEK).may_call);
    assert_true(admit(t + MIN, SPW_ACQUIRE_PEEK).may_call);
    assert_memory_equal(f.map->rw, before, rw_bytes);
    free(before);
}

/* Class batch leaves the reserve to the checkout. */
static void batch_reserve(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    assert_int_equal(admit_many(t, 100, SPW_ACQUIRE_BATCH), 80);
    struct spw_admission a = admit(t, SPW_ACQUIRE_BATCH);
    assert_int_equal(a.cause, SPW_CAUSE_BATCH_RESERVE);
    assert_int_equal(a.wait_ns, 600 * MS);
    assert_int_equal(admit_many(t, 100, 0), 20);
    assert_int_equal(admit(t, SPW_ACQUIRE_BATCH).cause, SPW_CAUSE_BUCKET_EMPTY);
    assert_true(admit(t + 21 * 600 * MS, SPW_ACQUIRE_BATCH).may_call);
}

/* The kill switch takes a limiter out: it admits, charges nothing, and a ticket given back refunds nothing. */
static void kill_switch(void **state)
{
    uint64_t t = f.t0_ns;
    struct spw_limiter *limiter = spw_limiter_at(f.map, account->limiters[0]);
    uint64_t *const switches[] = {&limiter->switches, &account->switches, &spw_map_pub(f.map)->switches};
    (void)state;
    admit_many(t, 100, 0);
    for (unsigned i = 0; i < 3; i++) {
        *switches[i] = SPW_SWITCH_KILL;
        for (int k = 0; k < 50; k++) {
            assert_true(admit(t, 0).may_call);
            spw_abandon(f.map, &ticket, t);
        }
        *switches[i] = 0;
        assert_int_equal(admit_many(t, 10, 0), 0);
    }
}

/* Observe: everything passes and what would have been refused is counted. */
static void observe(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    account->switches = SPW_SWITCH_OBSERVE;
    uint64_t before = spw__stats(f.map, 0)->count[SPW_STAT_OBSERVED];
    assert_int_equal(admit_many(t, 130, 0), 130);
    assert_int_equal(spw__stats(f.map, 0)->count[SPW_STAT_OBSERVED] - before, 30);
    assert_true(admit(t, 0).observed);
    spw_abandon(f.map, &ticket, t); /* it had taken nothing */
    account->switches = 0;
    assert_int_equal(admit_many(t, 10, 0), 0);
    assert_int_equal(admit_many(t + 6 * S, 20, 0), 10);
}

/* Gate shut and breaker open at once: the breaker is the reason, both while it is open and while its probe is out. */
static void breaker_before_gate(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    struct spw_call_end end = {.outcome = SPW_OUTCOME_THROTTLED,
                               .gate_shut = true,
                               .gate_source = SPW_GATE_UNKNOWN_429,
                               .gate_until_ns = t + S};
    assert_true(admit(t, 0).may_call);
    (void)spw_settle(f.map, &ticket, t, &end);
    assert_int_equal(admit(t, 0).cause, SPW_CAUSE_GATE_SHUT);
    for (int i = 0; i < 4; i++) { /* four retries, which their own gate lets through */
        assert_true(admit(t, SPW_ACQUIRE_RETRY).may_call);
        (void)spw_settle(f.map, &ticket, t, &end);
    }
    struct spw_admission a = admit(t, 0);
    assert_int_equal(a.cause, SPW_CAUSE_BREAKER_OPEN);
    assert_true(a.wait_ns >= 30 * S);
    assert_int_equal(admit(t, SPW_ACQUIRE_PEEK).cause, SPW_CAUSE_BREAKER_OPEN);

    uint64_t later = t + a.wait_ns + S;
    assert_true(admit(later, 0).may_call);
    assert_true(ticket.probe && ticket.refresh);
    struct spw_ticket probe = ticket;
    assert_int_equal(admit(later, 0).cause, SPW_CAUSE_BREAKER_OPEN);
    ticket = probe;
    settle_ok(later);
    assert_true(admit(later, 0).may_call);
    settle_ok(later);

    /* A gate shut again must not cost the probe of a breaker whose cooldown is over. */
    for (int i = 0; i < 5; i++) {
        assert_true(admit(later, SPW_ACQUIRE_RETRY).may_call);
        end.gate_source = SPW_GATE_RETRY_AFTER;
        end.gate_until_ns = later + 200 * S;
        end.gate_shut = i == 4;
        (void)spw_settle(f.map, &ticket, later, &end);
    }
    assert_int_equal(admit(later, 0).cause, SPW_CAUSE_BREAKER_OPEN);
    later += 100 * S;
    assert_int_equal(admit(later, 0).cause, SPW_CAUSE_GATE_SHUT);
    later += 100 * S;
    assert_true(admit(later, 0).may_call);
    assert_true(ticket.probe);
}

/* A call that was never made gives back its tokens and its permit; a reservation too. */
static void abandoned_call(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        assert_true(admit(t, 0).may_call);
        spw_abandon(f.map, &ticket, t);
    }
    assert_int_equal(admit_many(t, 200, 0), 100);
    struct spw_admission a = spw_admit(f.map, 0, account->record_generation, 0, 1, S, t, &ticket);
    assert_int_equal(a.verdict, SPW_ALLOW);
    assert_true(a.start_at_ns == t + 600 * MS);
    spw_abandon(f.map, &ticket, t);
    a = spw_admit(f.map, 0, account->record_generation, 0, 1, S, t, &ticket);
    assert_true(a.start_at_ns == t + 600 * MS);
    assert_int_equal(spw_permit_free_count(f.map, 0, 8, t), 7);
}

/* Concurrency: as many calls in flight as permits; a refused one has taken no token. */
static void concurrency(void **state)
{
    uint64_t t = f.t0_ns;
    struct spw_ticket tickets[8];
    struct spw_call_end end = {.outcome = SPW_OUTCOME_NEUTRAL};
    (void)state;
    for (int i = 0; i < 8; i++) {
        assert_true(admit(t, 0).may_call);
        tickets[i] = ticket;
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(admit(t, 0).cause, SPW_CAUSE_CONCURRENCY);
    for (int i = 0; i < 8; i++)
        (void)spw_settle(f.map, &tickets[i], t, &end);
    assert_int_equal(admit_many(t, 200, 0), 92);
}

/* Several tokens at once, and more than there will ever be. */
static void costs(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    assert_true(spw_admit(f.map, 0, account->record_generation, 0, 60, 0, t, &ticket).may_call);
    struct spw_admission a = spw_admit(f.map, 0, account->record_generation, 0, 60, 0, t, &ticket);
    assert_int_equal(a.verdict, SPW_DENY);
    assert_int_equal(a.wait_ns, 20 * 600 * MS);
    a = spw_admit(f.map, 0, account->record_generation, 0, 101, 0, t, &ticket);
    assert_int_equal(a.verdict, SPW_NEVER);
    assert_int_equal(a.cause, SPW_CAUSE_COST_ABOVE_BURST);
    assert_true(a.wait_ns == SPW_FOREVER_NS);
    spw_state_fixture_set(&f, 0, MIN, 100, t);
    a = spw_admit(f.map, 0, account->record_generation, 0, 60, 0, t, &ticket);
    assert_int_equal(a.verdict, SPW_NEVER);
    assert_int_equal(a.cause, SPW_CAUSE_RATE_ZERO);
}

/* Handles: no such index, another generation, a removed account. */
static void handles(void **state)
{
    uint64_t t = f.t0_ns;
    (void)state;
    uint32_t generation = account->record_generation;
    assert_int_equal(spw_admit(f.map, 100000, generation, 0, 1, 0, t, &ticket).verdict, SPW_BAD_HANDLE);
    assert_int_equal(spw_admit(f.map, 0, generation + 1, 0, 1, 0, t, &ticket).verdict, SPW_BAD_HANDLE);
    assert_int_equal(spw_admit(f.map, 1, generation, 0, 1, 0, t, &ticket).verdict, SPW_BAD_HANDLE);
    account->limiters_count = 9; /* damage: more than there can be */
    assert_int_equal(admit(t, 0).verdict, SPW_BAD_HANDLE);
    account->limiters_count = 1;
    account->limiters[0] = UINT32_MAX;
    assert_int_equal(admit(t, 0).verdict, SPW_BAD_HANDLE);
    account->limiters[0] = 0;
    assert_true(admit(t, 0).may_call);
    account->state = SPW_RECORD_REMOVED;
    assert_int_equal(admit(t, 0).verdict, SPW_BAD_HANDLE);
}

/* Words that moved into the next segment: not attached, and nothing is taken here any more. */
static void moved_words(void **state)
{
    uint64_t t = f.t0_ns;
    struct spw_account_words *words = spw_account_words_at(f.map, 0);
    uint64_t *const moved[] = {&words->breaker, &words->gate, &spw_limiter_words_at(f.map, 0)->level};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t was = *moved[i];
        *moved[i] = SPW_MOVED;
        struct spw_admission a = admit(t, 0);
        assert_int_equal(a.verdict, SPW_NOT_ATTACHED);
        assert_false(a.may_call);
        assert_int_equal(spw_permit_free_count(f.map, 0, 8, t), 8);
        *moved[i] = was;
    }
    assert_int_equal(admit_many(t, 200, 0), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refused_call_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_or_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusal_writes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(batch_reserve, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kill_switch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(observe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(breaker_before_gate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(abandoned_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(concurrency, set_up, tear_down),
        cmocka_unit_test_setup_teardown(costs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(moved_words, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
