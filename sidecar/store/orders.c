/* orders.c: which order a quote became, and what that makes of its flag.
 *
 * Owns: the tables orders and order_quotes, and the columns of flags that follow from them. Called by: drain, flags.
 * Thread: the store thread.
 *
 * Cells are read in table order, not in the order of writing, and an order may come before its flag. So nothing here
 * goes by arrival: of an order's placements the one *created* last holds, a cancellation holds when it was created no
 * earlier than that placement, and the state of a flag's row is computed from what its quote's orders say now:
 *
 *   some order stands on this quote            CONFIRMED  (one quote may become two orders: tax is their sum)
 *   none stands, some was cancelled            CANCELLED
 *   its orders now stand on another quote      SUPERSEDED
 *   no order was ever placed from it           ABANDONED when the caller said so of this quote, otherwise PROVISIONAL,
 *                                              and after a day UNPLACED (answered for an order) or ABANDONED (an estimate)
 *
 * A quote stays named by every order that was ever placed from it; which flags have a row follows from that alone
 * (store.c, at the top).
 */
#include "sidecar/store/drain.h"

#include <stdio.h>
#include <string.h>

#include "sidecar/obs/utf8.h"
#include "sidecar/store/job.h"

enum order_state { ORDER_NEVER_PLACED, ORDER_PLACED, ORDER_CANCELLED };

struct order {
    int64_t row; /* 0 = not stored yet */
    char account[SPW_NAME_BYTES];
    enum order_state state;
    char quote_id[SPW_ID_BYTES];
    char currency[4];
    int64_t tax_collected_minor;
    int64_t placed_unix_ms;
    int64_t placed_created_ms;    /* INT64_MIN = never placed */
    int64_t cancelled_created_ms; /* INT64_MIN = never cancelled */
};

static void copy_text(sqlite3_stmt *statement, int column, char *out, size_t room)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    memset(out, 0, room);
    snprintf(out, room, "%s", text ? text : "");
}

/* A placement that does not say its account has its quote's, where the flag is known. */
static int account_of_quote(struct spw_batch *batch, struct spw_order_record *r)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_FLAG_ACCOUNT,
                                                 "SELECT account FROM flags WHERE quote_id=?1 UNION ALL"
                                                 " SELECT account FROM superseded WHERE quote_id=?1 LIMIT 1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->quote_id, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    copy_text(statement, 0, r->account, sizeof r->account);
    return sqlite3_reset(statement);
}

/* Order ids are the shop's, and two shops may count alike: an order is (id, account), an account left out fits any. */
static int find_order(struct spw_batch *batch, const struct spw_order_record *r, struct order *out,
                      const char **damage)
{
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ORDER_FIND,
                           "SELECT order_row, account, order_state, quote_id, currency, tax_collected_minor,"
                           " placed_unix_ms, placed_created_unix_ms, cancelled_created_unix_ms FROM orders"
                           " WHERE order_id=?1 AND (account=?2 OR account='' OR ?2='') LIMIT 2");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->order_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, r->account, -1, SQLITE_STATIC);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out->row = sqlite3_column_int64(statement, 0);
    copy_text(statement, 1, out->account, sizeof out->account);
    out->state = (enum order_state)sqlite3_column_int(statement, 2);
    copy_text(statement, 3, out->quote_id, sizeof out->quote_id);
    copy_text(statement, 4, out->currency, sizeof out->currency);
    out->tax_collected_minor = sqlite3_column_int64(statement, 5);
    out->placed_unix_ms = sqlite3_column_int64(statement, 6);
    out->placed_created_ms = sqlite3_column_int64(statement, 7);
    out->cancelled_created_ms = sqlite3_column_int64(statement, 8);
    rc = spw_statement_row(statement);
    if (rc == SQLITE_ROW) {
        *damage = "orders of several accounts have this id, and it names no account";
        rc = sqlite3_reset(statement);
    }
    return rc;
}

static bool same_order(const struct order *a, const struct order *b)
{
    return strcmp(a->account, b->account) == 0 && a->state == b->state &&
           strcmp(a->quote_id, b->quote_id) == 0 && strcmp(a->currency, b->currency) == 0 &&
           a->tax_collected_minor == b->tax_collected_minor && a->placed_unix_ms == b->placed_unix_ms &&
           a->placed_created_ms == b->placed_created_ms && a->cancelled_created_ms == b->cancelled_created_ms;
}

