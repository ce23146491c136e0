/* decide.c: the decision tree.
 *
 *   start ── admit ──refused──────────────────────────────────────────────> fallback (proactive, breaker)
 *               └─> call under the deadline ──2xx──────────────────────────> live
 *                        │ 4xx of the caller's own making ─────────────────> rejected
 *                        │ 429 ── one retry, jittered, if it fits and finds a token ── call ...
 *                        │      └───────────────────────────────────────────> fallback (429)
 *                        └ timeout, 5xx, broken ────────────────────────────> fallback (timeout, error)
 *   fallback ── cached rate ── flag recorded ── told;  no rate known ──> none
 *
 * Owns, called by, thread: see decide.h.
 */
#include "sidecar/http/decide.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shm/spw_flag.h"
#include "sidecar/http/client.h"
#include "sidecar/http/secret.h"
#include "sidecar/obs/log.h"
#include "sidecar/provider/signals.h"

/* The wait before the one retry: a second, give or take 30 %, so that callers refused together do not come back
 * together. */
#define RETRY_BASE_MS   1000u
#define RETRY_JITTER_MS 300u
#define RETRY_ROOM_MS   100u /* what must be left for the second call to have a chance */

const double spw_latency_bounds_s[SPW_LATENCY_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                          0.1,   0.25,   0.5,   1,    1.8,   2.5};

/* An account as the tree uses it. */
struct account {
    const struct spw_conf_account *conf;
    const struct spw_profile *profile;
    struct spw_http_client *client;
    struct spw_secret user, secret;
    struct spw_decider_counters counters;
};

struct spw_decider {
    struct spw_decider_options options;
    struct spw_map *map;
    struct account accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    uint32_t jobs_count;
    uint64_t id_high, id_low;
    uint64_t random;
};

struct spw_job {
    struct spw_decider *decider;
    struct account *account;
    const struct spw_quote_request *asked; /* the caller's, borrowed */
    struct spw_quote_request request;      /* the same with what was left out filled in */
    char *request_json;
    size_t request_bytes;
    uint32_t account_index, account_generation;
    bool batch;
    uint32_t uid;
    spw_decided_fn *done;
    void *owner;
    uint64_t started_ns, deadline_ns;
    struct spw_call call;
    struct spw_http_call *in_flight;
    struct spw_loop_timer retry_timer;
    struct spw_ticket ticket;
    struct spw_admission admission;
    struct spw_answer answer;
    struct spw_fallback_answer fallback;
    struct spw_line_tax *lines;
    char *handback;
    struct spw_result result;
};

/* xorshift64*: jitter needs spread, not secrecy. */
static uint64_t next_random(struct spw_decider *d)
{
    d->random ^= d->random >> 12;
    d->random ^= d->random << 25;
    d->random ^= d->random >> 27;
    return d->random * UINT64_C(2685821657736338717);
}

static uint64_t now_of(const struct spw_job *job)
{
    return spw_loop_now_ns(job->decider->options.loop);
}

/* ---- the end of a job ---- */

static void job_free(struct spw_job *job)
{
    spw_loop_timer_cancel(job->decider->options.loop, &job->retry_timer);
    spw_call_clean_up(&job->call);
    spw_answer_clean_up(&job->answer);
    free(job->request_json);
    free(job->lines);
    free(job->handback);
    job->decider->jobs_count--;
    free(job);
}

static void count_latency(struct spw_decider_counters *c, enum spw_decision decision, uint64_t took_ns)
{
    uint32_t bucket = 0;
    while (bucket < SPW_LATENCY_BUCKETS && (double)took_ns / 1e9 > spw_latency_bounds_s[bucket])
        bucket++;
    c->latency[decision][bucket]++;
    c->latency_sum_us[decision] += took_ns / 1000;
}

