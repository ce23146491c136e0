/* model_account.c: what an account's words say when many speak at once: breaker, gate, permits, and all of them as one
 * decision over two limiters.
 *
 * The breaker and the gate are single words: what comes of several processes must be what comes of them one after the
 * other, in some order (`sequential`), one that died having acted or not.
 */
#include "tests/model/tiny.h"

static struct tiny_pub pub; /* constant */
static struct tiny_rw *rw;
static struct spw_map plain, map[SPW_MODEL_PROCESSES];
static struct spw_account_conf conf;
static enum spw_outcome admit_outcome;

static void make(uint32_t limiters, const uint64_t *bursts, uint32_t permits)
{
    rw = spw_model_shared("rw", sizeof *rw);
    tiny_make(&pub, rw, &plain, limiters, bursts, permits);
    conf = pub.account.conf[0];
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++)
        map[i] = tiny_map_of(&plain, i % 2 + 1, 5 + i);
    spw_model_unhashed(rw->cell, sizeof rw->cell); /* not touched here */
}

static void put_breaker(uint32_t state, uint32_t consecutive, uint32_t epoch, uint64_t time_ms)
{
    struct spw_breaker_word b = {state, consecutive, state != SPW_BREAKER_CLOSED, epoch, time_ms};
    rw->words.breaker = spw_breaker_pack(&b);
}

static struct spw_breaker_word breaker(void)
{
    return spw_breaker_unpack(rw->words.breaker);
}

static uint64_t *result(void)
{
    return spw_model_result(spw_model_self());
}

/* ---- breaker: outcomes of calls made while it was closed ---- */

#define EPOCH  9u
#define NOW_NS (TINY_BASE_NS + 50000 * TINY_MS)

static void outcome(uint32_t epoch, enum spw_outcome how)
{
    bool changed = spw_breaker_outcome(&map[spw_model_self()], &rw->words, &conf, NOW_NS, epoch, how);
    spw_model_point();
    result()[0] = 1 + changed;
}

static void set_up_outcomes(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    put_breaker(SPW_BREAKER_CLOSED, 1, EPOCH, 0);
    spw_model_compare(&rw->words.breaker, 8); /* one that dies in between has been counted in the window */
}

static void outcome_429(void)
{
    outcome(EPOCH, SPW_OUTCOME_THROTTLED);
}

static void outcome_ok(void)
{
    outcome(EPOCH, SPW_OUTCOME_OK);
}

static void outcomes_end(void)
{
    uint32_t changed = 0;
    for (unsigned i = 0; i < 3; i++)
        changed += spw_model_result(i)[0] == 2;
    struct spw_breaker_word b = breaker();
    SPW_HOLDS(changed <= 1); /* one opened it, and none besides */
    SPW_HOLDS(changed == 0 || (b.state == SPW_BREAKER_OPEN && b.epoch == EPOCH + 1));
    SPW_HOLDS(b.state != SPW_BREAKER_OPEN || b.trips == 1);
}

/* ---- breaker: the share of the window. Closed anew a moment ago, while an old call's outcome is being judged ---- */

static void set_up_window(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    put_breaker(SPW_BREAKER_HALF_OPEN, 0, EPOCH + 1, 52000);
    uint32_t tick = (uint32_t)(spw_map_ms(&plain, NOW_NS) / conf.window_tick_ms);
    rw->words.window[tick % SPW_WINDOW_WORDS] = (uint64_t)tick << 32 | 30 << 16 | 30; /* bad enough to open */
}

static void probe_ok(void)
{
    outcome(EPOCH + 1, SPW_OUTCOME_OK);
}

static void outcome_failed(void)
{
    outcome(EPOCH, SPW_OUTCOME_FAILED);
}

static void stale_end(void)
{
    struct spw_breaker_word b = breaker();
    SPW_HOLDS(b.state != SPW_BREAKER_OPEN); /* what came before the probe opens nothing */
    SPW_HOLDS(spw_model_result(1)[0] != 2 && spw_model_result(2)[0] != 2);
    SPW_HOLDS(spw_model_dead(0) || b.state == SPW_BREAKER_CLOSED);
}

