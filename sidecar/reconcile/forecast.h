/* forecast.h: how long the backlog takes with what checkout leaves of the limit.
 *
 * Owns: the arithmetic. Called by: engine.c, tests. Thread: any; pure.
 */
#ifndef SPW_RECONCILE_FORECAST_H
#define SPW_RECONCILE_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#define SPW_FORECAST_NEVER_MS UINT64_MAX

struct spw_forecast_facts {
    uint64_t pending_count;     /* rows to calculate */
    uint64_t filings_count;     /* rows to file; pending ones not among them */
    uint32_t batch_count;       /* rows one calculation call takes, at least 1 */
    uint32_t calls_per_filing;  /* 0 = nothing is filed */
    uint64_t spare_milli_per_s; /* calls a second, thousandths, that checkout leaves */
    uint64_t blocked_ms;        /* until calls may begin: gate, breaker */
    uint64_t oldest_age_ms;
    uint64_t within_ms;
};
struct spw_forecast {
    uint64_t calls_count;       /* that are needed */
    uint64_t spare_milli_per_s; /* as given */
    uint64_t takes_ms;          /* SPW_FORECAST_NEVER_MS = no capacity is left */
    uint64_t
        pace_milli_per_s; /* how fast to call: done in half the time there is, or with half of what is spare */
    bool late;            /* the oldest row will be, or is, older than within */
};
void spw_forecast_make(const struct spw_forecast_facts *facts, struct spw_forecast *out);

#endif
