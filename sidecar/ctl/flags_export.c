/* flags_export.c: spillwayctl flags export.
 *
 * Owns: the stream and the file while they are written. Called by: main.c by way of the table in flags.c. Thread: one.
 * Memory: one flag and the totals, whatever the size of the ledger.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/csv.h"
#include "sidecar/ctl/flags.h"
#include "sidecar/message/json.h"
#include "sidecar/message/manifest.h"

#define EXPORT_TIMEOUT_MS UINT64_C(3600000)
#define FOLLOW_SECONDS    1
#define PATH_ROOM         4200

struct export
{
    struct spw_ctl *ctl;
    struct spw_client *client;
    bool csv;
    bool by_change;
    bool taken;              /* one at least */
    uint64_t after_sequence; /* the last one written */
    uint64_t after_change;   /* the same, by change */
    uint64_t left;           /* UINT64_MAX = no limit */
    const char *out;         /* NULL = stdout */
    char partial[PATH_ROOM];
    struct spw_manifest *manifest; /* of out */
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
    request.has_sequence = !export->by_change;
    request.sequence = export->after_sequence;
    request.has_change = export->by_change;
    request.change = export->after_change;
    ProtobufCMessage *reply;
    code = spw_client_unary(export->ctl, "/spillway.v1.Flags/Acknowledge", &request.base,
                            &spillway__v1__acknowledge_flags_reply__descriptor, &reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

static int take(struct export *export, const Spillway__V1__Flag *flag)
{
    /* Rows that retention has removed are gone from the front: what is left is contiguous. */
    bool first = !export->taken && export->after_sequence == 0;
    bool follows = flag && (export->by_change ? flag->change > export->after_change
                                              : first || flag->sequence == export->after_sequence + 1);
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
        spw_json_print(spw_json_of_flag(flag), true);
    export->after_sequence = flag->sequence;
    export->after_change = flag->change;
    export->taken = true;
    if (export->manifest)
        spw_manifest_add(export->manifest, flag);
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

/* ---- into a file ---- */

static int fail_file(struct export *export, const char *doing)
{
    int failed = errno;
    unlink(export->partial);
    return spw_ctl_fail(export->ctl, SPW_CTL_REFUSED, "%s: cannot be %s: %s: nothing was acknowledged",
                        export->out, doing, strerror(failed));
}

/* What is printed goes into FILE.partial, which becomes FILE when it is whole. */
static int begin_file(struct export *export)
{
    snprintf(export->partial, sizeof export->partial, "%s.partial", export->out);
    export->manifest = malloc(sizeof *export->manifest);
    if (!export->manifest || !freopen(export->partial, "we", stdout))
        return fail_file(export, "made");
    spw_manifest_init(export->manifest);
    return SPW_CTL_OK;
}

static int end_file(struct export *export)
{
    struct spw_error err = {0};
    if (fflush(stdout) != 0 || ferror(stdout) || fsync(STDOUT_FILENO) != 0)
        return fail_file(export, "written");
    if (spw_manifest_write(export->manifest, export->partial, export->out, export->csv ? "csv" : "jsonl",
                           export->left == UINT64_MAX, &err)) {
        unlink(export->partial);
        return spw_ctl_fail(export->ctl, SPW_CTL_REFUSED, "%s: nothing was acknowledged", err.text);
    }
    if (rename(export->partial, export->out) != 0)
        return fail_file(export, "put in place");
    if (spw_directory_sync(export->out, &err))
        return spw_ctl_fail(export->ctl, SPW_CTL_REFUSED, "%s: nothing was acknowledged", err.text);
    return SPW_CTL_OK;
}

static uint64_t position_of(const struct export *export)
{
    return export->by_change ? export->after_change : export->after_sequence;
}

static int run_all(struct export *export, const char *consumer, bool follow)
{
    uint64_t acknowledged = position_of(export);
    for (;;) {
        int code = run_once(export);
        if (!code && export->out)
            code = end_file(export);
        else if (export->out)
            unlink(export->partial);
        if (!code && consumer && position_of(export) > acknowledged)
            code = acknowledge(export, consumer);
        acknowledged = position_of(export);
        if (code || !follow || !export->left)
            return code;
        code = spw_ctl_done(export->ctl, SPW_CTL_OK);
        if (code)
            return code;
        sleep(FOLLOW_SECONDS);
    }
}

int spw_flags_run_export(struct spw_ctl *ctl)
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
    if (export.by_change && has_after)
        return spw_ctl_usage(ctl, "--after-change and --after exclude one another: resume by one of them");
    export.out = spw_ctl_value(ctl, "--out");
    if (export.out && (!export.out[0] || strlen(export.out) > PATH_ROOM - 64))
        return spw_ctl_usage(ctl, "--out: name a file");
    if (export.out && follow && strcmp(follow, "yes") == 0)
        return spw_ctl_usage(ctl, "--out and --follow yes exclude one another: a file has an end");
    if (export.csv && ctl->json)
        return spw_ctl_usage(ctl, "--json and --format csv exclude one another");
    int code = spw_client_open(ctl, &export.client);
    if (code)
        return code;
    if (export.out)
        code = begin_file(&export);
    if (!code && export.csv)
        spw_csv_print_head();
    if (!code)
        code = run_all(&export, consumer, follow && strcmp(follow, "yes") == 0);
    free(export.manifest);
    spw_client_close(export.client);
    return code;
}
