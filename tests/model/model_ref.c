/* model_ref.c: the quiet case of spw_ref.h, which remembers an account's configuration and decides by few loads: what it
 * remembers must never outlive what is in force.
 *
 * Two processes that have remembered everything take from one bucket while the sidecar changes its limit, forces the
 * breaker open, or a third process opens it by its outcomes.
 */
#include "tests/model/tiny.h"

#include "shm/spw_ref.h"

#define BURST 4u

static struct tiny_pub *pub;
static struct tiny_rw *rw;
static struct spw_map plain, map[SPW_MODEL_PROCESSES];
static uint64_t *in_force; /* the change that has returned */

static void set_up(void)
{
    const uint64_t burst = BURST;
    pub = spw_model_shared("pub", sizeof *pub);
    rw = spw_model_shared("rw", sizeof *rw);
    in_force = spw_model_shared("in force", sizeof *in_force);
    tiny_make(pub, rw, &plain, 1, &burst, 0);
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++)
        map[i] = tiny_map_of(&plain, i % 2 + 1, 5 + i);
    spw_model_constant(pub, offsetof(struct spw_header, ready));
    spw_model_constant(&pub->limiter[1], sizeof *pub - offsetof(struct tiny_pub, limiter[1]));
    spw_model_constant(rw, offsetof(struct spw_header, ready));
    spw_model_unhashed(rw->permit, sizeof *rw - offsetof(struct tiny_rw, permit));
    *in_force = 1;
}

/* Learn all there is, then take `times`; refused_after: nothing may be had when the change was in force before. */
static void take(unsigned times, bool refused_after)
{
    unsigned self = spw_model_self();
    struct spw_ref *ref = spw_model_own(self, sizeof *ref);
    struct spw_ticket *ticket = spw_model_own(self, sizeof *ticket);
    spw_model_quiet(true);
    spw_ref_init(ref, "main", "");
    SPW_HOLDS(spw__ref_find(&map[self], ref));
    spw__ref_learn(&map[self], ref);
    spw_model_quiet(false);
    for (unsigned i = 0; i < times; i++) {
        uint64_t begun = spw_load_acq(in_force);
        struct spw_admission a = spw_ref_admit(&map[self], ref, 1, 0, TINY_BASE_NS, ticket);
        spw_model_point();
        spw_model_result(self)[0] += a.verdict == SPW_ALLOW;
        SPW_HOLDS(a.may_call == (a.verdict == SPW_ALLOW));
        if (refused_after) {
            SPW_HOLDS(begun == 1 || !a.may_call);
        } else {
            SPW_HOLDS(a.version >= begun);
            SPW_HOLDS(a.units_per_token && a.available_units % a.units_per_token == 0 &&
                      a.available_units / a.units_per_token <= BURST);
        }
    }
}

static uint64_t in_hand(void)
{
    struct spw_bucket_answer a =
        spw_bucket_take(&pub->limiter[0], &rw->limiter[0], TINY_BASE_NS, 1, false, 0, false);
    return a.units_per_token ? a.available_units / a.units_per_token : 0;
}

/* ---- the limit changes ---- */

static void take_twice(void)
{
    take(2, false);
}

static void take_if_deep(void)
{
    if (spw_model_deep())
        take(1, false);
}

static void change(void)
{
    SPW_HOLDS(
        spw_bucket_configure(&pub->limiter[0], &rw->limiter[0], 10, TINY_S, 3, 0, 2, TINY_BASE_NS, false));
    spw_changed(&plain);
    spw_store_rel(in_force, 2);
}

static void change_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(1)[0], hand = in_hand();
    SPW_HOLDS(told + hand <= BURST && told + hand + spw_model_deaths() >= 3);
    SPW_HOLDS(rw->limiter[0].healed_count == 0);
}

/* ---- the breaker opens: by hand, and by outcomes ---- */

static void take_refused_after(void)
{
    take(2, true);
}

static void force_open(void)
{
    spw_store_rel(&pub->account.forced, SPW_FORCED_OPEN);
    spw_changed(&plain);
    spw_store_rel(in_force, 2);
}

static void two_429s(void)
{
    struct spw_account_conf conf = pub->account.conf[0];
    for (unsigned i = 0; i < 2; i++)
        (void)spw_breaker_outcome(&map[2], &rw->words, &conf, TINY_BASE_NS, 0, SPW_OUTCOME_THROTTLED);
    spw_store_rel(in_force, 2);
}

static void shut_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(1)[0], hand = in_hand();
    SPW_HOLDS(told + hand <= BURST && told + hand + spw_model_deaths() >= BURST);
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "ref-change",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, false, true},
         .set_up = set_up,
         .run = {take_twice, take_if_deep, change},
         .at_end = change_end,
         .least_schedules = 100000},
        {.name = "ref-forced-open",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, false, true},
         .set_up = set_up,
         .run = {take_refused_after, take_refused_after, force_open},
         .at_end = shut_end,
         .least_schedules = 100000},
        {.name = "ref-breaker-opens",
         .processes = 2,
         .deaths = 0,
         .set_up = set_up,
         .run = {take_refused_after, two_429s},
         .at_end = shut_end,
         .least_schedules = 1000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
