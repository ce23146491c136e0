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

#include "sidecar/provider/answer.h"
#include "sidecar/provider/sums.h"
#include "sidecar/provider/wire.h"

/* One line item of the answer into its place; false = out says why not. */
static bool read_line(struct spw_answer_reader *r, const struct spw_json *item)
{
    const struct spw_json *index_value = spw_json_get(item, "index"), *tax = spw_json_get(item, "tax");
    int64_t index = spw_json_integer(index_value);
    int64_t asked_count = (int64_t)r->quote->line_count + (r->quote->shipping_minor != 0 ? 1 : 0);
    int64_t amount_minor, rate_ppb;
    if (!spw_json_is(index_value, SPW_JSON_INTEGER) || index < 0 || index >= asked_count) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "a line item has no \"index\" that was asked for");
        return false;
    }
    if (!spw_json_number(spw_json_get(tax, "amount"), 2, &amount_minor) ||
        !spw_json_number(spw_json_get(tax, "rate"), 9, &rate_ppb)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN,
                        "line item %lld has no number \"tax.amount\" or \"tax.rate\"", (long long)index);
        return false;
    }
    /* TaxCloud does not state the taxable amount; a line at rate zero is one that is not taxed. */
    return spw_answer_reader_line(r, (size_t)index, false, 0, amount_minor, rate_ppb);
}

/* "First taxed line" is meant in the order asked, whatever order the answer has. */
static uint32_t first_rate(const struct spw_json *items)
{
    int64_t best = -1;
    int64_t best_ppb = 0;
    SPW_JSON_EACH(item, items)
    {
        int64_t ppb = 0;
        int64_t index = spw_json_integer(spw_json_get(item, "index"));
        if (spw_json_number(spw_json_get(spw_json_get(item, "tax"), "rate"), 9, &ppb) && ppb > 0 &&
            (best < 0 || index < best)) {
            best = index;
            best_ppb = ppb;
        }
    }
    return (uint32_t)best_ppb;
}

static void read_cart(struct spw_answer_reader *r, const struct spw_json *cart)
{
    const struct spw_json *currency = spw_json_get(cart, "currency");
    const struct spw_json *code = spw_json_get(currency, "currencyCode");
    const struct spw_json *items = spw_json_get(cart, "lineItems");
    /* The code may be left out; when it is there it must be the one asked for. */
    if ((currency && !spw_json_is(currency, SPW_JSON_NULL) && !spw_json_is(currency, SPW_JSON_OBJECT)) ||
        (code && (!spw_json_is(code, SPW_JSON_TEXT) || strcmp(spw_json_text(code), "USD") != 0))) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the answer is not in USD");
        return;
    }
    if (!spw_json_is(items, SPW_JSON_ARRAY)) {
        spw_answer_fail(r->out, SPW_ANSWER_BROKEN, "the cart has no list \"lineItems\"");
        return;
    }
    SPW_JSON_EACH(item, items)
    {
        if (!read_line(r, item))
            return;
    }
    spw_answer_reader_finish(r, r->out->tax_minor); /* a cart has no total of its own */
    if (r->out->kind == SPW_ANSWER_OK)
        r->out->rate_ppb = first_rate(items);
}

/* TaxCloud's errors are problem JSON; only such a body proves that TaxCloud itself judged the request. */
static bool is_problem(const struct spw_json *root)
{
    return spw_json_is(spw_json_get(root, "title"), SPW_JSON_TEXT) ||
           spw_json_is(spw_json_get(root, "detail"), SPW_JSON_TEXT) ||
           spw_json_is(spw_json_get(root, "errors"), SPW_JSON_ARRAY);
}

static void read_refusal(uint32_t status, const struct spw_json *root, struct spw_answer *out)
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

void spw_taxcloud_read(const struct spw_quote_request *quote, uint32_t status, const char *headers,
                       size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)headers; /* TaxCloud says nothing about the outcome in headers */
    (void)headers_bytes;
    struct spw_answer_reader r;
    if (!spw_answer_reader_init(&r, quote, out) || is_no_answer(status, out))
        return;
    struct spw_json_fault fault;
    struct spw_json_doc doc;
    const struct spw_json *root = spw_json_doc_read(&doc, body ? body : "", body ? body_bytes : 0, &fault);
    const struct spw_json *carts = spw_json_get(root, "items");
    if (status >= 400)
        read_refusal(status, root, out);
    else if (!root)
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the body is not the JSON it should be (line %u, column %u)",
                        fault.line, fault.column);
    else if (!spw_json_is(carts, SPW_JSON_ARRAY) || carts->count != 1)
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "\"items\" is not a list of the one cart asked for");
    else
        read_cart(&r, spw_json_first(carts));
    spw_json_doc_clean_up(&doc);
}

/* ---- several carts ---- */

