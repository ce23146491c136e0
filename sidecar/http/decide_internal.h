/* decide_internal.h: what the files of the decision tree share: accounts, jobs, flights.
 *
 * Owns: nothing. Called by: decide.c (the tree), job.c (the end of a quote), flight.c (a provider call). Thread: the
 * loop thread.
 *
 *   job     one caller's quote: its decision, deadline and flag
 *   flight  one provider call with its retry, which one or more jobs wait for
 */
#ifndef SPW_HTTP_DECIDE_INTERNAL_H
#define SPW_HTTP_DECIDE_INTERNAL_H

#include "sidecar/http/client.h"
#include "sidecar/http/decide.h"
#include "sidecar/http/outgoing.h"
#include "sidecar/http/reuse.h"
#include "sidecar/http/secret.h"

/* An account as the tree uses it. */
struct spw_account_use {
    const struct spw_conf_account *conf;
    const struct spw_profile *profile;
    struct spw_http_client *client;
    struct spw_secret user, secret, proxy_secret;
    struct spw_flight *flights;
    struct spw_decider_counters counters;
};

struct spw_decider {
    struct spw_decider_options options;
    struct spw_map *map;
    struct spw_account_use accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    struct spw_key_maker keys;
    struct spw_reuse *carts;     /* live answers by cart */
    struct spw_reuse *decisions; /* live and fallback answers by decision */
    uint64_t started_ns;
    bool has_past; /* the ledger held flags at start */
    uint32_t jobs_count;
    struct spw_job *spare_jobs; /* ended ones, used again: both are large, and the allocator slow with such */
    struct spw_flight *spare_flights;
    uint32_t spare_jobs_count, spare_flights_count;
    uint64_t id_high, id_low;
    uint64_t random;
    char text[SPW_REQUEST_MAX_BYTES]; /* a request being written; large, so not allocated for each */
};

struct spw_job {
    struct spw_decider *decider;
    struct spw_account_use *account;
    struct spw_quote_request request; /* with what was left out filled in */
    uint32_t account_index, account_generation;
    bool batch;
    uint32_t acquire_flags; /* SPW_ACQUIRE_*: the class, and the limiters that do not apply */
    uint32_t uid;
    spw_decided_fn *done;
    void *owner;
    uint64_t started_ns, deadline_ns;
    struct spw_loop_timer deadline;
    struct spw_flight *flight;
    struct spw_job *next; /* among those of the flight */
    struct spw_key cart_key, decision_key;
    bool has_decision_key;
    bool looked;                    /* the ledger was asked */
    bool is_native;                 /* asked in the provider's own form */
    bool records;                   /* its call puts the sale into the books */
    bool in_flight_at_end;          /* its deadline passed while a call was under way */
    struct spw_admission admission; /* the flight's, or the refusal */
    struct spw_trace trace;
    char *handback;
    struct spw_result result;
    /* Last, and not cleared for the next use: a fallback writes all of it that it tells. */
    struct spw_fallback_answer fallback;
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
};

struct spw_flight {
    struct spw_decider *decider;
    struct spw_account_use *account;
    struct spw_flight *next, **link; /* among the account's; link = what points to this one */
    struct spw_job *jobs;
    struct spw_key key;
    const struct spw_route *route; /* asked in the provider's own form; NULL = made by the profile */
    bool may_be_joined;
    bool batch;
    uint32_t acquire_flags; /* of the job that began it */
    bool holds_ticket;
    uint32_t account_index, account_generation;
    uint64_t started_ns, sent_ns;
    enum spw_fallback retry_type; /* what it is called when the retry comes to nothing */
    struct spw_trace trace;       /* of the job that began it */
    struct spw_http_call *in_flight;
    struct spw_loop_timer timer; /* a reservation's start, or the retry */
    struct spw_ticket ticket;
    struct spw_admission admission;
    uint32_t provider_status, attempts;
    uint64_t provider_ms;
    /* Last, and not cleared whole for the next use. */
    struct spw_outgoing call;
    struct spw_answer answer;
};

/* Spare jobs and flights that are kept at most. */
#define SPW_SPARES_MAX_COUNT 64u

static inline uint64_t spw_decider_now(const struct spw_decider *d)
{
    return spw_loop_now_ns(d->options.loop);
}
void spw_decider_new_id(struct spw_decider *d, char out[SPW_ID_BYTES], const char *prefix);
uint64_t spw_decider_random(struct spw_decider *d);

struct spw_account_use *spw_decider_account(struct spw_decider *d, const char *name);
/* How an account's provider is reached: authorities, proxy, connections. */
void spw_account_http_options(struct spw_account_use *account, struct spw_http_client_options *out);
/* false: there is no credential now, which the log has been told. */
bool spw_account_credential(struct spw_account_use *account, uint64_t now_ns, struct spw_credential *out);

/* ---- settle.c: the end of one provider call, as far as limits, breaker, evidence and counters care ---- */

/* A refusal for too many at once is told with how many there were: the limit to mend is concurrency, not the rate. It is
 * not lowered by itself, as no limit is unless the configuration says so. */
void spw_call_note_throttle(const struct spw_account_use *account, const struct spw_answer *answer);
enum spw_call_result spw_call_result_of(const struct spw_http_response *response, enum spw_answer_kind kind);
/* end->outcome says how the call ended; the rest of *end is filled from the answer. */
void spw_call_settle(struct spw_decider *d, struct spw_account_use *account, const struct spw_ticket *ticket,
                     uint32_t acquire_flags, const struct spw_admission *admission,
                     const struct spw_http_response *response, enum spw_call_result result,
                     struct spw_call_end *end);

/* ---- job.c: the end of a quote. Each frees the job after its done function. ---- */

void spw_job_live(struct spw_job *job, const struct spw_answer *answer,
                  const struct spw_http_response *native);
void spw_job_rejected(struct spw_job *job, const struct spw_answer *answer,
                      const struct spw_http_response *native);
void spw_job_fall_back(struct spw_job *job, enum spw_fallback type, enum spw_cause cause);
/* A kept answer: of this very decision, or of an identical cart. */
void spw_job_repeat(struct spw_job *job, const struct spw_result *kept);
void spw_job_reuse(struct spw_job *job, const struct spw_result *kept);
/* The normalised request, which is what a flag keeps, in the decider's text until that is written again. Its bytes, 0 when
 * it is longer than a flag can keep. */
size_t spw_job_request_json(const struct spw_job *job);
/* NULL without memory. */
struct spw_job *spw_job_new(struct spw_decider *d);
void spw_job_free(struct spw_job *job);
/* Was this decision made before? Then the job is over. */
bool spw_job_repeated(struct spw_job *job);

/* ---- flight.c: a provider call ---- */

/* The spare ones; none may be under way. */
void spw_flights_clean_up(struct spw_decider *d);
/* The flight that an identical quote may wait for; NULL = none. */
struct spw_flight *spw_flight_find(const struct spw_job *job);
void spw_flight_join(struct spw_flight *flight, struct spw_job *job);
/* Ask for admission and call. Takes `call` over. route: of a request in the provider's own form. The job may be over
 * when this returns. */
void spw_flight_start(struct spw_job *job, struct spw_outgoing *call, const struct spw_route *route);
/* A job no longer waits: at its deadline (true) or because its caller hung up. */
void spw_flight_leave(struct spw_job *job, bool late);

#endif
