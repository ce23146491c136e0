/* test_taxcloud.c: TaxCloud's calls as they go out, its answers as they are read, and the paths its key is good for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "sidecar/provider/provider.h"

#define KEY "k-123-secret"
static const struct spw_credential key_credential = {.user = "", .secret = KEY};

static struct spw_conf_account account(void)
{
    struct spw_conf_account a = {.name = "main", .connection = "25eb9b97-5acb-492d-b720-c03e79cf715a"};
    return a;
}

static const struct spw_line two_lines[] = {
    {.id = "sku-1", .quantity_micro = 2000000, .amount_minor = 3998},
    {.id = "sku-2", .tax_code = "20010", .quantity_micro = 1000000, .amount_minor = 2500},
};

static struct spw_quote_request quote(void)
{
    struct spw_quote_request q = {
        .currency = "USD",
        .date = "2025-11-28",
        .ship_from = {.state = "TX", .zip = "75201", .city = "Dallas", .line1 = "1 Main St"},
        .ship_to = {.country = "US",
                    .state = "WA",
                    .zip = "981101234",
                    .city = "Bainbridge Island",
                    .line1 = "100 Ravine Ln"},
        .customer_id = "c_7",
        .shipping_minor = 795,
        .lines = two_lines,
        .line_count = 2,
    };
    return q;
}

static const struct spw_profile *taxcloud(void)
{
    const struct spw_profile *p = spw_profile_find("taxcloud");
    assert_non_null(p);
    return p;
}

static void test_find(void **state)
{
    (void)state;
    assert_ptr_equal(taxcloud()->name, spw_profile_find("taxcloud")->name);
    assert_null(spw_profile_find("TaxCloud"));
    assert_null(spw_profile_find(""));
    assert_null(spw_profile_find(NULL));
    assert_non_null(strstr(spw_profile_names(), "taxcloud"));
}

static void test_build(void **state)
{
    (void)state;
    struct spw_conf_account a = account();
    struct spw_quote_request q = quote();
    struct spw_call call;
    struct spw_error err;
    snprintf(a.url, sizeof a.url, "https://example.test/");
    assert_int_equal(taxcloud()->build(&q, &a, &key_credential, "sq_1", &call, &err), SPW_STATUS_OK);
    assert_string_equal(call.method, "POST");
    assert_string_equal(call.url,
                        "https://example.test/tax/connections/25eb9b97-5acb-492d-b720-c03e79cf715a/carts");
    assert_int_equal(call.header_count, 3);
    assert_string_equal(call.headers[2], "X-API-KEY: " KEY); /* the credential is last */
    /* The bytes themselves: 39.98 / 2 goes out as 19.99 and nothing longer. */
    assert_string_equal(
        call.body,
        "{\"items\":[{\"customerId\":\"c_7\",\"currency\":{\"currencyCode\":\"USD\"},\"deliveredBySeller\":"
        "false,"
        "\"origin\":{\"line1\":\"1 Main "
        "St\",\"city\":\"Dallas\",\"state\":\"TX\",\"zip\":\"75201\",\"countryCode\":\"US\"},"
        "\"destination\":{\"line1\":\"100 Ravine Ln\",\"city\":\"Bainbridge "
        "Island\",\"state\":\"WA\",\"zip\":\"98110-1234\","
        "\"countryCode\":\"US\"},"
        "\"lineItems\":[{\"index\":0,\"itemId\":\"sku-1\",\"price\":19.99,\"quantity\":2,\"tic\":0},"
        "{\"index\":1,\"itemId\":\"sku-2\",\"price\":25.00,\"quantity\":1,\"tic\":20010},"
        "{\"index\":2,\"itemId\":\"shipping\",\"price\":7.95,\"quantity\":1,\"tic\":11010}],"
        "\"cartId\":\"sq_1\"}],\"transactionDate\":\"2025-11-28T12:00:00Z\"}");
    assert_int_equal(call.body_bytes, strlen(call.body));
    spw_call_clean_up(&call);
    assert_null(call.url);
}

