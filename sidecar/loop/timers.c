/* timers.c: the loop's timers in order. See timers.h. */
#include "sidecar/loop/timers.h"

#include <stdbool.h>
#include <stdlib.h>

#include "sidecar/obs/log.h"

enum { FIRST_CAPACITY = 256 };

static bool earlier(const struct spw_loop_timer *a, const struct spw_loop_timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void place(struct spw_timers *timers, uint32_t index, struct spw_loop_timer *timer)
{
    timers->heap[index] = timer;
    timer->heap_index = index;
}

static void sift_up(struct spw_timers *timers, struct spw_loop_timer *timer, uint32_t index)
{
    while (index > 1 && earlier(timer, timers->heap[index / 2])) {
        place(timers, index, timers->heap[index / 2]);
        index /= 2;
    }
    place(timers, index, timer);
}

static void sift_down(struct spw_timers *timers, struct spw_loop_timer *timer, uint32_t index)
{
    for (;;) {
        uint32_t child = index * 2;
        if (child > timers->count) {
            break;
        }
        if (child < timers->count && earlier(timers->heap[child + 1], timers->heap[child])) {
            child++;
        }
        if (!earlier(timers->heap[child], timer)) {
            break;
        }
        place(timers, index, timers->heap[child]);
        index = child;
    }
    place(timers, index, timer);
}

static bool grow(struct spw_timers *timers, uint32_t capacity)
{
    size_t bytes =
        ((size_t)capacity + 1) * sizeof *timers->heap; /* NOLINT(bugprone-sizeof-expression): pointers */
    struct spw_loop_timer **heap = realloc(timers->heap, bytes);
    if (heap == NULL) {
        return false;
    }
    timers->heap = heap;
    timers->capacity = capacity;
    return true;
}

enum spw_status spw_timers_init(struct spw_timers *timers)
{
    *timers = (struct spw_timers){0};
    return grow(timers, FIRST_CAPACITY) ? SPW_STATUS_OK : SPW_STATUS_NO_MEMORY;
}

void spw_timers_clean_up(struct spw_timers *timers)
{
    for (uint32_t i = 1; i <= timers->count; i++) {
        timers->heap[i]->heap_index = 0;
    }
    free(timers->heap);
    *timers = (struct spw_timers){0};
}

void spw_timers_set(struct spw_timers *timers, struct spw_loop_timer *timer, uint64_t at_ns)
{
    spw_timers_cancel(timers, timer);
    if (timers->count == timers->capacity && !grow(timers, timers->capacity * 2)) {
        spw_log(SPW_LOG_ERROR, "loop.memory", "no memory for %u timers: raise the container's memory limit",
                timers->capacity * 2);
        abort();
    }
    timer->at_ns = at_ns;
    timer->order = timers->next_order++;
    timers->count++;
    sift_up(timers, timer, timers->count);
}

void spw_timers_cancel(struct spw_timers *timers, struct spw_loop_timer *timer)
{
    uint32_t index = timer->heap_index;
    if (index == 0) {
        return;
    }
    timer->heap_index = 0;
    struct spw_loop_timer *last = timers->heap[timers->count];
    timers->count--;
    if (last == timer) {
        return;
    }
    if (index > 1 && earlier(last, timers->heap[index / 2])) {
        sift_up(timers, last, index);
    } else {
        sift_down(timers, last, index);
    }
}

struct spw_loop_timer *spw_timers_first(const struct spw_timers *timers)
{
    return timers->count == 0 ? NULL : timers->heap[1];
}
