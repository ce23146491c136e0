/* engine.c: what a pod's limits decide, on a clock that only moves when told to.
 *
 * Owns, called by, thread: see engine.h.
 *
 * One segment holds so many accounts; a configuration with more is spread over several. All of them begin with the
 * first event: buckets full, breakers closed, gates open.
 */
#include "sidecar/replay/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "shm/spw_backoff.h"
#include "shm/spw_ref.h"
#include "sidecar/provider/signals.h"
#include "sidecar/replay/calls.h"
#include "sidecar/replay/change.h"

/* A bucket's units last for ten years; see shm/spw_gcra.h. */
#define LIFE_NS    (UINT64_C(3750) * 86400 * UINT64_C(1000000000))
#define NS_PER_MS  UINT64_C(1000000)
#define SLOTS      8u /* the least a segment may have of what a replay does not use */
#define CELLS      64u
#define RATE_ROWS  1024u
#define BUCKETS_OF 2u /* name table: places for each name */

/* What one segment holds. */
struct group {
    struct spw_conf conf; /* a window on the whole one's accounts */
    struct spw_state *state;
};

struct account {
    const struct spw_conf_account *conf;
    struct group *group;
    struct spw_ref *refs; /* one for each integration */
};

struct spw_replay {
    const struct spw_conf *conf;
    struct group *groups;
    uint32_t groups_count;
    struct account *accounts;
    uint32_t *names; /* hash table: place + 1 in accounts, 0 = free */
    uint32_t names_mask;
    struct spw_replay_calls calls;
    bool begun;
    uint64_t
        shift_ns; /* the segments' clock less the virtual one: theirs is UTC as the epoch has it, and a second */
    uint64_t first_at_ns, at_ns;
    int64_t wall_of_0_ms; /* wall clock when the virtual one is 0 */
    uint64_t random;      /* state of the jitter: the same in every replay */
    char id[SPW_REPLAY_ID_BYTES];
};

/* Where the clocks stand; begun: and the segments are there. */
struct clock {
    uint64_t at_ns;
    int64_t wall_of_0_ms;
    bool begun;
};

static uint64_t now_of(const struct spw_replay *r)
{
    return r->at_ns + r->shift_ns;
}

/* ---- life ---- */

/* How many accounts from `first` on fit into one segment. */
static uint32_t fitting(const struct spw_conf *conf, uint32_t first)
{
    uint32_t n = 0, integrations = 0;
    while (first + n < conf->accounts_count && n < SPW_CONF_ACCOUNTS_MAX_COUNT) {
        integrations += conf->accounts[first + n].integrations_count;
        if (integrations > SPW_CONF_INTEGRATIONS_MAX_COUNT)
            break;
        n++;
    }
    return n;
}

static bool make_groups(struct spw_replay *r)
{
    const struct spw_conf *conf = r->conf;
    for (uint32_t first = 0; first < conf->accounts_count; first += fitting(conf, first))
        r->groups_count++;
    r->groups = calloc(r->groups_count, sizeof r->groups[0]);
    if (!r->groups)
        return false;
    uint32_t first = 0;
    for (uint32_t g = 0; g < r->groups_count; g++) {
        struct group *group = &r->groups[g];
        group->conf = *conf;
        group->conf.accounts = conf->accounts + first;
        group->conf.accounts_count = fitting(conf, first);
        group->conf.segment.slots_count = SLOTS;
        group->conf.segment.cells_count = CELLS;
        group->conf.segment.rate_records_count = RATE_ROWS;
        for (uint32_t i = 0; i < group->conf.accounts_count; i++)
            r->accounts[first + i].group = group;
        first += group->conf.accounts_count;
    }
    return true;
}

static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash ^ hash >> 15;
}

