/* placed.h: orders as they are placed, counted by account and by what their quote was answered with.
 *
 * Owns: struct spw_placed. Called by: store.c (which owns one), upkeep.c (counts), the loop thread (notes). Thread: notes by
 * the loop thread, counting by the store thread, reading by any under the store's mutex.
 *
 * A fallback's account and type are in its row. A live quote has no row: the doors note its id and account in a table of
 * single words, where newer quotes push out older ones; so an order that says no account, of a live quote that was pushed
 * out or answered before the start, is counted under no account, unless there is only one.
 */
#ifndef SPW_STORE_PLACED_H
#define SPW_STORE_PLACED_H

#include "sidecar/store/ledger.h"
#include "sidecar/store/store.h"

#define SPW_PLACED_NOTES_COUNT                                                                               \
    65536u /* 512 KiB: some minutes of quotes at their peak rate, hours of them otherwise */

struct spw_placed {
    uint64_t notes[SPW_PLACED_NOTES_COUNT]; /* {hash of the quote id:56 | account index + 1:8} */
    int64_t counted_row;                    /* orders up to this row are counted */
    struct spw_store_watched counts;
};

void spw_placed_note(struct spw_placed *placed, const char *quote_id, uint32_t account_index);
/* The ledger was opened: orders that it holds already are counted no more. */
int spw_placed_begin(struct spw_placed *placed, struct spw_ledger *ledger);
/* Into counts: orders that were stored since. Returns SQLite's result. */
int spw_placed_count(struct spw_placed *placed, struct spw_ledger *ledger, const struct spw_map *map,
                     struct spw_store_watched *counts);

#endif
