/* options.c: the command line of spillwayctl. See options.h. */
#include "sidecar/ctl/options.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/conf/conf.h"
#include "sidecar/ctl/credentials.h"

#define DEFAULT_ADDRESS "unix:/run/spillway/pub/control.sock"
#define TIMEOUT_MAX_MS  UINT64_C(86400000)

#define TABLES_COUNT 15u
static const struct spw_ctl_command *const tables[TABLES_COUNT] = {
    spw_ctl_why_commands,        spw_ctl_status_commands,    spw_ctl_limits_commands,
    spw_ctl_breaker_commands,    spw_ctl_gate_commands,      spw_ctl_switches_commands,
    spw_ctl_changes_commands,    spw_ctl_rates_commands,     spw_ctl_flags_commands,
    spw_ctl_exceptions_commands, spw_ctl_reconcile_commands, spw_ctl_replay_commands,
    spw_ctl_headers_commands,    spw_ctl_config_commands,    spw_ctl_check_commands};

static const char COMMON_HELP[] =
    "Common options:\n"
    "  --address ADDRESS   unix:/path; or HOST:PORT of listen.control, which only reads,\n"
    "                      or of listen.control_tls, with the four below\n"
    "                      (default: $SPILLWAY_CONTROL, else " DEFAULT_ADDRESS ")\n"
    "  --ca FILE           PEM: the authority that signed the sidecar's certificate ($SPILLWAY_CA)\n"
    "  --cert FILE         PEM: your certificate; its name has the role ($SPILLWAY_CERT)\n"
    "  --key FILE          PEM: its private key ($SPILLWAY_KEY)\n"
    "  --server-name NAME  the name in the sidecar's certificate, where HOST is another,\n"
    "                      as behind a port-forward ($SPILLWAY_SERVER_NAME)\n"
    "  --json              for machines: JSON on stdout, failures as JSON on stderr\n"
    "  --timeout TIME      how long to wait for the answer, as 500ms, 30s, 5m\n"
    "  --help              this text\n";

static const char TOP_EXAMPLES[] =
    "Orders fall back? First why, which says what would help, then one of:\n"
    "  spillwayctl why\n"
    "  spillwayctl limits set main --rate 150/s --burst 300 --for 2h\n"
    "  spillwayctl breaker reset main\n"
    "  spillwayctl rates load zip5.csv.gz --as-of 2025-11-01 --source vendor-2025-11\n\n"
    "To be reconciled:\n"
    "  spillwayctl flags export --format csv\n\n"
    "spillwayctl COMMAND --help has a command's own options and examples.\n";

static const char EXIT_HELP[] = "Exit codes:\n"
                                "  0  done\n"
                                "  1  refused: the text says why and what to do\n"
                                "  2  the command line makes no sense\n"
                                "  3  the sidecar cannot be reached, or gave no answer in time\n";

/* ---- complaints ---- */

static void complain(bool json, const char *code, const char *text)
{
    if (!json) {
        fprintf(stderr, "spillwayctl: %s\n", text);
        return;
    }
    json_t *object = json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", text);
    if (object)
        json_dumpf(object, stderr, JSON_COMPACT);
    fputc('\n', stderr);
    json_decref(object);
}

int spw_ctl_fail(const struct spw_ctl *ctl, int code, const char *format, ...)
{
    static const char *const names[] = {"OK", "REFUSED", "USAGE", "UNREACHED"};
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    complain(ctl->json, names[code], text);
    return code;
}

int spw_ctl_usage(const struct spw_ctl *ctl, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const struct spw_ctl_command *command = ctl->command;
    const char *group = command && command->group ? command->group : "";
    return spw_ctl_fail(ctl, SPW_CTL_USAGE, "%s (see spillwayctl %s%s%s%s--help)", text, group,
                        *group ? " " : "", command ? command->name : "", command ? " " : "");
}

int spw_ctl_done(const struct spw_ctl *ctl, int code)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code)
        return code; /* what was told already need not be told twice */
    return spw_ctl_fail(ctl, SPW_CTL_REFUSED,
                        "the output could not be written%s%s: make room, or read all of it",
                        errno ? ": " : "", errno ? strerror(errno) : "");
}