static bool make_names(struct spw_replay *r)
{
    uint32_t room = 2;
    while (room < r->conf->accounts_count * BUCKETS_OF)
        room *= 2;
    r->names = calloc(room, sizeof r->names[0]);
    if (!r->names)
        return false;
    r->names_mask = room - 1;
    for (uint32_t i = 0; i < r->conf->accounts_count; i++) {
        uint32_t at = name_hash(r->conf->accounts[i].name) & r->names_mask;
        while (r->names[at])
            at = (at + 1) & r->names_mask;
        r->names[at] = i + 1;
    }
    return true;
}

static bool make_accounts(struct spw_replay *r)
{
    r->accounts = calloc(r->conf->accounts_count, sizeof r->accounts[0]);
    for (uint32_t i = 0; r->accounts && i < r->conf->accounts_count; i++) {
        struct account *a = &r->accounts[i];
        a->conf = &r->conf->accounts[i];
        a->refs = calloc(a->conf->integrations_count, sizeof a->refs[0]);
        if (!a->refs)
            return false;
        for (uint32_t k = 0; k < a->conf->integrations_count; k++)
            spw_ref_init(&a->refs[k], a->conf->name, a->conf->integrations[k].name);
    }
    return r->accounts != NULL;
}

static void close_segments(struct spw_replay *r)
{
    for (uint32_t g = 0; r->groups && g < r->groups_count; g++) {
        spw_state_close(r->groups[g].state, false);
        r->groups[g].state = NULL;
    }
    r->begun = false;
}

/* The first event: now the segments are made. */
static enum spw_status begin(struct spw_replay *r, uint64_t at_ns, struct spw_error *err)
{
    for (uint32_t g = 0; g < r->groups_count; g++) {
        enum spw_status status =
            spw_state_open_private(&r->groups[g].conf, at_ns + r->shift_ns, &r->groups[g].state, err);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < r->conf->accounts_count; i++) {
        const struct spw_map *map = spw_state_map(r->accounts[i].group->state);
        for (uint32_t k = 0; k < r->accounts[i].conf->integrations_count; k++)
            if (!spw__ref_find(map, &r->accounts[i].refs[k]))
                return spw_error_set(err, SPW_STATUS_NOT_FOUND, "account %s has no place in its segment",
                                     r->accounts[i].conf->name);
    }
    r->first_at_ns = at_ns;
    r->begun = true;
    return SPW_STATUS_OK;
}

enum spw_status spw_replay_new(const struct spw_conf *conf, int64_t epoch_ms, struct spw_replay **out,
                               struct spw_error *err)
{
    struct spw_replay *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r) {
        r->conf = conf;
        r->wall_of_0_ms = epoch_ms;
        r->shift_ns = SPW_STATE_PRIVATE_EPOCH_NS + (uint64_t)epoch_ms * NS_PER_MS;
        r->random = 1;
    }
    if (!r || !make_accounts(r) || !make_groups(r) || !make_names(r)) {
        spw_replay_destroy(r);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory: raise the memory limit");
    }
    enum spw_status status = spw_replay_calls_init(&r->calls, conf->accounts_count, err);
    if (status) {
        spw_replay_destroy(r);
        return status;
    }
    *out = r;
    return SPW_STATUS_OK;
}

void spw_replay_destroy(struct spw_replay *r)
{
    if (!r)
        return;
    close_segments(r);
    for (uint32_t i = 0; r->accounts && i < r->conf->accounts_count; i++)
        free(r->accounts[i].refs);
    spw_replay_calls_clean_up(&r->calls);
    free(r->groups);
    free(r->accounts);
    free(r->names);
    free(r);
}

uint32_t spw_replay_accounts_count(const struct spw_replay *r)
{
    return r->conf->accounts_count;
}

const char *spw_replay_account_name(const struct spw_replay *r, uint32_t account)
{
    return r->conf->accounts[account].name;
}

uint32_t spw_replay_account_deadline_ms(const struct spw_replay *r, uint32_t account)
{
    return r->conf->accounts[account].deadline_ms;
}

/* ---- who and when ---- */

