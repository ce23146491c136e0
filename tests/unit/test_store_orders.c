/* test_store_orders.c: what orders make of flags, in whatever order they come. */
#include "tests/unit/store_kit.h"

static int set_up(void **state)
{
    return kit_set_up_cells(state, 512);
}

#define PLACED    SPW_ORDER_PLACED
#define CANCELLED SPW_ORDER_CANCELLED

static void expect(struct kit *kit, const char *tag, enum spw_flag_state want, const char *order_id,
                   uint32_t orders, int64_t collected)
{
    struct kit_rows rows = kit_export(kit, 0);
    struct kit_row *row = kit_row_of(&rows, tag);
    assert_non_null(row);
    assert_int_equal(want, row->row.state);
    assert_string_equal(order_id, row->order_id);
    assert_int_equal(orders, row->row.orders_count);
    assert_int_equal(collected, row->row.tax_collected_minor);
    kit_rows_free(&rows);
}

static void a_placed_order_confirms_its_flag(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "q");
    kit_flag(kit, "never");
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_PROVISIONAL, "", 0, 0);
    kit_order(kit, PLACED, "o1", "q", "main", 993, 100);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 1, 993);
    expect(kit, "never", SPW_FLAG_PROVISIONAL, "", 0, 0);
    kit_order(kit, CANCELLED, "o1", NULL, "main", 0, 200);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CANCELLED, "o1", 0, 0);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(3, kit_row_of(&rows, "q")->row.revision);
    assert_int_equal(1, kit_row_of(&rows, "q")->row.sequence);
    kit_rows_free(&rows);
    kit_order(kit, PLACED, "o1", "q", "main", 990, 300); /* placed again */
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 1, 990);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(1, counts.orders_placed_count);
    assert_int_equal(0, counts.orders_cancelled_count);
    assert_int_equal(1, counts.by_state[SPW_FLAG_CONFIRMED]);
    assert_int_equal(1, counts.by_state[SPW_FLAG_PROVISIONAL]);
    assert_int_equal(0, counts.by_state[SPW_FLAG_CANCELLED]);
}

static void an_order_may_come_before_its_flag(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_order(kit, PLACED, "o1", "q", "", 993, 100);
    kit_order(kit, PLACED, "live", "of-a-live-quote", "main", 500, 100);
    kit_order(kit, CANCELLED, "o2", NULL, "main", 0, 400);
    kit_settle(kit);
    assert_int_equal(2, kit_counts(kit).orders_placed_count);
    assert_int_equal(0, kit_counts(kit).orders_cancelled_count); /* o2 was never placed, for all we know */
    kit_flag(kit, "q");
    kit_flag(kit, "r");
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 1, 993);
    kit_order(kit, PLACED, "o2", "r", "main", 993, 300); /* was cancelled after this was written */
    kit_settle(kit);
    expect(kit, "r", SPW_FLAG_CANCELLED, "o2", 0, 0);
    assert_int_equal(1, kit_counts(kit).orders_cancelled_count);
    assert_int_equal(0, kit_counts(kit).damaged_count);
}

static void the_same_order_again_changes_nothing(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "q");
    for (int i = 0; i < 3; i++)
        kit_order(kit, PLACED, "o1", "q", "main", 993, 100);
    kit_settle(kit);
    assert_int_equal(2, kit_counts(kit).duplicate_count);
    kit_order(kit, PLACED, "o1", "q", "main", 993, 150); /* the shop's retry */
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 1, 993);
    assert_int_equal(1, kit_counts(kit).orders_placed_count);
    kit_close(kit);
    kit_open(kit);
    assert_int_equal(1, kit_counts(kit).orders_placed_count);
    assert_int_equal(1, kit_counts(kit).by_state[SPW_FLAG_CONFIRMED]);
}

static void one_quote_may_become_two_orders(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "q");
    kit_order(kit, PLACED, "o1", "q", "main", 500, 100);
    kit_order(kit, PLACED, "o2", "q", "main", 493, 101);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 2, 993);
    kit_order(kit, CANCELLED, "o1", NULL, "main", 0, 200);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o2", 1, 493);
    kit_order(kit, CANCELLED, "o2", NULL, "main", 0, 200);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CANCELLED, "o1", 0, 0);
    assert_int_equal(2, kit_counts(kit).orders_cancelled_count);
}

static void a_second_quote_of_an_order_supersedes(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "old");
    kit_flag(kit, "new");
    kit_order(kit, PLACED, "o1", "old", "main", 993, 100);
    kit_settle(kit);
    kit_order(kit, PLACED, "o1", "new", "main", 990, 200);
    kit_settle(kit);
    expect(kit, "old", SPW_FLAG_SUPERSEDED, "", 0, 0);
    expect(kit, "new", SPW_FLAG_CONFIRMED, "o1", 1, 990);
    kit_order(kit, PLACED, "o1", "live", "main", 989, 300); /* at last the provider answered */
    kit_settle(kit);
    expect(kit, "new", SPW_FLAG_SUPERSEDED, "", 0, 0);
    assert_int_equal(2, kit_counts(kit).by_state[SPW_FLAG_SUPERSEDED]);
    assert_int_equal(1, kit_counts(kit).orders_placed_count);
}

