/* shape.h: whose API the scripted provider speaks: four providers, told apart by path.
 *
 * Owns: the table of shapes, and what they share: rates of a place, taxes, documents that are kept. Called by: server.c
 * under its lock, the shapes. Thread: any, one at a time.
 *
 * Each shape answers as that provider is documented to, as far as calculations, books and errors go. Taxes are worked
 * out here anew, in integers, and not by the code under test: AvaTax and Stripe round each part of a rate on its own,
 * TaxJar and TaxCloud the combined rate once a line.
 */
#ifndef SPW_MOCK_SHAPE_H
#define SPW_MOCK_SHAPE_H

#include "sidecar/mock/problem.h"
#include "sidecar/mock/taxcloud_shape.h"

struct spw_mock_request {
    const char *method, *path;
    const char *body;
    size_t bytes;
    const char *idempotency_key; /* NULL = none */
};

struct spw_mock_shape {
    const char *name;
    const char *prefix; /* of its paths */
    struct spw_mock_reply (*answer)(struct spw_mock_books *books, const struct spw_mock_request *request);
    /* The provider's own error form. */
    struct spw_mock_reply (*problem)(unsigned status, const char *text);
};

extern const struct spw_mock_shape spw_mock_avatax;
extern const struct spw_mock_shape spw_mock_taxjar;
extern const struct spw_mock_shape spw_mock_stripe;
extern const struct spw_mock_shape spw_mock_taxcloud;

/* Never NULL: what is nobody's path is TaxCloud's, which answers 404. */
const struct spw_mock_shape *spw_mock_shape_of(const char *path);

/* ---- for the shapes ---- */

struct spw_mock_part {
    const char *level; /* "state", "county", "city", "special" */
    uint32_t ppb;
};
struct spw_mock_rate {
    uint32_t combined_ppb;
    size_t parts_count;
    struct spw_mock_part parts[4];
};
/* The rate of a ZIP; false: no ZIP, or not in the table given to this provider. */
bool spw_mock_rate_find(const struct spw_mock_books *books, const char *zip, struct spw_mock_rate *out);
/* amount x ppb, half up to the minor unit. */
int64_t spw_mock_tax_minor(int64_t amount_minor, uint32_t ppb);
/* Whole number of minor units of a JSON number or decimal text; false: neither. */
bool spw_mock_minor(const json_t *value, int64_t *out);

struct spw_mock_reply spw_mock_reply_json(unsigned status, json_t *value);
json_t *spw_mock_amount(int64_t minor);
json_t *spw_mock_ratio(uint32_t ppb);

/* What is in the books under this key, or NULL. */
json_t *spw_mock_document(const struct spw_mock_books *books, const char *key_format, ...)
    __attribute__((format(printf, 2, 3)));
/* Put it there; the reference is taken over. Counted: keeping again what is there is a second write. */
void spw_mock_keep(struct spw_mock_books *books, json_t *document, const char *key_format, ...)
    __attribute__((format(printf, 3, 4)));
/* {"taxjar/orders/1":{"writes":1,"document":{...}},...} of all providers. */
json_t *spw_mock_books_json(const struct spw_mock_books *books);

/* path behind prefix, up to its end or next '/': an id. false: not that path, or no id. tail: what follows it. */
bool spw_mock_path_id(const char *path, const char *prefix, char *id, size_t room, const char **tail);

#endif