/* A call of the closed breaker is judged by the window while another process opens it, asks, and closes it again: the
 * judge's CAS starts from the word it read before it summed, and that is not there any more. */
static void set_up_reopened(void)
{
    set_up_window();
    put_breaker(SPW_BREAKER_CLOSED, 1, EPOCH, 0);
}

static void open_ask_close(void)
{
    unsigned self = spw_model_self();
    spw_model_quiet(true);
    struct spw_breaker_word b = breaker();
    if (b.state == SPW_BREAKER_CLOSED)
        (void)spw_breaker_outcome(&map[self], &rw->words, &conf, NOW_NS, b.epoch, SPW_OUTCOME_THROTTLED);
    uint64_t later_ns = TINY_BASE_NS + breaker().time_ms * TINY_MS;
    struct spw_breaker_answer a =
        spw_breaker_enter(&map[self], &pub.account, &rw->words, &conf, later_ns, true);
    SPW_HOLDS(a.verdict == SPW_BREAKER_PROBE);
    spw_model_quiet(false);
    (void)spw_breaker_outcome(&map[self], &rw->words, &conf, later_ns, a.epoch, SPW_OUTCOME_OK);
    spw_model_point();
    result()[0] = 1;
}

static void reopened_end(void)
{
    SPW_HOLDS(!spw_model_result(1)[0] || breaker().state == SPW_BREAKER_CLOSED);
}

/* ---- breaker: the cooldown is over: exactly one probe; a dead one is replaced ---- */

#define OVER_NS (TINY_BASE_NS + 60000 * TINY_MS)

static void enter_at(uint64_t now_ns)
{
    struct spw_breaker_answer a =
        spw_breaker_enter(&map[spw_model_self()], &pub.account, &rw->words, &conf, now_ns, true);
    spw_model_point();
    result()[0] = 1 + (a.verdict == SPW_BREAKER_PROBE);
    result()[1] = a.epoch;
    SPW_HOLDS(a.verdict == SPW_BREAKER_PROBE || a.verdict == SPW_BREAKER_REFUSE);
}

static void set_up_probe(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    put_breaker(SPW_BREAKER_OPEN, 0, EPOCH, 60000);
}

static void enter(void)
{
    enter_at(OVER_NS);
}

static void probe_end(void)
{
    unsigned probes = 0;
    for (unsigned i = 0; i < 3; i++)
        probes += spw_model_result(i)[0] == 2;
    SPW_HOLDS(probes <= 1 && probes + spw_model_deaths() >= 1);
    /* Whoever it was may have died since: when its time is over another one asks, not before. */
    struct spw_breaker_answer a =
        spw_breaker_enter(&plain, &pub.account, &rw->words, &conf, OVER_NS + 1999 * TINY_MS, true);
    SPW_HOLDS(a.verdict == SPW_BREAKER_REFUSE || spw_model_deaths());
    a = spw_breaker_enter(&plain, &pub.account, &rw->words, &conf, OVER_NS + 4000 * TINY_MS, true);
    SPW_HOLDS(a.verdict == SPW_BREAKER_PROBE);
}

/* A probe is thought lost, a second one asks; the first one's answer comes after all, with an epoch of the past. */
static void set_up_lost_probe(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    put_breaker(SPW_BREAKER_HALF_OPEN, 0, EPOCH, 50000);
}

static void second_probe(void)
{
    unsigned self = spw_model_self();
    struct spw_breaker_answer a =
        spw_breaker_enter(&map[self], &pub.account, &rw->words, &conf, OVER_NS, true);
    if (a.verdict == SPW_BREAKER_PROBE) {
        bool changed =
            spw_breaker_outcome(&map[self], &rw->words, &conf, OVER_NS, a.epoch, SPW_OUTCOME_FAILED);
        spw_model_point();
        result()[0] = 1 + changed;
    }
}

