/* taxcloud_shape.h: what a TaxCloud v3 account answers: carts, orders, refunds, ping; and the books of all shapes.
 *
 * Owns: the account's books (carts and orders sent so far) and the tax it computes. Called by: server.c under its
 * lock. Thread: any, one at a time.
 *
 * Tax is price x quantity x rate, rounded half up once per line, in integers. The rate is the table's for the
 * destination's ZIP (ZIP+4 ranges first) or the one flat rate. Exempt carts and nothing else are untaxed: product
 * codes are accepted and not judged.
 */
#ifndef SPW_MOCK_TAXCLOUD_SHAPE_H
#define SPW_MOCK_TAXCLOUD_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "sidecar/mock/problem.h"
#include "sidecar/rates/rates.h"

#define SPW_MOCK_CARTS_MAX_COUNT 20000u /* kept; older ones are forgotten */
#define SPW_MOCK_ORDERS_MAX_COUNT                                                                            \
    200000u /* kept; more are refused, since forgetting one would hide a duplicate */

struct spw_mock_books {
    bool has_table;
    struct spw_rates_table table;
    uint32_t flat_ppb;
    json_t *carts, *orders, *refunds; /* TaxCloud's, by "connection/id" */
    json_t *documents;                /* the other providers', see shape.h */
    json_t *calculations;             /* Stripe's calculations and transactions by id */
    json_t *keys;                     /* Stripe's remembered answers by key */
    uint64_t carts_count;             /* calculated, updates included */
    uint64_t cart_serial;
};

/* table is taken over when it is not NULL. false: no memory. */
bool spw_mock_books_init(struct spw_mock_books *books, struct spw_rates_table *table, uint32_t flat_ppb);
void spw_mock_books_clean_up(struct spw_mock_books *books);
/* Forget carts seen so far; orders stay, as they would at a provider. */
void spw_mock_books_reset_carts(struct spw_mock_books *books);
struct spw_mock_reply spw_mock_books_answer(struct spw_mock_books *books, const char *method,
                                            const char *path, const char *body, size_t bytes);
/* The combined rate of "98110", "98110-1234"; *row NULL with a flat rate. false: no ZIP, or not in the table. */
bool spw_mock_books_rate(const struct spw_mock_books *books, const char *zip, uint32_t *ppb,
                         const struct spw_rate_row **row);

#endif
