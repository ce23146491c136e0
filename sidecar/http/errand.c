/* errand.c: see errand.h. Thread: the loop thread. */
#include "sidecar/http/errand.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/http/decide_internal.h"
#include "sidecar/http/quote_json.h"
#include "sidecar/obs/log.h"
#include "sidecar/provider/signals.h"

struct errand {
    struct spw_decider *decider;
    struct spw_errand_call call; /* its `call` is in outgoing */
    struct spw_outgoing outgoing;
    struct spw_http_call *in_flight;
};

static uint64_t now_ns(void *owner)
{
    return spw_decider_now(owner);
}

static int64_t wall_ms(void *owner)
{
    (void)owner;
    return spw_wall_ms();
}

static uint64_t random_bits(void *owner)
{
    return spw_decider_random(owner);
}

static uint64_t allowed_count(void *owner, uint32_t account_index)
{
    struct spw_decider *d = owner;
    struct spw_account_status status;
    if (spw_state_account_status(d->options.state, account_index, spw_decider_now(d), &status) !=
        SPW_STATUS_OK)
        return 0;
    return status.decisions[SPW_STAT_ALLOW];
}

static bool credential(void *owner, uint32_t account, struct spw_credential *out)
{
    struct spw_decider *d = owner;
    return spw_account_credential(&d->accounts[account], spw_decider_now(d), out);
}

static void errand_done(void *owner, const struct spw_http_response *response)
{
    struct errand *errand = owner;
    struct spw_decider *d = errand->decider;
    struct spw_call_end end;
    struct spw_errand_answer answer = {.answered = response->outcome == SPW_HTTP_ANSWERED,
                                       .calm = response->calm,
                                       .status = response->status,
                                       .headers = response->headers,
                                       .headers_bytes = response->headers_bytes,
                                       .body = response->body,
                                       .body_bytes = response->body_bytes,
                                       .detail = response->detail};
    memset(&end, 0, sizeof end);
    enum spw_answer_kind kind = errand->call.answered(errand->call.owner, &answer);
    enum spw_call_result result = response->calm ? SPW_CALL_THROTTLED : spw_call_result_of(response, kind);
    end.outcome = response->calm    ? SPW_OUTCOME_THROTTLED
                  : answer.answered ? spw_answer_outcome(kind, response->status)
                                    : SPW_OUTCOME_FAILED;
    if (response->outcome == SPW_HTTP_CANCELLED) /* we stop: it says nothing of the provider */
        spw_abandon(d->map, &errand->call.ticket, spw_decider_now(d));
    else
        spw_call_settle(d, &d->accounts[errand->call.account], &errand->call.ticket,
                        errand->call.acquire_flags, &errand->call.admission, response, result, &end);
    spw_outgoing_clean_up(&errand->outgoing);
    free(errand);
}

static bool send_errand(void *owner, const struct spw_errand_call *call)
{
    struct spw_decider *d = owner;
    struct spw_http_request request;
    struct spw_error err;
    struct errand *errand = calloc(1, sizeof *errand);
    if (!errand)
        return false;
    errand->decider = d;
    errand->call = *call;
    spw_outgoing_take(&errand->outgoing, call->call);
    memset(&request, 0, sizeof request);
    request.method = errand->outgoing.method;
    request.url = errand->outgoing.url;
    request.headers = (const char *const *)errand->outgoing.headers;
    request.header_count = errand->outgoing.header_count;
    request.body = errand->outgoing.body;
    request.body_bytes = errand->outgoing.body_bytes;
    request.deadline_ns = call->deadline_ns;
    if (spw_http_client_send(d->accounts[call->account].client, &request, errand_done, errand,
                             &errand->in_flight, &err) == SPW_STATUS_OK)
        return true;
    spw_log(SPW_LOG_ERROR, "reconcile.send", "account %s: %s", d->accounts[call->account].conf->name,
            err.text);
    spw_outgoing_clean_up(&errand->outgoing);
    free(errand);
    return false;
}

static void *parse(const char *json, struct spw_quote_request *out)
{
    struct spw_error err;
    struct spw_quote_body *body = calloc(1, sizeof *body);
    if (body && spw_quote_body_parse(json, strlen(json), body, &err) == SPW_STATUS_OK) {
        *out = body->request;
        return body;
    }
    free(body);
    return NULL;
}

static void parsed_free(void *parsed)
{
    spw_quote_body_clean_up(parsed);
    free(parsed);
}

void spw_errand_ops(struct spw_decider *decider, struct spw_reconcile_ops *out)
{
    memset(out, 0, sizeof *out);
    out->owner = decider;
    out->now_ns = now_ns;
    out->wall_ms = wall_ms;
    out->random = random_bits;
    out->allowed_count = allowed_count;
    out->credential = credential;
    out->send = send_errand;
    out->parse = parse;
    out->parsed_free = parsed_free;
}
