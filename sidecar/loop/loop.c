/* loop.c: one turn after another: wait, descriptors, stages, posted tasks, timers. See loop.h.
 *
 * Owns: the table of watches, the timers, the list of posted tasks. The waiting itself is a back-end's
 * (loop_backend.h). Thread: the loop thread, but for spw_loop_post and spw_loop_stop.
 */
#include "sidecar/loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/loop/loop_backend.h"
#include "sidecar/loop/timers.h"
#include "sidecar/obs/log.h"

enum { EVENTS_PER_TURN = 256, STAGES_AT_ONCE = 32, LAG_TURNS = 64 };

struct slot {
    struct spw_loop_watch *watch; /* NULL = free */
    uint32_t generation;
    uint32_t next_free;
};

struct spw_loop {
    const struct spw_loop_backend_ops *ops;
    void *state;
    char reason[256];
    uint64_t now_ns;
    bool firing_timers;

    pthread_mutex_t turn_lock; /* held by the loop but for its waits, and by a visitor meanwhile */
    bool running;              /* under turn_lock */
    uint64_t waits_until_ns;   /* under turn_lock: the timer that the wait was cut to */

    struct slot *slots; /* slots[0] is never given out */
    uint32_t slot_count;
    uint32_t first_free;

    struct spw_timers timers;

    struct spw_loop_stage *first_stage, **last_stage; /* put off until later in this turn */

    _Atomic(struct spw_loop_task *) posted; /* newest first; reversed when taken */
    atomic_bool stopping;
    struct spw_loop_watch wake; /* eventfd */

    uint64_t lags_ns[LAG_TURNS];
    uint32_t turn;
    struct spw_loop_event events[EVENTS_PER_TURN];
};

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

/* -------- making and ending -------- */

