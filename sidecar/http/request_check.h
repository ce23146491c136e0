/* request_check.h: is a caller's request plainly framed, and within bounds? Called by: door.c. Thread: the loop thread. */
#ifndef SPW_HTTP_REQUEST_CHECK_H
#define SPW_HTTP_REQUEST_CHECK_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A body beyond its maximum is taken and dropped up to here, so that the caller reads its 413, not a reset. */
enum { SPW_REQUEST_SWALLOW_MAX_BYTES = 1 << 20 };

/* Of a request whose headers have arrived: 0 = go on, else the status to refuse it with. too_large: its length says that
 * it is beyond body_max_bytes; it is to be swallowed, then refused. */
uint32_t spw_request_check(struct MHD_Connection *mhd, const char *method, const char *target,
                           const char *version, size_t body_max_bytes, bool *too_large);

#endif
