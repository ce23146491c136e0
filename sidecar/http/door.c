/* door.c: the sidecar's HTTP servers. See door.h.
 *
 * libmicrohttpd keeps its sockets in an epoll set of its own, whose descriptor is one watch of the loop; its timeouts
 * are one timer. A request whose answer comes later is suspended.
 *
 * Hang-ups are watched for here, on a dup of each connection's socket, because libmicrohttpd 0.9.75 does not look at a
 * suspended connection, and because its edge-triggered reading misses an end that arrives together with the last
 * bytes: such a connection would keep its place until the idle timeout.
 *
 * A port that is full makes room by itself: who has not sent a whole request gives way, the longest-waiting first, those
 * who never sent one before those who keep a connection for later. So connections that say nothing cannot shut a port.
 */
#include "sidecar/http/door.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sidecar/http/buffer.h"
#include "sidecar/http/field.h"
#include "sidecar/http/request_check.h"
#include "sidecar/net/listener.h"

enum {
    BODY_MAX_BYTES = 64 << 10,
    CONNECTION_MEMORY_BYTES = 16 << 10, /* headers of a request and of its answer; see request_check.c */
    CONNECTIONS_MAX = 256,
    CONNECTIONS_SPARE = 8, /* accepted beyond the maximum, while those who gave way are being closed */
    IDLE_TIMEOUT_S = 60,
    RUNS_PER_TURN = 4,
    KEPT_BUFFER_MAX_BYTES = 4 << 10 /* of a connection between two requests */
};

enum request_state {
    REQUEST_NEW,      /* its headers have not been looked at */
    REQUEST_READING,  /* its body arrives */
    REQUEST_HANDLING, /* the handler is being called */
    REQUEST_WAITING,  /* suspended until the owner answers */
    REQUEST_ANSWERED, /* response is to be sent, or being sent */
    REQUEST_ABANDONED /* the door is being destroyed */
};

/* Who gives way when the port is full, in this order. */
enum queue { QUEUE_NEW, QUEUE_KEPT, QUEUES_COUNT, QUEUE_NONE = QUEUES_COUNT };

struct connection;

/* The one of a connection, at most one at a time; its buffers stay for the next. */
struct spw_door_request {
    struct spw_door *door;
    struct MHD_Connection *mhd;
    struct connection *connection;
    enum request_state state;
    const char *method;
    char *target; /* in texts */
    char *path;
    char *headers; /* NUL-terminated; made when asked for */
    size_t headers_bytes;
    size_t body_bytes;
    bool too_large;
    bool counted;   /* in open_count */
    bool gone_told; /* the owner knows that the caller hung up */
    void *user;
    struct MHD_Response *response;
    uint32_t status;
    struct spw_door_request *previous, *next; /* among the waiting */
    struct spw_buffer texts, body;            /* last: not cleared for the next use */
};

struct connection {
    struct spw_door *door;
    enum queue queue; /* NONE: a whole request of it is being handled, or it gives way already */
    bool was_answered, is_leaving;
    struct connection *older, *newer; /* in the queue */
    struct spw_door_request *request; /* own, while one is under way */
    struct spw_door_request own;
    struct spw_loop_watch hangup; /* of a dup of the socket */
    bool half_closed;             /* in the door's list of those */
    bool has_peer;                /* of a Unix socket: who connected, which does not change */
    struct ucred peer;
    struct connection *previous, *next;
};

struct spw_door {
    struct spw_loop *loop;
    struct spw_listener listener;
    struct MHD_Daemon *daemon;
    struct spw_loop_watch watch;
    struct spw_loop_timer timer;
    struct spw_loop_stage stage; /* libmicrohttpd has something to do */
    struct spw_door_request *waiting;
    struct connection *half_closed;
    struct {
        struct connection *oldest, *newest;
    } queues[QUEUES_COUNT];
    uint32_t open_count;
    uint32_t connections_count, leaving_count, connections_max;
    size_t body_max_bytes;
    bool stopping;
    bool place_freed; /* a connection ended since the last run */
    spw_door_handler_fn *handler;
    spw_door_gone_fn *gone;
    void *owner;
};

/* -------- libmicrohttpd on the loop -------- */

