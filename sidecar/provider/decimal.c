/* decimal.c: see decimal.h. */
#include "sidecar/provider/decimal.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT                                                                                                \
    1000000000000000000 /* 10^18: one digit below what int64_t holds, so that rounding cannot overflow */

/* Count of kept digits, whether the rest is zero, and the first digit of the rest, while digits are fed in. */
struct digits {
    int64_t value;
    bool overflow;
    int first_lost; /* -1 = none yet */
    bool lost_more; /* a nonzero digit after the first lost one */
};

static void keep(struct digits *d, int digit)
{
    if (d->value >= LIMIT / 10)
        d->overflow = true;
    else
        d->value = d->value * 10 + digit;
}

static void lose(struct digits *d, int digit)
{
    if (d->first_lost < 0)
        d->first_lost = digit;
    else if (digit)
        d->lost_more = true;
}

static enum spw_decimal_result finish(const struct digits *d, bool negative, enum spw_decimal_mode mode,
                                      int64_t *out)
{
    if (d->overflow)
        return SPW_DECIMAL_BAD;
    bool inexact = d->first_lost > 0 || d->lost_more;
    bool up = (mode == SPW_DECIMAL_HALF_UP && d->first_lost >= 5) || (mode == SPW_DECIMAL_UP && inexact);
    int64_t value = d->value + (up ? 1 : 0);
    *out = negative ? -value : value;
    return inexact ? SPW_DECIMAL_ROUNDED : SPW_DECIMAL_EXACT;
}

enum spw_decimal_result spw_decimal_parse(const char *text, size_t bytes, unsigned scale,
                                          enum spw_decimal_mode mode, int64_t *out)
{
    struct digits d = {.first_lost = -1};
    size_t i = 0;
    bool negative = bytes > 0 && text[0] == '-';
    if (negative)
        i++;
    size_t start = i;
    for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        keep(&d, text[i] - '0');
    if (i == start)
        return SPW_DECIMAL_BAD;
    unsigned fraction = 0;
    if (i < bytes && text[i] == '.') {
        start = ++i;
        for (; i < bytes && text[i] >= '0' && text[i] <= '9'; i++) {
            if (fraction < scale) {
                keep(&d, text[i] - '0');
                fraction++;
            } else {
                lose(&d, text[i] - '0');
            }
        }
        if (i == start)
            return SPW_DECIMAL_BAD;
    }
    if (i != bytes)
        return SPW_DECIMAL_BAD;
    for (; fraction < scale; fraction++)
        keep(&d, 0);
    return finish(&d, negative, mode, out);
}

enum spw_decimal_result spw_decimal_from_double(double value, unsigned scale, int64_t *out)
{
    if (!isfinite(value))
        return SPW_DECIMAL_BAD;
    /* "-d.dddddddddddddde+XX": the C library prints correctly rounded decimal digits. The decimal point is skipped,
     * whatever the locale calls it. */
    char text[64];
    int n = snprintf(text, sizeof text, "%.14e", value);
    if (n <= 0 || (size_t)n >= sizeof text)
        return SPW_DECIMAL_BAD;
    const char *exponent = text;
    while (*exponent && *exponent != 'e')
        exponent++;
    if (*exponent != 'e')
        return SPW_DECIMAL_BAD;
    long kept = strtol(exponent + 1, NULL, 10) + 1 + (long)scale; /* digits before the unit's point */
    struct digits d = {.first_lost = -1};
    for (long zeros = kept; zeros < 0; zeros++)
        lose(&d, 0);
    long seen = 0;
    for (const char *p = text; p < exponent; p++) {
        if (*p < '0' || *p > '9')
            continue;
        if (seen++ < kept)
            keep(&d, *p - '0');
        else
            lose(&d, *p - '0');
    }
    for (; seen < kept && !d.overflow; seen++)
        keep(&d, 0);
    return finish(&d, signbit(value) != 0, SPW_DECIMAL_HALF_UP, out);
}
