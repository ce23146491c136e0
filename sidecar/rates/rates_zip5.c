/* rates_zip5.c: tables of ZIP codes with a header line: the two published sets of five-digit tables, and the provider
 * AvaTax's file of rates by ZIP code.
 *
 * Owns: their columns. Called by: rates.c. Thread: any; pure over bytes.
 *
 * Two passes over the lines. The first finds out whether a five-digit table's numbers are fractions or percents, from the
 * combined rates of all rows: one above 1 can only be a percent. AvaTax's file has fractions by its definition. The
 * second pass makes the rows. What either cannot read without guessing is a bad row.
 */
#include <string.h>

#include "shm/spw_rates.h"
#include "sidecar/rates/rates_reader.h"

#define BAD_DEFAULT_PPM 50000u
#define PPM_ONE         UINT64_C(1000000)
#define ZIP5_MIN        501u
#define ZIP5_MAX        99950u
#define NAMES_COUNT     3
/* No sales tax is near 25 %: a bare 0.75 is as likely 0.75 % as 75 %, so it is not guessed. */
#define AMBIGUOUS_E11 (SPW_NUMBER_ONE / 4)

enum column { STATE, ZIP, REGION, COMBINED, STATE_RATE, COUNTY_RATE, CITY_RATE, SPECIAL_RATE, COLUMNS_COUNT };

/* The published names; further columns (TaxRegionCode, RiskLevel, use taxes, shipping) are not needed. */
static const char *const COLUMN_NAMES[COLUMNS_COUNT][NAMES_COUNT] = {
    [STATE] = {"State", NULL, "STATE_ABBREV"},
    [ZIP] = {"ZipCode", NULL, "ZIP_CODE"},
    [REGION] = {"TaxRegionName", NULL, "CITY_NAME"},
    [COMBINED] = {"CombinedRate", "EstimatedCombinedRate", "TOTAL_SALES_TAX"},
    [STATE_RATE] = {"StateRate", NULL, "STATE_SALES_TAX"},
    [COUNTY_RATE] = {"CountyRate", "EstimatedCountyRate", "COUNTY_SALES_TAX"},
    [CITY_RATE] = {"CityRate", "EstimatedCityRate", "CITY_SALES_TAX"},
    [SPECIAL_RATE] = {"SpecialRate", "EstimatedSpecialRate", NULL},
};

struct sheet {
    struct spw_rates_reader *r;
    size_t column_at[COLUMNS_COUNT];        /* where each stands in a row */
    const char *column_name[COLUMNS_COUNT]; /* as this file calls it */
    size_t columns_count;                   /* of the header line */
    bool totals;                            /* AvaTax's file: fractions, districts only within the total */
    bool percent;                           /* bare numbers are percents */
    bool mended;                            /* the row being read was */
};

/* --- header -------------------------------------------------------------------------------------------------- */

static enum spw_status read_header_cell(struct sheet *s, const struct spw_rates_cell *cell, size_t at)
{
    struct spw_rates_reader *r = s->r;
    for (size_t c = 0; c < COLUMNS_COUNT; c++) {
        for (size_t n = 0; n < NAMES_COUNT; n++) {
            if (!COLUMN_NAMES[c][n] || !spw_rates_cell_is(cell, COLUMN_NAMES[c][n]))
                continue;
            if (s->column_at[c] != SIZE_MAX)
                return spw_error_set(r->err, SPW_STATUS_PARSE,
                                     "%s:%u: column %s stands there twice: remove one", r->name, r->line,
                                     COLUMN_NAMES[c][0]);
            s->column_at[c] = at;
            s->column_name[c] = COLUMN_NAMES[c][n];
            s->totals |= c == COMBINED && n == 2;
        }
    }
    return SPW_STATUS_OK;
}

static enum spw_status read_header(struct sheet *s)
{
    struct spw_rates_reader *r = s->r;
    const char *line;
    size_t bytes;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    do {
        if (!spw_rates_next_line(r, &line, &bytes))
            return spw_error_set(r->err, SPW_STATUS_PARSE, "%s: the file is empty: name a rate table",
                                 r->name);
    } while (!bytes);
    const char *fault = spw_rates_cells_split(line, bytes, cells, &s->columns_count);
    if (fault)
        return spw_error_set(r->err, SPW_STATUS_PARSE, "%s:%u: header line: %s", r->name, r->line, fault);
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        s->column_at[c] = SIZE_MAX;
    for (size_t i = 0; i < s->columns_count; i++) {
        enum spw_status status = read_header_cell(s, &cells[i], i);
        if (status)
            return status;
    }
    for (size_t c = 0; c < COLUMNS_COUNT; c++)
        if (s->column_at[c] == SIZE_MAX && c != REGION && !(c == SPECIAL_RATE && s->totals))
            return spw_error_set(
                r->err, SPW_STATUS_PARSE,
                "%s:%u: no column %s%s%s in the header line: begin the table with State,ZipCode,"
                "TaxRegionName,TaxRegionCode,CombinedRate,StateRate,CountyRate,CityRate,SpecialRate "
                "(comma-separated), in any order",
                r->name, r->line, COLUMN_NAMES[c][0], COLUMN_NAMES[c][1] ? " or " : "",
                COLUMN_NAMES[c][1] ? COLUMN_NAMES[c][1] : "");
    return SPW_STATUS_OK;
}

