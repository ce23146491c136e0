/* taxcloud.c: building calls to TaxCloud's API v3: cart calculations, ping, and orders for the books.
 *
 * Owns: the profile's data and the request's form. Called by: http/decide.c through the profile. Thread: any; pure.
 */
#include "sidecar/provider/taxcloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/json_write.h"
#include "sidecar/provider/wire.h"

#define TIC_GENERAL    0
#define TIC_DIGITS_MAX 6u
#define CARTS_MAX      20u /* in one call; TaxCloud names no number, its own guides send a handful */

#define TAX "/tax/connections/{connectionId}"
static const struct spw_route routes[] = {
    {"POST", TAX "/carts", SPW_ROUTE_CALCULATE},
    {"GET", TAX "/carts/*", SPW_ROUTE_READ},
    {"POST", TAX "/carts/orders", SPW_ROUTE_RECORD},
    {"POST", TAX "/orders", SPW_ROUTE_RECORD},
    {"GET", TAX "/orders/*", SPW_ROUTE_READ},
    {"PATCH", TAX "/orders/*", SPW_ROUTE_RECORD},
    {"POST", TAX "/orders/refunds/*", SPW_ROUTE_REFUND},
    {"GET", TAX "/ping", SPW_ROUTE_PING},
    {"POST", "/tax/verify-address", SPW_ROUTE_READ},
    {"POST", "/tax/tic/search", SPW_ROUTE_READ},
};

static enum spw_status open_call(const struct spw_conf_account *account,
                                 const struct spw_credential *credential, const char *method,
                                 const char *tail, struct spw_call *call, struct spw_error *err)
{
    const char *connection = account->connection;
    char path[512];
    memset(call, 0, sizeof *call);
    if (!connection[0])
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "accounts.%s.connection: TaxCloud needs the connection id; copy it from the connection's "
            "page in TaxCloud",
            account->name);
    for (const char *p = connection; *p; p++)
        if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '-' ||
              *p == '_'))
            return spw_error_set(
                err, SPW_STATUS_INVALID,
                "accounts.%s.connection: only letters, digits, '-' and '_' may stand in a connection "
                "id; copy it from TaxCloud without anything around it",
                account->name);
    struct spw_text t = spw_text_on(path, sizeof path); /* ample: both parts have limits of their own */
    spw_text_put(&t, "/tax/connections/");
    spw_text_put(&t, connection);
    spw_text_put(&t, "/");
    spw_text_put(&t, tail);
    if (t.overflow)
        return spw_wire_no_memory(err);
    return spw_wire_open(&spw_profile_taxcloud, account, credential, method, path, call, err);
}

static char *authorize(const struct spw_credential *credential)
{
    static const char name[] = "X-API-KEY: ";
    size_t bytes = strlen(credential->secret);
    char *line = malloc(sizeof name + bytes);
    if (line) {
        memcpy(line, name, sizeof name - 1);
        memcpy(line + sizeof name - 1, credential->secret, bytes + 1);
    }
    return line;
}

static bool is_digits(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return bytes > 0;
}

static enum spw_status read_tic(const char *place, const char *tax_code, int fallback, int *tic,
                                struct spw_error *err)
{
    *tic = fallback;
    if (!tax_code || !tax_code[0])
        return SPW_STATUS_OK;
    size_t bytes = strlen(tax_code);
    if (bytes > TIC_DIGITS_MAX || !is_digits(tax_code, bytes))
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "%s: the tax code is no TaxCloud TIC; use its number of up to %u digits, or leave it out "
            "for general goods",
            place, TIC_DIGITS_MAX);
    *tic = (int)strtol(tax_code, NULL, 10);
    return SPW_STATUS_OK;
}

