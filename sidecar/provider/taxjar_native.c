/* taxjar_native.c: TaxJar's own requests at the pass-through door, and a fallback as TaxJar would have told it.
 *
 * Owns: the reading of orders, the making of answers. Called by: the profile. Thread: any; pure.
 *
 * Any calculation may be the one a customer pays by: TaxJar has no id for it, so each is quoted as for an order. The
 * mark stands inside "tax", because one SDK takes an answer with two members at the top for broken.
 */
#include "sidecar/provider/taxjar.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/native.h"
#include "sidecar/provider/wire.h"

/* ---- the quote ---- */

static enum spw_status take_destination(struct spw_native_builder *b, const struct spw_json *root)
{
    return spw_native_address(b, "to", spw_wire_text(root, "to_country"), spw_wire_text(root, "to_state"),
                              spw_wire_text(root, "to_zip"), spw_wire_text(root, "to_city"),
                              spw_wire_text(root, "to_street"), &b->out->quote.ship_to);
}

/* It may be left out: TaxJar knows the shop's. */
static enum spw_status take_origin(struct spw_native_builder *b, const struct spw_json *root)
{
    const char *state = spw_wire_text(root, "from_state"), *zip = spw_wire_text(root, "from_zip");
    if (!state || !zip)
        return SPW_STATUS_OK;
    return spw_native_address(b, "from", spw_wire_text(root, "from_country"), state, zip,
                              spw_wire_text(root, "from_city"), spw_wire_text(root, "from_street"),
                              &b->out->quote.ship_from);
}

/* A number that may be missing: then it is value. */
static bool take_number(const struct spw_json *object, const char *key, int64_t value, int64_t *out)
{
    const struct spw_json *number = spw_json_get(object, key);
    *out = value;
    return !number || spw_json_is(number, SPW_JSON_NULL) || spw_json_decimal(number, 6, out);
}

static enum spw_status take_line(struct spw_native_builder *b, const struct spw_json *item, size_t place)
{
    int64_t price_micro, quantity_micro, discount_micro, amount_minor;
    struct spw_line *line = spw_native_line(b);
    if (!line)
        return SPW_STATUS_OK; /* said at the end */
    if (!take_number(item, "unit_price", 0, &price_micro) ||
        !take_number(item, "quantity", SPW_WIRE_MICRO, &quantity_micro) || quantity_micro < 0 ||
        !take_number(item, "discount", 0, &discount_micro) ||
        !spw_native_amount(price_micro, quantity_micro, discount_micro, &amount_minor))
        return spw_native_refuse(
            b->err, "line_items[%zu]: quantity, unit_price or discount is no number in range", place);
    const struct spw_json *id = spw_json_get(item, "id");
    const char *text = spw_wire_text(item, "id");
    int64_t number = spw_json_is(id, SPW_JSON_INTEGER) ? spw_json_integer(id) : (int64_t)place + 1;
    line->id = text ? spw_native_text(b, text) : spw_native_number(b, number);
    line->tax_code = spw_native_text(b, spw_wire_text(item, "product_tax_code"));
    line->quantity_micro = quantity_micro;
    line->amount_minor = amount_minor;
    return SPW_STATUS_OK;
}

/* Without lines the amount is the one line. */
static enum spw_status take_amount(struct spw_native_builder *b, const struct spw_json *root)
{
    int64_t amount_minor = 0;
    struct spw_line *line = spw_native_line(b);
    if (!line || !spw_json_decimal(spw_json_get(root, "amount"), 2, &amount_minor) ||
        amount_minor > SPW_AMOUNT_MAX_MINOR || amount_minor < -SPW_AMOUNT_MAX_MINOR)
        return spw_native_refuse(b->err, "amount: neither it nor line_items tells what is sold");
    line->id = "1";
    line->quantity_micro = SPW_WIRE_MICRO;
    line->amount_minor = amount_minor;
    return SPW_STATUS_OK;
}

