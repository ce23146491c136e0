/* stress_rates.c: a national table replaced again and again under the eyes of two processes, and loads without end.
 *
 * Every table has one rate throughout, so that a record of one table beside a source of another, or half a record, shows
 * at once. A destination that every table has is never missing; loads leave no memory and no descriptor behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "shm/spw_rates.h"
#include "tests/support/state_fixture.h"

#define DESTINATIONS 41071u
#define READERS      2
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TABLES 6u /* what a sanitizer looks for shows in a few, and each takes it a second */
#define LOADS  12
#else
#define TABLES 30u
#define LOADS  100
#endif

static struct spw_state_fixture f;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1/s, burst: 1, pods: 1}",
                           "segment: {slots: 16, cells: 64, rate_records: 65536}\n");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static void replace(struct spw_rate_row *rows, uint32_t number)
{
    struct spw_rates_source source;
    struct spw_error err;
    for (uint32_t i = 0; i < DESTINATIONS; i++)
        rows[i].state_ppb = rows[i].city_ppb = rows[i].combined_ppb = number;
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "table-%u", number);
    source.as_of_day = (int32_t)number;
    source.rows = rows;
    source.rows_count = DESTINATIONS;
    if (spw_state_rates_replace(f.state, &source, 1, NULL, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
}

/* Looks until the last table is there. 0: never a miss, never a mix. */
static int reader(unsigned seed)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
    struct spw_map map = {0};
    uint32_t newest = 0;
    uint64_t state = 88172645463325252ull + seed;
    if (spw_map_open(&map, f.pub_dir, f.rw_dir, SPW_PUB_NAME, false) != SPW_STATUS_OK)
        return 2;
    while (newest < TABLES) {
        struct spw_rate_record record;
        struct spw_source source;
        char name[16];
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        struct spw_place place = {.country = "US",
                                  .zip5 = 501 + 2 * (uint32_t)(state % DESTINATIONS),
                                  .has_zip = true,
                                  .day = 20000,
                                  .has_plus4 = state & 1,
                                  .plus4 = 4711};
        if (spw_rates_find(&map, &place, levels, &record, &source) != SPW_RATES_FOUND)
            return 3;
        snprintf(name, sizeof name, "table-%u", record.combined_ppb);
        if (record.zip5 != place.zip5 || record.state_ppb != record.combined_ppb ||
            record.city_ppb != record.combined_ppb || source.as_of_day != (int32_t)record.combined_ppb ||
            strcmp(source.name, name) != 0)
            return 4;
        if (record.combined_ppb < newest)
            return 5; /* back to an older table */
        newest = record.combined_ppb;
    }
    return 0;
}

