/* limits.c: the service Limits.
 *
 * Owns: nothing. Called by: call.c. Thread: requests are checked on the server's, carried out on the loop's.
 */
#include <inttypes.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/log.h"

static void list_on_loop(struct spw_call *call)
{
    struct spw_state *state = call->control->state;
    uint64_t now_ns = spw_loop_now_ns(call->control->loop);
    struct spw_arena arena = {0};
    Spillway__V1__Limit *limits[SPW_CONF_ACCOUNTS_MAX_COUNT * SPW_LIMITERS_PER_ACCOUNT];
    Spillway__V1__ListLimitsReply reply = SPILLWAY__V1__LIST_LIMITS_REPLY__INIT;
    reply.limits = limits;
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_limit_view view;
        for (uint32_t place = 0; place < SPW_LIMITERS_PER_ACCOUNT; place++)
            if (spw_state_limiter_at(state, i, place, now_ns, &view) ==
                SPW_STATUS_OK) /* else free or removed */
                limits[reply.n_limits++] = spw_message_limit(&arena, &view);
    }
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_limits_list(struct spw_call *call)
{
    spw_call_to_loop(call, list_on_loop);
}

static void get_on_loop(struct spw_call *call)
{
    const Spillway__V1__GetLimitRequest *request = (const Spillway__V1__GetLimitRequest *)call->request;
    struct spw_error err;
    struct spw_limit_view view;
    if (spw_state_limiter_get(call->control->state, request->account, request->limiter,
                              spw_loop_now_ns(call->control->loop), &view, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_arena arena = {0};
    Spillway__V1__GetLimitReply reply = SPILLWAY__V1__GET_LIMIT_REPLY__INIT;
    reply.limit = spw_message_limit(&arena, &view);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_limits_get(struct spw_call *call)
{
    const Spillway__V1__GetLimitRequest *request = (const Spillway__V1__GetLimitRequest *)call->request;
    struct spw_error err;
    if (spw_name_check("account", request->account, &err) ||
        (request->limiter && spw_name_check("limiter", request->limiter, &err)))
        spw_call_fail(call, &err);
    else
        spw_call_to_loop(call, get_on_loop);
}

/* Text, numbers, or both if they agree. */
static enum spw_status take_rate(const Spillway__V1__Rate *message, struct spw_rate *out,
                                 struct spw_error *err)
{
    if (message->has_tokens != message->has_period_ns)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "rate: tokens and period_ns belong together: give both, or text alone as 100/s");
    if (!message->text && !message->has_tokens)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "rate: is empty: give text as 100/s, or tokens and period_ns");
    if (message->text && spw_parse_rate(message->text, out, err)) {
        spw_error_prefix(err, "rate.text: ");
        return err->status;
    }
    if (!message->has_tokens)
        return SPW_STATUS_OK;
    struct spw_rate numbers = {message->tokens, message->period_ns};
    if (message->text && (numbers.tokens_count != out->tokens_count || numbers.period_ns != out->period_ns))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "rate: text and numbers disagree: %s is %" PRIu64 " tokens per %" PRIu64
                             " ns: give one of them",
                             message->text, out->tokens_count, out->period_ns);
    *out = numbers;
    return SPW_STATUS_OK;
}

/* What the request names replaces what is; the whole is then checked by the configuration file's own rules. */
static enum spw_status merge(const Spillway__V1__SetLimitRequest *request, struct spw_conf_limit *limit,
                             struct spw_error *err)
{
    if (request->rate) {
        enum spw_status status = take_rate(request->rate, &limit->rate, err);
        if (status)
            return status;
    }
    if (request->has_burst && limit->kind != SPW_LIMITER_BUCKET)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "burst: is of a bucket alone, and this limiter is none: leave it out");
    if (request->has_burst)
        limit->burst_count = request->burst;
    if (request->has_pods)
        limit->pods_count = request->pods;
    spw_conf_limit_complete(limit);
    return spw_conf_limit_check(limit, err);
}

