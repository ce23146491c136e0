/* test_store_reconcile.c: rows to be reconciled and filed: claimed, given results, decided on, counted; and a ledger of
 * an older schema. */
#include "tests/unit/store_kit.h"

#include "sidecar/store/reconcile_rows.h"
#include "sidecar/store/schema.h"

#define LEASE_MS 1000

static int set_up(void **state)
{
    return kit_set_up_cells(state, 512);
}

static void place(struct kit *kit, const char *tag, int64_t tax_minor, int64_t at_ms)
{
    char order[32];
    snprintf(order, sizeof order, "o-%s", tag);
    kit_order(kit, SPW_ORDER_PLACED, order, tag, "main", tax_minor, at_ms);
}

static uint32_t due(struct kit *kit, struct spw_due_request *request, enum spw_due what, int64_t now_ms)
{
    memset(request, 0, sizeof *request);
    request->what = what;
    request->max_count = SPW_DUE_MAX_COUNT;
    request->now_unix_ms = now_ms;
    request->lease_ms = LEASE_MS;
    spw_store_due(kit->store, request);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &request->job));
    return request->rows_count;
}

static uint32_t due_count(struct kit *kit, enum spw_due what, int64_t now_ms)
{
    struct spw_due_request request;
    uint32_t count = due(kit, &request, what, now_ms);
    spw_due_rows_free(&request);
    return count;
}

/* A result that under-collected by two cents of rate. */
static struct spw_reconciled_request result_for(const char *tag, uint32_t revision)
{
    struct spw_reconciled_request r = {.expected_revision = revision,
                                       .now_unix_ms = 5000,
                                       .state = SPW_RECONCILE_ABSORBED_UNDER,
                                       .live_known = true,
                                       .variance = {.live_tax_minor = 995,
                                                    .variance_minor = -2,
                                                    .rounding_noise_minor = 1,
                                                    .rate_minor = -3},
                                       .filing = SPW_FILING_NEEDED,
                                       .who = "reconcile"};
    snprintf(r.flag_id, sizeof r.flag_id, "sf_%s", tag);
    return r;
}

static enum spw_status post(struct kit *kit, struct spw_reconciled_request *r)
{
    spw_store_reconciled(kit->store, r);
    return spw_store_wait(kit->store, &r->job);
}

static struct spw_filed_request filing_of(const char *tag, uint32_t revision, enum spw_filing_state filing)
{
    struct spw_filed_request r = {.expected_revision = revision,
                                  .now_unix_ms = 6000,
                                  .filing = filing,
                                  .next_try_unix_ms = 9000,
                                  .document_id = "doc-1",
                                  .who = "file"};
    snprintf(r.flag_id, sizeof r.flag_id, "sf_%s", tag);
    return r;
}

static enum spw_status post_filing(struct kit *kit, struct spw_filed_request *r)
{
    spw_store_filed(kit->store, r);
    return spw_store_wait(kit->store, &r->job);
}

static enum spw_status decide(struct kit *kit, const char *tag, enum spw_exception_decision decision,
                              const char *note, uint32_t expected, bool file)
{
    struct spw_decide_request r = {
        .decision = decision, .expected_revision = expected, .by = "ann", .file = file};
    snprintf(r.flag_id, sizeof r.flag_id, "sf_%s", tag);
    snprintf(r.note, sizeof r.note, "%s", note);
    spw_store_decide(kit->store, &r);
    return spw_store_wait(kit->store, &r.job);
}

static struct spw_flag_row row_of(struct kit *kit, const char *tag)
{
    struct kit_rows rows = kit_export(kit, 0);
    struct kit_row *row = kit_row_of(&rows, tag);
    assert_non_null(row);
    struct spw_flag_row copy = row->row;
    kit_rows_free(&rows);
    return copy;
}

