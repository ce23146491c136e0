/* acknowledge.c: how far each consumer has come.
 *
 * Owns: the table acknowledgements. Called by: control/, the sink. Thread: any waits; the store thread writes.
 *
 * By sequence: every row up to it was taken, as it was then. By change: every row was taken as it was at that change,
 * so that a row which changes later is told, and counted as not taken, again.
 */
#include "sidecar/store/drain.h"

#include <inttypes.h>
#include <string.h>

#include "sidecar/obs/utf8.h"
#include "sidecar/store/job.h"

#define CONSUMER_MAX_BYTES 63

struct acknowledgement {
    struct spw_store_job job;
    const char *consumer;
    uint64_t sequence; /* 0 = by change */
    uint64_t change;
};

static int write_one(struct spw_batch *batch, const struct acknowledgement *ack)
{
    sqlite3_stmt *statement = spw_ledger_prepare(
        batch->ledger, SPW_STATEMENT_ACKNOWLEDGE,
        "INSERT INTO acknowledgements(consumer, sequence, change, acknowledged_unix_ms) VALUES(?1,?2,?3,?4)"
        " ON CONFLICT(consumer) DO UPDATE SET sequence=max(sequence, excluded.sequence),"
        " change=max(change, excluded.change), acknowledged_unix_ms=excluded.acknowledged_unix_ms"
        " WHERE excluded.sequence>sequence OR excluded.change>change");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_text(statement, 1, ack->consumer, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)ack->sequence);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)ack->change);
    sqlite3_bind_int64(statement, 4, batch->now_unix_ms);
    return spw_statement_run(statement);
}

static int run(struct spw_batch *batch, struct spw_store_job *job)
{
    struct acknowledgement *ack = (struct acknowledgement *)(void *)job;
    struct spw_store_counts *counts = &batch->counts;
    bool by_change = ack->change != 0;
    uint64_t asked = by_change ? ack->change : ack->sequence;
    uint64_t newest = by_change ? counts->newest_change : counts->newest_sequence;
    if (asked > newest) {
        spw_error_set(&job->error, SPW_STATUS_NOT_FOUND,
                      "acknowledge %" PRIu64 ": the newest %s is %" PRIu64
                      "; a consumer that has taken more has taken them from another ledger",
                      asked, by_change ? "change" : "flag", newest);
        return SQLITE_OK;
    }
    int rc = write_one(batch, ack);
    if (ack->sequence > counts->acknowledged_sequence)
        counts->acknowledged_sequence = ack->sequence;
    if (ack->change > counts->acknowledged_change)
        counts->acknowledged_change = ack->change;
    return rc == SQLITE_OK ? spw_count_unacknowledged(batch) : rc;
}

int spw_count_unacknowledged(struct spw_batch *batch)
{
    struct spw_store_counts *counts = &batch->counts;
    sqlite3_stmt *statement =
        spw_ledger_prepare(batch->ledger, SPW_STATEMENT_UNACKNOWLEDGED,
                           "SELECT count(*) FROM flags WHERE sequence>?1 AND change>?2");
    if (!statement)
        return spw_ledger_failure(batch->ledger);
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)counts->acknowledged_sequence);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)counts->acknowledged_change);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    counts->unacknowledged_count = (uint64_t)sqlite3_column_int64(statement, 0);
    return sqlite3_reset(statement);
}

static enum spw_status acknowledge(struct spw_store *store, struct acknowledgement *ack,
                                   struct spw_error *err)
{
    size_t bytes = ack->consumer ? strlen(ack->consumer) : 0;
    if (bytes == 0 || bytes > CONSUMER_MAX_BYTES || !spw_utf8_is_name(ack->consumer, bytes))
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "acknowledge: a consumer's name has 1 to %d bytes of text", CONSUMER_MAX_BYTES);
    spw_store_submit(store, &ack->job, run);
    enum spw_status status = spw_store_wait(store, &ack->job);
    if (status != SPW_STATUS_OK && err)
        *err = ack->job.error;
    return status;
}

enum spw_status spw_store_acknowledge(struct spw_store *store, const char *consumer, uint64_t sequence,
                                      struct spw_error *err)
{
    struct acknowledgement ack = {.consumer = consumer, .sequence = sequence};
    return acknowledge(store, &ack, err);
}

enum spw_status spw_store_acknowledge_change(struct spw_store *store, const char *consumer, uint64_t change,
                                             struct spw_error *err)
{
    struct acknowledgement ack = {.consumer = consumer, .change = change};
    return acknowledge(store, &ack, err);
}
