/* avatax.c: building calls to Avalara AvaTax REST v2: calculations, ping, documents for the books, published rates.
 *
 * Owns: the profile's data and the requests' form. Called by: http/, reconcile/ through the profile. Thread: any; pure,
 * but for the day of today where a quote has no date.
 *
 * A quote is a SalesOrder, which AvaTax calculates and does not record. Lines are numbered from 1, shipping is last, so
 * that answers are matched by number whatever ids the caller uses. AvaTax knows no idempotency key: what is recorded
 * is repeated safely by its own document code through createoradjust.
 */
#include "sidecar/provider/avatax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/json_write.h"
#include "sidecar/provider/wire.h"

#define ITEM_CODE_MAX_BYTES 50 /* of itemCode, customerCode, code */
#define EXEMPTION_MAX_BYTES 25 /* of exemptionNo */
#define CLIENT              "spillway; " SPW_VERSION "; spillwayd; v2; sidecar"

#define COMPANY "/api/v2/companies/{company}/transactions"
static const struct spw_route routes[] = {
    {"POST", "/api/v2/transactions/create", SPW_ROUTE_CALCULATE},
    {"POST", "/api/v2/transactions/createoradjust", SPW_ROUTE_RECORD},
    {"GET", COMPANY, SPW_ROUTE_READ},
    {"GET", COMPANY "/*", SPW_ROUTE_READ},
    {"POST", COMPANY "/*/commit", SPW_ROUTE_RECORD},
    {"POST", COMPANY "/*/settle", SPW_ROUTE_RECORD},
    {"POST", COMPANY "/*/changecode", SPW_ROUTE_RECORD},
    {"POST", COMPANY "/*/adjust", SPW_ROUTE_RECORD},
    {"POST", COMPANY "/*/void", SPW_ROUTE_RECORD},
    {"POST", COMPANY "/*/refund", SPW_ROUTE_REFUND},
    {"GET", "/api/v2/utilities/ping", SPW_ROUTE_PING},
    {"GET", "/api/v2/addresses/resolve", SPW_ROUTE_READ},
    {"POST", "/api/v2/addresses/resolve", SPW_ROUTE_READ},
    {"GET", "/api/v2/taxrates/byaddress", SPW_ROUTE_READ},
    {"GET", "/api/v2/taxrates/bypostalcode", SPW_ROUTE_READ},
    {"GET", "/api/v2/taxratesbyzipcode/download/*", SPW_ROUTE_READ},
};

static enum spw_status open_call(const struct spw_conf_account *account,
                                 const struct spw_credential *credential, const char *method,
                                 const char *path, struct spw_call *call, struct spw_error *err)
{
    memset(call, 0, sizeof *call);
    if (!account->company[0])
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "accounts.%s.company: AvaTax needs the company code; copy it from the company's "
                             "page in AvaTax",
                             account->name);
    enum spw_status status = spw_wire_open(&spw_profile_avatax, account, credential, method, path, call, err);
    if (!status)
        status = spw_wire_header(call, "X-Avalara-Client", CLIENT, err);
    if (status)
        spw_call_clean_up(call);
    return status;
}

/* {line1, city, region, country, postalCode} without what is not known. */
static void put_address(struct spw_text *t, const char *name, const struct spw_address *a)
{
    spw_json_open(t, name, "{");
    spw_json_put_known(t, "line1", a->line1);
    spw_json_put_known(t, "city", a->city);
    spw_json_put_known(t, "region", a->state);
    spw_json_put_text(t, "country", a->country && a->country[0] ? a->country : "US");
    spw_json_put_known(t, "postalCode", a->zip);
    spw_text_put(t, "}");
}

static bool is_address(const struct spw_address *a)
{
    return (a->zip && a->zip[0]) || (a->line1 && a->line1[0]) || (a->city && a->city[0]);
}

static enum spw_status put_addresses(struct spw_text *t, const struct spw_quote_request *quote,
                                     struct spw_error *err)
{
    if (!is_address(&quote->ship_to))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "ship_to: zip, or line1 and city, are needed; send them");
    /* One address stands for both ends: AvaTax then takes the sale for one over the counter. */
    const struct spw_address *from = is_address(&quote->ship_from) ? &quote->ship_from : &quote->ship_to;
    spw_json_open(t, "addresses", "{");
    put_address(t, "shipFrom", from);
    put_address(t, "shipTo", &quote->ship_to);
    spw_text_put(t, "}");
    return SPW_STATUS_OK;
}