/* Let the record act on the order. false: it says nothing new. */
static bool apply(const struct spw_order_record *r, struct order *order)
{
    struct order before = *order;
    if (!order->account[0])
        memcpy(order->account, r->account, sizeof order->account);
    if (r->op == SPW_ORDER_CANCELLED && r->created_unix_ms > order->cancelled_created_ms)
        order->cancelled_created_ms = r->created_unix_ms;
    if (r->op == SPW_ORDER_PLACED && r->created_unix_ms >= order->placed_created_ms) {
        memcpy(order->quote_id, r->quote_id, sizeof order->quote_id);
        memcpy(order->currency, r->currency, sizeof order->currency);
        order->tax_collected_minor = r->tax_collected_minor;
        order->placed_unix_ms = r->placed_unix_ms;
        order->placed_created_ms = r->created_unix_ms;
    }
    if (order->placed_created_ms == INT64_MIN)
        order->state = ORDER_NEVER_PLACED;
    else
        order->state =
            order->cancelled_created_ms >= order->placed_created_ms ? ORDER_CANCELLED : ORDER_PLACED;
    return !same_order(&before, order);
}

static int bind_order(sqlite3_stmt *statement, const struct order *order)
{
    sqlite3_bind_text(statement, 2, order->account, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 3, (int)order->state);
    sqlite3_bind_text(statement, 4, order->quote_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 5, order->currency, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 6, order->tax_collected_minor);
    sqlite3_bind_int64(statement, 7, order->placed_unix_ms);
    sqlite3_bind_int64(statement, 8, order->placed_created_ms);
    return sqlite3_bind_int64(statement, 9, order->cancelled_created_ms);
}

static int write_order(struct spw_batch *batch, const char *order_id, struct order *order)
{
    struct spw_ledger *ledger = batch->ledger;
    sqlite3_stmt *statement;
    if (order->row) {
        statement =
            spw_ledger_prepare(ledger, SPW_STATEMENT_ORDER_UPDATE,
                               "UPDATE orders SET account=?2, order_state=?3, quote_id=?4, currency=?5,"
                               " tax_collected_minor=?6, placed_unix_ms=?7, placed_created_unix_ms=?8,"
                               " cancelled_created_unix_ms=?9 WHERE order_row=?1");
        if (!statement)
            return spw_ledger_failure(ledger);
        sqlite3_bind_int64(statement, 1, order->row);
    } else {
        statement =
            spw_ledger_prepare(ledger, SPW_STATEMENT_ORDER_INSERT,
                               "INSERT INTO orders(order_id, account, order_state, quote_id, currency,"
                               " tax_collected_minor, placed_unix_ms, placed_created_unix_ms,"
                               " cancelled_created_unix_ms) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
        if (!statement)
            return spw_ledger_failure(ledger);
        sqlite3_bind_text(statement, 1, order_id, -1, SQLITE_STATIC);
    }
    int rc = bind_order(statement, order);
    if (rc == SQLITE_OK)
        rc = spw_statement_run(statement);
    if (rc == SQLITE_OK && !order->row)
        order->row = sqlite3_last_insert_rowid(ledger->db);
    return rc;
}

/* Remember that the order was once placed from this quote. *added: it is news. */
static int add_quote(struct spw_batch *batch, int64_t order_row, const char *quote_id, bool *added)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ORDER_QUOTE,
                                                 "INSERT OR IGNORE INTO order_quotes VALUES(?1,?2)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, order_row);
    sqlite3_bind_text(statement, 2, quote_id, -1, SQLITE_STATIC);
    int rc = spw_statement_run(statement);
    *added = sqlite3_changes(batch->ledger->db) > 0;
    return rc;
}

static int refresh_quotes_of(struct spw_batch *batch, int64_t order_row)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_QUOTES_OF_ORDER,
                                                 "SELECT quote_id FROM order_quotes WHERE order_row=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, order_row);
    int rc;
    while ((rc = spw_statement_row(statement)) == SQLITE_ROW) {
        char quote_id[SPW_ID_BYTES];
        copy_text(statement, 0, quote_id, sizeof quote_id);
        rc = spw_orders_refresh(batch, quote_id);
        if (rc != SQLITE_OK) {
            sqlite3_reset(statement);
            return rc;
        }
    }
    return rc;
}

static void count_order(struct spw_store_counts *counts, enum order_state before, enum order_state after)
{
    counts->orders_placed_count +=
        (uint64_t)(after != ORDER_NEVER_PLACED) - (uint64_t)(before != ORDER_NEVER_PLACED);
    counts->orders_cancelled_count +=
        (uint64_t)(after == ORDER_CANCELLED) - (uint64_t)(before == ORDER_CANCELLED);
}

