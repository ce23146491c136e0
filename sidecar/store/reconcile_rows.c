/* reconcile_rows.c: see reconcile_rows.h.
 *
 * Owns: the statements on the reconciliation columns. Called by: store.c (jobs), orders (a row begins anew). Thread: the
 * store thread, inside a transaction; the functions that hand over a job run in any.
 */
#include "sidecar/store/reconcile_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/obs/utf8.h"
#include "sidecar/store/drain.h"
#include "sidecar/store/row.h"

#define NEVER_MS INT64_MAX

/* What a change starts from. */
struct standing {
    int64_t sequence;
    uint32_t revision;
    bool ordered; /* an order stands on it */
    enum spw_reconcile_state state;
    enum spw_filing_state filing;
    bool sent; /* to the provider's books, once: perhaps it arrived. Only known of a filing that failed */
    bool live_known;
    struct spw_variance variance;
    char document_id[SPW_DOCUMENT_BYTES];
    char decision[16];
    char by[SPW_WHO_BYTES];
};

/* ---- shared with orders ---- */

int spw_history_add(struct spw_batch *batch, int64_t sequence, const char *who, const char *from,
                    const char *to, const char *why)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_HISTORY,
                                                 "INSERT INTO history(sequence, at_unix_ms, who, from_state,"
                                                 " to_state, why) VALUES(?1,?2,?3,?4,?5,?6)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, sequence);
    sqlite3_bind_int64(statement, 2, batch->now_unix_ms);
    sqlite3_bind_text(statement, 3, who, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 4, from, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 5, to, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 6, why, -1, SQLITE_STATIC);
    return spw_statement_run(statement);
}

static void count_change(struct spw_batch *batch, const struct standing *was, enum spw_reconcile_state state,
                         enum spw_filing_state filing)
{
    batch->counts.by_reconcile[was->state]--;
    batch->counts.by_reconcile[state]++;
    batch->counts.by_filing[was->filing]--;
    batch->counts.by_filing[filing]++;
}

static int states_of(struct spw_batch *batch, int64_t sequence, struct standing *out)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ROW_STATES,
                           "SELECT reconcile_state, filing_state, filing_state=4 AND EXISTS(SELECT 1 FROM"
                           " history AS h WHERE h.sequence=f.sequence AND to_state='filing sent')"
                           " FROM flags AS f WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, sequence);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
    out->state =
        (enum spw_reconcile_state)((uint32_t)sqlite3_column_int(statement, 0) % SPW_RECONCILE_STATES);
    out->filing = (enum spw_filing_state)((uint32_t)sqlite3_column_int(statement, 1) % SPW_FILING_STATES);
    out->sent = sqlite3_column_int(statement, 2) != 0;
    return sqlite3_reset(statement);
}

int spw_row_begin_anew(struct spw_batch *batch, int64_t sequence, enum spw_flag_state order_state)
{
    struct standing was = {0};
    int rc = states_of(batch, sequence, &was);
    if (rc != SQLITE_OK)
        return rc;
    bool stands = order_state == SPW_FLAG_CONFIRMED;
    bool filed = was.filing == SPW_FILING_SENT || was.filing == SPW_FILING_FILED || was.sent;
    enum spw_reconcile_state state = filed    ? SPW_RECONCILE_EXCEPTION
                                     : stands ? SPW_RECONCILE_PENDING
                                              : SPW_RECONCILE_NONE;
    enum spw_filing_state filing = filed ? was.filing : SPW_FILING_NONE;
    const char *why = !filed   ? ""
                      : stands ? "its order changed after it was filed"
                               : "its order was taken back after it was filed";
    if (state == SPW_RECONCILE_NONE && was.state == SPW_RECONCILE_NONE)
        return SQLITE_OK;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ROW_ANEW,
        "UPDATE flags SET reconcile_state=?2, filing_state=?3, reconcile_error=?4, live_known=0,"
        " live_tax_minor=0, variance_minor=0, rounding_noise_minor=0, rate_variance_minor=0,"
        " base_variance_minor=0, nexus_variance_minor=0, reconcile_attempts=0, reconcile_next_unix_ms=0,"
        " reconciled_unix_ms=0, decision='', decided_by='' WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, sequence);
    sqlite3_bind_int(statement, 2, (int)state);
    sqlite3_bind_int(statement, 3, (int)filing);
    sqlite3_bind_text(statement, 4, why, -1, SQLITE_STATIC);
    rc = spw_statement_run(statement);
    if (rc == SQLITE_OK && state != was.state)
        rc = spw_history_add(batch, sequence, "orders", spw_reconcile_state_name(was.state),
                             spw_reconcile_state_name(state), why);
    if (rc == SQLITE_OK)
        count_change(batch, &was, state, filing);
    return rc;
}

