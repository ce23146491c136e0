/* taxcloud_shape.c: see taxcloud_shape.h. */
#include "sidecar/mock/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/provider/decimal.h"

#define ID_MAX_BYTES       128u
#define CARTS_A_CALL_MAX   25u
#define LINES_A_CART_MAX   1024u
#define PPB_ONE            1000000000
#define PRICE_MICRO_MAX    1000000000000000 /* a thousand million dollars a piece, */
#define QUANTITY_MICRO_MAX 1000000000000    /* a million pieces: the tax stays within int64_t */
#define JSON_STYLE         (JSON_COMPACT | JSON_REAL_PRECISION(15))

bool spw_mock_books_init(struct spw_mock_books *books, struct spw_rates_table *table, uint32_t flat_ppb)
{
    memset(books, 0, sizeof *books);
    books->flat_ppb = flat_ppb;
    books->carts = json_object();
    books->orders = json_object();
    books->refunds = json_object();
    books->documents = json_object();
    books->calculations = json_object();
    books->keys = json_object();
    if (table) {
        books->has_table = true;
        books->table = *table;
        memset(table, 0, sizeof *table);
    }
    return books->carts && books->orders && books->refunds && books->documents && books->calculations &&
           books->keys;
}

void spw_mock_books_clean_up(struct spw_mock_books *books)
{
    json_decref(books->carts);
    json_decref(books->orders);
    json_decref(books->refunds);
    json_decref(books->documents);
    json_decref(books->calculations);
    json_decref(books->keys);
    if (books->has_table)
        spw_rates_clean_up(&books->table);
    memset(books, 0, sizeof *books);
}

void spw_mock_books_reset_carts(struct spw_mock_books *books)
{
    json_object_clear(books->carts);
    books->carts_count = 0;
}

static struct spw_mock_reply reply_json(unsigned status, json_t *value)
{
    struct spw_mock_reply reply = {.status = status, .body = value ? json_dumps(value, JSON_STYLE) : NULL};
    json_decref(value);
    return reply;
}

