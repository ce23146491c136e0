/* arena.c: memory for one reply. See arena.h. */
#include "sidecar/control/arena.h"

#include <grpc/support/alloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct spw_arena_piece {
    struct spw_arena_piece *next;
    max_align_t data[];
};

void *spw_arena_zalloc(struct spw_arena *arena, size_t bytes)
{
    struct spw_arena_piece *piece = gpr_zalloc(sizeof *piece + bytes);
    piece->next = arena->pieces;
    arena->pieces = piece;
    arena->bytes_count += bytes;
    return piece->data;
}

char *spw_arena_text(struct spw_arena *arena, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return spw_arena_copy(arena, text, sizeof text);
}

char *spw_arena_copy(struct spw_arena *arena, const char *text, size_t room)
{
    size_t bytes = strnlen(text, room);
    char *copy = spw_arena_zalloc(arena, bytes + 1);
    memcpy(copy, text, bytes);
    return copy;
}

/* Bytes of the character that begins here, 0 = none does (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_bytes(const unsigned char *p)
{
    if (p[0] < 0x80)
        return 1;
    bool two = (p[1] & 0xC0) == 0x80;
    bool three = two && (p[2] & 0xC0) == 0x80;
    if (p[0] >= 0xC2 && p[0] <= 0xDF)
        return two ? 2 : 0;
    if (p[0] >= 0xE0 && p[0] <= 0xEF)
        return three && !(p[0] == 0xE0 && p[1] < 0xA0) && !(p[0] == 0xED && p[1] > 0x9F) ? 3 : 0;
    if (p[0] >= 0xF0 && p[0] <= 0xF4)
        return three && (p[3] & 0xC0) == 0x80 && !(p[0] == 0xF0 && p[1] < 0x90) &&
                       !(p[0] == 0xF4 && p[1] > 0x8F)
                   ? 4
                   : 0;
    return 0;
}

char *spw_arena_utf8(struct spw_arena *arena, const char *text, size_t room)
{
    char *copy = spw_arena_copy(arena, text, room); /* its NUL ends a character that was cut */
    for (char *p = copy; *p;) {
        size_t bytes = utf8_bytes((const unsigned char *)p);
        if (!bytes)
            *p = '?';
        p += bytes ? bytes : 1;
    }
    return copy;
}

char *spw_arena_hex(struct spw_arena *arena, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    char *text = spw_arena_zalloc(arena, 2 * count + 1);
    for (size_t i = 0; i < count; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    return text;
}

void spw_arena_clean_up(struct spw_arena *arena)
{
    while (arena->pieces) {
        struct spw_arena_piece *piece = arena->pieces;
        arena->pieces = piece->next;
        gpr_free(piece);
    }
    arena->bytes_count = 0;
}