static void finish(struct spw_job *job, enum spw_decision decision)
{
    struct spw_result *r = &job->result;
    struct spw_decider_counters *c = &job->account->counters;
    r->decision = decision;
    r->request = &job->request;
    r->provider = job->account->profile->name;
    if (decision != SPW_DECISION_FALLBACK && decision != SPW_DECISION_NONE)
        r->type = SPW_FALLBACK_NONE;
    c->decisions[decision]++;
    if (decision == SPW_DECISION_FALLBACK)
        c->fallbacks[r->type]++;
    if (decision == SPW_DECISION_FALLBACK || decision == SPW_DECISION_NONE)
        spw_state_fallback_count(job->decider->options.state, job->account_index,
                                 decision == SPW_DECISION_NONE ? SPW_FALLBACK_NONE : r->type);
    count_latency(c, decision, spw_now_ns() - job->started_ns);
    job->done(job->owner, r);
    job_free(job);
}

static void new_id(struct spw_decider *d, char out[SPW_ID_BYTES], const char *prefix)
{
    spw_id_make(out, prefix, d->id_high, d->id_low++);
}

/* ---- fallback ---- */

static enum spw_status record_flag(struct spw_job *job, struct spw_flag_record *record)
{
    struct spw_flag_facts f;
    memset(&f, 0, sizeof f);
    f.request = &job->request;
    f.request_json = job->request_json;
    f.request_bytes = job->request_bytes;
    f.answer = &job->fallback;
    f.lines = job->lines;
    f.flag_id = job->result.flag_id;
    f.quote_id = job->result.quote_id;
    f.decision_id = job->result.decision_id;
    f.account_index = job->account_index;
    f.account_generation = job->account_generation;
    f.type = job->result.type;
    f.cause = job->result.cause;
    f.origin = 1;
    f.uid = job->uid;
    f.provider_status = job->result.provider_status;
    f.attempts = job->result.attempts;
    f.breaker_state = job->admission.breaker_state;
    f.tokens_milli = spw_admission_tokens_milli(&job->admission);
    f.config_version = job->admission.version;
    spw_flag_fill(job->decider->map, &f, record);
    enum spw_status status = spw_flag_write(job->decider->map, (uint32_t)job->decider->id_low, record, &f);
    if (status == SPW_STATUS_OK)
        spw_store_wake(job->decider->options.store);
    return status;
}

/* No cell was free: the caller stores the flag itself, or gets no fallback; as configured. */
static void flag_refused(struct spw_job *job, const struct spw_flag_record *record)
{
    size_t room = job->request_bytes + 2048;
    bool hand_back = job->decider->options.conf->on_full == SPW_ON_FULL_HAND_BACK;
    spw_stat_count(job->decider->map, job->account_index, SPW_STAT_FLAG_REFUSED);
    job->handback = hand_back ? malloc(room) : NULL;
    if (!job->handback ||
        !spw_flag_line(record, job->request_json, job->request_bytes, job->handback, room)) {
        job->result.reason = "flag-refused";
        finish(job, SPW_DECISION_NONE);
        return;
    }
    job->result.flag_id[0] = 0;
    job->result.handback = job->handback;
    finish(job, SPW_DECISION_FALLBACK);
}

static void fall_back(struct spw_job *job, enum spw_fallback type, enum spw_cause cause)
{
    struct spw_result *r = &job->result;
    struct spw_flag_record record;
    r->type = type;
    r->cause = cause;
    spw_fallback_compute(job->decider->map, &job->request, (int32_t)(spw_wall_ms() / 86400000), job->lines,
                         &job->fallback);
    if (job->fallback.why_not != SPW_ANSWERED) {
        r->reason = spw_no_answer_name(job->fallback.why_not);
        finish(job, SPW_DECISION_NONE);
        return;
    }
    new_id(job->decider, r->quote_id, "sq_");
    new_id(job->decider, r->flag_id, "sf_");
    r->tax_minor = job->fallback.tax_minor;
    r->lines = job->lines;
    r->lines_count = job->request.line_count + 1;
    r->fallback = &job->fallback;
    if (record_flag(job, &record) != SPW_STATUS_OK) {
        flag_refused(job, &record);
        return;
    }
    finish(job, SPW_DECISION_FALLBACK);
}

/* What an answer says about the limits. */
static void read_signals(struct spw_job *job, const struct spw_http_response *response,
                         struct spw_call_end *end)
{
    struct spw_signals signals;
    spw_signals_read(end->outcome, response->status, response->headers, response->headers_bytes,
                     job->account->conf, spw_wall_ms(), now_of(job), &signals);
    if (signals.has_evidence)
        spw_state_evidence_set(job->decider->options.state, job->account_index, &signals.evidence);
    *end = signals.end;
}

