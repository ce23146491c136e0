/* lines.c: see lines.h. */
#include "sidecar/replay/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 65536u

/* Room for one more reading behind what is there. A line that is too long loses its beginning. */
static bool make_room(struct spw_replay_lines *l)
{
    if (l->from > 0) {
        memmove(l->buffer, l->buffer + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
    }
    if (l->to > SPW_REPLAY_LINES_MAX_BYTES) {
        l->too_long = true;
        l->to = 0;
    }
    if (l->room >= l->to + READ_BYTES + 1)
        return true;
    size_t room = l->room ? l->room * 2 : 2 * READ_BYTES;
    char *grown = realloc(l->buffer, room);
    if (!grown)
        return false;
    l->buffer = grown;
    l->room = room;
    return true;
}

static void read_more(struct spw_replay_lines *l)
{
    if (!make_room(l)) {
        l->failed = ENOMEM;
        return;
    }
    if (l->out)
        fflush(l->out);
    ssize_t n;
    do
        n = read(l->fd, l->buffer + l->to, READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        l->failed = errno;
    l->ended = n == 0;
    l->to += n > 0 ? (size_t)n : 0;
}

bool spw_replay_lines_next(struct spw_replay_lines *l)
{
    size_t seen = 0; /* of what is there: no line's end in it */
    char *end = NULL;
    l->too_long = false;
    for (;;) {
        size_t there = l->to - l->from;
        seen = seen < there ? seen : 0; /* a line that is too long was cut */
        end = there ? memchr(l->buffer + l->from + seen, '\n', there - seen) : NULL;
        seen = there;
        if (end || l->ended || l->failed)
            break;
        read_more(l);
    }
    if (!end && (l->failed || (l->to == l->from && !l->too_long)))
        return false;
    l->line = l->buffer + l->from;
    l->bytes = end ? (size_t)(end - l->line) : l->to - l->from;
    l->from += l->bytes + (end ? 1 : 0);
    if (l->bytes && l->line[l->bytes - 1] == '\r')
        l->bytes--;
    l->line[l->bytes] = 0;
    l->number++;
    l->too_long = l->too_long || l->bytes > SPW_REPLAY_LINES_MAX_BYTES;
    if (l->number == 1 && strncmp(l->line, "\xEF\xBB\xBF", 3) == 0) { /* some editors begin a file so */
        l->line += 3;
        l->bytes -= 3;
    }
    return true;
}

void spw_replay_lines_clean_up(struct spw_replay_lines *lines)
{
    free(lines->buffer);
    memset(lines, 0, sizeof *lines);
}
