/* rates_sst.c: the Streamlined states' files: rates by jurisdiction, and boundaries that say which place is in which.
 *
 * Owns: those two formats and their join. Called by: rates.c. Thread: any; pure over bytes.
 *
 * A rate file has nine columns and no header: state, kind of jurisdiction, its code, general rate within the state and
 * from outside, the same two for food and drugs, first and last day. A boundary file's rows begin with their kind (Z: a
 * range of ZIP codes, 4: of ZIP+4, A: of addresses), first and last day; from column 18 on: the range, and the codes of
 * state, county, place and up to twenty districts. Rates are fractions by definition.
 *
 * Join: for each row of a boundary file the rates of all its codes that hold in its days, cut where one of them changes.
 * A code the rate file does not know taxes nothing (most counties do not); without the state's own rate the row is bad.
 * Where the rates within the state and from outside differ, the higher is taken. Rows of addresses are left out: a cache
 * by ZIP code has no use for them.
 */
#include <stdlib.h>
#include <string.h>

#include "sidecar/rates/rates_reader.h"

#define RATE_COLUMNS  9u
#define BOUNDARY_MIN  25u /* up to the county's code */
#define AT_ZIP_LO     17u /* columns of a boundary row, from 0 */
#define AT_EXT_LO     18u
#define AT_ZIP_HI     19u
#define AT_EXT_HI     20u
#define AT_STATE      22u
#define AT_STATE_CODE 23u
#define AT_COUNTY     24u
#define AT_PLACE      25u
#define AT_DISTRICTS  29u /* then source, code, kind of each */
#define DISTRICTS_MAX 20u
#define CODES_MAX     (3u + DISTRICTS_MAX)
#define KIND_COUNTY   0u
#define KIND_PLACE    1u
#define KIND_STATE    45u
#define KIND_DISTRICT 63u
#define OPEN_END_YEAR 2099u /* a last day from here on means: until further notice */
#define CUTS_MAX      64u
#define ZIP5_MIN      501u
#define ZIP5_MAX      99950u
#define PLUS4_MAX     9999u
#define DAY_1970      719162 /* days before 1970-01-01 in the count of the calendar from year 1 */

struct jurisdiction {
    uint32_t state, kind, code;
    uint32_t ppb;
    uint32_t from_day, to_day; /* to_day UINT32_MAX = open */
};

struct spw_sst {
    struct jurisdiction *list;
    size_t count, room_count;
    bool sorted;
};

/* ---- cells ---- */

static bool read_number(const struct spw_rates_cell *cell, size_t most_digits, uint32_t *out)
{
    *out = 0;
    if (!cell->bytes || cell->bytes > most_digits)
        return false;
    for (size_t i = 0; i < cell->bytes; i++) {
        if (cell->text[i] < '0' || cell->text[i] > '9')
            return false;
        *out = *out * 10 + (uint32_t)(cell->text[i] - '0');
    }
    return true;
}

/* "20260401" as days since 1970-01-01; one before 1970 is 1, and one too far ahead to be meant is UINT32_MAX. */
static bool read_day(const struct spw_rates_cell *cell, uint32_t *out_day)
{
    static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint32_t all;
    if (cell->bytes != 8 || !read_number(cell, 8, &all))
        return false;
    uint32_t year = all / 10000, month = all / 100 % 100, day = all % 100;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || month < 1 || month > 12 || day < 1 ||
        day > (uint32_t)month_days[month - 1] + (month == 2 && leap ? 1u : 0u))
        return false;
    uint32_t y = year - 1, count = y * 365 + y / 4 - y / 100 + y / 400;
    for (uint32_t m = 1; m < month; m++)
        count += (uint32_t)month_days[m - 1] + (m == 2 && leap ? 1u : 0u);
    count += day - 1;
    *out_day = year >= OPEN_END_YEAR ? UINT32_MAX : count > DAY_1970 ? count - DAY_1970 : 1;
    return true;
}

