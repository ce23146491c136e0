/* test_store_upkeep.c: what the ledger does by itself in time: it forgets, counts what should not be, and warns; and what
 * is durable when somebody waits for it. */
#include "tests/unit/store_kit.h"

#include "sidecar/store/reconcile_rows.h"

#define DAY_MS INT64_C(86400000)

static const char request[] =
    "{\"ship_to\":{\"country\":\"US\",\"state\":\"WA\",\"zip\":\"98110-1234\",\"city\":\"Bainbridge Island\","
    "\"line1\":\"100 Ravine Ln "
    "NE\"},\"ship_from\":{\"state\":\"TX\",\"city\":\"Dallas\"},\"customer\":{\"id\":\"c_7\"},"
    "\"lines\":[{\"id\":\"1\",\"amount\":\"39.98\"}]}";

static int set_up(void **state)
{
    return kit_set_up_cells(state, 512);
}

static void flag_with_address(struct kit *kit, const char *tag)
{
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, tag);
    snprintf(record.zip, sizeof record.zip, "98110-1234");
    kit_flag_with(kit, &record, request);
}

static void cancelled_flag(struct kit *kit, const char *tag)
{
    char order[32];
    snprintf(order, sizeof order, "o-%s", tag);
    flag_with_address(kit, tag);
    kit_settle(kit);
    kit_order(kit, SPW_ORDER_PLACED, order, tag, "main", 993, 100);
    kit_order(kit, SPW_ORDER_CANCELLED, order, NULL, "main", 0, 200);
    kit_settle(kit);
}

/* A turn of upkeep is certain after a start. */
static void restart(struct kit *kit)
{
    kit_close(kit);
    kit_open(kit);
}

static void age(struct kit *kit, const char *where, int days)
{
    char sql[200];
    snprintf(sql, sizeof sql, "UPDATE flags SET stored_unix_ms=stored_unix_ms-%lld WHERE %s",
             (long long)(days * DAY_MS), where);
    kit_sql(kit, sql);
}

static void addresses_are_forgotten_and_money_is_kept(void **state)
{
    struct kit *kit = *state;
    kit->care.addresses_days = 90;
    kit_open(kit);
    cancelled_flag(kit, "old");
    cancelled_flag(kit, "young");
    flag_with_address(kit, "open"); /* its order may come */
    kit_settle(kit);
    kit_close(kit);
    age(kit, "flag_id<>'sf_young'", 91);
    kit_open(kit);
    while (kit_number(kit, "SELECT count(*) FROM flags WHERE purged_unix_ms<>0") < 1)
        usleep(1000);
    struct kit_rows rows = kit_export(kit, 0);
    const struct kit_row *old = kit_row_of(&rows, "old");
    assert_null(strstr(old->request, "Ravine"));
    assert_null(strstr(old->request, "Bainbridge"));
    assert_null(strstr(old->request, "Dallas"));
    assert_null(strstr(old->request, "c_7"));
    assert_null(strstr(old->request, "1234"));
    assert_non_null(strstr(old->request, "98110"));
    assert_non_null(strstr(old->request, "39.98"));
    assert_string_equal("98110", old->row.record.zip);
    assert_int_equal(993, old->row.record.tax_minor);
    assert_int_equal(920, old->lines[0].tax_minor);
    assert_non_null(strstr(kit_row_of(&rows, "young")->request, "Ravine"));
    assert_non_null(strstr(kit_row_of(&rows, "open")->request, "Ravine"));
    kit_rows_free(&rows);
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM flags WHERE purged_unix_ms<>0"));
}

