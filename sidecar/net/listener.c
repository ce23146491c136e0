/* listener.c: listening sockets. See listener.h. */
#include "sidecar/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROBES         50 /* a second */
#define PROBE_PAUSE_NS 20000000

enum { BACKLOG = 512 };

static enum spw_status failed(struct spw_error *err, const char *where, const char *what)
{
    return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: %s: %s", where, what, strerror(errno));
}

/* -------- TCP -------- */

/* getaddrinfo itself takes any number and keeps its low 16 bits. */
static bool port_is_sound(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    return digits > 0 && digits <= 5 && port[digits] == '\0' &&
           atoi(port) <= 65535; /* NOLINT(cert-err34-c) */
}

/* "127.0.0.1:80" and "[::1]:80" into host and port. */
static bool split_address(const char *address, char *host, size_t host_bytes, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || !port_is_sound(colon + 1)) {
        return false;
    }
    const char *start = address;
    const char *end = colon;
    if (*start == '[') {
        if (end[-1] != ']') {
            return false;
        }
        start++;
        end--;
    } else if (memchr(start, ':', (size_t)(end - start)) != NULL) {
        return false; /* an IPv6 address without brackets */
    }
    if (end <= start || (size_t)(end - start) >= host_bytes) {
        return false;
    }
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port = colon + 1;
    return true;
}

static uint16_t bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name = {.v6 = {0}};
    socklen_t bytes = sizeof name;
    if (getsockname(fd, &name.any, &bytes) != 0) {
        return 0;
    }
    return ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
}

static enum spw_status listen_on(struct spw_listener *listener, const struct addrinfo *info,
                                 const char *address, struct spw_error *err)
{
    const int on = 1;
    listener->fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener->fd < 0) {
        return failed(err, address, "socket");
    }
    if (setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener->fd, info->ai_addr, info->ai_addrlen) == 0 && listen(listener->fd, BACKLOG) == 0) {
        listener->port = bound_port(listener->fd);
        return SPW_STATUS_OK;
    }
    enum spw_status status =
        errno == EADDRINUSE ? spw_error_set(err, SPW_STATUS_BUSY,
                                            "%s: another process listens there; choose another port", address)
                            : failed(err, address, "cannot listen there");
    close(listener->fd);
    listener->fd = -1;
    return status;
}

enum spw_status spw_listener_open_tcp(struct spw_listener *listener, const char *address,
                                      struct spw_error *err)
{
    char host[64];
    const char *port;
    struct addrinfo *info = NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    *listener = (struct spw_listener){.fd = -1, .lock_fd = -1};
    if (!split_address(address, host, sizeof host, &port) || getaddrinfo(host, port, &hints, &info) != 0) {
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "\"%.60s\" is no numeric address and port: write it as 127.0.0.1:8390 or [::1]:8390", address);
    }
    enum spw_status status = listen_on(listener, info, address, err);
    freeaddrinfo(info);
    return status;
}

/* -------- a path -------- */

static void fill_name(struct sockaddr_un *name, const char *path)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(name->sun_path, path, strlen(path));
}

static enum spw_status take_lock(struct spw_listener *listener, struct spw_error *err)
{
    char lock_path[sizeof listener->path + 8];
    snprintf(lock_path, sizeof lock_path, "%s.lock", listener->path);
    listener->lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (listener->lock_fd < 0) {
        return failed(err, lock_path, "cannot be made; check that the directory is there and writable");
    }
    if (flock(listener->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        return SPW_STATUS_OK;
    }
    if (errno == EWOULDBLOCK) {
        return spw_error_set(
            err, SPW_STATUS_BUSY,
            "%s: another sidecar holds it: stop that one, or give this one another segment.pub_dir",
            listener->path);
    }
    return failed(err, lock_path, "flock");
}

/* Does somebody accept at this path? */
static bool is_accepted(int probe, const struct sockaddr_un *name)
{
    return connect(probe, (const struct sockaddr *)name, sizeof *name) == 0 ||
           errno == EAGAIN; /* backlog full */
}

/* Is the path free, or held by a socket nobody accepts on? The kernel may close the sockets of a process that was killed
 * with an io_uring a moment after the process is gone: what accepts now is asked again for a while. */
static enum spw_status check_path(const char *path, struct spw_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        return errno == ENOENT ? SPW_STATUS_OK : failed(err, path, "lstat");
    }
    if (!S_ISSOCK(st.st_mode)) {
        return spw_error_set(err, SPW_STATUS_CONFLICT,
                             "%s: a file that is no socket is in the way: remove it, or choose another path",
                             path);
    }
    struct sockaddr_un name;
    fill_name(&name, path);
    const struct timespec pause = {.tv_nsec = PROBE_PAUSE_NS};
    bool accepted = true;
    for (int i = 0; i < PROBES && accepted; i++) {
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (probe < 0) {
            return failed(err, path, "socket");
        }
        accepted = is_accepted(probe, &name);
        close(probe);
        if (accepted) {
            nanosleep(&pause, NULL);
        }
    }
    if (accepted) {
        return spw_error_set(err, SPW_STATUS_BUSY, "%s: another process accepts there; stop it", path);
    }
    return SPW_STATUS_OK;
}

