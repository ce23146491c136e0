/* decide.h: the one decision tree behind every door: live, fallback, rejected, or none.
 *
 * Owns: quotes in progress, the providers' HTTP clients and credentials in use. Called by: quote_door.c,
 * metrics.c (counters). Thread: the loop thread.
 *
 * A started quote ends in exactly one call of its done function, possibly before spw_decider_start returns. A fallback
 * is told only after its flag is recorded.
 *
 * Identical quotes whose call is in flight share it; each keeps its own decision, deadline and flag, and who hangs up
 * takes nothing from the others. An identical cart within the account's `reuse` gets the live answer again under a
 * quote id of its own; a fallback is never reused, so that every one delivered has its flag and the provider is asked
 * again as soon as it may be. The same decision id with the same content gets the very same answer, quote id and flag
 * included, for ten minutes, and after a restart from the ledger.
 */
#ifndef SPW_HTTP_DECIDE_H
#define SPW_HTTP_DECIDE_H

#include "shm/spw_admission.h"
#include "shm/spw_fallback.h"
#include "sidecar/conf/conf.h"
#include "sidecar/loop/loop.h"
#include "sidecar/provider/provider.h"
#include "sidecar/state/state.h"
#include "sidecar/store/store.h"

struct spw_decider;
struct spw_http_response;
struct spw_trace;
struct spw_job; /* one quote in progress */

struct spw_result {
    enum spw_decision decision;
    enum spw_fallback type;
    enum spw_cause cause;
    bool reused; /* the live answer of an identical cart */
    char quote_id[SPW_ID_BYTES];
    char decision_id[SPW_CALLER_ID_BYTES];
    char quote_ref[SPW_CALLER_ID_BYTES];
    char account[SPW_NAME_BYTES];
    int64_t decided_unix_ms;
    int64_t tax_minor;
    const struct spw_line_tax *lines; /* lines, then shipping; NULL unless live or fallback */
    uint32_t lines_count;
    const struct spw_quote_request *request;
    /* live and rejected */
    const struct spw_answer *answer;
    const struct spw_http_response *native; /* as the provider sent it; only for a quote asked in its form */
    const char *provider;                   /* the profile's name */
    uint32_t provider_status;               /* 0 = no answer */
    uint32_t attempts;
    uint64_t provider_ms; /* time spent on calls */
    /* fallback */
    const struct spw_fallback_answer *fallback;
    char flag_id[SPW_ID_BYTES]; /* "" when the flag was handed back */
    const char *handback;       /* the flag's line for the caller to store; NULL otherwise */
    uint64_t live_again_in_ms;  /* when asking again may be worth it */
    /* none */
    const char *reason;
};
typedef void spw_decided_fn(void *owner, const struct spw_result *result); /* result valid in the call */

struct spw_decider_options {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    const struct spw_conf *conf;
};

enum spw_status spw_decider_new(const struct spw_decider_options *options, struct spw_decider **out,
                                struct spw_error *err) SPW_WARN_UNUSED;
void spw_decider_destroy(struct spw_decider *decider); /* no job may be in progress */
/* A reload. Begin: the accounts that fresh adds lie in the configuration in use behind those it counts; all or none of
 * them are opened. Then undo, or, when they have been counted, end: credentials are looked for anew. */
enum spw_status spw_decider_reload_begin(struct spw_decider *decider, const struct spw_conf *fresh,
                                         struct spw_error *err) SPW_WARN_UNUSED;
void spw_decider_reload_undo(struct spw_decider *decider, const struct spw_conf *fresh);
void spw_decider_reload_end(struct spw_decider *decider);

/* What a door asks. Everything is borrowed until done. */
struct spw_ask {
    const struct spw_quote_request *quote;
    const struct spw_native_request
        *native;  /* the provider's own form, passed on as it is; NULL = made here */
    bool records; /* the call also puts the sale into the provider's books */
    /* The caller's, with quote alone (native has it among its headers); NULL = none. Copied. */
    const struct spw_trace *trace;
    uint32_t uid;
    enum spw_fallback force; /* a developer wants to see this fallback; SPW_FALLBACK_NONE = no */
};

/* The value of a header Spillway-Force: a fallback's name, NULL = none. */
enum spw_status spw_force_read(const char *value, enum spw_fallback *out,
                               struct spw_error *err) SPW_WARN_UNUSED;

/* NOT_FOUND: no such account or integration; INVALID: what the provider's profile
 * cannot express (the caller's fault); REFUSED: a fallback was forced where the account does not allow it. They name the
 * place and call done never. */
enum spw_status spw_decider_start(struct spw_decider *decider, const struct spw_ask *ask,
                                  spw_decided_fn *done, void *owner, struct spw_job **out,
                                  struct spw_error *err) SPW_WARN_UNUSED;
/* The caller has gone: no done, no flag; the provider call is given up when nobody else waits for it. */
void spw_job_cancel(struct spw_job *job);
uint32_t spw_decider_jobs_count(const struct spw_decider *decider);

/* Decisions still remembered under a quote, decision or flag id or the caller's reference; newest first. Those that are
 * older, or were made before the last start, are in the ledger if they were fallbacks. */
typedef bool spw_decision_fn(void *owner, const struct spw_result *result); /* false = stop */
void spw_decider_find(struct spw_decider *decider, const char *reference, spw_decision_fn *fn, void *owner);

/* What happened, for metrics; by account name. */
enum spw_call_result {
    SPW_CALL_OK,
    SPW_CALL_THROTTLED,
    SPW_CALL_REJECTED,
    SPW_CALL_ERROR,
    SPW_CALL_BROKEN,
    SPW_CALL_TIMEOUT,
    SPW_CALL_CONNECT,
    SPW_CALL_RESULTS
};
#define SPW_LATENCY_BUCKETS 12
struct spw_decider_counters {
    uint64_t decisions[SPW_DECISION_COUNT];
    uint64_t fallbacks[SPW_FALLBACK_COUNT];
    uint64_t matches[SPW_MATCH_COUNT]; /* of fallbacks */
    uint64_t calls[SPW_CALL_RESULTS];
    uint64_t retries;
    uint64_t joined;         /* quotes that shared a call in flight */
    uint64_t repeated;       /* decisions told again to who asked again */
    uint64_t reused;         /* quotes answered by an identical cart's live answer */
    uint64_t unexpected_429; /* while the local bucket still held tokens: somebody else uses the account */
    uint64_t latency[SPW_DECISION_COUNT][SPW_LATENCY_BUCKETS + 1];
    uint64_t latency_sum_us[SPW_DECISION_COUNT];
};
extern const double spw_latency_bounds_s[SPW_LATENCY_BUCKETS];
const struct spw_decider_counters *spw_decider_counters(const struct spw_decider *decider,
                                                        const char *account);

#endif
