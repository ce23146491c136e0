/* taxcloud_answer.c: reading TaxCloud's answer to a cart calculation.
 *
 * Owns: the reading rules. Called by: http/decide.c through the profile. Thread: any; pure over (status, body).
 *
 * A tax is taken only from an answer that is understood whole: every line asked for, each exactly once, in dollars,
 * with a tax that is a number from zero up. Anything else is BROKEN with its reason: a guess or a silent zero would
 * be charged to somebody. Amounts with more than two decimals are rounded half up per line, as TaxCloud's own guide
 * rounds (10.75 x 1.5 x 0.09025 = 1.4553 -> 1.46).
 */
#include "sidecar/provider/taxcloud.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "sidecar/provider/decimal.h"

#define PPB 1000000000

static void fail(struct spw_answer *out, enum spw_answer_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct spw_answer *out, enum spw_answer_kind kind, const char *format, ...)
{
    uint32_t lines_count = out->lines_count;
    memset(out, 0, sizeof *out); /* nothing half-read stays behind */
    out->lines_count = lines_count;
    out->kind = kind;
    va_list args;
    va_start(args, format);
    vsnprintf(out->detail, sizeof out->detail, format, args);
    va_end(args);
}

/* A JSON number as decimal; strings are not numbers here. */
static bool read_number(const json_t *value, unsigned scale, int64_t *out)
{
    if (json_is_integer(value)) {
        char text[32];
        int n = snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return spw_decimal_parse(text, (size_t)n, scale, SPW_DECIMAL_HALF_UP, out) != SPW_DECIMAL_BAD;
    }
    return json_is_real(value) &&
           spw_decimal_from_double(json_real_value(value), scale, out) != SPW_DECIMAL_BAD;
}

static int64_t asked_minor(const struct spw_quote_request *quote, size_t index)
{
    return index < quote->line_count ? quote->lines[index].amount_minor : quote->shipping_minor;
}

/* One line item of the answer into its place; false = out says why not. */
static bool read_line(const struct spw_quote_request *quote, const json_t *item, size_t asked_count,
                      bool *seen, struct spw_answer *out)
{
    const json_t *index_value = json_object_get(item, "index");
    if (!json_is_integer(index_value)) {
        fail(out, SPW_ANSWER_BROKEN, "a line item has no whole number \"index\"");
        return false;
    }
    json_int_t index = json_integer_value(index_value);
    if (index < 0 || (size_t)index >= asked_count) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld was not asked for", (long long)index);
        return false;
    }
    if (seen[index]) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld comes twice", (long long)index);
        return false;
    }
    const json_t *tax = json_object_get(item, "tax");
    int64_t amount_minor, rate_ppb;
    if (!read_number(json_object_get(tax, "amount"), 2, &amount_minor)) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld has no number \"tax.amount\"", (long long)index);
        return false;
    }
    if (!read_number(json_object_get(tax, "rate"), 9, &rate_ppb)) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld has no number \"tax.rate\"", (long long)index);
        return false;
    }
    if (amount_minor < 0 || rate_ppb < 0) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld has a tax below zero", (long long)index);
        return false;
    }
    int64_t line_minor = asked_minor(quote, (size_t)index);
    if (rate_ppb > PPB || amount_minor > line_minor) {
        fail(out, SPW_ANSWER_BROKEN, "line item %lld has a tax above its own amount", (long long)index);
        return false;
    }
    seen[index] = true;
    /* TaxCloud does not state the taxable amount; a line at rate zero is one that is not taxed. */
    bool taxed = rate_ppb > 0 || amount_minor > 0;
    out->lines[index].taxable_minor = taxed ? line_minor : 0;
    out->lines[index].tax_minor = amount_minor;
    if (__builtin_add_overflow(out->tax_minor, amount_minor, &out->tax_minor)) {
        fail(out, SPW_ANSWER_BROKEN, "the taxes add up to more than an amount can be");
        return false;
    }
    return true;
}

/* "First taxed line" is meant in the order asked, whatever order the answer has. */
static uint32_t first_rate(const json_t *items)
{
    json_int_t best = -1;
    int64_t best_ppb = 0;
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        int64_t ppb = 0;
        json_int_t index = json_integer_value(json_object_get(item, "index"));
        if (read_number(json_object_get(json_object_get(item, "tax"), "rate"), 9, &ppb) && ppb > 0 &&
            (best < 0 || index < best)) {
            best = index;
            best_ppb = ppb;
        }
    }
    return (uint32_t)best_ppb;
}

