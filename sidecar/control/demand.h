/* demand.h: what callers wanted over the last five minutes, second by second. Internal to control/.
 *
 * Owns: struct spw_demand, 300 looks at the segment's statistics. Called by: why.c. Thread: the loop's.
 */
#ifndef SPW_CONTROL_DEMAND_H
#define SPW_CONTROL_DEMAND_H

#include "sidecar/loop/loop.h"
#include "sidecar/state/state.h"

#define SPW_DEMAND_MOST_MS 300000u

enum spw_demand_cause {
    SPW_DEMAND_BUCKET,
    SPW_DEMAND_GATE,
    SPW_DEMAND_BREAKER,
    SPW_DEMAND_CONCURRENCY,
    SPW_DEMAND_OTHER,
    SPW_DEMAND_AFTER_429,
    SPW_DEMAND_AFTER_TIMEOUT,
    SPW_DEMAND_AFTER_ERROR,
    SPW_DEMAND_CAUSES
};

/* Counts of a window. The first five causes were refused before a call, the others failed after one. */
struct spw_demand_view {
    uint32_t window_ms;
    uint64_t admitted_count;
    uint64_t provider_calls_count, provider_429_count;
    uint64_t causes[SPW_DEMAND_CAUSES];
};

struct spw_demand;
struct spw_demand *spw_demand_new(struct spw_loop *loop, struct spw_state *state);
void spw_demand_start(struct spw_demand *demand);
void spw_demand_stop(struct spw_demand *demand);
void spw_demand_destroy(struct spw_demand *demand);

/* Of the account at this place, over the last window_ms or since the start. false = there is none. */
bool spw_demand_view(struct spw_demand *demand, uint32_t account_index, uint32_t window_ms,
                     struct spw_demand_view *out);

#endif
