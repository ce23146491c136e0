/* signals.h: what an answer of the provider does to the account's breaker and gate.
 *
 * Owns: the step from an answer (its kind and its rate headers) to what spw_settle is told and what is shown as
 * evidence. Called by: http/decide.c, replay. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_SIGNALS_H
#define SPW_PROVIDER_SIGNALS_H

#include "shm/spw_admission.h"
#include "sidecar/provider/provider.h"

/* The breaker's view of an answer: only what speaks of the provider's health counts. A call without an answer is
 * SPW_OUTCOME_FAILED. A refused key, path or method falls back and is no failure: the provider answers, as spw_report
 * has it, too (spw_outcome_of_status). */
enum spw_outcome spw_answer_outcome(enum spw_answer_kind kind, uint32_t http_status);

/* What an answer is whose body was not kept: a 4xx is then believed to be the provider's own word on the request. */
enum spw_answer_kind spw_answer_of_status(uint32_t status);

struct spw_signals {
    struct spw_call_end end;
    bool has_evidence; /* an answer that says nothing does not wipe out what an earlier one said */
    struct spw_evidence evidence;
};

/* Read the rate headers of an answer with this outcome. account: its header buffer and reset unit count; wall_ms: unix
 * milliseconds and now_ns: CLOCK_BOOTTIME, both at receipt. */
void spw_signals_read(enum spw_outcome outcome, uint32_t status, const char *headers, size_t headers_bytes,
                      const struct spw_conf_account *account, int64_t wall_ms, uint64_t now_ns,
                      struct spw_signals *out);

#endif