/* ---- no order came ---- */

static int give_up(struct spw_batch *batch, int64_t sequence, enum spw_flag_state state)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_GIVE_UP,
                                                 "UPDATE flags SET flag_state=?2, changed_unix_ms=?3,"
                                                 " change=?4, revision=revision+1 WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, sequence);
    sqlite3_bind_int(statement, 2, (int)state);
    sqlite3_bind_int64(statement, 3, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 4, spw_batch_change(batch));
    int rc = spw_statement_run(statement);
    if (rc == SQLITE_OK)
        rc = spw_history_add(batch, sequence, "time", spw_flag_state_name(SPW_FLAG_PROVISIONAL),
                             spw_flag_state_name(state), "no order came of it");
    batch->counts.by_state[SPW_FLAG_PROVISIONAL]--;
    batch->counts.by_state[state]++;
    return rc;
}

int spw_rows_give_up(struct spw_batch *batch, int64_t after_ms, uint32_t max_count, uint32_t *count)
{
    for (*count = 0; *count < max_count; ++*count) {
        sqlite3_stmt *statement =
            spw_ledger_prepare(batch->ledger, SPW_STATEMENT_GIVE_UP_FIND,
                               "SELECT sequence, purpose FROM flags WHERE flag_state=0 AND"
                               " created_unix_ms<=?1 ORDER BY created_unix_ms LIMIT 1");
        if (!statement)
            return spw_ledger_failure(batch->ledger);
        sqlite3_bind_int64(statement, 1, batch->now_unix_ms - after_ms);
        int rc = spw_statement_row(statement);
        if (rc != SQLITE_ROW)
            return rc;
        int64_t sequence = sqlite3_column_int64(statement, 0);
        bool order = sqlite3_column_int(statement, 1) == SPW_PURPOSE_ORDER;
        rc = sqlite3_reset(statement);
        if (rc == SQLITE_OK)
            rc = give_up(batch, sequence, order ? SPW_FLAG_UNPLACED : SPW_FLAG_ABANDONED);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

/* ---- claiming ---- */

/* No lease and no pause lasts an hour: what is to be tried later than that was written before the clock was put back, and is
 * due. */
#define LATER_MS "3600000"
static const char due_reconcile_sql[] =
    "WHERE reconcile_state=1 AND reconcile_next_unix_ms NOT BETWEEN ?1+1 AND ?1+" LATER_MS
    " AND (?2='' OR account=?2) AND"
    " account NOT IN (SELECT value FROM json_each(?3)) ORDER BY flags.placed_unix_ms LIMIT ?4";
static const char due_file_sql[] =
    "WHERE filing_state IN (1,2,4) AND filing_next_unix_ms<9223372036854775807 AND"
    " filing_next_unix_ms NOT BETWEEN ?1+1 AND ?1+" LATER_MS
    " AND reconcile_state<>1 AND (?2='' OR account=?2) AND"
    " account NOT IN (SELECT value FROM json_each(?3)) ORDER BY flags.placed_unix_ms LIMIT ?4";

/* One statement for all of them: what is not due yet stands before it in the index, and is passed once. */
static int find_due(struct spw_batch *batch, struct spw_due_request *request, struct spw_row_copy *copy)
{
    bool file = request->what == SPW_DUE_FILE;
    enum spw_statement which = file ? SPW_STATEMENT_DUE_FILE : SPW_STATEMENT_DUE_RECONCILE;
    static struct spw_sql sql; /* the store thread's */
    if (!batch->ledger->statement[which]) {
        sql.used = 0;
        sql.overflow = false;
        spw_row_select(&sql, file ? due_file_sql : due_reconcile_sql);
        if (sql.overflow)
            return SQLITE_TOOBIG;
    }
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, which, sql.text);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, request->now_unix_ms);
    sqlite3_bind_text(statement, 2, request->account, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, request->but ? request->but : "[]", -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 4, request->max_count);
    int rc;
    while ((rc = spw_statement_row(statement)) == SQLITE_ROW) {
        spw_row_read(copy, statement);
        struct spw_flag_row *row = spw_row_clone(copy);
        if (!row) {
            sqlite3_reset(statement);
            return SQLITE_NOMEM;
        }
        request->rows[request->rows_count++] = row;
    }
    return rc;
}