static void placed_rows_are_due_once_a_lease(void **state)
{
    struct kit *kit = *state;
    struct spw_due_request request;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    kit_flag(kit, "never");
    place(kit, "a", 993, 200);
    place(kit, "b", 993, 100);
    kit_settle(kit);
    assert_int_equal(2, due(kit, &request, SPW_DUE_RECONCILE, 1000));
    assert_string_equal("sf_b", request.rows[0]->record.flag_id); /* placed first */
    assert_string_equal("sf_a", request.rows[1]->record.flag_id);
    assert_string_equal("o-b", request.rows[0]->order_id);
    assert_string_equal("{\"lines\":[]}", request.rows[0]->request_json);
    assert_int_equal(920, request.rows[0]->lines[0].tax_minor);
    assert_int_equal(1, request.rows[0]->reconciliation.attempts);
    assert_int_equal(SPW_RECONCILE_PENDING, request.rows[0]->reconciliation.state);
    spw_due_rows_free(&request);
    assert_int_equal(0, due_count(kit, SPW_DUE_RECONCILE, 1000 + LEASE_MS - 1));
    kit_close(kit); /* whoever claimed them is gone */
    kit_open(kit);
    assert_int_equal(2, due_count(kit, SPW_DUE_RECONCILE, 1000 + LEASE_MS));
    assert_int_equal(2, row_of(kit, "a").reconciliation.attempts);
    assert_int_equal(0, due_count(kit, SPW_DUE_FILE, 100000));
    struct spw_due_request other = {
        .max_count = 1, .account = "other", .now_unix_ms = 100000, .lease_ms = LEASE_MS};
    spw_store_due(kit->store, &other);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &other.job));
    assert_int_equal(0, other.rows_count);
    other.max_count = 0;
    spw_store_due(kit->store, &other);
    assert_int_equal(SPW_STATUS_INVALID, spw_store_wait(kit->store, &other.job));
}

/* A clock that was a year ahead when the rows were claimed, and is right again. */
static void a_clock_put_back_holds_no_row(void **state)
{
    struct kit *kit = *state;
    const int64_t year_ms = INT64_C(365) * 86400000;
    kit_open(kit);
    kit_flag(kit, "a");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    assert_int_equal(1, due_count(kit, SPW_DUE_RECONCILE, year_ms));
    assert_int_equal(0, due_count(kit, SPW_DUE_RECONCILE, year_ms + LEASE_MS - 1));
    assert_int_equal(1, due_count(kit, SPW_DUE_RECONCILE, 1000));
    assert_int_equal(0, due_count(kit, SPW_DUE_RECONCILE, 1000 + LEASE_MS - 1)); /* claimed anew */
    assert_int_equal(1, due_count(kit, SPW_DUE_RECONCILE, 1000 + LEASE_MS));
}

static void a_result_counts_once(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    uint32_t revision = row_of(kit, "a").revision;
    struct spw_reconciled_request r = result_for("a", revision);
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    assert_int_equal(revision + 1, r.revision);
    struct spw_reconciled_request again = result_for("a", revision);
    assert_int_equal(SPW_STATUS_OK, post(kit, &again));
    struct spw_flag_row row = row_of(kit, "a");
    assert_int_equal(revision + 1, row.revision);
    assert_int_equal(SPW_RECONCILE_ABSORBED_UNDER, row.reconciliation.state);
    assert_int_equal(-2, row.reconciliation.variance.variance_minor);
    assert_int_equal(-3, row.reconciliation.variance.rate_minor);
    assert_int_equal(993, row.record.tax_minor); /* what was charged stays */
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM history WHERE who='reconcile'"));
    struct spw_absorbed_request absorbed = {.from_unix_ms = 5000, .until_unix_ms = 5001};
    spw_store_absorbed(kit->store, &absorbed);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &absorbed.job));
    assert_int_equal(2, absorbed.absorbed_minor);
    absorbed.from_unix_ms = 5001, absorbed.until_unix_ms = 9000;
    spw_store_absorbed(kit->store, &absorbed);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &absorbed.job));
    assert_int_equal(0, absorbed.absorbed_minor);
    /* Another result comes too late, and so does one from an older reading. */
    again.variance.live_tax_minor = 990;
    assert_int_equal(SPW_STATUS_CONFLICT, post(kit, &again));
    again.expected_revision = revision + 1;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &again));
    struct spw_reconciled_request unknown = result_for("nobody", 1);
    assert_int_equal(SPW_STATUS_NOT_FOUND, post(kit, &unknown));
    assert_int_equal(1, kit_counts(kit).by_reconcile[SPW_RECONCILE_ABSORBED_UNDER]);
    assert_int_equal(0, kit_counts(kit).by_reconcile[SPW_RECONCILE_PENDING]);
}