/* ---- the call ---- */

static void send_call(struct spw_job *job);

static void retry_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_job *job = timer->owner;
    uint32_t flags = SPW_ACQUIRE_RETRY | (job->batch ? SPW_ACQUIRE_BATCH : 0u);
    job->admission = spw_admit(job->decider->map, job->account_index, job->account_generation, flags, 1, 0,
                               spw_loop_now_ns(loop), &job->ticket);
    if (!job->admission.may_call) {
        fall_back(job, SPW_FALLBACK_RATE_LIMIT_429, SPW_CAUSE_RETRY_NO_TOKEN);
        return;
    }
    job->account->counters.retries++;
    send_call(job);
}

/* One retry at most, and only if it fits: not before the provider's own wait, not after the deadline. */
static void retry_or_fall_back(struct spw_job *job, const struct spw_call_end *end)
{
    uint64_t now_ns = now_of(job);
    uint64_t jitter_ms =
        RETRY_BASE_MS - RETRY_JITTER_MS + next_random(job->decider) % (2 * RETRY_JITTER_MS + 1);
    uint64_t at_ns = now_ns + jitter_ms * UINT64_C(1000000);
    bool told = end->gate_source == SPW_GATE_RETRY_AFTER || end->gate_source == SPW_GATE_RESET;
    if (told && end->gate_until_ns > at_ns)
        at_ns = end->gate_until_ns + next_random(job->decider) % (RETRY_JITTER_MS * UINT64_C(1000000));
    if (job->result.attempts > 1) {
        fall_back(job, SPW_FALLBACK_RATE_LIMIT_429, SPW_CAUSE_RETRY_429);
    } else if (at_ns + RETRY_ROOM_MS * UINT64_C(1000000) > job->deadline_ns) {
        fall_back(job, SPW_FALLBACK_RATE_LIMIT_429, SPW_CAUSE_RETRY_TOO_LATE);
    } else {
        job->retry_timer.fn = retry_due;
        job->retry_timer.owner = job;
        spw_loop_timer_set(job->decider->options.loop, &job->retry_timer, at_ns);
    }
}

static enum spw_call_result read_answer(struct spw_job *job, const struct spw_http_response *response,
                                        struct spw_call_end *end)
{
    end->outcome = SPW_OUTCOME_FAILED;
    switch (response->outcome) {
    case SPW_HTTP_TIMEOUT:
        return SPW_CALL_TIMEOUT;
    case SPW_HTTP_CONNECT:
        return SPW_CALL_CONNECT;
    case SPW_HTTP_ANSWERED:
        break;
    default:
        return SPW_CALL_BROKEN;
    }
    job->account->profile->read(&job->request, response->status, response->headers, response->headers_bytes,
                                response->body, response->body_bytes, &job->answer);
    end->outcome = spw_answer_outcome(job->answer.kind);
    switch (job->answer.kind) {
    case SPW_ANSWER_OK:
        return SPW_CALL_OK;
    case SPW_ANSWER_REJECTED:
        return SPW_CALL_REJECTED;
    case SPW_ANSWER_THROTTLED:
    case SPW_ANSWER_BUSY:
        return SPW_CALL_THROTTLED;
    case SPW_ANSWER_BROKEN:
        return SPW_CALL_BROKEN;
    default:
        return SPW_CALL_ERROR;
    }
}

static void go_live(struct spw_job *job)
{
    struct spw_result *r = &job->result;
    new_id(job->decider, r->quote_id, "sq_");
    r->tax_minor = job->answer.tax_minor;
    r->lines = job->answer.lines;
    r->lines_count = job->answer.lines_count;
    r->cause = SPW_CAUSE_NONE;
    finish(job, SPW_DECISION_LIVE);
}