/* ---- values ---- */

static int option_index(const struct spw_ctl_command *command, const char *name, size_t bytes)
{
    for (int i = 0; i < (int)SPW_CTL_OPTIONS_MAX_COUNT && command->options[i].name; i++) {
        if (strlen(command->options[i].name) == bytes && memcmp(command->options[i].name, name, bytes) == 0)
            return i;
    }
    return -1;
}

const char *spw_ctl_value(const struct spw_ctl *ctl, const char *name)
{
    int index = option_index(ctl->command, name, strlen(name));
    return index < 0 ? NULL : ctl->values[index];
}

bool spw_ctl_number(const struct spw_ctl *ctl, const char *name, uint64_t least, uint64_t most, uint64_t *out,
                    bool *given)
{
    const char *text = spw_ctl_value(ctl, name);
    *given = text != NULL;
    if (!text)
        return true;
    char *end = NULL;
    errno = 0;
    unsigned long long value = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || value < least || value > most) {
        spw_ctl_usage(ctl, "%s %s: write a whole number, %" PRIu64 " to %" PRIu64, name, text, least, most);
        return false;
    }
    *out = value;
    return true;
}

bool spw_ctl_for(const struct spw_ctl *ctl, uint64_t *out_ms, bool *given)
{
    const char *text = spw_ctl_value(ctl, "--for");
    struct spw_error err;
    *given = text != NULL;
    if (!text)
        return true;
    if (spw_parse_duration_ms(text, out_ms, &err)) {
        (void)spw_ctl_usage(ctl, "--for: %s", err.text);
        return false;
    }
    if (*out_ms >= 1000 && *out_ms <= UINT64_C(604800000))
        return true;
    (void)spw_ctl_usage(ctl, "--for %s: write 1s to 7d", text);
    return false;
}

/* ---- reading ---- */

static bool is_group(const char *word)
{
    for (size_t t = 0; t < TABLES_COUNT; t++) {
        for (const struct spw_ctl_command *c = tables[t]; c->name; c++) {
            if (c->group && strcmp(c->group, word) == 0)
                return true;
        }
    }
    return false;
}

static const struct spw_ctl_command *find_command(const char *group, const char *name)
{
    for (size_t t = 0; t < TABLES_COUNT; t++) {
        for (const struct spw_ctl_command *c = tables[t]; c->name; c++) {
            if (strcmp(c->name, name) == 0 && (group ? c->group && strcmp(c->group, group) == 0 : !c->group))
                return c;
        }
    }
    return NULL;
}

/* The first one or two words choose the command. Options may stand before them. */
static int choose(struct spw_ctl *ctl, char **words, int *words_count, const char **group)
{
    *group = NULL;
    if (!*words_count)
        return ctl->help ? 0 : spw_ctl_usage(ctl, "say what to do");
    int used = 1;
    if (is_group(words[0])) {
        /* A word may be both: "replay EVENTS" and "replay convert". */
        bool alone = find_command(NULL, words[0]) != NULL;
        bool further = *words_count > 1 && find_command(words[0], words[1]) != NULL;
        if (!alone || further)
            *group = words[0];
        if (*group && *words_count == 1)
            return ctl->help ? 0 : spw_ctl_usage(ctl, "%s what? say one of its commands", words[0]);
        used = *group ? 2 : 1;
    }
    ctl->command = find_command(*group, words[used - 1]);
    if (!ctl->command)
        return spw_ctl_usage(ctl, "there is no command %s%s%s", *group ? *group : "", *group ? " " : "",
                             words[used - 1]);
    *words_count -= used;
    ctl->arguments = words + used;
    ctl->arguments_count = *words_count;
    return 0;
}

