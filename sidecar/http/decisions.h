/* decisions.h: GET /spillway/v1/decisions?ref=: what was decided under an id.
 *
 * Owns: the answer's form. Called by: quote_door.c. Thread: the loop thread; reads at most SPW_DECISIONS_MAX_COUNT rows
 * of the ledger by index.
 */
#ifndef SPW_HTTP_DECISIONS_H
#define SPW_HTTP_DECISIONS_H

#include "sidecar/http/decide.h"

#define SPW_DECISIONS_MAX_COUNT 20u

/* {"ref": ..., "decisions": [...]}, newest first: flags of the ledger, and what is still remembered. malloc'ed; NULL
 * without memory. */
char *spw_decisions_json(struct spw_decider *decider, struct spw_store *store, const char *reference);

#endif
