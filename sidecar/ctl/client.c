/* client.c: calls to the sidecar over gRPC core. See client.h. */
#include "sidecar/ctl/client.h"

#include <errno.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sidecar/ctl/credentials.h"
#include "sidecar/message/json.h"

#define UNARY_TIMEOUT_MS 10000

struct spw_client {
    const struct spw_ctl *ctl;
    grpc_channel *channel;
    grpc_completion_queue *queue;
};

struct spw_client_call {
    struct spw_client *client;
    grpc_call *grpc;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    bool given_up;
};

/* ---- reaching it ---- */

static const char *remedy_of(int error)
{
    switch (error) {
    case ENOENT:
        return "is the sidecar running, and its volume mounted here? name another socket by --address or "
               "SPILLWAY_CONTROL";
    case ECONNREFUSED:
        return "the sidecar that made the socket is gone: look at its log and start it";
    case EACCES:
    case EPERM:
        return "run as root, as the sidecar's user, or in the socket's group";
    default:
        return "look at the sidecar's log";
    }
}

/* gRPC would try and try again, and say less. */
static int knock(const struct spw_ctl *ctl)
{
    if (strncmp(ctl->address, "unix:", 5) != 0)
        return SPW_CTL_OK;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = ctl->address + 5;
    path += strncmp(path, "///", 3) == 0 ? 2 : 0; /* unix:///path is allowed too */
    if (strlen(path) >= sizeof to.sun_path)
        return spw_ctl_usage(ctl, "--address %s: the path is longer than %zu bytes", ctl->address,
                             sizeof to.sun_path - 1);
    memcpy(to.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (!error)
        return SPW_CTL_OK;
    return spw_ctl_fail(ctl, SPW_CTL_UNREACHED, "no sidecar at %s: %s: %s", ctl->address, strerror(error),
                        remedy_of(error));
}

static void say_nothing(gpr_log_func_args *args)
{
    (void)args; /* what failed is told once, by spw_client_end */
}

int spw_client_open(const struct spw_ctl *ctl, struct spw_client **out)
{
    *out = NULL;
    int code = knock(ctl);
    if (code)
        return code;
    gpr_set_log_function(say_nothing);
    grpc_init();
    grpc_channel_credentials *credentials;
    code = spw_credentials_new(ctl, &credentials);
    if (code) {
        grpc_shutdown();
        return code;
    }
    struct spw_client *client = gpr_zalloc(sizeof *client);
    client->ctl = ctl;
    client->queue = grpc_completion_queue_create_for_pluck(NULL);
    /* A proxy of the environment is none of the pod's loopback. */
    grpc_arg args[] = {{.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_ENABLE_HTTP_PROXY}},
                       {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH}},
                       {.type = GRPC_ARG_STRING, .key = (char[]){GRPC_SSL_TARGET_NAME_OVERRIDE_ARG}}};
    bool named = ctl->tls[SPW_CTL_TLS_CA] && ctl->server_name;
    args[0].value.integer = 0;
    args[1].value.integer = 16 * 1024 * 1024;
    args[2].value.string = (char *)ctl->server_name; /* gRPC only reads it */
    grpc_channel_args channel_args = {.num_args = named ? 3 : 2, .args = args};
    client->channel = grpc_channel_create(ctl->address, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    *out = client;
    return SPW_CTL_OK;
}

void spw_client_close(struct spw_client *client)
{
    if (!client)
        return;
    grpc_channel_destroy(client->channel);
    grpc_completion_queue_shutdown(client->queue);
    grpc_completion_queue_destroy(client->queue); /* nothing is left to pluck: each batch was waited for */
    gpr_free(client);
    grpc_shutdown();
}

/* ---- calls ---- */

/* Starts a batch and waits for it. The deadline of the call ends the wait. */
static bool batch(struct spw_client_call *call, const grpc_op *ops, size_t count)
{
    void *tag = &call->initial;
    if (grpc_call_start_batch(call->grpc, ops, count, tag, NULL) != GRPC_CALL_OK)
        return false;
    return grpc_completion_queue_pluck(call->client->queue, tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
               .success != 0;
}

/* The status batch is started at once and plucked last, so that an early end is seen. */
struct spw_client_call *spw_client_begin(struct spw_client *client, const char *method, uint64_t timeout_ms)
{
    struct spw_client_call *call = gpr_zalloc(sizeof *call);
    call->client = client;
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->details = grpc_empty_slice();
    uint64_t wanted_ms = client->ctl->timeout_ms ? client->ctl->timeout_ms : timeout_ms;
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)wanted_ms, GPR_TIMESPAN));
    grpc_slice name = grpc_slice_from_copied_string(method);
    call->grpc = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue, name,
                                          NULL, deadline, NULL);
    grpc_slice_unref(name);
    grpc_op ops[2];
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[0].data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    ops[1].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[1].data.recv_status_on_client.trailing_metadata = &call->trailing;
    ops[1].data.recv_status_on_client.status = &call->status;
    ops[1].data.recv_status_on_client.status_details = &call->details;
    grpc_call_start_batch(call->grpc, ops, 2, call, NULL);
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    batch(call, ops, 1);
    return call;
}