/* One line item. TaxCloud wants price and quantity; we hold the extended amount. */
static enum spw_status put_item(struct spw_text *t, const struct spw_quote_request *quote, uint32_t index,
                                const int64_t *taxes_minor, struct spw_error *err)
{
    bool is_shipping = index == quote->line_count;
    const struct spw_line *line = is_shipping ? NULL : &quote->lines[index];
    char place[32] = "shipping", own_id[16];
    int tic = 0;
    if (!is_shipping)
        spw_wire_place(index, place);
    enum spw_status status = spw_wire_check_line(quote, index, false, "TaxCloud", err);
    if (!status)
        status = is_shipping ? read_tic(place, quote->shipping_tax_code, SPW_TIC_SHIPPING, &tic, err)
                             : read_tic(place, line->tax_code, TIC_GENERAL, &tic, err);
    if (status)
        return status;
    struct spw_text id = spw_text_on(own_id, sizeof own_id);
    spw_text_u64(&id, index);
    int64_t amount_minor = is_shipping ? quote->shipping_minor : line->amount_minor, price_minor;
    int64_t quantity_micro = is_shipping ? 0 : line->quantity_micro;
    spw_wire_split_amount(amount_minor, false, &price_minor, &quantity_micro);
    spw_json_open(t, NULL, "{");
    spw_json_put_u64(t, "index", index);
    spw_json_put_text(t, "itemId", is_shipping ? "shipping" : line->id && line->id[0] ? line->id : own_id);
    spw_json_put_decimal(t, "price", price_minor, 2, false);
    spw_json_put_decimal(t, "quantity", quantity_micro, 6, true);
    spw_json_put_u64(t, "tic", (uint64_t)tic);
    if (taxes_minor) {
        char rate[40];
        snprintf(rate, sizeof rate, "%.15g",
                 amount_minor ? (double)taxes_minor[index] / (double)amount_minor : 0);
        spw_json_open(t, "tax", "{");
        spw_json_put_decimal(t, "amount", taxes_minor[index], 2, false);
        spw_json_put_word(t, "rate", rate);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "}");
    return SPW_STATUS_OK;
}

static enum spw_status put_lines(struct spw_text *t, const struct spw_quote_request *quote,
                                 const int64_t *taxes_minor, struct spw_error *err)
{
    uint32_t count = quote->line_count + (quote->shipping_minor != 0);
    enum spw_status status = SPW_STATUS_OK;
    spw_json_open(t, "lineItems", "[");
    for (uint32_t i = 0; i < count && !status; i++)
        status = put_item(t, quote, i, taxes_minor, err);
    spw_text_put(t, "]");
    return status;
}

static enum spw_status put_address(struct spw_text *t, const char *name, const char *place,
                                   const struct spw_address *address, struct spw_error *err)
{
    if (address->country && address->country[0] && strcmp(address->country, "US") != 0)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s.country: TaxCloud calculates for US addresses; send \"US\"", place);
    const char *zip = address->zip ? address->zip : "";
    if (!address->state || !address->state[0] || !zip[0])
        return spw_error_set(err, SPW_STATUS_INVALID, "%s: state and zip are needed; send both", place);
    char zip9[12];
    if (strlen(zip) == 9 && is_digits(zip, 9)) {
        snprintf(zip9, sizeof zip9, "%.5s-%.4s", zip, zip + 5);
        zip = zip9;
    }
    spw_json_open(t, name, "{");
    spw_json_put_text(t, "line1", address->line1 ? address->line1 : "");
    spw_json_put_text(t, "city", address->city ? address->city : "");
    spw_json_put_text(t, "state", address->state);
    spw_json_put_text(t, "zip", zip);
    spw_json_put_text(t, "countryCode", "US");
    spw_text_put(t, "}");
    return SPW_STATUS_OK;
}

static enum spw_status check_quote(const struct spw_quote_request *quote, struct spw_error *err)
{
    if (quote->currency && strcmp(quote->currency, "USD") != 0)
        return spw_error_set(err, SPW_STATUS_INVALID, "currency: TaxCloud calculates in USD; send \"USD\"");
    return spw_wire_check_quote(quote, "TaxCloud", err);
}

/* The members of a quote's cart. taxes_minor: what was collected, line by line, shipping last; NULL = to be
 * calculated. */
static enum spw_status put_cart(struct spw_text *t, const struct spw_quote_request *quote,
                                const int64_t *taxes_minor, struct spw_error *err)
{
    const char *customer = quote->customer_id && quote->customer_id[0] ? quote->customer_id : "guest";
    enum spw_status status = check_quote(quote, err);
    if (status)
        return status;
    spw_json_put_text(t, "customerId", customer);
    spw_json_put_word(t, "currency", "{\"currencyCode\":\"USD\"}");
    spw_json_put_word(t, "deliveredBySeller", "false");
    if (quote->exemption && quote->exemption[0])
        spw_json_put_word(t, "exemption", "{\"isExempt\":true}");
    status = put_address(t, "origin", "ship_from", &quote->ship_from, err);
    if (!status)
        status = put_address(t, "destination", "ship_to", &quote->ship_to, err);
    return status ? status : put_lines(t, quote, taxes_minor, err);
}

