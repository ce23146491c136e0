/* instant.h: points and spans of time as response headers write them.
 *
 * Owns: the grammars: HTTP-date in its three forms, RFC 3339, JavaScript's Date text, Go durations, bare numbers.
 * Called by: headers.c, http/quote_json.c. Thread: any; pure; looks neither at the locale nor at the local time zone.
 */
#ifndef SPW_PROVIDER_INSTANT_H
#define SPW_PROVIDER_INSTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/provider/provider.h"

struct spw_instant {
    bool is_span; /* ms counts from now; otherwise from 1970 */
    int64_t ms;   /* rounded up, never below zero */
    int64_t us;   /* the same in millionths of a second, rounded up */
};

/* false: not understood (then *out is untouched). now_unix_ms places years of two digits. */
bool spw_instant_parse(const char *text, size_t bytes, enum spw_reset_unit unit, int64_t now_unix_ms,
                       struct spw_instant *out);
/* A date only, no number and no duration. A weekday that does not fit the date is overlooked. */
bool spw_instant_parse_date(const char *text, size_t bytes, int64_t now_unix_ms, int64_t *unix_ms);

#endif