static void order_ids_belong_to_their_account(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    kit_order(kit, PLACED, "1001", "a", "main", 993, 100);
    kit_order(kit, PLACED, "1001", "b", "second", 993, 200);
    kit_settle(kit);
    expect(kit, "a", SPW_FLAG_CONFIRMED, "1001", 1, 993);
    expect(kit, "b", SPW_FLAG_CONFIRMED, "1001", 1, 993);
    kit_order(kit, CANCELLED, "1001", NULL, "", 0, 300); /* whose? nobody is to guess */
    kit_settle(kit);
    expect(kit, "a", SPW_FLAG_CONFIRMED, "1001", 1, 993);
    expect(kit, "b", SPW_FLAG_CONFIRMED, "1001", 1, 993);
    assert_int_equal(1, kit_counts(kit).damaged_count);
    kit_order(kit, CANCELLED, "1001", NULL, "second", 0, 400);
    kit_settle(kit);
    expect(kit, "b", SPW_FLAG_CANCELLED, "1001", 0, 0);
    expect(kit, "a", SPW_FLAG_CONFIRMED, "1001", 1, 993);
    kit_order(kit, PLACED, "2002", "a", "", 1, 500); /* the account is the quote's */
    kit_order(kit, CANCELLED, "2002", NULL, "", 0, 600);
    kit_settle(kit);
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM orders WHERE order_id='2002' AND account='main'"
                                        " AND order_state=2"));
}

static void absurd_amounts_do_not_block_the_queue(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "q");
    kit_order(kit, PLACED, "o1", "q", "main", INT64_MAX, INT64_MIN);
    kit_order(kit, PLACED, "o2", "q", "main", INT64_MAX, INT64_MAX);
    kit_settle(kit);
    expect(kit, "q", SPW_FLAG_CONFIRMED, "o1", 2, INT64_MAX);
    kit_flag(kit, "after");
    kit_settle(kit);
    assert_int_equal(2, kit_counts(kit).flags_count);
}

/* Six records of one history, in every one of their 720 orders of arrival, each arrival in a transaction of its own:
 * the outcome is always the same. */
#define STEPS        6
#define PERMUTATIONS 720
#define AT_ONCE      240

static void write_step(struct kit *kit, int step, int history)
{
    char old[16], fresh[16], order[16];
    snprintf(old, sizeof old, "old%d", history);
    snprintf(fresh, sizeof fresh, "new%d", history);
    snprintf(order, sizeof order, "o%d", history);
    switch (step) {
    case 0:
        kit_flag(kit, old);
        break;
    case 1:
        kit_flag(kit, fresh);
        break;
    case 2:
        kit_order(kit, PLACED, order, old, "main", 993, 100);
        break;
    case 3:
        kit_order(kit, CANCELLED, order, NULL, "main", 0, 200);
        break;
    case 4:
        kit_order(kit, PLACED, order, fresh, "main", 990, 300);
        break;
    default:
        kit_order(kit, PLACED, order, old, "main", 993, 150); /* a retry of the first placement */
    }
}

static void permutation(int index, int out[STEPS])
{
    int left[STEPS] = {0, 1, 2, 3, 4, 5}, n = STEPS, weight = PERMUTATIONS;
    for (int i = 0; i < STEPS; i++) {
        weight /= n;
        int take = index / weight % n;
        out[i] = left[take];
        memmove(&left[take], &left[take + 1], (size_t)(n - take - 1) * sizeof left[0]);
        n--;
    }
}

static void arrival_does_not_matter(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    for (int first = 0; first < PERMUTATIONS; first += AT_ONCE) {
        for (int step = 0; step < STEPS; step++) {
            for (int history = first; history < first + AT_ONCE; history++) {
                int order[STEPS];
                permutation(history, order);
                write_step(kit, order[step], history);
            }
            kit_settle(kit);
        }
    }
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(2 * PERMUTATIONS, rows.count);
    for (size_t i = 0; i < rows.count; i++) {
        bool old = strncmp(rows.row[i].row.record.flag_id, "sf_old", 6) == 0;
        assert_int_equal(old ? SPW_FLAG_SUPERSEDED : SPW_FLAG_CONFIRMED, rows.row[i].row.state);
        assert_int_equal(old ? 0 : 990, rows.row[i].row.tax_collected_minor);
        assert_int_equal(i + 1, rows.row[i].row.sequence);
    }
    kit_rows_free(&rows);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(PERMUTATIONS, counts.by_state[SPW_FLAG_SUPERSEDED]);
    assert_int_equal(PERMUTATIONS, counts.by_state[SPW_FLAG_CONFIRMED]);
    assert_int_equal(0, counts.by_state[SPW_FLAG_CANCELLED] + counts.by_state[SPW_FLAG_PROVISIONAL]);
    assert_int_equal(PERMUTATIONS, counts.orders_placed_count);
    assert_int_equal(0, counts.orders_cancelled_count);
    /* What is counted as it happens is what a restart counts from the tables. */
    kit_close(kit);
    kit_open(kit);
    struct spw_store_counts again = kit_counts(kit);
    assert_memory_equal(counts.by_state, again.by_state, sizeof counts.by_state);
    assert_int_equal(counts.orders_placed_count, again.orders_placed_count);
    assert_int_equal(counts.duplicate_count, again.duplicate_count);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_placed_order_confirms_its_flag),      CASE(an_order_may_come_before_its_flag),
        CASE(the_same_order_again_changes_nothing),  CASE(one_quote_may_become_two_orders),
        CASE(a_second_quote_of_an_order_supersedes), CASE(order_ids_belong_to_their_account),
        CASE(absurd_amounts_do_not_block_the_queue), CASE(arrival_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
