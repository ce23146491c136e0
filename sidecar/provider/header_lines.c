/* header_lines.c: see header_lines.h. */
#include "sidecar/provider/header_lines.h"

#include <stdbool.h>
#include <string.h>

#include "sidecar/provider/header_name.h"

#define FOLDED_MAX_BYTES 608u

struct lines {
    spw_header_line_fn *fn;
    void *owner;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* One whole line, its end taken off. */
static void tell(const struct lines *lines, const char *line, const char *stop)
{
    while (stop > line && (stop[-1] == '\r' || is_blank(stop[-1])))
        stop--;
    const char *colon = memchr(line, ':', (size_t)(stop - line));
    char name[SPW_HEADER_NAME_BYTES];
    if (!colon || colon == line || (size_t)(colon - line) >= sizeof name || is_blank(*line) ||
        memchr(line, 0, (size_t)(stop - line)))
        return;
    size_t n = (size_t)(colon - line);
    while (n > 0 && is_blank(line[n - 1])) /* not to be sent, but sent */
        n--;
    for (size_t i = 0; i < n; i++)
        name[i] = (char)(line[i] >= 'A' && line[i] <= 'Z' ? line[i] + 32 : line[i]);
    name[n] = 0;
    const char *value = colon + 1;
    while (value < stop && is_blank(*value))
        value++;
    lines->fn(lines->owner, name, value, (size_t)(stop - value));
}

static bool is_folded(const char *p, const char *end)
{
    return p < end && is_blank(*p);
}

/* A line and those that go on with it: every further one stands for a blank and its text. Returns where the next
 * begins. */
static const char *tell_folded(const struct lines *lines, const char *line, const char *end)
{
    char whole[FOLDED_MAX_BYTES];
    size_t n = 0;
    bool fits = true;
    const char *p = line;
    do {
        const char *to = memchr(p, '\n', (size_t)(end - p));
        const char *stop = to ? to : end;
        while (stop > p && stop[-1] == '\r')
            stop--;
        while (p != line && p < stop && is_blank(*p))
            p++;
        size_t part = (size_t)(stop - p);
        fits = fits && n + 1 + part < sizeof whole;
        if (fits) {
            whole[n] = ' ';
            n += n > 0;
            memcpy(whole + n, p, part);
            n += part;
        }
        p = to ? to + 1 : end;
    } while (is_folded(p, end));
    if (fits)
        tell(lines, whole, whole + n);
    return p;
}

void spw_header_lines_each(const char *headers, size_t headers_bytes, spw_header_line_fn *fn, void *owner)
{
    const struct lines lines = {fn, owner};
    const char *end = headers + headers_bytes;
    for (const char *line = headers; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline ? newline + 1 : end;
        if (is_folded(next, end)) {
            line = tell_folded(&lines, line, end);
            continue;
        }
        tell(&lines, line, newline ? newline : end);
        line = next;
    }
}