static void a_result_that_contradicts_itself_is_refused(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    uint32_t revision = row_of(kit, "a").revision;
    struct spw_reconciled_request r = result_for("a", revision);
    r.variance.rate_minor = -2;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &r));
    r = result_for("a", revision);
    r.live_known = false;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &r));
    r.state = SPW_RECONCILE_EXCEPTION;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &r));
    r.state = SPW_RECONCILE_RESOLVED;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &r));
    r.state = SPW_RECONCILE_NONE;
    assert_int_equal(SPW_STATUS_INVALID, post(kit, &r));
    assert_int_equal(revision, row_of(kit, "a").revision);
    /* Not this time: due again when it says, with the reason. */
    r.state = SPW_RECONCILE_PENDING;
    r.next_try_unix_ms = 70000;
    snprintf(r.why, sizeof r.why, "the breaker is open");
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    assert_int_equal(0, due_count(kit, SPW_DUE_RECONCILE, 69999));
    struct spw_due_request request;
    assert_int_equal(1, due(kit, &request, SPW_DUE_RECONCILE, 70000));
    assert_string_equal("the breaker is open", request.rows[0]->reconciliation.last_error);
    spw_due_rows_free(&request);
}

static void an_order_that_changes_begins_the_row_anew(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    struct spw_reconciled_request r = result_for("a", row_of(kit, "a").revision);
    kit_order(kit, SPW_ORDER_PLACED, "second", "a", "main", 500, 150); /* meanwhile */
    kit_settle(kit);
    assert_int_equal(SPW_STATUS_CONFLICT, post(kit, &r));
    r.expected_revision = row_of(kit, "a").revision;
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    kit_order(kit, SPW_ORDER_CANCELLED, "second", NULL, "main", 0, 160);
    kit_settle(kit);
    struct spw_flag_row row = row_of(kit, "a");
    assert_int_equal(SPW_RECONCILE_PENDING, row.reconciliation.state);
    assert_int_equal(SPW_FILING_NONE, row.reconciliation.filing);
    assert_false(row.reconciliation.live_known);
    kit_order(kit, SPW_ORDER_CANCELLED, "o-a", NULL, "main", 0, 170);
    kit_settle(kit);
    assert_int_equal(SPW_RECONCILE_NONE, row_of(kit, "a").reconciliation.state);
    assert_int_equal(0, due_count(kit, SPW_DUE_RECONCILE, 100000));
    assert_int_equal(1, kit_counts(kit).by_reconcile[SPW_RECONCILE_NONE]);
}

static void a_filing_is_sent_read_back_and_final(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    struct spw_reconciled_request r = result_for("a", row_of(kit, "a").revision);
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    struct spw_due_request request;
    assert_int_equal(1, due(kit, &request, SPW_DUE_FILE, 5000));
    assert_int_equal(SPW_FILING_NEEDED, request.rows[0]->reconciliation.filing);
    struct spw_filed_request sent = filing_of("a", request.rows[0]->revision, SPW_FILING_SENT);
    spw_due_rows_free(&request);
    assert_int_equal(SPW_STATUS_OK, post_filing(kit, &sent));
    /* Killed here. What was sent comes back as sent, under its document's name. */
    assert_int_equal(0, due_count(kit, SPW_DUE_FILE, 8999));
    assert_int_equal(1, due(kit, &request, SPW_DUE_FILE, 9000));
    assert_int_equal(SPW_FILING_SENT, request.rows[0]->reconciliation.filing);
    assert_string_equal("doc-1", request.rows[0]->reconciliation.document_id);
    struct spw_filed_request filed = filing_of("a", request.rows[0]->revision, SPW_FILING_FILED);
    spw_due_rows_free(&request);
    assert_int_equal(SPW_STATUS_OK, post_filing(kit, &filed));
    uint32_t revision = filed.revision;
    assert_int_equal(SPW_STATUS_OK, post_filing(kit, &filed));
    assert_int_equal(revision, filed.revision);
    assert_int_equal(0, due_count(kit, SPW_DUE_FILE, INT64_MAX / 2));
    sent.expected_revision = revision;
    assert_int_equal(SPW_STATUS_INVALID, post_filing(kit, &sent));
    assert_int_equal(2, kit_number(kit, "SELECT count(*) FROM history WHERE who='file'"));
    /* The books hold it: a cancellation is a person's. */
    kit_order(kit, SPW_ORDER_CANCELLED, "o-a", NULL, "main", 0, 170);
    kit_settle(kit);
    struct spw_flag_row row = row_of(kit, "a");
    assert_int_equal(SPW_FLAG_CANCELLED, row.state);
    assert_int_equal(SPW_RECONCILE_EXCEPTION, row.reconciliation.state);
    assert_int_equal(SPW_FILING_FILED, row.reconciliation.filing);
}

static bool count_history(void *owner, const struct spw_history_row *row)
{
    assert_true(row->who[0] && row->from[0] && row->to[0]);
    ++*(int *)owner;
    return true;
}

static bool count_row(void *owner, const struct spw_flag_row *row)
{
    assert_int_equal(SPW_RECONCILE_EXCEPTION, row->reconciliation.state);
    ++*(int *)owner;
    return true;
}

