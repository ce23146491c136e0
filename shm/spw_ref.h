/* spw_ref.h: an account as one caller knows it: by name, by place, and with the configuration its bucket last obeyed.
 *
 * Owns: struct spw_ref and the decision's quiet case. Called by: the client header, the sidecar's decision tree.
 * Thread: one at a time for each ref; process: private memory, so nothing of it is shared.
 *
 * The quiet case is the usual one: no permits, one token bucket, nothing observed, nothing to be claimed or healed, and
 * the configurations are the ones remembered. All about those was checked when they were remembered, so that a decision
 * is some loads that find nothing changed, a few multiplications and one compare-and-swap, or none when it refuses.
 * Whatever is not quiet takes the whole way through spw_admit, which answers the same (tests/prop/prop_ref.c).
 */
#ifndef SPW_REF_H
#define SPW_REF_H

#include "shm/spw_admission.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The account's only bucket and its configuration, checked and brought to a form that 64 bits are enough for. */
struct spw__ref_bucket {
    uint64_t slot_version; /* as the configuration's slot says it; 0 = not known: the whole way each time */
    uint64_t slot;         /* that slot, where it stands in the bucket's word */
    uint64_t state_pair,
        counts_pair; /* the account's state and generation, limiters and permits: see spw__ref_same */
    uint32_t limiter_index;
    const struct spw_limiter *limiter;
    struct spw_limiter_words *words;
    const uint64_t *version;   /* of the slot */
    uint64_t base_ns, span_ns; /* E is told by this arithmetic for so long from base_ns */
    uint64_t units_fixed, units_num, units_den, e0_units, burst_units, units_per_token;
    uint64_t ns_fixed; /* ns per unit as 0.64 fixed point, rounded down */
    uint64_t nearly_full_units;
    uint64_t keep_units, tokens_max; /* for this caller's class */
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
    uint64_t made_ns; /* of the mapping that bucket is about */
    uint64_t *counts; /* the account's statistics of slot 0, and how far it is to the next slot's */
    uint64_t counts_per_slot;
    const struct spw_ref
        *counter; /* itself, when it is the one of this process that counts by plain stores */
    struct spw__ref_bucket bucket;
    struct spw_account_conf conf; /* as of conf_seq */
    uint64_t conf_seq;
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
    ref->bucket.slot_version = 0;
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
    for (uint32_t i = 0; ref->generation && i < map->pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
        const struct spw_integration *n = spw_integration_at(map, i);
        /* SYNC integration: acquire: a LIVE record is filled. */
        if (spw_load32_acq(&n->state) == SPW_RECORD_LIVE && n->account_index == ref->account_index &&
            strncmp(n->name, ref->integration, sizeof n->name) == 0) {
            ref->batch = n->batch != 0;
            ref->skip = &n->skip;
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

/* Is the account as it was when its bucket was remembered? */
SPW_HOT bool spw__ref_same(const struct spw_ref *ref)
{
    const struct spw_account *a = ref->record;
    /* SYNC account: acquire: the rest of a LIVE record is filled. */
    return spw_load_pair_acq(&a->state) == ref->bucket.state_pair &&
           spw_load_pair_acq(&a->limiters_count) == ref->bucket.counts_pair &&
           spw_load32_rlx(&a->limiters[0]) == ref->bucket.limiter_index;
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
    ref->counter = mine && map->layout_minor >= 1 ? ref : NULL;
}

/* spw_stat_count, its place known. */
SPW_HOT void spw__ref_count(const struct spw_map *map, const struct spw_ref *ref, enum spw_stat stat)
{
    uint64_t *count = ref->counts + map->self.slot * ref->counts_per_slot + stat;
    if (map->self.lock_fd < 0)
        return;
    /* SYNC own-counts: relaxed: statistics, and this their one writer. */
    if (__builtin_expect(ref->counter == ref, 1))
        spw_store_rlx(count + SPW_STAT_OWN, spw_load_rlx(count + SPW_STAT_OWN) + 1);
    else
        spw_add_rlx(count, 1);
}

/* Remember the account's configuration, and the one that the word of its only bucket names now. */
static inline void spw__ref_learn(const struct spw_map *map, struct spw_ref *ref)
{
    struct spw__ref_bucket *b = &ref->bucket;
    struct spw_gcra g;
    b->slot_version = 0;
    const uint32_t state[2] = {SPW_RECORD_LIVE, ref->account_generation}, counts[2] = {1, 0};
    memcpy(&b->state_pair, state, sizeof state);
    memcpy(&b->counts_pair, counts, sizeof counts);
    b->limiter_index = spw_load32_rlx(&ref->record->limiters[0]);
    b->limiter = spw_limiter_at(map, b->limiter_index);
    b->words = spw_limiter_words_at(map, b->limiter_index);
    struct spw_stats *stats = spw_stats_at(map, ref->account_index);
    /* SYNC latch: acquire: read before the configuration is. */
    ref->conf_seq = spw_load_acq(&ref->record->conf_seq);
    if (!spw__ref_same(ref) || !b->limiter || !b->words || !stats || !ref->words ||
        !spw_account_conf_read(ref->record, &ref->conf))
        return;
    ref->made_ns = map->made_ns;
    spw__ref_claim_counter(map, ref);
    ref->counts = stats->count;
    ref->counts_per_slot =
        (uint64_t)map->pub_section[SPW_PUB_ACCOUNTS].count * map->rw_section[SPW_RW_STATS].stride_bytes / 8;
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint32_t slot = spw_bucket_slot(spw_load_acq(&b->words->level));
    if (!spw_limiter_conf_read(b->limiter, slot, &g) || g.units_den == 0 || g.units_den > SPW_LEVEL_MAX ||
        g.units_num < g.units_den || g.units_num / g.units_den > SPW_UNITS_PER_NS ||
        g.e0_units < g.burst_units || g.e0_units > SPW_LEVEL_MAX / 2 || g.reserve_units > g.burst_units)
        return; /* a window, rate zero, or nothing that spw_gcra_configure makes */
    b->slot = spw_bucket_word(slot, 0);
    b->version = &b->limiter->conf[slot].version;
    b->base_ns = g.base_ns;
    b->span_ns = (SPW_LEVEL_MAX - g.e0_units) / (SPW_UNITS_PER_NS + 1);
    b->units_fixed = g.units_den == 1 ? g.units_num << 62 : g.units_fixed;
    b->ns_fixed = (uint64_t)((((spw_u128)g.units_den << 64) - 1) / g.units_num);
    b->units_num = g.units_num;
    b->units_den = g.units_den;
    b->e0_units = g.e0_units;
    b->burst_units = g.burst_units;
    b->nearly_full_units = g.burst_units > 2 ? g.burst_units - 2 : 0;
    b->units_per_token = g.units_per_token;
    b->keep_units = ref->batch ? g.reserve_units : 0;
    b->tokens_max = (g.burst_units - b->keep_units) / g.units_per_token;
    b->slot_version = g.version * 2; /* as the version word says when the slot is whole */
}

/* What is known of a decision before the answer is written: each field of that once, since what is written twice, or
 * read back, holds up the caller. */
struct spw__ref_verdict {
    enum spw_verdict verdict;
    enum spw_cause cause;
    uint64_t wait_ns;
    uint64_t in_hand_units, version, units_per_token;
};

/* The words of one decision that need no clock. */
struct spw__ref_words {
    uint64_t breaker, gate, forced, switches;
    bool skip;
};

/* What spw__admit_state answers for words that are plainly refusing, or gone by. false: a probe or a refresh is due,
 * something is forced, or a word is damaged. */
static inline bool spw__ref_shut(const struct spw_map *map, const struct spw_ref *ref, uint64_t breaker,
                                 uint64_t gate, uint64_t forced, uint64_t now_ns, struct spw__ref_verdict *d)
{
    uint32_t state = (uint32_t)(breaker >> 62), source = spw_gate_source(gate);
    /* SYNC latch: acquire: the same counter, so the same configuration. */
    if (breaker == SPW_MOVED || gate == SPW_MOVED || forced > SPW_FORCED_OPEN ||
        state > SPW_BREAKER_HALF_OPEN || spw_load_acq(&ref->record->conf_seq) != ref->conf_seq)
        return false;
    uint64_t ahead_ms = (uint64_t)ref->conf.cooldown_max_ms + ref->conf.probe_ms + SPW__BREAKER_SLACK_MS;
    uint64_t gate_ns = spw__map_wait_ns(map, spw_gate_until_ms(gate), SPW_GATE_MAX_MS, now_ns);
    uint64_t open_ns = spw__map_wait_ns(map, breaker & SPW_TIME_MASK, ahead_ms, now_ns);
    d->verdict = SPW_DENY;
    if (forced == SPW_FORCED_OPEN) {
        d->verdict = SPW_NEVER;
        d->cause = SPW_CAUSE_BREAKER_FORCED;
        d->wait_ns = SPW_FOREVER_NS;
    } else if (state != SPW_BREAKER_CLOSED && open_ns) {
        d->cause = SPW_CAUSE_BREAKER_OPEN;
        d->wait_ns = open_ns > gate_ns ? open_ns : gate_ns;
    } else if (state == SPW_BREAKER_CLOSED && gate_ns) {
        bool buffer = source == SPW_GATE_BUFFER_RESET || source == SPW_GATE_UNKNOWN_BUFFER;
        d->cause = buffer ? SPW_CAUSE_REMAINING_BELOW_BUFFER : SPW_CAUSE_GATE_SHUT;
        d->wait_ns = gate_ns;
    } else {
        d->verdict = SPW_ALLOW;
        return state == SPW_BREAKER_CLOSED && !spw__gate_asks(source);
    }
    return true;
}

/* How long after base_ns the bucket has earned so many units: (units / rate) rounded up, without a division. */
SPW_HOT uint64_t spw__ref_when_ns(const struct spw__ref_bucket *b, uint64_t units)
{
    uint64_t ns = (uint64_t)((spw_u128)units * b->ns_fixed >> 64); /* at most two short */
    uint64_t left = units * b->units_den - ns * b->units_num;
    return ns + (uint64_t)(left > 0) + (uint64_t)(left > b->units_num);
}

/* The level of a bucket that holds its whole burst: E is rounded down, so this is rounded up. */
SPW_HOT uint64_t spw__ref_full_level(const struct spw__ref_bucket *b, uint64_t dt, uint64_t units)
{
    uint64_t rest = dt * b->units_num - units * b->units_den;
    return b->e0_units + units + (uint64_t)(rest > 0) + (uint64_t)(rest > b->units_den) - b->burst_units;
}

/* The bucket's part: spw_bucket_take. d holds the verdict so far. false: the bucket is not as remembered, or holds a
 * surprise, and nothing was done. */
SPW_HOT bool spw__ref_take(const struct spw_ref *ref, uint64_t tokens, uint64_t now_ns, bool take,
                           struct spw__ref_verdict *d, struct spw_charge *charge)
{
    const struct spw__ref_bucket *b = &ref->bucket;
    uint64_t dt = now_ns - b->base_ns, need = tokens * b->units_per_token, slot = b->slot;
    if (dt > b->span_ns || tokens > b->tokens_max)
        return false;
    /* E(now), rounded down and at most one unit short, as the first half of spw_gcra_earned; the second is seldom
     * needed. */
    uint64_t units = (uint64_t)((spw_u128)dt * b->units_fixed >> 62), earned = b->e0_units + units;
    uint64_t level, in_hand, next, wait_ns = 0;
    bool denied = false;
    /* SYNC returned: acquire: read before the word that the take goes into. */
    uint64_t returned = spw_load_acq(&b->words->returned_units);
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint64_t word = spw_load_acq(&b->words->level);
    for (int i = 0;; i++) {
        level = word ^ slot;
        in_hand = earned - level;
        /* SYNC limiter-conf: acquire: the same version as remembered: the same content. */
        if (level > earned || spw_load_acq(b->version) != b->slot_version || i == SPW_CAS_TRIES)
            return false; /* another configuration, a reservation ahead, or damage */
        uint64_t full = 0;
        next = level + need;
        if (__builtin_expect(in_hand >= b->nearly_full_units, 0))
            full = spw__ref_full_level(b, dt, units);
        if (__builtin_expect(level < full, 0)) {
            next = full + need;
        } else if (__builtin_expect(in_hand < need + b->keep_units, 0)) {
            uint64_t when_ns = spw__ref_when_ns(b, next + b->keep_units - b->e0_units);
            denied = when_ns > dt;
            wait_ns = denied ? when_ns - dt : 0;
        }
        /* SYNC bucket: acq_rel: one self-contained word; either this take happened or it did not. */
        if (denied || !take || spw_cas(&b->words->level, &word, slot | next))
            break;
        if (i > 3) /* whoever lost has the line now: the next try is the cheapest */
            spw_relax();
    }
    in_hand += (uint64_t)(dt * b->units_num - units * b->units_den >= b->units_den);
    d->in_hand_units = in_hand < b->burst_units ? in_hand : b->burst_units;
    if (denied && d->verdict == SPW_ALLOW) {
        d->verdict = SPW_DENY;
        d->cause = ref->batch && d->in_hand_units >= need ? SPW_CAUSE_BATCH_RESERVE : SPW_CAUSE_BUCKET_EMPTY;
    }
    d->wait_ns = wait_ns > d->wait_ns ? wait_ns : d->wait_ns;
    d->version = b->slot_version / 2;
    d->units_per_token = b->units_per_token;
    if (take && !denied) {
        charge->version = b->slot_version / 2;
        charge->level = level;
        charge->returned = returned;
        charge->taken_ns = now_ns;
    }
    return true;
}

/* The first part of the quiet case, before the clock is read, so that it costs no time of its own: is all as
 * remembered? */
SPW_HOT bool spw__ref_look(const struct spw_map *map, const struct spw_ref *ref, struct spw__ref_words *w)
{
    const struct spw_header *pub = spw_map_pub(map);
    if (!ref->bucket.slot_version || ref->made_ns != map->made_ns || ref->pub != map->pub ||
        !spw__ref_same(ref))
        return false;
    w->breaker = spw_load_acq(&ref->words->breaker); /* SYNC breaker: acquire */
    w->gate = spw_load_acq(&ref->words->gate);       /* SYNC gate: acquire */
    /* SYNC switches, forced: relaxed: lone words, read at each decision. */
    w->forced = spw_load_rlx(&ref->record->forced);
    w->switches = spw_load_rlx(&ref->record->switches) | spw_load_rlx(&ref->bucket.limiter->switches) |
                  spw_load_rlx(&pub->switches);
    w->skip = (spw__ref_skip(ref) & 1) != 0;
    return true;
}

/* The second part: decide. false: the case is not quiet, and nothing was done. */
SPW_HOT bool spw__ref_quick(const struct spw_map *map, const struct spw_ref *ref,
                            const struct spw__ref_words *w, uint64_t tokens, uint64_t now_ns, bool take,
                            struct spw_admission *a, struct spw_ticket *ticket)
{
    struct spw__ref_verdict d = {SPW_ALLOW, SPW_CAUSE_NONE, 0, 0, 0, 0};
    if (__builtin_expect((w->breaker >> 62 | w->gate | w->forced) != 0, 0)) {
        struct spw__ref_verdict shut = d; /* its address is handed out: it is not kept in registers */
        if (!spw__ref_shut(map, ref, w->breaker, w->gate, w->forced, now_ns, &shut))
            return false;
        d.verdict = shut.verdict;
        d.cause = shut.cause;
        d.wait_ns = shut.wait_ns;
    }
    bool open = d.verdict == SPW_ALLOW, free = w->skip || w->switches & SPW_SWITCH_KILL;
    if (!free && (w->switches || !spw__ref_take(ref, tokens, now_ns, take && open, &d, &ticket->charge[0])))
        return false;
    if (take) /* all that is counted here is among the first SPW_STATS_OWN_COUNT */
        spw__ref_count(map, ref, d.verdict == SPW_ALLOW ? SPW_STAT_ALLOW : spw__stat_of(d.cause));
    a->verdict = d.verdict;
    a->cause = d.cause;
    a->wait_ns = d.wait_ns;
    a->start_at_ns = 0;
    a->version = d.version;
    a->available_units = d.in_hand_units;
    a->units_per_token = d.units_per_token;
    a->breaker_state = (uint32_t)(w->breaker >> 62);
    a->observed = false;
    a->may_call = d.verdict == SPW_ALLOW;
    memset(ticket, 0, SPW__TICKET_HEAD_BYTES);
    ticket->generation = map->generation;
    ticket->account_index = ref->account_index;
    ticket->taken_ns = now_ns;
    ticket->tokens = tokens;
    ticket->epoch = open ? (uint32_t)(w->breaker >> 39 & SPW_EPOCH_MASK) : 0;
    ticket->charged = take && !free && d.verdict == SPW_ALLOW;
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

/* spw_admit for a ref of this segment: the quiet case, or the whole way. */
static inline struct spw_admission spw_ref_admit(const struct spw_map *map, struct spw_ref *ref,
                                                 uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns,
                                                 struct spw_ticket *ticket)
{
    struct spw_admission a;
    struct spw__ref_words words;
    if (max_wait_ns == 0 && spw__ref_look(map, ref, &words) &&
        spw__ref_quick(map, ref, &words, tokens, now_ns, true, &a, ticket))
        return a;
    return spw__ref_whole(map, ref, 0, tokens, max_wait_ns, now_ns, ticket);
}

#ifdef __cplusplus
}
#endif

#endif
