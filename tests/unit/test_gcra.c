/* test_gcra.c: the token bucket's arithmetic at chosen instants: long quiet spells, polling, rate zero, hints, clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "shm/spw_backoff.h"
#include "shm/spw_gcra.h"

#define MS  UINT64_C(1000000)
#define S   UINT64_C(1000000000)
#define MIN (60 * S)
#define DAY (86400 * S)
#define T   (1000 * S) /* where the cases' clocks begin */

struct bucket {
    struct spw_gcra g;
    uint64_t level;
};

static struct bucket bucket_at(uint64_t tokens, uint64_t period_ns, uint64_t burst, bool full,
                               uint64_t now_ns)
{
    struct spw_limiter_conf conf;
    struct bucket b;
    memset(&conf, 0, sizeof conf);
    memset(&b, 0, sizeof b);
    assert_true(spw_gcra_configure(&conf, tokens, period_ns, burst, 0, now_ns, 1));
    b.g.units_num = conf.units_num;
    b.g.units_den = conf.units_den;
    b.g.units_fixed = conf.units_fixed;
    b.g.units_per_token = conf.units_per_token;
    b.g.burst_units = conf.burst_units;
    b.g.e0_units = conf.e0_units;
    b.g.base_ns = conf.base_ns;
    b.level = full ? conf.e0_units - conf.burst_units : conf.e0_units;
    return b;
}

static enum spw_gcra_result take(struct bucket *b, uint64_t now_ns, uint64_t tokens, uint64_t *wait_ns)
{
    uint64_t next = 0;
    enum spw_gcra_result result = spw_gcra_take(&b->g, b->level, now_ns, tokens, 0, 0, &next, wait_ns);
    if (result == SPW_GCRA_TAKE)
        b->level = next;
    return result;
}

static bool takes(struct bucket *b, uint64_t now_ns, uint64_t tokens)
{
    uint64_t wait_ns;
    return take(b, now_ns, tokens, &wait_ns) == SPW_GCRA_TAKE;
}

static uint64_t balance(const struct bucket *b, uint64_t now_ns)
{
    return spw_gcra_available(&b->g, b->level, now_ns) / b->g.units_per_token;
}

/* BKT-H1: a long quiet spell fills the bucket to its burst and no further. */
static void long_quiet_spell(void **state)
{
    static const uint64_t quiet[] = {12 * 3600 * S, 30 * DAY, 400 * DAY, 3650 * DAY};
    (void)state;
    for (unsigned i = 0; i < sizeof quiet / sizeof quiet[0]; i++) {
        struct bucket b = bucket_at(20, S, 100, false, T);
        uint64_t now = T + quiet[i], wait_ns = 0;
        assert_int_equal(balance(&b, T), 0);
        assert_int_equal(balance(&b, now), 100);
        for (int k = 0; k < 100; k++)
            assert_true(takes(&b, now, 1));
        assert_int_equal(take(&b, now, 1, &wait_ns), SPW_GCRA_WAIT);
        assert_int_equal(wait_ns, 50 * MS);

        struct bucket large = bucket_at(1000000, S, UINT64_C(4000000000), false, T);
        assert_int_equal(balance(&large, now), UINT64_C(4000000000));
        assert_true(takes(&large, now, UINT64_C(4000000000)));
        assert_int_equal(take(&large, now, 1, &wait_ns), SPW_GCRA_WAIT);
        assert_int_equal(wait_ns, 1000);
    }
}

/* BKT-H2: how often one looks changes nothing. */
static void polling_loses_nothing(void **state)
{
    (void)state;
    struct bucket b = bucket_at(10, S, 5, false, T);
    unsigned admitted = 0;
    for (uint64_t t = 1; t <= 60000; t++)
        admitted += takes(&b, T + t * MS, 1);
    assert_int_equal(admitted, 600);

    struct bucket daily = bucket_at(1, DAY, 1, false, T);
    admitted = 0;
    for (uint64_t t = 100 * MS; t < DAY; t += 100 * MS)
        admitted += takes(&daily, T + t, 1);
    assert_int_equal(admitted, 0);
    admitted += takes(&daily, T + DAY, 1);
    admitted += takes(&daily, T + DAY, 1);
    assert_int_equal(admitted, 1);
}

/* BKT-H3: a rate of zero earns nothing, ever. */
static void rate_zero(void **state)
{
    static const uint64_t bursts[] = {5, 0};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct bucket b = bucket_at(0, S, bursts[i], true, T);
        unsigned admitted = 0;
        for (unsigned k = 0; k < 2000; k++) {
            uint64_t wait_ns = 0, now = k < 1000 ? T : T + 3650 * DAY;
            enum spw_gcra_result result = take(&b, now, 1, &wait_ns);
            admitted += result == SPW_GCRA_TAKE;
            if (result != SPW_GCRA_TAKE) {
                assert_int_equal(result, SPW_GCRA_NEVER);
                assert_true(wait_ns == SPW_FOREVER_NS);
            }
        }
        assert_int_equal(admitted, bursts[i]);
    }
}

