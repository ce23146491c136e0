/* spw_permit.h: concurrency permits: at most N calls of an account in flight from this pod.
 *
 * Owns: permit words. Called by: admission, the sidecar's sweep. Thread/process: any number; lock-free.
 *
 *   word: {slot:9 | slot generation:10 | use:7 | expiry_ms:38}, 0 = free
 *
 * A permit comes back in one of three ways: release by its holder (exactly its own word -> 0), the sweep of a dead
 * slot, or its expiry (deadline + 1 s), which works with the sidecar dead too. `use` tells two permits of one holder
 * apart.
 */
#ifndef SPW_PERMIT_H
#define SPW_PERMIT_H

#include "shm/spw_slot.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_PERMIT_TIME_MASK ((UINT64_C(1) << 38) - 1)
#define SPW_PERMIT_MAX_MS    60000u /* none lives longer: a deadline is 10 s at most */
#define SPW__PERMIT_AHEAD_MS (SPW_PERMIT_MAX_MS + 3600000u) /* believed, for readers whose clock is behind */

static inline uint64_t spw_permit_word(uint32_t slot, uint32_t generation, uint32_t use, uint64_t expiry_ms)
{
    return (uint64_t)(slot & 0x1FF) << 55 | (uint64_t)(generation & 0x3FF) << 45 |
           (uint64_t)(use & 0x7F) << 38 | (expiry_ms & SPW_PERMIT_TIME_MASK);
}

/* Was this permit taken by the process that map is attached as? The child of a fork is another one. */
static inline bool spw_permit_mine(const struct spw_map *map, uint64_t word)
{
    return word >> 45 == spw_permit_word(map->self.slot, map->self.generation, 0, 0) >> 45;
}

/* Held, and by a word that this code could have written: an expiry in the far future is damage. */
static inline bool spw__permit_busy(uint64_t held, uint64_t now_ms)
{
    uint64_t expiry_ms = held & SPW_PERMIT_TIME_MASK;
    return held == SPW_MOVED ||
           (held != 0 && expiry_ms > now_ms && expiry_ms <= now_ms + SPW__PERMIT_AHEAD_MS);
}

/* Take one of the account's `count` permits. *word identifies it for the release. false: all are in use. */
static inline bool spw_permit_take(const struct spw_map *map, uint32_t account_index, uint32_t count,
                                   uint32_t use, uint32_t life_ms, uint64_t now_ns, uint64_t *word,
                                   uint32_t *index)
{
    uint64_t now_ms = spw_map_ms(map, now_ns);
    if (life_ms > SPW_PERMIT_MAX_MS)
        life_ms = SPW_PERMIT_MAX_MS;
    uint64_t mine = spw_permit_word(map->self.slot, map->self.generation, use, now_ms + life_ms);
    if (count > SPW_PERMITS_PER_ACCOUNT)
        count = SPW_PERMITS_PER_ACCOUNT;
    for (uint32_t i = 0; i < count; i++) {
        *index = account_index * SPW_PERMITS_PER_ACCOUNT + i;
        uint64_t *permit = spw_permit_at(map, *index);
        if (!permit)
            return false;
        /* SYNC permit: acquire: what its last holder did is over. */
        uint64_t held = spw_load_acq(permit);
        while (!spw__permit_busy(held, now_ms)) { /* an expired one may just have been given back */
            /* SYNC permit: acq_rel: free or expired -> mine. */
            if (spw_cas(permit, &held, mine)) {
                *word = mine;
                return true;
            }
        }
    }
    return false;
}

/* Give it back; a permit that expired and went to somebody else is left alone. */
static inline void spw_permit_release(const struct spw_map *map, uint32_t index, uint64_t word)
{
    uint64_t *permit = spw_permit_at(map, index);
    /* SYNC permit: acq_rel: exactly mine -> free. */
    if (permit)
        (void)spw_cas(permit, &word, 0);
}

/* Permits in use, of this process alone or of all. *wait_ns: until the first of them expires; it may come back before. */
static inline uint32_t spw_permit_busy_count(const struct spw_map *map, uint32_t account_index,
                                             uint32_t count, bool mine, uint64_t now_ns, uint64_t *wait_ns)
{
    uint64_t now_ms = spw_map_ms(map, now_ns), first_ms = now_ms + SPW__PERMIT_AHEAD_MS;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count && i < SPW_PERMITS_PER_ACCOUNT; i++) {
        uint64_t *permit = spw_permit_at(map, (uint64_t)account_index * SPW_PERMITS_PER_ACCOUNT + i);
        /* SYNC permit: relaxed: only looked at. */
        uint64_t held = permit ? spw_load_rlx(permit) : SPW_MOVED;
        if (!spw__permit_busy(held, now_ms) || (mine && !spw_permit_mine(map, held)))
            continue;
        n++;
        if (held != SPW_MOVED && (held & SPW_PERMIT_TIME_MASK) < first_ms)
            first_ms = held & SPW_PERMIT_TIME_MASK;
    }
    *wait_ns = spw_map_ns_of_ms(map, first_ms) - now_ns;
    return n;
}

static inline uint32_t spw_permit_free_count(const struct spw_map *map, uint32_t account_index,
                                             uint32_t count, uint64_t now_ns)
{
    uint64_t wait_ns;
    count = count < SPW_PERMITS_PER_ACCOUNT ? count : SPW_PERMITS_PER_ACCOUNT;
    return count - spw_permit_busy_count(map, account_index, count, false, now_ns, &wait_ns);
}

/* SIDECAR ONLY */
/* Sidecar's sweep: clear what names a dead slot. Repeatable. */
static inline void spw_permit_sweep(const struct spw_map *map, uint32_t slot, uint32_t generation)
{
    for (uint64_t i = 0; i < map->rw_section[SPW_RW_PERMITS].count; i++) {
        uint64_t *permit = spw_permit_at(map, i);
        /* SYNC permit: acquire. */
        uint64_t held = spw_load_acq(permit);
        if (held != 0 && held != SPW_MOVED &&
            (held >> 45) == ((uint64_t)(slot & 0x1FF) << 10 | (generation & 0x3FF)))
            (void)spw_cas(permit, &held, 0); /* SYNC permit: acq_rel. */
    }
}
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
