/* json_read.h: reading JSON from outside: strict, and in one block of memory.
 *
 * Owns: struct spw_json, one value of a document that was read, and struct spw_json_doc, room for one. Called by: the
 * profiles, http/quote_json.c. Thread: any; pure but for allocation.
 *
 * Every quote waits for its request and its answer to be read, and a tree of separately allocated values with a hash
 * table for each object costs more than the whole decision. Here the values of a document lie one behind the other in
 * the order of their text, in the same block as the texts themselves.
 *
 * Strict as RFC 8259 and beyond: the whole must be an object or an array with nothing behind it; refused are duplicate
 * members, what is no UTF-8, lone surrogates, NUL in texts, numbers that no int64_t or double holds, and nesting deeper
 * than SPW_JSON_DEPTH_MAX.
 */
#ifndef SPW_PROVIDER_JSON_READ_H
#define SPW_PROVIDER_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SPW_JSON_DEPTH_MAX 2048u

enum spw_json_kind {
    SPW_JSON_NULL,
    SPW_JSON_FALSE,
    SPW_JSON_TRUE,
    SPW_JSON_INTEGER,
    SPW_JSON_REAL, /* with a fraction or an exponent */
    SPW_JSON_TEXT,
    SPW_JSON_ARRAY,
    SPW_JSON_OBJECT
};

struct spw_json {
    enum spw_json_kind kind;
    uint32_t count;     /* elements or members */
    uint32_t values;    /* this one and all within it: where the next begins */
    uint32_t key_bytes; /* a member's */
    const char *key;    /* NUL-terminated; NULL = no member */
    const char *text; /* of TEXT: unescaped, NUL-terminated; of a number: as it was written, not terminated */
    size_t text_bytes;
};

struct spw_json_fault {
    uint32_t line, column; /* from 1; the column in bytes */
    const char *what;      /* static text that quotes nothing of the document */
};

/* NULL: it is none, or there is no memory; *fault (which may be NULL) says why. bytes need not be terminated. */
struct spw_json *spw_json_read(const char *bytes, size_t count, struct spw_json_fault *fault);
void spw_json_free(struct spw_json *root);

/* The same without an allocation for most documents: the allocator is slow with blocks of their size. The values lie in
 * the doc, which must stay where it is; it needs no clearing before. */
struct spw_json_doc {
    struct spw_json *root;     /* NULL: none was read */
    struct spw_json room[128]; /* for the texts, too */
};
const struct spw_json *spw_json_doc_read(struct spw_json_doc *doc, const char *bytes, size_t count,
                                         struct spw_json_fault *fault);
void spw_json_doc_clean_up(struct spw_json_doc *doc);

/* The value as JSON without blanks, numbers as they were written; malloc'ed, NULL without memory or value. */
char *spw_json_dump(const struct spw_json *value);

/* ---- looking into it: NULL and values of another kind are like absent ones ---- */

/* A member of an object, by a name of so many bytes. Looks at one after another. */
const struct spw_json *spw_json_find(const struct spw_json *object, const char *key, size_t key_bytes);
/* The text of a TEXT. */
const char *spw_json_text(const struct spw_json *value);
/* The value of an INTEGER, else 0. */
int64_t spw_json_integer(const struct spw_json *value);
/* A number times 10^scale, rounded half up; numbers only. */
bool spw_json_number(const struct spw_json *value, unsigned scale, int64_t *out);
/* The same, also from a decimal in quotes, which is how some SDKs send money. */
bool spw_json_decimal(const struct spw_json *value, unsigned scale, int64_t *out);

/* The same by a name that mostly is a literal, whose length compilers know. */
static inline const struct spw_json *spw_json_get(const struct spw_json *object, const char *key)
{
    return spw_json_find(object, key, strlen(key));
}

static inline bool spw_json_is(const struct spw_json *value, enum spw_json_kind kind)
{
    return value && value->kind == kind;
}

/* Elements of an array, 0 of anything else. */
static inline uint32_t spw_json_count(const struct spw_json *array)
{
    return spw_json_is(array, SPW_JSON_ARRAY) ? array->count : 0;
}

/* The first element or member; NULL = there is none. */
static inline const struct spw_json *spw_json_first(const struct spw_json *parent)
{
    bool has = parent && (parent->kind == SPW_JSON_ARRAY || parent->kind == SPW_JSON_OBJECT) && parent->count;
    return has ? parent + 1 : NULL;
}

/* The one behind `value` in its parent; NULL = it was the last. */
static inline const struct spw_json *spw_json_next(const struct spw_json *parent,
                                                   const struct spw_json *value)
{
    const struct spw_json *next = value + value->values;
    return next < parent + parent->values ? next : NULL;
}

/* The elements of an array one after another; none of anything else. */
/* NOLINTBEGIN(bugprone-macro-parentheses): element is the name that is declared */
#define SPW_JSON_EACH(element, array)                                                                        \
    for (const struct spw_json *element = spw_json_count(array) ? spw_json_first(array) : NULL; element;     \
         element = spw_json_next(array, element))
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
