/* model_cells.c: flags through cells: written by processes that may die, read by a store that may die, swept.
 *
 * What holds at each end, after the next sweep and the next run of the store: every record that was acknowledged has
 * been delivered, whole; what was delivered twice bears the same name (the ledger drops the second); nothing that was
 * never written has been delivered; all cells are free.
 */
#include "tests/model/tiny.h"

static struct tiny_pub pub; /* constant */
static struct tiny_rw *rw;
static struct spw_map plain, map[SPW_MODEL_PROCESSES];
static bool torn_allowed; /* a chain that was taken apart under a living writer, who was told so */
static uint8_t *buffer[SPW_MODEL_PROCESSES]; /* of a store */
static uint64_t *stored;                     /* times that the ledger took record n in */

/* Record n: its bytes follow from n; it fills one cell, or two. */
static uint8_t record[4][SPW_CELL_DATA_BYTES + 64];

static size_t record_bytes(unsigned n, bool chain)
{
    (void)n;
    return chain ? SPW_CELL_DATA_BYTES + 64 : 64;
}

static void set_up(void)
{
    const uint64_t burst = 1;
    torn_allowed = false;
    rw = spw_model_shared("rw", sizeof *rw);
    stored = spw_model_shared("ledger", 4 * sizeof *stored);
    tiny_make(&pub, rw, &plain, 1, &burst, 0);
    for (uint32_t i = 0; i < SPW_MODEL_PROCESSES; i++) {
        map[i] = tiny_map_of(&plain, i + 1, 7 + i);
        buffer[i] = spw_model_own(i, sizeof record[0]);
        if (i < 2)
            rw->slot[i + 1].word = spw_slot_word(7 + i, SPW_SLOT_LIVE);
    }
    for (unsigned n = 0; n < 4; n++)
        memset(record[n], (int)(0xA0 + n), sizeof record[n]);
    /* Of a cell, its head and both ends of its data tell what is in it: a copy is made in two steps. */
    for (unsigned i = 0; i < TINY_CELLS; i++)
        spw_model_unhashed(rw->cell[i].data + 16, SPW_CELL_DATA_BYTES - 32);
}

static void write_record(unsigned n, bool chain, uint32_t hint)
{
    const struct spw_part part = {record[n], record_bytes(n, chain)};
    enum spw_status status = spw_cell_write(&map[spw_model_self()], hint, &part, 1);
    spw_model_point();
    spw_model_result(spw_model_self())[n] = status == SPW_STATUS_OK ? 1 : 2;
    SPW_HOLDS(status == SPW_STATUS_OK || status == SPW_STATUS_FULL || status == SPW_STATUS_NOT_READY);
}

/* As store/ does: read, commit to the ledger, then free. */
static void store_once(const struct spw_map *m, bool steps)
{
    for (uint32_t cursor = 0; spw_cell_next_ready(m, &cursor); cursor++) {
        unsigned self = spw_model_self();
        uint8_t *bytes = buffer[self < SPW_MODEL_PROCESSES ? self : SPW_MODEL_PROCESSES - 1];
        size_t count = 0;
        enum spw_status status = spw_cell_read(m, cursor, bytes, sizeof record[0], &count);
        unsigned n = bytes[0] - 0xA0u;
        SPW_HOLDS(status == SPW_STATUS_OK || torn_allowed);
        if (status != SPW_STATUS_OK) {
            spw_cell_free(m, cursor);
            continue;
        }
        SPW_HOLDS(n < 4 && (count == record_bytes(n, false) || count == record_bytes(n, true)));
        if (n >= 4)
            return;
        SPW_HOLDS(memcmp(bytes, record[n], count) == 0); /* whole */
        memset(bytes, 0, sizeof record[0]);
        if (steps)
            spw_model_point();
        stored[n]++; /* the commit */
        if (steps)
            spw_model_point();
        spw_cell_free(m, cursor);
    }
}

static void store(void)
{
    store_once(&map[spw_model_self()], true);
}

