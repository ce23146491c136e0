/* csv_read.h: CSV (RFC 4180) that people bring, record by record.
 *
 * Owns: one record's text. Called by: tie_out.c, exceptions_upload.c. Thread: one.
 */
#ifndef SPW_CTL_CSV_READ_H
#define SPW_CTL_CSV_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SPW_CSV_COLUMNS_MAX 128
#define SPW_CSV_NO_COLUMN   (-1)

struct spw_csv_record {
    char *text; /* the fields, NUL after each */
    size_t used, room;
    size_t field[SPW_CSV_COLUMNS_MAX]; /* offsets */
    int fields_count;
    uint64_t line; /* where it begins */
};

/* The next record; a quoted field may hold commas, quotes (doubled) and line ends. *line counts from 1. false: none, or
 * *fault says why. The text is freed by the caller. */
bool spw_csv_read(FILE *file, struct spw_csv_record *r, uint64_t *line, const char **fault);
/* What a spreadsheet was told not to calculate begins with an apostrophe, as in our own exports: it is taken off. */
const char *spw_csv_field(const struct spw_csv_record *r, int column);
int spw_csv_column(const struct spw_csv_record *head, const char *name);

#endif
