/* rates.c: spillwayctl rates load | lookup | show | refresh.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/conf/conf.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"
#include "sidecar/rates/rates.h"

#define ROWS_A_MESSAGE  1000u
#define LOAD_TIMEOUT_MS 600000

/* protobuf-c has no const, and only reads. */
#define UNCONST(text) ((char *)(text))

/* ---- load ---- */

static void tell_problem(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    const struct spw_ctl *ctl = owner;
    if (!ctl->json) {
        fprintf(stderr, "%s:%u: %s%s%s%s\n", file, problem->line, problem->warning ? "warning: " : "",
                problem->column ? problem->column : "", problem->column ? ": " : "", problem->text);
        return;
    }
    json_t *object =
        json_pack("{s:{s:s, s:I, s:s*, s:s}}", problem->warning ? "warning" : "problem", "file", file, "line",
                  (json_int_t)problem->line, "column", problem->column, "message", problem->text);
    if (object)
        json_dumpf(object, stderr, JSON_COMPACT);
    fputc('\n', stderr);
    json_decref(object);
}

static bool send_header(struct spw_ctl *ctl, struct spw_client_call *call, struct spw_rates_table *table,
                        uint64_t version)
{
    Spillway__V1__RatesHeader header = SPILLWAY__V1__RATES_HEADER__INIT;
    header.source = UNCONST(spw_ctl_value(ctl, "--source"));
    header.as_of = UNCONST(spw_ctl_value(ctl, "--as-of"));
    header.has_sha256 = 1;
    header.sha256.data = table->sha256;
    header.sha256.len = sizeof table->sha256;
    header.has_expect_version = version != 0;
    header.expect_version = version;
    header.has_dry_run = header.dry_run = spw_ctl_value(ctl, "--dry-run") != NULL;
    Spillway__V1__ReplaceRatesRequest part = SPILLWAY__V1__REPLACE_RATES_REQUEST__INIT;
    part.part_case = SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_HEADER;
    part.header = &header;
    return spw_client_send(call, &part.base);
}

static void fill_row(Spillway__V1__RateRow *message, struct spw_rate_row *row)
{
    spillway__v1__rate_row__init(message);
    message->country = row->country;
    message->state = row->state;
    message->has_zip5 = row->zip5 != 0;
    message->has_combined_ppb = 1;
    message->zip5 = row->zip5;
    if (row->plus4_lo != UINT16_MAX) {
        message->has_plus4_lo = message->has_plus4_hi = 1;
        message->plus4_lo = row->plus4_lo;
        message->plus4_hi = row->plus4_hi;
    }
    message->has_state_ppb = message->has_county_ppb = message->has_city_ppb = message->has_special_ppb = 1;
    message->state_ppb = row->state_ppb;
    message->county_ppb = row->county_ppb;
    message->city_ppb = row->city_ppb;
    message->special_ppb = row->special_ppb;
    message->combined_ppb = row->combined_ppb;
    message->region = row->region;
    message->has_valid_from_day = row->valid_from_day != 0;
    message->valid_from_day = row->valid_from_day;
    message->has_valid_to_day = row->valid_to_day != 0;
    message->valid_to_day = row->valid_to_day;
    message->has_least = message->least = row->least;
}

static bool send_rows(struct spw_client_call *call, struct spw_rates_table *table)
{
    static Spillway__V1__RateRow messages[ROWS_A_MESSAGE];
    static Spillway__V1__RateRow *pointers[ROWS_A_MESSAGE];
    for (size_t at = 0; at < table->rows_count;) {
        Spillway__V1__RateRows rows = SPILLWAY__V1__RATE_ROWS__INIT;
        rows.rows = pointers;
        for (; rows.n_rows < ROWS_A_MESSAGE && at < table->rows_count; rows.n_rows++, at++) {
            fill_row(&messages[rows.n_rows], &table->rows[at]);
            pointers[rows.n_rows] = &messages[rows.n_rows];
        }
        Spillway__V1__ReplaceRatesRequest part = SPILLWAY__V1__REPLACE_RATES_REQUEST__INIT;
        part.part_case = SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_ROWS;
        part.rows = &rows;
        if (!spw_client_send(call, &part.base))
            return false;
    }
    return true;
}

