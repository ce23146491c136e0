/* conf_store.c: the durable store, what is forgotten of it, and the alert on placed fallbacks.
 *
 * Owns: nothing. Called by: conf_check.c. Thread: any; looks at directories only with c->references.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/conf/conf_check.h"

#define DAY_MS        86400000u
#define UNPLACED_MAX  (30u * DAY_MS)
#define WINDOW_MIN_MS 60000u

/* A directory that files are put into. */
static enum spw_status check_directory(struct spw_check *c, const char *field, const char *path)
{
    struct stat st;
    if (!path[0] || !c->references)
        return SPW_STATUS_OK;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return spw_check_fault(c, field, "is no directory that is there: make it, or mount the volume");
    if (access(path, W_OK | X_OK) != 0)
        return spw_check_fault(c, field, "cannot be written to (%s): give the sidecar's user the right to",
                               strerror(errno));
    return SPW_STATUS_OK;
}

static enum spw_status check_retention(struct spw_check *c, const Spillway__V1__RetentionConfig *in,
                                       struct spw_conf_retention *out)
{
    if (!in)
        return SPW_STATUS_OK;
    enum spw_status status = spw_check_days(c, "retention.addresses", in->addresses, &out->addresses_days);
    if (!status)
        status = spw_check_days(c, "retention.rows", in->rows, &out->rows_days);
    if (!status && out->rows_days && out->rows_days < out->addresses_days)
        return spw_check_fault(
            c, "retention.rows",
            "rows would go (%ud) before their addresses (%ud): let addresses be the shorter", out->rows_days,
            out->addresses_days);
    return status;
}

enum spw_status spw_check_store(struct spw_check *c, const Spillway__V1__StoreConfig *in,
                                struct spw_conf *out)
{
    snprintf(out->store_file, sizeof out->store_file, SPW_CONF_STORE_FILE);
    out->on_full = SPW_ON_FULL_HAND_BACK;
    out->unplaced_after_ms = DAY_MS;
    if (!in)
        return SPW_STATUS_OK;
    snprintf(c->base, sizeof c->base, "store");
    if (in->has_on_full && in->on_full == SPILLWAY__V1__STORE_CONFIG__ON_FULL__ON_FULL_DENY)
        out->on_full = SPW_ON_FULL_DENY;
    enum spw_status status = spw_check_path(c, "file", in->file, out->store_file, sizeof out->store_file);
    if (!status)
        status = spw_check_path(c, "spool_dir", in->spool_dir, out->spool_dir, sizeof out->spool_dir);
    if (!status)
        status = check_directory(c, "spool_dir", out->spool_dir);
    if (!status && in->sink)
        status = spw_check_path(c, "sink.file", in->sink->file, out->sink_dir, sizeof out->sink_dir);
    if (!status)
        status = check_directory(c, "sink.file", out->sink_dir);
    if (!status)
        status = spw_check_duration(c, "unplaced_after", in->unplaced_after, 1000, UNPLACED_MAX,
                                    &out->unplaced_after_ms);
    return status ? status : check_retention(c, in->retention, &out->retention);
}

enum spw_status spw_check_alert(struct spw_check *c, const Spillway__V1__AlertConfig *in,
                                struct spw_conf_alert *out)
{
    *out = (struct spw_conf_alert){.share_ppm = 10000, .minimum_count = 50, .window_ms = 3600000};
    if (!in)
        return SPW_STATUS_OK;
    snprintf(c->base, sizeof c->base, "fallback.alert");
    enum spw_status status = spw_check_percent(c, "share", in->share, 1000000, &out->share_ppm);
    if (!status && !out->share_ppm)
        return spw_check_fault(c, "share", "is 0%%: the alert would always be on; write a share above 0%%");
    if (!status)
        status = spw_check_count(c, "minimum", in->has_minimum, in->minimum, 1, 1000000, &out->minimum_count);
    if (!status)
        status = spw_check_duration(c, "window", in->window, WINDOW_MIN_MS, DAY_MS, &out->window_ms);
    return status;
}
