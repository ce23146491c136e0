/* flags.h: the commands of the group flags that have a file of their own.
 *
 * Owns: nothing. Called by: the table in flags.c. Thread: one.
 */
#ifndef SPW_CTL_FLAGS_H
#define SPW_CTL_FLAGS_H

#include "sidecar/ctl/ctl.h"

int spw_flags_run_export(struct spw_ctl *ctl);
int spw_flags_run_import(struct spw_ctl *ctl);
int spw_flags_run_report(struct spw_ctl *ctl);

#endif
