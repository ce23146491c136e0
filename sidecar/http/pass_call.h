/* pass_call.h: a request of an SDK that is passed on as it is: records, refunds, look-ups, pings, and calculations that
 * cannot be told as a quote.
 *
 * Owns: such calls in flight. Called by: pass_door.c. Thread: the loop thread.
 *
 * Each takes a token like any other call, is never tried again here (the provider's own idempotency is the caller's to
 * use), and is never answered from the cache. A started call ends in exactly one call of its done function, possibly
 * before spw_pass_start returns.
 */
#ifndef SPW_HTTP_PASS_CALL_H
#define SPW_HTTP_PASS_CALL_H

#include "sidecar/http/client.h"
#include "sidecar/http/decide.h"

struct spw_pass;

enum spw_pass_end {
    SPW_PASS_ANSWERED, /* by the provider, whatever it says */
    SPW_PASS_REFUSED,  /* not sent: limit, gate or breaker */
    SPW_PASS_FAILED    /* sent or tried, and no whole answer came: what became of it is not known */
};

struct spw_pass_result {
    enum spw_pass_end end;
    enum spw_cause cause;                     /* REFUSED */
    uint64_t wait_ms;                         /* REFUSED: when to try again; 0 = not known */
    const struct spw_http_response *response; /* ANSWERED, FAILED; NULL when nothing could be sent */
    enum spw_answer_kind kind;                /* ANSWERED */
};
typedef void spw_passed_fn(void *owner, const struct spw_pass_result *result); /* result valid in the call */

/* native is borrowed for the call of this function alone. NOT_FOUND: no such account or integration. */
enum spw_status spw_pass_start(struct spw_decider *decider, const char *account, const char *integration,
                               const struct spw_native_request *native, spw_passed_fn *done, void *owner,
                               struct spw_pass **out, struct spw_error *err) SPW_WARN_UNUSED;
/* The caller has gone: done is not called. A look-up is given up; what may change the books is let finish. */
void spw_pass_leave(struct spw_pass *pass);

#endif
