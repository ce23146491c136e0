/* watch.c: the services Changes and Audit: what the journal has, told to whoever asks.
 *
 * Owns: each watcher's place in the journal. Called by: call.c, record.c. Thread: a watcher is pumped on the server's
 * thread when a message is out and on the loop's when there is news; watch_lock keeps its place and its message together.
 *
 * A watcher holds a number and nothing else: what it has not taken lies in the journal, once for all of them.
 */
#include "sidecar/control/watch.h"

#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <string.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

#define WATCHERS_MAX_COUNT 64u
#define BATCH_COUNT        64u
#define SCAN_MAX_COUNT     4096u /* of other accounts' changes at a time: the lock is not held for long */
#define LIST_MAX_COUNT     1000u

struct watcher {
    uint64_t next;        /* version to be told next; 0 = it waits for its snapshot */
    bool snapshot_wanted; /* nothing else is sent before */
    bool snapshot_making; /* the loop has been asked for it */
    bool behind;          /* the snapshot is the last it is told */
    char account[SPW_NAME_BYTES];
};

static void snapshot_on_loop(struct spw_call *call);

static bool wanted(const Spillway__V1__Change *change, const char *account)
{
    return !*account || (change->account && strcmp(change->account, account) == 0);
}

/* At most BATCH_COUNT changes from *next on; *next moves behind them. */
static size_t collect(struct spw_control *control, const char *account, uint64_t *next,
                      Spillway__V1__Change **out)
{
    size_t count = 0;
    Spillway__V1__Change *change;
    for (size_t i = 0; i < SCAN_MAX_COUNT && count < BATCH_COUNT; i++) {
        change = spw_journal_get(control->journal, *next);
        if (!change)
            break;
        ++*next;
        if (wanted(change, account))
            out[count++] = change;
        else
            spillway__v1__change__free_unpacked(change, NULL);
    }
    return count;
}

/* Under watch_lock. true = a snapshot is needed, and the loop is to be asked for it. */
static bool send_next(struct spw_call *call)
{
    struct watcher *watcher = call->own;
    struct spw_control *control = call->control;
    uint64_t oldest, newest = spw_journal_newest(control->journal, &oldest), next = watcher->next;
    if (!watcher->behind && next && next < oldest)
        watcher->behind = watcher->snapshot_wanted = true;
    if (watcher->snapshot_wanted) {
        bool ask = !watcher->snapshot_making;
        watcher->snapshot_making = true;
        return ask;
    }
    if (watcher->behind)
        return false;
    Spillway__V1__Change *changes[BATCH_COUNT];
    Spillway__V1__WatchChangesReply reply = SPILLWAY__V1__WATCH_CHANGES_REPLY__INIT;
    while (next <= newest && !reply.n_changes)
        reply.n_changes = collect(control, watcher->account, &next, changes);
    reply.changes = changes;
    if (!reply.n_changes || spw_call_send(call, &reply.base))
        watcher->next = next;
    for (size_t i = 0; i < reply.n_changes; i++)
        spillway__v1__change__free_unpacked(changes[i], NULL);
    return false;
}

static void pump(struct spw_call *call)
{
    struct spw_control *control = call->control;
    pthread_mutex_lock(&control->watch_lock);
    bool ask = send_next(call);
    pthread_mutex_unlock(&control->watch_lock);
    if (ask)
        spw_call_to_loop(call, snapshot_on_loop);
}

/* Only here may the end be told: while a message is in flight it could not follow. */
static void on_sent(struct spw_call *call)
{
    struct spw_control *control = call->control;
    pthread_mutex_lock(&control->watch_lock);
    struct watcher *watcher = call->own;
    bool over = watcher->behind && !watcher->snapshot_wanted;
    pthread_mutex_unlock(&control->watch_lock);
    if (over)
        spw_call_refuse(
            call, GRPC_STATUS_OUT_OF_RANGE,
            "after_version: what came after it is no longer kept, or it is of another start: go on "
            "from the snapshot's version, told before this");
    else
        pump(call);
}

static void add_limits(struct spw_control *control, struct spw_arena *arena,
                       Spillway__V1__ChangesSnapshot *snapshot)
{
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    size_t room = SPW_CONF_ACCOUNTS_MAX_COUNT * SPW_LIMITERS_PER_ACCOUNT;
    snapshot->limits = spw_arena_zalloc(arena, room * sizeof(void *));
    snapshot->breakers = spw_arena_zalloc(arena, SPW_CONF_ACCOUNTS_MAX_COUNT * sizeof(void *));
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_limit_view limit;
        struct spw_breaker_view breaker;
        for (uint32_t place = 0; place < SPW_LIMITERS_PER_ACCOUNT; place++) {
            if (spw_state_limiter_at(control->state, i, place, now_ns, &limit))
                break;
            snapshot->limits[snapshot->n_limits++] = spw_message_limit(arena, &limit);
            if (place == 0 && spw_state_breaker_at(control->state, i, now_ns, &breaker) == SPW_STATUS_OK)
                snapshot->breakers[snapshot->n_breakers++] = spw_message_breaker(arena, &breaker);
        }
    }
}

