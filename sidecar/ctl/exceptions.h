/* exceptions.h: what the commands on exceptions share.
 *
 * Owns: nothing. Called by: exceptions.c, exceptions_upload.c. Thread: one.
 */
#ifndef SPW_CTL_EXCEPTIONS_H
#define SPW_CTL_EXCEPTIONS_H

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/ctl.h"

/* --by, or the name of who runs this; NULL = there is neither, told. */
const char *spw_exceptions_by(const struct spw_ctl *ctl);
/* All or none. refused(owner, index, why) is called for each that is refused. */
typedef void spw_refused_fn(void *owner, uint32_t index, const char *why);
int spw_exceptions_decide_all(const struct spw_ctl *ctl, Spillway__V1__ExceptionDecision **decisions,
                              size_t count, spw_refused_fn *refused, void *owner);
int spw_exceptions_run_upload(struct spw_ctl *ctl);

#endif
