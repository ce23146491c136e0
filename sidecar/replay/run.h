/* run.h: a replay from its first line to its last: events in, one JSON line out for each.
 *
 * Owns: the form of an answer's line. Called by: sidecar/ctl/replay.c, bench/replay.c. Thread: one.
 */
#ifndef SPW_REPLAY_RUN_H
#define SPW_REPLAY_RUN_H

#include <stdio.h>

#include "sidecar/replay/summary.h"

struct spw_replay_options {
    const char *name; /* of the input, for errors */
    FILE *in;
    FILE *out;                      /* NULL = no line for each event */
    struct spw_replay_tally *tally; /* one for each account; NULL = none */
    bool keep_going;                /* a line that cannot be used becomes an error object in out */
};

struct spw_replay_counts {
    uint64_t events, errors;
};

/* The first line that cannot be used ends it, unless keep_going: err names file, line, field and remedy. */
enum spw_status spw_replay_run(struct spw_replay *replay, const struct spw_replay_options *options,
                               struct spw_replay_counts *counts, struct spw_error *err) SPW_WARN_UNUSED;

#endif
