/* stripe_native.c: Stripe Tax's own requests at the pass-through door, and a fallback as Stripe would have told it.
 *
 * Owns: the reading of forms, the making of answers. Called by: the profile. Thread: any; pure.
 *
 * A fallback's id is taxcalc_spw_ and the digits of its quote's id; the transaction that names it later is recognised
 * by that. A line without tax_behavior is taken for exclusive, which is what the fallback's answer says of it.
 */
#include "sidecar/provider/stripe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/provider/decimal.h"
#include "sidecar/provider/form.h"
#include "sidecar/provider/native.h"
#include "sidecar/provider/wire.h"

#define EXPIRES_S (90LL * 86400)

/* ---- the quote ---- */

static bool take_whole(const char *text, int64_t *out)
{
    return text && spw_decimal_parse(text, strlen(text), 0, SPW_DECIMAL_HALF_UP, out) == SPW_DECIMAL_EXACT &&
           *out <= SPW_AMOUNT_MAX_MINOR && *out >= -SPW_AMOUNT_MAX_MINOR;
}

static enum spw_status take_address(struct spw_native_builder *b, const struct spw_form *form,
                                    const char *owner, struct spw_address *out)
{
    return spw_native_address(b, owner, spw_form_get_of(form, owner, "[address][country]"),
                              spw_form_get_of(form, owner, "[address][state]"),
                              spw_form_get_of(form, owner, "[address][postal_code]"),
                              spw_form_get_of(form, owner, "[address][city]"),
                              spw_form_get_of(form, owner, "[address][line1]"), out);
}

static bool is_inclusive(const char *behavior)
{
    return behavior && strcmp(behavior, "inclusive") == 0;
}

static enum spw_status take_line(struct spw_native_builder *b, const struct spw_form *form, size_t place)
{
    int64_t amount_minor = 0, quantity = 1;
    char entry[SPW_FORM_ENTRY_BYTES];
    spw_form_entry("line_items", place, entry);
    const char *count = spw_form_get_of(form, entry, "[quantity]");
    struct spw_line *line = spw_native_line(b);
    if (!line)
        return SPW_STATUS_OK; /* said at the end */
    if (is_inclusive(spw_form_get_of(form, entry, "[tax_behavior]")))
        return spw_native_refuse(b->err,
                                 "line_items[%zu].tax_behavior: a tax within the price is not told by "
                                 "a cached rate",
                                 place);
    if (!take_whole(spw_form_get_of(form, entry, "[amount]"), &amount_minor) ||
        (count && (!take_whole(count, &quantity) || quantity < 0 || quantity > SPW_WIRE_MICRO * 1000LL)))
        return spw_native_refuse(b->err, "line_items[%zu]: amount or quantity is no whole number in range",
                                 place);
    char number[24];
    const char *reference = spw_form_get_of(form, entry, "[reference]");
    if (!reference || !reference[0]) {
        snprintf(number, sizeof number, "L%zu", place + 1);
        reference = number;
    }
    line->id = spw_native_text(b, reference);
    line->tax_code = spw_native_text(b, spw_form_get_of(form, entry, "[tax_code]"));
    line->quantity_micro = quantity * SPW_WIRE_MICRO;
    line->amount_minor = amount_minor;
    return SPW_STATUS_OK;
}

static enum spw_status take_shipping(struct spw_native_builder *b, const struct spw_form *form)
{
    struct spw_quote_request *q = &b->out->quote;
    const char *amount = spw_form_get(form, "shipping_cost[amount]");
    if (spw_form_get(form, "shipping_cost[shipping_rate]"))
        return spw_native_refuse(b->err, "shipping_cost.shipping_rate: its amount is known to Stripe alone");
    if (is_inclusive(spw_form_get(form, "shipping_cost[tax_behavior]")))
        return spw_native_refuse(
            b->err, "shipping_cost.tax_behavior: a tax within the price is not told by a cached rate");
    if (amount && !take_whole(amount, &q->shipping_minor))
        return spw_native_refuse(b->err, "shipping_cost.amount: no whole number in range");
    q->shipping_tax_code = spw_native_text(b, spw_form_get(form, "shipping_cost[tax_code]"));
    return SPW_STATUS_OK;
}

