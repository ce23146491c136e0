/* conf_yaml.c: see conf_yaml.h.
 *
 * The walk follows the schema, which is not recursive: a file cannot nest deeper than the schema does, and whatever
 * stands at a place where the schema has none is refused there. Anchors, aliases and tags are refused, so no small
 * file can stand for a large one.
 */
#include "sidecar/conf/conf_yaml.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "sidecar/conf/conf_text.h"

/* More than any list or map of the schema may hold; the second bounds the search for duplicate keys. */
#define LIST_MAX_COUNT 1024u
#define MAP_MAX_COUNT  32768u
#define KEY_MAX_BYTES  63u
/* An unknown key longer than this is not shown: it may be a secret that went astray. */
#define KEY_SHOWN_BYTES  32u
#define FIELDS_MAX_COUNT 64 /* of one message of the schema */

struct walk {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    const char *name;
    char path[SPW_CONF_PATH_BYTES];
    struct spw_yaml_places *places;
    struct spw_error *err;
};

static enum spw_status read_value(struct walk *w, const ProtobufCFieldDescriptor *field, void *slot);

/* --- places ------------------------------------------------------------------------------------------------- */

static enum spw_status no_memory(struct walk *w)
{
    return spw_error_set(w->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", w->name);
}

static enum spw_status note_place(struct walk *w, const yaml_mark_t *mark)
{
    struct spw_yaml_places *places = w->places;
    if (places->count == places->room_count) {
        size_t room = places->room_count ? places->room_count * 2 : 64;
        struct spw_yaml_place *list = realloc(places->list, room * sizeof *list);
        if (!list)
            return no_memory(w);
        places->list = list;
        places->room_count = room;
    }
    char *path = strdup(w->path);
    if (!path)
        return no_memory(w);
    places->list[places->count++] = (struct spw_yaml_place){
        .path = path, .line = (uint32_t)mark->line + 1, .column = (uint32_t)mark->column + 1};
    return SPW_STATUS_OK;
}

const struct spw_yaml_place *spw_yaml_places_find(const struct spw_yaml_places *places, const char *path)
{
    size_t bytes = strlen(path);
    while (bytes) {
        for (size_t i = 0; i < places->count; i++) {
            const char *known = places->list[i].path;
            if (!strncmp(known, path, bytes) && !known[bytes])
                return &places->list[i];
        }
        while (bytes && path[bytes - 1] != '.' && path[bytes - 1] != '[')
            bytes--;
        bytes -= bytes > 0;
    }
    return NULL;
}

void spw_yaml_places_clean_up(struct spw_yaml_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        free(places->list[i].path);
    free(places->list);
    *places = (struct spw_yaml_places){0};
}

/* Lengthen the path; returns its former length, to cut it back to. */
static size_t path_push(struct walk *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static size_t path_push(struct walk *w, const char *format, ...)
{
    size_t bytes = strlen(w->path);
    va_list args;
    va_start(args, format);
    vsnprintf(w->path + bytes, sizeof w->path - bytes, format, args);
    va_end(args);
    return bytes;
}

static size_t path_push_key(struct walk *w, const char *key)
{
    return path_push(w, w->path[0] ? ".%s" : "%s", key);
}

/* --- errors and events -------------------------------------------------------------------------------------- */

static enum spw_status refuse_at(struct walk *w, const yaml_mark_t *mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum spw_status refuse_at(struct walk *w, const yaml_mark_t *mark, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return spw_error_set(w->err, SPW_STATUS_PARSE, "%s:%zu:%zu: %s%s%s", w->name, mark->line + 1,
                         mark->column + 1, w->path, w->path[0] ? ": " : "", text);
}

static void drop_event(struct walk *w)
{
    if (w->has_event)
        yaml_event_delete(&w->event);
    w->has_event = false;
}

/* Refuse what makes one piece of the file stand for another or change its type. */
static enum spw_status refuse_references(struct walk *w)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (w->event.type) {
    case YAML_ALIAS_EVENT:
        return refuse_at(w, &w->event.start_mark, "aliases (*name) are not supported: write the value out");
    case YAML_SCALAR_EVENT:
        anchor = w->event.data.scalar.anchor;
        tag = w->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = w->event.data.sequence_start.anchor;
        tag = w->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = w->event.data.mapping_start.anchor;
        tag = w->event.data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        return refuse_at(w, &w->event.start_mark, "anchors (&name) are not supported: remove it");
    if (tag)
        return refuse_at(w, &w->event.start_mark, "tags (!name) are not supported: remove it");
    return SPW_STATUS_OK;
}

static enum spw_status next_event(struct walk *w)
{
    drop_event(w);
    if (!yaml_parser_parse(&w->parser, &w->event)) {
        if (w->parser.error == YAML_MEMORY_ERROR)
            return no_memory(w);
        const char *context = w->parser.context ? w->parser.context : "";
        return refuse_at(w, &w->parser.problem_mark,
                         "not YAML: %s%s%s: correct the text at or before this place", context,
                         context[0] ? ", " : "", w->parser.problem ? w->parser.problem : "unreadable");
    }
    w->has_event = true;
    return refuse_references(w);
}

static bool is_plain(const struct walk *w)
{
    return w->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static const char *scalar_text(const struct walk *w)
{
    return (const char *)w->event.data.scalar.value;
}

/* "" and the words YAML reads as nothing; quoted they are text, and an empty text says nothing either. */
static bool is_nothing(const struct walk *w)
{
    static const char *const WORDS[] = {"~", "null", "Null", "NULL"};
    if (w->event.type != YAML_SCALAR_EVENT)
        return false;
    if (!w->event.data.scalar.length)
        return true;
    for (size_t i = 0; is_plain(w) && i < sizeof WORDS / sizeof WORDS[0]; i++)
        if (!strcmp(WORDS[i], scalar_text(w)))
            return true;
    return false;
}

static enum spw_status expect(struct walk *w, yaml_event_type_t type, const char *what)
{
    if (w->event.type == type)
        return SPW_STATUS_OK;
    if (is_nothing(w))
        return refuse_at(w, &w->event.start_mark, "has no value: give it one, or remove the key");
    return refuse_at(w, &w->event.start_mark, "must be %s", what);
}

/* Text of the file as C text: no NUL and no line breaks can hide in it. */
static enum spw_status check_scalar_bytes(struct walk *w)
{
    const unsigned char *text = w->event.data.scalar.value;
    for (size_t i = 0; i < w->event.data.scalar.length; i++)
        if (text[i] < ' ' || text[i] == 0x7F)
            return refuse_at(w, &w->event.start_mark,
                             "holds a line break or control byte: write it on one line, without | or >");
    return SPW_STATUS_OK;
}

static enum spw_status check_key(struct walk *w)
{
    if (w->event.type != YAML_SCALAR_EVENT || is_nothing(w))
        return refuse_at(w, &w->event.start_mark, "a key must be a word, followed by ': ' and its value");
    enum spw_status status = check_scalar_bytes(w);
    if (status)
        return status;
    if (w->event.data.scalar.length > KEY_MAX_BYTES)
        return refuse_at(w, &w->event.start_mark, "a key is longer than %u bytes: shorten it", KEY_MAX_BYTES);
    return SPW_STATUS_OK;
}

/* --- scalars ------------------------------------------------------------------------------------------------ */

static enum spw_status read_string(struct walk *w, char **slot)
{
    enum spw_status status = check_scalar_bytes(w);
    if (status)
        return status;
    *slot = strdup(scalar_text(w));
    if (!*slot)
        return no_memory(w);
    return SPW_STATUS_OK;
}

/* Only digits: 1e+06 is what a template engine makes of a million, and reading the "1" of it would be a disaster. */
static enum spw_status read_whole(struct walk *w, uint64_t most, uint64_t *out)
{
    const char *text = scalar_text(w);
    size_t bytes = w->event.data.scalar.length;
    char shown[SPW_SHOWN_BYTES];
    bool ok = is_plain(w) && bytes && strspn(text, "0123456789") == bytes && (text[0] != '0' || bytes == 1);
    if (!ok)
        return refuse_at(w, &w->event.start_mark,
                         "%s is no plain whole number: write digits only, as 1000000, without quotes, sign, "
                         "exponent, fraction or leading zero",
                         spw_text_show(text, bytes, shown));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value) || value > most)
            return refuse_at(w, &w->event.start_mark, "%s is too large: at most %llu",
                             spw_text_show(text, bytes, shown), (unsigned long long)most);
    *out = value;
    return SPW_STATUS_OK;
}

static enum spw_status read_bool(struct walk *w, protobuf_c_boolean *slot)
{
    bool yes = is_plain(w) && !strcmp(scalar_text(w), "true");
    bool no = is_plain(w) && !strcmp(scalar_text(w), "false");
    if (!yes && !no) {
        char shown[SPW_SHOWN_BYTES];
        return refuse_at(w, &w->event.start_mark,
                         "%s is neither true nor false: write one of them, without quotes",
                         spw_text_show(scalar_text(w), w->event.data.scalar.length, shown));
    }
    *slot = yes;
    return SPW_STATUS_OK;
}

/* The word of an enumeration's value: its name without the prefix all of them share, in lower case. */
static void enum_word(const ProtobufCEnumDescriptor *desc, unsigned index, char out[KEY_MAX_BYTES + 1])
{
    size_t prefix = strlen(desc->values[0].name) - strlen("UNSPECIFIED");
    snprintf(out, KEY_MAX_BYTES + 1, "%s", desc->values[index].name + prefix);
    for (char *p = out; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
}

static bool is_same_word(const char *word, const char *text)
{
    while (*word && (*word == *text || (*word == '_' && *text == '-'))) {
        word++;
        text++;
    }
    return !*word && !*text;
}

static enum spw_status read_enum(struct walk *w, const ProtobufCEnumDescriptor *desc, int *slot)
{
    char words[256] = "";
    for (unsigned i = 1; i < desc->n_values; i++) {
        char word[KEY_MAX_BYTES + 1];
        enum_word(desc, i, word);
        if (is_same_word(word, scalar_text(w))) {
            *slot = desc->values[i].value;
            return SPW_STATUS_OK;
        }
        size_t bytes = strlen(words);
        snprintf(words + bytes, sizeof words - bytes, "%s%s", i > 1 ? ", " : "", word);
    }
    char shown[SPW_SHOWN_BYTES];
    return refuse_at(w, &w->event.start_mark, "%s is not known: write one of %s",
                     spw_text_show(scalar_text(w), w->event.data.scalar.length, shown), words);
}

static enum spw_status read_scalar(struct walk *w, const ProtobufCFieldDescriptor *field, void *slot)
{
    enum spw_status status = expect(w, YAML_SCALAR_EVENT, "a single value, not a list or map");
    if (status)
        return status;
    if (is_nothing(w))
        return refuse_at(w, &w->event.start_mark, "has no value: give it one, or remove the key");
    status = note_place(w, &w->event.start_mark);
    if (status)
        return status;
    uint64_t whole = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return read_string(w, slot);
    case PROTOBUF_C_TYPE_UINT32:
        status = read_whole(w, UINT32_MAX, &whole);
        *(uint32_t *)slot = (uint32_t)whole;
        return status;
    case PROTOBUF_C_TYPE_UINT64:
        status = read_whole(w, UINT64_MAX, &whole);
        *(uint64_t *)slot = whole;
        return status;
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(w, slot);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(w, field->descriptor, slot);
    default:
        return spw_error_set(w->err, SPW_STATUS_INVALID, "%s: the schema's type of %s is not supported",
                             w->name, w->path);
    }
}

/* --- messages, maps, lists ---------------------------------------------------------------------------------- */

/* A map field is a repeated message of two fields, key and value, named after it. */
static bool is_map_entry(const ProtobufCMessageDescriptor *desc)
{
    size_t bytes = strlen(desc->short_name);
    return bytes > 5 && !strcmp(desc->short_name + bytes - 5, "Entry") && desc->n_fields == 2 &&
           !strcmp(desc->fields[0].name, "key") && !strcmp(desc->fields[1].name, "value");
}

static size_t slot_bytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_UINT64:
        return sizeof(uint64_t);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return sizeof(uint32_t);
    }
}