static enum spw_status read_order(struct spw_native_builder *b, const struct spw_json *root)
{
    struct spw_quote_request *q = &b->out->quote;
    const struct spw_json *items = spw_json_get(root, "line_items");
    const struct spw_json *shipping = spw_json_get(root, "shipping");
    size_t place = 0;
    enum spw_status status = take_destination(b, root);
    if (!status)
        status = take_origin(b, root);
    if (!status && shipping && !spw_json_is(shipping, SPW_JSON_NULL) &&
        (!spw_json_decimal(shipping, 2, &q->shipping_minor) || q->shipping_minor > SPW_AMOUNT_MAX_MINOR ||
         q->shipping_minor < -SPW_AMOUNT_MAX_MINOR))
        status = spw_native_refuse(b->err, "shipping: no number in range");
    if (!status && spw_json_count(items) == 0)
        status = take_amount(b, root);
    SPW_JSON_EACH(item, items)
    {
        if (!status)
            status = take_line(b, item, place++);
    }
    const char *exemption = spw_wire_text(root, "exemption_type");
    q->customer_id = spw_native_text(b, spw_wire_text(root, "customer_id"));
    if (exemption && strcmp(exemption, "non_exempt") != 0)
        q->exemption = spw_native_text(b, exemption);
    q->purpose = SPW_PURPOSE_ORDER;
    return status;
}

enum spw_status spw_taxjar_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err)
{
    struct spw_native_builder b = {.out = out, .err = err};
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, request->body, request->body_bytes);
    size_t lines_count = spw_json_count(spw_json_get(root, "line_items"));
    memset(out, 0, sizeof *out);
    enum spw_status status =
        root ? spw_native_open(&b, account, request->body_bytes, lines_count ? lines_count : 1, out, err)
             : spw_native_refuse(err, "the body is no JSON object");
    if (!status)
        status = spw_native_close(&b, read_order(&b, root));
    spw_json_doc_clean_up(&doc);
    return status;
}

/* ---- the fallback ---- */

/* The words of a level in the breakdown of the whole, and in that of a line or of shipping. */
static const struct {
    const char *level, *rate, *line_rate, *taxable, *whole_tax, *line_tax;
} words[] = {
    {"state", "state_tax_rate", "state_sales_tax_rate", "state_taxable_amount", "state_tax_collectable",
     "state_amount"},
    {"county", "county_tax_rate", "county_tax_rate", "county_taxable_amount", "county_tax_collectable",
     "county_amount"},
    {"city", "city_tax_rate", "city_tax_rate", "city_taxable_amount", "city_tax_collectable", "city_amount"},
    {"special", "special_tax_rate", "special_tax_rate", "special_district_taxable_amount",
     "special_district_tax_collectable", "special_district_amount"},
};

/* A breakdown of a tax: of the whole order, or of one line. All four levels are there, as TaxJar writes them. */
static json_t *make_breakdown(const struct spw_native_fallback *f, const struct spw_line_tax *tax,
                              bool is_line)
{
    struct spw_native_part parts[SPW_NATIVE_PARTS_MAX_COUNT];
    size_t count = tax->taxable_minor ? spw_native_split(f, tax->tax_minor, parts) : 0;
    uint32_t combined_ppb = tax->taxable_minor ? f->combined_ppb : 0;
    json_t *out =
        json_pack("{s:o, s:o, s:o}", "taxable_amount", spw_wire_minor(tax->taxable_minor), "tax_collectable",
                  spw_wire_minor(tax->tax_minor), "combined_tax_rate", spw_wire_rate(combined_ppb));
    for (size_t i = 0; out && i < sizeof words / sizeof words[0]; i++) {
        struct spw_native_part none = {words[i].level, 0, 0};
        const struct spw_native_part *part = &none;
        for (size_t k = 0; k < count; k++)
            if (strcmp(parts[k].level, words[i].level) == 0)
                part = &parts[k];
        json_object_set_new(out, is_line ? words[i].line_rate : words[i].rate, spw_wire_rate(part->ppb));
        json_object_set_new(out, words[i].taxable, spw_wire_minor(part->ppb ? tax->taxable_minor : 0));
        json_object_set_new(out, is_line ? words[i].line_tax : words[i].whole_tax,
                            spw_wire_minor(part->tax_minor));
    }
    return out;
}

