/* tie_out.c: spillwayctl flags report: do the shop's books and the ledger name the same orders and the same tax?
 *
 * Owns: the shop's list in memory, about 120 bytes an order. Called by: main.c by way of the table in flags.c. Thread:
 * one.
 *
 * The shop's list is CSV with a head: order_id, and tax or tax_collected; a column state with "cancelled" takes a line out
 * of the comparison. Other columns are ignored. Every fault is told with its line.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "shm/spw_layout.h"
#include "sidecar/conf/conf.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/csv_read.h"
#include "sidecar/ctl/flags.h"
#include "sidecar/message/json.h"
#include "sidecar/provider/decimal.h"

#define LIST_TIMEOUT_MS UINT64_C(3600000)

/* One order of the shop's. */
struct entry {
    char order_id[SPW_CALLER_ID_BYTES];
    int64_t tax_minor;
    uint64_t line;
    bool seen; /* in the ledger */
};

struct tie_out {
    struct spw_ctl *ctl;
    const char *file;
    struct entry *entries;
    size_t count, room;
    int64_t tolerance_minor;
    uint64_t show_count;
    json_t *missing, *extra, *different; /* the first show_count of each */
    uint64_t missing_count, extra_count, different_count, agreeing_count, cancelled_count, flagged_count;
    int64_t shop_minor, ledger_minor;
};

/* ---- the shop's list ---- */

/* An order's id, without spaces around it: tables lose them, or add some. */
static void copy_id(char *out, size_t room, const char *id)
{
    id += strspn(id, " ");
    snprintf(out, room, "%s", id);
    for (size_t n = strlen(out); n && out[n - 1] == ' '; n--)
        out[n - 1] = 0;
}

static bool is_cancelled(const char *state)
{
    return strcasecmp(state, "cancelled") == 0 || strcasecmp(state, "canceled") == 0;
}

static int keep_entry(struct tie_out *t, const struct spw_csv_record *r, int id_column, int tax_column)
{
    const char *id = spw_csv_field(r, id_column), *tax = spw_csv_field(r, tax_column);
    struct entry entry = {.line = r->line};
    if (!id[0] || strlen(id) >= sizeof entry.order_id)
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED,
                            "%s:%" PRIu64 ": order_id is empty or longer than %zu bytes", t->file, r->line,
                            sizeof entry.order_id - 1);
    if (spw_decimal_parse(tax, strlen(tax), 2, SPW_DECIMAL_HALF_UP, &entry.tax_minor) != SPW_DECIMAL_EXACT)
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED,
                            "%s:%" PRIu64
                            ": \"%.40s\" is no amount: write it as 6.71, without a currency's sign",
                            t->file, r->line, tax);
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 1024;
        struct entry *entries = realloc(t->entries, room * sizeof *entries);
        if (!entries)
            return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED, "%s: no memory for %zu orders", t->file, room);
        t->entries = entries;
        t->room = room;
    }
    copy_id(entry.order_id, sizeof entry.order_id, id);
    t->entries[t->count++] = entry;
    return SPW_CTL_OK;
}

static int read_entries(struct tie_out *t, FILE *file, struct spw_csv_record *r)
{
    uint64_t line = 1;
    const char *fault = NULL;
    if (!spw_csv_read(file, r, &line, &fault))
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED, "%s:1: %s", t->file, fault ? fault : "is empty");
    int id = spw_csv_column(r, "order_id"), tax = spw_csv_column(r, "tax_collected"),
        state = spw_csv_column(r, "state");
    tax = tax == SPW_CSV_NO_COLUMN ? spw_csv_column(r, "tax") : tax;
    if (id == SPW_CSV_NO_COLUMN || tax == SPW_CSV_NO_COLUMN)
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED,
                            "%s:1: its head lacks %s: name the columns order_id and tax_collected", t->file,
                            id == SPW_CSV_NO_COLUMN ? "order_id" : "tax_collected (or tax)");
    while (spw_csv_read(file, r, &line, &fault)) {
        if (r->fields_count == 1 && !spw_csv_field(r, 0)[0])
            continue;
        if (is_cancelled(spw_csv_field(r, state)))
            continue;
        int code = keep_entry(t, r, id, tax);
        if (code)
            return code;
    }
    if (fault)
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED, "%s:%" PRIu64 ": %s", t->file, r->line, fault);
    return ferror(file)
               ? spw_ctl_fail(t->ctl, SPW_CTL_REFUSED, "%s: cannot be read: %s", t->file, strerror(errno))
               : SPW_CTL_OK;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->order_id, ((const struct entry *)b)->order_id);
}

