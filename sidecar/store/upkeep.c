/* upkeep.c: see upkeep.h.
 *
 * Orphans are rows whose parts contradict one another, which no history of ours can make: a row that says an order names
 * it while none does, or stands without being reconciled; a flag set aside for a row that is not there. Stuck rows are
 * those that time should have moved on: a quote past its day, an order not reconciled or filed within stuck_after, an
 * instant of tomorrow. Both are 0 in a healthy ledger.
 *
 * Forgetting: addresses go from rows that nobody will calculate again (closed, or never ordered); rows go only from the
 * front of the ledger, so that sequences stay contiguous from the first that is left.
 */
#include "sidecar/store/upkeep.h"

#include <inttypes.h>

#include "sidecar/obs/log.h"

#define WHOLE_EVERY_MS 3600000
#define HOUR_MS        INT64_C(3600000)
#define DAY_MS         INT64_C(86400000)
#define UNPLACED_MS    DAY_MS
#define STUCK_MS       DAY_MS

void spw_upkeep_init(struct spw_upkeep *upkeep, const struct spw_store_care *care)
{
    spw_upkeep_care_set(upkeep, care);
}

void spw_upkeep_care_set(struct spw_upkeep *upkeep, const struct spw_store_care *care)
{
    static const struct spw_store_care none;
    upkeep->care = care ? *care : none;
    struct spw_store_care *c = &upkeep->care;
    c->unplaced_after_ms = c->unplaced_after_ms ? c->unplaced_after_ms : UNPLACED_MS;
    c->stuck_after_ms = c->stuck_after_ms ? c->stuck_after_ms : STUCK_MS;
    c->alert_window_ms = c->alert_window_ms ? c->alert_window_ms : HOUR_MS;
    c->alert_share_ppm = c->alert_share_ppm ? c->alert_share_ppm : 10000;
    c->alert_minimum_count = c->alert_minimum_count ? c->alert_minimum_count : 50;
}

/* One row of at most two numbers. */
static int ask(struct spw_batch *batch, enum spw_statement which, const char *sql, int64_t a, int64_t b,
               uint64_t out[2])
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, which, sql);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    int count = sqlite3_bind_parameter_count(statement);
    if (count > 0)
        sqlite3_bind_int64(statement, 1, a);
    if (count > 1)
        sqlite3_bind_int64(statement, 2, b);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out[0] = (uint64_t)sqlite3_column_int64(statement, 0);
    if (sqlite3_column_count(statement) > 1)
        out[1] = (uint64_t)sqlite3_column_int64(statement, 1);
    return sqlite3_reset(statement);
}

static int count_orphans(struct spw_upkeep *upkeep, struct spw_batch *batch, int64_t now_ms)
{
    static const char rows[] =
        "SELECT count(*) FROM flags AS f WHERE change>?1 AND ("
        " (flag_state IN (1,2,3) AND NOT EXISTS(SELECT 1 FROM order_quotes q WHERE q.quote_id=f.quote_id)) OR"
        " (flag_state=1) <> (orders_count>0) OR (flag_state=1 AND reconcile_state=0) OR"
        " (flag_state<>1 AND reconcile_state=1))";
    static const char aside[] = "SELECT count(*) FROM superseded AS s WHERE NOT EXISTS"
                                "(SELECT 1 FROM flags f WHERE f.sequence=s.sequence) AND s.sequence>"
                                "(SELECT removed_sequence FROM ledger WHERE one=1)";
    uint64_t found[2] = {0}, beside[2] = {0};
    bool whole = now_ms >= upkeep->whole_at_ms || batch->counts.orphans_count;
    int64_t since = whole ? 0 : (int64_t)upkeep->checked_change;
    int rc = ask(batch, SPW_STATEMENT_ORPHANS, rows, since, 0, found);
    if (rc == SQLITE_OK)
        rc = ask(batch, SPW_STATEMENT_ORPHANS_ASIDE, aside, 0, 0, beside);
    if (rc != SQLITE_OK)
        return rc;
    if (whole)
        upkeep->whole_at_ms = now_ms + WHOLE_EVERY_MS;
    upkeep->checked_change = batch->counts.newest_change;
    batch->counts.orphans_count = found[0] + beside[0];
    return SQLITE_OK;
}

