/* utf8.h: bytes from outside: are they text, and if not, make them text.
 *
 * Owns: nothing. Called by: conf/ (the file), store/ (cells), control/ (replies). Thread: any; pure.
 */
#ifndef SPW_OBS_UTF8_H
#define SPW_OBS_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "shm/spw_text.h" /* spw_utf8_bytes, spw_utf8_is_name: the client needs them too */

/* Put '?' for each byte that is not UTF-8 and ' ' for control bytes other than newline and tab, in place. true when
 * something was replaced. Free text is repaired rather than refused: the money beside it is still right. */
bool spw_utf8_repair(char *text, size_t count);

#endif
