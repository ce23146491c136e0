/* client.h: calls to the sidecar over gRPC core, one at a time and waited for.
 *
 * Owns: the channel and the completion queue. Called by: the command files. Thread: one.
 *
 * Failures are told on stderr by the function that meets them; what is returned is the exit code.
 */
#ifndef SPW_CTL_CLIENT_H
#define SPW_CTL_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "sidecar/ctl/ctl.h"

struct spw_client;
struct spw_client_call;

/* Looks whether anybody listens, so that "nobody" is told at once and exactly. */
int spw_client_open(const struct spw_ctl *ctl, struct spw_client **out);
void spw_client_close(struct spw_client *client);

/* Open, one request, one reply, close. *reply is freed by protobuf_c_message_free_unpacked; NULL unless SPW_CTL_OK. */
int spw_client_unary(const struct spw_ctl *ctl, const char *method, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply);

/* What people read of the reply to that request. */
typedef void spw_show_fn(const ProtobufCMessage *request, const ProtobufCMessage *reply);
/* The same, and the reply shown: as JSON when the command line asks for it, else by `show`. */
int spw_client_show(const struct spw_ctl *ctl, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *descriptor, spw_show_fn *show);

/* Streams. timeout_ms is used unless the command line gives one. */
struct spw_client_call *spw_client_begin(struct spw_client *client, const char *method, uint64_t timeout_ms);
bool spw_client_send(struct spw_client_call *call,
                     const ProtobufCMessage *message); /* false = it has ended */
void spw_client_send_end(struct spw_client_call *call);
/* The next message; NULL = there is none. */
ProtobufCMessage *spw_client_receive(struct spw_client_call *call,
                                     const ProtobufCMessageDescriptor *descriptor);
/* Give up: the status, which is no failure to tell, is then waited for by spw_client_end. */
void spw_client_cancel(struct spw_client_call *call);
/* Waits for the status, tells a failure, frees the call. */
int spw_client_end(struct spw_client_call *call);

#endif
