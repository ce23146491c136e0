/* avatax_native.c: AvaTax's own requests at the pass-through door, and a fallback as AvaTax would have told it.
 *
 * Owns: the reading of transactions, the making of answers. Called by: the profile. Thread: any; pure.
 *
 * What cannot be told as one destination, one exemption and plain taxable amounts is INVALID with its reason: returns,
 * overrides, prices with the tax in them, discounts over the document, addresses of single lines. A line whose code
 * begins with FR is freight: the last one is the quote's shipping. The answer's code is the caller's own or the quote's
 * id, by which a later commit is recognised, and its status is Temporary, since nothing is in AvaTax's books.
 */
#include "sidecar/provider/avatax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/native.h"
#include "sidecar/provider/wire.h"

/* ---- the quote ---- */

static size_t shipping_place(const struct spw_json *lines)
{
    size_t count = spw_json_count(lines), found = count, place = 0;
    SPW_JSON_EACH(line, lines)
    {
        const char *code = spw_wire_text(line, "taxCode");
        if (code && code[0] == 'F' && code[1] == 'R' && count > 1)
            found = place;
        place++;
    }
    return found;
}

static bool is_set(const struct spw_json *object, const char *key)
{
    const struct spw_json *value = spw_json_get(object, key);
    return value && !spw_json_is(value, SPW_JSON_NULL) && !spw_json_is(value, SPW_JSON_FALSE) &&
           !(spw_json_is(value, SPW_JSON_TEXT) && value->text_bytes == 0);
}

static enum spw_status take_address(struct spw_native_builder *b, const char *name, const struct spw_json *a,
                                    struct spw_address *out)
{
    return spw_native_address(b, name, spw_wire_text(a, "country"), spw_wire_text(a, "region"),
                              spw_wire_text(a, "postalCode"), spw_wire_text(a, "city"),
                              spw_wire_text(a, "line1"), out);
}

static enum spw_status take_addresses(struct spw_native_builder *b, const struct spw_json *addresses)
{
    struct spw_quote_request *q = &b->out->quote;
    const struct spw_json *single = spw_json_get(addresses, "singleLocation");
    if (spw_json_is(single, SPW_JSON_OBJECT)) {
        enum spw_status status = take_address(b, "addresses.singleLocation", single, &q->ship_to);
        q->ship_from = q->ship_to;
        return status;
    }
    enum spw_status status =
        take_address(b, "addresses.shipTo", spw_json_get(addresses, "shipTo"), &q->ship_to);
    const struct spw_json *from = spw_json_get(addresses, "shipFrom");
    return !status && spw_json_is(from, SPW_JSON_OBJECT)
               ? take_address(b, "addresses.shipFrom", from, &q->ship_from)
               : status;
}

