/* test_trace.c: which trace contexts count, and what is made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/obs/trace.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static bool counts(const char *parent)
{
    struct spw_trace t;
    spw_trace_read(parent, NULL, &t);
    return t.trace_id[0] != 0;
}

static bool state_counts(const char *state)
{
    struct spw_trace t;
    spw_trace_read("00-" TRACE "-" SPAN "-01", state, &t);
    assert_string_equal(TRACE, t.trace_id);
    return t.state[0] != 0;
}

static void a_valid_parent_counts(void **state)
{
    struct spw_trace t;
    (void)state;
    spw_trace_read("00-" TRACE "-" SPAN "-01", "vendor=a b, other@x=1", &t);
    assert_string_equal(TRACE, t.trace_id);
    assert_string_equal(SPAN, t.span_id);
    assert_int_equal(1, t.flags);
    assert_string_equal("vendor=a b, other@x=1", t.state);
    assert_true(counts("00-" TRACE "-" SPAN "-00"));
    /* A later version: what 00 knows of it, and only the flags that are defined. */
    spw_trace_read("cc-" TRACE "-" SPAN "-ff-what-comes-later", NULL, &t);
    assert_string_equal(TRACE, t.trace_id);
    assert_int_equal(3, t.flags);
    assert_true(counts("cc-" TRACE "-" SPAN "-01"));
}

static void anything_else_makes_no_trace(void **state)
{
    static const char *const bad[] = {NULL,
                                      "",
                                      "00",
                                      "00-" TRACE "-" SPAN "-0",
                                      "00-" TRACE "-" SPAN "-01-",
                                      "00-" TRACE "-" SPAN "-011",
                                      "ff-" TRACE "-" SPAN "-01",
                                      "0x-" TRACE "-" SPAN "-01",
                                      "cc-" TRACE "-" SPAN "-01x",
                                      "00-00000000000000000000000000000000-" SPAN "-01",
                                      "00-" TRACE "-0000000000000000-01",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                      "00-" TRACE "-00F067AA0BA902B7-01",
                                      "00_" TRACE "-" SPAN "-01",
                                      "00-" TRACE "_" SPAN "-01",
                                      "00-" TRACE "-" SPAN "_01",
                                      " 00-" TRACE "-" SPAN "-01",
                                      "00-" TRACE "-" SPAN "-0\n",
                                      "00-" TRACE "-" SPAN "-01\r\nX: y"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(counts(bad[i]));
}

static void a_state_is_a_list_of_printable_pairs(void **state)
{
    char longest[SPW_TRACE_STATE_MAX_BYTES + 2], many[256] = "a=1";
    (void)state;
    assert_true(state_counts("a=1"));
    assert_true(state_counts("a=1,,b=2, "));
    assert_true(state_counts("a=b=c"));
    assert_false(state_counts("a"));
    assert_false(state_counts("a=1,b"));
    assert_false(state_counts("=1"));
    assert_false(state_counts("a=1\r\nX-Other: y"));
    assert_false(state_counts("a=\x7f"));
    assert_false(state_counts("a=\xc3\xa9"));
    memset(longest, 'a', sizeof longest);
    longest[1] = '=';
    longest[SPW_TRACE_STATE_MAX_BYTES] = 0;
    assert_true(state_counts(longest));
    longest[SPW_TRACE_STATE_MAX_BYTES] = 'a';
    longest[SPW_TRACE_STATE_MAX_BYTES + 1] = 0;
    assert_false(state_counts(longest));
    size_t used = 3;
    for (int i = 1; i < 32; i++)
        used += (size_t)snprintf(many + used, sizeof many - used, ",a=1");
    assert_true(state_counts(many));
    snprintf(many + used, sizeof many - used, ",a=1");
    assert_false(state_counts(many));
}

static void a_child_is_of_the_same_trace(void **state)
{
    struct spw_trace t;
    char parent[SPW_TRACE_PARENT_BYTES], list[SPW_TRACE_STATE_BYTES];
    (void)state;
    spw_trace_read("00-" TRACE "-" SPAN "-01", "a=1", &t);
    assert_int_equal(2, spw_trace_child(&t, UINT64_C(0xabc), parent, list));
    assert_string_equal("traceparent: 00-" TRACE "-0000000000000abc-01", parent);
    assert_string_equal("tracestate: a=1", list);
    assert_string_equal("0000000000000abc", t.span_id);
    spw_trace_read("00-" TRACE "-" SPAN "-00", NULL, &t);
    assert_int_equal(1, spw_trace_child(&t, 0, parent, list));
    assert_string_equal("traceparent: 00-" TRACE "-0000000000000001-00", parent);
    spw_trace_read(NULL, "a=1", &t);
    assert_int_equal(0, spw_trace_child(&t, 1, parent, list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_valid_parent_counts),
        cmocka_unit_test(anything_else_makes_no_trace),
        cmocka_unit_test(a_state_is_a_list_of_printable_pairs),
        cmocka_unit_test(a_child_is_of_the_same_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
