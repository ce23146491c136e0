/* test_bucket.c: the bucket in its shared word: changed limits, damaged words, reservations, restarts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm/spw_bucket.h"
#include "tests/support/state_fixture.h"

#define MS UINT64_C(1000000)
#define S  SPW_TEST_S

struct words {
    struct spw_state_fixture f;
    const struct spw_limiter *limiter;
    struct spw_limiter_words *words;
};

static void find_words(struct words *w)
{
    w->limiter = spw_limiter_at(w->f.map, 0);
    w->words = spw_limiter_words_at(w->f.map, 0);
}

static int set_up(void **state)
{
    struct words *w = test_calloc(1, sizeof *w);
    spw_state_fixture_make(&w->f, "limit: {rate: 10/s, burst: 100, pods: 1}", NULL);
    find_words(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct words *w = *state;
    spw_state_fixture_remove(&w->f);
    test_free(w);
    return 0;
}

static struct spw_bucket_answer take(struct words *w, uint64_t now_ns, uint64_t tokens)
{
    return spw_bucket_take(w->limiter, w->words, now_ns, tokens, false, 0, true);
}

static unsigned drain(struct words *w, uint64_t now_ns)
{
    unsigned n = 0;
    while (n < 100000 && take(w, now_ns, 1).result == SPW_BUCKET_TAKEN)
        n++;
    return n;
}

/* A first segment's bucket is full; an empty one says exactly when to come again. */
static void starts_full(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    assert_int_equal(drain(w, t), 100);
    struct spw_bucket_answer a = take(w, t, 1);
    assert_int_equal(a.result, SPW_BUCKET_WAIT);
    assert_int_equal(take(w, t + a.wait_ns - 1, 1).result, SPW_BUCKET_WAIT);
    assert_int_equal(take(w, t + a.wait_ns, 1).result, SPW_BUCKET_TAKEN);
}

/* A refusal and a look write nothing. */
static void refusal_writes_nothing(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    (void)spw_bucket_take(w->limiter, w->words, t, 1, false, 0, false);
    struct spw_limiter_words full = *w->words;
    (void)spw_bucket_take(w->limiter, w->words, t, 100, true, 0, false);
    assert_memory_equal(w->words, &full, sizeof full);
    drain(w, t);
    struct spw_limiter_words empty = *w->words;
    assert_memory_not_equal(&empty, &full, sizeof full);
    for (int i = 0; i < 100; i++)
        (void)take(w, t, 1);
    assert_memory_equal(w->words, &empty, sizeof empty);
}

/* CFG-H1: reloading the same numbers, or changing something else, refills nothing. */
static void reload_refills_nothing(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    drain(w, t);
    unsigned admitted = 0;
    for (uint64_t i = 1; i <= 10; i++) {
        uint64_t now = t + i * 100 * MS;
        if (i % 2) {
            spw_state_fixture_set(&w->f, 10, S, 100, now);
        } else {
            struct spw_breaker_change change = {NULL, SPW_FORCED_CLOSED, false, false};
            struct spw_breaker_view view;
            assert_int_equal(spw_state_breaker_set(w->f.state, "main", &change, 0, false, now, &view, NULL),
                             SPW_STATUS_OK);
        }
        admitted += drain(w, now);
    }
    assert_int_equal(admitted, 10);
}

/* A restart adopts: the bucket stays as drained as it was; only real time fills it. */
static void restart_refills_nothing(void **state)
{
    struct words *w = *state;
    for (int i = 0; i < 10; i++) {
        uint64_t before = spw_now_ns();
        drain(w, before);
        spw_state_fixture_close(&w->f, i % 2);
        spw_state_fixture_open(&w->f);
        assert_string_equal(spw_state_origin(w->f.state), "adopted");
        find_words(w);
        uint64_t after = spw_now_ns();
        assert_true(drain(w, after) <= (after - before) / (100 * MS) + 1);
    }
}

/* A restart with another limit is a change of the limit: tokens in hand are kept, cut to the new burst. */
static void restart_with_another_limit(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    for (int i = 0; i < 90; i++)
        (void)take(w, t, 1);
    spw_state_fixture_close(&w->f, true);
    spw_state_fixture_configure(&w->f, "limit: {rate: 1/d, burst: 100, pods: 1}", NULL);
    spw_state_fixture_open(&w->f);
    assert_string_equal(spw_state_origin(w->f.state), "adopted");
    find_words(w);
    uint64_t now = spw_now_ns();
    unsigned in_hand = drain(w, now);
    assert_in_range(in_hand, 10, 10 + (now - t) / (100 * MS) + 1);
}

