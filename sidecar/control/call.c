/* call.c: one request's life, from being armed to its last completion. See call.h. */
#include "sidecar/control/call.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/control/server.h"
#include "sidecar/obs/log.h"

#define CALLS_MAX_COUNT 256u /* begun at a time; more are refused, so that memory stays bounded */

static void on_new(struct spw_call *call, bool ok);
static void on_close(struct spw_call *call, bool ok);
static void on_send(struct spw_call *call, bool ok);
static void on_receive(struct spw_call *call, bool ok);
static void on_finish(struct spw_call *call, bool ok);

/* ---- life ---- */

static struct spw_call *call_new(struct spw_control *control, struct spw_door *door,
                                 const struct spw_method *method)
{
    struct spw_call *call = gpr_zalloc(sizeof *call);
    call->control = control;
    call->door = door;
    call->method = method;
    call->new_event = (struct spw_event){.fn = on_new, .call = call};
    call->close_event = (struct spw_event){.fn = on_close, .call = call};
    call->send_event = (struct spw_event){.fn = on_send, .call = call};
    call->recv_event = (struct spw_event){.fn = on_receive, .call = call};
    call->finish_event = (struct spw_event){.fn = on_finish, .call = call};
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    atomic_init(&call->holds, 1);
    atomic_fetch_add(&control->alive, 1);
    return call;
}

static void call_destroy(struct spw_call *call)
{
    struct spw_control *control = call->control;
    bool begun = call->begun;
    if (call->on_free)
        call->on_free(call);
    gpr_free(call->keeping);
    if (call->request)
        protobuf_c_message_free_unpacked(call->request, NULL);
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    if (call->grpc)
        grpc_call_unref(call->grpc);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    gpr_free(call);
    if (begun)
        atomic_fetch_sub(&control->begun, 1);
    atomic_fetch_sub(&control->alive, 1); /* last: the server's thread may end and control be freed */
}

void spw_call_hold(struct spw_call *call)
{
    atomic_fetch_add(&call->holds, 1);
}

void spw_call_release(struct spw_call *call)
{
    if (atomic_fetch_sub(&call->holds, 1) == 1)
        call_destroy(call);
}

bool spw_call_is_cancelled(const struct spw_call *call)
{
    return atomic_load(&call->cancelled);
}

/* Starts a batch that holds the call until its event. It fails only where this file breaks gRPC's rules. */
static bool start_batch(struct spw_call *call, const grpc_op *ops, size_t count, struct spw_event *event)
{
    spw_call_hold(call);
    grpc_call_error error = grpc_call_start_batch(call->grpc, ops, count, event, NULL);
    if (error == GRPC_CALL_OK)
        return true;
    spw_log(SPW_LOG_ERROR, "control.batch", "gRPC refused a batch of %s: %s",
            call->method ? call->method->path : "an unknown method", grpc_call_error_to_string(error));
    spw_call_release(call);
    return false;
}

/* ---- messages ---- */

static grpc_byte_buffer *message_to_buffer(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

/* NULL = no message of that kind. */
static ProtobufCMessage *message_of_buffer(grpc_byte_buffer *buffer,
                                           const ProtobufCMessageDescriptor *descriptor)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, NULL, GRPC_SLICE_LENGTH(slice), GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    return message;
}

static void refuse_undecodable(struct spw_call *call)
{
    spw_call_refuse(call, GRPC_STATUS_INVALID_ARGUMENT,
                    "the request is no %s: send the message of proto/spillway/v1/control.proto",
                    call->method->request->name);
}

/* ---- begin ---- */

void spw_call_arm(struct spw_control *control, struct spw_door *door, const struct spw_method *method)
{
    struct spw_call *call = call_new(control, door, method);
    grpc_call_error error;
    if (method)
        error = grpc_server_request_registered_call(
            door->server, door->handles[method - spw_methods], &call->grpc, &call->deadline, &call->metadata,
            method->client_streams ? NULL : &call->payload, control->queue, control->queue, &call->new_event);
    else
        error = grpc_server_request_call(door->server, &call->grpc, &call->details, &call->metadata,
                                         control->queue, control->queue, &call->new_event);
    if (error == GRPC_CALL_OK)
        return;
    spw_log(SPW_LOG_ERROR, "control.arm", "gRPC takes no further calls of %s: %s",
            method ? method->path : "unknown methods", grpc_call_error_to_string(error));
    spw_call_release(call);
}

static void list_add(struct spw_call *call)
{
    struct spw_control *control = call->control;
    pthread_mutex_lock(&control->lock);
    call->next = control->calls;
    if (call->next)
        call->next->previous = call;
    control->calls = call;
    pthread_mutex_unlock(&control->lock);
}

static void list_remove(struct spw_call *call)
{
    struct spw_control *control = call->control;
    if (!call->is_watched)
        return;
    pthread_mutex_lock(&control->lock);
    if (call->previous)
        call->previous->next = call->next;
    else
        control->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    pthread_mutex_unlock(&control->lock);
}

