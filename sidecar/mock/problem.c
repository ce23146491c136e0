/* problem.c: see problem.h. */
#include "sidecar/mock/problem.h"

#include <stdarg.h>
#include <stdio.h>

#include <jansson.h>
#include <microhttpd.h>

struct spw_mock_reply spw_mock_problem(unsigned status, const char *location, const char *format, ...)
{
    char detail[512];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    json_t *errors = json_array();
    if (location)
        json_array_append_new(errors, json_pack("{s:s, s:s}", "location", location, "message", detail));
    json_t *root = json_pack("{s:s, s:s, s:i, s:s, s:o}", "type", "about:blank", "title",
                             MHD_get_reason_phrase_for(status), "status", (int)status, "detail", detail,
                             "errors", errors);
    struct spw_mock_reply reply = {.status = status, .body = root ? json_dumps(root, JSON_COMPACT) : NULL};
    json_decref(root);
    return reply;
}
