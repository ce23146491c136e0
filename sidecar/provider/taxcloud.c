/* taxcloud.c: building calls to TaxCloud's API v3: the cart calculation and the ping.
 *
 * Owns: the profile's data and the request's form. Called by: http/decide.c through the profile. Thread: any; pure.
 *
 * Money goes out as JSON numbers of price and quantity. jansson prints a double; a whole number of cents divided by
 * 100 is the double nearest to that decimal, and "%.15g" prints every decimal of at most 15 digits back as it was
 * (DBL_DIG), so 3998 cents leave as 39.98. Larger amounts are refused rather than printed inexactly.
 */
#include "sidecar/provider/taxcloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "shm/spw_text.h"
#include "sidecar/provider/decimal.h"

/* TaxCloud's code for shipping charged separately from the goods. */
#define TIC_SHIPPING   11010
#define TIC_GENERAL    0
#define TIC_DIGITS_MAX 6u
#define EXACT_MAX      999999999999999 /* 15 digits: what a double carries exactly as decimal text */
#define JSON_STYLE     (JSON_COMPACT | JSON_REAL_PRECISION(15))
#define MICRO          1000000

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

static enum spw_status no_memory(struct spw_error *err)
{
    return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                         "taxcloud: no memory for the call; raise the memory limit");
}

static enum spw_status add_header(struct spw_call *call, struct spw_error *err, const char *name,
                                  const char *value)
{
    char *line = NULL;
    if (asprintf(&line, "%s: %s", name, value) < 0)
        return no_memory(err);
    call->headers[call->header_count++] = line;
    return SPW_STATUS_OK;
}

static enum spw_status check_account(const struct spw_conf_account *account, const char *secret,
                                     struct spw_error *err)
{
    const char *connection = account->connection;
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
    if (!secret || !secret[0])
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "accounts.%s.credentials: the key is empty; put it into the file or "
                             "variable named there",
                             account->name);
    for (const char *p = secret; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
            return spw_error_set(
                err, SPW_STATUS_INVALID,
                "accounts.%s.credentials: the key holds a blank, line break or other byte that cannot go "
                "into a header; store the key alone",
                account->name);
    return SPW_STATUS_OK;
}

/* URL, common headers and, last, the credential. */
static enum spw_status open_call(const struct spw_conf_account *account, const char *secret,
                                 const char *method, const char *tail, struct spw_call *call,
                                 struct spw_error *err)
{
    memset(call, 0, sizeof *call);
    enum spw_status status = check_account(account, secret, err);
    if (status)
        return status;
    const char *base = account->url[0] ? account->url : spw_profile_taxcloud.default_url;
    size_t base_bytes = strlen(base);
    while (base_bytes > 0 && base[base_bytes - 1] == '/')
        base_bytes--;
    call->method = method;
    if (asprintf(&call->url, "%.*s/tax/connections/%s/%s", (int)base_bytes, base, account->connection, tail) <
        0) {
        call->url = NULL;
        return no_memory(err);
    }
    status = add_header(call, err, "Accept", "application/json");
    if (!status && strcmp(method, "POST") == 0)
        status = add_header(call, err, "Content-Type", "application/json");
    if (!status)
        status = add_header(call, err, "X-API-KEY", secret);
    if (status)
        spw_call_clean_up(call);
    return status;
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

/* One line item. TaxCloud wants price and quantity; we hold the extended amount. When the price per piece is not a
 * whole number of minor units, one piece at the extended amount is sent: the taxable amount stays exact. */
static enum spw_status add_item(json_t *items, const char *place, size_t index, const char *id,
                                int64_t amount_minor, int64_t quantity_micro, int tic, struct spw_error *err)
{
    if (amount_minor < 0)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "%s.amount: an amount below zero is not quoted by TaxCloud; take the discount off the "
            "line it belongs to",
            place);
    if (amount_minor > EXACT_MAX || quantity_micro < 0 || quantity_micro > EXACT_MAX)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s: amount or quantity is out of range (0 to 15 digits); split the line",
                             place);
    if (quantity_micro == 0)
        quantity_micro = MICRO;
    spw_wide scaled = (spw_wide)amount_minor * MICRO;
    int64_t price_minor = amount_minor;
    if (scaled % quantity_micro == 0 && scaled / quantity_micro <= EXACT_MAX)
        price_minor = (int64_t)(scaled / quantity_micro);
    else
        quantity_micro = MICRO;
    json_t *quantity = quantity_micro % MICRO == 0 ? json_integer(quantity_micro / MICRO)
                                                   : json_real((double)quantity_micro / MICRO);
    json_t *item = json_pack("{s:I, s:s, s:f, s:o, s:i}", "index", (json_int_t)index, "itemId", id, "price",
                             (double)price_minor / 100, "quantity", quantity, "tic", tic);
    if (!item)
        return spw_error_set(err, SPW_STATUS_INVALID, "%s.id: not UTF-8 (or no memory); send UTF-8", place);
    return json_array_append_new(items, item) ? no_memory(err) : SPW_STATUS_OK;
}

