/* call.h: one request's life, from being armed to its last completion. Internal to control/.
 *
 * Owns: struct spw_call. Called by: the method files (limits.c, ...) and server.c.
 * Thread: a call begins on the server's thread (the one that reads the completion queue) and may be carried to the
 * loop thread once by spw_call_to_loop or spw_call_at_once. Functions marked "any" may be called from both. A method touches its call only
 * on the thread it was called on, and no more after it has answered, except in the functions it registered.
 *
 * Each batch in flight, the job on the loop and the peer's presence hold the call; the last one to let go frees it.
 */
#ifndef SPW_CONTROL_CALL_H
#define SPW_CONTROL_CALL_H

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "sidecar/control/arena.h"
#include "sidecar/control/errors.h"
#include "sidecar/obs/error.h"

struct spw_call;
struct spw_control;
struct spw_door;
struct spw_method;

typedef void spw_call_fn(struct spw_call *call);
/* message NULL = the peer has no more, or is gone. Owned by the callee's caller: valid during the call. */
typedef void spw_call_message_fn(struct spw_call *call, ProtobufCMessage *message);

struct spw_event {
    void (*fn)(struct spw_call *call, bool ok);
    struct spw_call *call;
};

struct spw_call {
    struct spw_control *control;
    struct spw_door *door;
    const struct spw_method *method; /* NULL = the catch-all for unknown methods */
    ProtobufCMessage *request;       /* of unary and server-streaming methods, decoded */

    /* A method's own: what it keeps between two calls of its functions. */
    void *own;
    spw_call_fn *on_sent;            /* server's thread: the last spw_call_send is out; the next may follow */
    spw_call_message_fn *on_message; /* server's thread: what spw_call_receive asked for */
    spw_call_fn *on_closed;          /* server's thread: the peer is answered or gone */
    spw_call_fn *on_free;            /* any thread: free `own` */
    void *keeping;                   /* persist.c's, freed with the call */
    bool is_done;                    /* what was asked for is: it goes on though the caller has given up */

    /* Private to call.c and server.c. */
    grpc_call *grpc;
    grpc_call_details details;
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    grpc_byte_buffer *payload; /* first message, as received */
    grpc_byte_buffer *received;
    int closed_cancelled;
    bool begun;      /* counted by control */
    bool is_watched; /* in control's list of calls; its peer's end is waited for */
    atomic_uint holds;
    atomic_bool cancelled;
    bool initial_sent, sending, finished; /* under control's lock */
    bool end_wanted;                      /* under control's lock: end when the message in flight is out */
    struct spw_event new_event, close_event, send_event, recv_event, finish_event;
    struct spw_call *previous, *next; /* control's list of begun calls, under its lock */
    spw_call_fn *job;
    struct spw_call *job_next; /* control's queue of jobs, under its lock */
};

/* Make a call and have the server fill it with the next request of that method at that door (NULL = any unknown
 * method). Server's thread, or before the server starts. */
void spw_call_arm(struct spw_control *control, struct spw_door *door, const struct spw_method *method);

void spw_call_hold(struct spw_call *call);    /* any */
void spw_call_release(struct spw_call *call); /* any */

/* The peer gave up or its deadline passed: nothing it asked for should be begun any more. Any. */
bool spw_call_is_cancelled(const struct spw_call *call);

/* Run fn on the loop thread, in the order posted. When the loop runs no more the call is answered UNAVAILABLE. */
void spw_call_to_loop(struct spw_call *call, spw_call_fn *fn);
/* The same for what is short and changes no watch of the loop: as a visit of this thread where the loop waits
 * (spw_loop_enter), which spares the caller two changes of threads. Server's thread. */
void spw_call_at_once(struct spw_call *call, spw_call_fn *fn);
/* fn, unless the caller has given up. On the loop thread, or on a visit. */
void spw_call_run(struct spw_call *call, spw_call_fn *fn);

/* The last answer, exactly one of these; a second one is dropped. Any. */
void spw_call_reply(struct spw_call *call, const ProtobufCMessage *message);
void spw_call_finish(struct spw_call *call); /* OK without a message: the end of a stream */
void spw_call_fail(struct spw_call *call, const struct spw_error *err);
void spw_call_refuse(struct spw_call *call, grpc_status_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* UNAVAILABLE, "the sidecar is stopping", after a message in flight if there is one. Any. */
void spw_call_end_stopping(struct spw_call *call);

/* One message of a stream; false = one is still in flight, nothing was sent. on_sent tells when it is out. Any. */
bool spw_call_send(struct spw_call *call, const ProtobufCMessage *message);
/* Ask for the next message of the peer's stream; on_message gets it. One at a time. Any. */
void spw_call_receive(struct spw_call *call);

#endif
