/* fetch.c: see fetch.h. */
#include "sidecar/http/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "shm/spw_ref.h"
#include "sidecar/http/decide_internal.h"

#define CONNECT_TIMEOUT_MS 10000u

struct spw_fetch {
    struct spw_fetch_options options;
    struct spw_account_use *account;
    struct spw_http_client *client;
    struct spw_http_call *in_flight;
    uint32_t acquire_flags;
    struct spw_ticket ticket;
    struct spw_admission admission;
};

static void fail(struct spw_fetch *fetch, const char *why, uint64_t again_ms)
{
    struct spw_fetched fetched = {.why = why, .again_ms = again_ms};
    fetch->options.done(fetch->options.owner, &fetched);
}

/* What the account's limits and breaker are told. A refusal of this one path says nothing of calculations. */
static enum spw_outcome outcome_of(const struct spw_http_response *response, enum spw_call_result *result)
{
    *result = spw_call_result_of(response, SPW_ANSWER_ERROR);
    if (response->calm || (response->outcome == SPW_HTTP_ANSWERED && response->status == 429)) {
        *result = SPW_CALL_THROTTLED;
        return SPW_OUTCOME_THROTTLED;
    }
    if (response->outcome != SPW_HTTP_ANSWERED || response->status >= 500)
        return SPW_OUTCOME_FAILED;
    if (response->status != 200)
        return SPW_OUTCOME_NEUTRAL;
    *result = SPW_CALL_OK;
    return SPW_OUTCOME_OK;
}

static void call_done(void *owner, const struct spw_http_response *response)
{
    struct spw_fetch *fetch = owner;
    struct spw_decider *d = fetch->options.decider;
    struct spw_call_end end;
    enum spw_call_result result;
    char why[160];
    memset(&end, 0, sizeof end);
    fetch->in_flight = NULL;
    if (response->outcome == SPW_HTTP_CANCELLED)
        return; /* the client is being destroyed */
    end.outcome = outcome_of(response, &result);
    spw_call_settle(d, fetch->account, &fetch->ticket, fetch->acquire_flags, &fetch->admission, response,
                    result, &end);
    if (result == SPW_CALL_OK) {
        struct spw_fetched fetched = {.body = response->body, .body_bytes = response->body_bytes};
        fetch->options.done(fetch->options.owner, &fetched);
        return;
    }
    uint64_t now_ns = spw_decider_now(d);
    if (response->outcome == SPW_HTTP_ANSWERED)
        snprintf(why, sizeof why, "the provider answered status %u", response->status);
    else
        snprintf(why, sizeof why, "the provider was not reached or broke off: %s", response->detail);
    fail(fetch, why, end.gate_until_ns > now_ns ? (end.gate_until_ns - now_ns) / 1000000 + 1 : 0);
}

static bool build(struct spw_fetch *fetch, const char *date, struct spw_outgoing *out, struct spw_error *err)
{
    struct spw_account_use *account = fetch->account;
    struct spw_credential credential;
    struct spw_call call;
    memset(out, 0, sizeof *out);
    memset(&call, 0, sizeof call);
    if (!spw_account_credential(account, spw_decider_now(fetch->options.decider), &credential)) {
        (void)spw_error_set(err, SPW_STATUS_NOT_READY, "there is no credential now");
        return false;
    }
    if (account->profile->rates(account->conf, &credential, date, &call, err) != SPW_STATUS_OK)
        return false;
    if (!spw_profile_allows(account->profile, account->conf, &call)) {
        spw_call_clean_up(&call);
        (void)spw_error_set(err, SPW_STATUS_REFUSED, "the profile does not allow its own path");
        return false;
    }
    spw_outgoing_take(out, &call);
    return true;
}

static void send(struct spw_fetch *fetch, const struct spw_outgoing *call)
{
    struct spw_decider *d = fetch->options.decider;
    struct spw_http_request request;
    struct spw_error err;
    memset(&request, 0, sizeof request);
    request.method = call->method;
    request.url = call->url;
    request.headers = (const char *const *)call->headers;
    request.header_count = call->header_count;
    request.deadline_ns = spw_decider_now(d) + fetch->options.deadline_ms * UINT64_C(1000000);
    request.connect_timeout_ms = CONNECT_TIMEOUT_MS;
    if (spw_http_client_send(fetch->client, &request, call_done, fetch, &fetch->in_flight, &err) ==
        SPW_STATUS_OK)
        return;
    spw_abandon(d->map, &fetch->ticket, spw_decider_now(d));
    fail(fetch, err.text, 0);
}

void spw_fetch_start(struct spw_fetch *fetch, const char *date)
{
    struct spw_decider *d = fetch->options.decider;
    struct spw_outgoing call;
    struct spw_error err;
    struct spw_ref ref;
    if (!build(fetch, date, &call, &err)) {
        fail(fetch, err.text, 0);
        return;
    }
    spw_ref_init(&ref, fetch->account->conf->name, NULL);
    ref.endpoint = SPW_ENDPOINT_OTHER;
    if (!spw__ref_find(d->map, &ref)) {
        spw_outgoing_clean_up(&call);
        fail(fetch, "the account is not in the segment", 0);
        return;
    }
    fetch->acquire_flags = spw_ref_flags(&ref) | (uint32_t)SPW_ACQUIRE_BATCH;
    fetch->admission = spw_admit(d->map, ref.account_index, ref.account_generation, fetch->acquire_flags, 1,
                                 0, spw_decider_now(d), &fetch->ticket);
    if (fetch->admission.may_call) {
        send(fetch, &call);
    } else {
        char why[96];
        uint64_t wait_ns = fetch->admission.wait_ns;
        snprintf(why, sizeof why, "the account's limits have no room now (%s)",
                 spw_cause_name(fetch->admission.cause));
        fail(fetch, why, wait_ns == SPW_FOREVER_NS ? 0 : wait_ns / 1000000 + 1);
    }
    spw_outgoing_clean_up(&call);
}

enum spw_status spw_fetch_new(const struct spw_fetch_options *options, struct spw_fetch **out,
                              struct spw_error *err)
{
    struct spw_fetch *fetch = calloc(1, sizeof *fetch);
    struct spw_http_client_options http;
    *out = NULL;
    if (!fetch)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "fetch: no memory: raise the container's memory limit");
    fetch->options = *options;
    fetch->account = spw_decider_account(options->decider, options->account);
    if (!fetch->account || !fetch->account->profile->rates) {
        free(fetch);
        return spw_error_set(err, SPW_STATUS_INVALID, "account %s: its provider publishes no rates",
                             options->account);
    }
    spw_account_http_options(fetch->account, &http);
    http.connections_per_host_max = 1;
    http.answer_max_bytes = options->answer_max_bytes;
    enum spw_status status = spw_http_client_new(options->decider->options.loop, &http, &fetch->client, err);
    if (status != SPW_STATUS_OK) {
        free(fetch);
        return status;
    }
    *out = fetch;
    return SPW_STATUS_OK;
}

void spw_fetch_destroy(struct spw_fetch *fetch)
{
    if (!fetch)
        return;
    if (fetch->in_flight) {
        spw_http_call_cancel(fetch->in_flight);
        spw_abandon(fetch->options.decider->map, &fetch->ticket, spw_decider_now(fetch->options.decider));
    }
    spw_http_client_destroy(fetch->client);
    free(fetch);
}
