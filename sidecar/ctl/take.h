/* take.h: one admission from the place of an application: what spillwayctl check looks at.
 *
 * Owns: nothing. Called by: check.c, which cannot see the client header itself: both it and client.h have a struct
 * spw_client. Thread: one.
 */
#ifndef SPW_CTL_TAKE_H
#define SPW_CTL_TAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spw_ctl_take {
    bool answered; /* by the segment, with yes or no; false: there is none here, or not this account */
    bool allowed;
    uint64_t tokens_milli; /* thousandths of a token that were in hand */
    const char *why;       /* static text: the cause of a no, or why there was no answer */
};

/* Takes one token of the account as a checkout process would and gives it back at once: it counts as never taken. The
 * segment is looked for where SPILLWAY_PUB_DIR and SPILLWAY_RW_DIR say. Attaches for the time of this call. */
void spw_ctl_take(const char *account, struct spw_ctl_take *out);

#endif
