/* placed.c: see placed.h. */
#include "sidecar/store/placed.h"

#include <stdio.h>
#include <string.h>

#include "shm/spw_map.h"

#define ROWS_MAX_COUNT 1000 /* of one look; what is left waits for the next */

/* FNV-1a, 64 bit. Ids are random digits, and a collision moves one order to another account's count. */
static uint64_t hash_of(const char *quote_id)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *quote_id; quote_id++)
        hash = (hash ^ (uint8_t)*quote_id) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

void spw_placed_note(struct spw_placed *placed, const char *quote_id, uint32_t account_index)
{
    uint64_t hash = hash_of(quote_id);
    if (account_index < 255) /* SYNC placed: relaxed: a lone word. */
        __atomic_store_n(&placed->notes[hash % SPW_PLACED_NOTES_COUNT],
                         (hash & ~UINT64_C(0xff)) | (account_index + 1), __ATOMIC_RELAXED);
}

static bool find_note(struct spw_placed *placed, const char *quote_id, uint32_t *account_index)
{
    uint64_t hash = hash_of(quote_id);
    /* SYNC placed: relaxed: a lone word. */
    uint64_t note = __atomic_load_n(&placed->notes[hash % SPW_PLACED_NOTES_COUNT], __ATOMIC_RELAXED);
    bool found = note && (note & ~UINT64_C(0xff)) == (hash & ~UINT64_C(0xff));
    *account_index = found ? (uint32_t)(note & 0xff) - 1 : 0;
    return found;
}

static const char *name_at(const struct spw_map *map, uint32_t index)
{
    const struct spw_account *account = map ? spw_account_at(map, index) : NULL;
    return account && account->state != SPW_RECORD_FREE ? account->name : NULL;
}

/* A name as the segment has it; NULL when it has none such. *only: the segment's one account, NULL when there are several. */
static const char *name_in_segment(const struct spw_map *map, const char *name, const char **only)
{
    const char *found = NULL;
    uint32_t count = 0;
    *only = NULL;
    for (uint32_t i = 0; i < SPW_PLACED_ACCOUNTS_COUNT - 1; i++) {
        const char *at = name_at(map, i);
        if (!at)
            continue;
        *only = count++ ? NULL : at;
        if (strncmp(at, name, SPW_NAME_BYTES) == 0)
            found = at;
    }
    return found;
}

/* The row of an account's counts; the first is that of no account. */
static struct spw_placed_account *row_of(struct spw_store_watched *counts, const char *name)
{
    for (uint32_t i = 1; name && i < SPW_PLACED_ACCOUNTS_COUNT; i++) {
        struct spw_placed_account *row = &counts->accounts[i];
        if (!row->name[0])
            snprintf(row->name, sizeof row->name, "%.63s", name);
        if (strncmp(row->name, name, sizeof row->name) == 0)
            return row;
    }
    return &counts->accounts[0];
}

static void count_one(struct spw_placed *placed, const struct spw_map *map, sqlite3_stmt *row,
                      struct spw_store_watched *counts)
{
    const char *said = (const char *)sqlite3_column_text(row, 1);
    const char *quote_id = (const char *)sqlite3_column_text(row, 2);
    bool fallback = sqlite3_column_type(row, 3) != SQLITE_NULL;
    if (fallback)
        said = (const char *)sqlite3_column_text(row, 4);
    const char *only, *name = name_in_segment(map, said ? said : "", &only);
    uint32_t noted;
    if (!name && !fallback && (!said || !said[0]))
        name = quote_id && find_note(placed, quote_id, &noted) ? name_at(map, noted) : only;
    struct spw_placed_account *account = row_of(counts, name);
    uint32_t type = fallback ? (uint32_t)sqlite3_column_int(row, 3) % SPW_FALLBACK_COUNT : SPW_FALLBACK_NONE;
    account->placed_count[type]++;
}

int spw_placed_begin(struct spw_placed *placed, struct spw_ledger *ledger)
{
    sqlite3_stmt *statement = spw_ledger_prepare(ledger, SPW_STATEMENT_PLACED_NEWEST,
                                                 "SELECT ifnull(max(order_row), 0) FROM orders");
    if (!statement)
        return spw_ledger_failure(ledger);
    int rc = spw_statement_row(statement);
    if (rc != SQLITE_ROW)
        return rc;
    placed->counted_row = sqlite3_column_int64(statement, 0);
    return sqlite3_reset(statement);
}

int spw_placed_count(struct spw_placed *placed, struct spw_ledger *ledger, const struct spw_map *map,
                     struct spw_store_watched *counts)
{
    /* A row that is not placed is a cancellation that came before its order. */
    sqlite3_stmt *statement = spw_ledger_prepare(
        ledger, SPW_STATEMENT_PLACED_NEW,
        "SELECT o.order_row, o.account, o.quote_id,"
        " (SELECT type FROM flags f WHERE f.quote_id=o.quote_id LIMIT 1),"
        " (SELECT account FROM flags f WHERE f.quote_id=o.quote_id LIMIT 1)"
        " FROM orders o WHERE o.order_row>?1 AND o.order_state<>0 ORDER BY o.order_row LIMIT ?2");
    if (!statement)
        return spw_ledger_failure(ledger);
    sqlite3_bind_int64(statement, 1, placed->counted_row);
    sqlite3_bind_int(statement, 2, ROWS_MAX_COUNT);
    int rc;
    while ((rc = spw_statement_row(statement)) == SQLITE_ROW) {
        placed->counted_row = sqlite3_column_int64(statement, 0);
        count_one(placed, map, statement, counts);
    }
    return rc;
}
