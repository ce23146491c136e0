/* json_write.h: JSON as text at once, on a struct spw_text.
 *
 * Owns: commas, names, quotes. Called by: the profiles, http/result_json.c. Thread: any; pure.
 *
 * What every quote waits for is not built as a tree of values first, which would cost more than the whole decision. A
 * member or element puts the comma before it by what stands there. Texts are taken for UTF-8.
 */
#ifndef SPW_PROVIDER_JSON_WRITE_H
#define SPW_PROVIDER_JSON_WRITE_H

#include "shm/spw_text.h"

static inline void spw_json_comma(struct spw_text *t)
{
    char last = t->used ? t->at[t->used - 1] : '{';
    if (last != '{' && last != '[')
        spw_text_bytes(t, ",", 1);
}

/* ,"name": and what comes next is its value. name: without anything to escape. */
static inline void spw_json_put_name(struct spw_text *t, const char *name)
{
    spw_json_comma(t);
    spw__json_name(t, name);
}

/* An element or member that begins with open: '{' or '['. name NULL = an element. */
static inline void spw_json_open(struct spw_text *t, const char *name, const char *open)
{
    if (name)
        spw_json_put_name(t, name);
    else
        spw_json_comma(t);
    spw_text_bytes(t, open, 1);
}

/* value NULL is null. */
static inline void spw_json_put_text(struct spw_text *t, const char *name, const char *value)
{
    spw_json_put_name(t, name);
    spw_text_json(t, value);
}

/* Nothing for NULL and "". */
static inline void spw_json_put_known(struct spw_text *t, const char *name, const char *value)
{
    if (value && value[0])
        spw_json_put_text(t, name, value);
}

/* JSON itself: true, null, or a value made elsewhere. */
static inline void spw_json_put_word(struct spw_text *t, const char *name, const char *word)
{
    spw_json_put_name(t, name);
    spw_text_put(t, word);
}

static inline void spw_json_put_u64(struct spw_text *t, const char *name, uint64_t value)
{
    spw_json_put_name(t, name);
    spw_text_u64(t, value);
}

/* value / 10^digits as a number. trim: no trailing zeros. */
static inline void spw_json_put_decimal(struct spw_text *t, const char *name, int64_t value, unsigned digits,
                                        bool trim)
{
    spw_json_put_name(t, name);
    spw_text_decimal(t, value, digits, trim);
}

/* The same in quotes. */
static inline void spw_json_put_quoted(struct spw_text *t, const char *name, int64_t value, unsigned digits,
                                       bool trim)
{
    spw_json_put_name(t, name);
    spw_text_bytes(t, "\"", 1);
    spw_text_decimal(t, value, digits, trim);
    spw_text_bytes(t, "\"", 1);
}

#endif
