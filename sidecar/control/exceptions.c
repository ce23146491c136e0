/* exceptions.c: the service Exceptions.
 *
 * Owns: the place of a list under way. Called by: call.c. Thread: the server's; the store may be asked from any, and a
 * decision waits for its commit; progress is looked at on the loop thread.
 */
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_map.h"
#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"
#include "sidecar/obs/utf8.h"
#include "sidecar/reconcile/progress.h"
#include "sidecar/store/reconcile_rows.h"

#define DECISIONS_MAX_COUNT 1000u
#define HISTORY_MAX_COUNT   1000u

/* ---- list ---- */

struct list {
    enum spw_reconcile_state state; /* NONE: what was set aside */
    char account[SPW_NAME_BYTES];
    uint64_t after, left; /* left UINT64_MAX = no limit */
    struct spw_arena *arena;
    Spillway__V1__Flag *found;
};

static bool is_set_aside(const struct spw_flag_row *row)
{
    return row->reconciliation.filing == SPW_FILING_FAILED &&
           row->reconciliation.filing_next_unix_ms == INT64_MAX;
}

static bool keep_row(void *owner, const struct spw_flag_row *row)
{
    struct list *list = owner;
    if (list->state == SPW_RECONCILE_NONE &&
        (!is_set_aside(row) || (list->account[0] && strcmp(list->account, row->record.account) != 0)))
        return true;
    list->found = spw_message_flag(list->arena, row);
    return false;
}

static void send_next(struct spw_call *call)
{
    struct list *list = call->own;
    struct spw_store *store = call->control->store;
    struct spw_rows_filter filter = {.state = list->state, .account = list->account};
    struct spw_arena arena = {0};
    struct spw_error err;
    uint64_t next = list->after;
    enum spw_status status = SPW_STATUS_OK;
    list->arena = &arena;
    list->found = NULL;
    if (!list->left)
        status = SPW_STATUS_OK;
    else if (list->state == SPW_RECONCILE_NONE)
        status = spw_store_export(store, list->after, UINT32_MAX, keep_row, list, &next, &err);
    else
        status = spw_store_rows(store, &filter, list->after, 1, keep_row, list, &next, &err);
    list->after = next;
    if (status != SPW_STATUS_OK) {
        spw_call_fail(call, &err);
    } else if (!list->found) {
        spw_call_finish(call);
    } else {
        Spillway__V1__ListExceptionsReply reply = SPILLWAY__V1__LIST_EXCEPTIONS_REPLY__INIT;
        reply.flag = list->found;
        if (list->left != UINT64_MAX)
            list->left--;
        spw_call_send(call, &reply.base);
    }
    spw_arena_clean_up(&arena);
}

static void free_list(struct spw_call *call)
{
    gpr_free(call->own);
}

void spw_exceptions_list(struct spw_call *call)
{
    const Spillway__V1__ListExceptionsRequest *q = (const Spillway__V1__ListExceptionsRequest *)call->request;
    const char *word = q->state && q->state[0] ? q->state : spw_reconcile_state_name(SPW_RECONCILE_EXCEPTION);
    uint32_t state = strcmp(word, "set-aside") == 0 ? SPW_RECONCILE_NONE : SPW_RECONCILE_STATES;
    for (uint32_t i = 1; i < SPW_RECONCILE_STATES; i++) {
        if (strcmp(word, spw_reconcile_state_name(i)) == 0)
            state = i;
    }
    if (state == SPW_RECONCILE_STATES) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "state: is not known: write exception, set-aside, pending, noise, absorbed-under, "
                        "over-collected-remit, over-collected-refund or resolved");
        return;
    }
    if (q->account && strlen(q->account) >= SPW_NAME_BYTES) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "account: is longer than %u bytes",
                        SPW_NAME_BYTES - 1);
        return;
    }
    struct list *list = gpr_zalloc(sizeof *list);
    list->state = (enum spw_reconcile_state)state;
    snprintf(list->account, sizeof list->account, "%s", q->account ? q->account : "");
    list->left = q->limit ? q->limit : UINT64_MAX;
    call->own = list;
    call->on_free = free_list;
    call->on_sent = send_next;
    send_next(call);
}

/* ---- one ---- */

struct found {
    struct spw_arena arena;
    Spillway__V1__Flag *flag;
    Spillway__V1__FlagHistory *history[HISTORY_MAX_COUNT];
    size_t history_count;
};

