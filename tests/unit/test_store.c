/* test_store.c: flags into the ledger and out again. */
#include "tests/unit/store_kit.h"

#include <dirent.h>
#include <signal.h>
#include <pthread.h>

#include "sidecar/store/schema.h"

static int set_up(void **state)
{
    return kit_set_up_cells(state, 256);
}

static void a_flag_comes_back_whole(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, "whole");
    snprintf(record.quote_ref, sizeof record.quote_ref, "cart-é-1");
    record.limit_count = UINT64_MAX; /* beyond SQL's signed integers */
    record.remaining_count = 7;
    record.reset_unix_ms = -5;
    record.bucket_tokens_milli = 1500;
    record.evidence_known = SPW_EVIDENCE_LIMIT | SPW_EVIDENCE_REMAINING;
    record.provider_status = 429;
    record.attempts = 2;
    record.breaker_state = 1;
    record.origin = 1;
    record.stale = 1;
    char request[SPW_REQUEST_MAX_BYTES + 1];
    snprintf(request, sizeof request, "{\"a\":\"%*s\"}", (int)sizeof request - 9, "r"); /* 16 cells */
    kit_flag_with(kit, &record, request);
    kit_settle(kit);

    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(1, rows.count);
    struct kit_row *got = &rows.row[0];
    assert_string_equal("", got->reason);
    assert_true(got->row.verified);
    assert_int_equal(1, got->row.sequence);
    assert_int_equal(1, got->row.revision);
    assert_int_equal(SPW_FLAG_PROVISIONAL, got->row.state);
    assert_true(got->row.stored_unix_ms >= record.created_unix_ms);
    assert_memory_equal(&record, &got->row.record, sizeof record);
    assert_memory_equal(lines, got->lines, sizeof lines);
    assert_string_equal("line 1: at general rate\n", got->assumptions);
    assert_string_equal(request, got->request);
    assert_string_equal("", got->order_id);
    kit_rows_free(&rows);
}

static void finance_reads_words_and_numbers(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    kit_settle(kit);
    assert_int_equal(
        2 * 993, kit_number(kit, "SELECT sum(tax_minor) FROM flags JOIN names ON noun='type' AND code=type"
                                 " WHERE name='rate-limit-proactive' AND account='main' AND state='WA'"));
    assert_int_equal(SPW_SCHEMA_VERSION, kit_number(kit, "PRAGMA user_version"));
}

static void a_second_copy_is_dropped(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "once");
    kit_settle(kit);
    kit_flag(kit, "once");
    kit_settle(kit);
    assert_int_equal(1, kit_counts(kit).flags_count);
    assert_int_equal(1, kit_counts(kit).duplicate_count);
    /* Both in one batch, before anything is committed. */
    kit_close(kit);
    kit_flag(kit, "twice");
    kit_flag(kit, "twice");
    kit_open(kit);
    kit_settle(kit);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(2, counts.flags_count);
    assert_int_equal(2, counts.duplicate_count);
    assert_int_equal(2, counts.newest_sequence);
    assert_int_equal(0, counts.damaged_count);
}

static void write_origin(struct kit *kit, const char *tag, const char *decision, uint8_t origin,
                         int64_t created_ms)
{
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, tag);
    snprintf(record.decision_id, sizeof record.decision_id, "%s", decision);
    record.origin = origin;
    record.created_unix_ms = created_ms;
    kit_flag_with(kit, &record, "{}");
    kit_settle(kit);
}