/* tax_date is a moment, the quote's date its day in UTC. */
static enum spw_status take_date(struct spw_native_builder *b, const struct spw_form *form)
{
    const char *text = spw_form_get(form, "tax_date");
    int64_t unix_s;
    char day[32];
    if (!text)
        return SPW_STATUS_OK;
    if (!take_whole(text, &unix_s) || unix_s < 0 || unix_s > INT64_C(253402300799)) /* the year 9999 */
        return spw_native_refuse(b->err, "tax_date: no moment in unix seconds");
    spw_native_now(unix_s * 1000, day, sizeof day);
    return spw_native_date(b, "tax_date", day);
}

static enum spw_status read_form(struct spw_native_builder *b, const struct spw_form *form,
                                 size_t lines_count)
{
    struct spw_quote_request *q = &b->out->quote;
    const char *override = spw_form_get(form, "customer_details[taxability_override]");
    enum spw_status status = spw_native_currency(b, "currency", spw_form_get(form, "currency"));
    if (!status && !spw_form_has_prefix(form, "customer_details[address]"))
        status =
            spw_native_refuse(b->err, "customer_details.address: is not in the request; the address of a "
                                      "customer on file is known to Stripe alone");
    if (!status)
        status = take_address(b, form, "customer_details", &q->ship_to);
    if (!status && spw_form_get(form, "ship_from_details[address][postal_code]"))
        status = take_address(b, form, "ship_from_details", &q->ship_from);
    if (!status && override && strcmp(override, "reverse_charge") == 0)
        status =
            spw_native_refuse(b->err, "customer_details.taxability_override: a reverse charge is not told "
                                      "by a cached rate");
    if (!status)
        status = take_shipping(b, form);
    if (!status)
        status = take_date(b, form);
    for (size_t i = 0; i < lines_count && !status; i++)
        status = take_line(b, form, i);
    if (override && strcmp(override, "customer_exempt") == 0)
        q->exemption = "customer_exempt";
    q->customer_id = spw_native_text(b, spw_form_get(form, "customer"));
    q->purpose = SPW_PURPOSE_ORDER; /* a calculation becomes a transaction by its id, so any may */
    return status;
}

enum spw_status spw_stripe_native_quote(const struct spw_native_request *request,
                                        const struct spw_conf_account *account, struct spw_native_quote *out,
                                        struct spw_error *err)
{
    struct spw_native_builder b = {.out = out, .err = err};
    struct spw_form form;
    size_t lines_count = 0;
    enum spw_status status;
    memset(out, 0, sizeof *out);
    if (!spw_form_parse(request->body, request->body_bytes, &form))
        return spw_native_refuse(err, "the body is no form");
    if (!spw_form_list_count(&form, "line_items", SPW_LINES_MAX_COUNT, &lines_count))
        status =
            spw_native_refuse(err, "line_items: not numbered from 0 to at most %u", SPW_LINES_MAX_COUNT - 1);
    else
        status = spw_native_open(&b, account, request->body_bytes, lines_count, out, err);
    if (!status)
        status = spw_native_close(&b, read_form(&b, &form, lines_count));
    spw_form_clean_up(&form);
    return status;
}

/* ---- the fallback ---- */

/* 102,500,000 -> "10.25" */
static void format_percent(uint32_t ppb, char *out, size_t room)
{
    int n = snprintf(out, room, "%u.%07u", ppb / 10000000u, ppb % 10000000u);
    while (n > 0 && out[n - 1] == '0')
        out[--n] = 0;
    if (n > 0 && out[n - 1] == '.')
        out[--n] = 0;
}

static json_t *make_rate(uint32_t ppb, const char *state)
{
    char percent[24];
    format_percent(ppb, percent, sizeof percent);
    return json_pack("{s:s, s:n, s:s, s:s, s:s, s:s}", "country", "US", "flat_amount", "percentage_decimal",
                     percent, "rate_type", "percentage", "state", state, "tax_type", "sales_tax");
}

