/* trace.h: W3C trace context: the caller's, checked, and what is passed on as its child.
 *
 * Owns: struct spw_trace. Called by: the doors (read), flight.c, pass_call.c (child), log.c. Thread: any; pure.
 *
 * A trace is passed on, never begun here: without a valid traceparent there is none, and nothing else depends on it. What is
 * passed on is written anew from checked characters, so that no byte of a caller's becomes a header of its own.
 */
#ifndef SPW_OBS_TRACE_H
#define SPW_OBS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_TRACE_STATE_MAX_BYTES 512u /* a longer tracestate is left out */

struct spw_trace {
    char trace_id[33];                         /* 32 lower-case hex digits; "" = no trace */
    char span_id[17];                          /* 16: the caller's span, or of the call last sent for it */
    uint8_t flags;                             /* sampled, random */
    char state[SPW_TRACE_STATE_MAX_BYTES + 1]; /* tracestate; "" = none */
};

/* Read the two header values; either may be NULL. A traceparent that is not valid makes no trace; a tracestate that is not
 * valid is left out alone. */
void spw_trace_read(const char *traceparent, const char *tracestate, struct spw_trace *out);

#define SPW_TRACE_PARENT_BYTES 72u                               /* "traceparent: ...", with its NUL */
#define SPW_TRACE_STATE_BYTES  (SPW_TRACE_STATE_MAX_BYTES + 16u) /* "tracestate: ...", with its NUL */

/* Begin a span of the trace with this id (random; 0 counts as 1) and write the header lines of a call in it. Returns how many
 * there are: 0 without a trace, 1 without a tracestate, 2. */
size_t spw_trace_child(struct spw_trace *trace, uint64_t span_id, char parent[SPW_TRACE_PARENT_BYTES],
                       char state[SPW_TRACE_STATE_BYTES]);

#endif
