/* flight.c: one provider call, its wait for a token and its retry, for all the quotes that wait for it.
 *
 * Owns: struct spw_flight. Called by: decide.c, job timers. Thread: the loop thread.
 *
 * A flight lives while a job waits for it. The one who began it has no special part: when his caller hangs up, the
 * others' call goes on. Each job keeps its own deadline; the call itself is given up with the last of them.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/http/decide_internal.h"
#include "sidecar/http/learn.h"
#include "sidecar/obs/log.h"
#include "sidecar/provider/signals.h"

/* The wait before the one retry: a second, give or take 30 %, so that callers refused together do not come back
 * together. */
#define RETRY_JITTER_MS 300u
#define RETRY_ROOM_MS   100u /* what must be left for the second call to have a chance */

static uint64_t now_of(const struct spw_flight *flight)
{
    return spw_decider_now(flight->decider);
}

static struct spw_map *map_of(const struct spw_flight *flight)
{
    return flight->decider->map;
}

/* ---- the jobs of a flight ---- */

/* It waits for a retry that would come too late for this one. */
static bool is_too_late_for(const struct spw_flight *flight, const struct spw_job *job)
{
    return !flight->in_flight && spw_loop_timer_armed(&flight->timer) &&
           flight->timer.at_ns + RETRY_ROOM_MS * UINT64_C(1000000) > job->deadline_ns;
}

struct spw_flight *spw_flight_find(const struct spw_job *job)
{
    uint64_t now_ns = spw_decider_now(job->decider);
    uint64_t old_ns = job->account->conf->deadline_ms * UINT64_C(1000000);
    for (struct spw_flight *f = job->account->flights; f; f = f->next) {
        /* A call that has been under way for a whole deadline is no good sign: begin another. */
        if (f->may_be_joined && memcmp(&f->key, &job->cart_key, sizeof f->key) == 0 &&
            (!f->batch || job->batch) && now_ns - f->started_ns < old_ns && !is_too_late_for(f, job))
            return f;
    }
    return NULL;
}

static void add(struct spw_flight *flight, struct spw_job *job)
{
    job->flight = flight;
    job->next = flight->jobs;
    flight->jobs = job;
}

void spw_flight_join(struct spw_flight *flight, struct spw_job *job)
{
    job->account->counters.joined++;
    add(flight, job);
}

static void take_out(struct spw_job *job)
{
    struct spw_job **at = &job->flight->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->flight = NULL;
}

static void flight_free(struct spw_flight *flight)
{
    spw_loop_timer_cancel(flight->decider->options.loop, &flight->timer);
    *flight->link = flight->next;
    if (flight->next)
        flight->next->link = flight->link;
    spw_outgoing_clean_up(&flight->call);
    spw_answer_clean_up(&flight->answer);
    spw_answer_clear(&flight->answer);
    struct spw_decider *d = flight->decider;
    if (d->spare_flights_count == SPW_SPARES_MAX_COUNT) {
        free(flight);
        return;
    }
    flight->next = d->spare_flights;
    d->spare_flights = flight;
    d->spare_flights_count++;
}

void spw_flights_clean_up(struct spw_decider *d)
{
    while (d->spare_flights) {
        struct spw_flight *flight = d->spare_flights;
        d->spare_flights = flight->next;
        free(flight);
    }
}

/* The job's decision is told with the span of the call that was made for it, if the call is of its own trace. */
static void take_span(struct spw_job *job, const struct spw_flight *flight)
{
    if (flight->attempts && strcmp(job->trace.trace_id, flight->trace.trace_id) == 0)
        memcpy(job->trace.span_id, flight->trace.span_id, sizeof job->trace.span_id);
}

/* The next job to be told, with what the call says about itself; NULL = all were. */
static struct spw_job *take_job(struct spw_flight *flight)
{
    struct spw_job *job = flight->jobs;
    if (!job)
        return NULL;
    take_out(job);
    job->result.provider_status = flight->provider_status;
    job->result.attempts = flight->attempts;
    job->result.provider_ms = flight->provider_ms;
    job->admission = flight->admission;
    take_span(job, flight);
    return job;
}

static void fall_back_all(struct spw_flight *flight, enum spw_fallback type, enum spw_cause cause)
{
    struct spw_job *job;
    flight->may_be_joined = false;
    while ((job = take_job(flight)))
        spw_job_fall_back(job, type, cause);
    flight_free(flight);
}

static void live_all(struct spw_flight *flight, const struct spw_http_response *response)
{
    struct spw_job *job;
    flight->may_be_joined = false;
    while ((job = take_job(flight)))
        spw_job_live(job, &flight->answer, job->is_native ? response : NULL);
    flight_free(flight);
}

