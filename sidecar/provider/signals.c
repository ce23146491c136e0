/* signals.c: what an answer of the provider does to the account's breaker and gate.
 *
 * Owns, called by, thread: see signals.h.
 */
#include "sidecar/provider/signals.h"

#include <string.h>

#include "sidecar/provider/answer.h"

enum spw_outcome spw_answer_outcome(enum spw_answer_kind kind, uint32_t http_status)
{
    bool refused = http_status >= 400 && spw_outcome_of_status(http_status) == SPW_OUTCOME_OK;
    switch (kind) {
    case SPW_ANSWER_OK:
        return SPW_OUTCOME_OK;
    case SPW_ANSWER_REJECTED:
        return http_status == 408 ? SPW_OUTCOME_FAILED : SPW_OUTCOME_OK;
    case SPW_ANSWER_ERROR:
        return refused ? SPW_OUTCOME_OK : SPW_OUTCOME_FAILED;
    case SPW_ANSWER_THROTTLED:
        return SPW_OUTCOME_THROTTLED;
    case SPW_ANSWER_BUSY:
        return SPW_OUTCOME_NEUTRAL;
    default:
        return SPW_OUTCOME_FAILED;
    }
}

enum spw_answer_kind spw_answer_of_status(uint32_t status)
{
    switch (status) {
    case 429:
        return SPW_ANSWER_THROTTLED;
    case 401: /* the account's credentials, path or method: nothing the caller could mend */
    case 403:
    case 404:
        return SPW_ANSWER_ERROR;
    default:
        return spw_answer_status_is_of_the_way(status) ? SPW_ANSWER_ERROR
               : status >= 200 && status < 300         ? SPW_ANSWER_OK
               : status >= 400 && status < 500         ? SPW_ANSWER_REJECTED
                                                       : SPW_ANSWER_ERROR;
    }
}

static void take_evidence(const struct spw_rate_signals *s, uint32_t status, uint64_t now_ns,
                          struct spw_signals *out)
{
    struct spw_evidence *e = &out->evidence;
    e->known = (s->has_limit ? SPW_EVIDENCE_LIMIT : 0) | (s->has_remaining ? SPW_EVIDENCE_REMAINING : 0) |
               (s->has_reset ? SPW_EVIDENCE_RESET : 0);
    e->limit_count = s->limit_count;
    e->remaining_count = s->remaining_count;
    e->reset_unix_ms = s->reset_unix_ms;
    e->observed_ns = now_ns;
    e->status = status;
    out->has_evidence = e->known || status == 429;
}

/* Shut the gate for a wait the provider named, or for a moment when it named none (or one that is over). */
static void shut_gate(struct spw_call_end *end, bool known, uint64_t wait_ms, uint32_t known_source,
                      uint32_t unknown_source, uint64_t now_ns)
{
    bool usable = known && wait_ms > 0;
    end->gate_shut = true;
    end->gate_source = usable ? known_source : unknown_source;
    if (wait_ms > SPW_GATE_MAX_MS)
        wait_ms = SPW_GATE_MAX_MS;
    end->gate_until_ns = now_ns + (usable ? wait_ms : SPW_GATE_UNKNOWN_MS) * UINT64_C(1000000);
}

static bool below_buffer(const struct spw_rate_signals *s, uint32_t header_buffer_ppm)
{
    if (!s->has_remaining)
        return false;
    if (!s->has_limit)
        return s->remaining_count == 0;
    return (spw_u128)s->remaining_count * 1000000u < (spw_u128)s->limit_count * header_buffer_ppm;
}

/* A failure that names its end: a 503 with Retry-After, or a 403 that is a refusal for the rate. The reset beside any
 * other answer says when a window ends, not when the provider is well again. */
static bool asks_for_pause(const struct spw_rate_signals *s, uint32_t status)
{
    return s->has_retry && s->retry_in_ms > 0 &&
           (status >= 500 || (status == 403 && s->has_remaining && s->remaining_count == 0));
}

void spw_signals_read(enum spw_outcome outcome, uint32_t status, const char *headers, size_t headers_bytes,
                      const struct spw_conf_account *account, int64_t wall_ms, uint64_t now_ns,
                      struct spw_signals *out)
{
    struct spw_rate_signals s;
    memset(out, 0, sizeof *out);
    out->end.outcome = outcome;
    struct spw_headers_options options = {.reset_unit = account->reset_unit};
    spw_headers_read_as(headers, headers_bytes, status, wall_ms, &options, &s);
    take_evidence(&s, status, now_ns, out);
    if (outcome == SPW_OUTCOME_THROTTLED)
        shut_gate(&out->end, s.has_retry || s.has_reset, s.has_retry ? s.retry_in_ms : s.reset_in_ms,
                  s.has_retry ? SPW_GATE_RETRY_AFTER : SPW_GATE_RESET, SPW_GATE_UNKNOWN_429, now_ns);
    else if (outcome != SPW_OUTCOME_NEUTRAL && asks_for_pause(&s, status))
        shut_gate(&out->end, true, s.retry_in_ms, SPW_GATE_RETRY_AFTER, SPW_GATE_UNKNOWN_429, now_ns);
    else if (outcome == SPW_OUTCOME_OK && below_buffer(&s, account->header_buffer_ppm))
        shut_gate(&out->end, s.has_reset, s.reset_in_ms, SPW_GATE_BUFFER_RESET, SPW_GATE_UNKNOWN_BUFFER,
                  now_ns);
    else
        out->end.gate_open = outcome == SPW_OUTCOME_OK && spw_status_accepts(status);
}
