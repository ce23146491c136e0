/* conf_units.c: units as people write them, to exact integers and back.
 *
 * Owns: the grammar of rates, durations, percents, fractions, dates and amounts. Called by: conf_check.c and its
 * like, control/, spillwayctl. Thread: any; pure. No floating point: a value that cannot be held exactly is refused.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/conf/conf_check.h"
#include "sidecar/conf/conf_text.h"

#define NS_PER_S   UINT64_C(1000000000)
#define NS_PER_DAY (UINT64_C(86400) * NS_PER_S)
/* Fastest rate the bucket's arithmetic is proved for is 1e7/s: one token per 100 ns. */
#define NS_PER_TOKEN_MIN UINT64_C(100)
#define PERIOD_MAX_DAYS  366u
#define PPB_ONE          UINT64_C(1000000000)

struct unit {
    const char *name;
    uint64_t ns;
};

/* Longest first within a meaning: the first of each is what is written back. */
static const struct unit UNITS[] = {
    {"d", NS_PER_DAY}, {"h", 3600 * NS_PER_S}, {"min", 60 * NS_PER_S},
    {"s", NS_PER_S},   {"ms", 1000000},        {"m", 60 * NS_PER_S},
};
#define UNITS_COUNT   (sizeof UNITS / sizeof UNITS[0])
#define UNITS_WRITTEN (UNITS_COUNT - 1)