static void late_probe(void)
{
    outcome(EPOCH, SPW_OUTCOME_OK);
}

static void lost_probe_end(void)
{
    struct spw_breaker_word b = breaker();
    SPW_HOLDS(
        !(spw_model_result(0)[0] == 2 && spw_model_result(1)[0] == 2)); /* one of the two speaks for it */
    SPW_HOLDS(spw_model_result(0)[0] != 2 || b.state == SPW_BREAKER_OPEN);
    SPW_HOLDS(spw_model_result(1)[0] != 2 || b.state == SPW_BREAKER_CLOSED);
}

/* A probe whose call said nothing about the provider, or was never made, goes back: the next caller asks, and the word
 * of the one before opens and closes nothing. */
static void enter_and_give_back(void)
{
    unsigned self = spw_model_self();
    struct spw_breaker_answer a =
        spw_breaker_enter(&map[self], &pub.account, &rw->words, &conf, OVER_NS, true);
    if (a.verdict != SPW_BREAKER_PROBE)
        return;
    spw_breaker_probe_back(&map[self], &rw->words, a.epoch, OVER_NS);
    SPW_HOLDS(!spw_breaker_outcome(&map[self], &rw->words, &conf, OVER_NS, a.epoch, SPW_OUTCOME_OK));
}

static void enter_and_fail(void)
{
    unsigned self = spw_model_self();
    struct spw_breaker_answer a =
        spw_breaker_enter(&map[self], &pub.account, &rw->words, &conf, OVER_NS, true);
    if (a.verdict == SPW_BREAKER_PROBE)
        SPW_HOLDS(spw_breaker_outcome(&map[self], &rw->words, &conf, OVER_NS, a.epoch, SPW_OUTCOME_FAILED));
    spw_model_point();
    result()[0] = 1 + (a.verdict == SPW_BREAKER_PROBE);
}

static void given_back_end(void)
{
    SPW_HOLDS(breaker().state != SPW_BREAKER_CLOSED);
    bool failed = spw_model_result(1)[0] == 2 || spw_model_result(2)[0] == 2;
    struct spw_breaker_answer a =
        spw_breaker_enter(&plain, &pub.account, &rw->words, &conf, OVER_NS + TINY_MS, true);
    SPW_HOLDS(spw_model_deaths() || (a.verdict == SPW_BREAKER_PROBE) == !failed);
}

/* The probe that was thought lost is given back after all, while the second one is at work: nothing of it is undone. */
static void late_give_back(void)
{
    spw_breaker_probe_back(&map[1], &rw->words, EPOCH, OVER_NS);
}

static void late_back_end(void)
{
    SPW_HOLDS(spw_model_deaths() || (spw_model_result(0)[0] == 2 && breaker().state == SPW_BREAKER_OPEN));
}

/* ---- gate ---- */

#define SENT_NS(n) (NOW_NS - TINY_S + (n)*100 * TINY_MS)

static void set_up_gate(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    rw->words.gate = spw__gate_word(SPW_GATE_UNKNOWN_429, spw_map_ms(&plain, SENT_NS(2)) >> 6,
                                    spw_map_ms(&plain, NOW_NS) + 1000);
}

/* The newest call says five seconds ... */
static void shut_newest(void)
{
    spw_gate_shut(&map[0], &rw->words, NOW_NS + 5 * TINY_S, SPW_GATE_RETRY_AFTER, SENT_NS(6), NOW_NS);
}

/* ... an older one a minute: longer waits are believed from anybody ... */
static void shut_older_longer(void)
{
    spw_gate_shut(&map[1], &rw->words, NOW_NS + 60 * TINY_S, SPW_GATE_RESET, SENT_NS(4), NOW_NS);
}

/* ... and the oldest that all is well, or shorter: those are not. */
static void open_oldest(void)
{
    spw_gate_open(&map[2], &rw->words, SENT_NS(1), NOW_NS, false);
}

