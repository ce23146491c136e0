/* The strict reader of JSON: what it takes and refuses, and that it agrees with jansson on whatever is thrown at it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "sidecar/provider/json_read.h"

static bool is_taken(const char *bytes, size_t count)
{
    struct spw_json *root = spw_json_read(bytes, count, NULL);
    spw_json_free(root);
    return root != NULL;
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        " {\"a\":[1,-2.50,\"x\"],\"b\":{\"c\":null,\"d\":true},\"e\":\"\",\"n\":\"0.092\"}\n";
    struct spw_json *root = spw_json_read(text, sizeof text - 1, NULL);
    int64_t number;
    assert_non_null(root);
    const struct spw_json *a = spw_json_get(root, "a");
    assert_int_equal(spw_json_count(a), 3);
    assert_int_equal(spw_json_integer(spw_json_first(a)), 1);
    const struct spw_json *second = spw_json_next(a, spw_json_first(a));
    assert_true(spw_json_number(second, 2, &number));
    assert_int_equal(number, -250);
    assert_string_equal(spw_json_text(spw_json_next(a, second)), "x");
    assert_null(spw_json_next(a, spw_json_next(a, second)));
    assert_true(spw_json_is(spw_json_get(spw_json_get(root, "b"), "d"), SPW_JSON_TRUE));
    assert_true(spw_json_is(spw_json_get(spw_json_get(root, "b"), "c"), SPW_JSON_NULL));
    assert_null(spw_json_get(root, "c"));
    assert_null(spw_json_get(a, "a"));
    assert_string_equal(spw_json_text(spw_json_get(root, "e")), "");
    assert_false(spw_json_number(spw_json_get(root, "n"), 9, &number));
    assert_true(spw_json_decimal(spw_json_get(root, "n"), 9, &number));
    assert_int_equal(number, 92000000);
    char *again = spw_json_dump(root);
    assert_string_equal(again,
                        "{\"a\":[1,-2.50,\"x\"],\"b\":{\"c\":null,\"d\":true},\"e\":\"\",\"n\":\"0.092\"}");
    free(again);
    spw_json_free(root);
}

static void test_integers(void **state)
{
    (void)state;
    static const char text[] = "[0,-0,-7,9223372036854775807,-9223372036854775808,1.0,\"1\"]";
    static const int64_t values[] = {0, 0, -7, INT64_MAX, INT64_MIN, 0, 0};
    struct spw_json *root = spw_json_read(text, sizeof text - 1, NULL);
    size_t place = 0;
    assert_non_null(root);
    SPW_JSON_EACH(number, root)
    {
        assert_int_equal(spw_json_integer(number), values[place++]);
    }
    assert_int_equal(place, 7);
    spw_json_free(root);
}

/* Numbers become what jansson's doubles became: 15 digits count, the noise behind them does not. */
static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned scale;
        int64_t value;
    } cases[] = {{"[1.455]", 2, 146},
                 {"[1.4549999999999998]", 2, 146},
                 {"[0.30000000000000004]", 9, 300000000},
                 {"[9.2e-2]", 9, 92000000},
                 {"[1E3]", 2, 100000},
                 {"[-0.005]", 2, -1},
                 {"[9999999999999.99]", 2, 999999999999999},
                 {"[0]", 2, 0},
                 {"[-0]", 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spw_json *root = spw_json_read(cases[i].text, strlen(cases[i].text), NULL);
        int64_t value = INT64_MIN;
        assert_non_null(root);
        assert_true(spw_json_number(spw_json_first(root), cases[i].scale, &value));
        assert_int_equal(value, cases[i].value);
        spw_json_free(root);
    }
}

static void test_texts(void **state)
{
    (void)state;
    static const char text[] = "[\"\\u00e9\\ud83d\\ude00\\/\\n\\\"\\\\\",\"\xc3\xa9\xf0\x9f\x98\x80\"]";
    struct spw_json *root = spw_json_read(text, sizeof text - 1, NULL);
    assert_non_null(root);
    assert_string_equal(spw_json_text(spw_json_first(root)), "\xc3\xa9\xf0\x9f\x98\x80/\n\"\\");
    assert_string_equal(spw_json_text(spw_json_next(root, spw_json_first(root))), "\xc3\xa9\xf0\x9f\x98\x80");
    spw_json_free(root);
}

static void test_fault(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":\"\\u00e9\",\n \"a\":2}";
    struct spw_json_fault fault;
    assert_null(spw_json_read(text, sizeof text - 1, &fault));
    assert_int_equal(fault.line, 2);
    assert_string_equal(fault.what, "a member comes twice");
}

static void test_many_members(void **state)
{
    (void)state;
    char text[4096] = "{";
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\"k%d\":%d", i ? "," : "", i, i);
    size_t bytes = strlen(text);
    snprintf(text + bytes, sizeof text - bytes, "}");
    assert_true(is_taken(text, bytes + 1));
    snprintf(text + bytes, sizeof text - bytes, ",\"k77\":0}");
    assert_false(is_taken(text, strlen(text)));
}

