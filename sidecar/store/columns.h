/* columns.h: the fields of struct spw_flag_record as columns: one table for making, writing and reading them.
 *
 * Owns: the table of columns and the SQL made from it. Called by: schema, flags, reader. Thread: any; pure but for the
 * statement it is given.
 *
 * What is stored of a flag, the *payload*, is the same in the tables flags and superseded: the record's columns, then
 * lines, assumptions, request_json, verified, unverified_reason.
 */
#ifndef SPW_STORE_COLUMNS_H
#define SPW_STORE_COLUMNS_H

#include <stdbool.h>
#include <sqlite3.h>

#include "shm/spw_layout.h"

/* SQL being put together; what does not fit sets overflow, and the statement is then not used. */
struct spw_sql {
    char text[8192];
    size_t used;
    bool overflow;
};
void spw_sql_add(struct spw_sql *sql, const char *format, ...) __attribute__((format(printf, 2, 3)));

void spw_columns_define(struct spw_sql *sql); /* "flag_id" TEXT NOT NULL, ... */
void spw_columns_names(struct spw_sql *sql);  /* "flag_id","quote_id", ... */
void spw_columns_holes(struct spw_sql *sql);  /* ?1,?2, ... */
void spw_columns_assign(struct spw_sql *sql); /* "flag_id"=?1, ... */
int spw_columns_count(void);                  /* parameters 1 .. count are the payload's */

/* What goes in; texts need not be terminated. */
struct spw_flag_payload {
    struct spw_flag_record record;
    const void *lines; /* record.lines_count of struct spw_line_tax */
    const char *assumptions;
    const char *request;
    bool verified;
    const char *unverified_reason;
};
/* The payload must outlive the statement's next reset. Returns SQLite's result. */
int spw_columns_bind(sqlite3_stmt *statement, const struct spw_flag_payload *payload);

/* Read the record's columns, which begin at column `first`; returns the column after them (lines). */
int spw_columns_read(sqlite3_stmt *statement, int first, struct spw_flag_record *out);

/* Are all ids and names of the record text? Otherwise the name of the first that is not. */
const char *spw_columns_bad_text(const struct spw_flag_record *record);

#endif
