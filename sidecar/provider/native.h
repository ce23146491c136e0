/* native.h: what the profiles share in telling an SDK's own request as a quote and a fallback in the SDK's own form.
 *
 * Owns: the making of struct spw_native_quote and the splitting of a tax over the levels of its rate. Called by: the
 * profiles' native functions. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_NATIVE_H
#define SPW_PROVIDER_NATIVE_H

#include <jansson.h>

#include "sidecar/provider/provider.h"

struct spw_native_builder {
    struct spw_native_quote *out;
    char *texts; /* behind out->lines, in the same block */
    size_t used, room;
    uint32_t lines_room;
    struct spw_error *err;
    bool failed; /* no memory, or a text that does not fit */
};

/* Room for what a body of this size can hold; lines_count 1..SPW_LINES_MAX_COUNT, checked. */
enum spw_status spw_native_open(struct spw_native_builder *b, const struct spw_conf_account *account,
                                size_t body_bytes, size_t lines_count, struct spw_native_quote *out,
                                struct spw_error *err);
/* A copy that lives as long as the quote; NULL for NULL and "". */
const char *spw_native_text(struct spw_native_builder *b, const char *text);
/* A whole number as such a text. */
const char *spw_native_number(struct spw_native_builder *b, int64_t number);
/* The next line; NULL when there is no room. */
struct spw_line *spw_native_line(struct spw_native_builder *b);
/* Country, state and ZIP as the rest of Spillway writes them. name: the field, for the error. */
enum spw_status spw_native_address(struct spw_native_builder *b, const char *name, const char *country,
                                   const char *state, const char *zip, const char *city, const char *line1,
                                   struct spw_address *out);
/* "2025-11-28" or "2025-11-28T..." */
enum spw_status spw_native_date(struct spw_native_builder *b, const char *name, const char *text);
/* Only dollars: cached rates are those of US places. NULL = not said. */
enum spw_status spw_native_currency(struct spw_native_builder *b, const char *name, const char *text);
/* With status not OK, or a failure on the way, the quote is cleaned up. */
enum spw_status spw_native_close(struct spw_native_builder *b, enum spw_status status);
enum spw_status spw_native_refuse(struct spw_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* price x quantity less discount, rounded half up to the minor unit; false: out of range. */
bool spw_native_amount(int64_t price_micro, int64_t quantity_micro, int64_t less_micro, int64_t *minor);
/* An id of a caller or of ours as a document: false when it is none or does not fit. */
bool spw_native_take_document(const char *text, char out[SPW_CALLER_ID_BYTES]);
/* The segment behind /name/ in a path: "/orders/17/x", "orders" -> "17". */
bool spw_native_path_document(const char *path, const char *name, char out[SPW_CALLER_ID_BYTES]);

/* ---- a tax over the levels of its rate ---- */

struct spw_native_part {
    const char *level; /* "state", "county", "city", "special" */
    uint32_t ppb;
    int64_t tax_minor;
};
#define SPW_NATIVE_PARTS_MAX_COUNT 4u
/* Parts whose taxes add up to tax_minor; where the parts of the rate are not known, one of level state. Returns how
 * many, 0 for no tax at no rate. */
size_t spw_native_split(const struct spw_native_fallback *fallback, int64_t tax_minor,
                        struct spw_native_part out[SPW_NATIVE_PARTS_MAX_COUNT]);
int64_t spw_native_taxable_minor(const struct spw_native_quote *quote,
                                 const struct spw_native_fallback *fallback);
int64_t spw_native_amount_minor(const struct spw_native_quote *quote); /* lines, without shipping */
/* "2025-11-28T12:00:00Z" of now_unix_ms. */
void spw_native_now(int64_t now_unix_ms, char *out, size_t room);
/* {"fallback":true,"type":...,"cause":...,"quote_id":...,"flag_id":...} */
json_t *spw_native_mark(const struct spw_native_fallback *fallback);
/* Dumps root (taken over) into *out. */
enum spw_status spw_native_answer_json(uint32_t status, json_t *root, struct spw_native_answer *out,
                                       struct spw_error *err);

#endif
