/* buffer.h: bytes that are used again.
 *
 * Owns: struct spw_buffer. Called by: door.c, client.c. Thread: any.
 */
#ifndef SPW_HTTP_BUFFER_H
#define SPW_HTTP_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct spw_buffer { /* zeroed = empty; free(at) is its end */
    char *at;
    size_t capacity;
};

/* Room for so many bytes, what was there kept; false without memory. */
static inline bool spw_buffer_reserve(struct spw_buffer *buffer, size_t bytes)
{
    size_t capacity = buffer->capacity == 0 ? 512 : buffer->capacity;
    while (capacity < bytes) {
        capacity *= 2;
    }
    if (capacity == buffer->capacity) {
        return true;
    }
    char *grown = realloc(buffer->at, capacity);
    if (grown == NULL) {
        return false;
    }
    buffer->at = grown;
    buffer->capacity = capacity;
    return true;
}

/* A larger one is let go. */
static inline void spw_buffer_trim(struct spw_buffer *buffer, size_t most_bytes)
{
    if (buffer->capacity > most_bytes) {
        free(buffer->at);
        *buffer = (struct spw_buffer){NULL, 0};
    }
}

#endif