/* libcurl replaced a kept connection that was dead and sent the request again: the provider may have counted both. */
static void charge_resent(struct spw_job *job, const struct spw_http_response *response)
{
    struct spw_ticket ticket;
    if (response->attempts < 2)
        return;
    struct spw_admission a = spw_admit(job->decider->map, job->account_index, job->account_generation,
                                       SPW_ACQUIRE_RETRY, 1, 0, now_of(job), &ticket);
    struct spw_call_end none = {.outcome = SPW_OUTCOME_NEUTRAL};
    if (a.may_call)
        (void)spw_settle(job->decider->map, &ticket, now_of(job), &none);
}

static void call_done(void *owner, const struct spw_http_response *response)
{
    struct spw_job *job = owner;
    struct spw_result *r = &job->result;
    struct spw_call_end end;
    job->in_flight = NULL;
    if (response->outcome == SPW_HTTP_CANCELLED) {
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return;
    }
    memset(&end, 0, sizeof end);
    r->provider_status = response->status;
    r->provider_ms += (response->done_ns - response->sent_ns) / 1000000;
    r->answer = &job->answer;
    spw_answer_clean_up(&job->answer);
    memset(&job->answer, 0, sizeof job->answer);
    charge_resent(job, response);
    enum spw_call_result result = read_answer(job, response, &end);
    if (response->outcome == SPW_HTTP_ANSWERED)
        read_signals(job, response, &end);
    struct spw_decider_counters *c = &job->account->counters;
    c->calls[result]++;
    if (result == SPW_CALL_THROTTLED && spw_admission_tokens_milli(&job->admission) >= 2000)
        c->unexpected_429++;
    if (spw_settle(job->decider->map, &job->ticket, now_of(job), &end))
        spw_log(SPW_LOG_WARN, "breaker.changed", "account %s: the breaker %s", job->account->conf->name,
                end.outcome == SPW_OUTCOME_OK ? "closed" : "opened");
    switch (result) {
    case SPW_CALL_OK:
        go_live(job);
        return;
    case SPW_CALL_REJECTED:
        finish(job, SPW_DECISION_REJECTED);
        return;
    case SPW_CALL_THROTTLED:
        retry_or_fall_back(job, &end);
        return;
    case SPW_CALL_TIMEOUT:
        fall_back(job, SPW_FALLBACK_PROVIDER_TIMEOUT, SPW_CAUSE_TIMEOUT);
        return;
    case SPW_CALL_CONNECT:
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return;
    case SPW_CALL_BROKEN:
        spw_log(SPW_LOG_WARN, "provider.broken", "account %s: %s", job->account->conf->name,
                response->outcome == SPW_HTTP_ANSWERED ? job->answer.detail : response->detail);
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_BAD_ANSWER);
        return;
    default:
        spw_log(SPW_LOG_WARN, "provider.error", "account %s: status %u: %s", job->account->conf->name,
                response->status, job->answer.detail);
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR,
                  response->status >= 500 ? SPW_CAUSE_STATUS_5XX : SPW_CAUSE_BAD_ANSWER);
    }
}

static void send_call(struct spw_job *job)
{
    struct spw_http_request request;
    struct spw_error err;
    memset(&request, 0, sizeof request);
    request.method = job->call.method;
    request.url = job->call.url;
    request.headers = (const char *const *)job->call.headers;
    request.header_count = job->call.header_count;
    request.body = job->call.body;
    request.body_bytes = job->call.body_bytes;
    request.deadline_ns = job->deadline_ns;
    request.connect_timeout_ms = job->account->conf->deadline_ms;
    job->result.attempts++;
    if (spw_http_client_send(job->account->client, &request, call_done, job, &job->in_flight, &err) !=
        SPW_STATUS_OK) {
        spw_log(SPW_LOG_ERROR, "provider.send", "account %s: %s", job->account->conf->name, err.text);
        spw_abandon(job->decider->map, &job->ticket, now_of(job));
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
    }
}

/* ---- the beginning ---- */

