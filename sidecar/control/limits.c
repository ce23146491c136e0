/* limits.c: the service Limits.
 *
 * Owns: nothing. Called by: call.c. Thread: requests are checked on the server's, carried out on the loop's.
 */
#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/persist.h"
#include "sidecar/control/server.h"

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
            {
                limits[reply.n_limits] = spw_message_limit(&arena, &view);
                spw_expiry_note_limit(call->control->expiry, limits[reply.n_limits++]);
            }
    }
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_limits_list(struct spw_call *call)
{
    spw_call_at_once(call, list_on_loop);
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
    spw_expiry_note_limit(call->control->expiry, reply.limit);
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
        spw_call_at_once(call, get_on_loop);
}

/* Text, numbers, or both if they agree. */
enum spw_status spw_take_rate(const Spillway__V1__Rate *message, struct spw_rate *out, struct spw_error *err)
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
        enum spw_status status = spw_take_rate(request->rate, &limit->rate, err);
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

static bool names_a_limit(const Spillway__V1__SetLimitRequest *request)
{
    return request->rate || request->has_burst || request->has_pods;
}

static bool names_switches(const Spillway__V1__SetLimitRequest *request)
{
    return request->has_killed || request->has_observed_only;
}

static enum spw_status switch_on_loop(struct spw_state *state, const Spillway__V1__SetLimitRequest *request,
                                      struct spw_error *err)
{
    struct spw_switch_change change = {.kill = request->has_killed ? request->killed : -1,
                                       .observe = request->has_observed_only ? request->observed_only : -1};
    if (change.kill < 0 && change.observe < 0)
        return SPW_STATUS_OK;
    return spw_state_switches_set(state, request->everywhere ? NULL : request->account, request->limiter,
                                  &change, err);
}

/* What a dry run shows of the switches: those of the level that is named alone would change. */
static void foresee_switches(const Spillway__V1__SetLimitRequest *request, struct spw_limit_view *view)
{
    if (request->has_killed)
        view->switches =
            request->killed ? view->switches | SPW_SWITCH_KILL : view->switches & ~SPW_SWITCH_KILL;
    if (request->has_observed_only)
        view->switches = request->observed_only ? view->switches | SPW_SWITCH_OBSERVE
                                                : view->switches & ~SPW_SWITCH_OBSERVE;
}

/* The two things a request may change for a time, as they are before it. */
static enum spw_status take_before(struct spw_control *control, const Spillway__V1__SetLimitRequest *request,
                                   const struct spw_limit_view *before, struct spw_temporary *limit,
                                   struct spw_temporary *switches, struct spw_error *err)
{
    *limit = (struct spw_temporary){.kind = SPW_EXPIRY_LIMIT, .limit = before->limit};
    *switches = (struct spw_temporary){.kind = SPW_EXPIRY_SWITCHES};
    snprintf(limit->account, sizeof limit->account, "%s", before->account);
    if (strcmp(before->limiter, SPW_LIMITER_ACCOUNT_NAME) != 0)
        memcpy(limit->limiter, before->limiter, sizeof limit->limiter);
    if (!request->everywhere)
        snprintf(switches->account, sizeof switches->account, "%s", before->account);
    if (request->limiter)
        snprintf(switches->limiter, sizeof switches->limiter, "%s", request->limiter);
    if (spw_state_switches_get(control->state, request->everywhere ? NULL : request->account,
                               request->limiter, &switches->switches, err))
        return err->status;
    if (!request->for_ms)
        return SPW_STATUS_OK;
    if (names_a_limit(request) && spw_expiry_room(control->expiry, limit, err))
        return err->status;
    return names_switches(request) ? spw_expiry_room(control->expiry, switches, err) : SPW_STATUS_OK;
}

/* All that a request changes; after: as it is then. */
static enum spw_status change_on_loop(struct spw_call *call, const struct spw_limit_view *before,
                                      struct spw_limit_view *after, struct spw_error *err)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_control *control = call->control;
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    struct spw_conf_limit limit = before->limit;
    struct spw_temporary limit_before, switches_before;
    *after = *before;
    if (spw_version_check(request->expect_version, before->version, err) ||
        take_before(control, request, before, &limit_before, &switches_before, err))
        return err->status;
    if (names_a_limit(request) &&
        (merge(request, &limit, err) ||
         spw_state_limiter_set(control->state, request->account, request->limiter, &limit,
                               request->expect_version, request->dry_run, now_ns, after, err)))
        return err->status;
    if (request->dry_run) {
        foresee_switches(request, after);
        return SPW_STATUS_OK;
    }
    if (switch_on_loop(control->state, request, err))
        return err->status;
    if (names_a_limit(request))
        spw_expiry_set(control->expiry, &limit_before, request->for_ms);
    if (names_switches(request))
        spw_expiry_set(control->expiry, &switches_before, request->for_ms);
    return spw_state_limiter_get(control->state, before->account, request->limiter, now_ns, after, err);
}

