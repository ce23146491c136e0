/* reader.c: see reader.h. */
#include "sidecar/store/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/store/columns.h"
#include "sidecar/store/ledger.h"

/* Columns before the payload, in all statements that give rows. */
enum {
    AT_SEQUENCE,
    AT_STATE,
    AT_REVISION,
    AT_CHANGE,
    AT_STORED,
    AT_ORDER,
    AT_ORDERS_COUNT,
    AT_COLLECTED,
    AT_PLACED,
    AT_PAYLOAD
};

#define TEXT_MAX (SPW_ASSUMPTIONS_MAX_BYTES + SPW_REQUEST_MAX_BYTES + SPW_CALLER_ID_BYTES + 256)

/* One row, copied out of the database. About 44 KB: on the heap, one for each call. */
struct row_copy {
    struct spw_flag_row row;
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    char text[TEXT_MAX];
    size_t text_used;
};

void spw_reader_init(struct spw_reader *reader)
{
    memset(reader, 0, sizeof *reader);
    pthread_mutex_init(&reader->mutex, NULL);
}

static void close_locked(struct spw_reader *reader)
{
    sqlite3_finalize(reader->next);
    sqlite3_finalize(reader->changed);
    sqlite3_finalize(reader->older);
    sqlite3_finalize(reader->newest);
    sqlite3_close(reader->db);
    reader->next = reader->changed = reader->older = reader->newest = NULL;
    reader->db = NULL;
}

void spw_reader_close(struct spw_reader *reader)
{
    pthread_mutex_lock(&reader->mutex);
    close_locked(reader);
    pthread_mutex_unlock(&reader->mutex);
}

void spw_reader_clean_up(struct spw_reader *reader)
{
    spw_reader_close(reader);
    pthread_mutex_destroy(&reader->mutex);
}

