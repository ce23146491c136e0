/* utf8.h: text from a cell is another process's word: is it text, and if not, make it text.
 *
 * Owns: nothing. Called by: flags, orders. Thread: the store thread; pure.
 */
#ifndef SPW_STORE_UTF8_H
#define SPW_STORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Whole UTF-8 without control bytes: fit to be an id or a name. */
bool spw_utf8_is_name(const char *text, size_t count);

/* Put '?' for each byte that is not UTF-8 and ' ' for control bytes other than newline and tab, in place. true when
 * something was replaced. Free text is repaired rather than refused: the money beside it is still right. */
bool spw_utf8_repair(char *text, size_t count);

#endif