static void all_free(void)
{
    for (unsigned i = 0; i < TINY_CELLS; i++)
        SPW_HOLDS(spw_cell_state(rw->cell_word[i]) == SPW_CELL_FREE);
}

/* The next start of the store, and the sweep of each dead slot. */
static void finish(unsigned processes)
{
    spw_cell_recover(&plain);
    store_once(&plain, false);
    for (unsigned i = 0; i < processes; i++) {
        if (spw_model_dead(i))
            SPW_HOLDS(spw_cell_sweep(&plain, map[i].self.slot, map[i].self.generation));
    }
    all_free();
}

static void delivered(unsigned n, unsigned writer)
{
    uint64_t told = spw_model_result(writer)[n];
    SPW_HOLDS(told != 1 || stored[n] >= 1);
    SPW_HOLDS(stored[n] <=
              1 + spw_model_deaths()); /* again only when a store died between commit and freeing */
    SPW_HOLDS(spw_model_deaths() || told != 2 || stored[n] == 0); /* refused: nothing of it is a record */
}

/* ---- two writers, one with a chain, and the store ---- */

static void write_chain(void)
{
    write_record(0, true, 0);
}

static void write_two(void)
{
    write_record(1, false, 0);
    write_record(2, false, 0);
}

static void writers_end(void)
{
    finish(3);
    delivered(0, 0);
    delivered(1, 1);
    delivered(2, 1);
}

/* ---- a writer that dies, the sweep of its slot, and the store, all at a time ---- */

static void sweep_when_dead(void)
{
    if (spw_model_dead(0))
        (void)spw_cell_sweep(&plain, map[0].self.slot, map[0].self.generation);
}

static void sweep_end(void)
{
    finish(3);
    delivered(0, 0);
}

/* ---- a live writer is taken for dead (it closed every descriptor): what it had acknowledged stays, the rest is refused */

static void sweep_alive(void)
{
    uint64_t live = spw_slot_word(7, SPW_SLOT_LIVE);
    if (spw_cas(&rw->slot[1].word, &live, spw_slot_word(7, SPW_SLOT_DEAD)))
        (void)spw_cell_sweep(&plain, map[0].self.slot, map[0].self.generation);
}

static void set_up_alive(void)
{
    set_up();
    torn_allowed = true;
}

static void write_twice(void)
{
    write_record(0, true, 0);
    write_record(1, true, 1);
}

static void alive_end(void)
{
    store_once(&plain, false);
    (void)spw_cell_sweep(&plain, map[0].self.slot, map[0].self.generation);
    finish(3);
    for (unsigned n = 0; n < 2; n++)
        SPW_HOLDS(spw_model_result(0)[n] != 1 || stored[n] >= 1); /* acknowledged: it is there */
    SPW_HOLDS(stored[0] <= 1 && stored[1] <= 1);
}

/* ---- two stores after one another: the second finishes what the first left ---- */

static void next_store(void)
{
    if (spw_model_dead(1)) {
        spw_cell_recover(&map[2]);
        store_once(&map[2], true);
    }
}

int main(int argc, char **argv)
{
    static const struct spw_model models[] = {
        {.name = "cells-writers-store",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, true, true},
         .set_up = set_up,
         .run = {write_chain, write_two, store},
         .at_end = writers_end,
         .least_schedules = 1000000},
        {.name = "cells-sweep",
         .processes = 3,
         .deaths = 1,
         .mortal = {true, false, false},
         .set_up = set_up,
         .run = {write_chain, sweep_when_dead, store},
         .at_end = sweep_end,
         .least_schedules = 10000},
        {.name = "cells-taken-for-dead",
         .processes = 3,
         .deaths = 0,
         .set_up = set_up_alive,
         .run = {write_twice, sweep_alive, store},
         .at_end = alive_end,
         .least_schedules = 10000},
        {.name = "cells-next-store",
         .processes = 3,
         .deaths = 1,
         .mortal = {false, true, false},
         .set_up = set_up,
         .run = {write_chain, store, next_store},
         .at_end = sweep_end,
         .least_schedules = 10000},
    };
    return spw_models_run(models, sizeof models / sizeof models[0], argc, argv);
}
