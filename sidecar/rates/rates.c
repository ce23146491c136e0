/* rates.c: see rates.h: a table's text to sorted rows.
 *
 * Two passes over the lines. The first finds out whether the table's numbers are fractions or percents, from the
 * combined rates of all rows; the second makes the rows. What either cannot read without guessing is a bad row.
 */
#include "sidecar/rates/rates.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/rates/rates_cell.h"

#define BAD_DEFAULT_PPM 10000u
#define PPM_ONE         UINT64_C(1000000)
#define UTF8_MARK       "\xEF\xBB\xBF" /* spreadsheets begin their files with it */
#define ZIP5_MIN        501u
#define ZIP5_MAX        99950u
#define WHOLE_ZIP       0xFFFFu
/* No sales tax is near 25 %: a bare 0.75 is as likely 0.75 % as 75 %, so it is not guessed. */
#define AMBIGUOUS_E11 (SPW_NUMBER_ONE / 4)

enum column { STATE, ZIP, REGION, COMBINED, STATE_RATE, COUNTY_RATE, CITY_RATE, SPECIAL_RATE, COLUMNS_COUNT };

/* The two published sets of names; further columns (TaxRegionCode, RiskLevel) are not needed. */
static const char *const COLUMN_NAMES[COLUMNS_COUNT][2] = {
    [STATE] = {"State", NULL},
    [ZIP] = {"ZipCode", NULL},
    [REGION] = {"TaxRegionName", NULL},
    [COMBINED] = {"CombinedRate", "EstimatedCombinedRate"},
    [STATE_RATE] = {"StateRate", NULL},
    [COUNTY_RATE] = {"CountyRate", "EstimatedCountyRate"},
    [CITY_RATE] = {"CityRate", "EstimatedCityRate"},
    [SPECIAL_RATE] = {"SpecialRate", "EstimatedSpecialRate"},
};

struct reader {
    const char *name;
    const char *p, *end; /* what is left of the text */
    uint32_t line;
    const struct spw_rates_options *options;
    struct spw_rates_table *table;
    struct spw_error *err;
    size_t column_at[COLUMNS_COUNT]; /* where each stands in a row */
    size_t columns_count;            /* of the header line */
    bool percent;                    /* bare numbers are percents */
    uint32_t first_bad_line;
    char first_bad[160]; /* the first problem, for the error that refuses the file */
};

/* --- lines and problems ------------------------------------------------------------------------------------- */

static bool next_line(struct reader *r, const char **line, size_t *bytes)
{
    if (r->p == r->end)
        return false;
    const char *stop = memchr(r->p, '\n', (size_t)(r->end - r->p));
    *line = r->p;
    *bytes = (size_t)((stop ? stop : r->end) - r->p);
    r->p = stop ? stop + 1 : r->end;
    if (*bytes && (*line)[*bytes - 1] == '\r')
        --*bytes;
    r->line++;
    return true;
}

