/* taxjar.h: TaxJar's API v2, as the files of its profile share it.
 *
 * Owns: the profile's parts. Called by: taxjar*.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_TAXJAR_H
#define SPW_PROVIDER_TAXJAR_H

#include <jansson.h>

#include "sidecar/provider/profiles.h"

/* taxjar_native.c */
enum spw_status spw_taxjar_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err);
enum spw_status spw_taxjar_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err);
enum spw_status spw_taxjar_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err);
bool spw_taxjar_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);

#endif
