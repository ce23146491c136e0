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

/* What an overlay has of one account. */
struct spw_overlay_kept {
    bool limit, mode, breaker;
};

/* Lay it over a configuration that was read and not checked yet; no file is no overlay. kept: one for each of its
 * accounts, in its order. *laid: there was something. */
enum spw_status spw_overlay_lay(const char *path, Spillway__V1__Config *over, struct spw_overlay_kept *kept,
                                bool *laid, struct spw_error *err) SPW_WARN_UNUSED;

/* What one account is to keep. NULL = as the file has it; clear: nothing any more. */
struct spw_overlay_change {
    const char *account;
    bool clear;
    const struct spw_conf_limit *limit;
    const enum spw_limiter_mode *mode;
    const struct spw_conf_breaker *breaker;
};

/* What was written is in force at the next start and reload: note it in the configuration in use, which then stands as a
 * reload would make it, so that the reload finds nothing to change. The thread that conf belongs to. */
void spw_overlay_note(struct spw_conf *conf, const struct spw_overlay_change *change);

/* Another number when something was written since: who has read the file meanwhile reads it again. */
uint64_t spw_overlay_revision(void);

/* Written whole beside itself, fsynced, put in place, the directory fsynced; an empty one is removed. Blocks on the disk. */
enum spw_status spw_overlay_write(const char *path, const struct spw_overlay_change *change,
                                  struct spw_error *err) SPW_WARN_UNUSED;

#endif
