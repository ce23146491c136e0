/* misbehave.c: see misbehave.h. */
#include "sidecar/mock/misbehave.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HUGE_BYTES   (64u * 1024u * 1024u)
#define EXCESS_BYTES 100u /* what Content-Length promises too much */
#define BLOCK_BYTES  4096u
#define STALL_US     UINT64_MAX

static int client_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* A connected TCP socket that is told to connect to "nothing" is torn down at once, with RST. */
static void reset(int fd)
{
    struct sockaddr nothing = {.sa_family = AF_UNSPEC};
    if (connect(fd, &nothing, sizeof nothing) != 0)
        shutdown(fd, SHUT_RDWR);
}

static void send_garbage(int fd)
{
    static const char bytes[] = "\x16\x03\x01\x02 this is not HTTP \xff\xfe\r\n\r\n{\"items\":";
    if (send(fd, bytes, sizeof bytes - 1, MSG_NOSIGNAL) < 0)
        return; /* the client is gone, which is what comes next anyway */
    shutdown(fd, SHUT_WR);
}

enum MHD_Result spw_mock_misbehave(const struct spw_mock_server *server, struct MHD_Connection *connection,
                                   enum spw_mock_action action)
{
    int fd = client_fd(connection);
    if (action == SPW_MOCK_ACTION_RESET)
        reset(fd);
    else if (action == SPW_MOCK_ACTION_GARBAGE)
        send_garbage(fd);
    else if (action == SPW_MOCK_ACTION_STALL)
        spw_mock_server_rest(server, fd, STALL_US, true);
    return MHD_NO;
}

struct feed {
    const struct spw_mock_server *server;
    int fd;
    enum spw_mock_action action;
    uint64_t trickle_us;
    size_t body_bytes;
    char body[];
};

static ssize_t feed_some(void *owner, uint64_t position, char *out, size_t room)
{
    struct feed *f = owner;
    if (f->action == SPW_MOCK_ACTION_HUGE) { /* "{" and blanks: JSON that goes on and on */
        memset(out, ' ', room);
        if (position == 0)
            out[0] = '{';
        return (ssize_t)room;
    }
    if (position >= f->body_bytes)
        return MHD_CONTENT_READER_END_WITH_ERROR; /* wrong-length: the promised rest never comes */
    size_t left = f->body_bytes - (size_t)position;
    if (f->action == SPW_MOCK_ACTION_TRICKLE) {
        spw_mock_server_rest(f->server, f->fd, f->trickle_us, true);
        struct pollfd stop = {.fd = f->server->stop_fd, .events = POLLIN};
        if (poll(&stop, 1, 0) > 0)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        left = 1;
    }
    size_t n = left < room ? left : room;
    memcpy(out, f->body + position, n);
    return (ssize_t)n;
}

struct MHD_Response *spw_mock_bad_response(const struct spw_mock_server *server,
                                           struct MHD_Connection *connection, enum spw_mock_action action,
                                           uint64_t trickle_ms, const char *body)
{
    size_t n = strlen(body);
    struct feed *f = malloc(sizeof *f + n + 1);
    if (!f)
        return NULL;
    *f = (struct feed){.server = server,
                       .fd = client_fd(connection),
                       .action = action,
                       .trickle_us = trickle_ms * 1000,
                       .body_bytes = n};
    memcpy(f->body, body, n + 1);
    uint64_t size = action == SPW_MOCK_ACTION_HUGE           ? HUGE_BYTES
                    : action == SPW_MOCK_ACTION_WRONG_LENGTH ? n + EXCESS_BYTES
                                                             : n;
    struct MHD_Response *response = MHD_create_response_from_callback(size, BLOCK_BYTES, feed_some, f, free);
    if (!response)
        free(f);
    return response;
}
