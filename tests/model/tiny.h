/* tiny.h: the smallest segment that serves: one account, two limiters, three slots, four cells.
 *
 * Owns: the places of its records. Called by: models that need a map. What only the sidecar writes lies outside the
 * shared memory of the search, unless a model wants its accesses to be switch points.
 */
#ifndef SPW_MODEL_TINY_H
#define SPW_MODEL_TINY_H

#include "tests/model/step.h"

#include "shm/spw_admission.h"
#include "shm/spw_cell.h"
#include "tests/model/explore.h"

#define TINY_BASE_NS  UINT64_C(1000000000000)
#define TINY_MS       UINT64_C(1000000)
#define TINY_S        UINT64_C(1000000000)
#define TINY_LIMITERS 2u
#define TINY_SLOTS    3u
#define TINY_CELLS    4u

struct tiny_pub {
    struct spw_header header;
    struct spw_account account;
    struct spw_integration integration;
    struct spw_limiter limiter[TINY_LIMITERS];
    struct spw_policy policy[2];
    struct spw_rate_half half[2];
    struct spw_source source[2 * SPW_SOURCES_MAX_COUNT];
    uint64_t index[8];
    struct spw_rate_record record[2];
};

/* A stretch of shared memory for each, so that a trace names it. */
struct tiny_rw {
    struct spw_header header;
    struct spw_account_words words;
    struct spw_limiter_words limiter[TINY_LIMITERS];
    uint64_t permit[SPW_PERMITS_PER_ACCOUNT];
    struct spw_slot slot[TINY_SLOTS];
    struct spw_stats stats[TINY_SLOTS];
    uint64_t cell_word[TINY_CELLS + TINY_CELLS % 2];
    struct spw_cell cell[TINY_CELLS];
};

static inline void tiny_header(struct spw_header *h, uint64_t magic, uint64_t bytes,
                               const struct spw_section *sections, unsigned count)
{
    h->magic = magic;
    h->layout_major = SPW_LAYOUT_MAJOR;
    h->layout_minor = SPW_LAYOUT_MINOR;
    h->oldest_compatible_major = SPW_OLDEST_COMPATIBLE_MAJOR;
    h->header_bytes = SPW_HEADER_BYTES;
    h->total_bytes = bytes;
    h->format_hash = spw_format_hash();
    h->generation = 77;
    h->clock_id = CLOCK_BOOTTIME;
    h->section_count = count;
    h->base_ns = TINY_BASE_NS;
    h->heartbeat_ns = TINY_BASE_NS;
    memcpy(h->sections, sections, count * sizeof sections[0]);
    h->ready = 1;
}

/* Fill a pair and map it: one account "main" with `limiters` buckets of the given bursts (a token a second each, full)
 * and `permits` permits; breaker opens on two 429s in a row; slot 0 is reserved, nobody is attached. */
static inline void tiny_make(struct tiny_pub *pub, struct tiny_rw *rw, struct spw_map *map, uint32_t limiters,
                             const uint64_t *bursts, uint32_t permits)
{
    memset(pub, 0, sizeof *pub);
    memset(rw, 0, sizeof *rw);
    memset(map, 0, sizeof *map);
    struct spw_section p[SPW_PUB_SECTIONS] = {
        {offsetof(struct tiny_pub, account), sizeof(struct spw_account), 1},
        {offsetof(struct tiny_pub, integration), sizeof(struct spw_integration), 1},
        {offsetof(struct tiny_pub, limiter), sizeof(struct spw_limiter), TINY_LIMITERS},
        {offsetof(struct tiny_pub, policy), sizeof(struct spw_policy), 2},
        {offsetof(struct tiny_pub, half), sizeof(struct spw_rate_half), 2},
        {offsetof(struct tiny_pub, source), sizeof(struct spw_source), 2 * SPW_SOURCES_MAX_COUNT},
        {offsetof(struct tiny_pub, index), 8, 8},
        {offsetof(struct tiny_pub, record), sizeof(struct spw_rate_record), 2},
        {offsetof(struct tiny_pub, index), sizeof(struct spw_learned_rate), 0},
    };
    struct spw_section r[SPW_RW_SECTIONS] = {
        {offsetof(struct tiny_rw, words), sizeof(struct spw_account_words), 1},
        {offsetof(struct tiny_rw, limiter), sizeof(struct spw_limiter_words), TINY_LIMITERS},
        {offsetof(struct tiny_rw, permit), 8, SPW_PERMITS_PER_ACCOUNT},
        {offsetof(struct tiny_rw, slot), sizeof(struct spw_slot), TINY_SLOTS},
        {offsetof(struct tiny_rw, stats), sizeof(struct spw_stats), TINY_SLOTS},
        {offsetof(struct tiny_rw, cell_word), 8, TINY_CELLS},
        {offsetof(struct tiny_rw, cell), sizeof(struct spw_cell), TINY_CELLS},
    };
    memcpy(map->pub_section, p, sizeof p);
    memcpy(map->rw_section, r, sizeof r);
    map->pub = (uint8_t *)pub;
    map->rw = (uint8_t *)rw;
    map->pub_bytes = sizeof *pub;
    map->rw_bytes = sizeof *rw;
    map->generation = 77;
    map->base_ns = TINY_BASE_NS;
    map->layout_major = SPW_LAYOUT_MAJOR;
    map->layout_minor = SPW_LAYOUT_MINOR;
    map->self.lock_fd = -1;
    struct spw_account *a = &pub->account;
    memcpy(a->name, "main", 5);
    a->record_generation = 1;
    a->version = 1;
    a->limiters_count = limiters;
    a->permits_count = permits;
    struct spw_account_conf conf;
    memset(&conf, 0, sizeof conf);
    conf.consecutive_429_count = 2;
    conf.ratio_429_ppm = 200000;
    conf.minimum_count = 20;
    conf.window_tick_ms = 1000;
    conf.cooldown_min_ms = 30000;
    conf.cooldown_max_ms = 60000;
    conf.probe_ms = 2000;
    conf.permit_ms = 2000;
    a->conf[0] = conf;
    tiny_header(&pub->header, SPW_MAGIC_PUB, sizeof *pub, p, SPW_PUB_SECTIONS);
    tiny_header(&rw->header, SPW_MAGIC_RW, sizeof *rw, r, SPW_RW_SECTIONS);
    for (uint32_t i = 0; i < limiters; i++) {
        a->limiters[i] = i;
        pub->limiter[i].record_generation = 1;
        pub->limiter[i].state = SPW_RECORD_LIVE;
        if (!spw_bucket_configure(&pub->limiter[i], &rw->limiter[i], 1, TINY_S, bursts[i], 0, 1, TINY_BASE_NS,
                                  true))
            abort();
    }
    a->state = SPW_RECORD_LIVE;
    rw->slot[0].word = spw_slot_word(0, SPW_SLOT_RESERVED);
}

/* The map of a process that holds slot `slot`. */
static inline struct spw_map tiny_map_of(const struct spw_map *map, uint32_t slot, uint32_t generation)
{
    struct spw_map own = *map;
    own.self.lock_fd = 3;
    own.self.slot = slot;
    own.self.generation = generation;
    return own;
}

#endif