static void reject_all(struct spw_flight *flight, const struct spw_http_response *response)
{
    struct spw_job *job;
    flight->may_be_joined = false;
    while ((job = take_job(flight)))
        spw_job_rejected(job, &flight->answer, job->is_native ? response : NULL);
    flight_free(flight);
}

/* Nobody waits any more. A call that is cut off at its last deadline has failed; one whose callers left has not. */
static void give_up(struct spw_flight *flight, bool late)
{
    struct spw_call_end end;
    memset(&end, 0, sizeof end);
    end.outcome = late ? SPW_OUTCOME_FAILED : SPW_OUTCOME_NEUTRAL;
    if (flight->in_flight) {
        spw_http_call_cancel(flight->in_flight);
        flight->account->counters.calls[SPW_CALL_TIMEOUT] += late;
        if (spw_settle(map_of(flight), &flight->ticket, now_of(flight), &end))
            spw_log(SPW_LOG_WARN, "breaker.changed", "account %s: the breaker opened",
                    flight->account->conf->name);
    } else if (flight->holds_ticket) {
        spw_abandon(map_of(flight), &flight->ticket, now_of(flight));
    }
    flight_free(flight);
}

void spw_flight_leave(struct spw_job *job, bool late)
{
    struct spw_flight *flight = job->flight;
    if (!flight)
        return;
    job->result.provider_status = flight->provider_status;
    job->result.attempts = flight->attempts;
    uint64_t since_ns = flight->in_flight ? now_of(flight) - flight->sent_ns : 0;
    job->result.provider_ms = flight->provider_ms + since_ns / 1000000;
    job->admission = flight->admission;
    take_span(job, flight);
    job->in_flight_at_end = flight->in_flight != NULL;
    take_out(job);
    if (!flight->jobs)
        give_up(flight, late);
}

/* ---- the retry ---- */

static void send_call(struct spw_flight *flight);

static void retry_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_flight *flight = timer->owner;
    uint32_t flags = SPW_ACQUIRE_RETRY | flight->acquire_flags;
    flight->admission = spw_admit(map_of(flight), flight->account_index, flight->account_generation, flags, 1,
                                  0, spw_loop_now_ns(loop), &flight->ticket);
    if (!flight->admission.may_call) {
        fall_back_all(flight, flight->retry_type, SPW_CAUSE_RETRY_NO_TOKEN);
        return;
    }
    flight->account->counters.retries++;
    send_call(flight);
}

/* One retry at most, and only if it fits: not before the provider's own wait, not after the deadline of those who wait
 * for it. */
static void retry_or_fall_back(struct spw_flight *flight, const struct spw_call_end *end)
{
    struct spw_decider *d = flight->decider;
    /* A lock on some object (BUSY) is tried again like a rate limit, but was none. */
    bool busy = flight->answer.kind == SPW_ANSWER_BUSY;
    flight->retry_type = busy ? SPW_FALLBACK_PROVIDER_ERROR : SPW_FALLBACK_RATE_LIMIT_429;
    if (flight->attempts > 1) {
        fall_back_all(flight, flight->retry_type, SPW_CAUSE_RETRY_429);
        return;
    }
    const struct spw_conf_retry *retry = &flight->account->conf->retry;
    uint64_t at_ns =
        now_of(flight) + spw_backoff_ns(retry->jitter, retry->base_ms * UINT64_C(1000000),
                                        retry->most_ms * UINT64_C(1000000), 0, spw_decider_random(d));
    bool told = end->gate_source == SPW_GATE_RETRY_AFTER || end->gate_source == SPW_GATE_RESET;
    if (told && end->gate_until_ns > at_ns)
        at_ns = end->gate_until_ns + spw_decider_random(d) % (RETRY_JITTER_MS * UINT64_C(1000000));
    struct spw_job *staying = NULL, *job;
    while ((job = take_job(flight))) {
        if (at_ns + RETRY_ROOM_MS * UINT64_C(1000000) > job->deadline_ns) {
            spw_job_fall_back(job, flight->retry_type, SPW_CAUSE_RETRY_TOO_LATE);
        } else {
            job->next = staying;
            staying = job;
        }
    }
    if (!staying) {
        flight_free(flight);
        return;
    }
    while ((job = staying)) {
        staying = job->next;
        add(flight, job);
    }
    flight->timer.fn = retry_due;
    spw_loop_timer_set(d->options.loop, &flight->timer, at_ns);
}

/* ---- the call ---- */