/* Callers whose sending half is closed. One whose request waits is told to the owner. One without a whole request
 * will never send it: shutdown() raises a fresh event, libmicrohttpd reads on and meets the end. That takes as many
 * rounds as there are bytes left to read, so it is done after each. */
static void settle_half_closed(struct spw_door *door)
{
    for (struct connection *c = door->half_closed; c != NULL; c = c->next) {
        struct spw_door_request *request = c->request;
        if (request == NULL || request->state == REQUEST_NEW || request->state == REQUEST_READING) {
            shutdown(c->hangup.fd, SHUT_RD);
        } else if (request->state == REQUEST_WAITING && !request->gone_told) {
            request->gone_told = true;
            if (door->gone != NULL) {
                door->gone(door->owner, request);
            }
        }
    }
}

static void run(struct spw_door *door)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms = 1;
    door->place_freed = false;
    /* Each run takes a connection one step: reading, handling and answering a request need a few in a row. */
    for (int i = 0; i < RUNS_PER_TURN && (i == 0 || timeout_ms == 0) && !door->place_freed; i++) {
        MHD_run(door->daemon);
        timeout_ms = 1;
        (void)MHD_get_timeout(door->daemon, &timeout_ms);
    }
    if (door->place_freed) {
        /* At its limit of connections libmicrohttpd stops listening, and takes it up again only in a later run. */
        spw_loop_timer_set(door->loop, &door->timer, spw_loop_now_ns(door->loop));
    } else if (MHD_get_timeout(door->daemon, &timeout_ms) == MHD_YES) {
        spw_loop_timer_set(door->loop, &door->timer, spw_loop_now_ns(door->loop) + timeout_ms * 1000000U);
    } else {
        spw_loop_timer_cancel(door->loop, &door->timer);
    }
    settle_half_closed(door);
}

static void on_stage(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    (void)loop;
    run(stage->owner);
}

static void on_ready(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct spw_door *door = watch->owner;
    (void)events;
    spw_loop_stage_set(loop, &door->stage);
}

static void on_timer(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    struct spw_door *door = timer->owner;
    spw_loop_stage_set(loop, &door->stage);
}

/* -------- connections -------- */

static void link_half_closed(struct connection *c)
{
    c->half_closed = true;
    c->next = c->door->half_closed;
    if (c->next != NULL) {
        c->next->previous = c;
    }
    c->door->half_closed = c;
}

static void unlink_half_closed(struct connection *c)
{
    if (c->previous != NULL) {
        c->previous->next = c->next;
    } else {
        c->door->half_closed = c->next;
    }
    if (c->next != NULL) {
        c->next->previous = c->previous;
    }
}

static void queue_leave(struct connection *c)
{
    if (c->queue == QUEUE_NONE) {
        return;
    }
    *(c->older != NULL ? &c->older->newer : &c->door->queues[c->queue].oldest) = c->newer;
    *(c->newer != NULL ? &c->newer->older : &c->door->queues[c->queue].newest) = c->older;
    c->older = c->newer = NULL;
    c->queue = QUEUE_NONE;
}

static void queue_join(struct connection *c)
{
    struct connection *newest;
    c->queue = c->was_answered ? QUEUE_KEPT : QUEUE_NEW;
    newest = c->door->queues[c->queue].newest;
    c->older = newest;
    *(newest != NULL ? &newest->newer : &c->door->queues[c->queue].oldest) = c;
    c->door->queues[c->queue].newest = c;
}

/* libmicrohttpd meets the end of the connection in its next run, and closes it. */
static void make_room(struct spw_door *door)
{
    for (int q = 0; q < QUEUES_COUNT && door->connections_count - door->leaving_count > door->connections_max;
         q++) {
        struct connection *c = door->queues[q].oldest;
        if (c != NULL) {
            queue_leave(c);
            c->is_leaving = true;
            door->leaving_count++;
            shutdown(c->hangup.fd, SHUT_RDWR);
        }
    }
}

static void on_hangup(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct connection *c = watch->owner;
    (void)events;
    spw_loop_watch_stop(loop, watch); /* it will never be otherwise again */
    link_half_closed(c);
    spw_loop_stage_set(loop, &c->door->stage);
}

