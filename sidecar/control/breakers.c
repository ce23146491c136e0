/* breakers.c: the service Breakers.
 *
 * Owns: nothing. Called by: call.c. Thread: requests are checked on the server's, carried out on the loop's.
 */
#include <grpc/support/alloc.h>
#include <string.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/persist.h"
#include "sidecar/control/server.h"

bool spw_breaker_view_of(struct spw_call *call, const char *account, struct spw_breaker_view *view)
{
    struct spw_error err;
    if (!spw_state_breaker_get(call->control->state, account, spw_loop_now_ns(call->control->loop), view,
                               &err))
        return true;
    spw_call_fail(call, &err);
    return false;
}

static void get_on_loop(struct spw_call *call)
{
    const Spillway__V1__GetBreakerRequest *request = (const Spillway__V1__GetBreakerRequest *)call->request;
    struct spw_breaker_view view;
    if (!spw_breaker_view_of(call, request->account, &view))
        return;
    struct spw_arena arena = {0};
    Spillway__V1__GetBreakerReply reply = SPILLWAY__V1__GET_BREAKER_REPLY__INIT;
    reply.breaker = spw_message_breaker(&arena, &view);
    spw_expiry_note_breaker(call->control->expiry, reply.breaker);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

static void list_on_loop(struct spw_call *call)
{
    struct spw_control *control = call->control;
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    struct spw_arena arena = {0};
    Spillway__V1__Breaker *breakers[SPW_CONF_ACCOUNTS_MAX_COUNT];
    Spillway__V1__ListBreakersReply reply = SPILLWAY__V1__LIST_BREAKERS_REPLY__INIT;
    reply.breakers = breakers;
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_breaker_view view;
        if (spw_state_breaker_at(control->state, i, now_ns, &view)) /* free or removed */
            continue;
        breakers[reply.n_breakers] = spw_message_breaker(&arena, &view);
        spw_expiry_note_breaker(control->expiry, breakers[reply.n_breakers++]);
    }
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_breakers_list(struct spw_call *call)
{
    spw_call_at_once(call, list_on_loop);
}

void spw_breakers_get(struct spw_call *call)
{
    struct spw_error err;
    if (spw_name_check("account", ((Spillway__V1__GetBreakerRequest *)call->request)->account, &err))
        spw_call_fail(call, &err);
    else
        spw_call_at_once(call, get_on_loop);
}

static enum spw_status take_mode(Spillway__V1__BreakerMode mode, enum spw_breaker_mode *out,
                                 struct spw_error *err)
{
    switch (mode) {
    case SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_ENFORCE:
        *out = SPW_BREAKER_ENFORCE;
        return SPW_STATUS_OK;
    case SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_OBSERVE:
        *out = SPW_BREAKER_OBSERVE;
        return SPW_STATUS_OK;
    case SPILLWAY__V1__BREAKER_MODE__BREAKER_MODE_DISABLED:
        *out = SPW_BREAKER_DISABLED;
        return SPW_STATUS_OK;
    default:
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "settings.mode: %d is no mode: enforce, observe or disabled", (int)mode);
    }
}

/* The file's rules name the file's fields; a caller of the API is told the message's. */
static void name_field(struct spw_error *err)
{
    static const char *const names[][2] = {
        {"ratio_429: ", "ratio_429_ppm: "}, {"window: ", "window_ms: "}, {"cooldown: ", "cooldown_min_ms: "}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes = strlen(names[i][0]);
        if (strncmp(err->text, names[i][0], bytes) != 0)
            continue;
        memmove(err->text, err->text + bytes, strlen(err->text + bytes) + 1);
        spw_error_prefix(err, "%s", names[i][1]);
        break;
    }
    spw_error_prefix(err, "settings.");
}

/* What the request names replaces what is; the whole is then checked by the configuration file's own rules. */
static enum spw_status merge(const Spillway__V1__BreakerSettings *settings, struct spw_conf_breaker *conf,
                             struct spw_error *err)
{
    if (settings->has_consecutive_429)
        conf->consecutive_429_count = settings->consecutive_429;
    if (settings->has_ratio_429_ppm)
        conf->ratio_429_ppm = settings->ratio_429_ppm;
    if (settings->has_minimum)
        conf->minimum_count = settings->minimum;
    if (settings->has_window_ms)
        conf->window_ms = settings->window_ms;
    if (settings->has_cooldown_min_ms)
        conf->cooldown_min_ms = settings->cooldown_min_ms;
    if (settings->has_cooldown_max_ms)
        conf->cooldown_max_ms = settings->cooldown_max_ms;
    if (settings->has_mode) {
        enum spw_status status = take_mode(settings->mode, &conf->mode, err);
        if (status)
            return status;
    }
    enum spw_status status = spw_conf_breaker_check(conf, err);
    if (status)
        name_field(err);
    return status;
}

/* -1 = leave as it is, -2 = no such value. */
static int take_force(const Spillway__V1__SetBreakerRequest *request)
{
    if (!request->has_force)
        return -1;
    switch (request->force) {
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_UNSPECIFIED:
        return -1;
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_AUTO:
        return SPW_FORCED_NOT;
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OPEN:
        return SPW_FORCED_OPEN;
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_CLOSED:
        return SPW_FORCED_CLOSED;
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_DISABLED:
        return SPW_FORCED_DISABLED;
    case SPILLWAY__V1__BREAKER_FORCE__BREAKER_FORCE_OBSERVE:
        return SPW_FORCED_OBSERVE;
    default:
        return -2;
    }
}

