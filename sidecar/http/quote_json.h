/* quote_json.h: the quote door's JSON: request in, result out.
 *
 * Owns: field names and their checks. Called by: quote_door.c. Thread: any; pure but for allocation.
 */
#ifndef SPW_HTTP_QUOTE_JSON_H
#define SPW_HTTP_QUOTE_JSON_H

#include "sidecar/http/decide.h"
#include "sidecar/provider/json_read.h"

/* A parsed request; its texts lie in doc. It must stay where it was parsed, and needs no clearing before. */
struct spw_quote_body {
    struct spw_quote_request request;
    struct spw_line *many; /* its lines, when they are not few; NULL = they are */
    struct spw_line few[16];
    struct spw_json_doc doc;
};

/* Errors name the field ("lines[1].amount") and the remedy; unknown fields are refused. */
enum spw_status spw_quote_body_parse(const char *bytes, size_t count, struct spw_quote_body *out,
                                     struct spw_error *err) SPW_WARN_UNUSED;
void spw_quote_body_clean_up(struct spw_quote_body *body);

/* The answer's body; malloc'ed, NULL without memory. */
char *spw_result_json(const struct spw_result *result);
/* {"error": ..., "detail": ...}; malloc'ed. */
char *spw_error_json(const char *error, const char *detail);

/* An order event: {"quote_id","order_id","tax_collected","currency","placed_at"}. */
enum spw_status spw_order_body_parse(const char *bytes, size_t count, struct spw_order_record *out,
                                     struct spw_error *err) SPW_WARN_UNUSED;

#endif
