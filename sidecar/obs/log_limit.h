/* log_limit.h: at most so many lines of one event in a span of time. Internal to obs/.
 *
 * Owns: nothing. Called by: log.c, under its lock. Thread: any; pure.
 */
#ifndef SPW_OBS_LOG_LIMIT_H
#define SPW_OBS_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define SPW_LOG_LIMIT_COUNT   100u
#define SPW_LOG_LIMIT_SPAN_NS UINT64_C(10000000000)

/* Zero-initialise. */
struct spw_log_limit {
    uint64_t since_ns;
    uint32_t written_count;
    uint32_t dropped_count;
};

/* May a line be written? *dropped_count: so many were dropped since the last one that was; 0 = none. */
static inline bool spw_log_limit_take(struct spw_log_limit *limit, uint64_t now_ns, uint32_t *dropped_count)
{
    *dropped_count = 0;
    if (limit->written_count == 0 || now_ns - limit->since_ns >= SPW_LOG_LIMIT_SPAN_NS) {
        limit->since_ns = now_ns;
        limit->written_count = 0;
    }
    if (limit->written_count >= SPW_LOG_LIMIT_COUNT) {
        limit->dropped_count += limit->dropped_count < UINT32_MAX;
        return false;
    }
    limit->written_count++;
    *dropped_count = limit->dropped_count;
    limit->dropped_count = 0;
    return true;
}

#endif
