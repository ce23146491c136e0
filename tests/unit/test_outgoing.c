/* test_outgoing.c: what of an SDK's request goes on to the provider, and what of an answer comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/http/outgoing.h"

static const struct spw_route route = {"POST", "/carts", SPW_ROUTE_CALCULATE};

static void pass(const char *headers, const char *query, struct spw_outgoing *out)
{
    static struct spw_conf_account account;
    struct spw_credential credential = {.user = "", .secret = "the-key", .header = ""};
    struct spw_native_request request = {.route = &route,
                                         .path = "/carts",
                                         .query = query,
                                         .headers = headers,
                                         .body = "{\0}",
                                         .body_bytes = 3};
    struct spw_error err;
    snprintf(account.url, sizeof account.url, "https://api.example");
    assert_int_equal(
        spw_outgoing_pass(out, spw_profile_find("taxcloud"), &account, &credential, &request, &err),
        SPW_STATUS_OK);
}

static bool has(const struct spw_outgoing *out, const char *line)
{
    for (size_t i = 0; i < out->header_count; i++)
        if (strcmp(out->headers[i], line) == 0)
            return true;
    return false;
}

static void the_request_goes_on_with_the_accounts_key(void **state)
{
    (void)state;
    struct spw_outgoing out;
    pass("Content-Type: application/json\r\nX-Sdk:  one two \r\nIdempotency-Key: k\r\nEmpty:\r\n", "a=b&c",
         &out);
    assert_string_equal(out.method, "POST");
    assert_string_equal(out.url, "https://api.example/carts?a=b&c");
    assert_int_equal(out.body_bytes, 3);
    assert_memory_equal(out.body, "{\0}", 3);
    assert_true(has(&out, "Content-Type: application/json"));
    assert_true(has(&out, "X-Sdk: one two"));
    assert_true(has(&out, "Idempotency-Key: k"));
    assert_true(has(&out, "Empty: "));
    assert_true(has(&out, "X-API-KEY: the-key"));
    assert_int_equal(out.header_count, 5);
    spw_outgoing_clean_up(&out);
    assert_null(out.url);
}

static void what_belongs_to_this_hop_or_is_a_credential_stays(void **state)
{
    (void)state;
    struct spw_outgoing out;
    pass(
        "Host: evil\r\nauthorization: Bearer t\r\nX-Api-Key: t\r\nCookie: a\r\nConnection: X-Mine, close\r\n"
        "X-Mine: 1\r\nclose: 1\r\nKeep-Alive: 1\r\nProxy-Authorization: x\r\nProxy-Connection: x\r\nTE: x\r\n"
        "Trailer: x\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\nContent-Length: 3\r\nExpect: x\r\n"
        "Accept-Encoding: br\r\nForwarded: x\r\nX-Forwarded-For: x\r\nVia: x\r\nSpillway-Force: x\r\n"
        "spillway-quote: x\r\nX-Real-IP: x\r\nAccept: */*\r\n",
        "", &out);
    assert_string_equal(out.url, "https://api.example/carts");
    assert_true(has(&out, "Accept: */*"));
    assert_true(has(&out, "X-API-KEY: the-key"));
    assert_int_equal(out.header_count, 2);
    spw_outgoing_clean_up(&out);
}

/* Of an API with a header of its own for the key: what the caller put there never stands beside the real one. */
static void a_header_of_the_accounts_own_is_swapped_too(void **state)
{
    (void)state;
    static struct spw_conf_account account;
    struct spw_outgoing out;
    struct spw_error err;
    struct spw_credential credential = {.user = "", .secret = "k", .header = "X-Shop-Token: Key"};
    struct spw_native_request request = {.route = &route,
                                         .path = "/carts",
                                         .query = "",
                                         .headers = "x-shop-token: Key local\r\nApi-Key: local\r\nX-A: b\r\n",
                                         .body = ""};
    assert_int_equal(spw_outgoing_pass(&out, spw_profile_find("http"), &account, &credential, &request, &err),
                     SPW_STATUS_OK);
    assert_true(has(&out, "X-Shop-Token: Key k"));
    assert_true(has(&out, "X-A: b"));
    assert_int_equal(out.header_count, 2);
    spw_outgoing_clean_up(&out);
}

