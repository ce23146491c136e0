/* quote_door.h: POST /spillway/v1/quote, POST /spillway/v1/orders, POST /spillway/v1/orders/{id}/cancel.
 *
 * Owns: the JSON form of quotes and orders, and who may ask. Called by: main. Thread: the loop thread.
 *
 * Two doors, one set of handlers: a Unix socket (whoever may open it may ask) and, where configured, a loopback port,
 * which asks for the local token: without it the port would serve every container of the pod.
 */
#ifndef SPW_HTTP_QUOTE_DOOR_H
#define SPW_HTTP_QUOTE_DOOR_H

#include "sidecar/http/decide.h"

struct spw_quote_door;

struct spw_quote_door_options {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_decider *decider;
    const char *unix_path;
    uint32_t gid;           /* UINT32_MAX = leave */
    bool refuse_own_uid;    /* turn away callers of the Unix socket that run as the sidecar's own user */
    const char *listen;     /* loopback; "" = none */
    const char *token_file; /* made afresh at each start, 0640; used by the loopback port only */
};

enum spw_status spw_quote_door_new(const struct spw_quote_door_options *options, struct spw_quote_door **out,
                                   struct spw_error *err) SPW_WARN_UNUSED;
void spw_quote_door_stop_listening(struct spw_quote_door *door);
uint32_t spw_quote_door_open_count(const struct spw_quote_door *door);
void spw_quote_door_destroy(struct spw_quote_door *door);

#endif
