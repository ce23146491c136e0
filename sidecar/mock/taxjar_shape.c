/* taxjar_shape.c: what a TaxJar account answers: taxes, orders, refunds, rates.
 *
 * Owns: nothing; documents are the books'. Called by: server.c through the table of shapes. Thread: any, one at a time.
 * The combined rate is rounded once a line; an id that is taken is refused with 422.
 */
#include "sidecar/mock/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "sidecar/provider/decimal.h"

#define ID_BYTES 128u
#define MICRO    1000000

static struct spw_mock_reply problem(unsigned status, const char *text)
{
    return spw_mock_reply_json(status, json_pack("{s:i, s:s, s:s}", "status", (int)status, "error",
                                                 MHD_get_reason_phrase_for(status), "detail", text));
}

static bool micro_of(const json_t *value, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!value || json_is_null(value))
        return true;
    if (json_is_string(value))
        return spw_decimal_parse(json_string_value(value), json_string_length(value), 6, SPW_DECIMAL_HALF_UP,
                                 out) != SPW_DECIMAL_BAD;
    return json_is_number(value) &&
           spw_decimal_from_double(json_number_value(value), 6, out) != SPW_DECIMAL_BAD;
}

/* quantity x unit_price - discount, half up to the cent. */
static bool amount_of(const json_t *item, int64_t *minor)
{
    int64_t price, quantity, discount;
    if (!micro_of(json_object_get(item, "unit_price"), 0, &price) ||
        !micro_of(json_object_get(item, "quantity"), MICRO, &quantity) ||
        !micro_of(json_object_get(item, "discount"), 0, &discount))
        return false;
    spw_wide product = (spw_wide)price * quantity - (spw_wide)discount * MICRO;
    *minor = (int64_t)((product + (spw_wide)5000 * MICRO) / ((spw_wide)10000 * MICRO));
    return product >= 0;
}

static json_t *make_part(const struct spw_mock_rate *rate, int64_t amount_minor, bool is_exempt)
{
    int64_t tax_minor = is_exempt ? 0 : spw_mock_tax_minor(amount_minor, rate->combined_ppb);
    return json_pack("{s:o, s:o, s:o}", "taxable_amount", spw_mock_amount(is_exempt ? 0 : amount_minor),
                     "tax_collectable", spw_mock_amount(tax_minor), "combined_tax_rate",
                     spw_mock_ratio(is_exempt ? 0 : rate->combined_ppb));
}

static void add_levels(json_t *breakdown, const struct spw_mock_rate *rate, int64_t taxable_minor)
{
    for (size_t i = 0; i < rate->parts_count; i++) {
        const char *level = rate->parts[i].level;
        bool special = strcmp(level, "special") == 0;
        char name[48];
        snprintf(name, sizeof name, "%s_tax_rate", level);
        json_object_set_new(breakdown, name, spw_mock_ratio(rate->parts[i].ppb));
        snprintf(name, sizeof name, "%s_tax_collectable", special ? "special_district" : level);
        json_object_set_new(breakdown, name,
                            spw_mock_amount(spw_mock_tax_minor(taxable_minor, rate->parts[i].ppb)));
    }
}

