/* conf_text.c: see conf_text.h. */
#include "sidecar/conf/conf_text.h"

#include <stdio.h>
#include <string.h>

#include "sidecar/obs/utf8.h"

#define WORD_MAX_BYTES 48u

const char *spw_text_show(const char *text, size_t bytes, char out[SPW_SHOWN_BYTES])
{
    size_t room = SPW_SHOWN_BYTES - 6; /* quotes, dots, NUL */
    size_t n = 0;
    out[n++] = '"';
    size_t i = 0;
    for (; i < bytes && n < room; i++) {
        char c = text[i];
        out[n++] = c >= ' ' && c <= '~' && c != '"' ? c : '?';
    }
    out[n++] = '"';
    if (i < bytes)
        n += (size_t)snprintf(out + n, SPW_SHOWN_BYTES - n, "...");
    out[n] = 0;
    return out;
}

static const char *fault_of_byte(unsigned char c, size_t utf8)
{
    if (c == '\t')
        return "a tab: indent and separate with spaces";
    if (c == 0)
        return "a NUL byte: save the file as plain UTF-8 text";
    if (c < ' ' || c == 0x7F)
        return "a control byte: remove it";
    return utf8 ? NULL : "a byte that is no UTF-8: save the file as UTF-8";
}

enum spw_status spw_text_check(const char *name, const char *text, size_t bytes, struct spw_error *err)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t line = 1, column = 1;
    bool has_content = false;
    for (size_t i = 0; i < bytes;) {
        if (p[i] == '\n' || (p[i] == '\r' && i + 1 < bytes && p[i + 1] == '\n')) {
            column = 1;
            line += p[i] == '\n';
            i++;
            continue;
        }
        size_t step = spw_utf8_bytes(text + i, bytes - i);
        const char *fault = fault_of_byte(p[i], step);
        if (fault)
            return spw_error_set(err, SPW_STATUS_PARSE, "%s:%zu:%zu: %s", name, line, column, fault);
        has_content |= p[i] != ' ';
        i += step;
        column++;
    }
    if (!has_content)
        return spw_error_set(err, SPW_STATUS_PARSE,
                             "%s:1:1: the file is empty: write at least accounts: with one account", name);
    return SPW_STATUS_OK;
}

static unsigned char plain_letter(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned char)(c - 'A' + 'a');
    return (unsigned char)(c == '-' ? '_' : c);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t spw_text_distance(const char *a, const char *b)
{
    size_t a_bytes = strnlen(a, WORD_MAX_BYTES + 1), b_bytes = strnlen(b, WORD_MAX_BYTES + 1);
    if (a_bytes > WORD_MAX_BYTES || b_bytes > WORD_MAX_BYTES)
        return SPW_TEXT_FAR;
    /* Levenshtein's table, one row at a time. */
    uint32_t row[WORD_MAX_BYTES + 1];
    for (uint32_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= a_bytes; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= b_bytes; j++) {
            uint32_t replace = diagonal + (plain_letter(a[i - 1]) != plain_letter(b[j - 1]));
            diagonal = row[j];
            row[j] = least(replace, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_bytes];
}

bool spw_text_is_near(uint32_t distance, size_t bytes)
{
    return distance <= 1 + bytes / 4;
}
