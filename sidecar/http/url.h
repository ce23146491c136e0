/* url.h: may this URL be called? Called by: client.c. Thread: any; pure. */
#ifndef SPW_HTTP_URL_H
#define SPW_HTTP_URL_H

#include <stdbool.h>

#include "sidecar/obs/error.h"

/* OK for https://, and for http:// where allowed. Refused: a user or password in it, other schemes, and what libcurl
 * cannot parse; the error says how to correct it and repeats no part of the URL but its scheme. */
enum spw_status spw_url_check(const char *url, bool allow_plain_http, struct spw_error *err);

#endif
