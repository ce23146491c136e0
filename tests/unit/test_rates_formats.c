/* test_rates_formats.c: the published forms of rate tables: AvaTax's, the Streamlined states', TaxJar's; sets of files;
 * what is mended, capped, counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sidecar/rates/rates.h"

#define HEAD                                                                                                 \
    "State,ZipCode,TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate\n"
#define DAY_2019_01_01 17897
#define DAY_2026_04_01 20544

struct told {
    size_t bad, warnings;
    char first[256];
    char last_warning[192];
};

static void tell(void *owner, const char *file, const struct spw_rates_problem *problem)
{
    struct told *told = owner;
    assert_non_null(file);
    if (problem->warning) {
        told->warnings++;
        snprintf(told->last_warning, sizeof told->last_warning, "%s", problem->text);
    } else if (!told->bad++) {
        snprintf(told->first, sizeof told->first, "%s:%u: %s", file, problem->line, problem->text);
    }
}

static struct told told;
static struct spw_rates_table table;
static struct spw_error err;

static enum spw_status parse_as(const char *name, const char *text, struct spw_rates_options options)
{
    memset(&told, 0, sizeof told);
    memset(&err, 0, sizeof err);
    options.problem = tell;
    options.owner = &told;
    return spw_rates_parse(name, text, strlen(text), &options, &table, &err);
}

static void load(const char *const *paths, size_t count, int32_t as_of_day)
{
    struct spw_rates_options options = {.as_of_day = as_of_day, .problem = tell, .owner = &told};
    memset(&told, 0, sizeof told);
    memset(&err, 0, sizeof err);
    if (spw_rates_load_set(paths, count, &options, &table, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
}

/* The row of a place on a day; NULL when there is none. plus4 < 0: the whole ZIP code. */
static const struct spw_rate_row *find(const char *state, uint32_t zip5, int plus4, uint32_t day)
{
    for (size_t i = 0; i < table.rows_count; i++) {
        const struct spw_rate_row *r = &table.rows[i];
        bool range = plus4 < 0 ? r->plus4_lo == 0xFFFF
                               : r->plus4_lo != 0xFFFF && r->plus4_lo <= plus4 && plus4 <= r->plus4_hi;
        if (strcmp(r->state, state) == 0 && r->zip5 == zip5 && range &&
            (!r->valid_from_day || r->valid_from_day <= day) && (!r->valid_to_day || day <= r->valid_to_day))
            return r;
    }
    return NULL;
}

static void avatax_by_zip(void **unused)
{
    static const char *const path[] = {"tests/data/rates/avatax-by-zip.csv"};
    (void)unused;
    load(path, 1, 0);
    assert_int_equal(table.rows_count, 5);
    assert_int_equal(table.bad_count, 0);
    assert_int_equal(table.mended_count, 2); /* a town with a bare comma, a ZIP code without its zero */
    assert_int_equal(table.several_count, 1);
    assert_int_equal(find("CO", 81435, -1, 0)->combined_ppb, 86500000); /* the higher */
    assert_int_equal(find("CO", 81435, -1, 0)->special_ppb, 2500000);   /* within the total alone */
    assert_int_equal(find("GA", 30301, -1, 0)->special_ppb, 4000000);
    assert_int_equal(find("MA", 2134, -1, 0)->combined_ppb, 62500000);
    assert_int_equal(table.mismatch_count, 1); /* 0.0925 of parts, 0.08625 in all */
    assert_int_equal(table.mismatch_worst_zip5, 501);
    assert_int_equal(table.mismatch_worst_ppb, 6250000);
    spw_rates_clean_up(&table);
    /* Fractions by its definition: a percent is a bad row, never a guess. */
    assert_int_equal(parse_as("a.csv",
                              "ZIP_CODE,STATE_ABBREV,COUNTY_NAME,CITY_NAME,STATE_SALES_TAX,COUNTY_SALES_TAX,"
                              "CITY_SALES_TAX,TOTAL_SALES_TAX\n98110,WA,K,B,6.5,0,2.7,9.2\n",
                              (struct spw_rates_options){0}),
                     SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "is 0.25 or more"));
}

