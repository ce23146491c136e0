/* test_map.c: finding, checking and refusing a segment: versions, clocks, damage, volumes that are too small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <cmocka.h>

#include "shm/spw_client.h"
#include "tests/support/state_fixture.h"

static struct spw_state_fixture f;

#define ACCOUNT "limit: {rate: 10/s, burst: 10, pods: 1}"

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, ACCOUNT, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static enum spw_status open_once(void)
{
    struct spw_map map;
    memset(&map, 0, sizeof map);
    enum spw_status status = spw_map_open(&map, f.pub_dir, f.rw_dir, SPW_PUB_NAME, false);
    if (status != SPW_STATUS_OK)
        assert_true(map.pub == NULL && map.rw == NULL); /* nothing stays mapped */
    else
        spw_map_close(&map);
    return status;
}

static struct spw_header *pub(void)
{
    return (struct spw_header *)(void *)f.map->pub;
}
static struct spw_header *rw(void)
{
    return (struct spw_header *)(void *)f.map->rw;
}

/* What can be wrong with a header has a name; put right again, the segment is read again. */
static void named_faults(void **state)
{
    (void)state;
    assert_int_equal(open_once(), SPW_STATUS_OK);
    struct spw_header good = *pub();
    pub()->ready = 0;
    assert_int_equal(open_once(), SPW_STATUS_NOT_READY);
    *pub() = good;
    pub()->magic ^= 1;
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    *pub() = good;
    pub()->magic = SPW_MAGIC_RW; /* the two directories taken for one another */
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    *pub() = good;
    pub()->layout_major = 2;
    pub()->oldest_compatible_major = 2;
    assert_int_equal(open_once(), SPW_STATUS_VERSION_MISMATCH);
    *pub() = good;
    pub()->layout_major = 0;
    assert_int_equal(open_once(), SPW_STATUS_VERSION_MISMATCH);
    *pub() = good;
    pub()->format_hash++; /* a field moved in the middle of a record */
    assert_int_equal(open_once(), SPW_STATUS_VERSION_MISMATCH);
    *pub() = good;
    pub()->clock_id = CLOCK_MONOTONIC;
    assert_int_equal(open_once(), SPW_STATUS_CLOCK_MISMATCH);
    *pub() = good;
    pub()->boot_id[3] ^= 1;
    assert_int_equal(open_once(), SPW_STATUS_CLOCK_MISMATCH);
    *pub() = good;
    pub()->heartbeat_ns = spw_now_ns() + 3600 * SPW_TEST_S; /* another time namespace */
    assert_int_equal(open_once(), SPW_STATUS_CLOCK_MISMATCH);
    *pub() = good;
    pub()->base_ns = spw_now_ns() + 3600 * SPW_TEST_S;
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    *pub() = good;
    rw()->generation++;
    assert_int_equal(open_once(), SPW_STATUS_NOT_READY); /* two halves of different segments */
    rw()->generation--;
    pub()->layout_minor = 7; /* a later minor version is read */
    assert_int_equal(open_once(), SPW_STATUS_OK);
    *pub() = good;
    assert_int_equal(open_once(), SPW_STATUS_OK);
}

/* Sections that lie outside the file, overlap the header, are misaligned or contradict one another. */
static void damaged_sections(void **state)
{
    (void)state;
    for (unsigned file = 0; file < 2; file++) {
        struct spw_header *h = file ? rw() : pub();
        unsigned sections = file ? SPW_RW_SECTIONS : SPW_PUB_SECTIONS;
        for (unsigned i = 0; i < sections; i++) {
            struct spw_section good = h->sections[i];
            const struct spw_section bad[] = {
                {0, good.stride_bytes, good.count},
                {SPW_HEADER_BYTES - 8, good.stride_bytes, good.count},
                {good.offset_bytes + 4, good.stride_bytes, good.count},
                {h->total_bytes, good.stride_bytes, good.count},
                {UINT64_MAX - 7, good.stride_bytes, good.count},
                {good.offset_bytes, good.stride_bytes - 8, good.count},
                {good.offset_bytes, good.stride_bytes + 4, good.count},
                {good.offset_bytes, UINT32_MAX - 7, good.count},
                {good.offset_bytes, 0, good.count},
                {good.offset_bytes, good.stride_bytes, UINT32_MAX},
            };
            for (unsigned k = 0; k < sizeof bad / sizeof bad[0]; k++) {
                h->sections[i] = bad[k];
                if (open_once() != SPW_STATUS_CORRUPT)
                    fail_msg("file %u section %u case %u", file, i, k);
            }
            h->sections[i] = good;
        }
    }
    assert_int_equal(open_once(), SPW_STATUS_OK);
}

