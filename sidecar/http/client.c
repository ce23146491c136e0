/* client.c: HTTP requests to providers. See client.h.
 *
 * libcurl tells by two callbacks which sockets and which time it waits for; they become watches and one timer of the
 * loop, and whatever the loop sees is handed to curl_multi_socket_action, never from inside a callback of libcurl's.
 * A call's deadline is a timer of its own and none of libcurl's: a look-up that stalls, or a call still queued behind the
 * cap on connections, ends at its deadline like any other.
 */
#include "sidecar/http/client.h"

#include <curl/curl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "sidecar/http/buffer.h"
#include "sidecar/http/ca_store.h"
#include "sidecar/http/framing.h"
#include "sidecar/http/lines.h"
#include "sidecar/http/url.h"

enum {
    CONNECTIONS_PER_HOST = 32,
    IDLE_CONNECTIONS_MAX = 256, /* at least as many as calls at a time, or kept connections are thrown away */
    ANSWER_MAX_BYTES = 1 << 20,
    SPARE_CALLS_MAX = 64, /* ended calls kept for the next: a handle costs more to make than to use */
    SPARE_BODY_MAX_BYTES = 64 << 10, /* a larger buffer is not kept with them */
    HEADERS_MAX_BYTES = 64 << 10,
    EXPECT_FROM_BYTES = 1 << 20, /* a larger body libcurl announces by Expect: 100-continue */
    ATTEMPTS_MAX = 2,            /* libcurl itself would go on to 6 on connections that die at once */
    IDLE_MAX_S = 118,            /* libcurl's own; servers commonly give up kept connections before */
    IDLE_ONCE_MAX_S = 2          /* for what is sent once: servers keep one for 5 s at least */
};

struct text {
    struct spw_buffer buffer; /* NUL-terminated once anything was put in */
    size_t bytes, max_bytes;
};

struct client_socket {
    struct spw_loop_watch watch;
    struct spw_http_client *client;
    struct client_socket *next;
    struct client_socket **link; /* what points to this one */
};

struct spw_http_call {
    struct spw_http_client *client;
    struct spw_http_call *next;
    struct spw_http_call **link; /* what points to this one */
    CURL *easy;                  /* its policy and callbacks are set once */
    struct spw_http_lines lines; /* stay for the next call, which mostly has the same */
    char *url;                   /* what easy was told last ... */
    CURLU *parts;                /* ... and taken apart */
    struct text body;
    char method[16]; /* what easy was told last; "" = nothing */
    bool has_proxy_credentials;
    spw_http_done_fn *done;
    void *owner;
    struct spw_loop_timer deadline;
    uint64_t deadline_ns;
    uint64_t sent_ns;
    struct text answer_headers;
    struct text answer_body;
    uint32_t attempts, attempts_max;
    bool in_headers; /* behind a status line, before the empty one */
    bool headers_complete;
    bool too_large;
    const char *doubt; /* about where the answer ends */
    bool in_multi;
    bool finishing; /* done is being called */
    char detail[CURL_ERROR_SIZE];
};

struct spw_http_client {
    struct spw_loop *loop;
    CURLM *multi;
    struct spw_loop_timer timer; /* libcurl's */
    struct spw_loop_stage stage; /* what is to begin and what has ended */
    bool begins;                 /* libcurl holds calls that it has not looked at */
    struct client_socket *sockets;
    struct spw_http_call *calls;
    struct spw_http_call *spares; /* ended well, ready for the next request */
    uint32_t spares_count;
    char *checked_url; /* the last that was found good: most accounts call one */
    size_t answer_max_bytes;
    uint64_t calm_ns;                 /* when a peer last asked for calm; 0 = never */
    uint64_t silent_ns;               /* when a kept connection was last found silent; 0 = never */
    struct spw_ca_store *authorities; /* NULL: left to libcurl */
    char *proxy;
    const char *(*proxy_credentials)(void *owner, uint64_t now_ns);
    void *proxy_owner;
    bool allow_plain_http, closing;
};