/* One statement that gives a row; `rest` follows FROM flags. */
static int prepare_row(struct spw_reader *reader, struct spw_sql *sql, const char *rest, sqlite3_stmt **out)
{
    sql->used = 0;
    spw_sql_add(sql, "SELECT sequence,flag_state,revision,change,stored_unix_ms,order_id,orders_count,"
                     "flags.tax_collected_minor,flags.placed_unix_ms,");
    spw_columns_names(sql);
    spw_sql_add(sql, " FROM flags %s", rest);
    return sql->overflow
               ? SQLITE_TOOBIG
               : sqlite3_prepare_v3(reader->db, sql->text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

static int prepare(struct spw_reader *reader)
{
    struct spw_sql *sql = calloc(1, sizeof *sql);
    if (!sql)
        return SQLITE_NOMEM;
    int rc = prepare_row(reader, sql, "WHERE sequence>?1 ORDER BY sequence LIMIT 1", &reader->next);
    if (rc == SQLITE_OK)
        rc = prepare_row(reader, sql, "WHERE change>?1 ORDER BY change LIMIT 1", &reader->changed);
    /* Each arm uses an index of its own; an OR would be a walk through the table. */
    static const char older[] =
        "WHERE sequence=(SELECT max(s) FROM (SELECT sequence AS s FROM flags WHERE quote_id=?2"
        " UNION ALL SELECT sequence FROM flags WHERE decision_id=?2"
        " UNION ALL SELECT sequence FROM flags WHERE quote_ref=?2 AND quote_ref<>''"
        " UNION ALL SELECT sequence FROM flags WHERE flag_id=?2"
        " UNION ALL SELECT sequence FROM superseded WHERE flag_id=?2"
        " UNION ALL SELECT f.sequence FROM orders o JOIN order_quotes q ON q.order_row=o.order_row"
        " JOIN flags f ON f.quote_id=q.quote_id WHERE o.order_id=?2) WHERE s<?1)";
    if (rc == SQLITE_OK)
        rc = prepare_row(reader, sql, older, &reader->older);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(reader->db, "SELECT newest_sequence, newest_change FROM ledger WHERE one=1",
                                -1, SQLITE_PREPARE_PERSISTENT, &reader->newest, NULL);
    free(sql);
    return rc;
}

enum spw_status spw_reader_open(struct spw_reader *reader, const char *file, struct spw_error *err)
{
    pthread_mutex_lock(&reader->mutex);
    /* Not SQLITE_OPEN_READONLY: a reader of a write-ahead log writes its marks into -shm. */
    int rc = sqlite3_open_v2(file, &reader->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = spw_ledger_settle(reader->db);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(reader->db, "PRAGMA query_only=ON", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = prepare(reader);
    enum spw_status status = rc == SQLITE_OK
                                 ? SPW_STATUS_OK
                                 : spw_ledger_error(err, reader->db, rc, file, "opening it for reading");
    if (rc != SQLITE_OK)
        close_locked(reader);
    pthread_mutex_unlock(&reader->mutex);
    return status;
}

/* The text of a column, kept in the copy; cut when a hand-made row is longer than any of ours. */
static const char *keep_text(struct row_copy *copy, sqlite3_stmt *statement, int column)
{
    const void *text = sqlite3_column_text(statement, column);
    size_t n = text ? (size_t)sqlite3_column_bytes(statement, column) : 0;
    size_t room = sizeof copy->text - 1 - copy->text_used;
    char *at = copy->text + copy->text_used;
    n = n < room ? n : room;
    if (n)
        memcpy(at, text, n);
    at[n] = 0;
    copy->text_used += n < room ? n + 1 : n;
    return at;
}

static void copy_row(struct row_copy *copy, sqlite3_stmt *statement)
{
    struct spw_flag_row *row = &copy->row;
    copy->text_used = 0;
    memset(row, 0, sizeof *row);
    row->sequence = (uint64_t)sqlite3_column_int64(statement, AT_SEQUENCE);
    row->state = (enum spw_flag_state)sqlite3_column_int(statement, AT_STATE);
    row->revision = (uint32_t)sqlite3_column_int64(statement, AT_REVISION);
    row->change = (uint64_t)sqlite3_column_int64(statement, AT_CHANGE);
    row->stored_unix_ms = sqlite3_column_int64(statement, AT_STORED);
    row->order_id = keep_text(copy, statement, AT_ORDER);
    row->orders_count = (uint32_t)sqlite3_column_int64(statement, AT_ORDERS_COUNT);
    row->tax_collected_minor = sqlite3_column_int64(statement, AT_COLLECTED);
    row->placed_unix_ms = sqlite3_column_int64(statement, AT_PLACED);
    int at = spw_columns_read(statement, AT_PAYLOAD, &row->record);
    const void *lines = sqlite3_column_blob(statement, at);
    size_t bytes = lines ? (size_t)sqlite3_column_bytes(statement, at) : 0;
    bytes = bytes < sizeof copy->lines ? bytes : sizeof copy->lines;
    if (bytes)
        memcpy(copy->lines, lines, bytes);
    if (row->record.lines_count > bytes / sizeof copy->lines[0])
        row->record.lines_count = (uint32_t)(bytes / sizeof copy->lines[0]);
    row->lines = copy->lines;
    row->assumptions = keep_text(copy, statement, at + 1);
    row->request_json = keep_text(copy, statement, at + 2);
    row->verified = sqlite3_column_int(statement, at + 3) != 0;
    row->unverified_reason = keep_text(copy, statement, at + 4);
}

/* Fetch one row by one of the reader's statements, its bound and, for `older`, the reference. SQLITE_ROW: it is in the
 * copy. A statement is looked at under the mutex only: the store thread replaces them with the ledger. */
static int fetch(struct spw_reader *reader, sqlite3_stmt *const *which, uint64_t bound, const char *reference,
                 struct row_copy *copy)
{
    pthread_mutex_lock(&reader->mutex);
    sqlite3_stmt *statement = *which;
    int rc = SQLITE_CANTOPEN;
    if (statement) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)bound);
        if (reference)
            sqlite3_bind_text(statement, 2, reference, -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW)
            copy_row(copy, statement);
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
    }
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

static enum spw_status read_error(int rc, const char *file, struct spw_error *err)
{
    if (rc == SQLITE_CANTOPEN)
        return spw_error_set(
            err, SPW_STATUS_NOT_READY,
            "%s: the ledger is not open: its volume is full or read-only; flags wait in their cells", file);
    return spw_ledger_error(err, NULL, rc, file, "reading flags");
}

/* What was taken must be in this ledger. Its own numbers are asked: those of spw_store_counts are published after the
 * commit, when somebody may have read the new rows already. */
static enum spw_status check_after(struct spw_reader *reader, const char *file, enum spw_reader_key key,
                                   uint64_t after, struct spw_error *err)
{
    uint64_t newest = 0;
    pthread_mutex_lock(&reader->mutex);
    int rc = reader->newest ? sqlite3_step(reader->newest) : SQLITE_CANTOPEN;
    if (rc == SQLITE_ROW)
        newest = (uint64_t)sqlite3_column_int64(reader->newest, key == SPW_READER_CHANGE);
    sqlite3_reset(reader->newest);
    pthread_mutex_unlock(&reader->mutex);
    if (rc != SQLITE_ROW)
        return read_error(rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, file, err);
    if (after <= newest)
        return SPW_STATUS_OK;
    return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                         "export after %" PRIu64 ": the newest %s is %" PRIu64
                         "; this ledger was begun anew since: export from 0 and compare flag ids",
                         after, key == SPW_READER_CHANGE ? "change" : "flag", newest);
}

enum spw_status spw_reader_export(struct spw_reader *reader, const char *file, enum spw_reader_key key,
                                  uint64_t after, uint32_t max_count, spw_flag_fn *fn, void *owner,
                                  uint64_t *next, struct spw_error *err)
{
    sqlite3_stmt *const *which = key == SPW_READER_CHANGE ? &reader->changed : &reader->next;
    uint64_t last = after;
    if (next)
        *next = after;
    enum spw_status status = check_after(reader, file, key, after, err);
    if (status != SPW_STATUS_OK)
        return status;
    struct row_copy *copy = malloc(sizeof *copy);
    if (!copy)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for one row", file);
    int rc = SQLITE_ROW;
    bool go_on = true;
    for (uint32_t i = 0; i < max_count && go_on; i++) {
        rc = fetch(reader, which, last, NULL, copy);
        if (rc != SQLITE_ROW)
            break;
        last = key == SPW_READER_CHANGE ? copy->row.change : copy->row.sequence;
        go_on = fn(owner, &copy->row);
    }
    free(copy);
    if (next)
        *next = last;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SPW_STATUS_OK : read_error(rc, file, err);
}

enum spw_status spw_reader_find(struct spw_reader *reader, const char *file, const char *reference,
                                uint32_t max_count, spw_flag_fn *fn, void *owner, struct spw_error *err)
{
    struct row_copy *copy = malloc(sizeof *copy);
    if (!copy)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for one row", file);
    uint64_t below = INT64_MAX;
    int rc = SQLITE_ROW;
    bool go_on = true;
    for (uint32_t i = 0; i < max_count && go_on; i++) {
        rc = fetch(reader, &reader->older, below, reference, copy);
        if (rc != SQLITE_ROW)
            break;
        below = copy->row.sequence;
        go_on = fn(owner, &copy->row);
    }
    free(copy);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SPW_STATUS_OK : read_error(rc, file, err);
}