static void report(struct reader *r, uint32_t line, const char *column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void report(struct reader *r, uint32_t line, const char *column, const char *format, ...)
{
    struct spw_rates_problem problem = {.line = line, .column = column};
    va_list args;
    va_start(args, format);
    vsnprintf(problem.text, sizeof problem.text, format, args);
    va_end(args);
    if (r->options && r->options->problem)
        r->options->problem(r->options->owner, r->name, &problem);
    if (!r->first_bad[0]) {
        r->first_bad_line = line;
        snprintf(r->first_bad, sizeof r->first_bad, "%s", problem.text);
    }
}

/* --- header ------------------------------------------------------------------------------------------------- */

static enum spw_status read_header_cell(struct reader *r, const struct spw_rates_cell *cell, size_t at)
{
    for (size_t c = 0; c < COLUMNS_COUNT; c++) {
        bool same = spw_rates_cell_is(cell, COLUMN_NAMES[c][0]) ||
                    (COLUMN_NAMES[c][1] && spw_rates_cell_is(cell, COLUMN_NAMES[c][1]));
        if (!same)
            continue;
        if (r->column_at[c] != SIZE_MAX)
            return spw_error_set(r->err, SPW_STATUS_PARSE, "%s:%u: column %s stands there twice: remove one",
                                 r->name, r->line, COLUMN_NAMES[c][0]);
        r->column_at[c] = at;
    }
    return SPW_STATUS_OK;
}

static enum spw_status read_header(struct reader *r)
{
    const char *line;
    size_t bytes;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    do {
        if (!next_line(r, &line, &bytes))
            return spw_error_set(r->err, SPW_STATUS_PARSE, "%s: the file is empty: name a rate table",
                                 r->name);
    } while (!bytes);
    const char *fault = spw_rates_cells_split(line, bytes, cells, &r->columns_count);
    if (fault)
        return spw_error_set(r->err, SPW_STATUS_PARSE, "%s:%u: header line: %s", r->name, r->line, fault);
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        r->column_at[c] = SIZE_MAX;
    for (size_t i = 0; i < r->columns_count; i++) {
        enum spw_status status = read_header_cell(r, &cells[i], i);
        if (status)
            return status;
    }
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        if (r->column_at[c] == SIZE_MAX && c != REGION)
            return spw_error_set(
                r->err, SPW_STATUS_PARSE,
                "%s:%u: no column %s%s%s in the header line: begin the table with State,ZipCode,"
                "TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate "
                "(comma-separated), in any order",
                r->name, r->line, COLUMN_NAMES[c][0], COLUMN_NAMES[c][1] ? " or " : "",
                COLUMN_NAMES[c][1] ? COLUMN_NAMES[c][1] : "");
    return SPW_STATUS_OK;
}

/* The cells of a row, or what is wrong with its form; NULL *fault and no cells for an empty line. */
static bool split_row(const struct reader *r, const char *line, size_t bytes,
                      struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT], size_t *count,
                      const char **fault)
{
    *count = 0;
    *fault = NULL;
    while (bytes && line[bytes - 1] == ' ')
        bytes--;
    if (bytes)
        *fault = spw_rates_cells_split(line, bytes, cells, count);
    return bytes && !*fault && *count == r->columns_count;
}

/* --- first pass: fractions or percents ---------------------------------------------------------------------- */

struct unit_count {
    size_t above_one, within_one;     /* bare combined rates that are not 0 */
    uint32_t above_line, within_line; /* the first of each */
};

static void count_units(struct reader r, struct unit_count *out)
{
    const char *line, *fault;
    size_t bytes, count;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    while (next_line(&r, &line, &bytes)) {
        struct spw_number number;
        if (!split_row(&r, line, bytes, cells, &count, &fault) ||
            !spw_rates_cell_number(&cells[r.column_at[COMBINED]], &number) || number.is_percent ||
            !number.value_e11)
            continue;
        if (number.value_e11 > SPW_NUMBER_ONE) {
            out->above_line = out->above_one++ ? out->above_line : r.line;
        } else {
            out->within_line = out->within_one++ ? out->within_line : r.line;
        }
    }
}

static uint64_t bad_max_ppm(const struct reader *r)
{
    return r->options && r->options->bad_max_ppm ? r->options->bad_max_ppm : BAD_DEFAULT_PPM;
}

/* The few on one side are bad rows, if they are few enough to be; otherwise the table itself is unclear. */
static enum spw_status find_unit(struct reader *r)
{
    struct unit_count count = {0};
    count_units(*r, &count);
    uint64_t few = (count.above_one + count.within_one) * bad_max_ppm(r) / PPM_ONE;
    if (count.above_one > few && count.within_one > few)
        return spw_error_set(
            r->err, SPW_STATUS_PARSE,
            "%s: column %s is ambiguous: line %u reads as percent (above 1), line %u as fraction: "
            "write every rate as a fraction (0.0825) or with its sign (8.25%%)",
            r->name, COLUMN_NAMES[COMBINED][0], count.above_line, count.within_line);
    r->percent = count.above_one > count.within_one;
    return SPW_STATUS_OK;
}

/* --- second pass: rows -------------------------------------------------------------------------------------- */

static bool read_state(struct reader *r, const struct spw_rates_cell *cell, struct spw_rate_row *row)
{
    bool ok = cell->bytes == 2;
    for (size_t i = 0; ok && i < 2; i++)
        ok = cell->text[i] >= 'A' && cell->text[i] <= 'Z';
    if (ok)
        memcpy(row->state, cell->text, 2);
    else
        report(r, r->line, COLUMN_NAMES[STATE][0], "is no state: write its two capital letters, as WA");
    return ok;
}

