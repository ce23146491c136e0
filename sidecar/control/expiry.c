/* expiry.c: changes that go back by themselves. See expiry.h. */
#include "sidecar/control/expiry.h"

#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <string.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/log.h"

#define PLACES_COUNT 64u
#define MS_NS        UINT64_C(1000000)

struct place {
    bool used;
    uint64_t until_ns;
    struct spw_temporary before;
    struct spw_temporary
        set; /* as it was right after the change: what is another now was changed by somebody else */
};

struct spw_expiry {
    struct spw_control *control;
    struct spw_loop_timer timer; /* armed while a place is used */
    struct place places[PLACES_COUNT];
};

static bool is_same(const struct spw_temporary *a, const struct spw_temporary *b)
{
    return a->kind == b->kind && strncmp(a->account, b->account, sizeof a->account) == 0 &&
           strncmp(a->limiter, b->limiter, sizeof a->limiter) == 0;
}

static struct place *find(struct spw_expiry *expiry, const struct spw_temporary *what)
{
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        if (expiry->places[i].used && is_same(&expiry->places[i].before, what))
            return &expiry->places[i];
    }
    return NULL;
}

static struct place *find_free(struct spw_expiry *expiry)
{
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        if (!expiry->places[i].used)
            return &expiry->places[i];
    }
    return NULL;
}

static void arm(struct spw_expiry *expiry)
{
    uint64_t first_ns = UINT64_MAX;
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        if (expiry->places[i].used && expiry->places[i].until_ns < first_ns)
            first_ns = expiry->places[i].until_ns;
    }
    if (first_ns == UINT64_MAX)
        spw_loop_timer_cancel(expiry->control->loop, &expiry->timer);
    else
        spw_loop_timer_set(expiry->control->loop, &expiry->timer, first_ns);
}

/* ---- going back ---- */

static enum spw_status go_back(struct spw_control *control, const struct spw_temporary *t,
                               struct spw_error *err)
{
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    const char *account = *t->account ? t->account : NULL, *limiter = *t->limiter ? t->limiter : NULL;
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
    struct spw_switch_change switches = {.kill = (t->switches & SPW_SWITCH_KILL) != 0,
                                         .observe = (t->switches & SPW_SWITCH_OBSERVE) != 0};
    struct spw_breaker_change change = {.conf = &t->breaker, .forced = t->forced};
    switch (t->kind) {
    case SPW_EXPIRY_LIMIT:
        return spw_state_limiter_set(control->state, t->account, limiter, &t->limit, 0, false, now_ns, &limit,
                                     err);
    case SPW_EXPIRY_SWITCHES:
        return spw_state_switches_set(control->state, account, limiter, &switches, err);
    case SPW_EXPIRY_BREAKER:
        return spw_state_breaker_set(control->state, t->account, &change, 0, false, now_ns, &breaker, err);
    }
    return SPW_STATUS_OK;
}

/* How the thing is now. */
static enum spw_status look(struct spw_control *control, const struct spw_temporary *what,
                            struct spw_temporary *out)
{
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    const char *account = *what->account ? what->account : NULL,
               *limiter = *what->limiter ? what->limiter : NULL;
    struct spw_limit_view limit;
    struct spw_breaker_view breaker;
    struct spw_error err;
    enum spw_status status = SPW_STATUS_OK;
    *out = *what;
    if (what->kind == SPW_EXPIRY_LIMIT) {
        status = spw_state_limiter_get(control->state, what->account, limiter, now_ns, &limit, &err);
        if (!status)
            out->limit = limit.limit;
    } else if (what->kind == SPW_EXPIRY_SWITCHES) {
        status = spw_state_switches_get(control->state, account, limiter, &out->switches, &err);
    } else {
        status = spw_state_breaker_get(control->state, what->account, now_ns, &breaker, &err);
        if (!status) {
            out->breaker = breaker.conf;
            out->forced = spw_forced_of_word(breaker.forced);
        }
    }
    return status;
}

/* false = a new configuration, say, has changed it since: that stays. */
static bool is_as_set(struct spw_control *control, const struct place *place)
{
    struct spw_temporary now;
    const struct spw_temporary *set = &place->set;
    if (look(control, set, &now))
        return false;
    switch (set->kind) {
    case SPW_EXPIRY_LIMIT:
        return now.limit.rate.tokens_count == set->limit.rate.tokens_count &&
               now.limit.rate.period_ns == set->limit.rate.period_ns &&
               now.limit.burst_count == set->limit.burst_count &&
               now.limit.pods_count == set->limit.pods_count;
    case SPW_EXPIRY_SWITCHES:
        return now.switches == set->switches;
    case SPW_EXPIRY_BREAKER:
        return now.forced == set->forced && memcmp(&now.breaker, &set->breaker, sizeof now.breaker) == 0;
    }
    return false;
}

