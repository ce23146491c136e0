/* framing.c: is it beyond doubt where an answer ends? See framing.h.
 *
 * Where two readers can disagree on an answer's end, one of them takes the rest for the next caller's answer. libcurl
 * takes chunks over a length, the last of two lengths, and of "7x" the 7. RFC 9112, 6.3: such a message is an error.
 */
#include "sidecar/http/framing.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { DIGITS_MAX = 18 }; /* what fits into 63 bits whatever the digits are */

struct span {
    const char *at;
    size_t bytes;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static struct span trim(struct span text)
{
    while (text.bytes > 0 && is_space(text.at[0])) {
        text.at++;
        text.bytes--;
    }
    while (text.bytes > 0 && is_space(text.at[text.bytes - 1])) {
        text.bytes--;
    }
    return text;
}

static bool is(struct span text, const char *word)
{
    return text.bytes == strlen(word) && strncasecmp(text.at, word, text.bytes) == 0;
}

/* Digits alone, without the zeros in front. */
static bool read_length(struct span text, struct span *out)
{
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') {
            return false;
        }
    }
    *out = text;
    while (out->bytes > 1 && out->at[0] == '0') {
        out->at++;
        out->bytes--;
    }
    return out->bytes > 0 && out->bytes <= DIGITS_MAX;
}

/* One Content-Length: a length, or the same one several times, as proxies join repeated lines. */
static const char *take_length(struct span value, struct span *known)
{
    while (true) {
        const char *comma = memchr(value.at, ',', value.bytes);
        size_t bytes = comma != NULL ? (size_t)(comma - value.at) : value.bytes;
        struct span length;
        if (!read_length(trim((struct span){value.at, bytes}), &length)) {
            return "its Content-Length is no number";
        }
        if (known->at != NULL &&
            (known->bytes != length.bytes || memcmp(known->at, length.at, length.bytes) != 0)) {
            return "it has two lengths";
        }
        *known = length;
        if (comma == NULL) {
            return NULL;
        }
        value.at += bytes + 1;
        value.bytes -= bytes + 1;
    }
}

/* A line's name and value; false: none of those that frame. Blanks before the colon stay in the name: libcurl does not
 * know it by that, and another reader may. */
static bool split(struct span line, struct span *name, struct span *value)
{
    const char *colon = memchr(line.at, ':', line.bytes);
    if (colon == NULL || strchr("CcTt", line.at[0]) == NULL) {
        return false;
    }
    *name = (struct span){line.at, (size_t)(colon - line.at)};
    *value = trim((struct span){colon + 1, line.bytes - name->bytes - 1});
    return true;
}

const char *spw_framing_doubt(const char *lines, size_t bytes)
{
    struct span length = {0};
    uint32_t chunked_count = 0;
    bool frames = false; /* the line before is one that says where the answer ends */
    const char *doubt = NULL;
    for (const char *end = lines + bytes; lines < end && doubt == NULL;) {
        const char *feed = memchr(lines, '\n', (size_t)(end - lines));
        struct span line = {lines, (size_t)((feed != NULL ? feed : end) - lines)}, name, value;
        lines = feed != NULL ? feed + 1 : end;
        if (line.bytes > 0 && line.at[line.bytes - 1] == '\r') {
            line.bytes--;
        }
        if (memchr(line.at, '\r', line.bytes) != NULL) {
            return "a carriage return stands within a line"; /* some take it for the line's end */
        }
        if (line.bytes > 0 && is_space(line.at[0])) {
            doubt =
                frames ? "its length goes on over a further line" : NULL; /* which libcurl does not read */
            continue;
        }
        frames = split(line, &name, &value) &&
                 (is(trim(name), "Content-Length") || is(trim(name), "Transfer-Encoding"));
        if (!frames) {
            continue;
        }
        if (is(trim(name), "Content-Length")) {
            doubt =
                is(name, "Content-Length") ? take_length(value, &length) : "its Content-Length is misspelt";
        } else {
            bool is_plain = is(name, "Transfer-Encoding") && is(value, "chunked") && chunked_count++ == 0;
            doubt = is_plain ? NULL : "its Transfer-Encoding is not chunked alone";
        }
    }
    return doubt == NULL && chunked_count > 0 && length.at != NULL ? "it has a length and chunks" : doubt;
}
