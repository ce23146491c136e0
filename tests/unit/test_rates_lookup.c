/* test_rates_lookup.c: finding a rate: ZIP+4 ranges, ZIP codes, averages; a table that is replaced, and one whose
 * writer died. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "shm/spw_rates.h"
#include "tests/support/state_fixture.h"

static struct spw_state_fixture f;
static struct spw_rate_record record;
static struct spw_source source;

static const uint32_t ALL[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};

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

static struct spw_rate_row row(const char *region, uint32_t zip, int lo, int hi, uint32_t combined_ppb)
{
    struct spw_rate_row r;
    memset(&r, 0, sizeof r);
    memcpy(r.country, "US", 3);
    memcpy(r.state, region, 2);
    r.zip5 = zip;
    r.plus4_lo = (uint16_t)(lo < 0 ? 0xFFFF : lo);
    r.plus4_hi = (uint16_t)(hi < 0 ? 0xFFFF : hi);
    r.state_ppb = r.combined_ppb = combined_ppb;
    return r;
}

static enum spw_status replace(const struct spw_rate_row *rows, size_t count, const char *name)
{
    struct spw_rates_source s;
    struct spw_error err;
    memset(&s, 0, sizeof s);
    snprintf(s.name, sizeof s.name, "%s", name);
    s.as_of_day = 20393;
    s.rows = rows;
    s.rows_count = count;
    return spw_state_rates_replace(f.state, &s, 1, NULL, &err);
}

static enum spw_rates_result find(const char *state, const char *zip)
{
    struct spw_address address;
    struct spw_place place;
    memset(&address, 0, sizeof address);
    address.state = state;
    address.zip = zip;
    memset(&record, 0, sizeof record);
    if (!spw_place_from(&address, &place))
        return SPW_RATES_NOT_FOUND;
    return spw_rates_find(f.map, &place, ALL, &record, &source);
}

/* The most specific level wins; the range decides among ZIP+4 rows; a state has the mean of its ZIP codes. */
static void levels(void **state)
{
    const struct spw_rate_row rows[] = {
        row("TX", 79703, -1, -1, 82500000),     row("TX", 79704, -1, -1, 80000000),
        row("TX", 79703, 2000, 2199, 70000000), row("TX", 79703, 3000, 3000, 60000000),
        row("TX", 79703, 9000, 9999, 50000000), row("OR", 97201, -1, -1, 0),
    };
    (void)state;
    assert_int_equal(find("TX", "79703"), SPW_RATES_NOT_FOUND); /* no table yet */
    assert_int_equal(replace(rows, sizeof rows / sizeof rows[0], "first"), SPW_STATUS_OK);
    static const struct {
        const char *zip;
        uint32_t ppb, level;
    } cases[] = {
        {"79703", 82500000, SPW_RATE_ZIP5},      {"797032104", 70000000, SPW_RATE_ZIP9},
        {"79703-2000", 70000000, SPW_RATE_ZIP9}, {"79703-2199", 70000000, SPW_RATE_ZIP9},
        {"79703-2200", 82500000, SPW_RATE_ZIP5}, {"79703-3000", 60000000, SPW_RATE_ZIP9},
        {"79703-9999", 50000000, SPW_RATE_ZIP9}, {"79703-", 82500000, SPW_RATE_ZIP5},
        {" 79703 ", 82500000, SPW_RATE_ZIP5},    {"97201", 0, SPW_RATE_ZIP5},
        {"79799", 81250000, SPW_RATE_STATE},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(find("tx", cases[i].zip), SPW_RATES_FOUND);
        assert_int_equal(record.combined_ppb, cases[i].ppb);
        assert_int_equal(record.level, cases[i].level);
        assert_string_equal(source.name, "first");
    }
    assert_int_equal(find(NULL, "79799"), SPW_RATES_NOT_FOUND);
    assert_int_equal(find("WA", "98110"), SPW_RATES_NOT_FOUND);
}

/* A replaced table is in force whole; what it does not know is not found in the old one. */
static void replaced(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        struct spw_rate_row one = row("WA", 98000 + i, -1, -1, 1000000 * (i + 1));
        char name[8];
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(replace(&one, 1, name), SPW_STATUS_OK);
        char zip[8];
        snprintf(zip, sizeof zip, "%u", 98000 + i);
        assert_int_equal(find(NULL, zip), SPW_RATES_FOUND);
        assert_int_equal(record.combined_ppb, 1000000 * (i + 1));
        assert_string_equal(source.name, name);
        snprintf(zip, sizeof zip, "%u", 98000 + i - 1);
        assert_int_equal(find(NULL, zip), SPW_RATES_NOT_FOUND);
    }
    struct spw_rates_view view;
    spw_state_rates_view(f.state, &view);
    assert_int_equal(view.version, 7);
}

/* A table that does not fit is refused, and the old one stays. */
static void too_large(void **state)
{
    struct spw_rate_row *rows = calloc(2000, sizeof *rows);
    (void)state;
    assert_non_null(rows);
    for (uint32_t i = 0; i < 2000; i++)
        rows[i] = row("WA", 98000 + i, -1, -1, 1000000);
    assert_int_equal(replace(rows, 500, "small"), SPW_STATUS_OK);
    assert_int_equal(replace(rows, 2000, "large"), SPW_STATUS_FULL);
    assert_int_equal(find(NULL, "98499"), SPW_RATES_FOUND);
    assert_string_equal(source.name, "small");
    free(rows);
}

