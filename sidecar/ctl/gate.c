/* gate.c: spillwayctl gate get | open | shut.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"

static void print_gate(const Spillway__V1__Gate *gate)
{
    char span[32];
    struct spw_table table = {.columns_count = 2};
    spw_format_span(gate->shut_for_ms, span, sizeof span);
    spw_table_add(&table, "account");
    spw_table_add(&table, "%s", gate->account);
    spw_table_add(&table, "gate");
    if (gate->shut_for_ms)
        spw_table_add(&table, "shut for %s (%s)", span, gate->source ? gate->source : "?");
    else
        spw_table_add(&table, "open");
    spw_table_add(&table, "version");
    spw_table_add(&table, "%" PRIu64, gate->version);
    spw_table_print(&table);
}

static void show_gate(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    const Spillway__V1__Gate *gate = ((const Spillway__V1__GetGateReply *)reply)->gate;
    (void)request;
    if (gate)
        print_gate(gate);
}

static int run_get(struct spw_ctl *ctl)
{
    Spillway__V1__GetGateRequest request = SPILLWAY__V1__GET_GATE_REQUEST__INIT;
    request.account = ctl->arguments[0];
    return spw_client_show(ctl, "/spillway.v1.Gates/Get", &request.base,
                           &spillway__v1__get_gate_reply__descriptor, show_gate);
}

static void show_set(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    const Spillway__V1__SetGateReply *done = (const Spillway__V1__SetGateReply *)reply;
    (void)request;
    if (!done->gate)
        return;
    print_gate(done->gate);
    printf("%s\n", done->dry_run ? "Nothing was changed (dry run)." : "In force in this pod.");
}

static int set(struct spw_ctl *ctl, uint64_t shut_for_ms)
{
    Spillway__V1__SetGateRequest request = SPILLWAY__V1__SET_GATE_REQUEST__INIT;
    bool has_version;
    if (!spw_ctl_number(ctl, "--expect-version", 1, UINT64_MAX, &request.expect_version, &has_version))
        return SPW_CTL_USAGE;
    request.account = ctl->arguments[0];
    request.has_expect_version = has_version;
    request.has_shut_for_ms = 1;
    request.shut_for_ms = shut_for_ms;
    request.has_dry_run = request.dry_run = spw_ctl_value(ctl, "--dry-run") != NULL;
    return spw_client_show(ctl, "/spillway.v1.Gates/Set", &request.base,
                           &spillway__v1__set_gate_reply__descriptor, show_set);
}

static int run_open(struct spw_ctl *ctl)
{
    return set(ctl, 0);
}

static int run_shut(struct spw_ctl *ctl)
{
    uint64_t for_ms = 0;
    bool has_for;
    if (!spw_ctl_for(ctl, &for_ms, &has_for))
        return SPW_CTL_USAGE;
    return has_for ? set(ctl, for_ms) : spw_ctl_usage(ctl, "say how long: --for 10m, at most a day");
}

const struct spw_ctl_command spw_ctl_gate_commands[] = {
    {.group = "gate",
     .name = "get",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Whether calls have to wait, why, and how long.",
     .examples = "  spillwayctl gate get main\n",
     .run = run_get},
    {.group = "gate",
     .name = "open",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Open it now, whatever the provider asked for.",
     .examples = "  spillwayctl gate open main\n",
     .options = {{"--expect-version", "N", "refuse if the account is at another version"},
                 {"--dry-run", NULL, "say what would be; change nothing"}},
     .run = run_open},
    {.group = "gate",
     .name = "shut",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Let no first attempt out for a time.",
     .examples = "  spillwayctl gate shut main --for 10m\n",
     .options = {{"--for", "TIME", "so long, 1s to 1d"},
                 {"--expect-version", "N", "refuse if the account is at another version"},
                 {"--dry-run", NULL, "say what would be; change nothing"}},
     .run = run_shut},
    {.name = NULL}};
