/* fuzz.h: the entry of every fuzz program, and what it says when an answer is wrong. */
#ifndef SPW_TESTS_FUZZ_H
#define SPW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Called by libFuzzer or replay.c for each input; 0 always. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define SPW_FUZZ_EXPECT(condition)                                                                           \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
