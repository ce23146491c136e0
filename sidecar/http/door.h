/* door.h: the sidecar's HTTP servers: libmicrohttpd driven by the loop.
 *
 * Owns: listening sockets and callers' connections. Called by: quote_door.c, orders_door.c, admin.c and main.
 * Thread: the loop thread.
 *
 * The handler is called once per request, when the whole body is there. It answers now or later by
 * spw_door_answer, exactly once; until then the connection rests. When the caller hangs up first, gone is called
 * (if set) and the request must still be ended by spw_door_answer (whatever it says is dropped).
 */
#ifndef SPW_HTTP_DOOR_H
#define SPW_HTTP_DOOR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sidecar/loop/loop.h"

struct spw_door;
struct spw_door_request;

struct spw_door_header {
    const char *name;
    const char *value; /* CR, LF and NUL in a value are dropped */
};

typedef void spw_door_handler_fn(void *owner, struct spw_door_request *request);
typedef void spw_door_gone_fn(void *owner, struct spw_door_request *request);

struct spw_door_options {
    const char *unix_path;       /* a Unix socket, made with mode unix_mode and group gid; or NULL */
    mode_t unix_mode;            /* 0660 */
    gid_t unix_gid;              /* (gid_t)-1 = leave */
    const char *listen;          /* "127.0.0.1:8390", "[::1]:8390"; or NULL */
    size_t body_max_bytes;       /* 0 = 64 KiB; a larger body is answered 413 */
    uint32_t connections_max;    /* 0 = 256 */
    spw_door_handler_fn *handler;
    spw_door_gone_fn *gone;
    void *owner;
};

/* Listens at once. A live socket at unix_path is refused as BUSY; a dead one is replaced. */
enum spw_status spw_door_new(struct spw_loop *loop, const struct spw_door_options *options, struct spw_door **out,
                             struct spw_error *err) SPW_WARN_UNUSED;
void spw_door_stop_listening(struct spw_door *door); /* for the drain: no new connections */
uint32_t spw_door_open_count(const struct spw_door *door); /* requests not answered yet */
void spw_door_destroy(struct spw_door *door);

const char *spw_door_method(const struct spw_door_request *request);
const char *spw_door_path(const struct spw_door_request *request);  /* as received, without the query; see below */
const char *spw_door_query(const struct spw_door_request *request, const char *name); /* decoded; NULL = absent */
const char *spw_door_header(const struct spw_door_request *request, const char *name); /* NULL = absent */
const char *spw_door_body(const struct spw_door_request *request, size_t *bytes);
/* The peer of a Unix socket by SO_PEERCRED; NOT_FOUND on TCP. */
enum spw_status spw_door_peer(const struct spw_door_request *request, uid_t *uid, gid_t *gid) SPW_WARN_UNUSED;
void spw_door_set_user(struct spw_door_request *request, void *user);
void *spw_door_user(const struct spw_door_request *request);

/* Answer; body is copied. Content-Length and Date are set here. */
void spw_door_answer(struct spw_door_request *request, uint32_t status, const char *content_type,
                     const struct spw_door_header *headers, size_t header_count, const char *body,
                     size_t body_bytes);

#endif