/* Any one byte of a header changed: a named answer, and whatever is accepted can be walked to its ends. */
static void any_byte_changed(void **state)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xFF};
    (void)state;
    unsigned accepted = 0;
    for (unsigned file = 0; file < 2; file++) {
        uint8_t *bytes = file ? f.map->rw : f.map->pub;
        for (unsigned at = 0; at < SPW_HEADER_BYTES; at++) {
            for (unsigned k = 0; k < 3; k++) {
                struct spw_map map;
                bytes[at] ^= masks[k];
                memset(&map, 0, sizeof map);
                if (spw_map_open(&map, f.pub_dir, f.rw_dir, SPW_PUB_NAME, false) == SPW_STATUS_OK) {
                    uint64_t sum = 0;
                    for (unsigned s = 0; s < SPW_PUB_SECTIONS; s++) {
                        const uint8_t *last =
                            spw__record(map.pub, &map.pub_section[s], map.pub_section[s].count - 1);
                        if (map.pub_section[s].count)
                            sum += last[map.pub_section[s].stride_bytes - 1];
                    }
                    for (unsigned s = 0; s < SPW_RW_SECTIONS; s++) {
                        const uint8_t *last =
                            spw__record(map.rw, &map.rw_section[s], map.rw_section[s].count - 1);
                        if (map.rw_section[s].count)
                            sum += last[map.rw_section[s].stride_bytes - 1];
                    }
                    assert_true(sum < UINT64_MAX);
                    accepted++;
                    spw_map_close(&map);
                }
                bytes[at] ^= masks[k];
            }
        }
    }
    assert_true(accepted > 0); /* spare bytes, switches, minor version */
}

/* No file, no directory, a directory in its place, a link, a file too short. */
static void no_segment(void **state)
{
    char path[128], elsewhere[128];
    (void)state;
    snprintf(path, sizeof path, "%s/" SPW_PUB_NAME, f.pub_dir);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", f.dir);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(open_once(), SPW_STATUS_NO_SEGMENT);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_int_equal(open_once(), SPW_STATUS_SYSTEM);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    assert_int_equal(ftruncate(fd, SPW_HEADER_BYTES - 1), 0);
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    assert_int_equal(ftruncate(fd, SPW_HEADER_BYTES), 0);
    assert_int_equal(open_once(), SPW_STATUS_NOT_READY);
    close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    assert_int_equal(rmdir(path), 0);
    struct spw_map map;
    memset(&map, 0, sizeof map);
    assert_int_equal(spw_map_open(&map, "/nonexistent", f.rw_dir, SPW_PUB_NAME, false),
                     SPW_STATUS_NO_SEGMENT);
    assert_int_equal(rename(elsewhere, path), 0);
    assert_int_equal(open_once(), SPW_STATUS_OK);
}

/* A file shorter than its header says is never mapped for use: no SIGBUS. */
static void shorter_than_it_says(void **state)
{
    char from[128], to[128];
    (void)state;
    snprintf(from, sizeof from, "%s/" SPW_RW_NAME, f.rw_dir);
    snprintf(to, sizeof to, "%s/whole", f.rw_dir);
    assert_int_equal(rename(from, to), 0);
    int fd = open(from, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f.map->rw, 4096), 4096);
    assert_int_equal(open_once(), SPW_STATUS_CORRUPT);
    close(fd);
    assert_int_equal(rename(to, from), 0);
}

