/* reader.c: see reader.h. */
#include "sidecar/store/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/store/columns.h"
#include "sidecar/store/ledger.h"
#include "sidecar/store/row.h"

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
    sqlite3_finalize(reader->in_state);
    sqlite3_finalize(reader->history);
    sqlite3_finalize(reader->orders);
    sqlite3_finalize(reader->all_orders);
    sqlite3_close(reader->db);
    reader->next = reader->changed = reader->older = reader->newest = NULL;
    reader->in_state = reader->history = NULL;
    reader->orders = reader->all_orders = NULL;
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
    spw_row_select(sql, rest);
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
    static const char in_state[] = "WHERE reconcile_state=?3 AND reconcile_state<>0 AND sequence>?1 AND"
                                   " (?2='' OR account=?2) AND flags.placed_unix_ms>=?4 AND"
                                   " (?5=0 OR flags.placed_unix_ms<?5) ORDER BY sequence LIMIT 1";
    if (rc == SQLITE_OK)
        rc = prepare_row(reader, sql, in_state, &reader->in_state);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(reader->db,
                                "SELECT history_row, at_unix_ms, who, from_state, to_state, why FROM history"
                                " WHERE sequence=(SELECT sequence FROM flags WHERE flag_id=?2) AND"
                                " history_row>?1 ORDER BY history_row LIMIT 1",
                                -1, SQLITE_PREPARE_PERSISTENT, &reader->history, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(
            reader->db,
            "SELECT o.order_id, o.tax_collected_minor, o.placed_unix_ms FROM order_quotes q"
            " JOIN orders o ON o.order_row=q.order_row WHERE q.quote_id=?1 AND"
            " o.quote_id=?1 AND o.order_state=1 ORDER BY o.placed_unix_ms, o.order_id"
            " LIMIT ?2",
            -1, SQLITE_PREPARE_PERSISTENT, &reader->orders, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(
            reader->db,
            "SELECT order_row, order_id, account, order_state, quote_id, currency, tax_collected_minor,"
            " placed_unix_ms, ifnull((SELECT flag_id FROM flags f WHERE f.quote_id=o.quote_id ORDER BY "
            "sequence"
            " LIMIT 1),'') FROM orders o WHERE order_row=(SELECT CASE ?2 WHEN '' THEN (SELECT min(order_row)"
            " FROM orders WHERE order_row>?1) ELSE (SELECT min(order_row) FROM orders WHERE order_id=?2 AND"
            " order_row>?1) END)",
            -1, SQLITE_PREPARE_PERSISTENT, &reader->all_orders, NULL);
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

/* The orders of a row that has several. */
static int fetch_orders(struct spw_reader *reader, struct spw_row_copy *copy)
{
    struct spw_flag_row *row = &copy->row;
    int rc;
    row->orders = copy->orders;
    row->orders_listed = 0;
    if (row->orders_count < 2)
        return SQLITE_ROW;
    sqlite3_bind_text(reader->orders, 1, row->record.quote_id, -1, SQLITE_STATIC);
    sqlite3_bind_int(reader->orders, 2, SPW_ORDERS_LISTED_MAX);
    while ((rc = sqlite3_step(reader->orders)) == SQLITE_ROW && row->orders_listed < SPW_ORDERS_LISTED_MAX) {
        struct spw_order_row *order = &copy->orders[row->orders_listed++];
        const char *id = (const char *)sqlite3_column_text(reader->orders, 0);
        snprintf(order->order_id, sizeof order->order_id, "%s", id ? id : "");
        order->tax_collected_minor = sqlite3_column_int64(reader->orders, 1);
        order->placed_unix_ms = sqlite3_column_int64(reader->orders, 2);
    }
    sqlite3_reset(reader->orders);
    sqlite3_clear_bindings(reader->orders);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_ROW : rc;
}

/* Fetch one row by one of the reader's statements, its bound and, for `older`, the reference. SQLITE_ROW: it is in the
 * copy. A statement is looked at under the mutex only: the store thread replaces them with the ledger. */
static int fetch(struct spw_reader *reader, sqlite3_stmt *const *which, uint64_t bound, const char *reference,
                 struct spw_row_copy *copy)
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
            spw_row_read(copy, statement);
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
        if (rc == SQLITE_ROW)
            rc = fetch_orders(reader, copy);
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
    struct spw_row_copy *copy = malloc(sizeof *copy);
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
    struct spw_row_copy *copy = malloc(sizeof *copy);
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

static int fetch_in_state(struct spw_reader *reader, const struct spw_rows_filter *filter, uint64_t after,
                          struct spw_row_copy *copy)
{
    pthread_mutex_lock(&reader->mutex);
    sqlite3_stmt *statement = reader->in_state;
    int rc = SQLITE_CANTOPEN;
    if (statement) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)after);
        sqlite3_bind_text(statement, 2, filter->account ? filter->account : "", -1, SQLITE_STATIC);
        sqlite3_bind_int(statement, 3, (int)filter->state);
        sqlite3_bind_int64(statement, 4, filter->placed_from_unix_ms);
        sqlite3_bind_int64(statement, 5, filter->placed_until_unix_ms);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW)
            spw_row_read(copy, statement);
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
        if (rc == SQLITE_ROW)
            rc = fetch_orders(reader, copy);
    }
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

