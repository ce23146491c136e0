/* rate_refresh.h: providers' published rates, fetched from time to time (fallback.refresh).
 *
 * Owns: the schedule, and the fetched tables on disk. Called by: main; control begins one through spw_state_refreshes.
 * Thread: the loop thread; a table is read and written on a thread of its own.
 *
 * A table is read whole before it takes the place of the one before: too many bad rows, or too few rows, and the one
 * before stays. It is kept beside the ledger under STORE.rates/ACCOUNT-DAY.csv, from where rate_files.h takes it, at the
 * next start too; the watch puts it in force.
 */
#ifndef SPW_RATE_REFRESH_H
#define SPW_RATE_REFRESH_H

#include "sidecar/http/decide.h"

struct spw_rate_refresher;

/* *out stays NULL where nothing is to be fetched. */
enum spw_status spw_rate_refresher_new(struct spw_loop *loop, struct spw_state *state,
                                       struct spw_decider *decider, const struct spw_conf *conf,
                                       struct spw_rate_refresher **out,
                                       struct spw_error *err) SPW_WARN_UNUSED;
/* After the loop has stopped, before the decider; NULL is fine. */
void spw_rate_refresher_destroy(struct spw_rate_refresher *refresher);

#endif
