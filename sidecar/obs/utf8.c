/* utf8.c: see utf8.h. */
#include "sidecar/obs/utf8.h"

#include <stdint.h>

size_t spw_utf8_bytes(const char *at, size_t left)
{
    const unsigned char *text = (const unsigned char *)at;
    if (text[0] < 0x80)
        return 1;
    size_t n = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    if (text[0] < 0xC2 || text[0] > 0xF4 || left < n)
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

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7F;
}

bool spw_utf8_is_name(const char *text, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t n = spw_utf8_bytes(text + i, count - i);
        if (n == 0 || is_control(text[i]))
            return false;
        i += n;
    }
    return true;
}

bool spw_utf8_repair(char *text, size_t count)
{
    bool repaired = false;
    for (size_t i = 0; i < count;) {
        size_t n = spw_utf8_bytes(text + i, count - i);
        if (n == 0 || (is_control(text[i]) && text[i] != '\n' && text[i] != '\t')) {
            text[i] = n == 0 ? '?' : ' ';
            repaired = true;
            n = 1;
        }
        i += n;
    }
    return repaired;
}