#define SILENCE_NS UINT64_C(250000000) /* shorter waits say nothing about a connection */

/* -------- the answer -------- */

/* False when it would grow past its maximum or memory is out. */
static bool text_append(struct text *text, const char *data, size_t bytes)
{
    if (bytes > text->max_bytes - text->bytes ||
        !spw_buffer_reserve(&text->buffer, text->bytes + bytes + 1)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(text->buffer.at + text->bytes, data, bytes);
    }
    text->bytes += bytes;
    text->buffer.at[text->bytes] = '\0';
    return true;
}

/* Is it whole with this empty line? Interim answers have no body: another follows. What belongs to HEAD, 204 and 304
 * ends with the headers whatever they say. */
static void end_headers(struct spw_http_call *call)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    bool has_body = status != 204 && status != 304 && strcmp(call->method, "HEAD") != 0;
    call->in_headers = false;
    if (status >= 200 && has_body) {
        call->doubt = spw_framing_doubt(call->answer_headers.buffer.at, call->answer_headers.bytes);
    }
    call->headers_complete = status >= 200 && call->doubt == NULL;
    if (call->doubt != NULL) {
        call->answer_headers.bytes = 0; /* whose would they be? */
    }
}

static size_t on_header(char *line, size_t size, size_t count, void *owner)
{
    struct spw_http_call *call = owner;
    size_t bytes = size * count;
    if (call->headers_complete) {
        return bytes; /* a trailer */
    }
    if (!call->in_headers) { /* the status line of an interim answer or of the final one */
        call->answer_headers.bytes = 0;
        call->in_headers = true;
        return bytes;
    }
    if (line[0] == '\r' || line[0] == '\n') {
        end_headers(call);
        return call->doubt == NULL ? bytes : 0;
    }
    if (!text_append(&call->answer_headers, line, bytes)) {
        call->too_large = true;
        return 0;
    }
    return bytes;
}

static size_t on_body(char *data, size_t size, size_t count, void *owner)
{
    struct spw_http_call *call = owner;
    size_t bytes = size * count;
    if (!text_append(&call->answer_body, data, bytes)) {
        call->too_large = true;
        return 0;
    }
    return bytes;
}

/* Just before the request goes out on a connection, the second time after a dead kept connection. */
static int on_ready(void *owner, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    struct spw_http_call *call = owner;
    (void)remote_ip, (void)local_ip, (void)remote_port, (void)local_port;
    if (call->attempts == call->attempts_max) {
        return CURL_PREREQFUNC_ABORT;
    }
    call->attempts++;
    call->answer_headers.bytes = 0;
    call->answer_body.bytes = 0;
    call->in_headers = false;
    call->headers_complete = false;
    return CURL_PREREQFUNC_OK;
}

/* A peer that goes away with ENHANCE_YOUR_CALM (error 11) says "too many requests" in HTTP/2's own words. libcurl tells
 * of it nowhere but in its running commentary, and there to one of the calls that shared the connection. */
static int on_comment(CURL *easy, curl_infotype type, char *text, size_t bytes, void *owner)
{
    struct spw_http_call *call = owner;
    (void)easy;
    if (type == CURLINFO_TEXT &&
        (memmem(text, bytes, "ENHANCE_YOUR_CALM", 17) != NULL ||
         (memmem(text, bytes, "GOAWAY", 6) != NULL && memmem(text, bytes, "error=11", 8) != NULL) ||
         memmem(text, bytes, "err 11", 6) != NULL)) {
        call->client->calm_ns = spw_loop_now_ns(call->client->loop);
    }
    return 0;
}

/* The shared authorities in place of a copy parsed for this connection. */
static CURLcode on_tls_context(CURL *easy, void *context, void *owner)
{
    struct spw_http_call *call = owner;
    struct spw_http_client *client = call->client;
    (void)easy;
    X509_STORE *store = spw_ca_store_get(client->authorities, spw_loop_now_ns(client->loop));
    return SSL_CTX_set1_verify_cert_store(context, store) == 1 ? CURLE_OK : CURLE_SSL_CACERT_BADFILE;
}

