/* ledger.h: the writer's connection to the database: opening, transactions, statements, and setting a damaged file
 * aside.
 *
 * Owns: struct spw_ledger. Called by: store, drain, flags, orders. Thread: the one that opens it, then the store
 * thread; never two at once.
 */
#ifndef SPW_STORE_LEDGER_H
#define SPW_STORE_LEDGER_H

#include <stdbool.h>
#include <sqlite3.h>
#include <sys/types.h>

#include "sidecar/store/store.h"

/* Statements that are kept prepared. */
enum spw_statement {
    SPW_STATEMENT_PLACED_NEWEST,
    SPW_STATEMENT_PLACED_NEW,
    SPW_STATEMENT_BEGIN,
    SPW_STATEMENT_COMMIT,
    SPW_STATEMENT_SAVE,
    SPW_STATEMENT_RELEASE,
    SPW_STATEMENT_BACK,
    SPW_STATEMENT_NEWEST,
    SPW_STATEMENT_NUMBERS,
    SPW_STATEMENT_ACKNOWLEDGE,
    SPW_STATEMENT_DAMAGED,
    SPW_STATEMENT_FLAG_ID,
    SPW_STATEMENT_FLAG_DECISION,
    SPW_STATEMENT_FLAG_INSERT,
    SPW_STATEMENT_FLAG_REPLACE,
    SPW_STATEMENT_FLAG_COPY,
    SPW_STATEMENT_FLAG_ASIDE,
    SPW_STATEMENT_FLAG_EXCHANGE,
    SPW_STATEMENT_FLAG_RETURN,
    SPW_STATEMENT_FLAG_DROP,
    SPW_STATEMENT_FLAG_NAMED,
    SPW_STATEMENT_FLAG_WAITING,
    SPW_STATEMENT_FLAG_ACCOUNT,
    SPW_STATEMENT_FLAGS_OF_QUOTE,
    SPW_STATEMENT_FLAG_BIND,
    SPW_STATEMENT_ORDER_FIND,
    SPW_STATEMENT_ORDER_INSERT,
    SPW_STATEMENT_ORDER_UPDATE,
    SPW_STATEMENT_ORDER_QUOTE,
    SPW_STATEMENT_QUOTES_OF_ORDER,
    SPW_STATEMENT_ORDERS_OF_QUOTE,
    SPW_STATEMENT_ABANDON,
    SPW_STATEMENT_ABANDONED,
    SPW_STATEMENT_GIVE_UP_FIND,
    SPW_STATEMENT_GIVE_UP,
    SPW_STATEMENT_HISTORY,
    SPW_STATEMENT_ROW_ANEW,
    SPW_STATEMENT_ROW_STATES,
    SPW_STATEMENT_ROW_FIND,
    SPW_STATEMENT_ROW_RESULT,
    SPW_STATEMENT_ROW_RETRY,
    SPW_STATEMENT_ROW_FILED,
    SPW_STATEMENT_ROW_DECIDED,
    SPW_STATEMENT_DUE_RECONCILE,
    SPW_STATEMENT_DUE_FILE,
    SPW_STATEMENT_CLAIM_RECONCILE,
    SPW_STATEMENT_CLAIM_FILE,
    SPW_STATEMENT_ABSORBED,
    SPW_STATEMENT_BACKLOG_RECONCILE,
    SPW_STATEMENT_BACKLOG_FILE,
    SPW_STATEMENT_BACKLOG_EXCEPTION,
    SPW_STATEMENT_UNACKNOWLEDGED,
    SPW_STATEMENT_OLDEST_UNACKNOWLEDGED,
    SPW_STATEMENT_ORPHANS,
    SPW_STATEMENT_ORPHANS_ASIDE,
    SPW_STATEMENT_STUCK_WAITING,
    SPW_STATEMENT_STUCK_PENDING,
    SPW_STATEMENT_STUCK_FILING,
    SPW_STATEMENT_SHARE,
    SPW_STATEMENT_FORGET,
    SPW_STATEMENT_REMOVABLE,
    SPW_STATEMENT_REMOVE_HISTORY,
    SPW_STATEMENT_REMOVE_ASIDE,
    SPW_STATEMENT_REMOVE_ROWS,
    SPW_STATEMENT_REMOVE_MARK,
    SPW_STATEMENT_REMOVE_QUOTES,
    SPW_STATEMENT_REMOVE_ORDERS,
    SPW_STATEMENT_REMOVE_ABANDONED,
    SPW_STATEMENTS
};