static enum spw_status add_lines(json_t *items, const struct spw_quote_request *quote, struct spw_error *err)
{
    char place[32];
    for (uint32_t i = 0; i < quote->line_count; i++) {
        const struct spw_line *line = &quote->lines[i];
        int tic = TIC_GENERAL;
        char own_id[16];
        snprintf(place, sizeof place, "lines[%u]", i);
        snprintf(own_id, sizeof own_id, "%u", i);
        enum spw_status status = read_tic(place, line->tax_code, TIC_GENERAL, &tic, err);
        if (!status)
            status = add_item(items, place, i, line->id && line->id[0] ? line->id : own_id,
                              line->amount_minor, line->quantity_micro, tic, err);
        if (status)
            return status;
    }
    if (quote->shipping_minor == 0)
        return SPW_STATUS_OK;
    int tic = TIC_SHIPPING;
    enum spw_status status = read_tic("shipping", quote->shipping_tax_code, TIC_SHIPPING, &tic, err);
    return status ? status
                  : add_item(items, "shipping", quote->line_count, "shipping", quote->shipping_minor, MICRO,
                             tic, err);
}

static enum spw_status make_address(const char *place, const struct spw_address *address, json_t **out,
                                    struct spw_error *err)
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
    *out = json_pack("{s:s, s:s, s:s, s:s, s:s}", "line1", address->line1 ? address->line1 : "", "city",
                     address->city ? address->city : "", "state", address->state, "zip", zip, "countryCode",
                     "US");
    return *out ? SPW_STATUS_OK
                : spw_error_set(err, SPW_STATUS_INVALID, "%s: not UTF-8 (or no memory); send UTF-8", place);
}

static enum spw_status check_quote(const struct spw_quote_request *quote, struct spw_error *err)
{
    if (quote->line_count == 0 || quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: %u lines; send 1 to %u", quote->line_count,
                             SPW_LINES_MAX_COUNT);
    if (quote->currency && strcmp(quote->currency, "USD") != 0)
        return spw_error_set(err, SPW_STATUS_INVALID, "currency: TaxCloud calculates in USD; send \"USD\"");
    int32_t day;
    if (quote->date && !spw_date_parse(quote->date, &day))
        return spw_error_set(err, SPW_STATUS_INVALID, "date: no day of the calendar; send YYYY-MM-DD");
    return SPW_STATUS_OK;
}

/* The cart object; on failure *out is NULL. */
static enum spw_status make_cart(const struct spw_quote_request *quote, const char *cart_id, json_t **out,
                                 struct spw_error *err)
{
    json_t *origin = NULL, *destination = NULL;
    json_t *items = json_array();
    *out = NULL;
    enum spw_status status =
        items ? make_address("ship_from", &quote->ship_from, &origin, err) : no_memory(err);
    if (!status)
        status = make_address("ship_to", &quote->ship_to, &destination, err);
    if (!status)
        status = add_lines(items, quote, err);
    if (status) {
        json_decref(origin);
        json_decref(destination);
        json_decref(items);
        return status;
    }
    const char *customer = quote->customer_id && quote->customer_id[0] ? quote->customer_id : "guest";
    json_t *cart = json_pack("{s:s, s:{s:s}, s:b, s:o, s:o, s:o}", "customerId", customer, "currency",
                             "currencyCode", "USD", "deliveredBySeller", 0, "origin", origin, "destination",
                             destination, "lineItems", items);
    /* The id makes a repeated call an update of the same cart, so a retry leaves no second one behind. */
    bool failed =
        !cart || (cart_id && cart_id[0] && json_object_set_new(cart, "cartId", json_string(cart_id)));
    if (!failed && quote->exemption && quote->exemption[0])
        failed = json_object_set_new(cart, "exemption", json_pack("{s:b}", "isExempt", 1));
    if (failed) {
        json_decref(cart);
        return spw_error_set(err, SPW_STATUS_INVALID, "customer.id: not UTF-8 (or no memory); send UTF-8");
    }
    *out = cart;
    return SPW_STATUS_OK;
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    enum spw_status status = open_call(account, credential->secret, "POST", "carts", out, err);
    if (status)
        return status;
    json_t *cart = NULL;
    status = check_quote(quote, err);
    if (!status)
        status = make_cart(quote, idempotency_key, &cart, err);
    json_t *root = status ? NULL : json_pack("{s:[o]}", "items", cart);
    if (!status && root && quote->date) {
        /* Noon UTC is the same calendar day in every US time zone, from Guam to Hawaii. */
        char noon[32];
        snprintf(noon, sizeof noon, "%.10sT12:00:00Z", quote->date);
        if (json_object_set_new(root, "transactionDate", json_string(noon)))
            status = no_memory(err);
    }
    if (!status) {
        out->body = root ? json_dumps(root, JSON_STYLE) : NULL;
        if (!out->body)
            status = no_memory(err);
        else
            out->body_bytes = strlen(out->body);
    }
    json_decref(root);
    if (status)
        spw_call_clean_up(out);
    return status;
}

static enum spw_status ping(const struct spw_conf_account *account, const struct spw_credential *credential,
                            struct spw_call *out, struct spw_error *err)
{
    return open_call(account, credential->secret, "GET", "ping", out, err);
}

const struct spw_profile spw_profile_taxcloud = {
    .name = "taxcloud",
    .default_url = "https://api.v3.taxcloud.com",
    .routes = routes,
    .routes_count = sizeof routes / sizeof routes[0],
    .takes_date = true,
    .is_tax = true,
    .build = build,
    .read = spw_taxcloud_read,
    .ping = ping,
};
