/* test_http_profile.c: any other API as a profile: routes of the account, the credential's header, answers by status. */
#include "tests/unit/profile_kit.h"

static struct spw_conf_account payments(void)
{
    struct spw_conf_account a = kit_account("http");
    a.routes_count = 2;
    a.routes[0] = (struct spw_conf_route){.method = "POST", .path = "/v1/charges"};
    a.routes[1] = (struct spw_conf_route){.method = "GET", .path = "/v1/charges/*"};
    return a;
}

static void test_routes(void **state)
{
    (void)state;
    const struct spw_profile *p = kit_profile("http");
    struct spw_conf_account a = payments();
    const struct spw_route *route = spw_profile_route(p, &a, "POST", "/v1/charges");
    assert_non_null(route);
    assert_string_equal(route->method, "POST");
    assert_int_equal(route->kind, SPW_ROUTE_READ); /* never answered from a cache, never sent twice */
    assert_non_null(spw_profile_route(p, &a, "GET", "/v1/charges/ch_1"));
    static const char *const refused[][2] = {
        {"GET", "/v1/charges"},           {"POST", "/v1/charges/ch_1"},   {"GET", "/v1/charges/ch_1/x"},
        {"GET", "/v1/charges/"},          {"GET", "/v1/charges/.."},      {"POST", "/v1//charges"},
        {"POST", "https://x/v1/charges"}, {"POST", "/v1/charges?x"},      {"POST", "/v1/charges@x"},
        {"post", "/v1/charges"},          {"DELETE", "/v1/charges/ch_1"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (spw_profile_route(p, &a, refused[i][0], refused[i][1]))
            fail_msg("%s %s is let through", refused[i][0], refused[i][1]);
    a.routes_count = 0;
    assert_null(spw_profile_route(p, &a, "POST", "/v1/charges"));
    assert_false(p->is_tax);
    assert_null(p->build);
    assert_null(p->native_fallback);
}

static void check_line(const char *header, const char *line)
{
    struct spw_credential c = {.user = "", .secret = "k-1", .header = header};
    char *text = kit_profile("http")->authorize(&c);
    assert_string_equal(text, line);
    free(text);
}

static void test_credential(void **state)
{
    (void)state;
    check_line(NULL, "Authorization: Bearer k-1");
    check_line("", "Authorization: Bearer k-1");
    check_line("Authorization: Bearer", "Authorization: Bearer k-1");
    check_line("Authorization: Token", "Authorization: Token k-1");
    check_line("X-API-Key", "X-API-Key: k-1");
    char token[16];
    const struct spw_profile *p = kit_profile("http");
    assert_true(p->token("X-Api-Key: t-1\r\n", token, sizeof token));
    assert_string_equal(token, "t-1");
    assert_true(p->token("Authorization: Bearer t-2\r\n", token, sizeof token));
    assert_false(p->token("Cookie: t-3\r\n", token, sizeof token));
}

static void test_judge(void **state)
{
    (void)state;
    static const struct {
        uint32_t status;
        enum spw_answer_kind kind;
    } cases[] = {{200, SPW_ANSWER_OK},       {204, SPW_ANSWER_OK},        {302, SPW_ANSWER_OK},
                 {400, SPW_ANSWER_REJECTED}, {404, SPW_ANSWER_REJECTED},  {401, SPW_ANSWER_ERROR},
                 {403, SPW_ANSWER_ERROR},    {429, SPW_ANSWER_THROTTLED}, {500, SPW_ANSWER_ERROR},
                 {503, SPW_ANSWER_ERROR}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(kit_judge("http", SPW_ROUTE_READ, cases[i].status, "", "x").kind, cases[i].kind);
    struct spw_native_answer answer;
    struct spw_error err;
    assert_int_equal(kit_profile("http")->native_error(429, "wait", &answer, &err), SPW_STATUS_OK);
    assert_string_equal(answer.body, "{\"error\":{\"status\":429,\"message\":\"wait\"}}");
    spw_native_answer_clean_up(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_routes), cmocka_unit_test(test_credential),
                                       cmocka_unit_test(test_judge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
