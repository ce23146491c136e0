/* crash_kit.h: what the tests that kill clients and sidecars have in common: how often, when, and a client's beginning.
 *
 * Included by one test file each; what it keeps is that test's own.
 */
#ifndef SPW_CRASH_KIT_H
#define SPW_CRASH_KIT_H

#include "tests/stress/stress.h"

#define MS UINT64_C(1000000)

static uint64_t seed; /* of random_below; SPW_SEED repeats a run */

static inline unsigned kills(void)
{
    const char *wanted = getenv("SPW_KILLS");
    return wanted ? (unsigned)strtoul(wanted, NULL, 10) : 100;
}

static inline uint64_t random_below(uint64_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (seed >> 20) % limit;
}

static inline void pause_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / S), (long)(ns % S)};
    nanosleep(&t, NULL);
}

/* In the child: a checkout process of "main", attached if there is a segment, that ends with this test. */
static inline void client_begin(const struct spw_state_fixture *f, struct spw_client *client,
                                struct spw_ref *ref)
{
    struct spw_attach_options options = {f->pub_dir, f->rw_dir, SPW_UNATTACHED_DENY, 0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_range(3, ~0u, 0); /* the lock of the sidecar that this test plays is not a client's */
    spw_ref_init(ref, "main", "web");
    (void)spw_attach(client, &options);
}

#endif
