/* test_store_orders.c: what orders make of flags, and which flags of a decision have a row, in whatever order they
 * come. */
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

static int permutations(int n)
{
    int count = 1;
    for (int i = 2; i <= n; i++)
        count *= i;
    return count;
}

static void permutation(int index, int n, int out[])
{
    int left[STEPS] = {0, 1, 2, 3, 4, 5}, weight = permutations(n);
    for (int i = 0; n > 0; i++) {
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
                permutation(history, STEPS, order);
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

/* ---- two and three answers of one decision ---- */

/* What may happen. PLACE_A: order 1 from answer A; PLACE_B: order 2 from B; AGAIN_B: order 1 once more, from B. */
enum step { FLAG_A, FLAG_B, FLAG_C, PLACE_A, PLACE_B, CANCEL_1, CANCEL_2, AGAIN_B };
enum { ASIDE = -1 };

struct history {
    int count;
    enum step step[STEPS];
    int state[3]; /* of A, B, C at the end; ASIDE = it has no row */
    int64_t collected[3];
};
/* Without an order the client's own stands, then the one created first; with one, what the order says. */
static const struct history histories[] = {
    {3, {FLAG_A, FLAG_B, PLACE_A}, {SPW_FLAG_CONFIRMED, ASIDE, ASIDE}, {500, 0, 0}},
    {3, {FLAG_A, FLAG_B, PLACE_B}, {ASIDE, SPW_FLAG_CONFIRMED, ASIDE}, {0, 600, 0}},
    {4, {FLAG_A, FLAG_B, PLACE_A, CANCEL_1}, {SPW_FLAG_CANCELLED, ASIDE, ASIDE}, {0}},
    {4, {FLAG_A, FLAG_B, PLACE_B, CANCEL_2}, {ASIDE, SPW_FLAG_CANCELLED, ASIDE}, {0}},
    {4, {FLAG_A, FLAG_B, PLACE_A, PLACE_B}, {SPW_FLAG_CONFIRMED, SPW_FLAG_CONFIRMED, ASIDE}, {500, 600, 0}},
    {4, {FLAG_A, FLAG_B, PLACE_A, AGAIN_B}, {SPW_FLAG_SUPERSEDED, SPW_FLAG_CONFIRMED, ASIDE}, {0, 550, 0}},
    {5,
     {FLAG_A, FLAG_B, PLACE_A, PLACE_B, CANCEL_1},
     {SPW_FLAG_CANCELLED, SPW_FLAG_CONFIRMED, ASIDE},
     {0, 600, 0}},
    {5,
     {FLAG_A, FLAG_B, PLACE_A, PLACE_B, CANCEL_2},
     {SPW_FLAG_CONFIRMED, SPW_FLAG_CANCELLED, ASIDE},
     {500, 0, 0}},
    {4, {FLAG_A, FLAG_B, FLAG_C, PLACE_B}, {ASIDE, SPW_FLAG_CONFIRMED, ASIDE}, {0, 600, 0}},
    {6,
     {FLAG_A, FLAG_B, FLAG_C, PLACE_A, PLACE_B, CANCEL_1},
     {SPW_FLAG_CANCELLED, SPW_FLAG_CONFIRMED, ASIDE},
     {0, 600, 0}},
    {2, {FLAG_A, FLAG_B}, {SPW_FLAG_PROVISIONAL, ASIDE, ASIDE}, {0}},
    {3, {FLAG_A, FLAG_B, FLAG_C}, {SPW_FLAG_PROVISIONAL, ASIDE, ASIDE}, {0}},
};
#define HISTORIES ((int)(sizeof histories / sizeof histories[0]))
#define ORIGINS   4 /* of A and B, loop or segment; C is the loop's */
#define RUNS_MAX  8192

/* One history, with one pair of origins, in one order of arrival: a decision of its own. */
struct run {
    const struct history *history;
    int origins;
    int order[STEPS];
};

static void write_answer(struct kit *kit, int id, int origins, int which)
{
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    char tag[16];
    snprintf(tag, sizeof tag, "%c%d", 'A' + which, id);
    spw_fixture_flag(&kit->segment.map, &record, lines, tag);
    snprintf(record.decision_id, sizeof record.decision_id, "decision-%d", id);
    record.origin = (uint8_t)(which == 2 ? 1 : origins >> which & 1);
    record.created_unix_ms = 1000 + which;
    kit_flag_with(kit, &record, tag);
}

static void write_event(struct kit *kit, int id, const struct run *run, enum step step)
{
    char a[16], b[16], one[16], two[16];
    snprintf(a, sizeof a, "A%d", id);
    snprintf(b, sizeof b, "B%d", id);
    snprintf(one, sizeof one, "one%d", id);
    snprintf(two, sizeof two, "two%d", id);
    switch (step) {
    case PLACE_A:
        kit_order(kit, PLACED, one, a, "main", 500, 100);
        break;
    case PLACE_B:
        kit_order(kit, PLACED, two, b, "main", 600, 100);
        break;
    case AGAIN_B:
        kit_order(kit, PLACED, one, b, "main", 550, 300);
        break;
    case CANCEL_1:
        kit_order(kit, CANCELLED, one, NULL, "main", 0, 200);
        break;
    case CANCEL_2:
        kit_order(kit, CANCELLED, two, NULL, "main", 0, 200);
        break;
    default:
        write_answer(kit, id, run->origins, (int)step - FLAG_A);
    }
}

static int make_runs(struct run *runs)
{
    int count = 0;
    for (int i = 0; i < HISTORIES * ORIGINS; i++) {
        const struct history *history = &histories[i / ORIGINS];
        for (int p = 0; p < permutations(history->count); p++) {
            assert_true(count < RUNS_MAX);
            runs[count] = (struct run){.history = history, .origins = i % ORIGINS};
            permutation(p, history->count, runs[count++].order);
        }
    }
    return count;
}

/* A consumer that goes by change: what it knows of each sequence. */
struct mirror {
    struct spw_flag_row *row; /* by sequence; texts are not kept */
    uint64_t room, change, seen;
};

static bool take_change(void *owner, const struct spw_flag_row *row)
{
    struct mirror *mirror = owner;
    assert_true(row->change > mirror->change);
    assert_true(row->sequence > 0 && row->sequence < mirror->room);
    struct spw_flag_row *known = &mirror->row[row->sequence];
    if (known->sequence) {
        assert_true(row->revision > known->revision);
        assert_string_equal(known->record.decision_id, row->record.decision_id);
        if (known->state != SPW_FLAG_PROVISIONAL)
            assert_string_equal(known->record.flag_id, row->record.flag_id);
    } else {
        mirror->seen++;
    }
    *known = *row;
    mirror->change = row->change;
    return true;
}

static void follow(struct kit *kit, struct mirror *mirror)
{
    uint64_t before, next = mirror->change;
    do {
        before = next;
        assert_int_equal(SPW_STATUS_OK,
                         spw_store_export_changes(kit->store, before, 7, take_change, mirror, &next, NULL));
        assert_int_equal(mirror->change, next);
    } while (next != before);
}

/* The state in which a flag of the run has to end. */
static int wanted_state(const struct run *run, int which)
{
    int b_first = (run->origins & 3) == 1; /* A is the loop's, B the client's own */
    if (run->history->state[0] == SPW_FLAG_PROVISIONAL && b_first)
        return which == 1 ? SPW_FLAG_PROVISIONAL : ASIDE;
    return run->history->state[which];
}

static void check_runs(struct kit *kit, const struct run *runs, int count)
{
    struct kit_rows rows = kit_export(kit, 0);
    size_t rows_wanted = 0;
    struct kit_row *(*found)[3] = calloc((size_t)count, sizeof *found);
    for (size_t i = 0; i < rows.count; i++) {
        const char *id = rows.row[i].row.record.flag_id; /* "sf_A17" */
        struct kit_row **place = &found[strtol(id + 4, NULL, 10)][id[3] - 'A'];
        assert_null(*place);
        *place = &rows.row[i];
        assert_int_equal(i + 1, rows.row[i].row.sequence);
        assert_string_equal(id + 3, rows.row[i].request); /* the whole content moves */
    }
    for (int id = 0; id < count; id++) {
        for (int which = 0; which < 3; which++) {
            int state = wanted_state(&runs[id], which);
            const struct kit_row *row = found[id][which];
            if (state == ASIDE) {
                assert_null(row);
                continue;
            }
            rows_wanted++;
            assert_non_null(row);
            assert_int_equal(state, row->row.state);
            assert_int_equal(runs[id].history->collected[which], row->row.tax_collected_minor);
            assert_int_equal(state == SPW_FLAG_CONFIRMED, row->row.orders_count);
        }
    }
    assert_int_equal(rows_wanted, rows.count);
    free(found);
    kit_rows_free(&rows);
}

/* What holds of the whole ledger, however it came about. */
static void check_ledger(struct kit *kit, int64_t flags_written)
{
    assert_int_equal(flags_written, kit_number(kit, "SELECT (SELECT count(*) FROM flags) +"
                                                    " (SELECT count(*) FROM superseded)"));
    assert_int_equal(0, kit_number(kit, "SELECT count(*) FROM superseded JOIN flags USING(flag_id)"));
    assert_int_equal(0, kit_number(kit, "SELECT count(*) FROM superseded AS s LEFT JOIN flags AS f ON"
                                        " f.sequence=s.sequence WHERE f.decision_id IS NOT s.decision_id"));
    assert_int_equal(kit_number(kit, "SELECT sum(tax_collected_minor) FROM orders WHERE order_state=1"),
                     kit_number(kit, "SELECT sum(tax_collected_minor) FROM flags"));
    assert_int_equal(kit_number(kit, "SELECT count(*) FROM orders WHERE order_state=1"),
                     kit_number(kit, "SELECT sum(orders_count) FROM flags"));
    assert_int_equal(0, kit_counts(kit).damaged_count);
}

static void check_mirror(struct kit *kit, const struct mirror *mirror)
{
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(rows.count, mirror->seen);
    for (size_t i = 0; i < rows.count; i++) {
        const struct spw_flag_row *row = &rows.row[i].row, *known = &mirror->row[row->sequence];
        assert_int_equal(row->change, known->change);
        assert_int_equal(row->revision, known->revision);
        assert_int_equal(row->state, known->state);
        assert_int_equal(row->tax_collected_minor, known->tax_collected_minor);
        assert_memory_equal(&row->record, &known->record, sizeof row->record);
    }
    kit_rows_free(&rows);
}

/* times 2: each record is read again after its commit, as after a crash before its cell was freed. */
static void run_all(struct kit *kit, int times)
{
    struct run *runs = calloc(RUNS_MAX, sizeof *runs);
    int count = make_runs(runs);
    int64_t flags = 0;
    struct mirror mirror = {.room = 3 * (uint64_t)count + 1};
    mirror.row = calloc(mirror.room, sizeof *mirror.row);
    kit_open(kit);
    for (int first = 0; first < count; first += AT_ONCE) {
        int end = first + AT_ONCE < count ? first + AT_ONCE : count;
        for (int i = 0; i < STEPS * times; i++) {
            for (int id = first; id < end; id++) {
                const struct history *history = runs[id].history;
                if (i / times >= history->count)
                    continue;
                enum step step = history->step[runs[id].order[i / times]];
                write_event(kit, id, &runs[id], step);
                flags += step <= FLAG_C && i % times == 0;
            }
            kit_settle(kit);
            follow(kit, &mirror);
        }
    }
    check_runs(kit, runs, count);
    check_ledger(kit, flags);
    check_mirror(kit, &mirror);
    /* All of it once more, after a restart, changes no row; what a restart counts is what was counted as it happened. */
    struct spw_store_counts counts = kit_counts(kit);
    kit_close(kit);
    kit_open(kit);
    struct spw_store_counts again = kit_counts(kit);
    assert_memory_equal(&counts, &again, sizeof counts);
    for (int id = 0; id < count; id++) {
        for (int i = 0; i < runs[id].history->count; i++)
            write_event(kit, id, &runs[id], runs[id].history->step[i]);
        if (id % (AT_ONCE / STEPS) == 0)
            kit_settle(kit);
    }
    kit_settle(kit);
    assert_int_equal(counts.newest_change, kit_counts(kit).newest_change);
    assert_int_equal(counts.newest_sequence, kit_counts(kit).newest_sequence);
    follow(kit, &mirror);
    check_mirror(kit, &mirror);
    free(mirror.row);
    free(runs);
}

static void an_ordered_answer_has_a_row(void **state)
{
    run_all(*state, 1);
}

static void an_answer_read_twice_counts_once(void **state)
{
    run_all(*state, 2);
}

/* The caller's first answer was lost on the way; the customer ordered from the second. */
static void the_order_tells_which_answer_arrived(void **state)
{
    struct kit *kit = *state;
    struct run run = {.origins = 3};
    kit_open(kit);
    write_answer(kit, 1, 3, 0);
    kit_settle(kit);
    write_answer(kit, 1, 3, 1);
    kit_settle(kit);
    expect(kit, "A1", SPW_FLAG_PROVISIONAL, "", 0, 0);
    write_event(kit, 1, &run, PLACE_B);
    kit_settle(kit);
    expect(kit, "B1", SPW_FLAG_CONFIRMED, "two1", 1, 600);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(1, rows.count);
    assert_int_equal(2, rows.row[0].row.revision);
    kit_rows_free(&rows);
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM superseded WHERE flag_id='sf_A1' AND sequence=1"
                                        " AND why='an order names another flag of the decision'"));
    /* Then from the first as well, out of another window. */
    write_event(kit, 1, &run, PLACE_A);
    kit_settle(kit);
    expect(kit, "A1", SPW_FLAG_CONFIRMED, "one1", 1, 500);
    expect(kit, "B1", SPW_FLAG_CONFIRMED, "two1", 1, 600);
    rows = kit_export(kit, 0);
    assert_int_equal(2, kit_row_of(&rows, "A1")->row.sequence);
    assert_int_equal(1, kit_row_of(&rows, "A1")->row.revision);
    kit_rows_free(&rows);
    assert_int_equal(0, kit_number(kit, "SELECT count(*) FROM superseded"));
    /* An order that does not say its account has that of a flag set aside, too. */
    write_answer(kit, 1, 3, 2);
    kit_order(kit, PLACED, "three", "C1", "", 700, 400);
    kit_settle(kit);
    expect(kit, "C1", SPW_FLAG_CONFIRMED, "three", 1, 700);
}