/* SHM-H2: a client that meets what it cannot read says so and follows its policy; so does the sidecar's next start. */
static void client_of_an_unreadable_segment(void **state)
{
    (void)state;
    for (int fault = 0; fault < 3; fault++) {
        struct spw_header good = *pub();
        if (fault == 0)
            pub()->layout_major = pub()->oldest_compatible_major = 2;
        else if (fault == 1)
            pub()->format_hash ^= 0xFFFF;
        else
            rw()->magic ^= 0xFF;
        struct spw_client client;
        struct spw_attach_options options = {f.pub_dir, f.rw_dir, SPW_UNATTACHED_DENY, 0, 0};
        enum spw_status status = spw_attach(&client, &options);
        assert_int_equal(status, fault < 2 ? SPW_STATUS_VERSION_MISMATCH : SPW_STATUS_CORRUPT);
        struct spw_ref ref;
        struct spw_ticket ticket;
        spw_ref_init(&ref, "main", "web");
        struct spw_admission a = spw_acquire(&client, &ref, 1, 0, &ticket);
        assert_int_equal(a.verdict, SPW_NOT_ATTACHED);
        assert_false(a.may_call);
        assert_null(client.map);
        spw_detach(&client);
        *pub() = good;
        if (fault == 2)
            rw()->magic ^= 0xFF;
    }
    /* A sidecar of this version makes a new one, and keeps the other version's for it. */
    pub()->layout_major = pub()->oldest_compatible_major = 2;
    spw_state_fixture_close(&f, true);
    spw_state_fixture_open(&f);
    assert_non_null(strstr(spw_state_origin(f.state), "VERSION_MISMATCH"));
    assert_int_equal(open_once(), SPW_STATUS_OK);
}

/* SHM-H1: a volume that is too small is found out when the segment is made, with both sizes, and nothing is left. */
static void volume_too_small(void **state)
{
    char small[96], path[128];
    struct spw_error err = {0};
    struct spw_state *none = NULL;
    (void)state;
    snprintf(small, sizeof small, "%s/small", f.dir);
    assert_int_equal(mkdir(small, 0755), 0);
    if (mount("tmpfs", small, "tmpfs", 0, "size=1m") != 0) {
        print_message("no right to mount: %s\n", strerror(errno));
        skip();
    }
    for (int which = 0; which < 2; which++) {
        struct spw_conf conf = *f.conf;
        conf.segment.rate_records_count = which ? 1024 : 65536;
        conf.segment.cells_count = which ? 4096 : 64;
        char *dir = which ? conf.segment.rw_dir : conf.segment.pub_dir;
        char *other = which ? conf.segment.pub_dir : conf.segment.rw_dir;
        snprintf(dir, SPW_PATH_BYTES, "%s", small);
        snprintf(other, SPW_PATH_BYTES, "%s/other%d", f.dir, which);
        assert_int_equal(mkdir(other, 0755), 0);
        assert_int_equal(spw_state_open(&conf, &none, &err), SPW_STATUS_NO_SPACE);
        assert_null(none);
        uint64_t bytes[2];
        char number[32];
        spw_state_sizes(&conf, &bytes[0], &bytes[1]);
        snprintf(number, sizeof number, "%llu", (unsigned long long)bytes[which]);
        assert_non_null(strstr(err.text, number));
        const char *dirs[2] = {dir, other};
        static const char *const names[2] = {SPW_PUB_NAME, SPW_PUB_NAME ".tmp"};
        for (int i = 0; i < 4; i++) {
            snprintf(path, sizeof path, "%.90s/%s", dirs[i / 2], names[i % 2]);
            assert_int_equal(access(path, F_OK), -1);
        }
        struct spw_client client;
        struct spw_attach_options options = {conf.segment.pub_dir, conf.segment.rw_dir, SPW_UNATTACHED_DENY,
                                             0, 0};
        assert_int_equal(spw_attach(&client, &options), SPW_STATUS_NO_SEGMENT);
        spw_detach(&client);
    }
    assert_int_equal(umount(small), 0);
}

