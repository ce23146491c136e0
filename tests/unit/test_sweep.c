/* test_sweep.c: slots and cells come back: from the dead, to a sidecar that finds none free, and from damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_cell.h"
#include "tests/support/state_fixture.h"

#define ACCOUNT "limit: {rate: 10/s, burst: 20, pods: 1}"
#define PLAN    "segment: {slots: 8, cells: 64, rate_records: 1024}"
#define SLOTS   8u
#define CELLS   64u

static struct spw_state_fixture f;
static struct spw_map
    other[SLOTS]; /* each stands for a process: a lock belongs to an open file, not to a process */
static unsigned others;

static int set_up(void **state)
{
    (void)state;
    memset(other, 0, sizeof other);
    others = 0;
    spw_state_fixture_make(&f, ACCOUNT, PLAN);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < others; i++) {
        spw_slot_release(&other[i]);
        spw_map_close(&other[i]);
    }
    spw_state_fixture_remove(&f);
    return 0;
}

/* One more process attaches. */
static enum spw_status come(void)
{
    struct spw_map *map = &other[others++];
    assert_int_equal(spw_map_open(map, f.pub_dir, f.rw_dir, SPW_PUB_NAME, false), SPW_STATUS_OK);
    return spw_slot_claim(map, f.rw_dir, SPW_RW_NAME);
}

static enum spw_status write_record(const struct spw_map *map, size_t bytes)
{
    static uint8_t content[3 * SPW_CELL_BYTES];
    struct spw_part part = {content, bytes};
    return spw_cell_write(map, 0, &part, 1);
}

static uint32_t cells_in(uint32_t cell_state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < CELLS; i++)
        n += spw_cell_state(*spw_cell_word_at(f.map, i)) == cell_state;
    return n;
}

static void sweep(void)
{
    spw_state_sweep(f.state, spw_now_ns());
}

static void a_full_segment_keeps_no_sidecar_out(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SLOTS - 2; i++)
        assert_int_equal(come(), SPW_STATUS_OK);
    assert_int_equal(come(), SPW_STATUS_FULL);
    spw_map_close(&other[--others]);
    assert_int_equal(write_record(f.map, 2 * SPW_CELL_BYTES), SPW_STATUS_OK); /* of the sidecar that dies */
    struct spw_identity first = f.map->self;
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_int_equal(f.map->self.slot, first.slot);
    assert_int_equal(f.map->self.generation, first.generation + 1);
    for (int i = 0; i < 3; i++)
        sweep();
    assert_int_equal(cells_in(SPW_CELL_READY), 1);
    assert_int_equal(cells_in(SPW_CELL_CHAINED), 2);
    assert_int_equal(write_record(f.map, 100), SPW_STATUS_OK);
    for (unsigned i = 0; i < others; i++)
        assert_int_equal(write_record(&other[i], 100), SPW_STATUS_OK);
}

/* The new segment's first slot is the sidecar's, however many processes wait for it. */
static void a_new_segment_has_its_sidecar(void **state)
{
    (void)state;
    spw_state_fixture_close(&f, false);
    spw_state_fixture_configure(&f, ACCOUNT, "segment: {slots: 8, cells: 128, rate_records: 1024}");
    spw_state_fixture_open(&f);
    assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
    assert_true(f.map->self.lock_fd >= 0);
    assert_int_equal(write_record(f.map, 100), SPW_STATUS_OK);
}

static void a_damaged_header_comes_back(void **state)
{
    (void)state;
    memset(f.map->rw, 0xA5, sizeof(struct spw_header));
    assert_int_equal(spw_map_open(&other[0], f.pub_dir, f.rw_dir, SPW_PUB_NAME, false), SPW_STATUS_NOT_READY);
    sweep();
    assert_int_equal(come(), SPW_STATUS_OK);
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
}

static void damaged_slots_come_back(void **state)
{
    (void)state;
    assert_int_equal(come(), SPW_STATUS_OK);
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (i != f.map->self.slot && i != other[0].self.slot)
            spw_slot_at(f.map, i)->word = 0xA5A5A5A5A5A5A500 | (i + 4);
    }
    sweep();
    assert_int_equal(spw_slot_state(spw_slot_at(f.map, 0)->word), SPW_SLOT_RESERVED);
    assert_int_equal(spw_slot_state(spw_slot_at(f.map, other[0].self.slot)->word), SPW_SLOT_LIVE);
    for (unsigned i = 0; i < SLOTS - 3; i++)
        assert_int_equal(come(), SPW_STATUS_OK);
    assert_int_equal(come(), SPW_STATUS_FULL);
    spw_map_close(&other[--others]);
}

static void damaged_cells_come_back(void **state)
{
    (void)state;
    assert_int_equal(come(), SPW_STATUS_OK);
    struct spw_map *alive = &other[0];
    struct spw__claim writing = {0};
    assert_true(spw__cells_claim(alive, &writing, 1, 0));
    assert_int_equal(write_record(alive, 3 * SPW_CELL_BYTES), SPW_STATUS_OK); /* a head and three */
    uint32_t nobodys = alive->self.slot == 7 || f.map->self.slot == 7 ? 6 : 7;
    nobodys = nobodys == alive->self.slot || nobodys == f.map->self.slot ? 5 : nobodys;
    uint32_t free_cells = cells_in(SPW_CELL_FREE), at = 0, n = 0;
    const uint64_t damage[] = {
        spw_cell_pack(SPW_CELL_WRITING, nobodys, 3, 9),
        spw_cell_pack(SPW_CELL_CHAINED, nobodys, 4, 9),
        spw_cell_pack(SPW_CELL_WRITING, 0, 0, 0),
        spw_cell_pack(SPW_CELL_CHAINED, 900, 1, 1),
        spw_cell_pack(SPW_CELL_WRITING, f.map->self.slot, 77, 1),
        spw_cell_pack(SPW_CELL_CHAINED, f.map->self.slot, f.map->self.generation, 1),
        spw_cell_pack(5, 1, 1, 1),
        spw_cell_pack(7, 1023, 0xFFFFFF, SPW_CELL_CYCLE_MASK),
    };
    for (; n < sizeof damage / sizeof damage[0]; at++) {
        if (spw_cell_state(*spw_cell_word_at(f.map, at)) == SPW_CELL_FREE)
            *spw_cell_word_at(f.map, at) = damage[n++];
    }
    sweep();
    assert_int_equal(cells_in(SPW_CELL_FREE), free_cells);
    assert_int_equal(*spw_cell_word_at(f.map, writing.index), writing.word);
    assert_int_equal(cells_in(SPW_CELL_READY), 1);
    assert_int_equal(cells_in(SPW_CELL_CHAINED), 3);
    /* The process dies: what it was writing comes back, its record stays until it is stored. */
    spw_slot_release(alive);
    sweep();
    assert_int_equal(cells_in(SPW_CELL_WRITING), 0);
    assert_int_equal(cells_in(SPW_CELL_READY), 1);
    assert_int_equal(cells_in(SPW_CELL_CHAINED), 3);
    for (uint32_t i = 0; i < CELLS; i++) {
        if (spw_cell_state(*spw_cell_word_at(f.map, i)) == SPW_CELL_READY)
            spw_cell_free(f.map, i);
    }
    sweep();
    assert_int_equal(cells_in(SPW_CELL_FREE), CELLS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_full_segment_keeps_no_sidecar_out),
        CASE(a_new_segment_has_its_sidecar),
        CASE(a_damaged_header_comes_back),
        CASE(damaged_slots_come_back),
        CASE(damaged_cells_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
