/* credentials.h: what spillwayctl shows the sidecar, and what it trusts: plain, or mutual TLS.
 *
 * Owns: nothing. Called by: options.c (what is given), client.c (the channel's credentials). Thread: one.
 */
#ifndef SPW_CTL_CREDENTIALS_H
#define SPW_CTL_CREDENTIALS_H

#include <grpc/grpc_security.h>

#include "sidecar/ctl/ctl.h"

/* The command line before the environment; with which none, some or all were given. 0 or SPW_CTL_USAGE, told. */
int spw_credentials_settle(struct spw_ctl *ctl);

/* Reads the files and looks whether they can be used together, so that a wrong one is named; the caller releases. */
int spw_credentials_new(const struct spw_ctl *ctl, grpc_channel_credentials **out);

#endif
