/* test_store_faults.c: the ledger on volumes that are full or read-only, and on files that are damaged.
 *
 * Full and read-only volumes are small tmpfs mounts in a mount namespace of this process's own; without the right to
 * make one (CAP_SYS_ADMIN) those tests are skipped and say so.
 */
#include "tests/unit/store_kit.h"

#include <glob.h>
#include <sched.h>
#include <sys/mount.h>

static bool may_mount;
static const char *why_not;

static int set_up(void **state)
{
    return kit_set_up_cells(state, 256);
}

/* ---- volumes ---- */

static void need_mounts(void)
{
    if (!may_mount) {
        print_message("skipped: no mount namespace of one's own: %s\n", why_not);
        skip();
    }
}

/* The ledger's file on a tmpfs of so many bytes. */
static void mount_volume(struct kit *kit, const char *options)
{
    char dir[300];
    snprintf(dir, sizeof dir, "%s/volume", kit->segment.dir);
    assert_int_equal(0, mkdir(dir, 0700));
    assert_int_equal(0, mount("tmpfs", dir, "tmpfs", 0, options));
    snprintf(kit->file, sizeof kit->file, "%s/volume/ledger.db", kit->segment.dir);
}

static void remount(struct kit *kit, unsigned long flags, const char *options)
{
    char dir[300];
    snprintf(dir, sizeof dir, "%s/volume", kit->segment.dir);
    if (mount("tmpfs", dir, "tmpfs", MS_REMOUNT | flags, options) != 0)
        fail_msg("remount: %s", strerror(errno));
}

static int tear_down_volume(void **state)
{
    struct kit *kit = *state;
    char dir[300];
    spw_store_close(kit->store);
    kit->store = NULL;
    snprintf(dir, sizeof dir, "%s/volume", kit->segment.dir);
    (void)umount2(dir, MNT_DETACH);
    return kit_tear_down(state);
}

static void fill_up(struct kit *kit)
{
    static const char block[4096];
    char path[320];
    snprintf(path, sizeof path, "%s/volume/ballast", kit->segment.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    assert_int_equal(ENOSPC, errno);
    close(fd);
}

static void make_room(struct kit *kit)
{
    char path[320];
    snprintf(path, sizeof path, "%s/volume/ballast", kit->segment.dir);
    assert_int_equal(0, unlink(path));
}

static void write_flags(struct kit *kit, const char *prefix, int count, size_t request_bytes)
{
    char *request = calloc(1, request_bytes + 1), tag[24];
    memset(request, 'x', request_bytes);
    for (int i = 0; i < count; i++) {
        struct spw_flag_record record;
        struct spw_line_tax lines[2];
        snprintf(tag, sizeof tag, "%s%d", prefix, i);
        spw_fixture_flag(&kit->segment.map, &record, lines, tag);
        kit_flag_with(kit, &record, request);
    }
    free(request);
}

static void wait_for_failures(struct kit *kit, uint64_t count)
{
    while (kit_counts(kit).commit_failures_count < count)
        usleep(1000);
}

static void expect_all(struct kit *kit, const char *const *prefix, const int *count, size_t n)
{
    struct kit_rows rows = kit_export(kit, 0);
    size_t total = 0;
    for (size_t i = 0; i < rows.count; i++)
        assert_int_equal(i + 1, rows.row[i].row.sequence);
    for (size_t p = 0; p < n; p++) {
        for (int i = 0; i < count[p]; i++, total++) {
            char tag[24];
            snprintf(tag, sizeof tag, "%s%d", prefix[p], i);
            assert_non_null(kit_row_of(&rows, tag));
        }
    }
    assert_int_equal(total, rows.count);
    kit_rows_free(&rows);
}

static void a_full_disk_keeps_the_cells(void **state)
{
    need_mounts();
    struct kit *kit = *state;
    mount_volume(kit, "size=2m");
    kit_open(kit);
    write_flags(kit, "before", 5, 100);
    kit_settle(kit);
    fill_up(kit);
    write_flags(kit, "during", 8, 20000); /* 11 cells each */
    wait_for_failures(kit, 3);
    struct spw_store_counts counts = kit_counts(kit);
    assert_false(counts.writable);
    assert_int_equal(5, counts.newest_sequence);
    assert_int_equal(8 * 11, spw_fixture_cells_busy(&kit->segment.map));
    struct spw_error err = {0};
    assert_int_equal(SPW_STATUS_NO_SPACE, spw_store_acknowledge(kit->store, "books", 5, &err));
    assert_non_null(strstr(err.text, "make room"));
    assert_int_equal(0, kit_counts(kit).acknowledged_sequence);
    struct kit_rows rows = kit_export(kit, 0); /* what is stored can still be read */
    assert_int_equal(5, rows.count);
    kit_rows_free(&rows);

    make_room(kit);
    kit_settle(kit);
    assert_true(kit_counts(kit).writable);
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "books", 5, &err));
    expect_all(kit, (const char *const[]){"before", "during"}, (const int[]){5, 8}, 2);
}