/* The method and path that were checked are those that count. */
static void no_header_speaks_of_another_method_or_path(void **state)
{
    (void)state;
    struct spw_outgoing out;
    pass("X-HTTP-Method-Override: DELETE\r\nx-http-method: DELETE\r\nX-Method-Override: DELETE\r\n"
         "X-Original-URL: /x\r\nX-Rewrite-URL: /x\r\nX-Original-Host: evil\r\nX-Host: evil\r\n",
         "", &out);
    assert_int_equal(out.header_count, 1);
    assert_true(has(&out, "X-API-KEY: the-key"));
    spw_outgoing_clean_up(&out);
}

static void too_many_headers_are_refused_whole(void **state)
{
    (void)state;
    static struct spw_conf_account account;
    char headers[4096] = "";
    struct spw_outgoing out;
    struct spw_error err;
    struct spw_credential credential = {.user = "", .secret = "k", .header = ""};
    struct spw_native_request request = {.route = &route, .path = "/carts", .query = "", .body = ""};
    for (int i = 0; i < 80; i++)
        snprintf(headers + i * 8, 9, "X-A: b\r\n");
    request.headers = headers;
    assert_int_equal(
        spw_outgoing_pass(&out, spw_profile_find("taxcloud"), &account, &credential, &request, &err),
        SPW_STATUS_INVALID);
    assert_int_equal(out.header_count, 0);
}

static bool comes_back(const char *line)
{
    struct spw_header_part part;
    assert_non_null(spw_header_next(line, &part));
    return spw_header_passes_back(spw_header_connection(line), &part);
}

static void of_an_answer_all_comes_back_but_the_connections_own(void **state)
{
    (void)state;
    assert_true(comes_back("X-RateLimit-Remaining: 7\r\n"));
    assert_true(comes_back("Retry-After: 2"));
    assert_true(comes_back("Request-Id: req_1\r\n"));
    static const char *const kept[] = {"Content-Encoding: gzip", "content-length: 1",  "Transfer-Encoding: x",
                                       "Set-Cookie: a=b",        "Connection: close",  "Keep-Alive: x",
                                       "Proxy-Authenticate: x",  "Spillway-Flag: sf_", "Date: x"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_false(comes_back(kept[i]));
    assert_false(comes_back("X-Hop: 1\r\nConnection: close\r\nconnection: a,x-hop ,b\r\n"));
    assert_true(comes_back("X-Hopper: 1\r\nConnection: x-hop, close\r\n"));
}

static void lines_that_are_no_headers_are_passed_over(void **state)
{
    (void)state;
    struct spw_header_part part;
    const char *at = spw_header_next("nonsense\r\n: x\r\nA: b\r\n\r\nC:\r\n", &part);
    assert_int_equal(part.name_bytes, 1);
    assert_memory_equal(part.name, "A", 1);
    assert_memory_equal(part.value, "b", part.value_bytes);
    at = spw_header_next(at, &part);
    assert_memory_equal(part.name, "C", 1);
    assert_int_equal(part.value_bytes, 0);
    assert_null(spw_header_next(at, &part));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_goes_on_with_the_accounts_key),
        cmocka_unit_test(what_belongs_to_this_hop_or_is_a_credential_stays),
        cmocka_unit_test(a_header_of_the_accounts_own_is_swapped_too),
        cmocka_unit_test(no_header_speaks_of_another_method_or_path),
        cmocka_unit_test(too_many_headers_are_refused_whole),
        cmocka_unit_test(of_an_answer_all_comes_back_but_the_connections_own),
        cmocka_unit_test(lines_that_are_no_headers_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
