/* conf_limit.c: the rules of limits and breakers, the same for the file and for the control API.
 *
 * Owns: spw_conf_limit_check, spw_conf_limit_complete, spw_conf_breaker_check. Called by: conf_account.c, control/. Thread: any; pure.
 */
#include <inttypes.h>
#include <stdio.h>

#include "sidecar/conf/conf_check.h"

#define NS_PER_S        UINT64_C(1000000000)
#define NS_PER_DAY      (UINT64_C(86400) * NS_PER_S)
#define BURST_MAX       UINT64_C(4000000000)
#define PODS_MAX        100000u
#define WINDOW_MIN_MS   1000u
#define WINDOW_MAX_MS   160000u /* 16 words of at most 10 s each */
#define COOLDOWN_MIN_MS 100u
#define COOLDOWN_MAX_MS 3600000u

__extension__ typedef unsigned __int128 wide;

static enum spw_status fault(struct spw_error *err, const char **where, const char *field, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));
static enum spw_status fault(struct spw_error *err, const char **where, const char *field, const char *format,
                             ...)
{
    *where = field;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return spw_error_set(err, SPW_STATUS_INVALID, "%s", text);
}

uint64_t spw_limit_default_burst(const struct spw_rate *rate)
{
    if (!rate->tokens_count)
        return 0;
    uint64_t per_s = (uint64_t)((wide)rate->tokens_count * NS_PER_S / rate->period_ns);
    return per_s ? per_s : 1;
}

void spw_conf_limit_complete(struct spw_conf_limit *limit)
{
    if (limit->kind == SPW_LIMITER_LEAKY)
        limit->burst_count = limit->rate.tokens_count ? limit->pods_count : 0;
    else if (limit->kind == SPW_LIMITER_WINDOW)
        limit->burst_count = limit->rate.tokens_count;
}

enum spw_status spw_limit_check(const struct spw_conf_limit *limit, const char **field, struct spw_error *err)
{
    const char *bad_rate = spw_rate_fault(&limit->rate);
    if (bad_rate)
        return fault(err, field, "rate", "%s", bad_rate);
    if (limit->burst_count > BURST_MAX)
        return fault(err, field, "burst", "%" PRIu64 " is too large: at most %" PRIu64, limit->burst_count,
                     BURST_MAX);
    if (!limit->pods_count)
        return fault(
            err, field, "pods",
            "is missing: the provider's published limit belongs to the account, so say how many pods share "
            "it: the most that can run at a time (pods: 1 for a single one)");
    if (limit->pods_count > PODS_MAX)
        return fault(err, field, "pods", "%u is out of range: write 1 to %u", limit->pods_count, PODS_MAX);
    if (limit->kind > SPW_LIMITER_WINDOW)
        return fault(err, field, "kind", "is not known: bucket, leaky or window");
    if (!limit->rate.tokens_count)
        return SPW_STATUS_OK;
    if (limit->kind == SPW_LIMITER_WINDOW && limit->rate.period_ns < NS_PER_S)
        return fault(err, field, "rate", "has a window below 1s: write a longer one, as 1000/min");
    if (limit->kind == SPW_LIMITER_WINDOW && limit->rate.tokens_count < limit->pods_count)
        return fault(err, field, "rate", "leaves less than one call a window for each of %u pods",
                     limit->pods_count);
    if (limit->burst_count < limit->pods_count)
        return fault(err, field, "burst",
                     "%" PRIu64
                     " is less than one token for each of %u pods: write at least %u, or lower pods",
                     limit->burst_count, limit->pods_count, limit->pods_count);
    if ((wide)limit->rate.tokens_count * NS_PER_DAY < (wide)limit->rate.period_ns * limit->pods_count)
        return fault(err, field, "rate",
                     "divided by %u pods is less than 1/d for each: raise it, or lower pods",
                     limit->pods_count);
    return SPW_STATUS_OK;
}

enum spw_status spw_breaker_check(const struct spw_conf_breaker *b, const char **field, struct spw_error *err)
{
    if (b->consecutive_429_count < 1 || b->consecutive_429_count > 255)
        return fault(err, field, "consecutive_429", "%u is out of range: write 1 to 255",
                     b->consecutive_429_count);
    if (b->ratio_429_ppm < 1 || b->ratio_429_ppm > 1000000)
        return fault(err, field, "ratio_429", "is out of range: write more than 0%% and at most 100%%");
    if (b->minimum_count < 1 || b->minimum_count > 1000000)
        return fault(err, field, "minimum", "%u is out of range: write 1 to 1000000", b->minimum_count);
    if (b->window_ms < WINDOW_MIN_MS || b->window_ms > WINDOW_MAX_MS)
        return fault(err, field, "window", "is out of range: write 1s to 160s");
    if (b->cooldown_min_ms < COOLDOWN_MIN_MS || b->cooldown_max_ms > COOLDOWN_MAX_MS)
        return fault(err, field, "cooldown", "is out of range: write 100ms to 1h, as 30s..60s");
    if (b->cooldown_min_ms > b->cooldown_max_ms)
        return fault(err, field, "cooldown",
                     "ends before it begins: write the shorter time first, as 30s..60s");
    if (b->mode != SPW_BREAKER_ENFORCE && b->mode != SPW_BREAKER_OBSERVE && b->mode != SPW_BREAKER_DISABLED)
        return fault(err, field, "mode", "is not known: enforce, observe or disabled");
    return SPW_STATUS_OK;
}

enum spw_status spw_conf_limit_check(const struct spw_conf_limit *limit, struct spw_error *err)
{
    const char *field = "";
    enum spw_status status = spw_limit_check(limit, &field, err);
    if (status)
        spw_error_prefix(err, "%s: ", field);
    return status;
}

enum spw_status spw_conf_breaker_check(const struct spw_conf_breaker *breaker, struct spw_error *err)
{
    const char *field = "";
    enum spw_status status = spw_breaker_check(breaker, &field, err);
    if (status)
        spw_error_prefix(err, "%s: ", field);
    return status;
}
