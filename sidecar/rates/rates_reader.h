/* rates_reader.h: what the readers of the single formats share: lines, problems, and the growing list of rows.
 *
 * Owns: the reading of one table under way. Called by: rates.c, rates_zip5.c, rates_sst.c, rates_summary.c. Thread: any;
 * pure over bytes.
 */
#ifndef SPW_RATES_RATES_READER_H
#define SPW_RATES_RATES_READER_H

#include <stdbool.h>

#include "sidecar/rates/rates.h"
#include "sidecar/rates/rates_cell.h"

#define SPW_RATES_WHOLE_ZIP 0xFFFFu
#define SPW_RATES_ROWS_MAX  (UINT32_C(1) << 21) /* above any table a segment can hold */

struct spw_rates_numbered {
    struct spw_rate_row row;
    uint32_t order; /* in which rows came */
    uint32_t line;
};

struct spw_rates_list {
    struct spw_rates_numbered *list;
    size_t count, room_count;
};

struct spw_rates_reader {
    const char *name;
    const char *p, *end; /* what is left of the text */
    uint32_t line;
    const struct spw_rates_options *options; /* never NULL */
    struct spw_rates_table *table;
    struct spw_rates_list *rows; /* of all files together */
    struct spw_error *err;
    size_t good_count, bad_count; /* of this file */
    uint32_t first_bad_line;
    char first_bad[192];                 /* the first bad row, for the error that refuses the file */
    uint32_t *told_count, *warned_count; /* over all files */
};

/* Cut the next line off, without its end. */
bool spw_rates_next_line(struct spw_rates_reader *r, const char **line, size_t *bytes);

/* Tell of a bad row, or (warn) of one that is used all the same. */
void spw_rates_report(struct spw_rates_reader *r, uint32_t line, const char *column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void spw_rates_warn(struct spw_rates_reader *r, uint32_t line, const char *column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Append a row that came on a line. */
enum spw_status spw_rates_push(struct spw_rates_reader *r, const struct spw_rate_row *row, uint32_t line);

/* Is this row's last day so long ago that no sale and no open correction asks for it? Counts it. */
bool spw_rates_expired(struct spw_rates_reader *r, uint32_t valid_to_day);

/* A name for people: what is no plain text becomes '?', a long one is cut. */
void spw_rates_region(const char *text, size_t bytes, struct spw_rate_row *row);

/* A cell as a fraction of one; NULL, or what is wrong. For formats that are fractions by their definition. */
const char *spw_rates_fraction(const struct spw_rates_cell *cell, uint32_t *out_ppb);

/* One file of each format. is_*: does the first line say so? */
enum spw_status spw_rates_read_columns(struct spw_rates_reader *r);
bool spw_rates_is_summary(const struct spw_rates_reader *r);
enum spw_status spw_rates_read_summary(struct spw_rates_reader *r);

/* Streamlined Sales Tax: all files of a set are read first, then joined. */
struct spw_sst;
enum spw_sst_kind { SPW_SST_NOT, SPW_SST_RATES, SPW_SST_BOUNDARIES };
enum spw_sst_kind spw_sst_kind_of(const struct spw_rates_reader *r);
struct spw_sst *spw_sst_new(void);
void spw_sst_destroy(struct spw_sst *sst);
enum spw_status spw_sst_read_rates(struct spw_sst *sst, struct spw_rates_reader *r);
/* Boundary rows are joined as they are read: every rate file of the set has to be read before. */
enum spw_status spw_sst_read_boundaries(struct spw_sst *sst, struct spw_rates_reader *r);
/* The state's own rates, for states of which no ZIP code is known. */
enum spw_status spw_sst_add_states(struct spw_sst *sst, struct spw_rates_reader *r);

#endif