/* "sku-1" as it is; too long = the line's number, since AvaTax refuses more. */
static const char *item_code(const char *id, const char *number)
{
    return id && id[0] && strlen(id) <= ITEM_CODE_MAX_BYTES ? id : number;
}

/* taxes_minor NULL = to be calculated. */
static enum spw_status put_line(struct spw_text *t, const struct spw_quote_request *quote, uint32_t index,
                                const int64_t *taxes_minor, const char *date, struct spw_error *err)
{
    bool is_shipping = index == quote->line_count;
    const struct spw_line *line = is_shipping ? NULL : &quote->lines[index];
    char number[16];
    struct spw_text digits = spw_text_on(number, sizeof number);
    spw_text_u64(&digits, index + 1);
    enum spw_status status = spw_wire_check_line(quote, index, true, "AvaTax", err);
    if (status)
        return status;
    int64_t quantity_micro = line && line->quantity_micro ? line->quantity_micro : SPW_WIRE_MICRO;
    const char *code = line ? line->tax_code : quote->shipping_tax_code;
    if (is_shipping && (!code || !code[0]))
        code = SPW_AVATAX_FREIGHT;
    spw_json_open(t, NULL, "{");
    spw_json_put_text(t, "number", number);
    spw_json_put_decimal(t, "quantity", quantity_micro, 6, true);
    spw_json_put_decimal(t, "amount", line ? line->amount_minor : quote->shipping_minor, 2, false);
    spw_json_put_text(t, "itemCode", line ? item_code(line->id, number) : "shipping");
    spw_json_put_known(t, "taxCode", code);
    if (taxes_minor) {
        spw_json_open(t, "taxOverride", "{");
        spw_json_put_text(t, "type", "TaxAmount");
        spw_json_put_decimal(t, "taxAmount", taxes_minor[index], 2, false);
        spw_json_put_text(t, "taxDate", date);
        spw_json_put_text(t, "reason", "collected at checkout from a cached rate");
        spw_text_put(t, "}");
    }
    spw_text_put(t, "}");
    return SPW_STATUS_OK;
}

/* The members of the transaction without type and code. */
static enum spw_status put_transaction(struct spw_text *t, const struct spw_quote_request *quote,
                                       const struct spw_conf_account *account, const char *date,
                                       const int64_t *taxes_minor, struct spw_error *err)
{
    const char *customer = quote->customer_id && quote->customer_id[0] ? quote->customer_id : "guest";
    char customer_code[ITEM_CODE_MAX_BYTES + 1], exemption[EXEMPTION_MAX_BYTES + 1];
    uint32_t count = quote->line_count + (quote->shipping_minor != 0);
    enum spw_status status = spw_wire_check_quote(quote, "AvaTax", err);
    if (status)
        return status;
    snprintf(customer_code, sizeof customer_code, "%s", customer);
    snprintf(exemption, sizeof exemption, "%s", quote->exemption ? quote->exemption : "");
    spw_json_put_text(t, "companyCode", account->company);
    spw_json_put_text(t, "date", date);
    spw_json_put_text(t, "customerCode", customer_code);
    spw_json_put_text(t, "currencyCode", quote->currency ? quote->currency : "USD");
    spw_json_put_known(t, "exemptionNo", exemption);
    spw_json_open(t, "lines", "[");
    for (uint32_t i = 0; i < count && !status; i++)
        status = put_line(t, quote, i, taxes_minor, date, err);
    spw_text_put(t, "]");
    return status ? status : put_addresses(t, quote, err);
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    char date[11];
    struct spw_wire_body body;
    (void)idempotency_key; /* AvaTax knows none, and a SalesOrder leaves nothing behind */
    enum spw_status status = open_call(
        account, credential, "POST", "/api/v2/transactions/create?$include=Lines,Details,Summary", out, err);
    if (status)
        return status;
    spw_wire_date(quote, date);
    status = spw_wire_body_open(&body, &quote, 1, err);
    spw_text_put(&body.text, "{");
    spw_json_put_text(&body.text, "type", "SalesOrder");
    if (!status)
        status = put_transaction(&body.text, quote, account, date, NULL, err);
    spw_text_put(&body.text, "}");
    return spw_wire_close_body(&spw_profile_avatax, credential, &body, status, out, err);
}