/* -------- the end of a call -------- */

static void call_destroy(struct spw_http_call *call)
{
    curl_easy_cleanup(call->easy);
    spw_http_lines_clean_up(&call->lines);
    curl_url_cleanup(call->parts);
    free(call->url);
    free(call->answer_headers.buffer.at);
    free(call->answer_body.buffer.at);
    free(call->body.buffer.at);
    free(call);
}

/* Nothing of the request or its answer stays but url, header lines and the buffers' room. libcurl counts dead connections
 * over a handle's whole life and gives up at the sixth: one that met any is not used again. */
static bool make_spare(struct spw_http_call *call)
{
    struct spw_http_client *client = call->client;
    if (client->closing || call->attempts > 1 || client->spares_count == SPARE_CALLS_MAX ||
        call->answer_body.buffer.capacity > SPARE_BODY_MAX_BYTES ||
        call->body.buffer.capacity > SPARE_BODY_MAX_BYTES ||
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, NULL) != CURLE_OK) {
        return false;
    }
    call->answer_headers.bytes = 0;
    call->answer_body.bytes = 0;
    call->body.bytes = 0;
    call->attempts = 0;
    call->in_headers = false;
    call->headers_complete = false;
    call->too_large = false;
    call->doubt = NULL;
    call->in_multi = false;
    call->finishing = false;
    call->detail[0] = '\0';
    call->next = client->spares;
    client->spares = call;
    client->spares_count++;
    return true;
}

/* answered: its handle has ended a whole exchange and may begin another. */
static void call_end(struct spw_http_call *call, bool answered)
{
    struct spw_http_client *client = call->client;
    spw_loop_timer_cancel(client->loop, &call->deadline);
    if (call->in_multi) {
        curl_multi_remove_handle(client->multi, call->easy);
    }
    *call->link = call->next;
    if (call->next != NULL) {
        call->next->link = call->link;
    }
    if (!answered || !make_spare(call)) {
        call_destroy(call);
    }
}

static void finish(struct spw_http_call *call, enum spw_http_outcome outcome, const char *detail)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    const struct text *headers = &call->answer_headers, *body = &call->answer_body;
    bool has_body = outcome == SPW_HTTP_ANSWERED && body->bytes > 0;
    struct spw_http_response response = {
        .outcome = outcome,
        .status = call->headers_complete ? (uint32_t)status : 0,
        .attempts = call->attempts,
        .calm = outcome == SPW_HTTP_BROKEN && call->client->calm_ns >= call->sent_ns,
        .headers = headers->bytes > 0 ? headers->buffer.at : "",
        .headers_bytes = headers->bytes,
        .body = has_body ? body->buffer.at : "",
        .body_bytes = has_body ? body->bytes : 0,
        .sent_ns = call->sent_ns,
        .done_ns = spw_loop_now_ns(call->client->loop),
        .detail = detail,
    };
    call->finishing = true;
    spw_loop_timer_cancel(call->client->loop, &call->deadline);
    call->done(call->owner, &response);
    call_end(call, outcome == SPW_HTTP_ANSWERED);
}

static void finish_by_curl(struct spw_http_call *call, CURLcode code)
{
    if (code == CURLE_OK && call->headers_complete) {
        finish(call, SPW_HTTP_ANSWERED, "");
        return;
    }
    if (code == CURLE_OK) { /* libcurl 7.88 takes an end within the headers for the end of an answer */
        finish(call, SPW_HTTP_BROKEN, "the answer ended within its headers");
        return;
    }
    const char *detail = call->detail[0] != '\0' ? call->detail : curl_easy_strerror(code);
    char text[96];
    if (call->too_large || code == CURLE_FILESIZE_EXCEEDED) {
        snprintf(text, sizeof text, "the answer is larger than %zu bytes, or its headers than %d",
                 call->client->answer_max_bytes, HEADERS_MAX_BYTES);
        detail = text;
    }
    if (call->doubt != NULL) {
        snprintf(text, sizeof text, "it is in doubt where the answer ends: %s", call->doubt);
        detail = text;
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        detail = call->attempts_max == 1 ? "the connection died; the request is sent once"
                                         : "the connection died twice";
    }
    enum spw_http_outcome outcome = call->attempts == 0 ? SPW_HTTP_CONNECT : SPW_HTTP_BROKEN;
    if (code == CURLE_OPERATION_TIMEDOUT &&
        (call->attempts > 0 || spw_loop_now_ns(call->client->loop) >= call->deadline_ns)) {
        outcome = SPW_HTTP_TIMEOUT;
    }
    finish(call, outcome, detail);
}

