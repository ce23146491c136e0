/* csv_read.c: see csv_read.h. */
#include "sidecar/ctl/csv_read.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_MAX_BYTES ((size_t)1 << 20)

static bool put_byte(struct spw_csv_record *r, char byte)
{
    if (r->used == RECORD_MAX_BYTES)
        return false;
    if (r->used == r->room) {
        size_t room = r->room ? 2 * r->room : 1024;
        char *text = realloc(r->text, room);
        if (!text)
            return false;
        r->text = text;
        r->room = room;
    }
    r->text[r->used++] = byte;
    return true;
}

/* A field ends: spaces around one without quotation marks are nobody's. */
static void trim(struct spw_csv_record *r, bool was_quoted)
{
    size_t from = r->field[r->fields_count - 1];
    while (!was_quoted && r->used > from && r->text[r->used - 1] == ' ')
        r->used--;
}

static bool begins_with_mark(const struct spw_csv_record *r, uint64_t line)
{
    return line == 1 && r->fields_count == 1 && r->used == 3 && memcmp(r->text, "\xEF\xBB\xBF", 3) == 0;
}

bool spw_csv_read(FILE *file, struct spw_csv_record *r, uint64_t *line, const char **fault)
{
    bool quoted = false, was_quoted = false, any = false;
    int byte;
    r->used = 0;
    r->fields_count = 1;
    r->field[0] = 0;
    r->line = *line;
    while ((byte = getc(file)) != EOF) {
        any = true;
        if (begins_with_mark(r, *line))
            r->used = 0;
        *line += byte == '\n';
        if (quoted && byte == '"') {
            int next = getc(file);
            quoted = next == '"';
            if (!quoted && next != EOF)
                ungetc(next, file);
            if (!quoted)
                continue;
        } else if (!quoted && r->used == r->field[r->fields_count - 1] && (byte == ' ' || byte == '"')) {
            quoted = was_quoted = byte == '"';
            continue;
        } else if (!quoted && was_quoted && byte == ' ') {
            continue;
        } else if (!quoted && byte == '\n') {
            break;
        } else if (!quoted && byte == ',') {
            if (r->fields_count == SPW_CSV_COLUMNS_MAX) {
                *fault = "has more than 128 columns";
                return false;
            }
            trim(r, was_quoted);
            was_quoted = false;
            if (!put_byte(r, 0))
                break;
            r->field[r->fields_count++] = r->used;
            continue;
        }
        if (!put_byte(r, (char)byte)) {
            *fault = "is longer than 1 MiB: is a quotation mark missing?";
            return false;
        }
    }
    if (quoted)
        *fault = "opens a quotation mark that is never closed";
    while (any && !quoted && r->used > r->field[r->fields_count - 1] && r->text[r->used - 1] == '\r')
        r->used--;
    trim(r, was_quoted);
    return any && !quoted && put_byte(r, 0);
}

const char *spw_csv_field(const struct spw_csv_record *r, int column)
{
    const char *text = column >= 0 && column < r->fields_count ? r->text + r->field[column] : "";
    return text[0] == '\'' && text[1] && strchr("=+-@\t", text[1]) ? text + 1 : text;
}

int spw_csv_column(const struct spw_csv_record *head, const char *name)
{
    for (int i = 0; i < head->fields_count; i++) {
        if (strcmp(spw_csv_field(head, i), name) == 0)
            return i;
    }
    return SPW_CSV_NO_COLUMN;
}
