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
    enum spw_status status =
        spw_wire_open(&spw_profile_avatax, account, credential, method, call, err, "%s", path);
    if (!status)
        status = spw_wire_header(call, "X-Avalara-Client", CLIENT, err);
    if (status)
        spw_call_clean_up(call);
    return status;
}

/* {line1, city, region, country, postalCode} without what is not known; NULL: no UTF-8, or no memory. */
static json_t *make_address(const struct spw_address *a)
{
    json_t *out = json_object();
    if (out && spw_wire_set_text(out, "line1", a->line1) && spw_wire_set_text(out, "city", a->city) &&
        spw_wire_set_text(out, "region", a->state) &&
        spw_wire_set_text(out, "country", a->country && a->country[0] ? a->country : "US") &&
        spw_wire_set_text(out, "postalCode", a->zip))
        return out;
    json_decref(out);
    return NULL;
}

static bool is_address(const struct spw_address *a)
{
    return (a->zip && a->zip[0]) || (a->line1 && a->line1[0]) || (a->city && a->city[0]);
}

static enum spw_status make_addresses(const struct spw_quote_request *quote, json_t **out,
                                      struct spw_error *err)
{
    *out = NULL;
    if (!is_address(&quote->ship_to))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "ship_to: zip, or line1 and city, are needed; send them");
    /* One address stands for both ends: AvaTax then takes the sale for one over the counter. */
    const struct spw_address *from = is_address(&quote->ship_from) ? &quote->ship_from : &quote->ship_to;
    json_t *addresses =
        json_pack("{s:o, s:o}", "shipFrom", make_address(from), "shipTo", make_address(&quote->ship_to));
    if (!addresses)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "ship_from, ship_to: not UTF-8 (or no memory); send UTF-8");
    *out = addresses;
    return SPW_STATUS_OK;
}

/* "sku-1" as it is; too long = the line's number, since AvaTax refuses more. */
static const char *item_code(const char *id, const char *number)
{
    return id && id[0] && strlen(id) <= ITEM_CODE_MAX_BYTES ? id : number;
}

/* taxes_minor NULL = to be calculated. */
static enum spw_status add_line(json_t *lines, const struct spw_quote_request *quote, uint32_t index,
                                const int64_t *taxes_minor, const char *date, struct spw_error *err)
{
    bool is_shipping = index == quote->line_count;
    const struct spw_line *line = is_shipping ? NULL : &quote->lines[index];
    char number[16];
    snprintf(number, sizeof number, "%u", index + 1);
    enum spw_status status = spw_wire_check_line(quote, index, true, "AvaTax", err);
    if (status)
        return status;
    int64_t quantity_micro = line && line->quantity_micro ? line->quantity_micro : SPW_WIRE_MICRO;
    const char *code = line ? line->tax_code : quote->shipping_tax_code;
    if (is_shipping && (!code || !code[0]))
        code = SPW_AVATAX_FREIGHT;
    json_t *item =
        json_pack("{s:s, s:o, s:o, s:s}", "number", number, "quantity", spw_wire_quantity(quantity_micro),
                  "amount", spw_wire_minor(line ? line->amount_minor : quote->shipping_minor), "itemCode",
                  line ? item_code(line->id, number) : "shipping");
    bool failed = !item || !spw_wire_set_text(item, "taxCode", code);
    if (!failed && taxes_minor)
        failed = json_object_set_new(item, "taxOverride",
                                     json_pack("{s:s, s:o, s:s, s:s}", "type", "TaxAmount", "taxAmount",
                                               spw_wire_minor(taxes_minor[index]), "taxDate", date, "reason",
                                               "collected at checkout from a cached rate"));
    if (failed) {
        json_decref(item);
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "lines[%u]: id or tax code is not UTF-8 (or no memory); send UTF-8", index);
    }
    return json_array_append_new(lines, item) ? spw_wire_no_memory(err) : SPW_STATUS_OK;
}

/* The transaction without type and code. */
static enum spw_status make_transaction(const struct spw_quote_request *quote,
                                        const struct spw_conf_account *account, const char *date,
                                        const int64_t *taxes_minor, json_t **out, struct spw_error *err)
{
    json_t *addresses = NULL, *lines = json_array();
    *out = NULL;
    enum spw_status status = lines ? spw_wire_check_quote(quote, "AvaTax", err) : spw_wire_no_memory(err);
    uint32_t count = quote->line_count + (quote->shipping_minor != 0);
    for (uint32_t i = 0; i < count && !status; i++)
        status = add_line(lines, quote, i, taxes_minor, date, err);
    if (!status)
        status = make_addresses(quote, &addresses, err);
    if (status) {
        json_decref(lines);
        return status;
    }
    const char *customer = quote->customer_id && quote->customer_id[0] ? quote->customer_id : "guest";
    char customer_code[ITEM_CODE_MAX_BYTES + 1], exemption[EXEMPTION_MAX_BYTES + 1];
    snprintf(customer_code, sizeof customer_code, "%s", customer);
    snprintf(exemption, sizeof exemption, "%s", quote->exemption ? quote->exemption : "");
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "companyCode", account->company, "date", date,
                  "customerCode", customer_code, "currencyCode", quote->currency ? quote->currency : "USD",
                  "addresses", addresses, "lines", lines);
    if (!root || !spw_wire_set_text(root, "exemptionNo", exemption)) {
        json_decref(root);
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "customer: id or exemption is not UTF-8 (or no memory); send UTF-8");
    }
    *out = root;
    return SPW_STATUS_OK;
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    char date[11];
    json_t *root = NULL;
    (void)idempotency_key; /* AvaTax knows none, and a SalesOrder leaves nothing behind */
    enum spw_status status = open_call(
        account, credential, "POST", "/api/v2/transactions/create?$include=Lines,Details,Summary", out, err);
    if (status)
        return status;
    spw_wire_date(quote, date);
    status = make_transaction(quote, account, date, NULL, &root, err);
    if (!status && json_object_set_new(root, "type", json_string("SalesOrder")))
        status = spw_wire_no_memory(err);
    return spw_wire_close_json(&spw_profile_avatax, credential, root, status, out, err);
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
    json_t *model = NULL;
    if (booking->quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: more than %u", SPW_LINES_MAX_COUNT);
    enum spw_status status = open_call(
        account, credential, "POST", "/api/v2/transactions/createoradjust?$include=Lines,Summary", out, err);
    if (status)
        return status;
    spw_wire_collected(booking, taxes_minor);
    status = make_transaction(booking->quote, account, booking->date, taxes_minor, &model, err);
    if (!status &&
        (!spw_wire_set_text(model, "type", "SalesInvoice") ||
         !spw_wire_set_text(model, "code", booking->document) ||
         !spw_wire_set_text(model, "referenceCode",
                            strlen(booking->order_id) <= ITEM_CODE_MAX_BYTES ? booking->order_id
                                                                             : booking->document) ||
         json_object_set_new(model, "commit", json_true())))
        status = spw_wire_no_memory(err);
    json_t *root = status ? NULL : json_pack("{s:o}", "createTransactionModel", model);
    if (status)
        json_decref(model);
    return spw_wire_close_json(&spw_profile_avatax, credential, root, status, out, err);
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