static void closing_on_a_full_disk_leaves_the_cells(void **state)
{
    need_mounts();
    struct kit *kit = *state;
    mount_volume(kit, "size=2m");
    kit_open(kit);
    write_flags(kit, "a", 2, 100);
    kit_settle(kit);
    fill_up(kit);
    write_flags(kit, "b", 3, 20000);
    kit_close(kit);
    assert_int_equal(3 * 11, spw_fixture_cells_busy(&kit->segment.map));
    make_room(kit);
    kit_open(kit);
    kit_settle(kit);
    expect_all(kit, (const char *const[]){"a", "b"}, (const int[]){2, 3}, 2);
}

static void a_disk_full_from_the_start_is_waited_for(void **state)
{
    need_mounts();
    struct kit *kit = *state;
    mount_volume(kit, "size=2m");
    fill_up(kit);
    kit_open(kit);
    assert_false(kit_counts(kit).writable);
    write_flags(kit, "early", 4, 100);
    struct spw_error err = {0};
    struct kit_rows none = {0};
    assert_int_equal(SPW_STATUS_NOT_READY,
                     spw_store_export(kit->store, 0, 10, kit_keep_row, &none, NULL, &err));
    assert_int_equal(SPW_STATUS_NOT_READY, spw_store_acknowledge(kit->store, "books", 0, &err));
    wait_for_failures(kit, 2);
    make_room(kit);
    kit_settle(kit);
    assert_true(kit_counts(kit).writable);
    expect_all(kit, (const char *const[]){"early"}, (const int[]){4}, 1);
}

static void a_volume_that_is_writable_again_is_noticed(void **state)
{
    need_mounts();
    struct kit *kit = *state;
    mount_volume(kit, "size=2m");
    fill_up(kit);
    kit_open(kit);
    make_room(kit);
    while (!kit_counts(kit).writable) /* no cell waits: an empty commit finds out */
        usleep(1000);
}

static void a_read_only_volume_is_waited_for(void **state)
{
    need_mounts();
    struct kit *kit = *state;
    mount_volume(kit, "size=4m");
    kit_open(kit);
    write_flags(kit, "before", 3, 100);
    kit_settle(kit);
    kit_close(kit);
    remount(kit, MS_RDONLY, "size=4m");
    kit_open(kit);
    assert_false(kit_counts(kit).writable);
    write_flags(kit, "during", 3, 100);
    wait_for_failures(kit, 2);
    assert_int_equal(3, spw_fixture_cells_busy(&kit->segment.map));
    remount(kit, 0, "size=4m");
    kit_settle(kit);
    assert_true(kit_counts(kit).writable);
    expect_all(kit, (const char *const[]){"before", "during"}, (const int[]){3, 3}, 2);
}

/* ---- damaged files ---- */

static size_t set_aside_count(struct kit *kit, off_t *bytes)
{
    char pattern[320];
    glob_t found;
    struct stat st;
    snprintf(pattern, sizeof pattern, "%s.damaged-*[0-9]", kit->file);
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n && bytes && stat(found.gl_pathv[0], &st) == 0)
        *bytes = st.st_size;
    if (n)
        globfree(&found);
    return n;
}

static off_t bytes_of(const char *path)
{
    struct stat st;
    assert_int_equal(0, stat(path, &st));
    return st.st_size;
}

static void remove_all(struct kit *kit)
{
    char command[400];
    snprintf(command, sizeof command, "rm -f '%s'*", kit->file);
    assert_int_equal(0, system(command));
}

static uint8_t *read_file(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    assert_true(fd >= 0);
    assert_int_equal(0, fstat(fd, &st));
    uint8_t *content = malloc((size_t)st.st_size + 1);
    assert_int_equal(st.st_size, read(fd, content, (size_t)st.st_size));
    close(fd);
    *bytes = (size_t)st.st_size;
    return content;
}

static void write_file(const char *path, const uint8_t *content, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(bytes, write(fd, content, bytes));
    close(fd);
}