enum spw_status spw_reader_rows(struct spw_reader *reader, const char *file,
                                const struct spw_rows_filter *filter, uint64_t after, uint32_t max_count,
                                spw_flag_fn *fn, void *owner, uint64_t *next, struct spw_error *err)
{
    struct spw_row_copy *copy = malloc(sizeof *copy);
    if (!copy)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "%s: no memory for one row", file);
    int rc = SQLITE_ROW;
    bool go_on = true;
    for (uint32_t i = 0; i < max_count && go_on; i++) {
        rc = fetch_in_state(reader, filter, after, copy);
        if (rc != SQLITE_ROW)
            break;
        after = copy->row.sequence;
        go_on = fn(owner, &copy->row);
    }
    free(copy);
    if (next)
        *next = after;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SPW_STATUS_OK : read_error(rc, file, err);
}

/* A row of the history with texts of its own. */
struct history_copy {
    int64_t row;
    struct spw_history_row at;
    char who[SPW_WHO_BYTES], from[64], to[64], why[SPW_NOTE_BYTES];
};

static void keep_column(sqlite3_stmt *statement, int column, char *out, size_t room)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    snprintf(out, room, "%s", text ? text : "");
}

static int fetch_history(struct spw_reader *reader, const char *flag_id, struct history_copy *copy)
{
    pthread_mutex_lock(&reader->mutex);
    sqlite3_stmt *statement = reader->history;
    int rc = SQLITE_CANTOPEN;
    if (statement) {
        sqlite3_bind_int64(statement, 1, copy->row);
        sqlite3_bind_text(statement, 2, flag_id, -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            copy->row = sqlite3_column_int64(statement, 0);
            copy->at.at_unix_ms = sqlite3_column_int64(statement, 1);
            keep_column(statement, 2, copy->who, sizeof copy->who);
            keep_column(statement, 3, copy->from, sizeof copy->from);
            keep_column(statement, 4, copy->to, sizeof copy->to);
            keep_column(statement, 5, copy->why, sizeof copy->why);
        }
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
    }
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

enum spw_status spw_reader_history(struct spw_reader *reader, const char *file, const char *flag_id,
                                   spw_history_fn *fn, void *owner, struct spw_error *err)
{
    struct history_copy copy = {0};
    copy.at = (struct spw_history_row){.who = copy.who, .from = copy.from, .to = copy.to, .why = copy.why};
    int rc;
    while ((rc = fetch_history(reader, flag_id, &copy)) == SQLITE_ROW && fn(owner, &copy.at)) {
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SPW_STATUS_OK : read_error(rc, file, err);
}

static int fetch_order(struct spw_reader *reader, const char *order_id, uint64_t after,
                       struct spw_order_view *out)
{
    pthread_mutex_lock(&reader->mutex);
    sqlite3_stmt *statement = reader->all_orders;
    int rc = SQLITE_CANTOPEN;
    if (statement) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)after);
        sqlite3_bind_text(statement, 2, order_id ? order_id : "", -1, SQLITE_STATIC);
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            out->row = (uint64_t)sqlite3_column_int64(statement, 0);
            keep_column(statement, 1, out->order_id, sizeof out->order_id);
            keep_column(statement, 2, out->account, sizeof out->account);
            out->state = (enum spw_order_state)((uint32_t)sqlite3_column_int(statement, 3) % 3);
            keep_column(statement, 4, out->quote_id, sizeof out->quote_id);
            keep_column(statement, 5, out->currency, sizeof out->currency);
            out->tax_collected_minor = sqlite3_column_int64(statement, 6);
            out->placed_unix_ms = sqlite3_column_int64(statement, 7);
            keep_column(statement, 8, out->flag_id, sizeof out->flag_id);
        }
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
    }
    pthread_mutex_unlock(&reader->mutex);
    return rc;
}

enum spw_status spw_reader_orders(struct spw_reader *reader, const char *file, const char *order_id,
                                  uint64_t after, uint32_t max_count, spw_order_fn *fn, void *owner,
                                  struct spw_error *err)
{
    struct spw_order_view order = {.row = after};
    int rc = SQLITE_ROW;
    bool go_on = true;
    for (uint32_t i = 0; i < max_count && go_on; i++) {
        rc = fetch_order(reader, order_id, order.row, &order);
        if (rc != SQLITE_ROW)
            break;
        go_on = fn(owner, &order);
    }
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SPW_STATUS_OK : read_error(rc, file, err);
}
