/* flags.c: one flag into the table, or beside it.
 *
 * Owns: the rule of which flags of a decision have a row (store.c, at the top). Called by: drain, orders. Thread: the
 * store thread.
 */
#include "sidecar/store/drain.h"

#include <stdio.h>
#include <string.h>

#include "sidecar/store/columns.h"
#include "sidecar/obs/utf8.h"
#include "sidecar/store/job.h"

/* What was imported had been handed back with its answer: its caller had it, as with a cell of its own. */
enum { ORIGIN_LOOP = 1 };

/* Why a flag has no row. */
static const char why_ordered[] = "an order names another flag of the decision";
static const char why_client[] = "the client was given another answer";
static const char why_earlier[] = "an earlier flag of the decision stands";

/* Statements made from the table of columns. */
static sqlite3_stmt *prepare_built(struct spw_ledger *ledger, enum spw_statement which)
{
    if (ledger->statement[which])
        return spw_ledger_prepare(ledger, which, NULL);
    static struct spw_sql sql; /* the store thread's */
    sql.used = 0;
    sql.overflow = false;
    int n = spw_columns_count();
    switch (which) {
    case SPW_STATEMENT_FLAG_INSERT:
        spw_sql_add(&sql, "INSERT INTO flags(");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ",sequence,stored_unix_ms,changed_unix_ms,change,revision,flag_state) VALUES(");
        spw_columns_holes(&sql);
        spw_sql_add(&sql, ",?%d,?%d,?%d,?%d,?%d,0)", n + 1, n + 2, n + 2, n + 3, n + 4);
        break;
    case SPW_STATEMENT_FLAG_REPLACE:
        spw_sql_add(&sql, "UPDATE flags SET ");
        spw_columns_assign(&sql);
        spw_sql_add(&sql, ",changed_unix_ms=?%d,change=?%d,revision=revision+?%d WHERE sequence=?%d", n + 2,
                    n + 3, n + 4, n + 1);
        break;
    case SPW_STATEMENT_FLAG_ASIDE:
        spw_sql_add(&sql, "INSERT INTO superseded(");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ",sequence,set_aside_unix_ms,why) VALUES(");
        spw_columns_holes(&sql);
        spw_sql_add(&sql, ",?%d,?%d,?%d)", n + 1, n + 2, n + 3);
        break;
    case SPW_STATEMENT_FLAG_COPY:
        spw_sql_add(&sql, "INSERT INTO superseded(sequence,set_aside_unix_ms,why,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ") SELECT sequence,?2,?3,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, " FROM flags WHERE sequence=?1");
        break;
    case SPW_STATEMENT_FLAG_EXCHANGE:
        spw_sql_add(&sql, "UPDATE flags SET changed_unix_ms=?2,change=?3,(");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ")=(SELECT ");
        spw_columns_names(&sql);
        spw_sql_add(&sql, " FROM superseded WHERE superseded_row=?4) WHERE sequence=?1");
        break;
    default: /* SPW_STATEMENT_FLAG_RETURN */
        spw_sql_add(&sql,
                    "INSERT INTO flags(sequence,stored_unix_ms,changed_unix_ms,change,revision,flag_state,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ") SELECT ?1,?2,?2,?3,0,0,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, " FROM superseded WHERE superseded_row=?4");
    }
    return sql.overflow ? NULL : spw_ledger_prepare(ledger, which, sql.text);
}

/* Write a payload into a row: insert it as `sequence`, or replace that row's content. A row that is bound to its order
 * next has its revision counted there, so that one change is one revision. */
static int write_row(struct spw_batch *batch, enum spw_statement which,
                     const struct spw_flag_payload *payload, uint64_t sequence, bool named, bool refresh)
{
    sqlite3_stmt *statement = prepare_built(batch->ledger, which);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    int n = spw_columns_count();
    int rc = spw_columns_bind(statement, payload);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(statement, n + 1, (sqlite3_int64)sequence);
    sqlite3_bind_int64(statement, n + 2, batch->now_unix_ms);
    sqlite3_bind_int64(statement, n + 3, spw_batch_change(batch));
    sqlite3_bind_int(statement, n + 4, named ? 0 : 1);
    rc = spw_statement_run(statement);
    return rc == SQLITE_OK && refresh ? spw_orders_refresh(batch, payload->record.quote_id) : rc;
}

