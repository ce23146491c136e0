/* errors.h: from our failures to gRPC's, and the checks all methods share. Internal to control/.
 *
 * Owns: the one table enum spw_status -> grpc_status_code. Called by: call.c and the method files. Thread: any; pure.
 */
#ifndef SPW_CONTROL_ERRORS_H
#define SPW_CONTROL_ERRORS_H

#include <grpc/status.h>
#include <stddef.h>

#include "sidecar/obs/error.h"

grpc_status_code spw_status_grpc_code(enum spw_status status);

/* The path of the field an error text begins with ("limit.rate: ..."), empty when it begins with none. */
void spw_error_field(const char *text, char *out, size_t room);

/* A mandatory name: 1 to 63 letters, digits, '.', '_', '-'. */
enum spw_status spw_name_check(const char *field, const char *text, struct spw_error *err) SPW_WARN_UNUSED;

#endif
