/* schema.c: the schemas of what is served, indexed for reflection. See schema.h.
 *
 * The set is walked by its wire form with the few field numbers needed (google/protobuf/descriptor.proto); protobuf-c
 * has no ready-made structs for it. The bytes are ours, but a walk never reads past them all the same.
 */
#include "sidecar/control/schema.h"

#include <grpc/support/alloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/descriptor_set.h"

#define FILES_MAX_COUNT    16u
#define SYMBOLS_MAX_COUNT  1024u
#define SERVICES_MAX_COUNT 16u
#define NAME_MAX_BYTES     160u

/* Field numbers of descriptor.proto. */
enum { SET_FILE = 1 };
enum {
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6
};
enum { ANY_NAME = 1 };
enum { MESSAGE_FIELD = 2, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, MESSAGE_ONEOF = 8 };
enum { ENUM_VALUE = 2 };
enum { SERVICE_METHOD = 2 };

struct view {
    const uint8_t *at, *end;
};

struct file {
    struct spw_schema_file raw;
    struct view name, package;
};

struct symbol {
    char *name;
    size_t file;
};

struct spw_schema {
    size_t files_count, symbols_count, services_count;
    struct file files[FILES_MAX_COUNT];
    struct symbol symbols[SYMBOLS_MAX_COUNT];
    const char *services[SERVICES_MAX_COUNT];
};

static bool read_varint(struct view *v, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; v->at < v->end && shift < 64; shift += 7) {
        uint8_t byte = *v->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return true;
    }
    return false;
}

/* The next field. Only length-delimited ones have a value here; others are passed over with an empty one. */
static bool read_field(struct view *v, uint32_t *number, struct view *value)
{
    uint64_t tag, bytes = 0;
    if (v->at >= v->end || !read_varint(v, &tag))
        return false;
    *number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0:
        if (!read_varint(v, &bytes))
            return false;
        bytes = 0;
        break;
    case 1:
        bytes = 8;
        break;
    case 2:
        if (!read_varint(v, &bytes))
            return false;
        break;
    case 5:
        bytes = 4;
        break;
    default:
        return false;
    }
    if (bytes > (uint64_t)(v->end - v->at))
        return false;
    *value = (struct view){v->at, (tag & 7) == 2 ? v->at + bytes : v->at};
    v->at += bytes;
    return true;
}

static struct view field_of(struct view v, uint32_t wanted)
{
    uint32_t number;
    struct view value;
    while (read_field(&v, &number, &value)) {
        if (number == wanted)
            return value;
    }
    return (struct view){NULL, NULL};
}

static bool view_is(struct view v, const char *text)
{
    size_t bytes = strlen(text);
    return v.at && (size_t)(v.end - v.at) == bytes && memcmp(v.at, text, bytes) == 0;
}

/* Enters scope.name; NULL when a table is full. */
static const char *add_symbol(struct spw_schema *schema, size_t file, const char *scope, struct view name)
{
    if (schema->symbols_count == SYMBOLS_MAX_COUNT || !name.at)
        return NULL;
    char full[NAME_MAX_BYTES];
    int bytes = snprintf(full, sizeof full, "%s%s%.*s", scope, *scope ? "." : "", (int)(name.end - name.at),
                         (const char *)name.at);
    if (bytes < 0 || (size_t)bytes >= sizeof full)
        return NULL;
    char *copy = gpr_zalloc((size_t)bytes + 1);
    memcpy(copy, full, (size_t)bytes);
    schema->symbols[schema->symbols_count++] = (struct symbol){copy, file};
    return copy;
}

static bool add_members(struct spw_schema *schema, size_t file, const char *scope, struct view body,
                        uint32_t wanted)
{
    uint32_t number;
    struct view value;
    while (read_field(&body, &number, &value)) {
        if (number == wanted && !add_symbol(schema, file, scope, field_of(value, ANY_NAME)))
            return false;
    }
    return true;
}

/* Values of an enumeration are siblings of it. */
static bool add_enum(struct spw_schema *schema, size_t file, const char *scope, struct view body)
{
    return add_symbol(schema, file, scope, field_of(body, ANY_NAME)) &&
           add_members(schema, file, scope, body, ENUM_VALUE);
}

