/* request_check.c: is a caller's request plainly framed, and within bounds? See request_check.h. */
#include "sidecar/http/request_check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sidecar/http/field.h"

enum {
    /* Of a connection's 16 KiB (door.c) this leaves 7 to the answer: one whose headers found no room there would not be
     * sent at all. libmicrohttpd keeps a record of each header, cookie and parameter of the query besides their text. */
    HEADERS_MAX_BYTES = 9 << 10,
    RECORD_BYTES = 64,
    METHOD_MAX_BYTES = 32
};

struct framing {
    size_t bytes; /* that it all takes */
    uint32_t content_length_count;
    uint32_t transfer_encoding_count;
    uint32_t host_count;
    const char *content_length;
    const char *transfer_encoding;
    bool has_bad_bytes;
    bool expects_continue;
};

static bool has_control_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return true;
        }
    }
    return false;
}

static enum MHD_Result look_at_value(void *context, enum MHD_ValueKind kind, const char *name,
                                     size_t name_bytes, const char *value, size_t value_bytes)
{
    struct framing *framing = context;
    framing->bytes += name_bytes + value_bytes + 4 + RECORD_BYTES;
    if (kind != MHD_HEADER_KIND) {
        return MHD_YES;
    }
    if (!spw_field_is_token(name, name_bytes) || has_control_bytes(value, value_bytes)) {
        framing->has_bad_bytes = true;
    } else if (strcasecmp(name, "Content-Length") == 0) {
        framing->content_length_count++;
        framing->content_length = value;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        framing->transfer_encoding_count++;
        framing->transfer_encoding = value;
    } else if (strcasecmp(name, "Host") == 0) {
        framing->host_count++;
    } else if (strcasecmp(name, "Expect") == 0) {
        framing->expects_continue = true;
    }
    return MHD_YES;
}

/* False unless it is digits alone that fit. */
static bool parse_length(const char *text, uint64_t *bytes)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits] != '\0') {
        return false;
    }
    *bytes = strtoull(text, NULL, 10);
    return true;
}

static bool target_is_sound(const char *target)
{
    if (target[0] != '/') {
        return false;
    }
    for (const char *c = target; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' ||
            *c == '#') { /* char may be signed: bytes above 127 are refused either way */
            return false;
        }
    }
    return true;
}

/* 0 = go on; otherwise the status to refuse with. What two readers could frame differently is refused whole: a
 * request smuggled behind another would be answered to the wrong caller. */
uint32_t spw_request_check(struct MHD_Connection *mhd, const char *method, const char *target,
                           const char *version, size_t body_max_bytes, bool *too_large)
{
    const enum MHD_ValueKind kinds =
        (enum MHD_ValueKind)(MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND);
    struct framing framing = {0};
    uint64_t bytes = 0;
    MHD_get_connection_values_n(mhd, kinds, look_at_value, &framing);
    bool http_1_1 = strcmp(version, "HTTP/1.1") == 0;
    if (!http_1_1 && strcmp(version, "HTTP/1.0") != 0) {
        return MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED;
    }
    if (framing.bytes + strlen(target) > HEADERS_MAX_BYTES) {
        return MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE;
    }
    size_t method_bytes = strlen(method);
    if (method_bytes > METHOD_MAX_BYTES || !spw_field_is_token(method, method_bytes) ||
        !target_is_sound(target) || framing.has_bad_bytes || framing.host_count > 1 ||
        framing.content_length_count > 1 || framing.transfer_encoding_count > 1 ||
        (framing.content_length != NULL && framing.transfer_encoding != NULL)) {
        return MHD_HTTP_BAD_REQUEST;
    }
    if (framing.transfer_encoding != NULL &&
        (!http_1_1 || strcasecmp(framing.transfer_encoding, "chunked") != 0)) {
        return MHD_HTTP_BAD_REQUEST;
    }
    if (framing.content_length != NULL && !parse_length(framing.content_length, &bytes)) {
        return MHD_HTTP_BAD_REQUEST;
    }
    *too_large = bytes > body_max_bytes;
    if (*too_large && (framing.expects_continue || bytes > body_max_bytes + SPW_REQUEST_SWALLOW_MAX_BYTES)) {
        return MHD_HTTP_CONTENT_TOO_LARGE;
    }
    return 0;
}
