/* quota.h: the members of IETF rate-limit fields and of the older lists that look like them.
 *
 * Owns: the grammar of "100, 100;w=60" (drafts 0 to 7, Envoy), "limit=100, remaining=50, reset=5" (draft 7) and
 * "\"burst\";q=10;w=10" / "\"burst\";r=8;t=1" (draft 8 on). Called by: headers.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_QUOTA_H
#define SPW_PROVIDER_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_QUOTA_NAME_BYTES 64u

struct spw_quota {
    char name[SPW_QUOTA_NAME_BYTES]; /* "" for a bare number or a dictionary */
    bool has_limit, has_remaining, has_reset, has_window;
    bool is_dictionary; /* the draft 7 form */
    bool is_foreign;    /* counts something other than requests (qu=content-bytes, concurrent-requests) */
    uint64_t limit_count;
    uint64_t remaining_count;
    uint64_t reset_in_s;
    uint64_t window_s;
};

/* Reads a whole field (repeated lines joined by a comma). Returns how many members there are, at most room (more are
 * dropped); 0 when the field is malformed, since the drafts say that such a field is to be ignored whole. is_strict: it is
 * a structured field (RFC 9651), where a blank before a semicolon or a key in capitals is malformed. */
size_t spw_quota_parse(const char *text, size_t bytes, bool is_strict, struct spw_quota *out, size_t room);

#endif
