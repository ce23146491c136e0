/* control.h: the scripted provider's own paths below /mock/: script, counters, reset.
 *
 * Owns: nothing. Called by: server.c. Thread: the connection's.
 */
#ifndef SPW_MOCK_CONTROL_H
#define SPW_MOCK_CONTROL_H

#include "sidecar/mock/server.h"

struct spw_mock_reply spw_mock_control_answer(struct spw_mock_server *server, const char *method,
                                              const char *path, const char *body, size_t bytes);

#endif
