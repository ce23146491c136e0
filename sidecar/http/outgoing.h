/* outgoing.h: a provider call as it is sent, whether a profile built it or an SDK did.
 *
 * Owns: struct spw_outgoing, the choice of headers that pass. Called by: decide.c, pass_call.c, flight.c. Thread: any;
 * pure but for allocation.
 */
#ifndef SPW_HTTP_OUTGOING_H
#define SPW_HTTP_OUTGOING_H

#include "sidecar/provider/provider.h"

#define SPW_OUTGOING_HEADERS_MAX_COUNT 64u

struct spw_outgoing {
    const char *method; /* static, or the route's */
    char *url;          /* NULL = nothing to send */
    char *headers[SPW_OUTGOING_HEADERS_MAX_COUNT];
    size_t header_count;
    char *body;
    size_t body_bytes;
};

/* Takes over what `call` holds, which is left empty. */
void spw_outgoing_take(struct spw_outgoing *out, struct spw_call *call);
/* An SDK's request on its way: to the account's own url, path as checked, with the account's credential in place of
 * whatever the SDK carried. Left out: hop-by-hop headers and those that Connection names, credentials and cookies,
 * proxies' traces, and the sidecar's own. */
enum spw_status spw_outgoing_pass(struct spw_outgoing *out, const struct spw_profile *profile,
                                  const struct spw_conf_account *account,
                                  const struct spw_credential *credential,
                                  const struct spw_native_request *request,
                                  struct spw_error *err) SPW_WARN_UNUSED;
void spw_outgoing_clean_up(struct spw_outgoing *out); /* wipes headers: one is the credential */

/* One "Name: value" line of a raw header block: its parts, and where the next begins; NULL at the end. */
struct spw_header_part {
    const char *name, *value;
    size_t name_bytes, value_bytes;
};
const char *spw_header_next(const char *block, struct spw_header_part *out);
/* May this header of an answer go on to the SDK? */
bool spw_header_passes_back(const struct spw_header_part *part);

#endif
