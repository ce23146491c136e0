/* framing.h: is it beyond doubt where an answer ends? Called by: client.c. Thread: any; pure. */
#ifndef SPW_HTTP_FRAMING_H
#define SPW_HTTP_FRAMING_H

#include <stddef.h>

/* What is wrong with the framing that the header lines (each ended by a line feed, without the status line) tell, in a
 * few words that live for ever; NULL = it is plain: no length, one length however often it is said, or chunks alone, and
 * lines that all readers see end where this one does. */
const char *spw_framing_doubt(const char *lines, size_t bytes);

#endif