static enum spw_status find_account(struct spw_replay *r, const char *name, struct account **out,
                                    struct spw_error *err)
{
    *out = NULL;
    if (!name && r->conf->accounts_count == 1)
        *out = &r->accounts[0];
    if (!name)
        return SPW_STATUS_OK;
    for (uint32_t at = name_hash(name) & r->names_mask; r->names[at] && !*out;
         at = (at + 1) & r->names_mask) {
        if (strcmp(r->conf->accounts[r->names[at] - 1].name, name) == 0)
            *out = &r->accounts[r->names[at] - 1];
    }
    return *out ? SPW_STATUS_OK
                : spw_error_set(err, SPW_STATUS_NOT_FOUND,
                                "account: there is no account \"%.60s\" in the configuration: add it to "
                                "accounts, or correct the name",
                                name);
}

static enum spw_status find_ref(struct account *a, const char *integration, struct spw_ref **out,
                                struct spw_error *err)
{
    *out = &a->refs[0];
    for (uint32_t k = 0; integration && k < a->conf->integrations_count; k++) {
        *out = &a->refs[k];
        if (strcmp(a->conf->integrations[k].name, integration) == 0)
            return SPW_STATUS_OK;
    }
    return integration ? spw_error_set(err, SPW_STATUS_NOT_FOUND,
                                       "integration: account %s has no integration \"%.60s\"; add it to "
                                       "accounts.%s.integrations",
                                       a->conf->name, integration, a->conf->name)
                       : SPW_STATUS_OK;
}

static enum spw_status move_clock(struct spw_replay *r, const struct spw_replay_event *e,
                                  struct spw_error *err)
{
    uint64_t at_ns = e->has_at ? e->at_ns : r->at_ns;
    if (e->op == SPW_REPLAY_ADVANCE && e->has_by)
        at_ns += e->by_ns;
    if (at_ns > SPW_REPLAY_AT_MAX_NS || at_ns + r->shift_ns > 2 * SPW_REPLAY_AT_MAX_NS)
        return spw_error_set(err, SPW_STATUS_INVALID, "at: is beyond the year 2255: write seconds");
    if (r->begun && at_ns > r->first_at_ns + LIFE_NS)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "at: is more than 3750 days after the first event, which is as long as a bucket's "
            "count is exact: begin another replay");
    if (!r->begun) {
        enum spw_status status = begin(r, at_ns, err);
        if (status)
            return status;
    }
    r->at_ns = at_ns;
    if (e->has_wall)
        r->wall_of_0_ms = e->wall_ms - (int64_t)(at_ns / NS_PER_MS);
    return SPW_STATUS_OK;
}

/* ---- what is seen afterwards ---- */

/* Tokens in hand in the tightest limiter that applies and is on. */
static void see_tokens(const struct spw_map *map, const struct spw_ref *ref, uint64_t now_ns,
                       struct spw_replay_result *out)
{
    const struct spw_account *record = ref->record;
    uint32_t skipped = spw_ref_flags(ref) >> 8;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < record->limiters_count && i < SPW_LIMITERS_PER_ACCOUNT; i++) {
        const struct spw_limiter *limiter = spw_limiter_at(map, record->limiters[i]);
        struct spw_limiter_words *words = spw_limiter_words_at(map, record->limiters[i]);
        if (!limiter || !words || (skipped >> i & 1) ||
            ((limiter->switches | record->switches | spw_map_pub(map)->switches) & SPW_SWITCH_KILL))
            continue;
        struct spw_bucket_answer look = spw_bucket_take(limiter, words, now_ns, 0, false, 0, false);
        struct spw_admission seen = {.available_units = look.available_units,
                                     .units_per_token = look.units_per_token};
        uint64_t milli = spw_admission_tokens_milli(&seen);
        least = milli < least ? milli : least;
    }
    out->remaining_known = least != UINT64_MAX;
    out->remaining_milli = out->remaining_known ? least : 0;
}