/* One sidecar for a directory: a second one is refused while the first lives, whatever became of its process. */
static void second_sidecar(void **state)
{
    struct spw_error err = {0};
    struct spw_state *second = NULL;
    (void)state;
    assert_int_equal(spw_state_open(f.conf, &second, &err), SPW_STATUS_BUSY);
    assert_null(second);
    spw_state_fixture_close(&f, false);
    assert_int_equal(spw_state_open(f.conf, &second, &err), SPW_STATUS_OK);
    spw_state_close(second, true);
}

/* A segment of another plan has its rates before clients see it; one that they do not fit is not put in place. */
static void replaced_with_its_rates(void **state)
{
    enum { TOO_MANY = 3000 };
    struct spw_rate_row *rows = calloc(TOO_MANY, sizeof *rows);
    struct spw_rates_source source = {.name = "table", .as_of_day = 20000, .rows = rows};
    struct spw_rates_view view;
    struct spw_error err = {0};
    struct spw_map now = {0};
    (void)state;
    assert_non_null(rows);
    for (uint32_t i = 0; i < TOO_MANY; i++)
        rows[i] = (struct spw_rate_row){.country = "US",
                                        .state = "WA",
                                        .zip5 = 90000 + i,
                                        .plus4_lo = UINT16_MAX,
                                        .plus4_hi = UINT16_MAX};
    uint64_t generation = spw_state_generation(f.state);
    spw_state_fixture_close(&f, false);
    spw_state_fixture_configure(&f, ACCOUNT, "segment: {slots: 96, cells: 64, rate_records: 1024}");
    source.rows_count = TOO_MANY;
    assert_int_equal(spw_state_open_with_rates(f.conf, &source, 1, &f.state, &err), SPW_STATUS_FULL);
    assert_null(f.state);
    assert_non_null(strstr(err.text, "segment.rate_records"));
    assert_int_equal(spw_map_open(&now, f.pub_dir, f.rw_dir, SPW_PUB_NAME, false), SPW_STATUS_OK);
    assert_int_equal(now.generation, generation);
    assert_int_equal(spw_map_pub(&now)->retired, 0);
    spw_map_close(&now);
    source.rows_count = 10;
    assert_int_equal(spw_state_open_with_rates(f.conf, &source, 1, &f.state, &err), SPW_STATUS_OK);
    assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
    spw_state_rates_view(f.state, &view);
    assert_int_equal(view.version, 1);
    assert_int_equal(view.sources[0].rows_count, 10);
    /* And what was loaded at run time, and is named by no configuration, moves along. */
    struct spw_rate_lookup found;
    spw_state_fixture_close(&f, false);
    spw_state_fixture_configure(&f, ACCOUNT, "segment: {slots: 96, cells: 128, rate_records: 2048}");
    assert_int_equal(spw_state_open(f.conf, &f.state, &err), SPW_STATUS_OK);
    assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
    assert_int_equal(
        spw_state_rates_lookup(f.state, &(struct spw_rate_question){.zip = "90009"}, &found, &err),
        SPW_STATUS_OK);
    assert_int_equal(found.match, SPW_MATCH_ZIP5);
    assert_string_equal(found.source.name, "table");
    assert_int_equal(found.source.as_of_day, 20000);
    assert_int_equal(
        spw_state_rates_lookup(f.state, &(struct spw_rate_question){.zip = "90010"}, &found, &err),
        SPW_STATUS_OK);
    assert_int_equal(found.match, SPW_MATCH_NONE);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(named_faults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_sections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_byte_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_segment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shorter_than_it_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(client_of_an_unreadable_segment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(volume_too_small, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_sidecar, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replaced_with_its_rates, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
