/* row.h: a row of the table flags, copied out of the database.
 *
 * Owns: struct spw_row_copy. Called by: reader, reconcile_rows, sink. Thread: any; pure but for the statement given.
 */
#ifndef SPW_STORE_ROW_H
#define SPW_STORE_ROW_H

#include "sidecar/store/columns.h"
#include "sidecar/store/store.h"

#define SPW_ROW_TEXT_MAX_BYTES                                                                               \
    (SPW_ASSUMPTIONS_MAX_BYTES + SPW_REQUEST_MAX_BYTES + SPW_CALLER_ID_BYTES + SPW_NOTE_BYTES +              \
     SPW_DOCUMENT_BYTES + 1024)

/* One row with its texts. About 45 KB: on the heap. */
struct spw_row_copy {
    struct spw_flag_row row;
    struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1];
    struct spw_order_row orders[SPW_ORDERS_LISTED_MAX];
    char text[SPW_ROW_TEXT_MAX_BYTES];
    size_t text_used;
};

/* "SELECT ... FROM flags <rest>", giving what spw_row_read reads. */
void spw_row_select(struct spw_sql *sql, const char *rest);
void spw_row_read(struct spw_row_copy *copy, sqlite3_stmt *statement);
/* The row with its lines and texts in one allocation, free() it; NULL: no memory. */
struct spw_flag_row *spw_row_clone(const struct spw_row_copy *copy);

#endif
