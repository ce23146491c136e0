/* errand.h: the sidecar's own calls for reconciliation, over the decision tree's connections and credentials.
 *
 * Owns: the errands in flight. Called by: main. Thread: the loop thread.
 */
#ifndef SPW_HTTP_ERRAND_H
#define SPW_HTTP_ERRAND_H

#include "sidecar/http/decide.h"
#include "sidecar/reconcile/engine.h"

/* The functions reconciliation needs, for as long as the decider lives; wake and its timer are the caller's. Calls in
 * flight end, unanswered, when the decider is destroyed. */
void spw_errand_ops(struct spw_decider *decider, struct spw_reconcile_ops *out);

#endif
