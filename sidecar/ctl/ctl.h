/* ctl.h: what all commands of spillwayctl share: the command line as read, exit codes, and ways to complain.
 *
 * Owns: struct spw_ctl and struct spw_ctl_command. Called by: main.c and the command files. Thread: one.
 */
#ifndef SPW_CTL_CTL_H
#define SPW_CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#define SPW_CTL_OPTIONS_MAX_COUNT 16u

/* Exit codes; shown by --help, relied upon by scripts. */
enum spw_ctl_exit {
    SPW_CTL_OK = 0,
    SPW_CTL_REFUSED = 1,  /* the sidecar, or a check before it, said no */
    SPW_CTL_USAGE = 2,    /* the command line makes no sense */
    SPW_CTL_UNREACHED = 3 /* no sidecar, or no answer in time */
};

struct spw_ctl;

struct spw_ctl_option {
    const char *name;  /* "--rate" */
    const char *value; /* name of its value in the help, NULL = none is taken */
    const char *help;
};

struct spw_ctl_command {
    const char *group; /* "limits"; NULL = none */
    const char *name;  /* "set" */
    const char *arguments;
    const char *summary;
    const char *examples; /* lines of "  spillwayctl ..." */
    int arguments_min, arguments_max;
    struct spw_ctl_option options[SPW_CTL_OPTIONS_MAX_COUNT]; /* name NULL ends them */
    int (*run)(struct spw_ctl *ctl);
};

/* Files of mutual TLS. */
enum spw_ctl_tls { SPW_CTL_TLS_CA, SPW_CTL_TLS_CERT, SPW_CTL_TLS_KEY, SPW_CTL_TLS_COUNT };

struct spw_ctl {
    const struct spw_ctl_command *command;
    char **words;     /* all that is no option; freed by main */
    char **arguments; /* those behind the command */
    int arguments_count;
    const char *values[SPW_CTL_OPTIONS_MAX_COUNT]; /* of command->options; "" for one that takes no value */
    const char *address;                           /* gRPC's form: "unix:/path" or "host:port" */
    const char *tls[SPW_CTL_TLS_COUNT]; /* NULL = plain: all or none, when the options have been read */
    const char *server_name;            /* of the sidecar's certificate; NULL = the address' */
    bool json;
    bool help;
    uint64_t timeout_ms; /* 0 = the command's own */
};

/* Value of an option of the command, NULL = not given. */
const char *spw_ctl_value(const struct spw_ctl *ctl, const char *name);
/* The same as a whole number. false = it is none in this range; told. Not given: *given false. */
bool spw_ctl_number(const struct spw_ctl *ctl, const char *name, uint64_t least, uint64_t most, uint64_t *out,
                    bool *given);

/* --for as milliseconds, 1s to 7d. false = it is no time; told. Not given: *given false. */
bool spw_ctl_for(const struct spw_ctl *ctl, uint64_t *out_ms, bool *given);

/* "spillwayctl: ..." on stderr; gives SPW_CTL_USAGE, with where to read on. */
int spw_ctl_usage(const struct spw_ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A failure found on this side; as JSON with --json. Gives `code`. */
int spw_ctl_fail(const struct spw_ctl *ctl, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Flush stdout: a full disk or a closed pipe is a failure. Gives `code`, or SPW_CTL_REFUSED. */
int spw_ctl_done(const struct spw_ctl *ctl, int code);

/* The commands, one table a file; name NULL ends each. */
extern const struct spw_ctl_command spw_ctl_status_commands[];
extern const struct spw_ctl_command spw_ctl_limits_commands[];
extern const struct spw_ctl_command spw_ctl_breaker_commands[];
extern const struct spw_ctl_command spw_ctl_why_commands[];
extern const struct spw_ctl_command spw_ctl_switches_commands[];
extern const struct spw_ctl_command spw_ctl_gate_commands[];
extern const struct spw_ctl_command spw_ctl_changes_commands[];
extern const struct spw_ctl_command spw_ctl_config_commands[];
extern const struct spw_ctl_command spw_ctl_rates_commands[];
extern const struct spw_ctl_command spw_ctl_flags_commands[];
extern const struct spw_ctl_command spw_ctl_exceptions_commands[];
extern const struct spw_ctl_command spw_ctl_reconcile_commands[];
extern const struct spw_ctl_command spw_ctl_headers_commands[];
extern const struct spw_ctl_command spw_ctl_replay_commands[];
extern const struct spw_ctl_command spw_ctl_check_commands[];

#endif
