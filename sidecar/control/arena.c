/* arena.c: memory for one reply. See arena.h. */
#include "sidecar/control/arena.h"

#include <grpc/support/alloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/obs/utf8.h"

#define PIECE_LEAST_BYTES ((size_t)1536) /* a limit and what it holds: one piece for a short reply */

struct spw_arena_piece {
    struct spw_arena_piece *next;
    size_t used, room; /* bytes of data */
    max_align_t data[];
};

void *spw_arena_zalloc(struct spw_arena *arena, size_t bytes)
{
    const size_t align = sizeof(max_align_t);
    struct spw_arena_piece *piece = arena->pieces;
    size_t wanted = (bytes + align - 1) / align * align;
    arena->bytes_count += bytes;
    if (!piece || piece->room - piece->used < wanted) {
        size_t room = wanted > PIECE_LEAST_BYTES ? wanted : PIECE_LEAST_BYTES;
        piece = gpr_zalloc(sizeof *piece + room);
        piece->room = room;
        piece->next = arena->pieces;
        arena->pieces = piece;
    }
    void *place = (char *)piece->data + piece->used;
    piece->used += wanted;
    return place;
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

char *spw_arena_utf8(struct spw_arena *arena, const char *text, size_t room)
{
    char *copy = spw_arena_copy(arena, text, room);
    size_t left = strlen(copy);
    for (char *p = copy; left > 0;) {
        size_t bytes = spw_utf8_bytes(p, left);
        if (!bytes) {
            *p = '?';
            bytes = 1;
        }
        p += bytes;
        left -= bytes;
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
