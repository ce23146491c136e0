/* error.c: see error.h. */
#include "sidecar/obs/error.h"

#include <stdio.h>
#include <string.h>

enum spw_status spw_error_set(struct spw_error *err, enum spw_status status, const char *format, ...)
{
    if (err) {
        err->status = status;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

void spw_error_prefix(struct spw_error *err, const char *format, ...)
{
    if (!err)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof err->text)
        return;
    /* A text that no longer fits is cut: the place in front matters more than the tail. */
    strncpy(err->text + n, old, sizeof err->text - (size_t)n - 1);
    err->text[sizeof err->text - 1] = 0;
}