static int claim(struct spw_batch *batch, const struct spw_due_request *request, struct spw_flag_row *row)
{
    bool file = request->what == SPW_DUE_FILE;
    int64_t until = request->now_unix_ms + request->lease_ms;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, file ? SPW_STATEMENT_CLAIM_FILE : SPW_STATEMENT_CLAIM_RECONCILE,
        file ? "UPDATE flags SET filing_next_unix_ms=?2, filing_attempts=filing_attempts+1 WHERE sequence=?1"
             : "UPDATE flags SET reconcile_next_unix_ms=?2, reconcile_attempts=reconcile_attempts+1"
               " WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, (int64_t)row->sequence);
    sqlite3_bind_int64(statement, 2, until);
    struct spw_reconciliation *r = &row->reconciliation;
    if (file) {
        r->filing_attempts++;
        r->filing_next_unix_ms = until;
    } else {
        r->attempts++;
        r->next_try_unix_ms = until;
    }
    return spw_statement_run(statement);
}

static int run_due(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_due_request *request = (struct spw_due_request *)(void *)job;
    spw_due_rows_free(request); /* a run that was rolled back */
    if (request->max_count < 1 || request->max_count > SPW_DUE_MAX_COUNT || request->lease_ms < 1) {
        spw_error_set(&job->error, SPW_STATUS_INVALID, "due: ask for 1 to %u rows, and a lease above 0",
                      SPW_DUE_MAX_COUNT);
        return SQLITE_OK;
    }
    struct spw_row_copy *copy = calloc(1, sizeof *copy);
    int rc = copy ? find_due(batch, request, copy) : SQLITE_NOMEM;
    free(copy);
    for (uint32_t i = 0; i < request->rows_count && rc == SQLITE_OK; i++)
        rc = claim(batch, request, request->rows[i]);
    if (rc != SQLITE_OK)
        spw_due_rows_free(request);
    return rc;
}

void spw_due_rows_free(struct spw_due_request *request)
{
    for (uint32_t i = 0; i < request->rows_count; i++)
        free(request->rows[i]);
    request->rows_count = 0;
}

void spw_store_due(struct spw_store *store, struct spw_due_request *request)
{
    request->rows_count = 0;
    spw_store_submit(store, &request->job, run_due);
}

/* ---- what a result starts from ---- */

static void copy_text(sqlite3_stmt *statement, int column, char *out, size_t room)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    snprintf(out, room, "%s", text ? text : "");
}

static int find_row(struct spw_batch *batch, const char *flag_id, struct standing *out)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ROW_FIND,
                           "SELECT sequence, revision, reconcile_state, filing_state, live_known,"
                           " live_tax_minor, variance_minor, rounding_noise_minor, rate_variance_minor,"
                           " base_variance_minor, nexus_variance_minor, document_id, decision, decided_by,"
                           " flag_state"
                           " FROM flags WHERE flag_id=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, flag_id, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out->sequence = sqlite3_column_int64(statement, 0);
    out->revision = (uint32_t)sqlite3_column_int64(statement, 1);
    out->state =
        (enum spw_reconcile_state)((uint32_t)sqlite3_column_int(statement, 2) % SPW_RECONCILE_STATES);
    out->filing = (enum spw_filing_state)((uint32_t)sqlite3_column_int(statement, 3) % SPW_FILING_STATES);
    out->live_known = sqlite3_column_int(statement, 4) != 0;
    out->variance = (struct spw_variance){.live_tax_minor = sqlite3_column_int64(statement, 5),
                                          .variance_minor = sqlite3_column_int64(statement, 6),
                                          .rounding_noise_minor = sqlite3_column_int64(statement, 7),
                                          .rate_minor = sqlite3_column_int64(statement, 8),
                                          .base_minor = sqlite3_column_int64(statement, 9),
                                          .nexus_minor = sqlite3_column_int64(statement, 10)};
    copy_text(statement, 11, out->document_id, sizeof out->document_id);
    copy_text(statement, 12, out->decision, sizeof out->decision);
    copy_text(statement, 13, out->by, sizeof out->by);
    out->ordered = sqlite3_column_int(statement, 14) == SPW_FLAG_CONFIRMED;
    return sqlite3_reset(statement);
}

