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

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "sidecar/provider/answer.h"
#include "sidecar/provider/sums.h"
#include "sidecar/provider/wire.h"

/* One line item of the answer into its place; false = out says why not. */
static bool read_line(struct spw_answer_reader *r, const json_t *item)
{
    const json_t *index_value = json_object_get(item, "index"), *tax = json_object_get(item, "tax");
    json_int_t index = json_integer_value(index_value);
    json_int_t asked_count = (json_int_t)r->quote->line_count + (r->quote->shipping_minor != 0 ? 1 : 0);
    int64_t amount_minor, rate_ppb;
    if (!json_is_integer(index_value) || index < 0 || index >= asked_count) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a line item has no \"index\" that was asked for");
        return false;
    }
    if (!spw_wire_number(json_object_get(tax, "amount"), 2, &amount_minor) ||
        !spw_wire_number(json_object_get(tax, "rate"), 9, &rate_ppb)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN,
                        "line item %lld has no number \"tax.amount\" or \"tax.rate\"", (long long)index);
        return false;
    }
    /* TaxCloud does not state the taxable amount; a line at rate zero is one that is not taxed. */
    return spw_answer_reader_line(r, (size_t)index, false, 0, amount_minor, rate_ppb);
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
        if (spw_wire_number(json_object_get(json_object_get(item, "tax"), "rate"), 9, &ppb) && ppb > 0 &&
            (best < 0 || index < best)) {
            best = index;
            best_ppb = ppb;
        }
    }
    return (uint32_t)best_ppb;
}

static void read_cart(struct spw_answer_reader *r, const json_t *cart)
{
    const json_t *currency = json_object_get(cart, "currency");
    const json_t *code = json_object_get(currency, "currencyCode");
    const json_t *items = json_object_get(cart, "lineItems");
    size_t i;
    json_t *item;
    /* The code may be left out; when it is there it must be the one asked for. */
    if ((currency && !json_is_null(currency) && !json_is_object(currency)) ||
        (code && (!json_is_string(code) || strcmp(json_string_value(code), "USD") != 0))) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the answer is not in USD");
        return;
    }
    if (!json_is_array(items)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the cart has no list \"lineItems\"");
        return;
    }
    json_array_foreach(items, i, item)
    {
        if (!read_line(r, item))
            return;
    }
    spw_answer_reader_finish(r, r->out->tax_minor); /* a cart has no total of its own */
    if (r->out->kind == SPW_ANSWER_OK)
        r->out->rate_ppb = first_rate(items);
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
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "TaxCloud refused the account's API key (status %u); check accounts.*.credentials",
                        status);
        return;
    case 404:
        spw_answer_fail(
            out, SPW_ANSWER_ERROR,
            "TaxCloud does not know this connection (status 404); check accounts.*.connection and url");
        return;
    case 429:
        spw_answer_fail(out, SPW_ANSWER_THROTTLED, "TaxCloud asks for fewer requests (status 429)");
        return;
    default:
        break;
    }
    if (spw_answer_status_is_of_the_way(status)) {
        spw_answer_fail(out, SPW_ANSWER_ERROR, "TaxCloud answered status %u", status);
        return;
    }
    if (!is_problem(root)) {
        spw_answer_fail(out, SPW_ANSWER_ERROR,
                        "status %u without TaxCloud's error form: something in between answered", status);
        return;
    }
    spw_answer_reject(out, root, status);
}

/* true: no answer to look into; told in *out. */
static bool is_no_answer(uint32_t status, struct spw_answer *out)
{
    if (status >= 200 && !(status >= 300 && status < 400) && status < 500)
        return false;
    spw_answer_fail(out, SPW_ANSWER_ERROR, "TaxCloud answered status %u", status);
    return true;
}

static json_t *parse(const char *body, size_t body_bytes, json_error_t *error)
{
    /* jansson refuses NUL bytes, bad UTF-8, NaN, numbers out of range and nesting beyond 2,048 by itself. */
    return json_loadb(body ? body : "", body ? body_bytes : 0, JSON_REJECT_DUPLICATES, error);
}

void spw_taxcloud_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                       size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)headers; /* TaxCloud says nothing about the outcome in headers */
    (void)headers_bytes;
    struct spw_answer_reader r;
    if (!spw_answer_reader_init(&r, quote, out) || is_no_answer(status, out))
        return;
    json_error_t error;
    json_t *root = parse(body, body_bytes, &error);
    const json_t *carts = json_object_get(root, "items");
    if (status >= 400)
        read_refusal(status, root, out);
    else if (!root)
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the body is not the JSON it should be (line %d, column %d)",
                        error.line,
                        error.column); /* jansson's own text quotes the body, which may hold an address */
    else if (!json_is_array(carts) || json_array_size(carts) != 1)
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "\"items\" is not a list of the one cart asked for");
    else
        read_cart(&r, json_array_get(carts, 0));
    json_decref(root);
}

/* ---- several carts ---- */