/* --- the cells of a row -------------------------------------------------------------------------------------- */

/* More cells than columns: a name with an unquoted comma. There is one run of names, so that what stands behind it can
 * be counted from the row's end: the extra cells belong to the name. Which of two names beside one another they belong
 * to makes no difference to a rate. */
static void join_name(const struct sheet *s, struct spw_rates_cell *cells, size_t *count)
{
    size_t at = s->column_at[REGION], extra = *count - s->columns_count;
    const char *end = cells[at + extra].text + cells[at + extra].bytes;
    cells[at].bytes = (size_t)(end - cells[at].text);
    memmove(&cells[at + 1], &cells[at + 1 + extra], (*count - at - 1 - extra) * sizeof *cells);
    *count -= extra;
}

/* The cells of a row, or what is wrong with its form. */
static bool split_row(struct sheet *s, const char *line, size_t bytes,
                      struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT], size_t *count,
                      const char **fault)
{
    *count = 0;
    *fault = NULL;
    s->mended = false;
    while (bytes && line[bytes - 1] == ' ')
        bytes--;
    if (bytes)
        *fault = spw_rates_cells_split(line, bytes, cells, count);
    if (!bytes || *fault)
        return false;
    if (*count > s->columns_count && s->column_at[REGION] != SIZE_MAX) {
        join_name(s, cells, count);
        s->mended = true;
    }
    return *count == s->columns_count;
}

/* --- first pass: fractions or percents ----------------------------------------------------------------------- */

struct unit_count {
    size_t above_one, within_one;     /* bare combined rates that are not 0 */
    uint32_t above_line, within_line; /* the first of each */
};

static void count_units(struct sheet *s, struct spw_rates_reader r, struct unit_count *out)
{
    const char *line, *fault;
    size_t bytes, count;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    while (spw_rates_next_line(&r, &line, &bytes)) {
        struct spw_number number;
        if (!split_row(s, line, bytes, cells, &count, &fault) || s->mended ||
            !spw_rates_cell_number(&cells[s->column_at[COMBINED]], &number) || number.is_percent ||
            !number.value_e11)
            continue;
        if (number.value_e11 > SPW_NUMBER_ONE) {
            out->above_line = out->above_one++ ? out->above_line : r.line;
        } else {
            out->within_line = out->within_one++ ? out->within_line : r.line;
        }
    }
}

/* The few on one side are bad rows, if they are few enough to be; otherwise the table itself is unclear. */
static enum spw_status find_unit(struct sheet *s)
{
    struct spw_rates_reader *r = s->r;
    struct unit_count count = {0};
    count_units(s, *r, &count);
    uint64_t most_ppm = r->options->bad_max_ppm ? r->options->bad_max_ppm : BAD_DEFAULT_PPM;
    uint64_t few = (count.above_one + count.within_one) * most_ppm / PPM_ONE;
    if (count.above_one > few && count.within_one > few)
        return spw_error_set(
            r->err, SPW_STATUS_PARSE,
            "%s: column %s is ambiguous: line %u reads as percent (above 1), line %u as fraction: "
            "write every rate as a fraction (0.0825) or with its sign (8.25%%)",
            r->name, COLUMN_NAMES[COMBINED][0], count.above_line, count.within_line);
    s->percent = count.above_one > count.within_one;
    return SPW_STATUS_OK;
}

/* --- second pass: rows --------------------------------------------------------------------------------------- */

static bool read_state(struct sheet *s, const struct spw_rates_cell *cell, struct spw_rate_row *row)
{
    bool ok = cell->bytes == 2;
    for (size_t i = 0; ok && i < 2; i++)
        ok = cell->text[i] >= 'A' && cell->text[i] <= 'Z';
    if (ok)
        memcpy(row->state, cell->text, 2);
    else
        spw_rates_report(s->r, s->r->line, s->column_name[STATE],
                         "is no state: write its two capital letters, as WA");
    return ok;
}