static enum spw_status find_account(struct spw_job *job, struct spw_error *err)
{
    struct spw_decider *d = job->decider;
    const char *name = job->asked->account ? job->asked->account : "";
    for (uint32_t i = 0; i < d->options.conf->accounts_count && !job->account; i++) {
        if (strcmp(d->accounts[i].conf->name, name) == 0)
            job->account = &d->accounts[i];
    }
    struct spw_ref ref;
    spw_ref_init(&ref, name, job->asked->integration);
    if (!job->account || !spw__ref_find(d->map, &ref))
        return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                             "account: there is no account \"%.60s\" in the configuration", name);
    const struct spw_conf_account *conf = job->account->conf;
    bool known = !job->asked->integration;
    for (uint32_t i = 0; i < conf->integrations_count; i++)
        known |= job->asked->integration && strcmp(conf->integrations[i].name, job->asked->integration) == 0;
    if (!known)
        return spw_error_set(
            err, SPW_STATUS_NOT_FOUND,
            "integration: account %s has no integration \"%.60s\"; add it to accounts.%s.integrations",
            conf->name, job->asked->integration, conf->name);
    job->account_index = ref.account_index;
    job->account_generation = ref.account_generation;
    job->batch = ref.batch;
    return SPW_STATUS_OK;
}

/* The normalised request: what the flag keeps. */
static enum spw_status normalise(struct spw_job *job, struct spw_error *err)
{
    struct spw_decider *d = job->decider;
    const char *bad = spw_request_bad_name(job->asked);
    if (bad)
        return spw_error_set(err, SPW_STATUS_INVALID, "%s: text without control characters is expected", bad);
    char *buffer = malloc(SPW_REQUEST_MAX_BYTES);
    job->request = *job->asked;
    if (job->asked->decision_id)
        snprintf(job->result.decision_id, sizeof job->result.decision_id, "%.71s", job->asked->decision_id);
    else
        new_id(d, job->result.decision_id, "sd_");
    job->request.decision_id = job->result.decision_id;
    if (!job->request.integration)
        job->request.integration = job->account->conf->integrations[0].name;
    job->lines = calloc(job->request.line_count + 1, sizeof *job->lines);
    if (!buffer || !job->lines) {
        free(buffer);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote: no memory: raise the container's memory limit");
    }
    job->request_bytes = spw_request_json(&job->request, buffer, SPW_REQUEST_MAX_BYTES);
    job->request_json = job->request_bytes ? realloc(buffer, job->request_bytes + 1) : buffer;
    if (!job->request_json)
        job->request_json = buffer;
    if (job->request_bytes == 0)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "the request is longer than %u bytes when normalised: split it",
                             SPW_REQUEST_MAX_BYTES);
    return SPW_STATUS_OK;
}

static enum spw_status build_call(struct spw_job *job, struct spw_error *err)
{
    const struct spw_conf_account *conf = job->account->conf;
    bool has_user = conf->user.file[0] || conf->user.env[0];
    const char *user = has_user ? spw_secret_get(&job->account->user, now_of(job)) : "";
    const char *secret = spw_secret_get(&job->account->secret, now_of(job));
    if (!secret || !user)
        return SPW_STATUS_OK; /* said in the log; the quote falls back */
    const struct spw_profile *profile = job->account->profile;
    struct spw_credential credential = {.user = user, .secret = secret, .header = conf->credential_header};
    enum spw_status status =
        profile->build(&job->request, conf, &credential, job->result.decision_id, &job->call, err);
    /* The account's key goes nowhere but where the profile says, whatever a name in the request did to the path. */
    if (status == SPW_STATUS_OK &&
        (strncmp(job->call.url, conf->url, strlen(conf->url)) != 0 ||
         !spw_profile_route(profile, conf, job->call.method, job->call.url + strlen(conf->url)))) {
        spw_log(SPW_LOG_ERROR, "provider.path",
                "account %s: a call outside what profile %s allows is not sent", conf->name, profile->name);
        spw_call_clean_up(&job->call);
        memset(&job->call, 0, sizeof job->call);
    }
    return status;
}