static void see_account(const struct spw_replay *r, const struct account *a, const struct spw_ref *ref,
                        struct spw_replay_result *out)
{
    static const char *const state_names[] = {"closed", "open", "half-open", "unknown"};
    static const char *const forced_names[] = {"", "open", "closed", "disabled", "observe"};
    const struct spw_map *map = spw_state_map(a->group->state);
    const struct spw_account *record = a->refs[0].record;
    const struct spw_account_words *words = a->refs[0].words;
    uint64_t now_ns = now_of(r), now_ms = spw_map_ms(map, now_ns);
    uint64_t gate = words->gate, until_ms = spw_gate_until_ms(gate);
    out->account = a->conf->name;
    out->account_index = (uint32_t)(a - r->accounts);
    out->breaker = state_names[spw_breaker_unpack(words->breaker).state];
    out->forced = forced_names[record->forced % 5];
    if (record->forced == SPW_FORCED_OPEN)
        out->breaker = state_names[SPW_BREAKER_OPEN];
    else if (record->forced == SPW_FORCED_CLOSED || record->forced == SPW_FORCED_DISABLED)
        out->breaker = state_names[SPW_BREAKER_CLOSED];
    out->gate_shut = gate != 0 && until_ms > now_ms && until_ms <= now_ms + SPW__GATE_AHEAD_MS;
    if (out->gate_shut)
        out->gate_until_ns = spw_map_ns_of_ms(map, until_ms) - r->shift_ns;
    out->open_count = r->calls.accounts[out->account_index].count;
    see_tokens(map, ref, now_ns, out);
}

/* ---- the operations ---- */

/* The caller's and the calls' texts go; the result's stands until the next event. */
static const char *keep_id(struct spw_replay *r, const char *id)
{
    snprintf(r->id, sizeof r->id, "%.*s", (int)sizeof r->id - 1, id);
    return r->id;
}

static void put_admission(const struct spw_replay *r, const struct spw_admission *a,
                          struct spw_replay_result *out)
{
    out->allowed = a->may_call;
    out->verdict = a->may_call ? "allow" : "deny";
    out->cause = a->may_call ? SPW_CAUSE_NONE : a->cause;
    out->type = a->may_call ? SPW_FALLBACK_NONE : spw_refusal_type(a->cause);
    out->observed = a->observed;
    out->has_start = a->may_call && a->start_at_ns != 0;
    out->start_at_ns = out->has_start ? a->start_at_ns - r->shift_ns : 0;
    out->wait_ns = !a->may_call ? a->wait_ns : out->has_start ? a->start_at_ns - now_of(r) : 0;
    if (!a->may_call && a->verdict == SPW_NEVER)
        out->wait_ns = SPW_FOREVER_NS;
}

static enum spw_status acquire(struct spw_replay *r, struct account *a, struct spw_ref *ref,
                               const struct spw_replay_event *e, const char *id,
                               struct spw_replay_result *out, struct spw_error *err)
{
    struct spw_ticket ticket;
    struct spw_admission admission;
    const struct spw_map *map = spw_state_map(a->group->state);
    bool peek = e->op == SPW_REPLAY_PEEK;
    uint32_t flags = (peek ? SPW_ACQUIRE_PEEK : 0u) | (e->retry ? SPW_ACQUIRE_RETRY : 0u);
    /* One process is not all of the pod: the share a process may have of the permits is not asked about. */
    bool by_ref = flags == 0 && ref->record->permits_count == 0;
    if (by_ref)
        admission = spw_ref_admit(map, ref, e->cost, e->max_wait_ns, now_of(r), &ticket);
    else
        admission = spw_admit(map, ref->account_index, ref->account_generation, flags | spw_ref_flags(ref),
                              e->cost, e->max_wait_ns, now_of(r), &ticket);
    if (admission.verdict == SPW_NOT_ATTACHED || admission.verdict == SPW_BAD_HANDLE)
        return spw_error_set(err, SPW_STATUS_CORRUPT, "account %s: its segment is damaged", a->conf->name);
    put_admission(r, &admission, out);
    out->cost = e->cost;
    if (e->retry && !out->allowed) { /* as the decision tree says it: the first attempt met a 429 */
        out->type = SPW_FALLBACK_RATE_LIMIT_429;
        out->cause = SPW_CAUSE_RETRY_NO_TOKEN;
    }
    if (peek)
        return SPW_STATUS_OK;
    out->id = keep_id(r, id);
    if (!admission.may_call)
        return SPW_STATUS_OK;
    struct spw_replay_call *call =
        spw_replay_calls_add(&r->calls, id, (uint32_t)(a - r->accounts), now_of(r));
    if (!call)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory: raise the memory limit");
    call->ticket = ticket;
    call->retry = e->retry;
    call->tries = e->retry ? e->tries : 0;
    call->start_at_ns = admission.start_at_ns;
    call->expires_ns = now_of(r) + (a->conf->deadline_ms + UINT64_C(1000)) * NS_PER_MS;
    out->probe = ticket.probe;
    return SPW_STATUS_OK;
}

