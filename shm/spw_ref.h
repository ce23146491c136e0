/* spw_ref.h: an account as one caller knows it: by name, by place, and with the configuration its bucket last obeyed.
 *
 * Owns: struct spw_ref and the decision's quiet case. Called by: the client header, the sidecar's decision tree.
 * Thread: one at a time for each ref; process: private memory, so nothing of it is shared.
 *
 * The quiet case is the usual one: no switch is set, breaker closed, gate open, no permits, one bucket whose
 * configuration is the one remembered. Then a decision is eight loads, one multiplication and one compare-and-swap.
 * Whatever is not quiet takes the whole way through spw_admit, which answers the same.
 */
#ifndef SPW_REF_H
#define SPW_REF_H

#include "shm/spw_admission.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    const struct spw_limiter *limiter; /* the account's only one; NULL = the whole way each time */
    struct spw_limiter_words *limiter_words;
    struct spw_gcra conf; /* what the limiter's configuration slot conf_slot held at conf_version */
    uint64_t conf_version;
    uint32_t conf_slot;
};

static inline void spw_ref_init(struct spw_ref *ref, const char *account, const char *integration)
{
    memset(ref, 0, sizeof *ref);
    if (account)
        memcpy(ref->account, account, strnlen(account, sizeof ref->account - 1));
    if (integration)
        memcpy(ref->integration, integration, strnlen(integration, sizeof ref->integration - 1));
}