static enum spw_status check_line(struct spw_native_builder *b, const struct spw_json *line, size_t place)
{
    static const char *const foreign[] = {"taxIncluded",   "taxOverride",   "discounted",       "addresses",
                                          "exemptionCode", "entityUseCode", "customerUsageType"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (is_set(line, foreign[i]))
            return spw_native_refuse(b->err, "lines[%zu].%s: not told by a cached rate", place, foreign[i]);
    return SPW_STATUS_OK;
}

static enum spw_status take_line(struct spw_native_builder *b, const struct spw_json *item, size_t place,
                                 bool is_shipping)
{
    int64_t amount_minor = 0, quantity_micro = SPW_WIRE_MICRO;
    const struct spw_json *quantity = spw_json_get(item, "quantity");
    enum spw_status status = check_line(b, item, place);
    if (status)
        return status;
    if (!spw_json_decimal(spw_json_get(item, "amount"), 2, &amount_minor) ||
        amount_minor > SPW_AMOUNT_MAX_MINOR || amount_minor < -SPW_AMOUNT_MAX_MINOR)
        return spw_native_refuse(b->err, "lines[%zu].amount: no number in range", place);
    if (quantity && !spw_json_is(quantity, SPW_JSON_NULL) &&
        (!spw_json_decimal(quantity, 6, &quantity_micro) || quantity_micro < 0))
        return spw_native_refuse(b->err, "lines[%zu].quantity: no number in range", place);
    struct spw_quote_request *q = &b->out->quote;
    if (is_shipping) {
        q->shipping_minor = amount_minor;
        q->shipping_tax_code = spw_native_text(b, spw_wire_text(item, "taxCode"));
        return SPW_STATUS_OK;
    }
    struct spw_line *line = spw_native_line(b);
    if (!line)
        return SPW_STATUS_OK; /* said at the end */
    const char *number = spw_wire_text(item, "number");
    line->id = number ? spw_native_text(b, number) : spw_native_number(b, (int64_t)place + 1);
    line->tax_code = spw_native_text(b, spw_wire_text(item, "taxCode"));
    line->quantity_micro = quantity_micro;
    line->amount_minor = amount_minor;
    return SPW_STATUS_OK;
}

/* The kinds of transaction that are a sale. */
static enum spw_status take_type(struct spw_native_builder *b, const struct spw_json *root)
{
    const char *type = spw_wire_text(root, "type");
    const struct spw_json *number = spw_json_get(root, "type"); /* the SDKs' enumerations are numbers */
    bool is_order = spw_json_is(number, SPW_JSON_INTEGER) ? spw_json_integer(number) == 0
                                                          : !type || strcmp(type, "SalesOrder") == 0;
    bool is_invoice = spw_json_is(number, SPW_JSON_INTEGER) ? spw_json_integer(number) == 1
                                                            : type && strcmp(type, "SalesInvoice") == 0;
    if (!is_order && !is_invoice)
        return spw_native_refuse(b->err, "type: only SalesOrder and SalesInvoice are told by a cached rate");
    b->out->records = is_invoice;
    b->out->quote.purpose = is_invoice ? SPW_PURPOSE_ORDER : SPW_PURPOSE_ESTIMATE;
    return SPW_STATUS_OK;
}

static enum spw_status check_document(struct spw_native_builder *b, const struct spw_json *root)
{
    int64_t discount_minor = 0;
    const struct spw_json *discount = spw_json_get(root, "discount");
    if (is_set(root, "taxOverride"))
        return spw_native_refuse(b->err, "taxOverride: not told by a cached rate");
    if (discount && !spw_json_is(discount, SPW_JSON_NULL) &&
        (!spw_json_decimal(discount, 2, &discount_minor) || discount_minor != 0))
        return spw_native_refuse(b->err, "discount: not told by a cached rate; take it off the lines");
    return SPW_STATUS_OK;
}

static enum spw_status read_transaction(struct spw_native_builder *b, const struct spw_json *root)
{
    struct spw_quote_request *q = &b->out->quote;
    const struct spw_json *lines = spw_json_get(root, "lines");
    size_t shipping = shipping_place(lines), place = 0;
    enum spw_status status = take_type(b, root);
    if (!status)
        status = check_document(b, root);
    if (!status)
        status = take_addresses(b, spw_json_get(root, "addresses"));
    if (!status)
        status = spw_native_currency(b, "currencyCode", spw_wire_text(root, "currencyCode"));
    if (!status)
        status = spw_native_date(b, "date", spw_wire_text(root, "date"));
    SPW_JSON_EACH(item, lines)
    {
        if (!status)
            status = take_line(b, item, place, place == shipping);
        place++;
    }
    q->customer_id = spw_native_text(b, spw_wire_text(root, "customerCode"));
    const char *exemption = spw_wire_text(root, "exemptionNo");
    if (!exemption)
        exemption = spw_wire_text(root, "entityUseCode");
    if (!exemption)
        exemption = spw_wire_text(root, "customerUsageType");
    q->exemption = spw_native_text(b, exemption);
    if (spw_native_take_document(spw_wire_text(root, "code"), b->out->document))
        q->quote_ref = spw_native_text(b, b->out->document);
    return status;
}

/* create has the transaction itself, createoradjust wraps it. */
static const struct spw_json *transaction_of(const struct spw_json *root)
{
    const struct spw_json *wrapped = spw_json_get(root, "createTransactionModel");
    return spw_json_is(wrapped, SPW_JSON_OBJECT) ? wrapped : root;
}

enum spw_status spw_avatax_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err)
{
    struct spw_native_builder b = {.out = out, .err = err};
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, request->body, request->body_bytes);
    const struct spw_json *transaction = transaction_of(root);
    memset(out, 0, sizeof *out);
    enum spw_status status =
        root ? spw_native_open(&b, account, request->body_bytes,
                               spw_json_count(spw_json_get(transaction, "lines")), out, err)
             : spw_native_refuse(err, "the body is no JSON object");
    if (!status)
        status = spw_native_close(&b, read_transaction(&b, transaction));
    spw_json_doc_clean_up(&doc);
    return status;
}

/* ---- the fallback ---- */

static const char *type_of_level(const char *level)
{
    return strcmp(level, "state") == 0    ? "State"
           : strcmp(level, "county") == 0 ? "County"
           : strcmp(level, "city") == 0   ? "City"
                                          : "Special";
}

