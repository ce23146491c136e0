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
    struct spw_limiter_conf copy;
    spw_copy_rlx(&copy.version, &c->version, sizeof copy / 8);
    /* SYNC limiter-conf: acquire fence: the copy is done before the version is looked at again. */
    spw_fence_acq();
    if (!version || version % 2 || spw_load_rlx(&c->version) != version || !copy.units_den ||
        !copy.units_per_token)
        return false;
    spw_gcra_of(&copy, out);
    return true;
}

/* A level further ahead of E than any reservation could put it was not written by this code. */
static inline bool spw_bucket_level_ok(const struct spw_gcra *g, uint64_t level, uint64_t now_ns)
{
    uint64_t earned = spw_gcra_earned(g, now_ns);
    if (level <= earned)
        return true;
    return level - earned <= spw_gcra_earned_in(g, SPW_AHEAD_MAX_NS) + g->burst_units;
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

/* What giving a take back needs to know of it. */
struct spw_charge {
    uint64_t version;  /* the configuration it was counted in */
    uint64_t level;    /* what the word held before */
    uint64_t returned; /* the bucket's returned_units before */
    uint64_t taken_ns;
};

struct spw_bucket_answer {
    enum spw_bucket_result result;
    uint64_t wait_ns; /* TAKEN: until the reservation begins, 0 = now; WAIT: exact if nobody else takes */
    enum spw_cause why_never; /* NEVER */
    uint64_t version;         /* the configuration obeyed */
    uint64_t available_units; /* before the take */
    uint64_t units_per_token;
    struct spw_charge charge; /* TAKEN */
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

/* Why no wait would help. */
static inline enum spw_cause spw__bucket_why_never(const struct spw_gcra *g, uint64_t tokens,
                                                   bool keep_reserve)
{
    if (g->units_num == 0)
        return SPW_CAUSE_RATE_ZERO;
    return tokens > g->burst_units / g->units_per_token || !keep_reserve ? SPW_CAUSE_COST_ABOVE_BURST
                                                                         : SPW_CAUSE_BATCH_RESERVE;
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
        /* SYNC returned: acquire: read before the word that the take goes into. */
        uint64_t returned = spw_load_acq(&words->returned_units);
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
            answer.why_never = spw__bucket_why_never(&g, tokens, keep_reserve);
            return answer;
        }
        answer.result = SPW_BUCKET_TAKEN;
        answer.charge.version = g.version;
        answer.charge.level = spw_bucket_level(word);
        answer.charge.returned = returned;
        answer.charge.taken_ns = now_ns;
        /* SYNC bucket: acq_rel: one self-contained word; either this take happened or it did not. */
        if (!take || spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), next)))
            return answer;
        answer.result = SPW_BUCKET_WAIT;
        spw_relax();
    }
    answer.wait_ns = 0;
    return answer;
}

/* The level of a bucket that is full at now_ns. */
static inline uint64_t spw__bucket_full(const struct spw_gcra *g, uint64_t now_ns)
{
    uint64_t earned = spw_gcra_earned(g, now_ns);
    return earned + spw__gcra_fraction(g, earned, now_ns) - g->burst_units;
}

/* Give back tokens that were taken and not used. What stands afterwards is what would stand had they never been taken;
 * the takes of others stay, and so do the times at which their calls begin. What a bucket that was full in between has forgotten is not given back, nor what was taken
 * under another configuration: never does this admit more than the limit.
 *
 * A take on top, when nobody gave back since, is undone to the word from before; one below the reservations of others
 * gives back what it is larger than they. It lies in the level from its
 * base on, less what was given back since from below it. How much of that came from below is not known, so all of it is
 * assumed, down to where the bucket was full at most. returning_units rises before a level falls and returned_units
 * after it, so that the second, read at the take, and the first, read now, enclose every return in between, whoever died
 * on the way. A return from the top moves nobody's take: it leaves both as they were. */
