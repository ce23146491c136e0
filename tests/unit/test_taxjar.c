/* test_taxjar.c: TaxJar's calls as they go out, its answers as they are read, its own requests at the door. */
#include "tests/unit/profile_kit.h"

#define BEARER "Authorization: Bearer k-123-secret"

static void test_build(void **state)
{
    (void)state;
    struct spw_conf_account a = kit_account("taxjar");
    struct spw_quote_request q = kit_quote();
    struct spw_call call;
    struct spw_error err;
    q.exemption = "resale";
    assert_int_equal(kit_profile("taxjar")->build(&q, &a, &kit_credential, "d-1", &call, &err),
                     SPW_STATUS_OK);
    kit_check_call("taxjar", &a, &call, BEARER);
    assert_string_equal(call.url, "https://example.test/v2/taxes");
    assert_string_equal(
        call.body,
        "{\"line_items\":[{\"id\":\"1\",\"quantity\":2,\"unit_price\":19.99},"
        "{\"id\":\"2\",\"quantity\":1,\"unit_price\":25.00,\"product_tax_code\":\"20010\"}],"
        "\"from_country\":\"US\",\"from_zip\":\"75201\",\"from_state\":\"TX\",\"from_city\":\"Dallas\","
        "\"from_street\":\"1 Main St\",\"to_country\":\"US\",\"to_zip\":\"98110\",\"to_state\":\"WA\","
        "\"to_city\":\"Bainbridge Island\",\"to_street\":\"100 Ravine Ln\",\"customer_id\":\"c_7\","
        "\"exemption_type\":\"wholesale\",\"shipping\":7.95,\"amount\":64.98}");
    spw_call_clean_up(&call);
    /* Quantities are whole at TaxJar, prices are cents: else one piece at the extended amount. */
    const struct spw_line odd[] = {{.id = "a", .quantity_micro = 1500000, .amount_minor = 1500},
                                   {.id = "b", .quantity_micro = 3000000, .amount_minor = 1000}};
    q.lines = odd;
    q.ship_from = (struct spw_address){0};
    assert_int_equal(kit_profile("taxjar")->build(&q, &a, &kit_credential, "d-1", &call, &err),
                     SPW_STATUS_OK);
    assert_non_null(strstr(call.body, "{\"id\":\"1\",\"quantity\":1,\"unit_price\":15.00}"));
    assert_non_null(strstr(call.body, "{\"id\":\"2\",\"quantity\":1,\"unit_price\":10.00}"));
    assert_null(strstr(call.body, "from_"));
    spw_call_clean_up(&call);
    q.ship_to.zip = NULL;
    assert_int_equal(kit_profile("taxjar")->build(&q, &a, &kit_credential, "d", &call, &err),
                     SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "ship_to"));
    assert_int_equal(kit_profile("taxjar")->rates(&a, &kit_credential, "2025-11-28", &call, &err),
                     SPW_STATUS_OK);
    kit_check_call("taxjar", &a, &call, BEARER);
    assert_string_equal(call.url, "https://example.test/v2/summary_rates");
    spw_call_clean_up(&call);
    assert_int_equal(kit_profile("taxjar")->ping(&a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxjar", &a, &call, BEARER);
    spw_call_clean_up(&call);
    assert_false(kit_profile("taxjar")->takes_date);
}

#define PART(id, taxable, tax)                                                                               \
    "{\"id\":\"" id "\",\"taxable_amount\":" #taxable ",\"tax_collectable\":" #tax                           \
    ",\"combined_tax_rate\":0.092}"
#define SHIPPING                                                                                             \
    "\"shipping\":{\"taxable_amount\":7.95,\"tax_collectable\":0.73,\"combined_tax_rate\":0.092},"
#define TAX(total, lines)                                                                                    \
    "{\"tax\":{\"order_total_amount\":72.93,\"amount_to_collect\":" #total                                   \
    ",\"has_nexus\":true,\"breakdown\":{" SHIPPING                                                           \
    "\"state_tax_rate\":0.065,\"state_tax_collectable\":4.75,\"county_tax_rate\":0.0,\"county_tax_"          \
    "collectable\":0.0,"                                                                                     \
    "\"city_tax_rate\":0.027,\"city_tax_collectable\":1.97,\"line_items\":[" lines "]}}}"
#define FIRST  PART("1", 39.98, 3.68)
#define SECOND PART("2", 25.0, 2.3)

static void test_read(void **state)
{
    (void)state;
    struct spw_quote_request q = kit_quote();
    struct spw_answer a = kit_read("taxjar", &q, 200, "", TAX(6.71, SECOND "," FIRST));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.tax_minor, 671);
    assert_int_equal(a.lines[0].tax_minor, 368);
    assert_int_equal(a.lines[1].tax_minor, 230);
    assert_int_equal(a.lines[2].tax_minor, 73);
    assert_int_equal(a.rate_ppb, 92000000);
    assert_int_equal(a.jurisdictions_count, 2);
    assert_string_equal(a.jurisdictions[1].level, "city");
    assert_int_equal(a.jurisdictions[1].tax_minor, 197);
    /* No nexus: zeros, and no breakdown. */
    a = kit_read("taxjar", &q, 200, "",
                 "{\"tax\":{\"order_total_amount\":72.93,\"amount_to_collect\":0,\"has_nexus\":false}}");
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.tax_minor, 0);
    assert_int_equal(a.lines[0].taxable_minor, 0);
}