static void the_clients_own_answer_stands(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    write_origin(kit, "loop1", "late", 1, 100);
    write_origin(kit, "segment1", "late", 0, 200);
    write_origin(kit, "segment2", "early", 0, 300);
    write_origin(kit, "loop2", "early", 1, 400);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(2, rows.count);
    assert_string_equal("sf_segment1", rows.row[0].row.record.flag_id);
    assert_int_equal(1, rows.row[0].row.sequence);
    assert_int_equal(2, rows.row[0].row.revision);
    assert_int_equal(200, rows.row[0].row.record.created_unix_ms);
    assert_string_equal("sf_segment2", rows.row[1].row.record.flag_id);
    assert_int_equal(1, rows.row[1].row.revision);
    kit_rows_free(&rows);
    assert_int_equal(1,
                     kit_number(kit, "SELECT count(*) FROM superseded WHERE flag_id='sf_loop1' AND sequence=1"
                                     " AND created_unix_ms=100 AND length(lines)=32"));
    assert_int_equal(
        1, kit_number(kit, "SELECT count(*) FROM superseded WHERE flag_id='sf_loop2' AND sequence=2"));
    assert_int_equal(2, kit_counts(kit).by_state[SPW_FLAG_PROVISIONAL]);
    /* A crash re-read of what was set aside is a second copy, no second row. */
    write_origin(kit, "loop1", "late", 1, 100);
    assert_int_equal(2, kit_number(kit, "SELECT count(*) FROM superseded"));
    assert_int_equal(2, kit_counts(kit).duplicate_count);
    /* Two of the client's own: the one created first stands. */
    write_origin(kit, "segment3", "late", 0, 500);
    rows = kit_export(kit, 0);
    assert_string_equal("sf_segment1", rows.row[0].row.record.flag_id);
    kit_rows_free(&rows);
}

static void an_order_proves_which_answer_was_used(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    write_origin(kit, "loop", "d", 1, 100);
    kit_order(kit, SPW_ORDER_PLACED, "o1", "loop", "main", 993, 150);
    kit_settle(kit);
    write_origin(kit, "segment", "d", 0, 200);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(1, rows.count);
    assert_string_equal("sf_loop", rows.row[0].row.record.flag_id);
    assert_int_equal(SPW_FLAG_CONFIRMED, rows.row[0].row.state);
    assert_string_equal("o1", rows.row[0].order_id);
    kit_rows_free(&rows);
}

static void a_decision_belongs_to_its_account(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, "one");
    snprintf(record.decision_id, sizeof record.decision_id, "1001");
    kit_flag_with(kit, &record, "{}");
    spw_fixture_flag(&kit->segment.map, &record, lines, "two");
    snprintf(record.decision_id, sizeof record.decision_id, "1001");
    snprintf(record.account, sizeof record.account, "second");
    record.account_index = 1;
    kit_flag_with(kit, &record, "{}");
    kit_settle(kit);
    assert_int_equal(2, kit_counts(kit).flags_count);
    assert_int_equal(0, kit_counts(kit).duplicate_count);
    /* A flag id that comes again under another decision is no re-read: it is kept for a person. */
    spw_fixture_flag(&kit->segment.map, &record, lines, "two");
    snprintf(record.decision_id, sizeof record.decision_id, "1002");
    kit_flag_with(kit, &record, "{}");
    kit_settle(kit);
    assert_int_equal(2, kit_counts(kit).flags_count);
    assert_int_equal(1, kit_counts(kit).damaged_count);
}

static void sequence_goes_on_after_a_restart(void **state)
{
    struct kit *kit = *state;
    char tag[16];
    int n = 0;
    for (int round = 0; round < 3; round++) {
        kit_open(kit);
        for (int i = 0; i < 30; i++) {
            snprintf(tag, sizeof tag, "r%d", n++);
            kit_flag(kit, tag);
        }
        if (round == 1)
            kit_settle(kit);
        kit_close(kit); /* takes what is READY */
        assert_int_equal(0, spw_fixture_cells_busy(&kit->segment.map));
    }
    kit_open(kit);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(90, rows.count);
    for (size_t i = 0; i < rows.count; i++)
        assert_int_equal(i + 1, rows.row[i].row.sequence);
    for (int i = 0; i < n; i++) {
        snprintf(tag, sizeof tag, "r%d", i);
        assert_non_null(kit_row_of(&rows, tag));
    }
    kit_rows_free(&rows);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(90, counts.flags_count);
    assert_int_equal(90, counts.by_state[SPW_FLAG_PROVISIONAL]);
    assert_true(counts.writable);
}

