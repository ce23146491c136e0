/* why.c: Status.Why: why calls are not made, and what a change would do.
 *
 * Owns: the proposals. Called by: call.c. Thread: the loop's.
 *
 * The forecast: at the same demand, what the bucket refuses is what is wanted above the limit; the other causes stay.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_gcra.h"
#include "sidecar/control/demand.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

#define WINDOW_LEAST_MS   1000u
#define WINDOW_DEFAULT_MS 60000u
#define MILLION           1000000u
#define CHANGES_MAX_COUNT 3u

struct found {
    struct spw_demand_view demand;
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
    uint64_t wanted_count;
    uint64_t failed_count; /* not live, for whatever reason */
};

static uint32_t share_ppm(uint64_t part, uint64_t whole)
{
    if (!whole)
        return 0;
    uint64_t ppm = part * MILLION / whole;
    return ppm > MILLION ? MILLION : (uint32_t)ppm;
}

/* Thousandths a second of a rate. */
static uint64_t per_s_milli(const struct spw_rate *rate)
{
    return rate->period_ns
               ? (uint64_t)((spw_u128)rate->tokens_count * UINT64_C(1000000000000) / rate->period_ns)
               : 0;
}

static uint64_t wanted_per_s_milli(const struct found *f)
{
    return f->demand.window_ms ? f->wanted_count * UINT64_C(1000000) / f->demand.window_ms : 0;
}

/* What would fall back of the same demand if this pod might use so much. */
static uint32_t forecast_ppm(const struct found *f, uint64_t pod_per_s_milli)
{
    uint64_t most = pod_per_s_milli * f->demand.window_ms / UINT64_C(1000000);
    uint64_t refused = f->wanted_count > most ? f->wanted_count - most : 0;
    uint64_t now = f->demand.causes[SPW_DEMAND_BUCKET];
    if (pod_per_s_milli >= per_s_milli(&f->limit.pod_rate) && refused > now)
        refused = now; /* tokens that had been saved up are not counted twice */
    return share_ppm(f->failed_count - now + refused, f->wanted_count);
}

/* ---- causes ---- */

static const char *help_of(struct spw_arena *arena, const struct found *f, enum spw_demand_cause cause)
{
    const char *a = f->limit.account;
    switch (cause) {
    case SPW_DEMAND_BUCKET:
        return f->demand.provider_429_count
                   ? "the provider refuses too: a higher limit here gives more of its 429"
                   : "spillwayctl limits set: see below";
    case SPW_DEMAND_GATE:
        return spw_arena_text(arena, "a pause the provider asked for: spillwayctl gate get %s", a);
    case SPW_DEMAND_BREAKER:
        return spw_arena_text(arena, "spillwayctl breaker get %s; breaker reset %s closes it", a, a);
    case SPW_DEMAND_CONCURRENCY:
        return "concurrency in the configuration, if the provider allows more calls at a time";
    case SPW_DEMAND_AFTER_429:
        return "the provider's limit is lower than ours, or others use it: spillwayctl limits set, lower";
    case SPW_DEMAND_AFTER_TIMEOUT:
        return "the provider is slow: deadline in the configuration";
    case SPW_DEMAND_AFTER_ERROR:
        return "the provider fails: the sidecar's log, provider.error and provider.broken";
    default:
        return "spillwayctl flags export: cause";
    }
}

static int more_first(const void *a, const void *b)
{
    const Spillway__V1__WhyCause *const *x = a, *const *y = b;
    return (*x)->count < (*y)->count ? 1 : (*x)->count > (*y)->count ? -1 : 0;
}

static void add_causes(struct spw_arena *arena, const struct found *f, Spillway__V1__WhyAccount *message)
{
    static const char *const words[SPW_DEMAND_CAUSES] = {"no token left",     "gate shut",
                                                         "breaker open",      "too many calls in flight",
                                                         "other refusals",    "provider answered 429",
                                                         "provider too slow", "provider failed"};
    message->causes = spw_arena_zalloc(arena, SPW_DEMAND_CAUSES * sizeof(void *));
    for (unsigned i = 0; i < SPW_DEMAND_CAUSES; i++) {
        if (!f->demand.causes[i])
            continue;
        Spillway__V1__WhyCause *cause = spw_arena_zalloc(arena, sizeof *cause);
        spillway__v1__why_cause__init(cause);
        cause->why = spw_arena_text(arena, "%s", words[i]);
        SPW_SET(cause, count, f->demand.causes[i]);
        SPW_SET(cause, share_ppm, share_ppm(f->demand.causes[i], f->wanted_count));
        cause->help = spw_arena_text(arena, "%s", help_of(arena, f, (enum spw_demand_cause)i));
        message->causes[message->n_causes++] = cause;
    }
    qsort(message->causes, message->n_causes, sizeof(void *), more_first);
}

/* ---- proposals ---- */

/* Up to the next number of two digits and zeros: 214 -> 220. */
static uint64_t round_up(uint64_t value)
{
    uint64_t step = 1;
    while (value / step >= 100)
        step *= 10;
    return (value + step - 1) / step * step;
}

static void add_change(struct spw_arena *arena, const struct found *f, const struct spw_rate *rate,
                       Spillway__V1__WhyAccount *message)
{
    struct spw_conf_limit limit = f->limit.limit;
    struct spw_rate pod = *rate;
    char text[48];
    limit.rate = *rate;
    pod.period_ns *= limit.pods_count ? limit.pods_count : 1;
    spw_format_rate(rate, text, sizeof text);
    for (size_t i = 0; i < message->n_changes; i++) {
        if (strcmp(message->changes[i]->rate->text, text) == 0)
            return;
    }
    Spillway__V1__WhyChange *change = spw_arena_zalloc(arena, sizeof *change);
    spillway__v1__why_change__init(change);
    change->rate = spw_message_rate(arena, rate);
    SPW_SET(change, fallback_ppm, forecast_ppm(f, per_s_milli(&pod)));
    change->command = spw_arena_text(arena, "spillwayctl limits set %s --rate %s", f->limit.account, text);
    message->changes[message->n_changes++] = change;
}

