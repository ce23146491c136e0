/* flags.c: spillwayctl flags export | find.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/csv.h"
#include "sidecar/ctl/json.h"
#include "sidecar/ctl/table.h"

#define EXPORT_TIMEOUT_MS UINT64_C(3600000)
#define FOLLOW_SECONDS    1

/* The request is JSON inside JSON: it is opened up, so that it can be asked for by path. */
static json_t *json_of_flag(const Spillway__V1__Flag *flag)
{
    json_t *object = spw_json_of_message(&flag->base);
    json_t *request =
        flag->request_json ? json_loads(flag->request_json, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (request) {
        json_object_del(object, "request_json");
        json_object_set_new(object, "request", request);
    }
    return object;
}

/* ---- export ---- */

struct export
{
    struct spw_ctl *ctl;
    struct spw_client *client;
    bool csv;
    bool by_change;
    uint64_t after_sequence; /* the last one written */
    uint64_t after_change;   /* the same, by change */
    uint64_t left;           /* UINT64_MAX = no limit */
};

/* Written means on its way to the disk: what is acknowledged is not sent again. */
static int settle_output(struct export *export)
{
    struct stat st;
    int code = spw_ctl_done(export->ctl, SPW_CTL_OK);
    if (code)
        return code;
    if (fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) && fsync(STDOUT_FILENO) != 0)
        return spw_ctl_fail(export->ctl, SPW_CTL_REFUSED,
                            "the output could not be brought to disk: nothing was "
                            "acknowledged");
    return SPW_CTL_OK;
}

