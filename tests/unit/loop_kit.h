/* loop_kit.h: what the tests of the loop share: a run for a while, a pair of sockets, and a watch that reads. */
#ifndef SPW_TESTS_LOOP_KIT_H
#define SPW_TESTS_LOOP_KIT_H

#include "tests/unit/backend_kit.h"

#include <sys/socket.h>
#include <unistd.h>

static inline void stop_timer(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    (void)timer;
    spw_loop_stop(loop);
}

/* Let the loop turn for a while. */
static inline void run_for(struct spw_loop *loop, uint64_t ns)
{
    struct spw_loop_timer timer = {.fn = stop_timer};
    spw_loop_timer_set(loop, &timer, spw_loop_now_ns(loop) + ns);
    run(loop);
    spw_loop_timer_cancel(loop, &timer);
}

static inline void count_task(struct spw_loop *loop, struct spw_loop_task *task)
{
    (void)loop;
    ++*(int *)task->owner;
}

static inline void make_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

struct reader {
    struct spw_loop_watch watch;
    uint32_t seen; /* events, or-ed */
    uint32_t calls;
    size_t bytes;
    size_t step;         /* bytes to read a call; 0 = none */
    uint32_t stop_after; /* calls; 0 = never */
    struct spw_loop_stage *stage;
};

static inline void on_readable(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    struct reader *reader = watch->owner;
    char buffer[64];
    reader->seen |= events;
    reader->calls++;
    if (reader->step > 0) {
        ssize_t n = read(watch->fd, buffer, reader->step);
        reader->bytes += n > 0 ? (size_t)n : 0;
    }
    if (reader->calls == reader->stop_after) {
        spw_loop_stop(loop);
    }
}

static inline void reader_init(struct reader *reader, size_t step, uint32_t stop_after)
{
    *reader = (struct reader){.step = step, .stop_after = stop_after};
    reader->watch.fn = on_readable;
    reader->watch.owner = reader;
}

#endif
