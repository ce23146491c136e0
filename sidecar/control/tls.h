/* tls.h: the credentials of the control API's TLS door, and what a client's certificate may do. Internal to control/.
 *
 * Owns: struct spw_control_tls. Called by: server.c, call.c. Thread: files are looked at on gRPC's threads, at each new
 * connection, behind a lock; roles are constant.
 */
#ifndef SPW_CONTROL_TLS_H
#define SPW_CONTROL_TLS_H

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "sidecar/control/role.h"
#include "sidecar/obs/error.h"

struct spw_control_tls;

/* INVALID: the files are no certificate, key and authorities that go together. conf is copied;
 * *credentials is the caller's. */
enum spw_status spw_control_tls_new(const struct spw_conf_control_tls *conf, struct spw_control_tls **out,
                                    grpc_server_credentials **credentials,
                                    struct spw_error *err) SPW_WARN_UNUSED;
/* The same look at the files, and nothing else. */
enum spw_status spw_control_tls_check(const struct spw_conf_control_tls *conf,
                                      struct spw_error *err) SPW_WARN_UNUSED;
void spw_control_tls_destroy(struct spw_control_tls *tls); /* after the server; NULL is fine */

/* The highest role of the names in the peer's certificate, which the handshake has verified. */
enum spw_role spw_control_tls_role(const struct spw_control_tls *tls, grpc_call *call);

#endif
