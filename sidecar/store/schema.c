/* schema.c: see schema.h.
 *
 *   ledger            one row: identity, newest sequence and change, dropped copies
 *   flags             one row a decision, and one more for each further answer of it that was ordered from; in commit
 *                     order; finance reads this one
 *   superseded        flags that have no row: another flag of the same decision stands, and no order names them
 *   orders            one row an order, what holds for it now
 *   order_quotes      every quote an order was ever placed from
 *   abandoned         quotes of which the caller said that no order will come
 *   history           what became of a flag's row: when, by whom, from what, to what, why
 *   acknowledgements  how far each consumer has come
 *   damaged           records that made no sense, byte for byte
 *   names             code -> word for the integer columns of flags (noun: decision, type, cause, match, ...)
 */
#include "sidecar/store/schema.h"

#include <stdbool.h>
#include <stdio.h>

#include "shm/spw_quote.h"
#include "sidecar/store/columns.h"
#include "sidecar/store/ledger.h"
#include "sidecar/store/row.h"

static const char small_tables[] =
    "CREATE TABLE ledger(one INTEGER PRIMARY KEY CHECK(one = 1), ledger_id TEXT NOT NULL, begun_unix_ms "
    "INTEGER NOT NULL,"
    " newest_sequence INTEGER NOT NULL, newest_change INTEGER NOT NULL, duplicate_count INTEGER NOT NULL);"
    "INSERT INTO ledger VALUES(1, lower(hex(randomblob(16))), CAST(strftime('%s','now') AS INTEGER) * 1000, "
    "0, 0, 0);"
    "CREATE TABLE orders(order_row INTEGER PRIMARY KEY, order_id TEXT NOT NULL, account TEXT NOT NULL,"
    " order_state INTEGER NOT NULL, quote_id TEXT NOT NULL, currency TEXT NOT NULL,"
    " tax_collected_minor INTEGER NOT NULL, placed_unix_ms INTEGER NOT NULL, placed_created_unix_ms INTEGER "
    "NOT NULL,"
    " cancelled_created_unix_ms INTEGER NOT NULL, UNIQUE(order_id, account));"
    "CREATE TABLE order_quotes(order_row INTEGER NOT NULL, quote_id TEXT NOT NULL, PRIMARY KEY(order_row, "
    "quote_id))"
    " WITHOUT ROWID;"
    "CREATE INDEX order_quotes_quote ON order_quotes(quote_id);"
    "CREATE TABLE acknowledgements(consumer TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
    " acknowledged_unix_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE damaged(damaged_row INTEGER PRIMARY KEY, stored_unix_ms INTEGER NOT NULL, segment INTEGER "
    "NOT NULL,"
    " cell INTEGER NOT NULL, cell_word INTEGER NOT NULL, reason TEXT NOT NULL, bytes BLOB NOT NULL,"
    " UNIQUE(segment, cell, cell_word));"
    "CREATE TABLE names(noun TEXT NOT NULL, code INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY(noun, "
    "code))"
    " WITHOUT ROWID;"
    "INSERT INTO names "
    "VALUES('flag_state',0,'provisional'),('flag_state',1,'confirmed'),('flag_state',2,'cancelled'),"
    "('flag_state',3,'superseded'),('order_state',0,'never placed'),('order_state',1,'placed'),"
    "('order_state',2,'cancelled'),('origin',0,'segment'),('origin',1,'loop');";

static const char flag_indexes[] = "CREATE UNIQUE INDEX flags_flag ON flags(flag_id);"
                                   "CREATE INDEX flags_decision ON flags(decision_id, account);"
                                   "CREATE UNIQUE INDEX flags_provisional ON flags(decision_id, account)"
                                   " WHERE flag_state = 0;"
                                   "CREATE UNIQUE INDEX flags_change ON flags(change);"
                                   "CREATE INDEX flags_quote ON flags(quote_id);"
                                   "CREATE INDEX flags_reference ON flags(quote_ref) WHERE quote_ref <> '';"
                                   "CREATE INDEX flags_state ON flags(flag_state);"
                                   "CREATE UNIQUE INDEX superseded_flag ON superseded(flag_id);"
                                   "CREATE INDEX superseded_quote ON superseded(quote_id);"
                                   "CREATE INDEX superseded_sequence ON superseded(sequence);";

