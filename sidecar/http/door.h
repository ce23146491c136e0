/* door.h: the sidecar's HTTP servers: libmicrohttpd driven by the loop.
 *
 * Owns: listening sockets and callers' connections. Called by: quote_door.c, admin.c.
 * Thread: the loop thread.
 *
 * The handler is called once per request, when the whole body is there. It answers now or later by
 * spw_door_answer, exactly once; until then the connection rests. When the caller hangs up first, gone is called
 * (if set) and the request must still be ended by spw_door_answer (what it says reaches only a caller that closed
 * just its sending half).
 *
 * Refused here, before any handler: what is not plainly framed HTTP/1.0 or 1.1 (400: Content-Length twice, beside
 * Transfer-Encoding or not a number, a transfer coding other than chunked, Host twice, control bytes in a header, a
 * target that is not /path), a body that is too large (413), headers over 9 KiB, each counted as 64 bytes more than it
 * has (431). Methods are passed on as they are: 405 is the handler's. Such a connection is closed after the answer.
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
    /* Exactly one of unix_path and listen is set. */
    const char *unix_path; /* a Unix socket, made with mode unix_mode and group unix_gid */
    mode_t unix_mode;      /* 0660 */
    gid_t unix_gid;        /* (gid_t)-1 = leave */
    const char *listen;    /* "127.0.0.1:8390", "[::1]:8390"; port 0 = any free one */
    size_t body_max_bytes; /* 0 = 64 KiB; a larger body is answered 413 */
    uint32_t
        connections_max; /* 0 = 256; when full, a new one takes the place of one without a whole request */
    spw_door_handler_fn *handler;
    spw_door_gone_fn *gone;
    void *owner;
};

/* Listens at once. A live socket at unix_path is refused as BUSY; a dead one is replaced. */
enum spw_status spw_door_new(struct spw_loop *loop, const struct spw_door_options *options,
                             struct spw_door **out, struct spw_error *err) SPW_WARN_UNUSED;
void spw_door_stop_listening(struct spw_door *door); /* for the drain: no new connections */
/* Requests a handler has seen whose answer is not yet with the kernel: 0 = drained. */
uint32_t spw_door_open_count(const struct spw_door *door);
/* The TCP port listened on, 0 for a Unix socket. */
uint16_t spw_door_port(const struct spw_door *door);
/* Requests not answered yet get gone and are the door's again: do not answer them afterwards. Not from inside handler
 * or gone. */
void spw_door_destroy(struct spw_door *door);

const char *spw_door_method(const struct spw_door_request *request);
/* As received, byte for byte, without the query: not decoded, // and .. left in it. Starts with '/', holds only
 * printable ASCII. */
const char *spw_door_path(const struct spw_door_request *request);
/* The same with "?query" if there was one. */
const char *spw_door_target(const struct spw_door_request *request);
/* Decoded; NULL = absent or holding a NUL byte. */
const char *spw_door_query(const struct spw_door_request *request, const char *name);
const char *spw_door_header(const struct spw_door_request *request, const char *name); /* NULL = absent */
/* All of them as "Name: value\r\n" lines in the order received; NULL without memory. Holds until the answer. */
const char *spw_door_headers(struct spw_door_request *request);
const char *spw_door_body(const struct spw_door_request *request, size_t *bytes);
/* The peer of a Unix socket by SO_PEERCRED; NOT_FOUND on TCP. */
enum spw_status spw_door_peer(const struct spw_door_request *request, uid_t *uid, gid_t *gid) SPW_WARN_UNUSED;
void spw_door_set_user(struct spw_door_request *request, void *user);
void *spw_door_user(const struct spw_door_request *request);

/* Answer; body is copied. Content-Length and Date are set here; these, Connection, Keep-Alive and Transfer-Encoding
 * among headers are left out, as is a header whose name is no token. From handler, gone or any other callback. */
void spw_door_answer(struct spw_door_request *request, uint32_t status, const char *content_type,
                     const struct spw_door_header *headers, size_t header_count, const char *body,
                     size_t body_bytes);

#endif
