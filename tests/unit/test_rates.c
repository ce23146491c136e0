/* test_rates.c: published rate tables: exact numbers, bad rows named and left out, unclear files refused whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "sidecar/rates/rates.h"

#define HEAD                                                                                                 \
    "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
#define ROW "WA,98110,BAINBRIDGE,BVXY,0.087,0.065,0,0.022,0\n"

/* What the reader told about. */
struct told {
    size_t count;
    uint32_t line[16];
    char column[16][32];
    char text[16][192];
};

static void tell(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    struct told *told = owner;
    assert_non_null(file);
    if (told->count < 16) {
        told->line[told->count] = problem->line;
        snprintf(told->column[told->count], 32, "%s", problem->column ? problem->column : "");
        snprintf(told->text[told->count], 192, "%s", problem->text);
    }
    told->count++;
}

static enum spw_status parse(const char *text, uint32_t bad_max_ppm, struct told *told,
                             struct spw_rates_table *table, struct spw_error *err)
{
    *told = (struct told){0};
    struct spw_rates_options options = {.bad_max_ppm = bad_max_ppm, .problem = tell, .owner = told};
    return spw_rates_parse("t.csv", text, strlen(text), &options, table, err);
}

static const struct spw_rate_row *find(const struct spw_rates_table *table, uint32_t zip5)
{
    for (size_t i = 0; i < table->rows_count; i++)
        if (table->rows[i].zip5 == zip5)
            return &table->rows[i];
    return NULL;
}

