/* client.h: HTTP requests to providers: libcurl's multi interface driven by the loop.
 *
 * Owns: connections to providers. Called by: flight.c, pass_call.c, errand.c. Thread: the loop thread.
 *
 * A request gets exactly one call of its done function, never from inside spw_http_client_send. Nothing is retried
 * here but one thing: a kept connection that turns out dead before a byte of answer came is replaced once, as every
 * HTTP client does (attempts is 2 then), unless the request is to go out at most once. One that stayed silent until its call was given up is not used again.
 *
 * No redirect is followed, no cookie kept, environment proxies and netrc are ignored, TLS is verified, names are
 * resolved without stalling the loop, and the answer's size is capped after decompression: bodies arrive decoded, so
 * who passes headers on drops Content-Encoding and Content-Length.
 *
 * Host, Content-Length, Transfer-Encoding, Connection, Accept-Encoding and Expect are set here; lines with these names
 * in a request are left out.
 */
#ifndef SPW_HTTP_CLIENT_H
#define SPW_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/loop/loop.h"

struct spw_http_client;
struct spw_http_call; /* one request in flight */

struct spw_http_request {
    const char *method;         /* "GET", "POST", ... */
    const char *url;            /* absolute; scheme and authority come from configuration only */
    const char *const *headers; /* "Name: value" lines without CR and LF; copied */
    size_t header_count;
    const char *body; /* copied; NULL with 0 bytes = no body */
    size_t body_bytes;
    uint64_t deadline_ns;        /* CLOCK_BOOTTIME: the call is over at the first turn after it */
    uint64_t connect_timeout_ms; /* 0 = the deadline alone; passing it ends the call as CONNECT */
    bool
        at_most_once; /* not to be sent again on a fresh connection: nobody knows whether it was taken the first time */
};

enum spw_http_outcome {
    SPW_HTTP_ANSWERED, /* a whole answer: status, headers, body */
    SPW_HTTP_TIMEOUT,  /* the deadline passed */
    SPW_HTTP_CONNECT,  /* name, connection or TLS failed before anything was sent */
    SPW_HTTP_BROKEN,   /* cut off, wrong length, too large, not HTTP */
    SPW_HTTP_CANCELLED
};

struct spw_http_response {
    enum spw_http_outcome outcome;
    uint32_t status;     /* 0 unless headers arrived */
    uint32_t attempts;   /* times the request was put on a connection; 0 = never */
    bool calm;           /* BROKEN: an HTTP/2 peer refused it with ENHANCE_YOUR_CALM: too many requests */
    const char *headers; /* raw header block of the final answer, "Name: value\r\n"..., NUL-terminated,
                                       without status line, blank line and trailers */
    size_t headers_bytes;
    const char *body; /* NUL-terminated; empty unless ANSWERED */
    size_t body_bytes;
    uint64_t sent_ns; /* when the request was started */
    uint64_t done_ns;
    const char *detail; /* libcurl's words for a failure, "" otherwise; no secrets */
};

typedef void spw_http_done_fn(void *owner,
                              const struct spw_http_response *response); /* response valid in the call */

struct spw_http_client_options {
    uint32_t connections_per_host_max; /* 0 = 32 */
    size_t answer_max_bytes;           /* 0 = 1 MiB */
    const char *ca_file;               /* NULL = the system's; read again when it changes */
    const char *proxy;                 /* "http://host:port", asked to CONNECT; NULL = none */
    /* "user:password" for the proxy, asked for at each call; NULL = none. */
    const char *(*proxy_credentials)(void *owner, uint64_t now_ns);
    void *proxy_owner;
    bool allow_plain_http; /* per URL scheme: http:// is refused unless set */
};

/* Also ignores SIGPIPE for the process if nobody handles it: OpenSSL writes without MSG_NOSIGNAL. */
enum spw_status spw_http_client_new(struct spw_loop *loop, const struct spw_http_client_options *options,
                                    struct spw_http_client **out, struct spw_error *err) SPW_WARN_UNUSED;
/* Calls in flight end as CANCELLED. Not from inside a done function. */
void spw_http_client_destroy(struct spw_http_client *client);

/* INVALID: the URL, method or a header line is malformed. REFUSED: http:// without allow_plain_http, or another scheme.
 * Then done is never called. A deadline already past ends the call as TIMEOUT without any contact. */
enum spw_status spw_http_client_send(struct spw_http_client *client, const struct spw_http_request *request,
                                     spw_http_done_fn *done, void *owner, struct spw_http_call **out,
                                     struct spw_error *err) SPW_WARN_UNUSED;
/* Give up: done is not called any more. The call is gone once done has begun. */
void spw_http_call_cancel(struct spw_http_call *call);

#endif