/* A line's parts, by jurisdiction. */
static json_t *make_line_parts(const struct spw_native_fallback *f, const char *state,
                               const struct spw_line_tax *tax)
{
    struct spw_native_part parts[SPW_NATIVE_PARTS_MAX_COUNT];
    size_t count = tax->taxable_minor ? spw_native_split(f, tax->tax_minor, parts) : 0;
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++) {
        const char *level = strcmp(parts[i].level, "special") == 0 ? "district" : parts[i].level;
        json_array_append_new(
            list, json_pack("{s:I, s:{s:s, s:s, s:s, s:s}, s:s, s:o, s:s, s:I}", "amount",
                            (json_int_t)parts[i].tax_minor, "jurisdiction", "country", "US", "display_name",
                            "cached rate", "level", level, "state", state, "sourcing", "destination",
                            "tax_rate_details", make_rate(parts[i].ppb, state), "taxability_reason",
                            "standard_rated", "taxable_amount", (json_int_t)tax->taxable_minor));
    }
    return list;
}

/* The whole's parts: one, of the combined rate. */
static json_t *make_whole_parts(const struct spw_native_fallback *f, const char *state, int64_t taxable_minor)
{
    return json_pack("[{s:I, s:b, s:o, s:s, s:I}]", "amount", (json_int_t)f->tax_minor, "inclusive", 0,
                     "tax_rate_details", make_rate(taxable_minor ? f->combined_ppb : 0, state),
                     "taxability_reason", taxable_minor ? "standard_rated" : "not_subject_to_tax",
                     "taxable_amount", (json_int_t)taxable_minor);
}

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *make_address(const struct spw_address *a)
{
    return json_pack("{s:o, s:s, s:o, s:n, s:o, s:o}", "city", text_or_null(a->city), "country", "US",
                     "line1", text_or_null(a->line1), "line2", "postal_code", text_or_null(a->zip), "state",
                     text_or_null(a->state));
}

static json_t *make_lines(const struct spw_native_quote *quote, const struct spw_native_fallback *f,
                          const char *id)
{
    const struct spw_quote_request *q = &quote->quote;
    const char *tail = id + sizeof SPW_STRIPE_MARK - 1;
    json_t *list = json_array();
    char line_id[96];
    for (uint32_t i = 0; list && i < q->line_count; i++) {
        const struct spw_line *line = &q->lines[i];
        snprintf(line_id, sizeof line_id, "tax_li_spw_%.40s_%u", tail, i);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:b, s:{}, s:n, s:I, s:s, s:s, s:o, s:o}", "id", line_id,
                            "object", "tax.calculation_line_item", "amount", (json_int_t)line->amount_minor,
                            "amount_tax", (json_int_t)f->lines[i].tax_minor, "livemode", 1, "metadata",
                            "product", "quantity", (json_int_t)(line->quantity_micro / SPW_WIRE_MICRO),
                            "reference", line->id, "tax_behavior", "exclusive", "tax_breakdown",
                            make_line_parts(f, q->ship_to.state, &f->lines[i]), "tax_code",
                            text_or_null(line->tax_code)));
    }
    char url[96];
    snprintf(url, sizeof url, "/v1/tax/calculations/%.60s/line_items", id);
    return json_pack("{s:s, s:o, s:b, s:I, s:s}", "object", "list", "data", list, "has_more", 0,
                     "total_count", (json_int_t)q->line_count, "url", url);
}

static json_t *make_shipping(const struct spw_native_quote *quote, const struct spw_native_fallback *f)
{
    const struct spw_quote_request *q = &quote->quote;
    const struct spw_line_tax *tax = &f->lines[q->line_count];
    if (!q->shipping_minor)
        return json_null();
    return json_pack("{s:I, s:I, s:s, s:o, s:o}", "amount", (json_int_t)q->shipping_minor, "amount_tax",
                     (json_int_t)tax->tax_minor, "tax_behavior", "exclusive", "tax_breakdown",
                     make_line_parts(f, q->ship_to.state, tax), "tax_code",
                     text_or_null(q->shipping_tax_code));
}

