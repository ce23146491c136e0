/* drain.c: see drain.h. */
#include "sidecar/store/drain.h"

#include <string.h>

#include "sidecar/obs/log.h"

/* The record's fault, not the volume's: it would fail again for ever. */
static bool is_record_fault(int rc)
{
    int primary = rc & 0xFF;
    return primary == SQLITE_CONSTRAINT || primary == SQLITE_TOOBIG || primary == SQLITE_MISMATCH ||
           primary == SQLITE_RANGE;
}

/* Keep what made no sense. The cell's word tells a crash re-read from a second damaged record. */
static int keep_damaged(struct spw_batch *batch, uint32_t head, size_t bytes, const char *reason)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_DAMAGED,
        "INSERT OR IGNORE INTO damaged(stored_unix_ms, segment, cell, cell_word, reason, bytes)"
        " VALUES(?1,?2,?3,?4,?5,?6)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)batch->map->generation);
    sqlite3_bind_int64(statement, 3, head);
    /* SYNC cell: relaxed: only shown. */
    sqlite3_bind_int64(statement, 4, (sqlite3_int64)spw_load_rlx(spw_cell_word_at(batch->map, head)));
    sqlite3_bind_text(statement, 5, reason, -1, SQLITE_STATIC);
    sqlite3_bind_blob(statement, 6, batch->bytes, (int)bytes, SQLITE_STATIC);
    int rc = spw_statement_run(statement);
    if (rc != SQLITE_OK)
        return rc;
    batch->damage = reason;
    if (sqlite3_changes(batch->ledger->db) > 0)
        batch->counts.damaged_count++;
    else
        batch->counts.duplicate_count++;
    return SQLITE_OK;
}

/* One record, inside its own savepoint: what it began is undone when it cannot be finished. */
static int store_bytes(struct spw_batch *batch, size_t bytes, const char **damage)
{
    struct spw_store_counts before = batch->counts;
    int rc = spw_ledger_run(batch->ledger, SPW_STATEMENT_SAVE, "SAVEPOINT record");
    if (rc != SQLITE_OK)
        return rc;
    uint32_t kind = spw_cell_kind(batch->bytes, bytes);
    if (kind == SPW_CELL_FLAG)
        rc = spw_flag_store(batch, batch->bytes, bytes, damage);
    else if (kind == SPW_CELL_ORDER)
        rc = spw_order_store(batch, batch->bytes, bytes, damage);
    else
        *damage = "it is neither a flag nor an order";
    if (is_record_fault(rc)) {
        *damage = sqlite3_errstr(rc);
        batch->counts = before;
        rc = spw_ledger_run(batch->ledger, SPW_STATEMENT_BACK, "ROLLBACK TO record");
    }
    return rc == SQLITE_OK ? spw_ledger_run(batch->ledger, SPW_STATEMENT_RELEASE, "RELEASE record") : rc;
}

static int store_cell(struct spw_batch *batch, uint32_t head)
{
    const char *damage = NULL;
    size_t bytes = 0;
    int rc = SQLITE_OK;
    if (spw_cell_read(batch->map, head, batch->bytes, sizeof batch->bytes, &bytes) != SPW_STATUS_OK)
        damage = "its chain of cells is broken";
    else
        rc = store_bytes(batch, bytes, &damage);
    if (rc != SQLITE_OK || !damage)
        return rc;
    return keep_damaged(batch, head, bytes, damage);
}

/* Should another program have written since, the numbers in the file are the ones that count. */
int spw_batch_begin(struct spw_batch *batch, const char *file, const struct spw_store_counts *counts)
{
    batch->counts = *counts;
    int rc = spw_ledger_begin(batch->ledger);
    batch->now_unix_ms = spw_wall_ms();
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_NEWEST, "SELECT newest_sequence, newest_change FROM ledger WHERE one=1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
    bool mine = (uint64_t)sqlite3_column_int64(statement, 0) == batch->counts.newest_sequence &&
                (uint64_t)sqlite3_column_int64(statement, 1) == batch->counts.newest_change;
    rc = sqlite3_reset(statement);
    uint64_t failures = batch->counts.commit_failures_count;
    if (rc == SQLITE_OK && !mine &&
        spw_ledger_counts(batch->ledger, file, &batch->counts, NULL) != SPW_STATUS_OK)
        rc = spw_ledger_failure(batch->ledger);
    batch->counts.commit_failures_count = failures;
    return rc;
}

int spw_drain_batch(struct spw_batch *batch, const char *file, const struct spw_map *map, uint32_t *cursor,
                    struct spw_store_counts *counts, bool *done)
{
    uint32_t at = *cursor;
    batch->heads_count = 0;
    *done = !spw_cell_next_ready(map, &at);
    if (*done)
        return SQLITE_OK;
    batch->map = map;
    uint64_t began_ns = spw_now_ns();
    int rc = spw_batch_begin(batch, file, counts);
    while (rc == SQLITE_OK && batch->heads_count < SPW_BATCH_MAX_COUNT &&
           spw_now_ns() - began_ns < SPW_BATCH_MAX_MS * UINT64_C(1000000)) {
        rc = store_cell(batch, at);
        batch->heads[batch->heads_count++] = at++;
        if (!spw_cell_next_ready(map, &at)) {
            *done = true;
            break;
        }
    }
    if (rc == SQLITE_OK)
        rc = spw_ledger_commit(batch->ledger, &batch->counts);
    if (rc != SQLITE_OK) {
        spw_ledger_roll_back(batch->ledger);
        return rc;
    }
    if (batch->counts.damaged_count > counts->damaged_count)
        spw_log(SPW_LOG_WARN, "store.damaged",
                "%llu cell(s) held no usable record; kept in the table damaged. The last one: %s",
                (unsigned long long)(batch->counts.damaged_count - counts->damaged_count), batch->damage);
    *counts = batch->counts;
    *cursor = at;
    return SQLITE_OK;
}

void spw_drain_free(struct spw_batch *batch)
{
    for (uint32_t i = 0; i < batch->heads_count; i++)
        spw_cell_free(batch->map, batch->heads[i]);
}
