/* expiry.h: changes that go back by themselves. Internal to control/.
 *
 * Owns: struct spw_expiry, what each temporary change goes back to. Called by: limits.c, breakers.c, messages of both.
 * Thread: the loop's.
 */
#ifndef SPW_CONTROL_EXPIRY_H
#define SPW_CONTROL_EXPIRY_H

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/state/state.h"

#define SPW_EXPIRY_LEAST_MS UINT64_C(1000)
#define SPW_EXPIRY_MOST_MS  UINT64_C(604800000)

struct spw_control;
struct spw_expiry;

enum spw_expiry_kind { SPW_EXPIRY_LIMIT, SPW_EXPIRY_SWITCHES, SPW_EXPIRY_BREAKER };

/* What is changed, and how it was before: account "" and limiter "" for all, limiter "" for the account's. */
struct spw_temporary {
    enum spw_expiry_kind kind;
    char account[SPW_NAME_BYTES];
    char limiter[32];
    struct spw_conf_limit limit;
    uint64_t switches; /* of that level alone */
    struct spw_conf_breaker breaker;
    int forced; /* enum spw_forced */
};

struct spw_expiry *spw_expiry_new(struct spw_control *control);
void spw_expiry_destroy(struct spw_expiry *expiry);

/* 0, or within the range; names the field. */
enum spw_status spw_expiry_check(uint64_t for_ms, struct spw_error *err) SPW_WARN_UNUSED;
/* Is there a place for one more? Asked before the change is made. */
enum spw_status spw_expiry_room(struct spw_expiry *expiry, const struct spw_temporary *before,
                                struct spw_error *err) SPW_WARN_UNUSED;
/* The change was made, just now. for_ms 0: it stays, and an earlier one of the same thing no longer goes back. */
void spw_expiry_set(struct spw_expiry *expiry, const struct spw_temporary *before, uint64_t for_ms);
/* enum spw_forced of a view's word. */
int spw_forced_of_word(const char *word);

/* How long it stays, as fields of the messages. */
void spw_expiry_note_limit(const struct spw_expiry *expiry, Spillway__V1__Limit *message);
void spw_expiry_note_breaker(const struct spw_expiry *expiry, Spillway__V1__Breaker *message);

#endif