static void answer_set(struct spw_call *call, bool dry_run, const struct spw_breaker_view *before,
                       const struct spw_breaker_view *after)
{
    struct spw_arena arena = {0};
    Spillway__V1__SetBreakerReply reply = SPILLWAY__V1__SET_BREAKER_REPLY__INIT;
    reply.breaker = spw_message_breaker(&arena, after);
    bool kept = ((const Spillway__V1__SetBreakerRequest *)call->request)->persist && !dry_run;
    if (!dry_run && !kept) /* kept: nothing of it goes back */
        spw_expiry_note_breaker(call->control->expiry, reply.breaker);
    reply.before = spw_message_breaker(&arena, before);
    SPW_SET(&reply, dry_run, dry_run);
    reply.reach = (char[]){SPW_REACH};
    SPW_SET(&reply, survives_restart, kept);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

struct kept {
    struct spw_breaker_view before, after;
};

static void free_kept(struct spw_call *call)
{
    gpr_free(call->own);
}

static void answer_kept(struct spw_call *call)
{
    const struct kept *kept = call->own;
    answer_set(call, false, &kept->before, &kept->after);
}

static void keep(struct spw_call *call, const struct spw_breaker_view *before,
                 const struct spw_breaker_view *after)
{
    struct kept *kept = gpr_zalloc(sizeof *kept);
    struct spw_overlay_change change = {.account = after->account, .breaker = &after->conf};
    *kept = (struct kept){*before, *after};
    call->own = kept;
    call->on_free = free_kept;
    spw_persist(call, &change, answer_kept);
}

int spw_forced_of_word(const char *word)
{
    static const char *const words[] = {"", "open", "closed", "disabled", "observe"};
    for (int i = 0; i <= SPW_FORCED_OBSERVE; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
    }
    return SPW_FORCED_NOT;
}

static void set_on_loop(struct spw_call *call)
{
    const Spillway__V1__SetBreakerRequest *request = (const Spillway__V1__SetBreakerRequest *)call->request;
    struct spw_state *state = call->control->state;
    uint64_t now_ns = spw_loop_now_ns(call->control->loop);
    struct spw_error err;
    struct spw_breaker_view before, after;
    char who[SPW_DOER_BYTES];
    struct spw_doer doer = {who, "Breakers.Set", request->for_ms};
    spw_doer_of_call(call, who, sizeof who);
    spw_record_look(call->control->record, request->account, &SPW_DOER_SIDECAR);
    if (spw_state_breaker_get(state, request->account, now_ns, &before, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_conf_breaker conf = before.conf;
    if (spw_version_check(request->expect_version, before.version, &err) ||
        (request->settings && merge(request->settings, &conf, &err))) {
        spw_call_fail(call, &err);
        return;
    }
    struct spw_breaker_change change = {.conf = request->settings ? &conf : NULL,
                                        .forced = take_force(request),
                                        .reset = request->reset,
                                        .trip = request->trip};
    struct spw_temporary temporary = {
        .kind = SPW_EXPIRY_BREAKER, .breaker = before.conf, .forced = spw_forced_of_word(before.forced)};
    memcpy(temporary.account, before.account, sizeof temporary.account);
    if ((request->for_ms && spw_expiry_room(call->control->expiry, &temporary, &err)) ||
        spw_state_breaker_set(state, request->account, &change, request->expect_version, request->dry_run,
                              now_ns, &after, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    if (!request->dry_run && (change.conf || change.forced >= 0))
        spw_expiry_set(call->control->expiry, &temporary, request->for_ms);
    spw_record_look(call->control->record, request->account, &doer);
    if (request->persist && !request->dry_run)
        keep(call, &before, &after);
    else
        answer_set(call, request->dry_run, &before, &after);
}

void spw_breakers_set(struct spw_call *call)
{
    const Spillway__V1__SetBreakerRequest *request = (const Spillway__V1__SetBreakerRequest *)call->request;
    struct spw_error err;
    int force = take_force(request);
    if (spw_name_check("account", request->account, &err) || spw_expiry_check(request->for_ms, &err))
        spw_call_fail(call, &err);
    else if (force == -2)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "force: %d is not known: auto, open, closed, disabled or observe",
                        (int)request->force);
    else if (!request->settings && force == -1 && !request->reset && !request->trip)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "settings: nothing to change: give settings, force, reset or trip");
    else if (request->reset && request->trip)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "trip: opens what reset closes: give one of them");
    else if (request->persist &&
             (request->for_ms || !request->settings || force != -1 || request->reset || request->trip))
        spw_call_refuse(
            call, GRPC_STATUS_INVALID_ARGUMENT,
            "persist: is for settings, and not for a time: leave force, reset, trip and for_ms out");
    else if (request->for_ms && !request->settings && force == -1)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "for_ms: is for settings and force: reset and trip go over by themselves");
    else
        spw_call_at_once(call, set_on_loop);
}
