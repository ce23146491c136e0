/* manifest.h: what an exported file holds: its checksum, its place in the ledger, its totals.
 *
 * Owns: struct spw_manifest. Called by: spillwayctl flags export, the sink. Thread: any; reads the file it seals.
 *
 * Beside FILE stands FILE.manifest.json: sha256 and bytes of the file as it is on the disk; sequences from and through,
 * and whether every one between is there; totals of money by state of the flag and by ship-to state, for each currency,
 * over-collected and under-collected never netted. Amounts are decimal text.
 */
#ifndef SPW_MESSAGE_MANIFEST_H
#define SPW_MESSAGE_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/obs/error.h"

#define SPW_MANIFEST_GROUPS_MAX 512 /* more places than the United States have, times currencies */

struct spw_manifest_group {
    char key[48]; /* "confirmed USD", "US-WA USD" */
    uint64_t flags_count;
    uint64_t orders_count;
    int64_t taxable_minor, tax_minor, collected_minor;
    int64_t over_minor, under_minor; /* variances by sign */
};

struct spw_manifest {
    uint64_t flags_count;
    uint64_t first_sequence, last_sequence, newest_change; /* the least and the highest */
    uint64_t previous_sequence;
    bool contiguous; /* in sequence order without a gap */
    bool overflow;   /* more groups than there is room for: their totals are left out */
    uint32_t groups_count;
    uint32_t states_count; /* the first ones of groups are by state of the flag */
    struct spw_manifest_group by_state[32];
    struct spw_manifest_group by_place[SPW_MANIFEST_GROUPS_MAX];
};

void spw_manifest_init(struct spw_manifest *manifest);
void spw_manifest_add(struct spw_manifest *manifest, const Spillway__V1__Flag *flag);
/* Write <path>.manifest.json for the file at `path`, which is known under `name` when it is in place: fsynced, renamed.
 * complete: nothing of what was to be exported is missing. */
enum spw_status spw_manifest_write(const struct spw_manifest *manifest, const char *path,
                                   const char *final_path, const char *format, bool complete,
                                   struct spw_error *err) SPW_WARN_UNUSED;
/* fsync the directory a path is in, so that a rename in it is on the disk. */
enum spw_status spw_directory_sync(const char *path, struct spw_error *err) SPW_WARN_UNUSED;

#endif
