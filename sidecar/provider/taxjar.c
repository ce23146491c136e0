/* taxjar.c: TaxJar's API v2: calculations, orders for the books, published rates.
 *
 * Owns: the profile's data, the requests' form and the reading of answers. Called by: http/, reconcile/ through the
 * profile. Thread: any; pure.
 *
 * TaxJar calculates by the law of the moment: there is no date to ask for. Lines are numbered from 1, so that answers
 * are matched by number whatever ids the caller uses; shipping has a field of its own. Without nexus the answer is zero
 * and has no breakdown. A 429 may come with a body that is no JSON, and tells nothing in headers.
 */
#include "sidecar/provider/taxjar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/json_write.h"
#include "sidecar/provider/sums.h"
#include "sidecar/provider/wire.h"

static const struct spw_route routes[] = {
    {"POST", "/v2/taxes", SPW_ROUTE_CALCULATE},
    {"GET", "/v2/rates/*", SPW_ROUTE_READ},
    {"GET", "/v2/summary_rates", SPW_ROUTE_READ},
    {"GET", "/v2/categories", SPW_ROUTE_PING},
    {"GET", "/v2/nexus/regions", SPW_ROUTE_READ},
    {"POST", "/v2/addresses/validate", SPW_ROUTE_READ},
    {"GET", "/v2/validation", SPW_ROUTE_READ},
    {"GET", "/v2/transactions/orders", SPW_ROUTE_READ},
    {"GET", "/v2/transactions/orders/*", SPW_ROUTE_READ},
    {"POST", "/v2/transactions/orders", SPW_ROUTE_RECORD},
    {"PUT", "/v2/transactions/orders/*", SPW_ROUTE_RECORD},
    {"DELETE", "/v2/transactions/orders/*", SPW_ROUTE_RECORD},
    {"GET", "/v2/transactions/refunds", SPW_ROUTE_READ},
    {"GET", "/v2/transactions/refunds/*", SPW_ROUTE_READ},
    {"POST", "/v2/transactions/refunds", SPW_ROUTE_REFUND},
    {"PUT", "/v2/transactions/refunds/*", SPW_ROUTE_REFUND},
    {"DELETE", "/v2/transactions/refunds/*", SPW_ROUTE_REFUND},
    {"GET", "/v2/customers", SPW_ROUTE_READ},
    {"GET", "/v2/customers/*", SPW_ROUTE_READ},
    {"POST", "/v2/customers", SPW_ROUTE_RECORD},
    {"PUT", "/v2/customers/*", SPW_ROUTE_RECORD},
    {"DELETE", "/v2/customers/*", SPW_ROUTE_RECORD},
};

/* ---- calls ---- */

/* TaxJar knows four kinds of exemption; the caller's reason in free words is sorted into them. */
static const char *exemption_type(const char *reason)
{
    if (strcmp(reason, "resale") == 0 || strcmp(reason, "wholesale") == 0)
        return "wholesale";
    if (strcmp(reason, "government") == 0 || strcmp(reason, "marketplace") == 0)
        return reason;
    return "other";
}

/* from_... or to_... */
static void put_address(struct spw_text *t, const char *side, const struct spw_address *a)
{
    const struct {
        const char *name, *value;
    } parts[] = {{"_country", a->country && a->country[0] ? a->country : "US"},
                 {"_zip", a->zip},
                 {"_state", a->state},
                 {"_city", a->city},
                 {"_street", a->line1}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char key[24];
        struct spw_text name = spw_text_on(key, sizeof key);
        spw_text_put(&name, side);
        spw_text_put(&name, parts[i].name);
        spw_json_put_known(t, key, parts[i].value);
    }
}

static enum spw_status put_line(struct spw_text *t, const struct spw_quote_request *quote, uint32_t index,
                                const int64_t *taxes_minor, struct spw_error *err)
{
    const struct spw_line *line = &quote->lines[index];
    int64_t price_minor, quantity_micro = line->quantity_micro;
    char number[16];
    enum spw_status status = spw_wire_check_line(quote, index, false, "TaxJar", err);
    if (status)
        return status;
    struct spw_text digits = spw_text_on(number, sizeof number);
    spw_text_u64(&digits, index + 1);
    spw_wire_split_amount(line->amount_minor, true, &price_minor, &quantity_micro);
    spw_json_open(t, NULL, "{");
    spw_json_put_text(t, "id", number);
    spw_json_put_decimal(t, "quantity", quantity_micro, 6, true);
    spw_json_put_decimal(t, "unit_price", price_minor, 2, false);
    spw_json_put_known(t, "product_tax_code", line->tax_code);
    if (taxes_minor) {
        spw_json_put_decimal(t, "sales_tax", taxes_minor[index], 2, false);
        spw_json_put_known(t, "product_identifier", line->id);
    }
    spw_text_put(t, "}");
    return SPW_STATUS_OK;
}