static struct spw_mock_reply calculate(const struct spw_mock_books *books, const json_t *root)
{
    struct spw_mock_rate rate;
    const char *exemption = json_string_value(json_object_get(root, "exemption_type"));
    bool is_exempt = exemption && strcmp(exemption, "non_exempt") != 0;
    const json_t *items = json_object_get(root, "line_items");
    int64_t shipping_minor, amount_minor = 0, tax_minor = 0, given_minor;
    json_t *item, *lines = json_array();
    size_t i;
    if (!spw_mock_rate_find(books, json_string_value(json_object_get(root, "to_zip")), &rate))
        return json_decref(lines), problem(400, "to_zip is not known");
    if (!spw_mock_minor(json_object_get(root, "shipping"), &shipping_minor))
        return json_decref(lines), problem(406, "shipping is missing");
    json_array_foreach(items, i, item)
    {
        int64_t line_minor;
        if (!amount_of(item, &line_minor))
            return json_decref(lines), problem(400, "a line's price, quantity or discount is no number");
        json_t *part = make_part(&rate, line_minor, is_exempt);
        json_object_set(part, "id", json_object_get(item, "id"));
        json_array_append_new(lines, part);
        amount_minor += line_minor;
        tax_minor += is_exempt ? 0 : spw_mock_tax_minor(line_minor, rate.combined_ppb);
    }
    if (json_array_size(items) == 0) {
        if (!spw_mock_minor(json_object_get(root, "amount"), &given_minor))
            return json_decref(lines), problem(406, "amount or line_items is missing");
        amount_minor = given_minor;
        tax_minor = is_exempt ? 0 : spw_mock_tax_minor(amount_minor, rate.combined_ppb);
    }
    tax_minor += is_exempt ? 0 : spw_mock_tax_minor(shipping_minor, rate.combined_ppb);
    int64_t taxable_minor = is_exempt ? 0 : amount_minor + shipping_minor;
    json_t *breakdown =
        json_pack("{s:o, s:o}", "line_items", lines, "shipping", make_part(&rate, shipping_minor, is_exempt));
    add_levels(breakdown, &rate, taxable_minor);
    return spw_mock_reply_json(
        200,
        json_pack("{s:{s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:s, s:o}}", "tax", "order_total_amount",
                  spw_mock_amount(amount_minor + shipping_minor), "shipping", spw_mock_amount(shipping_minor),
                  "taxable_amount", spw_mock_amount(taxable_minor), "amount_to_collect",
                  spw_mock_amount(tax_minor), "rate", spw_mock_ratio(is_exempt ? 0 : rate.combined_ppb),
                  "has_nexus", 1, "freight_taxable", 1, "tax_source", "destination", "breakdown", breakdown));
}

/* kind: "orders" or "refunds"; the answer's member is its singular. */
static struct spw_mock_reply wrap(unsigned status, const char *kind, json_t *document)
{
    return spw_mock_reply_json(
        status, json_pack("{s:O}", strcmp(kind, "orders") == 0 ? "order" : "refund", document));
}

static struct spw_mock_reply post(struct spw_mock_books *books, const char *kind, json_t *root)
{
    const char *id = json_string_value(json_object_get(root, "transaction_id"));
    int64_t minor;
    if (!id || !*id || !json_string_value(json_object_get(root, "transaction_date")))
        return problem(406, "transaction_id and transaction_date are required");
    if (!spw_mock_minor(json_object_get(root, "amount"), &minor) ||
        !spw_mock_minor(json_object_get(root, "sales_tax"), &minor))
        return problem(406, "amount and sales_tax are required");
    if (strcmp(kind, "refunds") == 0 && !json_string_value(json_object_get(root, "transaction_reference_id")))
        return problem(406, "transaction_reference_id is required");
    if (spw_mock_document(books, "taxjar/%s/%.100s", kind, id))
        return problem(422, "Provider tranx already imported for your user account");
    spw_mock_keep(books, json_incref(root), "taxjar/%s/%.100s", kind, id);
    return wrap(201, kind, root);
}

static struct spw_mock_reply one(struct spw_mock_books *books, const char *kind, const char *id,
                                 const char *method, json_t *root)
{
    json_t *document = spw_mock_document(books, "taxjar/%s/%.100s", kind, id);
    if (!document)
        return problem(404, "Resource can not be found");
    if (strcmp(method, "PUT") == 0 && root) {
        json_object_update(document, root);
        spw_mock_keep(books, json_incref(document), "taxjar/%s/%.100s", kind, id);
        document = spw_mock_document(books, "taxjar/%s/%.100s", kind, id);
    } else if (strcmp(method, "DELETE") == 0) {
        struct spw_mock_reply reply = wrap(200, kind, document);
        char key[ID_BYTES + 32];
        snprintf(key, sizeof key, "taxjar/%s/%.100s", kind, id);
        json_object_del(books->documents, key);
        return reply;
    } else if (strcmp(method, "GET") != 0) {
        return problem(405, "use GET, PUT or DELETE");
    }
    return wrap(200, kind, document);
}

