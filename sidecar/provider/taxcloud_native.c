/* taxcloud_native.c: TaxCloud's own requests at the pass-through door, and a fallback as TaxCloud would have told it.
 *
 * Owns: the reading of carts, the making of answers. Called by: the profile. Thread: any; pure.
 *
 * A call with one cart can be told as a quote; one with several is passed on and has no fallback. A line with the code
 * of separately charged shipping is the quote's shipping, the last such line when there are more.
 */
#include "sidecar/provider/taxcloud.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/native.h"
#include "sidecar/provider/wire.h"

bool spw_taxcloud_token(const char *headers, char *out, size_t room)
{
    return (spw_wire_header_find(headers, "X-API-KEY", out, room) && out[0]) ||
           spw_wire_token(headers, out, room);
}

/* The place of the line that is shipping, or the count of lines. */
static size_t shipping_place(const struct spw_json *lines)
{
    size_t count = spw_json_count(lines), found = count, place = 0;
    SPW_JSON_EACH(line, lines)
    {
        const struct spw_json *tic = spw_json_get(line, "tic");
        if (spw_json_is(tic, SPW_JSON_INTEGER) && spw_json_integer(tic) == SPW_TIC_SHIPPING && count > 1)
            found = place;
        place++;
    }
    return found;
}

static enum spw_status take_address(struct spw_native_builder *b, const struct spw_json *cart,
                                    const char *key, struct spw_address *out)
{
    const struct spw_json *a = spw_json_get(cart, key);
    return spw_native_address(b, key, spw_wire_text(a, "countryCode"), spw_wire_text(a, "state"),
                              spw_wire_text(a, "zip"), spw_wire_text(a, "city"), spw_wire_text(a, "line1"),
                              out);
}

static enum spw_status take_line(struct spw_native_builder *b, const struct spw_json *item, size_t place,
                                 bool is_shipping)
{
    int64_t price_micro, quantity_micro, amount_minor;
    const struct spw_json *tic = spw_json_get(item, "tic");
    if (!spw_json_decimal(spw_json_get(item, "price"), 6, &price_micro) || price_micro < 0 ||
        !spw_json_decimal(spw_json_get(item, "quantity"), 6, &quantity_micro) || quantity_micro <= 0 ||
        !spw_native_amount(price_micro, quantity_micro, 0, &amount_minor))
        return spw_native_refuse(b->err, "lineItems[%zu]: price or quantity is no number in range", place);
    if (tic && !spw_json_is(tic, SPW_JSON_NULL) && !spw_json_is(tic, SPW_JSON_INTEGER))
        return spw_native_refuse(b->err, "lineItems[%zu].tic: no whole number", place);
    struct spw_quote_request *q = &b->out->quote;
    if (is_shipping) {
        q->shipping_minor = amount_minor;
        return SPW_STATUS_OK;
    }
    struct spw_line *line = spw_native_line(b);
    if (!line)
        return SPW_STATUS_OK; /* said at the end */
    const char *id = spw_wire_text(item, "itemId");
    int64_t code = spw_json_integer(tic);
    line->id = id ? spw_native_text(b, id) : spw_native_number(b, (int64_t)place);
    line->tax_code = code > 0 ? spw_native_number(b, code) : NULL;
    line->quantity_micro = quantity_micro;
    line->amount_minor = amount_minor;
    return SPW_STATUS_OK;
}

static bool is_exempt(const struct spw_json *cart)
{
    const struct spw_json *exemption = spw_json_get(cart, "exemption");
    return spw_json_is(spw_json_get(exemption, "isExempt"), SPW_JSON_TRUE) ||
           spw_wire_text(exemption, "exemptionId") != NULL;
}

static enum spw_status read_cart(struct spw_native_builder *b, const struct spw_json *root,
                                 const struct spw_json *cart)
{
    const struct spw_json *lines = spw_json_get(cart, "lineItems");
    struct spw_quote_request *q = &b->out->quote;
    size_t shipping = shipping_place(lines), place = 0;
    enum spw_status status = take_address(b, cart, "origin", &q->ship_from);
    if (!status)
        status = take_address(b, cart, "destination", &q->ship_to);
    if (!status)
        status = spw_native_currency(b, "currency.currencyCode",
                                     spw_wire_text(spw_json_get(cart, "currency"), "currencyCode"));
    if (!status)
        status = spw_native_date(b, "transactionDate", spw_wire_text(root, "transactionDate"));
    SPW_JSON_EACH(item, lines)
    {
        if (!status)
            status = take_line(b, item, place, place == shipping);
        place++;
    }
    q->customer_id = spw_native_text(b, spw_wire_text(cart, "customerId"));
    if (is_exempt(cart))
        q->exemption = "exempt";
    q->purpose = SPW_PURPOSE_ORDER; /* a cart becomes an order by its id, so any may */
    if (spw_native_take_document(spw_wire_text(cart, "cartId"), b->out->document))
        q->quote_ref = spw_native_text(b, b->out->document);
    return status;
}

