/* settle.c: the end of one provider call, as far as limits, breaker, evidence and counters care.
 *
 * Owns: nothing. Called by: flight.c, pass_call.c. Thread: the loop thread.
 */
#include <string.h>

#include "shm/spw_ref.h"
#include "sidecar/http/decide_internal.h"
#include "sidecar/obs/log.h"
#include "sidecar/provider/signals.h"

enum spw_call_result spw_call_result_of(const struct spw_http_response *response, enum spw_answer_kind kind)
{
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
    switch (kind) {
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

/* libcurl replaced a kept connection that was dead and sent the request again: the provider may have counted both. */
static void charge_resent(struct spw_decider *d, const struct spw_account_use *account,
                          uint32_t acquire_flags)
{
    struct spw_ticket ticket;
    struct spw_ref ref;
    uint64_t now_ns = spw_decider_now(d);
    spw_ref_init(&ref, account->conf->name, NULL);
    if (!spw__ref_find(d->map, &ref))
        return;
    struct spw_admission a = spw_admit(d->map, ref.account_index, ref.account_generation,
                                       SPW_ACQUIRE_RETRY | acquire_flags, 1, 0, now_ns, &ticket);
    struct spw_call_end none = {.outcome = SPW_OUTCOME_NEUTRAL};
    if (a.may_call)
        (void)spw_settle(d->map, &ticket, now_ns, &none);
}

/* What an answer says about the limits. */
static void read_signals(struct spw_decider *d, const struct spw_account_use *account, uint32_t account_index,
                         const struct spw_http_response *response, struct spw_call_end *end)
{
    struct spw_signals signals;
    spw_signals_read(end->outcome, response->status, response->headers, response->headers_bytes,
                     account->conf, spw_wall_ms(), spw_decider_now(d), &signals);
    if (signals.has_evidence)
        spw_state_evidence_set(d->options.state, account_index, &signals.evidence);
    *end = signals.end;
}

void spw_call_note_throttle(const struct spw_account_use *account, const struct spw_answer *answer)
{
    uint32_t in_flight_count = 1; /* the one that was refused */
    if (answer->kind != SPW_ANSWER_THROTTLED || answer->throttle != SPW_THROTTLE_CONCURRENCY)
        return;
    for (const struct spw_flight *f = account->flights; f; f = f->next)
        in_flight_count += f->in_flight != NULL;
    spw_log(SPW_LOG_WARN, "provider.concurrency",
            "account %s: the provider refuses more calls at once; this pod has %u in flight and concurrency "
            "is %u (0 = "
            "not limited): set it lower",
            account->conf->name, in_flight_count, account->conf->concurrency_count);
}

void spw_call_settle(struct spw_decider *d, struct spw_account_use *account, const struct spw_ticket *ticket,
                     uint32_t acquire_flags, const struct spw_admission *admission,
                     const struct spw_http_response *response, enum spw_call_result result,
                     struct spw_call_end *end)
{
    struct spw_decider_counters *c = &account->counters;
    if (response->attempts > 1)
        charge_resent(d, account, acquire_flags);
    if (response->outcome == SPW_HTTP_ANSWERED ||
        response->calm) /* then without headers: a pause of a moment */
        read_signals(d, account, ticket->account_index, response, end);
    c->calls[result]++;
    spw_state_call_count(d->options.state, ticket->account_index, result == SPW_CALL_THROTTLED);
    if (result == SPW_CALL_THROTTLED && spw_admission_tokens_milli(admission) >= 2000)
        c->unexpected_429++;
    if (spw_settle(d->map, ticket, spw_decider_now(d), end))
        spw_log(SPW_LOG_WARN, "breaker.changed", "account %s: the breaker %s", account->conf->name,
                end->outcome == SPW_OUTCOME_OK ? "closed" : "opened");
}
