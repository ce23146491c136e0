/* spw_latch.h: a multi-word value with one writer that no reader can be stuck on.
 *
 * Owns: the two-slot latch. Called by: the publisher (write), everybody (read). Thread/process: one writer, any
 * readers. A writer may die between any two stores: the slot the counter names is always whole, so readers go on with
 * it. An even/odd sequence lock would leave them waiting for ever.
 */
#ifndef SPW_LATCH_H
#define SPW_LATCH_H

#include "shm/spw_atomic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_LATCH_TRIES 64

/* SIDECAR ONLY */
/* slots: two values of `words` 64-bit words, `stride_words` apart; *seq & 1 names the valid one. */
static inline void spw_latch_write(uint64_t *seq, uint64_t *slots, size_t stride_words, const void *value,
                                   size_t words)
{
    /* The caller's struct is copied through memcpy-able words: alignment of all latched types is 8. */
    uint64_t next = spw_load_rlx(seq) + 1;
    /* SYNC latch: release fence: the bump of the previous round is visible before this round's stores begin. */
    spw_fence_rel();
    spw_copy_rlx(slots + (next & 1) * stride_words, (const uint64_t *)value, words);
    /* SYNC latch: release: whoever sees the new counter sees the whole new slot. */
    spw_store_rel(seq, next);
}
/* END SIDECAR ONLY */

/* Copies a whole value to out. false only when the writer overtook the reader SPW_LATCH_TRIES times in a row. */
static inline bool spw_latch_read(const uint64_t *seq, const uint64_t *slots, size_t stride_words, void *out,
                                  size_t words)
{
    for (int i = 0; i < SPW_LATCH_TRIES; i++) {
        /* SYNC latch: acquire: the slot named by the counter is complete. */
        uint64_t before = spw_load_acq(seq);
        spw_copy_rlx((uint64_t *)out, slots + (before & 1) * stride_words, words);
        /* SYNC latch: acquire fence: the copy above is done before the counter is looked at again. */
        spw_fence_acq();
        if (spw_load_rlx(seq) == before)
            return true;
        spw_relax();
    }
    return false;
}

#ifdef __cplusplus
}
#endif

#endif
