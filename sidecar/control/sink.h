/* sink.h: at the end of a pod, what nobody has acknowledged goes into a directory that outlives it.
 *
 * Owns: the files while they are written. Called by: main, after the doors are shut and before the store is closed.
 * Thread: the loop's, whose loop runs no more.
 */
#ifndef SPW_CONTROL_SINK_H
#define SPW_CONTROL_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

struct spw_store;

struct spw_sink_result {
    uint64_t flags_count; /* written */
    bool complete;        /* nothing is left that only this pod has */
    char file[4096];      /* "" = there was nothing to write */
};

/* Bring what is recorded to disk, then write every flag that no consumer has acknowledged as it is now: one file of JSON
 * lines, as spillwayctl flags export prints them, and its manifest, fsynced and renamed into place; and acknowledge them
 * as consumer "sink". Past the deadline it ends with what it has, complete false. Memory: one flag. */
enum spw_status spw_sink_drain(struct spw_store *store, const char *dir, uint64_t deadline_ns,
                               struct spw_sink_result *out, struct spw_error *err) SPW_WARN_UNUSED;

#endif