enum spw_status spw_decider_start(struct spw_decider *decider, const struct spw_quote_request *request,
                                  uint32_t uid, spw_decided_fn *done, void *owner, struct spw_job **out,
                                  struct spw_error *err)
{
    struct spw_job *job = calloc(1, sizeof *job);
    *out = NULL;
    if (!job)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote: no memory: raise the container's memory limit");
    decider->jobs_count++;
    job->decider = decider;
    job->asked = request;
    job->uid = uid;
    job->done = done;
    job->owner = owner;
    job->started_ns = spw_now_ns();
    enum spw_status status = find_account(job, err);
    if (status == SPW_STATUS_OK && job->account)
        status = normalise(job, err);
    if (status == SPW_STATUS_OK && job->account)
        status = build_call(job, err);
    if (status != SPW_STATUS_OK || !job->account) {
        job_free(job);
        return status;
    }
    uint32_t deadline_ms = job->account->conf->deadline_ms;
    if (request->deadline_ms && request->deadline_ms < deadline_ms)
        deadline_ms = request->deadline_ms;
    job->deadline_ns = job->started_ns + deadline_ms * UINT64_C(1000000);
    *out = job;
    if (!job->call.url) {
        fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return SPW_STATUS_OK;
    }
    job->admission = spw_admit(decider->map, job->account_index, job->account_generation,
                               job->batch ? SPW_ACQUIRE_BATCH : 0, 1, 0, now_of(job), &job->ticket);
    if (job->admission.may_call) {
        send_call(job);
        return SPW_STATUS_OK;
    }
    if (job->admission.wait_ns != SPW_FOREVER_NS)
        job->result.live_again_in_ms = (job->admission.wait_ns + 999999) / 1000000;
    fall_back(job, spw_refusal_type(job->admission.cause), job->admission.cause);
    return SPW_STATUS_OK;
}

void spw_job_cancel(struct spw_job *job)
{
    struct spw_call_end end;
    memset(&end, 0, sizeof end);
    end.outcome = SPW_OUTCOME_NEUTRAL;
    if (job->in_flight) {
        spw_http_call_cancel(job->in_flight);
        (void)spw_settle(job->decider->map, &job->ticket, now_of(job), &end);
    }
    job_free(job);
}

/* ---- life ---- */

enum spw_status spw_decider_new(const struct spw_decider_options *options, struct spw_decider **out,
                                struct spw_error *err)
{
    struct spw_decider *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote: no memory: raise the container's memory limit");
    uint64_t seed[3];
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed[0] = seed[1] = seed[2] = spw_now_ns();
    d->options = *options;
    d->map = spw_state_map(options->state);
    d->id_high = seed[0];
    d->id_low = seed[1];
    d->random = seed[2] | 1;
    for (uint32_t i = 0; i < options->conf->accounts_count; i++) {
        struct account *a = &d->accounts[i];
        a->conf = &options->conf->accounts[i];
        a->profile = spw_profile_find(a->conf->provider);
        spw_secret_init(&a->user, &a->conf->user);
        spw_secret_init(&a->secret, &a->conf->api_key);
        struct spw_http_client_options http;
        memset(&http, 0, sizeof http);
        http.ca_file = a->conf->ca_file[0] ? a->conf->ca_file : NULL;
        http.allow_plain_http = a->conf->allow_plain_http;
        /* A client of its own per account: an order never waits for another account's connections. */
        enum spw_status status = spw_http_client_new(options->loop, &http, &a->client, err);
        if (status != SPW_STATUS_OK) {
            spw_error_prefix(err, "accounts.%s: ", a->conf->name);
            spw_decider_destroy(d);
            return status;
        }
    }
    *out = d;
    return SPW_STATUS_OK;
}

void spw_decider_destroy(struct spw_decider *decider)
{
    if (!decider)
        return;
    for (uint32_t i = 0; i < decider->options.conf->accounts_count; i++) {
        spw_http_client_destroy(decider->accounts[i].client);
        spw_secret_clean_up(&decider->accounts[i].user);
        spw_secret_clean_up(&decider->accounts[i].secret);
    }
    free(decider);
}

uint32_t spw_decider_jobs_count(const struct spw_decider *decider)
{
    return decider->jobs_count;
}

const struct spw_decider_counters *spw_decider_counters(const struct spw_decider *decider,
                                                        const char *account)
{
    for (uint32_t i = 0; i < decider->options.conf->accounts_count; i++) {
        if (strcmp(decider->accounts[i].conf->name, account) == 0)
            return &decider->accounts[i].counters;
    }
    return NULL;
}
