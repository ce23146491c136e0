/* forwarder.c: the peer: libmicrohttpd and libcurl with nothing between. See calls.h.
 *
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BODY_MAX_BYTES 16384
#define HANDLES_COUNT  128u

static struct exchange {
    struct MHD_Connection *connection;
    CURL *easy;
    struct exchange *next_free;
    char body[BODY_MAX_BYTES], answer[BODY_MAX_BYTES];
    size_t body_bytes, answer_bytes;
} * free_exchanges;
static CURLM *multi;
static struct curl_slist *headers;

static size_t take_answer(char *bytes, size_t size, size_t count, void *owner)
{
    struct exchange *x = owner;
    if (x->answer_bytes + size * count > sizeof x->answer)
        return 0;
    memcpy(x->answer + x->answer_bytes, bytes, size * count);
    x->answer_bytes += size * count;
    return size * count;
}

static void make_exchanges(const char *url)
{
    for (unsigned i = 0; i < HANDLES_COUNT; i++) {
        struct exchange *x = calloc(1, sizeof *x);
        if (!x || !(x->easy = curl_easy_init()))
            spw_bench_die("no memory for the forwarder");
        curl_easy_setopt(x->easy, CURLOPT_URL, url);
        curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(x->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, take_answer);
        curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
        curl_easy_setopt(x->easy, CURLOPT_PRIVATE, x);
        x->next_free = free_exchanges;
        free_exchanges = x;
    }
}

static enum MHD_Result handle(void *owner, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *bytes, size_t *count,
                              void **state)
{
    struct exchange *x = *state;
    (void)owner, (void)url, (void)method, (void)version;
    if (!x) {
        x = free_exchanges;
        if (!x)
            return MHD_NO;
        free_exchanges = x->next_free;
        x->body_bytes = x->answer_bytes = 0;
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
    if (x->answer_bytes > 0) { /* resumed */
        struct MHD_Response *response =
            MHD_create_response_from_buffer(x->answer_bytes, x->answer, MHD_RESPMEM_PERSISTENT);
        enum MHD_Result queued = MHD_queue_response(connection, 200, response);
        MHD_destroy_response(response);
        return queued;
    }
    x->connection = connection;
    curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, x->body);
    curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE, (long)x->body_bytes);
    MHD_suspend_connection(connection);
    curl_multi_add_handle(multi, x->easy);
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
        headers = curl_slist_append(headers, "Content-Type: application/json");
        headers = curl_slist_append(headers, "X-API-KEY: k-bench");
        headers = curl_slist_append(headers, "Expect:");
        make_exchanges(url);
        run(listener);
    }
    close(listener);
    return pid;
}
