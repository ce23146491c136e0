/* admin.h: /metrics, /healthz, /readyz on their own port.
 *
 * Owns: the admin door. Called by: main. Thread: the loop thread. Answers while everything else is refused or shed.
 */
#ifndef SPW_HTTP_ADMIN_H
#define SPW_HTTP_ADMIN_H

#include "sidecar/conf/conf_live.h"
#include "sidecar/http/decide.h"

struct spw_admin;
struct spw_reconcile;

struct spw_admin_options {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_decider *decider;
    struct spw_reconcile *reconcile; /* NULL: nothing is reconciled */
    const struct spw_conf *conf;
    const struct spw_conf_live *live; /* how reloads of the configuration went */
    const char *listen;
    /* Lines read from the spool directory: imported, known before, bad. NULL: there is none. */
    void (*spool_counts)(void *owner, uint64_t lines[3]);
    void *spool_owner;
    /* Calls of the control API: answered, invalid, denied, failed. */
    void (*control_counts)(void *owner, uint64_t calls[4]);
    void *control_owner;
};

enum spw_status spw_admin_new(const struct spw_admin_options *options, struct spw_admin **out,
                              struct spw_error *err) SPW_WARN_UNUSED;
/* Ready = segment, store and listeners are there. Never the provider's, the rates' or the disk's health. */
void spw_admin_set_ready(struct spw_admin *admin, bool ready);
void spw_admin_destroy(struct spw_admin *admin);

/* The exposition, in Prometheus' text format; malloc'ed, NULL without memory. */
char *spw_metrics_text(const struct spw_admin_options *sources);

#endif
