/* upkeep.h: what the store thread does from time to time: give up, forget, count, warn.
 *
 * Owns: struct spw_upkeep. Called by: store. Thread: the store thread, inside a transaction.
 */
#ifndef SPW_STORE_UPKEEP_H
#define SPW_STORE_UPKEEP_H

#include "sidecar/store/drain.h"

#define SPW_UPKEEP_MAX_COUNT 500 /* rows changed in one turn: cells wait meanwhile */

struct spw_upkeep {
    struct spw_store_care care;
    uint64_t checked_change; /* rows changed since are looked at for orphans */
    int64_t whole_at_ms;     /* CLOCK_MONOTONIC: the next look at all of them */
    bool alert_on;
    int64_t oldest_pending_unix_ms; /* found at the last turn, and the next */
    int64_t oldest_unacknowledged_unix_ms;
};

void spw_upkeep_init(struct spw_upkeep *upkeep, const struct spw_store_care *care);
/* The same while it runs: what it has counted stays. */
void spw_upkeep_care_set(struct spw_upkeep *upkeep, const struct spw_store_care *care);
/* One turn. *more: there is more to change, come again soon. */
int spw_upkeep_run(struct spw_upkeep *upkeep, struct spw_batch *batch, int64_t now_ms, bool *more);
/* After the commit: what is worth a line of the log. before: as was published last. */
void spw_upkeep_tell(const struct spw_store_counts *before, const struct spw_store_counts *after);

#endif