/* Noon UTC of "YYYY-MM-DD": the same calendar day in every US time zone, from Guam to Hawaii. */
static void put_noon(struct spw_text *t, const char *name, const char *date)
{
    char noon[32];
    snprintf(noon, sizeof noon, "%.10sT12:00:00Z", date);
    spw_json_put_text(t, name, noon);
}

static bool same_date(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The id makes a repeated call an update of the same cart, so a retry leaves no second one behind. */
static enum spw_status put_carts(struct spw_text *t, const struct spw_quote_request *const *quotes,
                                 size_t count, const char *const *ids, struct spw_error *err)
{
    enum spw_status status = SPW_STATUS_OK;
    spw_json_open(t, "items", "[");
    for (size_t i = 0; i < count && !status; i++) {
        if (!same_date(quotes[i]->date, quotes[0]->date))
            return spw_error_set(err, SPW_STATUS_INVALID,
                                 "the quotes of one call have one date: send quotes of a day together");
        spw_json_open(t, NULL, "{");
        status = put_cart(t, quotes[i], NULL, err);
        spw_json_put_known(t, "cartId", ids[i]);
        spw_text_put(t, "}");
    }
    spw_text_put(t, "]");
    return status;
}

static enum spw_status build_batch(const struct spw_quote_request *const *quotes, size_t count,
                                   const struct spw_conf_account *account,
                                   const struct spw_credential *credential, const char *const *keys,
                                   struct spw_call *out, struct spw_error *err)
{
    struct spw_wire_body body;
    enum spw_status status = open_call(account, credential, "POST", "carts", out, err);
    if (status)
        return status;
    if (count == 0 || count > CARTS_MAX) {
        spw_call_clean_up(out);
        return spw_error_set(err, SPW_STATUS_INVALID, "%zu quotes in one call: send 1 to %u", count,
                             CARTS_MAX);
    }
    status = spw_wire_body_open(&body, quotes, count, err);
    spw_text_put(&body.text, "{");
    if (!status)
        status = put_carts(&body.text, quotes, count, keys, err);
    if (!status && quotes[0]->date)
        put_noon(&body.text, "transactionDate", quotes[0]->date);
    spw_text_put(&body.text, "}");
    return spw_wire_close_body(&spw_profile_taxcloud, credential, &body, status, out, err);
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    return build_batch(&quote, 1, account, credential, &idempotency_key, out, err);
}

static enum spw_status ping(const struct spw_conf_account *account, const struct spw_credential *credential,
                            struct spw_call *out, struct spw_error *err)
{
    enum spw_status status = open_call(account, credential, "GET", "ping", out, err);
    return status ? status
                  : spw_wire_close(&spw_profile_taxcloud, credential, NULL, NULL, SPW_STATUS_OK, out, err);
}

/* ---- filing: an order taxed elsewhere, uploaded with what was collected ---- */

static enum spw_status book(const struct spw_booking *booking, const struct spw_conf_account *account,
                            const struct spw_credential *credential, struct spw_call *out,
                            struct spw_error *err)
{
    int64_t taxes_minor[SPW_LINES_MAX_COUNT + 1];
    struct spw_wire_body body;
    struct spw_text *t = &body.text;
    if (booking->quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: more than %u", SPW_LINES_MAX_COUNT);
    enum spw_status status = open_call(account, credential, "POST", "orders", out, err);
    if (status)
        return status;
    spw_wire_collected(booking, taxes_minor);
    status = spw_wire_body_open(&body, &booking->quote, 1, err);
    spw_text_put(t, "{");
    if (!status)
        status = put_cart(t, booking->quote, taxes_minor, err);
    spw_json_put_known(t, "orderId", booking->document);
    put_noon(t, "transactionDate", booking->date);
    put_noon(t, "completedDate", booking->date);
    spw_text_put(t, "}");
    return spw_wire_close_body(&spw_profile_taxcloud, credential, &body, status, out, err);
}

static enum spw_status book_back(const struct spw_booking *booking, const struct spw_conf_account *account,
                                 const struct spw_credential *credential, struct spw_call *out,
                                 struct spw_error *err)
{
    char tail[SPW_CALLER_ID_BYTES + 16];
    snprintf(tail, sizeof tail, "orders/%s", booking->document);
    enum spw_status status = open_call(account, credential, "GET", tail, out, err);
    return status ? status
                  : spw_wire_close(&spw_profile_taxcloud, credential, NULL, NULL, SPW_STATUS_OK, out, err);
}

/* The tax that stands in an order: the sum of its lines'. */
static bool order_tax(const struct spw_json *order, int64_t *tax_minor)
{
    const struct spw_json *lines = spw_json_get(order, "lineItems");
    *tax_minor = 0;
    SPW_JSON_EACH(line, lines)
    {
        int64_t one_minor;
        if (!spw_json_number(spw_json_get(spw_json_get(line, "tax"), "amount"), 2, &one_minor) ||
            __builtin_add_overflow(*tax_minor, one_minor, tax_minor))
            return false;
    }
    return spw_json_count(lines) > 0;
}

static bool says(const struct spw_json *problem, const char *key, const char *word)
{
    const char *text = spw_json_text(spw_json_get(problem, key));
    return text && strcasestr(text, word);
}

static bool says_duplicate(const struct spw_json *problem)
{
    return says(problem, "detail", "exist") || says(problem, "detail", "already") ||
           says(problem, "detail", "duplicate") || says(problem, "title", "duplicate");
}

static void read_booked(const struct spw_booking *booking, bool is_back, uint32_t status, const char *body,
                        size_t body_bytes, struct spw_booked_answer *out)
{
    struct spw_json *root = spw_wire_read(body, body_bytes);
    (void)booking;
    memset(out, 0, sizeof *out);
    out->booked = SPW_BOOKED_FAILED;
    if (status >= 200 && status < 300) {
        out->has_tax = order_tax(root, &out->tax_minor);
        if (root)
            out->booked = SPW_BOOKED;
    } else if (status == 429) {
        out->booked = SPW_BOOKED_THROTTLED;
    } else if (status == 404 && is_back) {
        out->booked = SPW_BOOKED_MISSING;
    } else if ((status == 400 || status == 409) && says_duplicate(root)) {
        out->booked = SPW_BOOKED_ALREADY;
    } else if (root && (status == 400 || status == 422)) {
        out->booked = SPW_BOOKED_REJECTED;
    }
    if (out->booked != SPW_BOOKED)
        snprintf(out->detail, sizeof out->detail, "TaxCloud answered status %u", status);
    spw_json_free(root);
}

static void read_book(const struct spw_booking *booking, uint32_t status, const char *body, size_t body_bytes,
                      struct spw_booked_answer *out)
{
    read_booked(booking, false, status, body, body_bytes, out);
}

static void read_book_back(const struct spw_booking *booking, uint32_t status, const char *body,
                           size_t body_bytes, struct spw_booked_answer *out)
{
    read_booked(booking, true, status, body, body_bytes, out);
}

const struct spw_profile spw_profile_taxcloud = {
    .name = "taxcloud",
    .default_url = "https://api.v3.taxcloud.com",
    .routes = routes,
    .routes_count = sizeof routes / sizeof routes[0],
    .takes_date = true,
    .is_tax = true,
    .batch_max_count = CARTS_MAX,
    .jurisdictions_rounded_count = 1, /* one blended rate a line */
    .build = build,
    .read = spw_taxcloud_read,
    .judge = spw_taxcloud_judge,
    .check = spw_taxcloud_check,
    .build_batch = build_batch,
    .read_batch = spw_taxcloud_read_batch,
    .ping = ping,
    .authorize = authorize,
    .token = spw_taxcloud_token,
    .native_quote = spw_taxcloud_native_quote,
    .native_fallback = spw_taxcloud_native_fallback,
    .native_error = spw_taxcloud_native_error,
    .native_document = spw_taxcloud_native_document,
    .native_order = spw_taxcloud_native_order,
    .native_recorded = spw_taxcloud_native_recorded,
    .book = book,
    .read_book = read_book,
    .book_back = book_back,
    .read_book_back = read_book_back,
};
