/* admission.c: what one decision costs, against a floor taken in the same run.
 *
 * Owns: a segment in a temporary directory. Thread: one; a second process for the contended case, and 64 for fairness.
 *
 *     scripts/bench admission [CASE...]
 *
 * Prints a JSON line per case. The floor of the single cases is one CLOCK_BOOTTIME read and one compare-and-swap on a
 * shared mapping; of the contended one, two processes that each read the clock and then increment one word by
 * compare-and-swap until it succeeds; of fairness, the mean share. Batches of floor and case are interleaved, so that
 * both see the same machine.
 */
#include "bench/bench.h"
#include "bench/processors.h"

#include <sys/wait.h>

#define TURNS          200
#define TURN_NS        UINT64_C(8000000)
#define FAIR_PROCESSES 64
#define FAIR_NS        UINT64_C(5000000000)

static uint64_t peek_batch(struct bench *b)
{
    uint64_t allowed = 0;
    struct spw_ticket none;
    memset(&none, 0, sizeof none);
    for (int i = 0; i < BATCH_OPS; i++) {
        struct spw_admission a = spw_peek(&b->client, &b->ref, 1);
        use(&a, &none);
        allowed += a.may_call;
    }
    return allowed;
}

static void single(struct bench *b, const char *name, uint64_t (*batch)(struct bench *), double allowed_share)
{
    static double floor_ns[BATCHES], op_ns[BATCHES];
    uint64_t allowed = 0, ignored = 0;
    for (int i = 0; i < 50; i++)
        (void)batch(b);
    for (int i = 0; i < BATCHES; i++) {
        spw_state_heartbeat(b->state, spw_now_ns());
        floor_ns[i] = timed_ns(b, floor_batch, &ignored);
        op_ns[i] = timed_ns(b, batch, &allowed);
    }
    double floor_p50 = median(floor_ns, BATCHES), p50 = median(op_ns, BATCHES);
    double share = (double)allowed / ((double)BATCHES * BATCH_OPS);
    if (share != allowed_share) {
        fprintf(stderr, "%s: %.3f of the decisions were allowed and not %.0f\n", name, share, allowed_share);
        exit(1);
    }
    printf("{\"bench\":\"admission\",\"case\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"ops_per_s\":%.0f,"
           "\"floor\":\"clock_cas\",\"floor_p50_ns\":%.1f,\"ratio\":%.3f}\n",
           name, p50, op_ns[BATCHES * 99 / 100], 1e9 / p50, floor_p50, p50 / floor_p50);
}

static void floor_contended(struct bench *b)
{
    (void)spw_now_ns();
    uint64_t seen = spw_load_rlx(b->shared);
    while (!spw_cas(b->shared, &seen, seen + 1)) {
    }
}

/* One of the two processes: floor and case by turns, the operations of each turn counted. */
static void contend(struct bench *b, bool beats, uint64_t from_ns, uint64_t *done)
{
    while (spw_now_ns() < from_ns) {
    }
    for (uint64_t turn = 0; turn < 2 * TURNS; turn++) {
        uint64_t until_ns = from_ns + (turn + 1) * TURN_NS, count = 0;
        if (beats) /* in place of the sidecar */
            spw_state_heartbeat(b->state, spw_now_ns());
        while (spw_now_ns() < until_ns) {
            for (int i = 0; i < 100; i++) {
                struct spw_ticket ticket;
                if (turn % 2 == 0) {
                    floor_contended(b);
                } else {
                    struct spw_admission a = spw_acquire(&b->client, &b->ref, 1, 0, &ticket);
                    use(&a, &ticket);
                }
            }
            count += 100;
        }
        spw_add_rlx(&done[turn], count);
    }
}

static void contended(struct bench *b, const char *name)
{
    static double floor_ns[TURNS], op_ns[TURNS];
    uint64_t *done = b->shared + 512, from_ns = spw_now_ns() + 20 * TURN_NS;
    memset(done, 0, 2 * TURNS * sizeof done[0]);
    spw_state_heartbeat(b->state, spw_now_ns());
    pid_t child = fork();
    spw_bench_bind(0, child == 0 ? 1 : 0);
    contend(b, child != 0, from_ns, done);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    spw_bench_bind(0, SPW_BENCH_ANY);
    for (int i = 0; i < TURNS; i++) {
        floor_ns[i] = 2.0 * (double)TURN_NS / (double)(done[2 * i] + 1); /* two processes share the turn */
        op_ns[i] = 2.0 * (double)TURN_NS / (double)(done[2 * i + 1] + 1);
    }
    double floor_p50 = median(floor_ns, TURNS), p50 = median(op_ns, TURNS);
    printf("{\"bench\":\"admission\",\"case\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"ops_per_s\":%.0f,"
           "\"floor\":\"clock_cas_%s\",\"floor_p50_ns\":%.1f,\"ratio\":%.3f}\n",
           name, p50, op_ns[TURNS * 99 / 100], 2e9 / p50, name, floor_p50, floor_p50 / p50);
}

