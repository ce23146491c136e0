/* socket.h: the Unix socket of the control API: accept with the peer's user, so many and no more. Internal to control/.
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

#include "sidecar/control/role.h"
#include "sidecar/net/listener.h"

struct spw_conf;

#define SPW_CONTROL_CONNECTIONS_MAX_COUNT 32u
#define SPW_CONTROL_READERS_MAX_COUNT     24u /* the rest is kept for those who may operate */

struct spw_control_socket {
    struct spw_listener listener; /* closed by its owner, spw_listener_close */
    struct {
        int fd; /* given to gRPC; -1 = free */
        ino_t inode;
        uint32_t uid; /* of the peer */
    } connections[SPW_CONTROL_CONNECTIONS_MAX_COUNT];
};

/* The failures are spw_listener_open_unix's. mode 0 = 0660; gid UINT32_MAX = leave. */
enum spw_status spw_control_socket_open(struct spw_control_socket *socket, const char *path, mode_t mode,
                                        uint32_t gid, struct spw_error *err) SPW_WARN_UNUSED;
/* The next connection (non-blocking), and what its peer may do: root and this process's user are admin, others as
 * control_uids of conf says (NULL: none are named).
 * -1 = none now (errno EAGAIN) or a failure (errno). Connections above the limit are closed. */
/* The user of the peer that gRPC calls by this descriptor; UINT32_MAX = unknown. */
uint32_t spw_control_socket_uid(const struct spw_control_socket *socket, int fd);
int spw_control_socket_accept(struct spw_control_socket *socket, const struct spw_conf *conf,
                              enum spw_role *role);

#endif
