/* change.h: a replay's `set`: the change of a limit, a breaker or a switch, as the control API makes it.
 *
 * Owns: nothing. Called by: engine.c. Thread: one.
 */
#ifndef SPW_REPLAY_CHANGE_H
#define SPW_REPLAY_CHANGE_H

#include "sidecar/replay/event.h"
#include "sidecar/state/state.h"

/* All of it, or nothing: on failure err says field, fault and remedy. *version: of the account, afterwards. */
enum spw_status spw_replay_change(struct spw_state *state, const char *account,
                                  const struct spw_replay_change *change, uint64_t now_ns, uint64_t *version,
                                  struct spw_error *err) SPW_WARN_UNUSED;
/* The switches of all accounts of a segment: the others of a change are not looked at. */
enum spw_status spw_replay_change_all(struct spw_state *state, const struct spw_replay_change *change,
                                      struct spw_error *err) SPW_WARN_UNUSED;

#endif
