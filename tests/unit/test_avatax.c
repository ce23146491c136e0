/* test_avatax.c: AvaTax's calls as they go out, its answers as they are read, its own requests at the door. */
#include "tests/unit/profile_kit.h"

#define BEARER "Authorization: Bearer k-123-secret"
#define CREATE "/api/v2/transactions/create"

static void test_build(void **state)
{
    (void)state;
    struct spw_conf_account a = kit_account("avatax");
    struct spw_quote_request q = kit_quote();
    struct spw_call call;
    struct spw_error err;
    const struct spw_credential basic = {.user = "2000012345", .secret = "k-123-secret"};
    q.exemption = "resale";
    assert_int_equal(kit_profile("avatax")->build(&q, &a, &basic, "d-1", &call, &err), SPW_STATUS_OK);
    assert_string_equal(call.url, "https://example.test" CREATE "?$include=Lines,Details,Summary");
    kit_check_call("avatax", &a, &call, "Authorization: Basic MjAwMDAxMjM0NTprLTEyMy1zZWNyZXQ=");
    assert_string_equal(
        call.body,
        "{\"type\":\"SalesOrder\",\"companyCode\":\"ACME-US\",\"date\":\"2025-11-28\",\"customerCode\":\"c_"
        "7\","
        "\"currencyCode\":\"USD\",\"exemptionNo\":\"resale\","
        "\"lines\":[{\"number\":\"1\",\"quantity\":2,\"amount\":39.98,\"itemCode\":\"sku-1\"},"
        "{\"number\":\"2\",\"quantity\":1,\"amount\":25.00,\"itemCode\":\"sku-2\",\"taxCode\":\"20010\"},"
        "{\"number\":\"3\",\"quantity\":1,\"amount\":7.95,\"itemCode\":\"shipping\",\"taxCode\":\"FR020100\"}"
        "],"
        "\"addresses\":{\"shipFrom\":{\"line1\":\"1 Main "
        "St\",\"city\":\"Dallas\",\"region\":\"TX\",\"country\":"
        "\"US\",\"postalCode\":\"75201\"},\"shipTo\":{\"line1\":\"100 Ravine Ln\",\"city\":\"Bainbridge "
        "Island\","
        "\"region\":\"WA\",\"country\":\"US\",\"postalCode\":\"98110\"}}}");
    spw_call_clean_up(&call);
    assert_int_equal(kit_profile("avatax")->ping(&a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("avatax", &a, &call, BEARER);
    assert_string_equal(call.url, "https://example.test/api/v2/utilities/ping");
    spw_call_clean_up(&call);
    assert_int_equal(kit_profile("avatax")->rates(&a, &kit_credential, "2025-11-28", &call, &err),
                     SPW_STATUS_OK);
    kit_check_call("avatax", &a, &call, BEARER);
    assert_string_equal(call.url, "https://example.test/api/v2/taxratesbyzipcode/download/2025-11-28");
    spw_call_clean_up(&call);
}

static void test_build_refused(void **state)
{
    (void)state;
    struct spw_conf_account a = kit_account("avatax");
    struct spw_call call;
    struct spw_error err;
    struct spw_quote_request q = kit_quote();
    q.ship_to = (struct spw_address){.state = "WA"};
    assert_int_equal(kit_profile("avatax")->build(&q, &a, &kit_credential, "d", &call, &err),
                     SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "ship_to"));
    q = kit_quote();
    q.currency = "JPY";
    assert_int_equal(kit_profile("avatax")->build(&q, &a, &kit_credential, "d", &call, &err),
                     SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "currency"));
    q = kit_quote();
    q.customer_id = "\xff";
    assert_int_equal(kit_profile("avatax")->build(&q, &a, &kit_credential, "d", &call, &err),
                     SPW_STATUS_INVALID);
    a.company[0] = 0;
    q = kit_quote();
    assert_int_equal(kit_profile("avatax")->build(&q, &a, &kit_credential, "d", &call, &err),
                     SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "accounts.main.company"));
    assert_null(call.url);
}

#define DETAIL(type, rate, tax)                                                                              \
    "{\"jurisType\":\"" type "\",\"rate\":" #rate ",\"tax\":" #tax ",\"taxableAmount\":1.0}"
#define LINE(number, taxable, tax, details)                                                                  \
    "{\"lineNumber\":\"" number "\",\"taxableAmount\":" #taxable ",\"tax\":" #tax ",\"details\":[" details   \
    "]}"
