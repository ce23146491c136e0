/* schema.h: the tables of the ledger, and whether a file has them.
 *
 * Owns: the schema and its version. Called by: ledger. Thread: the one that opens the ledger.
 */
#ifndef SPW_STORE_SCHEMA_H
#define SPW_STORE_SCHEMA_H

#include <sqlite3.h>

#include "sidecar/obs/error.h"

#define SPW_SCHEMA_VERSION 3
#define SPW_SCHEMA_APPLICATION                                                                               \
    0x53505731 /* "SPW1": PRAGMA application_id, so that no other database is taken for ours */

/* Make the tables in an empty file, bring those of an older version up to this one in place (one transaction, all or
 * nothing), or check what a file has. VERSION_MISMATCH: a newer spillwayd wrote it. INVALID: it
 * belongs to another program. CORRUPT: it claims this version and lacks its tables. Otherwise SQLite's failure. */
enum spw_status spw_schema_ensure(sqlite3 *db, const char *file, struct spw_error *err) SPW_WARN_UNUSED;

#endif
