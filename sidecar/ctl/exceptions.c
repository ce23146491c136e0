/* exceptions.c: spillwayctl exceptions list, show, resolve, annotate.
 *
 * Owns: the columns of the list. Called by: main.c. Thread: one.
 */
#include "sidecar/ctl/exceptions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"

#define LIST_TIMEOUT_MS UINT64_C(3600000)

const char *spw_exceptions_by(const struct spw_ctl *ctl)
{
    const char *by = spw_ctl_value(ctl, "--by");
    by = by ? by : getenv("USER");
    if (!by || !by[0]) {
        spw_ctl_usage(ctl, "say who decides: --by NAME");
        return NULL;
    }
    return by;
}

int spw_exceptions_decide_all(const struct spw_ctl *ctl, Spillway__V1__ExceptionDecision **decisions,
                              size_t count, spw_refused_fn *refused, void *owner)
{
    Spillway__V1__DecideExceptionsRequest request = SPILLWAY__V1__DECIDE_EXCEPTIONS_REQUEST__INIT;
    ProtobufCMessage *reply;
    const char *by = spw_exceptions_by(ctl);
    if (!by)
        return SPW_CTL_USAGE;
    request.by = (char *)by; /* protobuf-c has no const, and only reads */
    request.decisions = decisions;
    request.n_decisions = count;
    int code = spw_client_unary(ctl, "/spillway.v1.Exceptions/Decide", &request.base,
                                &spillway__v1__decide_exceptions_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__DecideExceptionsReply *decided = (const Spillway__V1__DecideExceptionsReply *)reply;
    for (size_t i = 0; i < decided->n_refused; i++)
        refused(owner, decided->refused[i]->index, decided->refused[i]->why ? decided->refused[i]->why : "");
    if (decided->n_refused)
        code = SPW_CTL_REFUSED;
    protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

/* ---- list ---- */

static const char *amount(const Spillway__V1__Money *money)
{
    return money && money->amount ? money->amount : "";
}

static const char *text(const char *word)
{
    return word ? word : "";
}

/* What a spreadsheet would calculate gets an apostrophe before it. */
static void put_csv(const char *word, const char *end)
{
    putchar('"');
    if (*word && strchr("=+-@\t\r", *word))
        putchar('\'');
    for (; *word; word++) {
        if (*word == '"')
            putchar('"');
        putchar(*word);
    }
    printf("\"%s", end);
}

static void put_amounts(const Spillway__V1__FlagReconciliation *r)
{
    printf("%s,%s,%s,%s,%s,%s,", amount(r->live_tax), amount(r->variance), amount(r->rounding_noise),
           amount(r->rate_difference), amount(r->base_difference), amount(r->nexus_difference));
}

static void print_csv(const Spillway__V1__Flag *f)
{
    static const Spillway__V1__FlagReconciliation nothing = SPILLWAY__V1__FLAG_RECONCILIATION__INIT;
    const Spillway__V1__FlagReconciliation *r = f->reconciliation ? f->reconciliation : &nothing;
    printf("%s,%u,", f->flag_id, f->revision);
    put_csv(f->order ? text(f->order->order_id) : "", ",");
    printf("%s,%s,%s,%s,", f->account, f->destination ? text(f->destination->state) : "", text(f->currency),
           text(r->state));
    printf("%s,", f->order ? amount(f->order->tax_collected) : "");
    put_amounts(r);
    put_csv(text(r->reason), ",");
    printf("%s,", text(r->filing));
    put_csv(text(r->filing_error), ",");
    printf(",,"); /* decision and file are the reader's to fill in */
    put_csv(text(r->note), "\n");
}

static void add_row(struct spw_table *table, const Spillway__V1__Flag *f)
{
    const Spillway__V1__FlagReconciliation *r = f->reconciliation;
    spw_table_add(table, "%s", f->flag_id);
    spw_table_add(table, "%s", f->order ? text(f->order->order_id) : "");
    spw_table_add(table, "%s", f->account);
    spw_table_add(table, "%s", f->order ? amount(f->order->tax_collected) : "");
    spw_table_add(table, "%s", r ? amount(r->live_tax) : "");
    spw_table_add(table, "%s", r ? amount(r->variance) : "");
    spw_table_add(table, "%s", r ? text(r->state) : "");
    spw_table_add(table, "%s", r ? text(r->filing) : "");
    spw_table_add(table, "%s", r ? (r->reason && r->reason[0] ? r->reason : text(r->filing_error)) : "");
}

static int run_list(struct spw_ctl *ctl)
{
    static const char *const titles[] = {"FLAG",      "ORDER", "ACCOUNT", ">COLLECTED", ">LIVE",
                                         ">VARIANCE", "STATE", "FILING",  "WHY"};
    Spillway__V1__ListExceptionsRequest request = SPILLWAY__V1__LIST_EXCEPTIONS_REQUEST__INIT;
    const char *format = spw_ctl_value(ctl, "--format");
    bool csv = format && strcmp(format, "csv") == 0,
         json = ctl->json || (format && strcmp(format, "json") == 0);
    struct spw_client *client;
    uint64_t limit = 0;
    if (format && !csv && !json && strcmp(format, "text") != 0)
        return spw_ctl_usage(ctl, "--format: \"%s\" is not known: write text, csv or json", format);
    if (!spw_ctl_number(ctl, "--limit", 1, UINT32_MAX, &limit, &(bool){false}))
        return SPW_CTL_USAGE;
    request.state = (char *)spw_ctl_value(ctl, "--state");
    request.account = (char *)spw_ctl_value(ctl, "--account");
    request.has_limit = limit > 0;
    request.limit = limit;
    int code = spw_client_open(ctl, &client);
    if (code)
        return code;
    struct spw_client_call *call = spw_client_begin(client, "/spillway.v1.Exceptions/List", LIST_TIMEOUT_MS);
    spw_client_send(call, &request.base);
    spw_client_send_end(call);
    struct spw_table table = {.columns_count = sizeof titles / sizeof titles[0], .titles = titles};
    if (csv)
        puts("flag_id,revision,order_id,account,ship_to_state,currency,state,collected,live,variance,"
             "rounding,rate,"
             "base,nexus,reason,filing,filing_error,decision,file,note");
    ProtobufCMessage *reply;
    uint64_t count = 0;
    while ((reply = spw_client_receive(call, &spillway__v1__list_exceptions_reply__descriptor))) {
        const Spillway__V1__Flag *flag = ((const Spillway__V1__ListExceptionsReply *)reply)->flag;
        count++;
        if (flag && csv)
            print_csv(flag);
        else if (flag && json)
            spw_json_print(spw_json_of_flag(flag), true);
        else if (flag)
            add_row(&table, flag);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    code = spw_client_end(call);
    spw_client_close(client);
    if (!csv && !json && !code && count)
        spw_table_print(&table);
    else if (!csv && !json && !code)
        puts("There is none.");
    return code ? code : spw_ctl_done(ctl, SPW_CTL_OK);
}

/* ---- show ---- */

static int run_show(struct spw_ctl *ctl)
{
    Spillway__V1__GetExceptionRequest request = SPILLWAY__V1__GET_EXCEPTION_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.flag_id = ctl->arguments[0];
    int code = spw_client_unary(ctl, "/spillway.v1.Exceptions/Get", &request.base,
                                &spillway__v1__get_exception_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__GetExceptionReply *found = (const Spillway__V1__GetExceptionReply *)reply;
    const Spillway__V1__FlagReconciliation *r = found->flag->reconciliation;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else {
        printf("%s, revision %u, order %s, %s\n", found->flag->flag_id, found->flag->revision,
               found->flag->order ? found->flag->order->order_id : "-", found->flag->account);
        if (r)
            printf("%s: collected %s, live %s, variance %s = rounding %s, rate %s, base %s, nexus %s; filing "
                   "%s %s\n"
                   "%s\n",
                   text(r->state), found->flag->order ? amount(found->flag->order->tax_collected) : "-",
                   r->live_tax ? amount(r->live_tax) : "not known", amount(r->variance),
                   amount(r->rounding_noise), amount(r->rate_difference), amount(r->base_difference),
                   amount(r->nexus_difference), text(r->filing), text(r->document_id), text(r->reason));
        for (size_t i = 0; i < found->n_history; i++) {
            char at[32];
            spw_format_instant(found->history[i]->at_unix_ms, at, sizeof at);
            printf("%s  %s: %s -> %s%s%s\n", at, text(found->history[i]->who), text(found->history[i]->from),
                   text(found->history[i]->to), text(found->history[i]->why)[0] ? ": " : "",
                   text(found->history[i]->why));
        }
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return spw_ctl_done(ctl, SPW_CTL_OK);
}

/* ---- resolve, annotate ---- */

static void tell_refused(void *owner, uint32_t index, const char *why)
{
    (void)index;
    spw_ctl_fail(owner, SPW_CTL_REFUSED, "%s", why);
}

static int decide(struct spw_ctl *ctl, const char *decision)
{
    Spillway__V1__ExceptionDecision one = SPILLWAY__V1__EXCEPTION_DECISION__INIT, *all[1] = {&one};
    uint64_t revision = 0;
    if (!spw_ctl_number(ctl, "--revision", 1, UINT32_MAX, &revision, &(bool){false}))
        return SPW_CTL_USAGE;
    const char *file = spw_ctl_value(ctl, "--file");
    if (file && strcmp(file, "yes") != 0 && strcmp(file, "no") != 0)
        return spw_ctl_usage(ctl, "--file: write yes or no");
    one.flag_id = ctl->arguments[0];
    one.decision = (char *)decision;
    one.note = (char *)spw_ctl_value(ctl, "--note");
    one.has_revision = revision > 0;
    one.revision = (uint32_t)revision;
    one.has_file = file != NULL;
    one.file = file && strcmp(file, "yes") == 0;
    int code = spw_exceptions_decide_all(ctl, all, 1, tell_refused, ctl);
    if (code)
        return code;
    printf("%s: %s\n", ctl->arguments[0], decision);
    return spw_ctl_done(ctl, SPW_CTL_OK);
}

static int run_resolve(struct spw_ctl *ctl)
{
    const char *decision = spw_ctl_value(ctl, "--decision");
    if (!decision)
        return spw_ctl_usage(ctl, "say what: --decision retry|absorb|remit|refund|accept");
    return decide(ctl, decision);
}

static int run_annotate(struct spw_ctl *ctl)
{
    return spw_ctl_value(ctl, "--note") ? decide(ctl, "note") : spw_ctl_usage(ctl, "say what: --note TEXT");
}

#define BY                                                                                                   \
    {                                                                                                        \
        "--by", "NAME", "who decides; default: $USER"                                                        \
    }
#define REVISION                                                                                             \
    {                                                                                                        \
        "--revision", "N", "only if it is still the one that was looked at"                                  \
    }

const struct spw_ctl_command spw_ctl_exceptions_commands[] = {
    {.group = "exceptions",
     .name = "list",
     .arguments = "",
     .summary = "What reconciliation leaves to a person.",
     .examples = "  spillwayctl exceptions list\n"
                 "  spillwayctl exceptions list --format csv > exceptions.csv\n"
                 "  spillwayctl exceptions list --state set-aside\n",
     .options = {{"--state", "STATE", "exception (default), set-aside (filing given up), or another state"},
                 {"--account", "NAME", "only this account"},
                 {"--limit", "N", "at most so many"},
                 {"--format", "text|csv|json", "csv is what upload reads; json is one flag a line"}},
     .run = run_list},
    {.group = "exceptions",
     .name = "show",
     .arguments = "FLAG",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "One flag, its variance, and what became of it.",
     .examples = "  spillwayctl exceptions show sf_0123456789abcdef0123456789abcdef\n",
     .run = run_show},
    {.group = "exceptions",
     .name = "resolve",
     .arguments = "FLAG",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Decide on one.",
     .examples =
         "  spillwayctl exceptions resolve sf_0123456789abcdef0123456789abcdef --decision remit --file yes\n",
     .options = {{"--decision", "WORD", "retry, absorb, remit, refund or accept"},
                 {"--file", "yes|no", "put the order into the provider's books; default no"},
                 {"--note", "TEXT", "why"},
                 REVISION,
                 BY},
     .run = run_resolve},
    {.group = "exceptions",
     .name = "annotate",
     .arguments = "FLAG",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "A note on a flag, whatever its state.",
     .examples = "  spillwayctl exceptions annotate sf_0123456789abcdef0123456789abcdef --note 'asked the "
                 "provider'\n",
     .options = {{"--note", "TEXT", "the note"}, REVISION, BY},
     .run = run_annotate},
    {.group = "exceptions",
     .name = "upload",
     .arguments = "FILE",
     .arguments_min = 1,
     .arguments_max = 1,
     .summary = "Decide on many: the exported CSV with its column decision filled in. All of them or none.",
     .examples = "  spillwayctl exceptions upload exceptions.csv\n",
     .options = {BY},
     .run = spw_exceptions_run_upload},
    {.name = NULL}};