static void shut_oldest_shorter(void)
{
    spw_gate_shut(&map[2], &rw->words, NOW_NS + TINY_S / 2, SPW_GATE_RESET, SENT_NS(1), NOW_NS);
}

static void gate_end(void)
{
    uint64_t until_ms = spw_gate_until_ms(rw->words.gate), now_ms = spw_map_ms(&plain, NOW_NS);
    SPW_HOLDS(rw->words.gate != 0 &&
              until_ms >= now_ms + 1000); /* never opened or shortened by an older call */
    SPW_HOLDS(spw_model_dead(0) || until_ms >= now_ms + 5000);
}

/* Who asks, when the time that nobody knew is over: one. */
static void set_up_refresh(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    rw->words.gate = spw__gate_word(SPW_GATE_UNKNOWN_429, 1, spw_map_ms(&plain, NOW_NS));
}

static void refresh(void)
{
    uint64_t wait_ns = 0;
    uint32_t source = 0;
    enum spw_gate_verdict v =
        spw_gate_enter(&map[spw_model_self()], &rw->words, &conf, NOW_NS, true, &wait_ns, &source);
    spw_model_point();
    result()[0] = 1 + (v == SPW_GATE_PASS_REFRESH);
    SPW_HOLDS(v != SPW_GATE_PASS && v != SPW_GATE_GONE);
}

static void refresh_end(void)
{
    unsigned asked = 0;
    uint64_t wait_ns;
    uint32_t source;
    for (unsigned i = 0; i < 3; i++)
        asked += spw_model_result(i)[0] == 2;
    SPW_HOLDS(asked <= 1 && asked + spw_model_deaths() >= 1);
    /* Had it died, another one asks when its time is over. */
    SPW_HOLDS(spw_gate_enter(&plain, &rw->words, &conf, NOW_NS + 2000 * TINY_MS, true, &wait_ns, &source) ==
              SPW_GATE_PASS_REFRESH);
}

/* ---- permits: two of them, three takers, and a sweep of those that died ---- */

static uint64_t *holders; /* of each permit, by those that think they hold it */

static void set_up_permits(void)
{
    const uint64_t burst = 1;
    make(1, &burst, 0);
    holders = spw_model_shared("holders", 2 * sizeof *holders);
    spw_model_clock(SPW_MODEL_PROCESSES, NOW_NS);
}

static void hold_permit(uint64_t now_ns)
{
    unsigned self = spw_model_self();
    uint64_t word = 0;
    uint32_t index = 0;
    if (!spw_permit_take(&map[self], 0, 2, 1 + self, 2000, now_ns, &word, &index))
        return;
    holders[index] += UINT64_C(1) << self * 8; /* one step with the CAS: the next access is a switch point */
    SPW_HOLDS(!(holders[index] & ~(UINT64_C(0xFF) << self * 8)) || spw_model_deaths());
    spw_model_point();
    holders[index] -= UINT64_C(1) << self * 8;
    spw_permit_release(&map[self], index, word);
}

static void permit_twice(void)
{
    hold_permit(NOW_NS);
    hold_permit(NOW_NS);
}

/* Comes when the others' permits have expired: takes theirs, and their releases must not free its own. */
static void permit_after_expiry(void)
{
    unsigned self = spw_model_self();
    uint64_t word = 0, now_ns = NOW_NS + 3 * TINY_S;
    uint32_t index = 0;
    SPW_HOLDS(spw_permit_take(&map[self], 0, 1, 9, 2000, now_ns, &word, &index));
    spw_model_point();
    SPW_HOLDS(spw_load_rlx(&rw->permit[index]) == word); /* nobody has given it back for us */
    spw_permit_release(&map[self], index, word);
}

static void permits_end(void)
{
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++) {
        if (spw_model_dead(i))
            spw_permit_sweep(&plain, map[i].self.slot, map[i].self.generation);
    }
    SPW_HOLDS(spw_permit_free_count(&plain, 0, 2, NOW_NS) == 2); /* no leak, after one sweep */
}

