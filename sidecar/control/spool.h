/* spool.h: a directory that callers put handed-back flags into.
 *
 * Owns: its thread, and the files it has taken. Called by: main. Thread: its own; start and stop from the loop's.
 *
 *   DIR/NAME.jsonl --taken--> DIR/taken/MS-NAME.jsonl --every line is in the ledger--> DIR/done/MS-NAME.jsonl
 *                                                     its bad lines, with the reason --> DIR/bad/MS-NAME.jsonl
 *
 * A file is read two seconds after it was taken and last written to, so that who was appending to it has ended. Dying at
 * any point repeats at most what a flag's id makes idempotent. While the ledger cannot be written, files wait.
 */
#ifndef SPW_CONTROL_SPOOL_H
#define SPW_CONTROL_SPOOL_H

#include <stdint.h>

#include "sidecar/obs/error.h"

struct spw_store;
struct spw_spool;

struct spw_spool_counts {
    uint64_t imported_count;
    uint64_t known_count;
    uint64_t bad_count; /* lines kept in bad/ */
};

enum spw_status spw_spool_start(struct spw_store *store, const char *dir, struct spw_spool **out,
                                struct spw_error *err) SPW_WARN_UNUSED;
void spw_spool_counts(struct spw_spool *spool,
                      struct spw_spool_counts *out); /* any thread; NULL gives zeros */
void spw_spool_stop(struct spw_spool *spool);        /* NULL is allowed */

#endif
