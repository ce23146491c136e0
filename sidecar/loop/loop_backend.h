/* loop_backend.h: what the loop asks of the kernel's waiting, so that io_uring and epoll are twins.
 *
 * Owns: nothing; the interface between loop.c and loop_uring.c / loop_epoll.c. Thread: the loop thread; open may run
 * on another thread than begin and wait, because the sidecar is put together before its loop thread starts.
 *
 * Each watched descriptor has an index (small, reused) and a token {generation : 32 | index : 32} that changes with
 * every change of interest. A back-end reports the token it was given last; loop.c drops tokens that are not current
 * any more, so a late event cannot reach the next owner of the same index or descriptor number.
 */
#ifndef SPW_LOOP_LOOP_BACKEND_H
#define SPW_LOOP_LOOP_BACKEND_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/loop/loop.h"

#define SPW_LOOP_FOREVER UINT64_MAX

struct spw_loop_event {
    uint64_t token;
    uint32_t events; /* SPW_LOOP_* bits */
};

struct spw_loop_backend_ops {
    const char *name;
    /* Find out whether the kernel lets us, and make ready. note: what to say about it. */
    enum spw_status (*open)(void **state, char *note, size_t note_bytes, struct spw_error *err);
    void (*close)(void *state);
    /* Once at the start of each run, on the thread that runs the loop. */
    enum spw_status (*begin)(void *state, struct spw_error *err);
    /* Be level-triggered interested in fd; was_watched: this index already watches this fd, replace. */
    enum spw_status (*watch)(void *state, uint64_t token, int fd, uint32_t events, bool was_watched);
    /* No interest, and no hold on the descriptor from now on. */
    void (*forget)(void *state, uint32_t index, int fd);
    /* Wait for at most timeout_ns and hand back what is ready. A signal ends the wait with no events. */
    enum spw_status (*wait)(void *state, uint64_t timeout_ns, struct spw_loop_event *events, size_t capacity,
                            size_t *count, struct spw_error *err);
};

extern const struct spw_loop_backend_ops spw_loop_uring_ops;
extern const struct spw_loop_backend_ops spw_loop_epoll_ops;

/* poll(2) bits; epoll's have the same values on Linux. A half-closed peer (RDHUP) is asked for only by who wants
 * HANGUP: it never goes away again and would spin a watch that waits for room to write. */
static inline uint32_t spw_loop_to_poll(uint32_t events)
{
    return ((events & SPW_LOOP_READ) != 0 ? (uint32_t)POLLIN : 0) |
           ((events & SPW_LOOP_WRITE) != 0 ? (uint32_t)POLLOUT : 0) |
           ((events & SPW_LOOP_HANGUP) != 0 ? (uint32_t)POLLRDHUP : 0);
}

static inline uint32_t spw_loop_from_poll(uint32_t bits)
{
    return ((bits & (uint32_t)POLLIN) != 0 ? (uint32_t)SPW_LOOP_READ : 0) |
           ((bits & (uint32_t)POLLOUT) != 0 ? (uint32_t)SPW_LOOP_WRITE : 0) |
           ((bits & (uint32_t)(POLLHUP | POLLRDHUP)) != 0 ? (uint32_t)SPW_LOOP_HANGUP : 0) |
           ((bits & (uint32_t)(POLLERR | POLLNVAL)) != 0 ? (uint32_t)SPW_LOOP_ERROR : 0);
}

#endif
