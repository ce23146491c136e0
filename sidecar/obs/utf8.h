/* utf8.h: bytes from outside: are they text, and if not, make them text.
 *
 * Owns: nothing. Called by: conf/ (the file), store/ (cells), control/ (replies). Thread: any; pure.
 */
#ifndef SPW_OBS_UTF8_H
#define SPW_OBS_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed character at text, of which `left` > 0 bytes are there; 0 = none begins here (RFC 3629: no
 * overlong form, no surrogate, up to U+10FFFF). */
size_t spw_utf8_bytes(const char *text, size_t left);

/* Whole UTF-8 without control bytes: fit to be an id or a name. */
bool spw_utf8_is_name(const char *text, size_t count);

/* Put '?' for each byte that is not UTF-8 and ' ' for control bytes other than newline and tab, in place. true when
 * something was replaced. Free text is repaired rather than refused: the money beside it is still right. */
bool spw_utf8_repair(char *text, size_t count);

#endif
