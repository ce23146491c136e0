/* decide.c: the decision tree.
 *
 *   start ── this decision was made before ──────────────────────────────────> the same answer again
 *     │ ── an identical cart was answered live within `reuse` ───────────────> live, reused
 *     │ ── an identical call is in flight: wait for it ──┐
 *     └─ admit ──refused─────────────────────────────────│──────────────────> fallback (proactive, breaker)
 *           └─> call under the deadline ──2xx────────────┴──────────────────> live
 *                    │ 4xx of the caller's own making ──────────────────────> rejected
 *                    │ 429 ── one retry, jittered, if it fits and finds a token ── call ...
 *                    │      └───────────────────────────────────────────────> fallback (429)
 *                    └ timeout, 5xx, broken ────────────────────────────────> fallback (timeout, error)
 *   fallback ── cached rate ── flag recorded ── told;  no rate known ──> none
 *
 * This file has the first lines of it; a call and its retry are in flight.c, the ends in job.c.
 *
 * Owns, called by, thread: see decide.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "shm/spw_flag.h"
#include "sidecar/http/decide_internal.h"
#include "sidecar/obs/log.h"

/* Room for answers that may be told again: some 6,000 decisions, as many carts. */
#define DECISIONS_BYTES (6u << 20)
#define CARTS_BYTES     (4u << 20)

const double spw_latency_bounds_s[SPW_LATENCY_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                          0.1,   0.25,   0.5,   1,    1.8,   2.5};

/* xorshift64*: jitter needs spread, not secrecy. */
uint64_t spw_decider_random(struct spw_decider *d)
{
    d->random ^= d->random >> 12;
    d->random ^= d->random << 25;
    d->random ^= d->random >> 27;
    return d->random * UINT64_C(2685821657736338717);
}

void spw_decider_new_id(struct spw_decider *d, char out[SPW_ID_BYTES], const char *prefix)
{
    spw_id_make(out, prefix, d->id_high, d->id_low++);
}

/* ---- what is asked ---- */

struct spw_account_use *spw_decider_account(struct spw_decider *d, const char *name)
{
    for (uint32_t i = 0; i < d->options.conf->accounts_count; i++) {
        if (strcmp(d->accounts[i].conf->name, name) == 0)
            return &d->accounts[i];
    }
    return NULL;
}

static enum spw_status find_account(struct spw_job *job, const struct spw_quote_request *asked,
                                    struct spw_error *err)
{
    struct spw_decider *d = job->decider;
    const char *name = asked->account ? asked->account : "";
    job->account = spw_decider_account(d, name);
    struct spw_ref ref;
    spw_ref_init(&ref, name, asked->integration);
    if (!job->account || !spw__ref_find(d->map, &ref))
        return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                             "account: there is no account \"%.60s\" in the configuration", name);
    const struct spw_conf_account *conf = job->account->conf;
    if (!job->account->profile->is_tax)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "account: %s is at provider %s, which calculates no tax", conf->name,
                             conf->provider);
    bool known = !asked->integration;
    for (uint32_t i = 0; i < conf->integrations_count; i++)
        known |= asked->integration && strcmp(conf->integrations[i].name, asked->integration) == 0;
    if (!known)
        return spw_error_set(
            err, SPW_STATUS_NOT_FOUND,
            "integration: account %s has no integration \"%.60s\"; add it to accounts.%s.integrations",
            conf->name, asked->integration, conf->name);
    job->account_index = ref.account_index;
    job->account_generation = ref.account_generation;
    job->batch = ref.batch;
    job->acquire_flags = spw_ref_flags(&ref);
    return SPW_STATUS_OK;
}

/* As much as there is room for; out is zeroed. */
static void put_name(char *out, size_t room, const char *name)
{
    memcpy(out, name, strnlen(name, room - 1));
}

