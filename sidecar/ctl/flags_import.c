/* flags_import.c: spillwayctl flags import: lines that callers were handed back, or of another pod's export or sink.
 *
 * Owns: nothing. Called by: main.c by way of the table in flags.c. Thread: one. Memory: one batch of lines.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/flags.h"
#include "sidecar/message/json.h"

#define BATCH_MAX_COUNT 100
#define BATCH_MAX_BYTES ((size_t)1 << 20) /* servers take 4 MiB */

struct import {
    struct spw_ctl *ctl;
    const char *name; /* of the file */
    FILE *bad;        /* NULL = bad lines are only told */
    char *lines[BATCH_MAX_COUNT];
    uint64_t numbers[BATCH_MAX_COUNT];
    size_t count, bytes;
    uint64_t imported_count, known_count, bad_count;
};

static int send_batch(struct import *import)
{
    Spillway__V1__ImportFlagsRequest request = SPILLWAY__V1__IMPORT_FLAGS_REQUEST__INIT;
    request.n_lines = import->count;
    request.lines = import->lines;
    ProtobufCMessage *reply = NULL;
    int code = SPW_CTL_OK;
    if (import->count)
        code = spw_client_unary(import->ctl, "/spillway.v1.Flags/Import", &request.base,
                                &spillway__v1__import_flags_reply__descriptor, &reply);
    const Spillway__V1__ImportFlagsReply *told = (const Spillway__V1__ImportFlagsReply *)reply;
    for (size_t i = 0; told && i < told->n_bad; i++) {
        size_t index = told->bad[i]->index;
        if (index >= import->count)
            continue;
        fprintf(stderr, "%s:%" PRIu64 ": %s\n", import->name, import->numbers[index], told->bad[i]->why);
        if (import->bad)
            fprintf(import->bad, "# %s:%" PRIu64 ": %s\n%s\n", import->name, import->numbers[index],
                    told->bad[i]->why, import->lines[index]);
    }
    if (told) {
        import->imported_count += told->imported;
        import->known_count += told->known;
        import->bad_count += told->n_bad;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    for (size_t i = 0; i < import->count; i++)
        free(import->lines[i]);
    import->count = import->bytes = 0;
    return code;
}

static int import_file(struct import *import, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int code = SPW_CTL_OK;
    for (uint64_t number = 1; !code && (n = getline(&line, &room, file)) > 0; number++) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (n == 0 || line[0] == '#')
            continue;
        if (import->count == BATCH_MAX_COUNT || import->bytes + (size_t)n > BATCH_MAX_BYTES)
            code = send_batch(import);
        if (code)
            break;
        import->numbers[import->count] = number;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): send_batch frees it, by an index the analyzer does not follow */
        import->lines[import->count] = strdup(line);
        if (!import->lines[import->count]) {
            code = spw_ctl_fail(import->ctl, SPW_CTL_REFUSED, "%s:%" PRIu64 ": no memory for it",
                                import->name, number);
            break;
        }
        import->count++; /* NOLINT(clang-analyzer-unix.Malloc): as above */
        import->bytes += (size_t)n;
    }
    if (!code && ferror(file))
        code = spw_ctl_fail(import->ctl, SPW_CTL_REFUSED, "%s: cannot be read: %s", import->name,
                            strerror(errno));
    int sent = code ? SPW_CTL_OK : send_batch(import);
    for (size_t i = 0; i < import->count; i++)
        free(import->lines[i]);
    import->count = 0;
    free(line);
    return code ? code : sent;
}

static int import_all(struct import *import)
{
    for (int i = 0; i < import->ctl->arguments_count; i++) {
        import->name = import->ctl->arguments[i];
        FILE *file = fopen(import->name, "re");
        if (!file)
            return spw_ctl_fail(import->ctl, SPW_CTL_REFUSED, "%s: cannot be opened: %s", import->name,
                                strerror(errno));
        int code = import_file(import, file);
        fclose(file);
        if (code)
            return code;
    }
    return SPW_CTL_OK;
}

int spw_flags_run_import(struct spw_ctl *ctl)
{
    const char *bad = spw_ctl_value(ctl, "--bad");
    struct import import = {.ctl = ctl};
    if (bad && !(import.bad = fopen(bad, "we")))
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s: cannot be made: %s", bad, strerror(errno));
    int code = import_all(&import);
    if (import.bad && fclose(import.bad) != 0 && !code)
        code = spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s: cannot be written: %s", bad, strerror(errno));
    if (ctl->json)
        spw_json_print(json_pack("{s:I, s:I, s:I}", "imported", (json_int_t)import.imported_count, "known",
                                 (json_int_t)import.known_count, "bad", (json_int_t)import.bad_count),
                       false);
    else
        printf("%" PRIu64 " imported, %" PRIu64 " known before, %" PRIu64 " bad lines\n",
               import.imported_count, import.known_count, import.bad_count);
    return code ? code : import.bad_count ? SPW_CTL_REFUSED : SPW_CTL_OK;
}
