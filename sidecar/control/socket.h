/* socket.h: the Unix socket of the control API: lock, bind, accept with the peer's user. Internal to control/.
 *
 * Owns: struct spw_control_socket. Called by: server.c. Thread: the loop thread.
 *
 * gRPC core would bind the path itself, but it takes a living server's socket away, and cannot tell who the peer is.
 */
#ifndef SPW_CONTROL_SOCKET_H
#define SPW_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sidecar/obs/error.h"

#define SPW_CONTROL_CONNECTIONS_MAX_COUNT 32u
#define SPW_CONTROL_READERS_MAX_COUNT     24u /* the rest is kept for those who may operate */

struct spw_control_socket {
    int fd;      /* listening; -1 = closed */
    int lock_fd; /* holds "<path>.lock" */
    char path[128];
    dev_t device; /* what we made, so that nobody else's is removed */
    ino_t inode;
    struct {
        int fd; /* given to gRPC; -1 = free */
        ino_t inode;
    } connections[SPW_CONTROL_CONNECTIONS_MAX_COUNT];
};

/* BUSY when another process holds the lock; nothing is touched then. */
enum spw_status spw_control_socket_open(struct spw_control_socket *socket, const char *path, mode_t mode,
                                        uint32_t gid, struct spw_error *err) SPW_WARN_UNUSED;
/* The next connection (non-blocking), and whether its peer may operate: it runs as root or as this process's user.
 * -1 = none now (errno EAGAIN) or a failure (errno). Connections above the limit are closed. */
int spw_control_socket_accept(struct spw_control_socket *socket, bool *may_operate);
/* Removes the path if it is still ours and lets go of the lock. The listening descriptor is closed if it is open. */
void spw_control_socket_close(struct spw_control_socket *socket);

#endif
