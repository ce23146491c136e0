/* record.c: finds what has changed in the state and writes it into the journal. See record.h.
 *
 * Before a change made by hand the account is looked at too, so that what had moved by itself is not put down to the
 * caller and stands before it.
 */
#include "sidecar/control/record.h"

#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/server.h"
#include "sidecar/control/watch.h"
#include "sidecar/obs/log.h"

#define LOOK_NS UINT64_C(250000000)

/* Beside each text what it was made from: words are made only of what is different. */
struct limiter_seen {
    bool there;
    char name[32];
    uint64_t switches;
    struct spw_conf_limit limit;
    struct spw_rate pod_rate;
    bool adopted;
    char text[200];
};

struct account_seen {
    bool there;
    char name[SPW_NAME_BYTES];
    struct limiter_seen limiters[SPW_LIMITERS_PER_ACCOUNT];
    struct spw_breaker_view view;
    char breaker[160], gate[48];
    uint32_t epoch;
    uint64_t version;
};

struct spw_record {
    struct spw_control *control;
    struct spw_loop_timer timer;
    struct account_seen accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    uint64_t rates_version;
    uint32_t rates_upserts;
    char rates[160];
};

/* ---- who ---- */

/* A certificate's name, where there is one. */
static bool certificate_name(grpc_call *call, char *who, size_t room)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (!context)
        return false;
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_X509_CN_PROPERTY_NAME);
    const grpc_auth_property *name = grpc_auth_property_iterator_next(&it);
    if (name)
        snprintf(who, room, "certificate %.*s", (int)name->value_length, name->value);
    grpc_auth_context_release(context);
    return name != NULL;
}

void spw_doer_of_call(const struct spw_call *call, char *who, size_t room)
{
    char *peer = grpc_call_get_peer(call->grpc);
    uint32_t uid = UINT32_MAX;
    if (peer && strncmp(peer, "fd:", 3) == 0)
        uid = spw_control_socket_uid(&call->control->socket, (int)strtol(peer + 3, NULL, 10));
    if (uid != UINT32_MAX)
        snprintf(who, room, "uid %u", uid);
    else if (!certificate_name(call->grpc, who, room))
        snprintf(who, room, "%s", peer ? peer : "unknown");
    gpr_free(peer);
}

/* ---- in words ---- */

static void limit_text(const struct spw_limit_view *view, char *out, size_t room)
{
    static const char *const kinds[] = {"", "leaky ", "window "};
    char rate[48], pod[48];
    spw_format_rate(&view->limit.rate, rate, sizeof rate);
    spw_format_rate(&view->pod_rate, pod, sizeof pod);
    snprintf(out, room, "%s%s burst %" PRIu64 " pods %u%s%s", kinds[view->limit.kind % 3], rate,
             view->limit.burst_count, view->limit.pods_count,
             view->observed_limit_adopted ? ", the provider's lower limit obeyed: pod " : "",
             view->observed_limit_adopted ? pod : "");
}

static const char *switches_text(uint64_t switches)
{
    return switches & SPW_SWITCH_KILL ? "off" : switches & SPW_SWITCH_OBSERVE ? "observe" : "enforce";
}

static void breaker_text(const struct spw_breaker_view *view, char *out, size_t room)
{
    static const char *const modes[] = {"enforce", "observe", "disabled"};
    const struct spw_conf_breaker *c = &view->conf;
    snprintf(out, room, "%s%s%s, %s, opens at %u x 429 or %u ppm of %u in %u ms, cooldown %u to %u ms",
             view->state, *view->forced ? ", by hand " : "", view->forced, modes[c->mode % 3],
             c->consecutive_429_count, c->ratio_429_ppm, c->minimum_count, c->window_ms, c->cooldown_min_ms,
             c->cooldown_max_ms);
}

static void gate_text(const struct spw_breaker_view *view, char *out, size_t room)
{
    snprintf(out, room, "%s%s", view->gate_shut_for_ms ? "shut: " : "open",
             view->gate_shut_for_ms ? view->gate_source : "");
}

static void rates_text(const struct spw_rates_view *view, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "version %" PRIu64 ", %u records, %u put in", view->version,
                                   view->records_count, view->upserts_count);
    for (uint32_t i = 0; i < view->sources_count && used + 2 < room; i++)
        used += (size_t)snprintf(out + used, room - used, ", %.40s", view->sources[i].name);
}

/* ---- writing down ---- */

struct news {
    const char *kind, *account, *limiter;
    const char *before, *after;
    uint64_t version;
};

