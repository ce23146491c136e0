/* replay.c: spillwayctl replay: what these limits would have decided, on a clock of their own.
 *
 * Owns: nothing. Called by: main.c. Thread: one. Asks no sidecar.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/ctl/ctl.h"
#include "sidecar/message/json.h"
#include "sidecar/ctl/table.h"
#include "sidecar/replay/convert.h"
#include "sidecar/replay/run.h"

#define OUT_BUFFER_BYTES 65536u

static void add_tally(struct spw_table *table, const char *account, const struct spw_replay_tally *t)
{
    uint64_t ppm = spw_replay_tally_fallback_ppm(t);
    spw_table_add(table, "%s", account);
    spw_table_add(table, "%" PRIu64, t->acquires);
    spw_table_add(table, "%" PRIu64, t->allowed);
    spw_table_add(table, "%" PRIu64, t->acquires - t->allowed);
    spw_table_add(table, "%" PRIu64 ".%02" PRIu64 "%%", ppm / 10000, ppm / 100 % 100);
    spw_table_add(table, "%" PRIu64, t->breaker_openings);
    spw_table_add(table, "%" PRIu64, t->gate_closings);
    spw_table_add(table, "%" PRIu64 "/s", t->peak_asked);
    spw_table_add(table, "%" PRIu64 "/s", t->peak_allowed);
    spw_table_add(table, "%" PRIu64, t->peak_open);
    if (t->seen)
        spw_table_add(table, "%" PRIu64 ".%03" PRIu64, t->lowest_milli / 1000, t->lowest_milli % 1000);
    else
        spw_table_add(table, "-");
}

/* Which rule refused, and what a fallback was called. */
static void add_reasons(struct spw_table *table, const char *account, const struct spw_replay_tally *t)
{
    for (uint32_t i = 1; i < SPW_CAUSE_COUNT; i++) {
        if (!t->refused[i])
            continue;
        spw_table_add(table, "%s", account);
        spw_table_add(table, "refused: %s", spw_cause_name(i));
        spw_table_add(table, "%" PRIu64, t->refused[i]);
    }
    for (uint32_t i = 1; i < SPW_FALLBACK_COUNT; i++) {
        if (!t->fallbacks[i])
            continue;
        spw_table_add(table, "%s", account);
        spw_table_add(table, "fallback: %s", spw_fallback_name(i));
        spw_table_add(table, "%" PRIu64, t->fallbacks[i]);
    }
}

static void print_summary(const struct spw_ctl *ctl, const struct spw_replay *replay,
                          const struct spw_replay_tally *tally)
{
    static const char *const titles[] = {"ACCOUNT",   ">ASKED",        ">ALLOWED",     ">REFUSED",
                                         ">FALLBACK", ">TRIPS",        ">GATE SHUT",   ">PEAK ASKED",
                                         ">PASSED",   ">OPEN AT ONCE", ">LEAST TOKENS"};
    static const char *const reasons[] = {"ACCOUNT", "WHAT", ">TIMES"};
    struct spw_table table = {.columns_count = sizeof titles / sizeof *titles, .titles = titles};
    struct spw_table why = {.columns_count = 3, .titles = reasons};
    for (uint32_t i = 0; i < spw_replay_accounts_count(replay); i++) {
        const char *name = spw_replay_account_name(replay, i);
        if (!tally[i].acquires && !tally[i].outcomes && !tally[i].not_open)
            continue;
        if (ctl->json) {
            spw_json_print(spw_replay_tally_json(&tally[i], name), true);
            continue;
        }
        add_tally(&table, name, &tally[i]);
        add_reasons(&why, name, &tally[i]);
    }
    if (ctl->json)
        return;
    spw_table_print(&table);
    if (why.cells_count) {
        fputc('\n', stdout);
        spw_table_print(&why);
    }
}

static int fail(const struct spw_ctl *ctl, const struct spw_error *err)
{
    return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s", err->text);
}

static int open_input(const struct spw_ctl *ctl, FILE **in, const char **name)
{
    const char *path = ctl->arguments_count ? ctl->arguments[0] : "-";
    bool is_stdin = strcmp(path, "-") == 0;
    *name = is_stdin ? "standard input" : path;
    *in = is_stdin ? stdin : fopen(path, "re");
    return *in ? 0
               : spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                              "%s: cannot be opened: %s: name a file of events, or - for "
                              "standard input",
                              path, strerror(errno));
}

static int replay_file(struct spw_ctl *ctl, struct spw_replay *replay, FILE *in, const char *name)
{
    bool summary = spw_ctl_value(ctl, "--summary") != NULL;
    struct spw_error err;
    struct spw_replay_counts counts;
    struct spw_replay_options options = {.name = name,
                                         .in = in,
                                         .out = summary ? NULL : stdout,
                                         .keep_going = spw_ctl_value(ctl, "--keep-going") != NULL};
    if (summary) {
        options.tally = calloc(spw_replay_accounts_count(replay), sizeof options.tally[0]);
        if (!options.tally)
            return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no memory: raise the memory limit");
    }
    int code = spw_replay_run(replay, &options, &counts, &err) ? fail(ctl, &err) : SPW_CTL_OK;
    if (!code && summary)
        print_summary(ctl, replay, options.tally);
    if (!code && counts.errors)
        code = spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                            "%" PRIu64 " of %" PRIu64 " lines could not be used: see their "
                            "error objects",
                            counts.errors, counts.events);
    free(options.tally);
    return code;
}

