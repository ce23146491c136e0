/* limiter.h: the scripted provider's own rate limit, by one of two stated algorithms.
 *
 * Owns: the limit's state. Called by: server.c under its lock. Thread: any, one at a time; pure over the given clock.
 */
#ifndef SPW_MOCK_LIMITER_H
#define SPW_MOCK_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/conf/conf.h"
#include "sidecar/provider/decimal.h"

enum spw_mock_algorithm {
    SPW_MOCK_BUCKET, /* token bucket: starts full with burst tokens, earns rate evenly; a refusal costs nothing */
    SPW_MOCK_FIXED_WINDOW /* a count per aligned period since start; a refusal is not counted */
};

struct spw_mock_limiter {
    bool is_on;
    enum spw_mock_algorithm algorithm;
    struct spw_rate rate;
    uint64_t burst_count;
    /* bucket: level in token x period_ns, so that one ns earns tokens_count units and no fraction is ever lost */
    spw_wide level;
    uint64_t last_ns;
    /* fixed window */
    uint64_t window_index;
    uint64_t used_count;
};

struct spw_mock_verdict {
    bool is_allowed;
    uint64_t limit_count;     /* most that can be taken at once */
    uint64_t remaining_count; /* after this request */
    uint64_t reset_ns;        /* until all of limit_count is back */
    uint64_t retry_ns;        /* until one more would be allowed; 0 when one is */
};

/* burst_count 0 = one period's worth. */
void spw_mock_limiter_init(struct spw_mock_limiter *limiter, const struct spw_rate *rate,
                           enum spw_mock_algorithm algorithm, uint64_t burst_count);
/* now_ns never goes back. */
struct spw_mock_verdict spw_mock_limiter_take(struct spw_mock_limiter *limiter, uint64_t now_ns);
const char *spw_mock_algorithm_name(enum spw_mock_algorithm algorithm);
/* One sentence that says what is refused. */
void spw_mock_limiter_describe(const struct spw_mock_limiter *limiter, char *out, size_t room);

#endif