/* Given up without a byte of answer on a kept connection, which may be dead without saying so. With HTTP/2 that ends one
 * stream, and all later calls, the breaker's probe too, would go the same way until TCP gives up after a quarter of an
 * hour: so no connection from before this moment is used again. */
static void note_silence(struct spw_http_call *call)
{
    long connects = 1;
    uint64_t now_ns = spw_loop_now_ns(call->client->loop);
    if (call->attempts > 0 && call->answer_headers.bytes == 0 && now_ns - call->sent_ns >= SILENCE_NS &&
        curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK && connects == 0) {
        call->client->silent_ns = now_ns;
    }
}

/* How old a kept connection may be to be used again; 0 = any age. */
static long lifetime_max_s(const struct spw_http_client *client)
{
    uint64_t s = (spw_loop_now_ns(client->loop) - client->silent_ns) / 1000000000U;
    return client->silent_ns == 0 ? 0 : s < 1 ? 1 : s > (uint64_t)INT_MAX ? (long)INT_MAX : (long)s;
}

static void on_deadline(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    (void)loop;
    note_silence(timer->owner);
    finish(timer->owner, SPW_HTTP_TIMEOUT, "the deadline passed");
}

/* -------- libcurl on the loop -------- */

/* After anything that lets libcurl work: calls that ended. Their done functions may start and cancel others, so each
 * is looked for anew. */
static void take_finished(struct spw_http_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE) {
            continue;
        }
        CURLcode code = message->data.result;
        char *call = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        finish_by_curl((struct spw_http_call *)(void *)call, code);
    }
}

static void act(struct spw_http_client *client, curl_socket_t fd, int bits)
{
    int running;
    curl_multi_socket_action(client->multi, fd, bits, &running);
    spw_loop_stage_set(client->loop, &client->stage);
}

