/* outgoing.c: a provider call as it is sent. See outgoing.h. */
#include "sidecar/http/outgoing.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "shm/spw_text.h"

void spw_outgoing_init(struct spw_outgoing *out)
{
    memset(out, 0, offsetof(struct spw_outgoing, headers));
}

void spw_outgoing_move(struct spw_outgoing *out, struct spw_outgoing *from)
{
    memcpy(out, from, offsetof(struct spw_outgoing, headers) + from->header_count * sizeof from->headers[0]);
    spw_outgoing_init(from);
}

void spw_outgoing_take(struct spw_outgoing *out, struct spw_call *call)
{
    out->method = call->method;
    out->url = call->url;
    out->header_count = call->header_count;
    for (size_t i = 0; i < call->header_count; i++)
        out->headers[i] = call->headers[i];
    out->body = call->body;
    out->body_bytes = call->body_bytes;
    memset(call, 0, sizeof *call);
}

void spw_outgoing_clean_up(struct spw_outgoing *out)
{
    for (size_t i = 0; i < out->header_count; i++) {
        explicit_bzero(out->headers[i], strlen(out->headers[i]));
        free(out->headers[i]);
    }
    free(out->url);
    free(out->body);
    spw_outgoing_init(out);
}

const char *spw_header_next(const char *block, struct spw_header_part *out)
{
    while (*block) {
        const char *end = strchrnul(block, '\n'), *next = *end ? end + 1 : end;
        const char *colon = memchr(block, ':', (size_t)(end - block));
        if (end > block && end[-1] == '\r')
            end--;
        if (colon && colon > block) {
            const char *value = colon + 1;
            while (*value == ' ' || *value == '\t')
                value++;
            while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
            *out = (struct spw_header_part){block, value, (size_t)(colon - block), (size_t)(end - value)};
            return next;
        }
        block = next;
    }
    return NULL;
}

/* The first letters tell most names apart, without a look at the rest. */
static bool may_begin(const struct spw_header_part *part, const char *name)
{
    return ((part->name[0] ^ name[0]) & ~0x20) == 0;
}

static bool is_name(const struct spw_header_part *part, const char *name)
{
    return may_begin(part, name) && part->name_bytes == strlen(name) &&
           strncasecmp(part->name, name, part->name_bytes) == 0;
}

static bool is_one_of(const struct spw_header_part *part, const char *const *names)
{
    for (size_t i = 0; names[i]; i++) {
        if (is_name(part, names[i]))
            return true;
    }
    return false;
}

static bool begins(const struct spw_header_part *part, const char *prefix)
{
    return may_begin(part, prefix) && part->name_bytes >= strlen(prefix) &&
           strncasecmp(part->name, prefix, strlen(prefix)) == 0;
}

/* RFC 9110, 7.6.1, and its predecessors. */
static bool is_hop_by_hop(const struct spw_header_part *part)
{
    static const char *const names[] = {"Connection", "Keep-Alive",     "TE",
                                        "Trailer",    "Trailers",       "Transfer-Encoding",
                                        "Upgrade",    "Content-Length", NULL};
    return is_one_of(part, names) || begins(part, "Proxy-");
}

/* Connection may name further headers that are for this hop alone. */
static bool is_named_by_connection(const char *block, const struct spw_header_part *part)
{
    struct spw_header_part other;
    while ((block = spw_header_next(block, &other))) {
        if (!is_name(&other, "Connection"))
            continue;
        const char *p = other.value, *end = other.value + other.value_bytes;
        while (p < end) {
            while (p < end && (*p == ',' || *p == ' ' || *p == '\t'))
                p++;
            const char *word = p;
            while (p < end && *p != ',' && *p != ' ' && *p != '\t')
                p++;
            if ((size_t)(p - word) == part->name_bytes &&
                strncasecmp(word, part->name, part->name_bytes) == 0)
                return true;
        }
    }
    return false;
}

/* Headers by which some servers take another method or path than the request line's, which is what was checked. */
static bool is_detour(const struct spw_header_part *part)
{
    static const char *const names[] = {"X-HTTP-Method-Override",
                                        "X-HTTP-Method",
                                        "X-Method-Override",
                                        "X-Original-Method",
                                        "X-Original-URL",
                                        "X-Original-URI",
                                        "X-Original-Host",
                                        "X-Rewrite-URL",
                                        "X-Rewrite-URI",
                                        "X-Host",
                                        NULL};
    return is_one_of(part, names);
}

static bool value_is(const struct spw_header_part *part, const char *word)
{
    return part->value_bytes == strlen(word) && strncasecmp(part->value, word, part->value_bytes) == 0;
}

/* Most say keep-alive, which is for this hop whoever names it. */
const char *spw_header_connection(const char *block)
{
    struct spw_header_part part;
    for (const char *at = block; (at = spw_header_next(at, &part));) {
        if (is_name(&part, "Connection") && !value_is(&part, "keep-alive"))
            return block;
    }
    return NULL;
}

/* own: the header with the account's key, which none of the caller's may stand beside. connection: where Connection
 * names others, else NULL. Many a server takes X_API_KEY for X-API-KEY: no name with an underscore goes on. */
