/* stripe.h: Stripe Tax, as the files of its profile share it.
 *
 * Owns: the profile's parts. Called by: stripe*.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_STRIPE_H
#define SPW_PROVIDER_STRIPE_H

#include <jansson.h>

#include "sidecar/provider/profiles.h"

/* A fallback's calculation: this and the digits of its quote's id. Stripe's own begin with taxcalc_ alone. */
#define SPW_STRIPE_MARK "taxcalc_spw_"

/* stripe_answer.c */
void spw_stripe_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                     size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
void spw_stripe_judge(const struct spw_route *route, uint32_t status, const char *headers,
                      size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out);
void spw_stripe_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                      struct spw_answer *out);
void spw_stripe_read_book(const struct spw_booking *booking, uint32_t status, const char *body,
                          size_t body_bytes, struct spw_booked_answer *out);

/* stripe_native.c */
enum spw_status spw_stripe_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err);
enum spw_status spw_stripe_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err);
enum spw_status spw_stripe_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err);
bool spw_stripe_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);
bool spw_stripe_native_order(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES]);

#endif