static int count_stuck(struct spw_upkeep *upkeep, struct spw_batch *batch)
{
    static const char waiting[] = "SELECT count(*) FROM flags WHERE flag_state=0 AND"
                                  " (created_unix_ms<?1 OR created_unix_ms>?2)";
    static const char pending[] = "SELECT count(*) FILTER (WHERE placed_unix_ms<?1), min(placed_unix_ms)"
                                  " FROM flags WHERE reconcile_state=1";
    static const char filing[] = "SELECT count(*) FROM flags WHERE filing_state IN (1,2,4) AND"
                                 " filing_next_unix_ms<9223372036854775807 AND placed_unix_ms<?1";
    uint64_t a[2] = {0}, b[2] = {0}, c[2] = {0};
    int64_t now = batch->now_unix_ms, old = now - upkeep->care.stuck_after_ms;
    int rc = ask(batch, SPW_STATEMENT_STUCK_WAITING, waiting, now - upkeep->care.unplaced_after_ms - HOUR_MS,
                 now + DAY_MS, a);
    if (rc == SQLITE_OK)
        rc = ask(batch, SPW_STATEMENT_STUCK_PENDING, pending, old, 0, b);
    if (rc == SQLITE_OK)
        rc = ask(batch, SPW_STATEMENT_STUCK_FILING, filing, old, 0, c);
    upkeep->oldest_pending_unix_ms = (int64_t)b[1];
    batch->counts.stuck_count = a[0] + b[0] + c[0];
    return rc;
}

/* Changes are numbered in the order of their time. */
static int find_unacknowledged(struct spw_upkeep *upkeep, struct spw_batch *batch)
{
    static const char oldest[] = "SELECT ifnull((SELECT changed_unix_ms FROM flags WHERE sequence>?1 AND"
                                 " change>?2 ORDER BY change LIMIT 1), 0)";
    uint64_t found[2] = {0};
    int rc =
        ask(batch, SPW_STATEMENT_OLDEST_UNACKNOWLEDGED, oldest, (int64_t)batch->counts.acknowledged_sequence,
            (int64_t)batch->counts.acknowledged_change, found);
    upkeep->oldest_unacknowledged_unix_ms = (int64_t)found[0];
    return rc == SQLITE_OK ? spw_count_unacknowledged(batch) : rc;
}

static int watch_share(const struct spw_upkeep *upkeep, struct spw_batch *batch)
{
    static const char window[] =
        "SELECT count(*), count(*) FILTER (WHERE EXISTS(SELECT 1 FROM flags f WHERE f.quote_id=o.quote_id))"
        " FROM orders AS o WHERE placed_created_unix_ms>?1 AND placed_created_unix_ms<=?2";
    uint64_t found[2] = {0};
    int64_t now = batch->now_unix_ms;
    int rc = ask(batch, SPW_STATEMENT_SHARE, window, now - upkeep->care.alert_window_ms, now, found);
    struct spw_store_counts *counts = &batch->counts;
    counts->window_placed_count = found[0];
    counts->window_flagged_count = found[1];
    counts->window_share_ppm = found[0] ? (uint32_t)(found[1] * 1000000 / found[0]) : 0;
    counts->alert_on = found[1] >= upkeep->care.alert_minimum_count &&
                       counts->window_share_ppm > upkeep->care.alert_share_ppm;
    return rc;
}

/* ---- forgetting ---- */

/* What nobody will calculate again: no order came, or it is reconciled and needs no filing. */
#define CLOSED                                                                                               \
    "(flag_state IN (2,3,4,5) AND reconcile_state IN (0,7) OR reconcile_state IN (2,3,4,5,7)) AND"           \
    " filing_state IN (0,3,5)"