static void rows_are_removed_from_the_front_only(void **state)
{
    struct kit *kit = *state;
    struct spw_error err = {0};
    kit->care.rows_days = 400;
    kit_open(kit);
    cancelled_flag(kit, "a");
    cancelled_flag(kit, "b");
    flag_with_address(kit, "open");
    kit_settle(kit);
    cancelled_flag(kit, "d");
    kit_close(kit);
    age(kit, "1", 401);
    kit_open(kit); /* old, but nobody has taken them */
    restart(kit);
    assert_int_equal(4, kit_number(kit, "SELECT count(*) FROM flags"));
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "books", 4, &err));
    restart(kit);
    while (kit_counts(kit).removed_sequence != 2)
        usleep(1000);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(2, rows.count);
    assert_int_equal(3, rows.row[0].row.sequence);
    assert_int_equal(4, rows.row[1].row.sequence);
    kit_rows_free(&rows);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(1, counts.by_state[SPW_FLAG_CANCELLED]);
    assert_int_equal(1, counts.by_state[SPW_FLAG_PROVISIONAL]);
    assert_int_equal(4, counts.flags_count);
    /* The next one goes on where the ledger was, and the removed ones leave nothing behind. */
    kit_flag(kit, "new");
    kit_settle(kit);
    assert_int_equal(5, kit_number(kit, "SELECT max(sequence) FROM flags"));
    assert_int_equal(0, kit_number(kit, "SELECT count(*) FROM history WHERE sequence<3"));
    restart(kit);
    assert_int_equal(2, kit_counts(kit).removed_sequence);
    assert_int_equal(5, kit_counts(kit).newest_sequence);
    assert_int_equal(0, kit_counts(kit).orphans_count);
}

/* Orders of quotes that no row has: live ones, and those of rows that are gone. */
static void orders_that_no_row_names_are_forgotten(void **state)
{
    struct kit *kit = *state;
    const int64_t now = spw_wall_ms(), old = now - 401 * INT64_C(86400000);
    kit->care.rows_days = 400;
    kit_open(kit);
    flag_with_address(kit, "held");
    kit_order(kit, SPW_ORDER_PLACED, "o-held", "held", "main", 993, old);
    kit_order(kit, SPW_ORDER_PLACED, "o-live", "live", "main", 993, old);
    kit_order(kit, SPW_ORDER_PLACED, "o-back", "back", "main", 993, old);
    kit_order(kit, SPW_ORDER_CANCELLED, "o-back", NULL, "main", 0, now); /* the last that was heard of it */
    kit_order(kit, SPW_ORDER_CANCELLED, "o-none", NULL, "main", 0, old);
    kit_order(kit, SPW_ORDER_PLACED, "o-new", "new", "main", 993, now);
    kit_order(kit, SPW_ORDER_ABANDONED, "", "cart", "", 0, old);
    kit_order(kit, SPW_ORDER_ABANDONED, "", "fresh", "", 0, now);
    kit_settle(kit);
    restart(kit);
    while (kit_number(kit, "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM abandoned)") != 4)
        usleep(1000);
    assert_int_equal(
        3, kit_number(kit, "SELECT count(*) FROM orders WHERE order_id IN ('o-held','o-back','o-new')"));
    assert_int_equal(3, kit_number(kit, "SELECT count(*) FROM order_quotes"));
    while (kit_counts(kit).orders_placed_count != 3)
        usleep(1000);
    assert_int_equal(1, kit_counts(kit).orders_cancelled_count);
    assert_int_equal(1, kit_counts(kit).by_state[SPW_FLAG_CONFIRMED]);
}

static void a_sound_ledger_has_no_orphan_and_no_stuck_row(void **state)
{
    struct kit *kit = *state;
    kit->care.stuck_after_ms = INT64_MAX / 2;
    kit_open(kit);
    cancelled_flag(kit, "cancelled");
    kit_flag(kit, "open");
    kit_flag(kit, "placed");
    kit_order(kit, SPW_ORDER_PLACED, "o", "placed", "main", 993, 100);
    kit_settle(kit);
    restart(kit);
    kit_flag(kit,
             "wait"); /* so that one turn of upkeep is certainly over: it comes after the one of the start */
    kit_settle(kit);
    assert_int_equal(0, kit_counts(kit).orphans_count);
    assert_int_equal(0, kit_counts(kit).stuck_count);
    kit_close(kit);
    kit_sql(kit, "DELETE FROM order_quotes WHERE quote_id='sq_placed'");
    kit_open(kit);
    while (kit_counts(kit).orphans_count != 1)
        usleep(1000);
}