#define FIRST  LINE("1", 39.98, 3.68, DETAIL("State", 0.065, 2.60) "," DETAIL("City", 0.027, 1.08))
#define SECOND LINE("2", 25.0, 2.31, DETAIL("State", 0.065, 1.63) "," DETAIL("City", 0.027, 0.68))
#define THIRD  LINE("3", 7.95, 0.73, DETAIL("State", 0.065, 0.52) "," DETAIL("City", 0.027, 0.21))
#define WHOLE(total, lines)                                                                                  \
    "{\"code\":\"x\",\"totalAmount\":72.93,\"totalTax\":" #total ",\"lines\":[" lines "]}"

static void test_read(void **state)
{
    (void)state;
    struct spw_quote_request q = kit_quote();
    struct spw_answer a = kit_read("avatax", &q, 201, "", WHOLE(6.72, THIRD "," FIRST "," SECOND));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.tax_minor, 672);
    assert_int_equal(a.lines_count, 3);
    assert_int_equal(a.lines[0].tax_minor, 368);
    assert_int_equal(a.lines[0].taxable_minor, 3998);
    assert_int_equal(a.lines[1].tax_minor, 231);
    assert_int_equal(a.lines[2].tax_minor, 73);
    assert_int_equal(a.rate_ppb, 92000000);
    assert_int_equal(a.jurisdictions_count, 2);
    assert_string_equal(a.jurisdictions[0].level, "state");
    assert_int_equal(a.jurisdictions[0].rate_ppb, 65000000);
    assert_int_equal(a.jurisdictions[0].tax_minor, 475);
    assert_string_equal(a.jurisdictions[1].level, "city");
    assert_int_equal(a.jurisdictions[1].tax_minor, 197);
    spw_answer_clean_up(&a);
    /* A cent of rounding between the lines and the document is AvaTax's; more is not. */
    a = kit_read("avatax", &q, 200, "", WHOLE(6.73, FIRST "," SECOND "," THIRD));
    assert_int_equal(a.kind, SPW_ANSWER_OK);
    assert_int_equal(a.tax_minor, 673);
    assert_int_equal(a.lines[0].tax_minor + a.lines[1].tax_minor + a.lines[2].tax_minor, 673);
    spw_answer_clean_up(&a);
}

static void test_read_broken(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "[]",
        "{}",
        WHOLE(6.72, FIRST "," SECOND),                     /* a line is missing */
        WHOLE(6.72, FIRST "," SECOND "," THIRD "," THIRD), /* twice */
        WHOLE(6.75, FIRST "," SECOND "," THIRD),           /* the sum is another */
        WHOLE(NaN, FIRST "," SECOND "," THIRD),
        WHOLE("6.72", FIRST "," SECOND "," THIRD),
        WHOLE(-6.72, FIRST "," SECOND "," THIRD),
        WHOLE(1e300, FIRST "," SECOND "," THIRD),
        WHOLE(6.72, LINE("0", 39.98, 3.68, "") "," SECOND "," THIRD),
        WHOLE(6.72, LINE("4", 39.98, 3.68, "") "," SECOND "," THIRD),
        WHOLE(6.72, LINE("1x", 39.98, 3.68, "") "," SECOND "," THIRD),
        WHOLE(6.72, LINE("1", 39.99, 3.68, "") "," SECOND "," THIRD),
        WHOLE(43.02, LINE("1", 39.98, 39.99, "") "," SECOND "," THIRD),
        WHOLE(6.72, LINE("1", 39.98, 3.68, DETAIL("State", 9.2, 3.68)) "," SECOND "," THIRD),
        WHOLE(6.72, LINE("1", 39.98, 3.68, DETAIL("State", null, 3.68)) "," SECOND "," THIRD),
        "{\"currencyCode\":\"CAD\",\"totalTax\":6.72,\"lines\":[" FIRST "," SECOND "," THIRD "]}",
        "{\"totalAmount\":72.94,\"totalTax\":6.72,\"lines\":[" FIRST "," SECOND "," THIRD "]}",
        "{\"totalTax\":6.72,\"lines\":null}",
        "{\"error\":{\"code\":\"UnknownError\",\"message\":\"m\"}}",
    };
    struct spw_quote_request q = kit_quote();
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct spw_answer a = kit_read("avatax", &q, 200, "", bodies[i]);
        if (a.kind != SPW_ANSWER_BROKEN || !a.detail[0] || a.tax_minor || a.jurisdictions_count)
            fail_msg("kind %d, tax %lld for %s", a.kind, (long long)a.tax_minor, bodies[i]);
    }
}