/* The call an event means: by its id, else the account's oldest. */
static struct spw_replay_call *named_call(struct spw_replay *r, const struct account *a,
                                          const struct spw_replay_event *e)
{
    return e->has_id ? spw_replay_calls_find(&r->calls, e->id)
                     : spw_replay_calls_oldest(&r->calls, (uint32_t)(a - r->accounts));
}

static void not_open(struct spw_replay *r, const struct spw_replay_event *e, struct spw_replay_result *out)
{
    out->verdict = "not-open";
    out->id = e->has_id ? keep_id(r, e->id) : NULL;
}

/* Without having begun it is given up: tokens back. Afterwards it was a call that says nothing of the provider. */
static void release(struct spw_replay *r, struct account *a, const struct spw_replay_event *e,
                    struct spw_replay_result *out)
{
    const struct spw_map *map = spw_state_map(a->group->state);
    struct spw_replay_call *call = named_call(r, a, e);
    struct spw_call_end end = {.outcome = SPW_OUTCOME_NEUTRAL};
    if (!call) {
        not_open(r, e, out);
        return;
    }
    out->id = keep_id(r, call->id);
    out->verdict = call->start_at_ns > now_of(r) ? "given-up" : "released";
    if (call->start_at_ns > now_of(r))
        spw_abandon(map, &call->ticket, now_of(r));
    else
        (void)spw_settle(map, &call->ticket, now_of(r), &end);
    spw_replay_calls_remove(&r->calls, call);
}

/* The start of a reservation: do gate and breaker still let it through? */
static void confirm(struct spw_replay *r, struct account *a, const struct spw_replay_event *e,
                    struct spw_replay_result *out)
{
    struct spw_replay_call *call = named_call(r, a, e);
    if (!call) {
        not_open(r, e, out);
        return;
    }
    struct spw_admission admission = spw_confirm(spw_state_map(a->group->state), &call->ticket, now_of(r));
    out->id = keep_id(r, call->id);
    put_admission(r, &admission, out);
    if (admission.may_call)
        call->start_at_ns = 0;
    else if (call->ticket.generation == 0) /* given back */
        spw_replay_calls_remove(&r->calls, call);
}

/* What the caller of a checkout is told. */
static void put_outcome(const struct spw_replay_event *e, bool retried, enum spw_answer_kind kind,
                        bool timeout, struct spw_replay_result *out)
{
    out->verdict = "fallback";
    if (timeout) {
        out->type = SPW_FALLBACK_PROVIDER_TIMEOUT;
        out->cause = SPW_CAUSE_TIMEOUT;
    } else if (kind == SPW_ANSWER_OK) {
        out->verdict = "live";
    } else if (kind == SPW_ANSWER_REJECTED) {
        out->verdict = "rejected";
    } else if (kind == SPW_ANSWER_THROTTLED || kind == SPW_ANSWER_BUSY) {
        /* A lock on some object (BUSY) is tried again like a rate limit, but was none. */
        out->type = kind == SPW_ANSWER_BUSY ? SPW_FALLBACK_PROVIDER_ERROR : SPW_FALLBACK_RATE_LIMIT_429;
        out->cause = retried ? SPW_CAUSE_RETRY_429 : SPW_CAUSE_NONE;
    } else {
        out->type = SPW_FALLBACK_PROVIDER_ERROR;
        out->cause = e->status >= 500 ? SPW_CAUSE_STATUS_5XX : SPW_CAUSE_BAD_ANSWER;
    }
}

