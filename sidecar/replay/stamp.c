/* stamp.c: see stamp.h. */
#include "sidecar/replay/stamp.h"

#include <stdio.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)
#define DAY_S    86400
#define YEAR_MAX 2200

/* Days since 1970-01-01 of a date of the Gregorian calendar; -1 = there is no such day. */
static int64_t day_of(int year, int month, int day)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1970 || year > YEAR_MAX || month < 1 || month > 12 || day < 1 ||
        day > lengths[month - 1] + (month == 2 && leap))
        return -1;
    int64_t days = 0;
    for (int y = 1970; y < year; y++)
        days += 365 + ((y % 4 == 0 && y % 100 != 0) || y % 400 == 0);
    for (int m = 1; m < month; m++)
        days += lengths[m - 1] + (m == 2 && leap);
    return days + day - 1;
}

/* Two digits; NULL = they are none. */
static const char *two(const char *p, int *out)
{
    if (!p || p[0] < '0' || p[0] > '9' || p[1] < '0' || p[1] > '9')
        return NULL;
    *out = (p[0] - '0') * 10 + p[1] - '0';
    return p + 2;
}

static const char *literal(const char *p, const char *any_of)
{
    return p && *p && strchr(any_of, *p) ? p + 1 : NULL;
}

/* ".123" or ",123": nanoseconds; digits below are dropped. */
static const char *fraction(const char *p, uint64_t *out_ns)
{
    uint64_t unit = NS_PER_S / 10;
    *out_ns = 0;
    if (!p || (*p != '.' && *p != ','))
        return p;
    for (p++; *p >= '0' && *p <= '9'; p++) {
        *out_ns += (uint64_t)(*p - '0') * unit;
        unit /= 10;
    }
    return p;
}

/* "Z", "+01:00", "-0700" or nothing, in seconds east. */
static const char *offset(const char *p, int *out_s)
{
    int hours = 0, minutes = 0;
    *out_s = 0;
    if (!p || !*p)
        return p;
    if (*p == 'Z' || *p == 'z')
        return p + 1;
    int sign = *p == '-' ? -1 : 1;
    p = two(literal(p, "+-"), &hours);
    p = two(p && *p == ':' ? p + 1 : p, &minutes);
    *out_s = sign * (hours * 3600 + minutes * 60);
    return hours > 23 || minutes > 59 ? NULL : p;
}

static bool whole(int64_t day, int hour, int minute, int second, int offset_s, uint64_t part_ns,
                  const char *end, uint64_t *out_ns)
{
    if (!end || *end || day < 0 || hour > 23 || minute > 59 || second > 60)
        return false;
    int64_t s = day * DAY_S + hour * 3600 + minute * 60 + second - offset_s;
    if (s < 0)
        return false;
    *out_ns = (uint64_t)s * NS_PER_S + part_ns;
    return true;
}

static bool parse_iso(const char *text, uint64_t *out_ns)
{
    int century = 0, year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, offset_s = 0;
    uint64_t part_ns = 0;
    const char *p = two(two(text, &century), &year);
    p = two(literal(two(literal(p, "-"), &month), "-"), &day);
    p = two(literal(p, "Tt "), &hour);
    p = two(literal(p, ":"), &minute);
    p = two(literal(p, ":"), &second);
    p = fraction(p, &part_ns);
    while (p && *p == ' ')
        p++;
    p = offset(p, &offset_s);
    return p && whole(day_of(century * 100 + year, month, day), hour, minute, second, offset_s, part_ns, p,
                      out_ns);
}

static bool parse_common(const char *text, uint64_t *out_ns)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int day = 0, century = 0, year = 0, hour = 0, minute = 0, second = 0, offset_s = 0;
    uint64_t part_ns = 0;
    const char *p = literal(two(text, &day), "/");
    if (!p || strlen(p) < 4)
        return false;
    char name[4] = {p[0], p[1], p[2], 0};
    const char *found = strstr(months, name);
    if (!found || (found - months) % 3)
        return false;
    p = two(two(literal(p + 3, "/"), &century), &year);
    p = two(literal(p, ":"), &hour);
    p = two(literal(p, ":"), &minute);
    p = two(literal(p, ":"), &second);
    p = fraction(p, &part_ns);
    p = offset(p && *p == ' ' ? p + 1 : p, &offset_s);
    return p && whole(day_of(century * 100 + year, (int)(found - months) / 3 + 1, day), hour, minute, second,
                      offset_s, part_ns, p, out_ns);
}

/* digits[.digits] times `unit` nanoseconds; what is finer than a nanosecond is dropped. */
static bool decimal(const char *text, uint64_t unit_ns, uint64_t *out_ns)
{
    uint64_t ns = 0, part = unit_ns;
    const char *p = text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(ns, 10, &ns) || __builtin_add_overflow(ns, (uint64_t)(*p - '0'), &ns))
            return false;
    }
    if (__builtin_mul_overflow(ns, unit_ns, &ns) || ns > INT64_MAX)
        return false;
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++) {
            part /= 10;
            ns += part * (uint64_t)(*p - '0');
        }
    }
    *out_ns = ns;
    return *p == 0;
}

static bool parse_unix(const char *text, uint64_t *out_ns)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t unit_ns = digits <= 11 ? NS_PER_S : digits <= 14 ? 1000000 : digits <= 17 ? 1000 : 1;
    return decimal(text, unit_ns, out_ns);
}

bool spw_stamp_parse(const char *text, uint64_t *out_ns)
{
    return parse_iso(text, out_ns) || parse_common(text, out_ns) || parse_unix(text, out_ns);
}

bool spw_stamp_span_parse(const char *field, const char *text, uint64_t *out_ns)
{
    size_t n = strlen(field);
    const char *end = n > 3 ? field + n - 3 : "";
    uint64_t unit_ns = strcmp(end, "_ms") == 0   ? 1000000
                       : strcmp(end, "_us") == 0 ? 1000
                       : strcmp(end, "_ns") == 0 ? 1
                                                 : NS_PER_S;
    return decimal(text, unit_ns, out_ns);
}
