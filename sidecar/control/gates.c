/* gates.c: the service Gates.
 *
 * Owns: nothing. Called by: call.c. Thread: requests are checked on the server's, carried out on the loop's.
 */
#include <inttypes.h>

#include "sidecar/control/messages.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

static Spillway__V1__Gate *message_gate(struct spw_arena *arena, const struct spw_breaker_view *view)
{
    Spillway__V1__Gate *message = spw_arena_zalloc(arena, sizeof *message);
    spillway__v1__gate__init(message);
    message->account = spw_arena_copy(arena, view->account, sizeof view->account);
    message->source = spw_arena_copy(arena, view->gate_source, sizeof view->gate_source);
    SPW_SET(message, shut_for_ms, view->gate_shut_for_ms);
    SPW_SET(message, version, view->version);
    return message;
}

static void get_on_loop(struct spw_call *call)
{
    const Spillway__V1__GetGateRequest *request = (const Spillway__V1__GetGateRequest *)call->request;
    struct spw_breaker_view view;
    if (!spw_breaker_view_of(call, request->account, &view))
        return;
    struct spw_arena arena = {0};
    Spillway__V1__GetGateReply reply = SPILLWAY__V1__GET_GATE_REPLY__INIT;
    reply.gate = message_gate(&arena, &view);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_gates_get(struct spw_call *call)
{
    struct spw_error err;
    if (spw_name_check("account", ((Spillway__V1__GetGateRequest *)call->request)->account, &err))
        spw_call_fail(call, &err);
    else
        spw_call_at_once(call, get_on_loop);
}

static void set_on_loop(struct spw_call *call)
{
    const Spillway__V1__SetGateRequest *request = (const Spillway__V1__SetGateRequest *)call->request;
    struct spw_control *control = call->control;
    uint64_t now_ns = spw_loop_now_ns(control->loop);
    struct spw_error err;
    struct spw_breaker_view before, after;
    char who[SPW_DOER_BYTES];
    struct spw_doer doer = {who, "Gates.Set", request->shut_for_ms};
    spw_doer_of_call(call, who, sizeof who);
    spw_record_look(control->record, request->account, &SPW_DOER_SIDECAR);
    if (spw_state_breaker_get(control->state, request->account, now_ns, &before, &err) ||
        spw_state_gate_set(control->state, request->account, request->shut_for_ms, request->expect_version,
                           request->dry_run, now_ns, &after, &err)) {
        spw_call_fail(call, &err);
        return;
    }
    spw_record_look(control->record, request->account, &doer);
    struct spw_arena arena = {0};
    Spillway__V1__SetGateReply reply = SPILLWAY__V1__SET_GATE_REPLY__INIT;
    reply.gate = message_gate(&arena, &after);
    reply.before = message_gate(&arena, &before);
    SPW_SET(&reply, dry_run, request->dry_run);
    reply.reach = (char[]){SPW_REACH};
    SPW_SET(&reply, survives_restart, true);
    spw_call_reply(call, &reply.base);
    spw_arena_clean_up(&arena);
}

void spw_gates_set(struct spw_call *call)
{
    const Spillway__V1__SetGateRequest *request = (const Spillway__V1__SetGateRequest *)call->request;
    struct spw_error err;
    if (spw_name_check("account", request->account, &err))
        spw_call_fail(call, &err);
    else if (!request->has_shut_for_ms)
        spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                        "shut_for_ms: is missing: give the milliseconds to be shut, or 0 to open it");
    else
        spw_call_at_once(call, set_on_loop);
}
