/* stripe_answer.c: reading what Stripe answers: calculations, errors, transactions.
 *
 * Owns: the reading rules. Called by: the profile. Thread: any; pure over (status, headers, body).
 *
 * A 429 has three meanings, told by Stripe-Rate-Limited-Reason: ...-rate and resource-specific are too many in a time,
 * ...-concurrency is too many at once, and none at all is an object in use by another request, which says nothing about
 * limits and must not count for the breaker. Only an error code rate_limit speaks of a limit without the header: a
 * proxy may have taken it.
 */
#include "sidecar/provider/stripe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/decimal.h"
#include "sidecar/provider/sums.h"
#include "sidecar/provider/wire.h"

#define REASON_BYTES       64u
#define PERCENT_PPB_DIGITS 7 /* "10.25" percent x 10^7 = parts per billion */

static const char *error_text(const struct spw_json *root, const char *key)
{
    const char *text = spw_json_text(spw_json_get(spw_json_get(root, "error"), key));
    return text ? text : "";
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), t = strlen(tail);
    return n >= t && strcmp(text + n - t, tail) == 0;
}

static void judge_429(const char *headers, size_t headers_bytes, const struct spw_json *root,
                      struct spw_answer *out)
{
    char reason[REASON_BYTES] = "", *block = strndup(headers ? headers : "", headers ? headers_bytes : 0);
    bool has_reason =
        block && spw_wire_header_find(block, "Stripe-Rate-Limited-Reason", reason, sizeof reason);
    free(block);
    if (!has_reason && strcmp(error_text(root, "code"), "rate_limit") != 0) {
        spw_answer_fail(out, SPW_ANSWER_BUSY, "Stripe has the object in use (status 429 without a reason)");
        out->throttle = SPW_THROTTLE_LOCK;
        return;
    }
    spw_answer_fail(out, SPW_ANSWER_THROTTLED, "Stripe asks for fewer requests (status 429, %.40s)", reason);
    out->throttle = ends_with(reason, "-concurrency") ? SPW_THROTTLE_CONCURRENCY : SPW_THROTTLE_RATE;
}

/* false: no 2xx; told in *out. */
static bool judge_status(uint32_t status, const char *headers, size_t headers_bytes,
                         const struct spw_json *root, struct spw_answer *out)
{
    bool has_error = spw_json_is(spw_json_get(root, "error"), SPW_JSON_OBJECT);
    const char *code = error_text(root, "code");
    if (status >= 200 && status < 300)
        return true;
    if (status == 429) {
        judge_429(headers, headers_bytes, root, out);
    } else if (status == 409 || strcmp(code, "lock_timeout") == 0 ||
               strcmp(code, "idempotency_key_in_use") == 0) {
        spw_answer_fail(out, SPW_ANSWER_BUSY, "Stripe has the object or the key in use (status %u)", status);
        out->throttle = SPW_THROTTLE_LOCK;
    } else if (status == 401 || status == 403) {
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "Stripe refused the account's key (status %u); check accounts.*.credentials", status);
    } else if (status < 400 || status >= 500 || spw_answer_status_is_of_the_way(status)) {
        spw_answer_fail(out, SPW_ANSWER_ERROR, "Stripe answered status %u", status);
    } else if (has_error) {
        spw_answer_reject(out, root, status);
    } else {
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "status %u without Stripe's error form: something in between answered", status);
    }
    return false;
}

/* ---- calculations ---- */

static const char *level_of(const struct spw_json *part)
{
    const char *level = spw_json_text(spw_json_get(spw_json_get(part, "jurisdiction"), "level"));
    return !level || strcmp(level, "district") == 0 ? "special" : level;
}

/* "10.25" -> 102,500,000 parts per billion. */
static bool read_percent(const struct spw_json *rate, int64_t *ppb)
{
    const struct spw_json *text = spw_json_get(rate, "percentage_decimal");
    return spw_json_decimal(text, PERCENT_PPB_DIGITS, ppb) && *ppb >= 0;
}

/* The line's parts: combined rate, largest taxable amount, and each into the list of jurisdictions. */
static bool read_parts(const struct spw_json *parts, int64_t *combined_ppb, int64_t *taxable_minor,
                       bool *known, struct spw_answer *out)
{
    *combined_ppb = 0;
    *taxable_minor = 0;
    *known = spw_json_is(parts, SPW_JSON_ARRAY);
    SPW_JSON_EACH(part, parts)
    {
        int64_t amount_minor, part_taxable_minor, ppb = 0;
        const struct spw_json *rate = spw_json_get(part, "tax_rate_details");
        if (!spw_json_number(spw_json_get(part, "amount"), 0, &amount_minor) ||
            !spw_json_number(spw_json_get(part, "taxable_amount"), 0, &part_taxable_minor) ||
            (spw_json_is(rate, SPW_JSON_OBJECT) && !read_percent(rate, &ppb))) {
            spw_answer_fail(out, SPW_ANSWER_BROKEN,
                            "a part of a line's tax has no amount, taxable amount or percentage");
            return false;
        }
        if (amount_minor)
            *combined_ppb += ppb;
        if (part_taxable_minor > *taxable_minor)
            *taxable_minor = part_taxable_minor;
        spw_answer_add_jurisdiction(out, level_of(part), ppb, amount_minor);
    }
    if (*combined_ppb > SPW_WIRE_PPB)
        *combined_ppb = 0;
    return true;
}