static int read_shop(struct tie_out *t)
{
    FILE *file = fopen(t->file, "re");
    struct spw_csv_record record = {.text = NULL};
    if (!file)
        return spw_ctl_fail(t->ctl, SPW_CTL_REFUSED, "%s: cannot be opened: %s", t->file, strerror(errno));
    int code = read_entries(t, file, &record);
    free(record.text);
    fclose(file);
    if (t->count)
        qsort(t->entries, t->count, sizeof *t->entries, by_id);
    for (size_t i = 1; !code && i < t->count; i++) {
        if (strcmp(t->entries[i - 1].order_id, t->entries[i].order_id) == 0)
            code = spw_ctl_fail(t->ctl, SPW_CTL_REFUSED,
                                "%s:%" PRIu64 ": order %s is in line %" PRIu64 " too: one line an order",
                                t->file, t->entries[i].line, t->entries[i].order_id, t->entries[i - 1].line);
    }
    return code;
}

/* ---- the ledger's ---- */

static json_t *amount(int64_t minor)
{
    char text[40];
    spw_format_minor(minor, text, sizeof text);
    return json_string(text);
}

static void show(json_t *list, const struct tie_out *t, json_t *one)
{
    if (json_array_size(list) < t->show_count)
        json_array_append_new(list, one);
    else
        json_decref(one);
}

static void compare(struct tie_out *t, const Spillway__V1__Order *order)
{
    int64_t collected = order->tax_collected ? order->tax_collected->minor : 0;
    struct entry key = {.line = 0}, *entry;
    if (!order->state || strcmp(order->state, "placed") != 0) {
        t->cancelled_count++;
        return;
    }
    copy_id(key.order_id, sizeof key.order_id, order->order_id ? order->order_id : "");
    entry = t->count ? bsearch(&key, t->entries, t->count, sizeof *t->entries, by_id) : NULL;
    t->ledger_minor += collected;
    t->flagged_count += order->flag_id != NULL;
    if (!entry || entry->seen) { /* twice: two accounts have an order of this id, the shop has one */
        t->extra_count++;
        show(t->extra, t,
             json_pack("{s:s, s:o, s:s?}", "order_id", key.order_id, "ledger", amount(collected), "flag_id",
                       order->flag_id));
        return;
    }
    entry->seen = true;
    int64_t difference = collected - entry->tax_minor;
    if (difference > t->tolerance_minor || difference < -t->tolerance_minor) {
        t->different_count++;
        show(t->different, t,
             json_pack("{s:s, s:o, s:o, s:o, s:s?}", "order_id", key.order_id, "shop",
                       amount(entry->tax_minor), "ledger", amount(collected), "difference",
                       amount(difference), "flag_id", order->flag_id));
    } else {
        t->agreeing_count++;
    }
}

static int read_ledger(struct tie_out *t)
{
    struct spw_client *client;
    int code = spw_client_open(t->ctl, &client);
    if (code)
        return code;
    Spillway__V1__ListOrdersRequest request = SPILLWAY__V1__LIST_ORDERS_REQUEST__INIT;
    struct spw_client_call *call = spw_client_begin(client, "/spillway.v1.Orders/List", LIST_TIMEOUT_MS);
    spw_client_send(call, &request.base);
    spw_client_send_end(call);
    ProtobufCMessage *reply;
    while ((reply = spw_client_receive(call, &spillway__v1__list_orders_reply__descriptor))) {
        const Spillway__V1__ListOrdersReply *one = (const Spillway__V1__ListOrdersReply *)reply;
        if (one->order)
            compare(t, one->order);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    code = spw_client_end(call);
    spw_client_close(client);
    return code;
}

/* ---- the report ---- */

static void take_missing(struct tie_out *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->shop_minor += t->entries[i].tax_minor;
        if (t->entries[i].seen)
            continue;
        t->missing_count++;
        show(t->missing, t,
             json_pack("{s:s, s:o, s:I}", "order_id", t->entries[i].order_id, "shop",
                       amount(t->entries[i].tax_minor), "line", (json_int_t)t->entries[i].line));
    }
}

