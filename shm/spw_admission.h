/* spw_admission.h: "may I call?": kill switch, gate, breaker, permit and every limiter of an account, as one decision.
 *
 * Owns: the order of the checks and the ticket a caller holds until its call has ended. Called by: the client header
 * (acquire, peek) and the sidecar's decision tree. Thread/process: any number; lock-free; works with the sidecar dead.
 *
 * All or nothing: everything is looked at first, by loads alone, so that a refusal writes to no line that another
 * process writes. Then tokens are taken narrowest limiter first; a race lost on the way gives back what was taken. Then
 * the permit; the probe of an open breaker and the refresh of a gate come last, so that they seldom need giving back.
 *
 * Two kinds of waiting. A refusal has written nothing: its wait is exact if nobody else takes. With max_wait_ns tokens
 * are RESERVED with the limiter that has them last: they are spent, nobody overtakes there, and the call may begin at
 * start_at_ns. When that has come, spw_confirm takes the other limiters' tokens, which must not be spent for a call that
 * begins later, and looks at gate and breaker again. spw_abandon gives a reservation back.
 */
#ifndef SPW_ADMISSION_H
#define SPW_ADMISSION_H

#include "shm/spw_bucket.h"
#include "shm/spw_gate.h"
#include "shm/spw_permit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The outcome of an acquire. */
enum spw_verdict {
    SPW_ALLOW = 0,
    SPW_DENY = 1,         /* wait_ns says how long; it is exact if nobody else takes */
    SPW_NEVER = 2,        /* no wait would help: rate zero, or more than the bucket holds */
    SPW_NOT_ATTACHED = 3, /* no segment: what the attach option says was applied by the caller of this */
    SPW_BAD_HANDLE = 4    /* no such account, or it was removed */
};

enum {
    SPW_ACQUIRE_PEEK = 1, /* look only: take nothing, count nothing */
    SPW_ACQUIRE_RETRY =
        2, /* a second attempt: may use the header buffer, and is not held by its own 429's gate */
    SPW_ACQUIRE_BATCH = 4, /* class batch: leaves the reserve */
    SPW_ACQUIRE_SHARE = 8  /* an application: bound by permits_per_process_count */
};
/* In the flags: bit i: the account's i-th limiter does not apply to this call. */
#define SPW_ACQUIRE_SKIP(mask) ((uint32_t)(mask) << 8)

struct spw_admission {
    enum spw_verdict verdict;
    enum spw_cause cause; /* DENY, NEVER: the rule that fired */
    uint32_t breaker_state;
    bool observed;            /* would have been refused; observe mode let it pass */
    bool may_call;            /* ALLOW, or NOT_ATTACHED where the attach option lets the call through */
    uint64_t wait_ns;         /* DENY: until it may be tried again; SPW_FOREVER_NS = never */
    uint64_t start_at_ns;     /* ALLOW with a reservation: not before; 0 = now */
    uint64_t version;         /* the account's configuration version the last limiter obeyed */
    uint64_t units_per_token; /* see spw_admission_tokens_milli */
    uint64_t available_units; /* of these, seen in the account-wide bucket before the take */
};

/* What a caller that was allowed holds until it reports the outcome. */
struct spw_ticket {
    uint64_t generation; /* of the segment */
    uint64_t taken_ns;
    uint64_t permit_word;
    uint64_t tokens;
    uint32_t account_index;
    uint32_t permit_index;
    uint32_t epoch;
    bool has_permit;
    bool refresh;
    bool probe;
    uint8_t charged;      /* bit i: the account's i-th limiter was charged (a killed one is not) */
    uint32_t flags;       /* of a reservation: SPW_ACQUIRE_* it was taken with */
    uint64_t start_at_ns; /* of a reservation; 0 = now */
    struct spw_charge charge[SPW_LIMITERS_PER_ACCOUNT]; /* of the charged ones */
};
#define SPW__TAKE_TRIES 64u
/* Of an empty ticket; the charges behind it are nobody's. */
#define SPW__TICKET_HEAD_BYTES offsetof(struct spw_ticket, charge)

/* Thousandths of a token in hand before the take; not computed in the decision itself: divisions cost more than it. */
static inline uint64_t spw_admission_tokens_milli(const struct spw_admission *a)
{
    if (a->units_per_token == 0)
        return 0;
    uint64_t whole = a->available_units / a->units_per_token, rest = a->available_units % a->units_per_token;
    return whole * 1000 + (uint64_t)((spw_u128)rest * 1000 / a->units_per_token);
}