static int exceptions(struct kit *kit, const char *account)
{
    struct spw_rows_filter filter = {.state = SPW_RECONCILE_EXCEPTION, .account = account};
    int count = 0;
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_rows(kit->store, &filter, 0, UINT32_MAX, count_row, &count, NULL, NULL));
    return count;
}

static void a_person_decides_on_an_exception(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    place(kit, "a", 993, 100);
    place(kit, "b", 993, 100);
    kit_settle(kit);
    assert_int_equal(SPW_STATUS_INVALID, decide(kit, "a", SPW_DECIDE_ABSORB, "", 0, false));
    struct spw_reconciled_request r = result_for("a", row_of(kit, "a").revision);
    r.state = SPW_RECONCILE_EXCEPTION;
    r.filing = SPW_FILING_NONE;
    snprintf(r.why, sizeof r.why, "above absorb_under");
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    assert_int_equal(1, exceptions(kit, "main"));
    assert_int_equal(0, exceptions(kit, "other"));
    assert_int_equal(1, exceptions(kit, NULL));
    assert_int_equal(SPW_STATUS_OK, decide(kit, "a", SPW_DECIDE_NOTE, "asked the vendor", 0, false));
    assert_int_equal(SPW_STATUS_INVALID, decide(kit, "a", SPW_DECIDE_NOTE, "", 0, false));
    assert_int_equal(SPW_STATUS_CONFLICT, decide(kit, "a", SPW_DECIDE_ABSORB, "", 1, false));
    assert_int_equal(SPW_STATUS_OK, decide(kit, "a", SPW_DECIDE_RETRY, "", 0, false));
    assert_int_equal(SPW_RECONCILE_PENDING, row_of(kit, "a").reconciliation.state);
    r.expected_revision = row_of(kit, "a").revision;
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    assert_int_equal(SPW_STATUS_OK, decide(kit, "a", SPW_DECIDE_ABSORB, "agreed", 0, true));
    assert_int_equal(SPW_STATUS_OK, decide(kit, "a", SPW_DECIDE_ABSORB, "agreed", 0, true));
    struct spw_flag_row row = row_of(kit, "a");
    assert_int_equal(SPW_RECONCILE_RESOLVED, row.reconciliation.state);
    assert_int_equal(SPW_FILING_NEEDED, row.reconciliation.filing);
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM flags WHERE decision='absorb' AND note='agreed'"
                                        " AND decided_by='ann'"));
    int history = 0;
    assert_int_equal(SPW_STATUS_OK, spw_store_history(kit->store, "sf_a", count_history, &history, NULL));
    /* confirmed, pending, exception, note, retry, exception, absorb */
    assert_int_equal(7, history);
    struct spw_backlog_request backlog = {.account = "main"};
    spw_store_backlog(kit->store, &backlog);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &backlog.job));
    assert_int_equal(1, backlog.pending_count); /* b */
    assert_int_equal(1, backlog.filings_count); /* a */
    assert_int_equal(0, backlog.exceptions_count);
    assert_int_equal(100, backlog.oldest_pending_unix_ms);
}

static void a_quote_that_is_not_ordered_from_is_given_up(void **state)
{
    struct kit *kit = *state;
    kit->care.unplaced_after_ms = 3600000;
    kit_open(kit);
    struct spw_flag_record old;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &old, lines, "old");
    old.created_unix_ms -= 3700000;
    kit_flag_with(kit, &old, "{}");
    spw_fixture_flag(&kit->segment.map, &old, lines, "cart");
    old.created_unix_ms -= 3700000;
    old.purpose = SPW_PURPOSE_ESTIMATE;
    kit_flag_with(kit, &old, "{}");
    kit_flag(kit, "young");
    kit_settle(kit);
    kit_close(kit);
    kit_open(kit); /* the first look of a start does not wait */
    while (kit_counts(kit).by_state[SPW_FLAG_PROVISIONAL] > 1)
        usleep(1000);
    assert_int_equal(SPW_FLAG_UNPLACED, row_of(kit, "old").state);
    assert_int_equal(SPW_FLAG_ABANDONED, row_of(kit, "cart").state);
    assert_int_equal(SPW_FLAG_PROVISIONAL, row_of(kit, "young").state);
    /* An order that comes late counts. */
    place(kit, "old", 993, 100);
    kit_settle(kit);
    assert_int_equal(SPW_FLAG_CONFIRMED, row_of(kit, "old").state);
    assert_int_equal(0, kit_counts(kit).by_state[SPW_FLAG_UNPLACED]);
}

