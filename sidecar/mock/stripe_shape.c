/* stripe_shape.c: what Stripe Tax answers: calculations, transactions, reversals, and repeated keys.
 *
 * Owns: nothing; documents and remembered answers are the books'. Called by: server.c through the table of shapes.
 * Thread: any, one at a time.
 *
 * Each part of a rate is rounded on its own, line by line. A key that comes again gets its first answer, byte for byte;
 * with another body it is refused. A reference is taken once, over transactions and reversals.
 */
#include "sidecar/mock/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/provider/form.h"

#define ID_BYTES  128u
#define LINES_MAX 1000u

static struct spw_mock_reply fault(unsigned status, const char *type, const char *code, const char *param,
                                   const char *text)
{
    json_t *error =
        json_pack("{s:s, s:s, s:s*, s:s*}", "type", type, "message", text, "code", code, "param", param);
    return spw_mock_reply_json(status, json_pack("{s:o}", "error", error));
}

static struct spw_mock_reply problem(unsigned status, const char *text)
{
    return fault(status, status >= 500 ? "api_error" : "invalid_request_error",
                 status == 429 ? "rate_limit" : NULL, NULL, text);
}

static bool whole(const char *text, int64_t *out)
{
    char *end = NULL;
    if (!text || !(*text >= '0' && *text <= '9'))
        return false;
    *out = strtoll(text, &end, 10);
    return !*end;
}

static const char *level_of(const char *level)
{
    return strcmp(level, "special") == 0 ? "district" : level;
}

/* amount and its tax, with the parts as Stripe tells them. */
static json_t *price(const struct spw_mock_rate *rate, int64_t amount, bool is_exempt, int64_t *tax)
{
    json_t *parts = json_array();
    *tax = 0;
    for (size_t i = 0; i < rate->parts_count; i++) {
        char percent[32];
        int64_t part = is_exempt ? 0 : spw_mock_tax_minor(amount, rate->parts[i].ppb);
        snprintf(percent, sizeof percent, "%g", rate->parts[i].ppb / 1e7);
        *tax += part;
        json_array_append_new(
            parts,
            json_pack("{s:I, s:I, s:s, s:s, s:{s:s, s:s, s:s, s:s}, s:{s:s, s:s, s:s}}", "amount",
                      (json_int_t)part, "taxable_amount", (json_int_t)(is_exempt ? 0 : amount), "sourcing",
                      "destination", "taxability_reason", is_exempt ? "customer_exempt" : "standard_rated",
                      "jurisdiction", "country", "US", "state", "WA", "display_name", "MOCK", "level",
                      level_of(rate->parts[i].level), "tax_rate_details", "display_name", "Sales Tax",
                      "percentage_decimal", percent, "tax_type", "sales_tax"));
    }
    return json_pack("{s:I, s:I, s:s, s:o}", "amount", (json_int_t)amount, "amount_tax", (json_int_t)*tax,
                     "tax_behavior", "exclusive", "tax_breakdown", parts);
}

/* NULL with *out set: refused. */
static json_t *make_lines(const struct spw_form *form, const struct spw_mock_rate *rate, bool is_exempt,
                          int64_t *amounts, int64_t *taxes, struct spw_mock_reply *out)
{
    json_t *data = json_array();
    size_t count = 0;
    if (!spw_form_list_count(form, "line_items", LINES_MAX, &count) || count == 0) {
        *out =
            fault(400, "invalid_request_error", "parameter_missing", "line_items", "line_items are required");
        json_decref(data);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t amount, tax;
        char own[24], entry[SPW_FORM_ENTRY_BYTES];
        snprintf(own, sizeof own, "L%zu", i + 1);
        spw_form_entry("line_items", i, entry);
        if (!whole(spw_form_get_of(form, entry, "[amount]"), &amount)) {
            *out = fault(400, "invalid_request_error", "parameter_invalid_integer", "line_items[amount]",
                         "an amount is no whole number");
            json_decref(data);
            return NULL;
        }
        const char *reference = spw_form_get_of(form, entry, "[reference]");
        json_t *line = price(rate, amount, is_exempt, &tax);
        json_object_set_new(line, "id", json_string(own));
        json_object_set_new(line, "object", json_string("tax.calculation_line_item"));
        json_object_set_new(line, "reference", json_string(reference ? reference : own));
        json_object_set_new(line, "quantity", json_integer(1));
        json_array_append_new(data, line);
        *amounts += amount;
        *taxes += tax;
    }
    return json_pack("{s:s, s:o, s:b, s:I}", "object", "list", "data", data, "has_more", 0, "total_count",
                     (json_int_t)count);
}

