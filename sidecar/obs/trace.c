/* trace.c: see trace.h. W3C Trace Context, sections 3.2 and 3.3. */
#include "sidecar/obs/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PARENT_BYTES      55 /* 00-TRACE-SPAN-FLAGS */
#define MEMBERS_MAX_COUNT 32

/* count lower-case hex digits; *zero: all of them are 0. */
static bool is_hex(const char *text, size_t count, bool *zero)
{
    *zero = true;
    for (size_t i = 0; i < count; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
        *zero &= text[i] == '0';
    }
    return true;
}

static uint8_t hex_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* Version 00 ends where it ends; a later one may go on after another dash, and is read as far as 00 goes. */
static bool read_parent(const char *text, struct spw_trace *out)
{
    bool zero;
    size_t bytes = strlen(text);
    if (bytes < PARENT_BYTES || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
        !is_hex(text, 2, &zero) || strncmp(text, "ff", 2) == 0)
        return false;
    if (bytes > PARENT_BYTES && (zero || text[PARENT_BYTES] != '-'))
        return false;
    if (!is_hex(text + 3, 32, &zero) || zero || !is_hex(text + 36, 16, &zero) || zero ||
        !is_hex(text + 53, 2, &zero))
        return false;
    snprintf(out->trace_id, sizeof out->trace_id, "%.32s", text + 3);
    snprintf(out->span_id, sizeof out->span_id, "%.16s", text + 36);
    out->flags =
        (uint8_t)((hex_digit(text[53]) * 16 + hex_digit(text[54])) & 3); /* the two that are defined */
    return true;
}

/* A list of key=value, of printable characters; what the keys and values may hold beyond that is their owners'. */
static bool is_state(const char *text)
{
    size_t bytes = strlen(text), members = 1;
    bool has_key = false, has_value = false;
    if (bytes == 0 || bytes > SPW_TRACE_STATE_MAX_BYTES)
        return false;
    for (size_t i = 0; i <= bytes; i++) {
        char c = text[i];
        if (c == ',' || c == 0) {
            if (has_key && !has_value)
                return false;
            members += c == ',';
            has_key = has_value = false;
        } else if (c == '=' && !has_value) {
            if (!has_key)
                return false;
            has_value = true;
        } else if (c == '\t' || c == ' ') {
            continue; /* around members, or within a value */
        } else if (c < 0x21 || c > 0x7e) {
            return false;
        } else {
            has_key = true;
        }
    }
    return members <= MEMBERS_MAX_COUNT;
}

void spw_trace_read(const char *traceparent, const char *tracestate, struct spw_trace *out)
{
    memset(out, 0, sizeof *out);
    if (traceparent && read_parent(traceparent, out) && tracestate && is_state(tracestate))
        snprintf(out->state, sizeof out->state, "%s", tracestate);
}

size_t spw_trace_child(struct spw_trace *trace, uint64_t span_id, char parent[SPW_TRACE_PARENT_BYTES],
                       char state[SPW_TRACE_STATE_BYTES])
{
    if (!trace->trace_id[0])
        return 0;
    snprintf(trace->span_id, sizeof trace->span_id, "%016" PRIx64, span_id ? span_id : 1);
    snprintf(parent, SPW_TRACE_PARENT_BYTES, "traceparent: 00-%s-%s-%02x", trace->trace_id, trace->span_id,
             trace->flags);
    if (!trace->state[0])
        return 1;
    snprintf(state, SPW_TRACE_STATE_BYTES, "tracestate: %s", trace->state);
    return 2;
}