/* Two flags of one quote, which no honest writer makes: its order's money is told once. */
static void a_quote_has_one_row_in_its_decision(void **state)
{
    struct kit *kit = *state;
    for (int order_first = 0; order_first < 2; order_first++) {
        kit_open(kit);
        char order[16], quote[16];
        snprintf(order, sizeof order, "o%d", order_first);
        snprintf(quote, sizeof quote, "same%d", order_first);
        if (order_first)
            kit_order(kit, PLACED, order, quote, "main", 500, 100);
        for (int i = 0; i < 3; i++) {
            struct spw_flag_record record;
            struct spw_line_tax lines[2];
            char tag[16];
            snprintf(tag, sizeof tag, "t%d%d", order_first, i);
            spw_fixture_flag(&kit->segment.map, &record, lines, tag);
            snprintf(record.decision_id, sizeof record.decision_id, "d%d", order_first);
            snprintf(record.quote_id, sizeof record.quote_id, "sq_%s", quote);
            kit_flag_with(kit, &record, "{}");
            kit_settle(kit);
        }
        if (!order_first)
            kit_order(kit, PLACED, order, quote, "main", 500, 100);
        kit_settle(kit);
        assert_int_equal(500 * (order_first + 1),
                         kit_number(kit, "SELECT sum(tax_collected_minor) FROM flags"));
        assert_int_equal(order_first + 1, kit_number(kit, "SELECT count(*) FROM flags"));
        assert_int_equal(2 * (order_first + 1), kit_number(kit, "SELECT count(*) FROM superseded"));
        kit_close(kit);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_placed_order_confirms_its_flag),      CASE(an_order_may_come_before_its_flag),
        CASE(the_same_order_again_changes_nothing),  CASE(one_quote_may_become_two_orders),
        CASE(a_second_quote_of_an_order_supersedes), CASE(order_ids_belong_to_their_account),
        CASE(absurd_amounts_do_not_block_the_queue), CASE(arrival_does_not_matter),
        CASE(an_ordered_answer_has_a_row),           CASE(an_answer_read_twice_counts_once),
        CASE(the_order_tells_which_answer_arrived),  CASE(a_quote_has_one_row_in_its_decision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