/* A further, zeroed element of a repeated field; NULL when there is no memory. */
static void *append_slot(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t *count = (size_t *)(void *)((char *)message + field->quantifier_offset);
    void **list = (void **)(void *)((char *)message + field->offset);
    size_t bytes = slot_bytes(field->type);
    void *grown = realloc(*list, (*count + 1) * bytes);
    if (!grown)
        return NULL;
    *list = grown;
    char *slot = (char *)grown + *count * bytes;
    memset(slot, 0, bytes);
    ++*count;
    return slot;
}

/* NULL when there is no memory. */
static ProtobufCMessage *new_message(const ProtobufCMessageDescriptor *desc)
{
    ProtobufCMessage *message = malloc(desc->sizeof_message);
    if (message)
        desc->message_init(message);
    return message;
}

static bool is_showable_key(const char *key)
{
    size_t bytes = strlen(key);
    return bytes <= KEY_SHOWN_BYTES &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-0123456789<") == bytes;
}

static enum spw_status refuse_unknown(struct walk *w, const ProtobufCMessageDescriptor *desc)
{
    const char *key = scalar_text(w);
    if (!is_showable_key(key))
        return refuse_at(w, &w->event.start_mark, "holds a key that is not known: see docs/configuration.md");
    char known[320] = "";
    const char *nearest = NULL;
    uint32_t distance = SPW_TEXT_FAR;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const char *name = desc->fields[i].name;
        uint32_t d = spw_text_distance(key, name);
        if (d < distance) {
            distance = d;
            nearest = name;
        }
        size_t bytes = strlen(known);
        snprintf(known + bytes, sizeof known - bytes, "%s%s", i ? ", " : "", name);
    }
    path_push_key(w, key);
    if (nearest && spw_text_is_near(distance, strlen(key)))
        return refuse_at(w, &w->event.start_mark, "is not known: did you mean %s?", nearest);
    return refuse_at(w, &w->event.start_mark, "is not known: known here are %s", known);
}