static void due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_expiry *expiry = timer->owner;
    struct spw_control *control = expiry->control;
    uint64_t now_ns = spw_loop_now_ns(loop);
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        struct place *place = &expiry->places[i];
        struct spw_error err;
        if (!place->used || place->until_ns > now_ns)
            continue;
        struct spw_temporary before = place->before;
        const char *account = *before.account ? before.account : NULL;
        struct spw_doer doer = {SPW_DOER_SIDECAR.who, "expiry", 0};
        place->used = false;
        spw_record_look(control->record, account, &SPW_DOER_SIDECAR);
        if (!is_as_set(control, place)) {
            spw_log(SPW_LOG_INFO, "control.expiry",
                    "%s: what was set for a time has been changed since: it stays",
                    account ? account : "all accounts");
            continue;
        }
        if (go_back(control, &before, &err))
            spw_log(SPW_LOG_ERROR, "control.expiry", "%s: what was set for a time stays: %s",
                    account ? account : "all accounts", err.text);
        spw_record_look(control->record, account, &doer);
    }
    arm(expiry);
}

/* ---- from the method files ---- */

enum spw_status spw_expiry_check(uint64_t for_ms, struct spw_error *err)
{
    if (!for_ms || (for_ms >= SPW_EXPIRY_LEAST_MS && for_ms <= SPW_EXPIRY_MOST_MS))
        return SPW_STATUS_OK;
    return spw_error_set(err, SPW_STATUS_INVALID,
                         "for_ms: %" PRIu64 ": write %" PRIu64 " to %" PRIu64 " (7 days)", for_ms,
                         SPW_EXPIRY_LEAST_MS, SPW_EXPIRY_MOST_MS);
}

enum spw_status spw_expiry_room(struct spw_expiry *expiry, const struct spw_temporary *before,
                                struct spw_error *err)
{
    if (find(expiry, before) || find_free(expiry))
        return SPW_STATUS_OK;
    return spw_error_set(
        err, SPW_STATUS_FULL,
        "for_ms: %u changes are set for a time already: let one of them stay or go back first", PLACES_COUNT);
}

void spw_expiry_set(struct spw_expiry *expiry, const struct spw_temporary *before, uint64_t for_ms)
{
    struct place *place = find(expiry, before);
    if (!for_ms) {
        if (place)
            place->used = false;
    } else {
        bool fresh = !place;
        if (fresh)
            place = find_free(expiry);
        if (!place)
            return;
        if (fresh)
            place->before = *before; /* else it goes back to what was before the first */
        place->used = look(expiry->control, before, &place->set) == SPW_STATUS_OK;
        place->until_ns = spw_loop_now_ns(expiry->control->loop) + for_ms * MS_NS;
    }
    arm(expiry);
}

static uint64_t left_ms(const struct spw_expiry *expiry, enum spw_expiry_kind kind, const char *account,
                        const char *limiter)
{
    uint64_t now_ns = spw_loop_now_ns(expiry->control->loop);
    if (!spw_loop_timer_armed(
            &expiry->timer)) /* nearly always, and looked for with each limit that is told */
        return 0;
    for (size_t i = 0; i < PLACES_COUNT; i++) {
        const struct place *place = &expiry->places[i];
        if (place->used && place->before.kind == kind && strcmp(place->before.account, account) == 0 &&
            strcmp(place->before.limiter, limiter) == 0)
            return place->until_ns > now_ns ? (place->until_ns - now_ns + MS_NS - 1) / MS_NS : 1;
    }
    return 0;
}

/* Of the three levels that may have switched it, the first to go back. */
static uint64_t switches_left_ms(const struct spw_expiry *expiry, const Spillway__V1__Limit *message)
{
    uint64_t levels[] = {left_ms(expiry, SPW_EXPIRY_SWITCHES, message->account, message->limiter),
                         left_ms(expiry, SPW_EXPIRY_SWITCHES, message->account, ""),
                         left_ms(expiry, SPW_EXPIRY_SWITCHES, "", "")};
    uint64_t least = 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (levels[i] && (!least || levels[i] < least))
            least = levels[i];
    }
    return least;
}

void spw_expiry_note_limit(const struct spw_expiry *expiry, Spillway__V1__Limit *message)
{
    if (!message->account || !message->limiter)
        return;
    bool wide = strcmp(message->limiter, SPW_LIMITER_ACCOUNT_NAME) == 0;
    uint64_t left = left_ms(expiry, SPW_EXPIRY_LIMIT, message->account, wide ? "" : message->limiter);
    uint64_t switches = switches_left_ms(expiry, message);
    if (left)
        SPW_SET(message, expires_in_ms, left);
    if (switches)
        SPW_SET(message, switches_expire_in_ms, switches);
}

void spw_expiry_note_breaker(const struct spw_expiry *expiry, Spillway__V1__Breaker *message)
{
    uint64_t left = message->account ? left_ms(expiry, SPW_EXPIRY_BREAKER, message->account, "") : 0;
    if (left)
        SPW_SET(message, expires_in_ms, left);
}

/* ---- life ---- */

struct spw_expiry *spw_expiry_new(struct spw_control *control)
{
    struct spw_expiry *expiry = gpr_zalloc(sizeof *expiry);
    expiry->control = control;
    expiry->timer = (struct spw_loop_timer){.fn = due, .owner = expiry};
    return expiry;
}

void spw_expiry_destroy(struct spw_expiry *expiry)
{
    spw_loop_timer_cancel(expiry->control->loop, &expiry->timer);
    gpr_free(expiry);
}