struct pages {
    struct kit *kit;
    uint64_t last;
    uint32_t seen, stop_after;
};

static bool count_row(void *owner, const struct spw_flag_row *row)
{
    struct pages *p = owner;
    assert_int_equal(p->last + 1, row->sequence);
    p->last = row->sequence;
    struct kit_rows found = {0}; /* nothing is locked while a consumer has its row */
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_find(p->kit->store, row->record.flag_id, 9, kit_keep_row, &found, NULL));
    assert_int_equal(1, found.count);
    kit_rows_free(&found);
    return ++p->seen != p->stop_after;
}

static void export_goes_page_by_page(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char tag[16];
    for (int i = 0; i < 25; i++) {
        snprintf(tag, sizeof tag, "p%d", i);
        kit_flag(kit, tag);
    }
    kit_settle(kit);
    struct pages p = {.kit = kit};
    uint64_t next = 0;
    for (uint64_t want = 10; next < 25; want = want + 10 < 25 ? want + 10 : 25) {
        assert_int_equal(SPW_STATUS_OK, spw_store_export(kit->store, next, 10, count_row, &p, &next, NULL));
        assert_int_equal(want, next);
    }
    assert_int_equal(25, p.seen);
    assert_int_equal(SPW_STATUS_OK, spw_store_export(kit->store, 25, 10, count_row, &p, &next, NULL));
    assert_int_equal(25, next);
    assert_int_equal(25, p.seen);
    struct pages stops = {.kit = kit, .last = 4, .stop_after = 3};
    assert_int_equal(SPW_STATUS_OK, spw_store_export(kit->store, 4, 100, count_row, &stops, &next, NULL));
    assert_int_equal(7, next);
    /* A consumer from another ledger must hear it. */
    struct spw_error err = {0};
    assert_int_equal(SPW_STATUS_NOT_FOUND, spw_store_export(kit->store, 26, 10, count_row, &p, &next, &err));
    assert_non_null(strstr(err.text, "newest flag is 25"));
    assert_int_equal(SPW_STATUS_NOT_FOUND,
                     spw_store_export(kit->store, UINT64_MAX, 10, count_row, &p, NULL, &err));
}