static bool read_zip(struct reader *r, const struct spw_rates_cell *cell, struct spw_rate_row *row)
{
    bool ok = cell->bytes == 5;
    uint32_t zip = 0;
    for (size_t i = 0; ok && i < 5; i++) {
        ok = cell->text[i] >= '0' && cell->text[i] <= '9';
        zip = zip * 10 + (uint32_t)(cell->text[i] - '0');
    }
    ok = ok && zip >= ZIP5_MIN && zip <= ZIP5_MAX;
    if (!ok)
        report(r, r->line, COLUMN_NAMES[ZIP][0],
               "is no ZIP code: write five digits, 00501 to 99950 (a spreadsheet may have dropped leading "
               "zeros)");
    row->zip5 = zip;
    return ok;
}

static bool read_rate(struct reader *r, const struct spw_rates_cell *cell, enum column column,
                      uint32_t *out_ppb)
{
    struct spw_number number;
    const char *fault = NULL;
    if (!spw_rates_cell_number(cell, &number))
        fault = "is no rate: write a fraction (0.0825) or a percent with its sign (8.25%)";
    else if (column == COMBINED && !number.is_percent && r->percent && number.value_e11 &&
             number.value_e11 <= SPW_NUMBER_ONE)
        fault = "is at most 1 in a table of percents: a fraction or a percent? write it with its sign (0.5%)";
    else if (!number.is_percent && !r->percent && number.value_e11 >= AMBIGUOUS_E11)
        fault = "is 0.25 or more without a percent sign: a fraction or a percent? write 0.0825 or 8.25%";
    else
        fault = spw_number_ppb(&number, r->percent, out_ppb);
    if (fault)
        report(r, r->line, COLUMN_NAMES[column][0], "%s", fault);
    return !fault;
}

/* The name is for people: what is no plain text becomes '?', a long one is cut. */
static void read_region(const struct spw_rates_cell *cell, struct spw_rate_row *row)
{
    size_t n = 0;
    for (size_t i = 0; i < cell->bytes && n < sizeof row->region - 1; i++) {
        unsigned char c = (unsigned char)cell->text[i];
        row->region[n++] = c >= ' ' && c <= '~' ? (char)c : '?';
        if (c == '"' && i + 1 < cell->bytes && cell->text[i + 1] == '"')
            i++;
    }
}

static bool read_row(struct reader *r, const char *line, size_t bytes, struct spw_rate_row *row)
{
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    size_t count;
    const char *fault;
    if (!split_row(r, line, bytes, cells, &count, &fault)) {
        if (fault)
            report(r, r->line, NULL, "%s", fault);
        else
            report(r, r->line, NULL,
                   "the row has %zu cells where the header line has %zu: put a name that holds a comma in "
                   "quotes",
                   count, r->columns_count);
        return false;
    }
    *row = (struct spw_rate_row){.country = "US", .plus4_lo = WHOLE_ZIP, .plus4_hi = WHOLE_ZIP};
    if (!read_state(r, &cells[r->column_at[STATE]], row) || !read_zip(r, &cells[r->column_at[ZIP]], row))
        return false;
    uint32_t *const rates[COLUMNS_COUNT] = {
        [COMBINED] = &row->combined_ppb, [STATE_RATE] = &row->state_ppb,     [COUNTY_RATE] = &row->county_ppb,
        [CITY_RATE] = &row->city_ppb,    [SPECIAL_RATE] = &row->special_ppb,
    };
    for (size_t c = COMBINED; c < COLUMNS_COUNT; c++)
        if (!read_rate(r, &cells[r->column_at[c]], (enum column)c, rates[c]))
            return false;
    if (r->column_at[REGION] != SIZE_MAX)
        read_region(&cells[r->column_at[REGION]], row);
    return true;
}