/* By the account's own profile; without a body that shows who refused, by the status alone. */
static enum spw_answer_kind kind_of(const struct account *a, const struct spw_replay_event *e)
{
    const struct spw_profile *profile = spw_profile_find(a->conf->provider);
    struct spw_answer answer;
    if (!profile || (!e->body && e->status != 429))
        return spw_answer_of_status(e->status);
    memset(&answer, 0, sizeof answer);
    profile->judge(NULL, e->status, e->headers ? e->headers : "", e->headers_bytes, e->body ? e->body : "",
                   e->body_bytes, &answer);
    spw_answer_clean_up(&answer);
    return answer.kind;
}

static uint64_t next_random(struct spw_replay *r)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    return r->random * UINT64_C(2685821657736338717);
}

/* How long to wait before this call is tried again: the account's pause, and not before the provider's own wait. */
static uint64_t retry_wait_ns(struct spw_replay *r, const struct account *a, uint32_t tries,
                              const struct spw_call_end *end)
{
    const struct spw_conf_retry *retry = &a->conf->retry;
    uint64_t pause_ns = spw_backoff_ns(retry->jitter, retry->base_ms * NS_PER_MS, retry->most_ms * NS_PER_MS,
                                       tries, next_random(r));
    bool told = end->gate_source == SPW_GATE_RETRY_AFTER || end->gate_source == SPW_GATE_RESET;
    uint64_t gate_ns = told && end->gate_shut ? end->gate_until_ns - now_of(r) : 0;
    return pause_ns > gate_ns ? pause_ns : gate_ns;
}

static void outcome(struct spw_replay *r, struct account *a, const struct spw_replay_event *e,
                    struct spw_replay_result *out)
{
    const struct spw_map *map = spw_state_map(a->group->state);
    struct spw_replay_call *call = named_call(r, a, e);
    struct spw_signals signals;
    struct spw_ticket ticket = {.generation = map->generation, .account_index = a->refs[0].account_index};
    if (!call && e->has_id) {
        not_open(r, e, out);
        return;
    }
    uint64_t now_ns = now_of(r);
    if (call) {
        ticket = call->ticket;
        out->id = keep_id(r, call->id);
    } else { /* of a call that was made without asking: it counts for what the breaker is now */
        ticket.taken_ns = now_ns > e->latency_ns ? now_ns - e->latency_ns : 1;
        ticket.epoch = spw_breaker_unpack(a->refs[0].words->breaker).epoch;
    }
    bool timeout = e->timeout || e->status == 0;
    enum spw_answer_kind kind = timeout ? SPW_ANSWER_ERROR : kind_of(a, e);
    spw_signals_read(spw_answer_outcome(kind, e->status), e->status, timeout ? NULL : e->headers,
                     timeout ? 0 : e->headers_bytes, a->conf,
                     r->wall_of_0_ms + (int64_t)(r->at_ns / NS_PER_MS), now_ns, &signals);
    if (timeout) {
        signals.has_evidence = false;
        signals.end = (struct spw_call_end){.outcome = SPW_OUTCOME_FAILED};
    }
    if (signals.has_evidence)
        spw_state_evidence_set(a->group->state, ticket.account_index, &signals.evidence);
    (void)spw_settle(map, &ticket, now_ns, &signals.end);
    put_outcome(e, call && call->retry, kind, timeout, out);
    if (kind == SPW_ANSWER_THROTTLED || kind == SPW_ANSWER_BUSY)
        out->wait_ns = retry_wait_ns(r, a, call ? call->tries : 0, &signals.end);
    out->latency_ns = e->latency_ns ? e->latency_ns : call ? now_ns - ticket.taken_ns : 0;
    if (call)
        spw_replay_calls_remove(&r->calls, call);
}

