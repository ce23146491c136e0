/* avatax.h: Avalara AvaTax REST v2, as the files of its profile share it.
 *
 * Owns: the profile's parts. Called by: avatax*.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_AVATAX_H
#define SPW_PROVIDER_AVATAX_H

#include <jansson.h>

#include "sidecar/provider/profiles.h"

/* AvaTax's code for freight by common carrier. Codes that begin with FR are freight. */
#define SPW_AVATAX_FREIGHT "FR020100"

/* avatax_answer.c */
void spw_avatax_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                     size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
void spw_avatax_judge(const struct spw_route *route, uint32_t status, const char *headers,
                      size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
void spw_avatax_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                      struct spw_answer *out);
void spw_avatax_read_book(const struct spw_booking *booking, uint32_t status, const char *body,
                          size_t body_bytes, struct spw_booked_answer *out);
void spw_avatax_read_book_back(const struct spw_booking *booking, uint32_t status, const char *body,
                               size_t body_bytes, struct spw_booked_answer *out);

/* avatax_native.c */
enum spw_status spw_avatax_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err);
enum spw_status spw_avatax_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err);
enum spw_status spw_avatax_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err);
enum spw_status spw_avatax_native_recorded(const struct spw_native_request *request,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err);
bool spw_avatax_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);

#endif
