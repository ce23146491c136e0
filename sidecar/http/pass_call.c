/* pass_call.c: a request of an SDK that is passed on as it is. See pass_call.h. */
#include "sidecar/http/pass_call.h"

#include <stdlib.h>
#include <string.h>

#include "shm/spw_ref.h"
#include "sidecar/http/decide_internal.h"
#include "sidecar/obs/log.h"
#include "sidecar/obs/zeroed.h"
#include "sidecar/provider/signals.h"
#include "sidecar/provider/wire.h"

/* At a tax provider nobody's checkout waits for these, and cutting off what changes the books leaves them uncertain. Any
 * other API has the account's deadline. */
#define RECORD_DEADLINE_NS UINT64_C(30000000000)
#define READ_DEADLINE_NS   UINT64_C(10000000000)

struct spw_pass {
    struct spw_decider *decider;
    struct spw_account_use *account;
    const struct spw_route *route;
    spw_passed_fn *done; /* NULL once the caller has gone */
    void *owner;
    struct spw_http_call *in_flight;
    struct spw_ticket ticket;
    uint32_t acquire_flags;
    struct spw_admission admission;
};

static bool changes_books(const struct spw_pass *pass)
{
    return pass->route->kind == SPW_ROUTE_RECORD || pass->route->kind == SPW_ROUTE_REFUND;
}

/* What a request of any other API does is not known: only these do nothing. */
static bool may_be_cut_off(const struct spw_pass *pass)
{
    const char *method = pass->route->method;
    return !changes_books(pass) &&
           (pass->account->profile->is_tax || strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0);
}

/* Doing it twice might be two of it: HTTP's own idempotent methods aside, unless the request has a key by which the
 * provider knows it again. */
static bool may_go_twice(const struct spw_pass *pass, const char *headers)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};
    char key[256]; /* Stripe's may have 255 bytes */
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(pass->route->method, methods[i]) == 0)
            return true;
    return (pass->account->profile->is_tax && !changes_books(pass)) ||
           spw_wire_header_find(headers, "Idempotency-Key", key, sizeof key);
}

/* Which of the account's limiters apply. */
static enum spw_endpoint endpoint_of(const struct spw_pass *pass)
{
    return pass->route->kind == SPW_ROUTE_REFUND      ? SPW_ENDPOINT_REFUND
           : changes_books(pass)                      ? SPW_ENDPOINT_RECORD
           : pass->route->kind == SPW_ROUTE_CALCULATE ? SPW_ENDPOINT_CALCULATE
                                                      : SPW_ENDPOINT_OTHER;
}

static uint64_t deadline_of(const struct spw_pass *pass)
{
    if (!pass->account->profile->is_tax)
        return pass->account->conf->deadline_ms * UINT64_C(1000000);
    return changes_books(pass) ? RECORD_DEADLINE_NS : READ_DEADLINE_NS;
}

static void pass_free(struct spw_pass *pass)
{
    pass->decider->jobs_count--;
    free(pass);
}

static void end(struct spw_pass *pass, const struct spw_pass_result *result)
{
    if (pass->done)
        pass->done(pass->owner, result);
    pass_free(pass);
}

static void call_done(void *owner, const struct spw_http_response *response)
{
    struct spw_pass *pass = owner;
    struct spw_pass_result result = {.end = SPW_PASS_FAILED, .response = response};
    struct spw_call_end call_end;
    struct spw_answer answer;
    memset(&call_end, 0, sizeof call_end);
    spw_answer_clear(&answer);
    pass->in_flight = NULL;
    if (response->outcome == SPW_HTTP_CANCELLED) {
        end(pass, &result);
        return;
    }
    call_end.outcome = response->calm ? SPW_OUTCOME_THROTTLED : SPW_OUTCOME_FAILED;
    answer.kind = SPW_ANSWER_BROKEN;
    if (response->outcome == SPW_HTTP_ANSWERED) {
        pass->account->profile->judge(pass->route, response->status, response->headers,
                                      response->headers_bytes, response->body, response->body_bytes, &answer);
        call_end.outcome = spw_answer_outcome(answer.kind, response->status);
        spw_call_note_throttle(pass->account, &answer);
        result.end = SPW_PASS_ANSWERED;
        result.kind = answer.kind;
    }
    spw_call_settle(pass->decider, pass->account, &pass->ticket, pass->acquire_flags, &pass->admission,
                    response, spw_call_result_of(response, answer.kind), &call_end);
    spw_answer_clean_up(&answer);
    end(pass, &result);
}