/* Has a flag of this id been stored before? *damage when it was another decision's. */
static int look_up_id(struct spw_batch *batch, const struct spw_flag_record *r, bool *known,
                      const char **damage)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_FLAG_ID,
                           "SELECT decision_id=?2 AND account=?3 FROM flags WHERE flag_id=?1 UNION ALL"
                           " SELECT decision_id=?2 AND account=?3 FROM superseded WHERE flag_id=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->flag_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, r->decision_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, r->account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    *known = rc == SQLITE_ROW;
    if (*known && !sqlite3_column_int(statement, 0))
        *damage = "its flag id belongs to another decision";
    if (*known)
        rc = sqlite3_reset(statement);
    return rc;
}

/* Is the quote named by an order, now or before? A second flag of one quote, which no honest writer makes, is not
 * counted as named while the decision has a row of it: the order's money would be told twice. */
static int look_up_named(struct spw_batch *batch, const struct spw_flag_record *r, bool *named,
                         bool *abandoned)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_FLAG_NAMED,
                           "SELECT EXISTS(SELECT 1 FROM order_quotes WHERE quote_id=?1) AND NOT EXISTS"
                           "(SELECT 1 FROM flags WHERE quote_id=?1 AND decision_id=?2 AND account=?3),"
                           " EXISTS(SELECT 1 FROM abandoned WHERE quote_id=?1)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->quote_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, r->decision_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, r->account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    *named = sqlite3_column_int(statement, 0) != 0;
    *abandoned = sqlite3_column_int(statement, 1) != 0;
    return sqlite3_reset(statement);
}

/* A row of the decision: the one that no order names when there is one, otherwise the first. */
struct standing {
    uint64_t sequence; /* 0 = the decision has no row yet */
    bool provisional;  /* no order names it: PROVISIONAL, or given up since */
    bool given_up;     /* ABANDONED or UNPLACED */
    int origin;
    int64_t created_unix_ms;
    char flag_id[SPW_ID_BYTES];
};

static int look_up_decision(struct spw_batch *batch, const char *decision_id, const char *account,
                            struct standing *out)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_FLAG_DECISION,
                           "SELECT sequence, flag_state IN (0,4,5), origin, created_unix_ms, flag_id,"
                           " flag_state=0 FROM flags WHERE decision_id=?1 AND account=?2"
                           " ORDER BY flag_state NOT IN (0,4,5), sequence LIMIT 1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, decision_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
    out->provisional = sqlite3_column_int(statement, 1) != 0;
    out->origin = sqlite3_column_int(statement, 2);
    out->created_unix_ms = sqlite3_column_int64(statement, 3);
    const char *flag_id = (const char *)sqlite3_column_text(statement, 4);
    snprintf(out->flag_id, sizeof out->flag_id, "%s", flag_id ? flag_id : "");
    out->given_up = out->provisional && !sqlite3_column_int(statement, 5);
    return sqlite3_reset(statement);
}

/* Of two flags that no order names: does the new one stand? */
static bool precedes(const struct spw_flag_record *r, const struct standing *old)
{
    if ((r->origin == ORIGIN_LOOP) != (old->origin == ORIGIN_LOOP))
        return r->origin != ORIGIN_LOOP;
    if (r->created_unix_ms != old->created_unix_ms)
        return r->created_unix_ms < old->created_unix_ms;
    return strcmp(r->flag_id, old->flag_id) < 0;
}

static const char *why_not(const struct spw_flag_record *r, const struct standing *old, bool ordered)
{
    if (ordered)
        return why_ordered;
    return (r->origin == ORIGIN_LOOP) != (old->origin == ORIGIN_LOOP) ? why_client : why_earlier;
}

/* The sequence of a row about to be inserted. */
static uint64_t take_sequence(struct spw_batch *batch)
{
    batch->counts.flags_count = ++batch->counts.newest_sequence;
    batch->counts.by_state[SPW_FLAG_PROVISIONAL]++;
    batch->counts.by_reconcile[SPW_RECONCILE_NONE]++;
    batch->counts.by_filing[SPW_FILING_NONE]++;
    batch->counts.unacknowledged_count++;
    return batch->counts.newest_sequence;
}