/* Find the row a job names. false: job->error says why there is nothing to do, or *rc what failed. */
static bool begin_change(struct spw_batch *batch, struct spw_store_job *job, const char *flag_id,
                         struct standing *was, int *rc)
{
    memset(was, 0, sizeof *was);
    *rc = find_row(batch, flag_id, was);
    if (*rc == SQLITE_OK && !was->sequence)
        spw_error_set(&job->error, SPW_STATUS_NOT_FOUND, "%s: no such flag in this ledger", flag_id);
    return *rc == SQLITE_OK && was->sequence;
}

static void refuse_changed(struct spw_store_job *job, const char *flag_id, const struct standing *was,
                           uint32_t expected)
{
    spw_error_set(&job->error, SPW_STATUS_CONFLICT,
                  "%s: has revision %u, not %u: it changed meanwhile; read it again", flag_id, was->revision,
                  expected);
}

/* ---- results of reconciliation ---- */

static const char *fault_of_result(const struct spw_reconciled_request *r)
{
    const struct spw_variance *v = &r->variance;
    int64_t parts;
    if (r->state == SPW_RECONCILE_NONE || r->state == SPW_RECONCILE_RESOLVED ||
        r->state >= SPW_RECONCILE_STATES)
        return "is no result of reconciliation";
    if (r->state == SPW_RECONCILE_EXCEPTION && !r->why[0])
        return "an exception says why";
    if (r->state == SPW_RECONCILE_PENDING)
        return r->next_try_unix_ms > 0 ? NULL : "what is tried again says when";
    if (r->filing != SPW_FILING_NONE && r->filing != SPW_FILING_NEEDED &&
        r->filing != SPW_FILING_NOT_POSSIBLE)
        return "a result begins a filing or leaves it";
    if (!r->live_known)
        return r->state == SPW_RECONCILE_EXCEPTION ? NULL : "the live tax is missing";
    if (__builtin_add_overflow(v->rounding_noise_minor, v->rate_minor, &parts) ||
        __builtin_add_overflow(parts, v->base_minor, &parts) ||
        __builtin_add_overflow(parts, v->nexus_minor, &parts) || parts != v->variance_minor)
        return "the parts of the variance do not add up to it";
    return NULL;
}

static bool has_result(const struct standing *was, const struct spw_reconciled_request *r)
{
    return was->revision == r->expected_revision + 1 && was->state == r->state &&
           was->live_known == r->live_known &&
           (!r->live_known || (was->variance.live_tax_minor == r->variance.live_tax_minor &&
                               was->variance.variance_minor == r->variance.variance_minor));
}

static int write_retry(struct spw_batch *batch, const struct standing *was,
                       const struct spw_reconciled_request *r)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ROW_RETRY,
        "UPDATE flags SET reconcile_next_unix_ms=?2, reconcile_error=?3 WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, was->sequence);
    sqlite3_bind_int64(statement, 2, r->next_try_unix_ms);
    sqlite3_bind_text(statement, 3, r->why, -1, SQLITE_STATIC);
    return spw_statement_run(statement);
}

static void count_variance(struct spw_store_counts *counts, const struct spw_variance *v)
{
    const int64_t part[SPW_VARIANCE_KINDS] = {v->rounding_noise_minor, v->rate_minor, v->base_minor,
                                              v->nexus_minor};
    for (uint32_t i = 0; i < SPW_VARIANCE_KINDS; i++) {
        if (part[i] > 0)
            counts->variance_over_minor[i] += (uint64_t)part[i];
        else
            counts->variance_under_minor[i] += (uint64_t)0 - (uint64_t)part[i];
    }
}

