/* limiter.c: see limiter.h. */
#include "sidecar/mock/limiter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void spw_mock_limiter_init(struct spw_mock_limiter *limiter, const struct spw_rate *rate,
                           enum spw_mock_algorithm algorithm, uint64_t burst_count)
{
    memset(limiter, 0, sizeof *limiter);
    limiter->is_on = true;
    limiter->rate = *rate;
    limiter->algorithm = algorithm;
    limiter->burst_count = burst_count ? burst_count : rate->tokens_count;
    limiter->level = (spw_wide)limiter->burst_count * (spw_wide)rate->period_ns;
}

/* ns until units are earned, rounded up; a rate of zero never earns. */
static uint64_t earn_ns(const struct spw_mock_limiter *l, spw_wide units)
{
    if (units <= 0)
        return 0;
    if (l->rate.tokens_count == 0)
        return UINT64_MAX;
    spw_wide ns = (units + (spw_wide)l->rate.tokens_count - 1) / (spw_wide)l->rate.tokens_count;
    return ns > (spw_wide)UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

static void take_bucket(struct spw_mock_limiter *l, uint64_t now_ns, struct spw_mock_verdict *v)
{
    spw_wide cost = (spw_wide)l->rate.period_ns;
    spw_wide full = (spw_wide)l->burst_count * cost;
    l->level += (spw_wide)(now_ns - l->last_ns) * (spw_wide)l->rate.tokens_count;
    if (l->level > full)
        l->level = full;
    l->last_ns = now_ns;
    v->is_allowed = l->level >= cost;
    if (v->is_allowed)
        l->level -= cost;
    v->limit_count = l->burst_count;
    v->remaining_count = (uint64_t)(l->level / cost);
    v->reset_ns = earn_ns(l, full - l->level);
    v->retry_ns = earn_ns(l, cost - l->level);
}

static void take_window(struct spw_mock_limiter *l, uint64_t now_ns, struct spw_mock_verdict *v)
{
    uint64_t index = now_ns / l->rate.period_ns;
    if (index != l->window_index) {
        l->window_index = index;
        l->used_count = 0;
    }
    v->is_allowed = l->used_count < l->rate.tokens_count;
    if (v->is_allowed)
        l->used_count++;
    v->limit_count = l->rate.tokens_count;
    v->remaining_count = l->rate.tokens_count - l->used_count;
    v->reset_ns = (index + 1) * l->rate.period_ns - now_ns;
    v->retry_ns = v->remaining_count ? 0 : l->rate.tokens_count ? v->reset_ns : UINT64_MAX;
}

struct spw_mock_verdict spw_mock_limiter_take(struct spw_mock_limiter *limiter, uint64_t now_ns)
{
    struct spw_mock_verdict v = {.is_allowed = true};
    if (!limiter->is_on)
        return v;
    if (limiter->algorithm == SPW_MOCK_BUCKET)
        take_bucket(limiter, now_ns, &v);
    else
        take_window(limiter, now_ns, &v);
    return v;
}

const char *spw_mock_algorithm_name(enum spw_mock_algorithm algorithm)
{
    return algorithm == SPW_MOCK_BUCKET ? "bucket" : "fixed-window";
}

void spw_mock_limiter_describe(const struct spw_mock_limiter *limiter, char *out, size_t room)
{
    char rate[32];
    if (!limiter->is_on) {
        snprintf(out, room, "no limit: nothing is refused for its rate");
        return;
    }
    spw_format_rate(&limiter->rate, rate, sizeof rate);
    if (limiter->algorithm == SPW_MOCK_BUCKET)
        snprintf(out, room,
                 "token bucket of %" PRIu64
                 ", full at start, refilled evenly at %s; what finds it empty is answered "
                 "429 and takes nothing",
                 limiter->burst_count, rate);
    else
        snprintf(out, room,
                 "fixed windows of %s, aligned to the start of the provider; what comes above the count in a "
                 "window "
                 "is answered 429 and is not counted",
                 rate);
}
