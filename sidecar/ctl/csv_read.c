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

bool spw_csv_read(FILE *file, struct spw_csv_record *r, uint64_t *line, const char **fault)
{
    bool quoted = false, any = false;
    int byte;
    r->used = 0;
    r->fields_count = 1;
    r->field[0] = 0;
    r->line = *line;
    while ((byte = getc(file)) != EOF) {
        any = true;
        *line += byte == '\n';
        if (quoted && byte == '"') {
            int next = getc(file);
            quoted = next == '"';
            if (!quoted && next != EOF)
                ungetc(next, file);
            if (!quoted)
                continue;
        } else if (byte == '"' && r->used == r->field[r->fields_count - 1]) {
            quoted = true;
            continue;
        } else if (!quoted && byte == '\n') {
            break;
        } else if (!quoted && byte == ',') {
            if (r->fields_count == SPW_CSV_COLUMNS_MAX) {
                *fault = "has more than 128 columns";
                return false;
            }
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
    return any && !quoted && put_byte(r, 0);
}

const char *spw_csv_field(const struct spw_csv_record *r, int column)
{
    const char *text = column >= 0 && column < r->fields_count ? r->text + r->field[column] : "";
    while (*text == ' ')
        text++;
    return text[0] == '\'' && text[1] && strchr("=+-@\t", text[1]) ? text + 1 : text;
}

int spw_csv_column(const struct spw_csv_record *head, const char *name)
{
    for (int i = 0; i < head->fields_count; i++) {
        const char *text = spw_csv_field(head, i);
        if (i == 0 && strncmp(text, "\xEF\xBB\xBF", 3) == 0)
            text += 3;
        if (strcmp(text, name) == 0)
            return i;
    }
    return SPW_CSV_NO_COLUMN;
}