static bool read_priced(struct spw_answer_reader *r, const struct spw_json *item, size_t index,
                        uint32_t first_ppb_at[2])
{
    int64_t amount_minor, tax_minor, taxable_minor, combined_ppb;
    bool known;
    if (!spw_json_number(spw_json_get(item, "amount"), 0, &amount_minor) ||
        !spw_json_number(spw_json_get(item, "amount_tax"), 0, &tax_minor)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "line %zu has no number \"amount\" or \"amount_tax\"",
                        index);
        return false;
    }
    if (index > r->quote->line_count || amount_minor != spw_answer_reader_asked_minor(r, index)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "line %zu is not the one that was asked for", index);
        return false;
    }
    if (!read_parts(spw_json_get(item, "tax_breakdown"), &combined_ppb, &taxable_minor, &known, r->out) ||
        !spw_answer_reader_line(r, index, known, taxable_minor, tax_minor, combined_ppb))
        return false;
    if (combined_ppb && tax_minor && index < first_ppb_at[0]) {
        first_ppb_at[0] = (uint32_t)index;
        first_ppb_at[1] = (uint32_t)combined_ppb;
    }
    return true;
}

static bool read_index(const struct spw_json *item, size_t *index)
{
    const char *text = spw_json_text(spw_json_get(item, "reference"));
    char *end = NULL;
    unsigned long value = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    *index = value;
    return text && end && !*end && value < SPW_LINES_MAX_COUNT;
}

/* Stripe shows a page of the lines. The total is Stripe's in any case; the rest of it goes to the lines that the page
 * leaves out, by their amounts. */
static bool spread_rest(struct spw_answer_reader *r, int64_t total_minor)
{
    int64_t rest_minor = total_minor - r->out->tax_minor, amounts_minor = 0, upto_minor = 0, given_minor = 0;
    for (uint32_t i = 0; i < r->quote->line_count; i++)
        if (!r->seen[i])
            amounts_minor += r->quote->lines[i].amount_minor;
    for (uint32_t i = 0; i < r->quote->line_count; i++) {
        if (r->seen[i])
            continue;
        upto_minor += r->quote->lines[i].amount_minor;
        int64_t share_minor =
            amounts_minor > 0 ? (int64_t)((spw_wide)rest_minor * upto_minor / amounts_minor) : 0;
        if (!spw_answer_reader_line(r, i, false, 0, share_minor - given_minor, 0))
            return false;
        given_minor = share_minor;
    }
    return true;
}

static bool read_lines(struct spw_answer_reader *r, const struct spw_json *root, int64_t total_minor,
                       uint32_t first_ppb_at[2])
{
    const struct spw_json *list = spw_json_get(root, "line_items");
    const struct spw_json *shipping = spw_json_get(root, "shipping_cost");
    size_t index;
    if (spw_json_is(shipping, SPW_JSON_OBJECT) &&
        !read_priced(r, shipping, r->quote->line_count, first_ppb_at))
        return false;
    SPW_JSON_EACH(item, spw_json_get(list, "data"))
    {
        if (!read_index(item, &index) || index >= r->quote->line_count) {
            spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a line has no \"reference\" that was asked for");
            return false;
        }
        if (!read_priced(r, item, index, first_ppb_at))
            return false;
    }
    return !spw_json_is(spw_json_get(list, "has_more"), SPW_JSON_TRUE) || spread_rest(r, total_minor);
}

static void read_calculation(struct spw_answer_reader *r, const struct spw_json *root)
{
    const char *asked = r->quote->currency ? r->quote->currency : "USD";
    const char *currency = spw_json_text(spw_json_get(root, "currency"));
    const char *id = spw_json_text(spw_json_get(root, "id"));
    int64_t total_minor, inclusive_minor;
    uint32_t first_ppb_at[2] = {UINT32_MAX, 0};
    if (currency && strcasecmp(currency, asked) != 0) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the answer is not in the currency asked for");
        return;
    }
    if (!spw_json_number(spw_json_get(root, "tax_amount_exclusive"), 0, &total_minor) ||
        !spw_json_number(spw_json_get(root, "tax_amount_inclusive"), 0, &inclusive_minor)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN,
                        "there is no number \"tax_amount_exclusive\" or \"tax_amount_inclusive\"");
        return;
    }
    if (inclusive_minor != 0) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a tax within the prices, which was not asked for");
        return;
    }
    if (!read_lines(r, root, total_minor, first_ppb_at))
        return;
    spw_answer_reader_finish(r, total_minor);
    if (r->out->kind != SPW_ANSWER_OK)
        return;
    r->out->rate_ppb = first_ppb_at[1];
    if (id && strlen(id) < sizeof r->out->calculation)
        snprintf(r->out->calculation, sizeof r->out->calculation, "%s", id);
}