static void test_build_default_url(void **state)
{
    (void)state;
    struct spw_conf_account a = account();
    struct spw_quote_request q = quote();
    struct spw_call call;
    q.date = NULL;
    q.shipping_minor = 0;
    q.exemption = "resale";
    q.customer_id = NULL;
    assert_int_equal(taxcloud()->build(&q, &a, &key_credential, NULL, &call, NULL), SPW_STATUS_OK);
    assert_memory_equal(call.url, "https://api.v3.taxcloud.com/tax/", 32);
    assert_null(strstr(call.body, "transactionDate"));
    assert_null(strstr(call.body, "cartId"));
    assert_null(strstr(call.body, "11010"));
    assert_non_null(strstr(call.body, "\"exemption\":{\"isExempt\":true}"));
    assert_non_null(strstr(call.body, "\"customerId\":\"guest\""));
    spw_call_clean_up(&call);
}

/* price x quantity must be the amount, to the cent, for every amount and quantity. */
static void test_price_times_quantity(void **state)
{
    (void)state;
    static const struct {
        int64_t amount_minor, quantity_micro;
        const char *sent;
    } cases[] = {
        {1000, 3000000, "\"price\":10.00,\"quantity\":1"}, /* 3.333... a piece */
        {999, 3000000, "\"price\":3.33,\"quantity\":3"},
        {1, 2000000, "\"price\":0.01,\"quantity\":1"},
        {1500, 1500000, "\"price\":10.00,\"quantity\":1.5"},
        {1613, 1500000, "\"price\":16.13,\"quantity\":1"},
        {0, 4000000, "\"price\":0.00,\"quantity\":4"},
        {29, 0, "\"price\":0.29,\"quantity\":1"},
        {999999999999999, 1000000, "\"price\":9999999999999.99,\"quantity\":1"},
        {57, 100000, "\"price\":5.70,\"quantity\":0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_line line = {.amount_minor = cases[i].amount_minor,
                                .quantity_micro = cases[i].quantity_micro};
        struct spw_conf_account a = account();
        struct spw_quote_request q = quote();
        struct spw_call call;
        q.lines = &line;
        q.line_count = 1;
        assert_int_equal(taxcloud()->build(&q, &a, &key_credential, NULL, &call, NULL), SPW_STATUS_OK);
        if (!strstr(call.body, cases[i].sent))
            fail_msg("case %zu: %s is not in %s", i, cases[i].sent, call.body);
        spw_call_clean_up(&call);
    }
}

/* Every refused request names its place and a remedy, leaves nothing allocated, and never shows the key. */
static void expect_refused(const struct spw_quote_request *q, const struct spw_conf_account *a,
                           const char *key, const char *place)
{
    struct spw_call call;
    struct spw_error err = {.status = SPW_STATUS_OK};
    const struct spw_credential credential = {.user = "", .secret = key};
    assert_int_equal(taxcloud()->build(q, a, &credential, "id", &call, &err), SPW_STATUS_INVALID);
    if (!strstr(err.text, place))
        fail_msg("\"%s\" does not name %s", err.text, place);
    if (key[0])
        assert_null(strstr(err.text, key));
    assert_null(call.body);
    assert_null(call.url);
    assert_int_equal(call.header_count, 0);
}