/* The content of a row goes beside it; the row is about to take another. */
static int copy_aside(struct spw_batch *batch, uint64_t sequence, const char *why)
{
    sqlite3_stmt *copy = prepare_built(batch->ledger, SPW_STATEMENT_FLAG_COPY);
    if (!copy)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(copy, 1, (sqlite3_int64)sequence);
    sqlite3_bind_int64(copy, 2, batch->now_unix_ms);
    sqlite3_bind_text(copy, 3, why, -1, SQLITE_STATIC);
    return spw_statement_run(copy);
}

static int set_aside(struct spw_batch *batch, const struct spw_flag_payload *payload, uint64_t sequence,
                     const char *why)
{
    sqlite3_stmt *statement = prepare_built(batch->ledger, SPW_STATEMENT_FLAG_ASIDE);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    int n = spw_columns_count();
    int rc = spw_columns_bind(statement, payload);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(statement, n + 1, (sqlite3_int64)sequence);
    sqlite3_bind_int64(statement, n + 2, batch->now_unix_ms);
    sqlite3_bind_text(statement, n + 3, why, -1, SQLITE_STATIC);
    batch->counts.duplicate_count++;
    return spw_statement_run(statement);
}

/* ---- a flag that was set aside, and is named by an order now ---- */

struct waiting {
    int64_t row; /* of superseded; 0 = none */
    char decision_id[SPW_CALLER_ID_BYTES];
    char account[SPW_NAME_BYTES];
};

static int next_waiting(struct spw_batch *batch, const char *quote_id, struct waiting *out)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_FLAG_WAITING,
        "SELECT superseded_row, decision_id, account FROM superseded AS s WHERE quote_id=?1 AND NOT EXISTS"
        "(SELECT 1 FROM flags AS f WHERE f.quote_id=?1 AND f.decision_id=s.decision_id AND"
        " f.account=s.account) ORDER BY superseded_row LIMIT 1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, quote_id, -1, SQLITE_STATIC);
    out->row = 0;
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    const char *decision_id = (const char *)sqlite3_column_text(statement, 1);
    const char *account = (const char *)sqlite3_column_text(statement, 2);
    out->row = sqlite3_column_int64(statement, 0);
    snprintf(out->decision_id, sizeof out->decision_id, "%s", decision_id ? decision_id : "");
    snprintf(out->account, sizeof out->account, "%s", account ? account : "");
    return sqlite3_reset(statement);
}

static int drop_waiting(struct spw_batch *batch, int64_t row)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_FLAG_DROP,
                                                 "DELETE FROM superseded WHERE superseded_row=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, row);
    return spw_statement_run(statement);
}

/* Out of superseded: into the decision's PROVISIONAL row, whose content goes there instead, or into a new row. */
static int recall_one(struct spw_batch *batch, const struct waiting *waiting)
{
    struct standing old = {0};
    int rc = look_up_decision(batch, waiting->decision_id, waiting->account, &old);
    if (rc == SQLITE_OK && old.provisional)
        rc = copy_aside(batch, old.sequence, why_ordered);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_stmt *statement = prepare_built(batch->ledger, old.provisional ? SPW_STATEMENT_FLAG_EXCHANGE
                                                                           : SPW_STATEMENT_FLAG_RETURN);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    uint64_t sequence = old.provisional ? old.sequence : take_sequence(batch);
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)sequence);
    sqlite3_bind_int64(statement, 2, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 3, spw_batch_change(batch));
    sqlite3_bind_int64(statement, 4, waiting->row);
    rc = spw_statement_run(statement);
    return rc == SQLITE_OK ? drop_waiting(batch, waiting->row) : rc;
}

int spw_flags_recall(struct spw_batch *batch, const char *quote_id)
{
    struct waiting waiting = {0};
    int rc = next_waiting(batch, quote_id, &waiting);
    while (rc == SQLITE_OK && waiting.row) {
        rc = recall_one(batch, &waiting);
        if (rc == SQLITE_OK)
            rc = next_waiting(batch, quote_id, &waiting);
    }
    return rc;
}

/* ---- a flag from a cell ---- */

