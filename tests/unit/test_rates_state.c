/* test_rates_state.c: what the publisher does with the rate table: days, tax codes, upserts, and what was learned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "shm/spw_fallback.h"
#include "tests/support/state_fixture.h"

#define DAY_2026_01_01 20454
#define DAY_2026_04_01 20544

static struct spw_state_fixture f;

static int set_up(void **state)
{
    (void)state;
    spw_state_fixture_make(&f, "limit: {rate: 1/s, burst: 1, pods: 1}", NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spw_state_fixture_remove(&f);
    return 0;
}

static struct spw_rate_row row(const char *region, uint32_t zip, uint32_t combined_ppb)
{
    struct spw_rate_row r;
    memset(&r, 0, sizeof r);
    memcpy(r.country, "US", 3);
    memcpy(r.state, region, 2);
    r.zip5 = zip;
    r.plus4_lo = r.plus4_hi = 0xFFFF;
    r.state_ppb = r.combined_ppb = combined_ppb;
    return r;
}

static struct spw_rate_row dated(struct spw_rate_row r, uint32_t from_day, uint32_t to_day)
{
    r.valid_from_day = from_day;
    r.valid_to_day = to_day;
    return r;
}

static struct spw_rate_row coded(struct spw_rate_row r, const char *code)
{
    r.tax_code_hash = spw_tax_code_hash(code);
    return r;
}

static struct spw_rates_source source_of(const struct spw_rate_row *rows, size_t count, const char *name)
{
    struct spw_rates_source s;
    memset(&s, 0, sizeof s);
    snprintf(s.name, sizeof s.name, "%s", name);
    s.as_of_day = DAY_2026_01_01;
    s.rows = rows;
    s.rows_count = count;
    return s;
}

static void replace(const struct spw_rate_row *rows, size_t count, const char *name)
{
    struct spw_rates_source s = source_of(rows, count, name);
    struct spw_error err;
    assert_int_equal(spw_state_rates_replace(f.state, &s, 1, NULL, &err), SPW_STATUS_OK);
}

static enum spw_status upsert(const struct spw_rate_row *rows, size_t count, const char *name)
{
    struct spw_rates_source s = source_of(rows, count, name);
    struct spw_error err;
    return spw_state_rates_upsert(f.state, &s, NULL, &err);
}

/* The combined rate of a ZIP code (NULL: of the state), or -1. */
static int64_t rate_on(const char *state, const char *zip, const char *code, int32_t day)
{
    struct spw_rate_question question = {.state = state, .zip = zip, .tax_code = code, .day = day};
    struct spw_rate_lookup found;
    struct spw_error err;
    assert_int_equal(spw_state_rates_lookup(f.state, &question, &found, &err), SPW_STATUS_OK);
    return found.match == SPW_MATCH_NONE ? -1 : (int64_t)found.record.combined_ppb;
}

/* One destination, three times: the day of the sale decides, the days themselves included. */
static void days(void **state)
{
    const struct spw_rate_row rows[] = {
        dated(row("MN", 55401, 70), 20000, DAY_2026_01_01 - 1),
        dated(row("MN", 55401, 80), DAY_2026_04_01, 0),
        dated(row("MN", 55401, 75), DAY_2026_01_01, DAY_2026_04_01 - 1),
        dated(row("MN", 55402, 60), DAY_2026_04_01, 0),
    };
    (void)state;
    replace(rows, 4, "dated");
    assert_int_equal(rate_on(NULL, "55401", NULL, 20000), 70);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_01_01 - 1), 70);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_01_01), 75);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_04_01 - 1), 75);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_04_01), 80);
    assert_int_equal(rate_on(NULL, "55401", NULL, 60000), 80);
    assert_int_equal(rate_on(NULL, "55401", NULL, 19999), -1);
    assert_int_equal(rate_on(NULL, "55402", NULL, DAY_2026_04_01 - 1), -1); /* not yet */
    assert_int_equal(rate_on("MN", NULL, NULL, DAY_2026_01_01), 75); /* the average is of the table's day */
    /* The first on the way, whatever the day, is the one of the table's day: a client that knows no days takes it. */
    struct spw_place place = {.country = "US", .zip5 = 55401, .has_zip = true};
    static const uint32_t levels[] = {SPW_RATE_ZIP5, 0};
    struct spw_rate_record record;
    struct spw_source source;
    assert_int_equal(spw_rates_find(f.map, &place, levels, &record, &source), SPW_RATES_FOUND);
    assert_int_equal(record.combined_ppb, 75);
}

