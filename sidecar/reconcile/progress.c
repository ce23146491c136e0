/* progress.c: see progress.h. Thread: the loop thread. */
#include "sidecar/reconcile/progress.h"

#include "sidecar/reconcile/engine_internal.h"

uint32_t spw_reconcile_accounts_count(const struct spw_reconcile *r)
{
    return r->accounts_count;
}

void spw_reconcile_status(struct spw_reconcile *r, uint32_t account, struct spw_reconcile_status *out)
{
    const struct spw_reconcile_account *a = &r->accounts[account];
    *out = a->status;
    out->under_way_count = a->works_count[SPW_DUE_RECONCILE] + a->works_count[SPW_DUE_FILE];
}
