/* arena.h: memory for one reply: many small pieces, freed together. Internal to control/.
 *
 * Owns: struct spw_arena. Called by: the method files while they build a message. Thread: that of its owner.
 * Running out of memory ends the process, as it does in gRPC core, whose allocator this uses.
 */
#ifndef SPW_CONTROL_ARENA_H
#define SPW_CONTROL_ARENA_H

#include <stddef.h>

struct spw_arena {
    struct spw_arena_piece *pieces; /* zero-initialise */
    size_t bytes_count;             /* handed out so far */
};

void *spw_arena_zalloc(struct spw_arena *arena, size_t bytes);
char *spw_arena_text(struct spw_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* At most `room` bytes of text that may lack its NUL. */
char *spw_arena_copy(struct spw_arena *arena, const char *text, size_t room);
/* The same for text of unknown origin: a byte that is not UTF-8 becomes '?', since clients refuse such messages. */
char *spw_arena_utf8(struct spw_arena *arena, const char *text, size_t room);
char *spw_arena_hex(struct spw_arena *arena, const unsigned char *bytes, size_t count);
void spw_arena_clean_up(struct spw_arena *arena);

#endif
