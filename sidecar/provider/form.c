/* form.c: see form.h. */
#include "sidecar/provider/form.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_text.h"

#define NAME_MAX_BYTES 160u

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes up to stop into *out, NUL-terminated; false: malformed. */
static bool decode(const char *p, const char *stop, char **out)
{
    char *to = *out;
    for (; p < stop; p++) {
        char c = *p;
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (stop - p < 3 || hex(p[1]) < 0 || hex(p[2]) < 0)
                return false;
            c = (char)(hex(p[1]) * 16 + hex(p[2]));
            p += 2;
        }
        if (c == 0)
            return false;
        *to++ = c;
    }
    *to++ = 0;
    *out = to;
    return true;
}

bool spw_form_parse(const char *body, size_t bytes, struct spw_form *out)
{
    size_t room = 1;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < bytes; i++)
        room += body[i] == '&';
    if (room > SPW_FORM_PAIRS_MAX_COUNT)
        return false;
    out->pairs = calloc(room, sizeof *out->pairs);
    out->texts = malloc(bytes + 2 * room); /* each pair adds at most two NULs and loses "=" and "&" */
    char *to = out->texts;
    bool ok = out->pairs && out->texts;
    const char *end = body + bytes;
    for (const char *p = body; ok && p < end;) {
        const char *next = memchr(p, '&', (size_t)(end - p));
        const char *stop = next ? next : end;
        const char *equals = memchr(p, '=', (size_t)(stop - p));
        if (stop > p) {
            struct spw_form_pair *pair = &out->pairs[out->count++];
            pair->name = to;
            ok = decode(p, equals ? equals : stop, &to);
            pair->name_bytes = ok ? (size_t)(to - pair->name) - 1 : 0;
            pair->value = to;
            ok = ok && decode(equals ? equals + 1 : stop, stop, &to);
        }
        p = stop + 1;
    }
    if (!ok)
        spw_form_clean_up(out);
    return ok;
}

void spw_form_clean_up(struct spw_form *form)
{
    free(form->pairs);
    free(form->texts);
    memset(form, 0, sizeof *form);
}

const char *spw_form_get(const struct spw_form *form, const char *name)
{
    return spw_form_get_of(form, name, "");
}

const char *spw_form_get_of(const struct spw_form *form, const char *owner, const char *rest)
{
    size_t owner_bytes = strlen(owner), rest_bytes = strlen(rest);
    for (size_t i = form->count; i-- > 0;) {
        const struct spw_form_pair *pair = &form->pairs[i];
        if (pair->name_bytes == owner_bytes + rest_bytes && memcmp(pair->name, owner, owner_bytes) == 0 &&
            memcmp(pair->name + owner_bytes, rest, rest_bytes) == 0)
            return pair->value;
    }
    return NULL;
}

void spw_form_entry(const char *list, size_t index, char out[SPW_FORM_ENTRY_BYTES])
{
    struct spw_text t = spw_text_on(out, SPW_FORM_ENTRY_BYTES);
    spw_text_put(&t, list);
    spw_text_put(&t, "[");
    spw_text_u64(&t, index);
    spw_text_put(&t, "]");
}

bool spw_form_has_prefix(const struct spw_form *form, const char *prefix)
{
    for (size_t i = 0; i < form->count; i++)
        if (strncmp(form->pairs[i].name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

bool spw_form_list_count(const struct spw_form *form, const char *list, size_t most, size_t *count)
{
    size_t list_bytes = strlen(list), highest = 0, distinct = 0;
    bool *seen = calloc(most + 1, sizeof *seen);
    bool ok = seen != NULL;
    for (size_t i = 0; ok && i < form->count; i++) {
        const char *name = form->pairs[i].name;
        if (strncmp(name, list, list_bytes) != 0 || name[list_bytes] != '[')
            continue;
        char *end = NULL;
        const char *digits = name + list_bytes + 1;
        unsigned long index = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : SIZE_MAX;
        ok = end && *end == ']' && index < most;
        if (!ok)
            break;
        distinct += !seen[index];
        seen[index] = true;
        highest = index + 1 > highest ? index + 1 : highest;
    }
    free(seen);
    *count = highest;
    return ok && distinct == highest;
}

/* ---- writing ---- */

static void put(struct spw_form_writer *w, const char *bytes, size_t n)
{
    if (w->failed)
        return;
    if (w->bytes + n + 1 > w->room) {
        size_t room = (w->bytes + n + 1) * 2;
        char *grown = realloc(w->text, room);
        if (!grown) {
            w->failed = true;
            return;
        }
        w->text = grown;
        w->room = room;
    }
    memcpy(w->text + w->bytes, bytes, n);
    w->bytes += n;
    w->text[w->bytes] = 0;
}

static void put_encoded(struct spw_form_writer *w, const char *value)
{
    static const char digits[] = "0123456789ABCDEF";
    for (const char *p = value; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                     c == '_' || c == '.' || c == '~';
        const char coded[3] = {'%', digits[c >> 4], digits[c & 15]};
        if (plain)
            put(w, p, 1);
        else
            put(w, coded, sizeof coded);
    }
}

static void add(struct spw_form_writer *w, const char *value, const char *name_format, va_list args)
{
    char name[NAME_MAX_BYTES];
    vsnprintf(name, sizeof name, name_format, args);
    if (w->bytes)
        put(w, "&", 1);
    put(w, name, strlen(name)); /* names are ours: letters and brackets, which servers take as they are */
    put(w, "=", 1);
    put_encoded(w, value);
}

void spw_form_add(struct spw_form_writer *w, const char *value, const char *name_format, ...)
{
    va_list args;
    if (!value || !value[0])
        return;
    va_start(args, name_format);
    add(w, value, name_format, args);
    va_end(args);
}

void spw_form_add_number(struct spw_form_writer *w, long long value, const char *name_format, ...)
{
    char text[24];
    va_list args;
    snprintf(text, sizeof text, "%lld", value);
    va_start(args, name_format);
    add(w, text, name_format, args);
    va_end(args);
}

char *spw_form_take(struct spw_form_writer *w)
{
    char *text = w->failed ? NULL : w->text;
    if (w->failed)
        free(w->text);
    memset(w, 0, sizeof *w);
    return text;
}
