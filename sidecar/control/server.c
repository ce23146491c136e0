/* server.c: the doors of the control API, the server's thread, and the hand-over to the loop.
 *
 * Owns: struct spw_control. Called by: main. Thread: start, drain, stop and the accepting run on the loop thread;
 * everything gRPC reports is taken from one completion queue by the server's own thread.
 *
 * Shutdown in order, so that nothing is begun on a queue that is closing: the doors are shut (each reports when its
 * last call is gone), armed calls come back unfilled, and only when no call is alive is the queue closed.
 */
#include "sidecar/control/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/conf/conf.h"
#include "sidecar/obs/log.h"

#define MESSAGE_OPERATE_BYTES (4 * 1024 * 1024) /* a chunk of rate rows */
#define MESSAGE_READ_BYTES    (64 * 1024)       /* all other requests are small */
#define STREAMS_MAX_COUNT     16
#define IDLE_MS               600000
#define KEEPALIVE_MS          30000 /* a frozen peer is noticed after this and the timeout */
#define KEEPALIVE_TIMEOUT_MS  10000
#define DRAIN_LOOK_MS         50 /* the last hold on a call may be dropped on the loop thread, which wakes nobody */
#define ACCEPT_PAUSE_NS       UINT64_C(200000000)

/* ---- doors ---- */

static void log_of_grpc(gpr_log_func_args *args)
{
    const char *file = strrchr(args->file, '/');
    spw_log(args->severity == GPR_LOG_SEVERITY_ERROR ? SPW_LOG_WARN : SPW_LOG_DEBUG, "control.grpc",
            "%s:%d: %s", file ? file + 1 : args->file, args->line, args->message);
}

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)key};
    arg.value.integer = value;
    return arg;
}

static enum spw_status door_open(struct spw_control *control, unsigned index, const char *name,
                                 enum spw_role role, struct spw_error *err)
{
    struct spw_door *door = &control->doors[index];
    /* Compressed requests are refused: gRPC would unpack them before it looks at their size. */
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                role >= SPW_ROLE_OPERATE ? MESSAGE_OPERATE_BYTES : MESSAGE_READ_BYTES),
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_MAX_COUNT),
        int_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, IDLE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        int_arg(GRPC_ARG_ALLOW_REUSEPORT,
                0), /* else a second server would share the port, and nobody be told */
    };
    grpc_channel_args channel_args = {.num_args = sizeof args / sizeof *args, .args = args};
    door->name = name;
    door->role = role;
    door->refusal = control->refusals[index];
    door->server = grpc_server_create(&channel_args, NULL);
    if (!door->server)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "control: gRPC made no server for %s: see the log",
                             name);
    atomic_fetch_add(&control->doors_open, 1);
    grpc_server_register_completion_queue(door->server, control->queue, NULL);
    for (size_t i = 0; i < SPW_METHODS_COUNT; i++)
        door->handles[i] = grpc_server_register_method(
            door->server, spw_methods[i].path, NULL,
            spw_methods[i].client_streams ? GRPC_SRM_PAYLOAD_NONE : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
            0);
    return SPW_STATUS_OK;
}

/* Plain and without a peer's identity: the loopback of the pod and nothing wider; and a port gRPC will not wrap. */
static bool is_loopback(const char *address)
{
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(address, ':');
    size_t bytes = colon ? (size_t)(colon - address) : sizeof host;
    if (bytes >= sizeof host)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    if (!digits || digits > 5 || colon[1 + digits] || strtoul(colon + 1, NULL, 10) > UINT16_MAX)
        return false;
    memcpy(host, address, bytes);
    host[bytes] = 0;
    struct in_addr ip;
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127);
}

static enum spw_status tcp_open(struct spw_control *control, const char *address, struct spw_error *err)
{
    if (!is_loopback(address))
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "listen.control: %.120s is not on loopback, and the port is plain: write 127.0.0.1:PORT "
            "or [::1]:PORT",
            address);
    enum spw_status status = door_open(control, SPW_DOOR_TCP, "loopback TCP", SPW_ROLE_READ, err);
    if (status)
        return status;
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(control->doors[SPW_DOOR_TCP].server, address, plain);
    grpc_server_credentials_release(plain);
    if (!port)
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "listen.control: %.120s cannot be listened on: choose a free port on loopback",
                             address);
    control->tcp_port = (uint16_t)port;
    return SPW_STATUS_OK;
}

