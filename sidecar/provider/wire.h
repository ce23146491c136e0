/* wire.h: what the profiles share in writing calls and reading JSON.
 *
 * Owns: the opening and closing of a call, money as JSON, credentials as header lines. Called by: the profiles.
 * Thread: any; pure. Error texts name fields and never quote a body, an address or a credential.
 */
#ifndef SPW_PROVIDER_WIRE_H
#define SPW_PROVIDER_WIRE_H

#include <jansson.h>

#include "shm/spw_text.h"
#include "sidecar/provider/json_read.h"
#include "sidecar/provider/provider.h"

#define SPW_WIRE_EXACT_MAX  999999999999999 /* 15 digits: what a double carries exactly as decimal text */
#define SPW_WIRE_JSON_STYLE (JSON_COMPACT | JSON_REAL_PRECISION(15))
#define SPW_WIRE_MICRO      1000000
#define SPW_WIRE_PPB        1000000000

/* ---- calls ---- */

/* Method, the account's url and this path, and Accept. Checks that the credential can stand in a header. On failure
 * *out is clean. */
enum spw_status spw_wire_open(const struct spw_profile *profile, const struct spw_conf_account *account,
                              const struct spw_credential *credential, const char *method, const char *path,
                              struct spw_call *out, struct spw_error *err);
enum spw_status spw_wire_header(struct spw_call *call, const char *name, const char *value,
                                struct spw_error *err);
/* The end of every call: the body (taken over; NULL = none) with its type, then the credential's line, which is last.
 * With status not OK, or on failure, all is freed and *call is clean. */
enum spw_status spw_wire_close(const struct spw_profile *profile, const struct spw_credential *credential,
                               char *body, const char *content_type, enum spw_status status,
                               struct spw_call *call, struct spw_error *err);
/* a, b and c behind one another, malloc'ed. */
char *spw_wire_join(const char *a, size_t a_bytes, const char *b, const char *c);
enum spw_status spw_wire_no_memory(struct spw_error *err);

/* A JSON body being written (json_write.h): small ones where they are declared. */
struct spw_wire_body {
    const struct spw_quote_request *const *quotes;
    size_t quotes_count;
    struct spw_text text;
    char *large;
    char own[6144];
};
/* Room for a call about these quotes, with a few ids more for each. */
enum spw_status spw_wire_body_open(struct spw_wire_body *body, const struct spw_quote_request *const *quotes,
                                   size_t count, struct spw_error *err);
/* spw_wire_close with what was written; frees what open took. */
enum spw_status spw_wire_close_body(const struct spw_profile *profile,
                                    const struct spw_credential *credential, struct spw_wire_body *body,
                                    enum spw_status status, struct spw_call *call, struct spw_error *err);

/* ---- credentials ---- */

/* "Authorization: Bearer SECRET", malloc'ed. */
char *spw_wire_bearer(const struct spw_credential *credential);
/* "Authorization: Basic ...", malloc'ed; Bearer when there is no user. */
char *spw_wire_basic(const struct spw_credential *credential);
/* The value of a header in a raw block, the first of its name, into out. */
bool spw_wire_header_find(const char *headers, const char *name, char *out, size_t room);
/* The token in Authorization: of Bearer the token, of Basic the password (or the user name when that is all). */
bool spw_wire_token(const char *headers, char *out, size_t room);

/* ---- JSON ---- */

/* NULL: not a JSON object. */
struct spw_json *spw_wire_read(const char *body, size_t body_bytes);
/* The same without an allocation for most bodies: spw_json_doc_read. */
const struct spw_json *spw_wire_doc_read(struct spw_json_doc *doc, const char *body, size_t body_bytes);
/* The same as a tree that can be changed, for answers made of a request. */
json_t *spw_wire_parse(const char *body, size_t body_bytes);
/* Money as a JSON number: 3998 -> 39.98. Exact up to 15 digits; 0 stands as 0.0. */
json_t *spw_wire_minor(int64_t minor);
json_t *spw_wire_rate(uint32_t ppb);
/* Quantity: whole numbers without a point. */
json_t *spw_wire_quantity(int64_t quantity_micro);
/* The text of a member, or NULL when it is missing, empty or no text. */
static inline const char *spw_wire_text(const struct spw_json *object, const char *key)
{
    const char *text = spw_json_text(spw_json_get(object, key));
    return text && text[0] ? text : NULL;
}
/* Text with what is NULL left out: sets key only when text is neither NULL nor "". false: no UTF-8, or no memory. */
bool spw_wire_set_text(json_t *object, const char *key, const char *text);

/* ---- quotes ---- */

/* Lines, currency, date: what every provider needs. name: for error texts. */
enum spw_status spw_wire_check_quote(const struct spw_quote_request *quote, const char *name,
                                     struct spw_error *err);
/* Amount and quantity of a line within what goes out exactly. index line_count = shipping. */
enum spw_status spw_wire_check_line(const struct spw_quote_request *quote, uint32_t index,
                                    bool negative_allowed, const char *name, struct spw_error *err);
/* "lines[3]": the place of a line in an error text. */
void spw_wire_place(uint32_t index, char out[32]);
/* price x quantity of an extended amount: when the price of a piece is no whole number of minor units, or whole_only
 * and the quantity is no whole number, it is one piece at the extended amount. */
void spw_wire_split_amount(int64_t amount_minor, bool whole_only, int64_t *price_minor,
                           int64_t *quantity_micro);
/* The tax that goes into the books line by line: collected, the difference to the sum the customer paid added to the
 * line with the largest tax. out: line_count + 1 entries. */
void spw_wire_collected(const struct spw_booking *booking, int64_t *out);
/* The quote's date, or else the day it is at its destination: "YYYY-MM-DD". */
void spw_wire_date(const struct spw_quote_request *quote, char out[11]);

#endif