/* What is left to do before callers may meet the bound socket; NULL or the step that failed, with errno. */
static const char *finish_socket(struct spw_listener *listener, const char *beside, mode_t mode, gid_t gid)
{
    struct stat st;
    if (chmod(beside, mode) != 0) {
        return "chmod";
    }
    if (gid != (gid_t)-1 && chown(beside, (uid_t)-1, gid) != 0) {
        return "cannot be given to the group of segment.gid: run in that group, or leave it out";
    }
    if (listen(listener->fd, BACKLOG) != 0) {
        return "listen";
    }
    if (lstat(beside, &st) != 0 || rename(beside, listener->path) != 0) {
        return "rename";
    }
    listener->device = st.st_dev;
    listener->inode = st.st_ino;
    return NULL;
}

/* Bind under a name beside the path, finish, then rename: nobody meets a socket with the wrong mode. */
static enum spw_status bind_and_rename(struct spw_listener *listener, mode_t mode, gid_t gid,
                                       struct spw_error *err)
{
    char beside[sizeof listener->path + 8];
    struct sockaddr_un name;
    snprintf(beside, sizeof beside, "%s.new", listener->path);
    fill_name(&name, beside);
    if (unlink(beside) != 0 && errno != ENOENT) {
        return failed(err, beside, "cannot be removed");
    }
    if (bind(listener->fd, (const struct sockaddr *)&name, sizeof name) != 0) {
        return failed(err, beside, "bind");
    }
    const char *step = finish_socket(listener, beside, mode, gid);
    if (step == NULL) {
        return SPW_STATUS_OK;
    }
    enum spw_status status = failed(err, listener->path, step);
    unlink(beside);
    return status;
}

enum spw_status spw_listener_open_unix(struct spw_listener *listener, const char *path, mode_t mode,
                                       gid_t gid, struct spw_error *err)
{
    *listener = (struct spw_listener){.fd = -1, .lock_fd = -1};
    if (path[0] != '/' || strlen(path) + sizeof ".new" > sizeof listener->path) {
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s: a socket needs an absolute path of at most %zu bytes: choose a shorter one",
                             path, sizeof listener->path - sizeof ".new");
    }
    memcpy(listener->path, path, strlen(path) + 1);
    enum spw_status status = take_lock(listener, err);
    if (status == SPW_STATUS_OK) {
        status = check_path(path, err);
    }
    if (status == SPW_STATUS_OK) {
        listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        status = listener->fd < 0 ? failed(err, path, "socket") : bind_and_rename(listener, mode, gid, err);
    }
    if (status != SPW_STATUS_OK) {
        spw_listener_close(listener);
    }
    return status;
}

/* -------- the end -------- */

void spw_listener_unlink(struct spw_listener *listener)
{
    struct stat st;
    if (listener->inode != 0 && lstat(listener->path, &st) == 0 && st.st_dev == listener->device &&
        st.st_ino == listener->inode) {
        unlink(listener->path);
    }
    listener->inode = 0;
}

void spw_listener_close(struct spw_listener *listener)
{
    spw_listener_unlink(listener);
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    if (listener->lock_fd >= 0) {
        close(listener->lock_fd);
    }
    listener->fd = -1;
    listener->lock_fd = -1;
}