static void published_sample_loads_with_its_bare_commas(void **unused)
{
    (void)unused;
    struct told told = {0};
    struct spw_rates_options options = {.problem = tell, .owner = &told};
    struct spw_rates_table table;
    struct spw_error err = {0};
    if (spw_rates_load("tests/data/zip5/sample.csv", &options, &table, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(table.rows_count, 312);
    assert_int_equal(table.bad_count, 0);
    assert_int_equal(table.mended_count, 2);
    assert_int_equal(table.duplicate_count, 0);
    assert_int_equal(table.mismatch_count, 0);
    assert_int_equal(told.count, 0);
    const struct spw_rate_row *row = find(&table, 98110);
    assert_non_null(row);
    assert_string_equal(row->country, "US");
    assert_string_equal(row->state, "WA");
    assert_string_equal(row->region, "BAINBRIDGE ISLAND");
    assert_int_equal(row->combined_ppb, 87000000);
    assert_int_equal(row->state_ppb, 65000000);
    assert_int_equal(row->county_ppb, 0);
    assert_int_equal(row->city_ppb, 22000000);
    assert_int_equal(row->special_ppb, 0);
    assert_int_equal(row->plus4_lo, 0xFFFF);
    assert_int_equal(row->plus4_hi, 0xFFFF);
    assert_int_equal(find(&table, 79703)->combined_ppb, 82500000);
    assert_int_equal(find(&table, 99501)->combined_ppb, 0); /* a true zero is a rate */
    assert_non_null(find(&table, 70340));                   /* the comma is in its name */
    assert_non_null(strchr(find(&table, 70340)->region, ','));
    for (size_t i = 1; i < table.rows_count; i++)
        assert_true(table.rows[i - 1].zip5 < table.rows[i].zip5);
    spw_rates_clean_up(&table);
    assert_null(table.rows);
}

static void other_column_set_in_any_order(void **unused)
{
    (void)unused;
    struct spw_rates_table table;
    struct spw_error err = {0};
    if (spw_rates_load("tests/data/zip5/estimated.csv", NULL, &table, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(table.rows_count, 4);
    assert_int_equal(table.rows[0].zip5, 501);
    assert_string_equal(table.rows[0].state, "NY");
    assert_int_equal(table.rows[0].combined_ppb, 86250000);
    assert_int_equal(table.rows[0].special_ppb, 3750000);
    assert_string_equal(find(&table, 98110)->region, "BAINBRIDGE ISLAND, KITSAP");
    assert_string_equal(find(&table, 99950)->region, "THE \"LAST\" PLACE");
    spw_rates_clean_up(&table);
}

static void spellings_of_the_same_table(void **unused)
{
    (void)unused;
    static const char *const CASES[] = {
        HEAD ROW,
        "\xEF\xBB\xBF" HEAD ROW,
        "\n" HEAD "\n" ROW "   \n\n",
        HEAD "WA,98110,BAINBRIDGE,BVXY,0.087,0.065,0,0.022,0",
        HEAD "\"WA\",\"98110\",\"BAINBRIDGE\",\"BVXY\",\"0.087\",\"0.065\",\"0\",\"0.022\",\"0\"\n",
        HEAD " WA , 98110 , BAINBRIDGE , BVXY , .087 , 0.0650000000000000 , 0.0 , 0.022000 , 000 \n",
        HEAD "WA,98110,BAINBRIDGE,BVXY,8.7%,6.5 %,0%,2.2000%,0\n",
        HEAD "WA,98110,BAINBRIDGE,BVXY,8.7,6.5,0,2.2,0\n",
        HEAD "WA,98110,BAINBRIDGE,BVXY,8.7,6.5%,0%,2.2,0\n",
        "STATE,zipcode,taxregionname,combinedrate,staterate,countyrate,cityrate,specialrate,More\n"
        "WA,98110,BAINBRIDGE,0.087,0.065,0,0.022,0,x\n",
        "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\r\n"
        "WA,98110,BAINBRIDGE,BVXY,0.087,0.065,0,0.022,0\r\n",
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct told told;
        struct spw_rates_table table;
        struct spw_error err = {0};
        if (parse(CASES[i], 0, &told, &table, &err) != SPW_STATUS_OK)
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(told.count, 0);
        assert_int_equal(table.rows_count, 1);
        const struct spw_rate_row *row = &table.rows[0];
        assert_int_equal(row->zip5, 98110);
        assert_int_equal(row->combined_ppb, 87000000);
        assert_int_equal(row->state_ppb, 65000000);
        assert_int_equal(row->city_ppb, 22000000);
        assert_int_equal(row->county_ppb, 0);
        assert_int_equal(row->special_ppb, 0);
        assert_string_equal(row->region, "BAINBRIDGE");
        spw_rates_clean_up(&table);
    }
}

static void bad_rows_are_named_and_left_out(void **unused)
{
    (void)unused;
    static const struct {
        const char *row, *column, *what;
    } CASES[] = {
        {"WA,98101,A,B,0.095,0.065,0,0.03\n", "", "8 cells where the header line has 9"},
        {"WA,98101,A,B,0,095,0.065,0,0.03,0\n", "CombinedRate",
         "a fraction or a percent?"}, /* no comma of a name */
        {"WA,98101,\"A,B,0.095,0.065,0,0.03,0\n", "", "a quote is not closed"},
        {"WA,98101,A \"B\",C,0.095,0.065,0,0.03,0\n", "", "put the whole cell in quotes"},
        {"WA,98101,\"A\"B,C,0.095,0.065,0,0.03,0\n", "", "behind a closing quote"},
        {"Wa,98101,A,B,0.095,0.065,0,0.03,0\n", "State", "two capital letters"},
        {",98101,A,B,0.095,0.065,0,0.03,0\n", "State", "two capital letters"},
        {"WA,9810,A,B,0.095,0.065,0,0.03,0\n", "ZipCode", "leading zeros"},
        {"WA,98101-123,A,B,0.095,0.065,0,0.03,0\n", "ZipCode", "five digits"},
        {"WA,501,A,B,0.095,0.065,0,0.03,0\n", "ZipCode",
         "leading zeros"}, /* no ZIP code of WA begins with 0 */
        {"WA,00500,A,B,0.095,0.065,0,0.03,0\n", "ZipCode", "00501 to 99950"},
        {"WA,99951,A,B,0.095,0.065,0,0.03,0\n", "ZipCode", "00501 to 99950"},
        {"WA,9810A,A,B,0.095,0.065,0,0.03,0\n", "ZipCode", "five digits"},
        {"WA,98101,A,B,,0.065,0,0.03,0\n", "CombinedRate", "is no rate"},
        {"WA,98101,A,B,-0.095,0.065,0,0.03,0\n", "CombinedRate", "is no rate"},
        {"WA,98101,A,B,9.5e-2,0.065,0,0.03,0\n", "CombinedRate", "is no rate"},
        {"WA,98101,A,B,0.095,n/a,0,0.03,0\n", "StateRate", "is no rate"},
        {"WA,98101,A,B,0.095,0.065,%,0.03,0\n", "CountyRate", "is no rate"},
        {"WA,98101,A,B,0.095,0.065,.,0.03,0\n", "CountyRate", "is no rate"},
        {"WA,98101,A,B,0.095,0.065,0,0.0300000001,0\n", "CityRate", "more digits"},
        {"WA,98101,A,B,0.095,0.065,0,0.0300000000051,0\n", "CityRate", "more digits"},
        {"WA,98101,A,B,0.095,0.065,0,0.03,101%\n", "SpecialRate", "above 100%"},
        {"WA,98101,A,B,0.095,0.065,0,0.03,99999999999999999999\n", "SpecialRate", "is no rate"},
        {"WA,98101,A,B,0.95,0.065,0,0.03,0\n", "CombinedRate", "a fraction or a percent?"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, HEAD ROW "%sOR,97201,OREGON,X,0,0,0,0,0\n", CASES[i].row);
        struct told told;
        struct spw_rates_table table;
        struct spw_error err = {0};
        /* A third of the rows may be bad here: the good ones are kept. */
        if (parse(text, 400000, &told, &table, &err) != SPW_STATUS_OK)
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(table.rows_count, 2);
        assert_int_equal(table.bad_count, 1);
        assert_int_equal(told.count, 1);
        assert_int_equal(told.line[0], 3);
        assert_string_equal(told.column[0], CASES[i].column);
        if (!strstr(told.text[0], CASES[i].what))
            fail_msg("case %zu: want \"%s\", have \"%s\"", i, CASES[i].what, told.text[0]);
        spw_rates_clean_up(&table);
        /* At the default of 5 % the same file is refused whole, and the error names the row. */
        assert_int_equal(parse(text, 0, &told, &table, &err), SPW_STATUS_PARSE);
        assert_non_null(strstr(err.text, "t.csv:3: 1 of 3 rows are bad"));
        assert_non_null(strstr(err.text, CASES[i].what));
        assert_null(table.rows);
        assert_int_equal(table.rows_count, 0);
    }
}

/* What programs make of 0.065 + 0.0385, and of 8.25 / 100. */
static void sums_of_a_program_are_the_rate_they_mean(void **unused)
{
    (void)unused;
    struct told told;
    struct spw_rates_table table;
    struct spw_error err = {0};
    static const char text[] = HEAD "WA,98101,A,B,0.10350000000000001,0.065,0,0.038500000000000006,0\n"
                                    "WA,98102,A,B,0.08249999999999999,0.06500000000000000,0,0.0175,0\n";
    assert_int_equal(SPW_STATUS_OK, parse(text, 0, &told, &table, &err));
    assert_int_equal(2, table.rows_count);
    assert_int_equal(0, table.bad_count + table.mismatch_count);
    assert_int_equal(103500000, table.rows[0].combined_ppb);
    assert_int_equal(38500000, table.rows[0].city_ppb);
    assert_int_equal(82500000, table.rows[1].combined_ppb);
    spw_rates_clean_up(&table);
}

static void unclear_files_are_refused_whole(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *what;
    } CASES[] = {
        {"", "the file is empty"},
        {"\n\n", "the file is empty"},
        {HEAD, "no good rows below its header line"},
        {ROW, "t.csv:1: no column State in the header line"},
        {"State;ZipCode;TaxRegionName;CombinedRate\n", "no column State"},
        {"State,ZipCode,TaxRegionName,TaxRegionCode,StateRate,CountyRate,CityRate,SpecialRate\n",
         "no column CombinedRate or EstimatedCombinedRate"},
        {"State,ZipCode,CombinedRate,EstimatedCombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n",
         "column CombinedRate stands there twice"},
        {"State,\"ZipCode,CombinedRate\n", "t.csv:1: header line: a quote is not closed"},
        {HEAD "WA,98110,A,B,8.7,6.5,0,2.2,0\nWA,98101,A,B,0.095,0.065,0,0.03,0\n",
         "column CombinedRate is ambiguous: line 2 reads as percent (above 1), line 3 as fraction"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct told told;
        struct spw_rates_table table;
        struct spw_error err = {0};
        assert_int_equal(parse(CASES[i].text, 0, &told, &table, &err), SPW_STATUS_PARSE);
        if (!strstr(err.text, CASES[i].what))
            fail_msg("case %zu: want \"%s\", have \"%s\"", i, CASES[i].what, err.text);
        assert_null(table.rows);
    }
}

/* A few rows in the other unit are bad rows of a clear table, in both directions. */
static void a_stray_unit_is_a_bad_row(void **unused)
{
    (void)unused;
    for (int percent = 0; percent <= 1; percent++) {
        char *text = malloc(1 << 16);
        assert_non_null(text);
        int n = sprintf(text, HEAD);
        for (unsigned i = 0; i < 300; i++) {
            bool as_percent = (i == 150) != (percent == 1);
            n += sprintf(text + n, "WA,%05u,A,B,%s,0,0,0,0\n", 98000 + i, as_percent ? "8.7" : "0.087");
        }
        struct told told;
        struct spw_rates_table table;
        struct spw_error err = {0};
        assert_int_equal(parse(text, 0, &told, &table, &err), SPW_STATUS_OK);
        assert_int_equal(table.rows_count, 299);
        assert_int_equal(table.mismatch_count, 299);
        assert_int_equal(table.bad_count, 1);
        assert_int_equal(told.line[0], 152);
        assert_string_equal(told.column[0], "CombinedRate");
        for (size_t i = 0; i < table.rows_count; i++)
            assert_int_equal(table.rows[i].combined_ppb, 87000000);
        spw_rates_clean_up(&table);
        free(text);
    }
}

static void the_highest_rate_of_a_zip_is_kept(void **unused)
{
    (void)unused;
    struct told told;
    struct spw_rates_table table;
    struct spw_error err = {0};
    assert_int_equal(parse(HEAD "WA,98110,LOW,B,0.08,0.08,0,0,0\n"
                                "WA,98101,X,B,0.09,0.065,0,0.03,0\n" /* parts add up to more: counted, kept */
                                "WA,98110,HIGH,B,0.09,0.09,0,0,0\n"
                                "WA,98110,AGAIN,B,0.09,0.09,0,0,0\n",
                           0, &told, &table, &err),
                     SPW_STATUS_OK);
    assert_int_equal(table.rows_count, 2);
    assert_int_equal(table.duplicate_count, 2);
    assert_int_equal(table.bad_count, 0);
    assert_int_equal(table.mismatch_count, 1);
    assert_string_equal(find(&table, 98110)->region, "HIGH");
    assert_int_equal(find(&table, 98101)->combined_ppb, 90000000);
    assert_int_equal(table.several_count, 1);
    assert_int_equal(table.mismatch_worst_ppb, 5000000);
    assert_int_equal(table.mismatch_worst_zip5, 98101);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.line[0], 4);
    assert_non_null(strstr(told.text[0], "98110 lies in several places with different rates (also line 2)"));
    spw_rates_clean_up(&table);
}

static void regions_are_cut_and_made_showable(void **unused)
{
    (void)unused;
    struct told told;
    struct spw_rates_table table;
    struct spw_error err = {0};
    assert_int_equal(
        parse(HEAD "CO,81212,CA\xC3\x91ON\x01 0123456789012345678901234567890123456789012345,B,0,0,0,0,0\n",
              0, &told, &table, &err),
        SPW_STATUS_OK);
    assert_string_equal(table.rows[0].region, "CA??ON? 012345678901234567890123456789012345678");
    spw_rates_clean_up(&table);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    fclose(f);
}

static void gzip_files_are_told_by_their_bytes(void **unused)
{
    (void)unused;
    static const char TEXT[] = HEAD ROW;
    char path[] = "/tmp/spw_test_rates_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gzFile gz = gzopen(path, "wb");
    assert_int_equal(gzwrite(gz, HEAD, sizeof HEAD - 1), sizeof HEAD - 1);
    gzclose(gz);
    gz = gzopen(path, "ab"); /* a second member */
    assert_int_equal(gzwrite(gz, ROW, sizeof ROW - 1), sizeof ROW - 1);
    gzclose(gz);
    struct spw_rates_table packed, plain;
    struct spw_error err = {0};
    if (spw_rates_load(path, NULL, &packed, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(packed.rows_count, 1);
    assert_int_equal(spw_rates_parse("t", TEXT, sizeof TEXT - 1, NULL, &plain, &err), SPW_STATUS_OK);
    assert_memory_equal(packed.sha256, plain.sha256, 32); /* of the text, however it was packed */
    spw_rates_clean_up(&packed);
    spw_rates_clean_up(&plain);

    /* Cut short at every byte, and with one byte changed: never a table. */
    FILE *f = fopen(path, "rb");
    char bytes[1024];
    size_t count = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    size_t first_member = 0, loaded = 0;
    for (size_t n = 2; n < count; n++) {
        write_file(path, bytes, n);
        enum spw_status status = spw_rates_load(path, NULL, &packed, &err);
        loaded += status == SPW_STATUS_OK;
        if (status == SPW_STATUS_PARSE)
            first_member = n; /* the whole header line and nothing else */
        spw_rates_clean_up(&packed);
    }
    assert_int_equal(loaded, 0);
    assert_true(first_member > 20);
    bytes[count - 5] ^= 1; /* the second member's checksum */
    write_file(path, bytes, count);
    assert_int_equal(spw_rates_load(path, NULL, &packed, &err), SPW_STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "damaged or cut short"));
    unlink(path);
    assert_int_equal(spw_rates_load(path, NULL, &packed, &err), SPW_STATUS_NOT_FOUND);
    assert_int_equal(spw_rates_load("/tmp", NULL, &packed, &err), SPW_STATUS_INVALID);
}

static void a_gzip_bomb_is_refused(void **unused)
{
    (void)unused;
    char path[] = "/tmp/spw_test_rates_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gzFile gz = gzopen(path, "wb1");
    static char zeros[1 << 20];
    for (unsigned i = 0; i < 130; i++)
        assert_int_equal(gzwrite(gz, zeros, sizeof zeros), sizeof zeros);
    gzclose(gz);
    struct spw_rates_table table;
    struct spw_error err = {0};
    assert_int_equal(spw_rates_load(path, NULL, &table, &err), SPW_STATUS_INVALID);
    assert_non_null(strstr(err.text, "larger than"));
    unlink(path);
}

static void digest_is_sha256_of_the_text(void **unused)
{
    (void)unused;
    /* printf '...' | sha256sum over the same bytes */
    static const char TEXT[] = "State,ZipCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
                               "OR,97201,0,0,0,0,0\n";
    static const char WANT[] = "adb3ecd9b6458aa63df114d595d0620890cf97d7f85d2b9e701242aa573e3519";
    struct spw_rates_table table;
    struct spw_error err = {0};
    assert_int_equal(spw_rates_parse("t", TEXT, sizeof TEXT - 1, NULL, &table, &err), SPW_STATUS_OK);
    char have[65] = "";
    for (size_t i = 0; i < 32; i++)
        sprintf(have + 2 * i, "%02x", table.sha256[i]);
    assert_string_equal(have, WANT);
    spw_rates_clean_up(&table);
}

/* Bytes changed at random anywhere in a good table: rows or an error, never a read outside the text. */
static void random_damage_is_survived(void **unused)
{
    (void)unused;
    static const char TEXT[] = HEAD ROW "NY,00501,\"HOLTS, VILLE\",B,8.625%,4%,4.25%,0,0.375%\n" ROW;
    uint64_t state = 88172645463325252ull;
    size_t good = 0, refused = 0;
    for (unsigned round = 0; round < 20000; round++) {
        size_t bytes = sizeof TEXT - 1;
        char *copy = malloc(bytes);
        assert_non_null(copy);
        memcpy(copy, TEXT, bytes);
        for (unsigned i = 0; i < 1 + round % 3; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            copy[state % bytes] = "\",\n\r%.09\0x"[(state >> 32) % 10];
        }
        struct spw_rates_options options = {.bad_max_ppm = 1000000};
        struct spw_rates_table table;
        struct spw_error err = {0};
        enum spw_status status = spw_rates_parse("t", copy, bytes - state % 3, &options, &table, &err);
        good += status == SPW_STATUS_OK;
        refused += status != SPW_STATUS_OK;
        for (size_t i = 0; i < table.rows_count; i++)
            assert_true(table.rows[i].combined_ppb <= 1000000000u && table.rows[i].zip5 >= 501);
        spw_rates_clean_up(&table);
        free(copy);
    }
    assert_true(good > 1000 && refused > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sample_loads_with_its_bare_commas),
        cmocka_unit_test(other_column_set_in_any_order),
        cmocka_unit_test(spellings_of_the_same_table),
        cmocka_unit_test(bad_rows_are_named_and_left_out),
        cmocka_unit_test(sums_of_a_program_are_the_rate_they_mean),
        cmocka_unit_test(unclear_files_are_refused_whole),
        cmocka_unit_test(a_stray_unit_is_a_bad_row),
        cmocka_unit_test(the_highest_rate_of_a_zip_is_kept),
        cmocka_unit_test(regions_are_cut_and_made_showable),
        cmocka_unit_test(gzip_files_are_told_by_their_bytes),
        cmocka_unit_test(a_gzip_bomb_is_refused),
        cmocka_unit_test(digest_is_sha256_of_the_text),
        cmocka_unit_test(random_damage_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
