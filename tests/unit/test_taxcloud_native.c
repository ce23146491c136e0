/* test_taxcloud_native.c: TaxCloud's own requests at the door, several carts in one call, orders for the books. */
#include "tests/unit/profile_kit.h"

#define KEY_LINE "X-API-KEY: k-123-secret"
#define CARTS    "/tax/connections/c-1/carts"

#define CART(more, lines)                                                                                    \
    "{\"items\":[{" more                                                                                     \
    "\"customerId\":\"c_7\",\"currency\":{\"currencyCode\":\"USD\"},\"origin\":{\"state\":\"TX\","           \
    "\"zip\":\"75201\"},\"destination\":{\"line1\":\"100 Ravine Ln\",\"city\":\"Bainbridge "                 \
    "Island\",\"state\":\"WA\",\"zip\":"                                                                     \
    "\"98110-1234\"},\"lineItems\":[" lines "]}]}"
#define LINE(index, id, price, quantity, tic)                                                                \
    "{\"index\":" #index ",\"itemId\":\"" id "\",\"price\":" #price ",\"quantity\":" #quantity               \
    ",\"tic\":" #tic "}"

static void test_native(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxcloud");
    struct spw_conf_account a = kit_account("taxcloud");
    struct spw_native_request r =
        kit_native(NULL, CARTS,
                   CART("", LINE(0, "sku-1", 19.99, 2, 0) "," LINE(1, "ship", 7.95, 1, 11010) "," LINE(
                                2, "sku-2", 10.75, 1.5, 20010)));
    struct spw_native_quote n;
    struct spw_error err = {0};
    if (p->native_quote(&r, &a, &n, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n.quote.line_count, 2);
    assert_int_equal(n.quote.lines[0].amount_minor, 3998);
    assert_null(n.quote.lines[0].tax_code);
    assert_string_equal(n.quote.lines[1].id, "sku-2");
    assert_int_equal(n.quote.lines[1].amount_minor, 1613); /* 16.125, half up */
    assert_int_equal(n.quote.lines[1].quantity_micro, 1500000);
    assert_string_equal(n.quote.lines[1].tax_code, "20010");
    assert_int_equal(n.quote.shipping_minor, 795);
    assert_string_equal(n.quote.ship_to.zip, "98110-1234");
    assert_string_equal(n.document, "");
    const struct spw_line_tax taxes[] = {{3998, 368}, {1613, 148}, {795, 73}};
    struct spw_native_fallback f = kit_fallback(taxes, 589);
    struct spw_native_answer answer;
    assert_int_equal(p->native_fallback(&r, &n, &f, &answer, &err), SPW_STATUS_OK);
    json_t *root = kit_body(&answer);
    kit_equal(root, "connectionId", "\"c-1\"");
    kit_equal(root, "transactionDate", "\"2025-11-28T12:00:00Z\"");
    kit_equal(root, "items/0/cartId", "\"sq_0123456789abcdef0123456789abcdef\"");
    kit_equal(root, "items/0/lineItems/0/tax", "{\"amount\":3.68,\"rate\":0.092}");
    kit_equal(root, "items/0/lineItems/1/tax",
              "{\"amount\":0.73,\"rate\":0.092}"); /* in the request's order */
    kit_equal(root, "items/0/lineItems/2/tax", "{\"amount\":1.48,\"rate\":0.092}");
    kit_equal(root, "spillway/type", "\"rate-limit-proactive\"");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
    spw_native_quote_clean_up(&n);
    r = kit_native(NULL, CARTS,
                   CART("\"cartId\":\"cart-7\",\"exemption\":{\"isExempt\":true},", LINE(0, "a", 1, 1, 0)));
    assert_int_equal(p->native_quote(&r, &a, &n, &err), SPW_STATUS_OK);
    assert_string_equal(n.document, "cart-7");
    assert_string_equal(n.quote.exemption, "exempt");
    spw_native_quote_clean_up(&n);
}

static void test_native_no_quote(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "one cart"},
        {"{\"items\":[{},{}]}", "one cart"},
        {CART("", ""), "0 lines"},
        {CART("", LINE(0, "a", -1, 1, 0)), "lineItems[0]"},
        {CART("", LINE(0, "a", 1, 0, 0)), "lineItems[0]"},
        {CART("", LINE(0, "a", 1e30, 1, 0)), "lineItems[0]"},
        {CART("", LINE(0, "a", 1, 1, "x")), "lineItems[0].tic"},
        {"{\"items\":[{\"origin\":{\"state\":\"TX\",\"zip\":\"75201\"},\"lineItems\":[" LINE(0, "a", 1, 1,
                                                                                             0) "]}]}",
         "destination"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        kit_no_quote("taxcloud", CARTS, cases[i][0], cases[i][1]);
}

static void test_document_token_error(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxcloud");
    static const char *const cases[][3] = {
        {"/tax/connections/c-1/carts/orders", "{\"cartId\":\"sq_1\",\"orderId\":\"o-1\"}", "sq_1"},
        {"/tax/connections/c-1/orders", "{\"orderId\":\"o-1\"}", "o-1"},
        {"/tax/connections/c-1/orders/o-2", "{}", "o-2"},
        {"/tax/connections/c-1/orders/refunds/o-3", "{}", "o-3"},
        {"/tax/connections/c-1/carts/cart-4", "", "cart-4"},
    };
    char out[SPW_CALLER_ID_BYTES], token[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_native_request r = kit_native(NULL, cases[i][0], cases[i][1]);
        assert_true(p->native_document(&r, out));
        assert_string_equal(out, cases[i][2]);
    }
    assert_true(p->token("x-api-key: t-1\r\n", token, sizeof token));
    assert_string_equal(token, "t-1");
    assert_true(p->token("Authorization: Bearer t-2\r\n", token, sizeof token));
    assert_string_equal(token, "t-2");
    assert_false(p->token("X-API-KEY:\r\n", token, sizeof token));
    struct spw_native_answer answer;
    struct spw_error err;
    assert_int_equal(p->native_error(429, "wait", &answer, &err), SPW_STATUS_OK);
    assert_string_equal(answer.content_type, "application/problem+json");
    json_t *root = kit_body(&answer);
    kit_equal(root, "title", "\"Too Many Requests\"");
    kit_equal(root, "detail", "\"wait\"");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
}

#define TAXED(index, amount) "{\"index\":" #index ",\"tax\":{\"amount\":" #amount ",\"rate\":0.092}}"
#define ALL                  TAXED(0, 3.68) "," TAXED(1, 2.30) "," TAXED(2, 0.73)

static void test_batch(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxcloud");
    struct spw_conf_account a = kit_account("taxcloud");
    struct spw_quote_request one = kit_quote(), two = kit_quote();
    const struct spw_quote_request *quotes[] = {&one, &two};
    const char *const keys[] = {"sq_1", "sq_2"};
    struct spw_call call;
    struct spw_error err;
    static struct spw_answer out[2];
    assert_true(p->batch_max_count >= 2);
    assert_int_equal(p->build_batch(quotes, 2, &a, &kit_credential, keys, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxcloud", &a, &call, KEY_LINE);
    json_error_t error;
    json_t *root = json_loads(call.body, 0, &error);
    kit_equal(root, "items/1/cartId", "\"sq_2\"");
    kit_equal(root, "transactionDate", "\"2025-11-28T12:00:00Z\"");
    json_decref(root);
    spw_call_clean_up(&call);
    two.date = "2025-11-27";
    assert_int_equal(p->build_batch(quotes, 2, &a, &kit_credential, keys, &call, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "one date"));
    assert_null(call.url);

    /* Carts are matched by id, whatever their order. */
    const char *swapped = "{\"items\":[{\"cartId\":\"sq_2\",\"lineItems\":[" TAXED(0, 1.00) "," TAXED(
        1, 2.30) "," TAXED(2, 0.73) "]},{\"cartId\":\"sq_1\",\"lineItems\":[" ALL "]}]}";
    p->read_batch(quotes, 2, keys, 200, "", 0, swapped, strlen(swapped), out);
    assert_int_equal(out[0].kind, SPW_ANSWER_OK);
    assert_int_equal(out[0].tax_minor, 671);
    assert_int_equal(out[1].tax_minor, 403);
    const char *stranger = "{\"items\":[{\"cartId\":\"sq_9\",\"lineItems\":[" ALL
                           "]},{\"cartId\":\"sq_2\",\"lineItems\":[" ALL "]}]}";
    p->read_batch(quotes, 2, keys, 200, "", 0, stranger, strlen(stranger), out);
    assert_int_equal(out[0].kind, SPW_ANSWER_BROKEN);
    assert_int_equal(out[1].kind, SPW_ANSWER_OK);
    const char *fewer = "{\"items\":[{\"cartId\":\"sq_1\",\"lineItems\":[" ALL "]}]}";
    p->read_batch(quotes, 2, keys, 200, "", 0, fewer, strlen(fewer), out);
    assert_int_equal(out[0].kind, SPW_ANSWER_BROKEN);
    assert_int_equal(out[1].kind, SPW_ANSWER_BROKEN);

    /* One cart's fault does not condemn the other. */
    const char *problem = "{\"title\":\"Unprocessable Entity\",\"status\":422,\"errors\":[{\"location\":"
                          "\"body.items[1].destination.zip\",\"message\":\"m\"}]}";
    p->read_batch(quotes, 2, keys, 422, "", 0, problem, strlen(problem), out);
    assert_int_equal(out[0].kind, SPW_ANSWER_ERROR);
    assert_non_null(strstr(out[0].detail, "on its own"));
    assert_int_equal(out[1].kind, SPW_ANSWER_REJECTED);
    spw_answer_clean_up(&out[1]);
    p->read_batch(quotes, 2, keys, 429, "", 0, "", 0, out);
    assert_int_equal(out[0].kind, SPW_ANSWER_THROTTLED);
    assert_int_equal(out[1].kind, SPW_ANSWER_THROTTLED);
    p->read_batch(quotes, 2, keys, 503, "", 0, "", 0, out);
    assert_int_equal(out[1].kind, SPW_ANSWER_ERROR);
}

static void test_book(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxcloud");
    struct spw_conf_account a = kit_account("taxcloud");
    struct spw_quote_request q = kit_quote();
    struct spw_booking b = kit_booking(&q, 671);
    struct spw_call call;
    struct spw_error err;
    assert_int_equal(p->book(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxcloud", &a, &call, KEY_LINE);
    assert_string_equal(call.url, "https://example.test/tax/connections/c-1/orders");
    json_error_t error;
    json_t *root = json_loads(call.body, 0, &error);
    kit_equal(root, "orderId", "\"spw-100048213\"");
    kit_equal(root, "completedDate", "\"2025-11-27T12:00:00Z\"");
    kit_equal(root, "lineItems/0/tax/amount", "3.68");
    kit_equal(root, "lineItems/2/tax/amount", "0.73");
    json_decref(root);
    spw_call_clean_up(&call);
    assert_int_equal(p->book_back(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxcloud", &a, &call, KEY_LINE);
    assert_string_equal(call.url, "https://example.test/tax/connections/c-1/orders/spw-100048213");
    spw_call_clean_up(&call);
    static const struct kit_booked cases[] = {
        {false, 201, "{\"lineItems\":[" ALL "]}", SPW_BOOKED},
        {true, 200, "{\"lineItems\":[" ALL "]}", SPW_BOOKED},
        {true, 404, "{\"title\":\"Not Found\",\"status\":404}", SPW_BOOKED_MISSING},
        {false, 404, "{\"title\":\"Not Found\",\"status\":404}", SPW_BOOKED_FAILED},
        {false, 400, "{\"title\":\"Bad Request\",\"detail\":\"an order with this id exists already\"}",
         SPW_BOOKED_ALREADY},
        {false, 400, "{\"title\":\"Bad Request\",\"detail\":\"no\"}", SPW_BOOKED_REJECTED},
        {false, 422, "{\"title\":\"Unprocessable Entity\",\"detail\":\"no\"}", SPW_BOOKED_REJECTED},
        {false, 429, "", SPW_BOOKED_THROTTLED},
        {false, 502, "<html>", SPW_BOOKED_FAILED},
        {false, 200, "<html>", SPW_BOOKED_FAILED},
    };
    kit_check_booked(p, &b, cases, sizeof cases / sizeof cases[0], 671);
}

static void test_judge(void **state)
{
    (void)state;
    static const char whole[] = "{\"items\":[{\"lineItems\":[{\"tax\":{\"amount\":1.5}}]}]}";
    static const char *const parts[] = {"{\"items\":[{}]}", "{\"items\":[{\"lineItems\":[]}]}",
                                        "{\"items\":[{\"lineItems\":[{\"tax\":null}]}]}",
                                        "{\"items\":[{\"lineItems\":[{\"tax\":{\"amount\":\"1.5\"}}]}]}"};
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_CALCULATE, 200, "", whole).kind, SPW_ANSWER_OK);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_CALCULATE, 200, "", parts[i]).kind,
                         SPW_ANSWER_BROKEN);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_CALCULATE, 200, "", "{\"items\":[]}").kind,
                     SPW_ANSWER_BROKEN);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_CALCULATE, 200, "", "<html>").kind, SPW_ANSWER_BROKEN);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_RECORD, 201, "", "").kind, SPW_ANSWER_OK);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_READ, 404, "", "{\"title\":\"Not Found\"}").kind,
                     SPW_ANSWER_REJECTED);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_CALCULATE, 404, "", "{\"title\":\"Not Found\"}").kind,
                     SPW_ANSWER_ERROR);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_RECORD, 429, "", "").kind, SPW_ANSWER_THROTTLED);
    assert_int_equal(kit_judge("taxcloud", SPW_ROUTE_RECORD, 500, "", "").kind, SPW_ANSWER_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_native_no_quote),
        cmocka_unit_test(test_document_token_error),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_book),
        cmocka_unit_test(test_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