static bool add_message(struct spw_schema *schema, size_t file, const char *scope, struct view body)
{
    const char *name = add_symbol(schema, file, scope, field_of(body, ANY_NAME));
    if (!name || !add_members(schema, file, name, body, MESSAGE_FIELD) ||
        !add_members(schema, file, name, body, MESSAGE_ONEOF))
        return false;
    uint32_t number;
    struct view value;
    while (read_field(&body, &number, &value)) {
        if ((number == MESSAGE_NESTED && !add_message(schema, file, name, value)) ||
            (number == MESSAGE_ENUM && !add_enum(schema, file, name, value)))
            return false;
    }
    return true;
}

static bool add_service(struct spw_schema *schema, size_t file, const char *scope, struct view body)
{
    const char *name = add_symbol(schema, file, scope, field_of(body, ANY_NAME));
    if (!name || schema->services_count == SERVICES_MAX_COUNT)
        return false;
    schema->services[schema->services_count++] = name;
    return add_members(schema, file, name, body, SERVICE_METHOD);
}

static bool add_file(struct spw_schema *schema, struct view body)
{
    if (schema->files_count == FILES_MAX_COUNT)
        return false;
    size_t index = schema->files_count++;
    struct file *file = &schema->files[index];
    file->raw = (struct spw_schema_file){body.at, (size_t)(body.end - body.at)};
    file->name = field_of(body, FILE_NAME);
    file->package = field_of(body, FILE_PACKAGE);
    char scope[NAME_MAX_BYTES] = "";
    if (file->package.at)
        snprintf(scope, sizeof scope, "%.*s", (int)(file->package.end - file->package.at),
                 (const char *)file->package.at);
    uint32_t number;
    struct view value;
    while (read_field(&body, &number, &value)) {
        if ((number == FILE_MESSAGE && !add_message(schema, index, scope, value)) ||
            (number == FILE_ENUM && !add_enum(schema, index, scope, value)) ||
            (number == FILE_SERVICE && !add_service(schema, index, scope, value)))
            return false;
    }
    return body.at == body.end;
}

enum spw_status spw_schema_new(struct spw_schema **out, struct spw_error *err)
{
    struct spw_schema *schema = gpr_zalloc(sizeof *schema);
    struct view set = {spw_descriptor_set, spw_descriptor_set_end};
    uint32_t number;
    struct view value;
    bool good = true;
    while (good && read_field(&set, &number, &value))
        good = number != SET_FILE || add_file(schema, value);
    if (!good || set.at != set.end || !schema->files_count) {
        spw_schema_destroy(schema);
        return spw_error_set(
            err, SPW_STATUS_CORRUPT,
            "the schemas built into this program cannot be indexed: build it again, and raise the "
            "limits in sidecar/control/schema.c if schemas were added");
    }
    *out = schema;
    return SPW_STATUS_OK;
}

void spw_schema_destroy(struct spw_schema *schema)
{
    if (!schema)
        return;
    for (size_t i = 0; i < schema->symbols_count; i++)
        gpr_free(schema->symbols[i].name);
    gpr_free(schema);
}

/* The file and, behind it, what it imports and is not there yet. */
static size_t with_imports(const struct spw_schema *schema, size_t index, struct spw_schema_file *out,
                           size_t room, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (out[i].bytes == schema->files[index].raw.bytes)
            return count;
    }
    if (count == room)
        return count;
    out[count++] = schema->files[index].raw;
    struct view body = {schema->files[index].raw.bytes,
                        schema->files[index].raw.bytes + schema->files[index].raw.bytes_count};
    uint32_t number;
    struct view value;
    while (read_field(&body, &number, &value)) {
        for (size_t i = 0; number == FILE_DEPENDENCY && i < schema->files_count; i++) {
            struct view name = schema->files[i].name;
            if (name.end - name.at == value.end - value.at &&
                memcmp(name.at, value.at, (size_t)(name.end - name.at)) == 0)
                count = with_imports(schema, i, out, room, count);
        }
    }
    return count;
}

size_t spw_schema_by_name(const struct spw_schema *schema, const char *name, struct spw_schema_file *out,
                          size_t room)
{
    for (size_t i = 0; i < schema->files_count; i++) {
        if (view_is(schema->files[i].name, name))
            return with_imports(schema, i, out, room, 0);
    }
    return 0;
}

size_t spw_schema_by_symbol(const struct spw_schema *schema, const char *symbol, struct spw_schema_file *out,
                            size_t room)
{
    for (size_t i = 0; i < schema->symbols_count; i++) {
        if (strcmp(schema->symbols[i].name, symbol) == 0)
            return with_imports(schema, schema->symbols[i].file, out, room, 0);
    }
    return 0;
}

const char *spw_schema_service(const struct spw_schema *schema, size_t i)
{
    return i < schema->services_count ? schema->services[i] : NULL;
}