static inline struct spw_stats *spw__stats(const struct spw_map *map, uint32_t account_index)
{
    if (map->self.lock_fd < 0)
        return NULL;
    return spw_stats_at(map,
                        (uint64_t)map->self.slot * map->pub_section[SPW_PUB_ACCOUNTS].count + account_index);
}

/* Count in this process's own line. */
static inline void spw_stat_count(const struct spw_map *map, uint32_t account_index, enum spw_stat stat)
{
    struct spw_stats *stats = spw__stats(map, account_index);
    if (stats)
        spw_add_rlx(&stats->count[stat], 1);
}

static inline enum spw_stat spw__stat_of(enum spw_cause cause)
{
    switch (cause) {
    case SPW_CAUSE_BUCKET_EMPTY:
    case SPW_CAUSE_BATCH_RESERVE:
    case SPW_CAUSE_RATE_ZERO:
    case SPW_CAUSE_COST_ABOVE_BURST:
        return SPW_STAT_DENY_BUCKET;
    case SPW_CAUSE_GATE_SHUT:
    case SPW_CAUSE_REMAINING_BELOW_BUFFER:
        return SPW_STAT_DENY_GATE;
    case SPW_CAUSE_BREAKER_OPEN:
    case SPW_CAUSE_BREAKER_FORCED:
        return SPW_STAT_DENY_BREAKER;
    case SPW_CAUSE_CONCURRENCY:
        return SPW_STAT_DENY_CONCURRENCY;
    default:
        return SPW_STAT_DENY_OTHER;
    }
}

/* What a fallback is called that a refusal for this cause leads to. */
static inline enum spw_fallback spw_refusal_type(enum spw_cause cause)
{
    return cause == SPW_CAUSE_BREAKER_OPEN || cause == SPW_CAUSE_BREAKER_FORCED
               ? SPW_FALLBACK_CIRCUIT_BREAKER_OPEN
               : SPW_FALLBACK_RATE_LIMIT_PROACTIVE;
}

/* Everything a decision needs of one account, found once. */
struct spw__account_view {
    const struct spw_map *map;
    const struct spw_account *account;
    struct spw_account_words *words;
    struct spw_account_conf conf;
    uint32_t index;
    uint32_t permits_count;
    uint32_t limiters_count;
    uint32_t flags;
    uint64_t tokens;
    uint64_t now_ns;
    uint64_t last_start_ns; /* the latest start of a reservation */
    uint32_t late;          /* the limiter that has the tokens last, if not now */
    const struct spw_limiter *limiter[SPW_LIMITERS_PER_ACCOUNT];
    struct spw_limiter_words *limiter_words[SPW_LIMITERS_PER_ACCOUNT];
    uint64_t switches;
};

static inline bool spw__account_open(const struct spw_map *map, uint32_t index, uint32_t generation,
                                     struct spw__account_view *v)
{
    v->map = map;
    v->index = index;
    v->account = spw_account_at(map, index);
    v->words = spw_account_words_at(map, index);
    if (!v->account || !v->words ||
        spw_load32_acq(&v->account->state) != SPW_RECORD_LIVE || /* SYNC account: acquire */
        spw_load32_rlx(&v->account->record_generation) != generation ||
        !spw_account_conf_read(v->account, &v->conf))
        return false;
    /* SYNC switches: relaxed: lone words, read at each decision. */
    v->switches = spw_load_rlx(&v->account->switches) | spw_load_rlx(&spw_map_pub(map)->switches);
    v->permits_count = spw_load32_rlx(&v->account->permits_count);
    v->limiters_count = spw_load32_rlx(&v->account->limiters_count);
    if (v->limiters_count > SPW_LIMITERS_PER_ACCOUNT)
        return false;
    for (uint32_t i = 0; i < v->limiters_count; i++) {
        uint32_t limiter = spw_load32_rlx(&v->account->limiters[i]);
        v->limiter[i] = spw_limiter_at(map, limiter);
        v->limiter_words[i] = spw_limiter_words_at(map, limiter);
        if (!v->limiter[i] || !v->limiter_words[i])
            return false;
    }
    return true;
}