static inline void spw_bucket_give_back(const struct spw_limiter *limiter, struct spw_limiter_words *words,
                                        uint64_t now_ns, uint64_t tokens, const struct spw_charge *charge)
{
    for (int i = 0; i < SPW_CAS_TRIES; i++) {
        uint64_t word;
        struct spw_gcra g;
        /* SYNC returned: acquire: before the word, too: whether anybody else returned meanwhile. */
        uint64_t before = spw_load_acq(&words->returning_units);
        if (!spw__bucket_read(limiter, words, now_ns, &word, &g))
            continue;
        if (word == SPW_MOVED || g.version != charge->version || tokens > g.burst_units / g.units_per_token)
            return;
        /* SYNC returned: acquire: after the word. */
        uint64_t shift = spw_load_acq(&words->returning_units) - charge->returned;
        uint64_t cost = tokens * g.units_per_token, held = spw_bucket_level(word);
        uint64_t at_ns = charge->taken_ns,
                 window_ns = g.units_den ? 0 : spw_gcra_when(&g, charge->level + cost);
        if (window_ns > at_ns)
            at_ns = window_ns; /* reserved in a window to come */
        uint64_t floor = spw__bucket_full(&g, at_ns), full = spw__bucket_full(&g, now_ns);
        uint64_t base = charge->level > floor ? charge->level : floor;
        uint64_t from = base > shift ? base - shift : 0;
        bool top = held == from + cost;
        if (!top && from < floor)
            from = floor;
        uint64_t to = from + cost, earned = spw_gcra_earned(&g, now_ns);
        if (from < full)
            from = full; /* what lies below has been forgotten */
        /* Damage; or takes from a later window, which would not lie lower without this one. */
        if (held < to || (g.units_den == 0 && held > floor + g.burst_units))
            return;
        if (top && shift == 0 && charge->level < from)
            from = charge->level;
        /* Those who reserved later begin when they were told: so much must not come to others before them. */
        if (held > earned && held > to)
            from += held - (to > earned ? to : earned);
        if (from >= to)
            return;
        /* SYNC returned: acq_rel: before the word and after it. SYNC bucket: acq_rel: as for a take. */
        uint64_t others = spw_add(&words->returning_units, to - from);
        bool done = spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), held - (to - from)));
        /* SYNC returned: acquire. */
        if (!done ||
            (top && others == before && spw_load_acq(&words->returning_units) == before + (to - from)))
            (void)spw_add(&words->returning_units, from - to);
        else
            (void)spw_add(&words->returned_units, to - from);
        if (done)
            return;
        spw_relax();
    }
}

/* SIDECAR ONLY */
/* Sidecar only: put a new configuration in force, as spw_gcra_configure made it. The tokens in hand are kept, cut to the
 * new burst; fill says what a word without a usable past becomes. When this returns, every later decision obeys
 * `version`. */
static inline bool spw__bucket_install(struct spw_limiter *limiter, struct spw_limiter_words *words,
                                       struct spw_limiter_conf *fresh, uint64_t now_ns, bool fill)
{
    uint64_t version = fresh->version;
    /* SYNC limiter-current: relaxed: this is its only writer. */
    uint32_t slot = (uint32_t)((spw_load_rlx(&limiter->current) + 1) % SPW_CONFIG_SLOTS);
    struct spw_limiter_conf *target = &limiter->conf[slot];
    /* SYNC limiter-conf: release: the odd version goes out before the fields change, the even one after. */
    spw_store_rel(&target->version, version * 2 + 1);
    spw_fence_rel();
    spw_copy_rlx(&target->units_num, &fresh->units_num, (sizeof *fresh - sizeof fresh->version) / 8);
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

/* A bucket of tokens_count per period_ns. false: the values are outside what can be exact. */
static inline bool spw_bucket_configure(struct spw_limiter *limiter, struct spw_limiter_words *words,
                                        uint64_t tokens_count, uint64_t period_ns, uint64_t burst_count,
                                        uint64_t reserve_count, uint64_t version, uint64_t now_ns, bool fill)
{
    struct spw_limiter_conf fresh;
    memset(&fresh, 0, sizeof fresh);
    return spw_gcra_configure(&fresh, tokens_count, period_ns, burst_count, reserve_count, now_ns, version) &&
           spw__bucket_install(limiter, words, &fresh, now_ns, fill);
}

/* A fixed window of count tokens. base_ns: the next boundary. */
static inline bool spw_window_configure(struct spw_limiter *limiter, struct spw_limiter_words *words,
                                        uint64_t count, uint64_t window_ns, uint64_t base_ns,
                                        uint64_t reserve_count, uint64_t version, uint64_t now_ns, bool fill)
{
    struct spw_limiter_conf fresh;
    memset(&fresh, 0, sizeof fresh);
    return spw_gcra_configure_window(&fresh, count, window_ns, reserve_count, base_ns, version) &&
           spw__bucket_install(limiter, words, &fresh, now_ns, fill);
}
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