/* The slot of a dead process is claimed anew by the next generation, which takes a permit while the sweep of the old
 * one is still going on. */
static void set_up_generations(void)
{
    set_up_permits();
    rw->permit[0] = spw_permit_word(map[0].self.slot, map[0].self.generation, 3,
                                    spw_map_ms(&plain, NOW_NS) + 2000); /* the dead one's */
    map[1].self.slot = map[0].self.slot;                                /* another generation */
}

static void sweep_dead(void)
{
    /* permits_end looks at all; two words are enough here */
    struct spw_map two = plain;
    two.rw_section[SPW_RW_PERMITS].count = 2;
    spw_permit_sweep(&two, map[0].self.slot, map[0].self.generation);
}

static void next_generation(void)
{
    uint64_t word = 0;
    uint32_t index = 0;
    if (!spw_permit_take(&map[1], 0, 2, 4, 2000, NOW_NS, &word, &index))
        return;
    spw_model_point();
    SPW_HOLDS(spw_load_rlx(&rw->permit[index]) == word); /* the sweep takes the dead generation's alone */
    spw_permit_release(&map[1], index, word);
}

static void generations_end(void)
{
    sweep_dead();
    if (spw_model_dead(1))
        spw_permit_sweep(&plain, map[1].self.slot, map[1].self.generation);
    SPW_HOLDS(spw_permit_free_count(&plain, 0, 2, NOW_NS) == 2);
}

/* ---- all or nothing: a narrow limiter, a wide one, permits, as one decision ---- */

static void set_up_list(void)
{
    const uint64_t bursts[2] = {2, 1};
    admit_outcome = SPW_OUTCOME_OK;
    make(2, bursts, 2);
}

static void admit(void)
{
    unsigned self = spw_model_self();
    struct spw_ticket ticket;
    struct spw_admission a = spw_admit(&map[self], 0, 1, 0, 1, 0, TINY_BASE_NS, &ticket);
    spw_model_point();
    result()[0] += a.verdict == SPW_ALLOW;
    SPW_HOLDS(a.verdict == SPW_ALLOW || a.verdict == SPW_DENY);
    SPW_HOLDS(a.may_call == (a.verdict == SPW_ALLOW));
    if (a.may_call) {
        struct spw_call_end end;
        memset(&end, 0, sizeof end);
        end.outcome = admit_outcome;
        (void)spw_settle(&map[self], &ticket, TINY_BASE_NS, &end);
    }
}

static uint64_t tokens_in(uint32_t limiter)
{
    struct spw_bucket_answer a =
        spw_bucket_take(&pub.limiter[limiter], &rw->limiter[limiter], TINY_BASE_NS, 1, false, 0, false);
    return a.available_units / a.units_per_token;
}

static void list_end(void)
{
    uint64_t told = 0;
    for (unsigned i = 0; i < 3; i++)
        told += spw_model_result(i)[0];
    SPW_HOLDS(told <= 1 &&
              told + spw_model_deaths() >= 1); /* one, and nobody's refund cost all of them theirs */
    SPW_HOLDS(tokens_in(0) + told <= 2 && tokens_in(1) + told <= 1);
    SPW_HOLDS(tokens_in(0) + told + spw_model_deaths() >= 2);
    SPW_HOLDS(tokens_in(1) + told + spw_model_deaths() >= 1);
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++) {
        if (spw_model_dead(i))
            spw_permit_sweep(&plain, map[i].self.slot, map[i].self.generation);
    }
    SPW_HOLDS(spw_permit_free_count(&plain, 0, 2, TINY_BASE_NS) == 2);
}

/* The same while the breaker's cooldown is over: one is the probe, and the others give back all that they had taken. */
static void set_up_list_probe(void)
{
    const uint64_t bursts[2] = {3, 3};
    admit_outcome = SPW_OUTCOME_FAILED;
    make(2, bursts, 2);
    put_breaker(SPW_BREAKER_OPEN, 0, EPOCH, 0);
}