static void taxjar_summary(void **unused)
{
    static const char *const path[] = {"tests/data/rates/taxjar-summary.json"};
    (void)unused;
    load(path, 1, 0);
    assert_int_equal(table.rows_count, 4);
    assert_int_equal(find("CA", 0, -1, 0)->combined_ppb, 82700000);
    assert_int_equal(find("CA", 0, -1, 0)->state_ppb, 65000000);
    assert_int_equal(find("OR", 0, -1, 0)->combined_ppb, 0);
    assert_string_equal(find("BC", 0, -1, 0)->country, "CA");
    assert_string_equal(find("", 0, -1, 0)->country, "GB");
    assert_int_equal(find("", 0, -1, 0)->combined_ppb, 200000000);
    assert_int_equal(table.mismatch_count, 0);
    spw_rates_clean_up(&table);
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"{", "s.json:1: column 1: is not the JSON"},
        {"{\"rates\": []}", "has no list \"summary_rates\""},
        {"{\"summary_rates\": []}", "no good rows"},
        {"[1]", "1 of 1 rows are bad"},
        {"[{\"country_code\":\"USA\"}]", "entry 1: is no code of two capital letters"},
        {"[{\"country_code\":\"US\",\"minimum_rate\":{\"rate\":0.06},\"average_rate\":{\"rate\":8.25}}]",
         "entry 1: is 0.25 or more"},
        {"[{\"country_code\":\"US\",\"minimum_rate\":{\"rate\":-0.06},\"average_rate\":{\"rate\":0.08}}]",
         "entry 1: is no rate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse_as("s.json", cases[i].text, (struct spw_rates_options){0}), SPW_STATUS_PARSE);
        if (!strstr(err.text, cases[i].what))
            fail_msg("case %zu: %s", i, err.text);
    }
}

/* Minnesota, on a day on which its sample of boundaries held: each place's parts, and where they change. */
static void streamlined_join(void **unused)
{
    static const char *const paths[] = {"tests/data/sst/MNB2026Q2FEB18.csv",
                                        "tests/data/sst/MNR2026Q2FEB18.csv"}; /* in any order */
    (void)unused;
    load(paths, 2, DAY_2019_01_01);
    assert_int_equal(table.bad_count, 0);
    assert_int_equal(table.ignored_count, 0);
    assert_int_equal(table.mismatch_count, 0);
    const struct spw_rate_row *r = find("MN", 55104, -1, DAY_2019_01_01); /* county 123, no place */
    assert_non_null(r);
    assert_int_equal(r->state_ppb, 68750000);
    assert_int_equal(r->county_ppb, 5000000);
    assert_int_equal(r->city_ppb, 0);
    assert_int_equal(r->combined_ppb, 73750000);
    r = find("MN", 55105, -1, DAY_2019_01_01); /* and St. Paul */
    assert_int_equal(r->city_ppb, 5000000);
    r = find("MN", 55403, -1, DAY_2019_01_01); /* Minneapolis: county, place and a district */
    assert_int_equal(r->county_ppb, 1500000 + 0);
    assert_int_equal(r->city_ppb, 5000000);
    assert_int_equal(r->special_ppb, 5000000);
    assert_int_equal(r->combined_ppb, 68750000 + 1500000 + 5000000 + 5000000);
    /* ZIP+4 over two ZIP codes: the first's end, the second whole. */
    assert_null(find("MN", 55012, 10, DAY_2019_01_01));
    assert_non_null(find("MN", 55012, 11, DAY_2019_01_01));
    assert_non_null(find("MN", 55013, 0, DAY_2019_01_01));
    /* County 163 came to its 0.25 % on 2017-10-01. */
    assert_int_equal(find("MN", 55025, 2000, DAY_2019_01_01)->combined_ppb, 71250000);
    assert_null(find("MN", 55104, -1, DAY_2019_01_01 + 365)); /* the boundary ended in March 2019 */
    /* The state alone, for what no boundary names. */
    assert_true(find("MN", 0, -1, DAY_2019_01_01)->least);
    spw_rates_clean_up(&table);
}

/* Today the sample's boundaries are over; of a rate file alone the state's own rate is of use. */
static void streamlined_alone(void **unused)
{
    static const char *const paths[] = {
        "tests/data/sst/GAR2026Q2FEB19.csv", "tests/data/sst/MNB2026Q2FEB18.csv",
        "tests/data/sst/MNR2026Q2FEB18.csv", "tests/data/sst/WIR2026Q2FEB18.csv"};
    (void)unused;
    load(paths, 4, DAY_2026_04_01);
    assert_int_equal(table.rows_count, 3);
    assert_int_equal(table.expired_count, 100);
    assert_int_equal(find("GA", 0, -1, DAY_2026_04_01)->combined_ppb, 40000000);
    assert_int_equal(find("WI", 0, -1, DAY_2026_04_01)->combined_ppb, 50000000);
    spw_rates_clean_up(&table);
    struct spw_rates_options options = {.as_of_day = DAY_2026_04_01};
    assert_int_equal(spw_rates_load_set(&paths[1], 1, &options, &table, &err), SPW_STATUS_PARSE);
    assert_non_null(strstr(err.text, "MN has no rate of its own on these days: load the state's rate file"));
}

