/* exposition.c: see exposition.h. */
#include "sidecar/http/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* The words of the table's types. */
#define COUNTER                                     "counter"
#define GAUGE                                       "gauge"
#define HISTOGRAM                                   "histogram"
#define ROW(symbol, name, type, unit, labels, help) {name, type, labels, help},
static const struct {
    const char *name, *type, *labels, *help;
} family[SPW_METRIC_COUNT] = {SPW_METRIC_TABLE(ROW)};

void spw_metric_begin(FILE *out, enum spw_metric metric)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family[metric].name, family[metric].help,
            family[metric].name, family[metric].type);
}

/* The format's three escapes, and no more: backslash, double quote, line feed. */
static void put_value(FILE *out, const char *value)
{
    for (; value && *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
}

/* "a,b" with the values of a and b: a="..",b="..". */
static void put_labels(FILE *out, const char *names, va_list values)
{
    while (*names) {
        size_t bytes = strcspn(names, ",");
        fprintf(out, "%.*s=\"", (int)bytes, names);
        put_value(out, va_arg(values, const char *));
        fputs(names[bytes] ? "\"," : "\"", out);
        names += bytes + (names[bytes] ? 1 : 0);
    }
}

void spw_metric_put(FILE *out, enum spw_metric metric, double value, ...)
{
    const char *labels = family[metric].labels;
    va_list values;
    va_start(values, value);
    fputs(family[metric].name, out);
    if (*labels) {
        fputc('{', out);
        put_labels(out, labels, values);
        fputc('}', out);
    }
    if (isinf(value))
        fputs(value > 0 ? " +Inf\n" : " -Inf\n", out);
    else
        fprintf(out, " %.15g\n", value);
    va_end(values);
}

void spw_metric_put_histogram(FILE *out, enum spw_metric metric, const struct spw_metric_histogram *h, ...)
{
    unsigned long long below = 0;
    va_list values, again;
    va_start(values, h);
    for (unsigned i = 0; i <= h->bounds_count; i++) {
        below += h->counts[i];
        va_copy(again, values);
        fprintf(out, "%s_bucket{", family[metric].name);
        put_labels(out, family[metric].labels, again);
        va_end(again);
        if (i < h->bounds_count)
            fprintf(out, ",le=\"%g\"} %llu\n", h->bounds[i], below);
        else
            fprintf(out, ",le=\"+Inf\"} %llu\n", below);
    }
    const char *const part[] = {"_sum", "_count"};
    const double is[] = {h->sum, (double)below};
    for (unsigned i = 0; i < 2; i++) {
        va_copy(again, values);
        fprintf(out, "%s%s{", family[metric].name, part[i]);
        put_labels(out, family[metric].labels, again);
        va_end(again);
        fprintf(out, "} %.15g\n", is[i]);
    }
    va_end(values);
}