/* One part of a rate, as AvaTax writes it in a line's details and in the summary. */
static json_t *make_part(const struct spw_native_part *part, const char *region, const char *taxable_key,
                         int64_t taxable_minor)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "country", "US", "region", region, "jurisType", type_of_level(part->level), "jurisCode",
                     "", "jurisName", "cached rate", "stateAssignedNo", "", "taxType", "Sales", "taxName",
                     "cached rate", "rateType", "General", "rateTypeCode", "G", "rate",
                     spw_wire_rate(part->ppb), "tax", spw_wire_minor(part->tax_minor), "taxCalculated",
                     spw_wire_minor(part->tax_minor), taxable_key, spw_wire_minor(taxable_minor), "exemption",
                     spw_wire_minor(0), "nonTaxable", spw_wire_minor(0));
}

static json_t *make_parts(const struct spw_native_fallback *fallback, const char *region,
                          const char *taxable_key, const struct spw_line_tax *tax)
{
    struct spw_native_part parts[SPW_NATIVE_PARTS_MAX_COUNT];
    json_t *list = json_array();
    size_t count = tax->taxable_minor ? spw_native_split(fallback, tax->tax_minor, parts) : 0;
    for (size_t i = 0; list && i < count; i++)
        json_array_append_new(list, make_part(&parts[i], region, taxable_key, tax->taxable_minor));
    return list;
}

struct making {
    const struct spw_native_quote *quote;
    const struct spw_native_fallback *fallback;
    const char *code;
    char date[12];
    const char *region;
};

static json_t *make_line(const struct making *m, const struct spw_json *item, size_t place,
                         int64_t amount_minor, const struct spw_line_tax *tax)
{
    char own_number[24];
    snprintf(own_number, sizeof own_number, "%zu", place + 1);
    const char *number = spw_wire_text(item, "number"), *tax_code = spw_wire_text(item, "taxCode");
    const char *item_code = spw_wire_text(item, "itemCode"), *text = spw_wire_text(item, "description");
    const struct spw_json *quantity = spw_json_get(item, "quantity");
    int64_t quantity_micro = SPW_WIRE_MICRO;
    (void)spw_json_decimal(quantity, 6, &quantity_micro);
    json_t *line = json_pack(
        "{s:i, s:i, s:s, s:i, s:i, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:s, s:s, s:s, "
        "s:s, "
        "s:b, s:o}",
        "id", 0, "transactionId", 0, "lineNumber", number ? number : own_number, "boundaryOverrideId", 0,
        "customerUsageTypeId", 0, "description", text ? text : "", "itemCode", item_code ? item_code : "",
        "destinationAddressId", 0, "quantity", spw_wire_quantity(quantity_micro), "lineAmount",
        spw_wire_minor(amount_minor), "discountAmount", spw_wire_minor(0), "exemptAmount",
        spw_wire_minor(amount_minor - tax->taxable_minor), "taxableAmount",
        spw_wire_minor(tax->taxable_minor), "tax", spw_wire_minor(tax->tax_minor), "taxCalculated",
        spw_wire_minor(tax->tax_minor), "isItemTaxable", tax->taxable_minor != 0, "taxCode",
        tax_code ? tax_code : "", "reportingDate", m->date, "taxDate", m->date, "sourcing", "Destination",
        "taxIncluded", 0, "details", make_parts(m->fallback, m->region, "taxableAmount", tax));
    return line;
}

