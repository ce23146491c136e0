/* main.c: spillwayctl, the command line of one sidecar's control API.
 *
 * Owns: nothing. Thread: one; gRPC core keeps some of its own.
 */
#include <signal.h>
#include <stddef.h>

#include "sidecar/ctl/options.h"

int main(int argc, char **argv)
{
    struct spw_ctl ctl = {0};
    const char *group;
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is told as a failure to write */
    int code = spw_ctl_options_read(&ctl, argc, argv, &group);
    if (code)
        return code;
    if (ctl.help) {
        spw_ctl_options_help(group, ctl.command);
        return spw_ctl_done(&ctl, SPW_CTL_OK);
    }
    return spw_ctl_done(&ctl, ctl.command->run(&ctl));
}