/* Of two sources the later wins on the days it speaks of; on others the earlier one still does. */
static void later_sources_win(void **state)
{
    const struct spw_rate_row national[] = {row("MN", 55401, 1), row("MN", 55402, 2)};
    const struct spw_rate_row streamlined[] = {dated(row("MN", 55401, 10), DAY_2026_01_01, 0)};
    const struct spw_rate_row own[] = {row("MN", 55402, 20)};
    struct spw_rates_source sources[] = {source_of(national, 2, "national"), source_of(streamlined, 1, "sst"),
                                         source_of(own, 1, "own")};
    struct spw_error err;
    (void)state;
    assert_int_equal(spw_state_rates_replace(f.state, sources, 3, NULL, &err), SPW_STATUS_OK);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_01_01), 10);
    assert_int_equal(rate_on(NULL, "55401", NULL, DAY_2026_01_01 - 1), 1);
    assert_int_equal(rate_on(NULL, "55402", NULL, DAY_2026_01_01), 20);
}

/* A code's own record goes before the general one, at whichever level; other codes do not see it. */
static void tax_codes(void **state)
{
    struct spw_rate_row state_wide = coded(row("PA", 0, 0), "CLOTHING");
    const struct spw_rate_row rows[] = {row("PA", 19103, 80), state_wide,
                                        coded(row("PA", 19104, 55), "CLOTHING")};
    (void)state;
    replace(rows, 3, "coded");
    assert_int_equal(rate_on("PA", "19103", NULL, spw_state_fixture_today()), 80);
    assert_int_equal(rate_on("PA", "19103", "CLOTHING", spw_state_fixture_today()), 0);
    assert_int_equal(rate_on("PA", "19104", "CLOTHING", spw_state_fixture_today()), 55);
    assert_int_equal(rate_on("PA", "19103", "BOOKS", spw_state_fixture_today()), 80);
    assert_int_equal(rate_on("PA", "19104", NULL, spw_state_fixture_today()),
                     80); /* the average; the coded row is none of its rows */
}

static void states_and_countries(void **state)
{
    struct spw_rate_row stated = row("WA", 0, 90), least = row("WI", 0, 50), alone = row("GA", 0, 40);
    struct spw_rate_row ontario = row("ON", 0, 130), canada = row("ON", 0, 50);
    memcpy(ontario.country, "CA", 3);
    memcpy(canada.country, "CA", 3);
    memset(canada.state, 0, sizeof canada.state);
    least.least = alone.least = true;
    const struct spw_rate_row rows[] = {
        row("WA", 98110, 92), stated, row("WI", 53703, 55), least, alone, ontario, canada};
    (void)state;
    replace(rows, 7, "levels");
    assert_int_equal(rate_on("WA", NULL, NULL, spw_state_fixture_today()), 90); /* stated: no mean is made */
    assert_int_equal(rate_on("WI", NULL, NULL, spw_state_fixture_today()),
                     55); /* a mean is better than the state's own part alone */
    assert_int_equal(rate_on("GA", NULL, NULL, spw_state_fixture_today()), 40);
    struct spw_rate_question question = {.country = "CA", .state = "ON", .zip = "K1A 0B1"};
    struct spw_rate_lookup found;
    struct spw_error err;
    assert_int_equal(spw_state_rates_lookup(f.state, &question, &found, &err), SPW_STATUS_OK);
    assert_int_equal(found.record.combined_ppb, 130);
    question.state = "QC";
    assert_int_equal(spw_state_rates_lookup(f.state, &question, &found, &err), SPW_STATUS_OK);
    assert_int_equal(found.match, SPW_MATCH_COUNTRY);
    assert_int_equal(found.record.combined_ppb, 50);
}