static void now_text(char *out, size_t room)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(out, room, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* ---- rates ---- */

/* "98110", "98110-1234" or "981101234"; plus4 is -1 when absent. */
static bool read_zip(const char *text, uint32_t *zip5, int32_t *plus4)
{
    size_t n = strlen(text);
    size_t digits = strspn(text, "0123456789");
    if (digits == 5 && n == 5) {
        *plus4 = -1;
    } else if (digits == 5 && n == 10 && text[5] == '-' && strspn(text + 6, "0123456789") == 4) {
        *plus4 = (int)strtol(text + 6, NULL, 10);
    } else if (digits == 9 && n == 9) {
        *plus4 = (int)strtol(text + 5, NULL, 10);
    } else {
        return false;
    }
    *zip5 = 0;
    for (size_t i = 0; i < 5; i++)
        *zip5 = *zip5 * 10 + (uint32_t)(text[i] - '0');
    return true;
}

static bool find_rate(const struct spw_mock_books *books, uint32_t zip5, int32_t plus4, uint32_t *ppb,
                      const struct spw_rate_row **which)
{
    *which = NULL;
    if (!books->has_table) {
        *ppb = books->flat_ppb;
        return true;
    }
    size_t low = 0, high = books->table.rows_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (books->table.rows[middle].zip5 < zip5)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = false;
    for (; low < books->table.rows_count && books->table.rows[low].zip5 == zip5; low++) {
        const struct spw_rate_row *row = &books->table.rows[low];
        if (row->plus4_lo == 0xFFFF && row->plus4_hi == 0xFFFF) {
            *ppb = found ? *ppb : row->combined_ppb;
            *which = found ? *which : row;
            found = true;
        } else if (plus4 >= row->plus4_lo && plus4 <= row->plus4_hi) {
            *ppb = row->combined_ppb;
            *which = row;
            return true;
        }
    }
    return found;
}

bool spw_mock_books_rate(const struct spw_mock_books *books, const char *zip, uint32_t *ppb,
                         const struct spw_rate_row **row)
{
    uint32_t zip5;
    int32_t plus4;
    return read_zip(zip, &zip5, &plus4) && find_rate(books, zip5, plus4, ppb, row);
}

/* price x quantity x rate in cents, half up: micro x micro x ppb is 1e21 to the dollar. */
static int64_t line_tax_minor(int64_t price_micro, int64_t quantity_micro, uint32_t ppb)
{
    const spw_wide cent = (spw_wide)10000000000 * 1000000000; /* 1e19 */
    spw_wide product = (spw_wide)price_micro * (spw_wide)quantity_micro;
    spw_wide whole = product / 1000000 * ppb; /* in two parts: the product of all three can pass 128 bits */
    spw_wide rest = product % 1000000 * ppb;
    spw_wide units = whole % (cent / 1000000) * 1000000 + rest;
    return (int64_t)(whole / (cent / 1000000) + (units + cent / 2) / cent);
}

/* ---- carts ---- */

static bool read_micro(const json_t *value, int64_t least, int64_t most, int64_t *out)
{
    return json_is_number(value) &&
           spw_decimal_from_double(json_number_value(value), 6, out) == SPW_DECIMAL_EXACT && *out >= least &&
           *out <= most;
}

/* Puts "tax" into a line; on a fault *fault is the 422 and the result false. */
static bool tax_line(json_t *line, const char *place, uint32_t ppb, struct spw_mock_reply *fault)
{
    char location[160];
    int64_t price_micro, quantity_micro;
    const char *key = NULL;
    if (!json_is_integer(json_object_get(line, "index")))
        key = "index";
    else if (!json_string_length(json_object_get(line, "itemId")))
        key = "itemId";
    else if (!read_micro(json_object_get(line, "price"), 0, PRICE_MICRO_MAX, &price_micro))
        key = "price";
    else if (!read_micro(json_object_get(line, "quantity"), 1, QUANTITY_MICRO_MAX, &quantity_micro))
        key = "quantity";
    else if (json_object_get(line, "tic") && !json_is_integer(json_object_get(line, "tic")))
        key = "tic";
    if (key) {
        snprintf(location, sizeof location, "%s.%s", place, key);
        *fault = spw_mock_problem(422, location, "missing or of the wrong type or range");
        return false;
    }
    int64_t tax_minor = line_tax_minor(price_micro, quantity_micro, ppb);
    json_t *tax = json_pack("{s:f, s:f}", "amount", (double)tax_minor / 100, "rate", (double)ppb / PPB_ONE);
    return json_object_set_new(line, "tax", tax) == 0;
}

static bool is_exempt(const json_t *cart)
{
    const json_t *exemption = json_object_get(cart, "exemption");
    const json_t *flag = json_object_get(exemption, "isExempt");
    return json_is_true(flag) ||
           (!json_is_false(flag) && json_string_length(json_object_get(exemption, "exemptionId")));
}

static bool check_cart(const struct spw_mock_books *books, const json_t *cart, const char *place,
                       uint32_t *ppb, struct spw_mock_reply *fault)
{
    char location[128];
    const json_t *destination = json_object_get(cart, "destination");
    const json_t *zip = json_object_get(destination, "zip");
    const json_t *code = json_object_get(json_object_get(cart, "currency"), "currencyCode");
    const json_t *lines = json_object_get(cart, "lineItems");
    uint32_t zip5 = 0;
    int32_t plus4 = -1;
    const struct spw_rate_row *row;
    const char *key = NULL, *fix = "missing or of the wrong type";
    if (!json_is_object(cart))
        key = "";
    else if (!json_string_length(json_object_get(cart, "customerId")))
        key = ".customerId";
    else if (code && (!json_is_string(code) || strcmp(json_string_value(code), "USD") != 0))
        key = ".currency.currencyCode";
    else if (!json_is_string(json_object_get(json_object_get(cart, "origin"), "zip")))
        key = ".origin.zip";
    else if (!json_is_string(zip) || !read_zip(json_string_value(zip), &zip5, &plus4))
        key = ".destination.zip";
    else if (!json_is_array(lines) || !json_array_size(lines) || json_array_size(lines) > LINES_A_CART_MAX)
        key = ".lineItems";
    else if (!find_rate(books, zip5, plus4, ppb, &row)) {
        key = ".destination.zip";
        fix = "the rate table given to this provider does not have this ZIP";
    }
    if (!key)
        return true;
    snprintf(location, sizeof location, "%s%s", place, key);
    *fault = spw_mock_problem(422, location, "%s", fix);
    return false;
}

static void keep_cart(struct spw_mock_books *books, const char *connection, json_t *cart)
{
    char key[2 * ID_MAX_BYTES + 4], own_id[32];
    const char *id = json_string_value(json_object_get(cart, "cartId"));
    if (!id || !*id) {
        snprintf(own_id, sizeof own_id, "cart-%llu", (unsigned long long)++books->cart_serial);
        json_object_set_new(cart, "cartId", json_string(own_id));
        id = own_id;
    }
    snprintf(key, sizeof key, "%.128s/%.128s", connection, id);
    books->carts_count++;
    if (!json_object_get(books->carts, key) && json_object_size(books->carts) >= SPW_MOCK_CARTS_MAX_COUNT)
        json_object_del(books->carts, json_object_iter_key(json_object_iter(books->carts))); /* the oldest */
    json_object_set_new(books->carts, key, json_deep_copy(cart));
}

static struct spw_mock_reply calculate(struct spw_mock_books *books, const char *connection, json_t *root)
{
    json_t *carts = json_object_get(root, "items");
    struct spw_mock_reply fault = {.status = 500};
    size_t i, k;
    json_t *cart, *line;
    char place[96];
    if (!json_is_array(carts) || !json_array_size(carts) || json_array_size(carts) > CARTS_A_CALL_MAX)
        return spw_mock_problem(422, "body.items", "send 1 to %u carts", CARTS_A_CALL_MAX);
    json_array_foreach(carts, i, cart)
    {
        uint32_t ppb = 0;
        snprintf(place, sizeof place, "body.items[%zu]", i);
        if (!check_cart(books, cart, place, &ppb, &fault))
            return fault;
        if (is_exempt(cart))
            ppb = 0;
        json_array_foreach(json_object_get(cart, "lineItems"), k, line)
        {
            snprintf(place, sizeof place, "body.items[%zu].lineItems[%zu]", i, k);
            if (!tax_line(line, place, ppb, &fault))
                return fault;
        }
    }
    json_array_foreach(carts, i, cart)
    {
        keep_cart(books, connection, cart);
    }
    char now[32];
    now_text(now, sizeof now);
    const char *date = json_string_value(json_object_get(root, "transactionDate"));
    return reply_json(200, json_pack("{s:s, s:O, s:s}", "connectionId", connection, "items", carts,
                                     "transactionDate", date ? date : now));
}

/* ---- orders ---- */

static struct spw_mock_reply keep_order(struct spw_mock_books *books, const char *connection, const char *id,
                                        json_t *order)
{
    char key[2 * ID_MAX_BYTES + 4];
    snprintf(key, sizeof key, "%.128s/%.128s", connection, id);
    if (json_object_get(books->orders, key)) {
        json_decref(order);
        return spw_mock_problem(400, "body.orderId", "an order with this id exists already");
    }
    if (json_object_size(books->orders) >= SPW_MOCK_ORDERS_MAX_COUNT) {
        json_decref(order);
        return spw_mock_problem(503, NULL, "this provider's books are full; restart it");
    }
    json_object_set_new(order, "connectionId", json_string(connection));
    if (json_object_set(books->orders, key, order) != 0) {
        json_decref(order);
        return (struct spw_mock_reply){.status = 500};
    }
    return reply_json(201, order);
}

static struct spw_mock_reply order_from_cart(struct spw_mock_books *books, const char *connection,
                                             const json_t *root)
{
    const char *cart_id = json_string_value(json_object_get(root, "cartId"));
    const char *order_id = json_string_value(json_object_get(root, "orderId"));
    char key[2 * ID_MAX_BYTES + 4], now[32];
    if (!cart_id || !*cart_id)
        return spw_mock_problem(422, "body.cartId", "missing");
    if (!order_id || !*order_id)
        return spw_mock_problem(422, "body.orderId", "missing");
    snprintf(key, sizeof key, "%.128s/%.128s", connection, cart_id);
    const json_t *cart = json_object_get(books->carts, key);
    if (!cart)
        return spw_mock_problem(404, "body.cartId", "no such cart");
    json_t *order = json_deep_copy(cart);
    now_text(now, sizeof now);
    json_object_set_new(order, "orderId", json_string(order_id));
    json_object_set_new(order, "transactionDate", json_string(now));
    json_object_set_new(order, "completedDate",
                        json_is_true(json_object_get(root, "completed")) ? json_string(now) : json_null());
    return keep_order(books, connection, order_id, order);
}

/* An order taxed elsewhere: kept as it is, and it must say which tax was collected. */
static struct spw_mock_reply upload_order(struct spw_mock_books *books, const char *connection, json_t *root)
{
    const char *order_id = json_string_value(json_object_get(root, "orderId"));
    const json_t *lines = json_object_get(root, "lineItems");
    size_t i;
    json_t *line;
    int64_t micro;
    char place[96];
    if (!order_id || !*order_id)
        return spw_mock_problem(422, "body.orderId", "missing");
    if (!json_is_array(lines) || !json_array_size(lines))
        return spw_mock_problem(422, "body.lineItems", "missing");
    json_array_foreach((json_t *)lines, i, line)
    {
        if (read_micro(json_object_get(json_object_get(line, "tax"), "amount"), 0, PRICE_MICRO_MAX, &micro))
            continue;
        snprintf(place, sizeof place, "body.lineItems[%zu].tax.amount", i);
        return spw_mock_problem(422, place, "missing: an uploaded order says what was collected");
    }
    return keep_order(books, connection, order_id, json_incref(root));
}

static struct spw_mock_reply patch_order(json_t *order, const json_t *root)
{
    const json_t *completed = json_object_get(root, "completedDate");
    if (!json_is_string(completed))
        return spw_mock_problem(422, "body.completedDate", "missing: it is what can be changed here");
    json_object_set(order, "completedDate", (json_t *)completed);
    return reply_json(200, json_incref(order));
}

static struct spw_mock_reply refund_order(struct spw_mock_books *books, const char *key, const json_t *root)
{
    const char *repeat = json_string_value(json_object_get(root, "idempotencyKey"));
    const json_t *items = json_object_get(root, "items");
    char now[32];
    if (items && !json_is_array(items))
        return spw_mock_problem(422, "body.items", "not a list");
    json_t *list = json_object_get(books->refunds, key);
    if (!list) {
        json_object_set_new(books->refunds, key, json_array());
        list = json_object_get(books->refunds, key);
    }
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *known = json_string_value(json_object_get(one, "idempotencyKey"));
        if (repeat && known && strcmp(repeat, known) == 0)
            return reply_json(201, json_incref(one)); /* the same request again gets the same answer */
    }
    now_text(now, sizeof now);
    const char *returned = json_string_value(json_object_get(root, "returnedDate"));
    json_t *refund = json_pack("{s:s, s:O?, s:s*}", "returnedDate", returned ? returned : now, "items", items,
                               "idempotencyKey", repeat);
    json_array_append(list, refund);
    return reply_json(201, refund);
}