static const char *state_of(uint32_t fips)
{
    static const struct {
        uint8_t fips;
        char state[3];
    } known[] = {{1, "AL"},  {2, "AK"},  {4, "AZ"},  {5, "AR"},  {6, "CA"},  {8, "CO"},  {9, "CT"},
                 {10, "DE"}, {11, "DC"}, {12, "FL"}, {13, "GA"}, {15, "HI"}, {16, "ID"}, {17, "IL"},
                 {18, "IN"}, {19, "IA"}, {20, "KS"}, {21, "KY"}, {22, "LA"}, {23, "ME"}, {24, "MD"},
                 {25, "MA"}, {26, "MI"}, {27, "MN"}, {28, "MS"}, {29, "MO"}, {30, "MT"}, {31, "NE"},
                 {32, "NV"}, {33, "NH"}, {34, "NJ"}, {35, "NM"}, {36, "NY"}, {37, "NC"}, {38, "ND"},
                 {39, "OH"}, {40, "OK"}, {41, "OR"}, {42, "PA"}, {44, "RI"}, {45, "SC"}, {46, "SD"},
                 {47, "TN"}, {48, "TX"}, {49, "UT"}, {50, "VT"}, {51, "VA"}, {53, "WA"}, {54, "WV"},
                 {55, "WI"}, {56, "WY"}, {72, "PR"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].fips == fips)
            return known[i].state;
    }
    return NULL;
}

/* ---- which file is it ---- */

enum spw_sst_kind spw_sst_kind_of(const struct spw_rates_reader *reader)
{
    struct spw_rates_reader r = *reader;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    const char *line;
    size_t bytes, count = 0;
    do {
        if (!spw_rates_next_line(&r, &line, &bytes))
            return SPW_SST_NOT;
    } while (!bytes);
    /* A boundary row may have more cells than fit: its beginning is enough. */
    (void)spw_rates_cells_split(line, bytes, cells, &count);
    uint32_t ignored;
    if (count == RATE_COLUMNS && read_number(&cells[0], 2, &ignored) && read_number(&cells[1], 2, &ignored) &&
        read_number(&cells[2], 5, &ignored) && read_day(&cells[7], &ignored) && read_day(&cells[8], &ignored))
        return SPW_SST_RATES;
    if (count >= 3 && cells[0].bytes == 1 && strchr("AaZz4", cells[0].text[0]) &&
        read_day(&cells[1], &ignored) && read_day(&cells[2], &ignored))
        return SPW_SST_BOUNDARIES;
    return SPW_SST_NOT;
}

/* ---- rate files ---- */

struct spw_sst *spw_sst_new(void)
{
    return calloc(1, sizeof(struct spw_sst));
}

void spw_sst_destroy(struct spw_sst *sst)
{
    if (sst)
        free(sst->list);
    free(sst);
}

static bool read_rate_row(struct spw_rates_reader *r, const struct spw_rates_cell *cells, size_t count,
                          struct jurisdiction *j)
{
    static const char *const names[RATE_COLUMNS] = {"state",
                                                    "jurisdiction type",
                                                    "jurisdiction code",
                                                    "general rate intrastate",
                                                    "general rate interstate",
                                                    "",
                                                    "",
                                                    "begin date",
                                                    "end date"};
    uint32_t within, outside;
    if (count != RATE_COLUMNS) {
        spw_rates_report(r, r->line, NULL, "the row has %zu cells where a rate file has %u", count,
                         RATE_COLUMNS);
        return false;
    }
    const char *fault = NULL;
    size_t at = 0;
    if (!read_number(&cells[0], 2, &j->state) || !state_of(j->state))
        fault = "is no FIPS code of a state";
    else if (at = 1, !read_number(&cells[1], 2, &j->kind))
        fault = "is no kind of jurisdiction: two digits";
    else if (at = 2, !read_number(&cells[2], 5, &j->code))
        fault = "is no code: up to five digits";
    else if (at = 3, (fault = spw_rates_fraction(&cells[3], &within)) == NULL)
        at = 4, fault = spw_rates_fraction(&cells[4], &outside);
    if (!fault && (at = 7, !read_day(&cells[7], &j->from_day) || j->from_day == UINT32_MAX))
        fault = "is no day: write it as 20260401";
    if (!fault && (at = 8, !read_day(&cells[8], &j->to_day)))
        fault = "is no day: write it as 20260630, or 99991231 for none";
    if (!fault && j->to_day < j->from_day)
        fault = "lies before the first day";
    if (fault) {
        spw_rates_report(r, r->line, names[at], "%s", fault);
        return false;
    }
    j->ppb = within > outside ? within : outside;
    return true;
}