static bool keep_flag(void *owner, const struct spw_flag_row *row)
{
    struct found *found = owner;
    found->flag = spw_message_flag(&found->arena, row);
    return false;
}

static bool keep_history(void *owner, const struct spw_history_row *row)
{
    struct found *found = owner;
    Spillway__V1__FlagHistory *message = spw_arena_zalloc(&found->arena, sizeof *message);
    spillway__v1__flag_history__init(message);
    SPW_SET(message, at_unix_ms, row->at_unix_ms);
    message->who = spw_arena_utf8(&found->arena, row->who, strlen(row->who));
    message->from = spw_arena_utf8(&found->arena, row->from, strlen(row->from));
    message->to = spw_arena_utf8(&found->arena, row->to, strlen(row->to));
    message->why = spw_arena_utf8(&found->arena, row->why, strlen(row->why));
    found->history[found->history_count++] = message;
    return found->history_count < HISTORY_MAX_COUNT;
}

void spw_exceptions_get(struct spw_call *call)
{
    const Spillway__V1__GetExceptionRequest *q = (const Spillway__V1__GetExceptionRequest *)call->request;
    struct spw_store *store = call->control->store;
    struct spw_error err;
    if (!q->flag_id || strncmp(q->flag_id, "sf_", 3) != 0) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "flag_id: \"sf_\" and what follows it is expected");
        return;
    }
    struct found *found = gpr_zalloc(sizeof *found);
    enum spw_status status = spw_store_find(store, q->flag_id, 1, keep_flag, found, &err);
    if (status == SPW_STATUS_OK && found->flag)
        status = spw_store_history(store, q->flag_id, keep_history, found, &err);
    if (status != SPW_STATUS_OK) {
        spw_call_fail(call, &err);
    } else if (!found->flag) {
        spw_call_refuse(call, GRPC_STATUS_NOT_FOUND, "flag_id: no such flag in this pod's ledger");
    } else {
        Spillway__V1__GetExceptionReply reply = SPILLWAY__V1__GET_EXCEPTION_REPLY__INIT;
        reply.flag = found->flag;
        reply.history = found->history;
        reply.n_history = found->history_count;
        spw_call_reply(call, &reply.base);
    }
    spw_arena_clean_up(&found->arena);
    gpr_free(found);
}

/* ---- decisions ---- */

static bool take(const char *text, char *out, size_t room)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes >= room)
        return false;
    snprintf(out, room, "%s", bytes ? text : "");
    return true;
}

/* What is wrong with the words of one decision; NULL = nothing. */
static const char *read_decision(const Spillway__V1__ExceptionDecision *in, const char *by,
                                 struct spw_decide_request *out)
{
    out->now_unix_ms = spw_wall_ms();
    out->expected_revision = in->revision;
    out->file = in->file;
    snprintf(out->by, sizeof out->by, "%s", by);
    if (!in->flag_id || !in->flag_id[0] || !take(in->flag_id, out->flag_id, sizeof out->flag_id))
        return "flag_id: is missing or too long";
    if (!in->decision || !spw_decision_of_word(in->decision, &out->decision))
        return "decision: write note, retry, absorb, remit, refund or accept";
    if (!take(in->note, out->note, sizeof out->note) ||
        (out->note[0] && !spw_utf8_is_name(out->note, strlen(out->note))))
        return "note: is longer than 511 bytes, or no text without control characters";
    return NULL;
}

static void refuse_one(struct spw_arena *arena, Spillway__V1__DecideExceptionsReply *reply, uint32_t index,
                       const char *why)
{
    Spillway__V1__BadLine *bad = spw_arena_zalloc(arena, sizeof *bad);
    spillway__v1__bad_line__init(bad);
    SPW_SET(bad, index, index);
    bad->why = spw_arena_utf8(arena, why, strlen(why));
    reply->refused[reply->n_refused++] = bad;
}