static int64_t lines_minor(const struct spw_quote_request *quote)
{
    int64_t sum_minor = 0;
    for (uint32_t i = 0; i < quote->line_count; i++)
        if (__builtin_add_overflow(sum_minor, quote->lines[i].amount_minor, &sum_minor))
            return INT64_MAX;
    return sum_minor;
}

static enum spw_status check_order(const struct spw_quote_request *quote, struct spw_error *err)
{
    enum spw_status status = spw_wire_check_quote(quote, "TaxJar", err);
    if (!status && (!quote->ship_to.zip || !quote->ship_to.zip[0] || !quote->ship_to.state))
        status = spw_error_set(err, SPW_STATUS_INVALID, "ship_to: zip and state are needed; send both");
    return status ? status : spw_wire_check_line(quote, quote->line_count, false, "TaxJar", err);
}

/* The members that calculation and order have in common: places, lines, shipping, who buys. */
static enum spw_status put_order(struct spw_text *t, const struct spw_quote_request *quote,
                                 const int64_t *taxes_minor, struct spw_error *err)
{
    enum spw_status status = check_order(quote, err);
    if (status)
        return status;
    spw_json_open(t, "line_items", "[");
    for (uint32_t i = 0; i < quote->line_count && !status; i++)
        status = put_line(t, quote, i, taxes_minor, err);
    spw_text_put(t, "]");
    if (!status && lines_minor(quote) > SPW_WIRE_EXACT_MAX - quote->shipping_minor)
        status = spw_error_set(err, SPW_STATUS_INVALID,
                               "lines: the sum is out of range (15 digits); split the order");
    if (quote->ship_from.zip && quote->ship_from.zip[0]) /* else the address on file at TaxJar */
        put_address(t, "from", &quote->ship_from);
    put_address(t, "to", &quote->ship_to);
    spw_json_put_known(t, "customer_id", quote->customer_id);
    if (quote->exemption && quote->exemption[0])
        spw_json_put_text(t, "exemption_type", exemption_type(quote->exemption));
    spw_json_put_decimal(t, "shipping", quote->shipping_minor, 2, false);
    return status;
}

static enum spw_status build(const struct spw_quote_request *quote, const struct spw_conf_account *account,
                             const struct spw_credential *credential, const char *idempotency_key,
                             struct spw_call *out, struct spw_error *err)
{
    struct spw_wire_body body;
    (void)idempotency_key; /* TaxJar knows none, and a calculation leaves nothing behind */
    enum spw_status status =
        spw_wire_open(&spw_profile_taxjar, account, credential, "POST", "/v2/taxes", out, err);
    if (status)
        return status;
    status = spw_wire_body_open(&body, &quote, 1, err);
    spw_text_put(&body.text, "{");
    if (!status)
        status = put_order(&body.text, quote, NULL, err);
    spw_json_put_decimal(&body.text, "amount", lines_minor(quote), 2, false);
    spw_text_put(&body.text, "}");
    return spw_wire_close_body(&spw_profile_taxjar, credential, &body, status, out, err);
}

static enum spw_status get(const struct spw_conf_account *account, const struct spw_credential *credential,
                           struct spw_call *out, struct spw_error *err, const char *path)
{
    enum spw_status status = spw_wire_open(&spw_profile_taxjar, account, credential, "GET", path, out, err);
    return status ? status : spw_wire_close(&spw_profile_taxjar, credential, NULL, NULL, status, out, err);
}

/* TaxJar has no ping; the list of categories is what its own guide tries a key with. */
static enum spw_status ping(const struct spw_conf_account *account, const struct spw_credential *credential,
                            struct spw_call *out, struct spw_error *err)
{
    return get(account, credential, out, err, "/v2/categories");
}

