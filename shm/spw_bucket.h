/* spw_bucket.h: the token bucket in one shared word: a CAS loop around spw_gcra.h.
 *
 * Owns: the level word of a limiter and the choice among its 16 configurations. Called by: admission (take, peek,
 * refund), the sidecar's publisher (configure). Thread/process: any number; lock-free. A process may die between any
 * two instructions: the word is then either the old or the new one.
 *
 * The word is {configuration slot : 4 | level : 60}: it names the configuration its level is counted in, so the rate
 * and the level change together in one CAS and no decision ever pairs one with the other's.
 */
#ifndef SPW_BUCKET_H
#define SPW_BUCKET_H

#include "shm/spw_gcra.h"
#include "shm/spw_map.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_LEVEL_BITS 60
#define SPW_CAS_TRIES                                                                                        \
    100000 /* a CAS that fails means that another one succeeded: this bounds a hostile word */
#define SPW_AHEAD_MAX_NS (2 * SPW_RESERVE_MAX_NS) /* further ahead than any reservation: a damaged word */

static inline uint64_t spw_bucket_word(uint32_t slot, uint64_t level)
{
    return (uint64_t)slot << SPW_LEVEL_BITS | level;
}
static inline uint32_t spw_bucket_slot(uint64_t word)
{
    return (uint32_t)(word >> SPW_LEVEL_BITS);
}
static inline uint64_t spw_bucket_level(uint64_t word)
{
    return word & ((UINT64_C(1) << SPW_LEVEL_BITS) - 1);
}

/* Copy one configuration. false: never written, or being rewritten at this moment (then the word has moved on). */
static inline bool spw_limiter_conf_read(const struct spw_limiter *limiter, uint32_t slot,
                                         struct spw_gcra *out)
{
    const struct spw_limiter_conf *c = &limiter->conf[slot];
    /* SYNC limiter-conf: acquire: an even version was stored after the fields it stands for. */
    uint64_t version = spw_load_acq(&c->version);
    out->version = version / 2;
    /* SYNC limiter-conf: relaxed: the fields are believed only when the version is still the same afterwards. */
    out->units_num = spw_load_rlx(&c->units_num);
    out->units_den = spw_load_rlx(&c->units_den);
    out->units_fixed = spw_load_rlx(&c->units_fixed);
    out->units_per_token = spw_load_rlx(&c->units_per_token);
    out->burst_units = spw_load_rlx(&c->burst_units);
    out->reserve_units = spw_load_rlx(&c->reserve_units);
    out->e0_units = spw_load_rlx(&c->e0_units);
    out->base_ns = spw_load_rlx(&c->base_ns);
    /* SYNC limiter-conf: acquire fence: the copy is done before the version is looked at again. */
    spw_fence_acq();
    return version && version % 2 == 0 && spw_load_rlx(&c->version) == version && out->units_den &&
           out->units_per_token;
}

/* A level further ahead of E than any reservation could put it was not written by this code. */
static inline bool spw_bucket_level_ok(const struct spw_gcra *g, uint64_t level, uint64_t now_ns)
{
    uint64_t earned = spw_gcra_earned(g, now_ns);
    if (level <= earned)
        return true;
    spw_u128 ahead = (spw_u128)SPW_AHEAD_MAX_NS * g->units_num / g->units_den + g->burst_units;
    return level - earned <= ahead;
}

/* Replace an impossible word by an EMPTY bucket (never a full one) of the current configuration, and count it. */
static inline void spw_bucket_heal(const struct spw_limiter *limiter, struct spw_limiter_words *words,
                                   uint64_t bad, uint64_t now_ns)
{
    struct spw_gcra g;
    /* SYNC limiter-current: acquire: the configuration was written before it was made current. */
    uint32_t slot = (uint32_t)(spw_load_acq(&limiter->current) % SPW_CONFIG_SLOTS);
    if (!spw_limiter_conf_read(limiter, slot, &g))
        return;
    /* SYNC bucket: the word is self-contained; acq_rel keeps it after the configuration it names. */
    if (spw_cas(&words->level, &bad, spw_bucket_word(slot, spw_gcra_earned(&g, now_ns))))
        spw_add_rlx(&words->healed_count, 1);
}

enum spw_bucket_result { SPW_BUCKET_TAKEN, SPW_BUCKET_WAIT, SPW_BUCKET_NEVER, SPW_BUCKET_MOVED };

struct spw_bucket_answer {
    enum spw_bucket_result result;
    uint64_t wait_ns; /* TAKEN: until the reservation begins, 0 = now; WAIT: exact if nobody else takes */
    uint64_t version; /* the configuration obeyed */
    uint64_t available_units; /* before the take */
    uint64_t units_per_token;
};

/* Look at the bucket through its word. false: look again (the word changed or was healed). */
static inline bool spw__bucket_read(const struct spw_limiter *limiter, struct spw_limiter_words *words,
                                    uint64_t now_ns, uint64_t *word, struct spw_gcra *g)
{
    /* SYNC bucket: acquire: the configuration named by the word was published before the word. */
    *word = spw_load_acq(&words->level);
    if (*word == SPW_MOVED)
        return true;
    if (!spw_limiter_conf_read(limiter, spw_bucket_slot(*word), g)) {
        if (spw_load_acq(&words->level) == *word)
            spw_bucket_heal(limiter, words, *word, now_ns);
        return false;
    }
    if (!spw_bucket_level_ok(g, spw_bucket_level(*word), now_ns)) {
        spw_bucket_heal(limiter, words, *word, now_ns);
        return false;
    }
    return true;
}