static int write_result(struct spw_batch *batch, const struct standing *was,
                        const struct spw_reconciled_request *r)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ROW_RESULT,
        "UPDATE flags SET reconcile_state=?2, live_known=?3, live_tax_minor=?4, variance_minor=?5,"
        " rounding_noise_minor=?6, rate_variance_minor=?7, base_variance_minor=?8, nexus_variance_minor=?9,"
        " reconcile_error=?10, reconciled_unix_ms=?11, filing_state=?12, filing_next_unix_ms=0,"
        " filing_attempts=0, filing_error='', changed_unix_ms=?13, change=?14, revision=revision+1"
        " WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    static const struct spw_variance nothing;
    const struct spw_variance *v = r->live_known ? &r->variance : &nothing;
    sqlite3_bind_int64(statement, 1, was->sequence);
    sqlite3_bind_int(statement, 2, (int)r->state);
    sqlite3_bind_int(statement, 3, r->live_known);
    sqlite3_bind_int64(statement, 4, v->live_tax_minor);
    sqlite3_bind_int64(statement, 5, v->variance_minor);
    sqlite3_bind_int64(statement, 6, v->rounding_noise_minor);
    sqlite3_bind_int64(statement, 7, v->rate_minor);
    sqlite3_bind_int64(statement, 8, v->base_minor);
    sqlite3_bind_int64(statement, 9, v->nexus_minor);
    sqlite3_bind_text(statement, 10, r->why, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 11, r->now_unix_ms);
    sqlite3_bind_int(statement, 12, (int)r->filing);
    sqlite3_bind_int64(statement, 13, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 14, spw_batch_change(batch));
    int rc = spw_statement_run(statement);
    if (rc == SQLITE_OK)
        rc = spw_history_add(batch, was->sequence, r->who, spw_reconcile_state_name(was->state),
                             spw_reconcile_state_name(r->state), r->why);
    if (rc == SQLITE_OK)
        count_change(batch, was, r->state, r->filing);
    if (rc == SQLITE_OK)
        count_variance(&batch->counts, v);
    return rc;
}

static int run_reconciled(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_reconciled_request *r = (struct spw_reconciled_request *)(void *)job;
    struct standing was;
    int rc;
    if (!begin_change(batch, job, r->flag_id, &was, &rc))
        return rc;
    r->revision = was.revision;
    if (has_result(&was, r))
        return SQLITE_OK;
    const char *fault = fault_of_result(r);
    if (was.revision != r->expected_revision) {
        refuse_changed(job, r->flag_id, &was, r->expected_revision);
    } else if (fault || was.state != SPW_RECONCILE_PENDING) {
        spw_error_set(&job->error, SPW_STATUS_INVALID, "%s: %s -> %s: %s", r->flag_id,
                      spw_reconcile_state_name(was.state), spw_reconcile_state_name(r->state),
                      fault ? fault : "it is not pending");
    } else if (r->state == SPW_RECONCILE_PENDING) {
        return write_retry(batch, &was, r);
    } else {
        rc = write_result(batch, &was, r);
        r->revision++;
    }
    return rc;
}

void spw_store_reconciled(struct spw_store *store, struct spw_reconciled_request *request)
{
    spw_store_submit(store, &request->job, run_reconciled);
}

/* ---- results of filing ---- */