/* What was left out filled in. */
static enum spw_status normalise(struct spw_job *job, const struct spw_quote_request *asked,
                                 struct spw_error *err)
{
    struct spw_decider *d = job->decider;
    const char *bad = spw_request_bad_name(asked);
    if (bad)
        return spw_error_set(err, SPW_STATUS_INVALID, "%s: text without control characters is expected", bad);
    job->request = *asked;
    if (asked->decision_id)
        put_name(job->result.decision_id, sizeof job->result.decision_id, asked->decision_id);
    else
        spw_decider_new_id(d, job->result.decision_id, "sd_");
    put_name(job->result.account, sizeof job->result.account, job->account->conf->name);
    if (asked->quote_ref)
        put_name(job->result.quote_ref, sizeof job->result.quote_ref, asked->quote_ref);
    job->request.decision_id = job->result.decision_id;
    if (!job->request.integration)
        job->request.integration = job->account->conf->integrations[0].name;
    return SPW_STATUS_OK;
}

static void field_put(struct spw_text *t, const char *text)
{
    size_t bytes = text ? strlen(text) + 1 : 0;
    char *to = spw__text_take(t, 1 + bytes);
    if (!to)
        return;
    to[0] = text ? '=' : '-';
    if (text)
        memcpy(to + 1, text, bytes);
}

static void number_put(struct spw_text *t, int64_t number)
{
    spw_text_bytes(t, (const char *)&number, sizeof number);
}

static void day_put(struct spw_text *t, const struct spw_quote_request *q)
{
    char today[16];
    struct spw_text day = spw_text_on(today, sizeof today);
    if (!q->date)
        spw_text_day(&day, spw_address_day(&q->ship_to, spw_wall_ms()));
    field_put(t, q->date ? q->date : today);
}

static void address_put(struct spw_text *t, const struct spw_address *a)
{
    field_put(t, a->country);
    field_put(t, a->state);
    field_put(t, a->zip);
    field_put(t, a->city);
    field_put(t, a->line1);
}

/* Everything the provider's answer depends on: account, addresses, lines with their codes and order, shipping, customer,
 * exemption, currency and day; not who asks and under which ids. Each part tells where it ends. 0: it does not fit. */
static size_t cart_text(const struct spw_quote_request *q, char *buffer, size_t room)
{
    struct spw_text t = spw_text_on(buffer, room);
    field_put(&t, q->account);
    field_put(&t, q->currency ? q->currency : "USD");
    day_put(&t, q);
    address_put(&t, &q->ship_from);
    address_put(&t, &q->ship_to);
    field_put(&t, q->customer_id);
    field_put(&t, q->exemption);
    number_put(&t, q->shipping_minor);
    field_put(&t, q->shipping_tax_code);
    for (uint32_t i = 0; i < q->line_count; i++) {
        const struct spw_line *line = &q->lines[i];
        field_put(&t, line->id);
        field_put(&t, line->tax_code);
        number_put(&t, line->quantity_micro ? line->quantity_micro : 1000000);
        number_put(&t, line->amount_minor);
    }
    return t.overflow ? 0 : t.used;
}

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) : 0;
}

/* A flag must be able to keep the request. What is written for it is the cart and some ids, each byte as six at most, and
 * the fields' names; so only a large one has to be written to know. cart_bytes 0: the cart alone is too long. */
static bool fits_a_flag(const struct spw_job *job, size_t cart_bytes)
{
    const struct spw_quote_request *q = &job->request;
    size_t most = 1024 + 6 * (cart_bytes + text_bytes(q->integration) + text_bytes(q->decision_id) +
                              text_bytes(q->quote_ref));
    return cart_bytes && (most < SPW_REQUEST_MAX_BYTES || spw_job_request_json(job));
}

