/* control.h: the control API over gRPC: proto/spillway/v1/control.proto, health and reflection.
 *
 * Owns: the control sockets, the gRPC server and its one thread. Called by: main. Thread: every function here is for
 * the loop thread, except spw_control_serving_set, which any thread may call.
 *
 * What touches the segment is posted to the loop and runs there, or, when it is short, on a visit of the server's thread
 * between two turns (spw_loop_enter); gRPC's own threads never touch it. Flags are read from the store on the server's
 * thread, page by page.
 *
 *     spw_control_start ... spw_control_serving_set(true) ... spw_control_drain ... (loop runs on) ... spw_control_stop
 */
#ifndef SPW_CONTROL_CONTROL_H
#define SPW_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sidecar/obs/error.h"

struct spw_conf;
struct spw_conf_live;
struct spw_loop;
struct spw_state;
struct spw_reconcile;
struct spw_store;
struct spw_control;

struct spw_control_options {
    const char *unix_path;  /* absolute; the lock file is beside it (".lock") */
    mode_t mode;            /* of the socket; 0 = 0660 */
    uint32_t gid;           /* group of the socket; UINT32_MAX = the process's own */
    const char *tcp_listen; /* loopback "127.0.0.1:8391", "[::1]:8391", plain, read only; NULL or "" = none */
    const struct spw_conf
        *conf; /* control_tls and control_uids; NULL = neither. Stays for as long as the server */
    const struct spw_conf_live *live; /* what Config shows; NULL = nothing. Stays for as long as the server */
    const char *version;              /* shown in the status */
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_reconcile *reconcile; /* NULL: nothing is reconciled */
};

/* What spw_control_start would find wrong with the files of listen.control_tls; for --check-config. */
enum spw_status spw_control_check(const struct spw_conf *conf, struct spw_error *err) SPW_WARN_UNUSED;

/* Opens the sockets and starts the thread; calls are answered as soon as the loop runs. Health says NOT_SERVING until
 * spw_control_serving_set. Fails with BUSY when a living sidecar holds the socket, INVALID or CONFLICT for a path or address
 * that cannot be used, SYSTEM otherwise; nothing is left behind then. The options' texts are copied. */
enum spw_status spw_control_start(const struct spw_control_options *options, struct spw_control **out,
                                  struct spw_error *err) SPW_WARN_UNUSED;

/* The port of tcp_listen (it may be given as 0), 0 = none. */
uint16_t spw_control_tcp_port(const struct spw_control *control);

/* Around a reload of the configuration, for the journal: what moved before is not put down to it, and what it did, or
 * why it was refused (NULL = it was taken), is told to watchers and auditors. */
void spw_control_reload_begin(struct spw_control *control);
void spw_control_reload_end(struct spw_control *control, uint32_t changes_count, const char *refusal);

/* Calls that ended since the start: answered, invalid, denied, failed. Any thread. */
void spw_control_counts(const struct spw_control *control, uint64_t calls[4]);

/* What grpc.health.v1 answers, and every Watch is told. Any thread. */
void spw_control_serving_set(struct spw_control *control, bool serving);

/* No new connection or call; health says NOT_SERVING; calls in progress go on; streams that only wait are ended. */
void spw_control_drain(struct spw_control *control);
/* After spw_control_drain: no call is left. */
bool spw_control_is_drained(const struct spw_control *control);

/* Ends what is left (UNAVAILABLE), stops the thread, removes the socket, frees. For after spw_loop_run has returned,
 * before the loop, state and store are closed. NULL is allowed. */
void spw_control_stop(struct spw_control *control);

#endif
