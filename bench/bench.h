/* bench.h: what the benches of a decision share: a segment with a client on it, the floor, timed batches.
 *
 * The floor is one CLOCK_BOOTTIME read and one compare-and-swap on a shared mapping. A bench measures it and its case by
 * turns, BATCHES batches of BATCH_OPS operations each, and quotes the medians.
 */
#ifndef SPW_BENCH_H
#define SPW_BENCH_H

#include "shm/spw_client.h"

#include "bench/stats.h"
#include "sidecar/conf/conf.h"
#include "sidecar/state/state.h"

#define BATCHES   1000
#define BATCH_OPS 1000

struct bench {
    char dir[64];
    struct spw_conf *conf;
    struct spw_state *state;
    struct spw_client client;
    struct spw_ref ref;
    uint64_t *shared; /* two pages of its own, MAP_SHARED */
};

static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof values[0], by_value);
    return values[count / 2];
}

static inline uint64_t floor_batch(struct bench *b)
{
    uint64_t done = 0;
    for (int i = 0; i < BATCH_OPS; i++) {
        uint64_t now_ns = spw_now_ns(), seen = spw_load_rlx(b->shared);
        done += spw_cas(b->shared, &seen, now_ns);
    }
    return done;
}

/* The whole answer is made, as for a caller that reads all of it. */
static inline void use(const struct spw_admission *a, const struct spw_ticket *ticket)
{
    __asm__ volatile("" : : "m"(*a), "m"(*ticket));
}

static inline uint64_t acquire_batch(struct bench *b)
{
    uint64_t allowed = 0;
    for (int i = 0; i < BATCH_OPS; i++) {
        struct spw_ticket ticket;
        struct spw_admission a = spw_acquire(&b->client, &b->ref, 1, 0, &ticket);
        use(&a, &ticket);
        allowed += a.may_call;
    }
    return allowed;
}

static inline double timed_ns(struct bench *b, uint64_t (*batch)(struct bench *), uint64_t *allowed)
{
    uint64_t from_ns = spw_now_ns();
    *allowed += batch(b);
    return (double)(spw_now_ns() - from_ns) / BATCH_OPS;
}

/* conf_text has two "%s" for the directory. false: said why. */
static inline bool bench_open(struct bench *b, const char *conf_text)
{
    char text[4096], path[80];
    struct spw_error err;
    snprintf(b->dir, sizeof b->dir, "/dev/shm/spillway-bench-XXXXXX");
    if (!mkdtemp(b->dir))
        return false;
    snprintf(path, sizeof path, "%s/pub", b->dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/rw", b->dir);
    mkdir(path, 0755);
    int n = snprintf(text, sizeof text, conf_text, b->dir, b->dir);
    if (spw_conf_parse("bench", text, (size_t)n, &b->conf, &err) != SPW_STATUS_OK ||
        spw_state_open(b->conf, &b->state, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    struct spw_attach_options options = {.pub_dir = b->conf->segment.pub_dir,
                                         .rw_dir = b->conf->segment.rw_dir};
    b->shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return b->shared != MAP_FAILED && spw_attach(&b->client, &options) == SPW_STATUS_OK;
}

static inline bool bench_close(struct bench *b)
{
    char command[128];
    spw_detach(&b->client);
    spw_state_close(b->state, true);
    spw_conf_destroy(b->conf);
    snprintf(command, sizeof command, "rm -rf %s", b->dir);
    return system(command) == 0;
}

#endif
