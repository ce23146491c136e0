/* reader.h: the reading connection: exports and look-up.
 *
 * Owns: struct spw_reader. Called by: store. Thread: any; one mutex inside.
 *
 * A row is copied out and the statement reset before its consumer sees it: a consumer that takes minutes holds neither
 * the mutex nor a read transaction, which would keep the write-ahead log from being folded in.
 */
#ifndef SPW_STORE_READER_H
#define SPW_STORE_READER_H

#include <pthread.h>
#include <sqlite3.h>

#include "sidecar/store/reconcile_rows.h"

struct spw_reader {
    pthread_mutex_t mutex;
    sqlite3 *db;           /* NULL = the ledger could not be opened yet */
    sqlite3_stmt *next;    /* by sequence */
    sqlite3_stmt *changed; /* by change */
    sqlite3_stmt *older;   /* of one reference */
    sqlite3_stmt *newest;
    sqlite3_stmt *in_state; /* of reconciliation */
    sqlite3_stmt *history;
    sqlite3_stmt *orders; /* of one quote */
    sqlite3_stmt *all_orders;
};

/* What an export goes by. */
enum spw_reader_key { SPW_READER_SEQUENCE, SPW_READER_CHANGE };

void spw_reader_init(struct spw_reader *reader);
void spw_reader_clean_up(struct spw_reader *reader);
enum spw_status spw_reader_open(struct spw_reader *reader, const char *file,
                                struct spw_error *err) SPW_WARN_UNUSED;
void spw_reader_close(struct spw_reader *reader);

/* Rows whose key is above `after`, in its order. NOT_FOUND: `after` is above the newest key. */
enum spw_status spw_reader_export(struct spw_reader *reader, const char *file, enum spw_reader_key key,
                                  uint64_t after, uint32_t max_count, spw_flag_fn *fn, void *owner,
                                  uint64_t *next, struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_reader_find(struct spw_reader *reader, const char *file, const char *reference,
                                uint32_t max_count, spw_flag_fn *fn, void *owner,
                                struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_reader_rows(struct spw_reader *reader, const char *file,
                                const struct spw_rows_filter *filter, uint64_t after, uint32_t max_count,
                                spw_flag_fn *fn, void *owner, uint64_t *next,
                                struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_reader_history(struct spw_reader *reader, const char *file, const char *flag_id,
                                   spw_history_fn *fn, void *owner, struct spw_error *err) SPW_WARN_UNUSED;
enum spw_status spw_reader_orders(struct spw_reader *reader, const char *file, const char *order_id,
                                  uint64_t after, uint32_t max_count, spw_order_fn *fn, void *owner,
                                  struct spw_error *err) SPW_WARN_UNUSED;

#endif