static void test_read_broken(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "[]",
        "{}",
        "{\"tax\":null}",
        "{\"tax\":{}}",
        "{\"tax\":{\"amount_to_collect\":6.71}}", /* a tax without its lines */
        TAX(6.71, FIRST),
        TAX(6.71, FIRST "," SECOND "," SECOND),
        TAX(6.71, FIRST "," PART("3", 25.0, 2.3)),
        TAX(6.71, FIRST "," PART("x", 25.0, 2.3)),
        TAX(6.71, FIRST "," PART("2", 25.0, -2.3)),
        TAX(6.71, FIRST "," PART("2", 25.01, 2.3)),
        TAX(67.10, FIRST "," SECOND),
        TAX(-6.71, FIRST "," SECOND),
        TAX("6.71", FIRST "," SECOND),
        TAX(NaN, FIRST "," SECOND),
        TAX(1e30, FIRST "," SECOND),
        "{\"tax\":{\"order_total_amount\":1.0,\"amount_to_collect\":0}}",
    };
    struct spw_quote_request q = kit_quote();
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct spw_answer a = kit_read("taxjar", &q, 200, "", bodies[i]);
        if (a.kind != SPW_ANSWER_BROKEN || !a.detail[0] || a.tax_minor)
            fail_msg("kind %d, tax %lld for %s", a.kind, (long long)a.tax_minor, bodies[i]);
    }
}

static void test_read_status(void **state)
{
    (void)state;
    static const char envelope[] =
        "{\"status\":400,\"error\":\"Bad Request\",\"detail\":\"to_zip is not within to_state\"}";
    static const struct {
        uint32_t status;
        const char *body;
        enum spw_answer_kind kind;
    } cases[] = {
        {400, envelope, SPW_ANSWER_REJECTED},
        {406, envelope, SPW_ANSWER_REJECTED},
        {422, envelope, SPW_ANSWER_REJECTED},
        {421, envelope, SPW_ANSWER_ERROR},
        {400, "{\"error\":\"x\",\"detail\":[\"a\",\"b\"]}", SPW_ANSWER_REJECTED},
        {400, "nope", SPW_ANSWER_ERROR},
        {401, envelope, SPW_ANSWER_ERROR},
        {403, envelope, SPW_ANSWER_ERROR},
        {404, envelope, SPW_ANSWER_ERROR},
        {410, envelope, SPW_ANSWER_ERROR},
        {500, envelope, SPW_ANSWER_ERROR},
        {503, "", SPW_ANSWER_ERROR},
        {429, envelope, SPW_ANSWER_THROTTLED},
        {429, "{\"status\":429,\"error\":\"Too Many Requests}",
         SPW_ANSWER_THROTTLED}, /* as it once was: no JSON */
    };
    struct spw_quote_request q = kit_quote();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_answer a = kit_read("taxjar", &q, cases[i].status, "", cases[i].body);
        struct spw_answer j = kit_judge("taxjar", SPW_ROUTE_CALCULATE, cases[i].status, "", cases[i].body);
        if (a.kind != cases[i].kind || j.kind != cases[i].kind)
            fail_msg("case %zu: kind %d, judged %d", i, a.kind, j.kind);
        assert_true((a.error_json != NULL) == (a.kind == SPW_ANSWER_REJECTED));
        spw_answer_clean_up(&a);
    }
    assert_int_equal(
        kit_judge("taxjar", SPW_ROUTE_CALCULATE, 200, "", "{\"tax\":{\"amount_to_collect\":1}}").kind,
        SPW_ANSWER_OK);
    assert_int_equal(kit_judge("taxjar", SPW_ROUTE_CALCULATE, 200, "", "{\"rate\":{}}").kind,
                     SPW_ANSWER_BROKEN);
    assert_int_equal(kit_judge("taxjar", SPW_ROUTE_READ, 404, "", envelope).kind, SPW_ANSWER_REJECTED);
}

