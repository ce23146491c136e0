/* options.h: the command line of spillwayctl: reading it and explaining it.
 *
 * Owns: the option grammar and the help texts. Called by: main.c. Thread: one.
 */
#ifndef SPW_CTL_OPTIONS_H
#define SPW_CTL_OPTIONS_H

#include "sidecar/ctl/ctl.h"

/* Reads everything; ctl->command is set unless help of a higher level is asked for. 0 or SPW_CTL_USAGE, told. */
int spw_ctl_options_read(struct spw_ctl *ctl, int argc, char **argv, const char **group);
/* Help of the whole program (group and command NULL), a group, or a command. */
void spw_ctl_options_help(const char *group, const struct spw_ctl_command *command);

#endif