static enum spw_status read_map(struct walk *w, const ProtobufCFieldDescriptor *field,
                                ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *desc = field->descriptor;
    size_t *count = (size_t *)(void *)((char *)message + field->quantifier_offset);
    enum spw_status status = expect(w, YAML_MAPPING_START_EVENT, "a map of names to values");
    while (!status && !(status = next_event(w)) && w->event.type != YAML_MAPPING_END_EVENT) {
        status = check_key(w);
        if (status)
            return status;
        const char *key = scalar_text(w);
        size_t parent_bytes = strlen(w->path);
        for (size_t i = 0; i < *count; i++) {
            ProtobufCMessage **entries = *(ProtobufCMessage ***)(void *)((char *)message + field->offset);
            const char *other = *(char **)(void *)((char *)entries[i] + desc->fields[0].offset);
            if (!strcmp(other, key)) {
                path_push_key(w, key);
                return refuse_at(w, &w->event.start_mark, "is given twice (first on line %u): remove one",
                                 spw_yaml_places_find(w->places, w->path)->line);
            }
        }
        if (*count == MAP_MAX_COUNT)
            return refuse_at(w, &w->event.start_mark, "has more than %u entries", MAP_MAX_COUNT);
        path_push_key(w, key);
        ProtobufCMessage **entry = append_slot(message, field);
        if (!entry || !(*entry = new_message(desc)))
            return no_memory(w);
        if ((status = note_place(w, &w->event.start_mark)) ||
            (status = read_string(w, (char **)(void *)((char *)*entry + desc->fields[0].offset))) ||
            (status = next_event(w)))
            return status;
        const ProtobufCFieldDescriptor *value = &desc->fields[1];
        if (value->quantifier_offset)
            *(protobuf_c_boolean *)(void *)((char *)*entry + value->quantifier_offset) = 1;
        status = read_value(w, value, (char *)*entry + value->offset);
        w->path[parent_bytes] = 0;
    }
    if (!status && !*count)
        return refuse_at(w, &w->event.start_mark, "is empty: give it an entry, or remove the key");
    return status;
}

