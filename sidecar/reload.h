/* reload.h: the configuration file read again, at SIGHUP and when it has changed: all of it or nothing.
 *
 * Owns: struct spw_conf_live, the look at the file, and a thread while it reads. Called by: main. Thread: the loop's; the
 * file, the secrets it names and new rate tables are read on a thread of its own.
 *
 * What cannot change under running applications (the segment's plan, doors, the ledger) is refused, and then nothing is
 * changed. What the file does not change stays as it is: buckets keep their tokens, and what an operator set at run time
 * stays, unless the file changed that very limit or breaker. What is kept by hand (conf_overlay.h) lies over the file.
 */
#ifndef SPW_RELOAD_H
#define SPW_RELOAD_H

#include "sidecar/conf/conf_live.h"
#include "sidecar/http/pass_door.h"
#include "sidecar/rate_files.h"

struct spw_control;
struct spw_reload;

struct spw_reload_options {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_decider *decider;
    struct spw_pass_doors *pass_doors;
    struct spw_rate_watch **rate_watch; /* main's: it is made anew when the watched directory changes */
    struct spw_conf_live *live;         /* main's */
    struct spw_control *control;        /* is told how each went */
};

/* The log's level and form as configured; the store's care likewise. */
void spw_conf_log_apply(const struct spw_conf *conf);
struct spw_store_care spw_conf_store_care(const struct spw_conf *conf);

enum spw_status spw_reload_new(const struct spw_reload_options *options, struct spw_reload **out,
                               struct spw_error *err) SPW_WARN_UNUSED;
/* Read it now (SIGHUP); one that is under way is followed by another. */
void spw_reload_ask(struct spw_reload *reload);
void spw_reload_destroy(struct spw_reload *reload); /* after the loop has stopped; NULL is fine */

#endif