/* Texts of the view as a payload; what is no text is made one in place. */
static void make_payload(const struct spw_map *map, uint8_t *bytes, const struct spw_flag_view *view,
                         struct spw_flag_payload *out)
{
    out->record = view->record;
    out->lines = view->lines;
    out->assumptions = view->assumptions;
    out->request = view->request;
    const char *doubt = spw_flag_doubt(map, view);
    bool repaired = spw_utf8_repair((char *)bytes + (view->assumptions - (const char *)bytes),
                                    view->record.assumptions_bytes);
    repaired |=
        spw_utf8_repair((char *)bytes + (view->request - (const char *)bytes), view->record.request_bytes);
    if (!doubt && repaired)
        doubt = "its text was not UTF-8 and has been repaired";
    out->verified = doubt == NULL;
    out->unverified_reason = doubt ? doubt : "";
}

/* The flag is news: where it belongs, beside what its decision has. */
static int place(struct spw_batch *batch, const struct spw_flag_payload *payload)
{
    const struct spw_flag_record *r = &payload->record;
    struct standing old = {0};
    bool named = false, abandoned = false;
    int rc = look_up_named(batch, r, &named, &abandoned);
    if (rc == SQLITE_OK)
        rc = look_up_decision(batch, r->decision_id, r->account, &old);
    if (rc != SQLITE_OK)
        return rc;
    if (!old.sequence || (named && !old.provisional))
        return write_row(batch, SPW_STATEMENT_FLAG_INSERT, payload, take_sequence(batch), named,
                         named || abandoned);
    if (!named && !(old.provisional && precedes(r, &old)))
        return set_aside(batch, payload, old.sequence, why_not(r, &old, !old.provisional));
    rc = copy_aside(batch, old.sequence, why_not(r, &old, named));
    /* The row was given up for what it held; what it holds now may be younger. */
    bool refresh = named || abandoned || old.given_up;
    return rc == SQLITE_OK
               ? write_row(batch, SPW_STATEMENT_FLAG_REPLACE, payload, old.sequence, named, refresh)
               : rc;
}

int spw_flag_store(struct spw_batch *batch, uint8_t *bytes, size_t count, const char **damage)
{
    struct spw_flag_view view;
    if (!spw_flag_parse(bytes, count, &view)) {
        *damage = "the flag's fields or lengths make no sense";
        return SQLITE_OK;
    }
    if (spw_columns_bad_text(&view.record)) {
        *damage = "an id or name of the flag is not UTF-8 text";
        return SQLITE_OK;
    }
    bool known = false;
    int rc = look_up_id(batch, &view.record, &known, damage);
    if (rc != SQLITE_OK || *damage)
        return rc;
    if (known) {
        batch->counts.duplicate_count++;
        return SQLITE_OK;
    }
    struct spw_flag_payload payload;
    make_payload(batch->map, bytes, &view, &payload);
    return place(batch, &payload);
}

/* ---- a flag that comes without a cell ---- */

struct flag_request {
    struct spw_store_job job;
    uint8_t *bytes;
    size_t count;
    bool known;
};

static int run_flag(struct spw_batch *batch, struct spw_store_job *job)
{
    struct flag_request *request = (struct flag_request *)(void *)job;
    const char *damage = NULL;
    uint64_t duplicates = batch->counts.duplicate_count, flags = batch->counts.flags_count;
    uint64_t change = batch->counts.newest_change;
    int rc = spw_flag_store(batch, request->bytes, request->count, &damage);
    request->known = batch->counts.flags_count == flags && batch->counts.newest_change == change &&
                     batch->counts.duplicate_count > duplicates;
    if (damage)
        spw_error_set(&job->error, SPW_STATUS_INVALID, "flag: %s", damage);
    return rc;
}

enum spw_status spw_store_flag(struct spw_store *store, uint8_t *bytes, size_t count, bool *known,
                               struct spw_error *err)
{
    struct flag_request request = {.bytes = bytes, .count = count};
    spw_store_submit(store, &request.job, run_flag);
    enum spw_status status = spw_store_wait(store, &request.job);
    *known = request.known;
    if (status != SPW_STATUS_OK && err)
        *err = request.job.error;
    return status;
}
