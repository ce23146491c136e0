/* status.c: the service Status.
 *
 * Owns: nothing. Called by: call.c. Thread: the loop's; the store's counts may be read from any.
 */
#include <inttypes.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

static Spillway__V1__LoopStatus *message_loop(struct spw_arena *arena, struct spw_loop *loop)
{
    Spillway__V1__LoopStatus *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__loop_status__init(message);
    message->backend = spw_arena_text(arena, "%s", spw_loop_backend_name(loop));
    message->reason = spw_arena_text(arena, "%s", spw_loop_backend_reason(loop));
    SPW_SET(message, lag_ns, spw_loop_lag_ns(loop));
    return message;
}

static Spillway__V1__SegmentStatus *message_segment(struct spw_arena *arena,
                                                    const struct spw_state_status *status)
{
    Spillway__V1__SegmentStatus *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__segment_status__init(message);
    message->origin = spw_arena_copy(arena, status->origin, sizeof status->origin);
    message->generation = spw_arena_text(arena, "%016" PRIx64, status->generation);
    SPW_SET(message, attached, status->attached_count);
    SPW_SET(message, slots, status->slots_count);
    SPW_SET(message, cells_busy, status->cells_busy_count);
    SPW_SET(message, cells, status->cells_count);
    SPW_SET(message, pub_bytes, status->pub_bytes);
    SPW_SET(message, rw_bytes, status->rw_bytes);
    return message;
}

static Spillway__V1__StoreStatus *message_store(struct spw_arena *arena, struct spw_store *store)
{
    struct spw_store_counts counts;
    spw_store_counts(store, &counts);
    Spillway__V1__StoreStatus *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__store_status__init(message);
    SPW_SET(message, flags, counts.flags_count);
    SPW_SET(message, provisional, counts.by_state[SPW_FLAG_PROVISIONAL]);
    SPW_SET(message, confirmed, counts.by_state[SPW_FLAG_CONFIRMED]);
    SPW_SET(message, cancelled, counts.by_state[SPW_FLAG_CANCELLED]);
    SPW_SET(message, superseded, counts.by_state[SPW_FLAG_SUPERSEDED]);
    SPW_SET(message, orders_placed, counts.orders_placed_count);
    SPW_SET(message, orders_cancelled, counts.orders_cancelled_count);
    SPW_SET(message, newest_sequence, counts.newest_sequence);
    SPW_SET(message, acknowledged_sequence, counts.acknowledged_sequence);
    SPW_SET(message, duplicates, counts.duplicate_count);
    SPW_SET(message, damaged, counts.damaged_count);
    SPW_SET(message, commit_failures, counts.commit_failures_count);
    SPW_SET(message, writable, counts.writable);
    SPW_SET(message, abandoned, counts.by_state[SPW_FLAG_ABANDONED]);
    SPW_SET(message, unplaced, counts.by_state[SPW_FLAG_UNPLACED]);
    SPW_SET(message, pending, counts.by_reconcile[SPW_RECONCILE_PENDING]);
    SPW_SET(message, exceptions, counts.by_reconcile[SPW_RECONCILE_EXCEPTION]);
    SPW_SET(message, acknowledged_change, counts.acknowledged_change);
    SPW_SET(message, only_in_pod, counts.unacknowledged_count);
    SPW_SET(message, orphans, counts.orphans_count);
    SPW_SET(message, stuck_rows, counts.stuck_count);
    SPW_SET(message, window_placed, counts.window_placed_count);
    SPW_SET(message, window_flagged, counts.window_flagged_count);
    SPW_SET(message, alert, counts.alert_on);
    SPW_SET(message, removed_sequence, counts.removed_sequence);
    return message;
}

static Spillway__V1__AccountStatus *message_account(struct spw_control *control, struct spw_arena *arena,
                                                    const struct spw_account_status *account)
{
    Spillway__V1__DecisionCounts *counts = spw_arena_zalloc(arena, sizeof *counts);
    spillway__v1__decision_counts__init(counts);
    const uint64_t *of = account->decisions;
    SPW_SET(counts, allowed, of[SPW_STAT_ALLOW]);
    SPW_SET(counts, denied_bucket, of[SPW_STAT_DENY_BUCKET]);
    SPW_SET(counts, denied_gate, of[SPW_STAT_DENY_GATE]);
    SPW_SET(counts, denied_breaker, of[SPW_STAT_DENY_BREAKER]);
    SPW_SET(counts, denied_concurrency, of[SPW_STAT_DENY_CONCURRENCY]);
    SPW_SET(counts, denied_other, of[SPW_STAT_DENY_OTHER]);
    SPW_SET(counts, observed, of[SPW_STAT_OBSERVED]);
    SPW_SET(counts, fallbacks, of[SPW_STAT_FALLBACK]);
    SPW_SET(counts, no_rate, of[SPW_STAT_NO_RATE]);
    SPW_SET(counts, flags_refused, of[SPW_STAT_FLAG_REFUSED]);
    const uint64_t *door = account->door_fallbacks;
    SPW_SET(counts, after_429, door[SPW_FALLBACK_RATE_LIMIT_429]);
    SPW_SET(counts, after_timeout, door[SPW_FALLBACK_PROVIDER_TIMEOUT]);
    SPW_SET(counts, after_error, door[SPW_FALLBACK_PROVIDER_ERROR]);
    uint64_t fallbacks = 0;
    for (uint32_t type = SPW_FALLBACK_NONE + 1; type < SPW_FALLBACK_COUNT; type++)
        fallbacks += door[type];
    SPW_SET(counts, door_fallbacks, fallbacks);
    SPW_SET(counts, door_no_rate, door[SPW_FALLBACK_NONE]);
    Spillway__V1__AccountStatus *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__account_status__init(message);
    message->limit = spw_message_limit(arena, &account->limit);
    message->breaker = spw_message_breaker(arena, &account->breaker);
    message->decisions = counts;
    spw_expiry_note_limit(control->expiry, message->limit);
    spw_expiry_note_breaker(control->expiry, message->breaker);
    return message;
}

static void get_on_loop(struct spw_call *call)
{
    struct spw_control *control = call->control;
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    struct spw_arena arena = {0};
    struct spw_state_status status;
    spw_state_status(control->state, &status);
    struct spw_rates_view rates;
    spw_state_rates_view(control->state, &rates);

    Spillway__V1__AccountStatus *accounts[SPW_CONF_ACCOUNTS_MAX_COUNT];
    Spillway__V1__GetStatusReply reply = SPILLWAY__V1__GET_STATUS_REPLY__INIT;
    reply.version = control->version;
    SPW_SET(&reply, uptime_ms, (now_ns - control->started_ns) / 1000000);
    SPW_SET(&reply, serving, atomic_load(&control->serving));
    reply.loop = message_loop(&arena, control->loop);
    reply.segment = message_segment(&arena, &status);
    reply.store = message_store(&arena, control->store);
    reply.rates = spw_message_rates_table(&arena, &rates);
    reply.accounts = accounts;
    for (uint32_t i = 0; i < SPW_CONF_ACCOUNTS_MAX_COUNT; i++) {
        struct spw_account_status account;
        if (spw_state_account_status(control->state, i, now_ns, &account) ==
            SPW_STATUS_OK) /* else free or removed */
            accounts[reply.n_accounts++] = message_account(control, &arena, &account);
    }
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_status_get(struct spw_call *call)
{
    spw_call_to_loop(call, get_on_loop);
}