/* Upserts: new places, new rates, days before and behind; the table's version stays, and so does what is not named. */
static void upserts(void **state)
{
    const struct spw_rate_row first[] = {row("WA", 98110, 92), row("WA", 98101, 100)};
    (void)state;
    const struct spw_rate_row fresh = row("OR", 97201, 1);
    assert_int_equal(upsert(&fresh, 1, "before"), SPW_STATUS_OK); /* also where there is no table yet */
    assert_int_equal(rate_on(NULL, "97201", NULL, spw_state_fixture_today()), 1);
    replace(first, 2, "first");
    assert_int_equal(rate_on(NULL, "97201", NULL, spw_state_fixture_today()), -1);
    const struct spw_rate_row more[] = {
        row("WA", 98110, 93), row("WA", 98003, 101),
        dated(row("WA", 98101, 99), (uint32_t)spw_state_fixture_today() + 10, 0),
        coded(row("WA", 98110, 0), "FOOD")};
    assert_int_equal(upsert(more, 4, "fixes"), SPW_STATUS_OK);
    assert_int_equal(rate_on(NULL, "98110", NULL, spw_state_fixture_today()), 93);
    assert_int_equal(rate_on(NULL, "98110", "FOOD", spw_state_fixture_today()), 0);
    assert_int_equal(rate_on(NULL, "98003", NULL, spw_state_fixture_today()), 101);
    assert_int_equal(rate_on(NULL, "98101", NULL, spw_state_fixture_today()), 100);
    assert_int_equal(rate_on(NULL, "98101", NULL, spw_state_fixture_today() + 9), 100);
    assert_int_equal(rate_on(NULL, "98101", NULL, spw_state_fixture_today() + 10), 99);
    struct spw_rates_view view;
    spw_state_rates_view(f.state, &view);
    assert_int_equal(view.version, 2);
    assert_int_equal(view.sources_count, 2);
    assert_int_equal(view.upserts_count, 4);
    assert_int_equal(view.replaced_count, 1);
    assert_int_equal(view.coded_count, 1);
    /* One without days stands for all of them, whatever was said of single ones. */
    const struct spw_rate_row always = row("WA", 98101, 7);
    assert_int_equal(upsert(&always, 1, "fixes"), SPW_STATUS_OK);
    assert_int_equal(rate_on(NULL, "98101", NULL, spw_state_fixture_today()), 7);
    assert_int_equal(rate_on(NULL, "98101", NULL, spw_state_fixture_today() + 10), 7);
    /* Adopted with all of it. */
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_int_equal(rate_on(NULL, "98110", NULL, spw_state_fixture_today()), 93);
    assert_int_equal(rate_on(NULL, "98110", "FOOD", spw_state_fixture_today()), 0);
}

/* The room of replaced records comes back: a place may be put in any number of times, and nothing else is lost. */
static void upserts_without_end(void **state)
{
    struct spw_rate_row *rows = calloc(900, sizeof *rows);
    (void)state;
    assert_non_null(rows);
    for (uint32_t i = 0; i < 850; i++)
        rows[i] = row("WA", 98000 + i, i);
    rows[850] = dated(row("WA", 98000, 4711), 1, 2);
    replace(rows, 851, "base");
    struct spw_rates_view view;
    uint32_t told = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        const struct spw_rate_row one = row("WA", 98000 + i % 3, 1000 + i);
        assert_int_equal(upsert(&one, 1, "ticks"), SPW_STATUS_OK);
        spw_state_rates_view(f.state, &view);
        assert_int_equal(view.nearly_full, view.records_count * 10 > 1024 * 9);
        told += view.nearly_full;
    }
    assert_in_range(told, 1, 4999);
    assert_int_equal(rate_on(NULL, "98001", NULL, spw_state_fixture_today()), 1000 + 4999);
    for (uint32_t i = 3; i < 850; i++) {
        char zip[8];
        snprintf(zip, sizeof zip, "%u", 98000 + i);
        assert_int_equal(rate_on(NULL, zip, NULL, spw_state_fixture_today()), i);
    }
    assert_true(view.version > 1 && view.records_count <= view.capacity_count);
    assert_int_equal(view.sources_count, 2);
    /* More than there is room for: refused by name, and the table is as before. */
    for (uint32_t i = 0; i < 900; i++)
        rows[i] = row("OR", 97000 + i, i);
    struct spw_rates_source many = source_of(rows, 900, "many");
    struct spw_error err;
    assert_int_equal(spw_state_rates_upsert(f.state, &many, NULL, &err), SPW_STATUS_FULL);
    assert_non_null(strstr(err.text, "segment.rate_records"));
    assert_int_equal(rate_on(NULL, "97000", NULL, spw_state_fixture_today()), -1);
    assert_int_equal(rate_on(NULL, "98001", NULL, spw_state_fixture_today()), 1000 + 4999);
    free(rows);
}

