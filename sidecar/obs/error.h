/* error.h: a cold-path failure in words: what went wrong, where, and what to do.
 *
 * Owns: struct spw_error. Called by: every room of the sidecar. Thread: any; the struct belongs to its caller.
 */
#ifndef SPW_OBS_ERROR_H
#define SPW_OBS_ERROR_H

#include <stdarg.h>

#include "shm/spw_status.h"

struct spw_error {
    enum spw_status status;
    char text[768]; /* one sentence: place, fault, remedy; no secrets, no customer data */
};

/* Fill the error and return its status, so that `return spw_error_set(...)` reads as one step. err may be NULL. */
enum spw_status spw_error_set(struct spw_error *err, enum spw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put a place before the text already there ("accounts.main: " + text). */
void spw_error_prefix(struct spw_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