static struct spw_mock_reply calculate(struct spw_mock_books *books, const struct spw_form *form)
{
    struct spw_mock_rate rate;
    struct spw_mock_reply reply = {.status = 500};
    int64_t amounts = 0, taxes = 0, shipping_amount = 0, shipping_tax = 0;
    const char *override = spw_form_get(form, "customer_details[taxability_override]");
    const char *currency = spw_form_get(form, "currency");
    bool is_exempt = override && strcmp(override, "customer_exempt") == 0;
    char id[64];
    if (!currency)
        return fault(400, "invalid_request_error", "parameter_missing", "currency", "currency is required");
    if (!spw_mock_rate_find(books, spw_form_get(form, "customer_details[address][postal_code]"), &rate))
        return fault(400, "invalid_request_error", "customer_tax_location_invalid",
                     "customer_details[address]", "the customer's location is not recognised");
    json_t *lines = make_lines(form, &rate, is_exempt, &amounts, &taxes, &reply);
    if (!lines)
        return reply;
    json_t *shipping = whole(spw_form_get(form, "shipping_cost[amount]"), &shipping_amount)
                           ? price(&rate, shipping_amount, is_exempt, &shipping_tax)
                           : json_null();
    int64_t date = 0;
    json_int_t now = (json_int_t)time(NULL), tax = taxes + shipping_tax;
    json_int_t total = amounts + shipping_amount + tax;
    snprintf(id, sizeof id, "taxcalc_mock%llu", (unsigned long long)++books->cart_serial);
    json_t *calculation = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:[]}", "id", id, "object", "tax.calculation",
        "currency", currency, "amount_total", total, "tax_amount_exclusive", tax, "tax_amount_inclusive",
        (json_int_t)0, "tax_date", whole(spw_form_get(form, "tax_date"), &date) ? (json_int_t)date : now,
        "expires_at", now + 90 * 86400, "line_items", lines, "shipping_cost", shipping, "tax_breakdown");
    json_object_set_new(books->calculations, id, json_deep_copy(calculation));
    return spw_mock_reply_json(200, calculation);
}

/* A reference is taken once, whatever it names. */
static struct spw_mock_reply record(struct spw_mock_books *books, const struct spw_form *form,
                                    const char *what, json_t *source)
{
    const char *reference = spw_form_get(form, "reference");
    char id[64];
    if (!reference || !*reference)
        return fault(400, "invalid_request_error", "parameter_missing", "reference", "reference is required");
    if (!source)
        return fault(400, "invalid_request_error", "resource_missing", what, "there is no such object");
    if (spw_mock_document(books, "stripe/reference/%.200s", reference))
        return fault(400, "invalid_request_error", "resource_already_exists", "reference",
                     "a transaction with this reference already exists");
    snprintf(id, sizeof id, "tax_mock%llu", (unsigned long long)++books->cart_serial);
    json_t *transaction = json_pack(
        "{s:s, s:s, s:s, s:s, s:O?, s:O?, s:O?}", "id", id, "object", "tax.transaction", "reference",
        reference, "type", strcmp(what, "calculation") == 0 ? "transaction" : "reversal", "currency",
        json_object_get(source, "currency"), "line_items", json_object_get(source, "line_items"),
        "shipping_cost", json_object_get(source, "shipping_cost"));
    json_object_set_new(books->calculations, id, json_incref(transaction)); /* to be found by its id */
    spw_mock_keep(books, json_incref(transaction), "stripe/reference/%.200s", reference);
    return spw_mock_reply_json(200, transaction);
}

static struct spw_mock_reply post(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    struct spw_form form;
    struct spw_mock_reply reply;
    if (!spw_form_parse(r->body ? r->body : "", r->bytes, &form))
        return problem(400, "the body is no form");
    const char *calculation = spw_form_get(&form, "calculation");
    const char *original = spw_form_get(&form, "original_transaction");
    if (strcmp(r->path, "/v1/tax/calculations") == 0)
        reply = calculate(books, &form);
    else if (strcmp(r->path, "/v1/tax/transactions/create_from_calculation") == 0)
        reply = record(books, &form, "calculation",
                       calculation ? json_object_get(books->calculations, calculation) : NULL);
    else if (strcmp(r->path, "/v1/tax/transactions/create_reversal") == 0)
        reply = record(books, &form, "original_transaction",
                       original ? json_object_get(books->calculations, original) : NULL);
    else
        reply = problem(404, "Unrecognized request URL");
    spw_form_clean_up(&form);
    return reply;
}

/* The stored answer of a key, or a new one that is then stored. */
static struct spw_mock_reply post_once(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    const json_t *known = r->idempotency_key ? json_object_get(books->keys, r->idempotency_key) : NULL;
    const char *body = json_string_value(json_object_get(known, "body"));
    const char *path = json_string_value(json_object_get(known, "path"));
    const char *request = r->body ? r->body : "";
    if (body && path && (strcmp(body, request) != 0 || strcmp(path, r->path) != 0))
        return fault(400, "idempotency_error", NULL, NULL, "the key was used with other parameters");
    if (known)
        return (struct spw_mock_reply){.status =
                                           (unsigned)json_integer_value(json_object_get(known, "status")),
                                       .body = strdup(json_string_value(json_object_get(known, "answer")))};
    struct spw_mock_reply reply = post(books, r);
    if (r->idempotency_key && reply.body)
        json_object_set_new(books->keys, r->idempotency_key,
                            json_pack("{s:s, s:s, s:i, s:s}", "path", r->path, "body", request, "status",
                                      (int)reply.status, "answer", reply.body));
    return reply;
}

static struct spw_mock_reply answer(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    char id[ID_BYTES];
    const char *tail = "";
    if (strcmp(r->method, "POST") == 0)
        return post_once(books, r);
    if (!spw_mock_path_id(r->path, "/v1/tax/calculations/", id, sizeof id, &tail) &&
        !spw_mock_path_id(r->path, "/v1/tax/transactions/", id, sizeof id, &tail))
        return problem(404, "Unrecognized request URL");
    json_t *object = json_object_get(books->calculations, id);
    if (!object)
        return fault(404, "invalid_request_error", "resource_missing", "id", "there is no such object");
    if (strcmp(tail, "/line_items") == 0)
        return spw_mock_reply_json(200, json_incref(json_object_get(object, "line_items")));
    return spw_mock_reply_json(200, json_incref(object));
}

const struct spw_mock_shape spw_mock_stripe = {
    .name = "stripe", .prefix = "/v1/", .answer = answer, .problem = problem};
