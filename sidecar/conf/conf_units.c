/* conf_units.c: units as people write them, to exact integers and back.
 *
 * Owns: the grammar of rates, durations, percents, fractions and dates. Called by: conf_check.c and its
 * like, control/, spillwayctl. Thread: any; pure. No floating point: a value that cannot be held exactly is refused.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "shm/spw_text.h"
#include "sidecar/conf/conf_check.h"
#include "sidecar/conf/conf_text.h"
#include "sidecar/provider/decimal.h"

#define NS_PER_S   UINT64_C(1000000000)
#define NS_PER_DAY (UINT64_C(86400) * NS_PER_S)
/* Fastest rate the bucket's arithmetic is proved for is 1e7/s: one token per 100 ns. */
#define NS_PER_TOKEN_MIN UINT64_C(100)
#define PERIOD_MAX_DAYS  366u
#define PPB_ONE          INT64_C(1000000000)

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

/* "digits[.digits]" times 10^places, exactly. false: no such number, too large, or finer than that. */
static bool read_decimal(const char *text, size_t bytes, unsigned places, int64_t *out)
{
    return bytes > 0 && text[0] != '-' &&
           spw_decimal_parse(text, bytes, places, SPW_DECIMAL_DOWN, out) == SPW_DECIMAL_EXACT;
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
    size_t bytes = strlen(text);
    int64_t ppm;
    if (!bytes || text[bytes - 1] != '%' || !read_decimal(text, bytes - 1, 4, &ppm))
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
    int64_t ppb;
    if (!read_decimal(text, bytes - percent, percent ? 7 : 9, &ppb))
        return refuse(err, text, GRAMMAR);
    if (ppb > PPB_ONE)
        return refuse_range(err, text,
                            percent ? "is above 100%: write at most 100%"
                                    : "is above 1, which is 100%: write a percent with its sign");
    *out_ppb = (uint32_t)ppb;
    return SPW_STATUS_OK;
}

enum spw_status spw_parse_date_day(const char *text, int32_t *out_day, struct spw_error *err)
{
    int32_t day;
    if (!spw_date_parse(text, &day))
        return refuse(err, text, "is no date of the calendar from 1970 on: write YYYY-MM-DD, as 2025-11-01");
    *out_day = day;
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
    struct spw_text t = spw_text_on(out, room);
    spw_text_u64(&t, rate->tokens_count);
    spw_text_put(&t, "/");
    if (multiple != 1)
        spw_text_u64(&t, multiple);
    spw_text_put(&t, unit->name);
}

void spw_format_minor(int64_t minor, char *out, size_t room)
{
    struct spw_text t = spw_text_on(out, room);
    spw_text_decimal(&t, minor, 2, false);
}

void spw_format_rate_ppb(uint32_t ppb, char *out, size_t room)
{
    struct spw_text t = spw_text_on(out, room);
    spw_text_decimal(&t, ppb, 9, true);
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