/* The caller says that no order will come of this quote. One that comes all the same counts. */
static int abandon(struct spw_batch *batch, const struct spw_order_record *r)
{
    sqlite3_stmt *statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ABANDON,
                                                 "INSERT OR IGNORE INTO abandoned VALUES(?1,?2)");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, r->quote_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, r->created_unix_ms);
    int rc = spw_statement_run(statement);
    if (rc == SQLITE_OK && sqlite3_changes(batch->ledger->db) == 0) {
        batch->counts.duplicate_count++;
        return SQLITE_OK;
    }
    return rc == SQLITE_OK ? spw_orders_refresh(batch, r->quote_id) : rc;
}

int spw_order_store(struct spw_batch *batch, const uint8_t *bytes, size_t count, const char **damage)
{
    struct spw_order_record r;
    if (!spw_order_parse(bytes, count, &r)) {
        *damage = "the order's fields make no sense";
        return SQLITE_OK;
    }
    if (!spw_utf8_is_name(r.quote_id, strlen(r.quote_id)) ||
        !spw_utf8_is_name(r.order_id, strlen(r.order_id)) ||
        !spw_utf8_is_name(r.account, strlen(r.account)) ||
        !spw_utf8_is_name(r.currency, strlen(r.currency))) {
        *damage = "an id or name of the order is not UTF-8 text";
        return SQLITE_OK;
    }
    /* The lowest instant stands for "never" in the table. */
    if (r.created_unix_ms == INT64_MIN)
        r.created_unix_ms++;
    if (r.op == SPW_ORDER_ABANDONED)
        return abandon(batch, &r);
    struct order order = {.placed_created_ms = INT64_MIN, .cancelled_created_ms = INT64_MIN};
    int rc = SQLITE_OK;
    if (r.op == SPW_ORDER_PLACED && !r.account[0])
        rc = account_of_quote(batch, &r);
    if (rc == SQLITE_OK)
        rc = find_order(batch, &r, &order, damage);
    if (rc != SQLITE_OK || *damage)
        return rc;
    enum order_state before = order.state;
    bool changed = apply(&r, &order), added = false;
    if (changed || !order.row)
        rc = write_order(batch, r.order_id, &order);
    if (rc == SQLITE_OK && r.op == SPW_ORDER_PLACED)
        rc = add_quote(batch, order.row, r.quote_id, &added);
    if (rc == SQLITE_OK && added)
        rc = spw_flags_recall(batch, r.quote_id);
    if (rc != SQLITE_OK)
        return rc;
    if (!changed && !added) {
        batch->counts.duplicate_count++;
        return SQLITE_OK;
    }
    count_order(&batch->counts, before, order.state);
    return refresh_quotes_of(batch, order.row);
}

/* ---- an event that comes without a cell ---- */

struct order_request {
    struct spw_store_job job;
    struct spw_cell_prefix prefix;
    struct spw_order_record record;
};

static int run_order(struct spw_batch *batch, struct spw_store_job *job)
{
    struct order_request *request = (struct order_request *)(void *)job;
    const char *damage = NULL;
    uint8_t bytes[sizeof request->prefix + sizeof request->record];
    memcpy(bytes, &request->prefix, sizeof request->prefix);
    memcpy(bytes + sizeof request->prefix, &request->record, sizeof request->record);
    int rc = spw_order_store(batch, bytes, sizeof bytes, &damage);
    if (damage)
        spw_error_set(&job->error, SPW_STATUS_INVALID, "order: %s", damage);
    return rc;
}

enum spw_status spw_store_order(struct spw_store *store, const struct spw_order_record *record,
                                struct spw_error *err)
{
    struct order_request request = {.prefix = {SPW_CELL_ORDER, sizeof *record}, .record = *record};
    spw_store_submit(store, &request.job, run_order);
    enum spw_status status = spw_store_wait(store, &request.job);
    if (status != SPW_STATUS_OK && err)
        *err = request.job.error;
    return status;
}

/* ---- what the orders of a quote make of its flags ---- */

struct binding {
    enum spw_flag_state state;
    char order_id[SPW_CALLER_ID_BYTES]; /* the first that stands, else the first cancelled */
    int64_t orders_count;               /* that stand */
    int64_t tax_collected_minor;
    int64_t placed_unix_ms;
};

static int64_t add_bounded(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return b > 0 ? INT64_MAX : INT64_MIN;
    return sum;
}

