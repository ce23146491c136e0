/* admission.c: what one decision costs, against a floor taken in the same run.
 *
 * Owns: a segment in a temporary directory. Thread: one; a second process for the contended cases.
 * Prints a JSON line per case. The floor of the single cases is one CLOCK_BOOTTIME read and one compare-and-swap on a
 * shared mapping; of the contended one, two processes that each read the clock and then increment one word by
 * compare-and-swap until it succeeds. Batches of floor and case are interleaved, so that both see the same machine.
 */
#include "shm/spw_client.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "sidecar/conf/conf.h"
#include "sidecar/state/state.h"

#define BATCHES    1000
#define BATCH_OPS  1000
#define CONTEND_NS UINT64_C(2000000000)

struct bench {
    struct spw_client client;
    struct spw_ref ref;
    uint64_t *shared; /* a page of its own, MAP_SHARED */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void floor_batch(struct bench *b)
{
    for (int i = 0; i < BATCH_OPS; i++) {
        uint64_t now_ns = spw_now_ns(), seen = spw_load_rlx(b->shared);
        (void)spw_cas(b->shared, &seen, now_ns);
    }
}

static uint64_t case_batch(struct bench *b)
{
    uint64_t allowed = 0;
    for (int i = 0; i < BATCH_OPS; i++) {
        struct spw_ticket ticket;
        struct spw_admission a = spw_acquire(&b->client, &b->ref, 1, 0, &ticket);
        allowed += a.may_call;
    }
    return allowed;
}

static double timed_ns(struct bench *b, bool floor, uint64_t *allowed)
{
    uint64_t from_ns = spw_now_ns();
    if (floor)
        floor_batch(b);
    else
        *allowed += case_batch(b);
    return (double)(spw_now_ns() - from_ns) / BATCH_OPS;
}

static void single(struct bench *b, const char *name, const char *account)
{
    static double floor_ns[BATCHES], op_ns[BATCHES];
    uint64_t allowed = 0;
    spw_ref_init(&b->ref, account, "web");
    for (int i = 0; i < 50; i++)
        (void)case_batch(b);
    for (int i = 0; i < BATCHES; i++) {
        floor_ns[i] = timed_ns(b, true, NULL);
        op_ns[i] = timed_ns(b, false, &allowed);
    }
    qsort(floor_ns, BATCHES, sizeof floor_ns[0], by_value);
    qsort(op_ns, BATCHES, sizeof op_ns[0], by_value);
    double p50 = op_ns[BATCHES / 2], floor_p50 = floor_ns[BATCHES / 2];
    printf("{\"bench\":\"admission\",\"case\":\"%s\",\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"ops_per_s\":%.0f,"
           "\"floor\":\"clock_cas\",\"floor_p50_ns\":%.1f,\"ratio\":%.3f,\"allowed_share\":%.3f}\n",
           name, p50, op_ns[BATCHES * 99 / 100], 1e9 / p50, floor_p50, p50 / floor_p50,
           (double)allowed / ((double)BATCHES * BATCH_OPS));
}

/* Operations a second of two processes over CONTEND_NS. */
static double contend(struct bench *b, bool floor)
{
    uint64_t *count = b->shared + 64; /* another line */
    count[0] = 0;
    uint64_t until_ns = spw_now_ns() + CONTEND_NS;
    pid_t child = fork();
    uint64_t done = 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(child == 0 ? 1 : 0, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    for (;;) {
        for (int i = 0; i < 100; i++) {
            if (floor) {
                (void)spw_now_ns();
                uint64_t seen = spw_load_rlx(b->shared);
                while (!spw_cas(b->shared, &seen, seen + 1)) {
                }
            } else {
                struct spw_ticket ticket;
                (void)spw_acquire(&b->client, &b->ref, 1, 0, &ticket);
            }
        }
        done += 100;
        if (spw_now_ns() >= until_ns)
            break;
    }
    spw_add_rlx(count, done);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return (double)spw_load_rlx(count) * 1e9 / (double)CONTEND_NS;
}

static void contended(struct bench *b, const char *name, const char *account)
{
    double ops[5], floor_ops[5];
    spw_ref_init(&b->ref, account, "web");
    for (int i = 0; i < 5; i++) {
        floor_ops[i] = contend(b, true);
        ops[i] = contend(b, false);
    }
    qsort(ops, 5, sizeof ops[0], by_value);
    qsort(floor_ops, 5, sizeof floor_ops[0], by_value);
    printf("{\"bench\":\"admission\",\"case\":\"%s\",\"ops_per_s\":%.0f,\"floor\":\"clock_cas_%s\","
           "\"floor_ops_per_s\":%.0f,\"ratio\":%.3f}\n",
           name, ops[2], name, floor_ops[2], ops[2] / floor_ops[2]);
}

static const char conf_text[] =
    "accounts:\n"
    "  allow: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "          limit: {rate: 10000000/s, burst: 4000000000, pods: 1}, integrations: {web: checkout}}\n"
    "  deny: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1/d, burst: 1, pods: 1}, integrations: {web: checkout}}\n"
    "  open: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 1000/s, burst: 1000, pods: 1}, integrations: {web: checkout}}\n"
    "segment: {pub_dir: %s/pub, rw_dir: %s/rw, rate_records: 1024, cells: 64}\n";

int main(void)
{
    static struct bench b;
    char dir[] = "/dev/shm/spillway-bench-XXXXXX", text[2048], path[64];
    struct spw_conf *conf = NULL;
    struct spw_state *state = NULL;
    struct spw_error err;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/pub", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/rw", dir);
    mkdir(path, 0755);
    int n = snprintf(text, sizeof text, conf_text, dir, dir);
    if (spw_conf_parse("bench", text, (size_t)n, &conf, &err) != SPW_STATUS_OK ||
        spw_state_open(conf, &state, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    struct spw_breaker_change open = {.forced = SPW_FORCED_OPEN};
    struct spw_breaker_view view;
    struct spw_attach_options options = {.pub_dir = spw_state_map(state) ? conf->segment.pub_dir : NULL,
                                         .rw_dir = conf->segment.rw_dir};
    if (spw_state_breaker_set(state, "open", &open, 0, false, spw_now_ns(), &view, &err) != SPW_STATUS_OK ||
        spw_attach(&b.client, &options) != SPW_STATUS_OK)
        return 1;
    b.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.shared == MAP_FAILED)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    spw_state_heartbeat(state,
                        UINT64_MAX - 1); /* nobody beats here, and silence would cost looks for a successor */
    single(&b, "allow", "allow");
    single(&b, "deny", "deny");
    single(&b, "breaker_open", "open");
    contended(&b, "contended_2", "allow");
    spw_detach(&b.client);
    spw_state_close(state, true);
    spw_conf_destroy(conf);
    n = snprintf(text, sizeof text, "rm -rf %s", dir);
    return n > 0 && system(text) == 0 ? 0 : 1;
}