/* libcurl begins a call when its timer is due; it is due at once, and this saves the call a turn of the loop. */
static void on_stage(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    struct spw_http_client *client = stage->owner;
    (void)loop;
    if (client->begins) {
        int running;
        client->begins = false;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    take_finished(client);
}

static void on_socket_ready(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct client_socket *socket = watch->owner;
    (void)loop;
    int bits = 0;
    if ((events & (SPW_LOOP_READ | SPW_LOOP_HANGUP | SPW_LOOP_ERROR)) != 0) {
        bits |=
            CURL_CSELECT_IN; /* a closed or failed socket may still hold an answer, and tells its error on read */
    }
    if ((events & SPW_LOOP_WRITE) != 0) {
        bits |= CURL_CSELECT_OUT;
    }
    if ((events & SPW_LOOP_ERROR) != 0) {
        bits |= CURL_CSELECT_ERR;
    }
    act(socket->client, watch->fd, bits);
}

static void on_curl_timer(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    (void)loop;
    act(timer->owner, CURL_SOCKET_TIMEOUT, 0);
}

static int curl_wants_timer(CURLM *multi, long timeout_ms, void *owner)
{
    struct spw_http_client *client = owner;
    (void)multi;
    if (timeout_ms < 0) {
        spw_loop_timer_cancel(client->loop, &client->timer);
    } else {
        spw_loop_timer_set(client->loop, &client->timer,
                           spw_loop_now_ns(client->loop) + (uint64_t)timeout_ms * 1000000U);
    }
    return 0;
}

static void socket_free(struct client_socket *socket)
{
    /* The loop lets go of the descriptor here, so libcurl's close(), which comes next, reaches the peer. */
    spw_loop_watch_stop(socket->client->loop, &socket->watch);
    *socket->link = socket->next;
    if (socket->next != NULL) {
        socket->next->link = socket->link;
    }
    free(socket);
}

static struct client_socket *socket_new(struct spw_http_client *client)
{
    struct client_socket *socket = calloc(1, sizeof *socket);
    if (socket != NULL) {
        socket->client = client;
        socket->watch.fn = on_socket_ready;
        socket->watch.owner = socket;
        socket->watch.is_open = true; /* libcurl has just opened or used it */
        socket->next = client->sockets;
        if (socket->next != NULL) {
            socket->next->link = &socket->next;
        }
        socket->link = &client->sockets;
        client->sockets = socket;
    }
    return socket;
}

static int curl_wants_socket(CURL *easy, curl_socket_t fd, int what, void *owner, void *socket_owner)
{
    struct spw_http_client *client = owner;
    struct client_socket *socket = socket_owner;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (socket != NULL) {
            curl_multi_assign(client->multi, fd, NULL);
            socket_free(socket);
        }
        return 0;
    }
    if (socket == NULL) {
        socket = socket_new(client);
        if (socket == NULL) {
            return -1;
        }
        curl_multi_assign(client->multi, fd, socket);
    }
    uint32_t events = ((what & CURL_POLL_IN) != 0 ? (uint32_t)SPW_LOOP_READ : 0) |
                      ((what & CURL_POLL_OUT) != 0 ? (uint32_t)SPW_LOOP_WRITE : 0);
    return spw_loop_watch_set(client->loop, &socket->watch, fd, events) == SPW_STATUS_OK ? 0 : -1;
}

/* -------- making a request -------- */

static enum spw_status check_url(struct spw_http_client *client, const char *url, struct spw_error *err)
{
    if (client->checked_url != NULL && strcmp(client->checked_url, url) == 0) {
        return SPW_STATUS_OK;
    }
    enum spw_status status = spw_url_check(url, client->allow_plain_http, err);
    if (status == SPW_STATUS_OK) {
        free(client->checked_url);
        client->checked_url = strdup(url);
    }
    return status;
}

static enum spw_status copy_body(struct spw_http_call *call, const struct spw_http_request *request,
                                 struct spw_error *err)
{
    call->body.max_bytes = request->body_bytes;
    if (!text_append(&call->body, request->body, request->body_bytes)) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "request: no memory for %zu bytes of body",
                             request->body_bytes);
    }
    return SPW_STATUS_OK;
}

/* One option after another until one fails. */
#define SET(option, value)                                                                                   \
    do {                                                                                                     \
        if (code == CURLE_OK) {                                                                              \
            code = curl_easy_setopt(easy, option, value);                                                    \
        }                                                                                                    \
    } while (0)

static CURLcode set_policy(struct spw_http_call *call, CURL *easy)
{
    const struct spw_http_client *client = call->client;
    CURLcode code = CURLE_OK;
    SET(CURLOPT_PROTOCOLS_STR, client->allow_plain_http ? "http,https" : "https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, client->proxy ? client->proxy : ""); /* never one from the environment */
    SET(CURLOPT_NOPROXY, "");
    SET(CURLOPT_HTTPPROXYTUNNEL, 1L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    if (client->authorities != NULL) {
        SET(CURLOPT_CAINFO, NULL); /* or libcurl would parse its own first */
        SET(CURLOPT_CAPATH, NULL);
        SET(CURLOPT_SSL_CTX_FUNCTION, on_tls_context);
        SET(CURLOPT_SSL_CTX_DATA, (void *)call);
    }
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_ACCEPT_ENCODING, ""); /* decode all that libcurl can */
    SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)client->answer_max_bytes);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* never wait for a stalled look-up's thread */
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_PRIVATE, (void *)call);
    SET(CURLOPT_ERRORBUFFER, call->detail);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, (void *)call);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, (void *)call);
    SET(CURLOPT_PREREQFUNCTION, on_ready);
    SET(CURLOPT_PREREQDATA, (void *)call);
    SET(CURLOPT_DEBUGFUNCTION, on_comment);
    SET(CURLOPT_DEBUGDATA, (void *)call);
    return code;
}

