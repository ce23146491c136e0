/* errors.c: from our failures to gRPC's, and the checks all methods share. See errors.h. */
#include "sidecar/control/errors.h"

#include <inttypes.h>
#include <string.h>

#include "shm/spw_quote.h"

grpc_status_code spw_status_grpc_code(enum spw_status status)
{
    switch (status) {
    case SPW_STATUS_OK:
        return GRPC_STATUS_OK;
    case SPW_STATUS_INVALID:
    case SPW_STATUS_PARSE:
        return GRPC_STATUS_INVALID_ARGUMENT;
    case SPW_STATUS_NOT_FOUND:
        return GRPC_STATUS_NOT_FOUND;
    case SPW_STATUS_CONFLICT:
        return GRPC_STATUS_ABORTED;
    case SPW_STATUS_REFUSED:
        return GRPC_STATUS_PERMISSION_DENIED;
    case SPW_STATUS_NO_MEMORY:
    case SPW_STATUS_NO_SPACE:
    case SPW_STATUS_FULL:
        return GRPC_STATUS_RESOURCE_EXHAUSTED;
    case SPW_STATUS_NO_SEGMENT:
    case SPW_STATUS_NOT_READY:
    case SPW_STATUS_BUSY:
        return GRPC_STATUS_UNAVAILABLE;
    case SPW_STATUS_TIMEOUT:
        return GRPC_STATUS_DEADLINE_EXCEEDED;
    case SPW_STATUS_VERSION_MISMATCH:
    case SPW_STATUS_CLOCK_MISMATCH:
        return GRPC_STATUS_FAILED_PRECONDITION;
    case SPW_STATUS_CORRUPT:
        return GRPC_STATUS_DATA_LOSS;
    case SPW_STATUS_SYSTEM:
        return GRPC_STATUS_INTERNAL;
    }
    return GRPC_STATUS_UNKNOWN;
}

void spw_error_field(const char *text, char *out, size_t room)
{
    size_t bytes = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.[]");
    if (bytes >= room || strncmp(text + bytes, ": ", 2) != 0)
        bytes = 0;
    memcpy(out, text, bytes);
    out[bytes] = 0;
}

enum spw_status spw_name_check(const char *field, const char *text, struct spw_error *err)
{
    static const char ALLOWED[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (!text || !*text)
        return spw_error_set(err, SPW_STATUS_INVALID, "%s: is missing: give a name", field);
    size_t bytes = strspn(text, ALLOWED);
    if (text[bytes] || bytes >= SPW_NAME_BYTES)
        return spw_error_set(err, SPW_STATUS_INVALID,
                             "%s: is no name: write 1 to %u letters, digits, '.', '_', '-'", field,
                             SPW_NAME_BYTES - 1);
    return SPW_STATUS_OK;
}

enum spw_status spw_version_check(uint64_t expected, uint64_t current, struct spw_error *err)
{
    if (!expected || expected == current)
        return SPW_STATUS_OK;
    return spw_error_set(err, SPW_STATUS_CONFLICT,
                         "expect_version: the account is at version %" PRIu64 ", not %" PRIu64
                         ": read it again and decide again",
                         current, expected);
}
