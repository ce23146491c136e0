/* taxcloud.h: TaxCloud's API v3 as a profile.
 *
 * Owns: the profile. Called by: profile.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_TAXCLOUD_H
#define SPW_PROVIDER_TAXCLOUD_H

#include "sidecar/provider/provider.h"

extern const struct spw_profile spw_profile_taxcloud;

/* Read the answer to a cart calculation. */
void spw_taxcloud_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                       size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);

#endif
