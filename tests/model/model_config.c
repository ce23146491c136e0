/* model_config.c: the sidecar changes a limit while it is used: rate and level change together, and a configuration
 * slot that is used again fools nobody.
 *
 * The sidecar's changes are made with spw_bucket_configure, as publish.c does, and it may die anywhere in one; a second
 * sidecar then makes the next change. Time stands still, so no token is earned: those in hand only get fewer.
 */
#include "tests/model/step.h"
#include "shm/spw_bucket.h"
#include "tests/model/explore.h"

#define BASE_NS UINT64_C(1000000000000)

static struct spw_limiter *limiter;
static struct spw_limiter_words *words;
static uint64_t *in_force; /* the newest version whose change has returned */

static void set_up(uint64_t burst)
{
    limiter = spw_model_shared("limiter", sizeof *limiter);
    words = spw_model_shared("limiter words", sizeof *words);
    in_force = spw_model_shared("version in force", sizeof *in_force);
    if (!spw_bucket_configure(limiter, words, 1, 1000, burst, 0, 1, BASE_NS, true))
        abort();
    *in_force = 1;
}

static void change(uint64_t tokens, uint64_t burst)
{
    uint64_t version = spw_load_rlx(&limiter->conf[limiter->current % SPW_CONFIG_SLOTS].version) / 2 + 1;
    SPW_HOLDS(spw_bucket_configure(limiter, words, tokens, 1000, burst, 0, version, BASE_NS, false));
    spw_store_rel(in_force, version);
}

/* Takes one; what it saw in hand must be what one of the configurations left, never a level of one read in the units of
 * another (their units per token are 1000, 1000/7 and 100). */
static void take(void)
{
    unsigned self = spw_model_self();
    uint64_t begun = spw_load_acq(in_force);
    struct spw_bucket_answer a = spw_bucket_take(limiter, words, BASE_NS, 1, false, 0, true);
    spw_model_point();
    spw_model_result(self)[0] += a.result == SPW_BUCKET_TAKEN;
    SPW_HOLDS(a.version >= begun);
    SPW_HOLDS(a.units_per_token && a.available_units / a.units_per_token <= 4);
    SPW_HOLDS(a.units_per_token && a.available_units % a.units_per_token == 0);
}

static void take_if_deep(void)
{
    if (spw_model_deep())
        take();
}

static uint64_t in_hand(void)
{
    struct spw_bucket_answer a = spw_bucket_take(limiter, words, BASE_NS, 1, false, 0, false);
    SPW_HOLDS(a.units_per_token != 0);
    return a.units_per_token ? a.available_units / a.units_per_token : 0;
}

/* ---- two changes beside a taker, or two; the sidecar may die in either ---- */

static void set_up_changes(void)
{
    set_up(4);
}

static void change_twice(void)
{
    change(10, 3);
    change(1, 4);
}

static void changes_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(1)[0], hand = in_hand();
    SPW_HOLDS(told + hand <= 4);
    SPW_HOLDS(told + hand + spw_model_deaths() >= 3); /* one may have been cut off by the burst of 3 */
    SPW_HOLDS(words->healed_count == 0);
    /* The next sidecar comes: its change is in force, whatever the last one left. */
    change(7, 4);
    SPW_HOLDS(in_hand() == hand);
    SPW_HOLDS(spw_bucket_take(limiter, words, BASE_NS, 1, false, 0, false).version == *in_force);
}

/* ---- a sidecar dies in a change, the next one makes its own, while a client takes ---- */

static void change_dying(void)
{
    change(10, 3);
}

static void next_sidecar(void)
{
    if (spw_model_dead(1))
        change(1, 2);
}

static void next_end(void)
{
    uint64_t told = spw_model_result(0)[0], hand = in_hand();
    SPW_HOLDS(told + hand <= 4 && words->healed_count == 0);
    SPW_HOLDS(told + hand >= 2);
}

/* ---- seventeen changes: the slot that a client read from is written anew under its hands ---- */

static void change_all_slots(void)
{
    for (unsigned i = 0; i < SPW_CONFIG_SLOTS + 1; i++) {
        /* Those in the middle are like any other: one step each, unless there is time. */
        unsigned stepped = spw_model_deep() ? 2 : 1; /* at both ends */
        spw_model_quiet(i >= stepped && i + 1 + stepped < SPW_CONFIG_SLOTS);
        change(i % 2 ? 10 : 1, 4);
    }
}

static void slots_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(1)[0];
    SPW_HOLDS(told + in_hand() + spw_model_deaths() >= 4 && told + in_hand() <= 4);
    SPW_HOLDS(words->healed_count == 0);
}

/* ---- the same beside one who only looks: no CAS proves its reading, the version's second look does ---- */

static void look(void)
{
    struct spw_bucket_answer a = spw_bucket_take(limiter, words, BASE_NS, 5, false, 0, false);
    SPW_HOLDS(a.result == SPW_BUCKET_NEVER); /* no configuration here holds five */
    a = spw_bucket_take(limiter, words, BASE_NS, 4, false, 0, false);
    SPW_HOLDS(a.result == SPW_BUCKET_TAKEN);
    SPW_HOLDS(a.available_units == 4 * a.units_per_token);
}

static void look_end(void)
{
    SPW_HOLDS(in_hand() == 4 && words->healed_count == 0);
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "config-changes",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up_changes,
         .run = {take, take_if_deep, change_twice},
         .at_end = changes_end,
         .least_schedules = 1000000},
        {.name = "config-next-sidecar",
         .processes = 3,
         .deaths = 1,
         .mortal = {false, true, false},
         .set_up = set_up_changes,
         .run = {take, change_dying, next_sidecar},
         .at_end = next_end,
         .least_schedules = 100000},
        {.name = "config-slot-reuse",
         .processes = 2,
         .deaths = 1,
         .mortal = {true, false},
         .set_up = set_up_changes,
         .run = {take, change_all_slots},
         .at_end = slots_end,
         .least_schedules = 1000000},
        {.name = "config-slot-reuse-look",
         .processes = 2,
         .set_up = set_up_changes,
         .run = {look, change_all_slots},
         .at_end = look_end,
         .least_schedules = 1000000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