/* What a reconciler sees that goes by change: of each row the last one, after whatever it took before. */
static void a_later_change_is_told(void **state)
{
    struct kit *kit = *state;
    struct spw_error err = {0};
    uint64_t next = 0;
    kit_open(kit);
    kit_flag(kit, "a");
    kit_flag(kit, "b");
    kit_flag(kit, "c");
    kit_settle(kit);
    struct kit_rows rows = {0};
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_export_changes(kit->store, 0, 2, kit_keep_row, &rows, &next, NULL));
    assert_int_equal(2, rows.count);
    assert_int_equal(rows.row[1].row.change, next);
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_export_changes(kit->store, next, 9, kit_keep_row, &rows, &next, NULL));
    assert_int_equal(3, rows.count);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(i + 1, rows.row[i].row.sequence);
    assert_int_equal(kit_counts(kit).newest_change, next);
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "books", 3, &err));
    kit_rows_free(&rows);
    /* Taken and acknowledged; confirmed and cancelled only then. */
    kit_order(kit, SPW_ORDER_PLACED, "o2", "b", "main", 993, 10);
    kit_settle(kit);
    kit_order(kit, SPW_ORDER_PLACED, "o1", "a", "main", 993, 20);
    kit_settle(kit);
    kit_order(kit, SPW_ORDER_CANCELLED, "o2", NULL, "main", 0, 30);
    kit_settle(kit);
    kit_close(kit);
    kit_open(kit);
    uint64_t before = next;
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_export_changes(kit->store, before, 9, kit_keep_row, &rows, &next, NULL));
    assert_int_equal(2, rows.count);
    assert_int_equal(1, rows.row[0].row.sequence);
    assert_int_equal(SPW_FLAG_CONFIRMED, rows.row[0].row.state);
    assert_int_equal(2, rows.row[0].row.revision);
    assert_int_equal(2, rows.row[1].row.sequence);
    assert_int_equal(SPW_FLAG_CANCELLED, rows.row[1].row.state);
    assert_true(rows.row[0].row.change > before);
    assert_true(rows.row[1].row.change > rows.row[0].row.change);
    assert_int_equal(next, rows.row[1].row.change);
    assert_int_equal(next, kit_counts(kit).newest_change);
    kit_rows_free(&rows);
    /* A flag after its order is stored and bound at once. */
    kit_order(kit, SPW_ORDER_PLACED, "o3", "d", "main", 993, 40);
    kit_settle(kit);
    kit_flag(kit, "d");
    kit_settle(kit);
    assert_int_equal(SPW_STATUS_OK,
                     spw_store_export_changes(kit->store, next, 9, kit_keep_row, &rows, &next, NULL));
    assert_int_equal(1, rows.count);
    assert_int_equal(SPW_FLAG_CONFIRMED, rows.row[0].row.state);
    assert_int_equal(1, rows.row[0].row.revision);
    kit_rows_free(&rows);
    assert_int_equal(SPW_STATUS_NOT_FOUND,
                     spw_store_export_changes(kit->store, next + 1, 9, kit_keep_row, &rows, &next, &err));
    assert_non_null(strstr(err.text, "newest change"));
}

static void acknowledgement_never_moves_back(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_flag(kit, "1");
    kit_flag(kit, "2");
    kit_flag(kit, "3");
    kit_settle(kit);
    struct spw_error err = {0};
    assert_int_equal(SPW_STATUS_NOT_FOUND, spw_store_acknowledge(kit->store, "books", 4, &err));
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "books", 3, &err));
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "books", 1, &err));
    assert_int_equal(SPW_STATUS_OK, spw_store_acknowledge(kit->store, "audit", 2, &err));
    assert_int_equal(3, kit_number(kit, "SELECT sequence FROM acknowledgements WHERE consumer='books'"));
    assert_int_equal(2, kit_number(kit, "SELECT sequence FROM acknowledgements WHERE consumer='audit'"));
    assert_int_equal(3, kit_counts(kit).acknowledged_sequence);
    assert_int_equal(SPW_STATUS_INVALID, spw_store_acknowledge(kit->store, "", 1, &err));
    assert_int_equal(SPW_STATUS_INVALID, spw_store_acknowledge(kit->store, "a\nb", 1, &err));
    kit_close(kit);
    kit_open(kit);
    assert_int_equal(3, kit_counts(kit).acknowledged_sequence);
}

static size_t found_count(struct kit *kit, const char *reference, uint32_t max, uint64_t first)
{
    struct kit_rows rows = {0};
    assert_int_equal(SPW_STATUS_OK, spw_store_find(kit->store, reference, max, kit_keep_row, &rows, NULL));
    if (rows.count)
        assert_int_equal(first, rows.row[0].row.sequence);
    for (size_t i = 1; i < rows.count; i++)
        assert_true(rows.row[i].row.sequence < rows.row[i - 1].row.sequence);
    size_t count = rows.count;
    kit_rows_free(&rows);
    return count;
}