static void replaced_under_readers(void **state)
{
    struct spw_rate_row *rows = calloc(DESTINATIONS, sizeof *rows);
    pid_t child[READERS];
    (void)state;
    assert_non_null(rows);
    for (uint32_t i = 0; i < DESTINATIONS; i++) {
        memcpy(rows[i].country, "US", 3);
        memcpy(rows[i].state, "WA", 3);
        rows[i].zip5 = 501 + 2 * i;
        rows[i].plus4_lo = rows[i].plus4_hi = 0xFFFF;
    }
    replace(rows, 1);
    for (unsigned i = 0; i < READERS; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(reader(i));
    }
    for (uint32_t number = 2; number <= TABLES; number++)
        replace(rows, number);
    for (unsigned i = 0; i < READERS; i++) {
        int status = -1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    free(rows);
}

/* ---- one place put in, and one rate learned, under the eyes of threads ---- */

#define ROUNDS 3000u

struct watcher {
    pthread_t thread;
    uint64_t subject;
    const uint64_t *stop;
    int fault;
};

/* Old or new, never a mix; a learned rate may be missing while it is written, and is never older than one seen. */
static void *watch(void *owner)
{
    static const uint32_t levels[] = {SPW_RATE_ZIP5, 0};
    struct watcher *w = owner;
    const struct spw_place place = {.country = "US", .zip5 = 98110, .has_zip = true, .day = 20000};
    uint32_t newest = 0, newest_learned = 0;
    while (!w->fault && spw_load_rlx(w->stop) == 0) {
        struct spw_rate_record record;
        struct spw_source source;
        struct spw_learned_rate learned;
        uint32_t level;
        enum spw_rates_result result = spw_rates_find(f.map, &place, levels, &record, &source);
        if (result == SPW_RATES_NOT_FOUND)
            w->fault = 1;
        if (result == SPW_RATES_FOUND) {
            w->fault = record.state_ppb != record.combined_ppb || record.combined_ppb < newest ? 2 : w->fault;
            newest = record.combined_ppb;
        }
        if (spw_learned_find(f.map, &place, w->subject, &learned, &level)) {
            w->fault = learned.state_ppb != learned.combined_ppb || learned.combined_ppb < newest_learned
                           ? 3
                           : w->fault;
            newest_learned = learned.combined_ppb;
        }
    }
    return NULL;
}

static void changed_under_threads(void **state)
{
    struct spw_rate_row row = {
        .country = "US", .state = "WA", .zip5 = 98110, .plus4_lo = 0xFFFF, .plus4_hi = 0xFFFF};
    struct spw_rates_source source = {.name = "fixes", .as_of_day = 20000, .rows = &row, .rows_count = 1};
    const struct spw_address from = {.state = "TX"}, to = {.state = "WA", .zip = "98110"};
    struct watcher watchers[2];
    uint64_t stop = 0;
    struct spw_error err;
    (void)state;
    assert_int_equal(spw_state_rates_upsert(f.state, &source, NULL, &err), SPW_STATUS_OK);
    memset(watchers, 0, sizeof watchers);
    for (unsigned i = 0; i < 2; i++) {
        watchers[i].subject = spw_learned_subject("main", &from, "PC");
        watchers[i].stop = &stop;
        assert_int_equal(pthread_create(&watchers[i].thread, NULL, watch, &watchers[i]), 0);
    }
    for (uint32_t n = 1; n <= ROUNDS; n++) {
        struct spw_learned_fact fact = {.account = "main",
                                        .ship_from = &from,
                                        .ship_to = &to,
                                        .tax_code = "PC",
                                        .combined_ppb = n,
                                        .state_ppb = n,
                                        .unix_ms = n};
        row.state_ppb = row.combined_ppb = n;
        assert_int_equal(spw_state_rates_upsert(f.state, &source, NULL, &err), SPW_STATUS_OK);
        spw_state_rates_learn(f.state, &fact);
    }
    spw_store_rlx(&stop, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(watchers[i].thread, NULL), 0);
        assert_int_equal(watchers[i].fault, 0);
    }
}

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void load_once(const char *path)
{
    struct spw_rates_table table;
    struct spw_rates_source source;
    struct spw_error err;
    if (spw_rates_load(path, NULL, &table, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    memset(&source, 0, sizeof source);
    snprintf(source.name, sizeof source.name, "sample");
    source.rows = table.rows;
    source.rows_count = table.rows_count;
    assert_int_equal(spw_state_rates_replace(f.state, &source, 1, NULL, &err), SPW_STATUS_OK);
    spw_rates_clean_up(&table);
    assert_int_equal(spw_rates_load("tests/data/rates/none.csv", NULL, &table, &err), SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_rates_load("tests/data/config/full.yaml", NULL, &table, &err), SPW_STATUS_PARSE);
}

static void loads_leave_nothing(void **state)
{
    static const char *const paths[] = {"tests/data/zip5/national-sample.csv.gz",
                                        "tests/data/rates/taxjar-summary.json",
                                        "tests/data/rates/avatax-by-zip.csv"};
    (void)state;
    for (unsigned i = 0; i < LOADS / 2; i++)
        load_once(paths[i % 3]); /* whatever libraries and the heap's own stores keep */
    size_t before = mallinfo2().uordblks;
    unsigned files = open_files();
    for (unsigned i = 0; i < LOADS; i++)
        load_once(paths[i % 3]);
    size_t after = mallinfo2().uordblks;
    assert_true(after < before + (size_t)LOADS * 16); /* less than the least allocation for each */
    assert_int_equal(open_files(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaced_under_readers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_under_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loads_leave_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
