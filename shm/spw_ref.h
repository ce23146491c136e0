/* spw_ref.h: an account as one caller knows it: by name, by place, and with the configuration its bucket last obeyed.
 *
 * Owns: struct spw_ref and the decision's quiet case. Called by: the client header, the sidecar's decision tree.
 * Thread: one at a time for each ref; process: private memory, so nothing of it is shared.
 *
 * The quiet case is the usual one: no permits, one token bucket, nothing observed, nothing to be claimed or healed, and
 * nothing changed since it was remembered, which the count `changes` of the header says. All about what was remembered
 * was checked then, so that a decision is some loads that find nothing new, a multiplication and one compare-and-swap,
 * or none when it refuses. Whatever is not quiet takes the whole way through spw_admit, which answers the same
 * (tests/prop/prop_ref.c).
 */
#ifndef SPW_REF_H
#define SPW_REF_H

#include "shm/spw_admission.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An account's only bucket and its configuration, checked and brought to a form that 64 bits are enough for. In the order
 * of use, so that a decision finds it on few lines. */
struct spw__ref_bucket {
    const struct spw_map *map; /* what all this was read by; NULL = nothing is known: the whole way */
    uint64_t made_ns;          /* of that map */
    uint64_t changes;          /* of the segment, by then */
    uint64_t base_ns, span_ns; /* all this is good for so long from base_ns */
    uint64_t tokens_max;       /* for this caller's class */
    uint32_t free_endpoints;   /* bit i modulo 4: the bucket is killed, or not for calls of kind i */
    struct spw_limiter_words *words;
    uint64_t full0_word; /* the word of a bucket that is full at base_ns */
    uint64_t ns_fixed;   /* ns per unit as 0.64 fixed point, rounded down */
    int64_t room_ns, ns_per_token;
    uint64_t version, units_per_token;
    uint64_t units_fixed; /* units per ns as 2.62 fixed point, rounded down */
    uint64_t units_num, units_den;
    uint64_t slot; /* the configuration's, where it stands in the word */
    uint64_t e0_units, burst_units, nearly_full_units, keep_units;
};

/* Fill with spw_ref_init; the rest is looked up and kept by spw_acquire. Use one per thread. */
struct spw_ref {
    char account[SPW_NAME_BYTES];
    char integration[SPW_NAME_BYTES];
    enum spw_endpoint endpoint; /* what kind of calls it is for; yours to set, CALCULATE at first */
    uint64_t generation;        /* of the segment the rest is good for; 0 = look up */
    uint32_t account_index, account_generation;
    bool batch;
    const uint8_t *pub, *rw; /* the mapping that the places below are in */
    const struct spw_account *record;
    const uint32_t *skip; /* of the integration, or of the account: by endpoint */
    struct spw_account_words *words;
    struct spw__ref_bucket bucket;
    /* The process's statistics of the account, NULL = none; and this ref itself, when it is the one of the process that
     * counts by plain stores. */
    uint64_t *counts;
    const struct spw_ref *counter;
    struct spw_account_conf conf;
};

/* A name that is too long for any account is none; its beginning might be another's. */
static inline void spw__ref_name(char out[SPW_NAME_BYTES], const char *name)
{
    size_t n = 0;
    for (; name && n < SPW_NAME_BYTES - 1 && name[n]; n++)
        out[n] = name[n];
    if (name && name[n])
        out[0] = 0;
}

static inline void spw_ref_init(struct spw_ref *ref, const char *account, const char *integration)
{
    memset(ref, 0, sizeof *ref);
    spw__ref_name(ref->account, account);
    spw__ref_name(ref->integration, integration);
}

static inline bool spw__ref_find(const struct spw_map *map, struct spw_ref *ref)
{
    ref->generation = 0;
    ref->batch = false;
    ref->bucket.map = NULL;
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        const struct spw_account *a = spw_account_at(map, i);
        /* SYNC account: acquire: a LIVE record is filled. */
        if (a && spw_load32_acq(&a->state) == SPW_RECORD_LIVE &&
            strncmp(a->name, ref->account, sizeof a->name) == 0) {
            ref->account_index = i;
            ref->account_generation = a->record_generation;
            ref->generation = map->generation;
            ref->pub = map->pub;
            ref->rw = map->rw;
            ref->record = a;
            ref->skip = &a->skip;
            ref->words = spw_account_words_at(map, i);
        }
    }
    bool more = ref->generation && ref->integration[0];
    for (uint32_t i = 0; more && i < map->pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
        const struct spw_integration *n = spw_integration_at(map, i);
        /* SYNC integration: acquire: a LIVE record is filled. */
        if (spw_load32_acq(&n->state) == SPW_RECORD_LIVE && n->account_index == ref->account_index &&
            strncmp(n->name, ref->integration, sizeof n->name) == 0) {
            ref->batch = n->batch != 0;
            ref->skip = &n->skip;
            more = false;
        }
    }
    return ref->generation != 0;
}

