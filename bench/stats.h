/* stats.h: quantiles of measured values. Owns: nothing. Called by: the benches. Thread: any; the values are sorted in place. */
#ifndef SPW_BENCH_STATS_H
#define SPW_BENCH_STATS_H

#include <stddef.h>
#include <stdlib.h>

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* q from 0 to 1; count at least 1. */
static inline double quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof values[0], by_value);
    return values[(size_t)((double)(count - 1) * q)];
}

#endif
