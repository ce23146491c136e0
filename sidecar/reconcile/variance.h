/* variance.h: what was collected against what the provider says now, split by cause; and what follows from it.
 *
 * Owns: the arithmetic of reconciliation. Called by: engine.c, tests. Thread: any; pure; integers only.
 *
 *   variance = collected - live = rounding noise + rate + base + nexus, to the cent
 *
 *   nexus  all of it, where one side knows no duty to collect and the other one does
 *   base   the cached rate on what only one side taxed
 *   rate   the difference of the rates on what the provider taxed
 *   noise  what is left, up to N lines x (J + 1) x half a minor unit: each line is rounded once here and J times by the
 *          provider. What no rounding explains counts as rate.
 *
 * Nothing here changes what the customer was charged.
 */
#ifndef SPW_RECONCILE_VARIANCE_H
#define SPW_RECONCILE_VARIANCE_H

#include "sidecar/conf/conf.h"
#include "sidecar/provider/provider.h"
#include "sidecar/store/store.h"

struct spw_variance_sides {
    const struct spw_line_tax *collected; /* as answered by the fallback: lines, then shipping */
    const struct spw_line_tax *live;
    const struct spw_line_rate *live_rates; /* as the provider states them; may be unknown */
    uint32_t lines_count;                   /* of each, shipping included */
    int64_t tax_collected_minor; /* what the order says; where it differs from the lines, that is rate */
    int64_t live_tax_minor;
    uint32_t rate_ppb; /* the combined rate that was applied; 0 = per line, from tax and base */
    bool cached_no_nexus, live_no_nexus;
    uint32_t jurisdictions_count; /* J */
};
void spw_variance_split(const struct spw_variance_sides *sides, struct spw_variance *out);
/* In half minor units: N x (J + 1), of the lines that either side taxes. */
int64_t spw_variance_bound_halves(const struct spw_variance_sides *sides);

struct spw_verdict_facts {
    struct spw_variance variance;
    bool verified;
    int64_t tax_shown_minor; /* what the fallback answered */
    int64_t tax_collected_minor;
    int64_t bound_halves;
    int64_t absorbed_minor; /* in this period so far, at least 0 */
};
/* What becomes of the row. why is filled in with EXCEPTION. */
enum spw_reconcile_state spw_variance_judge(const struct spw_verdict_facts *facts,
                                            const struct spw_conf_reconcile *conf, char *why, size_t room);

/* Is it surely still the day of the sale there? Neither daylight saving time nor a state's second zone, an hour to either
 * side, may put a midnight between the two instants; date ("2025-11-28", or "") is that day by one of them. */
bool spw_destination_same_day(const char *state, int64_t sale_unix_ms, int64_t now_unix_ms, const char *date);

#endif