static int write_filed(struct spw_batch *batch, const struct standing *was, const struct spw_filed_request *r,
                       bool told)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ROW_FILED,
        "UPDATE flags SET filing_state=?2, filing_next_unix_ms=?3, filing_error=?4,"
        " document_id=CASE ?5 WHEN '' THEN document_id ELSE ?5 END, changed_unix_ms=?6,"
        " change=CASE ?7 WHEN 0 THEN change ELSE ?7 END, revision=revision+?8 WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, was->sequence);
    sqlite3_bind_int(statement, 2, (int)r->filing);
    sqlite3_bind_int64(statement, 3,
                       r->filing == SPW_FILING_FILED || r->filing == SPW_FILING_NOT_POSSIBLE
                           ? NEVER_MS
                           : r->next_try_unix_ms);
    sqlite3_bind_text(statement, 4, r->why, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 5, r->document_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 6, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 7, told ? spw_batch_change(batch) : 0);
    sqlite3_bind_int(statement, 8, told);
    int rc = spw_statement_run(statement);
    if (rc != SQLITE_OK || !told)
        return rc;
    char from[32], to[32];
    snprintf(from, sizeof from, "filing %s", spw_filing_state_name(was->filing));
    snprintf(to, sizeof to, "filing %s", spw_filing_state_name(r->filing));
    count_change(batch, was, was->state, r->filing);
    return spw_history_add(batch, was->sequence, r->who, from, to, r->why);
}

static int run_filed(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_filed_request *r = (struct spw_filed_request *)(void *)job;
    struct standing was;
    int rc;
    if (!begin_change(batch, job, r->flag_id, &was, &rc))
        return rc;
    r->revision = was.revision;
    bool same =
        was.filing == r->filing && (!r->document_id[0] || strcmp(was.document_id, r->document_id) == 0);
    if (same && (was.filing == SPW_FILING_FILED || was.revision == r->expected_revision + 1))
        return SQLITE_OK;
    bool known = r->filing == SPW_FILING_SENT || r->filing == SPW_FILING_FILED ||
                 r->filing == SPW_FILING_FAILED || r->filing == SPW_FILING_NOT_POSSIBLE;
    bool open =
        was.filing == SPW_FILING_NEEDED || was.filing == SPW_FILING_SENT || was.filing == SPW_FILING_FAILED;
    if (was.revision != r->expected_revision) {
        refuse_changed(job, r->flag_id, &was, r->expected_revision);
        return SQLITE_OK;
    }
    if (!known || !open) {
        spw_error_set(&job->error, SPW_STATUS_INVALID, "%s: filing %s -> %s: there is no such step",
                      r->flag_id, spw_filing_state_name(was.filing), spw_filing_state_name(r->filing));
        return SQLITE_OK;
    }
    rc = write_filed(batch, &was, r, !same);
    r->revision += !same;
    return rc;
}

void spw_store_filed(struct spw_store *store, struct spw_filed_request *request)
{
    spw_store_submit(store, &request->job, run_filed);
}

/* ---- a person's decision ---- */

static int write_decided(struct spw_batch *batch, const struct standing *was,
                         const struct spw_decide_request *r, enum spw_reconcile_state state,
                         enum spw_filing_state filing)
{
    bool note = r->decision == SPW_DECIDE_NOTE, retry = r->decision == SPW_DECIDE_RETRY;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ROW_DECIDED,
        "UPDATE flags SET reconcile_state=?2, filing_state=?3,"
        " filing_next_unix_ms=CASE WHEN filing_state=?3 THEN filing_next_unix_ms ELSE 0 END,"
        " filing_attempts=CASE WHEN filing_state=?3 THEN filing_attempts ELSE 0 END,"
        " decision=CASE ?4 WHEN '' THEN decision ELSE ?4 END, note=CASE ?5 WHEN '' THEN note ELSE ?5 END,"
        " decided_by=?6, reconcile_attempts=CASE ?7 WHEN 1 THEN 0 ELSE reconcile_attempts END,"
        " reconcile_next_unix_ms=CASE ?7 WHEN 1 THEN 0 ELSE reconcile_next_unix_ms END,"
        " changed_unix_ms=?8, change=?9, revision=revision+1 WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, was->sequence);
    sqlite3_bind_int(statement, 2, (int)state);
    sqlite3_bind_int(statement, 3, (int)filing);
    sqlite3_bind_text(statement, 4, note ? "" : spw_decision_word(r->decision), -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 5, r->note, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 6, r->by, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 7, retry);
    sqlite3_bind_int64(statement, 8, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 9, spw_batch_change(batch));
    int rc = spw_statement_run(statement);
    char why[SPW_NOTE_BYTES + 32];
    snprintf(why, sizeof why, "%s%s%s", spw_decision_word(r->decision), r->note[0] ? ": " : "", r->note);
    if (rc == SQLITE_OK)
        rc = spw_history_add(batch, was->sequence, r->by, spw_reconcile_state_name(was->state),
                             spw_reconcile_state_name(state), why);
    if (rc == SQLITE_OK)
        count_change(batch, was, state, filing);
    return rc;
}

