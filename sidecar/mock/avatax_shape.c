/* avatax_shape.c: what an AvaTax company answers: transactions, their life, pings, published rates.
 *
 * Owns: nothing; documents are the books'. Called by: server.c through the table of shapes. Thread: any, one at a time.
 *
 * A SalesOrder is calculated and forgotten; anything else is recorded under its code. A code that is taken is refused
 * by create and adjusted by createoradjust, as AvaTax does. Each part of a rate is rounded on its own, line by line.
 */
#include "sidecar/mock/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ID_BYTES 128u

static struct spw_mock_reply fault(unsigned status, const char *code, const char *text)
{
    return spw_mock_reply_json(status,
                               json_pack("{s:{s:s, s:s, s:s, s:[{s:s, s:s, s:s, s:s, s:s}]}}", "error",
                                         "code", code, "message", text, "target", "HttpRequest", "details",
                                         "code", code, "message", text, "description", text, "faultCode",
                                         status >= 500 ? "Server" : "Client", "severity", "Error"));
}

static struct spw_mock_reply problem(unsigned status, const char *text)
{
    return fault(status,
                 status == 429   ? "RateLimitExceeded"
                 : status == 401 ? "AuthenticationException"
                 : status >= 500 ? "ServerUnreachable"
                 : status == 404 ? "EntityNotFoundError"
                                 : "ValueRequiredError",
                 text);
}

static const char *juris_type(const char *level)
{
    return strcmp(level, "state") == 0    ? "State"
           : strcmp(level, "county") == 0 ? "County"
           : strcmp(level, "city") == 0   ? "City"
                                          : "Special";
}

/* The tax of a line by its parts, into details. */
static int64_t tax_line(const struct spw_mock_rate *rate, int64_t amount_minor, bool is_exempt,
                        json_t *details)
{
    int64_t sum_minor = 0;
    for (size_t i = 0; i < rate->parts_count; i++) {
        int64_t tax_minor = is_exempt ? 0 : spw_mock_tax_minor(amount_minor, rate->parts[i].ppb);
        sum_minor += tax_minor;
        json_array_append_new(details,
                              json_pack("{s:s, s:s, s:o, s:o, s:o}", "jurisType",
                                        juris_type(rate->parts[i].level), "jurisName", "MOCK", "rate",
                                        spw_mock_ratio(rate->parts[i].ppb), "tax", spw_mock_amount(tax_minor),
                                        "taxableAmount", spw_mock_amount(is_exempt ? 0 : amount_minor)));
    }
    return sum_minor;
}

/* An override of the tax: of the line or, with total_minor, of the document. */
static bool override_of(const json_t *object, int64_t *tax_minor)
{
    const json_t *override = json_object_get(object, "taxOverride");
    const char *type = json_string_value(json_object_get(override, "type"));
    return type && strcmp(type, "TaxAmount") == 0 &&
           spw_mock_minor(json_object_get(override, "taxAmount"), tax_minor);
}

struct sums {
    int64_t amount_minor, tax_minor, calculated_minor;
};

static json_t *make_lines(const json_t *asked, const struct spw_mock_rate *rate, bool is_exempt,
                          struct sums *sums)
{
    json_t *lines = json_array(), *item;
    size_t i;
    json_array_foreach(json_object_get(asked, "lines"), i, item)
    {
        int64_t amount_minor, tax_minor;
        char number[24];
        snprintf(number, sizeof number, "%zu", i + 1);
        const char *own = json_string_value(json_object_get(item, "number"));
        if (!spw_mock_minor(json_object_get(item, "amount"), &amount_minor)) {
            json_decref(lines);
            return NULL;
        }
        json_t *details = json_array();
        int64_t calculated_minor = tax_line(rate, amount_minor, is_exempt, details);
        if (!override_of(item, &tax_minor))
            tax_minor = calculated_minor;
        sums->amount_minor += amount_minor;
        sums->tax_minor += tax_minor;
        sums->calculated_minor += calculated_minor;
        json_array_append_new(
            lines, json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "lineNumber", own ? own : number,
                             "lineAmount", spw_mock_amount(amount_minor), "tax", spw_mock_amount(tax_minor),
                             "taxCalculated", spw_mock_amount(calculated_minor), "taxableAmount",
                             spw_mock_amount(is_exempt ? 0 : amount_minor), "isItemTaxable", !is_exempt,
                             "details", details));
    }
    return lines;
}