void spw_stripe_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                     size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_answer_reader r;
    if (!spw_answer_reader_init(&r, quote, out))
        return;
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, body, body_bytes);
    if (judge_status(status, headers, headers_bytes, root, out)) {
        if (root)
            read_calculation(&r, root);
        else
            spw_answer_fail(out, SPW_ANSWER_BROKEN, "the body is not the JSON object it should be");
    }
    spw_json_doc_clean_up(&doc);
}

void spw_stripe_judge(const struct spw_route *route, uint32_t status, const char *headers,
                      size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    struct spw_json *root = spw_wire_read(body, body_bytes);
    int64_t total_minor;
    spw_answer_clear(out);
    if (judge_status(status, headers, headers_bytes, root, out) && route &&
        route->kind == SPW_ROUTE_CALCULATE &&
        !spw_json_number(spw_json_get(root, "tax_amount_exclusive"), 0, &total_minor))
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "no calculation in the answer");
    spw_answer_clean_up(out);
    spw_json_free(root);
}

void spw_stripe_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                      struct spw_answer *out)
{
    struct spw_sums sums;
    struct spw_json *root = spw_wire_read(body, body_bytes);
    const struct spw_json *list = spw_json_get(root, "line_items"),
                          *shipping = spw_json_get(root, "shipping_cost");
    bool has_lines = spw_json_count(spw_json_get(list, "data")) > 0;
    spw_sums_init(&sums, quote, 0, out);
    bool is_good = spw_sums_currency(&sums, spw_json_text(spw_json_get(root, "currency")));
    SPW_JSON_EACH(item, spw_json_get(list, "data"))
    {
        is_good = is_good && spw_sums_line(&sums, spw_json_get(item, "amount"), NULL, NULL,
                                           spw_json_get(item, "amount_tax"));
    }
    if (is_good && spw_json_is(shipping, SPW_JSON_OBJECT))
        is_good = spw_sums_line(&sums, spw_json_get(shipping, "amount"), NULL, NULL,
                                spw_json_get(shipping, "amount_tax"));
    if (is_good)
        spw_sums_finish(&sums, spw_json_get(root, "tax_amount_exclusive"),
                        has_lines && !spw_json_is(spw_json_get(list, "has_more"), SPW_JSON_TRUE));
    spw_json_free(root);
}

/* ---- the books ---- */

/* The tax of a transaction: the sum over its lines and shipping; false when the page leaves lines out. */
static bool transaction_tax(const struct spw_json *root, int64_t *tax_minor)
{
    const struct spw_json *list = spw_json_get(root, "line_items");
    const struct spw_json *shipping = spw_json_get(root, "shipping_cost");
    *tax_minor = 0;
    if (!spw_json_is(spw_json_get(list, "data"), SPW_JSON_ARRAY) ||
        spw_json_is(spw_json_get(list, "has_more"), SPW_JSON_TRUE))
        return false;
    if (spw_json_is(shipping, SPW_JSON_OBJECT) &&
        !spw_json_number(spw_json_get(shipping, "amount_tax"), 0, tax_minor))
        return false;
    SPW_JSON_EACH(item, spw_json_get(list, "data"))
    {
        int64_t one_minor;
        if (!spw_json_number(spw_json_get(item, "amount_tax"), 0, &one_minor) ||
            __builtin_add_overflow(*tax_minor, one_minor, tax_minor))
            return false;
    }
    return true;
}

static bool is_taken(const struct spw_json *root)
{
    return strcmp(error_text(root, "code"), "resource_already_exists") == 0 ||
           strcmp(error_text(root, "param"), "reference") == 0 ||
           strstr(error_text(root, "message"), "already") != NULL;
}

void spw_stripe_read_book(const struct spw_booking *booking, uint32_t status, const char *body,
                          size_t body_bytes, struct spw_booked_answer *out)
{
    struct spw_answer answer = {.kind = SPW_ANSWER_OK};
    struct spw_json *root = spw_wire_read(body, body_bytes);
    const char *reference = spw_json_text(spw_json_get(root, "reference"));
    memset(out, 0, sizeof *out);
    out->booked = SPW_BOOKED_FAILED;
    if (judge_status(status, "", 0, root, &answer)) {
        out->has_tax = transaction_tax(root, &out->tax_minor);
        if (reference && strcmp(reference, booking->document) == 0)
            out->booked = SPW_BOOKED;
    } else if (answer.kind == SPW_ANSWER_REJECTED) {
        out->booked = is_taken(root) ? SPW_BOOKED_ALREADY : SPW_BOOKED_REJECTED;
    } else if (status == 429) {
        out->booked = SPW_BOOKED_THROTTLED;
    }
    if (out->booked != SPW_BOOKED)
        snprintf(out->detail, sizeof out->detail, "Stripe answered status %u %.60s", status,
                 error_text(root, "code"));
    spw_answer_clean_up(&answer);
    spw_json_free(root);
}