/* ---- routes ---- */

/* "/tax/connections/ID/REST" into connection and rest. */
static bool split_path(const char *path, char *connection, size_t room, const char **rest)
{
    static const char start[] = "/tax/connections/";
    if (strncmp(path, start, sizeof start - 1) != 0)
        return false;
    const char *id = path + sizeof start - 1;
    const char *slash = strchr(id, '/');
    if (!slash || slash == id || (size_t)(slash - id) >= room)
        return false;
    memcpy(connection, id, (size_t)(slash - id));
    connection[slash - id] = 0;
    *rest = slash + 1;
    return true;
}

static const char *behind(const char *rest, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(rest, prefix, n) == 0 && rest[n] && !strchr(rest + n, '/') ? rest + n : NULL;
}

static struct spw_mock_reply route_id(struct spw_mock_books *books, const char *method,
                                      const char *connection, const char *rest, const json_t *root)
{
    char key[2 * ID_MAX_BYTES + 4];
    const char *id;
    if ((id = behind(rest, "carts/")) != NULL && strcmp(method, "GET") == 0) {
        snprintf(key, sizeof key, "%.128s/%.128s", connection, id);
        json_t *cart = json_object_get(books->carts, key);
        return cart ? reply_json(200, json_incref(cart)) : spw_mock_problem(404, NULL, "no such cart");
    }
    if ((id = behind(rest, "orders/refunds/")) == NULL)
        id = behind(rest, "orders/");
    if (!id)
        return spw_mock_problem(404, NULL, "no such path at this provider");
    snprintf(key, sizeof key, "%.128s/%.128s", connection, id);
    json_t *order = json_object_get(books->orders, key);
    if (!order)
        return spw_mock_problem(404, NULL, "no such order");
    if (strncmp(rest, "orders/refunds/", 15) == 0)
        return strcmp(method, "POST") == 0 ? refund_order(books, key, root)
                                           : spw_mock_problem(405, NULL, "refunds are posted");
    if (strcmp(method, "GET") == 0)
        return reply_json(200, json_incref(order));
    return strcmp(method, "PATCH") == 0 ? patch_order(order, root)
                                        : spw_mock_problem(405, NULL, "use GET or PATCH");
}

