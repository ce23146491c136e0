/* segment_fixture.h: a small valid segment in a directory of its own, made without the sidecar, and records for its
 * cells. For tests of everything that works on a segment.
 *
 * Any failure ends the test program with its place: a test without its segment has nothing to say.
 *
 *     struct spw_fixture f;
 *     spw_fixture_make(&f, NULL);
 *     spw_fixture_claim(&f.map, &f);      a slot for this process
 *     ...
 *     spw_fixture_remove(&f);
 */
#ifndef SPW_TESTS_SEGMENT_FIXTURE_H
#define SPW_TESTS_SEGMENT_FIXTURE_H

#include "shm/spw_cell.h"

struct spw_fixture_options {
    uint32_t accounts, limiters, slots, cells; /* 0 = 2, 4, 8, 64 */
    const char *parent_dir;                    /* NULL = TMPDIR or /tmp */
};

struct spw_fixture {
    char dir[256];
    char pub_dir[272];
    char rw_dir[272];
    struct spw_map map; /* pub writable, as the sidecar has it; no slot claimed */
};

/* Accounts "main" and "second" (further ones "account2", ...), live, generation 1, their breakers closed. Limiters are
 * buckets of 100 a second, burst 100, dealt out to the accounts in turn. One rate source "table-2025" of 2025-11-01:
 *   98110 WA 0.092, 78701 TX 0.0825, 10001 NY 0.08875, 97201 OR 0, and state averages WA 0.0886, TX 0.0820.
 * Policy: nexus everywhere, block where no rate is known, half up per line, shipping taxable. */
void spw_fixture_make(struct spw_fixture *fixture, const struct spw_fixture_options *options);
void spw_fixture_remove(struct spw_fixture *fixture); /* unmaps, gives the slot up, deletes the directory */

/* Another mapping of the same files, as a client has it. */
void spw_fixture_attach(const struct spw_fixture *fixture, struct spw_map *map);
void spw_fixture_detach(struct spw_map *map);
void spw_fixture_claim(struct spw_map *map, const struct spw_fixture *fixture);

/* The sidecar's sweep, done by hand: slots whose process is gone. fd: of the rw file, without locks of its own.
 * Returns the number of slots that are not FREE afterwards. */
int spw_fixture_rw_open(const struct spw_fixture *fixture);
uint32_t spw_fixture_sweep(const struct spw_map *map, int fd);
uint32_t spw_fixture_cells_busy(const struct spw_map *map);

/* A flag that passes every check against the tables above: one line of 100.00 and shipping of 7.95 to 98110. ids are
 * "sf_<tag>", "sq_<tag>", "d-<tag>". */
void spw_fixture_flag(const struct spw_map *map, struct spw_flag_record *record, struct spw_line_tax lines[2],
                      const char *tag);
/* Write it with its texts; the record's counts of bytes are filled in here. */
enum spw_status spw_fixture_flag_write(const struct spw_map *map, struct spw_flag_record *record,
                                       const struct spw_line_tax *lines, const char *assumptions,
                                       const char *request, uint32_t hint);
enum spw_status spw_fixture_order_write(const struct spw_map *map, const struct spw_order_record *record,
                                        uint32_t hint);

#endif