/* WAIT-H1: the hint is a promise: exact, rounded up to the nanosecond. */
static void hint_is_exact(void **state)
{
    (void)state;
    struct bucket b = bucket_at(3, 10 * S, 1, true, T);
    uint64_t wait_ns = 0;
    assert_true(takes(&b, T, 1));
    assert_int_equal(take(&b, T, 1, &wait_ns), SPW_GCRA_WAIT);
    assert_int_equal(wait_ns, UINT64_C(3333333334));
    struct bucket early = b;
    assert_false(takes(&early, T + 3333 * MS, 1));
    assert_true(takes(&b, T + 3334 * MS, 1));

    struct bucket whole = bucket_at(1, 2 * S, 1, true, T);
    assert_true(takes(&whole, T, 1));
    assert_int_equal(take(&whole, T, 1, &wait_ns), SPW_GCRA_WAIT);
    assert_int_equal(wait_ns, 2000 * MS);
}

/* A full bucket gives out its whole burst at any nanosecond, also where its rate has no whole number of units. */
static void full_burst_at_odd_instants(void **state)
{
    static const struct {
        uint64_t tokens, period_ns, burst;
    } rates[] = {{7, MIN, 1}, {7, MIN, 7}, {170, S, 170}, {170, S, 1}, {11, DAY, 1}, {999999937, S, 3}};
    (void)state;
    for (unsigned i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        for (uint64_t odd = 0; odd < 50; odd++) {
            struct bucket b = bucket_at(rates[i].tokens, rates[i].period_ns, rates[i].burst, true, T);
            uint64_t wait_ns = 0, now = T + 7 * DAY + odd * 7919 + odd;
            assert_int_equal(balance(&b, now), rates[i].burst);
            assert_true(takes(&b, now, rates[i].burst));
            assert_int_equal(take(&b, now, 1, &wait_ns), SPW_GCRA_WAIT);
            assert_int_equal(take(&b, now + wait_ns - 1, 1, &(uint64_t){0}), SPW_GCRA_WAIT);
            assert_true(takes(&b, now + wait_ns, 1));
        }
    }
}

/* More than the bucket ever holds is "never", not a long wait; so is what the reserve forbids. */
static void more_than_the_burst(void **state)
{
    (void)state;
    struct bucket b = bucket_at(10, S, 10, true, T);
    uint64_t wait_ns = 0, next = 0;
    assert_int_equal(take(&b, T, 11, &wait_ns), SPW_GCRA_NEVER);
    assert_true(wait_ns == SPW_FOREVER_NS);
    assert_int_equal(take(&b, T, UINT64_MAX, &wait_ns), SPW_GCRA_NEVER);
    assert_int_equal(spw_gcra_take(&b.g, b.level, T, 9, 2 * b.g.units_per_token, 0, &next, &wait_ns),
                     SPW_GCRA_NEVER);
    assert_int_equal(spw_gcra_take(&b.g, b.level, T, 8, 2 * b.g.units_per_token, 0, &next, &wait_ns),
                     SPW_GCRA_TAKE);
    b.level = next;
    assert_int_equal(spw_gcra_take(&b.g, b.level, T, 1, 2 * b.g.units_per_token, 0, &next, &wait_ns),
                     SPW_GCRA_WAIT);
    assert_int_equal(wait_ns, 100 * MS);
    assert_true(takes(&b, T, 2)); /* who has no reserve to keep takes the rest */
    assert_false(takes(&b, T, 1));
}

/* A clock that goes backwards grants nothing and breaks nothing. */
static void clock_behind(void **state)
{
    (void)state;
    struct bucket b = bucket_at(10, S, 10, true, T);
    assert_true(takes(&b, T + S, 10));
    for (uint64_t back = 0; back <= T + S; back += 50 * S)
        assert_false(takes(&b, T + S - back, 1));
    assert_false(takes(&b, T + S + 99 * MS, 1));
    assert_true(takes(&b, T + S + 100 * MS, 1));
}

/* A reservation is paid when it is made: nobody overtakes, and the tokens are earned exactly then. */
static void reservations_queue(void **state)
{
    (void)state;
    struct bucket b = bucket_at(10, S, 1, true, T);
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t next = 0, wait_ns = 0;
        assert_int_equal(spw_gcra_take(&b.g, b.level, T, 1, 0, 400 * MS, &next, &wait_ns), SPW_GCRA_TAKE);
        assert_int_equal(wait_ns, i * 100 * MS);
        b.level = next;
    }
    uint64_t next = 0, wait_ns = 0;
    assert_int_equal(spw_gcra_take(&b.g, b.level, T, 1, 0, 400 * MS, &next, &wait_ns), SPW_GCRA_WAIT);
    assert_int_equal(wait_ns, 500 * MS);
    assert_false(takes(&b, T + 499 * MS, 1));
    assert_true(takes(&b, T + 500 * MS, 1));
}

