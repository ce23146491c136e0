/* secret.h: a credential by reference, re-read when its file changes.
 *
 * Owns: the credential's bytes in memory. Called by: decide.c. Thread: loop thread. Never logged, never in an error.
 */
#ifndef SPW_HTTP_SECRET_H
#define SPW_HTTP_SECRET_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "sidecar/conf/conf.h"

struct spw_secret {
    const struct spw_conf_secret *conf;
    char value[SPW_CONF_SECRET_MAX_BYTES + 1];
    uint64_t checked_ns;
    struct timespec modified;
    uint64_t inode;
    off_t size_bytes;
};

void spw_secret_init(struct spw_secret *secret, const struct spw_conf_secret *conf);
/* The credential; looks at the file at most once a second. When it cannot be used any more the last good one stays in
 * use (a mounted Secret is swapped in steps) and the reason is logged; NULL when there never was one. */
const char *spw_secret_get(struct spw_secret *secret, uint64_t now_ns);
/* Its reference may have changed: look at it at the next use. */
void spw_secret_look(struct spw_secret *secret);
void spw_secret_clean_up(struct spw_secret *secret); /* wipes it */

#endif