static void add_order(struct binding *b, sqlite3_stmt *row, const char *quote_id)
{
    const char *stands_on = (const char *)sqlite3_column_text(row, 2);
    enum order_state state = (enum order_state)sqlite3_column_int(row, 1);
    bool here = stands_on && strcmp(stands_on, quote_id) == 0;
    if (!here) {
        if (b->state == SPW_FLAG_PROVISIONAL)
            b->state = SPW_FLAG_SUPERSEDED;
        return;
    }
    if (state == ORDER_PLACED) {
        if (b->state != SPW_FLAG_CONFIRMED) {
            b->state = SPW_FLAG_CONFIRMED;
            copy_text(row, 0, b->order_id, sizeof b->order_id);
            b->placed_unix_ms = sqlite3_column_int64(row, 4);
        }
        b->orders_count++;
        b->tax_collected_minor = add_bounded(b->tax_collected_minor, sqlite3_column_int64(row, 3));
    } else if (b->state != SPW_FLAG_CONFIRMED && b->state != SPW_FLAG_CANCELLED) {
        b->state = SPW_FLAG_CANCELLED;
        copy_text(row, 0, b->order_id, sizeof b->order_id);
        b->placed_unix_ms = sqlite3_column_int64(row, 4);
    }
}

static int read_binding(struct spw_batch *batch, const char *quote_id, struct binding *out)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ORDERS_OF_QUOTE,
        "SELECT o.order_id, o.order_state, o.quote_id, o.tax_collected_minor, o.placed_unix_ms"
        " FROM order_quotes q JOIN orders o ON o.order_row=q.order_row WHERE q.quote_id=?1"
        " ORDER BY o.placed_unix_ms, o.order_id");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, quote_id, -1, SQLITE_STATIC);
    int rc;
    while ((rc = spw_statement_row(statement)) == SQLITE_ROW)
        add_order(out, statement, quote_id);
    if (rc != SQLITE_OK || out->state != SPW_FLAG_PROVISIONAL)
        return rc;
    statement = spw_ledger_prepare(batch->ledger, SPW_STATEMENT_ABANDONED,
                                   "SELECT 1 FROM abandoned WHERE quote_id=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, quote_id, -1, SQLITE_STATIC);
    rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    out->state = SPW_FLAG_ABANDONED;
    return sqlite3_reset(statement);
}

static int bind_flag(struct spw_batch *batch, int64_t sequence, const struct binding *b)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_FLAG_BIND,
        "UPDATE flags SET flag_state=?2, order_id=?3, orders_count=?4, tax_collected_minor=?5,"
        " placed_unix_ms=?6, changed_unix_ms=?7, change=?8, revision=revision+1 WHERE sequence=?1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, sequence);
    sqlite3_bind_int(statement, 2, (int)b->state);
    sqlite3_bind_text(statement, 3, b->order_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 4, b->orders_count);
    sqlite3_bind_int64(statement, 5, b->tax_collected_minor);
    sqlite3_bind_int64(statement, 6, b->placed_unix_ms);
    sqlite3_bind_int64(statement, 7, batch->now_unix_ms);
    sqlite3_bind_int64(statement, 8, spw_batch_change(batch));
    return spw_statement_run(statement);
}

int spw_orders_refresh(struct spw_batch *batch, const char *quote_id)
{
    struct binding b = {0};
    int rc = read_binding(batch, quote_id, &b);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_FLAGS_OF_QUOTE,
        "SELECT sequence, flag_state FROM flags WHERE quote_id=?1 AND sequence>?2 AND NOT"
        " (flag_state=?3 AND order_id=?4 AND orders_count=?5 AND tax_collected_minor=?6 AND"
        " placed_unix_ms=?7) ORDER BY sequence LIMIT 1");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, quote_id, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 3, (int)b.state);
    sqlite3_bind_text(statement, 4, b.order_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 5, b.orders_count);
    sqlite3_bind_int64(statement, 6, b.tax_collected_minor);
    sqlite3_bind_int64(statement, 7, b.placed_unix_ms);
    int64_t sequence = 0;
    for (;;) {
        sqlite3_bind_int64(statement, 2, sequence);
        rc = spw_statement_row(statement);
        if (rc != SQLITE_ROW)
            return rc;
        sequence = sqlite3_column_int64(statement, 0);
        uint32_t was = (uint32_t)sqlite3_column_int(statement, 1) % SPW_FLAG_STATES;
        sqlite3_reset(statement);
        rc = bind_flag(batch, sequence, &b);
        if (rc == SQLITE_OK)
            rc = spw_history_add(batch, sequence, "orders", spw_flag_state_name(was),
                                 spw_flag_state_name(b.state), b.order_id);
        if (rc == SQLITE_OK)
            rc = spw_row_begin_anew(batch, sequence, b.state);
        if (rc != SQLITE_OK)
            return rc;
        batch->counts.by_state[was]--;
        batch->counts.by_state[b.state]++;
    }
}