static struct connection *connection_new(struct spw_door *door, struct MHD_Connection *mhd)
{
    struct connection *c = calloc(1, sizeof *c);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info == NULL ? -1 : fcntl(info->connect_fd, F_DUPFD_CLOEXEC, 0);
    if (c == NULL || fd < 0) {
        if (fd >= 0) {
            close(fd);
        }
        free(c);
        return NULL;
    }
    c->door = door;
    c->queue = QUEUE_NONE;
    socklen_t bytes = sizeof c->peer;
    c->has_peer =
        door->listener.path[0] != '\0' && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &bytes) == 0;
    c->hangup.fn = on_hangup;
    c->hangup.owner = c;
    if (spw_loop_watch_set(door->loop, &c->hangup, fd, SPW_LOOP_HANGUP) != SPW_STATUS_OK) {
        close(fd);
        free(c);
        return NULL;
    }
    return c;
}

static void on_connection(void *owner, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct spw_door *door = owner;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct connection *new = connection_new(door, mhd);
        *context = new;
        if (new != NULL) {
            door->connections_count++;
            make_room(door);
            queue_join(new);
        }
        return;
    }
    struct connection *c = *context;
    door->place_freed = true;
    if (c != NULL) {
        queue_leave(c);
        door->connections_count--;
        door->leaving_count -= c->is_leaving;
        if (c->half_closed) {
            unlink_half_closed(c);
        }
        spw_loop_watch_close(door->loop, &c->hangup); /* libmicrohttpd closes its own right after this */
        free(c->own.texts.at);
        free(c->own.body.at);
        free(c);
        *context = NULL;
    }
}

/* -------- a request's life -------- */

static void link_waiting(struct spw_door_request *request)
{
    struct spw_door *door = request->door;
    request->previous = NULL;
    request->next = door->waiting;
    if (request->next != NULL) {
        request->next->previous = request;
    }
    door->waiting = request;
}

static void unlink_waiting(struct spw_door_request *request)
{
    if (request->previous != NULL) {
        request->previous->next = request->next;
    } else {
        request->door->waiting = request->next;
    }
    if (request->next != NULL) {
        request->next->previous = request->previous;
    }
}

/* The target is here as received; later libmicrohttpd shows it only decoded. */
static void *on_target(void *owner, const char *target, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info == NULL ? NULL : info->socket_context;
    if (c == NULL) {
        return NULL; /* out of memory or descriptors: on_request ends the connection */
    }
    struct spw_door_request *request = &c->own;
    size_t bytes = strlen(target) + 1, path_bytes = strcspn(target, "?");
    if (c->request != NULL || !spw_buffer_reserve(&request->texts, bytes + path_bytes + 1)) {
        return NULL;
    }
    memset(request, 0, offsetof(struct spw_door_request, texts));
    request->door = owner;
    request->mhd = mhd;
    request->connection = c;
    request->target = request->texts.at;
    request->path = request->target + bytes;
    memcpy(request->target, target, bytes);
    memcpy(request->path, target, path_bytes);
    request->path[path_bytes] = '\0';
    c->request = request;
    return request;
}

static void on_completed(void *owner, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode why)
{
    struct spw_door_request *request = *context;
    struct spw_door *door = owner;
    (void)mhd;
    (void)why;
    *context = NULL;
    if (request == NULL) {
        return;
    }
    struct connection *c = request->connection;
    c->request = NULL;
    c->was_answered = true;
    if (c->queue == QUEUE_NONE && !c->is_leaving) {
        queue_join(c);
    }
    door->open_count -= request->counted;
    if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    free(request->headers);
    request->headers = NULL;
    spw_buffer_trim(&request->texts, KEPT_BUFFER_MAX_BYTES);
    spw_buffer_trim(&request->body, KEPT_BUFFER_MAX_BYTES);
}

static const char *refusal_text(uint32_t status)
{
    switch (status) {
    case MHD_HTTP_CONTENT_TOO_LARGE:
        return "{\"error\":\"the body is too large\"}\n";
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        return "{\"error\":\"the headers are too large\"}\n";
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        return "{\"error\":\"HTTP/1.1 is spoken here\"}\n";
    default:
        return "{\"error\":\"the request is malformed or its framing ambiguous\"}\n";
    }
}

