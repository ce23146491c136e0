/* taxcloud.h: TaxCloud's API v3, as the three files of its profile share it.
 *
 * Owns: the profile's parts. Called by: taxcloud*.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_TAXCLOUD_H
#define SPW_PROVIDER_TAXCLOUD_H

#include "sidecar/provider/profiles.h"

/* TaxCloud's code for shipping charged separately from the goods. */
#define SPW_TIC_SHIPPING 11010

/* taxcloud_answer.c */
void spw_taxcloud_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                       size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
void spw_taxcloud_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                        struct spw_answer *out);
void spw_taxcloud_read_batch(const struct spw_quote_request *const *quotes, size_t count,
                             const char *const *keys, uint32_t status, const char *headers,
                             size_t headers_bytes, const char *body, size_t body_bytes,
                             struct spw_answer *out);
void spw_taxcloud_judge(const struct spw_route *route, uint32_t status, const char *headers,
                        size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);

/* taxcloud_native.c */
bool spw_taxcloud_token(const char *headers, char *out, size_t room);
enum spw_status spw_taxcloud_native_quote(const struct spw_native_request *request,
                                          const struct spw_conf_account *account,
                                          struct spw_native_quote *out, struct spw_error *err);
enum spw_status spw_taxcloud_native_fallback(const struct spw_native_request *request,
                                             const struct spw_native_quote *quote,
                                             const struct spw_native_fallback *fallback,
                                             struct spw_native_answer *out, struct spw_error *err);
enum spw_status spw_taxcloud_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                          struct spw_error *err);
bool spw_taxcloud_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);
bool spw_taxcloud_native_order(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);
enum spw_status spw_taxcloud_native_recorded(const struct spw_native_request *request,
                                             const struct spw_native_fallback *fallback,
                                             struct spw_native_answer *out, struct spw_error *err);

#endif