/* What had moved by itself is written down first, so that the snapshot's version covers it. */
static void snapshot_on_loop(struct spw_call *call)
{
    struct spw_control *control = call->control;
    struct watcher *watcher = call->own;
    struct spw_arena arena = {0};
    struct spw_rates_view rates;
    uint64_t oldest;
    spw_record_look(control->record, NULL, &SPW_DOER_SIDECAR);
    Spillway__V1__ChangesSnapshot snapshot = SPILLWAY__V1__CHANGES_SNAPSHOT__INIT;
    Spillway__V1__WatchChangesReply reply = SPILLWAY__V1__WATCH_CHANGES_REPLY__INIT;
    SPW_SET(&snapshot, version, spw_journal_newest(control->journal, &oldest));
    snapshot.journal = spw_arena_text(&arena, "%s", spw_journal_name(control->journal));
    add_limits(control, &arena, &snapshot);
    spw_state_rates_view(control->state, &rates);
    snapshot.rates = spw_message_rates_table(&arena, &rates);
    reply.snapshot = &snapshot;
    pthread_mutex_lock(&control->watch_lock);
    watcher->snapshot_making = false;
    if (spw_call_send(call, &reply.base)) { /* else a message is in flight, and the next look asks again */
        watcher->next = snapshot.version + 1;
        watcher->snapshot_wanted = false;
    }
    pthread_mutex_unlock(&control->watch_lock);
    spw_arena_clean_up(&arena);
}

static void free_own(struct spw_call *call)
{
    gpr_free(call->own);
}

/* Begun watchers, held; at most room. */
static size_t watchers(struct spw_control *control, struct spw_call **out, size_t room)
{
    size_t count = 0;
    pthread_mutex_lock(&control->lock);
    for (struct spw_call *call = control->calls; call && count < room; call = call->next) {
        if (call->on_sent != on_sent)
            continue;
        spw_call_hold(call);
        out[count++] = call;
    }
    pthread_mutex_unlock(&control->lock);
    return count;
}

void spw_watch_tell(struct spw_control *control)
{
    struct spw_call *list[WATCHERS_MAX_COUNT];
    size_t count = watchers(control, list, WATCHERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++) {
        pump(list[i]);
        spw_call_release(list[i]);
    }
}

void spw_changes_watch(struct spw_call *call)
{
    const Spillway__V1__WatchChangesRequest *request =
        (const Spillway__V1__WatchChangesRequest *)call->request;
    struct spw_control *control = call->control;
    struct spw_call *others[WATCHERS_MAX_COUNT];
    struct spw_error err;
    if (request->account && spw_name_check("account", request->account, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    size_t count = watchers(control, others, WATCHERS_MAX_COUNT);
    for (size_t i = 0; i < count; i++)
        spw_call_release(others[i]);
    if (count == WATCHERS_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                        "%u watchers are there already: end one of them", WATCHERS_MAX_COUNT);
        return;
    }
    uint64_t oldest, newest = spw_journal_newest(control->journal, &oldest);
    struct watcher *watcher = gpr_zalloc(sizeof *watcher);
    if (request->account)
        strncpy(watcher->account, request->account, sizeof watcher->account - 1);
    bool other = (request->journal && strcmp(request->journal, spw_journal_name(control->journal)) != 0) ||
                 request->after_version > newest;
    bool from_snapshot = !request->has_after_version || other;
    watcher->behind = request->has_after_version && other;
    watcher->next = from_snapshot ? 0 : request->after_version + 1;
    watcher->snapshot_wanted = from_snapshot;
    call->own = watcher;
    call->on_free = free_own;
    pthread_mutex_lock(&control->lock);
    call->on_sent = on_sent;
    pthread_mutex_unlock(&control->lock);
    pump(call);
}

/* ---- audit ---- */

void spw_audit_list(struct spw_call *call)
{
    const Spillway__V1__ListAuditRequest *request = (const Spillway__V1__ListAuditRequest *)call->request;
    struct spw_control *control = call->control;
    struct spw_error err;
    uint32_t limit = request->has_limit ? request->limit : 100;
    if (request->account && spw_name_check("account", request->account, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    if (limit < 1 || limit > LIST_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "limit: %u: write 1 to %u", limit,
                        LIST_MAX_COUNT);
        return;
    }
    uint64_t oldest, at = spw_journal_newest(control->journal, &oldest);
    if (request->before_version && request->before_version <= at)
        at = request->before_version - 1;
    Spillway__V1__ListAuditReply reply = SPILLWAY__V1__LIST_AUDIT_REPLY__INIT;
    struct spw_arena arena = {0};
    reply.changes = spw_arena_zalloc(&arena, limit * sizeof(void *));
    reply.journal = spw_arena_text(&arena, "%s", spw_journal_name(control->journal));
    for (; at >= oldest && at && reply.n_changes < limit; at--) {
        Spillway__V1__Change *change = spw_journal_get(control->journal, at);
        if (!change)
            break;
        if (wanted(change, request->account ? request->account : "") &&
            !(request->by_hand && strcmp(change->who, SPW_DOER_SIDECAR.who) == 0))
            reply.changes[reply.n_changes++] = change;
        else
            spillway__v1__change__free_unpacked(change, NULL);
    }
    spw_call_reply(call, &reply.base);
    for (size_t i = 0; i < reply.n_changes; i++)
        spillway__v1__change__free_unpacked(reply.changes[i], NULL);
    spw_arena_clean_up(&arena);
}