/* Bit i: the account's i-th limiter does not apply. */
SPW_HOT uint32_t spw__ref_skip(const struct spw_ref *ref)
{
    /* SYNC skip: relaxed: a lone word. */
    return spw_load32_rlx(ref->skip) >> ((uint32_t)ref->endpoint & 3) * 8 &
           0xFF; /* the fourth byte is zero */
}

/* For spw_admit: the class, and the limiters that do not apply. */
static inline uint32_t spw_ref_flags(const struct spw_ref *ref)
{
    return SPW_ACQUIRE_SKIP(spw__ref_skip(ref)) | (ref->batch ? (uint32_t)SPW_ACQUIRE_BATCH : 0);
}

/* Is what was found good for this mapping? A client that was detached may have the same segment elsewhere. */
SPW_HOT bool spw__ref_is_of(const struct spw_map *map, const struct spw_ref *ref)
{
    return ref->generation == map->generation && ref->pub == map->pub && ref->rw == map->rw;
}

/* Counting costs a refusal as much as all the rest when each count is a locked addition. So the first ref of an account
 * in a process has counters of its own in the process's line, SPW_STAT_OWN, which nobody else adds to; the others share
 * the ordinary ones. It is known by its address, so that a copy of it counts like any other. */
static inline void spw__ref_claim_counter(const struct spw_map *map, struct spw_ref *ref)
{
    const void **at = (const void **)(uintptr_t)&map->counter[ref->account_index % SPW_MAP_COUNTERS],
               *nobody = NULL;
    /* SYNC counter: relaxed: a lone word, private to the process. */
    bool mine = __atomic_compare_exchange_n(at, &nobody, ref, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
                nobody == ref;
    struct spw_stats *stats = spw__stats(map, ref->account_index);
    ref->counts = stats ? stats->count : NULL;
    ref->counter = mine && stats ? ref : NULL;
}

/* spw_stat_count, its place known. */
SPW_HOT void spw__ref_count(const struct spw_ref *ref, enum spw_stat stat)
{
    /* SYNC own-counts: relaxed: statistics, and this their one writer. */
    if (ref->counter == ref)
        spw_store_rlx(&ref->counts[SPW_STAT_OWN + stat], spw_load_rlx(&ref->counts[SPW_STAT_OWN + stat]) + 1);
    else if (ref->counts)
        spw_add_rlx(&ref->counts[stat], 1);
}

/* How long it takes to earn so many units: rounded down, and at most two more short. */
#define SPW__REF_NS_SHORT 3
SPW_HOT uint64_t spw__ref_ns(const struct spw__ref_bucket *b, uint64_t units)
{
    return (uint64_t)((spw_u128)units * b->ns_fixed >> 64);
}

/* The configuration that the word of the bucket names now; false: a window, rate zero, or nothing that
 * spw_gcra_configure makes. */
static inline bool spw__ref_learn_bucket(const struct spw_limiter *limiter, bool batch,
                                         struct spw__ref_bucket *b)
{
    struct spw_gcra g;
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint32_t slot = spw_bucket_slot(spw_load_acq(&b->words->level));
    if (!spw_limiter_conf_read(limiter, slot, &g) || g.units_den == 0 || g.units_den > SPW_LEVEL_MAX ||
        g.units_num < g.units_den || g.units_num / g.units_den > SPW_UNITS_PER_NS ||
        g.e0_units < g.burst_units || g.e0_units > SPW_LEVEL_MAX / 2 || g.reserve_units > g.burst_units)
        return false;
    b->base_ns = g.base_ns;
    b->span_ns = (SPW_LEVEL_MAX - g.e0_units) / (SPW_UNITS_PER_NS + 1);
    b->slot = spw_bucket_word(slot, 0);
    b->full0_word = spw_bucket_word(slot, g.e0_units - g.burst_units);
    b->units_fixed = g.units_den == 1 ? g.units_num << 62 : g.units_fixed;
    b->ns_fixed = (uint64_t)((((spw_u128)g.units_den << 64) - 1) / g.units_num);
    b->units_num = g.units_num;
    b->units_den = g.units_den;
    b->e0_units = g.e0_units;
    b->burst_units = g.burst_units;
    b->nearly_full_units = g.burst_units > 2 ? g.burst_units - 2 : 0;
    b->units_per_token = g.units_per_token;
    b->keep_units = batch ? g.reserve_units : 0;
    b->tokens_max = (g.burst_units - b->keep_units) / g.units_per_token;
    b->version = g.version;
    /* From one that is full to one that holds just what class batch leaves; a token takes ns_per_token of it at most. */
    b->ns_per_token = (int64_t)spw__ref_ns(b, g.units_per_token) + SPW__REF_NS_SHORT;
    b->room_ns = (int64_t)spw__ref_ns(b, g.burst_units - b->keep_units) - SPW__REF_NS_SHORT;
    return true;
}

/* Remember the account's configuration, if the quiet case is possible by it. */
static inline void spw__ref_learn(const struct spw_map *map, struct spw_ref *ref)
{
    struct spw__ref_bucket *b = &ref->bucket;
    const struct spw_account *r = ref->record;
    struct spw_header *pub = spw_map_pub(map);
    b->map = NULL;
    /* SYNC changes: acquire: before all that is remembered: it is as of this count, or newer. A sidecar of layout 1.0 does
     * not count. */
    b->changes = spw_load_acq(&pub->changes);
    uint32_t index = spw_load32_rlx(&r->limiters[0]);
    const struct spw_limiter *limiter = spw_limiter_at(map, index);
    b->words = spw_limiter_words_at(map, index);
    /* SYNC account: acquire: a LIVE record is filled. SYNC forced: relaxed: a lone word. */
    if (map->layout_minor == 0 || !limiter || !b->words || !ref->words ||
        spw_load32_acq(&r->state) != SPW_RECORD_LIVE ||
        spw_load32_rlx(&r->record_generation) != ref->account_generation ||
        spw_load32_rlx(&r->limiters_count) != 1 || spw_load32_rlx(&r->permits_count) != 0 ||
        spw_load_rlx(&r->forced) != SPW_FORCED_NOT || !spw_account_conf_read(r, &ref->conf) ||
        !spw__ref_learn_bucket(limiter, ref->batch, b))
        return;
    /* SYNC switches: relaxed: lone words. */
    uint64_t switches =
        spw_load_rlx(&r->switches) | spw_load_rlx(&limiter->switches) | spw_load_rlx(&pub->switches);
    /* SYNC skip: relaxed: a lone word. */
    uint32_t skip = switches & SPW_SWITCH_KILL ? UINT32_C(0x01010101) : spw_load32_rlx(ref->skip);
    b->free_endpoints = 0;
    for (uint32_t i = 0; i < 32; i++)
        b->free_endpoints |= (skip >> i % 4 * 8 & 1) << i;
    spw__ref_claim_counter(map, ref);
    b->made_ns = map->made_ns;
    b->map = switches == 0 || switches & SPW_SWITCH_KILL ? map : NULL;
}

/* What is known of a decision before the answer is written: each field of that once, since what is written twice, or
 * read back, holds up the caller. */
struct spw__ref_verdict {
    enum spw_verdict verdict;
    enum spw_cause cause;
    enum spw_stat stat; /* among the first SPW_STATS_OWN_COUNT */
    uint32_t breaker_state, epoch;
    uint64_t wait_ns;
    uint64_t in_hand_units, version, units_per_token;
};

SPW_HOT uint32_t spw__ref_epoch(uint64_t breaker)
{
    return (uint32_t)(breaker >> 39 & SPW_EPOCH_MASK);
}

/* What spw__admit_state answers for words that are plainly refusing, or gone by. false: a probe or a refresh is due, or
 * a word is damaged. */
static inline bool spw__ref_shut(const struct spw_map *map, const struct spw_ref *ref, uint64_t breaker,
                                 uint64_t gate, uint64_t now_ns, struct spw__ref_verdict *d)
{
    uint32_t state = (uint32_t)(breaker >> 62), source = spw_gate_source(gate);
    if (gate == SPW_MOVED || state > SPW_BREAKER_HALF_OPEN) /* so is a breaker that has moved */
        return false;
    uint64_t ahead_ms = (uint64_t)ref->conf.cooldown_max_ms + ref->conf.probe_ms + SPW__BREAKER_SLACK_MS;
    uint64_t gate_ns = spw__map_wait_ns(map, spw_gate_until_ms(gate), SPW__GATE_AHEAD_MS, now_ns);
    uint64_t open_ns = spw__map_wait_ns(map, breaker & SPW_TIME_MASK, ahead_ms, now_ns);
    d->verdict = SPW_DENY;
    d->breaker_state = state;
    if (state != SPW_BREAKER_CLOSED && open_ns) {
        d->cause = SPW_CAUSE_BREAKER_OPEN;
        d->stat = SPW_STAT_DENY_BREAKER;
        d->wait_ns = open_ns > gate_ns ? open_ns : gate_ns;
    } else if (state == SPW_BREAKER_CLOSED && gate_ns) {
        bool buffer = source == SPW_GATE_BUFFER_RESET || source == SPW_GATE_UNKNOWN_BUFFER;
        d->cause = buffer ? SPW_CAUSE_REMAINING_BELOW_BUFFER : SPW_CAUSE_GATE_SHUT;
        d->stat = SPW_STAT_DENY_GATE;
        d->wait_ns = gate_ns;
    } else {
        d->verdict = SPW_ALLOW;
        return state == SPW_BREAKER_CLOSED && !spw__gate_asks(source);
    }
    return true;
}

/* E(now) less e0, rounded down and at most one unit short, as the first half of spw_gcra_earned; dt_ns is below 2^58. */
SPW_HOT uint64_t spw__ref_units(const struct spw__ref_bucket *b, uint64_t dt_ns)
{
    return (uint64_t)((spw_u128)(dt_ns * 4) * b->units_fixed >> 64);
}

/* The second half: 1 when a unit was missing. */
SPW_HOT uint64_t spw__ref_missing(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units)
{
    return b->units_den > 1 && dt_ns * b->units_num - units * b->units_den >= b->units_den;
}

/* How long after dt_ns the bucket has earned so many units over e0: (units / rate) rounded up, without a division. */
SPW_HOT uint64_t spw__ref_wait_ns(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units)
{
    uint64_t ns = spw__ref_ns(b, units);
    uint64_t left = units * b->units_den - ns * b->units_num;
    ns += (uint64_t)(left > 0) + (uint64_t)(left > b->units_num);
    return ns > dt_ns ? ns - dt_ns : 0;
}

/* Why a bucket that holds so much refuses. */
SPW_HOT enum spw_cause spw__ref_cause(const struct spw_ref *ref, uint64_t in_hand, uint64_t need)
{
    return ref->batch && in_hand >= need ? SPW_CAUSE_BATCH_RESERVE : SPW_CAUSE_BUCKET_EMPTY;
}

/* The level of a bucket that holds its whole burst: E is rounded down, so this is rounded up. */
SPW_HOT uint64_t spw__ref_full_level(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units)
{
    uint64_t rest = dt_ns * b->units_num - units * b->units_den;
    return b->e0_units + units + (uint64_t)(rest > 0) + (uint64_t)(rest > b->units_den) - b->burst_units;
}

/* Is the segment still as remembered? Looked at after the bucket's word has been read: then that is, too. */
SPW_HOT bool spw__ref_holds(const struct spw_ref *ref)
{
    const struct spw_header *pub = (const struct spw_header *)(const void *)ref->pub;
    return spw_load_acq(&pub->changes) == ref->bucket.changes; /* SYNC changes: acquire */
}

/* The answer and, with it, the ticket. */
SPW_HOT void spw__ref_answer(const struct spw_ref *ref, const struct spw__ref_verdict *d, uint64_t tokens,
                             uint64_t now_ns, bool charged, struct spw_admission *a,
                             struct spw_ticket *ticket)
{
    a->verdict = d->verdict;
    a->cause = d->cause;
    a->breaker_state = d->breaker_state;
    a->observed = false;
    a->may_call = d->verdict == SPW_ALLOW;
    a->wait_ns = d->wait_ns;
    a->start_at_ns = 0;
    a->version = d->version;
    a->units_per_token = d->units_per_token;
    a->available_units = d->in_hand_units;
    ticket->generation = ref->generation;
    ticket->taken_ns = now_ns;
    ticket->tokens = tokens;
    ticket->account_index = ref->account_index;
    ticket->permit_index = 0;
    ticket->permit_word = 0;
    ticket->start_at_ns = 0;
    ticket->epoch = d->epoch;
    ticket->has_permit = false;
    ticket->refresh = false;
    ticket->probe = false;
    ticket->charged = charged;
    ticket->flags = 0;
}

SPW_HOT void spw__ref_charge(const struct spw__ref_bucket *b, uint64_t word, uint64_t returned,
                             uint64_t now_ns, struct spw_ticket *ticket)
{
    ticket->charge[0].version = b->version;
    ticket->charge[0].level = word ^ b->slot;
    ticket->charge[0].returned = returned;
    ticket->charge[0].taken_ns = now_ns;
}

/* The bucket's part of spw__ref_quiet: spw_bucket_take. d holds the verdict so far; take: what it says is done. false:
 * the bucket is not as remembered, or holds a surprise, and nothing was done. */
static inline bool spw__ref_take(const struct spw_ref *ref, uint64_t tokens, uint64_t now_ns, bool take,
                                 struct spw__ref_verdict *d, struct spw_ticket *ticket)
{
    const struct spw__ref_bucket *b = &ref->bucket;
    uint64_t dt_ns = now_ns - b->base_ns, need = tokens * b->units_per_token;
    uint64_t units = spw__ref_units(b, dt_ns), earned = b->e0_units + units;
    /* SYNC returned: acquire: read before the word that the take goes into. */
    uint64_t returned = spw_load_acq(&b->words->returned_units);
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint64_t word = spw_load_acq(&b->words->level), level = word ^ b->slot, next = level + need;
    if (level > earned || !spw__ref_holds(ref))
        return false; /* another configuration, a reservation ahead, or damage */
    uint64_t in_hand = earned - level, full = 0, wait_ns = 0;
    bool enough = in_hand >= need + b->keep_units;
    take = take && d->verdict == SPW_ALLOW;
    if (in_hand >= b->nearly_full_units && (take || !enough))
        full = spw__ref_full_level(b, dt_ns, units);
    if (level < full)
        next = full + need;
    else if (!enough)
        wait_ns = spw__ref_wait_ns(b, dt_ns, next + b->keep_units - b->e0_units);
    d->in_hand_units =
        in_hand < b->burst_units ? in_hand + spw__ref_missing(b, dt_ns, units) : b->burst_units;
    d->version = b->version;
    d->units_per_token = b->units_per_token;
    if (wait_ns && d->verdict == SPW_ALLOW) {
        d->verdict = SPW_DENY;
        d->cause = spw__ref_cause(ref, d->in_hand_units, need);
        d->stat = SPW_STAT_DENY_BUCKET;
    }
    d->wait_ns = wait_ns > d->wait_ns ? wait_ns : d->wait_ns;
    if (!take || wait_ns)
        return true;
    spw__ref_charge(b, word, returned, now_ns, ticket);
    return spw_cas(&b->words->level, &word, b->slot | next); /* SYNC bucket: acq_rel: self-contained */
}

/* Is what was remembered good for a decision of so many tokens by this map? */
SPW_HOT bool spw__ref_serves(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens)
{
    const struct spw__ref_bucket *b = &ref->bucket;
    return map && b->map == map && b->made_ns == map->made_ns && tokens <= b->tokens_max;
}

/* The bucket is killed, or does not apply to this kind of call. */
SPW_HOT bool spw__ref_free(const struct spw_ref *ref)
{
    return ref->bucket.free_endpoints >> ((uint32_t)ref->endpoint % 32) & 1;
}

/* The quiet case in general: refusals, and limits that do not apply, too. false: not quiet, and nothing was done. */
static inline bool spw__ref_quiet(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens,
                                  uint64_t now_ns, bool take, struct spw_admission *a,
                                  struct spw_ticket *ticket)
{
    struct spw__ref_verdict d = {SPW_ALLOW, SPW_CAUSE_NONE, SPW_STAT_ALLOW, 0, 0, 0, 0, 0, 0};
    if (!spw__ref_serves(map, ref, tokens) || now_ns - ref->bucket.base_ns > ref->bucket.span_ns)
        return false;
    const struct spw_account_words *words = ref->words;
    uint64_t breaker = spw_load_acq(&words->breaker); /* SYNC breaker: acquire */
    uint64_t gate = spw_load_acq(&words->gate);       /* SYNC gate: acquire */
    bool free = spw__ref_free(ref);
    if (breaker >> 62 | gate) {
        if (!spw__ref_shut(map, ref, breaker, gate, now_ns, &d))
            return false;
        if (d.verdict != SPW_ALLOW) {
            if (free ? !spw__ref_holds(ref) : !spw__ref_take(ref, tokens, now_ns, false, &d, ticket))
                return false;
            if (take)
                spw__ref_count(ref, d.stat);
            d.verdict = SPW_DENY;
            spw__ref_answer(ref, &d, tokens, now_ns, false, a, ticket);
            return true;
        }
    }
    d.epoch = spw__ref_epoch(breaker);
    if (free ? !spw__ref_holds(ref) : !spw__ref_take(ref, tokens, now_ns, take, &d, ticket))
        return false;
    spw__ref_answer(ref, &d, tokens, now_ns, take && !free && d.verdict == SPW_ALLOW, a, ticket);
    if (take)
        spw__ref_count(ref, d.stat);
    return true;
}

/* The quick refusal, of a bucket that does not plainly hold the tokens. false: nor does it plainly lack them. */
SPW_HOT bool spw__ref_deny(const struct spw_ref *ref, uint64_t word, uint64_t breaker, uint64_t tokens,
                           uint64_t now_ns, bool take, struct spw_admission *a, struct spw_ticket *ticket)
{
    const struct spw__ref_bucket *b = &ref->bucket;
    uint64_t dt_ns = now_ns - b->base_ns, units = spw__ref_units(b, dt_ns);
    uint64_t level = word ^ b->slot, need = tokens * b->units_per_token,
             in_hand = b->e0_units + units - level;
    uint64_t wait_ns = spw__ref_wait_ns(b, dt_ns, level + need + b->keep_units - b->e0_units);
    if (in_hand >= need + b->keep_units || wait_ns == 0)
        return false;
    in_hand += spw__ref_missing(b, dt_ns, units);
    const struct spw__ref_verdict d = {SPW_DENY,
                                       spw__ref_cause(ref, in_hand, need),
                                       SPW_STAT_DENY_BUCKET,
                                       0,
                                       spw__ref_epoch(breaker),
                                       wait_ns,
                                       in_hand,
                                       b->version,
                                       b->units_per_token};
    spw__ref_answer(ref, &d, tokens, now_ns, false, a, ticket);
    if (take)
        spw__ref_count(ref, d.stat);
    return true;
}

/* What of the quiet case needs no clock, and so costs no time of its own before it is read: the commonest state. */
SPW_HOT bool spw__ref_look(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens,
                           uint64_t *breaker)
{
    if (SPW_SELDOM(!spw__ref_serves(map, ref, tokens) || spw__ref_free(ref)))
        return false;
    const struct spw_account_words *words = ref->words;
    *breaker = spw_load_acq(&words->breaker);   /* SYNC breaker: acquire */
    uint64_t gate = spw_load_acq(&words->gate); /* SYNC gate: acquire */
    return !SPW_SELDOM(*breaker >> 62 | gate);
}

/* The commonest of it, without a detour: breaker closed, gate open, and a bucket that nobody has reserved of. false: it is
 * not that, and nothing was done.
 *
 * The clock is what a decision waits for longest. So the bucket's word is told in time before it is compared: it will be
 * full in full_ns. If that is no more than what is missing to full takes, the bucket holds the tokens. A word of another
 * configuration, or a damaged one, seems to be full far off, since slots are 2^60 apart. */
SPW_HOT bool spw__ref_quick(const struct spw_ref *ref, uint64_t breaker, uint64_t tokens, uint64_t now_ns,
                            bool take, struct spw_admission *a, struct spw_ticket *ticket)
{
    const struct spw__ref_bucket *b = &ref->bucket;
    struct spw_limiter_words *words = b->words;
    uint64_t dt_ns = now_ns - b->base_ns, need = tokens * b->units_per_token;
    int64_t room_ns = b->room_ns - (int64_t)tokens * b->ns_per_token;
    if (SPW_SELDOM(dt_ns > b->span_ns))
        return false;
    /* SYNC returned: acquire: read before the word that the take goes into. */
    uint64_t returned = spw_load_acq(&words->returned_units);
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint64_t word = spw_load_acq(&words->level);
    for (int i = 1;; i++) {
        uint64_t next = word + need;
        int64_t full_ns = (int64_t)(spw__ref_ns(b, word - b->full0_word) - dt_ns);
        if (SPW_SELDOM(!spw__ref_holds(ref)))
            return false;
        if (SPW_SELDOM(full_ns > room_ns))
            return spw__ref_deny(ref, word, breaker, tokens, now_ns, take, a, ticket);
        if (full_ns < 0) { /* full before now: what it earned since is lost */
            uint64_t full = spw__ref_full_level(b, dt_ns, spw__ref_units(b, dt_ns));
            if (SPW_SELDOM((word ^ b->slot) >= full))
                return false; /* another slot's, or not quite full */
            next = b->slot | (full + need);
        }
        /* SYNC bucket: acq_rel: one self-contained word; either this take happened or it did not. */
        if (!take || spw_cas(&words->level, &word, next))
            break;
        if (i == SPW_CAS_TRIES)
            return false;
        if (i > 4) /* whoever lost has the line now: the next try is the cheapest */
            spw_relax();
    }
    uint64_t level = word ^ b->slot, units = spw__ref_units(b, dt_ns);
    uint64_t in_hand = b->e0_units + units - level + spw__ref_missing(b, dt_ns, units);
    const struct spw__ref_verdict d = {SPW_ALLOW,
                                       SPW_CAUSE_NONE,
                                       SPW_STAT_ALLOW,
                                       0,
                                       spw__ref_epoch(breaker),
                                       0,
                                       in_hand < b->burst_units ? in_hand : b->burst_units,
                                       b->version,
                                       b->units_per_token};
    spw__ref_answer(ref, &d, tokens, now_ns, take, a, ticket);
    if (take) {
        spw__ref_charge(b, word, returned, now_ns, ticket);
        spw__ref_count(ref, d.stat);
    }
    return true;
}

/* spw_admit for a ref of this segment: the whole way; flags: SPW_ACQUIRE_PEEK or 0. What is needed to be quick the next
 * time is remembered. */
static inline struct spw_admission spw__ref_whole(const struct spw_map *map, struct spw_ref *ref,
                                                  uint32_t flags, uint64_t tokens, uint64_t max_wait_ns,
                                                  uint64_t now_ns, struct spw_ticket *ticket)
{
    struct spw_admission a =
        spw_admit(map, ref->account_index, ref->account_generation,
                  flags | spw_ref_flags(ref) | SPW_ACQUIRE_SHARE, tokens, max_wait_ns, now_ns, ticket);
    if (a.verdict != SPW_BAD_HANDLE)
        spw__ref_learn(map, ref);
    return a;
}

/* ... when it is no ordinary take. */
static SPW_ASIDE struct spw_admission spw__ref_aside(const struct spw_map *map, struct spw_ref *ref,
                                                     uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns,
                                                     struct spw_ticket *ticket)
{
    struct spw_admission a;
    if (max_wait_ns == 0 && spw__ref_quiet(map, ref, tokens, now_ns, true, &a, ticket))
        return a;
    return spw__ref_whole(map, ref, 0, tokens, max_wait_ns, now_ns, ticket);
}

/* spw_admit for a ref of this segment: the quiet case, or the whole way. */
static inline struct spw_admission spw_ref_admit(const struct spw_map *map, struct spw_ref *ref,
                                                 uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns,
                                                 struct spw_ticket *ticket)
{
    struct spw_admission a;
    uint64_t breaker;
    if (max_wait_ns == 0 && spw__ref_look(map, ref, tokens, &breaker) &&
        spw__ref_quick(ref, breaker, tokens, now_ns, true, &a, ticket))
        return a;
    return spw__ref_aside(map, ref, tokens, max_wait_ns, now_ns, ticket);
}

#ifdef __cplusplus
}
#endif

#endif
