/* test_log.c: what is written of an event that comes too often. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sidecar/obs/log.h"
#include "sidecar/obs/log_limit.h"

static void so_many_in_a_span_and_the_rest_is_counted(void **unused)
{
    (void)unused;
    struct spw_log_limit limit = {0};
    uint32_t dropped, written = 0;
    uint64_t now_ns = 5;
    for (int i = 0; i < 250; i++, now_ns += 1000)
        written += spw_log_limit_take(&limit, now_ns, &dropped);
    assert_int_equal(written, SPW_LOG_LIMIT_COUNT);
    now_ns += SPW_LOG_LIMIT_SPAN_NS;
    assert_true(spw_log_limit_take(&limit, now_ns, &dropped));
    assert_int_equal(dropped, 250 - SPW_LOG_LIMIT_COUNT);
    assert_true(spw_log_limit_take(&limit, now_ns, &dropped));
    assert_int_equal(dropped, 0);
}

static void an_event_that_floods_leaves_others_alone(void **unused)
{
    (void)unused;
    char text[64 * 1024];
    FILE *file = tmpfile();
    assert_non_null(file);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    for (int i = 0; i < 300; i++)
        spw_log(SPW_LOG_WARN, "test.flood", "line %d", i);
    spw_log(SPW_LOG_WARN, "test.other", "is told");
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = 0;
    fclose(file);
    uint32_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_int_equal(lines, SPW_LOG_LIMIT_COUNT + 1);
    assert_non_null(strstr(text, "test.other: is told"));
    assert_non_null(strstr(text, "line 99\n"));
    assert_null(strstr(text, "line 100\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_in_a_span_and_the_rest_is_counted),
        cmocka_unit_test(an_event_that_floods_leaves_others_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