/* More ZIP+4 ranges of one ZIP code than a reader looks at: refused by name, not found out at the till. */
static void crowded(void **state)
{
    struct spw_rate_row rows[320];
    (void)state;
    for (int i = 0; i < 319; i++)
        rows[i] = row("TX", 79703, 10 * i, 10 * i + 9, 1000000 + (uint32_t)i);
    rows[319] = row("TX", 79703, -1, -1, 82500000);
    for (int count = 200; count <= 320; count += 120) {
        enum spw_status status = replace(rows + 320 - count, (size_t)count, "ranges");
        assert_int_equal(status, count == 200 ? SPW_STATUS_OK : SPW_STATUS_FULL);
        for (int i = 320 - 200; i < 319; i++) {
            char zip[16];
            snprintf(zip, sizeof zip, "79703-%04d", 10 * i + 5);
            assert_int_equal(find("TX", zip), SPW_RATES_FOUND);
            assert_int_equal(record.combined_ppb, 1000000 + i);
        }
        assert_int_equal(find("TX", "79703"), SPW_RATES_FOUND);
        assert_int_equal(record.level, SPW_RATE_ZIP5);
    }
    assert_int_equal(replace(rows + 319, 1, "after"), SPW_STATUS_OK);
    assert_int_equal(find("TX", "79703"), SPW_RATES_FOUND);
    assert_string_equal(source.name, "after");
}

/* A sidecar that died while it filled a half: the other half serves, and the next one fills it and is believed. */
static void writer_died(void **state)
{
    const struct spw_rate_row first = row("WA", 98110, -1, -1, 1), second = row("WA", 98110, -1, -1, 2);
    (void)state;
    assert_int_equal(replace(&first, 1, "first"), SPW_STATUS_OK);
    for (unsigned died = 0; died < 4; died++) {
        uint64_t active = spw_map_pub(f.map)->rates_active;
        struct spw_rate_half *idle = spw_rate_half_at(f.map, ~active & 1);
        idle->seq = (idle->seq + 1) | 1;
        for (uint64_t i = 0; i < 300; i++)
            *spw_rate_index_at(f.map, (~active & 1) * (f.map->index_mask + 1) + i) =
                UINT64_C(0x1234567800000001);
        assert_int_equal(find(NULL, "98110"), SPW_RATES_FOUND);
        spw_state_fixture_close(&f, false);
        spw_state_fixture_open(&f);
        assert_int_equal(find(NULL, "98110"), SPW_RATES_FOUND); /* adopted with its rates */
        assert_int_equal(replace(died % 2 ? &first : &second, 1, "again"), SPW_STATUS_OK);
        assert_int_equal(find(NULL, "98110"), SPW_RATES_FOUND);
        assert_int_equal(record.combined_ppb, died % 2 ? 1 : 2);
    }
}

/* A half that is being rewritten under the reader is never believed: BUSY after bounded tries, no hang. */
static void busy(void **state)
{
    const struct spw_rate_row one = row("WA", 98110, -1, -1, 1);
    (void)state;
    assert_int_equal(replace(&one, 1, "first"), SPW_STATUS_OK);
    spw_rate_half_at(f.map, spw_map_pub(f.map)->rates_active & 1)->seq |= 1;
    assert_int_equal(find(NULL, "98110"), SPW_RATES_BUSY);
}

/* Damaged index words and records lead nowhere outside the table. */
static void damaged_table(void **state)
{
    const struct spw_rate_row one = row("WA", 98110, -1, -1, 1);
    (void)state;
    assert_int_equal(replace(&one, 1, "first"), SPW_STATUS_OK);
    uint64_t half = spw_map_pub(f.map)->rates_active & 1, words = f.map->index_mask + 1;
    uint64_t hash = spw_rate_hash(spw_rate_key(SPW_RATE_ZIP5, "US", "", 98110));
    uint64_t *word = spw_rate_index_at(f.map, half * words + (hash & f.map->index_mask));
    *word = (hash & UINT64_C(0xFFFFFFFF00000000)) | 0xFFFFFFFF;
    assert_int_equal(find(NULL, "98110"), SPW_RATES_NOT_FOUND);
    *word = hash & UINT64_C(0xFFFFFFFF00000000);
    assert_int_equal(find(NULL, "98110"), SPW_RATES_NOT_FOUND);
    *word = (hash & UINT64_C(0xFFFFFFFF00000000)) | 1;
    spw_rate_record_at(f.map, half * f.map->records_per_half)->source = 0xFFFF;
    assert_int_equal(find(NULL, "98110"), SPW_RATES_FOUND);
    for (uint64_t i = 0; i < words; i++)
        *spw_rate_index_at(f.map, half * words + i) = UINT64_C(0x5555555500000001);
    assert_int_equal(find(NULL, "98110"), SPW_RATES_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(levels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(crowded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writer_died, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_table, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