static long milliseconds_up(uint64_t ns)
{
    uint64_t ms = ns / 1000000U + 1;
    return ms > (uint64_t)INT_MAX ? (long)INT_MAX : (long)ms;
}

/* The method is said again only when it is another: libcurl copies its name each time. */
static CURLcode set_method(struct spw_http_call *call, CURL *easy, const struct spw_http_request *request)
{
    CURLcode code = CURLE_OK;
    const char *method = request->method;
    if (strcmp(method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (request->body_bytes > 0 || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
               strcmp(method, "PATCH") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        SET(CURLOPT_POSTFIELDS, call->body.buffer.at);
    } else {
        SET(CURLOPT_HTTPGET, 1L); /* undoes what another method left in the handle */
    }
    if (strcmp(call->method, method) != 0) {
        SET(CURLOPT_CUSTOMREQUEST, method);
        snprintf(call->method, sizeof call->method, "%s", method);
    }
    return code;
}

static CURLcode set_proxy_credentials(struct spw_http_call *call, CURL *easy)
{
    CURLcode code = CURLE_OK;
    const struct spw_http_client *client = call->client;
    const char *credentials =
        client->proxy_credentials ? client->proxy_credentials(client->proxy_owner, call->sent_ns) : NULL;
    if (credentials != NULL || call->has_proxy_credentials) {
        SET(CURLOPT_PROXYUSERPWD, credentials);
        SET(CURLOPT_PROXYAUTH, (long)CURLAUTH_BASIC);
        call->has_proxy_credentials = credentials != NULL;
    }
    return code;
}

/* libcurl would take the URL apart, and put it together again, for each call of the handle. */
static CURLcode set_url(struct spw_http_call *call, CURL *easy, const char *url)
{
    CURLU *parts = curl_url();
    char *copy = strdup(url);
    CURLcode code = parts == NULL || copy == NULL ? CURLE_OUT_OF_MEMORY : CURLE_OK;
    if (code == CURLE_OK &&
        curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS | CURLU_DISALLOW_USER) != CURLUE_OK) {
        code = CURLE_URL_MALFORMAT;
    }
    SET(CURLOPT_URL, NULL); /* or the last one would still be the one it tells */
    SET(CURLOPT_CURLU, parts);
    if (code != CURLE_OK) {
        curl_url_cleanup(parts);
        free(copy);
        return code;
    }
    curl_url_cleanup(call->parts);
    free(call->url);
    call->parts = parts;
    call->url = copy;
    return CURLE_OK;
}

/* All of what differs from one call to the next. */
static CURLcode set_request(struct spw_http_call *call, CURL *easy, const struct spw_http_request *request)
{
    CURLcode code = set_method(call, easy, request);
    if (code == CURLE_OK && (call->url == NULL || strcmp(call->url, request->url) != 0)) {
        code = set_url(call, easy, request->url);
    }
    SET(CURLOPT_HTTPHEADER, call->lines.list);
    SET(CURLOPT_MAXLIFETIME_CONN, lifetime_max_s(call->client));
    SET(CURLOPT_MAXAGE_CONN, request->at_most_once ? (long)IDLE_ONCE_MAX_S : (long)IDLE_MAX_S);
    SET(CURLOPT_CONNECTTIMEOUT_MS,
        request->connect_timeout_ms > 0 ? milliseconds_up(request->connect_timeout_ms * 1000000U - 1) : 0L);
    /* HTTP/2 may be spoken there, see on_comment. */
    SET(CURLOPT_VERBOSE, strncmp(request->url, "https:", 6) == 0 ? 1L : 0L);
    return code == CURLE_OK ? set_proxy_credentials(call, easy) : code;
}

static bool method_is_sound(const char *method)
{
    size_t bytes = strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return bytes > 0 && bytes < sizeof((struct spw_http_call *)NULL)->method && method[bytes] == '\0' &&
           strcmp(method, "CONNECT") != 0 && strcmp(method, "TRACE") != 0;
}

/* A call whose handle has its policy; NULL without memory. */
static struct spw_http_call *call_make(struct spw_http_client *client)
{
    struct spw_http_call *call = client->spares;
    if (call != NULL) {
        client->spares = call->next;
        client->spares_count--;
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call == NULL) {
        return NULL;
    }
    call->client = client;
    call->easy = curl_easy_init();
    if (call->easy == NULL || set_policy(call, call->easy) != CURLE_OK) {
        call_destroy(call);
        return NULL;
    }
    return call;
}

static struct spw_http_call *call_new(struct spw_http_client *client, const struct spw_http_request *request)
{
    struct spw_http_call *call = call_make(client);
    if (call == NULL) {
        return NULL;
    }
    call->sent_ns = spw_loop_now_ns(client->loop);
    call->deadline_ns = request->deadline_ns;
    call->attempts_max = request->at_most_once ? 1 : ATTEMPTS_MAX;
    call->deadline.fn = on_deadline;
    call->deadline.owner = call;
    call->answer_headers.max_bytes = HEADERS_MAX_BYTES;
    call->answer_body.max_bytes = client->answer_max_bytes;
    call->next = client->calls;
    if (call->next != NULL) {
        call->next->link = &call->next;
    }
    call->link = &client->calls;
    client->calls = call;
    return call;
}

/* Hand the call to libcurl, unless its time is over before it begins. */
static enum spw_status start(struct spw_http_call *call, const struct spw_http_request *request,
                             struct spw_error *err)
{
    if (request->deadline_ns > call->sent_ns) {
        CURLcode code = set_request(call, call->easy, request);
        if (code != CURLE_OK) {
            return spw_error_set(err, SPW_STATUS_INVALID, "request: libcurl refuses an option: %s",
                                 curl_easy_strerror(code));
        }
        CURLMcode added = curl_multi_add_handle(call->client->multi, call->easy);
        if (added != CURLM_OK) {
            return spw_error_set(err, SPW_STATUS_SYSTEM, "request: libcurl: %s", curl_multi_strerror(added));
        }
        call->in_multi = true;
        call->client->begins = true;
        spw_loop_stage_set(call->client->loop, &call->client->stage);
    }
    spw_loop_timer_set(call->client->loop, &call->deadline, request->deadline_ns);
    return SPW_STATUS_OK;
}

enum spw_status spw_http_client_send(struct spw_http_client *client, const struct spw_http_request *request,
                                     spw_http_done_fn *done, void *owner, struct spw_http_call **out,
                                     struct spw_error *err)
{
    if (client->closing) {
        return spw_error_set(err, SPW_STATUS_REFUSED, "request: the sidecar is stopping");
    }
    if (!method_is_sound(request->method)) {
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "request: the method is not one a provider is called with");
    }
    enum spw_status status = check_url(client, request->url, err);
    if (status != SPW_STATUS_OK) {
        return status;
    }
    struct spw_http_call *call = call_new(client, request);
    if (call == NULL) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "request: no memory for a call");
    }
    call->done = done;
    call->owner = owner;
    status = spw_http_lines_set(&call->lines, request->headers, request->header_count,
                                request->body_bytes > EXPECT_FROM_BYTES, err);
    if (status == SPW_STATUS_OK) {
        status = copy_body(call, request, err);
    }
    if (status == SPW_STATUS_OK) {
        status = start(call, request, err);
    }
    if (status != SPW_STATUS_OK) {
        call_end(call, false);
        return status;
    }
    if (out != NULL) {
        *out = call;
    }
    return SPW_STATUS_OK;
}