static enum MHD_Result refuse(struct spw_door_request *request, uint32_t status)
{
    const char *text = refusal_text(status);
    request->state = REQUEST_ANSWERED;
    request->status = status;
    request->response = MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    if (request->response == NULL) {
        return MHD_NO;
    }
    MHD_add_response_header(request->response, "Content-Type", "application/json");
    MHD_add_response_header(request->response, "Connection", "close");
    return MHD_queue_response(request->mhd, status, request->response);
}

static enum MHD_Result take_body(struct spw_door_request *request, const char *data, size_t bytes)
{
    size_t total = request->body_bytes + bytes;
    if (request->too_large || total > request->door->body_max_bytes) {
        request->too_large = true;
        request->body_bytes = total;
        return total > request->door->body_max_bytes + SPW_REQUEST_SWALLOW_MAX_BYTES ? MHD_NO : MHD_YES;
    }
    if (!spw_buffer_reserve(&request->body, total + 1)) {
        return MHD_NO;
    }
    memcpy(request->body.at + request->body_bytes, data, bytes);
    request->body.at[total] = '\0';
    request->body_bytes = total;
    return MHD_YES;
}

static enum MHD_Result send_answer(struct spw_door_request *request)
{
    return request->response == NULL ? MHD_NO
                                     : MHD_queue_response(request->mhd, request->status, request->response);
}

static enum MHD_Result handle(struct spw_door_request *request)
{
    struct spw_door *door = request->door;
    if (request->too_large) {
        return refuse(request, MHD_HTTP_CONTENT_TOO_LARGE);
    }
    request->state = REQUEST_HANDLING;
    queue_leave(request->connection);
    request->counted = true;
    door->open_count++;
    door->handler(door->owner, request);
    if (request->state == REQUEST_ANSWERED) {
        return send_answer(request);
    }
    request->state = REQUEST_WAITING;
    link_waiting(request);
    MHD_suspend_connection(request->mhd);
    return MHD_YES;
}

/* libmicrohttpd calls this when the headers are there, for each piece of the body, at the end of the body, and once
 * more after a suspended request was resumed. */
static enum MHD_Result on_request(void *owner, struct MHD_Connection *mhd, const char *decoded_path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **context)
{
    struct spw_door_request *request = *context;
    (void)owner;
    (void)decoded_path;
    if (request == NULL) {
        return MHD_NO;
    }
    if (request->state == REQUEST_NEW) {
        request->method = method;
        request->state = REQUEST_READING;
        uint32_t status = spw_request_check(mhd, method, request->target, version,
                                            request->door->body_max_bytes, &request->too_large);
        return status == 0 ? MHD_YES : refuse(request, status);
    }
    if (request->state == REQUEST_READING && *data_bytes > 0) {
        enum MHD_Result result = take_body(request, data, *data_bytes);
        *data_bytes = 0;
        return result;
    }
    if (request->state == REQUEST_READING) {
        return handle(request);
    }
    return request->state == REQUEST_ANSWERED ? send_answer(request) : MHD_NO;
}

/* -------- what the handler sees -------- */

const char *spw_door_method(const struct spw_door_request *request)
{
    return request->method;
}

const char *spw_door_path(const struct spw_door_request *request)
{
    return request->path;
}

const char *spw_door_target(const struct spw_door_request *request)
{
    return request->target;
}

const char *spw_door_query(const struct spw_door_request *request, const char *name)
{
    const char *value = NULL;
    size_t bytes = 0;
    if (MHD_lookup_connection_value_n(request->mhd, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value,
                                      &bytes) != MHD_YES) {
        return NULL;
    }
    if (value == NULL) {
        return ""; /* "?name" */
    }
    return strlen(value) == bytes ? value : NULL;
}

const char *spw_door_header(const struct spw_door_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

static enum MHD_Result measure_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      size_t name_bytes, const char *value, size_t value_bytes)
{
    struct spw_door_request *request = context;
    (void)kind, (void)name, (void)value;
    request->headers_bytes += name_bytes + value_bytes + 4;
    return MHD_YES;
}

static char *append(char *end, const char *bytes, size_t count)
{
    if (count > 0) {
        memcpy(end, bytes, count);
    }
    return end + count;
}