static void a_decision_is_found_by_any_of_its_names(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    char tag[16];
    for (int i = 1; i <= 5; i++) {
        snprintf(tag, sizeof tag, "f%d", i);
        spw_fixture_flag(&kit->segment.map, &record, lines, tag);
        snprintf(record.quote_ref, sizeof record.quote_ref, "%s", i <= 3 ? "cart-7" : "");
        kit_flag_with(kit, &record, "{}");
        kit_settle(kit);
    }
    kit_order(kit, SPW_ORDER_PLACED, "100048213", "f2", "main", 993, 10);
    kit_settle(kit);
    assert_int_equal(1, found_count(kit, "sq_f2", 9, 2));
    assert_int_equal(1, found_count(kit, "d-f4", 9, 4));
    assert_int_equal(1, found_count(kit, "sf_f5", 9, 5));
    assert_int_equal(3, found_count(kit, "cart-7", 9, 3));
    assert_int_equal(2, found_count(kit, "cart-7", 2, 3));
    assert_int_equal(1, found_count(kit, "100048213", 9, 2));
    assert_int_equal(0, found_count(kit, "nobody", 9, 0));
    struct spw_error err = {0};
    assert_int_equal(SPW_STATUS_INVALID, spw_store_find(kit->store, "", 9, kit_keep_row, NULL, &err));
}

/* ---- content of cells that makes no sense ---- */

static void write_bytes(struct kit *kit, uint32_t kind, uint32_t record_bytes, const void *record,
                        size_t bytes, size_t more)
{
    static const uint8_t zeros[4096];
    struct spw_cell_prefix prefix = {kind, record_bytes};
    struct spw_part parts[] = {{&prefix, sizeof prefix}, {record, bytes}, {zeros, more}};
    assert_int_equal(SPW_STATUS_OK, spw_cell_write(&kit->segment.map, kind, parts, 3));
}

static void damaged_cells_are_kept_and_freed(void **state)
{
    struct kit *kit = *state;
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    const struct spw_map *map = &kit->segment.map;
    spw_fixture_flag(map, &record, lines, "bad");
    write_bytes(kit, 77, sizeof record, &record, sizeof record, 0);             /* no such kind */
    write_bytes(kit, SPW_CELL_FLAG, 100000, &record, sizeof record, 0);         /* longer than its bytes */
    write_bytes(kit, SPW_CELL_FLAG, 12, &record, sizeof record, 0);             /* shorter than any flag */
    write_bytes(kit, SPW_CELL_FLAG, sizeof record, &record, sizeof record, 31); /* lines cut */
    write_bytes(kit, SPW_CELL_ORDER, sizeof record, &record, sizeof record, 0); /* op is text */
    struct spw_flag_record odd = record;
    odd.type = 200;
    write_bytes(kit, SPW_CELL_FLAG, sizeof odd, &odd, sizeof odd, 32);
    odd = record;
    odd.flag_id[0] = 0;
    write_bytes(kit, SPW_CELL_FLAG, sizeof odd, &odd, sizeof odd, 32);
    odd = record;
    memcpy(odd.decision_id, "\xff\xfe", 3); /* not UTF-8 */
    write_bytes(kit, SPW_CELL_FLAG, sizeof odd, &odd, sizeof odd, 32);
    odd = record;
    memcpy(odd.account, "a\nb", 4);
    write_bytes(kit, SPW_CELL_FLAG, sizeof odd, &odd, sizeof odd, 32);
    /* A chain whose link leads out of the table, one that bites its tail, one with an impossible length. */
    char request[6000];
    memset(request, 'x', sizeof request - 1);
    request[sizeof request - 1] = 0;
    for (uint32_t i = 0; i < 3; i++) {
        char tag[8];
        snprintf(tag, sizeof tag, "link%u", i);
        spw_fixture_flag(map, &record, lines, tag);
        kit_flag_with(kit, &record, request);
        uint32_t head = 0;
        for (uint32_t at = 0; spw_cell_next_ready(map, &at); at++) {
            if (spw_cell_at(map, at)->next && spw_cell_at(map, at)->next < 1000 &&
                strcmp((char *)spw_cell_at(map, at)->data + 8 + 3, tag) == 0)
                head = at;
        }
        struct spw_cell *cell = spw_cell_at(map, head);
        if (i == 0)
            cell->next = 5000;
        else if (i == 1)
            spw_cell_at(map, cell->next - 1)->next = cell->next;
        else
            cell->bytes = UINT32_MAX;
    }
    kit_flag(kit, "good");
    kit_open(kit);
    while (kit_counts(kit).damaged_count + kit_counts(kit).flags_count < 13)
        usleep(1000);
    struct spw_store_counts counts = kit_counts(kit);
    assert_int_equal(12, counts.damaged_count);
    assert_int_equal(1, counts.flags_count);
    assert_int_equal(1, counts.newest_sequence);
    assert_int_equal(12, kit_number(kit, "SELECT count(*) FROM damaged WHERE reason<>''"));
    assert_int_equal(3, kit_number(kit, "SELECT count(*) FROM damaged WHERE reason LIKE '%chain%'"));
    assert_int_equal(1, kit_number(kit, "SELECT count(*) FROM damaged WHERE hex(bytes) LIKE '4D000000%'"));
    /* No head is left; continuations that hang on nothing go with their writer. */
    uint32_t cursor = 0;
    kit_close(kit);
    assert_false(spw_cell_next_ready(map, &cursor));
    int fd = spw_fixture_rw_open(&kit->segment);
    spw_slot_release(&kit->segment.map);
    assert_int_equal(0, spw_fixture_sweep(map, fd));
    assert_int_equal(0, spw_fixture_cells_busy(map));
    close(fd);
    kit_open(kit);
    assert_int_equal(12, kit_counts(kit).damaged_count);
}

