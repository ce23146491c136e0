/* csv.h: a flag as one line of CSV (RFC 4180), for spreadsheets.
 *
 * Owns: the columns. Called by: flags.c. Thread: one.
 *
 * Amounts are decimal text, instants ISO 8601 in UTC. Text that came from a caller of the shop and begins with '=',
 * '+', '-', '@', tab or carriage return gets an apostrophe before it: a spreadsheet would run it as a formula. Lines,
 * request and digests are in the JSON form only.
 */
#ifndef SPW_CTL_CSV_H
#define SPW_CTL_CSV_H

#include "proto/spillway/v1/control.pb-c.h"

void spw_csv_print_head(void);
void spw_csv_print_flag(const Spillway__V1__Flag *flag);

#endif
