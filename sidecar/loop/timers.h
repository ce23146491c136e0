/* timers.h: the loop's timers in order: a binary heap of pointers, earliest first.
 *
 * Owns: the heap's array; the timers belong to whoever embeds them. Called by: loop.c only. Thread: the loop thread.
 */
#ifndef SPW_LOOP_TIMERS_H
#define SPW_LOOP_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#include "sidecar/loop/loop.h"

struct spw_timers {
    struct spw_loop_timer *
        *heap; /* heap[1..count]; heap[0] stays unused so that index 0 can mean "not armed" */
    uint32_t count;
    uint32_t capacity;
    uint64_t next_order; /* equal deadlines fire in the order they were set */
};

enum spw_status spw_timers_init(struct spw_timers *timers) SPW_WARN_UNUSED;
void spw_timers_clean_up(struct spw_timers *timers);

/* Arm or re-arm. Never fails: a heap that cannot grow by a few hundred bytes ends the process with a message. */
void spw_timers_set(struct spw_timers *timers, struct spw_loop_timer *timer, uint64_t at_ns);
void spw_timers_cancel(struct spw_timers *timers, struct spw_loop_timer *timer);

/* The earliest armed timer, NULL if none. */
struct spw_loop_timer *spw_timers_first(const struct spw_timers *timers);

#endif