static enum spw_status get(const struct spw_conf_account *account, const struct spw_credential *credential,
                           const char *path, struct spw_call *out, struct spw_error *err)
{
    enum spw_status status = open_call(account, credential, "GET", path, out, err);
    return status ? status : spw_wire_close(&spw_profile_avatax, credential, NULL, NULL, status, out, err);
}

static enum spw_status ping(const struct spw_conf_account *account, const struct spw_credential *credential,
                            struct spw_call *out, struct spw_error *err)
{
    return get(account, credential, "/api/v2/utilities/ping", out, err);
}

/* ---- filing: a committed invoice whose tax is what was collected ---- */

static enum spw_status book(const struct spw_booking *booking, const struct spw_conf_account *account,
                            const struct spw_credential *credential, struct spw_call *out,
                            struct spw_error *err)
{
    int64_t taxes_minor[SPW_LINES_MAX_COUNT + 1];
    struct spw_wire_body body;
    struct spw_text *t = &body.text;
    if (booking->quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: more than %u", SPW_LINES_MAX_COUNT);
    enum spw_status status = open_call(
        account, credential, "POST", "/api/v2/transactions/createoradjust?$include=Lines,Summary", out, err);
    if (status)
        return status;
    bool fits = strlen(booking->order_id) <= ITEM_CODE_MAX_BYTES;
    spw_wire_collected(booking, taxes_minor);
    status = spw_wire_body_open(&body, &booking->quote, 1, err);
    spw_text_put(t, "{");
    spw_json_open(t, "createTransactionModel", "{");
    spw_json_put_text(t, "type", "SalesInvoice");
    spw_json_put_known(t, "code", booking->document);
    spw_json_put_known(t, "referenceCode", fits ? booking->order_id : booking->document);
    spw_json_put_word(t, "commit", "true");
    if (!status)
        status = put_transaction(t, booking->quote, account, booking->date, taxes_minor, err);
    spw_text_put(t, "}}");
    return spw_wire_close_body(&spw_profile_avatax, credential, &body, status, out, err);
}

static enum spw_status book_back(const struct spw_booking *booking, const struct spw_conf_account *account,
                                 const struct spw_credential *credential, struct spw_call *out,
                                 struct spw_error *err)
{
    char path[2 * SPW_NAME_BYTES + SPW_CALLER_ID_BYTES + 64];
    snprintf(path, sizeof path, "/api/v2/companies/%s/transactions/%s", account->company, booking->document);
    return get(account, credential, path, out, err);
}

static enum spw_status rates(const struct spw_conf_account *account, const struct spw_credential *credential,
                             const char *date, struct spw_call *out, struct spw_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/api/v2/taxratesbyzipcode/download/%.10s", date);
    return get(account, credential, path, out, err);
}

const struct spw_profile spw_profile_avatax = {
    .name = "avatax",
    .default_url = "https://rest.avatax.com",
    .routes = routes,
    .routes_count = sizeof routes / sizeof routes[0],
    .has_user = true,
    .has_company = true,
    .takes_date = true,
    .is_tax = true,
    .jurisdictions_rounded_count = 4, /* state, county, city, special: each line's are rounded on their own */
    .build = build,
    .read = spw_avatax_read,
    .judge = spw_avatax_judge,
    .check = spw_avatax_check,
    .ping = ping,
    .authorize = spw_wire_basic,
    .token = spw_wire_token,
    .native_quote = spw_avatax_native_quote,
    .native_fallback = spw_avatax_native_fallback,
    .native_error = spw_avatax_native_error,
    .native_document = spw_avatax_native_document,
    .native_recorded = spw_avatax_native_recorded,
    .book_overwrites = true,
    .book = book,
    .read_book = spw_avatax_read_book,
    .book_back = book_back,
    .read_book_back = spw_avatax_read_book_back,
    .rates_format = SPW_RATES_AVATAX_ZIP_CSV,
    .rates = rates,
};