static enum spw_status tls_open(struct spw_control *control, const struct spw_conf_control_tls *conf,
                                struct spw_error *err)
{
    grpc_server_credentials *credentials;
    enum spw_status status = spw_control_tls_new(conf, &control->tls, &credentials, err);
    if (status)
        return status;
    status = door_open(control, SPW_DOOR_TLS, "mutual TLS", SPW_ROLE_ADMIN, err);
    if (!status &&
        !grpc_server_add_http2_port(control->doors[SPW_DOOR_TLS].server, conf->address, credentials))
        status = spw_error_set(err, SPW_STATUS_SYSTEM,
                               "listen.control_tls.address: %.120s cannot be listened on: choose a free port",
                               conf->address);
    grpc_server_credentials_release(credentials);
    return status;
}

static enum spw_status doors_open(struct spw_control *control, const struct spw_control_options *options,
                                  struct spw_error *err)
{
    snprintf(
        control->refusals[SPW_DOOR_READ], sizeof control->refusals[0],
        "it is for peers that run as root or as uid %u: run it as one of them, in the sidecar's container",
        (unsigned)geteuid());
    snprintf(control->refusals[SPW_DOOR_TCP], sizeof control->refusals[0], "use the Unix socket unix:%.160s",
             control->socket.listener.path);
    snprintf(control->refusals[SPW_DOOR_OPERATE], sizeof control->refusals[0],
             "it is for admins: peers that run as root or as uid %u, or that listen.control_uids names",
             (unsigned)geteuid());
    snprintf(control->refusals[SPW_DOOR_TLS], sizeof control->refusals[0],
             "listen.control_tls.roles gives this certificate no such role");
    enum spw_status status = door_open(control, SPW_DOOR_ADMIN, "Unix socket, admin", SPW_ROLE_ADMIN, err);
    if (!status)
        status = door_open(control, SPW_DOOR_OPERATE, "Unix socket, operator", SPW_ROLE_OPERATE, err);
    if (!status)
        status = door_open(control, SPW_DOOR_READ, "Unix socket, reader", SPW_ROLE_RECORDS, err);
    if (!status && options->tcp_listen && *options->tcp_listen)
        status = tcp_open(control, options->tcp_listen, err);
    if (!status && options->conf && options->conf->control_tls.address[0])
        status = tls_open(control, &options->conf->control_tls, err);
    return status;
}

static void doors_start(struct spw_control *control)
{
    for (unsigned i = 0; i < SPW_DOORS_COUNT; i++) {
        struct spw_door *door = &control->doors[i];
        if (!door->server)
            continue;
        grpc_server_start(door->server);
        /* One armed of each, always: gRPC lets calls that nothing is armed for wait until their deadline. */
        spw_call_arm(control, door, NULL);
        for (size_t m = 0; m < SPW_METHODS_COUNT; m++)
            spw_call_arm(control, door, &spw_methods[m]);
    }
}

/* ---- the server's thread ---- */

static gpr_timespec next_look(struct spw_control *control)
{
    if (!atomic_load(&control->draining))
        return gpr_inf_future(GPR_CLOCK_REALTIME);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(DRAIN_LOOK_MS, GPR_TIMESPAN));
}

static void on_event(struct spw_control *control, void *tag, bool ok)
{
    for (unsigned i = 0; i < SPW_DOORS_COUNT; i++) {
        if (tag != &control->doors[i])
            continue;
        atomic_fetch_sub(&control->doors_open, 1);
        return;
    }
    struct spw_event *event = tag;
    event->fn(event->call, ok);
}

static void *serve(void *argument)
{
    struct spw_control *control = argument;
    bool closing = false;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(control->queue, next_look(control), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type == GRPC_OP_COMPLETE)
            on_event(control, event.tag, event.success != 0);
        if (!closing && !atomic_load(&control->doors_open) && !atomic_load(&control->alive)) {
            closing = true;
            grpc_completion_queue_shutdown(control->queue);
        }
    }
}

static enum spw_status thread_start(struct spw_control *control, struct spw_error *err)
{
    int error = pthread_create(&control->thread, NULL, serve, control);
    if (error)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "control: no thread to be had: %s: raise the pids limit",
                             strerror(error));
    pthread_setname_np(control->thread, "spw-control");
    return SPW_STATUS_OK;
}

/* ---- the loop thread ---- */