static json_t *make_lines(const struct spw_native_quote *quote, const struct spw_native_fallback *f)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < quote->quote.line_count; i++) {
        json_t *line = make_breakdown(f, &f->lines[i], true);
        if (!line || !spw_wire_set_text(line, "id", quote->quote.lines[i].id) ||
            json_array_append_new(list, line)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *make_tax(const struct spw_native_quote *quote, const struct spw_native_fallback *f)
{
    const struct spw_quote_request *q = &quote->quote;
    int64_t taxable_minor = spw_native_taxable_minor(quote, f);
    int64_t amount_minor = spw_native_amount_minor(quote) + q->shipping_minor;
    const struct spw_line_tax whole = {.taxable_minor = taxable_minor, .tax_minor = f->tax_minor};
    const struct spw_line_tax *shipping = &f->lines[q->line_count];
    json_t *breakdown = make_breakdown(f, &whole, false);
    if (!breakdown)
        return NULL;
    if (q->shipping_minor)
        json_object_set_new(breakdown, "shipping", make_breakdown(f, shipping, true));
    json_object_set_new(breakdown, "line_items", make_lines(quote, f));
    json_t *jurisdictions = json_pack("{s:s, s:s}", "country", "US", "state", q->ship_to.state);
    (void)spw_wire_set_text(jurisdictions, "city", q->ship_to.city);
    /* rate = collected / taxable, as TaxJar defines it; the cached rate is that before rounding. */
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:s, s:o, s:o, s:o}", "order_total_amount",
                     spw_wire_minor(amount_minor), "shipping", spw_wire_minor(q->shipping_minor),
                     "taxable_amount", spw_wire_minor(taxable_minor), "amount_to_collect",
                     spw_wire_minor(f->tax_minor), "rate", spw_wire_rate(taxable_minor ? f->combined_ppb : 0),
                     "has_nexus", f->combined_ppb != 0, "freight_taxable", shipping->taxable_minor != 0,
                     "tax_source", "destination", "jurisdictions", jurisdictions, "breakdown", breakdown,
                     "spillway", spw_native_mark(f));
}

enum spw_status spw_taxjar_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err)
{
    (void)request;
    json_t *tax = make_tax(quote, fallback);
    return spw_native_answer_json(200, tax ? json_pack("{s:o}", "tax", tax) : NULL, out, err);
}

/* All three members: an SDK reads each without a look whether it is there. */
enum spw_status spw_taxjar_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err)
{
    const char *error = status == 429   ? "Too Many Requests"
                        : status == 503 ? "Service Unavailable"
                        : status == 401 ? "Unauthorized"
                        : status == 403 ? "Forbidden"
                        : status >= 500 ? "Internal Server Error"
                                        : "Bad Request";
    return spw_native_answer_json(
        status, json_pack("{s:i, s:s, s:s}", "status", (int)status, "error", error, "detail", message), out,
        err);
}

/* A refund is told by the sale it refers to. */
bool spw_taxjar_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    struct spw_json *root = spw_wire_read(request->body, request->body_bytes);
    bool is_refund = strstr(request->path, "/refunds") != NULL;
    bool found = is_refund && spw_native_take_document(spw_wire_text(root, "transaction_reference_id"), out);
    if (!found)
        found = spw_native_path_document(request->path, is_refund ? "refunds" : "orders", out);
    if (!found && !is_refund)
        found = spw_native_take_document(spw_wire_text(root, "transaction_id"), out);
    spw_json_free(root);
    return found;
}