/* A calculation in the provider's own form is read line by line where its lines are named as this sidecar would have
 * named them: what that finds sound has nothing left to judge. Any other is judged by its form and its sums. */
static void read_native(struct spw_flight *flight, const struct spw_http_response *response)
{
    const struct spw_profile *profile = flight->account->profile;
    const struct spw_quote_request *quote = &flight->jobs->request;
    struct spw_answer *answer = &flight->answer;
    profile->read(quote, response->status, response->headers, response->headers_bytes, response->body,
                  response->body_bytes, answer);
    if (answer->kind == SPW_ANSWER_OK || !profile->check)
        return;
    spw_answer_clean_up(answer);
    profile->judge(flight->route, response->status, response->headers, response->headers_bytes,
                   response->body, response->body_bytes, answer);
    if (answer->kind == SPW_ANSWER_OK)
        profile->check(quote, response->body, response->body_bytes, answer);
}

static enum spw_call_result read_answer(struct spw_flight *flight, const struct spw_http_response *response,
                                        enum spw_outcome *outcome)
{
    *outcome = response->calm ? SPW_OUTCOME_THROTTLED : SPW_OUTCOME_FAILED;
    if (response->calm)
        return SPW_CALL_THROTTLED;
    if (response->outcome != SPW_HTTP_ANSWERED)
        return spw_call_result_of(response, SPW_ANSWER_BROKEN);
    /* Any of the jobs: their quotes are the same in all that the answer depends on. */
    if (flight->jobs->is_native)
        read_native(flight, response);
    else
        flight->account->profile->read(&flight->jobs->request, response->status, response->headers,
                                       response->headers_bytes, response->body, response->body_bytes,
                                       &flight->answer);
    spw_learn(flight->decider->options.state, &flight->jobs->request, &flight->answer, spw_wall_ms());
    *outcome = spw_answer_outcome(flight->answer.kind, response->status);
    return spw_call_result_of(response, flight->answer.kind);
}

static void conclude(struct spw_flight *flight, enum spw_call_result result,
                     const struct spw_http_response *response, const struct spw_call_end *end)
{
    const char *name = flight->account->conf->name;
    switch (result) {
    case SPW_CALL_OK:
        live_all(flight, response);
        return;
    case SPW_CALL_REJECTED:
        reject_all(flight, response);
        return;
    case SPW_CALL_THROTTLED:
        if (response->calm) /* libcurl has tried twice; more would be more of what the peer asks less of */
            fall_back_all(flight, SPW_FALLBACK_RATE_LIMIT_429, SPW_CAUSE_RETRY_429);
        else
            retry_or_fall_back(flight, end);
        return;
    case SPW_CALL_TIMEOUT:
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_TIMEOUT, SPW_CAUSE_TIMEOUT);
        return;
    case SPW_CALL_CONNECT:
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return;
    case SPW_CALL_BROKEN:
        spw_log_traced(SPW_LOG_WARN, "provider.broken", &flight->trace, "account %s: %s", name,
                       response->outcome == SPW_HTTP_ANSWERED ? flight->answer.detail : response->detail);
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_BAD_ANSWER);
        return;
    default:
        spw_log_traced(SPW_LOG_WARN, "provider.error", &flight->trace, "account %s: status %u: %s", name,
                       response->status, flight->answer.detail);
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_ERROR,
                      response->status >= 500 ? SPW_CAUSE_STATUS_5XX : SPW_CAUSE_BAD_ANSWER);
    }
}

static void call_done(void *owner, const struct spw_http_response *response)
{
    struct spw_flight *flight = owner;
    struct spw_call_end end;
    flight->in_flight = NULL;
    if (response->outcome == SPW_HTTP_CANCELLED) {
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return;
    }
    memset(&end, 0, sizeof end);
    flight->provider_status = response->status;
    flight->provider_ms += (response->done_ns - response->sent_ns) / 1000000;
    spw_answer_clean_up(&flight->answer);
    spw_answer_clear(&flight->answer);
    enum spw_call_result result = read_answer(flight, response, &end.outcome);
    spw_call_note_throttle(flight->account, &flight->answer);
    flight->holds_ticket = false;
    spw_call_settle(flight->decider, flight->account, &flight->ticket, flight->acquire_flags,
                    &flight->admission, response, result, &end);
    conclude(flight, result, response, &end);
}

