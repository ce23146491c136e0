/* messages.h: from plain structs to the messages of control.proto. Internal to control/.
 *
 * Owns: nothing; what is returned lives in the arena and may borrow from the struct given. Called by: the method files.
 * Thread: any; pure.
 */
#ifndef SPW_CONTROL_MESSAGES_H
#define SPW_CONTROL_MESSAGES_H

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/control/arena.h"
#include "sidecar/control/call.h"
#include "sidecar/state/state.h"
#include "sidecar/store/store.h"

/* An optional scalar: its value and that it is there. */
#define SPW_SET(message, field, value) ((message)->has_##field = 1, (message)->field = (value))

#define SPW_REACH "this pod"

Spillway__V1__Rate *spw_message_rate(struct spw_arena *arena, const struct spw_rate *rate);
/* Text, numbers, or both if they agree. */
enum spw_status spw_take_rate(const Spillway__V1__Rate *message, struct spw_rate *out,
                              struct spw_error *err) SPW_WARN_UNUSED;
Spillway__V1__Limit *spw_message_limit(struct spw_arena *arena, const struct spw_limit_view *view);
Spillway__V1__Breaker *spw_message_breaker(struct spw_arena *arena, const struct spw_breaker_view *view);
Spillway__V1__RatesTable *spw_message_rates_table(struct spw_arena *arena, const struct spw_rates_view *view);
Spillway__V1__TaxRate *spw_message_tax_rate(struct spw_arena *arena, uint32_t ppb);
Spillway__V1__Money *spw_message_money(struct spw_arena *arena, int64_t minor);
/* NULL when all 32 bytes are 0: not stated. */
char *spw_message_sha256(struct spw_arena *arena, const uint8_t sha256[32]);
Spillway__V1__Flag *spw_message_flag(struct spw_arena *arena, const struct spw_flag_row *row);

/* Breaker and gate of an account as they are now (breakers.c); false: there is none, and the call has failed. */
bool spw_breaker_view_of(struct spw_call *call, const char *account, struct spw_breaker_view *view);

#endif
