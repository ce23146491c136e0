/* model_bucket.c: the bucket's word: takes, refunds, reservations, healing.
 *
 * What holds at each end: the tokens that are gone are those that were reported, and one cost for each death at most;
 * never more are gone than the burst and what the latest clock had earned.
 */
#include "tests/model/step.h"
#include "shm/spw_bucket.h"
#include "tests/model/explore.h"

#define BASE_NS   UINT64_C(1000000000000)
#define PERIOD_NS UINT64_C(1000000000)

static struct spw_limiter limiter; /* constant: its changes are model_config.c's */
static struct spw_limiter_words *words;

static void make(uint64_t burst)
{
    words = spw_model_shared("limiter words", sizeof *words);
    memset(&limiter, 0, sizeof limiter);
    /* One token a second from a full bucket. */
    if (!spw_bucket_configure(&limiter, words, 1, PERIOD_NS, burst, 0, 1, BASE_NS, true))
        abort();
}

static bool take(uint64_t tokens, uint64_t now_ns)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, now_ns, tokens, false, 0, true);
    spw_model_point();
    if (a.result == SPW_BUCKET_TAKEN)
        spw_model_result(spw_model_self())[0] += tokens;
    return a.result == SPW_BUCKET_TAKEN;
}

static uint64_t reported(unsigned processes)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < processes; i++)
        sum += spw_model_result(i)[0];
    return sum;
}

/* Tokens in hand at `now_ns`, as the next process to come would find them. */
static uint64_t in_hand(uint64_t now_ns)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, now_ns, 1, false, 0, false);
    return a.units_per_token ? a.available_units / a.units_per_token : 0;
}

/* ---- takes of different costs at one instant ---- */

static void set_up_takes(void)
{
    make(4);
}

static void take_one_twice(void)
{
    (void)take(1, BASE_NS);
    (void)take(1, BASE_NS);
}

static void take_two(void)
{
    (void)take(2, BASE_NS);
}

static void takes_end(void)
{
    uint64_t gone = 4 - in_hand(BASE_NS), told = reported(3);
    SPW_HOLDS(told <= 4);
    SPW_HOLDS(gone >= told && gone <= told + 2 * spw_model_deaths());
    SPW_HOLDS(spw_model_deaths() ||
              told >= 3); /* together they want six: who is refused found less than he wanted */
}

/* ---- clocks that differ: the second process reads an earlier time than the others ---- */

static void take_late(void)
{
    (void)take(1, BASE_NS + 2 * PERIOD_NS);
    (void)take(2, BASE_NS + 2 * PERIOD_NS);
}

static void take_early(void)
{
    (void)take(1, BASE_NS - PERIOD_NS);
    (void)take(1, BASE_NS + PERIOD_NS);
}

static void set_up_clocks(void)
{
    make(2);
}

static void clocks_end(void)
{
    SPW_HOLDS(reported(3) <= 2 + 2);
}

/* ---- a take that is given back ---- */

static void take_and_refund(void)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, BASE_NS, 2, false, 0, true);
    if (a.result == SPW_BUCKET_TAKEN)
        spw_bucket_give_back(&limiter, words, BASE_NS, 2, &a.charge);
}

static void set_up_refund(void)
{
    make(3);
}

static void refund_end(void)
{
    uint64_t hand = in_hand(BASE_NS), told = reported(3);
    SPW_HOLDS(hand + told <= 3);
    SPW_HOLDS(hand + told + 2 * spw_model_deaths() >= 3);
}

/* ---- reservations: nobody overtakes, and no two begin at one time ---- */

static void reserve(void)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, BASE_NS, 1, false, 10 * PERIOD_NS, true);
    spw_model_point();
    SPW_HOLDS(a.result == SPW_BUCKET_TAKEN);
    spw_model_result(spw_model_self())[0] = 1 + a.wait_ns / PERIOD_NS;
    SPW_HOLDS(a.wait_ns % PERIOD_NS == 0);
}

