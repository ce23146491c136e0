/* form.h: application/x-www-form-urlencoded bodies with nested names, as Stripe takes them.
 *
 * Owns: the grammar "line_items[0][amount]=1000&...". Called by: stripe*.c, the scripted provider. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_FORM_H
#define SPW_PROVIDER_FORM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define SPW_FORM_PAIRS_MAX_COUNT 16384u

struct spw_form_pair {
    const char *name; /* decoded: "line_items[0][amount]" */
    size_t name_bytes;
    const char *value;
};

struct spw_form {
    struct spw_form_pair *pairs;
    size_t count;
    char *texts;
};

/* false: malformed (a broken %-sequence, a NUL, too many pairs), or no memory; *out is then empty. */
bool spw_form_parse(const char *body, size_t bytes, struct spw_form *out);
void spw_form_clean_up(struct spw_form *form);
/* The value of this name, the last when there are several; NULL = not there. */
const char *spw_form_get(const struct spw_form *form, const char *name);
/* The same by a name in two parts: "customer_details" and "[address][city]". */
const char *spw_form_get_of(const struct spw_form *form, const char *owner, const char *rest);
/* "list[index]", the owner of an entry's fields. list: at most 32 bytes. */
#define SPW_FORM_ENTRY_BYTES 64u
void spw_form_entry(const char *list, size_t index, char out[SPW_FORM_ENTRY_BYTES]);
/* Is there any name that begins so? */
bool spw_form_has_prefix(const struct spw_form *form, const char *prefix);
/* How many entries a list has: names "list[0]...", "list[1]..."; false when its numbers have a gap or are none. */
bool spw_form_list_count(const struct spw_form *form, const char *list, size_t most, size_t *count);

/* A body being written; text NULL after a failure or clean-up. */
struct spw_form_writer {
    char *text;
    size_t bytes, room;
    bool failed;
};
/* name=value, the value encoded. A value of NULL or "" is left out. */
void spw_form_add(struct spw_form_writer *w, const char *value, const char *name_format, ...)
    __attribute__((format(printf, 3, 4)));
void spw_form_add_number(struct spw_form_writer *w, long long value, const char *name_format, ...)
    __attribute__((format(printf, 3, 4)));
/* The body, malloc'ed; NULL when anything failed. */
char *spw_form_take(struct spw_form_writer *w);

#endif
