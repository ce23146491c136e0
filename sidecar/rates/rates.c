/* rates.c: see rates.h: the files of one table to sorted rows.
 *
 * The formats are read by rates_zip5.c (tables of ZIP codes with a header line), rates_sst.c (Streamlined Sales Tax) and
 * rates_summary.c (TaxJar's summary). Here: which is which, what is done with several rows of one place, and sums.
 */
#include "sidecar/rates/rates.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/rates/rates_reader.h"

#define BAD_DEFAULT_PPM    50000u
#define PROBLEMS_DEFAULT   20u
#define PPM_ONE            UINT64_C(1000000)
#define HISTORY_DAYS       120u           /* how far back a quote's date, or a correction, may lie */
#define UTF8_MARK          "\xEF\xBB\xBF" /* spreadsheets begin their files with it */
#define CROWD              128u           /* half of what readers look past */
#define PLACE_ROWS_MAX     2000u          /* far above what any ZIP code has */
#define AMBIGUOUS_FRACTION (SPW_NUMBER_ONE / 4)

/* --- lines, problems, rows ----------------------------------------------------------------------------------- */

bool spw_rates_next_line(struct spw_rates_reader *r, const char **line, size_t *bytes)
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

static void tell(struct spw_rates_reader *r, struct spw_rates_problem *problem, uint32_t *count)
{
    uint32_t most = r->options->problems_max ? r->options->problems_max : PROBLEMS_DEFAULT;
    if (++*count > most)
        r->table->untold_count++;
    else if (r->options->problem)
        r->options->problem(r->options->owner, r->name, problem);
}

void spw_rates_report(struct spw_rates_reader *r, uint32_t line, const char *column, const char *format, ...)
{
    struct spw_rates_problem problem = {.line = line, .column = column};
    va_list args;
    va_start(args, format);
    vsnprintf(problem.text, sizeof problem.text, format, args);
    va_end(args);
    tell(r, &problem, r->told_count);
    if (!r->first_bad[0]) {
        r->first_bad_line = line;
        snprintf(r->first_bad, sizeof r->first_bad, "%s", problem.text);
    }
}

void spw_rates_warn(struct spw_rates_reader *r, uint32_t line, const char *column, const char *format, ...)
{
    struct spw_rates_problem problem = {.warning = true, .line = line, .column = column};
    va_list args;
    va_start(args, format);
    vsnprintf(problem.text, sizeof problem.text, format, args);
    va_end(args);
    tell(r, &problem, r->warned_count);
}

enum spw_status spw_rates_push(struct spw_rates_reader *r, const struct spw_rate_row *row, uint32_t line)
{
    struct spw_rates_list *rows = r->rows;
    if (rows->count == SPW_RATES_ROWS_MAX)
        return spw_error_set(r->err, SPW_STATUS_FULL,
                             "%s:%u: more than %u places: no segment holds them; load the states you sell to",
                             r->name, line, SPW_RATES_ROWS_MAX);
    if (rows->count == rows->room_count) {
        size_t room = rows->room_count ? rows->room_count * 2 : 1024;
        struct spw_rates_numbered *grown = realloc(rows->list, room * sizeof *grown);
        if (!grown)
            return spw_error_set(r->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", r->name);
        rows->list = grown;
        rows->room_count = room;
    }
    rows->list[rows->count] =
        (struct spw_rates_numbered){.row = *row, .order = (uint32_t)rows->count, .line = line};
    rows->count++;
    return SPW_STATUS_OK;
}

bool spw_rates_expired(struct spw_rates_reader *r, uint32_t valid_to_day)
{
    if (r->options->as_of_day <= 0 || valid_to_day == 0 ||
        valid_to_day + HISTORY_DAYS >= (uint32_t)r->options->as_of_day)
        return false;
    r->table->expired_count++;
    return true;
}

void spw_rates_region(const char *text, size_t bytes, struct spw_rate_row *row)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes && n < sizeof row->region - 1; i++) {
        unsigned char c = (unsigned char)text[i];
        row->region[n++] = c >= ' ' && c <= '~' ? (char)c : '?';
        if (c == '"' && i + 1 < bytes && text[i + 1] == '"')
            i++;
    }
}