static void set_up_reserve(void)
{
    make(1);
}

static void check_begins(unsigned processes)
{
    uint64_t begins = 0;
    for (unsigned i = 0; i < processes; i++) {
        uint64_t at = spw_model_result(i)[0];
        SPW_HOLDS(at <= processes);
        SPW_HOLDS(!at || !(begins >> at & 1));
        begins |= UINT64_C(1) << at;
    }
    /* Without deaths they follow one another without a gap. */
    SPW_HOLDS(spw_model_deaths() || begins == (UINT64_C(2) << processes) - 2);
}

static void reserve_end(void)
{
    check_begins(3);
}

static void reserve_two_end(void)
{
    check_begins(2);
}

/* One of them gives its reservation back. */
static void reserve_and_give_back(void)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, BASE_NS, 1, false, 10 * PERIOD_NS, true);
    if (a.result == SPW_BUCKET_TAKEN)
        spw_bucket_give_back(&limiter, words, BASE_NS, 1, &a.charge);
}

/* Begun by the n-th period: n and the burst, at most, the next one to come included. What was given back from under a
 * later reservation lets another begin together with that: the bound counts from the beginning. */
static void reserve_back_end(void)
{
    struct spw_bucket_answer a = spw_bucket_take(&limiter, words, BASE_NS, 1, false, 10 * PERIOD_NS, false);
    SPW_HOLDS(a.result == SPW_BUCKET_TAKEN);
    for (uint64_t period = 0; period <= 3; period++) {
        uint64_t begun = a.wait_ns / PERIOD_NS <= period;
        for (unsigned i = 1; i < 3; i++)
            begun += spw_model_result(i)[0] && spw_model_result(i)[0] - 1 <= period;
        SPW_HOLDS(begun <= period + 1);
    }
    SPW_HOLDS(a.wait_ns / PERIOD_NS <= 3);
}

/* ---- a poisoned word: EMPTY, once, whoever finds it ---- */

static void set_up_poisoned(void)
{
    make(3);
    words->level = spw_bucket_word(9, 12345); /* a configuration that was never written */
}

static void take_poisoned(void)
{
    SPW_HOLDS(!take(1, BASE_NS));
}

static void poisoned_end(void)
{
    SPW_HOLDS(in_hand(BASE_NS) == 0);
    SPW_HOLDS(in_hand(BASE_NS + 2 * PERIOD_NS) == 2);
    SPW_HOLDS(words->healed_count <= 1 && words->healed_count + spw_model_deaths() >= 1);
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "bucket-takes",
         .processes = 3,
         .deaths = 2,
         .mortal = {true, true, true},
         .set_up = set_up_takes,
         .run = {take_one_twice, take_two, take_one_twice},
         .at_end = takes_end,
         .least_schedules = 100000},
        {.name = "bucket-clocks",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_clocks,
         .run = {take_late, take_early, take_early},
         .at_end = clocks_end,
         .least_schedules = 100000},
        {.name = "bucket-refund",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_refund,
         .run = {take_and_refund, take_one_twice, take_and_refund},
         .at_end = refund_end,
         .least_schedules = 100000},
        {.name = "bucket-reserve",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_reserve,
         .run = {reserve, reserve, reserve},
         .at_end = reserve_end,
         .least_schedules = 1000},
        {.name = "bucket-reserve-plain",
         .processes = 2,
         .deaths = 1,
         .mortal = {true, true},
         .set_up = set_up_reserve,
         .run = {reserve, reserve},
         .at_end = reserve_two_end,
         .also_plain = true,
         .least_schedules = 100},
        {.name = "bucket-reserve-back",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_reserve,
         .run = {reserve_and_give_back, reserve, reserve},
         .at_end = reserve_back_end,
         .least_schedules = 1000},
        {.name = "bucket-poisoned",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_poisoned,
         .run = {take_poisoned, take_poisoned, take_poisoned},
         .at_end = poisoned_end,
         .least_schedules = 1000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