/* A ledger of 40 flags, closed, as bytes. */
static uint8_t *make_ledger(struct kit *kit, size_t *bytes)
{
    kit_open(kit);
    for (int i = 0; i < 4; i++) {
        char prefix[8];
        snprintf(prefix, sizeof prefix, "%c", 'a' + i);
        write_flags(kit, prefix, 10, i == 2 ? 9000 : 300);
        kit_order(kit, SPW_ORDER_PLACED, prefix, "a1", "main", 1, i);
        kit_settle(kit);
    }
    kit_close(kit);
    return read_file(kit->file, bytes);
}

/* Open whatever is there; a new flag can be stored and found. Returns its sequence. */
static uint64_t use(struct kit *kit)
{
    static int n;
    char tag[24], id[SPW_ID_BYTES];
    kit_open(kit);
    snprintf(tag, sizeof tag, "use%d", n++);
    snprintf(id, sizeof id, "sf_%s", tag);
    kit_flag(kit, tag);
    kit_settle(kit);
    struct kit_rows rows = {0};
    struct spw_error err = {0};
    if (spw_store_find(kit->store, id, 1, kit_keep_row, &rows, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(1, rows.count);
    uint64_t sequence = rows.row[0].row.sequence;
    kit_rows_free(&rows);
    kit_close(kit);
    return sequence;
}

static void a_ledger_cut_anywhere_is_set_aside(void **state)
{
    struct kit *kit = *state;
    size_t bytes, cuts = 0;
    uint8_t *content = make_ledger(kit, &bytes);
    static const size_t special[] = {0, 1, 15, 16, 17, 99, 100, 101, 511, 512, 4095, 4096, 4097};
    const size_t specials = sizeof special / sizeof special[0], step = bytes / 120;
    for (size_t i = 0; cuts < bytes; i++) {
        cuts = i < specials ? special[i] : (i - specials + 1) * step;
        if (cuts > bytes)
            cuts = bytes;
        remove_all(kit);
        write_file(kit->file, content, cuts);
        uint64_t sequence = use(kit);
        off_t aside = -1;
        size_t files = set_aside_count(kit, &aside);
        if (cuts == bytes) {
            assert_int_equal(41, sequence);
            assert_int_equal(0, files);
        } else if (cuts == 0) {
            assert_int_equal(1, sequence);
            assert_int_equal(0, files);
        } else {
            if (sequence != 1 || files != 1 || aside != (off_t)cuts)
                fail_msg("cut at %zu of %zu: sequence %d, %zu files of %d bytes", cuts, bytes, (int)sequence,
                         files, (int)aside);
        }
    }
    free(content);
}

static void a_ledger_overwritten_anywhere_can_be_lived_with(void **state)
{
    struct kit *kit = *state;
    size_t bytes;
    uint8_t *content = make_ledger(kit, &bytes);
    size_t aside = 0, kept = 0;
    uint8_t *bad = malloc(bytes);
    for (size_t at = 0; at + 64 < bytes; at += bytes / 50) {
        remove_all(kit);
        memcpy(bad, content, bytes);
        memset(bad + at, 0xA5, 64);
        write_file(kit->file, bad, bytes);
        (void)use(kit);
        if (set_aside_count(kit, NULL))
            aside++;
        else
            kept++;
    }
    assert_true(aside > 0); /* the first: its header */
    assert_true(kept > 0);  /* inside somebody's text it is not even seen */
    free(bad);
    free(content);
}

static void damage_while_running_is_set_aside(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    write_flags(kit, "old", 3, 100);
    kit_settle(kit);
    kit_sql(kit, "PRAGMA writable_schema=ON; DELETE FROM sqlite_schema WHERE name='flags'; PRAGMA "
                 "schema_version=9999");
    write_flags(kit, "new", 2, 100);
    kit_settle(kit);
    expect_all(kit, (const char *const[]){"new"}, (const int[]){2}, 1);
    assert_int_equal(1, set_aside_count(kit, NULL));
    struct spw_store_counts counts = kit_counts(kit);
    assert_true(counts.writable);
    assert_true(counts.commit_failures_count > 0);
}

/* Only a reader meets it: the writer has the pages in memory. */
static void damage_that_a_reader_finds_is_set_aside(void **state)
{
    struct kit *kit = *state;
    struct spw_error err = {0};
    struct kit_rows rows = {0};
    kit_open(kit);
    write_flags(kit, "old", 20, 9000);
    kit_settle(kit);
    kit_sql(kit, "PRAGMA wal_checkpoint(TRUNCATE)");
    off_t bytes = bytes_of(kit->file);
    uint8_t *noise = malloc((size_t)bytes);
    for (off_t i = 0; i < bytes; i++)
        noise[i] = (uint8_t)(rand() >> 7);
    int fd = open(kit->file, O_WRONLY);
    assert_int_equal(bytes, pwrite(fd, noise, (size_t)bytes, 0));
    close(fd);
    free(noise);
    while (set_aside_count(kit, NULL) == 0) { /* until the thread has dealt with it */
        enum spw_status status = spw_store_export(kit->store, 0, UINT32_MAX, kit_keep_row, &rows, NULL, &err);
        assert_true(status == SPW_STATUS_CORRUPT || status == SPW_STATUS_NOT_READY ||
                    status == SPW_STATUS_OK);
        usleep(1000);
    }
    kit_rows_free(&rows);
    write_flags(kit, "new", 2, 100);
    kit_settle(kit);
    expect_all(kit, (const char *const[]){"new"}, (const int[]){2}, 1);
    assert_int_equal(1, set_aside_count(kit, NULL));
}

/* Somebody removes the file, or puts another in its place, while it is open: what it held is copied beside it. */
static void a_file_that_is_replaced_is_kept(void **state)
{
    struct kit *kit = *state;
    char pattern[400], command[1200];
    glob_t found;
    kit_open(kit);
    for (int i = 0; i < 2; i++) {
        const char *tag = i ? "second" : "first";
        write_flags(kit, tag, 3, 100);
        kit_settle(kit);
        if (i)
            snprintf(command, sizeof command, "head -c 9000 /dev/urandom > '%s.x' && mv '%s.x' '%s'",
                     kit->file, kit->file, kit->file);
        else
            snprintf(command, sizeof command, "rm '%s'", kit->file);
        assert_int_equal(0, system(command));
        write_flags(kit, i ? "later" : "after", 2, 100);
        kit_settle(kit);
        snprintf(pattern, sizeof pattern, "%s.replaced-*", kit->file);
        assert_int_equal(0, glob(pattern, 0, NULL, &found));
        assert_int_equal(i + 1, found.gl_pathc);
        globfree(&found);
        expect_all(kit, (const char *const[]){i ? "later" : "after"}, (const int[]){2}, 1);
    }
    assert_int_equal(1, set_aside_count(kit, NULL)); /* the file that was put there is no ledger */
    char file[sizeof kit->file];
    snprintf(file, sizeof file, "%s", kit->file);
    assert_int_equal(0, glob(pattern, 0, NULL, &found));
    for (int i = 0; i < 2; i++) {
        snprintf(kit->file, sizeof kit->file, "%s", found.gl_pathv[i]);
        assert_int_equal(i ? 5 : 3, kit_number(kit, "SELECT count(*) FROM flags"));
        struct stat st;
        assert_int_equal(0, stat(kit->file, &st));
        assert_int_equal(0600, st.st_mode & 0777);
    }
    globfree(&found);
    snprintf(kit->file, sizeof kit->file, "%s", file);
}

/* The last of 21 commits is torn at every few bytes of the log: 20 flags are left, and it goes on. */
static void a_torn_last_commit_is_dropped(void **state)
{
    struct kit *kit = *state;
    char log[320], base[300];
    size_t before, after, file_bytes, log_bytes;
    kit_open(kit);
    for (int i = 0; i < 20; i++) {
        char prefix[8];
        snprintf(prefix, sizeof prefix, "t%d-", i);
        write_flags(kit, prefix, 1, 300);
        kit_settle(kit);
    }
    snprintf(log, sizeof log, "%s-wal", kit->file);
    free(read_file(log, &before));
    write_flags(kit, "last", 1, 300);
    kit_settle(kit);
    uint8_t *content = read_file(kit->file, &file_bytes), *tail = read_file(log, &log_bytes);
    after = log_bytes;
    kit_close(kit);
    assert_true(after > before);
    memcpy(base, kit->file, sizeof base);
    for (size_t cut = before; cut <= after; cut = cut < after && cut + 203 > after ? after : cut + 203) {
        remove_all(kit);
        write_file(base, content, file_bytes);
        write_file(log, tail, cut);
        uint64_t sequence = use(kit);
        assert_int_equal(cut == after ? 22 : 21, sequence);
        assert_int_equal(0, set_aside_count(kit, NULL));
    }
    free(content);
    free(tail);
}

static void a_log_without_its_ledger_is_set_aside(void **state)
{
    struct kit *kit = *state;
    char log[320];
    size_t bytes;
    kit_open(kit);
    write_flags(kit, "a", 3, 100);
    kit_settle(kit);
    snprintf(log, sizeof log, "%s-wal", kit->file);
    uint8_t *content = read_file(log, &bytes);
    kit_close(kit);
    remove_all(kit);
    write_file(log, content, bytes);
    assert_int_equal(1, use(kit));
    char pattern[330];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.damaged-*-wal", kit->file);
    assert_int_equal(0, glob(pattern, 0, NULL, &found)); /* kept, not thrown away */
    globfree(&found);
    free(content);
}

/* ---- files that are not ours to touch ---- */

static enum spw_status try_open(struct kit *kit, const char *file, const char *text)
{
    struct spw_error err = {0};
    struct spw_store *store = NULL;
    struct spw_store_options options = {.file = file, .map = &kit->segment.map};
    enum spw_status status = spw_store_open(&options, &store, &err);
    assert_null(store);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    return status;
}

static void what_is_not_ours_is_refused_and_left_alone(void **state)
{
    struct kit *kit = *state;
    char path[320];
    size_t before, after;
    free(make_ledger(kit, &before));
    kit_sql(kit, "PRAGMA user_version=1000000");
    uint8_t *old = read_file(kit->file, &before);
    assert_int_equal(SPW_STATUS_VERSION_MISMATCH, try_open(kit, kit->file, "newer spillwayd"));
    uint8_t *now = read_file(kit->file, &after);
    assert_int_equal(before, after);
    assert_memory_equal(old, now, before);
    free(old);
    free(now);
    remove_all(kit);
    kit_sql(kit, "CREATE TABLE customers(name)");
    assert_int_equal(SPW_STATUS_INVALID, try_open(kit, kit->file, "another program"));
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM sqlite_schema"));
    assert_int_equal(0, set_aside_count(kit, NULL));
    snprintf(path, sizeof path, "%s/no/such/place.db", kit->segment.dir);
    assert_int_equal(SPW_STATUS_NOT_FOUND, try_open(kit, path, "is not there"));
    assert_int_equal(SPW_STATUS_INVALID, try_open(kit, kit->segment.dir, "not a regular file"));
    assert_int_equal(SPW_STATUS_INVALID, try_open(kit, "", "not the path"));
    snprintf(path, sizeof path, "%s/", kit->segment.dir);
    assert_int_equal(SPW_STATUS_INVALID, try_open(kit, path, "not the path"));
}

static void numbers_of_another_writer_are_taken_over(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    write_flags(kit, "a", 2, 100);
    kit_settle(kit);
    kit_sql(kit, "UPDATE ledger SET newest_sequence=100");
    write_flags(kit, "b", 1, 100);
    kit_settle(kit);
    assert_int_equal(101, kit_counts(kit).newest_sequence);
    assert_int_equal(101, kit_number(kit, "SELECT sequence FROM flags WHERE flag_id='sf_b0'"));
}

static void the_file_is_for_its_owner_only(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    write_flags(kit, "a", 1, 100);
    kit_settle(kit);
    static const char *const ending[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char path[320];
        struct stat st;
        snprintf(path, sizeof path, "%s%s", kit->file, ending[i]);
        assert_int_equal(0, stat(path, &st));
        assert_int_equal(0600, st.st_mode & 0777);
    }
}

int main(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        why_not = strerror(errno);
    else
        may_mount = true;
#define CASE(name)   cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
#define VOLUME(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down_volume)
    const struct CMUnitTest tests[] = {
        VOLUME(a_full_disk_keeps_the_cells),
        VOLUME(closing_on_a_full_disk_leaves_the_cells),
        VOLUME(a_disk_full_from_the_start_is_waited_for),
        VOLUME(a_volume_that_is_writable_again_is_noticed),
        VOLUME(a_read_only_volume_is_waited_for),
        CASE(a_ledger_cut_anywhere_is_set_aside),
        CASE(a_ledger_overwritten_anywhere_can_be_lived_with),
        CASE(damage_while_running_is_set_aside),
        CASE(damage_that_a_reader_finds_is_set_aside),
        CASE(a_file_that_is_replaced_is_kept),
        CASE(a_torn_last_commit_is_dropped),
        CASE(a_log_without_its_ledger_is_set_aside),
        CASE(what_is_not_ours_is_refused_and_left_alone),
        CASE(numbers_of_another_writer_are_taken_over),
        CASE(the_file_is_for_its_owner_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