struct spw_mock_reply spw_mock_books_answer(struct spw_mock_books *books, const char *method,
                                            const char *path, const char *body, size_t bytes)
{
    char connection[ID_MAX_BYTES];
    const char *rest;
    bool is_post = strcmp(method, "POST") == 0;
    if (!split_path(path, connection, sizeof connection, &rest))
        return spw_mock_problem(404, NULL, "no such path at this provider");
    if (strcmp(rest, "ping") == 0)
        return strcmp(method, "GET") == 0
                   ? reply_json(200, json_pack("{s:s, s:s}", "connectionId", connection, "status", "ok"))
                   : spw_mock_problem(405, NULL, "ping is read by GET");
    json_t *root = NULL;
    if (is_post || strcmp(method, "PATCH") == 0) {
        json_error_t error;
        root = json_loadb(body ? body : "", bytes, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(root)) {
            json_decref(root);
            return spw_mock_problem(400, "body", "not a JSON object (line %d, column %d)", error.line,
                                    error.column);
        }
    }
    struct spw_mock_reply reply;
    if (is_post && strcmp(rest, "carts") == 0)
        reply = calculate(books, connection, root);
    else if (is_post && strcmp(rest, "carts/orders") == 0)
        reply = order_from_cart(books, connection, root);
    else if (is_post && strcmp(rest, "orders") == 0)
        reply = upload_order(books, connection, root);
    else
        reply = route_id(books, method, connection, rest, root);
    json_decref(root);
    return reply;
}

static struct spw_mock_reply answer(struct spw_mock_books *books, const struct spw_mock_request *r)
{
    return spw_mock_books_answer(books, r->method, r->path, r->body, r->bytes);
}

static struct spw_mock_reply problem(unsigned status, const char *text)
{
    return spw_mock_problem(status, status == 401 ? "header.X-API-KEY" : NULL, "%s", text);
}

const struct spw_mock_shape spw_mock_taxcloud = {
    .name = "taxcloud", .prefix = "/tax/", .answer = answer, .problem = problem};