const char *spw_rates_fraction(const struct spw_rates_cell *cell, uint32_t *out_ppb)
{
    struct spw_number number;
    if (!spw_rates_cell_number(cell, &number))
        return "is no rate: write a fraction (0.0825)";
    if (!number.is_percent && number.value_e11 >= AMBIGUOUS_FRACTION)
        return "is 0.25 or more: this format writes fractions (0.0825), and no sales tax is that high";
    return spw_number_ppb(&number, false, out_ppb);
}

/* --- several rows of one place ------------------------------------------------------------------------------- */

static int compare_places(const struct spw_rate_row *a, const struct spw_rate_row *b)
{
    int country = memcmp(a->country, b->country, sizeof a->country);
    if (country)
        return country;
    bool a_wide = a->zip5 == 0, b_wide = b->zip5 == 0;
    if (a_wide != b_wide)
        return a_wide ? 1 : -1;
    if (a_wide && memcmp(a->state, b->state, sizeof a->state) != 0)
        return memcmp(a->state, b->state, sizeof a->state);
    if (a->zip5 != b->zip5)
        return a->zip5 < b->zip5 ? -1 : 1;
    if (a->plus4_lo != b->plus4_lo)
        return a->plus4_lo < b->plus4_lo ? -1 : 1;
    if (a->plus4_hi != b->plus4_hi)
        return a->plus4_hi < b->plus4_hi ? -1 : 1;
    return 0;
}

/* By place, then in the order they came. */
static int compare_rows(const void *left, const void *right)
{
    const struct spw_rates_numbered *a = left, *b = right;
    int places = compare_places(&a->row, &b->row);
    return places ? places : a->order < b->order ? -1 : a->order > b->order;
}

static bool same_rates(const struct spw_rate_row *a, const struct spw_rate_row *b)
{
    return a->combined_ppb == b->combined_ppb && a->state_ppb == b->state_ppb &&
           a->county_ppb == b->county_ppb && a->city_ppb == b->city_ppb && a->special_ppb == b->special_ppb &&
           memcmp(a->state, b->state, sizeof a->state) == 0;
}

static uint32_t last_day(const struct spw_rate_row *row)
{
    return row->valid_to_day ? row->valid_to_day : UINT32_MAX;
}

/* Is b, which came later, kept instead of a? */
static bool is_preferred(const struct spw_rates_reader *r, const struct spw_rate_row *a,
                         const struct spw_rate_row *b)
{
    switch (r->options->several) {
    case SPW_RATES_SEVERAL_LOWEST:
        return b->combined_ppb < a->combined_ppb;
    case SPW_RATES_SEVERAL_FIRST:
        return false;
    default:
        return b->combined_ppb > a->combined_ppb;
    }
}

static void add_row(struct spw_rates_table *table, const struct spw_rate_row *row)
{
    struct spw_rate_row *next = table->rows + table->rows_count;
    if (table->rows_count) {
        struct spw_rate_row *before = next - 1;
        if (compare_places(before, row) == 0 && same_rates(before, row) && before->least == row->least &&
            row->valid_from_day && before->valid_to_day + 1 == row->valid_from_day) {
            before->valid_to_day = row->valid_to_day; /* the same rate goes on */
            return;
        }
    }
    *next = *row;
    table->rows_count++;
}

