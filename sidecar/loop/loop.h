/* loop.h: the one event loop of the sidecar: descriptors, timers, and work posted from other threads.
 *
 * Owns: the loop thread's waiting. Two back-ends behind one interface: io_uring (loop_uring.c) and its epoll twin
 * (loop_epoll.c), chosen by probe at start; both pass the same tests.
 * Called by: http/, control/, main. Thread: everything here runs on the loop thread, except
 * spw_loop_post, spw_loop_enter and spw_loop_stop, which any thread may call.
 *
 * One `now` per turn: every callback of a turn sees the same spw_loop_now_ns(). Callbacks may set, change and clear
 * any watch or timer, their own included. Watches and timers are embedded in their owner's struct: no allocation.
 */
#ifndef SPW_LOOP_LOOP_H
#define SPW_LOOP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

struct spw_loop;

enum spw_loop_backend { SPW_LOOP_AUTO, SPW_LOOP_URING, SPW_LOOP_EPOLL };

/* Event bits of a watch. HANGUP (both directions closed) and ERROR are reported whether asked for or not; asking for
 * HANGUP also reports a peer that closed its sending half. */
enum { SPW_LOOP_READ = 1, SPW_LOOP_WRITE = 2, SPW_LOOP_HANGUP = 4, SPW_LOOP_ERROR = 8 };

struct spw_loop_watch;
struct spw_loop_timer;
struct spw_loop_task;
struct spw_loop_stage;
typedef void spw_loop_watch_fn(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events);
typedef void spw_loop_timer_fn(struct spw_loop *loop, struct spw_loop_timer *timer);
typedef void spw_loop_task_fn(struct spw_loop *loop, struct spw_loop_task *task);
typedef void spw_loop_stage_fn(struct spw_loop *loop, struct spw_loop_stage *stage);

/* Level-triggered interest in one descriptor. Zero-initialise, then fill fn and owner. One watch per descriptor. */
struct spw_loop_watch {
    spw_loop_watch_fn *fn;
    void *owner;
    int fd;          /* set by spw_loop_watch_set */
    uint32_t events; /* wanted now; 0 = not watched */
    uint32_t index;  /* private: the loop's place for it, 0 = none */
    bool has_fd;     /* private: fd was set and not closed yet */
    bool is_open;    /* the owner knows that fd is open: it is not asked, which saves a system call */
};

/* One-shot timer on CLOCK_BOOTTIME. Zero-initialise, then fill fn and owner. */
struct spw_loop_timer {
    spw_loop_timer_fn *fn;
    void *owner;
    uint64_t at_ns;
    uint64_t order;      /* private: equal deadlines fire in the order they were set */
    uint32_t heap_index; /* private: 1-based place in the heap, 0 = not armed */
};

/* A piece of work handed to the loop thread. Zero-initialise, fill fn and owner; it is the loop's until fn runs. */
struct spw_loop_task {
    spw_loop_task_fn *fn;
    void *owner;
    struct spw_loop_task *next; /* private */
};

/* Work put off until all ready descriptors of the turn have been looked at, so that what is alike is done in one go: one
 * piece of code for many calls finds itself and its data in the processor's caches. Zero-initialise, fill fn and owner. */
struct spw_loop_stage {
    spw_loop_stage_fn *fn;
    void *owner;
    struct spw_loop_stage *next; /* private */
    bool is_due;                 /* private */
};

/* AUTO probes io_uring and falls back to epoll (one warning says why); URING fails where the kernel refuses it. Cold.
 * May run on another thread than spw_loop_run. */
enum spw_status spw_loop_new(enum spw_loop_backend wanted, struct spw_loop **out,
                             struct spw_error *err) SPW_WARN_UNUSED;
/* After spw_loop_run has returned and nobody posts any more. Tasks not run yet are dropped; descriptors stay open. */
void spw_loop_destroy(struct spw_loop *loop);