static bool is_blank(const char *line, size_t bytes)
{
    while (bytes && line[bytes - 1] == ' ')
        bytes--;
    return !bytes;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

struct numbered_row {
    struct spw_rate_row row;
    uint32_t line;
};

struct row_list {
    struct numbered_row *list;
    size_t count, room_count;
};

static enum spw_status no_memory(struct reader *r)
{
    return spw_error_set(r->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", r->name);
}

static enum spw_status read_rows(struct reader *r, struct row_list *rows)
{
    const char *line;
    size_t bytes;
    while (next_line(r, &line, &bytes)) {
        if (is_blank(line, bytes))
            continue;
        if (rows->count == rows->room_count) {
            size_t room = rows->room_count ? rows->room_count * 2 : 1024;
            struct numbered_row *grown = realloc(rows->list, room * sizeof *grown);
            if (!grown)
                return no_memory(r);
            rows->list = grown;
            rows->room_count = room;
        }
        struct numbered_row *next = &rows->list[rows->count];
        next->line = r->line;
        if (read_row(r, line, bytes, &next->row))
            rows->count++;
        else
            r->table->bad_count++;
    }
    return SPW_STATUS_OK;
}

/* By key, then the row that is kept first: the highest combined rate, on the earliest line. */
static int compare_rows(const void *a, const void *b)
{
    const struct numbered_row *x = a, *y = b;
    if (x->row.zip5 != y->row.zip5)
        return x->row.zip5 < y->row.zip5 ? -1 : 1;
    if (x->row.plus4_lo != y->row.plus4_lo)
        return x->row.plus4_lo < y->row.plus4_lo ? -1 : 1;
    if (x->row.combined_ppb != y->row.combined_ppb)
        return x->row.combined_ppb > y->row.combined_ppb ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static bool parts_add_up(const struct spw_rate_row *row)
{
    uint64_t sum = (uint64_t)row->state_ppb + row->county_ppb + row->city_ppb + row->special_ppb;
    return sum == row->combined_ppb;
}

/* Sort, keep one row per key, and hand the rows over to the table. */
static enum spw_status make_table(struct reader *r, struct row_list *rows)
{
    struct spw_rates_table *table = r->table;
    if (!rows->count)
        return spw_error_set(r->err, SPW_STATUS_PARSE, "%s: the table has no good rows below its header line",
                             r->name);
    qsort(rows->list, rows->count, sizeof *rows->list, compare_rows);
    table->rows = malloc(rows->count * sizeof *table->rows);
    if (!table->rows)
        return no_memory(r);
    uint32_t kept_line = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const struct spw_rate_row *row = &rows->list[i].row;
        const struct spw_rate_row *kept = table->rows_count ? &table->rows[table->rows_count - 1] : NULL;
        if (kept && kept->zip5 == row->zip5 && kept->plus4_lo == row->plus4_lo) {
            table->duplicate_count++;
            report(r, rows->list[i].line, COLUMN_NAMES[ZIP][0],
                   "%05u is also on line %u, whose combined rate is as high or higher and is kept: leave one "
                   "row",
                   row->zip5, kept_line);
            continue;
        }
        table->rows[table->rows_count++] = *row;
        kept_line = rows->list[i].line;
        table->mismatch_count += !parts_add_up(row);
    }
    return SPW_STATUS_OK;
}

static enum spw_status check_share(struct reader *r, size_t good_count)
{
    size_t bad_count = r->table->bad_count;
    if (bad_count * PPM_ONE <= (good_count + bad_count) * bad_max_ppm(r))
        return SPW_STATUS_OK;
    return spw_error_set(r->err, SPW_STATUS_PARSE,
                         "%s:%u: %zu of %zu rows are bad, so the file is refused whole; the first one: %s",
                         r->name, r->first_bad_line, bad_count, good_count + bad_count, r->first_bad);
}

enum spw_status spw_rates_parse(const char *name, const char *text, size_t bytes,
                                const struct spw_rates_options *options, struct spw_rates_table *table,
                                struct spw_error *err)
{
    *table = (struct spw_rates_table){0};
    struct reader r = {
        .name = name, .p = text, .end = text + bytes, .options = options, .table = table, .err = err};
    if (bytes >= sizeof UTF8_MARK - 1 && !memcmp(text, UTF8_MARK, sizeof UTF8_MARK - 1))
        r.p += sizeof UTF8_MARK - 1;
    struct row_list rows = {0};
    enum spw_status status = read_header(&r);
    if (!status)
        status = find_unit(&r);
    if (!status)
        status = read_rows(&r, &rows);
    if (!status)
        status = check_share(&r, rows.count);
    if (!status)
        status = make_table(&r, &rows);
    free(rows.list);
    if (!status && !EVP_Digest(text, bytes, table->sha256, NULL, EVP_sha256(), NULL))
        status = spw_error_set(err, SPW_STATUS_SYSTEM, "%s: no SHA-256 in libcrypto: check its installation",
                               name);
    if (status)
        spw_rates_clean_up(table);
    return status;
}

void spw_rates_clean_up(struct spw_rates_table *table)
{
    free(table->rows);
    *table = (struct spw_rates_table){0};
}
