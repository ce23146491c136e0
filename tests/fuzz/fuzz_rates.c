/* fuzz_rates.c: any bytes as rate tables. The first byte says how they are read; a NUL byte in the rest begins a second
 * file of the same set, so that a rate file and a boundary file can meet.
 *
 * What comes out is checked against what rates.h promises: places and rates in range, rows in order, no place twice on
 * one day, counts that add up, nothing at all after a refusal. */
#include <string.h>

#include "sidecar/rates/rates.h"
#include "tests/fuzz/fuzz.h"

static size_t told_count;

static void tell(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    SPW_FUZZ_EXPECT(owner && file && memchr(problem->text, 0, sizeof problem->text));
    told_count++;
}

static void check_row(const struct spw_rate_row *row)
{
    SPW_FUZZ_EXPECT(row->country[2] == 0 && row->state[2] == 0 && row->country[0] >= 'A');
    SPW_FUZZ_EXPECT(row->zip5 == 0 || (row->zip5 >= 501 && row->zip5 <= 99950 && row->state[0]));
    SPW_FUZZ_EXPECT(row->combined_ppb <= 1000000000u && row->state_ppb <= 1000000000u);
    SPW_FUZZ_EXPECT(row->plus4_lo == 0xFFFF
                        ? row->plus4_hi == 0xFFFF
                        : row->zip5 && row->plus4_lo <= row->plus4_hi && row->plus4_hi <= 9999);
    SPW_FUZZ_EXPECT(!row->valid_to_day || row->valid_from_day <= row->valid_to_day);
    SPW_FUZZ_EXPECT(memchr(row->region, 0, sizeof row->region));
}

static bool same_place(const struct spw_rate_row *a, const struct spw_rate_row *b)
{
    return memcmp(a->country, b->country, 4) == 0 && a->zip5 == b->zip5 && a->plus4_lo == b->plus4_lo &&
           a->plus4_hi == b->plus4_hi && (a->zip5 || memcmp(a->state, b->state, 4) == 0);
}

static void check(const struct spw_rates_table *table)
{
    SPW_FUZZ_EXPECT(table->rows_count > 0);
    for (size_t i = 0; i < table->rows_count; i++) {
        const struct spw_rate_row *row = &table->rows[i], *before = i ? row - 1 : NULL;
        check_row(row);
        if (before && same_place(before, row))
            SPW_FUZZ_EXPECT(before->valid_to_day && before->valid_to_day < row->valid_from_day);
    }
    SPW_FUZZ_EXPECT(table->several_count <= table->rows_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct spw_rates_bytes files[2] = {{"one", "", 0}, {"two", "", 0}};
    struct spw_rates_table table;
    struct spw_error err;
    uint8_t how = bytes ? data[0] : 0;
    if (bytes > 1) {
        const char *text = (const char *)data + 1;
        size_t left = bytes - 1;
        const char *split = memchr(text, 0, left);
        files[0].text = text;
        files[0].bytes = split ? (size_t)(split - text) : left;
        if (split) {
            files[1].text = split + 1;
            files[1].bytes = left - files[0].bytes - 1;
        }
    }
    struct spw_rates_options options = {.bad_max_ppm = how & 1 ? 1000000 : 0,
                                        .several = (enum spw_rates_several)((how >> 1) % 3),
                                        .as_of_day = how & 16 ? 17897 : 0,
                                        .problem = tell,
                                        .owner = &told_count};
    told_count = 0;
    enum spw_status status = spw_rates_parse_set(files, how & 32 ? 2 : 1, &options, &table, &err);
    SPW_FUZZ_EXPECT(told_count <= 40);
    if (status == SPW_STATUS_OK)
        check(&table);
    else
        SPW_FUZZ_EXPECT(!table.rows && !table.rows_count && err.status == status && err.text[0]);
    spw_rates_clean_up(&table);
    return 0;
}