static void drain_wake(struct spw_loop *loop, struct spw_loop_watch *watch, uint32_t events)
{
    uint64_t ignored;
    (void)loop;
    (void)events;
    if (read(watch->fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN) {
        spw_log(SPW_LOG_ERROR, "loop.wake", "reading the wake-up descriptor: %s", strerror(errno));
    }
}

static enum spw_status choose_backend(struct spw_loop *loop, enum spw_loop_backend wanted,
                                      struct spw_error *err)
{
    char note[128] = "";
    struct spw_error refusal = {0};
    if (wanted == SPW_LOOP_EPOLL) {
        loop->ops = &spw_loop_epoll_ops;
        snprintf(loop->reason, sizeof loop->reason, "epoll: asked for by configuration");
        return loop->ops->open(&loop->state, note, sizeof note, err);
    }
    loop->ops = &spw_loop_uring_ops;
    enum spw_status status = loop->ops->open(&loop->state, note, sizeof note, &refusal);
    if (status == SPW_STATUS_OK) {
        snprintf(loop->reason, sizeof loop->reason, "%s", note);
        return SPW_STATUS_OK;
    }
    if (wanted == SPW_LOOP_URING) {
        return spw_error_set(
            err, status,
            "loop: io_uring is refused here: %s; choose auto or epoll, or allow io_uring_setup, "
            "io_uring_enter and io_uring_register in the pod's seccomp profile",
            refusal.text);
    }
    loop->ops = &spw_loop_epoll_ops;
    snprintf(loop->reason, sizeof loop->reason, "epoll, because io_uring is refused: %.200s", refusal.text);
    spw_log(SPW_LOG_WARN, "loop.backend", "%s", loop->reason);
    return loop->ops->open(&loop->state, note, sizeof note, err);
}

static enum spw_status open_wake(struct spw_loop *loop, struct spw_error *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return spw_error_set(err, SPW_STATUS_SYSTEM, "loop: eventfd: %s: raise the limit of open files",
                             strerror(errno));
    }
    loop->wake.fn = drain_wake;
    enum spw_status status = spw_loop_watch_set(loop, &loop->wake, fd, SPW_LOOP_READ);
    if (status != SPW_STATUS_OK) {
        close(fd);
        return spw_error_set(err, status, "loop: cannot watch the wake-up descriptor: %s",
                             spw_status_text(status));
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_loop_new(enum spw_loop_backend wanted, struct spw_loop **out, struct spw_error *err)
{
    struct spw_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL || spw_timers_init(&loop->timers) != SPW_STATUS_OK) {
        free(loop);
        return spw_error_set(err, SPW_STATUS_NO_MEMORY,
                             "loop: no memory: raise the container's memory limit");
    }
    loop->last_stage = &loop->first_stage;
    atomic_init(&loop->posted, NULL);
    atomic_init(&loop->stopping, false);
    pthread_mutex_init(&loop->turn_lock, NULL);
    loop->now_ns = clock_ns();
    enum spw_status status = choose_backend(loop, wanted, err);
    if (status != SPW_STATUS_OK) {
        spw_timers_clean_up(&loop->timers);
        free(loop);
        return status;
    }
    status = open_wake(loop, err);
    if (status != SPW_STATUS_OK) {
        loop->ops->close(loop->state);
        spw_timers_clean_up(&loop->timers);
        free(loop->slots);
        free(loop);
        return status;
    }
    *out = loop;
    return SPW_STATUS_OK;
}

void spw_loop_destroy(struct spw_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    spw_loop_watch_close(loop, &loop->wake);
    loop->ops->close(loop->state);
    spw_timers_clean_up(&loop->timers);
    pthread_mutex_destroy(&loop->turn_lock);
    free(loop->slots);
    free(loop);
}

const char *spw_loop_backend_name(const struct spw_loop *loop)
{
    return loop->ops->name;
}

const char *spw_loop_backend_reason(const struct spw_loop *loop)
{
    return loop->reason;
}

uint64_t spw_loop_now_ns(const struct spw_loop *loop)
{
    return loop->now_ns;
}

uint64_t spw_loop_lag_ns(const struct spw_loop *loop)
{
    uint64_t longest_ns = 0;
    for (int i = 0; i < LAG_TURNS; i++) {
        longest_ns = loop->lags_ns[i] > longest_ns ? loop->lags_ns[i] : longest_ns;
    }
    return longest_ns;
}

/* -------- watches -------- */

static bool grow_slots(struct spw_loop *loop)
{
    uint32_t count = loop->slot_count == 0 ? 64 : loop->slot_count * 2;
    struct slot *slots = realloc(loop->slots, count * sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    uint32_t first_new = loop->slot_count == 0 ? 1 : loop->slot_count;
    slots[0] = (struct slot){0};
    for (uint32_t i = count - 1; i >= first_new; i--) {
        slots[i] = (struct slot){.next_free = loop->first_free};
        loop->first_free = i;
    }
    loop->slots = slots;
    loop->slot_count = count;
    return true;
}

static enum spw_status take_slot(struct spw_loop *loop, struct spw_loop_watch *watch, int fd)
{
    if (!watch->is_open && fcntl(fd, F_GETFD) < 0) {
        return SPW_STATUS_INVALID; /* io_uring would say so only in the next turn */
    }
    if (loop->first_free == 0 && !grow_slots(loop)) {
        return SPW_STATUS_NO_MEMORY;
    }
    watch->index = loop->first_free;
    loop->first_free = loop->slots[watch->index].next_free;
    loop->slots[watch->index].watch = watch;
    return SPW_STATUS_OK;
}

static void release_slot(struct spw_loop *loop, struct spw_loop_watch *watch)
{
    struct slot *slot = &loop->slots[watch->index];
    slot->watch = NULL;
    slot->generation++;
    slot->next_free = loop->first_free;
    loop->first_free = watch->index;
    watch->index = 0;
    watch->events = 0;
}

void spw_loop_watch_stop(struct spw_loop *loop, struct spw_loop_watch *watch)
{
    if (watch->index != 0) {
        loop->ops->forget(loop->state, watch->index, watch->fd);
        release_slot(loop, watch);
    }
}

enum spw_status spw_loop_watch_set(struct spw_loop *loop, struct spw_loop_watch *watch, int fd,
                                   uint32_t events)
{
    if (events == 0 || watch->fd != fd) {
        spw_loop_watch_stop(loop, watch);
    }
    if (events == 0 || (watch->index != 0 && watch->events == events)) {
        return SPW_STATUS_OK;
    }
    bool was_watched = watch->index != 0;
    if (!was_watched) {
        enum spw_status status = take_slot(loop, watch, fd);
        if (status != SPW_STATUS_OK) {
            return status;
        }
    }
    struct slot *slot = &loop->slots[watch->index];
    slot->generation++; /* what the back-end found for the old interest is stale now */
    uint64_t token = (uint64_t)slot->generation << 32 | watch->index;
    enum spw_status status = loop->ops->watch(loop->state, token, fd, events, was_watched);
    if (status != SPW_STATUS_OK) {
        if (was_watched) {
            loop->ops->forget(loop->state, watch->index, fd);
        }
        release_slot(loop, watch);
        return status;
    }
    watch->fd = fd;
    watch->has_fd = true;
    watch->events = events;
    return SPW_STATUS_OK;
}

void spw_loop_watch_close(struct spw_loop *loop, struct spw_loop_watch *watch)
{
    spw_loop_watch_stop(loop, watch);
    if (watch->has_fd) {
        close(watch->fd);
        watch->has_fd = false;
    }
}

/* -------- timers -------- */

void spw_loop_timer_set(struct spw_loop *loop, struct spw_loop_timer *timer, uint64_t at_ns)
{
    if (loop->firing_timers && at_ns <= loop->now_ns) {
        at_ns = loop->now_ns + 1;
    }
    spw_timers_set(&loop->timers, timer, at_ns);
}

void spw_loop_timer_cancel(struct spw_loop *loop, struct spw_loop_timer *timer)
{
    spw_timers_cancel(&loop->timers, timer);
}

static void fire_timers(struct spw_loop *loop)
{
    struct spw_loop_timer *timer;
    loop->firing_timers = true;
    while ((timer = spw_timers_first(&loop->timers)) != NULL && timer->at_ns <= loop->now_ns) {
        spw_timers_cancel(&loop->timers, timer);
        timer->fn(loop, timer);
    }
    loop->firing_timers = false;
}

/* -------- stages -------- */

void spw_loop_stage_set(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    if (!stage->is_due) {
        stage->is_due = true;
        stage->next = NULL;
        *loop->last_stage = stage;
        loop->last_stage = &stage->next;
    }
}

void spw_loop_stage_cancel(struct spw_loop *loop, struct spw_loop_stage *stage)
{
    struct spw_loop_stage **link = &loop->first_stage;
    if (!stage->is_due) {
        return;
    }
    while (*link != stage) {
        link = &(*link)->next;
    }
    *link = stage->next;
    if (stage->next == NULL) {
        loop->last_stage = link;
    }
    stage->is_due = false;
}

/* Stages set one another for as long as callers ask and get their answers at once: the rest waits for the next turn,
 * which has looked at the clock and at all descriptors before. */
static void run_stages(struct spw_loop *loop)
{
    for (int i = 0; i < STAGES_AT_ONCE && loop->first_stage != NULL; i++) {
        struct spw_loop_stage *stage = loop->first_stage;
        spw_loop_stage_cancel(loop, stage); /* before fn, which may set it again or free it */
        stage->fn(loop, stage);
    }
}

/* -------- work from other threads -------- */

static void wake(struct spw_loop *loop)
{
    const uint64_t one = 1;
    /* It can fail only when the counter is full, and then the loop is awake anyhow. */
    ssize_t ignored = write(loop->wake.fd, &one, sizeof one);
    (void)ignored;
}

void spw_loop_post(struct spw_loop *loop, struct spw_loop_task *task)
{
    /* SYNC loop-post: release — the task's fields and all its owner wrote before; the head read relaxed is only
     * compared and stored as next. */
    struct spw_loop_task *head = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        task->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->posted, &head, task, memory_order_release,
                                                    memory_order_relaxed));
    if (head == NULL) {
        wake(loop); /* who found the list empty wakes; everybody else's task is taken with that one */
    }
}