/* Add a reason for refusal: the first is the cause, the longest the wait. */
static inline bool spw__deny(struct spw_admission *a, enum spw_verdict verdict, enum spw_cause cause,
                             uint64_t wait_ns)
{
    bool first = a->verdict == SPW_ALLOW;
    if (verdict == SPW_NOT_ATTACHED || first || (a->verdict == SPW_DENY && verdict == SPW_NEVER))
        a->verdict = verdict;
    if (verdict == SPW_NOT_ATTACHED || first)
        a->cause = cause;
    if (wait_ns > a->wait_ns)
        a->wait_ns = wait_ns;
    return false;
}

/* Gate and breaker; take says whether the probe or the refresh is claimed. */
static inline bool spw__admit_state(struct spw__account_view *v, bool take, struct spw_admission *a,
                                    struct spw_ticket *ticket)
{
    uint64_t wait_ns = 0;
    uint32_t source = 0;
    bool retry = (v->flags & SPW_ACQUIRE_RETRY) != 0;
    enum spw_gate_verdict gate =
        spw_gate_enter(v->map, v->words, &v->conf, v->now_ns, take && !retry, &wait_ns, &source);
    if (gate == SPW_GATE_GONE)
        return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
    bool buffer = source == SPW_GATE_BUFFER_RESET || source == SPW_GATE_UNKNOWN_BUFFER;
    bool own = buffer || source == SPW_GATE_UNKNOWN_429 || source == SPW_GATE_REFRESH;
    bool shut = gate == SPW_GATE_SHUT && !(retry && own);
    /* Behind a shut gate the breaker is only looked at: an open one is the greater reason. */
    ticket->refresh = gate == SPW_GATE_PASS_REFRESH;
    struct spw_breaker_answer b =
        spw_breaker_enter(v->map, v->account, v->words, &v->conf, v->now_ns, take && !shut);
    a->breaker_state = b.state;
    a->observed = a->observed || b.observed;
    if (b.verdict == SPW_BREAKER_GONE)
        return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
    if (b.verdict == SPW_BREAKER_REFUSE)
        return spw__deny(a, b.wait_ns == UINT64_MAX ? SPW_NEVER : SPW_DENY,
                         b.forced ? SPW_CAUSE_BREAKER_FORCED : SPW_CAUSE_BREAKER_OPEN,
                         b.wait_ns > wait_ns ? b.wait_ns : wait_ns);
    if (shut)
        return spw__deny(a, SPW_DENY, buffer ? SPW_CAUSE_REMAINING_BELOW_BUFFER : SPW_CAUSE_GATE_SHUT,
                         wait_ns);
    ticket->epoch = b.epoch;
    ticket->probe = b.verdict == SPW_BREAKER_PROBE;
    return true;
}

/* One limiter; kill and observe are per limiter, account and segment. *wait_ns: until it has the tokens. */
static inline bool spw__admit_limiter(struct spw__account_view *v, uint32_t i, bool take,
                                      struct spw_admission *a, struct spw_ticket *ticket, uint64_t *wait_ns)
{
    *wait_ns = 0;
    /* SYNC switches: relaxed: a lone word. */
    uint64_t switches = v->switches | spw_load_rlx(&v->limiter[i]->switches);
    if ((v->flags >> 8 >> i & 1) || (switches & SPW_SWITCH_KILL))
        return true;
    bool batch = (v->flags & SPW_ACQUIRE_BATCH) != 0, observe = (switches & SPW_SWITCH_OBSERVE) != 0;
    struct spw_bucket_answer b = spw_bucket_take(v->limiter[i], v->limiter_words[i], v->now_ns, v->tokens,
                                                 batch, observe ? 0 : v->last_start_ns - v->now_ns, take);
    a->version = b.version;
    a->available_units = b.available_units;
    a->units_per_token = b.units_per_token;
    if (b.result == SPW_BUCKET_TAKEN) {
        if (take) {
            ticket->charged = (uint8_t)(ticket->charged | 1u << i);
            ticket->charge[i] = b.charge;
        }
        *wait_ns = b.wait_ns;
        return true;
    }
    if (b.result == SPW_BUCKET_MOVED)
        return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
    if (observe) {
        a->observed = true;
        return true;
    }
    if (b.result == SPW_BUCKET_NEVER)
        return spw__deny(a, SPW_NEVER, b.why_never, SPW_FOREVER_NS);
    bool reserve = batch && b.available_units >= v->tokens * b.units_per_token;
    return spw__deny(a, SPW_DENY, reserve ? SPW_CAUSE_BATCH_RESERVE : SPW_CAUSE_BUCKET_EMPTY, b.wait_ns);
}

