/* zeroed.h: small zeroed memory on the hot path.
 *
 * Owns: nothing. Called by: the doors. Thread: any.
 *
 * As calloc(1, bytes); but glibc's calloc passes by what the thread has just freed, which malloc takes first. Compilers
 * make a calloc of malloc and memset, so the clearing is one that they leave alone.
 */
#ifndef SPW_OBS_ZEROED_H
#define SPW_OBS_ZEROED_H

#include <stdlib.h>
#include <string.h>

/* NULL without memory. */
static inline void *spw_zeroed(size_t bytes)
{
    void *out = malloc(bytes);
    if (!out)
        return NULL;
    __asm__ volatile("" : : "r"(out) : "memory"); /* compilers make calloc of malloc and memset otherwise */
    return memset(out, 0, bytes);
}

#endif