/* NULL with *out set: refused. */
static json_t *calculate(const struct spw_mock_books *books, const json_t *asked, struct spw_mock_reply *out)
{
    const json_t *addresses = json_object_get(asked, "addresses");
    const json_t *to = json_object_get(addresses, "shipTo");
    struct spw_mock_rate rate;
    struct sums sums = {0};
    if (!to)
        to = json_object_get(addresses, "singleLocation");
    if (!json_string_value(json_object_get(asked, "companyCode")) ||
        json_array_size(json_object_get(asked, "lines")) == 0) {
        *out = fault(400, "ValueRequiredError", "companyCode and lines are required");
        return NULL;
    }
    if (!spw_mock_rate_find(books, json_string_value(json_object_get(to, "postalCode")), &rate)) {
        *out = fault(400, "InvalidAddress", "the address cannot be located");
        return NULL;
    }
    bool is_exempt = json_string_length(json_object_get(asked, "exemptionNo")) > 0;
    json_t *lines = make_lines(asked, &rate, is_exempt, &sums);
    if (!lines) {
        *out = fault(400, "InvalidDecimalValue", "a line's amount is no number");
        return NULL;
    }
    (void)override_of(asked, &sums.tax_minor);
    const char *type = json_string_value(json_object_get(asked, "type"));
    bool is_order = !type || strcmp(type, "SalesOrder") == 0;
    bool commits = json_is_true(json_object_get(asked, "commit"));
    return json_pack("{s:s, s:s, s:s, s:O?, s:O?, s:O?, s:o, s:o, s:o, s:o, s:o}", "currencyCode", "USD",
                     "type", type ? type : "SalesOrder", "status",
                     is_order  ? "Temporary"
                     : commits ? "Committed"
                               : "Saved",
                     "code", json_object_get(asked, "code"), "date", json_object_get(asked, "date"),
                     "referenceCode", json_object_get(asked, "referenceCode"), "totalAmount",
                     spw_mock_amount(sums.amount_minor), "totalTaxable",
                     spw_mock_amount(is_exempt ? 0 : sums.amount_minor), "totalTax",
                     spw_mock_amount(sums.tax_minor), "totalTaxCalculated",
                     spw_mock_amount(sums.calculated_minor), "lines", lines);
}

static struct spw_mock_reply create(struct spw_mock_books *books, json_t *asked, bool may_adjust)
{
    struct spw_mock_reply reply = {.status = 500};
    json_t *transaction = calculate(books, asked, &reply);
    if (!transaction)
        return reply;
    const char *company = json_string_value(json_object_get(asked, "companyCode"));
    const char *code = json_string_value(json_object_get(transaction, "code"));
    char own_code[32];
    if (!code) {
        snprintf(own_code, sizeof own_code, "mock-%llu", (unsigned long long)++books->cart_serial);
        json_object_set_new(transaction, "code", json_string(own_code));
        code = own_code;
    }
    if (strcmp(json_string_value(json_object_get(transaction, "status")), "Temporary") == 0)
        return spw_mock_reply_json(201, transaction);
    json_t *known = spw_mock_document(books, "avatax/%.60s/%.100s", company, code);
    if (known && !may_adjust) {
        json_decref(transaction);
        return fault(400, "DuplicateEntry", "a document with this code exists");
    }
    spw_mock_keep(books, json_incref(transaction), "avatax/%.60s/%.100s", company, code);
    return spw_mock_reply_json(known ? 200 : 201, transaction);
}

/* /commit, /void, /adjust, /refund of a document. */
static struct spw_mock_reply act(struct spw_mock_books *books, const char *company, const char *code,
                                 const char *verb, json_t *asked)
{
    json_t *document = spw_mock_document(books, "avatax/%.60s/%.100s", company, code);
    if (!document)
        return fault(404, "EntityNotFoundError", "there is no such transaction");
    const char *status = json_string_value(json_object_get(document, "status"));
    bool is_void = status && strcmp(status, "Cancelled") == 0;
    if (strcmp(verb, "/adjust") == 0)
        return create(books, json_object_get(asked, "newTransaction"), true);
    if (strcmp(verb, "/refund") == 0) {
        const char *refund_code = json_string_value(json_object_get(asked, "refundTransactionCode"));
        if (!refund_code || spw_mock_document(books, "avatax/%.60s/%.100s", company, refund_code))
            return fault(400, refund_code ? "DuplicateEntry" : "ValueRequiredError", "refundTransactionCode");
        json_t *refund = json_deep_copy(document);
        json_object_set_new(refund, "type", json_string("ReturnInvoice"));
        json_object_set_new(refund, "code", json_string(refund_code));
        spw_mock_keep(books, json_incref(refund), "avatax/%.60s/%.100s", company, refund_code);
        return spw_mock_reply_json(201, refund);
    }
    if (is_void)
        return fault(400, "DocStatusError", "the document is voided");
    if (strcmp(verb, "/commit") == 0)
        json_object_set_new(document, "status", json_string("Committed"));
    else if (strcmp(verb, "/void") == 0)
        json_object_set_new(document, "status", json_string("Cancelled"));
    else
        return fault(404, "EntityNotFoundError", "no such path at this provider");
    return spw_mock_reply_json(200, json_incref(document));
}