/* The rows of one place, at days that may overlap: between any two days on which something changes one row holds. */
static void settle_place(struct spw_rates_reader *r, const struct spw_rates_numbered *rows, size_t count)
{
    uint32_t from = 0;
    bool several = false;
    if (count > PLACE_ROWS_MAX) {
        spw_rates_warn(r, rows[PLACE_ROWS_MAX].line, NULL, "%05u has more than %u rows: these are left out",
                       rows[0].row.zip5, PLACE_ROWS_MAX);
        count = PLACE_ROWS_MAX;
    }
    for (;;) {
        const struct spw_rates_numbered *best = NULL;
        uint32_t next = UINT32_MAX; /* the next day on which something begins or has ended */
        for (size_t i = 0; i < count; i++) {
            const struct spw_rate_row *row = &rows[i].row;
            if (row->valid_from_day > from) {
                next = row->valid_from_day < next ? row->valid_from_day : next;
                continue;
            }
            if (last_day(row) < from)
                continue;
            if (last_day(row) != UINT32_MAX && last_day(row) + 1 < next)
                next = last_day(row) + 1;
            several |= best && best->row.combined_ppb != row->combined_ppb;
            if (!best || is_preferred(r, &best->row, row))
                best = &rows[i];
        }
        if (best) {
            struct spw_rate_row row = best->row;
            row.valid_from_day = from;
            row.valid_to_day = next == UINT32_MAX ? 0 : next - 1;
            add_row(r->table, &row);
        }
        if (next == UINT32_MAX)
            break;
        from = next;
    }
    if (several) {
        r->table->several_count++;
        spw_rates_warn(r, rows[1].line, NULL,
                       "%05u lies in several places with different rates (also line %u): the %s is kept",
                       rows[0].row.zip5, rows[0].line,
                       r->options->several == SPW_RATES_SEVERAL_LOWEST  ? "lowest"
                       : r->options->several == SPW_RATES_SEVERAL_FIRST ? "first"
                                                                        : "highest");
    }
}

/* --- ZIP+4 ranges beside one another ------------------------------------------------------------------------- */

static int compare_for_joining(const void *left, const void *right)
{
    const struct spw_rate_row *a = left, *b = right;
    if (a->zip5 != b->zip5)
        return a->zip5 < b->zip5 ? -1 : 1;
    if (a->valid_from_day != b->valid_from_day)
        return a->valid_from_day < b->valid_from_day ? -1 : 1;
    return a->plus4_lo < b->plus4_lo ? -1 : a->plus4_lo > b->plus4_lo;
}

static int compare_finally(const void *left, const void *right)
{
    const struct spw_rate_row *a = left, *b = right;
    int places = compare_places(a, b);
    return places                                  ? places
           : a->valid_from_day < b->valid_from_day ? -1
                                                   : a->valid_from_day > b->valid_from_day;
}

/* Ranges of one ZIP code that touch and say the same are one: fewer records, shorter ways. */
static void join_ranges(struct spw_rates_table *table)
{
    size_t kept = 0;
    bool ranges = false;
    for (size_t i = 0; i < table->rows_count && !ranges; i++)
        ranges = table->rows[i].plus4_lo != SPW_RATES_WHOLE_ZIP;
    if (!ranges)
        return;
    qsort(table->rows, table->rows_count, sizeof *table->rows, compare_for_joining);
    for (size_t i = 0; i < table->rows_count; i++) {
        struct spw_rate_row *before = kept ? &table->rows[kept - 1] : NULL, *row = &table->rows[i];
        if (before && before->zip5 == row->zip5 && row->plus4_lo != SPW_RATES_WHOLE_ZIP &&
            before->plus4_hi + 1u == row->plus4_lo && before->valid_from_day == row->valid_from_day &&
            before->valid_to_day == row->valid_to_day && same_rates(before, row))
            before->plus4_hi = row->plus4_hi;
        else
            table->rows[kept++] = *row;
    }
    table->rows_count = kept;
    qsort(table->rows, table->rows_count, sizeof *table->rows, compare_finally);
}

/* Does the ZIP code as a whole say the same on all days of the range? */
static bool is_told_by_zip(const struct spw_rate_row *range, const struct spw_rate_row *whole)
{
    return whole->plus4_lo == SPW_RATES_WHOLE_ZIP && same_rates(range, whole) &&
           whole->valid_from_day <= range->valid_from_day && last_day(range) <= last_day(whole);
}

/* Readers look past a few hundred ranges of a ZIP code and no further: where there are many, those that say what the ZIP
 * code says anyway are left out. */