static void log_change(const struct spw_call *call, const struct spw_limit_view *before,
                       const struct spw_limit_view *after)
{
    char from[48], to[48];
    spw_format_rate(&before->limit.rate, from, sizeof from);
    spw_format_rate(&after->limit.rate, to, sizeof to);
    spw_log(SPW_LOG_INFO, "control.limit",
            "%s: %s burst %" PRIu64 " pods %u -> %s burst %" PRIu64 " pods %u, version %" PRIu64 " (%s)",
            after->account, from, before->limit.burst_count, before->limit.pods_count, to,
            after->limit.burst_count, after->limit.pods_count, after->version, call->door->name);
}

static bool names_a_limit(const Spillway__V1__SetLimitRequest *request)
{
    return request->rate || request->has_burst || request->has_pods;
}

static enum spw_status switch_on_loop(struct spw_state *state, const Spillway__V1__SetLimitRequest *request,
                                      const struct spw_call *call, struct spw_error *err)
{
    struct spw_switch_change change = {.kill = request->has_killed ? request->killed : -1,
                                       .observe = request->has_observed_only ? request->observed_only : -1};
    bool all = request->has_everywhere && request->everywhere;
    if (request->dry_run || (change.kill < 0 && change.observe < 0))
        return SPW_STATUS_OK;
    spw_log(SPW_LOG_WARN, "control.switch", "%s%s%s: off %s, observe %s (%s)",
            all ? "all accounts" : request->account, request->limiter ? " " : "",
            request->limiter ? request->limiter : "",
            change.kill < 0 ? "as it was"
            : change.kill   ? "yes"
                            : "no",
            change.observe < 0 ? "as it was"
            : change.observe   ? "yes"
                               : "no",
            call->door->name);
    return spw_state_switches_set(state, all ? NULL : request->account, request->limiter, &change, err);
}

/* All that a request changes; after: as it is then. */
static enum spw_status change_on_loop(struct spw_call *call, const struct spw_limit_view *before,
                                      struct spw_limit_view *after, struct spw_error *err)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_state *state = call->control->state;
    uint64_t now_ns = spw_loop_now_ns(call->control->loop);
    struct spw_conf_limit limit = before->limit;
    *after = *before;
    if (spw_version_check(request->expect_version, before->version, err))
        return err->status;
    if (names_a_limit(request) &&
        (merge(request, &limit, err) ||
         spw_state_limiter_set(state, request->account, request->limiter, &limit, request->expect_version,
                               request->dry_run, now_ns, after, err)))
        return err->status;
    if (switch_on_loop(state, request, call, err))
        return err->status;
    if (request->dry_run)
        return SPW_STATUS_OK;
    if (names_a_limit(request))
        log_change(call, before, after);
    return spw_state_limiter_get(state, request->account, request->limiter, now_ns, after, err);
}

static void set_on_loop(struct spw_call *call)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_error err;
    struct spw_limit_view before, after;
    char who[SPW_DOER_BYTES];
    const char *changed = request->everywhere ? NULL : request->account;
    struct spw_doer doer = {who, "Limits.Set", 0};
    spw_doer_of_call(call, who, sizeof who);
    spw_record_look(call->control->record, changed, &SPW_DOER_SIDECAR);
    if (spw_state_limiter_get(call->control->state, request->account, request->limiter,
                              spw_loop_now_ns(call->control->loop), &before, &err) ||
        change_on_loop(call, &before, &after, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    spw_record_look(call->control->record, changed, &doer);
    struct spw_arena arena = {0};
    Spillway__V1__SetLimitReply reply = SPILLWAY__V1__SET_LIMIT_REPLY__INIT;
    reply.limit = spw_message_limit(&arena, &after);
    reply.before = spw_message_limit(&arena, &before);
    SPW_SET(&reply, dry_run, request->dry_run);
    reply.reach = (char[]){SPW_REACH};
    SPW_SET(&reply, survives_restart, false);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_limits_set(struct spw_call *call)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_error err;
    if (spw_name_check("account", request->account, &err) ||
        (request->limiter && spw_name_check("limiter", request->limiter, &err)))
        spw_call_fail(call, &err);
    else if (!names_a_limit(request) && !request->has_killed && !request->has_observed_only)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "rate: nothing to change: give rate, burst, pods, killed or observed_only");
    else if (request->everywhere && (request->limiter || names_a_limit(request)))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "everywhere: is for killed and observed_only of all accounts: leave the rest out");
    else
        spw_call_to_loop(call, set_on_loop);
}