void spw_exceptions_decide(struct spw_call *call)
{
    const Spillway__V1__DecideExceptionsRequest *q =
        (const Spillway__V1__DecideExceptionsRequest *)call->request;
    uint32_t count = (uint32_t)q->n_decisions;
    if (!q->n_decisions || q->n_decisions > DECISIONS_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "decisions: 1 to %u at once",
                        DECISIONS_MAX_COUNT);
        return;
    }
    if (!q->by || !q->by[0] || strlen(q->by) >= SPW_WHO_BYTES || !spw_utf8_is_name(q->by, strlen(q->by))) {
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT, "by: who decides, in 1 to %u bytes",
                        SPW_WHO_BYTES - 1);
        return;
    }
    struct spw_arena arena = {0};
    struct spw_decide_request *decisions = calloc(count, sizeof *decisions);
    Spillway__V1__DecideExceptionsReply reply = SPILLWAY__V1__DECIDE_EXCEPTIONS_REPLY__INIT;
    reply.refused = spw_arena_zalloc(&arena, count * sizeof(Spillway__V1__BadLine *));
    if (!decisions || !reply.refused) {
        spw_call_refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "decisions: no memory");
        free(decisions);
        spw_arena_clean_up(&arena);
        return;
    }
    struct spw_error err;
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t i = 0; i < count; i++) {
        const char *fault = read_decision(q->decisions[i], q->by, &decisions[i]);
        if (fault)
            refuse_one(&arena, &reply, i, fault);
    }
    if (!reply.n_refused) {
        struct spw_decide_all_request all = {.decisions = decisions, .decisions_count = count};
        spw_store_decide_all(call->control->store, &all);
        status = spw_store_wait(call->control->store, &all.job);
        err = all.job.error;
        for (uint32_t i = 0; i < count && all.refused_count; i++) {
            if (decisions[i].job.error.status != SPW_STATUS_OK)
                refuse_one(&arena, &reply, i, decisions[i].job.error.text);
        }
        if (all.refused_count)
            status = SPW_STATUS_OK; /* the reply says which */
    }
    SPW_SET(&reply, decided, reply.n_refused ? 0 : count);
    if (status != SPW_STATUS_OK)
        spw_call_fail(call, &err);
    else
        spw_call_reply(call, &reply.base);
    free(decisions);
    spw_arena_clean_up(&arena);
}

/* ---- progress ---- */

static Spillway__V1__AccountProgress *message_progress(struct spw_arena *arena,
                                                       const struct spw_reconcile_status *s)
{
    Spillway__V1__AccountProgress *m = spw_arena_zalloc(arena, sizeof *m);
    spillway__v1__account_progress__init(m);
    m->account = spw_arena_utf8(arena, s->account, strlen(s->account));
    SPW_SET(m, pending, s->pending_count);
    SPW_SET(m, filings, s->filings_count);
    SPW_SET(m, exceptions, s->exceptions_count);
    if (s->oldest_unix_ms)
        SPW_SET(m, oldest_unix_ms, s->oldest_unix_ms);
    SPW_SET(m, calls_needed, s->forecast.calls_count);
    SPW_SET(m, spare_milli_per_s, s->forecast.spare_milli_per_s);
    if (s->forecast.takes_ms != SPW_FORECAST_NEVER_MS)
        SPW_SET(m, takes_ms, s->forecast.takes_ms);
    SPW_SET(m, late, s->forecast.late);
    SPW_SET(m, under_way, s->under_way_count);
    SPW_SET(m, calls, s->calls_total);
    SPW_SET(m, retries, s->retries_total);
    SPW_SET(m, reconciled, s->reconciled_total);
    SPW_SET(m, filed, s->filed_total);
    SPW_SET(m, set_aside, s->filing_failed_total);
    return m;
}

static void tell_progress(struct spw_call *call)
{
    struct spw_reconcile *reconcile = call->control->reconcile;
    struct spw_arena arena = {0};
    Spillway__V1__ProgressReply reply = SPILLWAY__V1__PROGRESS_REPLY__INIT;
    SPW_SET(&reply, on, reconcile != NULL);
    uint32_t count = reconcile ? spw_reconcile_accounts_count(reconcile) : 0;
    reply.accounts = spw_arena_zalloc(&arena, (count + 1) * sizeof(Spillway__V1__AccountProgress *));
    for (uint32_t i = 0; i < count; i++) {
        struct spw_reconcile_status status;
        spw_reconcile_status(reconcile, i, &status);
        reply.accounts[reply.n_accounts++] = message_progress(&arena, &status);
    }
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_exceptions_progress(struct spw_call *call)
{
    spw_call_to_loop(call, tell_progress);
}