static void run_tasks(struct spw_loop *loop)
{
    /* SYNC loop-post: acquire — sees what the posting threads wrote before they posted. */
    struct spw_loop_task *newest = atomic_exchange_explicit(&loop->posted, NULL, memory_order_acquire);
    struct spw_loop_task *oldest = NULL;
    while (newest != NULL) {
        struct spw_loop_task *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct spw_loop_task *task = oldest;
        oldest = task->next; /* before fn, which may post or free the task */
        task->fn(loop, task);
    }
}

void spw_loop_stop(struct spw_loop *loop)
{
    /* SYNC loop-stop: release — tasks this thread posted before are seen by who sees the stop. */
    atomic_store_explicit(&loop->stopping, true, memory_order_release);
    wake(loop);
}

/* -------- visits -------- */

static uint64_t first_timer_ns(const struct spw_loop *loop)
{
    const struct spw_loop_timer *timer = spw_timers_first(&loop->timers);
    return timer == NULL ? SPW_LOOP_FOREVER : timer->at_ns;
}

bool spw_loop_enter(struct spw_loop *loop)
{
    if (pthread_mutex_trylock(&loop->turn_lock) != 0) {
        return false;
    }
    if (!loop->running) {
        pthread_mutex_unlock(&loop->turn_lock);
        return false;
    }
    loop->now_ns = clock_ns();
    return true;
}

