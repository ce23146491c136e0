/* utf8.c: see utf8.h. */
#include "sidecar/obs/utf8.h"

bool spw_utf8_repair(char *text, size_t count)
{
    bool repaired = false;
    for (size_t i = 0; i < count;) {
        size_t n = spw_utf8_bytes(text + i, count - i);
        if (n == 0 || (spw_is_control(text[i]) && text[i] != '\n' && text[i] != '\t')) {
            text[i] = n == 0 ? '?' : ' ';
            repaired = true;
            n = 1;
        }
        i += n;
    }
    return repaired;
}