/* The cart a problem is about: errors[].location "body.items[3].destination.zip"; -1 = not told. */
static long faulty_cart(const struct spw_json *problem)
{
    static const char start[] = "items[";
    SPW_JSON_EACH(one, spw_json_get(problem, "errors"))
    {
        const char *location = spw_json_text(spw_json_get(one, "location"));
        const char *p = location ? strstr(location, start) : NULL;
        char *end = NULL;
        long index = p ? strtol(p + sizeof start - 1, &end, 10) : -1;
        if (index >= 0 && end && *end == ']')
            return index;
    }
    return -1;
}

/* A call refused for one of its carts says nothing about the others: they are to be asked again without it. */
static void refuse_batch(size_t count, uint32_t status, const struct spw_json *root, struct spw_answer *out)
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

static const struct spw_json *cart_of(const struct spw_json *carts, size_t place, const char *key)
{
    SPW_JSON_EACH(cart, carts)
    {
        const char *id = spw_json_text(spw_json_get(cart, "cartId"));
        if (key && id && strcmp(id, key) == 0)
            return cart;
    }
    const struct spw_json *cart = spw_json_first(carts);
    while (cart && place--)
        cart = spw_json_next(carts, cart);
    return spw_json_get(cart, "cartId") && key ? NULL : cart; /* without ids the order tells */
}

void spw_taxcloud_read_batch(const struct spw_quote_request *const *quotes, size_t count,
                             const char *const *keys, uint32_t status, const char *headers,
                             size_t headers_bytes, const char *body, size_t body_bytes,
                             struct spw_answer *out)
{
    struct spw_json_fault fault;
    struct spw_json *root = spw_json_read(body ? body : "", body ? body_bytes : 0, &fault);
    const struct spw_json *carts = spw_json_get(root, "items");
    bool readable = status >= 200 && status < 300 && spw_json_count(carts) == count;
    (void)headers;
    (void)headers_bytes;
    for (size_t i = 0; i < count; i++) {
        struct spw_answer_reader r;
        if (!spw_answer_reader_init(&r, quotes[i], &out[i]) || is_no_answer(status, &out[i]) || status >= 400)
            continue;
        const struct spw_json *cart = readable ? cart_of(carts, i, keys[i]) : NULL;
        if (cart)
            read_cart(&r, cart);
        else
            spw_answer_fail(&out[i], SPW_ANSWER_BROKEN, "the answer does not hold the carts asked for");
    }
    if (count && status >= 400 && status < 500)
        refuse_batch(count, status, root, out);
    spw_json_free(root);
}

/* A cart, and for every line of it a number of tax. */
static bool is_calculated(const struct spw_json *carts)
{
    int64_t tax_minor;
    SPW_JSON_EACH(cart, carts)
    {
        const struct spw_json *items = spw_json_get(cart, "lineItems");
        if (spw_json_count(items) == 0)
            return false;
        SPW_JSON_EACH(item, items)
        {
            if (!spw_json_number(spw_json_get(spw_json_get(item, "tax"), "amount"), 2, &tax_minor))
                return false;
        }
    }
    return spw_json_count(carts) > 0;
}

void spw_taxcloud_judge(const struct spw_route *route, uint32_t status, const char *headers,
                        size_t headers_bytes, const char *body, size_t body_bytes, struct spw_answer *out)
{
    (void)headers;
    (void)headers_bytes;
    spw_answer_clear(out);
    if (is_no_answer(status, out))
        return;
    struct spw_json_fault fault;
    struct spw_json *root = spw_json_read(body ? body : "", body ? body_bytes : 0, &fault);
    bool calculates = route && route->kind == SPW_ROUTE_CALCULATE;
    if (status == 404 && !calculates && is_problem(root))
        spw_answer_reject(out, root, status); /* no such cart or order */
    else if (status >= 400)
        read_refusal(status, root, out);
    else if (calculates && !is_calculated(spw_json_get(root, "items")))
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "no calculation in the answer");
    free(out->error_json);
    out->error_json = NULL;
    spw_json_free(root);
}

void spw_taxcloud_check(const struct spw_quote_request *quote, const char *body, size_t body_bytes,
                        struct spw_answer *out)
{
    struct spw_sums sums;
    struct spw_json *root = spw_wire_read(body, body_bytes);
    const struct spw_json *carts = spw_json_get(root, "items"), *cart = spw_json_first(carts);
    const struct spw_json *code = spw_json_get(spw_json_get(cart, "currency"), "currencyCode");
    spw_sums_init(&sums, quote, 2, out);
    bool is_good = spw_sums_currency(&sums, spw_json_text(code));
    if (spw_json_count(carts) != 1 || spw_json_count(spw_json_get(cart, "lineItems")) == 0) {
        spw_answer_fail(out, SPW_ANSWER_BROKEN, "the answer does not hold the one cart asked for");
        is_good = false;
    }
    SPW_JSON_EACH(item, spw_json_get(cart, "lineItems"))
    {
        const struct spw_json *tax = spw_json_get(item, "tax");
        is_good = is_good &&
                  spw_sums_line(&sums, NULL, NULL, spw_json_get(tax, "rate"), spw_json_get(tax, "amount"));
    }
    if (is_good)
        spw_sums_finish(&sums, NULL, true);
    spw_json_free(root);
}