static inline bool spw__ref_find(const struct spw_map *map, struct spw_ref *ref)
{
    ref->generation = 0;
    ref->batch = false;
    ref->limiter = NULL;
    ref->conf_version = 0;
    for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++) {
        const struct spw_account *a = spw_account_at(map, i);
        /* SYNC account: acquire: a LIVE record is filled. */
        if (spw_load32_acq(&a->state) == SPW_RECORD_LIVE &&
            strncmp(a->name, ref->account, sizeof a->name) == 0) {
            ref->account_index = i;
            ref->account_generation = a->record_generation;
            ref->generation = map->generation;
            ref->pub = map->pub;
            ref->rw = map->rw;
            ref->record = a;
            ref->skip = &a->skip;
            ref->words = spw_account_words_at(map, i);
            if (a->limiters_count == 1) {
                ref->limiter_words = spw_limiter_words_at(map, a->limiters[0]);
                ref->limiter = ref->limiter_words ? spw_limiter_at(map, a->limiters[0]) : NULL;
            }
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

/* For spw_admit: the class, and the limiters that do not apply. */
static inline uint32_t spw_ref_flags(const struct spw_ref *ref)
{
    /* SYNC skip: relaxed: a lone word. */
    uint32_t skip = spw_load32_rlx(ref->skip) >> ((uint32_t)ref->endpoint % SPW_ENDPOINTS_COUNT * 8) & 0xFF;
    return SPW_ACQUIRE_SKIP(skip) | (ref->batch ? (uint32_t)SPW_ACQUIRE_BATCH : 0);
}

/* Is what was found good for this mapping? A client that was detached may have the same segment elsewhere. */
static inline bool spw__ref_is_of(const struct spw_map *map, const struct spw_ref *ref)
{
    return ref->generation == map->generation && ref->pub == map->pub && ref->rw == map->rw;
}

/* Remember the configuration that the bucket's word names now. */
static inline void spw__ref_learn(struct spw_ref *ref)
{
    if (!ref->limiter)
        return;
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint32_t slot = spw_bucket_slot(spw_load_acq(&ref->limiter_words->level));
    ref->conf_version = 0;
    if (spw_limiter_conf_read(ref->limiter, slot, &ref->conf)) {
        ref->conf_slot = slot;
        ref->conf_version = ref->conf.version * 2; /* as the slot's version word says when it is whole */
    }
}

static inline bool spw__ref_quiet(const struct spw_map *map, const struct spw_ref *ref)
{
    const struct spw_account *a = ref->record;
    /* SYNC account: acquire. SYNC switches, forced: relaxed: lone words, read at each decision. */
    return spw_load32_acq(&a->state) == SPW_RECORD_LIVE && a->record_generation == ref->account_generation &&
           a->permits_count == 0 && a->limiters_count == 1 &&
           (spw_load_rlx(&a->switches) | spw_load_rlx(&a->forced) | spw_load_rlx(&ref->limiter->switches) |
            spw_load_rlx(&spw_map_pub(map)->switches)) == 0 &&
           spw_load_acq(&ref->words->gate) == 0; /* SYNC gate: acquire */
}

/* Decide the quiet case. false: not quiet, nothing was done. */
static inline bool spw__admit_quiet(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens,
                                    uint64_t now_ns, struct spw_admission *a, struct spw_ticket *ticket)
{
    /* SYNC breaker: acquire. */
    uint64_t breaker = spw_load_acq(&ref->words->breaker);
    if (breaker >> 62 != SPW_BREAKER_CLOSED || !spw__ref_quiet(map, ref))
        return false;
    /* SYNC returned: acquire: read before the word that the take goes into. */
    uint64_t returned = spw_load_acq(&ref->limiter_words->returned_units);
    /* SYNC bucket: acquire: the configuration the word names was published before it. */
    uint64_t word = spw_load_acq(&ref->limiter_words->level);
    for (int i = 0; i < SPW_CAS_TRIES; i++) {
        uint64_t level = spw_bucket_level(word), next = 0;
        /* SYNC limiter-conf: acquire: the same version as remembered: the same content. */
        if (spw_bucket_slot(word) != ref->conf_slot ||
            spw_load_acq(&ref->limiter->conf[ref->conf_slot].version) != ref->conf_version ||
            level > spw_gcra_earned(&ref->conf, now_ns))
            return false; /* another configuration, a reservation ahead, or damage */
        uint64_t keep = ref->batch ? ref->conf.reserve_units : 0;
        enum spw_gcra_result result =
            spw_gcra_take(&ref->conf, level, now_ns, tokens, keep, 0, &next, &a->wait_ns);
        if (result == SPW_GCRA_NEVER || (result == SPW_GCRA_WAIT && ref->batch))
            return false;
        a->version = ref->conf.version;
        if (result == SPW_GCRA_WAIT) {
            a->verdict = SPW_DENY;
            a->cause = SPW_CAUSE_BUCKET_EMPTY;
            return true;
        }
        /* SYNC bucket: acq_rel: one self-contained word; either this take happened or it did not. */
        if (spw_cas(&ref->limiter_words->level, &word, spw_bucket_word(ref->conf_slot, next))) {
            a->may_call = true;
            ticket->epoch = (uint32_t)(breaker >> 39 & SPW_EPOCH_MASK);
            ticket->charged = 1;
            ticket->charge[0].level = next - tokens * ref->conf.units_per_token;
            ticket->charge[0].version = ref->conf.version;
            ticket->charge[0].returned = returned;
            ticket->charge[0].at_ns = now_ns;
            return true;
        }
        spw_relax();
    }
    return false;
}

/* spw_admit for a ref of this segment: the quiet case, or the whole way. */
static inline struct spw_admission spw_ref_admit(const struct spw_map *map, struct spw_ref *ref,
                                                 uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns,
                                                 struct spw_ticket *ticket)
{
    struct spw_admission a;
    if (ref->limiter && ref->conf_version && max_wait_ns == 0) {
        memset(&a, 0, sizeof a);
        memset(ticket, 0, SPW__TICKET_HEAD_BYTES);
        ticket->generation = map->generation;
        ticket->account_index = ref->account_index;
        ticket->taken_ns = now_ns;
        ticket->tokens = tokens;
        if (spw__admit_quiet(map, ref, tokens, now_ns, &a, ticket)) {
            spw_stat_count(map, ref->account_index, a.may_call ? SPW_STAT_ALLOW : SPW_STAT_DENY_BUCKET);
            return a;
        }
    }
    a = spw_admit(map, ref->account_index, ref->account_generation, spw_ref_flags(ref) | SPW_ACQUIRE_SHARE,
                  tokens, max_wait_ns, now_ns, ticket);
    if (a.version != ref->conf.version || !ref->conf_version)
        spw__ref_learn(ref);
    return a;
}

#ifdef __cplusplus
}
#endif

#endif
