/* instant.c: see instant.h. */
#include "sidecar/provider/instant.h"

#include <string.h>
#include <time.h>

#include "sidecar/provider/decimal.h"

#define TEXT_MAX_BYTES 128u /* longer than any date; JavaScript's with a long zone name has about 70 */
#define NUMBER_MAX     1000000000000000 /* 1e15: as milliseconds the year 33658, as anything else nonsense */
#define EPOCH_S_FROM   1000000000       /* 2001; a span of 31 years is no rate limit */
#define EPOCH_MS_FROM  1000000000000    /* the same instant in ms */
#define MS_PER_S       1000
#define US_PER_MS      1000
/* RFC 9110, 5.6.7: a year of two digits that seems to lie more than 50 years ahead is of the century before. */
#define SHORT_YEAR_AHEAD_US (INT64_C(50) * 31556952 * 1000000)
#define CENTURY_US          (INT64_C(36525) * 86400 * 1000000) /* from 19yy to 20yy, and any day of both */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Fields of a date as found; -1 = not found yet. */
struct date {
    int year, month, day, hour, minute, second;
    int64_t fraction_us;
    int zone_minutes;
    bool has_time;
    bool is_short_year;
};

static int64_t us_to_ms(int64_t us)
{
    return us / US_PER_MS + (us % US_PER_MS != 0);
}

static bool to_unix_us(const struct date *d, int64_t now_unix_ms, int64_t *out)
{
    if (d->year < 1970 || d->year > 9999 || d->month < 1 || d->month > 12 || d->day < 1 || d->day > 31 ||
        !d->has_time || d->hour > 23 || d->minute > 59 || d->second > 60)
        return false;
    struct tm tm = {.tm_year = d->year - 1900,
                    .tm_mon = d->month - 1,
                    .tm_mday = d->day,
                    .tm_hour = d->hour,
                    .tm_min = d->minute,
                    .tm_sec = d->second};
    time_t unix_s = timegm(&tm); /* never mktime: that reads the local zone */
    if (d->second < 60 && (tm.tm_mday != d->day || tm.tm_mon != d->month - 1))
        return false; /* 31 February */
    int64_t us = ((int64_t)unix_s - (int64_t)d->zone_minutes * 60) * MS_PER_S * US_PER_MS + d->fraction_us;
    if (d->is_short_year && us - now_unix_ms * US_PER_MS > SHORT_YEAR_AHEAD_US)
        us -= CENTURY_US;
    if (us < 0)
        return false;
    *out = us;
    return true;
}

/* Up to max digits; returns how many, value in *out. */
static size_t take_digits(const char *p, const char *end, size_t max, int *out)
{
    size_t n = 0;
    int value = 0;
    while (n < max && p + n < end && is_digit(p[n])) {
        value = value * 10 + (p[n] - '0');
        n++;
    }
    *out = value;
    return n;
}

/* "hh:mm[:ss[.fraction]]"; moves *p behind it. */
static bool take_time(const char **p, const char *end, struct date *d)
{
    const char *q = *p;
    if (take_digits(q, end, 2, &d->hour) != 2 || q + 2 >= end || q[2] != ':' ||
        take_digits(q + 3, end, 2, &d->minute) != 2)
        return false;
    q += 5;
    bool has_seconds = q < end && *q == ':';
    if (has_seconds && take_digits(q + 1, end, 2, &d->second) != 2)
        return false;
    q += has_seconds ? 3 : 0;
    if (has_seconds && q < end && *q == '.') {
        const char *start = q - 1; /* the last digit of the seconds serves as the whole part */
        q++;
        while (q < end && is_digit(*q))
            q++;
        int64_t us;
        if (spw_decimal_parse(start, (size_t)(q - start), 6, SPW_DECIMAL_UP, &us) == SPW_DECIMAL_BAD)
            return false;
        d->fraction_us = us - (int64_t)(*start - '0') * MS_PER_S * US_PER_MS;
    }
    if (q < end && is_digit(*q))
        return false;
    d->has_time = true;
    *p = q;
    return true;
}

/* "+hh:mm", "+hhmm" */
static bool take_offset(const char **p, const char *end, struct date *d)
{
    const char *q = *p;
    int hours, minutes;
    int sign = *q == '-' ? -1 : 1;
    q++;
    if (take_digits(q, end, 2, &hours) != 2)
        return false;
    q += 2;
    if (q < end && *q == ':')
        q++;
    if (take_digits(q, end, 2, &minutes) != 2 || hours > 14 || minutes > 59)
        return false;
    d->zone_minutes = sign * (hours * 60 + minutes);
    *p = q + 2;
    return true;
}