static json_t *make_calculation(const struct spw_native_quote *quote, const struct spw_native_fallback *f,
                                const char *id, int64_t tax_date_s)
{
    const struct spw_quote_request *q = &quote->quote;
    int64_t taxable_minor = spw_native_taxable_minor(quote, f);
    int64_t total_minor = spw_native_amount_minor(quote) + q->shipping_minor + f->tax_minor;
    json_int_t now_s = (json_int_t)(f->now_unix_ms / 1000);
    json_t *customer = json_pack("{s:o, s:s, s:n, s:[], s:s}", "address", make_address(&q->ship_to),
                                 "address_source", "shipping", "ip_address", "tax_ids", "taxability_override",
                                 q->exemption ? "customer_exempt" : "none");
    json_t *from =
        q->ship_from.zip ? json_pack("{s:o}", "address", make_address(&q->ship_from)) : json_null();
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:o, s:o, s:I, s:b, s:o, s:o, s:o, s:I, s:I, s:o, s:I, s:{s:s, s:s, s:s, s:s}}",
        "id", id, "object", "tax.calculation", "amount_total", (json_int_t)total_minor, "currency", "usd",
        "customer", text_or_null(q->customer_id), "customer_details", customer, "expires_at",
        now_s + EXPIRES_S, "livemode", 1, "line_items", make_lines(quote, f, id), "ship_from_details", from,
        "shipping_cost", make_shipping(quote, f), "tax_amount_exclusive", (json_int_t)f->tax_minor,
        "tax_amount_inclusive", (json_int_t)0, "tax_breakdown",
        make_whole_parts(f, q->ship_to.state, taxable_minor), "tax_date",
        tax_date_s > 0 ? (json_int_t)tax_date_s : now_s, "spillway", "type", f->type, "cause", f->cause,
        "quote_id", f->quote_id, "flag_id", f->flag_id);
}

enum spw_status spw_stripe_native_fallback(const struct spw_native_request *request,
                                           const struct spw_native_quote *quote,
                                           const struct spw_native_fallback *fallback,
                                           struct spw_native_answer *out, struct spw_error *err)
{
    char id[SPW_CALLER_ID_BYTES];
    struct spw_form form;
    int64_t tax_date_s = 0;
    const char *tail =
        strncmp(fallback->quote_id, "sq_", 3) == 0 ? fallback->quote_id + 3 : fallback->quote_id;
    snprintf(id, sizeof id, SPW_STRIPE_MARK "%.40s", tail);
    if (spw_form_parse(request->body, request->body_bytes, &form)) {
        (void)take_whole(spw_form_get(&form, "tax_date"), &tax_date_s);
        spw_form_clean_up(&form);
    }
    return spw_native_answer_json(200, make_calculation(quote, fallback, id, tax_date_s), out, err);
}

enum spw_status spw_stripe_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                        struct spw_error *err)
{
    const char *type = status >= 500 ? "api_error" : "invalid_request_error";
    json_t *error = json_pack("{s:s, s:s}", "type", type, "message", message);
    if (error && status == 429)
        json_object_set_new(error, "code", json_string("rate_limit"));
    return spw_native_answer_json(status, error ? json_pack("{s:o}", "error", error) : NULL, out, err);
}

/* ---- documents ---- */

/* taxcalc_spw_0123... -> sq_0123...; anything else as it is. */
static bool take_id(const char *text, char out[SPW_CALLER_ID_BYTES])
{
    char quote_id[SPW_CALLER_ID_BYTES];
    size_t mark = sizeof SPW_STRIPE_MARK - 1;
    if (!text || strncmp(text, SPW_STRIPE_MARK, mark) != 0 || strlen(text) >= sizeof quote_id)
        return spw_native_take_document(text, out);
    snprintf(quote_id, sizeof quote_id, "sq_%.60s", text + mark);
    return spw_native_take_document(quote_id, out);
}

bool spw_stripe_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    struct spw_form form;
    char id[SPW_CALLER_ID_BYTES];
    bool is_record = strstr(request->path, "/create_") != NULL;
    if (!is_record)
        return (spw_native_path_document(request->path, "calculations", id) ||
                spw_native_path_document(request->path, "transactions", id)) &&
               take_id(id, out);
    if (!spw_form_parse(request->body, request->body_bytes, &form))
        return false;
    const char *calculation = spw_form_get(&form, "calculation");
    bool found = take_id(calculation ? calculation : spw_form_get(&form, "original_transaction"), out);
    spw_form_clean_up(&form);
    return found;
}

bool spw_stripe_native_order(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    struct spw_form form;
    if (!spw_form_parse(request->body, request->body_bytes, &form))
        return false;
    bool found = spw_native_take_document(spw_form_get(&form, "reference"), out);
    spw_form_clean_up(&form);
    return found;
}