/* "98110", "98110-1234", "981101234"; "501" and "2134" where the state's ZIP codes begin with a zero. */
static bool read_zip(struct sheet *s, const struct spw_rates_cell *cell, struct spw_rate_row *row)
{
    char text[16] = "";
    size_t digits = 0;
    uint32_t zip = 0, plus4 = 0;
    bool has_plus4 = false, ok = cell->bytes < 11;
    while (ok && digits < cell->bytes && cell->text[digits] >= '0' && cell->text[digits] <= '9')
        digits++;
    size_t zeros = (digits == 3 || digits == 4) && spw_zip_has_zeros(row->state) ? 5 - digits : 0;
    if (ok) {
        memset(text, '0', zeros);
        memcpy(text + zeros, cell->text, cell->bytes);
    }
    ok = ok && spw_zip_parse(text, &zip, &plus4, &has_plus4) && zip >= ZIP5_MIN && zip <= ZIP5_MAX;
    if (!ok)
        spw_rates_report(
            s->r, s->r->line, s->column_name[ZIP],
            "is no ZIP code: write five digits, 00501 to 99950, or ZIP+4 (a spreadsheet may have "
            "dropped leading zeros)");
    s->mended |= ok && zeros > 0;
    row->zip5 = zip;
    if (has_plus4)
        row->plus4_lo = row->plus4_hi = (uint16_t)plus4;
    return ok;
}

static bool read_rate(struct sheet *s, const struct spw_rates_cell *cell, enum column column,
                      uint32_t *out_ppb)
{
    struct spw_number number;
    const char *fault = NULL;
    if (!spw_rates_cell_number(cell, &number))
        fault = "is no rate: write a fraction (0.0825) or a percent with its sign (8.25%)";
    else if (column == COMBINED && !number.is_percent && s->percent && number.value_e11 &&
             number.value_e11 <= SPW_NUMBER_ONE)
        fault = "is at most 1 in a table of percents: a fraction or a percent? write it with its sign (0.5%)";
    else if (!number.is_percent && !s->percent && number.value_e11 >= AMBIGUOUS_E11)
        fault = "is 0.25 or more without a percent sign: a fraction or a percent? write 0.0825 or 8.25%";
    else
        fault = spw_number_ppb(&number, s->percent, out_ppb);
    if (fault)
        spw_rates_report(s->r, s->r->line, s->column_name[column], "%s", fault);
    return !fault;
}

static bool read_row(struct sheet *s, const char *line, size_t bytes, struct spw_rate_row *row)
{
    struct spw_rates_reader *r = s->r;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    size_t count;
    const char *fault;
    if (!split_row(s, line, bytes, cells, &count, &fault)) {
        if (fault)
            spw_rates_report(r, r->line, NULL, "%s", fault);
        else
            spw_rates_report(r, r->line, NULL,
                             "the row has %zu cells where the header line has %zu: put a name that holds a "
                             "comma in quotes",
                             count, s->columns_count);
        return false;
    }
    *row = (struct spw_rate_row){
        .country = "US", .plus4_lo = SPW_RATES_WHOLE_ZIP, .plus4_hi = SPW_RATES_WHOLE_ZIP};
    if (!read_state(s, &cells[s->column_at[STATE]], row) || !read_zip(s, &cells[s->column_at[ZIP]], row))
        return false;
    uint32_t *const rates[COLUMNS_COUNT] = {
        [COMBINED] = &row->combined_ppb, [STATE_RATE] = &row->state_ppb,     [COUNTY_RATE] = &row->county_ppb,
        [CITY_RATE] = &row->city_ppb,    [SPECIAL_RATE] = &row->special_ppb,
    };
    for (size_t c = COMBINED; c < COLUMNS_COUNT; c++) {
        if (s->column_at[c] != SIZE_MAX && !read_rate(s, &cells[s->column_at[c]], (enum column)c, rates[c]))
            return false;
    }
    uint64_t parts = (uint64_t)row->state_ppb + row->county_ppb + row->city_ppb;
    if (s->totals && parts < row->combined_ppb)
        row->special_ppb = row->combined_ppb - (uint32_t)parts; /* the districts stand in the total alone */
    if (s->column_at[REGION] != SIZE_MAX)
        spw_rates_region(cells[s->column_at[REGION]].text, cells[s->column_at[REGION]].bytes, row);
    return true;
}

static bool is_blank(const char *line, size_t bytes)
{
    while (bytes && line[bytes - 1] == ' ')
        bytes--;
    return !bytes;
}

enum spw_status spw_rates_read_columns(struct spw_rates_reader *r)
{
    struct sheet s = {.r = r};
    const char *line;
    size_t bytes;
    enum spw_status status = read_header(&s);
    if (!status && !s.totals)
        status = find_unit(&s);
    while (!status && spw_rates_next_line(r, &line, &bytes)) {
        struct spw_rate_row row;
        if (is_blank(line, bytes))
            continue;
        bool good = read_row(&s, line, bytes, &row);
        r->good_count += good;
        r->bad_count += !good;
        r->table->mended_count += good && s.mended;
        if (good)
            status = spw_rates_push(r, &row, r->line);
    }
    return status;
}