static enum spw_status rates(const struct spw_conf_account *account, const struct spw_credential *credential,
                             const char *date, struct spw_call *out, struct spw_error *err)
{
    (void)date; /* the table of today is the only one there is */
    return get(account, credential, out, err, "/v2/summary_rates");
}

/* ---- answers ---- */

/* {status, error, detail}: only such a body proves that TaxJar itself judged the request. */
static bool is_envelope(const struct spw_json *root)
{
    return spw_json_is(spw_json_get(root, "error"), SPW_JSON_TEXT) && spw_json_get(root, "detail");
}

/* false: no 2xx; told in *out. */
static bool judge_status(uint32_t status, const struct spw_json *root, bool calculates,
                         struct spw_answer *out)
{
    if (status >= 200 && status < 300)
        return true;
    if (status == 429)
        spw_answer_fail(out, SPW_ANSWER_THROTTLED, "TaxJar asks for fewer requests (status 429)");
    else if (status == 401 || status == 403)
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "TaxJar refused the account's API token (status %u); check accounts.*.credentials",
                        status);
    else if (status < 400 || status >= 500 || spw_answer_status_is_of_the_way(status) || status == 410 ||
             (status == 404 && calculates))
        spw_answer_fail(out, SPW_ANSWER_ERROR, "TaxJar answered status %u", status);
    else if (!is_envelope(root))
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "status %u without TaxJar's error form: something in between answered", status);
    else
        spw_answer_reject(out, root, status);
    return false;
}

static bool read_part(struct spw_answer_reader *r, const struct spw_json *part, size_t index,
                      int64_t *rate_ppb)
{
    int64_t tax_minor, taxable_minor;
    if (!spw_json_number(spw_json_get(part, "tax_collectable"), 2, &tax_minor) ||
        !spw_json_number(spw_json_get(part, "taxable_amount"), 2, &taxable_minor) ||
        !spw_json_number(spw_json_get(part, "combined_tax_rate"), 9, rate_ppb)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN,
                        "a part of the breakdown has no tax, taxable amount or rate that is a number");
        return false;
    }
    return spw_answer_reader_line(r, index, true, taxable_minor, tax_minor, *rate_ppb);
}

static bool read_index(const struct spw_json *item, size_t *index)
{
    const char *text = spw_json_text(spw_json_get(item, "id"));
    char *end = NULL;
    unsigned long value = text && *text >= '1' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!text || !end || *end || value > SPW_LINES_MAX_COUNT)
        return false;
    *index = value - 1;
    return true;
}

static void read_jurisdictions(const struct spw_json *breakdown, struct spw_answer *out)
{
    static const struct {
        const char *level, *rate, *tax;
    } parts[] = {{"state", "state_tax_rate", "state_tax_collectable"},
                 {"county", "county_tax_rate", "county_tax_collectable"},
                 {"city", "city_tax_rate", "city_tax_collectable"},
                 {"special", "special_tax_rate", "special_district_tax_collectable"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int64_t rate_ppb, tax_minor;
        if (spw_json_number(spw_json_get(breakdown, parts[i].rate), 9, &rate_ppb) &&
            spw_json_number(spw_json_get(breakdown, parts[i].tax), 2, &tax_minor))
            spw_answer_add_jurisdiction(out, parts[i].level, rate_ppb, tax_minor);
    }
}

static bool read_breakdown(struct spw_answer_reader *r, const struct spw_json *breakdown)
{
    const struct spw_json *items = spw_json_get(breakdown, "line_items");
    const struct spw_json *shipping = spw_json_get(breakdown, "shipping");
    int64_t first_ppb = 0, ppb;
    size_t index, first = SIZE_MAX;
    SPW_JSON_EACH(item, items)
    {
        if (!read_index(item, &index) || index >= r->quote->line_count) {
            spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a line has no \"id\" that was asked for");
            return false;
        }
        if (!read_part(r, item, index, &ppb))
            return false;
        if (ppb && index < first) { /* the first taxed line in the order asked */
            first = index;
            first_ppb = ppb;
        }
    }
    if (spw_json_is(shipping, SPW_JSON_OBJECT) && !read_part(r, shipping, r->quote->line_count, &ppb))
        return false;
    r->seen[r->quote->line_count] = true; /* untaxed shipping is left out of the breakdown */
    read_jurisdictions(breakdown, r->out);
    r->out->rate_ppb = (uint32_t)first_ppb;
    return true;
}