static void test_build_refuses(void **state)
{
    (void)state;
    struct spw_conf_account a = account();
    struct spw_quote_request q = quote();
    q.currency = "EUR";
    expect_refused(&q, &a, KEY, "currency");
    static const char *const dates[] = {"2025-02-30", "2025-13-01", "28.11.2025",
                                        "2025-1-1",   "",           "2025-11-28T00:00:00Z"};
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        q = quote();
        q.date = dates[i];
        expect_refused(&q, &a, KEY, "date");
    }
    struct spw_line line = {.id = "x", .tax_code = "txcd_1", .amount_minor = 100};
    q = quote();
    q.lines = &line;
    q.line_count = 1;
    expect_refused(&q, &a, KEY, "lines[0]");
    line = (struct spw_line){.id = "x", .amount_minor = -1};
    expect_refused(&q, &a, KEY, "lines[0].amount");
    line = (struct spw_line){.id = "x", .amount_minor = INT64_MAX};
    expect_refused(&q, &a, KEY, "lines[0]");
    line = (struct spw_line){.id = "\xff\xfe", .amount_minor = 100};
    expect_refused(&q, &a, KEY, "lines[0].id");
    q = quote();
    q.line_count = 0;
    expect_refused(&q, &a, KEY, "lines");
    q = quote();
    q.shipping_tax_code = "FR020100";
    expect_refused(&q, &a, KEY, "shipping");
    q = quote();
    q.ship_to.state = NULL;
    expect_refused(&q, &a, KEY, "ship_to");
    q = quote();
    q.ship_from.country = "DE";
    expect_refused(&q, &a, KEY, "ship_from.country");
    q = quote();
    q.customer_id = "\xc3";
    expect_refused(&q, &a, KEY, "customer.id");
    q = quote();
    a.connection[0] = 0;
    expect_refused(&q, &a, KEY, "accounts.main.connection");
    snprintf(a.connection, sizeof a.connection, "../admin");
    expect_refused(&q, &a, KEY, "accounts.main.connection");
    a = account();
    expect_refused(&q, &a, "", "accounts.main.credentials");
    expect_refused(&q, &a, "k\r\nX-Evil: 1", "accounts.main.credentials");
}

static void test_ping(void **state)
{
    (void)state;
    struct spw_conf_account a = account();
    struct spw_call call;
    assert_int_equal(taxcloud()->ping(&a, &key_credential, &call, NULL), SPW_STATUS_OK);
    assert_string_equal(call.method, "GET");
    assert_string_equal(
        call.url, "https://api.v3.taxcloud.com/tax/connections/25eb9b97-5acb-492d-b720-c03e79cf715a/ping");
    assert_null(call.body);
    assert_int_equal(call.header_count, 2);
    spw_call_clean_up(&call);
}

/* ---- answers ---- */

static struct spw_answer read_answer(uint32_t status, const char *body, size_t bytes)
{
    struct spw_quote_request q = quote();
    struct spw_answer out, judged;
    const struct spw_route route = {"POST", "/", SPW_ROUTE_CALCULATE};
    taxcloud()->read(&q, status, "", 0, body, bytes, &out);
    if (out.kind == SPW_ANSWER_OK) { /* nobody judges again what was read as a tax */
        taxcloud()->judge(&route, status, "", 0, body, bytes, &judged);
        assert_int_equal(judged.kind, SPW_ANSWER_OK);
    }
    return out;
}

static struct spw_answer read_text(uint32_t status, const char *body)
{
    return read_answer(status, body, strlen(body));
}

#define LINE(i, amount, rate)                                                                                \
    "{\"index\":" #i ",\"itemId\":\"x\",\"tax\":{\"amount\":" #amount ",\"rate\":" #rate "}}"
#define CART(lines)                                                                                          \
    "{\"connectionId\":\"c\",\"items\":[{\"cartId\":\"1\",\"currency\":{\"currencyCode\":\"USD\"},"          \
    "\"lineItems\":[" lines "]}]}"

static void test_read_good(void **state)
{
    (void)state;
    /* Lines out of order, an integer among the numbers, a rate of zero. */
    struct spw_answer a =
        read_text(200, CART(LINE(2, 0.73, 0.092) "," LINE(0, 3.68, 0.092) "," LINE(1, 0, 0)));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.tax_minor, 441);
    assert_int_equal(a.lines_count, 3);
    assert_int_equal(a.lines[0].tax_minor, 368);
    assert_int_equal(a.lines[0].taxable_minor, 3998);
    assert_int_equal(a.lines[1].tax_minor, 0);
    assert_int_equal(a.lines[1].taxable_minor, 0);
    assert_int_equal(a.lines[2].tax_minor, 73);
    assert_int_equal(a.lines[2].taxable_minor, 795);
    assert_int_equal(a.rate_ppb, 92000000);
    assert_int_equal(a.jurisdictions_count, 0);
    /* Fractions of a cent and a peer's binary noise. */
    a = read_text(
        200, CART(LINE(0, 1.4553, 0.09025) "," LINE(1, 0.30000000000000004, 0.1) "," LINE(2, 0.145, 0.0725)));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.lines[0].tax_minor, 146);
    assert_int_equal(a.lines[1].tax_minor, 30);
    assert_int_equal(a.lines[2].tax_minor, 15);
    assert_int_equal(a.rate_ppb, 90250000);
    /* The rate is that of the first taxed line as asked, not as answered. */
    a = read_text(200, CART(LINE(2, 0.08, 0.01) "," LINE(1, 0.5, 0.02) "," LINE(0, 0, 0)));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.rate_ppb, 20000000);
}

