/* spw_exchange.h: one HTTP exchange with the quote door over its Unix socket, and the headers of its answer.
 *
 * Owns: nothing. Called by: spw_client.h, on the caller's thread. Cost: a connection, and waiting until the deadline at
 * most. The answer is not trusted: it is looked at as text that ends with a NUL.
 */
#ifndef SPW_EXCHANGE_H
#define SPW_EXCHANGE_H

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/spw_map.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline bool spw__wait_fd(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = spw_now_ns();
        if (now_ns >= deadline_ns)
            return false;
        struct pollfd p;
        p.fd = fd;
        p.events = events;
        p.revents = 0;
        int n = poll(&p, 1, (int)((deadline_ns - now_ns) / 1000000 + 1));
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Send one request and read the answer's head (and body, as far as it fits). Returns the HTTP status, 0 = none. */
static inline uint32_t spw__exchange(const char *pub_dir, const char *head, size_t head_bytes,
                                     const char *body, size_t body_bytes, uint64_t deadline_ns, char *answer,
                                     size_t room, const char **answer_body)
{
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    size_t dir_bytes = strlen(pub_dir);
    if (dir_bytes + sizeof "/quote.sock" > sizeof address.sun_path)
        return 0;
    memcpy(address.sun_path, pub_dir, dir_bytes);
    memcpy(address.sun_path + dir_bytes, "/quote.sock", sizeof "/quote.sock");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    uint32_t status = 0;
    size_t sent = 0, got = 0, total = head_bytes + body_bytes;
    char *end = NULL;
    /* A full backlog answers EAGAIN on a Unix socket: that sidecar is not answering. */
    if (connect(fd, (struct sockaddr *)(void *)&address, sizeof address) != 0)
        goto out;
    while (sent < total) {
        const char *from = sent < head_bytes ? head + sent : body + (sent - head_bytes);
        size_t left = sent < head_bytes ? head_bytes - sent : total - sent;
        ssize_t n = send(fd, from, left, MSG_NOSIGNAL);
        bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
        if (n > 0)
            sent += (size_t)n;
        else if (!again || !spw__wait_fd(fd, POLLOUT, deadline_ns))
            goto out;
    }
    while (got < room - 1) {
        ssize_t n = recv(fd, answer + got, room - 1 - got, 0);
        if (n == 0)
            break;
        if (n < 0) {
            if ((errno != EAGAIN && errno != EINTR) || !spw__wait_fd(fd, POLLIN, deadline_ns))
                goto out;
            continue;
        }
        got += (size_t)n;
        answer[got] = 0;
        end = strstr(answer, "\r\n\r\n");
        if (end && (got == room - 1 || strncmp(answer, "HTTP/1.1 4", 10) != 0))
            break; /* the numbers are in the head; only an error's body is wanted whole */
    }
    if (end && strncmp(answer, "HTTP/1.1 ", 9) == 0) {
        status = (uint32_t)strtoul(answer + 9, NULL, 10);
        *end = 0;
        *answer_body = end + 4;
    }
out:
    close(fd);
    return status;
}

/* A header of the answer; "" when it is not there. */
static inline const char *spw__header(const char *head, const char *name, char *value, size_t room)
{
    size_t name_bytes = strlen(name);
    value[0] = 0;
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        size_t i = 0;
        while (i < name_bytes && (line[i] | 0x20) == (name[i] | 0x20))
            i++;
        if (i < name_bytes || line[i] != ':')
            continue;
        const char *from = line + i + 1;
        from += strspn(from, " ");
        size_t n = strcspn(from, "\r\n");
        n = n < room - 1 ? n : room - 1;
        memcpy(value, from, n);
        value[n] = 0;
        return value;
    }
    return value;
}

static inline int64_t spw__header_i64(const char *head, const char *name, bool *known)
{
    char value[32], *end = NULL;
    spw__header(head, name, value, sizeof value);
    errno = 0;
    long long number = strtoll(value, &end, 10);
    *known = value[0] != 0 && *end == 0 && errno == 0;
    return *known ? (int64_t)number : 0;
}

#ifdef __cplusplus
}
#endif

#endif
