/* forwarder.c: the peer: libmicrohttpd and libcurl with nothing between. See calls.h.
 *
 * It forwards and no more: path, header lines and body one way, status, header lines and body the other; what belongs to
 * one connection is left out, and the caller's key is exchanged for the provider's.
 * One thread and one wait: curl_multi_poll watches libcurl's sockets and libmicrohttpd's own epoll descriptor.
 */
#include "bench/calls.d/calls.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BODY_MAX_BYTES    16384
#define HEADERS_MAX_BYTES 4096
#define HANDLES_COUNT     128u

static struct exchange {
    struct MHD_Connection *connection;
    CURL *easy;
    struct exchange *next_free;
    struct curl_slist *headers;
    long status;
    char url[256], body[BODY_MAX_BYTES], answer_headers[HEADERS_MAX_BYTES], answer[BODY_MAX_BYTES];
    size_t body_bytes, answer_headers_bytes, answer_bytes;
} * free_exchanges;
static CURLM *multi;
static const char *upstream;

static size_t take_answer(char *bytes, size_t size, size_t count, void *owner)
{
    struct exchange *x = owner;
    if (x->answer_bytes + size * count > sizeof x->answer)
        return 0;
    memcpy(x->answer + x->answer_bytes, bytes, size * count);
    x->answer_bytes += size * count;
    return size * count;
}

/* "Name: value", without the line's end; each ends in a NUL byte, and so does the list. */
static size_t take_answer_header(char *line, size_t size, size_t count, void *owner)
{
    struct exchange *x = owner;
    size_t bytes = size * count, text_bytes = bytes >= 2 ? bytes - 2 : 0;
    if (memchr(line, ':', text_bytes) == NULL)
        return bytes;
    if (x->answer_headers_bytes + text_bytes + 2 > sizeof x->answer_headers)
        return 0;
    memcpy(x->answer_headers + x->answer_headers_bytes, line, text_bytes);
    x->answer_headers_bytes += text_bytes + 1;
    x->answer_headers[x->answer_headers_bytes - 1] = x->answer_headers[x->answer_headers_bytes] = 0;
    return bytes;
}

static void make_exchanges(void)
{
    for (unsigned i = 0; i < HANDLES_COUNT; i++) {
        struct exchange *x = calloc(1, sizeof *x);
        if (!x || !(x->easy = curl_easy_init()))
            spw_bench_die("no memory for the forwarder");
        curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(x->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(x->easy, CURLOPT_HEADERFUNCTION, take_answer_header);
        curl_easy_setopt(x->easy, CURLOPT_HEADERDATA, x);
        curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, take_answer);
        curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
        curl_easy_setopt(x->easy, CURLOPT_PRIVATE, x);
        x->next_free = free_exchanges;
        free_exchanges = x;
    }
}

static bool of_one_connection(const char *name)
{
    static const char *const names[] = {
        "Host", "Content-Length", "Connection", "Transfer-Encoding", "X-API-KEY", "Date"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncasecmp(name, names[i], strlen(names[i])) == 0 && strchr(":", name[strlen(names[i])]))
            return true;
    }
    return false;
}

static enum MHD_Result forward_header(void *owner, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct exchange *x = owner;
    char line[1024];
    (void)kind;
    if (!of_one_connection(name)) {
        snprintf(line, sizeof line, "%s: %s", name, value);
        x->headers = curl_slist_append(x->headers, line);
    }
    return MHD_YES;
}

static void send_on(struct exchange *x)
{
    curl_slist_free_all(x->headers);
    x->headers = curl_slist_append(NULL, "X-API-KEY: k-bench");
    x->headers = curl_slist_append(x->headers, "Expect:");
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, forward_header, x);
    curl_easy_setopt(x->easy, CURLOPT_URL, x->url);
    curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, x->body);
    curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE, (long)x->body_bytes);
    curl_multi_add_handle(multi, x->easy);
}

static enum MHD_Result answer(struct exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(x->answer_bytes, x->answer, MHD_RESPMEM_PERSISTENT);
    for (char *line = x->answer_headers; *line;) {
        char *next = line + strlen(line) + 1, *value = strchr(line, ':');
        if (!of_one_connection(line)) {
            *value++ = 0;
            MHD_add_response_header(response, line, value + strspn(value, " "));
        }
        line = next;
    }
    enum MHD_Result queued = MHD_queue_response(x->connection, (unsigned)x->status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result handle(void *owner, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *bytes, size_t *count,
                              void **state)
{
    struct exchange *x = *state;
    (void)owner, (void)method, (void)version;
    if (!x) {
        x = free_exchanges;
        if (!x)
            return MHD_NO;
        free_exchanges = x->next_free;
        x->body_bytes = x->answer_bytes = x->answer_headers_bytes = 0;
        x->answer_headers[0] = 0;
        x->connection = connection;
        snprintf(x->url, sizeof x->url, "%s%s", upstream, url);
        *state = x;
        return MHD_YES;
    }
    if (*count > 0) {
        if (x->body_bytes + *count > sizeof x->body)
            return MHD_NO;
        memcpy(x->body + x->body_bytes, bytes, *count);
        x->body_bytes += *count;
        *count = 0;
        return MHD_YES;
    }
    if (x->answer_bytes > 0) /* resumed */
        return answer(x);
    MHD_suspend_connection(connection);
    send_on(x);
    return MHD_YES;
}

static void over(void *owner, struct MHD_Connection *connection, void **state,
                 enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *state;
    (void)owner, (void)connection, (void)code;
    if (x) {
        x->next_free = free_exchanges;
        free_exchanges = x;
    }
}

static void run(int listener)
{
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, NULL,
                         MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_NOTIFY_COMPLETED, over, NULL,
                         MHD_OPTION_CONNECTION_LIMIT, HANDLES_COUNT, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        spw_bench_die("libmicrohttpd did not start");
    struct curl_waitfd extra = {.fd = info->epoll_fd, .events = CURL_WAIT_POLLIN};
    for (;;) {
        CURLMsg *message;
        int running, left;
        MHD_UNSIGNED_LONG_LONG timeout_ms;
        bool soon = MHD_get_timeout(daemon, &timeout_ms) == MHD_YES && timeout_ms == 0;
        curl_multi_poll(multi, &extra, 1, soon ? 0 : 1000, NULL);
        curl_multi_perform(multi, &running);
        while ((message = curl_multi_info_read(multi, &left))) {
            struct exchange *x;
            if (message->msg != CURLMSG_DONE || message->data.result != CURLE_OK)
                spw_bench_die("the forwarder's call failed: %s", curl_easy_strerror(message->data.result));
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &x);
            curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &x->status);
            curl_multi_remove_handle(multi, x->easy);
            MHD_resume_connection(x->connection);
        }
        MHD_run(daemon);
    }
}

static int listen_at(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 256))
        spw_bench_die("no socket for the forwarder: %s", strerror(errno));
    return listener;
}

pid_t spw_bench_forwarder(const char *socket_path, uint16_t *port, const char *url)
{
    int listener = socket_path ? listen_at(socket_path) : spw_bench_listen(port);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        multi = curl_multi_init();
        curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)HANDLES_COUNT);
        upstream = url;
        make_exchanges();
        run(listener);
    }
    close(listener);
    return pid;
}