static void list_probe_end(void)
{
    uint64_t told = spw_model_result(0)[0] + spw_model_result(1)[0];
    SPW_HOLDS(told <= 1 && told + spw_model_deaths() >= 1);
    SPW_HOLDS(tokens_in(0) + told <= 3 && tokens_in(1) + told <= 3);
    SPW_HOLDS(tokens_in(0) + told + spw_model_deaths() >= 3 && tokens_in(1) + told + spw_model_deaths() >= 3);
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++) {
        if (spw_model_dead(i))
            spw_permit_sweep(&plain, map[i].self.slot, map[i].self.generation);
    }
    SPW_HOLDS(spw_permit_free_count(&plain, 0, 2, TINY_BASE_NS) == 2);
}

#define ALL_MORTAL .mortal = {true, true, true}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "breaker-opens",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_outcomes,
         .run = {outcome_429, outcome_ok, outcome_429},
         .at_end = outcomes_end,
         .sequential = true,
         .least_schedules = 10000},
        {.name = "breaker-stale-epoch",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_window,
         .run = {probe_ok, outcome_failed, outcome_429},
         .at_end = stale_end,
         .least_schedules = 10000},
        {.name = "breaker-reopened",
         .processes = 2,
         .deaths = 1,
         .mortal = {false, true},
         .set_up = set_up_reopened,
         .run = {outcome_failed, open_ask_close},
         .at_end = reopened_end,
         .least_schedules = 100},
        {.name = "breaker-probe",
         .processes = 3,
         .deaths = 2,
         ALL_MORTAL,
         .set_up = set_up_probe,
         .run = {enter, enter, enter},
         .at_end = probe_end,
         .least_schedules = 1000},
        {.name = "breaker-lost-probe",
         .processes = 2,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_lost_probe,
         .run = {second_probe, late_probe},
         .at_end = lost_probe_end,
         .least_schedules = 1000},
        {.name = "breaker-probe-given-back",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_probe,
         .run = {enter_and_give_back, enter_and_fail, enter_and_fail},
         .at_end = given_back_end,
         .least_schedules = 1000},
        {.name = "breaker-late-back",
         .processes = 2,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_lost_probe,
         .run = {second_probe, late_give_back},
         .at_end = late_back_end,
         .least_schedules = 100},
        {.name = "gate-older-opens",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_gate,
         .run = {shut_newest, shut_older_longer, open_oldest},
         .at_end = gate_end,
         .sequential = true,
         .least_schedules = 100},
        {.name = "gate-older-shortens",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_gate,
         .run = {shut_newest, shut_older_longer, shut_oldest_shorter},
         .at_end = gate_end,
         .sequential = true,
         .least_schedules = 100},
        {.name = "gate-refresh",
         .processes = 3,
         .deaths = 2,
         ALL_MORTAL,
         .set_up = set_up_refresh,
         .run = {refresh, refresh, refresh},
         .at_end = refresh_end,
         .least_schedules = 1000},
        {.name = "permit-takers",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_permits,
         .run = {permit_twice, permit_twice, permit_twice},
         .at_end = permits_end,
         .least_schedules = 100000},
        {.name = "permit-expiry",
         .processes = 2,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_permits,
         .run = {permit_twice, permit_after_expiry},
         .at_end = permits_end,
         .least_schedules = 100},
        {.name = "permit-generations",
         .processes = 2,
         .deaths = 1,
         .mortal = {true, true},
         .set_up = set_up_generations,
         .run = {sweep_dead, next_generation},
         .at_end = generations_end,
         .least_schedules = 100},
        {.name = "list-probe",
         .processes = 2,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_list_probe,
         .run = {admit, admit},
         .at_end = list_probe_end,
         .least_schedules = 10000},
        {.name = "list-all-or-nothing",
         .processes = 3,
         .deaths = 1,
         ALL_MORTAL,
         .set_up = set_up_list,
         .run = {admit, admit, admit},
         .at_end = list_end,
         .least_schedules = 1000000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