static void broken_text_is_repaired(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    spw_fixture_flag(&kit->segment.map, &record, lines, "latin");
    kit_flag_with(kit, &record,
                  "{\"city\":\"Montr\xe9"
                  "al\x01\",\"ok\":\"\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80\"}");
    kit_settle(kit);
    struct kit_rows rows = kit_export(kit, 0);
    assert_string_equal("{\"city\":\"Montr?al \",\"ok\":\"\xc3\xa9\xf0\x9f\x98\x80???\"}",
                        rows.row[0].request);
    assert_false(rows.row[0].row.verified);
    assert_non_null(strstr(rows.row[0].reason, "UTF-8"));
    kit_rows_free(&rows);
}

/* ---- verification ---- */

typedef void change_fn(struct spw_flag_record *record);
static void other_index(struct spw_flag_record *r)
{
    r->account_index = 1;
}
static void no_index(struct spw_flag_record *r)
{
    r->account_index = 4000000000u;
}
static void other_generation(struct spw_flag_record *r)
{
    r->account_generation = 2;
}
static void other_name(struct spw_flag_record *r)
{
    snprintf(r->account, sizeof r->account, "nobody");
}
static void other_source(struct spw_flag_record *r)
{
    snprintf(r->source, sizeof r->source, "table-2019");
}
static void other_digest(struct spw_flag_record *r)
{
    r->source_sha256[31] ^= 1;
}
static void other_rate(struct spw_flag_record *r)
{
    r->combined_ppb = 1000000;
}
static void other_place(struct spw_flag_record *r)
{
    memcpy(r->zip, "99999", 6);
}
static void no_place(struct spw_flag_record *r)
{
    memcpy(r->zip, "hello", 6);
}
static void no_match(struct spw_flag_record *r)
{
    r->match = SPW_MATCH_NONE;
}
static void default_unconfigured(struct spw_flag_record *r)
{
    r->match = SPW_MATCH_DEFAULT;
}
static void exempt_with_tax(struct spw_flag_record *r)
{
    r->match = SPW_MATCH_EXEMPT;
}
static void other_total(struct spw_flag_record *r)
{
    r->tax_minor = 1;
}
static void other_rounding(struct spw_flag_record *r)
{
    r->rounding =
        SPW_ROUNDING_HALF_UP_ORDER; /* 107.95 x 9.2 % = 9.9314: the same cent, so this one is right */
}
static void foreign_origin(struct spw_flag_record *r)
{
    r->origin = 9;
}