static enum MHD_Result append_header(void *context, enum MHD_ValueKind kind, const char *name,
                                     size_t name_bytes, const char *value, size_t value_bytes)
{
    char **end = context;
    (void)kind;
    *end = append(*end, name, name_bytes);
    *end = append(*end, ": ", 2);
    *end = append(*end, value, value_bytes);
    *end = append(*end, "\r\n", 2);
    return MHD_YES;
}

const char *spw_door_headers(struct spw_door_request *request)
{
    if (request->headers != NULL) {
        return request->headers;
    }
    request->headers_bytes = 0;
    MHD_get_connection_values_n(request->mhd, MHD_HEADER_KIND, measure_header, request);
    char *end = request->headers = malloc(request->headers_bytes + 1);
    if (end != NULL) {
        MHD_get_connection_values_n(request->mhd, MHD_HEADER_KIND, append_header, &end);
        *end = '\0';
    }
    return request->headers;
}

const char *spw_door_body(const struct spw_door_request *request, size_t *bytes)
{
    *bytes = request->body_bytes;
    return request->body_bytes == 0 ? "" : request->body.at;
}

enum spw_status spw_door_peer(const struct spw_door_request *request, uid_t *uid, gid_t *gid)
{
    const struct connection *c = request->connection;
    if (!c->has_peer) {
        return SPW_STATUS_NOT_FOUND;
    }
    *uid = c->peer.uid;
    *gid = c->peer.gid;
    return SPW_STATUS_OK;
}

void spw_door_set_user(struct spw_door_request *request, void *user)
{
    request->user = user;
}

void *spw_door_user(const struct spw_door_request *request)
{
    return request->user;
}

/* -------- the answer -------- */

