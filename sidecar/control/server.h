/* server.h: the server's own state, seen by call.c, health.c, rates.c and status.c. Internal to control/.
 *
 * Owns: struct spw_control. Called by: control/ only. Thread: see each field.
 */
#ifndef SPW_CONTROL_SERVER_H
#define SPW_CONTROL_SERVER_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sidecar/control/call.h"
#include "sidecar/control/control.h"
#include "sidecar/control/demand.h"
#include "sidecar/control/expiry.h"
#include "sidecar/control/journal.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/record.h"
#include "sidecar/control/schema.h"
#include "sidecar/control/socket.h"
#include "sidecar/control/tls.h"
#include "sidecar/loop/loop.h"

/* A way in. Each is a gRPC server of its own on the one completion queue, so that what a call may do follows from
 * where it arrived and from nothing the peer says or the kernel might reuse (a descriptor's number). */
struct spw_door {
    const char *name;    /* for the log */
    const char *refusal; /* the end of a PERMISSION_DENIED text: what to do */
    enum spw_role role;  /* the most it gives; of the TLS door each certificate has its own */
    grpc_server *server;
    void *handles[SPW_METHODS_COUNT];
};

enum { SPW_DOOR_ADMIN, SPW_DOOR_OPERATE, SPW_DOOR_READ, SPW_DOOR_TCP, SPW_DOOR_TLS, SPW_DOORS_COUNT };

struct spw_control {
    /* Constant after the start. */
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_reconcile *reconcile;
    char version[32];
    uint64_t started_ns;
    uint16_t tcp_port;
    grpc_completion_queue *queue;
    struct spw_schema *schema;
    struct spw_control_tls *tls; /* NULL = no such door */
    const struct spw_conf *conf;
    const struct spw_conf_live *live; /* loop thread */
    char refusals[SPW_DOORS_COUNT][256];
    struct spw_door doors[SPW_DOORS_COUNT]; /* server NULL = not opened */
    pthread_t thread;

    /* Loop thread. */
    struct spw_control_socket socket;
    struct spw_loop_watch watch;
    bool listening;              /* the watch has the socket's descriptor */
    struct spw_loop_timer pause; /* after a failed accept: descriptors may be short */

    atomic_bool draining;
    atomic_uint doors_open;
    atomic_uint alive; /* calls, armed ones included: 0 = nothing will come from the queue any more */
    atomic_uint begun; /* calls begun and not yet freed */

    pthread_mutex_t lock; /* the fields down to the next empty line, and those of a call that say so */
    struct spw_call *calls;
    struct spw_call *jobs, **jobs_end;
    bool jobs_posted, loop_gone;
    struct spw_loop_task task;

    struct spw_journal *journal;
    struct spw_record *record; /* loop thread, as the next two */
    struct spw_expiry *expiry;
    struct spw_demand *demand;
    pthread_mutex_t watch_lock; /* taken before lock */

    pthread_mutex_t health_lock; /* taken before lock */
    atomic_bool serving;

    atomic_uint_fast64_t ended[4]; /* calls: answered, invalid, denied, failed */

    struct spw_call *replacing; /* server's thread: the Rates.Replace under way */
};

#endif
