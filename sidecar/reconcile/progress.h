/* progress.h: how reconciliation is doing, account by account.
 *
 * Owns: nothing. Called by: control/, http/metrics.c. Thread: the loop thread.
 */
#ifndef SPW_RECONCILE_PROGRESS_H
#define SPW_RECONCILE_PROGRESS_H

#include "sidecar/reconcile/forecast.h"

struct spw_reconcile;

struct spw_reconcile_status {
    const char *account;
    uint64_t pending_count, filings_count, exceptions_count;
    int64_t oldest_unix_ms; /* placed; of what is to be reconciled or filed; 0 = none */
    struct spw_forecast forecast;
    uint64_t under_way_count;
    uint64_t calls_total, retries_total, reconciled_total, filed_total, filing_failed_total;
};
uint32_t spw_reconcile_accounts_count(const struct spw_reconcile *reconcile);
void spw_reconcile_status(struct spw_reconcile *reconcile, uint32_t account,
                          struct spw_reconcile_status *out);

#endif