static void what_time_should_have_moved_is_counted(void **state)
{
    struct kit *kit = *state;
    kit->care.stuck_after_ms = 1000;
    kit_open(kit);
    kit_flag(kit, "placed");
    kit_order(kit, SPW_ORDER_PLACED, "o", "placed", "main", 993, 100); /* long ago, and not reconciled */
    kit_settle(kit);
    /* A clock that was put forward and back: an instant of the day after tomorrow never comes of age. */
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, "future");
    record.created_unix_ms += 2 * DAY_MS;
    kit_flag_with(kit, &record, "{}");
    kit_settle(kit);
    while (kit_counts(kit).stuck_count != 2)
        usleep(1000);
    struct spw_reconciled_request r = {.state = SPW_RECONCILE_NOISE,
                                       .flag_id = "sf_placed",
                                       .live_known = true,
                                       .expected_revision = 2,
                                       .now_unix_ms = 5000,
                                       .variance = {.live_tax_minor = 993},
                                       .who = "test"};
    spw_store_reconciled(kit->store, &r);
    assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &r.job));
    while (kit_counts(kit).stuck_count != 1)
        usleep(1000);
}

static void the_share_counts_placed_orders_only(void **state)
{
    struct kit *kit = *state;
    int64_t now = spw_wall_ms();
    kit->care.alert_minimum_count = 2;
    kit->care.alert_share_ppm = 100000;
    kit->care.alert_window_ms = 60000;
    kit_open(kit);
    for (int i = 0; i < 3; i++) {
        char tag[16], id[16];
        snprintf(tag, sizeof tag, "f%d", i);
        snprintf(id, sizeof id, "o%d", i);
        kit_flag(kit, tag);
        if (i < 2)
            kit_order(kit, SPW_ORDER_PLACED, id, tag, "main", 993, now - i);
    }
    kit_order(kit, SPW_ORDER_PLACED, "live", "live", "main", 993, now);
    kit_order(kit, SPW_ORDER_PLACED, "long-ago", "elsewhere", "main", 993, now - 3600000);
    kit_settle(kit);
    while (kit_counts(kit).window_placed_count != 3)
        usleep(1000);
    assert_int_equal(2, kit_counts(kit).window_flagged_count);
    assert_int_equal(666666, kit_counts(kit).window_share_ppm);
    assert_true(kit_counts(kit).alert_on);
}

static void what_is_waited_for_is_durable(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    for (int i = 0; i < 50; i++) {
        char tag[16];
        struct spw_store_job durable = {0};
        snprintf(tag, sizeof tag, "w%d", i);
        kit_flag(kit, tag);
        spw_store_durable(kit->store, &durable);
        assert_int_equal(SPW_STATUS_OK, spw_store_wait(kit->store, &durable));
        assert_int_equal(i + 1, kit_number(kit, "SELECT count(*) FROM flags"));
    }
}

static void what_cannot_be_written_is_told(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    sqlite3 *holder = kit_db(kit);
    assert_int_equal(SQLITE_OK, sqlite3_exec(holder, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    kit_flag(kit, "held");
    struct spw_store_job durable = {0};
    spw_store_durable(kit->store, &durable);
    assert_int_equal(SPW_STATUS_NO_SPACE, spw_store_wait(kit->store, &durable));
    assert_false(kit_counts(kit).writable);
    sqlite3_exec(holder, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(holder);
    kit_settle(kit); /* by itself */
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM flags"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(addresses_are_forgotten_and_money_is_kept),
        CASE(rows_are_removed_from_the_front_only),
        CASE(orders_that_no_row_names_are_forgotten),
        CASE(a_sound_ledger_has_no_orphan_and_no_stuck_row),
        CASE(what_time_should_have_moved_is_counted),
        CASE(the_share_counts_placed_orders_only),
        CASE(what_is_waited_for_is_durable),
        CASE(what_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
