/* test_store_load.c: many flags: stored at the rate they come, exported in bounded memory.
 *
 * SPW_LEDGER_SECONDS (1) of 10,000 flags a second, and an export of SPW_LEDGER_FLAGS (20,000). What was reached is printed;
 * that nothing is lost or told twice, and that memory stays bounded, is asserted.
 */
#include "tests/unit/store_kit.h"

#include <inttypes.h>
#include <time.h>

#define FLAGS_PER_S    10000
#define MEMORY_MAX_KIB (64 * 1024) /* more than at the beginning; a page cache of SQLite's is 2 MiB */

static int set_up(void **state)
{
    int failed = kit_set_up_cells(state, 16384);
    alarm(0); /* as long as it takes */
    return failed;
}

static uint64_t wanted(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static long memory_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(1, fscanf(file, "%*d %ld", &pages));
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* One flag; when no cell is free, as soon as there is one. *waits: how often there was none. */
static void write_one(struct kit *kit, uint64_t i, uint64_t *waits)
{
    static const struct spw_line_tax lines[2] = {{10000, 920}, {795, 73}};
    struct spw_flag_record record;
    struct spw_line_tax unused[2];
    char tag[24];
    snprintf(tag, sizeof tag, "l%" PRIu64, i);
    spw_fixture_flag(&kit->segment.map, &record, unused, tag);
    while (spw_fixture_flag_write(&kit->segment.map, &record, lines, "line 1: at general rate\n",
                                  "{\"lines\":[{\"id\":\"1\",\"amount\":\"100.00\"}]}",
                                  (uint32_t)i) != SPW_STATUS_OK) {
        ++*waits;
        spw_store_wake(kit->store);
        usleep(500);
    }
}

static void flags_are_stored_as_they_come(void **state)
{
    struct kit *kit = *state;
    uint64_t seconds = wanted("SPW_LEDGER_SECONDS", 1), count = seconds * FLAGS_PER_S, waits = 0;
    kit_open(kit);
    for (uint64_t i = 0; i < 1000; i++)
        write_one(kit, i, &waits);
    kit_settle(kit);
    long before_kib = memory_kib(), most_kib = before_kib;
    uint64_t begun_ns = spw_now_ns();
    waits = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t due_ns = begun_ns + i * (UINT64_C(1000000000) / FLAGS_PER_S);
        if (i % 100 == 0 && spw_now_ns() < due_ns)
            usleep((useconds_t)((due_ns - spw_now_ns()) / 1000 + 1));
        write_one(kit, 1000 + i, &waits);
        if (i % FLAGS_PER_S == 0 && memory_kib() > most_kib)
            most_kib = memory_kib();
    }
    uint64_t written_ns = spw_now_ns() - begun_ns;
    kit_settle(kit);
    uint64_t durable_ns = spw_now_ns() - begun_ns;
    print_message("%" PRIu64 " flags: recorded at %.0f/s, durable at %.0f/s, %" PRIu64
                  " waits for a cell, %ld KiB more memory\n",
                  count, (double)count * 1e9 / (double)written_ns, (double)count * 1e9 / (double)durable_ns,
                  waits, most_kib - before_kib);
    assert_int_equal(1000 + count, kit_counts(kit).flags_count);
    assert_int_equal(1000 + count, kit_number(kit, "SELECT count(DISTINCT flag_id) FROM flags"));
    assert_int_equal(0, kit_counts(kit).damaged_count + kit_counts(kit).commit_failures_count);
    assert_true(most_kib - before_kib < MEMORY_MAX_KIB);
}

struct seen {
    uint64_t last, count;
    long most_kib;
};

static bool see(void *owner, const struct spw_flag_row *row)
{
    struct seen *seen = owner;
    assert_int_equal(seen->last + 1, row->sequence);
    seen->last = row->sequence;
    if (++seen->count % 10000 == 0 && memory_kib() > seen->most_kib)
        seen->most_kib = memory_kib();
    return true;
}

static void an_export_takes_no_more_memory_for_more_flags(void **state)
{
    struct kit *kit = *state;
    uint64_t count = wanted("SPW_LEDGER_FLAGS", 20000), waits = 0;
    kit_open(kit);
    for (uint64_t i = 0; i < count; i++)
        write_one(kit, i, &waits);
    kit_settle(kit);
    struct seen seen = {0};
    long before_kib = memory_kib();
    uint64_t begun_ns = spw_now_ns();
    assert_int_equal(SPW_STATUS_OK, spw_store_export(kit->store, 0, UINT32_MAX, see, &seen, NULL, NULL));
    print_message("%" PRIu64 " flags exported at %.0f/s, %ld KiB more memory\n", count,
                  (double)count * 1e9 / (double)(spw_now_ns() - begun_ns),
                  seen.most_kib > before_kib ? seen.most_kib - before_kib : 0);
    assert_int_equal(count, seen.count);
    assert_true(seen.most_kib - before_kib < MEMORY_MAX_KIB);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(flags_are_stored_as_they_come),
        CASE(an_export_takes_no_more_memory_for_more_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
