/* convert.h: an access log into the events of a replay.
 *
 * Owns: the reading of logs (docs/replay.md). Called by: sidecar/ctl/replay.c. Thread: one. Bounded by the calls that
 * are in flight at one time in the log and, with spread, by the lines of one second.
 */
#ifndef SPW_REPLAY_CONVERT_H
#define SPW_REPLAY_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sidecar/obs/error.h"

enum spw_convert_format {
    SPW_CONVERT_COMBINED, /* the Common or Combined Log Format of Apache and nginx */
    SPW_CONVERT_JSON,     /* one object a line */
    SPW_CONVERT_CSV       /* the first line names the columns */
};

struct spw_convert_options {
    const char *name; /* of the input, for errors */
    FILE *in, *out;
    enum spw_convert_format format;
    const char *account;
    const char *integration; /* NULL = the account's first */
    const char *match;       /* extended regular expression a line must match; NULL = every line */
    const char *time_field;  /* JSON (a path with dots) and CSV */
    const char *status_field;
    const char *latency_field;
    bool outcomes; /* tell what came back, where the log has it */
    bool spread;   /* lines of one whole second are spread over it */
};

struct spw_convert_counts {
    uint64_t lines, taken, bad, back; /* back: stamps before the line before them, taken as of its moment */
    struct spw_error first_bad;
};

/* Lines that cannot be read are counted and left out. Fails when the options make no sense or input cannot be read. */
enum spw_status spw_convert(const struct spw_convert_options *options, struct spw_convert_counts *counts,
                            struct spw_error *err) SPW_WARN_UNUSED;

#endif