void spw_http_call_cancel(struct spw_http_call *call)
{
    if (!call->finishing) {
        note_silence(call);
        call_end(call, false);
    }
}

/* -------- making and ending -------- */

static void ignore_broken_pipes(void)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, NULL);
    }
}

/* The trusted authorities: of the file asked for, or of libcurl's own default if it can be read. */
static enum spw_status open_authorities(struct spw_http_client *client, const char *wanted,
                                        struct spw_error *err)
{
    CURL *easy = wanted == NULL ? curl_easy_init() : NULL;
    const char *path = wanted;
    char *own = NULL;
    if (easy != NULL && curl_easy_getinfo(easy, CURLINFO_CAINFO, &own) == CURLE_OK && own != NULL &&
        access(own, R_OK) == 0) {
        path = own;
    }
    if (path != NULL) {
        client->authorities = spw_ca_store_open(client->loop, path, err);
    }
    curl_easy_cleanup(easy);
    return wanted != NULL && client->authorities == NULL ? SPW_STATUS_INVALID : SPW_STATUS_OK;
}

static bool set_up_multi(struct spw_http_client *client, long per_host)
{
    CURLM *multi = client->multi;
    return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, curl_wants_socket) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, curl_wants_timer) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, per_host) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS_MAX) == CURLM_OK;
}

