/* stress_processes.c: 1, 8 and 32 processes at one bucket (ORD-H1), and 16 while the limit changes a thousand times a
 * second: never more than the bound, and no decision begun after a set returned obeys an older version. */
#include "tests/stress/stress.h"

static void spawn(const struct spw_state_fixture *f, struct shared *page, unsigned workers)
{
    for (unsigned i = 0; i < workers; i++) {
        pid_t pid = fork();
        if (pid < 0)
            abort();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            worker(f, page, i);
            _exit(0);
        }
    }
    while (spw_load_acq(&page->ready) < workers)
        sched_yield();
}

static bool reap(unsigned workers)
{
    bool clean = true;
    for (unsigned i = 0; i < workers; i++) {
        int status = 0;
        clean &= wait(&status) > 0 && status == 0;
    }
    return clean;
}

/* What must have been admitted at 1,000 a second from a full bucket of 1,000: all that was earned between the first try
 * of all, before which it was full and earned nothing, and the last time that somebody found it empty; nothing, when
 * they were given too little of the processors to empty it. */
static uint64_t least_steady(const struct shared *page, unsigned workers)
{
    uint64_t first_ns = UINT64_MAX, empty_ns = 0;
    for (unsigned i = 0; i < workers; i++) {
        first_ns = page->worker[i].first_ns < first_ns ? page->worker[i].first_ns : first_ns;
        empty_ns = page->worker[i].empty_ns > empty_ns ? page->worker[i].empty_ns : empty_ns;
    }
    if (empty_ns < first_ns)
        return 0;
    return 1000 + (empty_ns - first_ns) / (S / 1000) - 1;
}

/* A full bucket of 1,000 at 1,000 a second. */
static bool steady(unsigned workers)
{
    struct spw_state_fixture f;
    struct shared *page = shared_page();
    spw_state_fixture_make(&f, "limit: {rate: 1000/s, burst: 1000, pods: 1}", NULL);
    struct integral bound = {0, 1000, 1000, f.map->base_ns};
    spawn(&f, page, workers);
    uint64_t end = spw_now_ns() + (uint64_t)(seconds(1.0) * 1e9);
    while (spw_now_ns() < end) {
        spw_state_heartbeat(f.state, spw_now_ns());
        usleep(50000);
    }
    spw_store_rel(&page->stop, 1);
    bool ok = reap(workers);
    ok &= judge("steady", page, workers, integral_bound(&bound, spw_now_ns()), least_steady(page, workers));
    spw_state_fixture_remove(&f);
    munmap(page, sizeof *page);
    return ok;
}

static bool changing(unsigned workers)
{
    struct spw_state_fixture f;
    struct shared *page = shared_page();
    spw_state_fixture_make(&f, "limit: {rate: 10000/s, burst: 500, pods: 1}", NULL);
    struct integral bound = {0, 10000, 500, f.map->base_ns};
    spawn(&f, page, workers);
    uint64_t changes = change_limits(&f, page, &bound, seconds(3.0), 1000);
    /* A bucket of 500 is full after some 30 ms in which nobody runs: a busy machine may lose something here. */
    uint64_t least = integral_bound(&bound, spw_now_ns()) / 2;
    spw_store_rel(&page->stop, 1);
    bool ok = reap(workers);
    printf("%" PRIu64 " changes\n", changes);
    ok &= judge("changing", page, workers, integral_bound(&bound, spw_now_ns()), least);
    ok &= spw_limiter_words_at(f.map, 0)->healed_count == 0 && changes > 100;
    spw_state_fixture_remove(&f);
    munmap(page, sizeof *page);
    return ok;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool ok = steady(1);
    ok &= steady(8);
    ok &= steady(32);
    ok &= changing(16);
    return ok ? 0 : 1;
}
