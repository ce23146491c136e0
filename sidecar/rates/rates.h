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

#include <stdbool.h>
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
    bool least;      /* a state's own rate without its places': only used where no average can be made */
    char region[48]; /* the table's own name for the place, for people */
};

struct spw_rates_problem {
    bool warning;       /* the row is used all the same */
    uint32_t line;      /* 1-based; 0 = the file as a whole */
    const char *column; /* column's name, or NULL for the whole row */
    char text[192];     /* what and remedy */
};
typedef void spw_rates_problem_fn(void *owner, const char *file, const struct spw_rates_problem *problem);

struct spw_rates_table {
    struct spw_rate_row *rows; /* sorted by country, state-wide rows last, then zip5, plus4_lo, first day */
    size_t rows_count;
    size_t bad_count;    /* rows left out */
    size_t mended_count; /* rows with an unquoted comma in a name, or a ZIP code without its leading zeros */
    size_t duplicate_count; /* further rows of a place, left out */
    size_t several_count;   /* places of those whose rows had different rates: options.several decided */
    size_t mismatch_count; /* rows whose parts do not add up to the combined rate, which is what is charged */
    uint32_t mismatch_worst_ppb;  /* the largest of these differences ... */
    uint32_t mismatch_worst_zip5; /* ... and where */
    size_t expired_count;         /* rows that ended long before options.as_of_day, left out */
    size_t ignored_count;  /* rows of a kind no rate cache can use: address ranges of a boundary file */
    size_t unjoined_count; /* codes of boundary rows that the rate file does not know: they tax nothing */
    size_t untold_count;   /* problems beyond options.problems_max: counted above, not told */
    uint8_t sha256[32]; /* of the file's bytes as read (after gunzip); of several files: of their digests */
};

/* Which of several rates of one ZIP code is kept. */
enum spw_rates_several { SPW_RATES_SEVERAL_HIGHEST, SPW_RATES_SEVERAL_LOWEST, SPW_RATES_SEVERAL_FIRST };

struct spw_rates_options {
    uint32_t bad_max_ppm;           /* 0 = 50,000: more than 5 % bad rows refuses the file */
    uint32_t problems_max;          /* told at most; 0 = 20 */
    enum spw_rates_several several; /* default: the highest, so that too little is never collected */
    int32_t as_of_day; /* rows that ended more than 120 days before it are left out; 0 = none are */
    spw_rates_problem_fn *problem; /* NULL = not told */
    void *owner;
};

/* One file's bytes, after gunzip. name stands for it in messages. */
struct spw_rates_bytes {
    const char *name;
    const char *text;
    size_t bytes;
};

/* The kind of table is told by its first line. Files that make up one table are read together: a rate file and a boundary
 * file of the Streamlined states belong together, and tables of single states side by side make one. table is zeroed on
 * failure. Cost: linear, but for the sorting; no more memory than ten times the text. */
enum spw_status spw_rates_parse_set(const struct spw_rates_bytes *files, size_t files_count,
                                    const struct spw_rates_options *options, struct spw_rates_table *table,
                                    struct spw_error *err) SPW_WARN_UNUSED;
/* The same of one file. */
enum spw_status spw_rates_parse(const char *name, const char *text, size_t bytes,
                                const struct spw_rates_options *options, struct spw_rates_table *table,
                                struct spw_error *err) SPW_WARN_UNUSED;
/* Read files, gunzip by their magic bytes, parse. */
enum spw_status spw_rates_load_set(const char *const *paths, size_t paths_count,
                                   const struct spw_rates_options *options, struct spw_rates_table *table,
                                   struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_rates_load(const char *path, const struct spw_rates_options *options,
                               struct spw_rates_table *table, struct spw_error *err) SPW_WARN_UNUSED;
void spw_rates_clean_up(struct spw_rates_table *table);

#endif