static void a_quote_is_abandoned_by_its_caller(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_order(kit, SPW_ORDER_ABANDONED, "", "first", "", 0, 100); /* before its flag */
    kit_settle(kit);
    kit_flag(kit, "first");
    kit_flag(kit, "then");
    kit_settle(kit);
    kit_order(kit, SPW_ORDER_ABANDONED, "", "then", "", 0, 100);
    kit_order(kit, SPW_ORDER_ABANDONED, "", "then", "", 0, 100);
    kit_settle(kit);
    assert_int_equal(SPW_FLAG_ABANDONED, row_of(kit, "first").state);
    assert_int_equal(SPW_FLAG_ABANDONED, row_of(kit, "then").state);
    assert_int_equal(1, kit_counts(kit).duplicate_count);
    assert_int_equal(2, kit_counts(kit).by_state[SPW_FLAG_ABANDONED]);
    place(kit, "then", 993, 200);
    kit_settle(kit);
    assert_int_equal(SPW_FLAG_CONFIRMED, row_of(kit, "then").state);
    /* A second flag of the decision does not make a second row beside the abandoned one. */
    struct spw_flag_record second;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &second, lines, "again");
    snprintf(second.decision_id, sizeof second.decision_id, "d-first");
    kit_flag_with(kit, &second, "{}");
    kit_settle(kit);
    assert_int_equal(2, kit_number(kit, "SELECT count(*) FROM flags"));
    assert_int_equal(0, kit_counts(kit).damaged_count);
}

static void counts_are_the_same_after_a_start(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    place(kit, "a", 993, 100);
    kit_settle(kit);
    struct spw_reconciled_request r = result_for("a", row_of(kit, "a").revision);
    assert_int_equal(SPW_STATUS_OK, post(kit, &r));
    struct spw_store_counts before = kit_counts(kit);
    kit_close(kit);
    kit_open(kit);
    struct spw_store_counts after = kit_counts(kit);
    assert_memory_equal(before.by_state, after.by_state, sizeof before.by_state);
    assert_memory_equal(before.by_reconcile, after.by_reconcile, sizeof before.by_reconcile);
    assert_memory_equal(before.by_filing, after.by_filing, sizeof before.by_filing);
    assert_int_equal(1, after.by_filing[SPW_FILING_NEEDED]);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void a_ledger_of_version_1_is_brought_up(void **state)
{
    struct kit *kit = *state;
    char *dump = read_text("tests/data/ledger/version-1.sql");
    kit_sql(kit, dump);
    free(dump);
    assert_int_equal(1, kit_number(kit, "PRAGMA user_version"));
    kit_open(kit);
    assert_int_equal(SPW_SCHEMA_VERSION, kit_number(kit, "PRAGMA user_version"));
    assert_int_equal(SPW_FLAG_CONFIRMED, row_of(kit, "v1a").state);
    assert_int_equal(SPW_RECONCILE_PENDING, row_of(kit, "v1a").reconciliation.state);
    assert_int_equal(SPW_FLAG_CANCELLED, row_of(kit, "v1b").state);
    assert_int_equal(SPW_RECONCILE_NONE, row_of(kit, "v1b").reconciliation.state);
    assert_int_equal(SPW_FLAG_PROVISIONAL, row_of(kit, "v1c").state);
    assert_int_equal(3, kit_counts(kit).newest_sequence);
    assert_int_equal(2, kit_counts(kit).acknowledged_sequence);
    kit_flag(kit, "new");
    place(kit, "new", 993, 100);
    place(kit, "v1c", 993, 100);
    kit_settle(kit);
    assert_int_equal(4, row_of(kit, "new").sequence);
    assert_int_equal(3, due_count(kit, SPW_DUE_RECONCILE, 1000));
    kit_close(kit);
    kit_open(kit); /* and stays so */
    assert_int_equal(3, kit_counts(kit).by_reconcile[SPW_RECONCILE_PENDING]);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(placed_rows_are_due_once_a_lease),
        CASE(a_clock_put_back_holds_no_row),
        CASE(a_result_counts_once),
        CASE(a_result_that_contradicts_itself_is_refused),
        CASE(an_order_that_changes_begins_the_row_anew),
        CASE(a_filing_is_sent_read_back_and_final),
        CASE(a_person_decides_on_an_exception),
        CASE(a_quote_that_is_not_ordered_from_is_given_up),
        CASE(a_quote_is_abandoned_by_its_caller),
        CASE(counts_are_the_same_after_a_start),
        CASE(a_ledger_of_version_1_is_brought_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
