/* limits.c: spillwayctl limits list | get | set.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"

static void add_row(struct spw_table *table, const Spillway__V1__Limit *limit)
{
    bool wide = !limit->limiter || strcmp(limit->limiter, "account") == 0;
    spw_table_add(table, "%s%s%s", limit->account, wide ? "" : "/", wide ? "" : limit->limiter);
    char span[32] = "", switches[32] = "";
    if (limit->expires_in_ms)
        spw_format_span(limit->expires_in_ms, span, sizeof span);
    if (limit->switches_expire_in_ms)
        spw_format_span(limit->switches_expire_in_ms, switches, sizeof switches);
    spw_table_add(table, "%s%s%s", limit->rate ? limit->rate->text : "-", *span ? " for " : "", span);
    spw_table_add(table, "%" PRIu64, limit->burst);
    spw_table_add(table, "%u", limit->pods);
    spw_table_add(table, "%s", limit->pod_rate ? limit->pod_rate->text : "-");
    spw_table_add(table, "%" PRIu64, limit->pod_burst);
    spw_table_add(table, "%" PRIu64 ".%03" PRIu64, limit->tokens_milli / 1000, limit->tokens_milli % 1000);
    if (limit->has_provider_limit)
        spw_table_add(table, "%" PRIu64 "%s", limit->provider_limit,
                      limit->provider_limit_adopted   ? " (obeyed)"
                      : limit->provider_limit_differs ? " (differs)"
                                                      : "");
    else
        spw_table_add(table, "-");
    if (limit->has_provider_remaining)
        spw_table_add(table, "%" PRIu64, limit->provider_remaining);
    else
        spw_table_add(table, "-");
    spw_table_add(table, "%s%s%s",
                  limit->killed          ? "off"
                  : limit->observed_only ? "observe"
                                         : "on",
                  *switches ? " for " : "", switches);
    spw_table_add(table, "%" PRIu64, limit->version);
}

static void print_limits(Spillway__V1__Limit **limits, size_t count)
{
    static const char *const titles[] = {"ACCOUNT",    "RATE",    ">BURST",  ">PODS",
                                         "THIS POD",   ">BURST",  ">TOKENS", ">TOLD LIMIT",
                                         ">REMAINING", "LIMITER", ">VERSION"};
    struct spw_table table = {.columns_count = sizeof titles / sizeof *titles, .titles = titles};
    for (size_t i = 0; i < count; i++)
        add_row(&table, limits[i]);
    spw_table_print(&table);
}

static void show_list(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    const Spillway__V1__ListLimitsReply *list = (const Spillway__V1__ListLimitsReply *)reply;
    (void)request;
    print_limits(list->limits, list->n_limits);
}

static int run_list(struct spw_ctl *ctl)
{
    Spillway__V1__ListLimitsRequest request = SPILLWAY__V1__LIST_LIMITS_REQUEST__INIT;
    return spw_client_show(ctl, "/spillway.v1.Limits/List", &request.base,
                           &spillway__v1__list_limits_reply__descriptor, show_list);
}

static void show_one(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
    Spillway__V1__Limit *limit = ((const Spillway__V1__GetLimitReply *)reply)->limit;
    (void)request;
    if (limit)
        print_limits(&limit, 1);
}

static int run_get(struct spw_ctl *ctl)
{
    Spillway__V1__GetLimitRequest request = SPILLWAY__V1__GET_LIMIT_REQUEST__INIT;
    request.account = ctl->arguments[0];
    request.limiter = (char *)spw_ctl_value(ctl, "--limiter");
    return spw_client_show(ctl, "/spillway.v1.Limits/Get", &request.base,
                           &spillway__v1__get_limit_reply__descriptor, show_one);
}

static void show_set(const ProtobufCMessage *request, const ProtobufCMessage *message)
{
    const Spillway__V1__SetLimitReply *reply = (const Spillway__V1__SetLimitReply *)message;
    (void)request;
    const Spillway__V1__Limit *before = reply->before, *after = reply->limit;
    if (!before || !after || !before->rate || !after->rate)
        return;
    printf("%s: %s, burst %" PRIu64 ", %u pods -> %s, burst %" PRIu64 ", %u pods\n", after->account,
           before->rate->text, before->burst, before->pods, after->rate->text, after->burst, after->pods);
    if (reply->dry_run)
        printf("Nothing was changed (dry run). Its version is %" PRIu64 ".\n", before->version);
    else if (after->has_expires_in_ms) {
        char span[32];
        spw_format_span(after->expires_in_ms, span, sizeof span);
        printf("In force in %s, version %" PRIu64 "; goes back by itself in %s.\n",
               reply->reach ? reply->reach : "this pod", after->version, span);
    } else
        printf("In force in %s, version %" PRIu64 "; %s.\n", reply->reach ? reply->reach : "this pod",
               after->version,
               reply->survives_restart ? "it outlives a restart"
                                       : "the configuration file is applied again at the next start");
}

/* "on" or "off"; false: neither, which has been said. */
static bool take_switch(struct spw_ctl *ctl, const char *option, protobuf_c_boolean *on,
                        protobuf_c_boolean *has)
{
    const char *text = spw_ctl_value(ctl, option);
    *has = text != NULL;
    *on = text && strcmp(text, "on") == 0;
    if (!text || *on || strcmp(text, "off") == 0)
        return true;
    (void)spw_ctl_usage(ctl, "%s: write on or off", option);
    return false;
}

