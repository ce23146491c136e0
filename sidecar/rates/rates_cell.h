/* rates_cell.h: one line of a comma-separated table, and what its cells say.
 *
 * Owns: quoting, exact decimals, the unit of a number. Called by: the readers of the formats. Thread: any; pure over (bytes, length).
 */
#ifndef SPW_RATES_RATES_CELL_H
#define SPW_RATES_RATES_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_RATES_CELLS_MAX_COUNT 64u

/* Bytes of the text, without surrounding quotes and spaces; two quotes in a row stand for one. Not NUL-terminated. */
struct spw_rates_cell {
    const char *text;
    size_t bytes;
};

/* Cut one line (without its end) into cells. Returns NULL, or what is wrong with the line. */
const char *spw_rates_cells_split(const char *line, size_t bytes,
                                  struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT], size_t *count);

bool spw_rates_cell_is(const struct spw_rates_cell *cell,
                       const char *word); /* letters' case makes no difference */

/* A number as written: its digits times 1e11, and whether a percent sign follows. Exact, never a float. */
#define SPW_NUMBER_ONE UINT64_C(100000000000)
struct spw_number {
    uint64_t value_e11;
    bool is_percent;
};

/* Digits beyond 1e-11 are rounded. False when the cell is no such number, or is above 1000. */
bool spw_rates_cell_number(const struct spw_rates_cell *cell, struct spw_number *out);

/* As parts per billion, exactly; percent = read a number without its sign as percent. Returns NULL, or what is wrong. */
const char *spw_number_ppb(const struct spw_number *number, bool percent, uint32_t *out_ppb);

#endif
