/* conf_reconcile.c: reconciliation and filing: caps, and what becomes of over-collected tax.
 *
 * Owns: nothing. Called by: conf_check.c. Thread: any; pure.
 */
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_check.h"
#include "sidecar/provider/decimal.h"

#define MINUTE_MS        60000u
#define DAY_MS           86400000u
#define ORDER_MAX_MINOR  INT64_C(100000)
#define PERIOD_MAX_MINOR INT64_C(100000000)

/* "0.50/order": an amount, and what it is of. */
static enum spw_status check_cap(struct spw_check *c, const char *field, const char *text, const char *unit,
                                 int64_t most_minor, int64_t *out)
{
    int64_t minor;
    if (!text)
        return SPW_STATUS_OK;
    const char *slash = strchr(text, '/');
    if (!slash || strcmp(slash + 1, unit) != 0 ||
        spw_decimal_parse(text, (size_t)(slash - text), 2, SPW_DECIMAL_HALF_UP, &minor) != SPW_DECIMAL_EXACT)
        return spw_check_fault(c, field,
                               "\"%.40s\" is no amount: write it as \"0.50/%s\", with at most two decimals",
                               text, unit);
    if (minor < 0 || minor > most_minor)
        return spw_check_fault(c, field, "\"%.40s\" is out of range: 0.00/%s to %lld.00/%s", text, unit,
                               (long long)(most_minor / 100), unit);
    *out = minor;
    return SPW_STATUS_OK;
}

enum spw_status spw_check_reconcile(struct spw_check *c, const Spillway__V1__ReconcileConfig *in,
                                    struct spw_conf_reconcile *out)
{
    *out = (struct spw_conf_reconcile){.on = in != NULL,
                                       .within_ms = 60 * MINUTE_MS,
                                       .absorb_under_minor = 50,
                                       .absorb_period_minor = 25000,
                                       .file = true};
    if (!in)
        return SPW_STATUS_OK;
    snprintf(c->base, sizeof c->base, "reconcile");
    out->refund = in->has_over_collected &&
                  in->over_collected == SPILLWAY__V1__RECONCILE_CONFIG__OVER_COLLECTED__OVER_COLLECTED_REFUND;
    out->file = !(in->has_filing && in->filing == SPILLWAY__V1__RECONCILE_CONFIG__FILING__FILING_OFF);
    enum spw_status status = spw_check_duration(c, "within", in->within, MINUTE_MS, DAY_MS, &out->within_ms);
    if (!status)
        status = check_cap(c, "absorb_under", in->absorb_under, "order", ORDER_MAX_MINOR,
                           &out->absorb_under_minor);
    if (!status)
        status = check_cap(c, "absorb_period", in->absorb_period, "day", PERIOD_MAX_MINOR,
                           &out->absorb_period_minor);
    return status;
}