static const struct unit *find_unit(const char *name)
{
    for (size_t i = 0; i < UNITS_COUNT; i++)
        if (!strcmp(UNITS[i].name, name))
            return &UNITS[i];
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A run of digits; NULL when there is none or it exceeds 64 bits. */
static const char *read_digits(const char *p, uint64_t *out)
{
    if (!is_digit(*p))
        return NULL;
    uint64_t value = 0;
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return NULL;
    *out = value;
    return p;
}

/* "digits[.digits]" times 10^places, exactly. NULL when it is no such number, too large, or finer than that. */
static const char *read_decimal(const char *p, unsigned places, uint64_t *out)
{
    uint64_t value;
    p = read_digits(p, &value);
    if (!p)
        return NULL;
    bool has_point = *p == '.' && is_digit(p[1]);
    if (has_point)
        p++;
    for (unsigned i = 0; i < places; i++) {
        uint64_t digit = 0;
        if (has_point && is_digit(*p))
            digit = (uint64_t)(*p++ - '0');
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
            return NULL;
    }
    while (has_point && *p == '0')
        p++;
    if (is_digit(*p))
        return NULL;
    *out = value;
    return p;
}

static enum spw_status refuse(struct spw_error *err, const char *text, const char *what)
{
    char shown[SPW_SHOWN_BYTES];
    return spw_error_set(err, SPW_STATUS_PARSE, "%s %s", spw_text_show(text, strlen(text), shown), what);
}

static enum spw_status refuse_range(struct spw_error *err, const char *text, const char *what)
{
    refuse(err, text, what);
    if (err)
        err->status = SPW_STATUS_INVALID;
    return SPW_STATUS_INVALID;
}

const char *spw_rate_fault(const struct spw_rate *rate)
{
    if (!rate->period_ns || rate->period_ns > PERIOD_MAX_DAYS * NS_PER_DAY)
        return "has a period out of range: at most 366d, and not 0";
    if (rate->tokens_count > rate->period_ns / NS_PER_TOKEN_MIN)
        return "is too fast: at most 10000000/s";
    if (rate->tokens_count && rate->tokens_count < (rate->period_ns + NS_PER_DAY - 1) / NS_PER_DAY)
        return "is too slow: at least 1/d, or 0/s for never";
    return NULL;
}

enum spw_status spw_parse_rate(const char *text, struct spw_rate *out, struct spw_error *err)
{
    static const char GRAMMAR[] = "is no rate: write a whole count per unit of time, as 100/s, 7/min, 3/10s, "
                                  "1/d (units ms, s, min, h, d)";
    uint64_t tokens, multiple = 1;
    const char *p = read_digits(text, &tokens);
    if (!p || *p++ != '/')
        return refuse(err, text, GRAMMAR);
    if (is_digit(*p) && !(p = read_digits(p, &multiple)))
        return refuse(err, text, GRAMMAR);
    const struct unit *unit = find_unit(p);
    if (!unit)
        return refuse(err, text, GRAMMAR);
    uint64_t period;
    if (__builtin_mul_overflow(multiple, unit->ns, &period))
        period = 0;
    struct spw_rate rate = {.tokens_count = tokens, .period_ns = period};
    const char *fault = spw_rate_fault(&rate);
    if (fault)
        return refuse_range(err, text, fault);
    *out = rate;
    return SPW_STATUS_OK;
}

enum spw_status spw_parse_duration_ms(const char *text, uint64_t *out_ms, struct spw_error *err)
{
    uint64_t count;
    const char *p = read_digits(text, &count);
    const struct unit *unit = p ? find_unit(p) : NULL;
    if (!unit)
        return refuse(err, text,
                      "is no duration: write a whole number and its unit, as 250ms, 30s, 5m, 2h, 45d");
    uint64_t ms;
    if (__builtin_mul_overflow(count, unit->ns / 1000000, &ms) || ms > INT64_MAX / 1000000)
        return refuse_range(err, text, "is too long: write at most 106751d");
    *out_ms = ms;
    return SPW_STATUS_OK;
}

enum spw_status spw_parse_percent_ppm(const char *text, uint32_t *out_ppm, struct spw_error *err)
{
    static const char GRAMMAR[] = "is no percent: write it with its sign, as 15% or 2.5%, at most 4 decimals";
    uint64_t ppm;
    const char *p = read_decimal(text, 4, &ppm);
    if (!p || strcmp(p, "%") != 0)
        return refuse(err, text, GRAMMAR);
    if (ppm > 1000000)
        return refuse_range(err, text, "is above 100%: write at most 100%");
    *out_ppm = (uint32_t)ppm;
    return SPW_STATUS_OK;
}

enum spw_status spw_parse_rate_ppb(const char *text, uint32_t *out_ppb, struct spw_error *err)
{
    static const char GRAMMAR[] =
        "is no rate: write a fraction as 0.0825 (at most 9 decimals) or a percent as "
        "8.25% (at most 7)";
    size_t bytes = strlen(text);
    bool percent = bytes && text[bytes - 1] == '%';
    uint64_t ppb;
    const char *p = read_decimal(text, percent ? 7 : 9, &ppb);
    if (!p || strcmp(p, percent ? "%" : "") != 0)
        return refuse(err, text, GRAMMAR);
    if (ppb > PPB_ONE)
        return refuse_range(err, text,
                            percent ? "is above 100%: write at most 100%"
                                    : "is above 1, which is 100%: write a percent with its sign");
    *out_ppb = (uint32_t)ppb;
    return SPW_STATUS_OK;
}

/* Days since 1970-01-01 of a date in the proleptic Gregorian calendar, counted in eras of 400 years from 1 March, so
 * that the leap day is the last of its year. */
static int32_t day_of_date(int32_t year, int32_t month, int32_t day)
{
    int32_t y = month <= 2 ? year - 1 : year;
    int32_t era = y / 400;
    int32_t year_of_era = y - era * 400;
    int32_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static bool is_leap(int32_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

enum spw_status spw_parse_date_day(const char *text, int32_t *out_day, struct spw_error *err)
{
    static const char PATTERN[] = "dddd-dd-dd";
    static const int8_t DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool fits = strlen(text) == sizeof PATTERN - 1;
    for (size_t i = 0; fits && PATTERN[i]; i++)
        fits = PATTERN[i] == 'd' ? is_digit(text[i]) : text[i] == '-';
    if (!fits)
        return refuse(err, text, "is no date: write YYYY-MM-DD, as 2025-11-01");
    int32_t part[3] = {0, 0, 0};
    for (size_t i = 0, n = 0; PATTERN[i]; i++) {
        if (PATTERN[i] == '-')
            n++;
        else
            part[n] = part[n] * 10 + (text[i] - '0');
    }
    if (part[0] < 1970 || part[1] < 1 || part[1] > 12)
        return refuse_range(err, text, "is no date of the calendar from 1970-01-01 on");
    int32_t days = DAYS[part[1] - 1] + (part[1] == 2 && is_leap(part[0]));
    if (part[2] < 1 || part[2] > days)
        return refuse_range(err, text, "is no date of the calendar: the month has no such day");
    *out_day = day_of_date(part[0], part[1], part[2]);
    return SPW_STATUS_OK;
}

enum spw_status spw_parse_minor(const char *text, int64_t *out_minor, struct spw_error *err)
{
    bool negative = text[0] == '-';
    uint64_t minor;
    const char *p = read_decimal(text + negative, 2, &minor);
    if (!p || *p || minor > (uint64_t)INT64_MAX)
        return refuse(err, text, "is no amount: write it as 39.98 or -0.05, at most 2 decimals");
    *out_minor = negative ? -(int64_t)minor : (int64_t)minor;
    return SPW_STATUS_OK;
}

void spw_format_rate(const struct spw_rate *rate, char *out, size_t room)
{
    const struct unit *unit = &UNITS[UNITS_WRITTEN - 1];
    for (size_t i = 0; i < UNITS_WRITTEN; i++) {
        if (rate->period_ns >= UNITS[i].ns && rate->period_ns % UNITS[i].ns == 0) {
            unit = &UNITS[i];
            break;
        }
    }
    uint64_t multiple = rate->period_ns / unit->ns;
    if (multiple == 1)
        snprintf(out, room, "%" PRIu64 "/%s", rate->tokens_count, unit->name);
    else
        snprintf(out, room, "%" PRIu64 "/%" PRIu64 "%s", rate->tokens_count, multiple, unit->name);
}

void spw_format_minor(int64_t minor, char *out, size_t room)
{
    uint64_t size = minor < 0 ? 0 - (uint64_t)minor : (uint64_t)minor;
    snprintf(out, room, "%s%" PRIu64 ".%02" PRIu64, minor < 0 ? "-" : "", size / 100, size % 100);
}

void spw_format_rate_ppb(uint32_t ppb, char *out, size_t room)
{
    uint64_t fraction = ppb % PPB_ONE;
    int places = 9;
    while (places && fraction % 10 == 0) {
        fraction /= 10;
        places--;
    }
    if (places)
        snprintf(out, room, "%" PRIu64 ".%0*" PRIu64, ppb / PPB_ONE, places, fraction);
    else
        snprintf(out, room, "%" PRIu64, ppb / PPB_ONE);
}

void spw_format_day(int32_t day, char *out, size_t room)
{
    int64_t shifted = (int64_t)day + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;
    int64_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);
    snprintf(out, room, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year, month,
             day_of_year - (153 * month_from_march + 2) / 5 + 1);
}
