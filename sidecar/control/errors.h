/* errors.h: from our failures to gRPC's, and the checks all methods share. Internal to control/.
 *
 * Owns: the one table enum spw_status -> grpc_status_code. Called by: call.c and the method files. Thread: any; pure.
 */
#ifndef SPW_CONTROL_ERRORS_H
#define SPW_CONTROL_ERRORS_H

#include <grpc/status.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

grpc_status_code spw_status_grpc_code(enum spw_status status);

/* The path of the field an error text begins with ("limit.rate: ..."), empty when it begins with none. */
void spw_error_field(const char *text, char *out, size_t room);

/* A mandatory name: 1 to 63 letters, digits, '.', '_', '-'. */
enum spw_status spw_name_check(const char *field, const char *text, struct spw_error *err) SPW_WARN_UNUSED;

/* CONFLICT unless expected is 0 (whatever it is) or the current version. Looked at before a change is merged with what
 * is: else the faults of a mixture that nobody meant would be told. */
enum spw_status spw_version_check(uint64_t expected, uint64_t current, struct spw_error *err) SPW_WARN_UNUSED;

#endif
