/* rate_rows.h: rows of a rate table as they come over the wire, checked. Internal to control/.
 *
 * Owns: struct spw_row_list. Called by: rates.c. Thread: that of its owner.
 */
#ifndef SPW_CONTROL_RATE_ROWS_H
#define SPW_CONTROL_RATE_ROWS_H

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/rates/rates.h"

struct spw_row_list {
    struct spw_rate_row *rows; /* zero-initialise */
    size_t count, room;
};

/* Check the rows and append them. Errors name the row by its place in the list, from 0. */
enum spw_status spw_row_list_append(struct spw_row_list *list, const Spillway__V1__RateRows *rows,
                                    struct spw_error *err) SPW_WARN_UNUSED;
void spw_row_list_clean_up(struct spw_row_list *list);

#endif
