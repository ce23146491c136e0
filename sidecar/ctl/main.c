/* main.c: spillwayctl, the command line of one sidecar's control API.
 *
 * Owns: nothing. Thread: one; gRPC core keeps some of its own.
 */
#include <signal.h>
#include <stdlib.h>

#include "sidecar/ctl/options.h"

static int run(struct spw_ctl *ctl, int argc, char **argv)
{
    const char *group;
    int code = spw_ctl_options_read(ctl, argc, argv, &group);
    if (code)
        return code;
    if (!ctl->help)
        return spw_ctl_done(ctl, ctl->command->run(ctl));
    spw_ctl_options_help(group, ctl->command);
    return spw_ctl_done(ctl, SPW_CTL_OK);
}

int main(int argc, char **argv)
{
    struct spw_ctl ctl = {0};
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is told as a failure to write */
    int code = run(&ctl, argc, argv);
    free(ctl.words);
    return code;
}