/* The published table of a day, in AvaTax's columns, of the rates given to this provider. */
static struct spw_mock_reply download(const struct spw_mock_books *books)
{
    size_t rows_count = books->has_table ? books->table.rows_count : 1, room = 256 + rows_count * 192, used;
    char *text = malloc(room);
    if (!text)
        return (struct spw_mock_reply){.status = 500};
    used = (size_t)snprintf(text, room,
                            "ZIP_CODE,STATE_ABBREV,COUNTY_NAME,CITY_NAME,STATE_SALES_TAX,STATE_USE_TAX,"
                            "COUNTY_SALES_TAX,COUNTY_USE_TAX,CITY_SALES_TAX,CITY_USE_TAX,TOTAL_SALES_TAX,"
                            "TOTAL_USE_TAX,TAX_SHIPPING_ALONE,TAX_SHIPPING_AND_HANDLING_TOGETHER\n");
    for (size_t i = 0; i < rows_count; i++) {
        const struct spw_rate_row flat = {
            .zip5 = 98110, .state = "WA", .state_ppb = books->flat_ppb, .combined_ppb = books->flat_ppb};
        const struct spw_rate_row *row = books->has_table ? &books->table.rows[i] : &flat;
        double state = row->state_ppb / 1e9, county = row->county_ppb / 1e9, city = row->city_ppb / 1e9;
        double total = row->combined_ppb / 1e9;
        if (row->zip5 == 0)
            continue;
        used += (size_t)snprintf(text + used, room - used,
                                 "%05u,%s,MOCK,MOCK,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,N,N\n", row->zip5,
                                 row->state, state, state, county, county, city, city, total, total);
    }
    return (struct spw_mock_reply){.status = 200, .body = text, .content_type = "text/csv"};
}

static struct spw_mock_reply answer(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    char company[ID_BYTES], code[ID_BYTES], date[ID_BYTES];
    const char *tail = "";
    bool is_post = strcmp(r->method, "POST") == 0;
    if (strcmp(r->path, "/api/v2/utilities/ping") == 0)
        return spw_mock_reply_json(200, json_pack("{s:s, s:b}", "version", "mock", "authenticated", 1));
    if (spw_mock_path_id(r->path, "/api/v2/taxratesbyzipcode/download/", date, sizeof date, &tail) &&
        !is_post)
        return download(books);
    json_error_t error;
    json_t *root =
        is_post ? json_loadb(r->body ? r->body : "", r->bytes, JSON_REJECT_DUPLICATES, &error) : NULL;
    struct spw_mock_reply reply = fault(404, "EntityNotFoundError", "no such path at this provider");
    struct spw_mock_reply none = reply;
    bool is_company = spw_mock_path_id(r->path, "/api/v2/companies/", company, sizeof company, &tail);
    if (is_post && !json_is_object(root))
        reply = fault(400, "JsonError", "the body is no JSON object");
    else if (is_post && strcmp(r->path, "/api/v2/transactions/create") == 0)
        reply = create(books, root, false);
    else if (is_post && strcmp(r->path, "/api/v2/transactions/createoradjust") == 0)
        reply = create(books, json_object_get(root, "createTransactionModel"), true);
    else if (is_company && spw_mock_path_id(tail, "/transactions/", code, sizeof code, &tail)) {
        json_t *document = spw_mock_document(books, "avatax/%.60s/%.100s", company, code);
        if (is_post)
            reply = act(books, company, code, tail, root);
        else if (document && !*tail)
            reply = spw_mock_reply_json(200, json_incref(document));
    }
    if (reply.body != none.body)
        free(none.body);
    json_decref(root);
    return reply;
}

const struct spw_mock_shape spw_mock_avatax = {
    .name = "avatax", .prefix = "/api/v2/", .answer = answer, .problem = problem};