static void read_tax(struct spw_answer_reader *r, const struct spw_json *tax)
{
    const struct spw_json *breakdown = spw_json_get(tax, "breakdown");
    const struct spw_json *total = spw_json_get(tax, "order_total_amount");
    int64_t total_minor, order_minor = 0;
    if (!spw_json_number(spw_json_get(tax, "amount_to_collect"), 2, &total_minor) || total_minor < 0) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "there is no number \"amount_to_collect\" from zero up");
        return;
    }
    if (total && (!spw_json_number(total, 2, &order_minor) ||
                  order_minor != lines_minor(r->quote) + r->quote->shipping_minor)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "\"order_total_amount\" is not what was asked for");
        return;
    }
    if (spw_json_is(breakdown, SPW_JSON_OBJECT)) {
        if (!read_breakdown(r, breakdown))
            return;
    } else if (total_minor == 0) { /* no nexus, or exempt: nothing is taxed */
        memset(r->seen, true, sizeof r->seen);
    } else {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a tax without its lines");
        return;
    }
    spw_answer_reader_finish(r, total_minor);
}

static void read_answer(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                        size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_answer_reader r;
    (void)headers;
    (void)headers_bytes;
    if (!spw_answer_reader_init(&r, quote, out))
        return;
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, body, body_bytes);
    if (judge_status(status, root, true, out)) {
        const struct spw_json *tax = spw_json_get(root, "tax");
        out->no_nexus = spw_json_is(spw_json_get(tax, "has_nexus"), SPW_JSON_FALSE);
        if (spw_json_is(tax, SPW_JSON_OBJECT))
            read_tax(&r, tax);
        else
            spw_answer_fail(out, SPW_ANSWER_BROKEN, "there is no object \"tax\"");
    }
    spw_json_doc_clean_up(&doc);
}

static void judge(const struct spw_route *route, uint32_t status, const char *headers, size_t headers_bytes,
                  const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_json *root = spw_wire_read(body, body_bytes);
    bool calculates = route && route->kind == SPW_ROUTE_CALCULATE;
    int64_t total_minor;
    (void)headers;
    (void)headers_bytes;
    spw_answer_clear(out);
    if (judge_status(status, root, calculates, out) && calculates &&
        !spw_json_number(spw_json_get(spw_json_get(root, "tax"), "amount_to_collect"), 2, &total_minor))
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "no calculation in the answer");
    spw_answer_clean_up(out);
    spw_json_free(root);
}

static void check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                  struct spw_answer *out)
{
    struct spw_sums sums;
    struct spw_json *root = spw_wire_read(body, body_bytes);
    const struct spw_json *tax = spw_json_get(root, "tax"), *breakdown = spw_json_get(tax, "breakdown");
    const struct spw_json *items = spw_json_get(breakdown, "line_items");
    const struct spw_json *shipping = spw_json_get(breakdown, "shipping");
    bool is_good = true;
    spw_sums_init(&sums, quote, 2, out);
    SPW_JSON_EACH(item, items)
    {
        is_good = is_good && spw_sums_line(&sums, NULL, NULL, spw_json_get(item, "combined_tax_rate"),
                                           spw_json_get(item, "tax_collectable"));
    }
    if (is_good && spw_json_is(shipping, SPW_JSON_OBJECT))
        is_good = spw_sums_line(&sums, NULL, NULL, spw_json_get(shipping, "combined_tax_rate"),
                                spw_json_get(shipping, "tax_collectable"));
    if (is_good)
        spw_sums_finish(&sums, spw_json_get(tax, "amount_to_collect"), spw_json_count(items) > 0);
    spw_json_free(root);
}

/* ---- filing: an order with the tax that was collected ---- */