void spw_loop_leave(struct spw_loop *loop)
{
    bool sleeps_too_long = first_timer_ns(loop) < loop->waits_until_ns || loop->first_stage != NULL;
    pthread_mutex_unlock(&loop->turn_lock);
    if (sleeps_too_long) {
        wake(loop);
    }
}

/* -------- running -------- */

static uint64_t time_to_wait_ns(struct spw_loop *loop)
{
    loop->waits_until_ns = loop->first_stage != NULL ? 0 : first_timer_ns(loop);
    if (loop->waits_until_ns == SPW_LOOP_FOREVER) {
        return SPW_LOOP_FOREVER;
    }
    uint64_t now_ns = clock_ns();
    return loop->waits_until_ns <= now_ns ? 0 : loop->waits_until_ns - now_ns;
}

static void deliver(struct spw_loop *loop, const struct spw_loop_event *event)
{
    const struct slot *slot = &loop->slots[(uint32_t)event->token];
    struct spw_loop_watch *watch = slot->watch;
    if (watch == NULL || slot->generation != (uint32_t)(event->token >> 32)) {
        return;
    }
    uint32_t events = event->events & (watch->events | SPW_LOOP_HANGUP | SPW_LOOP_ERROR);
    if (events != 0) {
        watch->fn(loop, watch, events);
    }
}

static enum spw_status turn(struct spw_loop *loop, bool *stopping, struct spw_error *err)
{
    size_t count = 0;
    uint64_t wait_ns = time_to_wait_ns(loop);
    pthread_mutex_unlock(&loop->turn_lock);
    enum spw_status status =
        loop->ops->wait(loop->state, wait_ns, loop->events, EVENTS_PER_TURN, &count, err);
    pthread_mutex_lock(&loop->turn_lock);
    if (status != SPW_STATUS_OK) {
        return status;
    }
    loop->now_ns = clock_ns();
    for (size_t i = 0; i < count; i++) {
        deliver(loop, &loop->events[i]);
    }
    run_stages(loop);
    /* SYNC loop-stop: acquire — read before the tasks are taken, so that those posted before the stop are run, and
     * after the wake-up is drained, so that a later stop finds the next wait cut short. */
    *stopping = atomic_exchange_explicit(&loop->stopping, false, memory_order_acquire);
    run_tasks(loop);
    fire_timers(loop);
    run_stages(loop);
    loop->lags_ns[loop->turn++ % LAG_TURNS] = clock_ns() - loop->now_ns;
    return SPW_STATUS_OK;
}

enum spw_status spw_loop_run(struct spw_loop *loop, struct spw_error *err)
{
    enum spw_status status = loop->ops->begin(loop->state, err);
    bool stopping = false;
    pthread_mutex_lock(&loop->turn_lock);
    loop->running = true;
    while (status == SPW_STATUS_OK && !stopping) {
        status = turn(loop, &stopping, err);
    }
    loop->running = false;
    pthread_mutex_unlock(&loop->turn_lock);
    return status;
}
