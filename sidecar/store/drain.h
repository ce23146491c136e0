/* drain.h: from READY cells to committed rows.
 *
 * Owns: struct spw_batch, one transaction's work. Called by: store (drain), flags and orders (the batch). Thread: the
 * store thread.
 */
#ifndef SPW_STORE_DRAIN_H
#define SPW_STORE_DRAIN_H

#include "shm/spw_cell.h"
#include "sidecar/store/ledger.h"

#define SPW_BATCH_MAX_COUNT 1000
#define SPW_BATCH_MAX_MS    50 /* a commit waits at most this long for company */
#define SPW_RECORD_MAX      (SPW_CHAIN_MAX_CELLS * SPW_CELL_DATA_BYTES)

struct spw_batch {
    struct spw_ledger *ledger;
    const struct spw_map *map;
    struct spw_store_counts counts; /* as they will be after the commit */
    int64_t now_unix_ms;
    const char *damage; /* the last record's that was kept aside: why */
    uint32_t heads[SPW_BATCH_MAX_COUNT];
    uint32_t heads_count;
    uint8_t bytes[SPW_RECORD_MAX];
};

/* Begin a transaction on top of `counts`; spw_ledger_commit ends it. */
int spw_batch_begin(struct spw_batch *batch, const char *file, const struct spw_store_counts *counts);

/* Store one batch of what is READY from cell *cursor on, commit it, move the cursor on. counts: what holds before, and
 * is written when the commit went through; then the caller frees the cells. Returns SQLite's result; on failure every
 * cell of the batch is READY as before. *done: the end of the table was reached. batch->heads_count 0: there was
 * nothing to do. */
int spw_drain_batch(struct spw_batch *batch, const char *file, const struct spw_map *map, uint32_t *cursor,
                    struct spw_store_counts *counts, bool *done);

/* The number of a change of a row: each is given once, and rises with the commits. */
static inline sqlite3_int64 spw_batch_change(struct spw_batch *batch)
{
    return (sqlite3_int64)++batch->counts.newest_change;
}

/* Free the cells of a committed batch: last, so that whoever sees one free finds its record everywhere. */
void spw_drain_free(struct spw_batch *batch);

/* One record of the batch. A non-NULL *damage says why the record itself cannot be stored; the result is then OK. */
int spw_flag_store(struct spw_batch *batch, uint8_t *bytes, size_t count, const char **damage);
int spw_order_store(struct spw_batch *batch, const uint8_t *bytes, size_t count, const char **damage);

/* An order has named this quote for the first time: every flag of it that was set aside gets a row (store.c). */
int spw_flags_recall(struct spw_batch *batch, const char *quote_id);

/* What became of a row, into the history. */
int spw_history_add(struct spw_batch *batch, int64_t sequence, const char *who, const char *from,
                    const char *to, const char *why);
/* The row's order state has changed: what reconciliation says of it begins anew (reconcile_rows.h). */
int spw_row_begin_anew(struct spw_batch *batch, int64_t sequence, enum spw_flag_state state);
/* Rows without an order that are older than after_ms become UNPLACED or ABANDONED, at most max_count of them; *count:
 * so many. */
int spw_rows_give_up(struct spw_batch *batch, int64_t after_ms, uint32_t max_count, uint32_t *count);

/* Into counts: rows that nobody has acknowledged as they are now. */
int spw_count_unacknowledged(struct spw_batch *batch);

/* Bring every row of a quote to what its orders say now. */
int spw_orders_refresh(struct spw_batch *batch, const char *quote_id);

/* Why a flag does not fit the live tables, NULL = it does. */
const char *spw_flag_doubt(const struct spw_map *map, const struct spw_flag_view *flag);

#endif
