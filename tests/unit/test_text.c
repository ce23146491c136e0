/* test_text.c: the texts made and read without locale or allocation: JSON, decimals, ZIP codes, dates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_text.h"

static void decimals(void **state)
{
    static const struct {
        int64_t value;
        unsigned digits;
        bool trim;
        const char *text;
    } cases[] = {
        {0, 2, false, "0.00"},
        {5, 2, false, "0.05"},
        {-5, 2, false, "-0.05"},
        {671, 2, false, "6.71"},
        {-123456, 2, false, "-1234.56"},
        {92000000, 9, true, "0.092"},
        {0, 9, true, "0"},
        {1000000000, 9, true, "1"},
        {1, 9, true, "0.000000001"},
        {2000000, 6, true, "2"},
        {1500000, 6, true, "1.5"},
        {7, 0, false, "7"},
        {INT64_MIN, 2, false, "-92233720368547758.08"},
        {INT64_MAX, 2, false, "92233720368547758.07"},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[64];
        struct spw_text t = spw_text_on(buffer, sizeof buffer);
        spw_text_decimal(&t, cases[i].value, cases[i].digits, cases[i].trim);
        assert_false(t.overflow);
        assert_string_equal(buffer, cases[i].text);
    }
}

static void json_strings(void **state)
{
    char buffer[128];
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    (void)state;
    spw_text_json(&t, "a\"b\\c\nd\x01\x1f/\xC3\xA9");
    assert_string_equal(buffer, "\"a\\\"b\\\\c\\u000ad\\u0001\\u001f/\xC3\xA9\"");
    t = spw_text_on(buffer, sizeof buffer);
    spw_text_json(&t, NULL);
    assert_string_equal(buffer, "null");
}

/* What does not fit is dropped whole and said so; the text before it stays whole and terminated. */
static void overflow(void **state)
{
    char buffer[8];
    (void)state;
    struct spw_text t = spw_text_on(buffer, sizeof buffer);
    spw_text_put(&t, "1234567");
    assert_false(t.overflow);
    spw_text_put(&t, "8");
    assert_true(t.overflow);
    assert_string_equal(buffer, "1234567");
    spw_text_put(&t, "");
    assert_true(t.overflow);
    t = spw_text_on(buffer, 0);
    assert_true(t.overflow);
    t = spw_text_on(buffer, 1);
    spw_text_put(&t, "x");
    assert_true(t.overflow);
    assert_string_equal(buffer, "");
}

static struct spw_quote_request example(struct spw_line *lines)
{
    struct spw_quote_request q;
    memset(&q, 0, sizeof q);
    lines[0] = (struct spw_line){"1", "P0000000", 2000000, 3998};
    lines[1] = (struct spw_line){NULL, NULL, 0, -2500};
    q.account = "main";
    q.integration = "web";
    q.decision_id = "d-1";
    q.purpose = SPW_PURPOSE_ORDER;
    q.deadline_ms = 1500;
    q.ship_to.state = "WA";
    q.ship_to.zip = "98110-1234";
    q.shipping_minor = 795;
    q.exemption = "resale";
    q.lines = lines;
    q.line_count = 2;
    return q;
}

static void request(void **state)
{
    char buffer[1024];
    struct spw_line lines[2];
    (void)state;
    struct spw_quote_request q = example(lines);
    size_t bytes = spw_request_json(&q, buffer, sizeof buffer);
    const char *wanted = "{\"account\":\"main\",\"integration\":\"web\",\"decision_id\":\"d-1\",\"purpose\":"
                         "\"order\",\"currency\":\"USD\","
                         "\"deadline_ms\":1500,\"ship_to\":{\"state\":\"WA\",\"zip\":\"98110-1234\"},"
                         "\"customer\":{\"exemption\":\"resale\"},"
                         "\"shipping\":{\"amount\":\"7.95\"},\"lines\":[{\"id\":\"1\",\"tax_code\":"
                         "\"P0000000\",\"quantity\":\"2\","
                         "\"amount\":\"39.98\"},{\"quantity\":\"1\",\"amount\":\"-25.00\"}]}";
    assert_string_equal(buffer, wanted);
    assert_int_equal(bytes, strlen(wanted));
    for (size_t room = 0; room <= bytes; room++) {
        char *tight = malloc(room + 1); /* its end is watched by the address sanitizer */
        assert_non_null(tight);
        assert_int_equal(spw_request_json(&q, tight, room), 0);
        free(tight);
    }
}

static void zip_codes(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint32_t zip5, plus4;
        bool has_plus4;
    } cases[] = {
        {"98110", true, 98110, 0, false},       {"79703-2104", true, 79703, 2104, true},
        {"797032104", true, 79703, 2104, true}, {" 79703 ", true, 79703, 0, false},
        {"79703-", true, 79703, 0, false},      {"00501", true, 501, 0, false},
        {"\t98110-0000", true, 98110, 0, true}, {"", false, 0, 0, false},
        {"9811", false, 0, 0, false},           {"981101", false, 0, 0, false},
        {"98110-12", false, 0, 0, false},       {"9811O", false, 0, 0, false},
        {"98110--1234", false, 0, 0, false},    {"-98110", false, 0, 0, false},
        {"981 10", false, 0, 0, false},         {"98110 1234", false, 0, 0, false},
        {"9811012345", false, 0, 0, false},     {"SW1A 1AA", false, 0, 0, false},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t zip5 = 0, plus4 = 0;
        bool has_plus4 = false;
        bool good = spw_zip_parse(cases[i].text, &zip5, &plus4, &has_plus4);
        if (good != cases[i].good)
            fail_msg("\"%s\"", cases[i].text);
        if (!good)
            continue;
        assert_int_equal(zip5, cases[i].zip5);
        assert_int_equal(has_plus4, cases[i].has_plus4);
        if (has_plus4)
            assert_int_equal(plus4, cases[i].plus4);
    }
    assert_false(spw_zip_parse(NULL, &(uint32_t){0}, &(uint32_t){0}, &(bool){false}));
}

static void dates(void **state)
{
    static const struct {
        const char *text;
        int32_t day; /* -1: no date */
    } cases[] = {
        {"1970-01-01", 0},     {"1970-01-02", 1},     {"2000-02-29", 11016},
        {"2000-03-01", 11017}, {"2025-11-01", 20393}, {"2024-12-31", 20088},
        {"2100-03-01", 47541}, {"2100-02-29", -1},    {"2025-02-29", -1},
        {"2025-13-01", -1},    {"2025-00-01", -1},    {"2025-01-00", -1},
        {"2025-04-31", -1},    {"1969-12-31", -1},    {"2025-1-01", -1},
        {"2025-01-01 ", -1},   {"2025/01/01", -1},    {"", -1},
        {"2025-01", -1},       {"20250101", -1},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t day = -1;
        bool good = spw_date_parse(cases[i].text, &day);
        if (good != (cases[i].day >= 0) || (good && day != cases[i].day))
            fail_msg("\"%s\": %d", cases[i].text, day);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimals), cmocka_unit_test(json_strings), cmocka_unit_test(overflow),
        cmocka_unit_test(request),  cmocka_unit_test(zip_codes),    cmocka_unit_test(dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