/* A batch of which one row finds no room in reach of readers: none of it is left. */
static void upsert_all_or_none(void **state)
{
    struct spw_rate_row *rows = calloc(300, sizeof *rows);
    const struct spw_rate_row base = row("WA", 98110, 1);
    (void)state;
    assert_non_null(rows);
    replace(&base, 1, "base");
    rows[0] = row("WA", 98110, 2);
    for (uint32_t i = 1; i < 300; i++) {
        rows[i] = row("TX", 79703, i);
        rows[i].plus4_lo = (uint16_t)(2 * i);
        rows[i].plus4_hi = (uint16_t)(2 * i);
    }
    assert_int_equal(upsert(rows, 300, "crowd"), SPW_STATUS_FULL);
    assert_int_equal(rate_on(NULL, "98110", NULL, spw_state_fixture_today()), 1);
    assert_int_equal(rate_on(NULL, "79703-0002", NULL, spw_state_fixture_today()), -1);
    assert_int_equal(upsert(rows, 200, "crowd"), SPW_STATUS_OK);
    assert_int_equal(rate_on(NULL, "98110", NULL, spw_state_fixture_today()), 2);
    assert_int_equal(rate_on(NULL, "79703-0398", NULL, spw_state_fixture_today()), 199);
    free(rows);
}