static void refuse_unknown(struct spw_call *call)
{
    char *path = grpc_slice_to_c_string(call->details.method);
    spw_call_refuse(
        call, GRPC_STATUS_UNIMPLEMENTED,
        "no method %.200s: reflection lists what there is, and so does proto/spillway/v1/control.proto",
        path);
    gpr_free(path);
}

static void begin(struct spw_call *call, unsigned begun_count)
{
    if (begun_count > CALLS_MAX_COUNT) {
        spw_call_refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                        "%u calls are in progress: end streams no longer needed and try again",
                        CALLS_MAX_COUNT);
        return;
    }
    if (!call->method) {
        refuse_unknown(call);
        return;
    }
    enum spw_role role = call->door->role;
    if (call->door == &call->control->doors[SPW_DOOR_TLS])
        role = spw_control_tls_role(call->control->tls, call->grpc);
    if (!spw_method_allowed(call->method, role)) {
        spw_call_refuse(call, GRPC_STATUS_PERMISSION_DENIED, "%s is not served here: %s", call->method->path,
                        call->door->refusal);
        return;
    }
    if (!call->method->client_streams) {
        call->request = call->payload ? message_of_buffer(call->payload, call->method->request) : NULL;
        if (!call->request) {
            refuse_undecodable(call);
            return;
        }
    }
    call->method->begin(call);
}

/* From now on the peer's end is heard of, and server.c finds the call. false = gRPC refused. Server's thread. */
static bool watch_peer(struct spw_call *call)
{
    call->is_watched = true;
    list_add(call);
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->closed_cancelled;
    if (start_batch(call, &op, 1, &call->close_event))
        return true;
    list_remove(call);
    return false;
}

static void on_new(struct spw_call *call, bool ok)
{
    struct spw_control *control = call->control;
    if (!ok) { /* the door is shut: the call was never filled */
        spw_call_release(call);
        return;
    }
    if (!atomic_load(&control->draining))
        spw_call_arm(control, call->door, call->method);
    call->begun = true;
    unsigned begun_count = atomic_fetch_add(&control->begun, 1) + 1;
    if ((call->method && call->method->is_short) || watch_peer(call))
        begin(call, begun_count);
    spw_call_release(call);
}

static void on_close(struct spw_call *call, bool ok)
{
    (void)ok;
    if (call->closed_cancelled)
        atomic_store(&call->cancelled, true);
    list_remove(call);
    if (call->on_closed)
        call->on_closed(call);
    spw_call_release(call);
}

/* ---- loop ---- */

void spw_call_run(struct spw_call *call, spw_call_fn *fn)
{
    bool late = gpr_time_cmp(gpr_now(call->deadline.clock_type), call->deadline) >= 0;
    if (!call->is_done && (late || spw_call_is_cancelled(call)))
        spw_call_refuse(call, late ? GRPC_STATUS_DEADLINE_EXCEEDED : GRPC_STATUS_CANCELLED,
                        "the caller gave up before it was begun: nothing was changed");
    else
        fn(call);
}

void spw_call_to_loop(struct spw_call *call, spw_call_fn *fn)
{
    struct spw_control *control = call->control;
    pthread_mutex_lock(&control->lock);
    bool gone = control->loop_gone;
    bool post = !gone && !control->jobs_posted;
    if (!gone) {
        spw_call_hold(call);
        call->job = fn;
        call->job_next = NULL;
        *control->jobs_end = call;
        control->jobs_end = &call->job_next;
        control->jobs_posted = true;
    }
    pthread_mutex_unlock(&control->lock);
    if (post)
        spw_loop_post(control->loop, &control->task);
    if (gone)
        spw_call_end_stopping(call);
}

void spw_call_at_once(struct spw_call *call, spw_call_fn *fn)
{
    struct spw_control *control = call->control;
    pthread_mutex_lock(&control->lock);
    bool others = control->jobs_posted; /* were here before */
    pthread_mutex_unlock(&control->lock);
    if (others || !spw_loop_enter(control->loop)) {
        if (watch_peer(call))
            spw_call_to_loop(call, fn);
        return;
    }
    spw_call_run(call, fn);
    spw_loop_leave(control->loop);
}

/* ---- answers ---- */

/* The right to send the final status; false = it was sent, or will be when the message in flight is out. */
static bool claim_end(struct spw_call *call)
{
    pthread_mutex_lock(&call->control->lock);
    bool mine = !call->finished && !call->sending;
    if (!call->finished && call->sending)
        call->end_wanted = true;
    if (mine)
        call->finished = true;
    pthread_mutex_unlock(&call->control->lock);
    return mine;
}

/* Which of control's counts a status belongs to. */
static int result_of(grpc_status_code code)
{
    switch (code) {
    case GRPC_STATUS_OK:
        return 0;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_NOT_FOUND:
    case GRPC_STATUS_ABORTED:
    case GRPC_STATUS_FAILED_PRECONDITION:
    case GRPC_STATUS_OUT_OF_RANGE:
        return 1;
    case GRPC_STATUS_PERMISSION_DENIED:
    case GRPC_STATUS_UNIMPLEMENTED:
    case GRPC_STATUS_RESOURCE_EXHAUSTED:
        return 2;
    default:
        return 3;
    }
}