bool spw_client_send(struct spw_client_call *call, const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_SEND_MESSAGE;
    op.data.send_message.send_message = buffer;
    bool sent = batch(call, &op, 1);
    grpc_byte_buffer_destroy(buffer);
    return sent;
}

void spw_client_send_end(struct spw_client_call *call)
{
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    batch(call, &op, 1);
}

ProtobufCMessage *spw_client_receive(struct spw_client_call *call,
                                     const ProtobufCMessageDescriptor *descriptor)
{
    grpc_byte_buffer *buffer = NULL;
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &buffer;
    if (!batch(call, &op, 1) || !buffer)
        return NULL;
    ProtobufCMessage *message = NULL;
    grpc_byte_buffer_reader reader;
    if (grpc_byte_buffer_reader_init(&reader, buffer)) {
        grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
        message = protobuf_c_message_unpack(descriptor, NULL, GRPC_SLICE_LENGTH(slice),
                                            GRPC_SLICE_START_PTR(slice));
        grpc_slice_unref(slice);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(buffer);
    return message;
}

/* ---- the end ---- */

static char *trailing_text(const struct spw_client_call *call, const char *key)
{
    for (size_t i = 0; i < call->trailing.count; i++) {
        if (grpc_slice_str_cmp(call->trailing.metadata[i].key, key) == 0)
            return grpc_slice_to_c_string(call->trailing.metadata[i].value);
    }
    return NULL;
}

static const char *code_name(grpc_status_code code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED"};
    return (size_t)code < sizeof names / sizeof *names ? names[code] : "UNKNOWN";
}

/* The sidecar's own refusals carry a status of ours; a connection that failed does not. */
static int tell(const struct spw_client_call *call)
{
    const struct spw_ctl *ctl = call->client->ctl;
    char *text = grpc_slice_to_c_string(call->details);
    char *status = trailing_text(call, "spillway-status");
    char *field = trailing_text(call, "spillway-field");
    bool reached =
        call->status != GRPC_STATUS_DEADLINE_EXCEEDED && (call->status != GRPC_STATUS_UNAVAILABLE || status);
    const char *remedy =
        reached ? ""
        : call->status == GRPC_STATUS_DEADLINE_EXCEEDED
            ? ": give it longer by --timeout, and look at the sidecar's log"
        : ctl->tls[SPW_CTL_TLS_CA]
            ? ": is it running? Does --ca hold the authority of its certificate, which names this host (else "
              "--server-name)? Is the authority of --cert in its listen.control_tls.client_ca_file?"
        : strncmp(ctl->address, "unix:", 5) != 0
            ? ": is the sidecar running? name another address by --address or SPILLWAY_CONTROL; a port of "
              "listen.control_tls wants --ca, --cert and --key"
            : ": is the sidecar running? name another address by --address or SPILLWAY_CONTROL";
    if (ctl->json) {
        json_t *object = json_pack("{s:{s:s, s:s*, s:s*, s:s}}", "error", "code", code_name(call->status),
                                   "status", status, "field", field, "message", text);
        if (object)
            json_dumpf(object, stderr, JSON_COMPACT);
        fputc('\n', stderr);
        json_decref(object);
    } else if (reached) {
        fprintf(stderr, "spillwayctl: refused (%s): %s\n", code_name(call->status), text);
    } else {
        fprintf(stderr, "spillwayctl: no answer from %s (%s): %s%s\n", ctl->address, code_name(call->status),
                text, remedy);
    }
    gpr_free(text);
    gpr_free(status);
    gpr_free(field);
    return reached ? SPW_CTL_REFUSED : SPW_CTL_UNREACHED;
}

void spw_client_cancel(struct spw_client_call *call)
{
    call->given_up = true;
    grpc_call_cancel(call->grpc, NULL);
}

int spw_client_end(struct spw_client_call *call)
{
    grpc_completion_queue_pluck(call->client->queue, call, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    int code = call->status == GRPC_STATUS_OK || call->given_up ? SPW_CTL_OK : tell(call);
    grpc_slice_unref(call->details);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->grpc);
    gpr_free(call);
    return code;
}

int spw_client_unary(const struct spw_ctl *ctl, const char *method, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply)
{
    struct spw_client *client;
    *reply = NULL;
    int code = spw_client_open(ctl, &client);
    if (code)
        return code;
    struct spw_client_call *call = spw_client_begin(client, method, UNARY_TIMEOUT_MS);
    spw_client_send(call, request);
    spw_client_send_end(call);
    *reply = spw_client_receive(call, descriptor);
    code = spw_client_end(call);
    spw_client_close(client);
    if (code == SPW_CTL_OK && !*reply)
        code = spw_ctl_fail(
            ctl, SPW_CTL_REFUSED,
            "the answer of %s cannot be read: bring spillwayctl and the sidecar to one version", method);
    if (code && *reply) {
        protobuf_c_message_free_unpacked(*reply, NULL);
        *reply = NULL;
    }
    return code;
}

int spw_client_show(const struct spw_ctl *ctl, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *descriptor, spw_show_fn *show)
{
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, method, request, descriptor, &reply);
    if (code)
        return code;
    if (ctl->json)
        spw_json_print(spw_json_of_message(reply), false);
    else
        show(request, reply);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}