static int acknowledge(struct export *export, const char *consumer)
{
    int code = settle_output(export);
    if (code)
        return code;
    Spillway__V1__AcknowledgeFlagsRequest request = SPILLWAY__V1__ACKNOWLEDGE_FLAGS_REQUEST__INIT;
    request.consumer = (char *)consumer; /* protobuf-c has no const, and only reads */
    request.has_sequence = 1;
    request.sequence = export->after_sequence;
    ProtobufCMessage *reply;
    code = spw_client_unary(export->ctl, "/spillway.v1.Flags/Acknowledge", &request.base,
                            &spillway__v1__acknowledge_flags_reply__descriptor, &reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

static int take(struct export *export, const Spillway__V1__Flag *flag)
{
    bool follows = flag && (export->by_change ? flag->change > export->after_change
                                              : flag->sequence == export->after_sequence + 1);
    if (!follows)
        return spw_ctl_fail(export->ctl, SPW_CTL_REFUSED,
                            "after %" PRIu64 " came %" PRIu64
                            ": the export has a gap and was stopped; nothing "
                            "of it was acknowledged",
                            export->by_change ? export->after_change : export->after_sequence,
                            !flag               ? 0
                            : export->by_change ? flag->change
                                                : flag->sequence);
    if (export->csv)
        spw_csv_print_flag(flag);
    else
        spw_json_print(json_of_flag(flag), true);
    export->after_sequence = flag->sequence;
    export->after_change = flag->change;
    if (export->left != UINT64_MAX)
        export->left--;
    return ferror(stdout) ? spw_ctl_done(export->ctl, SPW_CTL_OK) : SPW_CTL_OK;
}

/* One stream, to the newest flag there is. */
static int run_once(struct export *export)
{
    Spillway__V1__ExportFlagsRequest request = SPILLWAY__V1__EXPORT_FLAGS_REQUEST__INIT;
    request.has_after_change = export->by_change;
    request.after_change = export->after_change;
    request.has_after_sequence = !export->by_change;
    request.after_sequence = export->after_sequence;
    request.has_limit = export->left != UINT64_MAX;
    request.limit = export->left;
    struct spw_client_call *call =
        spw_client_begin(export->client, "/spillway.v1.Flags/Export", EXPORT_TIMEOUT_MS);
    spw_client_send(call, &request.base);
    spw_client_send_end(call);
    int code = SPW_CTL_OK;
    ProtobufCMessage *reply;
    while (!code && (reply = spw_client_receive(call, &spillway__v1__export_flags_reply__descriptor))) {
        code = take(export, ((const Spillway__V1__ExportFlagsReply *)reply)->flag);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    if (code)
        spw_client_cancel(call);
    int ended = spw_client_end(call);
    return code ? code : ended;
}

static int run_all(struct export *export, const char *consumer, bool follow)
{
    uint64_t acknowledged = export->after_sequence;
    for (;;) {
        int code = run_once(export);
        if (!code && consumer && export->after_sequence > acknowledged)
            code = acknowledge(export, consumer);
        acknowledged = export->after_sequence;
        if (code || !follow || !export->left)
            return code;
        code = spw_ctl_done(export->ctl, SPW_CTL_OK);
        if (code)
            return code;
        sleep(FOLLOW_SECONDS);
    }
}

static int run_export(struct spw_ctl *ctl)
{
    const char *format = spw_ctl_value(ctl, "--format");
    const char *follow = spw_ctl_value(ctl, "--follow");
    const char *consumer = spw_ctl_value(ctl, "--ack");
    struct export export = {.ctl = ctl, .left = UINT64_MAX};
    bool has_after, has_limit;
    if (!spw_ctl_number(ctl, "--after", 0, UINT64_MAX, &export.after_sequence, &has_after) ||
        !spw_ctl_number(ctl, "--after-change", 0, UINT64_MAX, &export.after_change, &export.by_change) ||
        !spw_ctl_number(ctl, "--limit", 1, UINT64_MAX, &export.left, &has_limit))
        return SPW_CTL_USAGE;
    if (format && strcmp(format, "jsonl") != 0 && strcmp(format, "csv") != 0)
        return spw_ctl_usage(ctl, "--format %s: write jsonl or csv", format);
    if (follow && strcmp(follow, "yes") != 0 && strcmp(follow, "no") != 0)
        return spw_ctl_usage(ctl, "--follow %s: write yes or no", follow);
    export.csv = format && strcmp(format, "csv") == 0;
    if (export.by_change && (has_after || consumer))
        return spw_ctl_usage(ctl, "--after-change excludes --after and --ack, which go by sequence");
    if (export.csv && ctl->json)
        return spw_ctl_usage(ctl, "--json and --format csv exclude one another");
    int code = spw_client_open(ctl, &export.client);
    if (code)
        return code;
    if (export.csv)
        spw_csv_print_head();
    code = run_all(&export, consumer, follow && strcmp(follow, "yes") == 0);
    spw_client_close(export.client);
    return code;
}

/* ---- find ---- */

static void add_instant(struct spw_table *table, const char *name, int64_t unix_ms)
{
    char text[32];
    spw_format_instant(unix_ms, text, sizeof text);
    spw_table_add(table, "%s", name);
    spw_table_add(table, "%s", text);
}

static void add_money(struct spw_table *table, const char *name, const Spillway__V1__Money *money,
                      const char *currency)
{
    if (!money)
        return;
    spw_table_add(table, "%s", name);
    spw_table_add(table, "%s %s", money->amount, currency ? currency : "");
}

static void add_word(struct spw_table *table, const char *name, const char *text)
{
    spw_table_add(table, "%s", name);
    spw_table_add(table, "%s", text && *text ? text : "-");
}

static void print_flag(const Spillway__V1__Flag *f)
{
    struct spw_table table = {.columns_count = 2};
    spw_table_add(&table, "flag");
    spw_table_add(&table, "%s, sequence %" PRIu64 ", %s", f->flag_id, f->sequence, f->state);
    add_instant(&table, "answered", f->created_unix_ms);
    add_word(&table, "quote", f->quote_id);
    add_word(&table, "decision", f->decision_id);
    add_word(&table, "reference", f->quote_ref);
    spw_table_add(&table, "for");
    spw_table_add(&table, "%s, %s, %s", f->account, f->integration, f->purpose);
    spw_table_add(&table, "why");
    spw_table_add(&table, "%s (%s)", f->type, f->cause);
    if (f->destination) {
        spw_table_add(&table, "to");
        spw_table_add(&table, "%s %s %s", f->destination->zip, f->destination->state,
                      f->destination->country);
    }
    if (f->rates && f->rates->combined) {
        spw_table_add(&table, "rate");
        spw_table_add(&table, "%s (%s%s%s%s%s)", f->rates->combined->text, f->match,
                      f->rates->source ? ", " : "", f->rates->source ? f->rates->source : "",
                      f->rates->as_of ? " of " : "", f->rates->as_of ? f->rates->as_of : "");
    }
    add_money(&table, "taxable", f->taxable, f->currency);
    add_money(&table, "tax", f->tax, f->currency);
    for (size_t i = 0; i < f->n_assumptions; i++)
        add_word(&table, i ? "" : "assumed", f->assumptions[i]);
    if (f->order) {
        add_word(&table, "order", f->order->order_id);
        add_money(&table, "collected", f->order->tax_collected, f->currency);
        add_instant(&table, "placed", f->order->placed_unix_ms);
    }
    spw_table_print(&table);
}

static int run_find(struct spw_ctl *ctl)
{
    Spillway__V1__FindFlagsRequest request = SPILLWAY__V1__FIND_FLAGS_REQUEST__INIT;
    uint64_t limit = 0;
    bool has_limit;
    if (!spw_ctl_number(ctl, "--limit", 1, 100, &limit, &has_limit))
        return SPW_CTL_USAGE;
    request.reference = ctl->arguments[0];
    request.has_limit = has_limit;
    request.limit = (uint32_t)limit;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Flags/Find", &request.base,
                                &spillway__v1__find_flags_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__FindFlagsReply *found = (const Spillway__V1__FindFlagsReply *)reply;
    if (ctl->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < found->n_flags; i++)
            json_array_append_new(list, json_of_flag(found->flags[i]));
        spw_json_print(json_pack("{s:o, s:b}", "flags", list, "truncated", found->truncated), false);
    } else {
        for (size_t i = 0; i < found->n_flags; i++) {
            fputs(i ? "\n" : "", stdout);
            print_flag(found->flags[i]);
        }
        if (!found->n_flags)
            printf("There is no flag of %s: no fallback was answered for it, or it is on another pod.\n",
                   ctl->arguments[0]);
        if (found->truncated)
            printf("\nThere are more: raise --limit (at most 100).\n");
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

const struct spw_ctl_command spw_ctl_flags_commands[] = {
    {.group = "flags",
     .name = "export",
     .arguments = "",
     .summary = "The flags of this pod, one a line, in the order of the ledger.",
     .examples = "  spillwayctl flags export --format csv > flags.csv\n"
                 "  spillwayctl flags export --after 1200 --ack nightly >> flags.jsonl\n"
                 "  spillwayctl flags export --after-change 3400 > changed.jsonl\n",
     .options = {{"--format", "jsonl|csv", "default jsonl"},
                 {"--after", "N", "only what is above this sequence; default 0"},
                 {"--after-change", "N",
                  "instead: what changed above this change, told again when its order came later"},
                 {"--limit", "N", "at most so many"},
                 {"--ack", "CONSUMER", "acknowledge under this name what was written"},
                 {"--follow", "yes|no", "wait for further flags; default no"}},
     .run = run_export},
    {.group = "flags",
     .name = "find",
     .arguments = "REFERENCE",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Flags by quote id, decision id, order id or the shop's own reference.",
     .examples = "  spillwayctl flags find q-88121\n",
     .options = {{"--limit", "N", "at most so many, 1 to 100; default 20"}},
     .run = run_find},
    {.name = NULL}};