/* Readers in another process while one place is put in again and again: old or new, never missing, never mixed. */
static void upserts_under_readers(void **state)
{
    struct spw_rate_row one = row("WA", 98110, 1000);
    (void)state;
    one.city_ppb = 1000;
    replace(&one, 1, "base");
    pid_t child = fork();
    if (child == 0) {
        static const uint32_t levels[] = {SPW_RATE_ZIP5, 0};
        struct spw_place place = {
            .country = "US", .zip5 = 98110, .has_zip = true, .day = (uint32_t)spw_state_fixture_today()};
        for (uint32_t last = 0; last < 1000 + 20000;) {
            struct spw_rate_record record;
            struct spw_source source;
            enum spw_rates_result result = spw_rates_find(f.map, &place, levels, &record, &source);
            if (result == SPW_RATES_BUSY)
                continue;
            if (result != SPW_RATES_FOUND || record.combined_ppb != record.city_ppb ||
                record.combined_ppb != record.state_ppb || record.combined_ppb < last)
                _exit(1);
            last = record.combined_ppb;
        }
        _exit(0);
    }
    for (uint32_t i = 1; i <= 20000; i++) {
        one.combined_ppb = one.city_ppb = one.state_ppb = 1000 + i;
        assert_int_equal(upsert(&one, 1, "base"), SPW_STATUS_OK);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- learned ---- */

static void learn(const char *account, const char *zip, const char *code, uint32_t ppb, int64_t unix_ms)
{
    const struct spw_address from = {.state = "TX", .zip = "75201"}, to = {.state = "WA", .zip = zip};
    struct spw_learned_fact fact = {.account = account,
                                    .ship_from = &from,
                                    .ship_to = &to,
                                    .tax_code = code,
                                    .combined_ppb = ppb,
                                    .unix_ms = unix_ms};
    spw_state_rates_learn(f.state, &fact);
}

static int64_t learned(const char *account, const char *from_state, const char *zip, const char *code)
{
    const struct spw_address from = {.country = zip[5] ? "us" : NULL, .state = from_state},
                             to = {.state = "WA", .zip = zip};
    struct spw_place place;
    struct spw_learned_rate found;
    uint32_t level;
    assert_true(spw_place_from(&to, &place));
    return spw_learned_find(f.map, &place, spw_learned_subject(account, &from, code), &found, &level)
               ? (int64_t)found.combined_ppb
               : -1;
}

/* Account, origin, product and place are all in its name; ZIP+4 before ZIP code; the newest word counts. */
static void learned_by_subject(void **state)
{
    int64_t now_ms = spw_wall_ms();
    (void)state;
    learn("main", "98110-1234", "PC040100", 50, now_ms);
    assert_int_equal(learned("main", "TX", "98110-1234", "PC040100"), 50);
    assert_int_equal(learned("main", "tx", "98110", "PC040100"), 50);
    assert_int_equal(learned("main", "TX", "98110-9999", "PC040100"), 50);
    assert_int_equal(learned("main", "TX", "98101", "PC040100"), -1);
    assert_int_equal(learned("main", "TX", "98110", "PC040101"), -1);
    assert_int_equal(learned("main", "TX", "98110", NULL), -1);
    assert_int_equal(learned("main", "OR", "98110", "PC040100"), -1);
    assert_int_equal(learned("second", "TX", "98110", "PC040100"), -1);
    learn("main", "98110-5678", "PC040100", 60, now_ms + 1);
    assert_int_equal(learned("main", "TX", "98110", "PC040100"), 60);
    assert_int_equal(learned("main", "TX", "98110-1234", "PC040100"), 50);
    learn("main", "98110", NULL, 0, now_ms); /* a true zero is a rate */
    assert_int_equal(learned("main", "TX", "98110", NULL), 0);
    struct spw_rates_view view;
    spw_state_rates_view(f.state, &view);
    assert_int_equal(view.learned_count, 4);
    assert_int_equal(view.learned_total, 3);
    assert_int_equal(view.records_count, 0); /* they take none of the table's room */
}

/* It outlives a replaced table, a restart, and a segment of another plan; an entry cut short is not there. */
static void learned_survives(void **state)
{
    const struct spw_rate_row base = row("WA", 98110, 1);
    (void)state;
    learn("main", "98110", "PC1", 50, spw_wall_ms());
    learn("main", "98110", "PC2", 60, spw_wall_ms());
    replace(&base, 1, "one");
    replace(&base, 1, "two");
    assert_int_equal(learned("main", "TX", "98110", "PC1"), 50);
    const struct spw_address from = {.state = "TX"}, to = {.state = "WA", .zip = "98110"};
    struct spw_place place;
    assert_true(spw_place_from(&to, &place));
    uint64_t key = spw_learned_key(SPW_RATE_ZIP5, &place),
             subject = spw_learned_subject("main", &from, "PC2");
    uint64_t at = spw_learned_set(f.map->pub_section[SPW_PUB_LEARNED].count, key, subject);
    for (uint64_t i = at; i < at + SPW_LEARNED_WAYS; i++) {
        struct spw_learned_rate *entry = spw_learned_at(f.map, i);
        if (entry->key == key && entry->subject == subject)
            entry->seq |= 1; /* as a sidecar that dies in the middle leaves it */
    }
    assert_int_equal(learned("main", "TX", "98110", "PC2"), -1);
    spw_state_fixture_close(&f, false);
    spw_state_fixture_open(&f);
    assert_string_equal(spw_state_origin(f.state), "adopted");
    assert_int_equal(learned("main", "TX", "98110", "PC1"), 50);
    assert_int_equal(learned("main", "TX", "98110", "PC2"), -1);
    learn("main", "98110", "PC2", 61, spw_wall_ms());
    assert_int_equal(learned("main", "TX", "98110", "PC2"), 61);
    spw_state_fixture_close(&f, true);
    f.conf->segment.rate_records_count = 4096;
    spw_state_fixture_open(&f);
    assert_non_null(strstr(spw_state_origin(f.state), "replaced"));
    assert_int_equal(learned("main", "TX", "98110", "PC1"), 50);
    assert_int_equal(learned("main", "TX", "98110", "PC2"), 61);
    assert_int_equal(rate_on(NULL, "98110", NULL, spw_state_fixture_today()), 1);
}

/* Far more than there is room for: the room is not left, the newest are there, and what gave way is counted. */
static void learned_is_bounded(void **state)
{
    struct spw_rates_view view;
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        char zip[8];
        snprintf(zip, sizeof zip, "%05u", 10000 + i);
        learn("main", zip, "PC1", i, (int64_t)1000 + i);
    }
    spw_state_rates_view(f.state, &view);
    assert_int_equal(view.learned_capacity_count, 128); /* an eighth of 1,024 */
    assert_int_equal(view.learned_count, 128);
    assert_int_equal(view.learned_evicted_total, 20000 - 128);
    assert_int_equal(learned("main", "TX", "29999", "PC1"), 19999);
    assert_int_equal(learned("main", "TX", "10000", "PC1"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(days, set_up, tear_down),
        cmocka_unit_test_setup_teardown(later_sources_win, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tax_codes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(states_and_countries, set_up, tear_down),
        cmocka_unit_test_setup_teardown(upserts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(upserts_without_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(upsert_all_or_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(upserts_under_readers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(learned_by_subject, set_up, tear_down),
        cmocka_unit_test_setup_teardown(learned_survives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(learned_is_bounded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
