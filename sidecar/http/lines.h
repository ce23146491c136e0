/* lines.h: the header lines of a request, as libcurl takes them.
 *
 * Owns: struct spw_http_lines. Called by: client.c. Thread: any; pure but for allocation.
 *
 * Host, Content-Length, Transfer-Encoding, Connection, Accept-Encoding and Expect are the client's own: lines with these
 * names are left out. Most calls of an account carry the same lines, and then the list stands as it is.
 */
#ifndef SPW_HTTP_LINES_H
#define SPW_HTTP_LINES_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "sidecar/obs/error.h"

struct spw_http_lines { /* zeroed = none */
    struct curl_slist *list;
    size_t count;     /* of the request it was made of */
    bool is_verbatim; /* they stand in it one for one, behind our own */
    bool no_expect;
};

/* no_expect: libcurl would wait a second for a 100 Continue, for so large is the body. INVALID: a line is not
 * "Name: value" on one line. */
enum spw_status spw_http_lines_set(struct spw_http_lines *lines, const char *const *headers, size_t count,
                                   bool no_expect, struct spw_error *err) SPW_WARN_UNUSED;
void spw_http_lines_clean_up(struct spw_http_lines *lines);

#endif
