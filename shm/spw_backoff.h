/* spw_backoff.h: how long to wait before a further try: base x 2^n, with or without jitter.
 *
 * Owns: nothing. Called by: the sidecar's retry, callers that make their own calls. Thread: any; pure.
 */
#ifndef SPW_BACKOFF_H
#define SPW_BACKOFF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum spw_jitter {
    SPW_JITTER_PROPORTIONAL, /* 70 % to 130 % of the pause */
    SPW_JITTER_FULL,         /* 0 to the pause */
    SPW_JITTER_EQUAL,        /* half of it to all of it */
    SPW_JITTER_NONE
};

/* The pause in ns after `attempt` tries that failed before the last one (0, 1, 2: base_ns, 2 base_ns, 4 base_ns), most_ns
 * at most before it is spread. random: 64 random bits, a new value for each call. Pure; never overflows. */
static inline uint64_t spw_backoff_ns(enum spw_jitter jitter, uint64_t base_ns, uint64_t most_ns,
                                      uint32_t attempt, uint64_t random)
{
    uint64_t limit_ns = most_ns < UINT64_MAX / 4 ? most_ns : UINT64_MAX / 4;
    uint64_t pause_ns = base_ns < limit_ns ? base_ns : limit_ns;
    for (; attempt > 0 && pause_ns < limit_ns && pause_ns; attempt--)
        pause_ns = pause_ns < limit_ns / 2 ? pause_ns * 2 : limit_ns;
    switch (jitter) {
    case SPW_JITTER_FULL:
        return random % (pause_ns + 1);
    case SPW_JITTER_EQUAL:
        return pause_ns / 2 + random % (pause_ns - pause_ns / 2 + 1);
    case SPW_JITTER_PROPORTIONAL:
        return pause_ns - pause_ns * 3 / 10 + random % (2 * (pause_ns * 3 / 10) + 1);
    default:
        return pause_ns;
    }
}

#ifdef __cplusplus
}
#endif

#endif
