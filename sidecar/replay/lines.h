/* lines.h: a file's lines, one after the other, in bounded memory.
 *
 * Owns: struct spw_replay_lines. Called by: run.c, convert.c. Thread: one.
 */
#ifndef SPW_REPLAY_LINES_H
#define SPW_REPLAY_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SPW_REPLAY_LINES_MAX_BYTES ((size_t)1 << 20)

struct spw_replay_lines {
    int fd; /* of the input */
    FILE *
        out; /* flushed before the input is waited for, so that an answer follows its question; NULL = none */
    char *buffer;
    size_t room, from, to; /* what was read and not given out: buffer[from .. to) */
    char *line;            /* without its end, NUL-terminated; may be written to until the next one */
    size_t bytes;
    uint64_t number; /* of the line, from 1 */
    bool too_long;   /* the line was longer than SPW_REPLAY_LINES_MAX_BYTES; what is here is its end */
    bool ended;
    int failed; /* errno of a read that failed; 0 = the end is the end */
};

/* Zero-initialise and set fd and out. false: no further line. */
bool spw_replay_lines_next(struct spw_replay_lines *lines);
void spw_replay_lines_clean_up(struct spw_replay_lines *lines);

#endif