/* Are the permits out but for `spare` of them, or this process's share? Until the first of those expires. Those of
 * before the count was lowered are counted as long as they are held. */
static inline bool spw__permits_out(struct spw__account_view *v, uint32_t spare, uint64_t *wait_ns)
{
    uint32_t share = (v->flags & SPW_ACQUIRE_SHARE) ? v->conf.permits_per_process_count : 0;
    uint32_t most = v->conf.permits_most_count;
    most = most > v->permits_count ? most : v->permits_count;
    if (!v->permits_count)
        return false;
    return spw_permit_busy_count(v->map, v->index, most, false, v->now_ns, wait_ns) + spare >
               v->permits_count ||
           (share && spw_permit_busy_count(v->map, v->index, most, true, v->now_ns, wait_ns) + spare > share);
}

/* Loads alone. *wait_ns: until every limiter has the tokens. */
static inline bool spw__admit_look(struct spw__account_view *v, struct spw_admission *a,
                                   struct spw_ticket *ticket, uint64_t *wait_ns)
{
    uint64_t one_ns;
    bool ok = spw__admit_state(v, false, a, ticket);
    if (spw__permits_out(v, 1, &one_ns))
        ok = spw__deny(a, SPW_DENY, SPW_CAUSE_CONCURRENCY, one_ns);
    *wait_ns = 0;
    for (uint32_t i = 0; i < v->limiters_count && a->verdict != SPW_NOT_ATTACHED; i++) {
        ok = spw__admit_limiter(v, i, false, a, ticket, &one_ns) && ok;
        if (one_ns > *wait_ns) {
            *wait_ns = one_ns;
            v->late = i;
        }
    }
    return ok && a->verdict != SPW_NOT_ATTACHED;
}

/* Give back what a ticket holds: the tokens, the permit, the probe and the refresh. */
static inline void spw__ticket_undo(struct spw__account_view *v, struct spw_ticket *ticket)
{
    for (uint32_t i = 0; i < v->limiters_count; i++) {
        if (ticket->charged >> i & 1)
            spw_bucket_give_back(v->limiter[i], v->limiter_words[i], v->now_ns, ticket->tokens,
                                 &ticket->charge[i]);
    }
    /* Only by the process that took it: the child of a fork has a copy of its parent's tickets. */
    if (ticket->has_permit && spw_permit_mine(v->map, ticket->permit_word))
        spw_permit_release(v->map, ticket->permit_index, ticket->permit_word);
    if (ticket->probe)
        spw_breaker_probe_back(v->map, v->words, ticket->epoch, v->now_ns);
    if (ticket->refresh)
        spw_gate_refresh_back(v->map, v->words, &v->conf, ticket->taken_ns, v->now_ns);
    ticket->charged = 0;
    ticket->has_permit = ticket->probe = ticket->refresh = false;
}

/* Take from every limiter, or, where one has to be waited for, from that one alone. */
static inline bool spw__take_tokens(struct spw__account_view *v, uint64_t *wait_ns, struct spw_admission *a,
                                    struct spw_ticket *ticket)
{
    for (uint32_t again = 0; again < SPW__TAKE_TRIES; again++) {
        if (*wait_ns && !spw__admit_limiter(v, v->late, true, a, ticket, wait_ns))
            return false;
        if (*wait_ns)
            return true;
        for (uint32_t i = 0; i < v->limiters_count && *wait_ns == 0; i++) {
            if (ticket->charged >> i & 1)
                continue; /* by the reservation that is now confirmed, or was waited for in vain */
            if (!spw__admit_limiter(v, i, true, a, ticket, wait_ns))
                return false;
            v->late = i;
        }
        if (*wait_ns == 0)
            return true;
        spw__ticket_undo(v,
                         ticket); /* another was quicker: those before the late one are taken at the start */
    }
    return spw__deny(a, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY, *wait_ns);
}

