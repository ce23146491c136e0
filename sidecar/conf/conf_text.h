/* conf_text.h: text that came from a file: checking it, showing it, guessing what was meant.
 *
 * Owns: the check of raw configuration bytes, quoted excerpts for error texts, near-miss suggestions. Called by: the
 * other files of conf/. Thread: any; pure.
 */
#ifndef SPW_CONF_CONF_TEXT_H
#define SPW_CONF_CONF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

#define SPW_SHOWN_BYTES 64u

/* The text in double quotes, safe for a terminal and cut to fit; returns out. Never for text that may be a secret. */
const char *spw_text_show(const char *text, size_t bytes, char out[SPW_SHOWN_BYTES]);

/* Refuse what no configuration needs and libyaml would accept or misread: NUL and other control bytes, tabs, bytes
 * that are no UTF-8, no content at all. Errors name line and column. */
enum spw_status spw_text_check(const char *name, const char *text, size_t bytes,
                               struct spw_error *err) SPW_WARN_UNUSED;

/* How far apart two words are, in edits; letters' case, '-' and '_' make no difference. Words over 48 bytes are
 * infinitely far. */
#define SPW_TEXT_FAR UINT32_MAX
uint32_t spw_text_distance(const char *a, const char *b);
/* Is this distance small enough, for a word of this length, to suggest the other word? */
bool spw_text_is_near(uint32_t distance, size_t bytes);

#endif