/* No cart key for what is asked in the provider's own form: it shares neither answers nor calls. */
static enum spw_status make_keys(struct spw_job *job, bool has_decision_id, struct spw_error *err)
{
    struct spw_decider *d = job->decider;
    size_t cart_bytes = cart_text(&job->request, d->text, sizeof d->text);
    if (!job->is_native)
        spw_key_make(&d->keys, "cart", d->text, cart_bytes, &job->cart_key);
    if (job->request.line_count > SPW_LINES_MAX_COUNT || !fits_a_flag(job, cart_bytes))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "the request is longer than %u bytes or %u lines when normalised: split it",
                             SPW_REQUEST_MAX_BYTES, SPW_LINES_MAX_COUNT);
    job->has_decision_key = has_decision_id;
    if (has_decision_id) {
        /* The normalised request has the decision id in it: another cart under the same id is another decision. */
        const char *kind = job->is_native ? "native decision" : "decision";
        spw_key_make(&d->keys, kind, d->text, spw_job_request_json(job), &job->decision_key);
    } else { /* found by its ids alone: any key of its own does */
        uint64_t own[2] = {d->id_low++, d->id_high};
        memcpy(job->decision_key.bytes, own, sizeof job->decision_key.bytes);
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_force_read(const char *value, enum spw_fallback *out, struct spw_error *err)
{
    *out = SPW_FALLBACK_NONE;
    if (!value)
        return SPW_STATUS_OK;
    for (uint32_t i = 1; i < SPW_FALLBACK_COUNT; i++) {
        if (strcmp(value, spw_fallback_name(i)) == 0)
            *out = (enum spw_fallback)i;
    }
    return *out != SPW_FALLBACK_NONE
               ? SPW_STATUS_OK
               : spw_error_set(err, SPW_STATUS_INVALID,
                               "Spillway-Force: no type of fallback: write one as rate-limit-429");
}

bool spw_account_credential(struct spw_account_use *account, uint64_t now_ns, struct spw_credential *out)
{
    const struct spw_conf_account *conf = account->conf;
    bool has_user = conf->user.file[0] || conf->user.env[0];
    out->user = has_user ? spw_secret_get(&account->user, now_ns) : "";
    out->secret = spw_secret_get(&account->secret, now_ns);
    out->header = conf->credential_header;
    return out->user && out->secret;
}

/* out: nothing to send yet. No url in it afterwards: nothing can be sent, which the log has been told; the quote falls
 * back. */
static enum spw_status build_call(struct spw_job *job, const struct spw_native_request *native,
                                  struct spw_outgoing *out, struct spw_error *err)
{
    const struct spw_conf_account *conf = job->account->conf;
    const struct spw_profile *profile = job->account->profile;
    struct spw_credential credential;
    struct spw_call call;
    if (!spw_account_credential(job->account, spw_decider_now(job->decider), &credential))
        return SPW_STATUS_OK;
    if (native)
        return spw_outgoing_pass(out, profile, conf, &credential, native, err);
    enum spw_status status =
        profile->build(&job->request, conf, &credential, job->result.decision_id, &call, err);
    /* The account's key goes nowhere but where the profile says, whatever a name in the request did to the path. */
    if (status == SPW_STATUS_OK && !spw_profile_allows(profile, conf, &call)) {
        spw_log(SPW_LOG_ERROR, "provider.path",
                "account %s: a call outside what profile %s allows is not sent", conf->name, profile->name);
        spw_call_clean_up(&call);
    }
    if (status == SPW_STATUS_OK)
        spw_outgoing_take(out, &call);
    return status;
}

/* ---- the tree ---- */

static void deadline_passed(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_job *job = timer->owner;
    (void)loop;
    spw_flight_leave(job, true);
    if (job->in_flight_at_end)
        spw_job_fall_back(job, SPW_FALLBACK_PROVIDER_TIMEOUT, SPW_CAUSE_TIMEOUT);
    else if (job->result.attempts == 0) /* still waiting for its token */
        spw_job_fall_back(job, SPW_FALLBACK_RATE_LIMIT_PROACTIVE, SPW_CAUSE_BUCKET_EMPTY);
    else
        spw_job_fall_back(job, SPW_FALLBACK_RATE_LIMIT_429, SPW_CAUSE_RETRY_TOO_LATE);
}

static void set_deadline(struct spw_job *job)
{
    uint32_t deadline_ms = job->account->conf->deadline_ms;
    if (job->request.deadline_ms && job->request.deadline_ms < deadline_ms)
        deadline_ms = job->request.deadline_ms;
    job->deadline_ns = job->started_ns + deadline_ms * UINT64_C(1000000);
    job->deadline.fn = deadline_passed;
    job->deadline.owner = job;
    spw_loop_timer_set(job->decider->options.loop, &job->deadline, job->deadline_ns);
}

/* The job may be over when this returns. */
static void decide(struct spw_job *job, const struct spw_ask *ask, struct spw_outgoing *call)
{
    struct spw_decider *d = job->decider;
    struct spw_result kept;
    struct spw_flight *flight;
    bool alone = ask->native != NULL;
    if (spw_job_repeated(job)) {
        spw_outgoing_clean_up(call);
    } else if (ask->force != SPW_FALLBACK_NONE) {
        spw_outgoing_clean_up(call);
        spw_job_fall_back(job, ask->force, SPW_CAUSE_FORCED);
    } else if (!alone && job->account->conf->reuse_ms &&
               spw_reuse_get(d->carts, &job->cart_key, spw_decider_now(d), &kept)) {
        spw_outgoing_clean_up(call);
        spw_job_reuse(job, &kept);
    } else if (!call->url) {
        spw_job_fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
    } else if (!alone && (flight = spw_flight_find(job))) {
        spw_outgoing_clean_up(call);
        spw_flight_join(flight, job);
    } else {
        spw_flight_start(job, call, alone ? ask->native->route : NULL);
    }
}

static enum spw_status prepare(struct spw_job *job, const struct spw_ask *ask, struct spw_outgoing *call,
                               struct spw_error *err)
{
    enum spw_status status = find_account(job, ask->quote, err);
    if (status == SPW_STATUS_OK && ask->force != SPW_FALLBACK_NONE && !job->account->conf->allow_force)
        status = spw_error_set(err, SPW_STATUS_REFUSED,
                               "Spillway-Force: account %s does not allow it: it is for tests "
                               "(accounts.%s.allow_force)",
                               job->account->conf->name, job->account->conf->name);
    if (status == SPW_STATUS_OK)
        status = normalise(job, ask->quote, err);
    if (status == SPW_STATUS_OK)
        status = make_keys(job, ask->quote->decision_id != NULL, err);
    if (status == SPW_STATUS_OK)
        status = build_call(job, ask->native, call, err);
    return status;
}

enum spw_status spw_decider_start(struct spw_decider *decider, const struct spw_ask *ask,
                                  spw_decided_fn *done, void *owner, struct spw_job **out,
                                  struct spw_error *err)
{
    struct spw_job *job = spw_job_new(decider);
    struct spw_outgoing call;
    *out = NULL;
    if (!job)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote: no memory: raise the container's memory limit");
    job->uid = ask->uid;
    job->is_native = ask->native != NULL;
    job->records = ask->records;
    if (ask->trace)
        job->trace = *ask->trace;
    else if (ask->native)
        spw_outgoing_trace(ask->native->headers, &job->trace);
    job->done = done;
    job->owner = owner;
    job->started_ns = spw_now_ns();
    spw_outgoing_init(&call);
    enum spw_status status = prepare(job, ask, &call, err);
    if (status != SPW_STATUS_OK) {
        spw_outgoing_clean_up(&call);
        spw_job_free(job);
        return status;
    }
    set_deadline(job);
    *out = job;
    decide(job, ask, &call);
    return SPW_STATUS_OK;
}

void spw_job_cancel(struct spw_job *job)
{
    spw_flight_leave(job, false);
    spw_job_free(job);
}

void spw_decider_find(struct spw_decider *decider, const char *reference, spw_decision_fn *fn, void *owner)
{
    spw_reuse_each(decider->decisions, reference, spw_decider_now(decider), fn, owner);
}

/* ---- life ---- */

static const char *proxy_credentials(void *owner, uint64_t now_ns)
{
    struct spw_account_use *account = owner;
    return spw_secret_get(&account->proxy_secret, now_ns);
}

void spw_account_http_options(struct spw_account_use *account, struct spw_http_client_options *out)
{
    const struct spw_conf_account *conf = account->conf;
    memset(out, 0, sizeof *out);
    out->ca_file = conf->ca_file[0] ? conf->ca_file : NULL;
    out->allow_plain_http = conf->allow_plain_http;
    out->connections_per_host_max = conf->connections_count;
    out->proxy = conf->proxy[0] ? conf->proxy : NULL;
    if (conf->proxy_credentials.file[0]) {
        out->proxy_credentials = proxy_credentials;
        out->proxy_owner = account;
    }
}

static enum spw_status open_account(struct spw_decider *d, uint32_t i, struct spw_error *err)
{
    struct spw_account_use *a = &d->accounts[i];
    memset(a, 0, sizeof *a);
    a->conf = &d->options.conf->accounts[i];
    a->profile = spw_profile_find(a->conf->provider);
    spw_secret_init(&a->user, &a->conf->user);
    spw_secret_init(&a->secret, &a->conf->api_key);
    struct spw_http_client_options http;
    if (a->conf->proxy_credentials.file[0])
        spw_secret_init(&a->proxy_secret, &a->conf->proxy_credentials);
    spw_account_http_options(a, &http);
    /* A client of its own per account: an order never waits for another account's connections. */
    enum spw_status status = spw_http_client_new(d->options.loop, &http, &a->client, err);
    if (status != SPW_STATUS_OK)
        spw_error_prefix(err, "accounts.%s: ", a->conf->name);
    return status;
}

static void close_account(struct spw_account_use *a)
{
    spw_http_client_destroy(a->client);
    spw_secret_clean_up(&a->proxy_secret);
    spw_secret_clean_up(&a->user);
    spw_secret_clean_up(&a->secret);
}

static bool reuses(const struct spw_conf *conf)
{
    bool any = false;
    for (uint32_t i = 0; i < conf->accounts_count; i++)
        any |= conf->accounts[i].reuse_ms > 0;
    return any;
}

/* Their configuration lies behind the ones there are, not counted yet. */
enum spw_status spw_decider_reload_begin(struct spw_decider *decider, const struct spw_conf *fresh,
                                         struct spw_error *err)
{
    uint32_t from = decider->options.conf->accounts_count;
    if (reuses(fresh) && !decider->carts && !(decider->carts = spw_reuse_new(CARTS_BYTES)))
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "reuse: no memory: raise the container's memory limit");
    for (uint32_t i = from; i < fresh->accounts_count; i++) {
        enum spw_status status = open_account(decider, i, err);
        if (status != SPW_STATUS_OK) {
            while (i-- > from)
                close_account(&decider->accounts[i]);
            return status;
        }
    }
    return SPW_STATUS_OK;
}