/* Half as much again, and enough for all that is wanted. Not where the provider refuses by itself, or where other things
 * than the account's own limit are in the way. */
static void add_proposals(struct spw_arena *arena, const struct found *f, const struct spw_rate *asked,
                          Spillway__V1__WhyAccount *message)
{
    message->changes = spw_arena_zalloc(arena, CHANGES_MAX_COUNT * sizeof(void *));
    if (asked)
        add_change(arena, f, asked, message);
    const struct spw_rate *now = &f->limit.limit.rate;
    uint64_t pods = f->limit.limit.pods_count ? f->limit.limit.pods_count : 1;
    if (!f->demand.causes[SPW_DEMAND_BUCKET] || f->demand.provider_429_count || !now->tokens_count)
        return;
    spw_u128 enough = (spw_u128)wanted_per_s_milli(f) * pods * now->period_ns / UINT64_C(1000000000000) + 1;
    if (enough > UINT64_C(1000000000) || now->tokens_count > UINT64_C(1000000000))
        return;
    struct spw_rate half = {now->tokens_count + (now->tokens_count + 1) / 2, now->period_ns};
    struct spw_rate all = {round_up((uint64_t)enough), now->period_ns};
    if (half.tokens_count < all.tokens_count)
        add_change(arena, f, &half, message);
    if (all.tokens_count > now->tokens_count)
        add_change(arena, f, &all, message);
}

/* ---- the answer ---- */

static Spillway__V1__WhyAccount *message_why(struct spw_control *control, struct spw_arena *arena,
                                             const struct found *f, const struct spw_rate *asked)
{
    Spillway__V1__WhyAccount *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__why_account__init(message);
    message->account = spw_arena_copy(arena, f->limit.account, sizeof f->limit.account);
    SPW_SET(message, window_ms, f->demand.window_ms);
    SPW_SET(message, wanted, f->wanted_count);
    SPW_SET(message, admitted, f->demand.admitted_count);
    SPW_SET(message, provider_calls, f->demand.provider_calls_count);
    SPW_SET(message, provider_429, f->demand.provider_429_count);
    SPW_SET(message, wanted_per_s_milli, wanted_per_s_milli(f));
    SPW_SET(message, allowed_per_s_milli, per_s_milli(&f->limit.pod_rate));
    SPW_SET(message, fallback_ppm, share_ppm(f->failed_count, f->wanted_count));
    message->limit = spw_message_limit(arena, &f->limit);
    message->breaker = spw_message_breaker(arena, &f->breaker);
    spw_expiry_note_limit(control->expiry, message->limit);
    spw_expiry_note_breaker(control->expiry, message->breaker);
    add_causes(arena, f, message);
    add_proposals(arena, f, asked, message);
    return message;
}

/* false = no such account there, or it is not the one that was asked for. */
static bool find(struct spw_control *control, uint32_t index, const Spillway__V1__WhyRequest *request,
                 struct found *f)
{
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    uint32_t window_ms = request->has_window_ms ? request->window_ms : WINDOW_DEFAULT_MS;
    memset(f, 0, sizeof *f);
    if (spw_state_limiter_at(control->state, index, 0, now_ns, &f->limit) ||
        (request->account && strcmp(request->account, f->limit.account) != 0) ||
        spw_state_breaker_at(control->state, index, now_ns, &f->breaker) ||
        !spw_demand_view(control->demand, index, window_ms, &f->demand))
        return false;
    f->wanted_count = f->demand.admitted_count;
    for (unsigned i = 0; i < SPW_DEMAND_CAUSES; i++) {
        f->failed_count += f->demand.causes[i];
        f->wanted_count += i < SPW_DEMAND_AFTER_429 ? f->demand.causes[i] : 0;
    }
    return true;
}

static void why_on_loop(struct spw_call *call)
{
    const Spillway__V1__WhyRequest *request = (const Spillway__V1__WhyRequest *)call->request;
    struct spw_control *control = call->control;
    struct spw_error err;
    struct spw_rate asked;
    if (request->rate && spw_take_rate(request->rate, &asked, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__WhyReply reply = SPILLWAY__V1__WHY_REPLY__INIT;
    Spillway__V1__WhyAccount *accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    reply.accounts = accounts;
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct found f;
        if (find(control, i, request, &f))
            accounts[reply.n_accounts++] = message_why(control, &arena, &f, request->rate ? &asked : NULL);
    }
    if (request->account && !reply.n_accounts)
        spw_call_refuse(call, GRPC_STATUS_NOT_FOUND,
                        "account: there is no account \"%s\"; `spillwayctl limits list` names them",
                        request->account);
    else
        spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_status_why(struct spw_call *call)
{
    const Spillway__V1__WhyRequest *request = (const Spillway__V1__WhyRequest *)call->request;
    struct spw_error err;
    if (request->account && spw_name_check("account", request->account, &err))
        spw_call_fail(call, &err);
    else if (request->has_window_ms &&
             (request->window_ms < WINDOW_LEAST_MS || request->window_ms > SPW_DEMAND_MOST_MS))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "window_ms: %u: write %u to %u",
                        request->window_ms, WINDOW_LEAST_MS, SPW_DEMAND_MOST_MS);
    else
        spw_call_to_loop(call, why_on_loop);
}