static enum spw_status read_list(struct walk *w, const ProtobufCFieldDescriptor *field,
                                 ProtobufCMessage *message)
{
    size_t *count = (size_t *)(void *)((char *)message + field->quantifier_offset);
    enum spw_status status = expect(w, YAML_SEQUENCE_START_EVENT, "a list: [a, b] or one '- a' a line");
    while (!status && !(status = next_event(w)) && w->event.type != YAML_SEQUENCE_END_EVENT) {
        if (*count == LIST_MAX_COUNT)
            return refuse_at(w, &w->event.start_mark, "has more than %u entries", LIST_MAX_COUNT);
        size_t parent_bytes = path_push(w, "[%zu]", *count);
        void *slot = append_slot(message, field);
        if (!slot)
            return no_memory(w);
        status = note_place(w, &w->event.start_mark);
        if (!status)
            status = read_value(w, field, slot);
        w->path[parent_bytes] = 0;
    }
    if (!status && !*count)
        return refuse_at(w, &w->event.start_mark, "is empty: give it an entry, or remove the key");
    return status;
}

static enum spw_status read_field(struct walk *w, const ProtobufCFieldDescriptor *field,
                                  ProtobufCMessage *message)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        bool is_map = field->type == PROTOBUF_C_TYPE_MESSAGE && is_map_entry(field->descriptor);
        return is_map ? read_map(w, field, message) : read_list(w, field, message);
    }
    if (field->quantifier_offset)
        *(protobuf_c_boolean *)(void *)((char *)message + field->quantifier_offset) = 1;
    return read_value(w, field, (char *)message + field->offset);
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *desc, const char *name)
{
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (!strcmp(desc->fields[i].name, name))
            return &desc->fields[i];
    return NULL;
}

