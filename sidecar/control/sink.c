/* sink.c: see sink.h. */
#include "sidecar/control/sink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/spw_map.h"
#include "sidecar/control/messages.h"
#include "sidecar/message/json.h"
#include "sidecar/message/manifest.h"
#include "sidecar/store/job.h"

#define CONSUMER "sink"

struct sink {
    FILE *file;
    struct spw_manifest *manifest;
    uint64_t taken_sequence; /* rows up to here were acknowledged */
    uint64_t deadline_ns;
    bool late;
    bool failed;
};

static bool write_row(void *owner, const struct spw_flag_row *row)
{
    struct sink *sink = owner;
    if (spw_now_ns() >= sink->deadline_ns) {
        sink->late = true;
        return false;
    }
    if (row->sequence <= sink->taken_sequence)
        return true;
    struct spw_arena arena = {0};
    Spillway__V1__Flag *flag = spw_message_flag(&arena, row);
    json_t *line = spw_json_of_flag(flag);
    sink->failed = !line || json_dumpf(line, sink->file, JSON_COMPACT) < 0 || fputc('\n', sink->file) == EOF;
    if (!sink->failed)
        spw_manifest_add(sink->manifest, flag);
    json_decref(line);
    spw_arena_clean_up(&arena);
    return !sink->failed;
}

static enum spw_status write_rows(struct sink *sink, struct spw_store *store, const char *partial,
                                  const struct spw_store_counts *counts, struct spw_error *err)
{
    uint64_t next;
    sink->taken_sequence = counts->acknowledged_sequence;
    sink->file = fopen(partial, "wxe");
    if (!sink->file)
        return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be made: %s; check store.sink.file", partial,
                             strerror(errno));
    enum spw_status status =
        spw_store_export_changes(store, counts->acknowledged_change, UINT32_MAX, write_row, sink, &next, err);
    bool good =
        status == SPW_STATUS_OK && !sink->failed && fflush(sink->file) == 0 && fsync(fileno(sink->file)) == 0;
    int failed = errno;
    if (fclose(sink->file) != 0)
        good = false;
    if (status == SPW_STATUS_OK && !good)
        status = spw_error_set(err, failed == ENOSPC ? SPW_STATUS_NO_SPACE : SPW_STATUS_SYSTEM,
                               "%s: cannot be written: %s; make room in store.sink.file", partial,
                               strerror(failed));
    return status;
}

/* In place, then acknowledged: a death between the two writes them once more elsewhere, and loses none. */
static enum spw_status settle(struct sink *sink, struct spw_store *store, const char *partial,
                              const char *file, struct spw_error *err)
{
    enum spw_status status = spw_manifest_write(sink->manifest, partial, file, "jsonl", !sink->late, err);
    if (status == SPW_STATUS_OK && rename(partial, file) != 0)
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: cannot be renamed to %s: %s", partial, file,
                               strerror(errno));
    if (status == SPW_STATUS_OK)
        status = spw_directory_sync(file, err);
    if (status == SPW_STATUS_OK)
        status = spw_store_acknowledge_change(store, CONSUMER, sink->manifest->newest_change, err);
    return status;
}

enum spw_status spw_sink_drain(struct spw_store *store, const char *dir, uint64_t deadline_ns,
                               struct spw_sink_result *out, struct spw_error *err)
{
    struct spw_store_job durable = {0};
    struct spw_store_counts counts;
    char partial[4112];
    memset(out, 0, sizeof *out);
    spw_store_durable(store, &durable);
    enum spw_status recorded = spw_store_wait(store, &durable);
    spw_store_counts(store, &counts);
    struct sink sink = {.manifest = malloc(sizeof *sink.manifest), .deadline_ns = deadline_ns};
    if (!sink.manifest)
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "sink: no memory for its manifest");
    spw_manifest_init(sink.manifest);
    snprintf(out->file, sizeof out->file, "%s/spillway-flags-%lld-%ld.jsonl", dir, (long long)spw_wall_ms(),
             (long)getpid());
    snprintf(partial, sizeof partial, "%s.partial", out->file);
    enum spw_status status = write_rows(&sink, store, partial, &counts, err);
    out->flags_count = sink.manifest->flags_count;
    out->complete = status == SPW_STATUS_OK && !sink.late && recorded == SPW_STATUS_OK;
    if (status == SPW_STATUS_OK && out->flags_count)
        status = settle(&sink, store, partial, out->file, err);
    else
        unlink(partial);
    if (!out->flags_count || status != SPW_STATUS_OK)
        out->file[0] = 0;
    out->complete &= status == SPW_STATUS_OK;
    free(sink.manifest);
    return status;
}