static void write_down(struct spw_record *record, const struct news *news, const struct spw_doer *doer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    Spillway__V1__Change change = SPILLWAY__V1__CHANGE__INIT;
    SPW_SET(&change, unix_ms, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    change.kind = (char *)news->kind; /* protobuf-c has no const, and only reads */
    change.account = (char *)news->account;
    change.limiter = (char *)news->limiter;
    change.who = (char *)doer->who;
    change.cause = (char *)doer->cause;
    change.before = (char *)news->before;
    change.after = (char *)news->after;
    SPW_SET(&change, account_version, news->version);
    if (doer->for_ms)
        SPW_SET(&change, for_ms, doer->for_ms);
    uint64_t version = spw_journal_append(record->control->journal, &change);
    char span[48] = "";
    if (doer->for_ms)
        snprintf(span, sizeof span, ", for %" PRIu64 " ms", doer->for_ms);
    spw_log(SPW_LOG_INFO, "audit.change", "%" PRIu64 ": %s%s%s%s%s: %s -> %s%s (%s%s%s)", version, news->kind,
            news->account ? " of " : "", news->account ? news->account : "", news->limiter ? " " : "",
            news->limiter ? news->limiter : "", news->before, news->after, span, doer->who,
            *doer->cause ? ", " : "", doer->cause);
}

static bool same_rate(const struct spw_rate *a, const struct spw_rate *b)
{
    return a->tokens_count == b->tokens_count && a->period_ns == b->period_ns;
}

/* Nothing that would be told of. */
static bool limiter_is_as_seen(const struct limiter_seen *seen, const struct spw_limit_view *view)
{
    return seen->there && seen->switches == view->switches && seen->adopted == view->observed_limit_adopted &&
           same_rate(&seen->limit.rate, &view->limit.rate) && same_rate(&seen->pod_rate, &view->pod_rate) &&
           seen->limit.burst_count == view->limit.burst_count &&
           seen->limit.pods_count == view->limit.pods_count && seen->limit.kind == view->limit.kind &&
           strncmp(seen->name, view->limiter, sizeof seen->name) == 0;
}

static bool breaker_is_as_seen(const struct spw_breaker_view *seen, const struct spw_breaker_view *view)
{
    return strcmp(seen->state, view->state) == 0 && strcmp(seen->forced, view->forced) == 0 &&
           memcmp(&seen->conf, &view->conf, sizeof seen->conf) == 0 &&
           (seen->gate_shut_for_ms != 0) == (view->gate_shut_for_ms != 0) &&
           strcmp(seen->gate_source, view->gate_source) == 0;
}

static void look_at_limiters(struct spw_record *record, uint32_t index, struct account_seen *seen,
                             const struct spw_doer *doer, bool quiet)
{
    uint64_t now_ns = spw_loop_now_ns(record->control->loop);
    for (uint32_t place = 0; place < SPW_LIMITERS_PER_ACCOUNT; place++) {
        struct limiter_seen *old = &seen->limiters[place], fresh = {.there = true};
        struct spw_limit_view view;
        if (spw_state_limiter_at(record->control->state, index, place, now_ns, &view)) {
            old->there = false;
            continue;
        }
        if (limiter_is_as_seen(old, &view))
            continue;
        fresh.limit = view.limit;
        fresh.pod_rate = view.pod_rate;
        fresh.adopted = view.observed_limit_adopted;
        memcpy(fresh.name, view.limiter, sizeof fresh.name);
        fresh.switches = view.switches;
        limit_text(&view, fresh.text, sizeof fresh.text);
        bool same = old->there && strncmp(old->name, fresh.name, sizeof fresh.name) == 0;
        struct news news = {"limit",    view.account, fresh.name, same ? old->text : "none",
                            fresh.text, view.version};
        if (!quiet && strcmp(news.before, fresh.text) != 0)
            write_down(record, &news, doer);
        news.kind = "switches";
        news.before = same ? switches_text(old->switches) : "enforce";
        news.after = switches_text(fresh.switches);
        if (!quiet && strcmp(news.before, news.after) != 0)
            write_down(record, &news, doer);
        *old = fresh;
    }
}

static void look_at_breaker(struct spw_record *record, uint32_t index, struct account_seen *seen,
                            const struct spw_doer *doer, bool quiet)
{
    struct spw_breaker_view view;
    char breaker[sizeof seen->breaker], gate[sizeof seen->gate];
    if (spw_state_breaker_at(record->control->state, index, spw_loop_now_ns(record->control->loop), &view))
        return;
    seen->version = view.version;
    if (*seen->breaker && breaker_is_as_seen(&seen->view, &view))
        return;
    seen->view = view;
    breaker_text(&view, breaker, sizeof breaker);
    gate_text(&view, gate, sizeof gate);
    struct news news = {"breaker", seen->name, NULL, seen->breaker, breaker, view.version};
    if (!quiet && strcmp(seen->breaker, breaker) != 0)
        write_down(record, &news, doer);
    news = (struct news){"gate", seen->name, NULL, seen->gate, gate, view.version};
    if (!quiet && strcmp(seen->gate, gate) != 0)
        write_down(record, &news, doer);
    memcpy(seen->breaker, breaker, sizeof breaker);
    memcpy(seen->gate, gate, sizeof gate);
}

static void look_at_account(struct spw_record *record, uint32_t index, const char *wanted,
                            const struct spw_doer *doer, bool quiet)
{
    struct account_seen *seen = &record->accounts[index];
    struct spw_limit_view view;
    bool there = spw_state_limiter_at(record->control->state, index, 0,
                                      spw_loop_now_ns(record->control->loop), &view) == SPW_STATUS_OK;
    if (wanted && !(there && strcmp(view.account, wanted) == 0))
        return;
    struct news news = {"account", seen->name, NULL, "configured", "removed", seen->version};
    if (!there && seen->there && !quiet)
        write_down(record, &news, doer);
    if (there && (!seen->there || strcmp(seen->name, view.account) != 0)) {
        memset(seen, 0, sizeof *seen);
        memcpy(seen->name, view.account, sizeof seen->name);
        news = (struct news){"account", seen->name, NULL, "none", "configured", view.version};
        if (!quiet)
            write_down(record, &news, doer);
        quiet = true; /* its parts are new with it */
    }
    seen->there = there;
    if (!there)
        return;
    look_at_limiters(record, index, seen, doer, quiet);
    look_at_breaker(record, index, seen, doer, quiet);
}

static void look_at_rates(struct spw_record *record, const struct spw_doer *doer, bool quiet)
{
    struct spw_rates_view view;
    spw_state_rates_view(record->control->state, &view);
    if (view.version == record->rates_version && view.upserts_count == record->rates_upserts && !quiet)
        return;
    char text[sizeof record->rates];
    rates_text(&view, text, sizeof text);
    struct news news = {"rates", NULL, NULL, record->rates, text, view.version};
    if (!quiet)
        write_down(record, &news, doer);
    record->rates_version = view.version;
    record->rates_upserts = view.upserts_count;
    memcpy(record->rates, text, sizeof text);
}

static void look(struct spw_record *record, const char *account, const struct spw_doer *doer, bool quiet)
{
    uint64_t oldest, before = spw_journal_newest(record->control->journal, &oldest);
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++)
        look_at_account(record, i, account, doer, quiet);
    if (!account)
        look_at_rates(record, doer, quiet);
    if (spw_journal_newest(record->control->journal, &oldest) != before)
        spw_watch_tell(record->control);
}

