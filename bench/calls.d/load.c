/* load.c: connections that ask again as soon as they are answered. See calls.h. */
#include "bench/calls.d/calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MAX_BYTES      8192
#define CONNECTIONS_MAX_COUNT 64u

struct connection {
    int fd;
    size_t count;
    char bytes[ANSWER_MAX_BYTES];
};

static int dial(const struct spw_bench_load *load)
{
    struct sockaddr_in ip = {
        .sin_family = AF_INET, .sin_port = htons(load->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    const struct sockaddr *to = (const struct sockaddr *)&ip;
    socklen_t bytes = sizeof ip;
    if (load->socket_path) {
        snprintf(local.sun_path, sizeof local.sun_path, "%s", load->socket_path);
        to = (const struct sockaddr *)&local;
        bytes = sizeof local;
    }
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (connect(fd, to, bytes) != 0)
        spw_bench_die("no connection to %s: %s", load->socket_path ? load->socket_path : "the port",
                      strerror(errno));
    if (!load->socket_path)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void ask(const struct spw_bench_load *load, const struct connection *c)
{
    static unsigned amount;
    static char request[4096], digits[8];
    memcpy(request, load->request, load->request_bytes);
    snprintf(digits, sizeof digits, "%04u", 1000 + amount++ % 9000);
    memcpy(request + load->amount_at, digits, 4);
    if (write(c->fd, request, load->request_bytes) != (ssize_t)load->request_bytes)
        spw_bench_die("a request was not taken: %s", strerror(errno));
}

/* true: a whole answer has been read. */
static bool answered(struct connection *c)
{
    ssize_t n = read(c->fd, c->bytes + c->count, sizeof c->bytes - 1 - c->count);
    if (n <= 0)
        spw_bench_die("a connection ended");
    c->count += (size_t)n;
    c->bytes[c->count] = 0;
    const char *end = strstr(c->bytes, "\r\n\r\n"), *length = strcasestr(c->bytes, "\r\nContent-Length:");
    if (!end || !length || c->count < (size_t)(end + 4 - c->bytes) + strtoul(length + 17, NULL, 10))
        return false;
    if (strncmp(c->bytes, "HTTP/1.1 200", 12) != 0 || strstr(c->bytes, "\"fallback\","))
        spw_bench_die("no live answer: %.400s", c->bytes);
    c->count = 0;
    return true;
}

uint64_t spw_bench_load_run(const struct spw_bench_load *load, uint64_t *took_ns)
{
    static struct connection all[CONNECTIONS_MAX_COUNT];
    struct epoll_event events[CONNECTIONS_MAX_COUNT];
    uint64_t answers_count = 0, began_ns, end_ns;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint32_t open_count = load->connections_count;
    for (uint32_t i = 0; i < load->connections_count; i++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = i};
        all[i].fd = dial(load);
        all[i].count = 0;
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &wanted);
    }
    began_ns = spw_bench_now_ns();
    end_ns = began_ns + load->run_ns;
    for (uint32_t i = 0; i < load->connections_count; i++)
        ask(load, &all[i]);
    while (open_count > 0) {
        int n = epoll_wait(epoll, events, (int)CONNECTIONS_MAX_COUNT, 10000);
        if (n == 0)
            spw_bench_die("no answer for ten seconds");
        for (int i = 0; i < n; i++) {
            struct connection *c = &all[events[i].data.u32];
            if (!answered(c))
                continue;
            answers_count++;
            if (spw_bench_now_ns() < end_ns)
                ask(load, c);
            else
                open_count--;
        }
    }
    *took_ns = spw_bench_now_ns() - began_ns;
    for (uint32_t i = 0; i < load->connections_count; i++)
        close(all[i].fd);
    close(epoll);
    return answers_count;
}