static int forget_addresses(const struct spw_upkeep *upkeep, struct spw_batch *batch, bool *more)
{
    if (!upkeep->care.addresses_days)
        return SQLITE_OK;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_FORGET,
        "UPDATE flags SET zip=substr(zip,1,5), purged_unix_ms=?1,"
        " request_json=CASE json_valid(request_json) WHEN 0 THEN '{}' ELSE"
        " json_set(json_remove(request_json,'$.ship_to.line1','$.ship_to.line2','$.ship_to.city',"
        "'$.ship_from.line1','$.ship_from.line2','$.ship_from.city','$.customer'),"
        " '$.ship_to.zip',substr(zip,1,5),'$.purged',json('true')) END"
        " WHERE sequence IN (SELECT sequence FROM flags WHERE purged_unix_ms=0 AND stored_unix_ms<?2 "
        "AND " CLOSED " ORDER BY sequence LIMIT ?3)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 2, batch->now_unix_ms - upkeep->care.addresses_days * DAY_MS);
    sqlite3_bind_int(statement, 3, SPW_UPKEEP_MAX_COUNT);
    int rc = spw_statement_run(statement);
    *more |= rc == SQLITE_OK && sqlite3_changes(batch->ledger->db) == SPW_UPKEEP_MAX_COUNT;
    return rc;
}

/* The highest sequence up to which every row may go; the first one that may not ends it. */
static int find_removable(const struct spw_upkeep *upkeep, struct spw_batch *batch, uint64_t *through)
{
    static const char sql[] =
        "SELECT ifnull((SELECT min(sequence)-1 FROM (SELECT * FROM flags ORDER BY sequence LIMIT 500) WHERE"
        " NOT (stored_unix_ms<?1 AND sequence<=?2 AND " CLOSED ")),"
        " (SELECT max(sequence) FROM (SELECT sequence FROM flags ORDER BY sequence LIMIT 500))), 0";
    uint64_t found[2] = {0};
    /* By change, a row is taken when its last change was. */
    int64_t taken = (int64_t)batch->counts.acknowledged_sequence;
    if (batch->counts.acknowledged_change && !batch->counts.unacknowledged_count)
        taken = (int64_t)batch->counts.newest_sequence;
    int rc = ask(batch, SPW_STATEMENT_REMOVABLE, sql, batch->now_unix_ms - upkeep->care.rows_days * DAY_MS,
                 taken, found);
    *through = found[0];
    return rc;
}

static int remove_through(struct spw_batch *batch, uint64_t through)
{
    static const struct {
        enum spw_statement which;
        const char *sql;
    } steps[] = {
        {SPW_STATEMENT_REMOVE_HISTORY, "DELETE FROM history WHERE sequence<=?1"},
        {SPW_STATEMENT_REMOVE_ASIDE, "DELETE FROM superseded WHERE sequence<=?1"},
        {SPW_STATEMENT_REMOVE_ROWS, "DELETE FROM flags WHERE sequence<=?1"},
        {SPW_STATEMENT_REMOVE_MARK, "UPDATE ledger SET removed_sequence=?1 WHERE one=1"},
    };
    int rc = SQLITE_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == SQLITE_OK; i++) {
        sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, steps[i].which, steps[i].sql);
        if (!statement)
            return spw_ledger_failure(batch->ledger);
        sqlite3_bind_int64(statement, 1, (int64_t)through);
        rc = spw_statement_run(statement);
    }
    return rc;
}

static int forget_rows(const struct spw_upkeep *upkeep, struct spw_batch *batch, bool *more)
{
    uint64_t through = 0;
    if (!upkeep->care.rows_days)
        return SQLITE_OK;
    int rc = find_removable(upkeep, batch, &through);
    if (rc != SQLITE_OK || through <= batch->counts.removed_sequence)
        return rc;
    rc = remove_through(batch, through);
    if (rc != SQLITE_OK)
        return rc;
    batch->counts.removed_sequence = through;
    *more = true; /* and its rows are counted anew */
    return spw_ledger_row_counts(batch->ledger, &batch->counts);
}

/* As old, and named by no row any more: orders of live quotes, those of rows that are gone, and abandonments. The first two
 * find the same orders: one without its quotes is named by no row either. */
#define OLD_ORDERS                                                                                           \
    "(SELECT order_row FROM orders AS o WHERE placed_created_unix_ms<?1 AND cancelled_created_unix_ms<?1"    \
    " AND NOT EXISTS(SELECT 1 FROM order_quotes AS q JOIN flags AS f ON f.quote_id=q.quote_id"               \
    " WHERE q.order_row=o.order_row) ORDER BY placed_created_unix_ms LIMIT 500)"