/* Where the text of a common option goes; NULL = it is none, or its value is no text. */
static const char **common_text(struct spw_ctl *ctl, const char *name, size_t bytes)
{
    const struct {
        const char *name;
        const char **place;
    } texts[] = {{"--address", &ctl->address},
                 {"--ca", &ctl->tls[SPW_CTL_TLS_CA]},
                 {"--cert", &ctl->tls[SPW_CTL_TLS_CERT]},
                 {"--key", &ctl->tls[SPW_CTL_TLS_KEY]},
                 {"--server-name", &ctl->server_name}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strlen(texts[i].name) == bytes && memcmp(texts[i].name, name, bytes) == 0)
            return texts[i].place;
    }
    return NULL;
}

static bool is_timeout(const char *name, size_t bytes)
{
    return bytes == 9 && memcmp(name, "--timeout", 9) == 0;
}

static int set_common(struct spw_ctl *ctl, const char *name, size_t bytes, const char *value)
{
    const char **text = common_text(ctl, name, bytes);
    if (text) {
        *text = value;
    } else if (is_timeout(name, bytes)) {
        struct spw_error err;
        if (spw_parse_duration_ms(value, &ctl->timeout_ms, &err))
            return spw_ctl_usage(ctl, "--timeout: %s", err.text);
        if (ctl->timeout_ms < 1 || ctl->timeout_ms > TIMEOUT_MAX_MS)
            return spw_ctl_usage(ctl, "--timeout %s: write 1ms to 1d", value);
    }
    return 0;
}

static bool is_common_with_value(struct spw_ctl *ctl, const char *name, size_t bytes)
{
    return common_text(ctl, name, bytes) || is_timeout(name, bytes);
}

/* Second pass, when the command is known: its own options. */
static int set_own(struct spw_ctl *ctl, int argc, char **argv)
{
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_words || strncmp(word, "--", 2) != 0)
            continue;
        if (!word[2]) {
            only_words = true;
            continue;
        }
        size_t bytes = strcspn(word, "=");
        if (strcmp(word, "--json") == 0 || strcmp(word, "--help") == 0)
            continue;
        if (is_common_with_value(ctl, word, bytes)) {
            i += word[bytes] != '=';
            continue;
        }
        int index = option_index(ctl->command, word, bytes);
        if (index < 0)
            return spw_ctl_usage(ctl, "there is no option %.*s", (int)bytes, word);
        const struct spw_ctl_option *option = &ctl->command->options[index];
        if (ctl->values[index])
            return spw_ctl_usage(ctl, "%s is given twice", option->name);
        if (!option->value && word[bytes])
            return spw_ctl_usage(ctl, "%s takes no value", option->name);
        if (option->value && !word[bytes] && i + 1 == argc)
            return spw_ctl_usage(ctl, "%s needs a value: %s %s", option->name, option->name, option->value);
        ctl->values[index] = !option->value ? "" : word[bytes] ? word + bytes + 1 : argv[++i];
    }
    return 0;
}

/* Whether an option that is not common takes the next word: any command's option of that name decides, since the names
 * mean the same everywhere. */
static bool takes_value(const char *name, size_t bytes)
{
    for (size_t t = 0; t < TABLES_COUNT; t++) {
        for (const struct spw_ctl_command *c = tables[t]; c->name; c++) {
            int index = option_index(c, name, bytes);
            if (index >= 0)
                return c->options[index].value != NULL;
        }
    }
    return false;
}

/* First pass: words and common options. The command, which says what options there are, may come after them. */
static int split(struct spw_ctl *ctl, int argc, char **argv, char **words, int *words_count)
{
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        size_t bytes = strcspn(word, "=");
        bool has_value = word[bytes] == '=';
        if (only_words || strncmp(word, "--", 2) != 0) {
            words[(*words_count)++] = word;
        } else if (!word[2]) {
            only_words = true;
        } else if (strcmp(word, "--json") == 0) {
            ctl->json = true;
        } else if (strcmp(word, "--help") == 0) {
            ctl->help = true;
        } else if (is_common_with_value(ctl, word, bytes) || takes_value(word, bytes)) {
            if (!has_value && i + 1 == argc)
                return spw_ctl_usage(ctl, "%.*s needs a value", (int)bytes, word);
            const char *value = has_value ? word + bytes + 1 : argv[++i];
            if (set_common(ctl, word, bytes, value))
                return SPW_CTL_USAGE;
        }
    }
    return 0;
}