/* Rate and level change together: what was in hand stays, the new rate earns from then on. */
static void limit_changes(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns, version = 0;
    for (int i = 0; i < 70; i++)
        assert_int_equal(take(w, t, 1).result, SPW_BUCKET_TAKEN); /* 30 in hand */
    for (uint64_t i = 0; i < 40; i++) { /* more often than there are configuration slots */
        uint64_t rising = spw_state_fixture_set(&w->f, 10 + i, S, 100, t);
        assert_true(rising > version || i == 0);
        version = rising;
        assert_int_equal(take(w, t, 200).version, version);
        struct spw_bucket_answer look = spw_bucket_take(w->limiter, w->words, t, 1, false, 0, false);
        assert_int_equal(look.available_units / look.units_per_token, 30);
    }
    spw_state_fixture_set(&w->f, 1000, S, 20, t); /* the burst cuts what is in hand */
    assert_int_equal(drain(w, t), 20);
    assert_int_equal(drain(w, t + 10 * MS), 10);
    spw_state_fixture_set(&w->f, 0, S, 20, t + 10 * MS); /* the stop switch */
    assert_int_equal(take(w, t + 3650 * 86400 * S, 1).result, SPW_BUCKET_NEVER);
    spw_state_fixture_set(&w->f, 10, S, 20, t + 20 * MS);
    assert_int_equal(drain(w, t + 20 * MS), 0);
    assert_int_equal(drain(w, t + 120 * MS), 1);
}

/* A sidecar that died while it wrote a configuration leaves the old one in force, and the next can write. */
static void died_while_configuring(void **state)
{
    struct words *w = *state;
    struct spw_limiter *limiter = spw_limiter_at(w->f.map, 0);
    uint64_t t = w->f.t0_ns;
    drain(w, t);
    uint32_t next = (uint32_t)(limiter->current + 1) % SPW_CONFIG_SLOTS;
    limiter->conf[next].version = 7; /* odd: being written */
    limiter->conf[next].units_den = 0;
    assert_int_equal(drain(w, t + S), 10);
    spw_state_fixture_set(&w->f, 20, S, 100, t + S);
    assert_int_equal(drain(w, t + 2 * S), 20);

    /* Died after the change was in force, before its version was shown: the version is not used twice. */
    struct spw_account *account = spw_account_at(w->f.map, 0);
    account->version--;
    uint64_t before = take(w, t + 2 * S, 200).version;
    assert_true(spw_state_fixture_set(&w->f, 30, S, 100, t + 2 * S) > before);
}

/* An impossible word becomes an EMPTY bucket of the current configuration, and is counted. */
static void damaged_word_is_emptied(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    const uint64_t damaged[] = {
        spw_bucket_word(9, 5),                                                   /* no such configuration */
        spw_bucket_word((uint32_t)w->limiter->current, (UINT64_C(1) << 60) - 3), /* years ahead */
        spw_bucket_word((uint32_t)w->limiter->current,
                        w->limiter->conf[w->limiter->current].e0_units * 9 + t * 3),
    };
    for (unsigned i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        uint64_t healed = w->words->healed_count;
        w->words->level = damaged[i];
        assert_int_equal(take(w, t, 1).result, SPW_BUCKET_WAIT);
        assert_int_equal(w->words->healed_count, healed + 1);
        assert_int_equal(drain(w, t + S), 10);
    }
}

/* A word that moved to the next segment is never changed again. */
static void moved_word(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    w->words->level = SPW_MOVED;
    assert_int_equal(take(w, t, 1).result, SPW_BUCKET_MOVED);
    spw_bucket_give_back(w->limiter, w->words, t, 1, &(struct spw_charge){.version = 1});
    assert_true(w->words->level == SPW_MOVED);
    assert_int_equal(w->words->healed_count, 0);
}

static void give_back(struct words *w, uint64_t now, uint64_t tokens, const struct spw_bucket_answer *taken)
{
    spw_bucket_give_back(w->limiter, w->words, now, tokens, &taken->charge);
}

/* What is given back counts as never taken, in whatever order; the takes of others stay. */
static void give_backs(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns, full = w->words->level;
    struct spw_bucket_answer a[3];
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 3; k++)
            a[k] = take(w, t, 10);
        take(w, t, 50);
        for (int k = 0; k < 3; k++)
            give_back(w, t, 10, &a[order[i][k]]);
        assert_int_equal(drain(w, t), 50);
        w->words->level = full;
    }
    a[0] = take(w, t, 100);
    give_back(w, t + S, 100, &a[0]); /* ten were earned meanwhile; a bucket holds a hundred */
    assert_int_equal(drain(w, t + S), 100);
}

/* Waiters that all give up after a while, last come first gone: the next one waits as if they had never been. */
static void give_backs_of_waiters(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    struct spw_bucket_answer a[8];
    drain(w, t);
    for (int round = 0; round < 1000; round++) {
        for (int k = 0; k < 8; k++) {
            a[k] = spw_bucket_take(w->limiter, w->words, t, 1, false, S, true);
            assert_int_equal(a[k].wait_ns, (uint64_t)(k + 1) * 100 * MS);
        }
        for (int k = 7; k >= 0; k--)
            give_back(w, t + 50 * MS, 1, &a[k]);
    }
    assert_int_equal(take(w, t, 1).wait_ns, 100 * MS);
    assert_int_equal(drain(w, t + S), 10);
}