static inline bool spw__take_permit(struct spw__account_view *v, uint64_t wait_ahead_ns,
                                    struct spw_admission *a, struct spw_ticket *ticket)
{
    uint64_t wait_ns = 0;
    if (!v->permits_count || v->map->self.lock_fd < 0)
        return true;
    /* The use number only has to differ between permits of one holder at one time. */
    uint32_t use = (uint32_t)(v->now_ns >> 8);
    uint32_t life_ms = v->conf.permit_ms + (uint32_t)((wait_ahead_ns + 999999) / 1000000);
    ticket->has_permit = !spw__permits_out(v, 1, &wait_ns) &&
                         spw_permit_take(v->map, v->index, v->permits_count, use, life_ms, v->now_ns,
                                         &ticket->permit_word, &ticket->permit_index);
    /* Two that both saw room, in the share or below what is still held of more: over it, this one steps back. */
    bool over = ticket->has_permit && spw__permits_out(v, 0, &wait_ns);
    return (ticket->has_permit && !over) || spw__deny(a, SPW_DENY, SPW_CAUSE_CONCURRENCY, wait_ns);
}

static inline bool spw__admit_take(struct spw__account_view *v, uint64_t wait_ns, struct spw_admission *a,
                                   struct spw_ticket *ticket)
{
    if (!spw__take_tokens(v, &wait_ns, a, ticket) || !spw__take_permit(v, wait_ns, a, ticket) ||
        !spw__admit_state(v, true, a, ticket)) {
        spw__ticket_undo(v, ticket);
        return false;
    }
    if (wait_ns) {
        a->start_at_ns = ticket->start_at_ns = v->now_ns + wait_ns;
        ticket->flags = v->flags;
    }
    return true;
}

static inline void spw__view_ask(struct spw__account_view *v, uint32_t flags, uint64_t tokens,
                                 uint64_t max_wait_ns, uint64_t now_ns)
{
    uint64_t most_ns = SPW_RESERVE_MAX_NS;
    if (v->permits_count) /* a permit must live until the call's end */
        most_ns = v->conf.permit_ms < SPW_PERMIT_MAX_MS
                      ? (SPW_PERMIT_MAX_MS - v->conf.permit_ms) * UINT64_C(1000000)
                      : 0;
    v->flags = flags;
    v->tokens = tokens;
    v->now_ns = now_ns;
    v->last_start_ns = now_ns + (max_wait_ns < most_ns ? max_wait_ns : most_ns);
}

/* Decide for `tokens` of an account at now_ns; flags: SPW_ACQUIRE_*. With max_wait_ns (an hour at most; a minute where
 * concurrency is limited) tokens that will be earned in time are reserved: start_at_ns. On ALLOW without PEEK the ticket
 * must be settled (spw_settle) or abandoned (else its permit expires by itself). */
static inline struct spw_admission spw_admit(const struct spw_map *map, uint32_t account_index,
                                             uint32_t account_generation, uint32_t flags, uint64_t tokens,
                                             uint64_t max_wait_ns, uint64_t now_ns, struct spw_ticket *ticket)
{
    struct spw_admission a;
    struct spw__account_view v;
    uint64_t wait_ns;
    memset(&a, 0, sizeof a);
    memset(ticket, 0, SPW__TICKET_HEAD_BYTES);
    ticket->generation = map->generation;
    ticket->account_index = account_index;
    ticket->taken_ns = now_ns;
    ticket->tokens = tokens;
    if (!spw__account_open(map, account_index, account_generation, &v)) {
        a.verdict = SPW_BAD_HANDLE;
        return a;
    }
    spw__view_ask(&v, flags, tokens, max_wait_ns, now_ns);
    bool peek = (flags & SPW_ACQUIRE_PEEK) != 0;
    bool ok = spw__admit_look(&v, &a, ticket, &wait_ns);
    if (ok && peek && wait_ns)
        a.start_at_ns = now_ns + wait_ns;
    if (ok && !peek)
        ok = spw__admit_take(&v, wait_ns, &a, ticket);
    a.may_call = ok;
    if (!peek && a.verdict != SPW_NOT_ATTACHED) {
        spw_stat_count(map, account_index, ok ? SPW_STAT_ALLOW : spw__stat_of(a.cause));
        if (a.observed)
            spw_stat_count(map, account_index, SPW_STAT_OBSERVED);
    }
    return a;
}

/* The ticket's account; false: the segment is another one, or the account was removed. */
static inline bool spw__ticket_open(const struct spw_map *map, const struct spw_ticket *ticket,
                                    uint64_t now_ns, struct spw__account_view *v)
{
    const struct spw_account *account = spw_account_at(map, ticket->account_index);
    if (ticket->generation != map->generation || !account ||
        !spw__account_open(map, ticket->account_index, account->record_generation, v))
        return false;
    spw__view_ask(v, ticket->flags, ticket->tokens, 0, now_ns);
    return true;
}

