/* breaker.h: a breaker's state in a few words, as status, why and breaker itself print it.
 *
 * Owns: nothing. Called by: the command files. Thread: one.
 */
#ifndef SPW_CTL_BREAKER_H
#define SPW_CTL_BREAKER_H

#include <stddef.h>

#include "proto/spillway/v1/control.pb-c.h"

/* What calls meet: "closed", or when somebody holds it "open, held by hand". Room at least 64 bytes. */
void spw_breaker_words(const Spillway__V1__Breaker *breaker, char *out, size_t room);

#endif