static enum spw_status change_all(struct spw_replay *r, const struct spw_replay_change *change,
                                  struct spw_error *err)
{
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t g = 0; g < r->groups_count && !status; g++)
        status = spw_replay_change_all(r->groups[g].state, change, err);
    return status;
}

/* What can be wrong with an event is found before the clock moves. */
static enum spw_status check(struct spw_replay *r, const struct spw_replay_event *e, const char *id,
                             struct account **a, struct spw_ref **ref, struct spw_error *err)
{
    enum spw_status status = find_account(r, e->account, a, err);
    if (status)
        return status;
    if (!*a && e->op == SPW_REPLAY_SET && e->change.everywhere)
        *a = &r->accounts[0]; /* any: it is for all */
    if (!*a)
        return e->op == SPW_REPLAY_ADVANCE
                   ? SPW_STATUS_OK
                   : spw_error_set(err, SPW_STATUS_INVALID,
                                   "account: is missing: name one, since the configuration has %" PRIu32,
                                   r->conf->accounts_count);
    status = find_ref(*a, e->integration, ref, err);
    if (!status)
        (*ref)->endpoint = e->endpoint;
    if (!status && e->op == SPW_REPLAY_ACQUIRE && spw_replay_calls_find(&r->calls, id))
        status =
            spw_error_set(err, SPW_STATUS_INVALID,
                          "id: call %s is open already: release it first, or name this one otherwise", id);
    return status;
}

/* What can be wrong with a change is known only when it is tried: the clock goes back to where it was. */
static enum spw_status set(struct spw_replay *r, const struct account *a, const struct spw_replay_event *e,
                           const struct clock *before, struct spw_replay_result *out, struct spw_error *err)
{
    enum spw_status status =
        e->change.everywhere
            ? change_all(r, &e->change, err)
            : spw_replay_change(a->group->state, a->conf->name, &e->change, now_of(r), &out->version, err);
    out->verdict = "set";
    if (!status)
        return status;
    r->at_ns = before->at_ns;
    r->wall_of_0_ms = before->wall_of_0_ms;
    if (!before->begun)
        close_segments(r);
    return status;
}

enum spw_status spw_replay_do(struct spw_replay *r, const struct spw_replay_event *e, const char *default_id,
                              struct spw_replay_result *out, struct spw_error *err)
{
    struct account *a;
    struct spw_ref *ref = NULL;
    const char *id = e->has_id ? e->id : default_id;
    struct clock before = {r->at_ns, r->wall_of_0_ms, r->begun};
    memset(out, 0, sizeof *out);
    out->op = e->op;
    out->forced = "";
    enum spw_status status = check(r, e, id, &a, &ref, err);
    if (!status)
        status = move_clock(r, e, err);
    if (status)
        return status;
    out->at_ns = r->at_ns;
    if (e->op == SPW_REPLAY_ADVANCE || !a)
        out->verdict = "advanced";
    if (!a)
        return SPW_STATUS_OK;
    switch (e->op) {
    case SPW_REPLAY_ACQUIRE:
    case SPW_REPLAY_PEEK:
        status = acquire(r, a, ref, e, id, out, err);
        break;
    case SPW_REPLAY_CONFIRM:
        confirm(r, a, e, out);
        break;
    case SPW_REPLAY_RELEASE:
        release(r, a, e, out);
        break;
    case SPW_REPLAY_OUTCOME:
        outcome(r, a, e, out);
        break;
    case SPW_REPLAY_SET:
        status = set(r, a, e, &before, out, err);
        break;
    default:
        break;
    }
    if (!status)
        see_account(r, a, ref, out);
    return status;
}
