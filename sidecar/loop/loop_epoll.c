/* loop_epoll.c: the loop's waiting by epoll, for kernels and containers that refuse io_uring.
 *
 * Owns: one epoll descriptor. Called by: loop.c through spw_loop_epoll_ops. Thread: the loop thread (open: any).
 */
#include "sidecar/loop/loop_backend.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_PER_WAIT = 256 };

struct epoll_state {
    int epoll_fd;
    bool only_milliseconds; /* no epoll_pwait2 here (before Linux 5.11, or an old seccomp profile) */
    struct epoll_event ready[EVENTS_PER_WAIT];
};

static enum spw_status epoll_open(void **state, char *note, size_t note_bytes, struct spw_error *err)
{
    struct epoll_state *epoll = calloc(1, sizeof *epoll);
    if (epoll == NULL) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "loop: no memory for epoll: raise the memory limit");
    }
    epoll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll->epoll_fd < 0) {
        int error = errno;
        free(epoll);
        return spw_error_set(err, SPW_STATUS_SYSTEM, "loop: epoll_create1: %s: raise the limit of open files",
                             strerror(error));
    }
    snprintf(note, note_bytes, "epoll");
    *state = epoll;
    return SPW_STATUS_OK;
}

static void epoll_close(void *state)
{
    struct epoll_state *epoll = state;
    close(epoll->epoll_fd);
    free(epoll);
}

static enum spw_status epoll_begin(void *state, struct spw_error *err)
{
    (void)state;
    (void)err;
    return SPW_STATUS_OK;
}

static enum spw_status epoll_watch(void *state, uint64_t token, int fd, uint32_t events, bool was_watched)
{
    struct epoll_state *epoll = state;
    struct epoll_event event = {.events = spw_loop_to_poll(events), .data.u64 = token};
    int op = was_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll->epoll_fd, op, fd, &event) == 0) {
        return SPW_STATUS_OK;
    }
    return errno == ENOMEM || errno == ENOSPC ? SPW_STATUS_NO_MEMORY : SPW_STATUS_SYSTEM;
}

static void epoll_forget(void *state, uint32_t index, int fd)
{
    struct epoll_state *epoll = state;
    (void)index;
    /* Needed even when the descriptor is closed next: a dup of it would keep the registration alive. */
    (void)epoll_ctl(epoll->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static int wait_milliseconds(struct epoll_state *epoll, uint64_t timeout_ns, int capacity)
{
    int timeout_ms = -1;
    if (timeout_ns != SPW_LOOP_FOREVER) {
        uint64_t up_ms =
            timeout_ns / 1000000 + (timeout_ns % 1000000 != 0); /* late by <1 ms, never a busy turn */
        timeout_ms = up_ms > INT_MAX ? INT_MAX : (int)up_ms;
    }
    return epoll_wait(epoll->epoll_fd, epoll->ready, capacity, timeout_ms);
}

static int wait_exactly(struct epoll_state *epoll, uint64_t timeout_ns, int capacity)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                               .tv_nsec = (long)(timeout_ns % 1000000000)};
    int n = epoll_pwait2(epoll->epoll_fd, epoll->ready, capacity,
                         timeout_ns == SPW_LOOP_FOREVER ? NULL : &timeout, NULL);
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
        epoll->only_milliseconds = true;
        n = wait_milliseconds(epoll, timeout_ns, capacity);
    }
    return n;
}

static enum spw_status epoll_wait_ready(void *state, uint64_t timeout_ns, struct spw_loop_event *events,
                                        size_t capacity, size_t *count, struct spw_error *err)
{
    struct epoll_state *epoll = state;
    int most = capacity < EVENTS_PER_WAIT ? (int)capacity : EVENTS_PER_WAIT;
    *count = 0;
    int n = epoll->only_milliseconds ? wait_milliseconds(epoll, timeout_ns, most)
                                     : wait_exactly(epoll, timeout_ns, most);
    if (n < 0) {
        if (errno == EINTR) {
            return SPW_STATUS_OK;
        }
        return spw_error_set(err, SPW_STATUS_SYSTEM, "loop: epoll_wait: %s", strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        events[i].token = epoll->ready[i].data.u64;
        events[i].events = spw_loop_from_poll(epoll->ready[i].events);
    }
    *count = (size_t)n;
    return SPW_STATUS_OK;
}

const struct spw_loop_backend_ops spw_loop_epoll_ops = {
    .name = "epoll",
    .open = epoll_open,
    .close = epoll_close,
    .begin = epoll_begin,
    .watch = epoll_watch,
    .forget = epoll_forget,
    .wait = epoll_wait_ready,
};
