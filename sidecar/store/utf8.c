/* utf8.c: see utf8.h. */
#include "sidecar/store/utf8.h"

#include <stdint.h>

/* Bytes of the well-formed sequence at text, 0 = none (RFC 3629: no overlong form, no surrogate, up to U+10FFFF). */
static size_t sequence_bytes(const unsigned char *text, size_t count)
{
    if (text[0] < 0x80)
        return 1;
    size_t n = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4 || count < n)
        return 0;
    uint32_t code = text[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3Fu);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0 : n;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7F;
}

bool spw_utf8_is_name(const char *text, size_t count)
{
    const unsigned char *at = (const unsigned char *)text;
    for (size_t i = 0; i < count;) {
        size_t n = sequence_bytes(at + i, count - i);
        if (n == 0 || is_control(at[i]))
            return false;
        i += n;
    }
    return true;
}

bool spw_utf8_repair(char *text, size_t count)
{
    unsigned char *at = (unsigned char *)text;
    bool repaired = false;
    for (size_t i = 0; i < count;) {
        size_t n = sequence_bytes(at + i, count - i);
        if (n == 0 || (is_control(at[i]) && at[i] != '\n' && at[i] != '\t')) {
            at[i] = n == 0 ? '?' : ' ';
            repaired = true;
            n = 1;
        }
        i += n;
    }
    return repaired;
}