const char *spw_loop_backend_name(const struct spw_loop *loop);   /* "io_uring" or "epoll" */
const char *spw_loop_backend_reason(const struct spw_loop *loop); /* why this one, in words */

uint64_t spw_loop_now_ns(const struct spw_loop *loop); /* CLOCK_BOOTTIME at the start of this turn */
uint64_t spw_loop_lag_ns(const struct spw_loop *loop); /* longest of the last 64 turns, callbacks only */

/* Watch fd for events (replaces what was asked before; 0 = stop watching, which cannot fail). Once stopped the loop has
 * no hold on the descriptor: stop before closing it. Fails with INVALID on a closed descriptor, NO_MEMORY, or SYSTEM
 * where the descriptor cannot be polled. */
enum spw_status spw_loop_watch_set(struct spw_loop *loop, struct spw_loop_watch *watch, int fd,
                                   uint32_t events) SPW_WARN_UNUSED;
/* The same as events 0: stop watching, leave the descriptor open. */
void spw_loop_watch_stop(struct spw_loop *loop, struct spw_loop_watch *watch);
/* Stop watching and close the descriptor so that the peer sees the end at once (an armed io_uring poll would hold
 * the file open). The watch is free for reuse on return and gets no further call. Nothing for a watch never set. */
void spw_loop_watch_close(struct spw_loop *loop, struct spw_loop_watch *watch);

/* (Re-)arm: fires in the first turn whose now is at or past at_ns. Set from a timer's fn it fires in a later turn, so
 * that a timer which re-arms itself in the past does not starve descriptors. */
void spw_loop_timer_set(struct spw_loop *loop, struct spw_loop_timer *timer, uint64_t at_ns);
void spw_loop_timer_cancel(struct spw_loop *loop, struct spw_loop_timer *timer);
/* The next whole multiple of a period: what is due with the same beat is due in one turn, and an idle loop wakes less. */
static inline uint64_t spw_loop_beat_ns(const struct spw_loop *loop, uint64_t every_ns)
{
    return (spw_loop_now_ns(loop) / every_ns + 1) * every_ns;
}
static inline bool spw_loop_timer_armed(const struct spw_loop_timer *timer)
{
    return timer->heap_index != 0;
}

/* Run stage->fn before the loop waits again, after those put off before it; nothing for one that is put off already.
 * Stages that set each other on and on share the turns with descriptors and timers, which then are looked at without a
 * wait. */
void spw_loop_stage_set(struct spw_loop *loop, struct spw_loop_stage *stage);
/* Not this turn and not later, unless it is set again. */
void spw_loop_stage_cancel(struct spw_loop *loop, struct spw_loop_stage *stage);

/* From any thread: run task->fn on the loop thread, in the order posted. Wakes the loop. Never blocks, never fails. */
void spw_loop_post(struct spw_loop *loop, struct spw_loop_task *task);

/* A visit, from any thread: between two turns, while the loop waits, the visitor is the loop's thread: what belongs to
 * that thread is the visitor's until it leaves, and spw_loop_now_ns() is the visit's own. Saves two changes of threads
 * where somebody waits for a small piece of work. Never waits: false = a turn is under way or the loop does not run:
 * post instead. A visitor may set and cancel timers and stages and post, but change no watch (the back-end is waiting),
 * and is to be short: the loop's next turn waits for it. */
bool spw_loop_enter(struct spw_loop *loop) SPW_WARN_UNUSED;
void spw_loop_leave(struct spw_loop *loop);

/* Run until spw_loop_stop; returns after the turn in which it was seen. Tasks posted before are run first. A turn: wait,
 * descriptors, stages, tasks, timers, and the stages those have set. May be run again, on the same thread. spw_loop_stop
 * is async-signal-safe. */
enum spw_status spw_loop_run(struct spw_loop *loop, struct spw_error *err) SPW_WARN_UNUSED;
void spw_loop_stop(struct spw_loop *loop);

#endif
