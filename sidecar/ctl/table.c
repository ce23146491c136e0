/* table.c: what people read: tables, instants, spans of time. See table.h. */
#include "sidecar/ctl/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void spw_table_add(struct spw_table *table, const char *format, ...)
{
    if (table->cells_count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        char **cells = realloc(table->cells, room * sizeof *cells);
        if (!cells)
            return;
        table->cells = cells;
        table->room = room;
    }
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    for (char *p = text; p && *p; p++) {
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    }
    table->cells[table->cells_count++] = text;
}

static const char *cell(const struct spw_table *table, size_t index)
{
    return index < table->cells_count && table->cells[index] ? table->cells[index] : "-";
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static void print_line(const char *const *texts, const size_t *widths, const char *const *titles,
                       size_t count)
{
    for (size_t c = 0; c < count; c++) {
        size_t padding = widths[c] - width_of(texts[c]);
        bool right = titles && titles[c][0] == '>';
        bool last = c + 1 == count;
        printf("%*s%s%*s", right ? (int)padding : 0, "", texts[c], right || last ? 0 : (int)padding, "");
        fputs(last ? "\n" : "  ", stdout);
    }
}

void spw_table_print(struct spw_table *table)
{
    enum { COLUMNS_MAX_COUNT = 16 };
    size_t widths[COLUMNS_MAX_COUNT] = {0};
    const char *line[COLUMNS_MAX_COUNT];
    size_t columns = table->columns_count < COLUMNS_MAX_COUNT ? table->columns_count : COLUMNS_MAX_COUNT;
    if (!columns)
        return;
    for (size_t c = 0; table->titles && c < columns; c++) {
        line[c] = table->titles[c] + (table->titles[c][0] == '>');
        widths[c] = width_of(line[c]);
    }
    for (size_t i = 0; i < table->cells_count; i++) {
        size_t width = width_of(cell(table, i));
        if (width > widths[i % columns])
            widths[i % columns] = width;
    }
    if (table->titles)
        print_line(line, widths, table->titles, columns);
    for (size_t row = 0; row < table->cells_count; row += columns) {
        for (size_t c = 0; c < columns; c++)
            line[c] = cell(table, row + c);
        print_line(line, widths, table->titles, columns);
    }
    for (size_t i = 0; i < table->cells_count; i++)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
    table->cells_count = table->room = 0;
}

void spw_format_instant(int64_t unix_ms, char *out, size_t room)
{
    time_t seconds = (time_t)(unix_ms / 1000 - (unix_ms % 1000 < 0));
    int ms = (int)(unix_ms - (int64_t)seconds * 1000);
    struct tm tm;
    char text[64];
    if (!gmtime_r(&seconds, &tm) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm)) {
        snprintf(out, room, "%" PRId64 " ms", unix_ms);
        return;
    }
    snprintf(out, room, "%.24s.%03dZ", text, ms);
}

void spw_format_span(uint64_t ms, char *out, size_t room)
{
    uint64_t s = ms / 1000, min = s / 60, h = min / 60;
    if (ms < 1000)
        snprintf(out, room, "%" PRIu64 " ms", ms);
    else if (s < 60)
        snprintf(out, room, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    else if (min < 60)
        snprintf(out, room, "%" PRIu64 " min %" PRIu64 " s", min, s % 60);
    else if (h < 24)
        snprintf(out, room, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
    else
        snprintf(out, room, "%" PRIu64 " d %" PRIu64 " h", h / 24, h % 24);
}

void spw_print_in_force(bool dry_run, uint64_t for_ms)
{
    char span[32];
    spw_format_span(for_ms, span, sizeof span);
    if (dry_run)
        printf("Nothing was changed (dry run).\n");
    else if (for_ms)
        printf("In force in this pod; goes back by itself in %s.\n", span);
    else
        printf("In force in this pod, until its next start.\n");
}
