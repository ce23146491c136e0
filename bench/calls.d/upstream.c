/* upstream.c: a provider that costs next to nothing: one answer, whatever is asked. See calls.h. */
#include "bench/calls.d/calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAX_BYTES 16384
#define SOCKETS_MAX_COUNT 1024

static struct peer {
    char bytes[REQUEST_MAX_BYTES];
    size_t count;
} * peers[SOCKETS_MAX_COUNT];

void spw_bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* Bytes of the first whole request, 0 = not all there. */
static size_t whole_request(const struct peer *peer)
{
    const char *end = memmem(peer->bytes, peer->count, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head_bytes = (size_t)(end - peer->bytes) + 4, body_bytes = 0;
    const char *length = memmem(peer->bytes, head_bytes, "Content-Length:", 15);
    if (length)
        body_bytes = strtoul(length + 15, NULL, 10);
    return peer->count >= head_bytes + body_bytes ? head_bytes + body_bytes : 0;
}

static unsigned rest_us;

static void serve(int fd, const char *answer, size_t answer_bytes)
{
    struct peer *peer = peers[fd];
    ssize_t n = read(fd, peer->bytes + peer->count, sizeof peer->bytes - peer->count);
    if (n <= 0) {
        close(fd);
        free(peer);
        peers[fd] = NULL;
        return;
    }
    peer->count += (size_t)n;
    for (size_t bytes; (bytes = whole_request(peer)) > 0;) {
        memmove(peer->bytes, peer->bytes + bytes, peer->count - bytes);
        peer->count -= bytes;
        if (rest_us)
            usleep(rest_us);
        if (write(fd, answer, answer_bytes) != (ssize_t)answer_bytes)
            spw_bench_die("the upstream could not answer: %s", strerror(errno));
    }
}

static void run(int listener, const char *answer, size_t answer_bytes)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[64], wanted = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve(events[i].data.fd, answer, answer_bytes);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
            if (fd < 0 || fd >= SOCKETS_MAX_COUNT || !(peers[fd] = calloc(1, sizeof *peers[fd])))
                spw_bench_die("the upstream could not take a connection: %s", strerror(errno));
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            wanted.data.fd = fd;
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted);
        }
    }
}

int spw_bench_listen(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, 256) ||
        getsockname(listener, (struct sockaddr *)&address, &bytes))
        spw_bench_die("no port to listen on: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return listener;
}

pid_t spw_bench_upstream(const char *answer_body, unsigned delay_us, uint16_t *port)
{
    int listener = spw_bench_listen(port);
    pid_t pid = fork();
    if (pid == 0) {
        char answer[4096];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rest_us = delay_us;
        int n = snprintf(answer, sizeof answer,
                         "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         strlen(answer_body), answer_body);
        run(listener, answer, (size_t)n);
    }
    close(listener);
    return pid;
}