static int forget_orders(const struct spw_upkeep *upkeep, struct spw_batch *batch)
{
    static const struct {
        enum spw_statement which;
        const char *sql;
    } steps[] = {
        {SPW_STATEMENT_REMOVE_QUOTES, "DELETE FROM order_quotes WHERE order_row IN " OLD_ORDERS},
        {SPW_STATEMENT_REMOVE_ORDERS, "DELETE FROM orders WHERE order_row IN " OLD_ORDERS},
        {SPW_STATEMENT_REMOVE_ABANDONED,
         "DELETE FROM abandoned WHERE quote_id IN (SELECT quote_id FROM abandoned AS a WHERE"
         " abandoned_unix_ms<?1 AND NOT EXISTS(SELECT 1 FROM flags AS f WHERE f.quote_id=a.quote_id)"
         " LIMIT 500)"},
    };
    int rc = SQLITE_OK, changes = sqlite3_total_changes(batch->ledger->db);
    if (!upkeep->care.rows_days)
        return SQLITE_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == SQLITE_OK; i++) {
        sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, steps[i].which, steps[i].sql);
        if (!statement)
            return spw_ledger_failure(batch->ledger);
        sqlite3_bind_int64(statement, 1, batch->now_unix_ms - upkeep->care.rows_days * DAY_MS);
        rc = spw_statement_run(statement);
    }
    if (rc == SQLITE_OK && sqlite3_total_changes(batch->ledger->db) != changes)
        rc = spw_ledger_order_counts(batch->ledger, &batch->counts);
    return rc;
}

int spw_upkeep_run(struct spw_upkeep *upkeep, struct spw_batch *batch, int64_t now_ms, bool *more)
{
    uint32_t given_up = 0;
    *more = false;
    int rc = spw_rows_give_up(batch, upkeep->care.unplaced_after_ms, SPW_UPKEEP_MAX_COUNT, &given_up);
    *more |= given_up == SPW_UPKEEP_MAX_COUNT;
    if (rc == SQLITE_OK)
        rc = forget_addresses(upkeep, batch, more);
    if (rc == SQLITE_OK)
        rc = find_unacknowledged(upkeep, batch);
    if (rc == SQLITE_OK)
        rc = forget_rows(upkeep, batch, more);
    if (rc == SQLITE_OK)
        rc = forget_orders(upkeep, batch);
    if (rc == SQLITE_OK)
        rc = count_orphans(upkeep, batch, now_ms);
    if (rc == SQLITE_OK)
        rc = count_stuck(upkeep, batch);
    return rc == SQLITE_OK ? watch_share(upkeep, batch) : rc;
}

void spw_upkeep_tell(const struct spw_store_counts *before, const struct spw_store_counts *after)
{
    if (after->alert_on && !before->alert_on)
        spw_log(SPW_LOG_WARN, "alert.fallback_share",
                "%" PRIu64 " of the last %" PRIu64
                " orders were placed on a fallback (%u.%02u %%): see which account "
                "is limited or shut (spillwayctl status), and why",
                after->window_flagged_count, after->window_placed_count, after->window_share_ppm / 10000,
                after->window_share_ppm % 10000 / 100);
    if (!after->alert_on && before->alert_on)
        spw_log(SPW_LOG_INFO, "alert.fallback_share_over",
                "%" PRIu64 " of the last %" PRIu64 " orders were placed on a fallback: the alert is off",
                after->window_flagged_count, after->window_placed_count);
    if (after->orphans_count > before->orphans_count)
        spw_log(SPW_LOG_ERROR, "store.orphans",
                "%" PRIu64 " rows of the ledger contradict their orders: keep the file and report it",
                after->orphans_count);
    if (after->stuck_count > before->stuck_count)
        spw_log(SPW_LOG_WARN, "store.stuck_rows",
                "%" PRIu64
                " rows wait longer than they should: is reconciliation running, and is the clock right?",
                after->stuck_count);
}
