/* test_exposition.c: the text of /metrics: escapes, labels in the table's order, histograms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/http/exposition.h"

struct text {
    FILE *out;
    char *buffer;
    size_t bytes;
};

static void begin(struct text *t)
{
    t->out = open_memstream(&t->buffer, &t->bytes);
    assert_non_null(t->out);
}

static void expect(struct text *t, const char *want)
{
    assert_int_equal(0, fclose(t->out));
    assert_string_equal(want, t->buffer);
    free(t->buffer);
}

/* The case that once made a whole target unreadable, character for character. */
static void exactly_three_characters_are_escaped(void **state)
{
    struct text t;
    (void)state;
    begin(&t);
    spw_metric_put(t.out, SPW_METRIC_RETRIES, 3, "Acme \"EU\" \\ tax\n2");
    expect(&t, "spillway_provider_retries_total{account=\"Acme \\\"EU\\\" \\\\ tax\\n2\"} 3\n");
    begin(&t);
    spw_metric_put(t.out, SPW_METRIC_RETRIES, 3, "{a=\"b\",}\t\xc3\xa9 #");
    expect(&t, "spillway_provider_retries_total{account=\"{a=\\\"b\\\",}\t\xc3\xa9 #\"} 3\n");
}

static void labels_follow_the_table(void **state)
{
    struct text t;
    (void)state;
    begin(&t);
    spw_metric_put(t.out, SPW_METRIC_QUOTES, 7, "main", "live");
    spw_metric_put(t.out, SPW_METRIC_ONLY_IN_POD, 12345678901.0);
    spw_metric_put(t.out, SPW_METRIC_TOKENS, 0.125, NULL);
    spw_metric_put(t.out, SPW_METRIC_FORECAST, HUGE_VAL, "main");
    expect(&t, "spillway_quotes_total{account=\"main\",decision=\"live\"} 7\n"
               "spillway_flags_only_in_pod 12345678901\n"
               "spillway_tokens{account=\"\"} 0.125\n"
               "spillway_reconcile_forecast_seconds{account=\"main\"} +Inf\n");
}

static void a_histogram_adds_up(void **state)
{
    static const double bounds[] = {0.01, 1};
    static const unsigned long long counts[] = {2, 0, 5};
    struct spw_metric_histogram h = {.bounds = bounds, .counts = counts, .bounds_count = 2, .sum = 9.5};
    struct text t;
    (void)state;
    begin(&t);
    spw_metric_begin(t.out, SPW_METRIC_LATENCY);
    spw_metric_put_histogram(t.out, SPW_METRIC_LATENCY, &h, "main", "live");
    expect(&t, "# HELP spillway_quote_seconds Time from request to answer, by decision. [doors]\n"
               "# TYPE spillway_quote_seconds histogram\n"
               "spillway_quote_seconds_bucket{account=\"main\",decision=\"live\",le=\"0.01\"} 2\n"
               "spillway_quote_seconds_bucket{account=\"main\",decision=\"live\",le=\"1\"} 2\n"
               "spillway_quote_seconds_bucket{account=\"main\",decision=\"live\",le=\"+Inf\"} 7\n"
               "spillway_quote_seconds_sum{account=\"main\",decision=\"live\"} 9.5\n"
               "spillway_quote_seconds_count{account=\"main\",decision=\"live\"} 7\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_three_characters_are_escaped),
        cmocka_unit_test(labels_follow_the_table),
        cmocka_unit_test(a_histogram_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