enum spw_status spw_http_client_new(struct spw_loop *loop, const struct spw_http_client_options *options,
                                    struct spw_http_client **out, struct spw_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return spw_error_set(err, SPW_STATUS_SYSTEM, "http client: libcurl cannot start");
    }
    ignore_broken_pipes();
    struct spw_http_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        curl_global_cleanup();
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "http client: no memory: raise the container's memory limit");
    }
    client->loop = loop;
    client->timer.fn = on_curl_timer;
    client->timer.owner = client;
    client->stage.fn = on_stage;
    client->stage.owner = client;
    client->answer_max_bytes = options->answer_max_bytes > 0 ? options->answer_max_bytes : ANSWER_MAX_BYTES;
    client->allow_plain_http = options->allow_plain_http;
    client->multi = curl_multi_init();
    client->proxy = options->proxy != NULL ? strdup(options->proxy) : NULL;
    client->proxy_credentials = options->proxy_credentials;
    client->proxy_owner = options->proxy_owner;
    long per_host = options->connections_per_host_max > 0 ? (long)options->connections_per_host_max
                                                          : (long)CONNECTIONS_PER_HOST;
    if (client->multi == NULL || (options->proxy != NULL && client->proxy == NULL) ||
        !set_up_multi(client, per_host)) {
        spw_http_client_destroy(client);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "http client: no memory for libcurl");
    }
    enum spw_status status = options->allow_plain_http && options->ca_file == NULL
                                 ? SPW_STATUS_OK
                                 : open_authorities(client, options->ca_file, err);
    if (status != SPW_STATUS_OK) {
        spw_http_client_destroy(client);
        return status;
    }
    *out = client;
    return SPW_STATUS_OK;
}

void spw_http_client_destroy(struct spw_http_client *client)
{
    if (client == NULL) {
        return;
    }
    client->closing = true;
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): each takes itself out of the list, which the analyzer does not see */
    while (client->calls != NULL) {
        finish(client->calls, SPW_HTTP_CANCELLED, "the sidecar is stopping");
    }
    while (client->spares != NULL) {
        struct spw_http_call *spare = client->spares;
        client->spares = spare->next;
        call_destroy(spare);
    }
    curl_multi_cleanup(client->multi);
    while (client->sockets != NULL) {
        socket_free(client->sockets);
    }
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
    spw_loop_timer_cancel(client->loop, &client->timer);
    spw_loop_stage_cancel(client->loop, &client->stage);
    spw_ca_store_close(client->authorities);
    free(client->proxy);
    free(client->checked_url);
    free(client);
    curl_global_cleanup();
}
