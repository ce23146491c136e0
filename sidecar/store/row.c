/* row.c: see row.h. */
#include "sidecar/store/row.h"

#include <stdlib.h>
#include <string.h>

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
    AT_RECONCILE,
    AT_LIVE_KNOWN,
    AT_LIVE,
    AT_VARIANCE,
    AT_NOISE,
    AT_RATE,
    AT_BASE,
    AT_NEXUS,
    AT_ATTEMPTS,
    AT_NEXT,
    AT_ERROR,
    AT_RECONCILED,
    AT_FILING,
    AT_FILING_ATTEMPTS,
    AT_FILING_NEXT,
    AT_FILING_ERROR,
    AT_DOCUMENT,
    AT_DECISION,
    AT_NOTE,
    AT_BY,
    AT_PAYLOAD
};

void spw_row_select(struct spw_sql *sql, const char *rest)
{
    spw_sql_add(
        sql,
        "SELECT sequence,flag_state,revision,change,stored_unix_ms,order_id,orders_count,"
        "flags.tax_collected_minor,flags.placed_unix_ms,reconcile_state,live_known,live_tax_minor,"
        "variance_minor,rounding_noise_minor,rate_variance_minor,base_variance_minor,nexus_variance_minor,"
        "reconcile_attempts,reconcile_next_unix_ms,reconcile_error,reconciled_unix_ms,filing_state,"
        "filing_attempts,filing_next_unix_ms,filing_error,document_id,decision,note,decided_by,");
    spw_columns_names(sql);
    spw_sql_add(sql, " FROM flags %s", rest);
}

/* The text of a column, kept in the copy; cut when a hand-made row is longer than any of ours. */
static const char *keep_text(struct spw_row_copy *copy, sqlite3_stmt *statement, int column)
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

static uint32_t bounded(sqlite3_stmt *statement, int column, uint32_t count)
{
    uint32_t value = (uint32_t)sqlite3_column_int(statement, column);
    return value < count ? value : 0;
}

static void read_reconciliation(struct spw_row_copy *copy, sqlite3_stmt *statement)
{
    struct spw_reconciliation *r = &copy->row.reconciliation;
    r->state = (enum spw_reconcile_state)bounded(statement, AT_RECONCILE, SPW_RECONCILE_STATES);
    r->live_known = sqlite3_column_int(statement, AT_LIVE_KNOWN) != 0;
    r->variance = (struct spw_variance){.live_tax_minor = sqlite3_column_int64(statement, AT_LIVE),
                                        .variance_minor = sqlite3_column_int64(statement, AT_VARIANCE),
                                        .rounding_noise_minor = sqlite3_column_int64(statement, AT_NOISE),
                                        .rate_minor = sqlite3_column_int64(statement, AT_RATE),
                                        .base_minor = sqlite3_column_int64(statement, AT_BASE),
                                        .nexus_minor = sqlite3_column_int64(statement, AT_NEXUS)};
    r->attempts = (uint32_t)sqlite3_column_int64(statement, AT_ATTEMPTS);
    r->next_try_unix_ms = sqlite3_column_int64(statement, AT_NEXT);
    r->last_error = keep_text(copy, statement, AT_ERROR);
    r->reconciled_unix_ms = sqlite3_column_int64(statement, AT_RECONCILED);
    r->filing = (enum spw_filing_state)bounded(statement, AT_FILING, SPW_FILING_STATES);
    r->filing_attempts = (uint32_t)sqlite3_column_int64(statement, AT_FILING_ATTEMPTS);
    r->filing_next_unix_ms = sqlite3_column_int64(statement, AT_FILING_NEXT);
    r->filing_error = keep_text(copy, statement, AT_FILING_ERROR);
    r->document_id = keep_text(copy, statement, AT_DOCUMENT);
    r->decision = keep_text(copy, statement, AT_DECISION);
    r->note = keep_text(copy, statement, AT_NOTE);
    r->by = keep_text(copy, statement, AT_BY);
}

void spw_row_read(struct spw_row_copy *copy, sqlite3_stmt *statement)
{
    struct spw_flag_row *row = &copy->row;
    copy->text_used = 0;
    memset(row, 0, sizeof *row);
    row->sequence = (uint64_t)sqlite3_column_int64(statement, AT_SEQUENCE);
    row->state = (enum spw_flag_state)bounded(statement, AT_STATE, SPW_FLAG_STATES);
    row->revision = (uint32_t)sqlite3_column_int64(statement, AT_REVISION);
    row->change = (uint64_t)sqlite3_column_int64(statement, AT_CHANGE);
    row->stored_unix_ms = sqlite3_column_int64(statement, AT_STORED);
    row->order_id = keep_text(copy, statement, AT_ORDER);
    row->orders_count = (uint32_t)sqlite3_column_int64(statement, AT_ORDERS_COUNT);
    row->tax_collected_minor = sqlite3_column_int64(statement, AT_COLLECTED);
    row->placed_unix_ms = sqlite3_column_int64(statement, AT_PLACED);
    read_reconciliation(copy, statement);
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

struct spw_flag_row *spw_row_clone(const struct spw_row_copy *copy)
{
    size_t lines_bytes = copy->row.record.lines_count * sizeof copy->lines[0];
    size_t text_bytes = copy->text_used + 1;
    struct spw_flag_row *row = malloc(sizeof *row + lines_bytes + text_bytes);
    if (!row)
        return NULL;
    *row = copy->row;
    struct spw_line_tax *lines = (struct spw_line_tax *)(void *)(row + 1);
    char *text = (char *)lines + lines_bytes;
    memcpy(lines, copy->lines, lines_bytes);
    memcpy(text, copy->text, copy->text_used);
    text[copy->text_used] = 0;
    row->lines = lines;
    row->orders = NULL; /* of no use to those who keep a row */
    row->orders_listed = 0;
    const char **const borrowed[] = {
        &row->assumptions,
        &row->request_json,
        &row->order_id,
        &row->unverified_reason,
        &row->reconciliation.last_error,
        &row->reconciliation.filing_error,
        &row->reconciliation.document_id,
        &row->reconciliation.decision,
        &row->reconciliation.note,
        &row->reconciliation.by,
    };
    for (size_t i = 0; i < sizeof borrowed / sizeof borrowed[0]; i++)
        *borrowed[i] = text + (*borrowed[i] - copy->text);
    return row;
}