#define TO "\"to_country\":\"US\",\"to_zip\":\"98110\",\"to_state\":\"WA\",\"to_city\":\"Bainbridge Island\""

static void test_native(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxjar");
    struct spw_conf_account a = kit_account("taxjar");
    struct spw_native_request r = kit_native(
        NULL, "/v2/taxes",
        "{" TO ",\"from_zip\":\"75201\",\"from_state\":\"TX\",\"shipping\":\"7.95\",\"amount\":1.0,"
        "\"exemption_type\":\"non_exempt\",\"line_items\":[{\"id\":\"L1\",\"quantity\":2,\"unit_price\":\"20."
        "49\","
        "\"discount\":1.0,\"product_tax_code\":\"20010\"},{\"id\":2,\"unit_price\":25}]}");
    struct spw_native_quote n;
    struct spw_error err = {0};
    if (p->native_quote(&r, &a, &n, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n.quote.line_count, 2);
    assert_string_equal(n.quote.lines[0].id, "L1");
    assert_int_equal(n.quote.lines[0].amount_minor, 3998);
    assert_string_equal(n.quote.lines[0].tax_code, "20010");
    assert_string_equal(n.quote.lines[1].id, "2");
    assert_int_equal(n.quote.lines[1].amount_minor, 2500);
    assert_int_equal(n.quote.shipping_minor, 795);
    assert_string_equal(n.quote.ship_from.zip, "75201");
    assert_null(n.quote.exemption);
    assert_false(n.records);
    const struct spw_line_tax taxes[] = {{3998, 368}, {2500, 230}, {795, 73}};
    struct spw_native_fallback f = kit_fallback(taxes, 671);
    struct spw_native_answer answer;
    assert_int_equal(p->native_fallback(&r, &n, &f, &answer, &err), SPW_STATUS_OK);
    assert_int_equal(answer.status, 200);
    json_t *root = kit_body(&answer);
    assert_int_equal(json_object_size(root), 1); /* one SDK takes a second member for a broken answer */
    kit_equal(root, "tax/amount_to_collect", "6.71");
    kit_equal(root, "tax/order_total_amount", "72.93");
    kit_equal(root, "tax/rate", "0.092");
    kit_equal(root, "tax/has_nexus", "true");
    kit_equal(root, "tax/freight_taxable", "true");
    kit_equal(root, "tax/breakdown/line_items/0/id", "\"L1\"");
    kit_equal(root, "tax/breakdown/line_items/0/tax_collectable", "3.68");
    kit_equal(root, "tax/breakdown/line_items/0/state_amount", "2.6");
    kit_equal(root, "tax/breakdown/line_items/0/city_amount", "1.08");
    kit_equal(root, "tax/breakdown/line_items/1/id", "\"2\"");
    kit_equal(root, "tax/breakdown/shipping/tax_collectable", "0.73");
    kit_equal(root, "tax/spillway/quote_id", "\"sq_0123456789abcdef0123456789abcdef\"");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
    spw_native_quote_clean_up(&n);
    r = kit_native(NULL, "/v2/taxes", "{" TO ",\"amount\":\"15.005\",\"exemption_type\":\"wholesale\"}");
    assert_int_equal(p->native_quote(&r, &a, &n, &err), SPW_STATUS_OK);
    assert_int_equal(n.quote.line_count, 1);
    assert_int_equal(n.quote.lines[0].amount_minor, 1501); /* half up to the cent */
    assert_string_equal(n.quote.exemption, "wholesale");
    spw_native_quote_clean_up(&n);
}

static void test_native_no_quote(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[]", "no JSON object"},
        {"{\"amount\":1}", "to"},
        {"{\"to_country\":\"CA\",\"to_zip\":\"V6G3E2\",\"to_state\":\"BC\",\"amount\":1}", "US places"},
        {"{\"to_zip\":\"98110\",\"amount\":1}", "state"},
        {"{" TO "}", "amount"},
        {"{" TO ",\"amount\":\"1,50\"}", "amount"},
        {"{" TO ",\"amount\":1,\"shipping\":\"x\"}", "shipping"},
        {"{" TO ",\"line_items\":[{\"unit_price\":1e40}]}", "line_items[0]"},
        {"{" TO ",\"line_items\":[{\"unit_price\":1,\"quantity\":-2}]}", "line_items[0]"},
        {"{" TO ",\"line_items\":[{\"unit_price\":1,\"discount\":\"?\"}]}", "line_items[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        kit_no_quote("taxjar", "/v2/taxes", cases[i][0], cases[i][1]);
}

static void test_document_token_error(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxjar");
    static const char *const cases[][3] = {
        {"/v2/transactions/orders", "{\"transaction_id\":\"o-1\"}", "o-1"},
        {"/v2/transactions/orders/o-2", "{\"transaction_id\":\"o-1\"}", "o-2"},
        {"/v2/transactions/refunds", "{\"transaction_id\":\"r-1\",\"transaction_reference_id\":\"o-3\"}",
         "o-3"},
        {"/v2/transactions/refunds/r-2", "", "r-2"},
    };
    char out[SPW_CALLER_ID_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_native_request r = kit_native(NULL, cases[i][0], cases[i][1]);
        assert_true(p->native_document(&r, out));
        assert_string_equal(out, cases[i][2]);
    }
    struct spw_native_request r = kit_native(NULL, "/v2/taxes", "{}");
    assert_false(p->native_document(&r, out));
    char token[32];
    assert_true(p->token("Authorization: Token token=\"t-1\"\r\n", token, sizeof token));
    assert_string_equal(token, "t-1");
    assert_false(p->token("Authorization: Token token=\"t-1\r\n", token, sizeof token));
    struct spw_native_answer answer;
    struct spw_error err;
    assert_int_equal(p->native_error(429, "wait", &answer, &err), SPW_STATUS_OK);
    assert_string_equal(answer.body, "{\"status\":429,\"error\":\"Too Many Requests\",\"detail\":\"wait\"}");
    spw_native_answer_clean_up(&answer);
}

static void test_book(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("taxjar");
    struct spw_conf_account a = kit_account("taxjar");
    struct spw_quote_request q = kit_quote();
    struct spw_booking b = kit_booking(&q, 672);
    struct spw_call call;
    struct spw_error err;
    assert_int_equal(p->book(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxjar", &a, &call, BEARER);
    json_error_t error;
    json_t *root = json_loads(call.body, 0, &error);
    kit_equal(root, "transaction_id", "\"spw-100048213\"");
    kit_equal(root, "transaction_date", "\"2025-11-27\"");
    kit_equal(root, "amount", "72.93");
    kit_equal(root, "sales_tax", "6.72");
    kit_equal(root, "line_items/0/sales_tax",
              "3.69"); /* what the customer paid beyond the lines' sum is in the largest */
    kit_equal(root, "line_items/1/sales_tax", "2.3");
    json_decref(root);
    spw_call_clean_up(&call);
    assert_int_equal(p->book_back(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("taxjar", &a, &call, BEARER);
    assert_string_equal(call.url, "https://example.test/v2/transactions/orders/spw-100048213");
    spw_call_clean_up(&call);
    static const struct kit_booked cases[] = {
        {false, 201, "{\"order\":{\"transaction_id\":\"x\",\"sales_tax\":\"6.72\"}}", SPW_BOOKED},
        {true, 200, "{\"order\":{\"transaction_id\":\"x\",\"sales_tax\":6.72}}", SPW_BOOKED},
        {true, 404, "{\"status\":404,\"error\":\"Not Found\",\"detail\":\"Resource can not be found\"}",
         SPW_BOOKED_MISSING},
        {false, 422,
         "{\"status\":422,\"error\":\"Unprocessable Entity\",\"detail\":\"Provider tranx already imported\"}",
         SPW_BOOKED_ALREADY},
        {false, 422, "{\"status\":422,\"error\":\"Unprocessable Entity\",\"detail\":\"bad date\"}",
         SPW_BOOKED_REJECTED},
        {false, 400, "{\"status\":400,\"error\":\"Bad Request\",\"detail\":\"no zip\"}", SPW_BOOKED_REJECTED},
        {false, 429, "busy", SPW_BOOKED_THROTTLED},
        {false, 500, "", SPW_BOOKED_FAILED},
        {false, 401, "", SPW_BOOKED_FAILED},
        {false, 200, "{}", SPW_BOOKED_FAILED},
    };
    kit_check_booked(p, &b, cases, sizeof cases / sizeof cases[0], 672);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_broken),
        cmocka_unit_test(test_read_status),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_native_no_quote),
        cmocka_unit_test(test_document_token_error),
        cmocka_unit_test(test_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