/* The client copies the call: there is no second one to keep it for. */
static void send(struct spw_pass *pass, const struct spw_native_request *native,
                 const struct spw_outgoing *call)
{
    struct spw_http_request request;
    struct spw_trace trace;
    struct spw_outgoing_span span;
    const char *lines[SPW_OUTGOING_LINES_MAX_COUNT];
    struct spw_error err;
    uint64_t now_ns = spw_decider_now(pass->decider);
    spw_outgoing_trace(native->headers, &trace);
    memset(&request, 0, sizeof request);
    request.method = call->method;
    request.url = call->url;
    request.headers = lines;
    request.header_count = spw_outgoing_lines(call, &trace, spw_decider_random(pass->decider), &span, lines);
    request.body = call->body;
    request.body_bytes = call->body_bytes;
    request.deadline_ns = now_ns + deadline_of(pass);
    request.connect_timeout_ms = pass->account->conf->deadline_ms;
    request.at_most_once = !may_go_twice(pass, native->headers);
    if (spw_http_client_send(pass->account->client, &request, call_done, pass, &pass->in_flight, &err) !=
        SPW_STATUS_OK) {
        struct spw_pass_result result = {.end = SPW_PASS_FAILED};
        spw_log_traced(SPW_LOG_ERROR, "provider.send", &trace, "account %s: %s", pass->account->conf->name,
                       err.text);
        spw_abandon(pass->decider->map, &pass->ticket, now_ns);
        end(pass, &result);
    }
}

static bool has_integration(const struct spw_conf_account *conf, const char *name)
{
    for (uint32_t i = 0; i < conf->integrations_count; i++) {
        if (strcmp(conf->integrations[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Records and refunds may use the header buffer; nothing else that stands in the way is overlooked. */
static void admit(struct spw_pass *pass, const struct spw_ref *ref)
{
    uint64_t now_ns = spw_decider_now(pass->decider);
    uint32_t flags = pass->acquire_flags = spw_ref_flags(ref);
    pass->admission = spw_admit(pass->decider->map, ref->account_index, ref->account_generation, flags, 1, 0,
                                now_ns, &pass->ticket);
    if (!pass->admission.may_call && changes_books(pass) &&
        pass->admission.cause == SPW_CAUSE_REMAINING_BELOW_BUFFER)
        pass->admission = spw_admit(pass->decider->map, ref->account_index, ref->account_generation,
                                    flags | SPW_ACQUIRE_RETRY, 1, 0, now_ns, &pass->ticket);
}

/* No url in call: nothing can be sent, which the log has been told. */
static enum spw_status prepare(const struct spw_pass *pass, const char *integration,
                               const struct spw_native_request *native, struct spw_ref *ref,
                               struct spw_outgoing *call, struct spw_error *err)
{
    struct spw_credential credential;
    const struct spw_conf_account *conf = pass->account->conf;
    if (!has_integration(conf, integration))
        return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                             "Spillway-Integration: account %s has no integration \"%.60s\"", conf->name,
                             integration);
    spw_ref_init(ref, conf->name, integration);
    ref->endpoint = endpoint_of(pass);
    if (!spw__ref_find(pass->decider->map, ref))
        return spw_error_set(err, SPW_STATUS_NOT_FOUND, "account %s is not in the segment", conf->name);
    if (!spw_account_credential(pass->account, spw_decider_now(pass->decider), &credential))
        return SPW_STATUS_OK;
    return spw_outgoing_pass(call, pass->account->profile, conf, &credential, native, err);
}

/* The pass may be over when this returns. */
static void begin(struct spw_pass *pass, const struct spw_native_request *native, const struct spw_ref *ref,
                  const struct spw_outgoing *call)
{
    struct spw_pass_result result = {.end = SPW_PASS_FAILED};
    if (!call->url) {
        end(pass, &result);
        return;
    }
    admit(pass, ref);
    if (pass->admission.may_call) {
        send(pass, native, call);
        return;
    }
    result.end = SPW_PASS_REFUSED;
    result.cause = pass->admission.cause;
    if (pass->admission.wait_ns != SPW_FOREVER_NS)
        result.wait_ms = (pass->admission.wait_ns + 999999) / 1000000;
    end(pass, &result);
}

enum spw_status spw_pass_start(struct spw_decider *decider, const char *account, const char *integration,
                               const struct spw_native_request *native, spw_passed_fn *done, void *owner,
                               struct spw_pass **out, struct spw_error *err)
{
    struct spw_pass *pass = spw_zeroed(sizeof *pass);
    struct spw_outgoing call;
    struct spw_ref ref = {0};
    *out = NULL;
    if (!pass)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "call: no memory: raise the container's memory limit");
    decider->jobs_count++;
    pass->decider = decider;
    pass->account = spw_decider_account(decider, account);
    pass->route = native->route;
    pass->done = done;
    pass->owner = owner;
    spw_outgoing_init(&call);
    enum spw_status status = pass->account ? prepare(pass, integration, native, &ref, &call, err)
                                           : spw_error_set(err, SPW_STATUS_NOT_FOUND, "no such account");
    if (status != SPW_STATUS_OK) {
        pass_free(pass);
        return status;
    }
    *out = pass;
    begin(pass, native, &ref, &call);
    spw_outgoing_clean_up(&call);
    return SPW_STATUS_OK;
}

void spw_pass_leave(struct spw_pass *pass)
{
    struct spw_call_end call_end;
    if (!may_be_cut_off(pass)) {
        pass->done = NULL;
        return;
    }
    memset(&call_end, 0, sizeof call_end);
    call_end.outcome = SPW_OUTCOME_NEUTRAL;
    if (pass->in_flight) {
        spw_http_call_cancel(pass->in_flight);
        (void)spw_settle(pass->decider->map, &pass->ticket, spw_decider_now(pass->decider), &call_end);
    }
    pass_free(pass);
}