/* Small documents lie in the doc, larger ones are allocated: both are read alike. */
static void test_doc(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 100, 127, 128, 129, 1000};
    struct spw_json_doc doc;
    memset(&doc, 0xA5, sizeof doc);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char text[4096] = "[7";
        for (size_t n = 1; n < counts[i]; n++)
            memcpy(text + 2 * n, ",7", 2);
        memcpy(text + 2 * counts[i], "]", 2);
        const struct spw_json *root = spw_json_doc_read(&doc, text, strlen(text), NULL);
        assert_non_null(root);
        assert_ptr_equal(root, doc.root);
        assert_int_equal(spw_json_count(root), counts[i]);
        int64_t sum = 0;
        SPW_JSON_EACH(one, root)
        {
            sum += spw_json_integer(one);
        }
        assert_int_equal(sum, 7 * counts[i]);
        spw_json_doc_clean_up(&doc);
        assert_null(doc.root);
        text[2 * counts[i]] = '}';
        assert_null(spw_json_doc_read(&doc, text, strlen(text), NULL));
        spw_json_doc_clean_up(&doc);
    }
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * SPW_JSON_DEPTH_MAX + 2];
    memset(text, '[', SPW_JSON_DEPTH_MAX + 1);
    memset(text + SPW_JSON_DEPTH_MAX + 1, ']', SPW_JSON_DEPTH_MAX + 1);
    assert_false(is_taken(text, sizeof text));
    assert_true(is_taken(text + 1, sizeof text - 2));
}

/* ---- beside jansson ---- */

static void agree(const char *bytes, size_t count)
{
    json_error_t error;
    json_t *tree = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    struct spw_json *root = spw_json_read(bytes, count, NULL);
    if ((tree != NULL) != (root != NULL))
        fail_msg("%.*s: jansson %s it (%s)", (int)count, bytes, tree ? "takes" : "refuses",
                 tree ? "" : error.text);
    if (tree) {
        char *again = spw_json_dump(root);
        json_t *same = json_loads(again, JSON_REJECT_DUPLICATES, &error);
        if (!json_equal(tree, same))
            fail_msg("%.*s became %s", (int)count, bytes, again);
        json_decref(same);
        free(again);
    }
    json_decref(tree);
    spw_json_free(root);
}

static void test_agrees_on_vectors(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "}",
                                        "[]",
                                        "{}",
                                        "[1,]",
                                        "[,1]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{a:1}",
                                        "[01]",
                                        "[-]",
                                        "[1.]",
                                        "[.5]",
                                        "[1e]",
                                        "[1e+]",
                                        "[1e400]",
                                        "[-1e400]",
                                        "[1e-400]",
                                        "[NaN]",
                                        "[+1]",
                                        "[tru]",
                                        "[truex]",
                                        "[null]x",
                                        "[nul",
                                        "\"a\"",
                                        "1",
                                        "true",
                                        "[\"\\x\"]",
                                        "[\"\\u12\"]",
                                        "[\"\\ud800\"]",
                                        "[\"\\udc00\"]",
                                        "[\"\\ud800\\u0041\"]",
                                        "[\"\\u0000\"]",
                                        "[\"\t\"]",
                                        "[\"\x7f\"]",
                                        "[\"\xff\"]",
                                        "[\"\xc0\x80\"]",
                                        "[\"\xed\xa0\x80\"]",
                                        "[\"a]",
                                        "[9223372036854775807]",
                                        "[9223372036854775808]",
                                        "[-9223372036854775808]",
                                        "[-9223372036854775809]",
                                        "[123456789012345678901234567890]",
                                        "\xef\xbb\xbf[]",
                                        "[] ",
                                        "\n[\r\n]\t",
                                        "[\f]",
                                        "{\"a\":1,\"a\":1}",
                                        "{\"a\":1,\"\\u0061\":2}",
                                        "{\"\":1}",
                                        "{\"\":1,\"\":2}",
                                        "{\"f\":1,\"ab\":2}",
                                        "{\"f\":1,\"ab\":2,\"f\":3}",
                                        "{\"f\":1,\"ab\":2,\"ac\":3,\"ab\":4}",
                                        "[[[]],{\"a\":[{}]}]",
                                        "[1 2]",
                                        "{\"a\":1 \"b\":2}",
                                        "[1]]",
                                        "[-0]",
                                        "[-0.0]",
                                        "[0e0]",
                                        "[1E+2]",
                                        "[0.1e-7]",
                                        "/**/[]",
                                        "['a']"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        agree(texts[i], strlen(texts[i]));
    agree("[\0]", 3);
    agree("[\"\0\"]", 5);
    agree("[]\0", 3);
}

/* Every byte at every place of texts that are read some bytes at a time. */
static void test_agrees_on_each_byte_of_a_text(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= 18; bytes++) {
        for (size_t place = 0; place < bytes; place++) {
            for (int byte = 0; byte < 256; byte++) {
                char text[32] = "[\"";
                memset(text + 2, 'a', bytes);
                text[2 + place] = (char)byte;
                memcpy(text + 2 + bytes, "\"]", 2);
                agree(text, bytes + 4);
            }
        }
    }
}

/* Random bytes of what JSON is made of, over a sound document: seed fixed, so that a fault comes again. */
static void test_agrees_on_noise(void **state)
{
    (void)state;
    static const char seed[] =
        "{\"items\":[{\"cartId\":\"c\\u00e9\",\"n\":[1,-2.5e3,true,false,null],\"t\":{\"a\":0.92,\"b\":"
        "\"\xc3\xa9\"}}],\"x\":{}}";
    static const char bytes[] = "{}[]:,\"\\u019aetrn.-+E \n\xc3\xa9\xed\x80\x01";
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof seed];
        memcpy(text, seed, sizeof seed);
        size_t count = sizeof seed - 1;
        for (int change = 0; change < 1 + round % 3; change++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t place = (size_t)(random >> 32) % count;
            if (random & 1) {
                text[place] = bytes[(random >> 8) % (sizeof bytes - 1)];
            } else {
                memmove(text + place, text + place + 1, count - place - 1);
                count--;
            }
        }
        agree(text, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_many_members),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_doc),
        cmocka_unit_test(test_agrees_on_each_byte_of_a_text),
        cmocka_unit_test(test_agrees_on_vectors),
        cmocka_unit_test(test_agrees_on_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
