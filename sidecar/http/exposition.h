/* exposition.h: metrics as Prometheus' text: families of the table, samples with their labels escaped.
 *
 * Owns: the text format. Called by: metrics.c. Thread: any; writes to the caller's stream only.
 */
#ifndef SPW_HTTP_EXPOSITION_H
#define SPW_HTTP_EXPOSITION_H

#include <stdio.h>

#include "sidecar/http/metric_table.h"

#define SPW_METRIC_ENUM(symbol, name, type, unit, labels, help) SPW_METRIC_##symbol,
enum spw_metric { SPW_METRIC_TABLE(SPW_METRIC_ENUM) SPW_METRIC_COUNT };
#undef SPW_METRIC_ENUM

/* The HELP and TYPE lines that stand before a family's samples. */
void spw_metric_begin(FILE *out, enum spw_metric metric);

/* One sample; as many label values follow as the table names labels, in its order. NULL is written as "". */
void spw_metric_put(FILE *out, enum spw_metric metric, double value, ...);

/* One series of a histogram: counts[i] observations up to bounds[i] and not to bounds[i-1]; counts[bounds_count] above all
 * bounds. The family's label values follow. */
struct spw_metric_histogram {
    const double *bounds;
    const unsigned long long *counts;
    unsigned bounds_count;
    double sum;
};
void spw_metric_put_histogram(FILE *out, enum spw_metric metric, const struct spw_metric_histogram *histogram,
                              ...);

#endif