static void run_jobs(struct spw_loop *loop, struct spw_loop_task *task)
{
    (void)loop;
    struct spw_control *control = task->owner;
    pthread_mutex_lock(&control->lock);
    struct spw_call *call = control->jobs;
    control->jobs = NULL;
    control->jobs_end = &control->jobs;
    control->jobs_posted = false;
    pthread_mutex_unlock(&control->lock);
    while (call) {
        struct spw_call *next = call->job_next;
        spw_call_run(call, call->job);
        spw_call_release(call);
        call = next;
    }
}

static void on_connection(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    (void)events;
    struct spw_control *control = watch->owner;
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    enum spw_role role;
    int fd;
    while ((fd = spw_control_socket_accept(&control->socket, control->conf, &role)) >= 0)
        grpc_server_add_channel_from_fd(control
                                            ->doors[role == SPW_ROLE_ADMIN     ? SPW_DOOR_ADMIN
                                                    : role == SPW_ROLE_OPERATE ? SPW_DOOR_OPERATE
                                                                               : SPW_DOOR_READ]
                                            .server,
                                        fd, plain);
    int error = errno;
    grpc_server_credentials_release(plain);
    if (error == EAGAIN)
        return;
    spw_log(SPW_LOG_WARN, "control.accept", "no connection could be taken: %s: trying again in 200 ms",
            strerror(error));
    spw_loop_watch_stop(loop, watch);
    spw_loop_timer_set(loop, &control->pause, spw_loop_now_ns(loop) + ACCEPT_PAUSE_NS);
}

static void on_pause_over(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_control *control = timer->owner;
    if (spw_loop_watch_set(loop, &control->watch, control->socket.listener.fd, SPW_LOOP_READ))
        spw_loop_timer_set(loop, timer, spw_loop_now_ns(loop) + ACCEPT_PAUSE_NS);
}

/* ---- start and stop ---- */

static struct spw_control *control_new(const struct spw_control_options *options)
{
    struct spw_control *control = gpr_zalloc(sizeof *control);
    control->loop = options->loop;
    control->state = options->state;
    control->store = options->store;
    control->conf = options->conf;
    control->live = options->live;
    control->reconcile = options->reconcile;
    snprintf(control->version, sizeof control->version, "%s", options->version ? options->version : "");
    control->started_ns = spw_loop_now_ns(options->loop);
    control->socket.listener.fd = control->socket.listener.lock_fd = -1;
    pthread_mutex_init(&control->lock, NULL);
    pthread_mutex_init(&control->health_lock, NULL);
    pthread_mutex_init(&control->watch_lock, NULL);
    control->journal = spw_journal_new();
    control->record = spw_record_new(control);
    control->expiry = spw_expiry_new(control);
    control->demand = spw_demand_new(options->loop, options->state);
    control->jobs_end = &control->jobs;
    control->task = (struct spw_loop_task){.fn = run_jobs, .owner = control};
    control->watch = (struct spw_loop_watch){.fn = on_connection, .owner = control};
    control->pause = (struct spw_loop_timer){.fn = on_pause_over, .owner = control};
    control->queue = grpc_completion_queue_create_for_next(NULL);
    return control;
}

static void control_destroy(struct spw_control *control)
{
    for (unsigned i = 0; i < SPW_DOORS_COUNT; i++) {
        if (control->doors[i].server)
            grpc_server_destroy(control->doors[i].server);
    }
    grpc_completion_queue_destroy(control->queue);
    spw_schema_destroy(control->schema);
    spw_control_tls_destroy(control->tls);
    spw_listener_close(&control->socket.listener);
    pthread_mutex_destroy(&control->lock);
    pthread_mutex_destroy(&control->health_lock);
    pthread_mutex_destroy(&control->watch_lock);
    spw_record_destroy(control->record);
    spw_expiry_destroy(control->expiry);
    spw_demand_destroy(control->demand);
    spw_journal_destroy(control->journal);
    gpr_free(control);
    grpc_shutdown();
}

static void doors_shut(struct spw_control *control)
{
    for (unsigned i = 0; i < SPW_DOORS_COUNT; i++) {
        if (control->doors[i].server)
            grpc_server_shutdown_and_notify(control->doors[i].server, control->queue, &control->doors[i]);
    }
}

/* What a failed start leaves: servers that may not be destroyed before they have been shut. */
static void abandon(struct spw_control *control)
{
    atomic_store(&control->draining, true);
    doors_shut(control);
    if (!atomic_load(&control->doors_open))
        grpc_completion_queue_shutdown(control->queue);
    serve(control);
    control_destroy(control);
}