static void thin_out(struct spw_rates_table *table)
{
    size_t kept = 0;
    for (size_t i = 0, n; i < table->rows_count; i += n) {
        const struct spw_rate_row *zip = &table->rows[i];
        n = 1;
        while (i + n < table->rows_count && zip[n].zip5 == zip->zip5 && zip->zip5)
            n++;
        for (size_t k = 0; k < n; k++) {
            bool told = false;
            for (size_t w = n; n > CROWD && w-- > 0 && zip[w].plus4_lo == SPW_RATES_WHOLE_ZIP && !told;)
                told = zip[k].plus4_lo != SPW_RATES_WHOLE_ZIP && is_told_by_zip(&zip[k], &zip[w]);
            if (!told)
                table->rows[kept++] = zip[k];
        }
    }
    table->rows_count = kept;
}

/* --- the table ----------------------------------------------------------------------------------------------- */

static void count_mismatch(struct spw_rates_table *table, const struct spw_rate_row *row)
{
    uint64_t sum = (uint64_t)row->state_ppb + row->county_ppb + row->city_ppb + row->special_ppb;
    uint64_t off = sum > row->combined_ppb ? sum - row->combined_ppb : row->combined_ppb - sum;
    if (off == 0 || row->zip5 == 0) /* a whole state's figures are no sum of parts */
        return;
    table->mismatch_count++;
    if (off > table->mismatch_worst_ppb) {
        table->mismatch_worst_ppb = off > UINT32_MAX ? UINT32_MAX : (uint32_t)off;
        table->mismatch_worst_zip5 = row->zip5;
    }
}

