/* profile_kit.h: what the tests of the profiles share: an account, a quote, and ways to ask a profile.
 *
 * Owns: nothing. Included by: test_avatax.c, test_taxjar.c, test_stripe.c, test_taxcloud_native.c, test_http_profile.c,
 * test_sums.c.
 */
#ifndef SPW_TESTS_PROFILE_KIT_H
#define SPW_TESTS_PROFILE_KIT_H

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

static const struct spw_credential kit_credential = {.user = "", .secret = "k-123-secret", .header = NULL};

static inline struct spw_conf_account kit_account(const char *provider)
{
    struct spw_conf_account a = {.name = "main", .company = "ACME-US", .connection = "c-1"};
    snprintf(a.provider, sizeof a.provider, "%s", provider);
    snprintf(a.url, sizeof a.url, "https://example.test");
    return a;
}

static const struct spw_line kit_lines[] = {
    {.id = "sku-1", .quantity_micro = 2000000, .amount_minor = 3998},
    {.id = "sku-2", .tax_code = "20010", .quantity_micro = 1000000, .amount_minor = 2500},
};

static inline struct spw_quote_request kit_quote(void)
{
    struct spw_quote_request q = {
        .currency = "USD",
        .date = "2025-11-28",
        .ship_from = {.state = "TX", .zip = "75201", .city = "Dallas", .line1 = "1 Main St"},
        .ship_to = {.country = "US",
                    .state = "WA",
                    .zip = "98110",
                    .city = "Bainbridge Island",
                    .line1 = "100 Ravine Ln"},
        .customer_id = "c_7",
        .shipping_minor = 795,
        .lines = kit_lines,
        .line_count = 2,
    };
    return q;
}

static inline const struct spw_profile *kit_profile(const char *name)
{
    const struct spw_profile *p = spw_profile_find(name);
    assert_non_null(p);
    return p;
}

static inline struct spw_answer kit_judge(const char *name, enum spw_route_kind kind, uint32_t status,
                                          const char *headers, const char *body)
{
    struct spw_answer out;
    struct spw_route route = {"POST", "/", kind};
    kit_profile(name)->judge(&route, status, headers, strlen(headers), body, strlen(body), &out);
    return out;
}

/* What is read as a tax must be judged sound too: nobody judges it again. */
static inline struct spw_answer kit_read(const char *name, const struct spw_quote_request *q, uint32_t status,
                                         const char *headers, const char *body)
{
    struct spw_answer out;
    kit_profile(name)->read(q, status, headers, strlen(headers), body, strlen(body), &out);
    if (out.kind == SPW_ANSWER_OK)
        assert_int_equal(kit_judge(name, SPW_ROUTE_CALCULATE, status, headers, body).kind, SPW_ANSWER_OK);
    return out;
}

/* A call must go where the account's credential may go, with the credential's line last and nowhere else. */
static inline void kit_check_call(const char *name, const struct spw_conf_account *account,
                                  const struct spw_call *call, const char *credential_line)
{
    assert_true(spw_profile_allows(kit_profile(name), account, call));
    assert_string_equal(call->headers[call->header_count - 1], credential_line);
    assert_null(strstr(call->url, "secret"));
    assert_true(!call->body || !strstr(call->body, "secret"));
}

static inline struct spw_native_request kit_native(const struct spw_route *route, const char *path,
                                                   const char *body)
{
    struct spw_native_request r = {.route = route, .path = path, .query = "", .headers = ""};
    r.body = body;
    r.body_bytes = strlen(body);
    return r;
}

/* The reason why a native request is no quote must hold this word. */
static inline void kit_no_quote(const char *name, const char *path, const char *body, const char *word)
{
    struct spw_conf_account a = kit_account(name);
    struct spw_native_request r = kit_native(NULL, path, body);
    struct spw_native_quote quote;
    struct spw_error err = {0};
    if (kit_profile(name)->native_quote(&r, &a, &quote, &err) != SPW_STATUS_INVALID)
        fail_msg("a quote from %s", body);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s (%s)", err.text, word, body);
    assert_null(quote.lines);
}

/* WA 6.5 % and city 2.7 % on everything: 3998 -> 368, 2500 -> 230, 795 -> 73. */
static inline struct spw_native_fallback kit_fallback(const struct spw_line_tax *lines, int64_t tax_minor)
{
    struct spw_native_fallback f = {
        .quote_id = "sq_0123456789abcdef0123456789abcdef",
        .flag_id = "sf_0123456789abcdef0123456789abcdef",
        .type = "rate-limit-proactive",
        .cause = "bucket-empty",
        .now_unix_ms = INT64_C(1764331200000), /* 2025-11-28 12:00 UTC */
        .tax_minor = tax_minor,
        .lines = lines,
        .state_ppb = 65000000,
        .city_ppb = 27000000,
        .combined_ppb = 92000000,
    };
    return f;
}

/* Parse a fallback's or error's body. */
static inline json_t *kit_body(const struct spw_native_answer *answer)
{
    json_error_t error;
    json_t *root = json_loadb(answer->body, answer->body_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("no JSON: %s", answer->body);
    return root;
}

/* root.path, "a/0/b". */
static inline json_t *kit_at(json_t *root, const char *path)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", path);
    char *save = NULL;
    for (char *word = strtok_r(copy, "/", &save); word && root; word = strtok_r(NULL, "/", &save))
        root = json_is_array(root) ? json_array_get(root, (size_t)strtoul(word, NULL, 10))
                                   : json_object_get(root, word);
    if (!root)
        fail_msg("nothing at %s", path);
    return root;
}

/* The JSON text of root.path. */
static inline void kit_equal(json_t *root, const char *path, const char *text)
{
    char *have = json_dumps(kit_at(root, path), JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    assert_non_null(have);
    if (strcmp(have, text) != 0)
        fail_msg("%s is %s, not %s", path, have, text);
    free(have);
}

/* An order of kit_quote in the books: what its customer paid, line by line. */
static inline struct spw_booking kit_booking(const struct spw_quote_request *quote, int64_t tax_minor)
{
    static const struct spw_line_tax collected[] = {{3998, 368}, {2500, 230}, {795, 73}};
    return (struct spw_booking){.quote = quote,
                                .collected = collected,
                                .tax_collected_minor = tax_minor,
                                .order_id = "100048213",
                                .document = "spw-100048213",
                                .date = "2025-11-27",
                                .calculation = ""};
}

/* Answers to booking, or to reading back, and what they are. */
struct kit_booked {
    bool back;
    uint32_t status;
    const char *body;
    enum spw_booked booked;
};

static inline void kit_check_booked(const struct spw_profile *p, const struct spw_booking *booking,
                                    const struct kit_booked *cases, size_t count, int64_t tax_minor)
{
    for (size_t i = 0; i < count; i++) {
        struct spw_booked_answer out;
        (cases[i].back ? p->read_book_back : p->read_book)(booking, cases[i].status, cases[i].body,
                                                           strlen(cases[i].body), &out);
        if (out.booked != cases[i].booked)
            fail_msg("case %zu: %d", i, out.booked);
        if (out.booked == SPW_BOOKED)
            assert_int_equal(out.tax_minor, tax_minor);
    }
}

#endif
