/* http.c: any other rate-limited API as a profile: payments, shipping, fraud.
 *
 * Owns: the profile. Called by: the pass-through door. Thread: any; pure.
 *
 * Nothing is known of such an API but what its account says: which methods and paths may carry the credential (routes),
 * in which header (credential_header), and how fast. So there are no quotes, nothing is answered from a cache, and
 * nothing is sent twice: a call passes, or it is refused at once with 429 and the wait.
 */
#include "sidecar/provider/profiles.h"

#include <string.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/native.h"
#include "sidecar/provider/wire.h"

#define DEFAULT_HEADER "Authorization: Bearer"

static char *authorize(const struct spw_credential *credential)
{
    const char *header = credential->header && credential->header[0] ? credential->header : DEFAULT_HEADER;
    bool has_scheme = strstr(header, ": ") != NULL;
    return spw_wire_join(header, strlen(header), has_scheme ? " " : ": ", credential->secret);
}

static bool token(const char *headers, char *out, size_t room)
{
    /* Which header an SDK uses is the account's; the usual ones are looked at. */
    return spw_wire_token(headers, out, room) ||
           (spw_wire_header_find(headers, "X-API-Key", out, room) && out[0]) ||
           (spw_wire_header_find(headers, "Api-Key", out, room) && out[0]);
}

static void judge(const struct spw_route *route, uint32_t status, const char *headers, size_t headers_bytes,
                  const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)route;
    (void)headers;
    (void)headers_bytes;
    (void)body;
    (void)body_bytes;
    spw_answer_clear(out);
    out->throttle = SPW_THROTTLE_RATE;
    if (status == 429)
        out->kind = SPW_ANSWER_THROTTLED;
    else if (status == 401 || status == 403)
        spw_answer_fail(out, SPW_ANSWER_ERROR, "the API refused the account's key (status %u)", status);
    else if (status < 200 || status >= 500)
        spw_answer_fail(out, SPW_ANSWER_ERROR, "the API answered status %u", status);
    else if (status >= 400)
        out->kind = SPW_ANSWER_REJECTED;
    else
        out->kind = SPW_ANSWER_OK;
}

static enum spw_status native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                    struct spw_error *err)
{
    return spw_native_answer_json(
        status, json_pack("{s:{s:i, s:s}}", "error", "status", (int)status, "message", message), out, err);
}

const struct spw_profile spw_profile_http = {
    .name = "http",
    .default_url = "",
    .is_tax = false,
    .judge = judge,
    .authorize = authorize,
    .token = token,
    .native_error = native_error,
};