static json_t *make_lines(const struct making *m, const struct spw_json *items)
{
    const struct spw_quote_request *q = &m->quote->quote;
    size_t shipping = shipping_place(items), place = 0, next = 0;
    json_t *list = json_array();
    SPW_JSON_EACH(item, items)
    {
        size_t index = place == shipping ? q->line_count : next++;
        int64_t amount_minor = place == shipping ? q->shipping_minor : q->lines[index].amount_minor;
        json_t *line = make_line(m, item, place++, amount_minor, &m->fallback->lines[index]);
        if (json_array_append_new(list, line)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Developers see it in any dump of the answer, and the SDKs hand it on as it is. */
static json_t *make_messages(const struct spw_native_fallback *f)
{
    char details[256];
    snprintf(
        details, sizeof details,
        "%s (%s): this tax is from a cached rate and is reconciled later; nothing is recorded in AvaTax. "
        "Flag %s.",
        f->type, f->cause, f->flag_id[0] ? f->flag_id : "handed back");
    return json_pack("[{s:s, s:s, s:s, s:s, s:s}]", "summary", "Tax from a cached rate (Spillway fallback)",
                     "details", details, "refersTo", f->quote_id, "severity", "Warning", "source",
                     "Spillway");
}

static json_t *make_transaction(const struct making *m, const struct spw_json *asked)
{
    const struct spw_quote_request *q = &m->quote->quote;
    const struct spw_native_fallback *f = m->fallback;
    int64_t taxable_minor = spw_native_taxable_minor(m->quote, f);
    int64_t amount_minor = spw_native_amount_minor(m->quote) + q->shipping_minor;
    const struct spw_line_tax whole = {.taxable_minor = taxable_minor, .tax_minor = f->tax_minor};
    const char *company = spw_wire_text(asked, "companyCode");
    json_t *root = json_pack(
        "{s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:i, s:s, "
        "s:s, s:o, s:o, s:o}",
        "id", 0, "code", m->code, "companyId", 0, "date", m->date, "paymentDate", m->date, "status",
        "Temporary", "type", m->quote->records ? "SalesInvoice" : "SalesOrder", "currencyCode", "USD",
        "reconciled", 0, "totalAmount", spw_wire_minor(amount_minor), "totalExempt",
        spw_wire_minor(amount_minor - taxable_minor), "totalDiscount", spw_wire_minor(0), "totalTax",
        spw_wire_minor(f->tax_minor), "totalTaxable", spw_wire_minor(taxable_minor), "totalTaxCalculated",
        spw_wire_minor(f->tax_minor), "adjustmentReason", "NotAdjusted", "locked", 0, "version", 1, "taxDate",
        m->date, "exchangeRateCurrencyCode", "USD", "lines", make_lines(m, spw_json_get(asked, "lines")),
        "summary", make_parts(f, m->region, "taxable", &whole), "messages", make_messages(f));
    if (root && (!spw_wire_set_text(root, "companyCode", company) ||
                 !spw_wire_set_text(root, "customerCode", q->customer_id))) {
        json_decref(root);
        return NULL;
    }
    return root;
}

enum spw_status spw_avatax_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err)
{
    struct spw_json *root = spw_wire_read(request->body, request->body_bytes);
    struct making m = {.quote = quote, .fallback = fallback, .region = quote->quote.ship_to.state};
    char now[32];
    spw_native_now(fallback->now_unix_ms, now, sizeof now);
    snprintf(m.date, sizeof m.date, "%.10s", quote->quote.date ? quote->quote.date : now);
    m.code = quote->document[0] ? quote->document : fallback->quote_id;
    json_t *answer = root ? make_transaction(&m, transaction_of(root)) : NULL;
    spw_json_free(root);
    return spw_native_answer_json(201, answer, out, err);
}

/* A transaction that is Temporary, or Cancelled when it was voided before it got there: not in AvaTax's books. */
enum spw_status spw_avatax_native_recorded(const struct spw_native_request *request,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err)
{
    char code[SPW_CALLER_ID_BYTES] = "", now[32];
    bool is_void = strstr(request->path, "/void") != NULL;
    (void)spw_avatax_native_document(request, code);
    spw_native_now(fallback->now_unix_ms, now, sizeof now);
    now[10] = 0;
    return spw_native_answer_json(
        200,
        json_pack("{s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:i, s:o}", "id", 0, "code", code,
                  "companyId", 0, "date", now, "status", is_void ? "Cancelled" : "Temporary", "type",
                  "SalesInvoice", "currencyCode", "USD", "locked", 0, "totalTax",
                  spw_wire_minor(fallback->tax_minor), "totalTaxCalculated",
                  spw_wire_minor(fallback->tax_minor), "version", 1, "messages", make_messages(fallback)),
        out, err);
}

enum spw_status spw_avatax_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err)
{
    const char *code = status == 429                    ? "RateLimitExceeded"
                       : status == 401 || status == 403 ? "AuthorizationException"
                       : status >= 500                  ? "ServerUnreachable"
                                                        : "InvalidRequest";
    return spw_native_answer_json(
        status,
        json_pack("{s:{s:s, s:s, s:s, s:[{s:s, s:i, s:s, s:s, s:s, s:s}]}}", "error", "code", code, "message",
                  message, "target", "Unknown", "details", "code", code, "number", status == 429 ? 4011 : 0,
                  "message", message, "description", message, "faultCode",
                  status >= 500 || status == 429 ? "Server" : "Client", "severity", "Error"),
        out, err);
}

bool spw_avatax_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    if (strstr(request->path, "/companies/"))
        return spw_native_path_document(request->path, "transactions", out);
    struct spw_json *root = spw_wire_read(request->body, request->body_bytes);
    bool found = spw_native_take_document(spw_wire_text(transaction_of(root), "code"), out);
    spw_json_free(root);
    return found;
}