static enum spw_status read_message(struct walk *w, ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *desc = message->descriptor;
    uint32_t first_line[FIELDS_MAX_COUNT] = {0};
    enum spw_status status =
        expect(w, YAML_MAPPING_START_EVENT, "a map of keys to values, one 'key: value' a line");
    bool has_key = false;
    while (!status && !(status = next_event(w)) && w->event.type != YAML_MAPPING_END_EVENT) {
        status = check_key(w);
        if (status)
            return status;
        const ProtobufCFieldDescriptor *field = find_field(desc, scalar_text(w));
        if (!field || field - desc->fields >= FIELDS_MAX_COUNT)
            return refuse_unknown(w, desc);
        size_t parent_bytes = path_push_key(w, field->name);
        uint32_t *line = &first_line[field - desc->fields];
        if (*line)
            return refuse_at(w, &w->event.start_mark, "is given twice (first on line %u): remove one", *line);
        *line = (uint32_t)w->event.start_mark.line + 1;
        has_key = true;
        bool is_scalar = field->label != PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE;
        if (!is_scalar && (status = note_place(w, &w->event.start_mark)))
            return status;
        status = next_event(w);
        if (!status)
            status = read_field(w, field, message);
        w->path[parent_bytes] = 0;
    }
    if (!status && !has_key)
        return refuse_at(w, &w->event.start_mark, "is empty: give it a key, or remove it");
    return status;
}

static enum spw_status read_value(struct walk *w, const ProtobufCFieldDescriptor *field, void *slot)
{
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return read_scalar(w, field, slot);
    ProtobufCMessage *message = new_message(field->descriptor);
    if (!message)
        return no_memory(w);
    *(ProtobufCMessage **)slot = message;
    return read_message(w, message);
}

static enum spw_status read_document(struct walk *w, ProtobufCMessage *message)
{
    enum spw_status status = next_event(w); /* stream start */
    if (status || (status = next_event(w)))
        return status;
    if (w->event.type == YAML_STREAM_END_EVENT)
        return refuse_at(w, &w->event.start_mark,
                         "the file is empty: write at least accounts: with one account");
    if ((status = next_event(w)) || (status = read_message(w, message)) || (status = next_event(w)) ||
        (status = next_event(w)))
        return status;
    if (w->event.type != YAML_STREAM_END_EVENT)
        return refuse_at(w, &w->event.start_mark, "a second document begins: keep one document in the file");
    return SPW_STATUS_OK;
}

enum spw_status spw_yaml_read(const char *name, const char *text, size_t bytes,
                              const ProtobufCMessageDescriptor *schema, ProtobufCMessage **out,
                              struct spw_yaml_places *places, struct spw_error *err)
{
    *out = NULL;
    *places = (struct spw_yaml_places){0};
    struct walk w = {.name = name, .places = places, .err = err};
    if (!yaml_parser_initialize(&w.parser))
        return no_memory(&w);
    yaml_parser_set_encoding(&w.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)text, bytes);
    *out = new_message(schema);
    enum spw_status status = *out ? read_document(&w, *out) : no_memory(&w);
    drop_event(&w);
    yaml_parser_delete(&w.parser);
    if (status && *out) {
        protobuf_c_message_free_unpacked(*out, NULL);
        *out = NULL;
    }
    return status;
}
