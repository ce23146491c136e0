/* header_name.h: what the name of a rate header says about its value.
 *
 * Owns: the words that names are made of. Called by: headers.c. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_HEADER_NAME_H
#define SPW_PROVIDER_HEADER_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_HEADER_NAME_BYTES 96u

enum spw_header_field {
    SPW_HEADER_LIMIT,
    SPW_HEADER_REMAINING,
    SPW_HEADER_RESET,
    SPW_HEADER_RESET_AFTER,
    SPW_HEADER_USED,
    SPW_HEADER_WINDOW,
    SPW_HEADER_NEXT,
    SPW_HEADER_POLICY,
    SPW_HEADER_NONE, /* says nothing about counts or time */
    SPW_HEADER_FIELDS_COUNT
};

struct spw_header_name {
    enum spw_header_field field;
    bool is_field_named; /* a word of the name says the field; otherwise it is NONE, or LIMIT by custom */
    bool is_ms;          /* the name ends in -Ms or says milliseconds */
    uint64_t named_window_ms;        /* "-minute", "-daily", "-24h"; 0 = none */
    char key[SPW_HEADER_NAME_BYTES]; /* what is left: names with one key tell of one window */
};

/* name: lower case. false: it is no rate header. */
bool spw_header_name_read(const char *name, struct spw_header_name *out);

/* "minute", "daily", "24hour", "7d"; 0 for any other word, months and years among them: they have no fixed length. */
uint64_t spw_header_window_ms(const char *word);

bool spw_header_ends_with(const char *name, const char *tail);

#endif
