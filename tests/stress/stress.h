/* stress.h: what the stress tests share: the bound over changing limits, and a shared page for counters.
 *
 * The bound: admitted <= largest burst + the integral of the rate over the time. The integral is taken from the times
 * around each change, to the generous side, so that a failure is never the test's own.
 */
#ifndef SPW_TESTS_STRESS_H
#define SPW_TESTS_STRESS_H

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "shm/spw_client.h"
#include "tests/support/state_fixture.h"

#define S SPW_TEST_S

struct shared {
    uint64_t stop;
    uint64_t version_in_force; /* stored after a set has returned */
    uint64_t ready;            /* workers that run */
    struct {
        uint64_t admitted, tries, old_versions, unattached, first_ns, empty_ns, pad[10];
    } worker[64];
};

static inline struct shared *shared_page(void)
{
    struct shared *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        abort();
    return page;
}

static inline double seconds(double usual)
{
    const char *wanted = getenv("SPW_SECONDS");
    return wanted ? atof(wanted) : usual;
}

/* Acquire as fast as it goes until told to stop. */
static inline void worker(const struct spw_state_fixture *f, struct shared *page, unsigned index)
{
    static _Thread_local struct spw_client client;
    struct spw_attach_options options = {f->pub_dir, f->rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    struct spw_ref ref;
    struct spw_ticket ticket;
    spw_ref_init(&ref, "main", "web");
    if (spw_attach(&client, &options) != SPW_STATUS_OK)
        abort();
    spw_add_rlx(&page->ready, 1);
    page->worker[index].first_ns = spw_now_ns();
    while (!spw_load_acq(&page->stop)) {
        uint64_t now_ns = spw_now_ns(), version = spw_load_acq(&page->version_in_force);
        struct spw_admission a = spw_acquire(&client, &ref, 1, 0, &ticket);
        page->worker[index].tries++;
        page->worker[index].admitted += a.verdict == SPW_ALLOW;
        if (a.verdict == SPW_DENY)
            page->worker[index].empty_ns = now_ns;
        page->worker[index].unattached += a.verdict == SPW_NOT_ATTACHED;
        page->worker[index].old_versions += a.verdict != SPW_NOT_ATTACHED && a.version < version;
        if (a.may_call)
            spw_report(&client, &ticket, 200, -1);
    }
    spw_detach(&client);
}

/* The rate's integral: changes may have come into force anywhere between the two times taken around them, so for that
 * while the larger rate counts. Tokens times ns. */
struct integral {
    spw_u128 token_ns;
    uint64_t rate_per_s, burst, since_ns;
};

static inline void integral_change(struct integral *i, uint64_t rate_per_s, uint64_t before_ns,
                                   uint64_t after_ns)
{
    uint64_t larger = rate_per_s > i->rate_per_s ? rate_per_s : i->rate_per_s;
    i->token_ns += (spw_u128)i->rate_per_s * (before_ns - i->since_ns);
    i->token_ns += (spw_u128)larger * (after_ns - before_ns);
    i->rate_per_s = rate_per_s;
    i->since_ns = after_ns;
}

static inline uint64_t integral_bound(const struct integral *i, uint64_t now_ns)
{
    spw_u128 sum = i->token_ns + (spw_u128)i->rate_per_s * (now_ns - i->since_ns);
    return i->burst + (uint64_t)(sum / S);
}

/* Change the limit `per_s` times a second for a while; each set's version is told to the workers once it has returned. */
static inline uint64_t change_limits(struct spw_state_fixture *f, struct shared *page, struct integral *bound,
                                     double for_s, unsigned per_s)
{
    uint64_t begun = spw_now_ns(), end = begun + (uint64_t)(for_s * 1e9), changes = 0;
    uint64_t random = begun;
    for (uint64_t now = begun; now < end; now = spw_now_ns()) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t rate = 1000 + (random >> 33) % 20000;
        uint64_t before = spw_now_ns();
        uint64_t version = spw_state_fixture_set(f, rate, S, bound->burst, before);
        integral_change(bound, rate, before, spw_now_ns());
        spw_store_rel(&page->version_in_force, version);
        if (++changes % 100 == 0)
            spw_state_heartbeat(f->state, before);
        while (spw_now_ns() < begun + changes * (S / per_s))
            sched_yield();
    }
    return changes;
}

/* Add up and judge; true = as promised: at most `bound` by the end, at least `least` of what was there to be had. */
static inline bool judge(const char *what, const struct shared *page, unsigned workers, uint64_t bound,
                         uint64_t least)
{
    uint64_t admitted = 0, tries = 0, old_versions = 0, unattached = 0;
    for (unsigned i = 0; i < workers; i++) {
        admitted += page->worker[i].admitted;
        tries += page->worker[i].tries;
        old_versions += page->worker[i].old_versions;
        unattached += page->worker[i].unattached;
    }
    printf("%s: %u workers, %" PRIu64 " tries, %" PRIu64 " admitted of %" PRIu64 " to %" PRIu64 "; %" PRIu64
           " by an old version, %" PRIu64 " not attached\n",
           what, workers, tries, admitted, least, bound, old_versions, unattached);
    return admitted <= bound && admitted >= least && old_versions == 0;
}

#endif