struct spw_ledger {
    sqlite3 *db;  /* NULL = not open */
    dev_t device; /* which file that is ... */
    ino_t inode;  /* ... whatever stands at its path by now */
    sqlite3_stmt *statement[SPW_STATEMENTS];
};

/* NO_SPACE, SYSTEM, BUSY, NO_MEMORY: the volume will not have it now, try later. CORRUPT: set it aside. NOT_FOUND,
 * INVALID, VERSION_MISMATCH: the operator must act. check: read the whole file once (PRAGMA quick_check). */
enum spw_status spw_ledger_open(struct spw_ledger *ledger, const char *file, bool check,
                                struct spw_error *err) SPW_WARN_UNUSED;
void spw_ledger_close(struct spw_ledger *ledger);

/* Rename file, -wal, -journal and -shm to <file>.damaged-<unixtime>...; the new name to `to`. */
enum spw_status spw_ledger_set_aside(const char *file, char *to, size_t to_bytes,
                                     struct spw_error *err) SPW_WARN_UNUSED;

/* Is the open file still the one at its path? */
bool spw_ledger_in_place(const struct spw_ledger *ledger, const char *file);
/* Copy what the open connection holds to <file>.replaced-<unixtime>...; the new name to `to`. */
enum spw_status spw_ledger_rescue(struct spw_ledger *ledger, const char *file, char *to, size_t to_bytes,
                                  struct spw_error *err) SPW_WARN_UNUSED;

/* The connection's settings, for writer and reader. */
int spw_ledger_settle(sqlite3 *db);

enum spw_status spw_ledger_counts(struct spw_ledger *ledger, const char *file, struct spw_store_counts *out,
                                  struct spw_error *err) SPW_WARN_UNUSED;

/* Only how many orders there are, and how many of them were cancelled. */
int spw_ledger_order_counts(struct spw_ledger *ledger, struct spw_store_counts *out);

/* Only how many rows there are in which state. */
int spw_ledger_row_counts(struct spw_ledger *ledger, struct spw_store_counts *out);

/* The kept statement, reset and without bindings, prepared from sql the first time; NULL on failure. */
sqlite3_stmt *spw_ledger_prepare(struct spw_ledger *ledger, enum spw_statement which, const char *sql);
/* Why the statement could not be prepared; never SQLITE_OK. */
int spw_ledger_failure(struct spw_ledger *ledger);
/* Prepare and run a statement without parameters and rows. */
int spw_ledger_run(struct spw_ledger *ledger, enum spw_statement which, const char *sql);
/* Run a statement that gives no rows, and reset it. */
int spw_statement_run(sqlite3_stmt *statement);
/* Step to the next row: SQLITE_ROW; otherwise the statement is reset, SQLITE_OK at the end, or the failure. */
int spw_statement_row(sqlite3_stmt *statement);

int spw_ledger_begin(struct spw_ledger *ledger);
/* Writes the numbers and commits. After a failure the caller rolls back. */
int spw_ledger_commit(struct spw_ledger *ledger, const struct spw_store_counts *counts);
void spw_ledger_roll_back(struct spw_ledger *ledger);

/* SQLite's result in our words. */
enum spw_status spw_ledger_status(int rc);
enum spw_status spw_ledger_error(struct spw_error *err, sqlite3 *db, int rc, const char *file,
                                 const char *doing);

#endif