#define ERROR(code)                                                                                          \
    "{\"error\":{\"code\":\"" code "\",\"message\":\"m\",\"details\":[{\"code\":\"" code "\"}]}}"

static void test_read_status(void **state)
{
    (void)state;
    static const struct {
        uint32_t status;
        const char *body;
        enum spw_answer_kind kind;
        enum spw_throttle throttle;
    } cases[] = {
        {400, ERROR("InvalidAddress"), SPW_ANSWER_REJECTED, SPW_THROTTLE_RATE},
        {422, ERROR("ValueRequiredError"), SPW_ANSWER_REJECTED, SPW_THROTTLE_RATE},
        {400, ERROR("BatchTransactionLineLimitExceeded"), SPW_ANSWER_REJECTED, SPW_THROTTLE_RATE},
        {400, "<html>", SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {401, ERROR("AuthenticationException"), SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {403, "", SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {407, ERROR("Proxy"), SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {421, ERROR("Misdirected"), SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {425, ERROR("TooEarly"), SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {404, ERROR("CompanyNotFoundError"), SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {500, "{}", SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {302, "", SPW_ANSWER_ERROR, SPW_THROTTLE_RATE},
        {429, "", SPW_ANSWER_THROTTLED, SPW_THROTTLE_RATE},
        {429, ERROR("RateLimitExceeded"), SPW_ANSWER_THROTTLED, SPW_THROTTLE_RATE},
        {429, ERROR("ConcurrentRequestLimitExceeded"), SPW_ANSWER_THROTTLED, SPW_THROTTLE_CONCURRENCY},
        {400, ERROR("RequestLimitExceeded"), SPW_ANSWER_THROTTLED, SPW_THROTTLE_RATE},
        {503, ERROR("RateLimitExceededError"), SPW_ANSWER_THROTTLED, SPW_THROTTLE_RATE},
        {400, "{\"error\":{\"code\":\"x\",\"details\":[{\"number\":1716}]}}", SPW_ANSWER_THROTTLED,
         SPW_THROTTLE_CONCURRENCY},
    };
    struct spw_quote_request q = kit_quote();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_answer a = kit_read("avatax", &q, cases[i].status, "", cases[i].body);
        struct spw_answer j = kit_judge("avatax", SPW_ROUTE_CALCULATE, cases[i].status, "", cases[i].body);
        if (a.kind != cases[i].kind || a.throttle != cases[i].throttle || j.kind != cases[i].kind)
            fail_msg("case %zu: kind %d, throttle %d, judged %d", i, a.kind, a.throttle, j.kind);
        assert_true((a.error_json != NULL) == (a.kind == SPW_ANSWER_REJECTED));
        spw_answer_clean_up(&a);
        spw_answer_clean_up(&j);
    }
    assert_int_equal(kit_judge("avatax", SPW_ROUTE_CALCULATE, 200, "", "{\"totalTax\":1.0}").kind,
                     SPW_ANSWER_OK);
    assert_int_equal(kit_judge("avatax", SPW_ROUTE_CALCULATE, 200, "", "{\"ok\":1}").kind, SPW_ANSWER_BROKEN);
    assert_int_equal(kit_judge("avatax", SPW_ROUTE_RECORD, 200, "", "{\"ok\":1}").kind, SPW_ANSWER_OK);
    assert_int_equal(kit_judge("avatax", SPW_ROUTE_READ, 404, "", "").kind, SPW_ANSWER_REJECTED);
}

#define TO                                                                                                   \
    "\"addresses\":{\"shipFrom\":{\"region\":\"TX\",\"postalCode\":\"75201\"},\"shipTo\":{\"line1\":\"100 "  \
    "Ravine Ln\","                                                                                           \
    "\"city\":\"Bainbridge Island\",\"region\":\"WA\",\"country\":\"US\",\"postalCode\":\"98110\"}}"
static const char native_body[] =
    "{\"type\":\"SalesInvoice\",\"companyCode\":\"ACME-US\",\"code\":\"INV-17\",\"date\":\"2025-11-28T10:00:"
    "00Z\","
    "\"customerCode\":\"c_7\",\"currencyCode\":\"USD\"," TO ",\"lines\":[{\"number\":\"L-10\",\"quantity\":2,"
    "\"amount\":39.98,\"taxCode\":\"P0000000\",\"itemCode\":\"sku\"},{\"number\":\"FRT\",\"amount\":\"7.95\","
    "\"taxCode\":"
    "\"FR020100\"},{\"amount\":25}]}";

static void test_native_quote(void **state)
{
    (void)state;
    struct spw_conf_account a = kit_account("avatax");
    struct spw_native_request r = kit_native(NULL, CREATE, native_body);
    struct spw_native_quote n;
    struct spw_error err = {0};
    if (kit_profile("avatax")->native_quote(&r, &a, &n, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(n.records);
    assert_string_equal(n.document, "INV-17");
    assert_string_equal(n.quote.quote_ref, "INV-17");
    assert_string_equal(n.quote.account, "main");
    assert_string_equal(n.quote.date, "2025-11-28");
    assert_string_equal(n.quote.customer_id, "c_7");
    assert_string_equal(n.quote.ship_to.zip, "98110");
    assert_string_equal(n.quote.ship_to.state, "WA");
    assert_string_equal(n.quote.ship_from.state, "TX");
    assert_int_equal(n.quote.purpose, SPW_PURPOSE_ORDER);
    assert_int_equal(n.quote.line_count, 2);
    assert_string_equal(n.quote.lines[0].id, "L-10");
    assert_string_equal(n.quote.lines[0].tax_code, "P0000000");
    assert_int_equal(n.quote.lines[0].amount_minor, 3998);
    assert_int_equal(n.quote.lines[0].quantity_micro, 2000000);
    assert_string_equal(n.quote.lines[1].id, "3");
    assert_int_equal(n.quote.lines[1].amount_minor, 2500);
    assert_int_equal(n.quote.shipping_minor, 795);
    assert_string_equal(n.quote.shipping_tax_code, "FR020100");

    const struct spw_line_tax taxes[] = {{3998, 368}, {2500, 230}, {795, 73}};
    struct spw_native_fallback f = kit_fallback(taxes, 671);
    struct spw_native_answer answer;
    assert_int_equal(kit_profile("avatax")->native_fallback(&r, &n, &f, &answer, &err), SPW_STATUS_OK);
    assert_int_equal(answer.status, 201);
    json_t *root = kit_body(&answer);
    assert_null(json_object_get(root, "error")); /* the SDKs take it for a failure */
    kit_equal(root, "code", "\"INV-17\"");
    kit_equal(root, "status", "\"Temporary\"");
    kit_equal(root, "type", "\"SalesInvoice\"");
    kit_equal(root, "totalTax", "6.71");
    kit_equal(root, "totalAmount", "72.93");
    kit_equal(root, "totalTaxable", "72.93");
    kit_equal(root, "lines/0/lineNumber", "\"L-10\"");
    kit_equal(root, "lines/0/tax", "3.68");
    kit_equal(root, "lines/0/details/0/jurisType", "\"State\"");
    kit_equal(root, "lines/0/details/0/tax", "2.6");
    kit_equal(root, "lines/0/details/1/tax", "1.08");
    kit_equal(root, "lines/1/lineNumber", "\"FRT\""); /* in the request's order */
    kit_equal(root, "lines/1/tax", "0.73");
    kit_equal(root, "lines/2/lineNumber", "\"3\"");
    kit_equal(root, "lines/2/tax", "2.3");
    kit_equal(root, "messages/0/refersTo", "\"sq_0123456789abcdef0123456789abcdef\"");
    kit_equal(root, "messages/0/severity", "\"Warning\"");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
    spw_native_quote_clean_up(&n);
    /* An estimate without a code is told by the quote's id. */
    r = kit_native(NULL, CREATE, "{" TO ",\"lines\":[{\"amount\":10}]}");
    assert_int_equal(kit_profile("avatax")->native_quote(&r, &a, &n, &err), SPW_STATUS_OK);
    assert_false(n.records);
    assert_int_equal(n.quote.purpose, SPW_PURPOSE_ESTIMATE);
    const struct spw_line_tax one[] = {{1000, 92}, {0, 0}};
    f = kit_fallback(one, 92);
    assert_int_equal(kit_profile("avatax")->native_fallback(&r, &n, &f, &answer, &err), SPW_STATUS_OK);
    root = kit_body(&answer);
    kit_equal(root, "code", "\"sq_0123456789abcdef0123456789abcdef\"");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
    spw_native_quote_clean_up(&n);
}

static void test_native_no_quote(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "no JSON object"},
        {"{" TO ",\"lines\":[]}", "0 lines"},
        {"{" TO "}", "0 lines"},
        {"{\"lines\":[{\"amount\":1}]}", "shipTo"},
        {"{\"addresses\":{\"shipTo\":{\"latitude\":47.6,\"longitude\":-122.5}},\"lines\":[{\"amount\":1}]}",
         "ZIP"},
        {"{\"addresses\":{\"singleLocation\":{\"postalCode\":\"98110\"}},\"lines\":[{\"amount\":1}]}",
         "state"},
        {"{\"addresses\":{\"singleLocation\":{\"country\":\"CA\"}},\"lines\":[{\"amount\":1}]}", "US places"},
        {"{\"type\":\"ReturnInvoice\"," TO ",\"lines\":[{\"amount\":-1}]}", "type"},
        {"{\"type\":5," TO ",\"lines\":[{\"amount\":-1}]}", "type"},
        {"{\"currencyCode\":\"CAD\"," TO ",\"lines\":[{\"amount\":1}]}", "currencyCode"},
        {"{\"date\":\"2025-02-30\"," TO ",\"lines\":[{\"amount\":1}]}", "date"},
        {"{\"taxOverride\":{\"type\":\"TaxAmount\"}," TO ",\"lines\":[{\"amount\":1}]}", "taxOverride"},
        {"{\"discount\":5," TO ",\"lines\":[{\"amount\":1}]}", "discount"},
        {"{" TO ",\"lines\":[{\"amount\":1,\"taxIncluded\":true}]}", "lines[0].taxIncluded"},
        {"{" TO ",\"lines\":[{\"amount\":1,\"addresses\":{}}]}", "lines[0].addresses"},
        {"{" TO ",\"lines\":[{\"amount\":1},{\"amount\":\"x\"}]}", "lines[1].amount"},
        {"{" TO ",\"lines\":[{\"amount\":1e30}]}", "lines[0].amount"},
        {"{" TO ",\"lines\":[{\"amount\":1,\"quantity\":-1}]}", "lines[0].quantity"},
        {"{" TO ",\"lines\":[{}]}", "lines[0].amount"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        kit_no_quote("avatax", CREATE, cases[i][0], cases[i][1]);
    /* false and null are not set; one location stands for both ends */
    struct spw_conf_account a = kit_account("avatax");
    struct spw_native_request r =
        kit_native(NULL, CREATE,
                   "{\"addresses\":{\"singleLocation\":{\"region\":\"wa\",\"country\":\"USA\",\"postalCode\":"
                   "\"98110\"}},"
                   "\"discount\":0,\"lines\":[{\"amount\":1,\"taxIncluded\":false,\"taxOverride\":null}]}");
    struct spw_native_quote n;
    struct spw_error err = {0};
    assert_int_equal(kit_profile("avatax")->native_quote(&r, &a, &n, &err), SPW_STATUS_OK);
    assert_string_equal(n.quote.ship_from.zip, "98110");
    assert_string_equal(n.quote.ship_to.state, "WA");
    spw_native_quote_clean_up(&n);
}

static void test_document_and_token(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("avatax");
    char out[SPW_CALLER_ID_BYTES], token[64];
    struct spw_native_request r =
        kit_native(NULL, "/api/v2/companies/ACME-US/transactions/sq_1/commit", "{\"commit\":true}");
    assert_true(p->native_document(&r, out));
    assert_string_equal(out, "sq_1");
    r = kit_native(NULL, "/api/v2/transactions/createoradjust",
                   "{\"createTransactionModel\":{\"code\":\"INV-9\"}}");
    assert_true(p->native_document(&r, out));
    assert_string_equal(out, "INV-9");
    r = kit_native(NULL, "/api/v2/companies/ACME-US/transactions", "");
    assert_false(p->native_document(&r, out));
    assert_true(
        p->token("Host: x\r\nauthorization: Basic dXNlcjpsb2NhbC10b2tlbg==\r\n", token, sizeof token));
    assert_string_equal(token, "local-token");
    assert_true(p->token("Authorization: Basic bG9jYWwtdG9rZW46\r\n", token, sizeof token));
    assert_string_equal(token, "local-token");
    assert_true(p->token("Authorization:   bearer t1\r\n", token, sizeof token));
    assert_string_equal(token, "t1");
    assert_false(p->token("Authorization: Basic dXNlcg==\r\n", token, sizeof token)); /* no colon */
    assert_false(p->token("Authorization: Basic ????\r\n", token, sizeof token));
    assert_false(p->token("Authorization: Bearer \r\n", token, sizeof token));
    assert_false(p->token("X: y\r\n", token, sizeof token));
    assert_false(
        p->token("Authorization: Bearer 12345678\r\n", token, 8)); /* does not fit: none, never half of it */
}

static void test_native_error(void **state)
{
    (void)state;
    struct spw_native_answer answer;
    struct spw_error err;
    assert_int_equal(kit_profile("avatax")->native_error(429, "wait", &answer, &err), SPW_STATUS_OK);
    json_t *root = kit_body(&answer);
    assert_int_equal(answer.status, 429);
    kit_equal(root, "error/code", "\"RateLimitExceeded\"");
    kit_equal(root, "error/message", "\"wait\"");
    kit_equal(root, "error/details/0/number", "4011");
    json_decref(root);
    spw_native_answer_clean_up(&answer);
}

static void test_book(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("avatax");
    struct spw_conf_account a = kit_account("avatax");
    struct spw_quote_request q = kit_quote();
    struct spw_booking b = kit_booking(&q, 671);
    struct spw_call call;
    struct spw_error err;
    assert_int_equal(p->book(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("avatax", &a, &call, BEARER);
    json_error_t error;
    json_t *root = json_loads(call.body, 0, &error);
    kit_equal(root, "createTransactionModel/code", "\"spw-100048213\"");
    kit_equal(root, "createTransactionModel/type", "\"SalesInvoice\"");
    kit_equal(root, "createTransactionModel/commit", "true");
    kit_equal(root, "createTransactionModel/date", "\"2025-11-27\"");
    kit_equal(root, "createTransactionModel/referenceCode", "\"100048213\"");
    kit_equal(root, "createTransactionModel/lines/0/taxOverride/taxAmount", "3.68");
    kit_equal(root, "createTransactionModel/lines/2/taxOverride/taxAmount", "0.73");
    json_decref(root);
    spw_call_clean_up(&call);
    assert_int_equal(p->book_back(&b, &a, &kit_credential, &call, &err), SPW_STATUS_OK);
    kit_check_call("avatax", &a, &call, BEARER);
    assert_string_equal(call.method, "GET");
    assert_string_equal(call.url, "https://example.test/api/v2/companies/ACME-US/transactions/spw-100048213");
    spw_call_clean_up(&call);
    static const struct kit_booked cases[] = {
        {false, 201, "{\"totalTax\":6.71,\"status\":\"Committed\"}", SPW_BOOKED},
        {true, 200, "{\"totalTax\":6.71,\"status\":\"Committed\"}", SPW_BOOKED},
        {true, 200, "{\"totalTax\":6.71,\"status\":\"Cancelled\"}", SPW_BOOKED_REJECTED},
        {true, 404, ERROR("EntityNotFoundError"), SPW_BOOKED_MISSING},
        {false, 404, ERROR("CompanyNotFoundError"), SPW_BOOKED_FAILED},
        {false, 400, ERROR("DuplicateEntry"), SPW_BOOKED_ALREADY},
        {false, 400, ERROR("InvalidAddress"), SPW_BOOKED_REJECTED},
        {false, 429, "", SPW_BOOKED_THROTTLED},
        {false, 500, "", SPW_BOOKED_FAILED},
        {false, 200, "<html>", SPW_BOOKED_FAILED},
        {false, 401, "", SPW_BOOKED_FAILED},
    };
    kit_check_booked(p, &b, cases, sizeof cases / sizeof cases[0], 671);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_build_refused),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_broken),
        cmocka_unit_test(test_read_status),
        cmocka_unit_test(test_native_quote),
        cmocka_unit_test(test_native_no_quote),
        cmocka_unit_test(test_document_and_token),
        cmocka_unit_test(test_native_error),
        cmocka_unit_test(test_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
