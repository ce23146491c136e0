/* flags.c: one flag into the table, or beside it.
 *
 * Owns: the rule of which flag of a decision stands (store.c, at the top). Called by: drain. Thread: the store thread.
 */
#include "sidecar/store/drain.h"

#include <string.h>

#include "sidecar/store/columns.h"
#include "sidecar/store/utf8.h"

enum { ORIGIN_SEGMENT, ORIGIN_LOOP };

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
        spw_sql_add(&sql, ",sequence,flag_state,revision,stored_unix_ms,changed_unix_ms) VALUES(");
        spw_columns_holes(&sql);
        spw_sql_add(&sql, ",?%d,0,1,?%d,?%d)", n + 1, n + 2, n + 2);
        break;
    case SPW_STATEMENT_FLAG_REPLACE:
        spw_sql_add(&sql, "UPDATE flags SET ");
        spw_columns_assign(&sql);
        spw_sql_add(&sql, ",revision=revision+1,changed_unix_ms=?%d WHERE sequence=?%d", n + 2, n + 1);
        break;
    case SPW_STATEMENT_FLAG_ASIDE:
        spw_sql_add(&sql, "INSERT INTO superseded(");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ",sequence,why,set_aside_unix_ms) VALUES(");
        spw_columns_holes(&sql);
        spw_sql_add(&sql, ",?%d,'another flag of the decision stands',?%d)", n + 1, n + 2);
        break;
    default: /* SPW_STATEMENT_FLAG_COPY */
        spw_sql_add(&sql, "INSERT INTO superseded(sequence,why,set_aside_unix_ms,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, ") SELECT sequence,'the client was given another answer',?2,");
        spw_columns_names(&sql);
        spw_sql_add(&sql, " FROM flags WHERE sequence=?1");
    }
    return sql.overflow ? NULL : spw_ledger_prepare(ledger, which, sql.text);
}

/* Write a payload by one of the statements above: insert as `sequence`, replace it, or set aside beside it. */
static int write_payload(struct spw_batch *batch, enum spw_statement which,
                         const struct spw_flag_payload *payload, uint64_t sequence)
{
    sqlite3_stmt *statement = prepare_built(batch->ledger, which);
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    int rc = spw_columns_bind(statement, payload);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(statement, spw_columns_count() + 1, (sqlite3_int64)sequence);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(statement, spw_columns_count() + 2, batch->now_unix_ms);
    return rc == SQLITE_OK ? spw_statement_run(statement) : rc;
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

struct standing {
    uint64_t sequence; /* 0 = the decision has no flag yet */
    int origin;
    int state;
};

static int look_up_decision(struct spw_batch *batch, const struct spw_flag_record *r, struct standing *out)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_FLAG_DECISION,
        "SELECT sequence, origin, flag_state FROM flags WHERE decision_id=?1 AND account=?2");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->decision_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, r->account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out->sequence = (uint64_t)sqlite3_column_int64(statement, 0);
    out->origin = sqlite3_column_int(statement, 1);
    out->state = sqlite3_column_int(statement, 2);
    return sqlite3_reset(statement);
}

static int insert_new(struct spw_batch *batch, const struct spw_flag_payload *payload)
{
    uint64_t sequence = batch->counts.newest_sequence + 1;
    int rc = write_payload(batch, SPW_STATEMENT_FLAG_INSERT, payload, sequence);
    if (rc != SQLITE_OK)
        return rc;
    batch->counts.newest_sequence = sequence;
    batch->counts.flags_count = sequence;
    batch->counts.by_state[SPW_FLAG_PROVISIONAL]++;
    return spw_orders_refresh(batch, payload->record.quote_id);
}

static int replace_standing(struct spw_batch *batch, const struct spw_flag_payload *payload,
                            uint64_t sequence)
{
    sqlite3_stmt *copy = prepare_built(batch->ledger, SPW_STATEMENT_FLAG_COPY);
    if (!copy)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(copy, 1, (sqlite3_int64)sequence);
    sqlite3_bind_int64(copy, 2, batch->now_unix_ms);
    int rc = spw_statement_run(copy);
    if (rc == SQLITE_OK)
        rc = write_payload(batch, SPW_STATEMENT_FLAG_REPLACE, payload, sequence);
    return rc == SQLITE_OK ? spw_orders_refresh(batch, payload->record.quote_id) : rc;
}

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
    struct standing old = {0};
    rc = look_up_decision(batch, &view.record, &old);
    if (rc != SQLITE_OK)
        return rc;
    if (!old.sequence)
        return insert_new(batch, &payload);
    if (view.record.origin == ORIGIN_SEGMENT && old.origin == ORIGIN_LOOP &&
        old.state == SPW_FLAG_PROVISIONAL)
        return replace_standing(batch, &payload, old.sequence);
    batch->counts.duplicate_count++;
    return write_payload(batch, SPW_STATEMENT_FLAG_ASIDE, &payload, old.sequence);
}
