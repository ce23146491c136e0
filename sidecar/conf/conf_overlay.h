/* conf_overlay.h: what was set by hand and is to outlive a restart: a file laid over the configuration.
 *
 * Owns: STORE_FILE.overlay.yaml, beside the store. Called by: conf.c (laid over at each load), control/ (written).
 * Thread: any; writes are one after the other.
 *
 * The file is of the configuration's own schema, and may hold of each account its limit (rate, burst, pods, mode) and its
 * breaker. The whole is then checked as if the configuration said it. An account that is no longer configured is passed over.
 */
#ifndef SPW_CONF_CONF_OVERLAY_H
#define SPW_CONF_CONF_OVERLAY_H

#include "proto/spillway/v1/config.pb-c.h"
#include "sidecar/conf/conf.h"

/* Where it is for this store. */
void spw_overlay_path(const char *store_file, char *out, size_t room);

/* Lay it over a configuration that was read and not checked yet; no file is no overlay. *laid: there was one. */
enum spw_status spw_overlay_lay(const char *path, Spillway__V1__Config *over, bool *laid,
                                struct spw_error *err) SPW_WARN_UNUSED;

/* What one account is to keep. NULL = as the file has it; clear: nothing any more. */
struct spw_overlay_change {
    const char *account;
    bool clear;
    const struct spw_conf_limit *limit;
    const enum spw_limiter_mode *mode;
    const struct spw_conf_breaker *breaker;
};
/* Written whole beside itself, fsynced, put in place, the directory fsynced; an empty one is removed. Blocks on the disk. */
enum spw_status spw_overlay_write(const char *path, const struct spw_overlay_change *change,
                                  struct spw_error *err) SPW_WARN_UNUSED;

/* Does the file say anything of the account's limit, or of its breaker? For showing where a value is from. */
bool spw_overlay_has(const char *path, const char *account, bool breaker);

#endif