static enum spw_status start(struct spw_control *control, const struct spw_control_options *options,
                             struct spw_error *err)
{
    enum spw_status status = spw_schema_new(&control->schema, err);
    if (!status)
        status =
            spw_control_socket_open(&control->socket, options->unix_path, options->mode, options->gid, err);
    if (!status)
        status = doors_open(control, options, err);
    if (status)
        return status;
    status = thread_start(control, err);
    if (status)
        return status;
    doors_start(control);
    return SPW_STATUS_OK;
}

enum spw_status spw_control_check(const struct spw_conf *conf, struct spw_error *err)
{
    return conf->control_tls.address[0] ? spw_control_tls_check(&conf->control_tls, err) : SPW_STATUS_OK;
}

enum spw_status spw_control_start(const struct spw_control_options *options, struct spw_control **out,
                                  struct spw_error *err)
{
    *out = NULL;
    /* The threads of gRPC and ours inherit the mask: signals stay with those who wait for them. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* main's handler says what it means */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    gpr_set_log_function(log_of_grpc);
    grpc_init();
    struct spw_control *control = control_new(options);
    enum spw_status status = start(control, options, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status) {
        abandon(control);
        return status;
    }
    if (spw_loop_watch_set(control->loop, &control->watch, control->socket.listener.fd, SPW_LOOP_READ)) {
        spw_control_stop(control);
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "control socket %.100s: the loop cannot watch it: see the log",
                             options->unix_path);
    }
    control->listening = true;
    spw_record_start(control->record);
    spw_demand_start(control->demand);
    spw_log(SPW_LOG_INFO, "control.start", "serving on unix:%s", control->socket.listener.path);
    if (control->tls)
        spw_log(SPW_LOG_INFO, "control.start", "serving, by certificate, on %s",
                options->conf->control_tls.address);
    if (control->tcp_port)
        spw_log(SPW_LOG_INFO, "control.start", "serving, to read, on %s, port %u", options->tcp_listen,
                control->tcp_port);
    *out = control;
    return SPW_STATUS_OK;
}

void spw_control_counts(const struct spw_control *control, uint64_t calls[4])
{
    for (int i = 0; i < 4; i++)
        calls[i] = atomic_load(&control->ended[i]);
}

void spw_control_reload_begin(struct spw_control *control)
{
    spw_record_look(control->record, NULL, &SPW_DOER_SIDECAR);
}

void spw_control_reload_end(struct spw_control *control, uint32_t changes_count, const char *refusal)
{
    spw_record_reload(control->record, changes_count, refusal);
}

uint16_t spw_control_tcp_port(const struct spw_control *control)
{
    return control->tcp_port;
}

/* Streams that only wait would hold the drain up until they are cut. */
static void end_waiting(struct spw_control *control)
{
    for (;;) {
        struct spw_call *found = NULL;
        pthread_mutex_lock(&control->lock);
        for (struct spw_call *call = control->calls; call && !found; call = call->next) {
            if (call->method && call->method->waits && !call->finished && !call->end_wanted)
                found = call;
        }
        if (found)
            spw_call_hold(found);
        pthread_mutex_unlock(&control->lock);
        if (!found)
            return;
        spw_call_end_stopping(found);
        spw_call_release(found);
    }
}

void spw_control_drain(struct spw_control *control)
{
    if (atomic_exchange(&control->draining, true))
        return;
    spw_loop_timer_cancel(control->loop, &control->pause);
    spw_record_stop(control->record);
    spw_demand_stop(control->demand);
    if (control->listening) {
        spw_loop_watch_close(control->loop, &control->watch);
        control->socket.listener.fd = -1;
    }
    spw_control_serving_set(control, false);
    doors_shut(control);
    end_waiting(control);
}

bool spw_control_is_drained(const struct spw_control *control)
{
    return atomic_load(&control->draining) && !atomic_load(&control->begun);
}

void spw_control_stop(struct spw_control *control)
{
    if (!control)
        return;
    spw_control_drain(control);
    pthread_mutex_lock(&control->lock);
    struct spw_call *call = control->jobs;
    control->jobs = NULL;
    control->jobs_end = &control->jobs;
    control->loop_gone = true;
    pthread_mutex_unlock(&control->lock);
    while (call) {
        struct spw_call *next = call->job_next;
        spw_call_end_stopping(call);
        spw_call_release(call);
        call = next;
    }
    for (unsigned i = 0; i < SPW_DOORS_COUNT; i++) {
        if (control->doors[i].server)
            grpc_server_cancel_all_calls(control->doors[i].server);
    }
    pthread_join(control->thread, NULL);
    control_destroy(control);
}
