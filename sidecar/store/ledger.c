/* ledger.c: see ledger.h. */
#include "sidecar/store/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/store/schema.h"

#define BUSY_MS            2000 /* another program may hold the write lock for a moment: somebody's sqlite3 shell */
#define DATABASE_MIN_BYTES 512 /* SQLite's smallest page */

enum spw_status spw_ledger_status(int rc)
{
    switch (rc & 0xFF) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return SPW_STATUS_OK;
    case SQLITE_FULL:
        return SPW_STATUS_NO_SPACE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return SPW_STATUS_CORRUPT;
    case SQLITE_NOMEM:
        return SPW_STATUS_NO_MEMORY;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return SPW_STATUS_BUSY;
    default:
        return SPW_STATUS_SYSTEM;
    }
}

enum spw_status spw_ledger_error(struct spw_error *err, sqlite3 *db, int rc, const char *file,
                                 const char *doing)
{
    enum spw_status status = spw_ledger_status(rc);
    int system = db ? sqlite3_system_errno(db) : 0;
    bool say_errno = system != 0 && status == SPW_STATUS_SYSTEM;
    return spw_error_set(err, status, "%s: %s failed: %s%s%s; %s", file, doing, sqlite3_errstr(rc),
                         say_errno ? ": " : "", say_errno ? strerror(system) : "",
                         status == SPW_STATUS_NO_SPACE  ? "make room on its volume"
                         : status == SPW_STATUS_CORRUPT ? "the file is set aside and a new one begun"
                         : status == SPW_STATUS_BUSY    ? "end the other program that writes to it"
                                                        : "check that its volume can be written to");
}

int spw_statement_run(sqlite3_stmt *statement)
{
    if (!statement)
        return SQLITE_NOMEM;
    int rc = sqlite3_step(statement);
    int reset = sqlite3_reset(statement);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? reset : rc;
}