/* SEND_STATUS, with what has to go before it. Trailing metadata names our status and the field at fault. */
static void end(struct spw_call *call, grpc_status_code code, const char *text, const char *status_name,
                const ProtobufCMessage *message)
{
    if (!claim_end(call))
        return;
    atomic_fetch_add_explicit(&call->control->ended[result_of(code)], 1, memory_order_relaxed);
    char field[64];
    spw_error_field(text, field, sizeof field);
    grpc_metadata trailing[2];
    memset(trailing, 0, sizeof trailing);
    size_t trailing_count = 0;
    if (status_name) {
        trailing[trailing_count].key = grpc_slice_from_static_string("spillway-status");
        trailing[trailing_count++].value = grpc_slice_from_static_string(status_name);
    }
    if (*field) {
        trailing[trailing_count].key = grpc_slice_from_static_string("spillway-field");
        trailing[trailing_count++].value = grpc_slice_from_copied_string(field);
    }
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_byte_buffer *buffer = message ? message_to_buffer(message) : NULL;

    grpc_op ops[4];
    memset(ops, 0, sizeof ops);
    size_t count = 0;
    if (!call->is_watched) { /* a server has to ask once, and this saves a batch of its own */
        ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
        ops[count++].data.recv_close_on_server.cancelled = &call->closed_cancelled;
    }
    if (!call->initial_sent) /* nobody sends any more: no lock needed */
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    call->initial_sent = true;
    if (buffer) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = buffer;
    }
    ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count].data.send_status_from_server.status = code;
    ops[count].data.send_status_from_server.status_details = &details;
    ops[count].data.send_status_from_server.trailing_metadata = trailing;
    ops[count++].data.send_status_from_server.trailing_metadata_count = trailing_count;
    start_batch(call, ops, count, &call->finish_event);
    if (buffer)
        grpc_byte_buffer_destroy(buffer);
    grpc_slice_unref(details);
    for (size_t i = 0; i < trailing_count; i++)
        grpc_slice_unref(trailing[i].value);
}

static void on_finish(struct spw_call *call, bool ok)
{
    (void)ok; /* a peer that is gone learns nothing, and on_closed has told the method */
    spw_call_release(call);
}

void spw_call_reply(struct spw_call *call, const ProtobufCMessage *message)
{
    end(call, GRPC_STATUS_OK, "", NULL, message);
}

void spw_call_finish(struct spw_call *call)
{
    end(call, GRPC_STATUS_OK, "", NULL, NULL);
}

void spw_call_fail(struct spw_call *call, const struct spw_error *err)
{
    end(call, spw_status_grpc_code(err->status), err->text, spw_status_name(err->status), NULL);
}

void spw_call_refuse(struct spw_call *call, grpc_status_code code, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    end(call, code, text, NULL, NULL);
}

void spw_call_end_stopping(struct spw_call *call)
{
    end(call, GRPC_STATUS_UNAVAILABLE, "the sidecar is stopping: try again when the next one runs", "BUSY",
        NULL);
}

/* ---- streams ---- */

bool spw_call_send(struct spw_call *call, const ProtobufCMessage *message)
{
    pthread_mutex_lock(&call->control->lock);
    bool may = !call->sending && !call->finished;
    bool first = may && !call->initial_sent;
    if (may)
        call->sending = call->initial_sent = true;
    pthread_mutex_unlock(&call->control->lock);
    if (!may)
        return false;
    grpc_op ops[2];
    memset(ops, 0, sizeof ops);
    size_t count = 0;
    if (first)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    grpc_byte_buffer *buffer = message_to_buffer(message);
    ops[count].op = GRPC_OP_SEND_MESSAGE;
    ops[count++].data.send_message.send_message = buffer;
    bool started = start_batch(call, ops, count, &call->send_event);
    grpc_byte_buffer_destroy(buffer);
    return started;
}

static void on_send(struct spw_call *call, bool ok)
{
    pthread_mutex_lock(&call->control->lock);
    call->sending = false;
    bool end_now = call->end_wanted;
    pthread_mutex_unlock(&call->control->lock);
    if (end_now)
        spw_call_end_stopping(call);
    else if (ok && call->on_sent)
        call->on_sent(call);
    spw_call_release(call);
}

void spw_call_receive(struct spw_call *call)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->received;
    start_batch(call, &op, 1, &call->recv_event);
}

static void on_receive(struct spw_call *call, bool ok)
{
    grpc_byte_buffer *buffer = call->received;
    call->received = NULL;
    ProtobufCMessage *message = ok && buffer ? message_of_buffer(buffer, call->method->request) : NULL;
    if (ok && buffer && !message)
        refuse_undecodable(call);
    else
        call->on_message(call, message);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    if (buffer)
        grpc_byte_buffer_destroy(buffer);
    spw_call_release(call);
}
