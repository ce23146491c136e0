/* stats.h: what the scripted provider saw and how it answered.
 *
 * Owns: the counters. Called by: server.c under its lock. Thread: any, one at a time.
 *
 * Identity, at any moment: requests_total = sum of by_status + sum of by_action + in_flight. A second's seen is at
 * least its answered_200 + answered_429: an answer counts in the second its request was seen in.
 */
#ifndef SPW_MOCK_STATS_H
#define SPW_MOCK_STATS_H

#include <stdint.h>

#include <jansson.h>

#include "sidecar/mock/scenario.h"

#define SPW_MOCK_SECONDS_MAX_COUNT 7200u /* seconds with traffic that are kept one by one: two hours' worth */

struct spw_mock_second {
    uint64_t second; /* since the provider's start */
    uint64_t seen_count;
    uint64_t answered_200_count;
    uint64_t answered_429_count;
};

struct spw_mock_stats {
    uint64_t requests_count;
    uint64_t in_flight_count;
    uint64_t by_status_count[600];
    uint64_t by_action_count[SPW_MOCK_ACTION_COUNT];
    uint64_t over_limit_count;   /* refused by the provider's own limit */
    uint64_t accepted_count;     /* let past key and limit */
    uint64_t max_per_second;     /* most seen in one aligned second */
    uint64_t max_accepted_count; /* most accepted in any second, aligned or not */
    uint64_t seconds_forgotten_count;
    uint64_t seconds_count;
    struct spw_mock_second seconds[SPW_MOCK_SECONDS_MAX_COUNT];
    /* a ring of the times accepted within the last second, oldest first */
    uint64_t *accepted_ns;
    uint64_t accepted_room, accepted_first, accepted_held;
    uint64_t epoch; /* counts resets: what was in flight at one is not counted into the next period */
};

void spw_mock_stats_reset(struct spw_mock_stats *stats);
void spw_mock_stats_clean_up(struct spw_mock_stats *stats);
/* A provider request has been read; returns the second it belongs to. */
uint64_t spw_mock_stats_seen(struct spw_mock_stats *stats, uint64_t now_ns);
void spw_mock_stats_accepted(struct spw_mock_stats *stats, uint64_t now_ns);
/* It got a whole answer, or one of the bad actions. epoch and second are those it was seen in. */
void spw_mock_stats_answered(struct spw_mock_stats *stats, uint64_t epoch, uint64_t second, unsigned status);
void spw_mock_stats_acted(struct spw_mock_stats *stats, uint64_t epoch, enum spw_mock_action action);
/* A new object; NULL when there is no memory. */
json_t *spw_mock_stats_json(const struct spw_mock_stats *stats);

#endif
