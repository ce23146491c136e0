/* header_lines.h: the lines of a header block, one by one. Called by: headers.c. Thread: any; pure. */
#ifndef SPW_PROVIDER_HEADER_LINES_H
#define SPW_PROVIDER_HEADER_LINES_H

#include <stddef.h>

/* name: in lower case, NUL-terminated. value: bytes of it, without the blanks around it. */
typedef void spw_header_line_fn(void *owner, const char *name, const char *value, size_t bytes);

/* Calls fn for each line that is a name and a value, in order; folded lines, which old proxies still send, are one. What
 * is neither, holds a NUL, has a name of 96 bytes or more, or is folded and has more than 600, is overlooked. */
void spw_header_lines_each(const char *headers, size_t headers_bytes, spw_header_line_fn *fn, void *owner);

#endif