void spw_decider_reload_undo(struct spw_decider *decider, const struct spw_conf *fresh)
{
    for (uint32_t i = decider->options.conf->accounts_count; i < fresh->accounts_count; i++)
        close_account(&decider->accounts[i]);
}

void spw_decider_reload_end(struct spw_decider *decider)
{
    for (uint32_t i = 0; i < decider->options.conf->accounts_count; i++) {
        spw_secret_look(&decider->accounts[i].user);
        spw_secret_look(&decider->accounts[i].secret);
    }
}

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
    d->random = (options->conf->test_seed ? options->conf->test_seed : seed[2]) | 1;
    d->started_ns = spw_now_ns();
    struct spw_store_counts counts;
    spw_store_counts(options->store, &counts);
    d->has_past = counts.newest_sequence > 0;
    d->carts = reuses(options->conf) ? spw_reuse_new(CARTS_BYTES) : NULL;
    d->decisions = spw_reuse_new(DECISIONS_BYTES);
    if ((reuses(options->conf) && !d->carts) || !d->decisions || !spw_key_maker_init(&d->keys)) {
        spw_decider_destroy(d);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "quote: no memory, no random bytes or no SipHash in libcrypto: raise the "
                             "container's memory limit");
    }
    for (uint32_t i = 0; i < options->conf->accounts_count; i++) {
        enum spw_status status = open_account(d, i, err);
        if (status != SPW_STATUS_OK) {
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
    for (uint32_t i = 0; i < decider->options.conf->accounts_count; i++)
        close_account(&decider->accounts[i]);
    spw_flights_clean_up(decider);
    while (decider->spare_jobs) {
        struct spw_job *job = decider->spare_jobs;
        decider->spare_jobs = job->next;
        free(job);
    }
    spw_reuse_destroy(decider->carts);
    spw_reuse_destroy(decider->decisions);
    spw_key_maker_clean_up(&decider->keys);
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
