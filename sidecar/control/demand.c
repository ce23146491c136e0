/* demand.c: what callers wanted over the last five minutes. See demand.h.
 *
 * Each second the counters as they stand are kept; a window is the difference of two looks, modulo 2^32.
 */
#include "sidecar/control/demand.h"

#include <grpc/support/alloc.h>
#include <string.h>

#define LOOK_NS     UINT64_C(1000000000)
#define LOOKS_COUNT 301u
#define FIRST_OTHER 3u /* columns before the causes */

enum { COLUMN_ADMITTED, COLUMN_CALLS, COLUMN_429, COLUMNS_COUNT = FIRST_OTHER + SPW_DEMAND_CAUSES };

struct look {
    uint64_t at_ns; /* 0 = not made yet */
    uint32_t counts[SPW_CONF_ACCOUNTS_MAX_COUNT][COLUMNS_COUNT];
};

struct spw_demand {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_loop_timer timer;
    uint32_t newest;
    struct look looks[LOOKS_COUNT];
};

static bool take(struct spw_demand *demand, uint32_t index, uint64_t now_ns, uint32_t counts[COLUMNS_COUNT])
{
    struct spw_account_status s;
    if (spw_state_account_status(demand->state, index, now_ns, &s))
        return false;
    const uint64_t all[COLUMNS_COUNT] = {s.decisions[SPW_STAT_ALLOW],
                                         s.provider_calls_count,
                                         s.provider_429_count,
                                         s.decisions[SPW_STAT_DENY_BUCKET],
                                         s.decisions[SPW_STAT_DENY_GATE],
                                         s.decisions[SPW_STAT_DENY_BREAKER],
                                         s.decisions[SPW_STAT_DENY_CONCURRENCY],
                                         s.decisions[SPW_STAT_DENY_OTHER],
                                         s.door_fallbacks[SPW_FALLBACK_RATE_LIMIT_429],
                                         s.door_fallbacks[SPW_FALLBACK_PROVIDER_TIMEOUT],
                                         s.door_fallbacks[SPW_FALLBACK_PROVIDER_ERROR]};
    for (unsigned i = 0; i < COLUMNS_COUNT; i++)
        counts[i] = (uint32_t)all[i];
    return true;
}

static void look(struct spw_demand *demand)
{
    uint64_t now_ns = spw_loop_now_ns(demand->loop);
    demand->newest = (demand->newest + 1) % LOOKS_COUNT;
    struct look *look = &demand->looks[demand->newest];
    memset(look, 0, sizeof *look);
    look->at_ns = now_ns;
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++)
        (void)take(demand, i, now_ns, look->counts[i]);
}

static void look_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_demand *demand = timer->owner;
    look(demand);
    spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + LOOK_NS);
}

/* The newest look that is at least so old; else the oldest there is. */
static const struct look *look_before(const struct spw_demand *demand, uint64_t at_ns)
{
    const struct look *found = &demand->looks[demand->newest];
    for (uint32_t back = 0; back < LOOKS_COUNT; back++) {
        const struct look *one = &demand->looks[(demand->newest + LOOKS_COUNT - back) % LOOKS_COUNT];
        if (!one->at_ns)
            break;
        found = one;
        if (one->at_ns <= at_ns)
            break;
    }
    return found;
}

bool spw_demand_view(struct spw_demand *demand, uint32_t account_index, uint32_t window_ms,
                     struct spw_demand_view *out)
{
    uint64_t now_ns = spw_loop_now_ns(demand->loop), window_ns = window_ms * UINT64_C(1000000);
    uint32_t now[COLUMNS_COUNT];
    memset(out, 0, sizeof *out);
    if (account_index >= SPW_CONF_ACCOUNTS_MAX_COUNT || !take(demand, account_index, now_ns, now))
        return false;
    const struct look *then = look_before(demand, now_ns > window_ns ? now_ns - window_ns : 0);
    const uint32_t *was = then->counts[account_index];
    out->window_ms = (uint32_t)((now_ns - then->at_ns) / 1000000);
    out->admitted_count = (uint32_t)(now[COLUMN_ADMITTED] - was[COLUMN_ADMITTED]);
    out->provider_calls_count = (uint32_t)(now[COLUMN_CALLS] - was[COLUMN_CALLS]);
    out->provider_429_count = (uint32_t)(now[COLUMN_429] - was[COLUMN_429]);
    for (unsigned i = 0; i < SPW_DEMAND_CAUSES; i++)
        out->causes[i] = (uint32_t)(now[FIRST_OTHER + i] - was[FIRST_OTHER + i]);
    return true;
}

struct spw_demand *spw_demand_new(struct spw_loop *loop, struct spw_state *state)
{
    struct spw_demand *demand = gpr_zalloc(sizeof *demand);
    demand->loop = loop;
    demand->state = state;
    demand->timer = (struct spw_loop_timer){.fn = look_due, .owner = demand};
    return demand;
}

void spw_demand_start(struct spw_demand *demand)
{
    look(demand);
    spw_loop_timer_set(demand->loop, &demand->timer, spw_loop_now_ns(demand->loop) + LOOK_NS);
}

void spw_demand_stop(struct spw_demand *demand)
{
    spw_loop_timer_cancel(demand->loop, &demand->timer);
}

void spw_demand_destroy(struct spw_demand *demand)
{
    gpr_free(demand);
}
