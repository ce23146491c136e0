/* source.h: the files of one `rates load` as one source.
 *
 * Owns: struct spw_ctl_source. Called by: rates.c. Thread: one.
 */
#ifndef SPW_CTL_SOURCE_H
#define SPW_CTL_SOURCE_H

#include "sidecar/rates/rates.h"

struct spw_ctl_source {
    struct spw_rate_row *rows; /* sorted; one for each place */
    size_t rows_count;
    size_t bad_count, duplicate_count, mismatch_count;
    uint8_t
        sha256[32]; /* of the file; of several: of their digests one after the other, in the order given */
};

/* Reads every file; bad rows are told by `problem`. A file that is refused refuses all. Zero-initialise source. */
enum spw_status spw_ctl_source_load(struct spw_ctl_source *source, char *const *paths, int paths_count,
                                    spw_rates_problem_fn *problem, void *owner,
                                    struct spw_error *err) SPW_WARN_UNUSED;
void spw_ctl_source_clean_up(struct spw_ctl_source *source);

#endif