/* May it be decided so? *over: there is nothing (more) to do; a refusal is in the request's job. */
static int check_decision(struct spw_batch *batch, struct spw_decide_request *r, struct standing *was,
                          bool *over)
{
    struct spw_store_job *job = &r->job;
    int rc;
    bool note = r->decision == SPW_DECIDE_NOTE, retry = r->decision == SPW_DECIDE_RETRY;
    *over = true;
    if (r->decision >= SPW_DECIDE_COUNT || !spw_utf8_is_name(r->by, strlen(r->by)) || !r->by[0] ||
        (note && !r->note[0])) {
        spw_error_set(&job->error, SPW_STATUS_INVALID, "%s: say who decides, and what; a note has words",
                      r->flag_id);
        return SQLITE_OK;
    }
    if (!begin_change(batch, job, r->flag_id, was, &rc))
        return rc;
    r->revision = was->revision;
    if (!note && was->state == SPW_RECONCILE_RESOLVED && strcmp(was->by, r->by) == 0 &&
        strcmp(was->decision, spw_decision_word(r->decision)) == 0)
        return SQLITE_OK;
    if (r->expected_revision && was->revision != r->expected_revision) {
        refuse_changed(job, r->flag_id, was, r->expected_revision);
        return SQLITE_OK;
    }
    if (!note && was->state != SPW_RECONCILE_EXCEPTION && !(retry && was->filing == SPW_FILING_FAILED)) {
        spw_error_set(&job->error, SPW_STATUS_INVALID,
                      "%s: is %s, not an exception: nothing is to be decided", r->flag_id,
                      spw_reconcile_state_name(was->state));
        return SQLITE_OK;
    }
    if (retry && !was->ordered) {
        spw_error_set(&job->error, SPW_STATUS_INVALID,
                      "%s: no order stands on it any more: there is nothing to try again; void what is in the"
                      " books, and accept",
                      r->flag_id);
        return SQLITE_OK;
    }
    *over = false;
    return SQLITE_OK;
}

static int apply_decision(struct spw_batch *batch, struct spw_decide_request *r, const struct standing *was)
{
    bool note = r->decision == SPW_DECIDE_NOTE, retry = r->decision == SPW_DECIDE_RETRY;
    bool refile = retry && was->state != SPW_RECONCILE_EXCEPTION;
    enum spw_reconcile_state state = note || refile ? was->state
                                     : retry        ? SPW_RECONCILE_PENDING
                                                    : SPW_RECONCILE_RESOLVED;
    bool file = refile || (r->file && !note && !retry && was->filing != SPW_FILING_FILED &&
                           was->filing != SPW_FILING_SENT);
    r->revision = was->revision + 1;
    return write_decided(batch, was, r, state, file ? SPW_FILING_NEEDED : was->filing);
}

static int run_decide(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_decide_request *r = (struct spw_decide_request *)(void *)job;
    struct standing was;
    bool over;
    int rc = check_decision(batch, r, &was, &over);
    return rc == SQLITE_OK && !over ? apply_decision(batch, r, &was) : rc;
}

static bool is_named_before(const struct spw_decide_all_request *all, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(all->decisions[k].flag_id, all->decisions[i].flag_id) == 0)
            return true;
    }
    return false;
}

