/* forecast.c: see forecast.h. Thread: any; pure. */
#include "sidecar/reconcile/forecast.h"

#include <string.h>

#define LEAST_MILLI_PER_S 1000u

void spw_forecast_make(const struct spw_forecast_facts *f, struct spw_forecast *out)
{
    memset(out, 0, sizeof *out);
    uint64_t batch = f->batch_count ? f->batch_count : 1;
    out->calls_count =
        (f->pending_count + batch - 1) / batch + (f->pending_count + f->filings_count) * f->calls_per_filing;
    out->spare_milli_per_s = f->spare_milli_per_s;
    uint64_t left_ms = f->within_ms > f->oldest_age_ms ? f->within_ms - f->oldest_age_ms : 0;
    if (out->calls_count && !f->spare_milli_per_s)
        out->takes_ms = SPW_FORECAST_NEVER_MS;
    else if (out->calls_count)
        out->takes_ms = f->blocked_ms + out->calls_count * 1000000 / f->spare_milli_per_s;
    out->late = out->calls_count && out->takes_ms > left_ms;
    /* Twice as fast as needed leaves room for what goes wrong. */
    uint64_t needed = left_ms ? out->calls_count * 2000000 / left_ms : UINT64_MAX;
    uint64_t half = f->spare_milli_per_s / 2;
    out->pace_milli_per_s = needed > half ? needed : half;
    if (out->late)
        out->pace_milli_per_s = UINT64_MAX;
    if (out->pace_milli_per_s < LEAST_MILLI_PER_S)
        out->pace_milli_per_s = LEAST_MILLI_PER_S;
}
