/* socket.c: the Unix socket of the control API. See socket.h. */
#include "sidecar/control/socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/conf/conf.h"
#include "sidecar/control/role.h"
#include "sidecar/obs/log.h"

enum spw_status spw_control_socket_open(struct spw_control_socket *sock, const char *path, mode_t mode,
                                        uint32_t gid, struct spw_error *err)
{
    for (size_t i = 0; i < SPW_CONTROL_CONNECTIONS_MAX_COUNT; i++)
        sock->connections[i].fd = -1;
    enum spw_status status = spw_listener_open_unix(&sock->listener, path ? path : "", mode ? mode : 0660,
                                                    gid == UINT32_MAX ? (gid_t)-1 : (gid_t)gid, err);
    if (status)
        spw_error_prefix(err, "control socket ");
    return status;
}

/* A place for one more connection. gRPC closes descriptors without telling, so those it was given are looked at: the
 * number may have been reused, the inode of a socket is not while it lives. */
static int free_connection(struct spw_control_socket *sock, enum spw_role role)
{
    unsigned limit =
        role >= SPW_ROLE_OPERATE ? SPW_CONTROL_CONNECTIONS_MAX_COUNT : SPW_CONTROL_READERS_MAX_COUNT;
    for (int i = 0; i < (int)limit; i++) {
        struct stat st;
        int fd = sock->connections[i].fd;
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_ino != sock->connections[i].inode)
            return i;
    }
    return -1;
}

static enum spw_role role_of(const struct spw_conf *conf, uint32_t uid)
{
    if (uid == 0 || uid == geteuid())
        return SPW_ROLE_ADMIN;
    for (uint32_t i = 0; conf && i < conf->control_uids_count; i++) {
        if (conf->control_uids[i].uid == uid)
            return spw_role_of(conf->control_uids[i].role);
    }
    return SPW_ROLE_RECORDS;
}

/* false = this connection has to be closed. */
static bool take_connection(struct spw_control_socket *sock, const struct spw_conf *conf, int fd,
                            enum spw_role *role)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    struct stat st;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || fstat(fd, &st) < 0)
        return false;
    *role = role_of(conf, peer.uid);
    int place = free_connection(sock, *role);
    if (place < 0) {
        spw_log(SPW_LOG_WARN, "control.accept", "too many connections are open: one of uid %u was closed",
                peer.uid);
        return false;
    }
    sock->connections[place].fd = fd;
    sock->connections[place].inode = st.st_ino;
    sock->connections[place].uid = peer.uid;
    return true;
}

uint32_t spw_control_socket_uid(const struct spw_control_socket *sock, int fd)
{
    for (size_t i = 0; i < SPW_CONTROL_CONNECTIONS_MAX_COUNT; i++) {
        if (sock->connections[i].fd == fd)
            return sock->connections[i].uid;
    }
    return UINT32_MAX;
}

int spw_control_socket_accept(struct spw_control_socket *sock, const struct spw_conf *conf,
                              enum spw_role *role)
{
    for (;;) {
        int fd = accept4(sock->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 || take_connection(sock, conf, fd, role))
            return fd;
        close(fd);
    }
}
