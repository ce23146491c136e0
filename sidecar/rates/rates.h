/* rates.h: reading published rate tables into plain rows.
 *
 * Owns: the file formats. Called by: main (files named in the configuration), spillwayctl (rates load), the scripted
 * provider. Thread: any; pure over (bytes, length), plus one function that reads a file (plain or gzip).
 *
 * A bad row never poisons a good file: it is named (file, line, column, what, remedy) and counted. Above the stated
 * share of bad rows the file is refused whole.
 */
#ifndef SPW_RATES_RATES_H
#define SPW_RATES_RATES_H

#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

/* One destination's rates, parts per billion. state_ppb + ... may differ from combined_ppb in published tables:
 * combined is what is charged. */
struct spw_rate_row {
    char country[4];             /* "US" */
    char state[4];               /* "WA"; "" only with zip5 0: the whole country */
    uint32_t zip5;               /* 501..99950; 0 = the whole state */
    uint16_t plus4_lo, plus4_hi; /* 0..9999; both 0xFFFF = the whole ZIP */
    uint32_t state_ppb, county_ppb, city_ppb, special_ppb, combined_ppb;
    uint32_t valid_from_day, valid_to_day; /* first and last day, since 1970-01-01; 0 = not stated */
    uint32_t tax_code_hash; /* spw_tax_code_hash of the one code it is for; 0 = general goods */
    char region[48];        /* the table's own name for the place, for people */
};

struct spw_rates_problem {
    uint32_t line;      /* 1-based */
    const char *column; /* column's name, or NULL for the whole row */
    char text[160];     /* what and remedy */
};
typedef void spw_rates_problem_fn(void *owner, const char *file, const struct spw_rates_problem *problem);

struct spw_rates_table {
    struct spw_rate_row *rows; /* sorted by zip5, plus4_lo; one row per key */
    size_t rows_count;
    size_t bad_count;       /* rows left out, each reported */
    size_t duplicate_count; /* further rows of a ZIP: the highest combined rate is kept, each reported once */
    size_t mismatch_count;  /* rows whose parts do not add up to the combined rate */
    uint8_t sha256[32];     /* of the file's bytes as read (after gunzip) */
};

struct spw_rates_options {
    uint32_t bad_max_ppm;          /* 0 = 10,000: more than 1 % bad rows refuses the file */
    spw_rates_problem_fn *problem; /* NULL = not told */
    void *owner;
};

/* Detects the column set by its header line. table is zeroed on failure. */
enum spw_status spw_rates_parse(const char *name, const char *text, size_t bytes,
                                const struct spw_rates_options *options, struct spw_rates_table *table,
                                struct spw_error *err) SPW_WARN_UNUSED;
/* Read a file, gunzip by its magic bytes, parse. */
enum spw_status spw_rates_load(const char *path, const struct spw_rates_options *options,
                               struct spw_rates_table *table, struct spw_error *err) SPW_WARN_UNUSED;
void spw_rates_clean_up(struct spw_rates_table *table);

#endif
