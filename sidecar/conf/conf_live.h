/* conf_live.h: the configuration in use, and how its reloads went.
 *
 * Owns: nothing. Filled by: reload.c. Read by: metrics, control/ (show, diff, status). Thread: the loop thread.
 */
#ifndef SPW_CONF_CONF_LIVE_H
#define SPW_CONF_CONF_LIVE_H

#include "sidecar/conf/conf.h"

struct spw_conf_live {
    const char *path;            /* of the file */
    struct spw_conf *conf;       /* as the file said when it was last taken */
    uint64_t reloads_count;      /* that were taken, or found nothing changed */
    uint64_t failures_count;     /* that were refused: the last good one stayed in force */
    int64_t last_success_unix_s; /* the start counts */
    char last_error[768];        /* of the last reload; "" = it was taken */
};

#endif
