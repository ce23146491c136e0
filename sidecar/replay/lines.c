/* lines.c: see lines.h. */
#include "sidecar/replay/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct spw_replay_lines *lines, size_t bytes)
{
    if (bytes < lines->room)
        return true;
    size_t room = lines->room ? lines->room * 2 : 4096;
    while (room <= bytes)
        room *= 2;
    char *grown = realloc(lines->buffer, room);
    if (!grown)
        return false;
    lines->buffer = grown;
    lines->room = room;
    return true;
}

bool spw_replay_lines_next(struct spw_replay_lines *lines)
{
    size_t used = 0;
    int c;
    lines->too_long = false;
    errno = 0;
    while ((c = getc_unlocked(lines->in)) != EOF && c != '\n') {
        if (used < SPW_REPLAY_LINES_MAX_BYTES && reserve(lines, used + 1))
            lines->buffer[used++] = (char)c;
        else
            lines->too_long = true;
    }
    if (c == EOF && ferror(lines->in))
        lines->failed = errno ? errno : EIO;
    if ((c == EOF && used == 0 && !lines->too_long) || !reserve(lines, used))
        return false;
    lines->number++;
    if (used && lines->buffer[used - 1] == '\r')
        used--;
    lines->buffer[used] = 0;
    lines->line = lines->buffer;
    lines->bytes = used;
    return true;
}

void spw_replay_lines_clean_up(struct spw_replay_lines *lines)
{
    free(lines->buffer);
    memset(lines, 0, sizeof *lines);
}