enum spw_status spw_taxcloud_native_quote(const struct spw_native_request *request,
                                          const struct spw_conf_account *account,
                                          struct spw_native_quote *out, struct spw_error *err)
{
    struct spw_native_builder b = {.out = out, .err = err};
    struct spw_json_doc doc;
    const struct spw_json *root = spw_wire_doc_read(&doc, request->body, request->body_bytes);
    const struct spw_json *carts = spw_json_get(root, "items");
    memset(out, 0, sizeof *out);
    enum spw_status status;
    if (spw_json_count(carts) != 1) {
        status = spw_native_refuse(err, "items: only a call with one cart can be quoted");
    } else {
        const struct spw_json *cart = spw_json_first(carts);
        status = spw_native_open(&b, account, request->body_bytes,
                                 spw_json_count(spw_json_get(cart, "lineItems")), out, err);
        if (!status)
            status = spw_native_close(&b, read_cart(&b, root, cart));
    }
    spw_json_doc_clean_up(&doc);
    return status;
}

/* The request's own cart with a tax in each line. */
enum spw_status spw_taxcloud_native_fallback(const struct spw_native_request *request,
                                             const struct spw_native_quote *quote,
                                             const struct spw_native_fallback *fallback,
                                             struct spw_native_answer *out, struct spw_error *err)
{
    struct spw_json *asked = spw_wire_read(request->body, request->body_bytes);
    size_t shipping = shipping_place(spw_json_get(spw_json_first(spw_json_get(asked, "items")), "lineItems"));
    spw_json_free(asked);
    json_t *root = spw_wire_parse(request->body, request->body_bytes), *item;
    json_t *cart = json_array_get(json_object_get(root, "items"), 0);
    json_t *lines = json_object_get(cart, "lineItems");
    size_t i, next = 0;
    char now[32], connection[SPW_CALLER_ID_BYTES] = "";
    spw_native_now(fallback->now_unix_ms, now, sizeof now);
    (void)spw_native_path_document(request->path, "connections", connection);
    bool failed = !cart;
    json_array_foreach(lines, i, item)
    {
        const struct spw_line_tax *line = &fallback->lines[i == shipping ? quote->quote.line_count : next++];
        uint32_t ppb = line->taxable_minor ? fallback->combined_ppb : 0;
        json_t *tax =
            json_pack("{s:o, s:o}", "amount", spw_wire_minor(line->tax_minor), "rate", spw_wire_rate(ppb));
        failed = failed || json_object_set_new(item, "tax", tax);
    }
    failed = failed ||
             (!quote->document[0] && json_object_set_new(cart, "cartId", json_string(fallback->quote_id)));
    failed = failed || json_object_set_new(root, "connectionId", json_string(connection)) ||
             (!json_object_get(root, "transactionDate") &&
              json_object_set_new(root, "transactionDate", json_string(now))) ||
             json_object_set_new(root, "spillway", spw_native_mark(fallback));
    if (failed) {
        json_decref(root);
        return spw_wire_no_memory(err);
    }
    return spw_native_answer_json(200, root, out, err);
}

enum spw_status spw_taxcloud_native_error(uint32_t status, const char *message, struct spw_native_answer *out,
                                          struct spw_error *err)
{
    const char *title = status == 429   ? "Too Many Requests"
                        : status == 503 ? "Service Unavailable"
                        : status == 403 ? "Forbidden"
                        : status == 401 ? "Unauthorized"
                                        : "Error";
    enum spw_status result =
        spw_native_answer_json(status,
                               json_pack("{s:s, s:s, s:i, s:s, s:[]}", "type", "about:blank", "title", title,
                                         "status", (int)status, "detail", message, "errors"),
                               out, err);
    if (!result)
        out->content_type = "application/problem+json";
    return result;
}

bool spw_taxcloud_native_document(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    if (spw_native_path_document(request->path, "refunds", out))
        return true;
    bool is_convert = strstr(request->path, "/carts/orders") != NULL;
    if (!is_convert && (spw_native_path_document(request->path, "orders", out) ||
                        spw_native_path_document(request->path, "carts", out)))
        return true;
    struct spw_json *root = spw_wire_read(request->body, request->body_bytes);
    bool found = spw_native_take_document(spw_wire_text(root, is_convert ? "cartId" : "orderId"), out);
    spw_json_free(root);
    return found;
}

bool spw_taxcloud_native_order(const struct spw_native_request *request, char out[SPW_CALLER_ID_BYTES])
{
    struct spw_json *root = spw_wire_read(request->body, request->body_bytes);
    bool found = spw_native_take_document(spw_wire_text(root, "orderId"), out);
    spw_json_free(root);
    return found;
}

/* A cart that became an order and is not completed: TaxCloud's own form of "not in the books yet". */
enum spw_status spw_taxcloud_native_recorded(const struct spw_native_request *request,
                                             const struct spw_native_fallback *fallback,
                                             struct spw_native_answer *out, struct spw_error *err)
{
    json_t *root = spw_wire_parse(request->body, request->body_bytes);
    char connection[SPW_CALLER_ID_BYTES] = "";
    (void)spw_native_path_document(request->path, "connections", connection);
    if (!json_is_object(root) || json_object_set_new(root, "completed", json_false()) ||
        json_object_set_new(root, "completedDate", json_null()) ||
        json_object_set_new(root, "connectionId", json_string(connection)) ||
        json_object_set_new(root, "spillway", spw_native_mark(fallback))) {
        json_decref(root);
        return spw_wire_no_memory(err);
    }
    return spw_native_answer_json(201, root, out, err);
}
