/* conf_values.h: a configuration as a list of settings, and what is different between two.
 *
 * Owns: which settings a reload may change. Called by: reload.c (what to refuse, what to tell), control/ (show, diff).
 * Thread: any; pure but for memory.
 *
 * A setting is a path of the schema ("accounts.main.limit.rate") and its value as the file would have it, defaults
 * filled in: two files that mean the same have the same list. Secrets are not among them, only where they are.
 */
#ifndef SPW_CONF_CONF_VALUES_H
#define SPW_CONF_CONF_VALUES_H

#include "sidecar/conf/conf.h"

struct spw_conf_value {
    char *path;
    char *text;
    const char *fixed; /* why a change needs a restart; NULL = it is changed in place */
};

struct spw_conf_values {
    struct spw_conf_value *list; /* by path */
    size_t count, room_count;
};

/* All settings of conf. NO_MEMORY: nothing is left in *out. */
enum spw_status spw_conf_values_make(const struct spw_conf *conf, struct spw_conf_values *out,
                                     struct spw_error *err) SPW_WARN_UNUSED;
void spw_conf_values_clean_up(struct spw_conf_values *values);
const struct spw_conf_value *spw_conf_values_find(const struct spw_conf_values *values, const char *path);

struct spw_conf_change {
    const char *path;
    const char *before; /* "" = an account that was not there */
    const char *after;  /* "" = an account that is no more */
    const char *fixed;  /* as above */
};
/* Valid in the call. */
typedef void spw_conf_change_fn(void *owner, const struct spw_conf_change *change);
/* Each setting that differs, by path. An account that is only in one of them is one change: its whole. */
void spw_conf_values_diff(const struct spw_conf_values *before, const struct spw_conf_values *after,
                          spw_conf_change_fn *fn, void *owner);

#endif
