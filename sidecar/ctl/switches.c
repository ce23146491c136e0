/* switches.c: spillwayctl kill | observe: a limiter's switches by one command, for one, an account's or all.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <stdio.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"

static void show_done(const ProtobufCMessage *message, const ProtobufCMessage *reply)
{
    const Spillway__V1__SetLimitRequest *request = (const Spillway__V1__SetLimitRequest *)message;
    bool dry_run = request->dry_run;
    (void)reply;
    bool kill = request->has_killed;
    bool on = kill ? request->killed : request->observed_only;
    const char *what = kill ? (on ? "off: it admits everything and charges nothing" : "on again")
                            : (on ? "observes: it counts and refuses nothing" : "enforces again");
    printf("%s%s%s%s: %s%s.\n",
           request->everywhere ? "every limiter"
           : request->limiter  ? "limiter "
                               : "all limiters",
           request->limiter ? request->limiter : "", request->everywhere ? "" : " of ",
           request->everywhere ? "" : request->account, dry_run ? "would be " : "", what);
    spw_print_in_force(dry_run, request->for_ms);
}

static int run(struct spw_ctl *ctl, bool kill)
{
    Spillway__V1__SetLimitRequest request = SPILLWAY__V1__SET_LIMIT_REQUEST__INIT;
    bool on = !spw_ctl_value(ctl, "--off"), has_for;
    if (!spw_ctl_for(ctl, &request.for_ms, &has_for))
        return SPW_CTL_USAGE;
    request.has_for_ms = has_for;
    request.account = ctl->arguments_count ? ctl->arguments[0] : NULL;
    request.limiter = (char *)spw_ctl_value(ctl, "--limiter"); /* protobuf-c has no const, and only reads */
    request.has_everywhere = request.everywhere = spw_ctl_value(ctl, "--everywhere") != NULL;
    if (!request.account == !request.everywhere)
        return spw_ctl_usage(ctl, "say which: an account, or --everywhere");
    request.has_killed = kill;
    request.killed = on;
    request.has_observed_only = !kill;
    request.observed_only = on;
    request.has_dry_run = request.dry_run = spw_ctl_value(ctl, "--dry-run") != NULL;
    return spw_client_show(ctl, "/spillway.v1.Limits/Set", &request.base,
                           &spillway__v1__set_limit_reply__descriptor, show_done);
}

static int run_kill(struct spw_ctl *ctl)
{
    return run(ctl, true);
}

static int run_observe(struct spw_ctl *ctl)
{
    return run(ctl, false);
}

#define SWITCH(word, text, fn)                                                                               \
    {                                                                                                        \
        .name = (word), .arguments = "[ACCOUNT]", .arguments_max = 1, .summary = (text),                     \
        .examples = "  spillwayctl " word " main\n  spillwayctl " word " main --limiter calculations\n"      \
                    "  spillwayctl " word " --everywhere --for 30m\n  spillwayctl " word " main --off\n",    \
        .options = {{"--limiter", "NAME", "one of the account's limiters instead of all of them"},           \
                    {"--everywhere", NULL, "all accounts"},                                                  \
                    {"--off", NULL, "back to work"},                                                         \
                    {"--for", "TIME", "goes back by itself after it, 1s to 7d"},                             \
                    {"--dry-run", NULL, "say what would be; change nothing"}},                               \
        .run = (fn)                                                                                          \
    }

const struct spw_ctl_command spw_ctl_switches_commands[] = {
    SWITCH("kill", "Switch limiters off: everything is admitted, nothing charged.", run_kill),
    SWITCH("observe", "Limiters decide and count, and refuse nothing.", run_observe),
    {.name = NULL}};