static void read_cart(const struct spw_quote_request *quote, const json_t *root, struct spw_answer *out)
{
    const json_t *carts = json_object_get(root, "items");
    if (!json_is_array(carts) || json_array_size(carts) != 1) {
        fail(out, SPW_ANSWER_BROKEN, "\"items\" is not a list of the one cart asked for");
        return;
    }
    const json_t *cart = json_array_get(carts, 0);
    const json_t *currency = json_object_get(cart, "currency");
    const json_t *code = json_object_get(currency, "currencyCode");
    /* The code may be left out; when it is there it must be the one asked for. */
    if ((currency && !json_is_null(currency) && !json_is_object(currency)) ||
        (code && (!json_is_string(code) || strcmp(json_string_value(code), "USD") != 0))) {
        fail(out, SPW_ANSWER_BROKEN, "the answer is not in USD");
        return;
    }
    const json_t *items = json_object_get(cart, "lineItems");
    if (!json_is_array(items)) {
        fail(out, SPW_ANSWER_BROKEN, "the cart has no list \"lineItems\"");
        return;
    }
    bool seen[SPW_LINES_MAX_COUNT + 1] = {false};
    size_t asked_count = (size_t)quote->line_count + (quote->shipping_minor != 0 ? 1 : 0);
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        if (!read_line(quote, item, asked_count, seen, out))
            return;
    }
    for (i = 0; i < asked_count; i++)
        if (!seen[i]) {
            fail(out, SPW_ANSWER_BROKEN, "line item %zu is missing from the answer", i);
            return;
        }
    out->rate_ppb = first_rate(items);
    out->kind = SPW_ANSWER_OK;
}

/* TaxCloud's errors are problem JSON; only such a body proves that TaxCloud itself judged the request. */
static bool is_problem(const json_t *root)
{
    return json_is_string(json_object_get(root, "title")) ||
           json_is_string(json_object_get(root, "detail")) || json_is_array(json_object_get(root, "errors"));
}

static void read_refusal(uint32_t status, const json_t *root, struct spw_answer *out)
{
    switch (status) {
    case 401:
    case 403:
        fail(out, SPW_ANSWER_ERROR,
             "TaxCloud refused the account's API key (status %u); check accounts.*.credentials", status);
        return;
    case 404:
        fail(out, SPW_ANSWER_ERROR,
             "TaxCloud does not know this connection (status 404); check accounts.*.connection and url");
        return;
    case 429:
        fail(out, SPW_ANSWER_THROTTLED, "TaxCloud asks for fewer requests (status 429)");
        return;
    case 405:
    case 408:
        fail(out, SPW_ANSWER_ERROR, "TaxCloud answered status %u", status);
        return;
    default:
        break;
    }
    if (!is_problem(root)) {
        fail(out, SPW_ANSWER_ERROR, "status %u without TaxCloud's error form: something in between answered",
             status);
        return;
    }
    out->error_json = json_dumps(root, JSON_COMPACT);
    if (!out->error_json) {
        fail(out, SPW_ANSWER_ERROR, "no memory for the error text of status %u", status);
        return;
    }
    out->kind = SPW_ANSWER_REJECTED;
}

void spw_taxcloud_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                       size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)headers; /* TaxCloud says nothing about the outcome in headers */
    (void)headers_bytes;
    memset(out, 0, sizeof *out);
    if (quote->line_count > SPW_LINES_MAX_COUNT) {
        fail(out, SPW_ANSWER_BROKEN, "more lines than a quote may have");
        return;
    }
    out->lines_count = quote->line_count + 1;
    if (status < 200 || (status >= 300 && status < 400) || status >= 500) {
        fail(out, SPW_ANSWER_ERROR, "TaxCloud answered status %u", status);
        return;
    }
    /* jansson refuses NUL bytes, bad UTF-8, NaN, numbers out of range and nesting beyond 2,048 by itself. */
    json_error_t error;
    json_t *root = json_loadb(body ? body : "", body ? body_bytes : 0, JSON_REJECT_DUPLICATES, &error);
    if (status >= 400)
        read_refusal(status, root, out);
    else if (!root)
        fail(out, SPW_ANSWER_BROKEN, "the body is not the JSON it should be (line %d, column %d)", error.line,
             error.column); /* jansson's own text quotes the body, which may hold an address */
    else
        read_cart(quote, root, out);
    json_decref(root);
}
