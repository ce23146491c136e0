/* echo.c: the floor: a server on gRPC C core alone that sends back what it is sent.
 *
 * Owns: the process it is run in. Called by: control.c, in a child. Thread: one of its own, and gRPC's.
 */
#include "bench/control.d/echo.h"

#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct echo_call {
    grpc_call *call;
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    grpc_byte_buffer *payload;
    int cancelled;
    bool begun;
};

static struct echo_call *arm(grpc_server *server, void *method, grpc_completion_queue *queue)
{
    struct echo_call *echo = calloc(1, sizeof *echo);
    if (!echo)
        abort();
    grpc_metadata_array_init(&echo->metadata);
    if (grpc_server_request_registered_call(server, method, &echo->call, &echo->deadline, &echo->metadata,
                                            &echo->payload, queue, queue, echo) != GRPC_CALL_OK)
        abort();
    return echo;
}

static void answer(struct echo_call *echo)
{
    grpc_op ops[4];
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = echo->payload;
    ops[2].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
    ops[3].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[3].data.recv_close_on_server.cancelled = &echo->cancelled;
    if (grpc_call_start_batch(echo->call, ops, 4, echo, NULL) != GRPC_CALL_OK)
        abort();
}

static void finish(struct echo_call *echo)
{
    if (echo->payload)
        grpc_byte_buffer_destroy(echo->payload);
    grpc_metadata_array_destroy(&echo->metadata);
    grpc_call_unref(echo->call);
    free(echo);
}

/* Connections are handed over as the sidecar does, so that both sides of the comparison are the same socket. */
static void take_connections(int listener, grpc_server *server)
{
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        grpc_server_add_channel_from_fd(server, fd, plain);
    grpc_server_credentials_release(plain);
}

void bench_echo_serve(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
        abort();
    grpc_init();
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server *server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    void *method = grpc_server_register_method(server, BENCH_ECHO_METHOD, NULL,
                                               GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    grpc_server_start(server);
    arm(server, method, queue);
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (poll(&wait, 1, -1) < 0)
        abort();
    take_connections(listener, server);
    for (;;) {
        grpc_event event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        struct echo_call *echo = event.tag;
        if (event.type != GRPC_OP_COMPLETE || !echo)
            continue;
        if (echo->begun) {
            finish(echo);
        } else if (event.success) {
            echo->begun = true;
            arm(server, method, queue);
            answer(echo);
        }
    }
}