int spw_statement_row(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        return rc;
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

sqlite3_stmt *spw_ledger_prepare(struct spw_ledger *ledger, enum spw_statement which, const char *sql)
{
    sqlite3_stmt **kept = &ledger->statement[which];
    if (!*kept && sqlite3_prepare_v3(ledger->db, sql, -1, SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
        return NULL;
    sqlite3_reset(*kept);
    sqlite3_clear_bindings(*kept);
    return *kept;
}

int spw_ledger_failure(struct spw_ledger *ledger)
{
    int rc = sqlite3_errcode(ledger->db);
    return rc == SQLITE_OK ? SQLITE_ERROR : rc;
}

int spw_ledger_run(struct spw_ledger *ledger, enum spw_statement which, const char *sql)
{
    sqlite3_stmt *statement = spw_ledger_prepare(ledger, which, sql);
    return statement ? spw_statement_run(statement) : spw_ledger_failure(ledger);
}

int spw_ledger_begin(struct spw_ledger *ledger)
{
    return spw_ledger_run(ledger, SPW_STATEMENT_BEGIN, "BEGIN IMMEDIATE");
}

int spw_ledger_commit(struct spw_ledger *ledger, const struct spw_store_counts *counts)
{
    sqlite3_stmt *numbers = spw_ledger_prepare(ledger, SPW_STATEMENT_NUMBERS,
                                               "UPDATE ledger SET newest_sequence=?1, newest_change=?2,"
                                               " duplicate_count=?3 WHERE one=1");
    if (!numbers)
        return spw_ledger_failure(ledger);
    sqlite3_bind_int64(numbers, 1, (sqlite3_int64)counts->newest_sequence);
    sqlite3_bind_int64(numbers, 2, (sqlite3_int64)counts->newest_change);
    sqlite3_bind_int64(numbers, 3, (sqlite3_int64)counts->duplicate_count);
    int rc = spw_statement_run(numbers);
    return rc == SQLITE_OK ? spw_ledger_run(ledger, SPW_STATEMENT_COMMIT, "COMMIT") : rc;
}

void spw_ledger_roll_back(struct spw_ledger *ledger)
{
    if (!ledger->db)
        return;
    for (int i = 0; i < SPW_STATEMENTS; i++)
        sqlite3_reset(ledger->statement[i]);
    if (!sqlite3_get_autocommit(ledger->db))
        (void)sqlite3_exec(ledger->db, "ROLLBACK", NULL, NULL, NULL);
}

void spw_ledger_close(struct spw_ledger *ledger)
{
    for (int i = 0; i < SPW_STATEMENTS; i++) {
        sqlite3_finalize(ledger->statement[i]);
        ledger->statement[i] = NULL;
    }
    sqlite3_close(ledger->db);
    ledger->db = NULL;
}

int spw_ledger_settle(sqlite3 *db)
{
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_extended_result_codes(db, 1);
    /* FULL: a commit is on the disk when it returns. The limit keeps a write-ahead log small after a burst. */
    return sqlite3_exec(
        db, "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; PRAGMA trusted_schema=OFF", NULL,
        NULL, NULL);
}

/* The directory must be there: a misspelt path is the operator's to correct, no full disk. */
static enum spw_status check_place(const char *file, struct spw_error *err)
{
    char dir[4096];
    const char *slash = strrchr(file, '/');
    if (!file[0] || (slash && slash[1] == 0) || strlen(file) > sizeof dir - 64)
        return spw_error_set(err, SPW_STATUS_INVALID, "ledger \"%s\": not the path of a file; give one",
                             file);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
    struct stat st;
    if (slash != file && stat(dir, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return spw_error_set(err, SPW_STATUS_NOT_FOUND,
                             "%s: its directory %s is not there; make it, or mount the volume", file, dir);
    if (stat(file, &st) == 0 && !S_ISREG(st.st_mode))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s: not a regular file; name another one for the ledger", file);
    return SPW_STATUS_OK;
}

static off_t bytes_of(const char *file, const char *ending)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s%s", file, ending);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* What SQLite would not mind: a file cut inside its last page reads as zeros there; a shorter one, or a log whose
 * database is gone (a crash while setting it aside), counts as a new database, and the log is thrown away. While a log
 * or journal is there, a partial page is what a crash leaves, and they mend it. */
static bool is_cut(const char *file)
{
    off_t bytes = bytes_of(file, ""), logged = bytes_of(file, "-wal") + bytes_of(file, "-journal");
    if (bytes == 0)
        return logged > 0;
    if (bytes < DATABASE_MIN_BYTES)
        return true;
    uint8_t page[2] = {0}; /* big-endian, 1 = 65,536: sqlite.org/fileformat2.html */
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && pread(fd, page, 2, 16) == 2;
    if (fd >= 0)
        close(fd);
    unsigned page_bytes = (unsigned)page[0] << 8 | page[1];
    page_bytes = page_bytes == 1 ? 65536 : page_bytes;
    return known && page_bytes && logged == 0 && bytes % page_bytes != 0;
}

static enum spw_status check_whole(sqlite3 *db, const char *file, struct spw_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    enum spw_status status = SPW_STATUS_OK;
    if (said && strcmp(said, "ok") != 0)
        status = spw_error_set(err, SPW_STATUS_CORRUPT, "%s: damaged: %.200s", file, said);
    else if (!said)
        status = spw_ledger_error(err, db, rc, file, "checking it");
    sqlite3_finalize(statement);
    return status;
}

static enum spw_status switch_to_wal(sqlite3 *db, const char *file, struct spw_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode=WAL", -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    bool on = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(statement, 0), "wal") == 0;
    sqlite3_finalize(statement);
    if (on)
        return SPW_STATUS_OK;
    if (rc != SQLITE_ROW)
        return spw_ledger_error(err, db, rc, file, "switching to a write-ahead log");
    return spw_error_set(
        err, SPW_STATUS_SYSTEM,
        "%s: its file system does not carry a write-ahead log (network file system?); put the ledger "
        "on a local volume",
        file);
}

static enum spw_status open_connection(struct spw_ledger *ledger, const char *file, bool check,
                                       struct spw_error *err)
{
    /* Made here for its mode: it holds addresses. SQLite gives -wal and -shm the same. */
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return spw_error_set(err, errno == ENOSPC ? SPW_STATUS_NO_SPACE : SPW_STATUS_SYSTEM,
                             "%s: cannot be opened: %s; check its volume and its owner", file,
                             strerror(errno));
    struct stat st;
    if (fstat(fd, &st) == 0) {
        ledger->device = st.st_dev;
        ledger->inode = st.st_ino;
    }
    close(fd);
    int rc = sqlite3_open_v2(file, &ledger->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = spw_ledger_settle(ledger->db);
    if (rc != SQLITE_OK)
        return spw_ledger_error(err, ledger->db, rc, file, "opening it");
    if (sqlite3_db_readonly(ledger->db, "main") != 0)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: read-only; mount its volume for writing", file);
    enum spw_status status = SPW_STATUS_OK;
    if (check)
        status = check_whole(ledger->db, file, err);
    if (status == SPW_STATUS_OK)
        status = spw_schema_ensure(ledger->db, file, err);
    /* What a record's savepoint might have to undo is nothing to write a file for. Not before: the sort of an index over a
     * whole table is. */
    if (status == SPW_STATUS_OK)
        (void)sqlite3_exec(ledger->db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
    return status == SPW_STATUS_OK ? switch_to_wal(ledger->db, file, err) : status;
}

enum spw_status spw_ledger_open(struct spw_ledger *ledger, const char *file, bool check,
                                struct spw_error *err)
{
    memset(ledger, 0, sizeof *ledger);
    enum spw_status status = check_place(file, err);
    if (status != SPW_STATUS_OK)
        return status;
    if (is_cut(file))
        return spw_error_set(err, SPW_STATUS_CORRUPT, "%s: cut short, or gone and only its log left", file);
    status = open_connection(ledger, file, check, err);
    if (status != SPW_STATUS_OK)
        spw_ledger_close(ledger);
    return status;
}

/* <file>.<why>-<unixtime>, which nothing has yet. */
static void name_aside(const char *file, const char *why, char *to, size_t to_bytes)
{
    struct stat st;
    snprintf(to, to_bytes, "%s.%s-%lld", file, why, (long long)time(NULL));
    for (int i = 2; i < 10000 && lstat(to, &st) == 0; i++)
        snprintf(to, to_bytes, "%s.%s-%lld-%d", file, why, (long long)time(NULL), i);
}

bool spw_ledger_in_place(const struct spw_ledger *ledger, const char *file)
{
    struct stat st;
    if (stat(file, &st) != 0)
        return errno != ENOENT; /* what cannot be told is not taken for gone */
    return st.st_dev == ledger->device && st.st_ino == ledger->inode;
}

enum spw_status spw_ledger_rescue(struct spw_ledger *ledger, const char *file, char *to, size_t to_bytes,
                                  struct spw_error *err)
{
    name_aside(file, "replaced", to, to_bytes);
    int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* for its mode, as the ledger's own */
    if (fd >= 0)
        close(fd);
    char *sql = sqlite3_mprintf("VACUUM INTO %Q", to);
    int rc = sql ? sqlite3_exec(ledger->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (rc == SQLITE_OK)
        return SPW_STATUS_OK;
    unlink(to);
    return spw_ledger_error(err, ledger->db, rc, file, "it was removed or replaced while open; copying it");
}

enum spw_status spw_ledger_set_aside(const char *file, char *to, size_t to_bytes, struct spw_error *err)
{
    static const char *const ending[] = {"", "-wal", "-journal", "-shm"};
    char from[4200], target[4300];
    name_aside(file, "damaged", to, to_bytes);
    /* The database first: were its log moved first and we died, what the log holds would be missing without a trace. */
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        snprintf(from, sizeof from, "%s%s", file, ending[i]);
        snprintf(target, sizeof target, "%s%s", to, ending[i]);
        if (rename(from, target) != 0 && errno != ENOENT)
            return spw_error_set(err, errno == ENOSPC ? SPW_STATUS_NO_SPACE : SPW_STATUS_SYSTEM,
                                 "%s: damaged, and cannot be renamed to %s: %s; rename it by hand", from,
                                 target, strerror(errno));
    }
    return SPW_STATUS_OK;
}

static int read_numbers(sqlite3 *db, const char *sql, uint64_t *out, int columns)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    for (int i = 0; rc == SQLITE_ROW && i < columns; i++)
        out[i] = (uint64_t)sqlite3_column_int64(statement, i);
    sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE ? SQLITE_CORRUPT : rc; /* the one row is gone */
}

/* Rows of (code, count). */
static int count_by(sqlite3 *db, const char *sql, uint64_t *out, uint32_t codes)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        uint32_t code = (uint32_t)sqlite3_column_int(statement, 0);
        if (code < codes)
            out[code] = (uint64_t)sqlite3_column_int64(statement, 1);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int spw_ledger_order_counts(struct spw_ledger *ledger, struct spw_store_counts *out)
{
    uint64_t orders[2] = {0};
    int rc = read_numbers(
        ledger->db,
        "SELECT count(*) FILTER (WHERE order_state>0), count(*) FILTER (WHERE order_state=2) FROM orders",
        orders, 2);
    out->orders_placed_count = orders[0];
    out->orders_cancelled_count = orders[1];
    return rc;
}

/* What is not of another code is of code 0. */
static void fill_rest(uint64_t *by_code, uint32_t codes, uint64_t all)
{
    by_code[0] = all;
    for (uint32_t code = 1; code < codes; code++)
        by_code[0] -= by_code[code];
}

/* By the indexes, in their order: nothing is sorted, however many rows there are. Only rows that reconciliation knows have
 * a filing. */
int spw_ledger_row_counts(struct spw_ledger *ledger, struct spw_store_counts *out)
{
    static const char filings[] = "SELECT count(*) FILTER (WHERE filing_state=1), count(*) FILTER (WHERE"
                                  " filing_state=2), count(*) FILTER (WHERE filing_state=3), count(*) FILTER"
                                  " (WHERE filing_state=4), count(*) FILTER (WHERE filing_state=5) FROM flags"
                                  " WHERE reconcile_state<>0";
    _Static_assert(SPW_FILING_STATES == 6, "each has its column above");
    uint64_t all = 0;
    memset(out->by_state, 0, sizeof out->by_state);
    memset(out->by_reconcile, 0, sizeof out->by_reconcile);
    memset(out->by_filing, 0, sizeof out->by_filing);
    int rc = count_by(ledger->db, "SELECT flag_state, count(*) FROM flags GROUP BY 1", out->by_state,
                      SPW_FLAG_STATES);
    if (rc == SQLITE_OK)
        rc = count_by(ledger->db,
                      "SELECT reconcile_state, count(*) FROM flags WHERE reconcile_state<>0 GROUP BY 1",
                      out->by_reconcile, SPW_RECONCILE_STATES);
    if (rc == SQLITE_OK)
        rc = read_numbers(ledger->db, filings, out->by_filing + 1, SPW_FILING_STATES - 1);
    for (uint32_t state = 0; state < SPW_FLAG_STATES; state++)
        all += out->by_state[state];
    fill_rest(out->by_reconcile, SPW_RECONCILE_STATES, all);
    fill_rest(out->by_filing, SPW_FILING_STATES, all);
    return rc;
}

enum spw_status spw_ledger_counts(struct spw_ledger *ledger, const char *file, struct spw_store_counts *out,
                                  struct spw_error *err)
{
    memset(out, 0, sizeof *out);
    uint64_t numbers[6] = {0};
    int rc = read_numbers(
        ledger->db,
        "SELECT max(newest_sequence, (SELECT ifnull(max(sequence),0) FROM flags)), duplicate_count,"
        " (SELECT ifnull(max(sequence),0) FROM acknowledgements),"
        " max(newest_change, (SELECT ifnull(max(change),0) FROM flags)),"
        " (SELECT ifnull(max(change),0) FROM acknowledgements), removed_sequence FROM ledger WHERE one=1",
        numbers, 6);
    if (rc == SQLITE_OK)
        rc = spw_ledger_row_counts(ledger, out);
    if (rc == SQLITE_OK)
        rc = spw_ledger_order_counts(ledger, out);
    if (rc == SQLITE_OK)
        rc = read_numbers(ledger->db, "SELECT count(*) FROM damaged", &out->damaged_count, 1);
    if (rc == SQLITE_OK)
        rc = read_numbers(ledger->db,
                          "SELECT count(*) FROM flags WHERE"
                          " sequence>(SELECT ifnull(max(sequence),0) FROM acknowledgements) AND"
                          " change>(SELECT ifnull(max(change),0) FROM acknowledgements)",
                          &out->unacknowledged_count, 1);
    if (rc != SQLITE_OK)
        return spw_ledger_error(err, ledger->db, rc, file, "counting what is in it");
    out->newest_sequence = numbers[0];
    out->flags_count = numbers[0];
    out->duplicate_count = numbers[1];
    out->acknowledged_sequence = numbers[2];
    out->newest_change = numbers[3];
    out->acknowledged_change = numbers[4];
    out->removed_sequence = numbers[5];
    return SPW_STATUS_OK;
}