/* The cart a problem is about: errors[].location "body.items[3].destination.zip"; -1 = not told. */
static long faulty_cart(const json_t *problem)
{
    static const char start[] = "items[";
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(problem, "errors"), i, one)
    {
        const char *location = json_string_value(json_object_get(one, "location"));
        const char *p = location ? strstr(location, start) : NULL;
        char *end = NULL;
        long index = p ? strtol(p + sizeof start - 1, &end, 10) : -1;
        if (index >= 0 && end && *end == ']')
            return index;
    }
    return -1;
}

/* A call refused for one of its carts says nothing about the others: they are to be asked again without it. */
static void refuse_batch(size_t count, uint32_t status, const json_t *root, struct spw_answer *out)
{
    struct spw_answer one = {.lines_count = out[0].lines_count};
    read_refusal(status, root, &one);
    long guilty = one.kind == SPW_ANSWER_REJECTED ? faulty_cart(root) : -1;
    for (size_t i = 0; i < count; i++) {
        if (one.kind != SPW_ANSWER_REJECTED)
            spw_answer_fail(&out[i], one.kind, "%s", one.detail);
        else if (count == 1 || (long)i == guilty)
            spw_answer_reject(&out[i], root, status);
        else
            spw_answer_fail(&out[i], SPW_ANSWER_ERROR,
                            "refused together with another cart; ask again on its own");
    }
    spw_answer_clean_up(&one);
}

static const json_t *cart_of(const json_t *carts, size_t place, const char *key)
{
    size_t i;
    json_t *cart;
    json_array_foreach(carts, i, cart)
    {
        const char *id = json_string_value(json_object_get(cart, "cartId"));
        if (key && id && strcmp(id, key) == 0)
            return cart;
    }
    cart = json_array_get(carts, place);
    return json_object_get(cart, "cartId") && key ? NULL : cart; /* without ids the order tells */
}

void spw_taxcloud_read_batch(const struct spw_quote_request *const *quotes, size_t count,
                             const char *const *keys, uint32_t status, const char *headers,
                             size_t headers_bytes, const char *body, size_t body_bytes,
                             struct spw_answer *out)
{
    json_error_t error;
    json_t *root = parse(body, body_bytes, &error);
    const json_t *carts = json_object_get(root, "items");
    bool readable = status >= 200 && status < 300 && json_array_size(carts) == count;
    (void)headers;
    (void)headers_bytes;
    for (size_t i = 0; i < count; i++) {
        struct spw_answer_reader r;
        if (!spw_answer_reader_init(&r, quotes[i], &out[i]) || is_no_answer(status, &out[i]) || status >= 400)
            continue;
        const json_t *cart = readable ? cart_of(carts, i, keys[i]) : NULL;
        if (cart)
            read_cart(&r, cart);
        else
            spw_answer_fail(&out[i], SPW_ANSWER_BROKEN, "the answer does not hold the carts asked for");
    }
    if (count && status >= 400 && status < 500)
        refuse_batch(count, status, root, out);
    json_decref(root);
}

/* A cart, and for every line of it a number of tax. */
static bool is_calculated(const json_t *carts)
{
    size_t i, k;
    json_t *cart, *item;
    int64_t tax_minor;
    json_array_foreach(carts, i, cart)
    {
        const json_t *items = json_object_get(cart, "lineItems");
        if (json_array_size(items) == 0)
            return false;
        json_array_foreach(items, k, item)
        {
            if (!spw_wire_number(json_object_get(json_object_get(item, "tax"), "amount"), 2, &tax_minor))
                return false;
        }
    }
    return json_array_size(carts) > 0;
}

void spw_taxcloud_judge(const struct spw_route *route, uint32_t status, const char *headers,
                        size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)headers;
    (void)headers_bytes;
    spw_answer_clear(out);
    if (is_no_answer(status, out))
        return;
    json_error_t error;
    json_t *root = parse(body, body_bytes, &error);
    bool calculates = route && route->kind == SPW_ROUTE_CALCULATE;
    if (status == 404 && !calculates && is_problem(root))
        spw_answer_reject(out, root, status); /* no such cart or order */
    else if (status >= 400)
        read_refusal(status, root, out);
    else if (calculates && !is_calculated(json_object_get(root, "items")))
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "no calculation in the answer");
    free(out->error_json);
    out->error_json = NULL;
    json_decref(root);
}

void spw_taxcloud_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                        struct spw_answer *out)
{
    struct spw_sums sums;
    size_t i;
    json_t *item, *root = spw_wire_parse(body, body_bytes);
    const json_t *carts = json_object_get(root, "items"), *cart = json_array_get(carts, 0);
    const json_t *code = json_object_get(json_object_get(cart, "currency"), "currencyCode");
    spw_sums_init(&sums, quote, 2, out);
    bool is_good = spw_sums_currency(&sums, json_string_value(code));
    if (json_array_size(carts) != 1 || json_array_size(json_object_get(cart, "lineItems")) == 0) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the answer does not hold the one cart asked for");
        is_good = false;
    }
    json_array_foreach(json_object_get(cart, "lineItems"), i, item)
    {
        const json_t *tax = json_object_get(item, "tax");
        is_good = is_good && spw_sums_line(&sums, NULL, NULL, json_object_get(tax, "rate"),
                                           json_object_get(tax, "amount"));
    }
    if (is_good)
        spw_sums_finish(&sums, NULL, true);
    json_decref(root);
}
