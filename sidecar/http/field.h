/* field.h: names of header fields.
 *
 * Owns: what a token is (RFC 9110, 5.6.2). Called by: lines.c, door.c, request_check.c. Thread: any; pure.
 */
#ifndef SPW_HTTP_FIELD_H
#define SPW_HTTP_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bit c of the word for c / 64: letters, digits and !#$%&'*+-.^_`|~ */
static inline bool spw_field_is_token_byte(unsigned char c)
{
    static const uint64_t bits[4] = {UINT64_C(0x03ff6cfa00000000), UINT64_C(0x57ffffffc7fffffe), 0, 0};
    return (bits[c >> 6] >> (c & 63) & 1) != 0;
}

/* Bytes of a token at the start of text, which is NUL-terminated. */
static inline size_t spw_field_name_bytes(const char *text)
{
    size_t n = 0;
    while (spw_field_is_token_byte((unsigned char)text[n]))
        n++;
    return n;
}

/* Are these bytes of a NUL-terminated text, to its end or to what ends a name, a token? */
static inline bool spw_field_is_token(const char *text, size_t bytes)
{
    return bytes > 0 && spw_field_name_bytes(text) == bytes;
}

#endif
