/* pass_door.h: the pass-through doors: one listener per account that has `listen:`, for the provider's own SDKs.
 *
 * Owns: the listeners, the documents that were quoted through them. Called by: main. Thread: the loop thread.
 */
#ifndef SPW_HTTP_PASS_DOOR_H
#define SPW_HTTP_PASS_DOOR_H

#include "sidecar/http/decide.h"

struct spw_pass_doors;

struct spw_pass_doors_options {
    struct spw_loop *loop;
    struct spw_state *state;
    struct spw_store *store;
    struct spw_decider *decider;
    const struct spw_conf *conf;
    const char *token_file; /* the pod's token, for accounts that configure none */
};

/* Listens at once; no account with `listen:` is fine. */
enum spw_status spw_pass_doors_new(const struct spw_pass_doors_options *options, struct spw_pass_doors **out,
                                   struct spw_error *err) SPW_WARN_UNUSED;
/* A reload: as spw_decider_reload_begin; the doors of accounts that fresh adds. Undo closes all but the first count. */
enum spw_status spw_pass_doors_reload_begin(struct spw_pass_doors *doors, const struct spw_conf *fresh,
                                            struct spw_error *err) SPW_WARN_UNUSED;
void spw_pass_doors_reload_undo(struct spw_pass_doors *doors, uint32_t count);
uint32_t spw_pass_doors_count(const struct spw_pass_doors *doors);
void spw_pass_doors_stop_listening(struct spw_pass_doors *doors);
uint32_t spw_pass_doors_open_count(const struct spw_pass_doors *doors);
void spw_pass_doors_destroy(struct spw_pass_doors *doors);

#endif
