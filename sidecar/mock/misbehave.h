/* misbehave.h: the ways in which the scripted provider breaks HTTP on purpose.
 *
 * Owns: nothing. Called by: server.c. Thread: the connection's.
 */
#ifndef SPW_MOCK_MISBEHAVE_H
#define SPW_MOCK_MISBEHAVE_H

#include "sidecar/mock/server.h"

/* reset, close, stall, garbage: done on the connection itself. Always MHD_NO: the daemon then drops the connection. */
enum MHD_Result spw_mock_misbehave(const struct spw_mock_server *server, struct MHD_Connection *connection,
                                   enum spw_mock_action action);
/* trickle, wrong-length, huge: a response that goes wrong while it is sent. body is copied. NULL: no memory. */
struct MHD_Response *spw_mock_bad_response(const struct spw_mock_server *server,
                                           struct MHD_Connection *connection, enum spw_mock_action action,
                                           uint64_t trickle_ms, const char *body);

#endif
