/* flags.c: spillwayctl flags find, and the table of the group flags.
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
#include "sidecar/ctl/flags.h"
#include "sidecar/message/json.h"
#include "sidecar/ctl/table.h"

#define EXPORT_TIMEOUT_MS UINT64_C(3600000)
#define FOLLOW_SECONDS    1

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
            json_array_append_new(list, spw_json_of_flag(found->flags[i]));
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
     .examples = "  spillwayctl flags export --format csv --out flags.csv --ack nightly\n"
                 "  spillwayctl flags export --after 1200 --ack nightly >> flags.jsonl\n"
                 "  spillwayctl flags export --after-change 3400 > changed.jsonl\n",
     .options = {{"--format", "jsonl|csv", "default jsonl"},
                 {"--after", "N", "only what is above this sequence; default 0"},
                 {"--after-change", "N",
                  "instead: what changed above this change, told again when its order came later"},
                 {"--limit", "N", "at most so many"},
                 {"--ack", "CONSUMER", "acknowledge under this name what was written"},
                 {"--out", "FILE", "into this file, and its checksum and totals into FILE.manifest.json"},
                 {"--follow", "yes|no", "wait for further flags; default no"}},
     .run = spw_flags_run_export},
    {.group = "flags",
     .name = "find",
     .arguments = "REFERENCE",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Flags by quote id, decision id, order id or the shop's own reference.",
     .examples = "  spillwayctl flags find q-88121\n",
     .options = {{"--limit", "N", "at most so many, 1 to 100; default 20"}},
     .run = run_find},
    {.group = "flags",
     .name = "import",
     .arguments = "FILE...",
     .arguments_min = 1,
     .arguments_max = 64,
     .summary =
         "Flags that callers were handed back, or of another pod's export; exits 1 when a line is bad.",
     .examples = "  spillwayctl flags import handed-back.jsonl --bad bad.jsonl\n",
     .options = {{"--bad", "FILE", "lines that make no sense go there, each under its reason"}},
     .run = spw_flags_run_import},
    {.group = "flags",
     .name = "report",
     .arguments = "",
     .summary = "Compares the orders of this ledger with the shop's list; exits 1 when they differ.",
     .examples = "  spillwayctl flags report --tie-out orders.csv\n",
     .options = {{"--tie-out", "FILE",
                  "CSV with the columns order_id and tax (or tax_collected), others ignored"},
                 {"--tolerance", "AMOUNT", "smaller differences of one order are none; default 0.00"},
                 {"--show", "N", "at most so many orders of each kind are listed; default 100"}},
     .run = spw_flags_run_report},
    {.name = NULL}};