/* One who gives up while others wait behind him leaves their times alone: nobody may begin beside them. What he had
 * reserved beyond them goes back. */
static void give_back_before_waiters(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    drain(w, t);
    struct spw_bucket_answer first = spw_bucket_take(w->limiter, w->words, t, 1, false, S, true);
    struct spw_bucket_answer second = spw_bucket_take(w->limiter, w->words, t, 1, false, S, true);
    give_back(w, t, 1, &first);
    assert_int_equal(spw_bucket_take(w->limiter, w->words, t, 1, false, S, false).wait_ns, 300 * MS);
    give_back(w, t, 1, &second);
    assert_int_equal(spw_bucket_take(w->limiter, w->words, t, 1, false, S, false).wait_ns, 200 * MS);
    t += S;
    drain(w, t);
    first = spw_bucket_take(w->limiter, w->words, t, 5, false, S, true);
    second = spw_bucket_take(w->limiter, w->words, t, 1, false, S, true);
    give_back(w, t, 5, &first);
    assert_int_equal(spw_bucket_take(w->limiter, w->words, t, 1, false, S, false).wait_ns, 300 * MS);
}

/* A bucket that was full in between has forgotten the take: giving it back would be one more than burst + rate * t. */
static void give_back_too_late(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    struct spw_bucket_answer a = take(w, t, 30);
    assert_int_equal(drain(w, t + S), 80);
    give_back(w, t + S, 30, &a); /* after one second 20 of the 30 are still owed ... */
    assert_int_equal(drain(w, t + S), 20);
    a = take(w, t + 20 * S, 30);
    assert_int_equal(drain(w, t + 23 * S), 100);
    give_back(w, t + 23 * S, 30, &a); /* ... after three none */
    assert_int_equal(drain(w, t + 23 * S), 0);
    give_back(w, t + 23 * S, UINT64_MAX, &a);
    assert_int_equal(drain(w, t + 23 * S), 0);
}

/* What was taken under another configuration is not given back: its units are others. */
static void give_back_after_a_change(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    struct spw_bucket_answer a = take(w, t, 50);
    drain(w, t);
    for (int i = 0; i < 17; i++) { /* round all the slots */
        spw_state_fixture_set(&w->f, 11 - (i & 1), S, 100, t);
        give_back(w, t, 50, &a);
        assert_int_equal(drain(w, t), 0);
    }
}

/* Reservations: paid at once, none beyond an hour, given back by a refund. */
static void reservations(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    drain(w, t);
    struct spw_bucket_answer a = {0};
    for (uint64_t i = 1; i <= 20; i++) {
        a = spw_bucket_take(w->limiter, w->words, t, 1, false, 2 * S, true);
        assert_int_equal(a.result, SPW_BUCKET_TAKEN);
        assert_int_equal(a.wait_ns, i * 100 * MS);
    }
    struct spw_bucket_answer late = spw_bucket_take(w->limiter, w->words, t, 1, false, 2 * S, true);
    assert_int_equal(late.result, SPW_BUCKET_WAIT);
    assert_int_equal(late.wait_ns, 2100 * MS);
    give_back(w, t, 1, &a);
    assert_int_equal(spw_bucket_take(w->limiter, w->words, t, 1, false, 2 * S, true).wait_ns, 2000 * MS);
    uint64_t reserved = 0;
    while (spw_bucket_take(w->limiter, w->words, t, 10, false, UINT64_MAX, true).result == SPW_BUCKET_TAKEN)
        reserved += 10;
    assert_int_equal(reserved, 36000 - 20); /* an hour's worth, less what was reserved before */
    assert_int_equal(w->words->healed_count, 0);
    assert_int_equal(drain(w, t + 3600 * S), 0);
    assert_int_equal(drain(w, t + 3601 * S), 10);
}

/* CLK-H2: time asleep counts: CLOCK_BOOTTIME runs on. CLK-H1: a clock set back grants nothing. */
static void clocks(void **state)
{
    struct words *w = *state;
    uint64_t t = w->f.t0_ns;
    spw_state_fixture_set(&w->f, 100, 3600 * S, 100, t);
    drain(w, t);
    assert_int_equal(drain(w, t + 36000 * S), 100);
    for (uint64_t back = 0; back <= 1800; back += 100)
        assert_int_equal(take(w, t + (36000 - back) * S, 1).result, SPW_BUCKET_WAIT);
    assert_int_equal(drain(w, t + 36036 * S), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(starts_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusal_writes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reload_refills_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(restart_refills_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(restart_with_another_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limit_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(died_while_configuring, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_word_is_emptied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(moved_word, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_backs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_backs_of_waiters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_back_before_waiters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_back_too_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_back_after_a_change, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reservations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(clocks, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