static bool word_is(const char *word, size_t bytes, const char *name)
{
    if (bytes != strlen(name))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if ((word[i] | 0x20) != name[i])
            return false;
    return true;
}

/* "UTC", "GMT" or "Z" up to the end. */
static bool is_zone_of_zero(const char *p, const char *end)
{
    size_t bytes = (size_t)(end - p);
    return word_is(p, bytes, "utc") || word_is(p, bytes, "gmt") || word_is(p, bytes, "z");
}

/* "2026-10-09T12:35:00.123456Z", also with a blank for the T and with an offset; and as Ruby and Go print an instant:
 * "2026-10-09 12:35:00 UTC", "2026-10-09 12:35:00 +0000 UTC". */
static bool parse_rfc3339(const char *p, const char *end, int64_t *unix_us)
{
    struct date d = {0};
    if (take_digits(p, end, 4, &d.year) != 4 || p + 4 >= end || p[4] != '-' ||
        take_digits(p + 5, end, 2, &d.month) != 2 || p + 7 >= end || p[7] != '-' ||
        take_digits(p + 8, end, 2, &d.day) != 2 || p + 10 >= end ||
        (p[10] != 'T' && p[10] != 't' && p[10] != ' '))
        return false;
    p += 11;
    if (!take_time(&p, end, &d))
        return false;
    while (p < end && *p == ' ')
        p++;
    if (p < end && (*p == '+' || *p == '-')) {
        if (!take_offset(&p, end, &d))
            return false;
        while (p < end && *p == ' ')
            p++;
        return (p == end || is_zone_of_zero(p, end)) && to_unix_us(&d, 0, unix_us);
    }
    return is_zone_of_zero(p, end) && to_unix_us(&d, 0, unix_us);
}

static int month_of(const char *word, size_t bytes)
{
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
    if (bytes != 3)
        return 0;
    for (int m = 0; m < 12; m++) {
        const char *name = names + 3 * m;
        if ((word[0] | 0x20) == name[0] && (word[1] | 0x20) == name[1] && (word[2] | 0x20) == name[2])
            return m + 1;
    }
    return 0;
}