static void answer_set(struct spw_call *call, const struct spw_limit_view *before,
                       const struct spw_limit_view *after)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_arena arena = {0};
    Spillway__V1__SetLimitReply reply = SPILLWAY__V1__SET_LIMIT_REPLY__INIT;
    reply.limit = spw_message_limit(&arena, after);
    reply.before = spw_message_limit(&arena, before);
    bool kept = (request->persist || request->clear) && !request->dry_run;
    if (!request->dry_run && !kept) /* kept: nothing of it goes back */
        spw_expiry_note_limit(call->control->expiry, reply.limit);
    SPW_SET(&reply, dry_run, request->dry_run);
    reply.reach = (char[]){SPW_REACH};
    SPW_SET(&reply, survives_restart, kept && request->persist);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

struct kept {
    struct spw_limit_view before, after;
};

static void free_kept(struct spw_call *call)
{
    gpr_free(call->own);
}

static void answer_kept(struct spw_call *call)
{
    const struct kept *kept = call->own;
    answer_set(call, &kept->before, &kept->after);
}

static void keep(struct spw_call *call, const struct spw_limit_view *before,
                 const struct spw_limit_view *after)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct kept *kept = gpr_zalloc(sizeof *kept);
    enum spw_limiter_mode mode = after->switches & SPW_SWITCH_KILL      ? SPW_LIMITER_OFF
                                 : after->switches & SPW_SWITCH_OBSERVE ? SPW_LIMITER_OBSERVE
                                                                        : SPW_LIMITER_ENFORCE;
    struct spw_overlay_change change = {.account = after->account,
                                        .clear = request->clear,
                                        .limit = names_a_limit(request) ? &after->limit : NULL,
                                        .mode = names_switches(request) ? &mode : NULL};
    *kept = (struct kept){*before, *after};
    call->own = kept;
    call->on_free = free_kept;
    spw_persist(call, &change, answer_kept);
}

/* What is meant for all accounts is shown by the first one, unless one is named. */
static enum spw_status take_view(struct spw_call *call, struct spw_limit_view *out, struct spw_error *err)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_state *state = call->control->state;
    uint64_t now_ns = spw_loop_now_ns(call->control->loop);
    if (request->account)
        return spw_state_limiter_get(state, request->account, request->limiter, now_ns, out, err);
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        if (spw_state_limiter_at(state, i, 0, now_ns, out) == SPW_STATUS_OK)
            return SPW_STATUS_OK;
    }
    return spw_error_set(err, SPW_STATUS_NOT_FOUND, "account: there is none: configure one");
}

static void set_on_loop(struct spw_call *call)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_error err;
    struct spw_limit_view before, after;
    char who[SPW_DOER_BYTES];
    const char *changed = request->everywhere ? NULL : request->account;
    struct spw_doer doer = {who, "Limits.Set", request->for_ms};
    spw_doer_of_call(call, who, sizeof who);
    spw_record_look(call->control->record, changed, &SPW_DOER_SIDECAR);
    if (take_view(call, &before, &err) || change_on_loop(call, &before, &after, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    spw_record_look(call->control->record, changed, &doer);
    if ((request->persist || request->clear) && !request->dry_run)
        keep(call, &before, &after);
    else
        answer_set(call, &before, &after);
}

void spw_limits_set(struct spw_call *call)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)call->request;
    struct spw_error err;
    bool needs_account = !request->everywhere || request->account;
    if ((needs_account && spw_name_check("account", request->account, &err)) ||
        (request->limiter && spw_name_check("limiter", request->limiter, &err)) ||
        spw_expiry_check(request->for_ms, &err))
        spw_call_fail(call, &err);
    else if (request->persist &&
             (request->for_ms || request->limiter || request->everywhere || request->clear))
        spw_call_refuse(
            call, GRPC_STATUS_INVALID_ARGUMENT,
            "persist: is for an account's own limit and switches, and not for a time: leave for_ms, "
            "limiter, everywhere and clear out");
    else if (request->clear && (names_a_limit(request) || names_switches(request)))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "clear: stands alone: make the change in a request of its own");
    else if (!request->clear && !names_a_limit(request) && !names_switches(request))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "rate: nothing to change: give rate, burst, pods, killed or observed_only");
    else if (request->everywhere && request->expect_version)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "expect_version: is of one account: leave it out with everywhere");
    else if (request->everywhere && (request->limiter || names_a_limit(request)))
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "everywhere: is for killed and observed_only of all accounts: leave the rest out");
    else
        spw_call_at_once(call, set_on_loop);
}