static bool send_end(struct spw_client_call *call, const struct spw_rates_table *table)
{
    Spillway__V1__RatesEnd end = SPILLWAY__V1__RATES_END__INIT;
    end.has_rows = 1;
    end.rows = table->rows_count;
    Spillway__V1__ReplaceRatesRequest part = SPILLWAY__V1__REPLACE_RATES_REQUEST__INIT;
    part.part_case = SPILLWAY__V1__REPLACE_RATES_REQUEST__PART_END;
    part.end = &end;
    return spw_client_send(call, &part.base);
}

/* What is counted while files are read, in the order it is told; text NULL: only in JSON. */
struct count {
    const char *name;
    size_t value;
    const char *text;
};

static void print_counts(const struct spw_rates_table *table, json_t *object)
{
    const struct count counts[] = {
        {"bad", table->bad_count, NULL},
        {"mended", table->mended_count,
         "rows mended: an unquoted comma in a name, or a ZIP code without its leading zeros"},
        {"duplicates", table->duplicate_count, "second rows of a ZIP code dropped"},
        {"several", table->several_count, "ZIP codes over several places with different rates"},
        {"mismatches", table->mismatch_count, "rows whose parts do not add up (combined is charged)"},
        {"expired", table->expired_count, "rows left out that ended more than 120 days before --as-of"},
        {"ignored", table->ignored_count, "rows of address ranges left out"},
        {"unjoined", table->unjoined_count, "codes of boundary rows without a rate: they tax nothing"},
        {"untold", table->untold_count, "more problems not shown"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (object)
            json_object_set_new(object, counts[i].name, json_integer((json_int_t)counts[i].value));
        else if (counts[i].value && counts[i].text)
            printf("  %zu %s\n", counts[i].value, counts[i].text);
    }
    if (!object && table->mismatch_count)
        printf("    the largest difference is %u.%07u %%, at ZIP code %05u\n",
               table->mismatch_worst_ppb / 10000000, table->mismatch_worst_ppb % 10000000,
               table->mismatch_worst_zip5);
}

static void print_load(struct spw_ctl *ctl, const struct spw_rates_table *table,
                       const ProtobufCMessage *reply)
{
    const Spillway__V1__ReplaceRatesReply *done = (const Spillway__V1__ReplaceRatesReply *)reply;
    if (ctl->json) {
        json_t *object = spw_json_of_message(reply);
        print_counts(table, object);
        spw_json_print(object, false);
        return;
    }
    printf("%" PRIu64 " rows %s, %zu bad\n", done->rows, done->dry_run ? "would be served" : "served",
           table->bad_count);
    print_counts(table, NULL);
    if (done->dry_run || !done->table)
        return;
    printf("In force in this pod, version %" PRIu64
           ": %u of %u places; the files of the configuration are read again at the next start.\n",
           done->table->version, done->table->records, done->table->capacity);
    if (done->table->nearly_full)
        printf("The table is nearly full: raise segment.rate_records before the next one does not fit.\n");
    for (size_t i = 0; i < done->table->n_sources; i++) {
        if (done->table->sources[i]->refused)
            printf("%s is %u days old: TOO OLD, no fallback is answered from it (fallback.max_age.refuse).\n",
                   done->table->sources[i]->name, done->table->sources[i]->age_days);
    }
}

static int send_all(struct spw_ctl *ctl, struct spw_rates_table *table, uint64_t version)
{
    struct spw_client *client;
    int code = spw_client_open(ctl, &client);
    if (code)
        return code;
    bool upsert = spw_ctl_value(ctl, "--upsert") != NULL;
    struct spw_client_call *call = spw_client_begin(
        client, upsert ? "/spillway.v1.Rates/Upsert" : "/spillway.v1.Rates/Replace", LOAD_TIMEOUT_MS);
    /* A send that fails has met the end of the call: its status says why. */
    if (send_header(ctl, call, table, version) && send_rows(call, table) && send_end(call, table))
        spw_client_send_end(call);
    ProtobufCMessage *reply = spw_client_receive(call, &spillway__v1__replace_rates_reply__descriptor);
    code = spw_client_end(call);
    if (!code && reply)
        print_load(ctl, table, reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    spw_client_close(client);
    return code;
}

/* How files are read. False: told. */
static bool read_options(struct spw_ctl *ctl, struct spw_rates_options *options)
{
    struct spw_error err;
    const char *bad = spw_ctl_value(ctl, "--bad-rows"), *several = spw_ctl_value(ctl, "--several");
    if (bad && spw_parse_percent_ppm(bad, &options->bad_max_ppm, &err)) {
        (void)spw_ctl_usage(ctl, "--bad-rows: %s", err.text);
        return false;
    }
    if (bad && options->bad_max_ppm == 0)
        options->bad_max_ppm = 1; /* 0 would be the default; a millionth of a row is none */
    if (!several || strcmp(several, "highest") == 0)
        return true;
    options->several = strcmp(several, "lowest") == 0 ? SPW_RATES_SEVERAL_LOWEST : SPW_RATES_SEVERAL_FIRST;
    if (strcmp(several, "lowest") != 0 && strcmp(several, "first") != 0) {
        (void)spw_ctl_usage(ctl, "--several: \"%s\" is none of highest, lowest and first", several);
        return false;
    }
    return true;
}

static int run_load(struct spw_ctl *ctl)
{
    struct spw_error err;
    uint64_t version = 0;
    bool has_version;
    int32_t day;
    const char *as_of = spw_ctl_value(ctl, "--as-of");
    if (!as_of || !spw_ctl_value(ctl, "--source"))
        return spw_ctl_usage(
            ctl, "give --as-of DATE and --source NAME: every fallback states where its rate is from");
    if (spw_parse_date_day(as_of, &day, &err))
        return spw_ctl_usage(ctl, "--as-of: %s", err.text);
    if (!spw_ctl_number(ctl, "--expect-version", 1, UINT64_MAX, &version, &has_version))
        return SPW_CTL_USAGE;
    struct spw_rates_options options = {.as_of_day = day, .problem = tell_problem, .owner = ctl};
    if (!read_options(ctl, &options))
        return SPW_CTL_USAGE;
    struct spw_rates_table table;
    int code;
    if (spw_rates_load_set((const char *const *)ctl->arguments, (size_t)ctl->arguments_count, &options,
                           &table, &err))
        code = spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s; nothing was sent", err.text);
    else
        code = send_all(ctl, &table, version);
    spw_rates_clean_up(&table);
    return code;
}

/* ---- lookup ---- */

static void add_rate(struct spw_table *table, const char *name, const Spillway__V1__TaxRate *rate)
{
    if (!rate)
        return;
    spw_table_add(table, "%s", name);
    char percent[32];
    int bytes = snprintf(percent, sizeof percent, "%u.%07u", rate->ppb / 10000000, rate->ppb % 10000000);
    while (percent[bytes - 1] == '0' && percent[bytes - 2] != '.')
        percent[--bytes] = 0;
    spw_table_add(table, "%s %%", percent);
}

static void print_lookup(const Spillway__V1__LookupRateReply *reply, const char *wanted, const char *tax_code)
{
    const Spillway__V1__AppliedRates *rates = reply->rates;
    if (!rates) {
        printf("Nothing is known of %s: fallback.on_no_rate decides.\n", wanted);
        return;
    }
    struct spw_table table = {.columns_count = 2};
    spw_table_add(&table, "match");
    spw_table_add(&table, "%s%s%s, %s", reply->match, reply->zip5 ? " " : "", reply->zip5 ? reply->zip5 : "",
                  reply->state ? reply->state : "-");
    add_rate(&table, "combined", rates->combined);
    add_rate(&table, "state", rates->state);
    add_rate(&table, "county", rates->county);
    add_rate(&table, "city", rates->city);
    add_rate(&table, "special", rates->special);
    spw_table_add(&table, "source");
    spw_table_add(&table, "%s of %s, %u days old%s", rates->source, rates->as_of, rates->age_days,
                  reply->refused ? ": TOO OLD, not served"
                  : rates->stale ? ": older than fallback.max_age.warn"
                                 : "");
    if (reply->valid_from || reply->valid_to) {
        spw_table_add(&table, "holds");
        spw_table_add(&table, "%s to %s", reply->valid_from ? reply->valid_from : "any day",
                      reply->valid_to ? reply->valid_to : "further notice");
    }
    if (tax_code) {
        spw_table_add(&table, "tax code");
        spw_table_add(&table, "%s%s", tax_code, reply->own_rate ? ": its own rate" : ": the general rate");
    }
    spw_table_add(&table, "digest");
    spw_table_add(&table, "%s", rates->sha256 ? rates->sha256 : "-");
    spw_table_print(&table);
}

static int run_lookup(struct spw_ctl *ctl)
{
    Spillway__V1__LookupRateRequest request = SPILLWAY__V1__LOOKUP_RATE_REQUEST__INIT;
    request.zip = ctl->arguments_count ? ctl->arguments[0] : NULL;
    request.state = UNCONST(spw_ctl_value(ctl, "--state"));
    request.country = UNCONST(spw_ctl_value(ctl, "--country"));
    request.date = UNCONST(spw_ctl_value(ctl, "--date"));
    request.tax_code = UNCONST(spw_ctl_value(ctl, "--tax-code"));
    request.account = UNCONST(spw_ctl_value(ctl, "--account"));
    request.ship_from_state = UNCONST(spw_ctl_value(ctl, "--from-state"));
    if (!request.zip && !request.state && !request.country)
        return spw_ctl_usage(ctl, "say where: a ZIP code, --state, or both");
    if (request.account && !request.tax_code)
        return spw_ctl_usage(
            ctl, "--account: says whose learned rates count; name the product too, by --tax-code");
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Rates/Lookup", &request.base,
                                &spillway__v1__lookup_rate_reply__descriptor, &reply);
    if (code)
        return code;
    if (ctl->json)
        spw_json_print(spw_json_of_message(reply), false);
    else
        print_lookup((const Spillway__V1__LookupRateReply *)reply,
                     request.zip     ? request.zip
                     : request.state ? request.state
                                     : request.country,
                     request.tax_code);
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

/* ---- show ---- */

static const char *served(const Spillway__V1__RateSource *source)
{
    return source->refused ? "NO, TOO OLD" : source->stale ? "stale" : "yes";
}

static void print_refreshes(const Spillway__V1__DescribeRatesReply *reply)
{
    int64_t now_ms = (int64_t)time(NULL) * 1000;
    for (size_t i = 0; i < reply->n_refreshes; i++) {
        const Spillway__V1__RatesRefresh *r = reply->refreshes[i];
        printf("refresh of %s: ", r->account);
        if (r->has_succeeded_unix_ms)
            printf("fetched %" PRId64 " minutes ago", (now_ms - r->succeeded_unix_ms) / 60000);
        else
            printf("NOT FETCHED YET");
        printf(", %" PRIu64 " failures since the start%s", r->failures, r->running ? ", under way" : "");
        printf(", next in %" PRId64 " minutes\n", (r->next_unix_ms - now_ms) / 60000);
        if (r->error)
            printf("  THE LAST TRY FAILED: %s\n", r->error);
    }
}

static int run_show(struct spw_ctl *ctl)
{
    static const char *const titles[] = {"SOURCE", "AS OF", ">DAYS OLD", "SERVED", ">ROWS", "SHA-256"};
    Spillway__V1__DescribeRatesRequest request = SPILLWAY__V1__DESCRIBE_RATES_REQUEST__INIT;
    ProtobufCMessage *reply;
    int code = spw_client_unary(ctl, "/spillway.v1.Rates/Describe", &request.base,
                                &spillway__v1__describe_rates_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__RatesTable *r = ((const Spillway__V1__DescribeRatesReply *)reply)->table;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else if (r) {
        printf("%u of %u places, version %" PRIu64 "\n", r->records, r->capacity, r->version);
        if (r->nearly_full)
            printf("NEARLY FULL: raise segment.rate_records before the next table does not fit\n");
        if (r->upserts)
            printf("%u rows put in since the table was replaced (%u places come back when needed)\n",
                   r->upserts, r->replaced);
        printf("%u of %u learned rates, %" PRIu64 " answers learned from, %" PRIu64
               " given up for newer ones\n",
               r->learned, r->learned_capacity, r->learned_total, r->learned_evicted_total);
        struct spw_table table = {.columns_count = sizeof titles / sizeof *titles, .titles = titles};
        for (size_t i = 0; i < r->n_sources; i++) {
            spw_table_add(&table, "%s", r->sources[i]->name);
            spw_table_add(&table, "%s", r->sources[i]->as_of);
            spw_table_add(&table, "%u", r->sources[i]->age_days);
            spw_table_add(&table, "%s", served(r->sources[i]));
            spw_table_add(&table, "%u", r->sources[i]->rows);
            spw_table_add(&table, "%s", r->sources[i]->sha256 ? r->sources[i]->sha256 : "-");
        }
        if (r->n_sources)
            spw_table_print(&table);
        print_refreshes((const Spillway__V1__DescribeRatesReply *)reply);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

/* ---- refresh ---- */

static int run_refresh(struct spw_ctl *ctl)
{
    Spillway__V1__RefreshRatesRequest request = SPILLWAY__V1__REFRESH_RATES_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.account = UNCONST(spw_ctl_value(ctl, "--account"));
    request.has_force = request.force = spw_ctl_value(ctl, "--force") != NULL;
    int code = spw_client_unary(ctl, "/spillway.v1.Rates/Refresh", &request.base,
                                &spillway__v1__refresh_rates_reply__descriptor, &reply);
    if (code)
        return code;
    const Spillway__V1__RefreshRatesReply *r = (const Spillway__V1__RefreshRatesReply *)reply;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(reply), false);
    } else {
        for (size_t i = 0; i < r->n_refreshes; i++)
            if (!request.account || strcmp(request.account, r->refreshes[i]->account) == 0)
                printf("%s: %s; how it ends: spillwayctl rates show\n", r->refreshes[i]->account,
                       r->refreshes[i]->running ? "is being fetched"
                       : r->refreshes[i]->error ? r->refreshes[i]->error
                                                : "fetched");
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return SPW_CTL_OK;
}

const struct spw_ctl_command spw_ctl_rates_commands[] = {
    {.group = "rates",
     .name = "load",
     .arguments = "FILE...",
     .arguments_min = 1,
     .arguments_max = -1,
     .summary =
         "Replace the table of this pod by these files (plain or gzip), until its next start. Formats: "
         "docs/rates.md.",
     .examples =
         "  spillwayctl rates load zip5.csv.gz --as-of 2025-11-01 --source vendor-2025-11\n"
         "  spillwayctl rates load TAXRATES_ZIP5_*.csv --as-of 2025-11-01 --source vendor-2025-11 "
         "--dry-run\n"
         "  spillwayctl rates load MNR2026Q2.csv MNB2026Q2.csv --as-of 2026-04-01 --source sst-2026q2\n",
     .options = {{"--as-of", "DATE", "the day the rates were published for, as 2025-11-01"},
                 {"--source", "NAME", "publisher and edition; letters, digits, '.', '_', '-'"},
                 {"--several", "WHICH",
                  "of a ZIP code's different rates keep the highest (default), lowest or first"},
                 {"--bad-rows", "PERCENT", "refuse a file with more bad rows; default 5%"},
                 {"--expect-version", "N", "refuse if the table is at another version"},
                 {"--upsert", NULL, "put the rows into the table in force instead of replacing it"},
                 {"--dry-run", NULL, "check everything; replace nothing"}},
     .run = run_load},
    {.group = "rates",
     .name = "lookup",
     .arguments = "[ZIP]",
     .arguments_max = 1,
     .summary = "The rate a fallback to this place would be answered from.",
     .examples =
         "  spillwayctl rates lookup 98110\n  spillwayctl rates lookup 98110-1234 --state WA --json\n"
         "  spillwayctl rates lookup 98110 --date 2026-04-01 --tax-code PC040100 --account avalara-main\n",
     .options = {{"--state", "STATE", "two capital letters"},
                 {"--country", "CODE", "two capital letters; default US"},
                 {"--date", "DATE", "day of the sale; default today"},
                 {"--tax-code", "CODE", "the provider's code of the product; default general goods"},
                 {"--account", "NAME", "with --tax-code: what was learned for this account counts too"},
                 {"--from-state", "STATE", "where goods leave from, as quotes say it"}},
     .run = run_lookup},
    {.group = "rates",
     .name = "show",
     .arguments = "",
     .summary = "The table in force: size, version, sources.",
     .examples = "  spillwayctl rates show\n",
     .run = run_show},
    {.group = "rates",
     .name = "refresh",
     .arguments = "",
     .summary = "Fetch the rates that providers publish now (fallback.refresh), instead of at their time.",
     .examples = "  spillwayctl rates refresh\n  spillwayctl rates refresh --account avalara-main --force\n",
     .options = {{"--account", "NAME", "this one only; default all of fallback.refresh"},
                 {"--force", NULL, "take a table that has far fewer rows than the one before"}},
     .run = run_refresh},
    {.name = NULL}};