static enum spw_status make_table(struct spw_rates_reader *r, struct spw_rates_list *rows)
{
    struct spw_rates_table *table = r->table;
    if (!rows->count && table->expired_count)
        return spw_error_set(
            r->err, SPW_STATUS_PARSE,
            "%s: all %zu rows ended more than %u days before the day the rates are published "
            "for: give the day of this edition",
            r->name, table->expired_count, HISTORY_DAYS);
    if (!rows->count)
        return spw_error_set(r->err, SPW_STATUS_PARSE, "%s: the table has no good rows below its header line",
                             r->name);
    qsort(rows->list, rows->count, sizeof *rows->list, compare_rows);
    size_t room = 2 * rows->count; /* n rows of a place change at most 2n times */
    table->rows = calloc(room, sizeof *table->rows);
    if (!table->rows)
        return spw_error_set(r->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", r->name);
    for (size_t i = 0, n; i < rows->count; i += n) {
        n = 1;
        while (i + n < rows->count && compare_places(&rows->list[i].row, &rows->list[i + n].row) == 0)
            n++;
        size_t before = table->rows_count;
        settle_place(r, &rows->list[i], n);
        size_t made = table->rows_count - before;
        table->duplicate_count += n > made ? n - made : 0;
    }
    join_ranges(table);
    thin_out(table);
    for (size_t i = 0; i < table->rows_count; i++)
        count_mismatch(table, &table->rows[i]);
    return SPW_STATUS_OK;
}

static enum spw_status check_share(struct spw_rates_reader *r)
{
    uint64_t most_ppm = r->options->bad_max_ppm ? r->options->bad_max_ppm : BAD_DEFAULT_PPM;
    r->table->bad_count += r->bad_count;
    if (r->bad_count * PPM_ONE <= (r->good_count + r->bad_count) * most_ppm)
        return SPW_STATUS_OK;
    return spw_error_set(r->err, SPW_STATUS_PARSE,
                         "%s:%u: %zu of %zu rows are bad, so the file is refused whole; the first one: %s",
                         r->name, r->first_bad_line, r->bad_count, r->good_count + r->bad_count,
                         r->first_bad);
}

/* --- the files of one table ---------------------------------------------------------------------------------- */

struct set {
    const struct spw_rates_options *options;
    struct spw_rates_table *table;
    struct spw_error *err;
    struct spw_rates_list rows;
    uint32_t told_count, warned_count;
    struct spw_sst *sst; /* NULL until the first Streamlined file */
};

static struct spw_rates_reader reader_of(struct set *set, const struct spw_rates_bytes *file)
{
    struct spw_rates_reader r = {.name = file->name,
                                 .p = file->text,
                                 .end = file->text + file->bytes,
                                 .options = set->options,
                                 .table = set->table,
                                 .rows = &set->rows,
                                 .err = set->err,
                                 .told_count = &set->told_count,
                                 .warned_count = &set->warned_count};
    if (file->bytes >= sizeof UTF8_MARK - 1 && !memcmp(file->text, UTF8_MARK, sizeof UTF8_MARK - 1))
        r.p += sizeof UTF8_MARK - 1;
    return r;
}

static enum spw_status read_file(struct set *set, const struct spw_rates_bytes *file, enum spw_sst_kind pass)
{
    struct spw_rates_reader r = reader_of(set, file);
    enum spw_sst_kind kind = spw_sst_kind_of(&r);
    if (kind != pass)
        return SPW_STATUS_OK;
    enum spw_status status = SPW_STATUS_OK;
    if (kind != SPW_SST_NOT && !set->sst && !(set->sst = spw_sst_new()))
        return spw_error_set(set->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table", r.name);
    if (kind == SPW_SST_RATES)
        status = spw_sst_read_rates(set->sst, &r);
    else if (kind == SPW_SST_BOUNDARIES)
        status = spw_sst_read_boundaries(set->sst, &r);
    else if (spw_rates_is_summary(&r))
        status = spw_rates_read_summary(&r);
    else
        status = spw_rates_read_columns(&r);
    return status ? status : check_share(&r);
}

/* Of one file: its own digest; of several: of their digests, in the order named. */
static enum spw_status digest(struct set *set, const struct spw_rates_bytes *files, size_t count)
{
    EVP_MD_CTX *all = EVP_MD_CTX_new();
    bool ok = all && EVP_DigestInit_ex(all, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; ok && i < count; i++) {
        ok = EVP_Digest(files[i].text, files[i].bytes, set->table->sha256, NULL, EVP_sha256(), NULL) == 1 &&
             EVP_DigestUpdate(all, set->table->sha256, sizeof set->table->sha256) == 1;
    }
    if (ok && count > 1)
        ok = EVP_DigestFinal_ex(all, set->table->sha256, NULL) == 1;
    EVP_MD_CTX_free(all);
    return ok ? SPW_STATUS_OK
              : spw_error_set(set->err, SPW_STATUS_SYSTEM,
                              "rates: no SHA-256 in libcrypto: check its installation");
}

enum spw_status spw_rates_parse_set(const struct spw_rates_bytes *files, size_t files_count,
                                    const struct spw_rates_options *options, struct spw_rates_table *table,
                                    struct spw_error *err)
{
    static const struct spw_rates_options defaults;
    static const enum spw_sst_kind passes[] = {SPW_SST_NOT, SPW_SST_RATES, SPW_SST_BOUNDARIES};
    struct set set = {.options = options ? options : &defaults, .table = table, .err = err};
    enum spw_status status = SPW_STATUS_OK;
    *table = (struct spw_rates_table){0};
    for (size_t p = 0; p < sizeof passes / sizeof *passes && !status; p++) {
        for (size_t i = 0; i < files_count && !status; i++)
            status = read_file(&set, &files[i], passes[p]);
    }
    static const struct spw_rates_bytes nothing = {"rates", "", 0};
    struct spw_rates_reader r = reader_of(&set, files_count ? &files[0] : &nothing);
    if (!status && set.sst)
        status = spw_sst_add_states(set.sst, &r);
    if (!status)
        status = make_table(&r, &set.rows);
    if (!status)
        status = digest(&set, files, files_count);
    spw_sst_destroy(set.sst);
    free(set.rows.list);
    if (status)
        spw_rates_clean_up(table);
    return status;
}

enum spw_status spw_rates_parse(const char *name, const char *text, size_t bytes,
                                const struct spw_rates_options *options, struct spw_rates_table *table,
                                struct spw_error *err)
{
    const struct spw_rates_bytes file = {name, text, bytes};
    return spw_rates_parse_set(&file, 1, options, table, err);
}

void spw_rates_clean_up(struct spw_rates_table *table)
{
    free(table->rows);
    *table = (struct spw_rates_table){0};
}
