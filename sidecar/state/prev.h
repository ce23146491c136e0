/* prev.h: former segments that are still to be drained.
 *
 * Called by: main, which lets the store read their cells and removes them when they are empty. Thread: loop thread.
 */
#ifndef SPW_STATE_PREV_H
#define SPW_STATE_PREV_H

#include <stdbool.h>
#include <stdint.h>

struct spw_state;
struct spw_prev;
struct spw_map;

struct spw_prev *spw_state_prev(struct spw_state *state); /* the first, or NULL */
struct spw_prev *spw_prev_next(struct spw_prev *prev);
struct spw_map *spw_prev_map(struct spw_prev *prev);
/* No record left in it, and nobody attached to it (or it was replaced a minute ago). */
bool spw_prev_drained(struct spw_state *state, struct spw_prev *prev, uint64_t now_ns);
void spw_prev_remove(struct spw_state *state, struct spw_prev *prev); /* unlinks both files and unmaps */

#endif