static int run_set(struct spw_ctl *ctl)
{
    Spillway__V1__Rate rate = SPILLWAY__V1__RATE__INIT;
    Spillway__V1__SetLimitRequest request = SPILLWAY__V1__SET_LIMIT_REQUEST__INIT;
    uint64_t burst = 0, pods = 0, version = 0;
    bool has_burst, has_pods, has_version;
    if (!spw_ctl_number(ctl, "--burst", 0, UINT64_MAX, &burst, &has_burst) ||
        !spw_ctl_number(ctl, "--pods", 1, UINT32_MAX, &pods, &has_pods) ||
        !spw_ctl_number(ctl, "--expect-version", 1, UINT64_MAX, &version, &has_version))
        return SPW_CTL_USAGE;
    rate.text = (char *)spw_ctl_value(ctl, "--rate"); /* protobuf-c has no const, and only reads */
    if (!take_switch(ctl, "--kill", &request.killed, &request.has_killed) ||
        !take_switch(ctl, "--observe", &request.observed_only, &request.has_observed_only))
        return SPW_CTL_USAGE;
    if (!spw_ctl_value(ctl, "--clear") && !rate.text && !has_burst && !has_pods && !request.has_killed &&
        !request.has_observed_only)
        return spw_ctl_usage(ctl, "nothing to change: give --rate, --burst, --pods, --kill or --observe");
    bool has_for;
    if (!spw_ctl_for(ctl, &request.for_ms, &has_for))
        return SPW_CTL_USAGE;
    request.has_for_ms = has_for;
    request.has_persist = request.persist = spw_ctl_value(ctl, "--persist") != NULL;
    request.has_clear = request.clear = spw_ctl_value(ctl, "--clear") != NULL;
    request.limiter = (char *)spw_ctl_value(ctl, "--limiter");
    request.has_everywhere = request.everywhere = spw_ctl_value(ctl, "--everywhere") != NULL;
    request.account = ctl->arguments[0];
    request.rate = rate.text ? &rate : NULL;
    request.has_burst = has_burst;
    request.burst = burst;
    request.has_pods = has_pods;
    request.pods = (uint32_t)pods;
    request.has_expect_version = has_version;
    request.expect_version = version;
    request.has_dry_run = request.dry_run = spw_ctl_value(ctl, "--dry-run") != NULL;
    return spw_client_show(ctl, "/spillway.v1.Limits/Set", &request.base,
                           &spillway__v1__set_limit_reply__descriptor, show_set);
}

const struct spw_ctl_command spw_ctl_limits_commands[] = {
    {.group = "limits",
     .name = "list",
     .arguments = "",
     .summary = "Every account's limits and the tokens in hand.",
     .examples = "  spillwayctl limits list\n  spillwayctl limits list --json\n",
     .run = run_list},
    {.group = "limits",
     .name = "get",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "One account's limit.",
     .examples = "  spillwayctl limits get main\n  spillwayctl limits get main --limiter calculations\n",
     .options = {{"--limiter", "NAME", "one of the account's limiters instead of its own limit"}},
     .run = run_get},
    {.group = "limits",
     .name = "set",
     .arguments = "ACCOUNT",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Change an account's limit in this pod, until its next start or as --for and --persist say.",
     .examples = "  spillwayctl limits set main --rate 50/s --burst 100\n"
                 "  spillwayctl limits set main --rate 150/s --for 2h\n"
                 "  spillwayctl limits set main --pods 60 --expect-version 4 --dry-run\n"
                 "  spillwayctl limits set main --limiter calculations --observe on\n"
                 "  spillwayctl limits set main --everywhere --kill on\n",
     .options = {{"--rate", "RATE",
                  "of the whole account, as 100/s, 7/min, 3/10s; 0/s = none beyond those in hand"},
                 {"--burst", "N",
                  "tokens the whole account may save up; 0 with --rate 0/s: nothing goes out"},
                 {"--pods", "N", "pods that share the account"},
                 {"--limiter", "NAME", "one of the account's limiters instead of its own limit"},
                 {"--kill", "on|off", "switched off, it lets everything pass and charges nothing"},
                 {"--observe", "on|off", "it counts what it would have refused, and refuses nothing"},
                 {"--everywhere", NULL, "--kill and --observe for all accounts"},
                 {"--for", "TIME", "goes back by itself after it, 1s to 7d"},
                 {"--persist", NULL, "keep it over restarts, above the configuration file"},
                 {"--clear", NULL, "keep nothing of the account any more; stands alone"},
                 {"--expect-version", "N", "refuse if the account is at another version"},
                 {"--dry-run", NULL, "say what would be; change nothing"}},
     .run = run_set},
    {.name = NULL}};
