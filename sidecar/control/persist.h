/* persist.h: a change that was made is also kept for the next start. Internal to control/.
 *
 * Owns: nothing that outlives the call. Called by: limits.c, breakers.c. Thread: begun on the loop's; the disk is waited
 * for on a thread of its own, since neither the loop nor the server's may be held up by it.
 */
#ifndef SPW_CONTROL_PERSIST_H
#define SPW_CONTROL_PERSIST_H

#include "sidecar/conf/conf_overlay.h"
#include "sidecar/control/call.h"

/* What is to be kept; the pointers of `change` may end with the function. Written in the order asked for. answer is called
 * on the loop's thread when it is on disk and noted in the configuration in use; else the call fails, and says that the change itself is in force. */
void spw_persist(struct spw_call *call, const struct spw_overlay_change *change, spw_call_fn *answer);

#endif