enum spw_status spw_sst_read_rates(struct spw_sst *sst, struct spw_rates_reader *r)
{
    const char *line;
    size_t bytes, count;
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    sst->sorted = false;
    while (spw_rates_next_line(r, &line, &bytes)) {
        struct jurisdiction j = {0};
        if (!bytes)
            continue;
        const char *fault = spw_rates_cells_split(line, bytes, cells, &count);
        if (fault)
            spw_rates_report(r, r->line, NULL, "%s", fault);
        if (fault || !read_rate_row(r, cells, count, &j)) {
            r->bad_count++;
            continue;
        }
        r->good_count++;
        if (sst->count == sst->room_count) {
            size_t room = sst->room_count ? sst->room_count * 2 : 1024;
            struct jurisdiction *grown = realloc(sst->list, room * sizeof *grown);
            if (!grown)
                return spw_error_set(r->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the rate table",
                                     r->name);
            sst->list = grown;
            sst->room_count = room;
        }
        sst->list[sst->count++] = j;
    }
    return SPW_STATUS_OK;
}

static int compare_jurisdictions(const void *left, const void *right)
{
    const struct jurisdiction *a = left, *b = right;
    if (a->state != b->state)
        return a->state < b->state ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    return a->from_day < b->from_day ? -1 : a->from_day > b->from_day;
}

static void sort_once(struct spw_sst *sst)
{
    if (!sst->sorted && sst->count)
        qsort(sst->list, sst->count, sizeof *sst->list, compare_jurisdictions);
    sst->sorted = true;
}

