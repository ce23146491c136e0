/* outgoing.h: a provider call as it is sent, whether a profile built it or an SDK did.
 *
 * Owns: struct spw_outgoing, the choice of headers that pass. Called by: decide.c, pass_call.c, flight.c. Thread: any;
 * pure but for allocation.
 */
#ifndef SPW_HTTP_OUTGOING_H
#define SPW_HTTP_OUTGOING_H

#include "sidecar/obs/trace.h"
#include "sidecar/provider/provider.h"

#define SPW_OUTGOING_HEADERS_MAX_COUNT 64u

struct spw_outgoing {
    const char *method; /* static, or the route's */
    char *url;          /* NULL = nothing to send */
    char *body;
    size_t body_bytes;
    size_t header_count;
    char *headers[SPW_OUTGOING_HEADERS_MAX_COUNT]; /* of these only as many as are counted mean anything */
};

void spw_outgoing_init(struct spw_outgoing *out); /* nothing to send */
/* Takes over what `from` holds, which is left empty. */
void spw_outgoing_move(struct spw_outgoing *out, struct spw_outgoing *from);
/* Takes over what `call` holds, which is left empty. */
void spw_outgoing_take(struct spw_outgoing *out, struct spw_call *call);
/* An SDK's request on its way: to the account's own url, path as checked, with the account's credential in place of
 * whatever the SDK carried. Left out: hop-by-hop headers and those that Connection names, credentials and cookies,
 * proxies' traces, and the sidecar's own; the trace context too, which goes on as that of a new span. */
enum spw_status spw_outgoing_pass(struct spw_outgoing *out, const struct spw_profile *profile,
                                  const struct spw_conf_account *account,
                                  const struct spw_credential *credential,
                                  const struct spw_native_request *request,
                                  struct spw_error *err) SPW_WARN_UNUSED;
/* The trace context of a request's raw header block (NULL = none): of several traceparent lines none counts, several
 * tracestate lines are one list. */
void spw_outgoing_trace(const char *block, struct spw_trace *out);
/* The header lines a call is sent with: its own, then those of a new span of the trace. lines: room for
 * SPW_OUTGOING_LINES_MAX_COUNT; they point into out and scratch. Returns how many there are. */
struct spw_outgoing_span {
    char parent[SPW_TRACE_PARENT_BYTES];
    char state[SPW_TRACE_STATE_BYTES];
};
#define SPW_OUTGOING_LINES_MAX_COUNT (SPW_OUTGOING_HEADERS_MAX_COUNT + 2)
size_t spw_outgoing_lines(const struct spw_outgoing *out, struct spw_trace *trace, uint64_t span_id,
                          struct spw_outgoing_span *scratch, const char **lines);
void spw_outgoing_clean_up(struct spw_outgoing *out); /* wipes headers: one is the credential */

/* One "Name: value" line of a raw header block: its parts, and where the next begins; NULL at the end. No block that comes
 * here has a carriage return but before a line's end. */
struct spw_header_part {
    const char *name, *value;
    size_t name_bytes, value_bytes;
};
const char *spw_header_next(const char *block, struct spw_header_part *out);
/* The block if a Connection among its headers names others, which then are for this hop alone; else NULL. */
const char *spw_header_connection(const char *block);
/* May this header of an answer go on to the SDK? connection: what spw_header_connection said of the answer's block. */
bool spw_header_passes_back(const char *connection, const struct spw_header_part *part);

#endif
