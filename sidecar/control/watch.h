/* watch.h: who is told of a change. Internal to control/.
 *
 * Owns: nothing. Called by: record.c. Thread: the loop's.
 */
#ifndef SPW_CONTROL_WATCH_H
#define SPW_CONTROL_WATCH_H

struct spw_control;

/* The journal has more: every watcher that is not busy is sent it. */
void spw_watch_tell(struct spw_control *control);

#endif