static enum spw_status book(const struct spw_booking *booking, const struct spw_conf_account *account,
                            const struct spw_credential *credential, struct spw_call *out,
                            struct spw_error *err)
{
    int64_t taxes_minor[SPW_LINES_MAX_COUNT + 1];
    const struct spw_quote_request *quote = booking->quote;
    struct spw_wire_body body;
    struct spw_text *t = &body.text;
    if (quote->line_count > SPW_LINES_MAX_COUNT)
        return spw_error_set(err, SPW_STATUS_INVALID, "lines: more than %u", SPW_LINES_MAX_COUNT);
    enum spw_status status =
        spw_wire_open(&spw_profile_taxjar, account, credential, "POST", "/v2/transactions/orders", out, err);
    if (status)
        return status;
    spw_wire_collected(booking, taxes_minor);
    status = spw_wire_body_open(&body, &quote, 1, err);
    spw_text_put(t, "{");
    if (!status)
        status = put_order(t, quote, taxes_minor, err);
    spw_json_put_known(t, "transaction_id", booking->document);
    spw_json_put_known(t, "transaction_date", booking->date);
    if (!status)
        spw_json_put_decimal(t, "amount", lines_minor(quote) + quote->shipping_minor, 2, false);
    spw_json_put_decimal(t, "sales_tax", booking->tax_collected_minor, 2, false);
    spw_text_put(t, "}");
    return spw_wire_close_body(&spw_profile_taxjar, credential, &body, status, out, err);
}

static enum spw_status book_back(const struct spw_booking *booking, const struct spw_conf_account *account,
                                 const struct spw_credential *credential, struct spw_call *out,
                                 struct spw_error *err)
{
    char path[SPW_CALLER_ID_BYTES + 32];
    snprintf(path, sizeof path, "/v2/transactions/orders/%s", booking->document);
    return get(account, credential, out, err, path);
}

static bool says(const struct spw_json *root, const char *word)
{
    const char *detail = spw_json_text(spw_json_get(root, "detail"));
    return detail && strcasestr(detail, word);
}

static void read_order(bool is_back, uint32_t status, const char *body, size_t body_bytes,
                       struct spw_booked_answer *out)
{
    struct spw_answer answer = {.kind = SPW_ANSWER_OK};
    struct spw_json *root = spw_wire_read(body, body_bytes);
    memset(out, 0, sizeof *out);
    out->booked = SPW_BOOKED_FAILED;
    if (judge_status(status, root, false, &answer)) {
        out->has_tax =
            spw_json_decimal(spw_json_get(spw_json_get(root, "order"), "sales_tax"), 2, &out->tax_minor);
        if (out->has_tax)
            out->booked = SPW_BOOKED;
    } else if (is_back && status == 404) {
        out->booked = SPW_BOOKED_MISSING;
    } else if (status == 422 && (says(root, "already") || says(root, "exist"))) {
        out->booked = SPW_BOOKED_ALREADY;
    } else if (answer.kind == SPW_ANSWER_THROTTLED) {
        out->booked = SPW_BOOKED_THROTTLED;
    } else if (answer.kind == SPW_ANSWER_REJECTED && status != 404) {
        out->booked = SPW_BOOKED_REJECTED;
    }
    if (out->booked != SPW_BOOKED)
        snprintf(out->detail, sizeof out->detail, "TaxJar answered status %u", status);
    spw_answer_clean_up(&answer);
    spw_json_free(root);
}

static void read_book(const struct spw_booking *booking, uint32_t status, const char *body, size_t body_bytes,
                      struct spw_booked_answer *out)
{
    (void)booking;
    read_order(false, status, body, body_bytes, out);
}

static void read_book_back(const struct spw_booking *booking, uint32_t status, const char *body,
                           size_t body_bytes, struct spw_booked_answer *out)
{
    (void)booking;
    read_order(true, status, body, body_bytes, out);
}

const struct spw_profile spw_profile_taxjar = {
    .name = "taxjar",
    .default_url = "https://api.taxjar.com",
    .routes = routes,
    .routes_count = sizeof routes / sizeof routes[0],
    .takes_date = false,
    .is_tax = true,
    .jurisdictions_rounded_count = 4, /* state, county, city, special */
    .build = build,
    .read = read_answer,
    .judge = judge,
    .check = check,
    .ping = ping,
    .authorize = spw_wire_bearer,
    .token = spw_wire_token,
    .native_quote = spw_taxjar_native_quote,
    .native_fallback = spw_taxjar_native_fallback,
    .native_error = spw_taxjar_native_error,
    .native_document = spw_taxjar_native_document,
    .book = book,
    .read_book = read_book,
    .book_back = book_back,
    .read_book_back = read_book_back,
    .rates_format = SPW_RATES_TAXJAR_SUMMARY,
    .rates = rates,
};