static bool passes_on(const char *connection, const struct spw_header_part *part,
                      const struct spw_header_part *own)
{
    static const char *const kept_back[] = {
        "Host",      "Authorization", "X-API-Key", "Api-Key",     "Cookie",     "Expect", "Accept-Encoding",
        "Forwarded", "Via",           "X-Real-IP", "traceparent", "tracestate", NULL};
    bool is_own =
        part->name_bytes == own->name_bytes && strncasecmp(part->name, own->name, own->name_bytes) == 0;
    return !is_own && !is_hop_by_hop(part) && !is_one_of(part, kept_back) && !is_detour(part) &&
           !begins(part, "Spillway-") && !begins(part, "X-Forwarded-") &&
           !memchr(part->name, '_', part->name_bytes) &&
           !(connection && is_named_by_connection(connection, part));
}

bool spw_header_passes_back(const char *connection, const struct spw_header_part *part)
{
    static const char *const kept_back[] = {
        "Content-Encoding",          "Set-Cookie", "Date", "Content-Type", "Alt-Svc",
        "Strict-Transport-Security", NULL};
    return !is_hop_by_hop(part) && !is_one_of(part, kept_back) && !begins(part, "Spillway-") &&
           !(connection && is_named_by_connection(connection, part));
}

void spw_outgoing_trace(const char *block, struct spw_trace *out)
{
    char parent[256] = "", state[SPW_TRACE_STATE_MAX_BYTES + 2] = "";
    size_t used = 0, parents = 0;
    struct spw_header_part part;
    for (const char *at = block; at && (at = spw_header_next(at, &part));) {
        if (is_name(&part, "traceparent")) {
            parents++;
            snprintf(parent, sizeof parent, "%.*s", (int)part.value_bytes, part.value);
        } else if (is_name(&part, "tracestate") &&
                   used < sizeof state) { /* cut off, it is too long to count */
            int n = snprintf(state + used, sizeof state - used, "%s%.*s", used ? "," : "",
                             (int)part.value_bytes, part.value);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    spw_trace_read(parents == 1 ? parent : NULL, state, out);
}

size_t spw_outgoing_lines(const struct spw_outgoing *out, struct spw_trace *trace, uint64_t span_id,
                          struct spw_outgoing_span *scratch, const char **lines)
{
    size_t count = 0;
    while (count < out->header_count) {
        lines[count] = out->headers[count];
        count++;
    }
    size_t more = spw_trace_child(trace, span_id, scratch->parent, scratch->state);
    if (more > 0)
        lines[count++] = scratch->parent;
    if (more > 1)
        lines[count++] = scratch->state;
    return count;
}

static enum spw_status no_memory(struct spw_error *err)
{
    return spw_error_set(err, SPW_STATUS_NO_MEMORY, "call: no memory: raise the container's memory limit");
}

/* The account's url with the path and query asked for, malloc'ed. */
static char *url_of(const char *base, const struct spw_native_request *request)
{
    size_t room = strlen(base) + strlen(request->path) + 1 + strlen(request->query) + 1;
    char *url = malloc(room);
    if (!url)
        return NULL;
    struct spw_text t = spw_text_on(url, room);
    spw_text_put(&t, base);
    spw_text_put(&t, request->path);
    spw_text_put(&t, request->query[0] ? "?" : "");
    spw_text_put(&t, request->query);
    return url;
}

/* "Name: value", malloc'ed. */
static char *line_of(const struct spw_header_part *part)
{
    char *line = malloc(part->name_bytes + part->value_bytes + 3);
    if (!line)
        return NULL;
    memcpy(line, part->name, part->name_bytes);
    memcpy(line + part->name_bytes, ": ", 2);
    memcpy(line + part->name_bytes + 2, part->value, part->value_bytes);
    line[part->name_bytes + 2 + part->value_bytes] = 0;
    return line;
}

/* The caller's headers that may go on, and the account's key in place of what he showed. */
static enum spw_status put_headers(struct spw_outgoing *out, const struct spw_native_request *request,
                                   char *credential, struct spw_error *err)
{
    struct spw_header_part part, own = {.name = "", .value = ""};
    const char *connection = spw_header_connection(request->headers);
    if (!credential)
        return no_memory(err);
    out->headers[out->header_count++] = credential;
    (void)spw_header_next(credential, &own);
    for (const char *at = request->headers; (at = spw_header_next(at, &part));) {
        if (!passes_on(connection, &part, &own))
            continue;
        if (out->header_count == SPW_OUTGOING_HEADERS_MAX_COUNT)
            return spw_error_set(err, SPW_STATUS_INVALID, "the request has more than %u headers",
                                 SPW_OUTGOING_HEADERS_MAX_COUNT - 1);
        char *line = line_of(&part);
        if (!line)
            return no_memory(err);
        out->headers[out->header_count++] = line;
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_outgoing_pass(struct spw_outgoing *out, const struct spw_profile *profile,
                                  const struct spw_conf_account *account,
                                  const struct spw_credential *credential,
                                  const struct spw_native_request *request, struct spw_error *err)
{
    spw_outgoing_init(out);
    out->method = request->route->method;
    out->url = url_of(account->url, request);
    enum spw_status status = out->url ? SPW_STATUS_OK : no_memory(err);
    if (status == SPW_STATUS_OK)
        status = put_headers(out, request, profile->authorize(credential), err);
    if (status == SPW_STATUS_OK && request->body_bytes) {
        out->body = malloc(request->body_bytes);
        if (out->body) {
            memcpy(out->body, request->body, request->body_bytes);
            out->body_bytes = request->body_bytes;
        } else {
            status = no_memory(err);
        }
    }
    if (status != SPW_STATUS_OK)
        spw_outgoing_clean_up(out);
    return status;
}
