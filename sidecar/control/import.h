/* import.h: one line of a file as a flag of the ledger.
 *
 * Owns: nothing. Called by: flags.c (spillwayctl flags import), spool.c. Thread: any but the loop's: it waits for the
 * commit.
 *
 * A line is what a caller was handed back when no cell was free (spw_flag_line), or a line of an export or a sink. Its flag
 * id makes it idempotent. Nobody vouches for such a line: the flag is stored as not verified, and what a line of an export
 * says of reconciliation is left out: it is begun anew here.
 */
#ifndef SPW_CONTROL_IMPORT_H
#define SPW_CONTROL_IMPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "sidecar/obs/error.h"

struct spw_store;

/* OK: it is durable; *known: it had been before. PARSE, INVALID: the line is at fault, and err says where. Otherwise the
 * ledger could not be written: try again. The text need not be terminated. */
enum spw_status spw_import_line(struct spw_store *store, const char *text, size_t bytes, bool *known,
                                struct spw_error *err) SPW_WARN_UNUSED;

/* Is the line at fault, rather than the ledger? */
static inline bool spw_import_is_bad(enum spw_status status)
{
    return status == SPW_STATUS_PARSE || status == SPW_STATUS_INVALID;
}

#endif
