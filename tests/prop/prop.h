/* prop.h: what the random-law tests share: a seed that is printed, a small generator, a check that names the seed.
 *
 * SPW_SEED=<number> repeats a run; SPW_ROUNDS=<number> sets how many rounds are run.
 */
#ifndef SPW_TESTS_PROP_H
#define SPW_TESTS_PROP_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "shm/spw_map.h"

struct prop {
    uint64_t seed;
    uint64_t state;
    uint64_t rounds;
};

static inline struct prop prop_start(uint64_t rounds)
{
    const char *seed = getenv("SPW_SEED"), *wanted = getenv("SPW_ROUNDS");
    struct prop p;
    p.seed = seed ? strtoull(seed, NULL, 0) : spw_now_ns() ^ (uint64_t)getpid() << 40;
    p.rounds = wanted ? strtoull(wanted, NULL, 0) : rounds;
    p.state = p.seed;
    printf("SPW_SEED=%" PRIu64 " SPW_ROUNDS=%" PRIu64 "\n", p.seed, p.rounds);
    fflush(stdout);
    return p;
}

/* splitmix64 */
static inline uint64_t prop_next(struct prop *p)
{
    uint64_t z = p->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static inline uint64_t prop_below(struct prop *p, uint64_t limit)
{
    return limit ? prop_next(p) % limit : 0;
}

/* Log-uniform: every order of magnitude up to limit is as likely as the next. */
static inline uint64_t prop_scale(struct prop *p, uint64_t limit)
{
    unsigned bits = 1;
    while (bits < 64 && limit >> bits)
        bits++;
    uint64_t value = prop_next(p) >> (64 - (1 + prop_below(p, bits)));
    return value > limit ? limit : value;
}

#define PROP_CHECK(p, condition, format, ...)                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: " format "\nrepeat with SPW_SEED=%" PRIu64 "\n", __FILE__, __LINE__, \
                    #condition, __VA_ARGS__, (p)->seed);                                                     \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