static int run(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int make_flag_tables(sqlite3 *db)
{
    static struct spw_sql sql; /* 8 KB; the ledger is opened by one thread at a time */
    sql.used = 0;
    sql.overflow = false;
    spw_sql_add(
        &sql, "CREATE TABLE flags(sequence INTEGER PRIMARY KEY, flag_state INTEGER NOT NULL,"
              " revision INTEGER NOT NULL, change INTEGER NOT NULL, stored_unix_ms INTEGER NOT NULL,"
              " changed_unix_ms INTEGER NOT NULL,"
              " order_id TEXT NOT NULL DEFAULT '', orders_count INTEGER NOT NULL DEFAULT 0,"
              " tax_collected_minor INTEGER NOT NULL DEFAULT 0, placed_unix_ms INTEGER NOT NULL DEFAULT 0, ");
    spw_columns_define(&sql);
    spw_sql_add(&sql,
                ");CREATE TABLE superseded(superseded_row INTEGER PRIMARY KEY, sequence INTEGER NOT NULL,"
                " why TEXT NOT NULL, set_aside_unix_ms INTEGER NOT NULL, ");
    spw_columns_define(&sql);
    spw_sql_add(&sql, ");");
    int rc = sql.overflow ? SQLITE_TOOBIG : run(db, sql.text);
    return rc == SQLITE_OK ? run(db, flag_indexes) : rc;
}

static int add_names(sqlite3 *db, const char *noun, const char *(*name)(uint32_t), uint32_t count)
{
    sqlite3_stmt *insert = NULL;
    int rc = sqlite3_prepare_v2(db, "INSERT INTO names VALUES(?1,?2,?3)", -1, &insert, NULL);
    for (uint32_t code = 0; code < count && rc == SQLITE_OK; code++) {
        sqlite3_bind_text(insert, 1, noun, -1, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 2, code);
        sqlite3_bind_text(insert, 3, name(code), -1, SQLITE_STATIC);
        rc = spw_statement_run(insert);
    }
    sqlite3_finalize(insert);
    return rc;
}

static int make_version_1(sqlite3 *db)
{
    static const struct {
        const char *noun;
        const char *(*name)(uint32_t);
        uint32_t count;
    } table[] = {
        {"type", spw_fallback_name, SPW_FALLBACK_COUNT},  {"cause", spw_cause_name, SPW_CAUSE_COUNT},
        {"match", spw_match_name, SPW_MATCH_COUNT},       {"rounding", spw_rounding_name, SPW_ROUNDING_COUNT},
        {"purpose", spw_purpose_name, SPW_PURPOSE_COUNT},
    };
    int rc = run(db, small_tables);
    if (rc == SQLITE_OK)
        rc = make_flag_tables(db);
    for (size_t i = 0; i < sizeof table / sizeof table[0] && rc == SQLITE_OK; i++)
        rc = add_names(db, table[i].noun, table[i].name, table[i].count);
    return rc;
}

/* ---- from version 1 to 2: reconciliation and filing, abandoned quotes, retention ---- */

static const char to_version_2[] =
    "ALTER TABLE flags ADD COLUMN reconcile_state INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN live_known INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN live_tax_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN variance_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN rounding_noise_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN rate_variance_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN base_variance_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN nexus_variance_minor INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN reconcile_attempts INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN reconcile_next_unix_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN reconcile_error TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN reconciled_unix_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN filing_state INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN filing_attempts INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN filing_next_unix_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE flags ADD COLUMN filing_error TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN document_id TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN decision TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN note TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN decided_by TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE flags ADD COLUMN purged_unix_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE acknowledgements ADD COLUMN change INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE ledger ADD COLUMN removed_sequence INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE abandoned(quote_id TEXT PRIMARY KEY, abandoned_unix_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE history(history_row INTEGER PRIMARY KEY, sequence INTEGER NOT NULL,"
    " at_unix_ms INTEGER NOT NULL, who TEXT NOT NULL, from_state TEXT NOT NULL, to_state TEXT NOT NULL,"
    " why TEXT NOT NULL);"
    "CREATE INDEX history_sequence ON history(sequence);"
    "UPDATE flags SET reconcile_state=1 WHERE flag_state=1;"
    "DROP INDEX flags_provisional;"
    "CREATE UNIQUE INDEX flags_unnamed ON flags(decision_id, account) WHERE flag_state IN (0,4,5);"
    "CREATE INDEX flags_provisional_age ON flags(created_unix_ms) WHERE flag_state=0;"
    "CREATE INDEX flags_reconcile ON flags(reconcile_state, sequence) WHERE reconcile_state<>0;"
    "CREATE INDEX flags_pending ON flags(placed_unix_ms) WHERE reconcile_state=1;"
    "CREATE INDEX flags_filing ON flags(placed_unix_ms)"
    " WHERE filing_state IN (1,2,4) AND filing_next_unix_ms<9223372036854775807;"
    "CREATE INDEX flags_reconciled ON flags(reconciled_unix_ms) WHERE reconciled_unix_ms<>0;"
    "CREATE INDEX orders_placed ON orders(placed_created_unix_ms);"
    "INSERT INTO names VALUES('flag_state',4,'abandoned'),('flag_state',5,'unplaced'),('origin',2,'import');";

static int upgrade_to_2(sqlite3 *db)
{
    int rc = run(db, to_version_2);
    if (rc == SQLITE_OK)
        rc = add_names(db, "reconcile_state", spw_reconcile_state_name, SPW_RECONCILE_STATES);
    return rc == SQLITE_OK ? add_names(db, "filing_state", spw_filing_state_name, SPW_FILING_STATES) : rc;
}

/* ---- from version 2 to 3: what was absorbed on a day is added up without reading the day's other rows ---- */

static const char to_version_3[] = "CREATE INDEX flags_absorbed ON flags(currency, reconciled_unix_ms, "
                                   "variance_minor) WHERE reconcile_state=3;";

/* All or nothing: the version is written in the same transaction as the tables. A new file takes the same way as an old
 * one, so that both end with the same tables. */
static int bring_up(sqlite3 *db, sqlite3_int64 from)
{
    char version[96];
    snprintf(version, sizeof version, "PRAGMA user_version=%d; PRAGMA application_id=%d", SPW_SCHEMA_VERSION,
             SPW_SCHEMA_APPLICATION);
    int rc = run(db, "BEGIN IMMEDIATE");
    if (rc != SQLITE_OK)
        return rc;
    if (from < 1)
        rc = make_version_1(db);
    if (rc == SQLITE_OK && from < 2)
        rc = upgrade_to_2(db);
    if (rc == SQLITE_OK && from < 3)
        rc = run(db, to_version_3);
    if (rc == SQLITE_OK)
        rc = run(db, version);
    if (rc == SQLITE_OK)
        rc = run(db, "COMMIT");
    if (rc != SQLITE_OK)
        (void)run(db, "ROLLBACK"); /* fails when the failure itself has rolled back already */
    return rc;
}

static int number(sqlite3 *db, const char *sql, sqlite3_int64 *out)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Do the tables have the columns this version works with? */
static int tables_are_there(sqlite3 *db)
{
    static struct spw_sql sql;
    static const char *const table[] = {"flags", "superseded"};
    int rc = SQLITE_OK;
    sqlite3_stmt *statement = NULL;
    for (int i = 0; i < 2 && rc == SQLITE_OK; i++) {
        sql.used = 0;
        sql.overflow = false;
        spw_sql_add(&sql, "SELECT sequence,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, " FROM %s", table[i]);
        rc = sqlite3_prepare_v2(db, sql.text, -1, &statement, NULL);
        sqlite3_finalize(statement);
    }
    static struct spw_sql row;
    row.used = 0;
    row.overflow = false;
    spw_row_select(&row, "");
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(db, row.text, -1, &statement, NULL);
        sqlite3_finalize(statement);
    }
    static const char *const other[] = {
        "SELECT newest_sequence, newest_change, duplicate_count FROM ledger WHERE one=1",
        "SELECT change FROM flags",
        "SELECT order_row, order_id, account, order_state, quote_id, currency FROM orders",
        "SELECT tax_collected_minor, placed_unix_ms FROM orders",
        "SELECT placed_created_unix_ms, cancelled_created_unix_ms FROM orders",
        "SELECT order_row, quote_id FROM order_quotes",
        "SELECT consumer, sequence, change FROM acknowledgements",
        "SELECT removed_sequence FROM ledger",
        "SELECT quote_id FROM abandoned",
        "SELECT sequence, at_unix_ms, who, from_state, to_state, why FROM history",
        "SELECT segment, cell, cell_word, reason, bytes FROM damaged",
    };
    for (size_t i = 0; i < sizeof other / sizeof other[0] && rc == SQLITE_OK; i++) {
        rc = sqlite3_prepare_v2(db, other[i], -1, &statement, NULL);
        sqlite3_finalize(statement);
    }
    return rc;
}

enum spw_status spw_schema_ensure(sqlite3 *db, const char *file, struct spw_error *err)
{
    sqlite3_int64 version = 0, application = 0, tables = 0;
    int rc = number(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK)
        rc = number(db, "PRAGMA application_id", &application);
    if (rc == SQLITE_OK)
        rc = number(db, "SELECT count(*) FROM sqlite_schema", &tables);
    if (rc != SQLITE_OK)
        return spw_ledger_error(err, db, rc, file, "reading its version");
    if (version == 0 && application == 0 && tables == 0) {
        rc = bring_up(db, 0);
        return rc == SQLITE_OK ? SPW_STATUS_OK : spw_ledger_error(err, db, rc, file, "making its tables");
    }
    if (application != SPW_SCHEMA_APPLICATION)
        return spw_error_set(
            err, SPW_STATUS_INVALID,
            "%s: a database of another program (application id %lld); name a file of its own for the "
            "ledger",
            file, application);
    if (version > SPW_SCHEMA_VERSION)
        return spw_error_set(
            err, SPW_STATUS_VERSION_MISMATCH,
            "%s: written by a newer spillwayd (schema %lld, this one knows %d); run that version, or "
            "name another file",
            file, version, SPW_SCHEMA_VERSION);
    if (version >= 1 && version < SPW_SCHEMA_VERSION)
        rc = bring_up(db, version);
    if (rc == SQLITE_OK)
        rc = version >= 1 ? tables_are_there(db) : SQLITE_ERROR;
    if (rc == SQLITE_ERROR)
        return spw_error_set(err, SPW_STATUS_CORRUPT, "%s: says schema %lld and lacks its tables", file,
                             version);
    return rc == SQLITE_OK ? SPW_STATUS_OK : spw_ledger_error(err, db, rc, file, "reading its tables");
}