/* A call that is not made after all: tokens, permit, probe and refresh back, nothing counted. Once; a second time does
 * nothing. */
static inline void spw_abandon(const struct spw_map *map, struct spw_ticket *ticket, uint64_t now_ns)
{
    struct spw__account_view v;
    if (spw__ticket_open(map, ticket, now_ns, &v))
        spw__ticket_undo(&v, ticket);
    ticket->generation = 0;
}

/* The start of a reservation has come: take what is still to be taken, and look at gate and breaker again. ALLOW: make
 * the call. DENY: too early (wait_ns, nothing has changed), or another limiter, the gate or the breaker says no now: then
 * the reservation has been given back, as it has with NOT_ATTACHED (the segment was replaced, and with it went what was
 * reserved). For a ticket that began at once it only asks gate and breaker. */
static inline struct spw_admission spw_confirm(const struct spw_map *map, struct spw_ticket *ticket,
                                               uint64_t now_ns)
{
    struct spw_admission a;
    struct spw__account_view v;
    memset(&a, 0, sizeof a);
    if (!spw__ticket_open(map, ticket, now_ns, &v)) {
        (void)spw__deny(&a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
        return a;
    }
    if (now_ns < ticket->start_at_ns) {
        (void)spw__deny(&a, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY, ticket->start_at_ns - now_ns);
        return a;
    }
    /* What it took for itself would now be in its own way. */
    if (ticket->probe)
        spw_breaker_probe_back(map, v.words, ticket->epoch, now_ns);
    if (ticket->refresh)
        spw_gate_refresh_back(map, v.words, &v.conf, ticket->taken_ns, now_ns);
    ticket->probe = ticket->refresh = false;
    ticket->taken_ns = now_ns;
    uint64_t wait_ns = 0;
    a.may_call = (ticket->start_at_ns == 0 || spw__take_tokens(&v, &wait_ns, &a, ticket)) &&
                 spw__admit_state(&v, true, &a, ticket);
    ticket->start_at_ns = 0;
    if (!a.may_call) {
        spw_abandon(map, ticket, now_ns);
        spw_stat_count(map, v.index, spw__stat_of(a.cause));
    }
    return a;
}

/* How a call ended, as far as the limits care. */
struct spw_call_end {
    enum spw_outcome outcome;
    bool gate_shut;         /* the answer asks for a pause: */
    uint64_t gate_until_ns; /* ... until then (CLOCK_BOOTTIME) */
    uint32_t gate_source;   /* enum spw_gate_source */
    bool gate_open;         /* the answer shows that calls are accepted */
};

/* End a call: permit back, breaker and gate told. true when this changed the breaker's state. */
static inline bool spw_settle(const struct spw_map *map, const struct spw_ticket *ticket, uint64_t now_ns,
                              const struct spw_call_end *end)
{
    struct spw__account_view v;
    if (!spw__ticket_open(map, ticket, now_ns, &v))
        return false;
    if (ticket->has_permit && spw_permit_mine(map, ticket->permit_word))
        spw_permit_release(map, ticket->permit_index, ticket->permit_word);
    bool changed = false;
    /* SYNC forced: relaxed: a lone word. */
    if (end->outcome == SPW_OUTCOME_NEUTRAL && ticket->probe)
        spw_breaker_probe_back(map, v.words, ticket->epoch, now_ns);
    else if (spw_load_rlx(&v.account->forced) != SPW_FORCED_DISABLED)
        changed = spw_breaker_outcome(map, v.words, &v.conf, now_ns, ticket->epoch, end->outcome);
    if (end->gate_shut)
        spw_gate_shut(map, v.words, end->gate_until_ns, end->gate_source, ticket->taken_ns, now_ns);
    else if (end->gate_open)
        spw_gate_open(map, v.words, ticket->taken_ns, now_ns, ticket->refresh);
    else if (end->outcome == SPW_OUTCOME_NEUTRAL && ticket->refresh)
        spw_gate_refresh_back(map, v.words, &v.conf, ticket->taken_ns, now_ns);
    return changed;
}

#ifdef __cplusplus
}
#endif

#endif
