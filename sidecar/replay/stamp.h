/* stamp.h: instants as access logs write them.
 *
 * Owns: the grammars. Called by: convert.c. Thread: any; pure; looks neither at the locale nor at the local time zone.
 */
#ifndef SPW_REPLAY_STAMP_H
#define SPW_REPLAY_STAMP_H

#include <stdbool.h>
#include <stdint.h>

/* "27/Nov/2026:12:00:00 +0000", "2026-11-27T12:00:00.123Z" (or with an offset; none means UTC), or unix time: below 1e11
 * seconds with decimals, then milliseconds, microseconds (from 1e14), nanoseconds (from 1e17). In unix nanoseconds. */
bool spw_stamp_parse(const char *text, uint64_t *out_ns);
/* A length of time: a decimal in seconds or, by the end of its field's name, _ms, _us or _ns. */
bool spw_stamp_span_parse(const char *field, const char *text, uint64_t *out_ns);

#endif