static int run_decide_all(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_decide_all_request *all = (struct spw_decide_all_request *)(void *)job;
    struct standing was;
    bool over;
    int rc = SQLITE_OK;
    all->refused_count = 0;
    for (uint32_t i = 0; i < all->decisions_count && rc == SQLITE_OK; i++) {
        struct spw_decide_request *r = &all->decisions[i];
        memset(&r->job.error, 0, sizeof r->job.error);
        if (is_named_before(all, i))
            spw_error_set(&r->job.error, SPW_STATUS_INVALID, "%s: is decided twice", r->flag_id);
        else
            rc = check_decision(batch, r, &was, &over);
        all->refused_count += r->job.error.status != SPW_STATUS_OK;
    }
    if (rc == SQLITE_OK && all->refused_count) {
        spw_error_set(&job->error, SPW_STATUS_INVALID, "%u of %u decisions are refused: nothing was changed",
                      all->refused_count, all->decisions_count);
        return SQLITE_OK;
    }
    for (uint32_t i = 0; i < all->decisions_count && rc == SQLITE_OK; i++) {
        rc = check_decision(batch, &all->decisions[i], &was, &over);
        if (rc == SQLITE_OK && !over)
            rc = apply_decision(batch, &all->decisions[i], &was);
    }
    return rc;
}

void spw_store_decide_all(struct spw_store *store, struct spw_decide_all_request *request)
{
    spw_store_submit(store, &request->job, run_decide_all);
}

void spw_store_decide(struct spw_store *store, struct spw_decide_request *request)
{
    spw_store_submit(store, &request->job, run_decide);
}

/* ---- sums and counts ---- */

static int run_absorbed(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_absorbed_request *r = (struct spw_absorbed_request *)(void *)job;
    r->absorbed_minor = 0;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ABSORBED,
        "SELECT ifnull(sum(-variance_minor),0) FROM flags WHERE reconcile_state=3 AND currency=?1 AND"
        " reconciled_unix_ms>=?2 AND reconciled_unix_ms<?3");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->currency[0] ? r->currency : "USD", -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, r->from_unix_ms);
    sqlite3_bind_int64(statement, 3, r->until_unix_ms);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    r->absorbed_minor = sqlite3_column_int64(statement, 0);
    return sqlite3_reset(statement);
}

void spw_store_absorbed(struct spw_store *store, struct spw_absorbed_request *request)
{
    spw_store_submit(store, &request->job, run_absorbed);
}

static int count_backlog(struct spw_batch *batch, enum spw_statement which, const char *sql,
                         const char *account, uint64_t *count, int64_t *oldest, int64_t *next_due)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, which, sql);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    *count = (uint64_t)sqlite3_column_int64(statement, 0);
    *oldest = sqlite3_column_int64(statement, 1);
    if (*count && sqlite3_column_int64(statement, 2) < *next_due)
        *next_due = sqlite3_column_int64(statement, 2);
    return sqlite3_reset(statement);
}

static int run_backlog(struct spw_batch *batch, struct spw_store_job *job)
{
    struct spw_backlog_request *r = (struct spw_backlog_request *)(void *)job;
    int64_t unused, never = NEVER_MS;
    r->next_due_unix_ms = NEVER_MS;
    int rc = count_backlog(batch, SPW_STATEMENT_BACKLOG_RECONCILE,
                           "SELECT count(*), min(placed_unix_ms), min(reconcile_next_unix_ms) FROM flags"
                           " WHERE reconcile_state=1 AND (?1='' OR account=?1)",
                           r->account, &r->pending_count, &r->oldest_pending_unix_ms, &r->next_due_unix_ms);
    if (rc == SQLITE_OK)
        rc = count_backlog(batch, SPW_STATEMENT_BACKLOG_FILE,
                           "SELECT count(*), min(placed_unix_ms), min(filing_next_unix_ms) FROM flags"
                           " WHERE filing_state IN (1,2,4) AND filing_next_unix_ms<9223372036854775807 AND"
                           " reconcile_state<>1 AND (?1='' OR account=?1)",
                           r->account, &r->filings_count, &r->oldest_filing_unix_ms, &r->next_due_unix_ms);
    if (rc == SQLITE_OK)
        rc = count_backlog(batch, SPW_STATEMENT_BACKLOG_EXCEPTION,
                           "SELECT count(*), min(placed_unix_ms), 0 FROM flags"
                           " WHERE reconcile_state=6 AND reconcile_state<>0 AND (?1='' OR account=?1)",
                           r->account, &r->exceptions_count, &unused, &never);
    return rc;
}

void spw_store_backlog(struct spw_store *store, struct spw_backlog_request *request)
{
    spw_store_submit(store, &request->job, run_backlog);
}
