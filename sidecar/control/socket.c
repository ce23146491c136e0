/* socket.c: the Unix socket of the control API. See socket.h. */
#include "sidecar/control/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sidecar/obs/log.h"

#define PATH_MAX_BYTES 100u /* sun_path has 108, and the lock's name needs room in messages */
#define BACKLOG        32

static enum spw_status system_error(struct spw_error *err, const char *path, const char *what)
{
    return spw_error_set(err, SPW_STATUS_SYSTEM,
                         "control socket %s: %s: %s: check the directory and its owner", path, what,
                         strerror(errno));
}

/* The kernel lets go of the lock when its holder dies, however it dies. The file itself stays: removing it would let
 * two processes lock two files of the same name. */
static enum spw_status take_lock(struct spw_control_socket *sock, struct spw_error *err)
{
    char name[sizeof sock->path + 8];
    snprintf(name, sizeof name, "%s.lock", sock->path);
    sock->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (sock->lock_fd < 0)
        return system_error(err, name, "cannot be opened");
    if (flock(sock->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return SPW_STATUS_OK;
    if (errno == EWOULDBLOCK)
        return spw_error_set(
            err, SPW_STATUS_BUSY,
            "control socket %s: another sidecar holds it: stop that one, or give this one another "
            "segment.pub_dir",
            sock->path);
    return system_error(err, name, "cannot be locked");
}

/* What a dead predecessor left is removed; anything that is no socket is somebody's file. */
static enum spw_status remove_stale(const char *path, struct spw_error *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? SPW_STATUS_OK : system_error(err, path, "cannot be looked at");
    if (!S_ISSOCK(st.st_mode))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "control socket %s: a file that is no socket is in the way: remove it", path);
    return unlink(path) < 0 ? system_error(err, path, "cannot be removed") : SPW_STATUS_OK;
}

static enum spw_status bind_and_listen(struct spw_control_socket *sock, mode_t mode, uint32_t gid,
                                       struct spw_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, sock->path, strlen(sock->path) + 1);
    sock->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock->fd < 0)
        return system_error(err, sock->path, "no socket to be had");
    /* Linux makes the file with the descriptor's mode, so it is never open to more than its owner before chmod. */
    if (fchmod(sock->fd, 0600) < 0 || bind(sock->fd, (struct sockaddr *)&address, sizeof address) < 0)
        return system_error(err, sock->path, "cannot be bound");
    struct stat st;
    if (lstat(sock->path, &st) < 0)
        return system_error(err, sock->path, "cannot be looked at");
    sock->device = st.st_dev;
    sock->inode = st.st_ino;
    if (gid != UINT32_MAX && lchown(sock->path, (uid_t)-1, gid) < 0)
        return system_error(err, sock->path, "cannot be given to the group of segment.gid");
    if (chmod(sock->path, mode) < 0)
        return system_error(err, sock->path, "cannot be given its mode");
    return listen(sock->fd, BACKLOG) < 0 ? system_error(err, sock->path, "cannot listen") : SPW_STATUS_OK;
}

enum spw_status spw_control_socket_open(struct spw_control_socket *sock, const char *path, mode_t mode,
                                        uint32_t gid, struct spw_error *err)
{
    memset(sock, 0, sizeof *sock);
    sock->fd = sock->lock_fd = -1;
    for (size_t i = 0; i < SPW_CONTROL_CONNECTIONS_MAX_COUNT; i++)
        sock->connections[i].fd = -1;
    if (!path || path[0] != '/' || strlen(path) > PATH_MAX_BYTES)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "control socket: %.120s is no absolute path of at most %u bytes: choose a shorter "
            "segment.pub_dir",
            path ? path : "(none)", PATH_MAX_BYTES);
    memcpy(sock->path, path, strlen(path) + 1);
    enum spw_status status = take_lock(sock, err);
    if (!status)
        status = remove_stale(sock->path, err);
    if (!status)
        status = bind_and_listen(sock, mode ? mode : 0660, gid, err);
    if (status)
        spw_control_socket_close(sock);
    return status;
}

/* A place for one more connection. gRPC closes descriptors without telling, so those it was given are looked at: the
 * number may have been reused, the inode of a socket is not while it lives. */
static int free_connection(struct spw_control_socket *sock, bool may_operate)
{
    unsigned limit = may_operate ? SPW_CONTROL_CONNECTIONS_MAX_COUNT : SPW_CONTROL_READERS_MAX_COUNT;
    for (int i = 0; i < (int)limit; i++) {
        struct stat st;
        int fd = sock->connections[i].fd;
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_ino != sock->connections[i].inode)
            return i;
    }
    return -1;
}

/* false = this connection has to be closed. */
static bool take_connection(struct spw_control_socket *sock, int fd, bool *may_operate)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    struct stat st;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || fstat(fd, &st) < 0)
        return false;
    *may_operate = peer.uid == 0 || peer.uid == geteuid();
    int place = free_connection(sock, *may_operate);
    if (place < 0) {
        spw_log(SPW_LOG_WARN, "control.accept", "too many connections are open: one of uid %u was closed",
                peer.uid);
        return false;
    }
    sock->connections[place].fd = fd;
    sock->connections[place].inode = st.st_ino;
    return true;
}

int spw_control_socket_accept(struct spw_control_socket *sock, bool *may_operate)
{
    for (;;) {
        int fd = accept4(sock->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 || take_connection(sock, fd, may_operate))
            return fd;
        close(fd);
    }
}

void spw_control_socket_close(struct spw_control_socket *sock)
{
    struct stat st;
    if (sock->inode && lstat(sock->path, &st) == 0 && st.st_dev == sock->device && st.st_ino == sock->inode)
        unlink(sock->path);
    sock->inode = 0;
    if (sock->fd >= 0)
        close(sock->fd);
    if (sock->lock_fd >= 0)
        close(sock->lock_fd);
    sock->fd = sock->lock_fd = -1;
}