static void print_list(const char *title, const json_t *list, uint64_t count)
{
    if (!count)
        return;
    printf("\n%s: %" PRIu64 "\n", title, count);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *shop = json_string_value(json_object_get(one, "shop"));
        const char *ledger = json_string_value(json_object_get(one, "ledger"));
        printf("  %-40s shop %10s   ledger %10s\n", json_string_value(json_object_get(one, "order_id")),
               shop ? shop : "-", ledger ? ledger : "-");
    }
    if (count > json_array_size(list))
        printf("  ... and %" PRIu64 " more: raise --show\n", count - json_array_size(list));
}

static void print_text(const struct tie_out *t)
{
    char shop[40], ledger[40], difference[40];
    spw_format_minor(t->shop_minor, shop, sizeof shop);
    spw_format_minor(t->ledger_minor, ledger, sizeof ledger);
    spw_format_minor(t->ledger_minor - t->shop_minor, difference, sizeof difference);
    printf("shop      %zu orders, tax %s\n", t->count, shop);
    printf("ledger    %" PRIu64 " orders, tax %s; %" PRIu64 " of them on a fallback; %" PRIu64
           " cancelled besides\n",
           t->agreeing_count + t->different_count + t->extra_count, ledger, t->flagged_count,
           t->cancelled_count);
    printf("agreeing  %" PRIu64 "\n", t->agreeing_count);
    printf("difference of the totals %s\n", difference);
    print_list("in the shop's list, not in the ledger (told to nobody, or to another pod)", t->missing,
               t->missing_count);
    print_list("in the ledger, not in the shop's list", t->extra, t->extra_count);
    print_list("another tax", t->different, t->different_count);
}

static void print_json(const struct tie_out *t)
{
    uint64_t ledger_count = t->agreeing_count + t->different_count + t->extra_count;
    spw_json_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:O, s:O, s:O}",
                             "shop_orders", (json_int_t)t->count, "ledger_orders", (json_int_t)ledger_count,
                             "ledger_cancelled", (json_int_t)t->cancelled_count, "ledger_flagged",
                             (json_int_t)t->flagged_count, "agreeing", (json_int_t)t->agreeing_count,
                             "missing", (json_int_t)t->missing_count, "extra", (json_int_t)t->extra_count,
                             "different", (json_int_t)t->different_count, "shop_tax", amount(t->shop_minor),
                             "ledger_tax", amount(t->ledger_minor), "difference",
                             amount(t->ledger_minor - t->shop_minor), "missing_orders", t->missing,
                             "extra_orders", t->extra, "different_orders", t->different),
                   false);
}

int spw_flags_run_report(struct spw_ctl *ctl)
{
    struct tie_out t = {.ctl = ctl, .file = spw_ctl_value(ctl, "--tie-out"), .show_count = 100};
    const char *tolerance = spw_ctl_value(ctl, "--tolerance");
    bool given;
    if (!t.file || !t.file[0])
        return spw_ctl_usage(ctl, "--tie-out FILE: name the shop's list of orders");
    if (!spw_ctl_number(ctl, "--show", 0, 1000000, &t.show_count, &given))
        return SPW_CTL_USAGE;
    if (tolerance && (spw_decimal_parse(tolerance, strlen(tolerance), 2, SPW_DECIMAL_HALF_UP,
                                        &t.tolerance_minor) != SPW_DECIMAL_EXACT ||
                      t.tolerance_minor < 0))
        return spw_ctl_usage(ctl, "--tolerance %s: write an amount, as 0.01", tolerance);
    t.missing = json_array();
    t.extra = json_array();
    t.different = json_array();
    int code = read_shop(&t);
    if (!code)
        code = read_ledger(&t);
    if (!code) {
        take_missing(&t);
        if (ctl->json)
            print_json(&t);
        else
            print_text(&t);
        if (t.missing_count || t.extra_count || t.different_count)
            code = SPW_CTL_REFUSED;
    }
    json_decref(t.missing);
    json_decref(t.extra);
    json_decref(t.different);
    free(t.entries);
    return code;
}