/* Many processes on few cores: the least share that one of them got of the decisions, in mean shares. */
static void fairness(struct bench *b, const char *name)
{
    uint64_t *done = b->shared + 512;
    pid_t child[FAIR_PROCESSES];
    memset(done, 0, FAIR_PROCESSES * sizeof done[0]);
    uint64_t from_ns = spw_now_ns() + UINT64_C(200000000), until_ns = from_ns + FAIR_NS;
    spw_state_heartbeat(b->state, spw_now_ns());
    for (int i = 0; i < FAIR_PROCESSES; i++) {
        child[i] = fork();
        if (child[i] != 0)
            continue;
        while (spw_now_ns() < from_ns)
            sched_yield();
        uint64_t mine = 0;
        while (spw_now_ns() < until_ns) {
            for (int k = 0; k < 100; k++) {
                struct spw_ticket ticket;
                mine += spw_acquire(&b->client, &b->ref, 1, 0, &ticket).may_call;
            }
        }
        done[i] = mine;
        _exit(0);
    }
    while (spw_now_ns() < until_ns) { /* in place of the sidecar */
        usleep(100000);
        spw_state_heartbeat(b->state, spw_now_ns());
    }
    double share[FAIR_PROCESSES], sum = 0;
    for (int i = 0; i < FAIR_PROCESSES; i++) {
        waitpid(child[i], NULL, 0);
        share[i] = (double)done[i];
        sum += share[i];
    }
    double mean = sum / FAIR_PROCESSES, least;
    (void)median(share, FAIR_PROCESSES);
    least = share[0];
    printf("{\"bench\":\"admission\",\"case\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"ops_per_s\":%.0f,"
           "\"floor\":\"mean_share\",\"floor_p50_ns\":%.1f,\"ratio\":%.3f}\n",
           name, (double)FAIR_NS / share[FAIR_PROCESSES / 2], (double)FAIR_NS / least,
           sum * 1e9 / (double)FAIR_NS, (double)FAIR_NS / mean, least / mean);
}

static const char conf_text[] =
    "accounts:\n"
    "  allow: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "          limit: {rate: 10000000/s, burst: 4000000000, pods: 1}, integrations: {web: checkout}}\n"
    "  allow_170_per_s: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "          limit: {rate: 170/s, burst: 4000000000, pods: 1}, integrations: {web: checkout}}\n"
    "  deny: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1/d, burst: 1, pods: 1}, integrations: {web: checkout}}\n"
    "  deny_17_per_hour: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 17/h, burst: 1, pods: 1}, integrations: {web: checkout}}\n"
    "  other: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1000/s, burst: 1000, pods: 1}, integrations: {web: checkout}}\n"
    "segment: {pub_dir: %s/pub, rw_dir: %s/rw, slots: 80, rate_records: 1024, cells: 64}\n";

/* Bring the account's breaker, gate and switch words to what the case is about. */
static void prepare(struct bench *b, const char *account, bool open, bool shut, bool kill)
{
    const struct spw_map *map = spw_state_map(b->state);
    struct spw_account_conf conf;
    struct spw_ref found;
    spw_ref_init(&found, account, "web");
    if (!spw__ref_find(map, &found))
        exit(1);
    spw_ref_init(&b->ref, account, "web");
    struct spw_account *record = spw_account_at(map, found.account_index);
    struct spw_account_words *words = spw_account_words_at(map, found.account_index);
    if (!record || !words || !spw_account_conf_read(record, &conf))
        exit(1);
    struct spw_breaker_word breaker = spw_breaker_unpack(spw_load_acq(&words->breaker));
    breaker.state = open ? SPW_BREAKER_OPEN : SPW_BREAKER_CLOSED;
    breaker.time_ms = open ? spw_map_ms(map, spw_now_ns()) + conf.cooldown_max_ms : 0;
    spw_exchange(&words->breaker, spw_breaker_pack(&breaker));
    spw_exchange(&words->gate, 0);
    if (shut)
        spw_gate_shut(map, words, spw_now_ns() + UINT64_C(3600000000000), SPW_GATE_RETRY_AFTER, spw_now_ns(),
                      spw_now_ns());
    spw_store_rlx(&record->switches, kill ? SPW_SWITCH_KILL : 0);
    spw_changed(map);
}

static bool asked_for(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return argc < 2;
}

static void run_cases(struct bench *b, int argc, char **argv)
{
    static const struct {
        const char *name, *account;
        uint64_t (*batch)(struct bench *);
        bool open, shut, kill;
        double allowed_share;
    } cases[] = {
        {"allow", "allow", acquire_batch, false, false, false, 1},
        {"allow_170_per_s", "allow_170_per_s", acquire_batch, false, false, false, 1},
        {"deny", "deny", acquire_batch, false, false, false, 0},
        {"deny_17_per_hour", "deny_17_per_hour", acquire_batch, false, false, false, 0},
        {"breaker_open", "other", acquire_batch, true, false, false, 0},
        {"gate_shut", "other", acquire_batch, false, true, false, 0},
        {"kill_switch", "deny", acquire_batch, false, false, true, 1},
        {"peek", "allow", peek_batch, false, false, false, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!asked_for(cases[i].name, argc, argv))
            continue;
        prepare(b, cases[i].account, cases[i].open, cases[i].shut, cases[i].kill);
        if (cases[i].allowed_share == 0) /* what is in the bucket is spent */
            (void)cases[i].batch(b);
        single(b, cases[i].name, cases[i].batch, cases[i].allowed_share);
    }
    prepare(b, "allow", false, false, false);
    if (asked_for("contended_2", argc, argv))
        contended(b, "contended_2");
    if (asked_for("fair_64", argc, argv))
        fairness(b, "fair_64");
}

int main(int argc, char **argv)
{
    static struct bench b;
    if (!bench_open(&b, conf_text))
        return 1;
    run_cases(&b, argc, argv);
    return bench_close(&b) ? 0 : 1;
}
