/* table.h: what people read: tables, instants, spans of time, how long a change holds.
 *
 * Owns: struct spw_table. Called by: the command files. Thread: one.
 *
 * Text in cells may come from a caller of the shop: control bytes are shown as '?', so that none reaches a terminal.
 */
#ifndef SPW_CTL_TABLE_H
#define SPW_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spw_table {
    size_t columns_count;      /* set these two; the rest zero */
    const char *const *titles; /* one that begins with '>' is set to the right; NULL = no head line */
    char **cells;
    size_t cells_count, room;
};

/* The next cell, row by row. NULL counts as "-". */
void spw_table_add(struct spw_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* On stdout, and freed. */
void spw_table_print(struct spw_table *table);

/* "2025-11-28T00:00:00.500Z"; room at least 32 bytes. */
void spw_format_instant(int64_t unix_ms, char *out, size_t room);
/* "250 ms", "12.3 s", "5 min 3 s", "3 h 12 min", "4 d 2 h"; room at least 32 bytes. */
void spw_format_span(uint64_t ms, char *out, size_t room);
/* The last line of a change: how long it holds. for_ms 0: until the next start. */
void spw_print_in_force(bool dry_run, uint64_t for_ms);

#endif
