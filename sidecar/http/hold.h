/* hold.h: an answer that is sent when what it tells of is durable.
 *
 * Owns: the answer while it is held. Called by: the quote door. Thread: the loop thread.
 *
 * What is recorded survives every process; what is durable survives the node as far as its volume does. Who asks for the
 * latter (Spillway-Wait: durable) gets the answer after the commit that carried its flag or order, a few milliseconds
 * later, with Spillway-Durable: 1; with 0 when the volume would not have it: the answer is good all the same, and what
 * it tells of becomes durable by itself as soon as the volume can be written to.
 */
#ifndef SPW_HTTP_HOLD_H
#define SPW_HTTP_HOLD_H

#include <stdbool.h>

#include "sidecar/http/door.h"
#include "sidecar/store/store.h"

struct spw_hold;

/* What a request's user begins with where holds and others take turns. */
struct spw_hold_mark {
    bool held; /* it is a hold */
};

/* Hold the answer. The headers are copied, text is malloc'ed and taken over. Becomes the request's user. false: no
 * memory, nothing was taken. */
bool spw_hold_answer(struct spw_store *store, struct spw_door_request *request, uint32_t status,
                     const struct spw_door_header *headers, size_t count, char *text) SPW_WARN_UNUSED;
/* The caller hung up; the hold frees itself when its commit is through. */
void spw_hold_gone(struct spw_hold *hold);

#endif