/* Take `tokens`, or say how long to wait. keep_reserve: leave the batch reserve. max_wait_ns: as far ahead as tokens may
 * be reserved, an hour at most. take false: only look. Cost: two loads of shared lines to deny, one CAS more to allow. */
static inline struct spw_bucket_answer spw_bucket_take(const struct spw_limiter *limiter,
                                                       struct spw_limiter_words *words, uint64_t now_ns,
                                                       uint64_t tokens, bool keep_reserve,
                                                       uint64_t max_wait_ns, bool take)
{
    struct spw_bucket_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.result = SPW_BUCKET_WAIT;
    if (max_wait_ns > SPW_RESERVE_MAX_NS)
        max_wait_ns = SPW_RESERVE_MAX_NS;
    for (int i = 0; i < SPW_CAS_TRIES; i++) {
        uint64_t word, next = 0;
        struct spw_gcra g;
        if (!spw__bucket_read(limiter, words, now_ns, &word, &g)) {
            spw_relax();
            continue;
        }
        if (word == SPW_MOVED) {
            answer.result = SPW_BUCKET_MOVED;
            return answer;
        }
        enum spw_gcra_result result =
            spw_gcra_take(&g, spw_bucket_level(word), now_ns, tokens, keep_reserve ? g.reserve_units : 0,
                          max_wait_ns, &next, &answer.wait_ns);
        answer.version = g.version;
        answer.units_per_token = g.units_per_token;
        answer.available_units = spw_gcra_available(&g, spw_bucket_level(word), now_ns);
        if (result != SPW_GCRA_TAKE) {
            answer.result = result == SPW_GCRA_NEVER ? SPW_BUCKET_NEVER : SPW_BUCKET_WAIT;
            return answer;
        }
        answer.result = SPW_BUCKET_TAKEN;
        /* SYNC bucket: acq_rel: one self-contained word; either this take happened or it did not. */
        if (!take || spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), next)))
            return answer;
        answer.result = SPW_BUCKET_WAIT;
        spw_relax();
    }
    answer.wait_ns = 0;
    return answer;
}

/* Give back tokens that were taken and not used. Never makes a bucket more than full. */
static inline void spw_bucket_refund(const struct spw_limiter *limiter, struct spw_limiter_words *words,
                                     uint64_t now_ns, uint64_t tokens)
{
    for (int i = 0; i < SPW_CAS_TRIES; i++) {
        uint64_t word;
        struct spw_gcra g;
        if (!spw__bucket_read(limiter, words, now_ns, &word, &g))
            continue;
        if (word == SPW_MOVED || tokens > g.burst_units / g.units_per_token)
            return;
        uint64_t level = spw_bucket_level(word), back = tokens * g.units_per_token;
        /* SYNC bucket: acq_rel: as for a take. */
        if (spw_cas(&words->level, &word,
                    spw_bucket_word(spw_bucket_slot(word), level > back ? level - back : 0)))
            return;
        spw_relax();
    }
}

/* SIDECAR ONLY */
/* Sidecar only: put a new configuration in force. The tokens in hand are kept, cut to the new burst; fill says what a
 * word without a usable past becomes. When this returns, every later decision obeys `version`. false: the values are
 * outside what can be exact. */
static inline bool spw_bucket_configure(struct spw_limiter *limiter, struct spw_limiter_words *words,
                                        uint64_t tokens_count, uint64_t period_ns, uint64_t burst_count,
                                        uint64_t reserve_count, uint64_t version, uint64_t now_ns, bool fill)
{
    struct spw_limiter_conf fresh;
    memset(&fresh, 0, sizeof fresh);
    if (!spw_gcra_configure(&fresh, tokens_count, period_ns, burst_count, reserve_count, now_ns, version))
        return false;
    /* SYNC limiter-current: relaxed: this is its only writer. */
    uint32_t slot = (uint32_t)((spw_load_rlx(&limiter->current) + 1) % SPW_CONFIG_SLOTS);
    struct spw_limiter_conf *target = &limiter->conf[slot];
    fresh.version = 0;
    /* SYNC limiter-conf: release: the odd version goes out before the fields change, the even one after. */
    spw_store_rel(&target->version, version * 2 + 1);
    spw_fence_rel();
    spw_copy_rlx(&target->units_num, &fresh.units_num, (sizeof fresh - sizeof fresh.version) / 8);
    spw_store_rel(&target->version, version * 2);
    /* SYNC limiter-current: release: a healer that follows it finds the configuration whole. */
    spw_store_rel(&limiter->current, slot);
    struct spw_gcra to;
    if (!spw_limiter_conf_read(limiter, slot, &to))
        return false;
    /* SYNC bucket: acquire. */
    uint64_t word = spw_load_acq(&words->level);
    for (;;) {
        struct spw_gcra from;
        uint64_t level;
        if (fill)
            level = to.e0_units - to.burst_units;
        else if (word != SPW_MOVED && spw_bucket_slot(word) != slot &&
                 spw_limiter_conf_read(limiter, spw_bucket_slot(word), &from) &&
                 spw_bucket_level_ok(&from, spw_bucket_level(word), now_ns))
            level = spw_gcra_carry(&from, spw_bucket_level(word), &to, now_ns);
        else
            level = spw_gcra_earned(&to, now_ns);
        /* SYNC bucket: acq_rel: rate and level change together. */
        if (spw_cas(&words->level, &word, spw_bucket_word(slot, level)))
            return true;
    }
}
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
