/* test_permit.c: concurrency permits: none is lost, none is given twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shm/spw_permit.h"
#include "tests/support/state_fixture.h"

#define MS    UINT64_C(1000000)
#define S     SPW_TEST_S
#define LIMIT 8u
#define LIFE  2000u /* ms */

static struct spw_state_fixture f;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1000/s, burst: 1000, pods: 1}\n    concurrency: 8", NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

struct held {
    uint64_t word;
    uint32_t index;
};

static bool take(uint64_t now, uint32_t use, struct held *held)
{
    return spw_permit_take(f.map, 0, LIMIT, use, LIFE, now, &held->word, &held->index);
}

static uint32_t free_count(uint64_t now)
{
    return spw_permit_free_count(f.map, 0, LIMIT, now);
}

/* CON-H1: eight hold, eight give up, the holders release, a thousand times: all eight are free after each round. */
static void a_thousand_rounds(void **state)
{
    struct held held[LIMIT], refused;
    uint64_t now = f.t0_ns;
    (void)state;
    for (uint32_t round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i < LIMIT; i++)
            assert_true(take(now, round * LIMIT + i, &held[i]));
        for (uint32_t i = 0; i < LIMIT; i++)
            assert_false(take(now + i * MS, i, &refused));
        assert_int_equal(free_count(now), 0);
        now += 50 * MS;
        for (uint32_t i = 0; i < LIMIT; i++)
            spw_permit_release(f.map, held[i].index, held[i].word);
        assert_int_equal(free_count(now), LIMIT);
    }
}

/* A permit whose holder is gone comes back by its expiry alone; the late holder cannot release its successor's. */
static void expiry(void **state)
{
    struct held first[LIMIT], second = {0, 0};
    uint64_t t = f.t0_ns;
    (void)state;
    for (uint32_t i = 0; i < LIMIT; i++)
        assert_true(take(t, i, &first[i]));
    assert_false(take(t + LIFE * MS - 2 * MS, 0, &second));
    assert_int_equal(free_count(t + LIFE * MS + MS), LIMIT);
    assert_true(take(t + LIFE * MS + MS, 0, &second));
    assert_int_equal(second.index, first[0].index);
    spw_permit_release(f.map, first[0].index, first[0].word);
    assert_int_equal(free_count(t + LIFE * MS + MS), LIMIT - 1);
    spw_permit_release(f.map, second.index, second.word);
    spw_permit_release(f.map, second.index, second.word); /* twice does nothing */
    assert_int_equal(free_count(t + LIFE * MS + MS), LIMIT);
}

/* The sweep clears what names a dead slot and generation, and nothing else. */
static void sweep(void **state)
{
    struct held held;
    uint64_t t = f.t0_ns;
    (void)state;
    struct spw_identity me = f.map->self;
    for (uint32_t i = 0; i < LIMIT; i++) {
        f.map->self.slot = 20 + i % 2;
        f.map->self.generation = 1024 + 7 + i / 4; /* compared in its low 10 bits */
        assert_true(take(t, i, &held));
    }
    f.map->self = me;
    spw_permit_sweep(f.map, 20, 7);
    assert_int_equal(free_count(t), 2);
    spw_permit_sweep(f.map, 20, 7);
    assert_int_equal(free_count(t), 2);
    spw_permit_sweep(f.map, 21, 8);
    assert_int_equal(free_count(t), 4);
}

/* A word with an expiry that no code writes does not keep a permit for ever. */
static void damaged_word(void **state)
{
    struct held held;
    uint64_t t = f.t0_ns;
    (void)state;
    for (uint32_t i = 0; i < LIMIT; i++)
        *spw_permit_at(f.map, i) = spw_permit_word(3, 1, i, SPW_PERMIT_TIME_MASK - 1);
    assert_int_equal(free_count(t), LIMIT);
    for (uint32_t i = 0; i < LIMIT; i++)
        assert_true(take(t, i, &held));
    assert_false(take(t, 9, &held));
    *spw_permit_at(f.map, 0) = SPW_MOVED; /* but what moved on is not to be had here */
    assert_false(take(t, 9, &held));
}

/* More permits than the table has are cut to the table; accounts do not share. */
static void bounds(void **state)
{
    struct held held;
    uint64_t t = f.t0_ns;
    (void)state;
    uint32_t taken = 0;
    while (taken < 1000 && spw_permit_take(f.map, 0, 1000, taken, LIFE, t, &held.word, &held.index))
        taken++;
    assert_int_equal(taken, SPW_PERMITS_PER_ACCOUNT);
    assert_int_equal(spw_permit_free_count(f.map, 1, LIMIT, t), LIMIT);
    assert_false(spw_permit_take(f.map, 100000, LIMIT, 0, LIFE, t, &held.word, &held.index));
    spw_permit_release(f.map, UINT32_MAX, held.word); /* outside the table: nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_thousand_rounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(expiry, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sweep, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_word, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bounds, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