static void send_call(struct spw_flight *flight)
{
    struct spw_http_request request;
    struct spw_outgoing_span span;
    const char *lines[SPW_OUTGOING_LINES_MAX_COUNT];
    struct spw_error err;
    uint64_t deadline_ms = flight->account->conf->deadline_ms;
    memset(&request, 0, sizeof request);
    request.method = flight->call.method;
    request.url = flight->call.url;
    request.headers = lines;
    request.header_count =
        spw_outgoing_lines(&flight->call, &flight->trace, spw_decider_random(flight->decider), &span, lines);
    request.body = flight->call.body;
    request.body_bytes = flight->call.body_bytes;
    /* Each job's own timer ends its wait; who joined last may wait for one deadline more. */
    request.deadline_ns = now_of(flight) + 2 * deadline_ms * UINT64_C(1000000);
    request.at_most_once = flight->jobs->records;
    flight->attempts++;
    flight->sent_ns = now_of(flight);
    if (spw_http_client_send(flight->account->client, &request, call_done, flight, &flight->in_flight,
                             &err) != SPW_STATUS_OK) {
        spw_log_traced(SPW_LOG_ERROR, "provider.send", &flight->trace, "account %s: %s",
                       flight->account->conf->name, err.text);
        spw_abandon(map_of(flight), &flight->ticket, now_of(flight));
        fall_back_all(flight, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
    }
}

/* ---- the beginning ---- */

/* The reserved token has been earned. Gate and breaker may have shut meanwhile: then it has gone back. */
static void reservation_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_flight *flight = timer->owner;
    struct spw_admission a = spw_confirm(map_of(flight), &flight->ticket, spw_loop_now_ns(loop));
    flight->admission.breaker_state = a.breaker_state;
    if (a.may_call)
        send_call(flight);
    else
        fall_back_all(flight, spw_refusal_type(a.cause), a.cause);
}

static struct spw_flight *take_spare(struct spw_decider *d)
{
    struct spw_flight *flight = d->spare_flights;
    if (!flight)
        return calloc(1, sizeof *flight);
    d->spare_flights = flight->next;
    d->spare_flights_count--;
    memset(flight, 0, offsetof(struct spw_flight, call)); /* the rest was cleared when it ended */
    return flight;
}

static struct spw_flight *flight_new(struct spw_job *job, struct spw_outgoing *call,
                                     const struct spw_route *route)
{
    struct spw_flight *flight = take_spare(job->decider);
    if (!flight) {
        spw_outgoing_clean_up(call);
        return NULL;
    }
    flight->decider = job->decider;
    flight->account = job->account;
    flight->account_index = job->account_index;
    flight->account_generation = job->account_generation;
    flight->key = job->cart_key;
    flight->batch = job->batch;
    flight->acquire_flags = job->acquire_flags;
    flight->trace = job->trace;
    flight->route = route;
    flight->may_be_joined = !route; /* documents and ids of the provider belong to one caller */
    flight->started_ns = spw_decider_now(job->decider);
    flight->timer.owner = flight;
    spw_outgoing_move(&flight->call, call);
    flight->next = job->account->flights;
    if (flight->next)
        flight->next->link = &flight->next;
    flight->link = &job->account->flights;
    job->account->flights = flight;
    add(flight, job);
    return flight;
}

void spw_flight_start(struct spw_job *job, struct spw_outgoing *call, const struct spw_route *route)
{
    struct spw_flight *flight = flight_new(job, call, route);
    if (!flight) {
        spw_job_fall_back(job, SPW_FALLBACK_PROVIDER_ERROR, SPW_CAUSE_CONNECT);
        return;
    }
    uint64_t now_ns = now_of(flight), wait_ns = job->account->conf->wait_ms * UINT64_C(1000000);
    uint64_t left_ns = job->deadline_ns > now_ns ? job->deadline_ns - now_ns : 0;
    uint64_t room_ns = RETRY_ROOM_MS * UINT64_C(1000000);
    if (wait_ns + room_ns > left_ns)
        wait_ns = left_ns > room_ns ? left_ns - room_ns : 0;
    flight->admission = spw_admit(map_of(flight), flight->account_index, flight->account_generation,
                                  flight->acquire_flags, 1, wait_ns, now_ns, &flight->ticket);
    flight->holds_ticket = flight->admission.may_call;
    if (!flight->admission.may_call) {
        if (flight->admission.wait_ns != SPW_FOREVER_NS)
            job->result.live_again_in_ms = (flight->admission.wait_ns + 999999) / 1000000;
        fall_back_all(flight, spw_refusal_type(flight->admission.cause), flight->admission.cause);
    } else if (flight->admission.start_at_ns > now_ns) {
        flight->timer.fn = reservation_due;
        spw_loop_timer_set(flight->decider->options.loop, &flight->timer, flight->admission.start_at_ns);
    } else {
        send_call(flight);
    }
}