static bool set_here(const char *name)
{
    static const char *const names[] = {"Content-Length", "Date", "Connection", "Keep-Alive",
                                        "Transfer-Encoding"};
    static const char initials[] = "CcDdKkTt";
    for (size_t i = 0; strchr(initials, name[0]) != NULL && i < sizeof names / sizeof *names; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A value with line ends could end the header block early: they are dropped. */
static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    if (!spw_field_is_token(name, strlen(name)) || set_here(name)) {
        return;
    }
    if (strpbrk(value, "\r\n") == NULL) {
        MHD_add_response_header(response, name, value);
        return;
    }
    char *clean = strdup(value);
    if (clean == NULL) {
        return;
    }
    char *end = clean;
    for (const char *c = value; *c != '\0'; c++) {
        if (*c != '\r' && *c != '\n') {
            *end++ = *c;
        }
    }
    *end = '\0';
    MHD_add_response_header(response, name, clean);
    free(clean);
}

static struct MHD_Response *make_response(const struct spw_door *door, const char *content_type,
                                          const struct spw_door_header *headers, size_t header_count,
                                          const char *body, size_t body_bytes)
{
    void *bytes = (void *)(body == NULL ? "" : body); /* copied at once */
    struct MHD_Response *response = MHD_create_response_from_buffer(body_bytes, bytes, MHD_RESPMEM_MUST_COPY);
    if (response == NULL) {
        return NULL;
    }
    if (content_type != NULL) {
        add_header(response, "Content-Type", content_type);
    }
    for (size_t i = 0; i < header_count; i++) {
        add_header(response, headers[i].name, headers[i].value);
    }
    if (door->stopping) {
        MHD_add_response_header(response, "Connection", "close");
    }
    return response;
}

void spw_door_answer(struct spw_door_request *request, uint32_t status, const char *content_type,
                     const struct spw_door_header *headers, size_t header_count, const char *body,
                     size_t body_bytes)
{
    struct spw_door *door = request->door;
    bool waiting = request->state == REQUEST_WAITING;
    if (!waiting && request->state != REQUEST_HANDLING) {
        return; /* the door is being destroyed */
    }
    bool bodiless = status == MHD_HTTP_NO_CONTENT || status == MHD_HTTP_NOT_MODIFIED;
    request->response = make_response(door, content_type, headers, header_count, bodiless ? NULL : body,
                                      bodiless ? 0 : body_bytes);
    request->status = status >= 200 && status <= 599 ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
    request->state = REQUEST_ANSWERED;
    if (waiting) {
        unlink_waiting(request);
        MHD_resume_connection(request->mhd);
        spw_loop_stage_set(door->loop, &door->stage);
    }
}

/* -------- making and ending -------- */

static enum spw_status open_listener(struct spw_door *door, const struct spw_door_options *options,
                                     struct spw_error *err)
{
    if ((options->unix_path == NULL) == (options->listen == NULL)) {
        return spw_error_set(err, SPW_STATUS_INVALID, "door: give either a socket's path or an address");
    }
    if (options->unix_path != NULL) {
        return spw_listener_open_unix(&door->listener, options->unix_path, options->unix_mode,
                                      options->unix_gid, err);
    }
    return spw_listener_open_tcp(&door->listener, options->listen, err);
}

static enum spw_status start_daemon(struct spw_door *door, const struct spw_door_options *options,
                                    struct spw_error *err)
{
    door->connections_max = options->connections_max > 0 ? options->connections_max : CONNECTIONS_MAX;
    door->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, door, MHD_OPTION_LISTEN_SOCKET,
        door->listener.fd, MHD_OPTION_URI_LOG_CALLBACK, on_target, door, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, door, MHD_OPTION_NOTIFY_CONNECTION, on_connection, door, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)door->connections_max + CONNECTIONS_SPARE, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (door->daemon == NULL) {
        return spw_error_set(err, SPW_STATUS_SYSTEM,
                             "door: libmicrohttpd cannot start; raise the limits of memory "
                             "and open files");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(door->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL ||
        spw_loop_watch_set(door->loop, &door->watch, info->epoll_fd, SPW_LOOP_READ) != SPW_STATUS_OK) {
        return spw_error_set(err, SPW_STATUS_SYSTEM, "door: the loop cannot watch libmicrohttpd");
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_door_new(struct spw_loop *loop, const struct spw_door_options *options,
                             struct spw_door **out, struct spw_error *err)
{
    struct spw_door *door = calloc(1, sizeof *door);
    if (door == NULL) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "door: no memory: raise the container's memory limit");
    }
    door->loop = loop;
    door->watch.fn = on_ready;
    door->watch.owner = door;
    door->timer.fn = on_timer;
    door->timer.owner = door;
    door->stage.fn = on_stage;
    door->stage.owner = door;
    door->body_max_bytes = options->body_max_bytes > 0 ? options->body_max_bytes : BODY_MAX_BYTES;
    door->handler = options->handler;
    door->gone = options->gone;
    door->owner = options->owner;
    enum spw_status status = open_listener(door, options, err);
    if (status != SPW_STATUS_OK) {
        free(door);
        return status;
    }
    status = start_daemon(door, options, err);
    if (status != SPW_STATUS_OK) {
        spw_door_destroy(door);
        return status;
    }
    *out = door;
    return SPW_STATUS_OK;
}

void spw_door_stop_listening(struct spw_door *door)
{
    if (door->stopping) {
        return;
    }
    door->stopping = true;
    spw_listener_unlink(&door->listener);
    if (door->daemon != NULL) {
        MHD_quiesce_daemon(door->daemon); /* libmicrohttpd gives the socket back */
    }
    close(door->listener.fd);
    door->listener.fd = -1;
}

uint32_t spw_door_open_count(const struct spw_door *door)
{
    return door->open_count;
}

uint16_t spw_door_port(const struct spw_door *door)
{
    return door->listener.port;
}

void spw_door_destroy(struct spw_door *door)
{
    if (door == NULL) {
        return;
    }
    spw_door_stop_listening(door);
    while (door->waiting != NULL) {
        struct spw_door_request *request = door->waiting;
        unlink_waiting(request);
        request->state = REQUEST_ABANDONED;
        if (door->gone != NULL && !request->gone_told) {
            door->gone(door->owner, request);
        }
        MHD_resume_connection(request->mhd); /* a suspended one must not meet the end of the daemon */
    }
    spw_loop_watch_stop(door->loop, &door->watch);
    spw_loop_timer_cancel(door->loop, &door->timer);
    spw_loop_stage_cancel(door->loop, &door->stage);
    if (door->daemon != NULL) {
        MHD_stop_daemon(door->daemon);
    }
    spw_listener_close(&door->listener);
    free(door);
}
