/* store_kit.h: what the tests of the ledger share: a segment, a ledger on it, and its rows as an array. */
#ifndef SPW_TESTS_STORE_KIT_H
#define SPW_TESTS_STORE_KIT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "sidecar/store/store.h"
#include "tests/support/segment_fixture.h"

#define WATCHDOG_S 110 /* a hang ends the program; how fast it is, no test says */

struct kit {
    struct spw_fixture segment;
    struct spw_store *store;
    struct spw_store_care care;
    char file[300];
};

static inline void kit_open(struct kit *kit)
{
    struct spw_error err = {0};
    /* Instants of tests are small numbers: nothing is given up for its age unless a test says so. */
    struct spw_store_options options = {
        .file = kit->file, .map = &kit->segment.map, .poll_ms = 5, .care = kit->care};
    if (!options.care.unplaced_after_ms)
        options.care.unplaced_after_ms = INT64_MAX / 2;
    if (!options.care.stuck_after_ms)
        options.care.stuck_after_ms = INT64_MAX / 2;
    if (spw_store_open(&options, &kit->store, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
}

static inline void kit_close(struct kit *kit)
{
    spw_store_close(kit->store);
    kit->store = NULL;
}

static inline int kit_set_up_cells(void **state, uint32_t cells)
{
    struct kit *kit = calloc(1, sizeof *kit);
    struct spw_fixture_options options = {.cells = cells};
    alarm(WATCHDOG_S);
    spw_fixture_make(&kit->segment, &options);
    spw_fixture_claim(&kit->segment.map, &kit->segment);
    snprintf(kit->file, sizeof kit->file, "%s/ledger.db", kit->segment.dir);
    *state = kit;
    return 0;
}

static inline int kit_tear_down(void **state)
{
    struct kit *kit = *state;
    spw_store_close(kit->store);
    spw_fixture_remove(&kit->segment);
    free(kit);
    return 0;
}

/* Until every cell is free: everything written so far is committed. */
static inline void kit_settle(struct kit *kit)
{
    spw_store_wake(kit->store);
    while (spw_fixture_cells_busy(&kit->segment.map))
        usleep(1000);
}

static inline struct spw_store_counts kit_counts(struct kit *kit)
{
    struct spw_store_counts counts;
    spw_store_counts(kit->store, &counts);
    return counts;
}

/* A flag with the fixture's content. */
static inline void kit_flag_with(struct kit *kit, struct spw_flag_record *record, const char *request)
{
    struct spw_line_tax lines[2] = {{10000, 920}, {795, 73}};
    static uint32_t hint;
    assert_int_equal(SPW_STATUS_OK, spw_fixture_flag_write(&kit->segment.map, record, lines,
                                                           "line 1: at general rate\n", request, hint++));
}

static inline void kit_flag(struct kit *kit, const char *tag)
{
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, tag);
    kit_flag_with(kit, &record, "{\"lines\":[]}");
}

static inline void kit_order(struct kit *kit, enum spw_order_op op, const char *order_id,
                             const char *quote_tag, const char *account, int64_t tax_minor,
                             int64_t created_ms)
{
    struct spw_order_record order = {.op = op,
                                     .tax_collected_minor = tax_minor,
                                     .placed_unix_ms = created_ms,
                                     .created_unix_ms = created_ms,
                                     .currency = "USD"};
    snprintf(order.order_id, sizeof order.order_id, "%s", order_id);
    if (quote_tag)
        snprintf(order.quote_id, sizeof order.quote_id, "sq_%s", quote_tag);
    snprintf(order.account, sizeof order.account, "%s", account);
    static uint32_t hint;
    assert_int_equal(SPW_STATUS_OK, spw_fixture_order_write(&kit->segment.map, &order, hint++));
}

/* A row with texts of its own. */
struct kit_row {
    struct spw_flag_row row;
    struct spw_line_tax lines[4];
    char assumptions[128];
    char order_id[SPW_CALLER_ID_BYTES];
    char reason[128];
    char *request;
};

struct kit_rows {
    struct kit_row *row;
    size_t count, room;
};

static inline bool kit_keep_row(void *owner, const struct spw_flag_row *row)
{
    struct kit_rows *rows = owner;
    if (rows->count == rows->room) {
        rows->room = rows->room ? rows->room * 2 : 16;
        rows->row = realloc(rows->row, rows->room * sizeof *rows->row);
    }
    struct kit_row *to = &rows->row[rows->count++];
    memset(to, 0, sizeof *to);
    to->row = *row;
    for (uint32_t i = 0; i < 4 && i < row->record.lines_count; i++)
        to->lines[i] = row->lines[i];
    snprintf(to->assumptions, sizeof to->assumptions, "%s", row->assumptions);
    snprintf(to->order_id, sizeof to->order_id, "%s", row->order_id);
    snprintf(to->reason, sizeof to->reason, "%s", row->unverified_reason);
    to->request = strdup(row->request_json);
    return true;
}

static inline struct kit_rows kit_export(struct kit *kit, uint64_t after)
{
    struct kit_rows rows = {0};
    struct spw_error err = {0};
    if (spw_store_export(kit->store, after, UINT32_MAX, kit_keep_row, &rows, NULL, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    return rows;
}

static inline void kit_rows_free(struct kit_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free(rows->row[i].request);
    free(rows->row);
    memset(rows, 0, sizeof *rows);
}

/* The one row of a flag, by its tag; its row stays in `rows`. */
static inline struct kit_row *kit_row_of(struct kit_rows *rows, const char *tag)
{
    char id[SPW_ID_BYTES];
    struct kit_row *found = NULL;
    snprintf(id, sizeof id, "sf_%s", tag);
    for (size_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->row[i].row.record.flag_id, id) != 0)
            continue;
        assert_null(found);
        found = &rows->row[i];
    }
    return found;
}

/* A connection of the test's own. It waits for the writer, which may be in the middle of a batch. */
static inline sqlite3 *kit_db(struct kit *kit)
{
    sqlite3 *db = NULL;
    assert_int_equal(SQLITE_OK, sqlite3_open(kit->file, &db));
    assert_int_equal(SQLITE_OK, sqlite3_busy_timeout(db, 30000));
    return db;
}

/* One number out of the database. */
static inline int64_t kit_number(struct kit *kit, const char *sql)
{
    sqlite3 *db = kit_db(kit);
    sqlite3_stmt *statement = NULL;
    assert_int_equal(SQLITE_OK, sqlite3_prepare_v2(db, sql, -1, &statement, NULL));
    assert_int_equal(SQLITE_ROW, sqlite3_step(statement));
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return number;
}

static inline void kit_sql(struct kit *kit, const char *sql)
{
    sqlite3 *db = kit_db(kit);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

#endif