static bool is_weekday(const char *word, size_t bytes)
{
    static const char *const names[] = {"sunday",   "monday", "tuesday", "wednesday",
                                        "thursday", "friday", "saturday"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (word_is(word, bytes, names[i]) || (bytes == 3 && strncasecmp(word, names[i], 3) == 0))
            return true;
    return false;
}

/* One word or number of a date text. */
static bool take_date_part(const char **p, const char *end, struct date *d)
{
    const char *q = *p;
    if (is_alpha(*q)) {
        while (q < end && is_alpha(*q))
            q++;
        size_t bytes = (size_t)(q - *p);
        int month = month_of(*p, bytes);
        if (month && d->month < 0)
            d->month = month;
        else if (!is_weekday(*p, bytes) && !word_is(*p, bytes, "gmt") && !word_is(*p, bytes, "utc") &&
                 !(bytes == 1 && d->has_time && (**p == 'Z' || **p == 'z')))
            return false; /* a zone by name, or a word of another language */
    } else if (is_digit(*q)) {
        int value;
        size_t digits = take_digits(q, end, 5, &value);
        if (digits == 2 && q + 2 < end && q[2] == ':') {
            if (d->has_time || !take_time(&q, end, d))
                return false;
        } else if (digits <= 2 && d->day < 0) {
            d->day = value;
            q += digits;
        } else if ((digits == 4 || digits == 2) && d->year < 0) {
            d->is_short_year = digits == 2;
            d->year = d->is_short_year ? value + 2000 : value;
            q += digits;
        } else {
            return false;
        }
    } else if ((*q == '+' || (*q == '-' && d->has_time)) && d->has_time) {
        if (!take_offset(&q, end, d))
            return false;
    } else if (*q == ' ' || *q == ',' || *q == '-') {
        q++;
    } else {
        return false;
    }
    *p = q;
    return true;
}

/* IMF-fixdate, rfc850, asctime and JavaScript's Date text: words and numbers in an order that leaves no doubt,
 * since the first number is always the day. */
static bool parse_words(const char *p, const char *end, int64_t now_unix_ms, int64_t *unix_us)
{
    struct date d = {.year = -1, .month = -1, .day = -1};
    const char *comment = memchr(p, '(', (size_t)(end - p)); /* "(Central European Standard Time)" */
    if (comment && end[-1] == ')')
        end = comment;
    while (p < end)
        if (!take_date_part(&p, end, &d))
            return false;
    return to_unix_us(&d, now_unix_ms, unix_us);
}

static bool parse_date(const char *text, size_t bytes, int64_t now_unix_ms, int64_t *unix_us)
{
    if (bytes < 17 || bytes > TEXT_MAX_BYTES)
        return false;
    return is_digit(text[0]) ? parse_rfc3339(text, text + bytes, unix_us)
                             : parse_words(text, text + bytes, now_unix_ms, unix_us);
}

bool spw_instant_parse_date(const char *text, size_t bytes, int64_t now_unix_ms, int64_t *unix_ms)
{
    int64_t unix_us;
    if (!parse_date(text, bytes, now_unix_ms, &unix_us))
        return false;
    *unix_ms = us_to_ms(unix_us);
    return true;
}

/* "12ms", "6m0s", "1h2m3.5s", "600s": Go's duration text, without sign. */
static bool parse_duration(const char *p, const char *end, int64_t *us)
{
    int64_t total_us = 0;
    while (p < end) {
        const char *number = p;
        while (p < end && (is_digit(*p) || *p == '.'))
            p++;
        size_t number_bytes = (size_t)(p - number);
        const char *unit = p;
        while (p < end && !is_digit(*p) && *p != '.')
            p++;
        size_t unit_bytes = (size_t)(p - unit);
        int64_t micro; /* millionths of the unit */
        if (number_bytes == 0 || number_bytes > 12 ||
            spw_decimal_parse(number, number_bytes, 6, SPW_DECIMAL_UP, &micro) == SPW_DECIMAL_BAD)
            return false;
        int64_t unit_ns = 0;
        if (unit_bytes == 1 && *unit == 'h')
            unit_ns = INT64_C(3600000000000);
        else if (unit_bytes == 1 && *unit == 'm')
            unit_ns = INT64_C(60000000000);
        else if (unit_bytes == 1 && *unit == 's')
            unit_ns = 1000000000;
        else if (unit_bytes == 2 && memcmp(unit, "ms", 2) == 0)
            unit_ns = 1000000;
        else if ((unit_bytes == 2 && memcmp(unit, "us", 2) == 0) ||
                 (unit_bytes == 3 && memcmp(unit, "\xc2\xb5s", 3) == 0))
            unit_ns = 1000;
        else if (unit_bytes == 2 && memcmp(unit, "ns", 2) == 0)
            unit_ns = 1;
        else
            return false;
        spw_wide part_us = ((spw_wide)micro * unit_ns + 999999999) / 1000000000; /* rounded up */
        if (part_us > (spw_wide)NUMBER_MAX * US_PER_MS || total_us > NUMBER_MAX * US_PER_MS)
            return false;
        total_us += (int64_t)part_us;
    }
    *us = total_us;
    return true;
}

static bool parse_number(const char *text, size_t bytes, enum spw_reset_unit unit, struct spw_instant *out)
{
    int64_t whole, micro;
    if (text[0] == '-' || spw_decimal_parse(text, bytes, 0, SPW_DECIMAL_DOWN, &whole) == SPW_DECIMAL_BAD ||
        whole >= NUMBER_MAX)
        return false;
    if (unit == SPW_RESET_AUTO)
        unit = whole >= EPOCH_MS_FROM  ? SPW_RESET_EPOCH_MS
               : whole >= EPOCH_S_FROM ? SPW_RESET_EPOCH_S
                                       : SPW_RESET_DELTA_S;
    bool is_ms = unit == SPW_RESET_DELTA_MS || unit == SPW_RESET_EPOCH_MS;
    if (!is_ms && whole >= EPOCH_MS_FROM)
        return false;
    if (spw_decimal_parse(text, bytes, is_ms ? 3 : 6, SPW_DECIMAL_UP, &micro) == SPW_DECIMAL_BAD)
        return false;
    out->is_span = unit == SPW_RESET_DELTA_S || unit == SPW_RESET_DELTA_MS;
    out->us = micro;
    out->ms = us_to_ms(micro);
    return true;
}

bool spw_instant_parse(const char *text, size_t bytes, enum spw_reset_unit unit, int64_t now_unix_ms,
                       struct spw_instant *out)
{
    if (bytes == 0 || bytes > TEXT_MAX_BYTES)
        return false;
    if (parse_number(text, bytes, unit, out))
        return true;
    int64_t us;
    bool is_span = is_digit(text[0]) && parse_duration(text, text + bytes, &us);
    if (!is_span && !parse_date(text, bytes, now_unix_ms, &us))
        return false;
    out->is_span = is_span;
    out->us = us;
    out->ms = us_to_ms(us);
    return true;
}