#define BOUNDARY "20200101,99991231,,,,,,,,,,,,,,,"
static void streamlined_made_up(void **unused)
{
    static const char rates[] = "27,45,27,0.06,0.065,0,0,20200101,20221231\n"
                                "27,45,27,0.07,0.07,0,0,20230101,99991231\n"
                                "27,00,053,0.01,0.01,0,0,20210101,20211231\n"
                                "27,63,80004,0.005,0.005,0,0,20200101,99991231\n";
    static const char boundaries[] = "Z," BOUNDARY "55401,,55402,,,27,27,053,99999,,,,ST,80004,63\n"
                                     "A," BOUNDARY "55401,,55402,,,27,27,053\n"
                                     "Z," BOUNDARY "55402,,55402,,,27,27,053\n" /* a second place, lower */
                                     "Z," BOUNDARY "99999,,99999,,,27,27,053\n"
                                     "Z," BOUNDARY "55403,,55403,,,99,27,053\n"
                                     "Z," BOUNDARY "55404,,55403,,,27,27,053\n"
                                     "4," BOUNDARY "55404,,55404,9999,,27,27,053\n"
                                     "Z,20200101,20191231,,,,,,,,,,,,,,,55405,,55405,,,27,27,053\n"
                                     "Z,19900101,19991231,,,,,,,,,,,,,,,55405,,55405,,,27,27,053\n"
                                     "X,1,2\nZ,20200101,99991231,55401\n";
    const struct spw_rates_bytes files[] = {{"MNB.csv", boundaries, sizeof boundaries - 1},
                                            {"MNR.csv", rates, sizeof rates - 1}};
    struct spw_rates_options options = {.bad_max_ppm = 900000, .problem = tell, .owner = &told};
    (void)unused;
    memset(&told, 0, sizeof told);
    if (spw_rates_parse_set(files, 2, &options, &table, &err) != SPW_STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(table.bad_count, 8);
    assert_int_equal(told.bad, 8);
    assert_string_equal(told.first,
                        "MNB.csv:4: column 20 is no range of ZIP codes: the lower end first, 00501 to 99950");
    assert_int_equal(table.ignored_count, 1);
    assert_int_equal(table.unjoined_count, 1); /* place 99999 */
    static const struct {
        uint32_t day, ppb;
    } cases[] = {{18262, 70000000}, {18627, 70000000}, {18628, 80000000}, {18992, 80000000},
                 {18993, 70000000}, {19357, 70000000}, {19358, 75000000}, {60000, 75000000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t zip = 55401; zip <= 55402; zip++)
            assert_int_equal(find("MN", zip, -1, cases[i].day)->combined_ppb, cases[i].ppb);
    assert_null(find("MN", 55401, -1, 18261));
    assert_int_equal(table.several_count, 1);
    spw_rates_clean_up(&table);
}

/* Which of several rates is kept is a matter of the configuration. */
static void several_places(void **unused)
{
    static const char text[] = HEAD "CO,81435,A,X,0.08,0.08,0,0,0\nCO,81435,B,X,0.06,0.06,0,0,0\n"
                                    "CO,81435,C,X,0.09,0.09,0,0,0\nCO,81435,D,X,0.09,0.09,0,0,0\n";
    static const struct {
        enum spw_rates_several several;
        uint32_t ppb;
        const char *word;
    } cases[] = {{SPW_RATES_SEVERAL_HIGHEST, 90000000, "highest"},
                 {SPW_RATES_SEVERAL_LOWEST, 60000000, "lowest"},
                 {SPW_RATES_SEVERAL_FIRST, 80000000, "first"}};
    (void)unused;
    for (size_t i = 0; i < 3; i++) {
        struct spw_rates_options options = {.several = cases[i].several};
        assert_int_equal(parse_as("t", text, options), SPW_STATUS_OK);
        assert_int_equal(table.rows_count, 1);
        assert_int_equal(table.rows[0].combined_ppb, cases[i].ppb);
        assert_int_equal(table.several_count, 1);
        assert_int_equal(table.duplicate_count, 3);
        assert_int_equal(told.warnings, 1);
        assert_non_null(strstr(told.last_warning, cases[i].word));
        spw_rates_clean_up(&table);
    }
}

/* ZIP+4 in a five-digit table's column: ranges that touch and say the same become one. */
static void zip_plus_4(void **unused)
{
    static const char text[] = HEAD "WA,98110-0003,A,X,0.08,0.08,0,0,0\nWA,981100001,A,X,0.08,0.08,0,0,0\n"
                                    "WA,98110-0002,A,X,0.08,0.08,0,0,0\nWA,98110-0004,A,X,0.09,0.09,0,0,0\n"
                                    "WA,98110,A,X,0.07,0.07,0,0,0\n";
    (void)unused;
    assert_int_equal(parse_as("t", text, (struct spw_rates_options){0}), SPW_STATUS_OK);
    assert_int_equal(table.rows_count, 3);
    assert_int_equal(find("WA", 98110, 1, 0)->plus4_hi, 3);
    assert_int_equal(find("WA", 98110, 4, 0)->combined_ppb, 90000000);
    assert_int_equal(find("WA", 98110, -1, 0)->combined_ppb, 70000000);
    spw_rates_clean_up(&table);
}

/* More ranges than readers look past: those that say what the ZIP code says are left out. Fewer stay as they are. */
static void many_ranges(void **unused)
{
    char *text = malloc(1 << 16);
    (void)unused;
    assert_non_null(text);
    for (unsigned count = 100; count <= 400; count += 300) {
        int n = sprintf(text, HEAD "WA,98110,A,X,0.08,0.08,0,0,0\n");
        for (unsigned i = 0; i < count; i++)
            n += sprintf(text + n, "WA,98110-%04u,A,X,0.0%u,0.0%u,0,0,0\n", i, 8 + i % 2, 8 + i % 2);
        assert_int_equal(parse_as("t", text, (struct spw_rates_options){0}), SPW_STATUS_OK);
        assert_int_equal(table.rows_count, count == 100 ? 101 : 201);
        for (unsigned i = 0; i < count; i++) {
            const struct spw_rate_row *r = find("WA", 98110, (int)i, 0);
            r = r ? r : find("WA", 98110, -1, 0);
            assert_int_equal(r->combined_ppb, i % 2 ? 90000000 : 80000000);
        }
        spw_rates_clean_up(&table);
    }
    free(text);
}

/* The first problems are told, the rest counted; the file is refused above its share and not below. */
static void problems_are_capped(void **unused)
{
    char *text = malloc(1 << 16);
    (void)unused;
    assert_non_null(text);
    int n = sprintf(text, HEAD);
    for (unsigned i = 0; i < 1000; i++)
        n += sprintf(text + n, "WA,%05u,A,X,%s,0.08,0,0,0\n", 98000 + i, i % 20 ? "0.08" : "none");
    assert_int_equal(parse_as("t", text, (struct spw_rates_options){0}), SPW_STATUS_OK); /* 5 % exactly */
    assert_int_equal(table.bad_count, 50);
    assert_int_equal(told.bad, 20);
    assert_int_equal(table.untold_count, 30);
    spw_rates_clean_up(&table);
    assert_int_equal(parse_as("t", text, (struct spw_rates_options){.bad_max_ppm = 49999, .problems_max = 3}),
                     SPW_STATUS_PARSE);
    assert_int_equal(told.bad, 3);
    assert_non_null(strstr(err.text, "t:2: 50 of 1000 rows are bad"));
    free(text);
}

/* Different kinds of tables together; the digest is of all of them, in their order. */
static void sets(void **unused)
{
    static const char *const paths[] = {"tests/data/zip5/sample.csv", "tests/data/rates/taxjar-summary.json",
                                        "tests/data/rates/avatax-by-zip.csv"};
    static const char *const other[] = {"tests/data/rates/taxjar-summary.json", "tests/data/zip5/sample.csv",
                                        "tests/data/rates/avatax-by-zip.csv"};
    uint8_t digest[32];
    (void)unused;
    load(paths, 3, 0);
    size_t rows_count = table.rows_count;
    assert_true(rows_count > 312);
    memcpy(digest, table.sha256, sizeof digest);
    spw_rates_clean_up(&table);
    load(other, 3, 0);
    assert_int_equal(table.rows_count, rows_count);
    assert_memory_not_equal(digest, table.sha256, sizeof digest);
    spw_rates_clean_up(&table);
    struct spw_rates_options options = {0};
    const char *const missing[] = {paths[0], "tests/data/rates/none.csv"};
    assert_int_equal(spw_rates_load_set(missing, 2, &options, &table, &err), SPW_STATUS_NOT_FOUND);
    assert_int_equal(table.rows_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avatax_by_zip),
        cmocka_unit_test(taxjar_summary),
        cmocka_unit_test(streamlined_join),
        cmocka_unit_test(streamlined_alone),
        cmocka_unit_test(streamlined_made_up),
        cmocka_unit_test(several_places),
        cmocka_unit_test(zip_plus_4),
        cmocka_unit_test(problems_are_capped),
        cmocka_unit_test(sets),
        cmocka_unit_test(many_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