static struct spw_mock_reply summary(const struct spw_mock_books *books)
{
    json_t *list = json_array();
    size_t rows_count = books->has_table ? books->table.rows_count : 0;
    const char *last = "";
    for (size_t i = 0; i < rows_count; i++) { /* the first row of each state stands for it */
        const struct spw_rate_row *row = &books->table.rows[i];
        if (strcmp(row->state, last) == 0 || !row->state[0])
            continue;
        last = row->state;
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:o}, s:{s:s, s:o}}", "country_code", "US",
                            "country", "United States", "region_code", row->state, "region", row->state,
                            "minimum_rate", "label", "State Tax", "rate", spw_mock_ratio(row->state_ppb),
                            "average_rate", "label", "Tax", "rate", spw_mock_ratio(row->combined_ppb)));
    }
    if (!rows_count)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:o}, s:{s:s, s:o}}", "country_code", "US",
                            "country", "United States", "region_code", "WA", "region", "Washington",
                            "minimum_rate", "label", "State Tax", "rate", spw_mock_ratio(books->flat_ppb),
                            "average_rate", "label", "Tax", "rate", spw_mock_ratio(books->flat_ppb)));
    return spw_mock_reply_json(200, json_pack("{s:o}", "summary_rates", list));
}

static struct spw_mock_reply rates_of(const struct spw_mock_books *books, const char *zip)
{
    struct spw_mock_rate rate;
    char text[32];
    if (!spw_mock_rate_find(books, zip, &rate))
        return problem(404, "Resource can not be found");
    snprintf(text, sizeof text, "%.6f", rate.combined_ppb / 1e9); /* TaxJar tells these as texts */
    return spw_mock_reply_json(200, json_pack("{s:{s:s, s:s, s:b}}", "rate", "zip", zip, "combined_rate",
                                              text, "freight_taxable", 1));
}

static struct spw_mock_reply answer(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    static const char *const kinds[] = {"orders", "refunds"};
    char id[ID_BYTES];
    const char *tail = "";
    bool is_post = strcmp(r->method, "POST") == 0, is_put = strcmp(r->method, "PUT") == 0;
    json_error_t error;
    json_t *root = NULL;
    if (is_post || is_put) {
        root = json_loadb(r->body ? r->body : "", r->bytes, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(root)) {
            json_decref(root);
            return problem(400, "the body is no JSON object");
        }
    }
    struct spw_mock_reply reply = {0};
    if (is_post && strcmp(r->path, "/v2/taxes") == 0)
        reply = calculate(books, root);
    else if (strcmp(r->path, "/v2/categories") == 0)
        reply = spw_mock_reply_json(200, json_pack("{s:[]}", "categories"));
    else if (strcmp(r->path, "/v2/summary_rates") == 0)
        reply = summary(books);
    else if (spw_mock_path_id(r->path, "/v2/rates/", id, sizeof id, &tail))
        reply = rates_of(books, id);
    for (size_t i = 0; i < 2 && !reply.status; i++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "/v2/transactions/%s/", kinds[i]);
        size_t bytes = strlen(prefix) - 1;
        if (is_post && strncmp(r->path, prefix, bytes) == 0 && !r->path[bytes])
            reply = post(books, kinds[i], root);
        else if (spw_mock_path_id(r->path, prefix, id, sizeof id, &tail) && !*tail)
            reply = one(books, kinds[i], id, r->method, root);
    }
    json_decref(root);
    return reply.status ? reply : problem(404, "no such path at this provider");
}

const struct spw_mock_shape spw_mock_taxjar = {
    .name = "taxjar", .prefix = "/v2/", .answer = answer, .problem = problem};