static int run_replay(struct spw_ctl *ctl)
{
    const char *path = spw_ctl_value(ctl, "--config"), *epoch = spw_ctl_value(ctl, "--epoch"), *name;
    struct spw_error err;
    struct spw_conf *conf;
    struct spw_replay *replay;
    uint64_t epoch_ns = 0;
    FILE *in;
    if (!path)
        return spw_ctl_usage(ctl, "say whose limits: --config FILE");
    if (epoch && !spw_replay_seconds_parse(epoch, &epoch_ns))
        return spw_ctl_usage(ctl, "--epoch %s: write unix seconds, as 1764201600", epoch);
    if (spw_conf_load_any(path, &conf, &err))
        return fail(ctl, &err);
    int code = open_input(ctl, &in, &name);
    if (!code) {
        setvbuf(stdout, NULL, _IOFBF, OUT_BUFFER_BYTES);
        code = spw_replay_new(conf, (int64_t)(epoch_ns / 1000000), &replay, &err)
                   ? fail(ctl, &err)
                   : replay_file(ctl, replay, in, name);
        spw_replay_destroy(replay);
        if (in != stdin)
            fclose(in);
    }
    spw_conf_destroy(conf);
    return code;
}

static int read_format(struct spw_ctl *ctl, struct spw_convert_options *options)
{
    static const char *const names[] = {"combined", "json", "csv"};
    const char *format = spw_ctl_value(ctl, "--format");
    for (unsigned i = 0; format && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(format, names[i]) == 0) {
            options->format = (enum spw_convert_format)i;
            return 0;
        }
    }
    return spw_ctl_usage(ctl, "--format: combined, json or csv");
}

/* What was left out is told on stderr; a log of which nothing can be read is a failure. */
static int tell_counts(const struct spw_ctl *ctl, const struct spw_convert_counts *counts)
{
    if (counts->back)
        fprintf(stderr,
                "spillwayctl: %" PRIu64
                " stamps lie before the line before them and were taken as of its moment\n",
                counts->back);
    if (!counts->bad)
        return SPW_CTL_OK;
    if (!counts->taken)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no line could be read; the first: %s",
                            counts->first_bad.text);
    fprintf(stderr,
            "spillwayctl: %" PRIu64 " of %" PRIu64
            " lines could not be read and were left out; the first: %s\n",
            counts->bad, counts->lines, counts->first_bad.text);
    return SPW_CTL_OK;
}

static const char *value_or(const struct spw_ctl *ctl, const char *name, const char *otherwise)
{
    const char *value = spw_ctl_value(ctl, name);
    return value ? value : otherwise;
}

static int run_convert(struct spw_ctl *ctl)
{
    struct spw_convert_options options = {.out = stdout,
                                          .account = spw_ctl_value(ctl, "--account"),
                                          .integration = spw_ctl_value(ctl, "--integration"),
                                          .match = spw_ctl_value(ctl, "--match"),
                                          .time_field = value_or(ctl, "--time", "time"),
                                          .status_field = value_or(ctl, "--status", "status"),
                                          .latency_field = value_or(ctl, "--latency", "request_time"),
                                          .outcomes = !spw_ctl_value(ctl, "--no-outcomes"),
                                          .spread = spw_ctl_value(ctl, "--spread") != NULL};
    struct spw_convert_counts counts;
    struct spw_error err;
    if (!options.account)
        return spw_ctl_usage(ctl, "say whose calls these were: --account NAME");
    int code = read_format(ctl, &options);
    if (!code)
        code = open_input(ctl, &options.in, &options.name);
    if (code)
        return code;
    setvbuf(stdout, NULL, _IOFBF, OUT_BUFFER_BYTES);
    code = spw_convert(&options, &counts, &err) ? fail(ctl, &err) : tell_counts(ctl, &counts);
    if (options.in != stdin)
        fclose(options.in);
    return code;
}

const struct spw_ctl_command spw_ctl_replay_commands[] = {
    {.name = "replay",
     .arguments = "[EVENTS]",
     .arguments_max = 1,
     .summary = "What a configuration's limits decide about a list of events, on its own clock.",
     .examples = "  spillwayctl replay --config spillway.yaml events.jsonl\n"
                 "  spillwayctl replay convert --format combined --account main access.log |\n"
                 "      spillwayctl replay --config spillway.yaml --summary\n",
     .options = {{"--config", "FILE", "the configuration; secrets and rate files need not be there"},
                 {"--summary", NULL, "counts for each account instead of a line for each event"},
                 {"--keep-going", NULL, "an event that cannot be used becomes an error object"},
                 {"--epoch", "SECONDS", "unix time when the events' clock is 0 (default 0)"}},
     .run = run_replay},
    {.group = "replay",
     .name = "convert",
     .arguments = "[LOG]",
     .arguments_max = 1,
     .summary = "An access log as events for replay.",
     .examples =
         "  spillwayctl replay convert --format combined --account main --match 'POST /checkout' access.log\n"
         "  spillwayctl replay convert --format json --account main --time ts --latency took_ms "
         "calls.jsonl\n",
     .options = {{"--format", "FORM", "combined (Apache, nginx; also common), json (one object a line), csv"},
                 {"--account", "NAME", "the account the calls were made with"},
                 {"--integration", "NAME", "who made them (default: the account's first)"},
                 {"--match", "REGEX", "only lines that match this extended regular expression"},
                 {"--time", "FIELD", "json, csv: where the time is (default time)"},
                 {"--status", "FIELD", "json, csv: where the HTTP status is (default status)"},
                 {"--latency", "FIELD", "json, csv: seconds, or _ms, _us, _ns (default request_time)"},
                 {"--no-outcomes", NULL, "only the calls: the status is not the provider's"},
                 {"--spread", NULL, "spread the lines of one whole second over it"}},
     .run = run_convert},
    {.name = NULL}};
