/* listener.h: a listening socket: a TCP address, or a path with mode, group and a lock against a second owner.
 *
 * Owns: the socket, the path and its lock file ("<path>.lock", which stays). Called by: http/door.c,
 * control/socket.c, the scripted provider. Thread: any; the struct belongs to its caller.
 */
#ifndef SPW_NET_LISTENER_H
#define SPW_NET_LISTENER_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "sidecar/obs/error.h"

struct spw_listener {
    int fd;        /* non-blocking, listening; -1 = none. Who hands it on sets -1 */
    int lock_fd;   /* -1 for TCP */
    uint16_t port; /* 0 for a path */
    dev_t device;  /* of the socket's file, so that nobody else's is removed */
    ino_t inode;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* "" for TCP */
};

/* address: "127.0.0.1:8390" or "[::1]:8390"; names are not looked up. Port 0 = any free one. */
enum spw_status spw_listener_open_tcp(struct spw_listener *listener, const char *address,
                                      struct spw_error *err) SPW_WARN_UNUSED;

/* BUSY when another process (or listener) holds the path, whether it took our lock or merely accepts there. A socket
 * nobody accepts on is replaced; anything else at the path is left alone and refused as CONFLICT. The path appears
 * with its final mode and group, already listening. gid (gid_t)-1 = leave. */
enum spw_status spw_listener_open_unix(struct spw_listener *listener, const char *path, mode_t mode,
                                       gid_t gid, struct spw_error *err) SPW_WARN_UNUSED;

/* Remove the path if it is still ours; no new caller finds it. The descriptor stays open. */
void spw_listener_unlink(struct spw_listener *listener);

/* Unlink, close what is still open, and let go of the lock. */
void spw_listener_close(struct spw_listener *listener);

#endif