static void a_flag_is_checked_against_the_live_tables(void **state)
{
    struct kit *kit = *state;
    static const struct {
        change_fn *change;
        const char *reason; /* part of it; NULL = verified */
    } table[] = {
        {other_index, "two accounts"},
        {no_index, "no such account"},
        {other_generation, "another generation"},
        {other_name, "two accounts"},
        {other_source, "source"},
        {other_digest, "source"},
        {other_rate, "another rate"},
        {other_place, "does not know"},
        {no_place, "destination"},
        {no_match, "no rate"},
        {default_unconfigured, "default rate"},
        {exempt_with_tax, "there is none"},
        {other_total, "add up"},
        {other_rounding, NULL},
        {foreign_origin, "origin"},
    };
    size_t n = sizeof table / sizeof table[0];
    kit_open(kit);
    for (size_t i = 0; i < n; i++) {
        struct spw_flag_record record;
        struct spw_line_tax lines[2];
        char tag[16];
        snprintf(tag, sizeof tag, "v%zu", i);
        spw_fixture_flag(&kit->segment.map, &record, lines, tag);
        table[i].change(&record);
        kit_flag_with(kit, &record, "{}");
    }
    kit_settle(kit);
    struct kit_rows rows = kit_export(kit, 0);
    assert_int_equal(n, rows.count);
    for (size_t i = 0; i < n; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "v%zu", i);
        struct kit_row *row = kit_row_of(&rows, tag);
        assert_non_null(row);
        assert_int_equal(table[i].reason == NULL, row->row.verified);
        if (table[i].reason && !strstr(row->reason, table[i].reason))
            fail_msg("%s: \"%s\" does not say \"%s\"", tag, row->reason, table[i].reason);
    }
    kit_rows_free(&rows);
}

/* ---- maps and the thread ---- */

static void two_segments_are_drained(void **state)
{
    struct kit *kit = *state;
    struct spw_fixture older;
    spw_fixture_make(&older, NULL);
    spw_fixture_claim(&older.map, &older);
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    kit_open(kit);
    spw_fixture_flag(&older.map, &record, lines, "older1");
    assert_int_equal(SPW_STATUS_OK, spw_fixture_flag_write(&older.map, &record, lines, "", "", 0));
    assert_int_equal(SPW_STATUS_OK, spw_store_add_map(kit->store, &older.map));
    kit_flag(kit, "newer1");
    kit_settle(kit);
    while (spw_fixture_cells_busy(&older.map))
        usleep(1000);
    /* What was READY when the release began is stored when it returns. */
    spw_fixture_flag(&older.map, &record, lines, "older2");
    assert_int_equal(SPW_STATUS_OK, spw_fixture_flag_write(&older.map, &record, lines, "", "", 0));
    spw_store_release_map(kit->store, &older.map);
    assert_int_equal(0, spw_fixture_cells_busy(&older.map));
    assert_int_equal(3, kit_counts(kit).flags_count);
    spw_fixture_remove(&older);
    kit_flag(kit, "newer2"); /* the thread is off the unmapped segment */
    kit_settle(kit);
    assert_int_equal(4, kit_counts(kit).flags_count);
    static struct spw_fixture more[16];
    for (int i = 0; i < 16; i++)
        spw_fixture_make(&more[i], NULL);
    for (int i = 0; i < 15; i++)
        assert_int_equal(SPW_STATUS_OK, spw_store_add_map(kit->store, &more[i].map));
    assert_int_equal(SPW_STATUS_FULL, spw_store_add_map(kit->store, &more[15].map));
    assert_int_equal(SPW_STATUS_OK, spw_store_add_map(kit->store, &more[7].map)); /* it has a place already */
    spw_store_release_map(kit->store, &more[7].map);
    assert_int_equal(SPW_STATUS_OK, spw_store_add_map(kit->store, &more[15].map));
    for (int i = 0; i < 16; i++)
        spw_store_release_map(kit->store, &more[i].map);
    for (int i = 0; i < 16; i++)
        spw_fixture_remove(&more[i]);
}