void spw_record_look(struct spw_record *record, const char *account, const struct spw_doer *doer)
{
    look(record, account, doer, false);
}

void spw_record_reload(struct spw_record *record, uint32_t changes_count, const char *refusal)
{
    char after[700];
    struct spw_doer doer = {SPW_DOER_SIDECAR.who, "reload", 0};
    if (refusal)
        snprintf(after, sizeof after, "refused, nothing was changed: %s", refusal);
    else
        snprintf(after, sizeof after, "%" PRIu32 " settings changed", changes_count);
    struct news news = {.kind = "config", .before = "", .after = after};
    write_down(record, &news, &doer);
    spw_watch_tell(record->control);
    if (!refusal)
        spw_record_look(record, NULL, &doer);
}

/* ---- life ---- */

static void look_due(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_record *record = timer->owner;
    spw_record_look(record, NULL, &SPW_DOER_SIDECAR);
    spw_loop_timer_set(loop, timer, spw_loop_beat_ns(loop, LOOK_NS));
}

struct spw_record *spw_record_new(struct spw_control *control)
{
    struct spw_record *record = gpr_zalloc(sizeof *record);
    record->control = control;
    record->timer = (struct spw_loop_timer){.fn = look_due, .owner = record};
    return record;
}

void spw_record_start(struct spw_record *record)
{
    look(record, NULL, &SPW_DOER_SIDECAR, true);
    spw_loop_timer_set(record->control->loop, &record->timer,
                       spw_loop_now_ns(record->control->loop) + LOOK_NS);
}

void spw_record_stop(struct spw_record *record)
{
    spw_loop_timer_cancel(record->control->loop, &record->timer);
}

void spw_record_destroy(struct spw_record *record)
{
    gpr_free(record);
}
