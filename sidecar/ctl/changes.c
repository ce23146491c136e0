/* changes.c: spillwayctl watch | audit: what changed, as it happens and afterwards.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"

#define WATCH_MS UINT64_C(86400000)

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* "main calculations", "main", "" */
static void object_of(const Spillway__V1__Change *c, char *out, size_t room)
{
    snprintf(out, room, "%s%s%s", text_of(c->account), c->limiter ? " " : "", text_of(c->limiter));
}

static void who_of(const Spillway__V1__Change *c, char *out, size_t room)
{
    snprintf(out, room, "%s%s%s", text_of(c->who), c->cause && *c->cause ? ", " : "", text_of(c->cause));
}

static void add_change(struct spw_table *table, const Spillway__V1__Change *c)
{
    char when[32], object[160], who[160], span[32] = "";
    spw_format_instant(c->unix_ms, when, sizeof when);
    object_of(c, object, sizeof object);
    who_of(c, who, sizeof who);
    if (c->for_ms)
        spw_format_span(c->for_ms, span, sizeof span);
    spw_table_add(table, "%" PRIu64, c->version);
    spw_table_add(table, "%s", when);
    spw_table_add(table, "%s", who);
    spw_table_add(table, "%s", text_of(c->kind));
    spw_table_add(table, "%s", object);
    spw_table_add(table, "%s", text_of(c->before));
    spw_table_add(table, "%s%s%s", text_of(c->after), *span ? ", for " : "", span);
}

static int run_audit(struct spw_ctl *ctl)
{
    static const char *const titles[] = {">VERSION", "WHEN", "WHO", "WHAT", "OF", "BEFORE", "AFTER"};
    Spillway__V1__ListAuditRequest request = SPILLWAY__V1__LIST_AUDIT_REQUEST__INIT;
    uint64_t count = 0;
    bool has_count;
    if (!spw_ctl_number(ctl, "--limit", 1, 1000, &count, &has_count))
        return SPW_CTL_USAGE;
    request.account = (char *)spw_ctl_value(ctl, "--account"); /* protobuf-c has no const, and only reads */
    request.has_limit = has_count;
    request.limit = (uint32_t)count;
    request.has_by_hand = request.by_hand = spw_ctl_value(ctl, "--by-hand") != NULL;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Audit/List", &request.base,
                                &spillway__v1__list_audit_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__ListAuditReply *list = (const Spillway__V1__ListAuditReply *)reply;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else if (!list->n_changes) {
        printf("Nothing has changed since the sidecar's start.\n");
    } else {
        struct spw_table table = {.columns_count = 7, .titles = titles};
        for (size_t i = 0; i < list->n_changes; i++)
            add_change(&table, list->changes[i]);
        spw_table_print(&table);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

static void print_change(const Spillway__V1__Change *c)
{
    struct spw_table table = {.columns_count = 7};
    add_change(&table, c);
    spw_table_print(&table);
}

static void print_reply(const struct spw_ctl *ctl, const Spillway__V1__WatchChangesReply *reply)
{
    if (ctl->json)
        spw_json_print(spw_json_of_message(&reply->base), true);
    else if (reply->snapshot)
        printf("%" PRIu64 "  so it stands now: %zu limiters of %zu accounts; changes follow\n",
               reply->snapshot->version, reply->snapshot->n_limits, reply->snapshot->n_breakers);
    for (size_t i = 0; i < reply->n_changes && !ctl->json; i++)
        print_change(reply->changes[i]);
    fflush(stdout);
}

static int run_watch(struct spw_ctl *ctl)
{
    Spillway__V1__WatchChangesRequest request = SPILLWAY__V1__WATCH_CHANGES_REQUEST__INIT;
    uint64_t after = 0, left = UINT64_MAX;
    bool has_after, has_count;
    if (!spw_ctl_number(ctl, "--after", 0, UINT64_MAX, &after, &has_after) ||
        !spw_ctl_number(ctl, "--limit", 1, UINT64_MAX, &left, &has_count))
        return SPW_CTL_USAGE;
    struct spw_client *client;
    int code = spw_client_open(ctl, &client);
    if (code)
        return code;
    request.account = (char *)spw_ctl_value(ctl, "--account"); /* protobuf-c has no const, and only reads */
    request.has_after_version = has_after;
    request.after_version = after;
    struct spw_client_call *call = spw_client_begin(client, "/spillway.v1.Changes/Watch", WATCH_MS);
    spw_client_send(call, &request.base);
    spw_client_send_end(call);
    ProtobufCMessage *message;
    while (left &&
           (message = spw_client_receive(call, &spillway__v1__watch_changes_reply__descriptor)) != NULL) {
        const Spillway__V1__WatchChangesReply *reply = (const Spillway__V1__WatchChangesReply *)message;
        print_reply(ctl, reply);
        left = reply->n_changes < left ? left - reply->n_changes : 0;
        protobuf_c_message_free_unpacked(message, NULL);
        if (ferror(stdout))
            break;
    }
    if (!left || ferror(stdout))
        spw_client_cancel(call);
    code = spw_client_end(call);
    spw_client_close(client);
    return code;
}

const struct spw_ctl_command spw_ctl_changes_commands[] = {
    {.name = "watch",
     .arguments = "",
     .summary = "Tell every change as it happens: limits, switches, breakers, gates, rates.",
     .examples = "  spillwayctl watch\n  spillwayctl watch --account main --json\n",
     .options = {{"--account", "NAME", "only this account's"},
                 {"--after", "VERSION", "what came after it, instead of a snapshot and what follows"},
                 {"--limit", "N", "end after so many changes"}},
     .run = run_watch},
    {.name = "audit",
     .arguments = "",
     .summary = "Who changed what and when, newest first, since the sidecar's start.",
     .examples = "  spillwayctl audit\n  spillwayctl audit --account main --by-hand --limit 20\n",
     .options = {{"--account", "NAME", "only this account's"},
                 {"--limit", "N", "so many, 1 to 1000 (default 100)"},
                 {"--by-hand", NULL, "only what somebody did"}},
     .run = run_audit},
    {.name = NULL}};