static void freeing_that_was_cut_short_is_finished(void **state)
{
    struct kit *kit = *state;
    const struct spw_map *map = &kit->segment.map;
    struct spw_flag_record record;
    struct spw_line_tax lines[2];
    char request[9000];
    memset(request, 'x', sizeof request - 1);
    request[sizeof request - 1] = 0;
    for (uint32_t freed = 0; freed < 4; freed++) { /* a chain of five: the head and four */
        spw_fixture_flag(map, &record, lines, "cut");
        kit_flag_with(kit, &record, request);
        uint32_t head = 0, chain[5] = {0}, n = 0;
        assert_true(spw_cell_next_ready(map, &head));
        for (uint32_t at = head; n < 5; at = spw_cell_at(map, at)->next - 1) {
            chain[n++] = at;
            if (!spw_cell_at(map, at)->next)
                break;
        }
        assert_int_equal(5, n);
        uint64_t *word = spw_cell_word_at(map, head);
        spw_store_rel(word, spw_cell_with(*word, SPW_CELL_TAKEN));
        /* Dead after so many steps; another writer has the last cell by now. */
        for (uint32_t i = 0; i < freed; i++) {
            uint64_t *last = spw_cell_word_at(map, chain[4 - i]);
            spw_store_rel(last, spw_cell_freed(*last));
        }
        uint64_t *reused = spw_cell_word_at(map, chain[4]);
        if (freed)
            spw_store_rel(reused, spw_cell_pack(SPW_CELL_WRITING, 5, 1, *reused));
        kit_open(kit);
        kit_close(kit);
        assert_int_equal(freed ? 1 : 0, spw_fixture_cells_busy(map));
        if (freed) {
            assert_int_equal(SPW_CELL_WRITING, spw_cell_state(*reused));
            spw_store_rel(reused, spw_cell_freed(*reused));
        }
    }
    kit_open(kit);
    assert_int_equal(
        0, kit_counts(kit).flags_count); /* a TAKEN record was committed before: it is not read again */
}

static void the_thread_has_a_name_and_takes_no_signals(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    uint64_t blocked = 0;
    while (!blocked) { /* it names itself soon after it has started */
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *e = readdir(tasks); e; e = readdir(tasks)) {
            char path[300], text[2048] = {0}, *at;
            snprintf(path, sizeof path, "/proc/self/task/%.20s/status", e->d_name);
            FILE *f = fopen(path, "r");
            size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
            if (f)
                fclose(f);
            if (n && strncmp(text, "Name:\tspw-store\n", 16) == 0 && (at = strstr(text, "SigBlk:")))
                blocked = strtoull(at + 7, NULL, 16);
        }
        closedir(tasks);
    }
    for (int signal = 1; signal <= 31; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP &&
            signal != SIGBUS) /* main's handler says what that means */
            assert_true(blocked >> (signal - 1) & 1);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, kit_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_flag_comes_back_whole),
        CASE(finance_reads_words_and_numbers),
        CASE(a_second_copy_is_dropped),
        CASE(the_clients_own_answer_stands),
        CASE(an_order_proves_which_answer_was_used),
        CASE(a_decision_belongs_to_its_account),
        CASE(sequence_goes_on_after_a_restart),
        CASE(export_goes_page_by_page),
        CASE(a_later_change_is_told),
        CASE(acknowledgement_never_moves_back),
        CASE(a_decision_is_found_by_any_of_its_names),
        CASE(damaged_cells_are_kept_and_freed),
        CASE(broken_text_is_repaired),
        CASE(a_flag_is_checked_against_the_live_tables),
        CASE(two_segments_are_drained),
        CASE(freeing_that_was_cut_short_is_finished),
        CASE(the_thread_has_a_name_and_takes_no_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
