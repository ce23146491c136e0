/* test_control.c: the pure parts of control/: status codes, field paths, names, text of unknown origin, the schema index.
 *
 * What goes over the wire is tested by tests/integration/test_control.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "sidecar/control/arena.h"
#include "sidecar/control/errors.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/schema.h"

static void every_status_has_a_code_of_its_own_kind(void **state)
{
    (void)state;
#define CHECK(code, name, text, action)                                                                      \
    if ((code) != 0) {                                                                                       \
        assert_int_not_equal(spw_status_grpc_code(SPW_STATUS_##name), GRPC_STATUS_OK);                       \
        assert_int_not_equal(spw_status_grpc_code(SPW_STATUS_##name), GRPC_STATUS_UNKNOWN);                  \
    }
    SPW_STATUS_TABLE(CHECK)
#undef CHECK
    assert_int_equal(spw_status_grpc_code(SPW_STATUS_OK), GRPC_STATUS_OK);
    assert_int_equal(spw_status_grpc_code(SPW_STATUS_CONFLICT), GRPC_STATUS_ABORTED);
    assert_int_equal(spw_status_grpc_code((enum spw_status) - 99), GRPC_STATUS_UNKNOWN);
}

static void the_field_is_the_path_before_the_colon(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
    } cases[] = {
        {"limit.rate: is no rate", "limit.rate"},
        {"rows[17].zip5: is out of range", "rows[17].zip5"},
        {"the sidecar is stopping: try again", ""},
        {"Rate: capital", ""},
        {"rate:no space", ""},
        {"", ""},
        {": nothing before", ""},
        {"a_path_that_is_far_longer_than_any_path_of_a_field_of_the_schema_is: x", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char field[64];
        spw_error_field(cases[i].text, field, sizeof field);
        assert_string_equal(field, cases[i].field);
    }
}

static void names_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {NULL,
                                      "",
                                      "a b",
                                      "a/b",
                                      "a\n",
                                      "\xc3\xa9",
                                      "0123456789012345678901234567890123456789012345678901234567890123"};
    struct spw_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(spw_name_check("account", bad[i], &err), SPW_STATUS_INVALID);
        assert_ptr_equal(strstr(err.text, "account: "), err.text);
    }
    assert_int_equal(spw_name_check("account", "avalara-main.2_x", &err), SPW_STATUS_OK);
    assert_int_equal(
        spw_name_check("account", "012345678901234567890123456789012345678901234567890123456789012", &err),
        SPW_STATUS_OK);
}

static void versions_are_checked(void **state)
{
    (void)state;
    struct spw_error err;
    assert_int_equal(spw_version_check(0, 7, &err), SPW_STATUS_OK);
    assert_int_equal(spw_version_check(7, 7, &err), SPW_STATUS_OK);
    assert_int_equal(spw_version_check(6, 7, &err), SPW_STATUS_CONFLICT);
}

static void what_is_no_utf8_is_shown_as_such(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t room;
        const char *wanted;
    } cases[] = {
        {"plain", 64, "plain"},
        {"plain", 3, "pla"},
        {"\xc3\xa9t\xc3\xa9", 64, "\xc3\xa9t\xc3\xa9"},
        {"\xc3\xa9", 1, "?"}, /* cut within a character */
        {"\xe2\x82\xac \xf0\x9f\x92\xb0", 64, "\xe2\x82\xac \xf0\x9f\x92\xb0"},
        {"\xe2\x82", 64, "??"},
        {"a\xff"
         "b",
         64, "a?b"},
        {"\xc0\xaf", 64, "??"},           /* overlong */
        {"\xed\xa0\x80", 64, "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", 64, "????"}, /* above U+10FFFF */
        {"\x80", 64, "?"},
    };
    struct spw_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(spw_arena_utf8(&arena, cases[i].text, cases[i].room), cases[i].wanted);
    assert_string_equal(spw_arena_hex(&arena, (const unsigned char *)"\x00\xab\x7f", 3), "00ab7f");
    assert_true(arena.bytes_count > 0);
    spw_arena_clean_up(&arena);
    assert_null(arena.pieces);
}

/* A method nobody can find by reflection, or one that may be called by nobody or by everybody, is a slip in the table. */
static void every_method_is_in_the_schema_and_has_its_role(void **state)
{
    (void)state;
    struct spw_error err;
    struct spw_schema *schema;
    struct spw_schema_file files[16];
    size_t operate_count = 0;
    assert_int_equal(spw_schema_new(&schema, &err), SPW_STATUS_OK);
    for (size_t i = 0; i < SPW_METHODS_COUNT; i++) {
        char symbol[128];
        strncpy(symbol, spw_methods[i].path + 1, sizeof symbol - 1);
        symbol[sizeof symbol - 1] = 0;
        *strchr(symbol, '/') = '.';
        assert_int_equal(spw_schema_by_symbol(schema, symbol, files, 16), 1);
        assert_true(spw_method_allowed(&spw_methods[i], SPW_ROLE_ADMIN));
        operate_count += !spw_method_allowed(&spw_methods[i], SPW_ROLE_RECORDS);
        bool changes = strstr(symbol, ".Set") || strstr(symbol, ".Replace") ||
                       strstr(symbol, ".Acknowledge") || strstr(symbol, ".Upsert") ||
                       strstr(symbol, ".Import") || strstr(symbol, ".Place") || strstr(symbol, ".Cancel") ||
                       strstr(symbol, ".Abandon") || strstr(symbol, ".Decide") || strstr(symbol, ".Refresh");
        assert_int_equal(spw_methods[i].role >= SPW_ROLE_OPERATE, changes);
    }
    assert_int_equal(operate_count, 12);
    assert_int_equal(spw_schema_by_name(schema, "spillway/v1/control.proto", files, 16), 1);
    assert_int_equal(spw_schema_by_name(schema, "spillway/v1/control", files, 16), 0);
    spw_schema_destroy(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_code_of_its_own_kind),
        cmocka_unit_test(the_field_is_the_path_before_the_colon),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(versions_are_checked),
        cmocka_unit_test(what_is_no_utf8_is_shown_as_such),
        cmocka_unit_test(every_method_is_in_the_schema_and_has_its_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