/* The periods of one jurisdiction: the first, and how many. */
static size_t find_periods(const struct spw_sst *sst, uint32_t state, uint32_t kind, uint32_t code,
                           size_t *periods)
{
    size_t low = 0, high = sst->count;
    const struct jurisdiction wanted = {.state = state, .kind = kind, .code = code};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_jurisdictions(&sst->list[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *periods = 0;
    while (low + *periods < sst->count && sst->list[low + *periods].state == state &&
           sst->list[low + *periods].kind == kind && sst->list[low + *periods].code == code)
        ++*periods;
    return low;
}

/* ---- boundary files ---- */

struct boundary {
    bool plus4;
    uint32_t from_day, to_day;
    uint32_t zip_lo, ext_lo, zip_hi, ext_hi;
    uint32_t state;
    struct {
        uint32_t kind, code;
    } codes[CODES_MAX];
    size_t codes_count;
};

static bool add_code(struct boundary *b, uint32_t kind, const struct spw_rates_cell *cell)
{
    uint32_t code;
    if (!cell->bytes)
        return true;
    if (!read_number(cell, 5, &code))
        return false;
    b->codes[b->codes_count].kind = kind;
    b->codes[b->codes_count++].code = code;
    return true;
}

static bool read_zip(const struct spw_rates_cell *cell, uint32_t *out)
{
    return cell->bytes == 5 && read_number(cell, 5, out);
}

/* Absent, where it may be, leaves *out as it is. */
static bool read_plus4(const struct spw_rates_cell *cell, bool mandatory, uint32_t *out)
{
    return cell->bytes ? read_number(cell, 4, out) : !mandatory;
}

static bool read_range(struct spw_rates_reader *r, const struct spw_rates_cell *cells, struct boundary *b)
{
    static const struct spw_rates_cell none = {"", 0};
    const struct spw_rates_cell *lo = &cells[AT_EXT_LO], *hi = &cells[AT_EXT_HI];
    b->ext_lo = 0;
    b->ext_hi = PLUS4_MAX;
    if (!b->plus4)
        lo = hi = &none;
    const char *fault = NULL;
    size_t at = AT_ZIP_LO;
    if (!read_zip(&cells[AT_ZIP_LO], &b->zip_lo) ||
        (at = AT_ZIP_HI, !read_zip(&cells[AT_ZIP_HI], &b->zip_hi)))
        fault = "is no ZIP code: five digits";
    else if (b->zip_hi < b->zip_lo || b->zip_lo < ZIP5_MIN || b->zip_hi > ZIP5_MAX)
        fault = "is no range of ZIP codes: the lower end first, 00501 to 99950";
    else if ((at = AT_EXT_LO, !read_plus4(lo, b->plus4, &b->ext_lo)) ||
             (at = AT_EXT_HI, !read_plus4(hi, b->plus4, &b->ext_hi)))
        fault = "is no ZIP+4: four digits";
    else if (b->zip_lo == b->zip_hi && b->ext_hi < b->ext_lo)
        fault = "lies below the range's lower end";
    if (fault)
        spw_rates_report(r, r->line, NULL, "column %zu %s", at + 1, fault);
    return !fault;
}

static bool read_codes(struct spw_rates_reader *r, const struct spw_rates_cell *cells, size_t count,
                       struct boundary *b)
{
    if (!read_number(&cells[AT_STATE], 2, &b->state) || !state_of(b->state)) {
        spw_rates_report(r, r->line, NULL, "column %u is no FIPS code of a state", AT_STATE + 1);
        return false;
    }
    static const struct spw_rates_cell none = {"", 0};
    const struct spw_rates_cell *place = count > AT_PLACE ? &cells[AT_PLACE] : &none;
    bool ok = add_code(b, KIND_STATE, &cells[AT_STATE_CODE]) && add_code(b, KIND_COUNTY, &cells[AT_COUNTY]) &&
              add_code(b, KIND_PLACE, place);
    for (size_t at = AT_DISTRICTS; ok && at + 2 < count && b->codes_count < CODES_MAX; at += 3) {
        uint32_t kind = KIND_DISTRICT;
        ok = (!cells[at + 2].bytes || read_number(&cells[at + 2], 2, &kind)) &&
             add_code(b, kind, &cells[at + 1]);
    }
    if (!ok)
        spw_rates_report(r, r->line, NULL, "a code of state, county, place or district is no number");
    return ok;
}

/* Split like any row, but a boundary row may have more columns than others: the cells that fit are enough. */
static bool read_boundary(struct spw_rates_reader *r, const char *line, size_t bytes, struct boundary *b)
{
    struct spw_rates_cell cells[SPW_RATES_CELLS_MAX_COUNT];
    size_t count = 0;
    const char *fault = spw_rates_cells_split(line, bytes, cells, &count);
    *b = (struct boundary){0};
    if (fault && count < SPW_RATES_CELLS_MAX_COUNT) {
        spw_rates_report(r, r->line, NULL, "%s", fault);
        return false;
    }
    if (count < BOUNDARY_MIN) {
        spw_rates_report(r, r->line, NULL, "the row has %zu cells where a boundary file has at least %u",
                         count, BOUNDARY_MIN);
        return false;
    }
    b->plus4 = cells[0].text[0] == '4';
    if (!read_day(&cells[1], &b->from_day) || !read_day(&cells[2], &b->to_day) || b->from_day == UINT32_MAX ||
        b->to_day < b->from_day) {
        spw_rates_report(r, r->line, NULL, "columns 2 and 3 are no first and last day, as 20260401,20260630");
        return false;
    }
    return read_range(r, cells, b) && read_codes(r, cells, count, b);
}

/* ---- the join ---- */

/* The days on which some rate of the boundary's codes begins, or is the first after its end; sorted, unique. */
static size_t find_cuts(const struct spw_sst *sst, const struct boundary *b, uint32_t cuts[CUTS_MAX])
{
    size_t n = 0;
    cuts[n++] = b->from_day;
    for (size_t i = 0; i < b->codes_count; i++) {
        size_t periods, at = find_periods(sst, b->state, b->codes[i].kind, b->codes[i].code, &periods);
        for (size_t k = at; k < at + periods; k++) {
            const uint32_t days[2] = {sst->list[k].from_day,
                                      sst->list[k].to_day == UINT32_MAX ? 0 : sst->list[k].to_day + 1};
            for (size_t d = 0; d < 2; d++) {
                size_t place = 0;
                while (place < n && cuts[place] < days[d])
                    place++;
                if (days[d] <= b->from_day || days[d] > b->to_day || n == CUTS_MAX ||
                    (place < n && cuts[place] == days[d]))
                    continue;
                memmove(&cuts[place + 1], &cuts[place], (n - place) * sizeof *cuts);
                cuts[place] = days[d];
                n++;
            }
        }
    }
    return n;
}

/* The rates on one day. False: the state has none. */
static bool sum_rates(const struct spw_sst *sst, const struct boundary *b, uint32_t day,
                      struct spw_rate_row *row, size_t *unjoined)
{
    bool has_state = false;
    for (size_t i = 0; i < b->codes_count; i++) {
        uint32_t kind = b->codes[i].kind, ppb = 0;
        size_t periods, at = find_periods(sst, b->state, kind, b->codes[i].code, &periods);
        for (size_t k = at; k < at + periods; k++) {
            const struct jurisdiction *j = &sst->list[k];
            if (j->from_day <= day && day <= j->to_day) {
                ppb = j->ppb > ppb ? j->ppb : ppb;
                has_state |= kind == KIND_STATE;
            }
        }
        *unjoined += periods == 0;
        uint32_t *part = kind == KIND_STATE    ? &row->state_ppb
                         : kind == KIND_COUNTY ? &row->county_ppb
                         : kind == KIND_PLACE  ? &row->city_ppb
                                               : &row->special_ppb;
        *part += ppb;
        row->combined_ppb += ppb;
    }
    return has_state && row->combined_ppb <= 1000000000u;
}

/* One record for each ZIP code of the range. */
static enum spw_status push_range(struct spw_rates_reader *r, const struct boundary *b,
                                  struct spw_rate_row *row)
{
    enum spw_status status = SPW_STATUS_OK;
    for (uint32_t zip = b->zip_lo; !status && zip <= b->zip_hi; zip++) {
        row->zip5 = zip;
        row->plus4_lo = b->plus4 ? (uint16_t)(zip == b->zip_lo ? b->ext_lo : 0) : SPW_RATES_WHOLE_ZIP;
        row->plus4_hi = b->plus4 ? (uint16_t)(zip == b->zip_hi ? b->ext_hi : PLUS4_MAX) : SPW_RATES_WHOLE_ZIP;
        status = spw_rates_push(r, row, r->line);
    }
    return status;
}

static enum spw_status join(const struct spw_sst *sst, struct spw_rates_reader *r, const struct boundary *b)
{
    uint32_t cuts[CUTS_MAX];
    size_t count = find_cuts(sst, b, cuts), unjoined = 0, made = 0;
    enum spw_status status = SPW_STATUS_OK;
    for (size_t i = 0; i < count && !status; i++) {
        struct spw_rate_row row = {.country = "US", .valid_from_day = cuts[i]};
        uint32_t to_day = i + 1 < count ? cuts[i + 1] - 1 : b->to_day;
        row.valid_to_day = to_day == UINT32_MAX ? 0 : to_day;
        memcpy(row.state, state_of(b->state), 2);
        size_t missing = 0;
        if (!sum_rates(sst, b, cuts[i], &row, &missing))
            continue;
        unjoined = missing;
        made++;
        if (!spw_rates_expired(r, row.valid_to_day))
            status = push_range(r, b, &row);
    }
    r->table->unjoined_count += unjoined;
    r->good_count += made > 0;
    r->bad_count += made == 0;
    if (made == 0)
        spw_rates_report(r, r->line, NULL,
                         "%s has no rate of its own on these days: load the state's rate file of the same "
                         "quarter with it",
                         state_of(b->state));
    return status;
}

enum spw_status spw_sst_read_boundaries(struct spw_sst *sst, struct spw_rates_reader *r)
{
    const char *line;
    size_t bytes;
    enum spw_status status = SPW_STATUS_OK;
    sort_once(sst);
    while (!status && spw_rates_next_line(r, &line, &bytes)) {
        struct boundary b;
        if (!bytes)
            continue;
        if (*line == 'A' || *line == 'a') {
            r->table->ignored_count++;
            continue;
        }
        if (!strchr("Zz4", *line)) {
            spw_rates_report(r, r->line, NULL, "column 1 is none of A, Z and 4");
            r->bad_count++;
        } else if (!read_boundary(r, line, bytes, &b)) {
            r->bad_count++;
        } else {
            status = join(sst, r, &b);
        }
    }
    return status;
}

enum spw_status spw_sst_add_states(struct spw_sst *sst, struct spw_rates_reader *r)
{
    enum spw_status status = SPW_STATUS_OK;
    sort_once(sst);
    for (size_t i = 0; i < sst->count && !status; i++) {
        const struct jurisdiction *j = &sst->list[i];
        uint32_t to_day = j->to_day == UINT32_MAX ? 0 : j->to_day;
        if (j->kind != KIND_STATE || spw_rates_expired(r, to_day))
            continue;
        struct spw_rate_row row = {.country = "US",
                                   .plus4_lo = SPW_RATES_WHOLE_ZIP,
                                   .plus4_hi = SPW_RATES_WHOLE_ZIP,
                                   .state_ppb = j->ppb,
                                   .combined_ppb = j->ppb,
                                   .valid_from_day = j->from_day,
                                   .valid_to_day = to_day,
                                   .least = true};
        memcpy(row.state, state_of(j->state), 2);
        status = spw_rates_push(r, &row, 0);
    }
    return status;
}