/* What cannot be exact is refused when it is configured. */
static void configurations_out_of_range(void **state)
{
    struct spw_limiter_conf conf;
    (void)state;
    memset(&conf, 0, sizeof conf);
    assert_false(spw_gcra_configure(&conf, 1, 0, 1, 0, T, 1));
    assert_false(spw_gcra_configure(&conf, 2, 1, 1, 0, T, 1)); /* 2e9 a second */
    assert_false(spw_gcra_configure(&conf, 1, SPW_PERIOD_MAX_NS + 1, 1, 0, T, 1));
    assert_false(spw_gcra_configure(&conf, 1, DAY, 100000, 0, T, 1));
    assert_false(spw_gcra_configure(&conf, 1, DAY, UINT64_MAX, 0, T, 1));
    assert_true(spw_gcra_configure(&conf, 1, 1, 1, 0, T, 1)); /* 1e9 a second */
    assert_true(spw_gcra_configure(&conf, 1, DAY, 1, 0, T, UINT64_MAX));
    assert_true(spw_gcra_configure(&conf, 0, 1, 0, 0, T, 1));
}

/* A changed rate keeps the tokens in hand and the debt of reservations, in tokens, cut to the new burst. */
static void carry_keeps_tokens(void **state)
{
    (void)state;
    struct bucket from = bucket_at(100, S, 100, true, T), to = bucket_at(7, MIN, 60, true, T + S);
    assert_true(takes(&from, T, 100));
    uint64_t now = T + S - 700 * MS; /* 30 tokens earned */
    to.level = spw_gcra_carry(&from.g, from.level, &to.g, now);
    assert_int_equal(balance(&to, now), 30);
    to.level = spw_gcra_carry(&from.g, from.level, &to.g, T + S); /* 100 earned, the new burst is 60 */
    assert_int_equal(balance(&to, T + S), 60);
    from.level = spw_gcra_earned(&from.g, T) + 5 * from.g.units_per_token; /* five tokens owed */
    to.level = spw_gcra_carry(&from.g, from.level, &to.g, T);
    assert_int_equal(to.level - spw_gcra_earned(&to.g, T), 5 * to.g.units_per_token);
}

/* base x 2^n, 1, 2, 4 s, with each way of spreading it; no more than the longest, and no overflow. */
static void backoff(void **state)
{
    static const struct {
        enum spw_jitter jitter;
        uint64_t from_percent, to_percent;
    } KINDS[] = {{SPW_JITTER_PROPORTIONAL, 70, 130},
                 {SPW_JITTER_FULL, 0, 100},
                 {SPW_JITTER_EQUAL, 50, 100},
                 {SPW_JITTER_NONE, 100, 100}};
    const uint64_t second = UINT64_C(1000000000);
    (void)state;
    for (unsigned k = 0; k < 4; k++) {
        for (uint32_t attempt = 0; attempt < 70; attempt++) {
            uint64_t pause = second << (attempt < 2 ? attempt : 2), least = UINT64_MAX, most = 0;
            for (uint64_t i = 0; i < 2000; i++) {
                uint64_t random = i * UINT64_C(0x9E3779B97F4A7C15);
                uint64_t told = spw_backoff_ns(KINDS[k].jitter, second, 4 * second, attempt, random);
                least = told < least ? told : least;
                most = told > most ? told : most;
            }
            assert_in_range(least, pause / 100 * KINDS[k].from_percent,
                            pause / 100 * KINDS[k].from_percent + pause / 50);
            assert_in_range(most, pause / 100 * KINDS[k].to_percent - pause / 50,
                            pause / 100 * KINDS[k].to_percent);
        }
        assert_int_equal(spw_backoff_ns(KINDS[k].jitter, 0, 4 * second, 9, UINT64_MAX), 0);
        assert_true(spw_backoff_ns(KINDS[k].jitter, UINT64_MAX, UINT64_MAX, UINT32_MAX, 7) < UINT64_MAX / 2);
    }
    assert_int_equal(spw_backoff_ns(SPW_JITTER_NONE, 5 * second, second, 0, 0), second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoff),
        cmocka_unit_test(long_quiet_spell),
        cmocka_unit_test(polling_loses_nothing),
        cmocka_unit_test(rate_zero),
        cmocka_unit_test(hint_is_exact),
        cmocka_unit_test(full_burst_at_odd_instants),
        cmocka_unit_test(more_than_the_burst),
        cmocka_unit_test(clock_behind),
        cmocka_unit_test(reservations_queue),
        cmocka_unit_test(configurations_out_of_range),
        cmocka_unit_test(carry_keeps_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