/* gRPC would take a path without its scheme for a host. */
static void settle_address(struct spw_ctl *ctl)
{
    static char address[300];
    const char *wanted = ctl->address ? ctl->address : getenv("SPILLWAY_CONTROL");
    if (!wanted || !*wanted)
        wanted = DEFAULT_ADDRESS;
    snprintf(address, sizeof address, "%s%s", *wanted == '/' ? "unix:" : "", wanted);
    ctl->address = address;
    const char *name = getenv("SPILLWAY_SERVER_NAME");
    if (!ctl->server_name && name && *name)
        ctl->server_name = name;
}

int spw_ctl_options_read(struct spw_ctl *ctl, int argc, char **argv, const char **group)
{
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int words_count = 0;
    if (!words)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "no memory");
    ctl->words = ctl->arguments = words;
    if (split(ctl, argc, argv, words, &words_count) || choose(ctl, words, &words_count, group))
        return SPW_CTL_USAGE;
    if (!ctl->command || ctl->help)
        return 0;
    if (set_own(ctl, argc, argv))
        return SPW_CTL_USAGE;
    if (words_count < ctl->command->arguments_min)
        return spw_ctl_usage(ctl, "%s is missing", ctl->command->arguments);
    if (ctl->command->arguments_max >= 0 && words_count > ctl->command->arguments_max)
        return spw_ctl_usage(ctl, "%s is one word too many", ctl->arguments[ctl->command->arguments_max]);
    settle_address(ctl);
    return spw_credentials_settle(ctl);
}

/* ---- help ---- */

static void help_line(const struct spw_ctl_command *c)
{
    char head[64];
    snprintf(head, sizeof head, "%s%s%s%s%s", c->group ? c->group : "", c->group ? " " : "", c->name,
             *c->arguments ? " " : "", c->arguments);
    printf("  %-26s %s\n", head, c->summary);
}

static void help_command(const struct spw_ctl_command *c)
{
    printf("Usage: spillwayctl %s%s%s%s%s%s\n\n%s\n\n", c->group ? c->group : "", c->group ? " " : "",
           c->name, *c->arguments ? " " : "", c->arguments, c->options[0].name ? " [options]" : "",
           c->summary);
    if (c->options[0].name)
        printf("Options:\n");
    for (int i = 0; i < (int)SPW_CTL_OPTIONS_MAX_COUNT && c->options[i].name; i++) {
        char head[64];
        snprintf(head, sizeof head, "%s%s%s", c->options[i].name, c->options[i].value ? " " : "",
                 c->options[i].value ? c->options[i].value : "");
        printf("  %-19s %s\n", head, c->options[i].help);
    }
    printf("%s%s\nExamples:\n%s\n%s", c->options[0].name ? "\n" : "", COMMON_HELP, c->examples, EXIT_HELP);
}

void spw_ctl_options_help(const char *group, const struct spw_ctl_command *command)
{
    if (command) {
        help_command(command);
        return;
    }
    printf("Usage: spillwayctl %s COMMAND [options]\n\n%s\n\nCommands:\n", group ? group : "[GROUP]",
           group ? "spillwayctl GROUP COMMAND --help has a command's own options."
                 : "Looks at one sidecar of Spillway and steers it.");
    for (size_t t = 0; t < TABLES_COUNT; t++) {
        for (const struct spw_ctl_command *c = tables[t]; c->name; c++) {
            if (!group || (c->group && strcmp(c->group, group) == 0))
                help_line(c);
        }
    }
    printf("\n%s\n%s", COMMON_HELP, group ? "Examples:\n" : "");
    for (size_t t = 0; t < TABLES_COUNT; t++) {
        for (const struct spw_ctl_command *c = tables[t]; group && c->name; c++) {
            if (c->group && strcmp(c->group, group) == 0)
                printf("%s", c->examples);
        }
    }
    printf("%s\n%s", group ? "" : TOP_EXAMPLES, EXIT_HELP);
}