static void test_read_without_shipping(void **state)
{
    (void)state;
    struct spw_quote_request q = quote();
    struct spw_answer out;
    q.shipping_minor = 0;
    const char *body = CART(LINE(0, 3.68, 0.092) "," LINE(1, 2.30, 0.092));
    taxcloud()->read(&q, 200, "", 0, body, strlen(body), &out);
    assert_int_equal(out.kind, SPW_ANSWER_OK);
    assert_int_equal(out.lines_count, 3); /* shipping has its place even when there is none */
    assert_int_equal(out.lines[2].tax_minor, 0);
    assert_int_equal(out.tax_minor, 598);
}

static void test_read_broken(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "{}",
        "[]",
        "null",
        "OK",
        "<html>502</html>",
        "{\"items\":{}}",
        "{\"items\":[]}",
        "{\"items\":[null]}",
        "{\"items\":[{}]}",
        "{\"items\":[{\"lineItems\":{}}]}",
        CART(""),
        CART(LINE(0, 1, 0.1) "," LINE(1, 1, 0.1)),                     /* shipping missing */
        CART(LINE(0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(1, 1, 0.1)), /* twice */
        CART(LINE(0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0) "," LINE(3, 1, 0.1)), /* not asked for */
        CART(LINE(-1, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0.0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE("0", 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, -0.01, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, 1, -0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, "1.00", 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)), /* text is not a number here */
        CART(LINE(0, null, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, NaN, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, Infinity, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, 1e400, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, 1e20, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, 39.99, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)), /* more tax than goods */
        CART(LINE(0, 1, 9.2) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),     /* percent for a rate */
        CART(LINE(0, 1, null) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART("{\"index\":0}," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART("{\"index\":0,\"tax\":1.0}," LINE(1, 1, 0.1) "," LINE(2, 0, 0)),
        CART(LINE(0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(2, 0, 0)) "x",
        "{\"items\":[{\"currency\":{\"currencyCode\":\"EUR\"},\"lineItems\":[" LINE(0, 1, 0.1) "," LINE(
            1, 1, 0.1) "," LINE(2, 0, 0) "]}]}",
        "{\"items\":[{\"currency\":\"USD\",\"lineItems\":[" LINE(0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(
            2, 0, 0) "]}]}",
        "{\"items\":[{\"currency\":{\"currencyCode\":7},\"lineItems\":[" LINE(0, 1, 0.1) "," LINE(
            1, 1, 0.1) "," LINE(2, 0, 0) "]}]}",
        "{\"items\":[{\"lineItems\":[" LINE(0, 1, 0.1) "]},{\"lineItems\":[]}]}",
        "{\"items\":[{\"lineItems\":[],\"lineItems\":[" LINE(0, 1, 0.1) "," LINE(1, 1, 0.1) "," LINE(
            2, 0, 0) "]}]}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct spw_answer a = read_text(200, bodies[i]);
        if (a.kind != SPW_ANSWER_BROKEN)
            fail_msg("kind %d for %s", a.kind, bodies[i]);
        if (!a.detail[0])
            fail_msg("no reason for %s", bodies[i]);
        assert_int_equal(a.tax_minor, 0); /* nothing half-read stays behind */
        assert_int_equal(a.rate_ppb, 0);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(a.lines[k].tax_minor, 0);
        assert_null(a.error_json);
        spw_answer_clean_up(&a);
    }
}

static void test_read_bytes(void **state)
{
    (void)state;
    /* NUL bytes, raw and escaped. */
    static const char raw[] = "{\"items\":\0[]}";
    assert_int_equal(read_answer(200, raw, sizeof raw - 1).kind, SPW_ANSWER_BROKEN);
    assert_int_equal(read_text(200, "{\"it\\u0000ems\":[]}").kind, SPW_ANSWER_BROKEN);
    assert_int_equal(read_answer(200, NULL, 0).kind, SPW_ANSWER_BROKEN);
    /* Deep nesting ends in an error, not in the stack's end. */
    size_t deep = 200000;
    char *text = malloc(deep);
    assert_non_null(text);
    memset(text, '[', deep);
    assert_int_equal(read_answer(200, text, deep).kind, SPW_ANSWER_BROKEN);
    free(text);
    /* A good answer cut at every byte is broken at every byte; the buffer ends where the text does. */
    const char *whole = CART(LINE(0, 3.68, 0.092) "," LINE(1, 2.30, 0.092) "," LINE(2, 0.73, 0.092));
    for (size_t n = 0; n < strlen(whole); n++) {
        char *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, whole, n);
        assert_int_equal(read_answer(200, cut, n).kind, SPW_ANSWER_BROKEN);
        free(cut);
    }
    assert_int_equal(read_text(200, whole).kind, SPW_ANSWER_OK);
}

/* Sums of absurd lines do not wrap round. */
static void test_read_overflow(void **state)
{
    (void)state;
    static struct spw_line lines[20];
    struct spw_quote_request q = quote();
    struct spw_answer out;
    char body[4096] = "{\"items\":[{\"lineItems\":[";
    for (int i = 0; i < 20; i++) {
        char item[128];
        lines[i].amount_minor = INT64_MAX;
        snprintf(item, sizeof item, "%s{\"index\":%d,\"tax\":{\"amount\":9900000000000000,\"rate\":0.5}}",
                 i ? "," : "", i);
        strcat(body, item);
    }
    strcat(body, "]}]}");
    q.lines = lines;
    q.line_count = 20;
    q.shipping_minor = 0;
    taxcloud()->read(&q, 200, "", 0, body, strlen(body), &out);
    assert_int_equal(out.kind, SPW_ANSWER_BROKEN);
    assert_non_null(strstr(out.detail, "add up"));
}

static void test_read_status(void **state)
{
    (void)state;
    static const char problem[] =
        "{\"type\":\"about:blank\",\"title\":\"Unprocessable Entity\",\"status\":422,"
        "\"detail\":\"validation failed\",\"errors\":[{\"location\":\"body.items[0].destination.zip\","
        "\"message\":\"expected a US ZIP\",\"value\":\"9x\"}]}";
    static const struct {
        uint32_t status;
        const char *body;
        enum spw_answer_kind kind;
    } cases[] = {
        {400, problem, SPW_ANSWER_REJECTED},
        {409, problem, SPW_ANSWER_REJECTED},
        {422, problem, SPW_ANSWER_REJECTED},
        {421, problem, SPW_ANSWER_ERROR},
        {400, "<html>bad gateway rule</html>", SPW_ANSWER_ERROR}, /* not TaxCloud's judgement */
        {422, "", SPW_ANSWER_ERROR},
        {422, "{}", SPW_ANSWER_ERROR},
        {401, problem, SPW_ANSWER_ERROR},
        {403, problem, SPW_ANSWER_ERROR},
        {404, problem, SPW_ANSWER_ERROR},
        {408, problem, SPW_ANSWER_ERROR},
        {429, problem, SPW_ANSWER_THROTTLED},
        {429, "", SPW_ANSWER_THROTTLED},
        {429, "Too many", SPW_ANSWER_THROTTLED},
        {500, problem, SPW_ANSWER_ERROR},
        {502, "<html>", SPW_ANSWER_ERROR},
        {503, "", SPW_ANSWER_ERROR},
        {301, "", SPW_ANSWER_ERROR},
        {100, "", SPW_ANSWER_ERROR},
        {0, "", SPW_ANSWER_ERROR},
        {204, "", SPW_ANSWER_BROKEN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_answer a = read_text(cases[i].status, cases[i].body);
        if (a.kind != cases[i].kind)
            fail_msg("status %u: kind %d, wanted %d", cases[i].status, a.kind, cases[i].kind);
        if (a.kind == SPW_ANSWER_REJECTED) {
            json_t *kept = json_loads(a.error_json, 0, NULL);
            json_t *sent = json_loads(problem, 0, NULL);
            assert_true(json_equal(kept, sent));
            json_decref(kept);
            json_decref(sent);
        } else {
            assert_null(a.error_json);
            assert_true(a.detail[0]);
        }
        spw_answer_clean_up(&a);
        assert_null(a.error_json);
    }
}

static void test_allow_list(void **state)
{
    (void)state;
#define C "/tax/connections/25eb9b97-5acb-492d-b720-c03e79cf715a"
    static const struct {
        bool allowed;
        const char *method, *path;
    } cases[] = {
        {true, "POST", C "/carts"},
        {true, "GET", C "/carts/abc"},
        {true, "POST", C "/carts/orders"},
        {true, "POST", C "/orders"},
        {true, "GET", C "/orders/1000_48-213"},
        {true, "PATCH", C "/orders/1"},
        {true, "POST", C "/orders/refunds/1"},
        {true, "GET", C "/ping"},
        {true, "POST", "/tax/verify-address"},
        {true, "POST", "/tax/tic/search"},
        {false, "GET", C "/carts"},
        {false, "DELETE", C "/orders/1"},
        {false, "post", C "/carts"},
        {false, "POS", C "/carts"},
        {false, "", C "/carts"},
        {false, "POST", C "/carts/"},
        {false, "POST", C "/carts/x"},
        {false, "GET", C "/carts/a/b"},
        {false, "GET", C "/carts/"},
        {false, "POST", "/tax/connections/other/carts"},
        {false, "POST", "/tax/connections//carts"},
        {false, "POST", "/tax/connections/25eb9b97-5acb-492d-b720-c03e79cf715/carts"},
        {false, "POST", "/tax/connections/{connectionId}/carts"},
        {false, "GET", C "/carts/.."},
        {false, "GET", C "/orders/../../x"},
        {false, "GET", C "/orders/."},
        {false, "GET", C "//orders/1"},
        {false, "GET", C "/orders/a@b"},
        {false, "GET", C "/orders/a%2e"},
        {false, "GET", C "/orders/a?x=1"},
        {false, "GET", C "/orders/a#x"},
        {false, "GET", C "/orders/a\\b"},
        {false, "GET", C "/orders/a b"},
        {false, "GET", C "/orders/a\r\nX: y"},
        {false, "GET", C "/orders/a\x7f"},
        {false, "GET", C "/orders/a\xc3\xa9"},
        {false, "POST", "https://evil.test" C "/carts"},
        {false, "POST", "//evil.test" C "/carts"},
        {false, "POST", "tax/verify-address"},
        {false, "POST", "*"},
        {false, "POST", ""},
        {false, "POST", "/"},
        {false, "GET", "/"},
    };
    struct spw_conf_account a = account();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if ((spw_profile_route(taxcloud(), &a, cases[i].method, cases[i].path) != NULL) != cases[i].allowed)
            fail_msg("%s %s: wanted %d", cases[i].method, cases[i].path, cases[i].allowed);
    assert_null(spw_profile_route(NULL, &a, "GET", C "/ping"));
    assert_null(spw_profile_route(taxcloud(), &a, "GET", NULL));
    a.connection[0] = 0; /* an account without connection matches no path that needs one */
    assert_null(spw_profile_route(taxcloud(), &a, "GET", "/tax/connections//ping"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_build_default_url),
        cmocka_unit_test(test_price_times_quantity),
        cmocka_unit_test(test_build_refuses),
        cmocka_unit_test(test_ping),
        cmocka_unit_test(test_read_good),
        cmocka_unit_test(test_read_without_shipping),
        cmocka_unit_test(test_read_broken),
        cmocka_unit_test(test_read_bytes),
        cmocka_unit_test(test_read_overflow),
        cmocka_unit_test(test_read_status),
        cmocka_unit_test(test_allow_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
