/* json.c: see json.h. */
#include "sidecar/message/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the prefix that a value's name takes from its enumeration: BreakerForce -> BREAKER_FORCE_. */
static size_t prefix_bytes(const ProtobufCEnumDescriptor *descriptor, const char *name)
{
    size_t bytes = 0;
    for (const char *p = descriptor->short_name; *p; p++) {
        if (isupper((unsigned char)*p) && p != descriptor->short_name && name[bytes] == '_')
            bytes++;
        if (name[bytes] != toupper((unsigned char)*p))
            return 0;
        bytes++;
    }
    return name[bytes] == '_' ? bytes + 1 : 0;
}

void spw_json_word(const ProtobufCEnumDescriptor *descriptor, int value, char *out, size_t room)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(descriptor, value);
    if (!found) {
        snprintf(out, room, "%d", value);
        return;
    }
    snprintf(out, room, "%s", found->name + prefix_bytes(descriptor, found->name));
    for (char *p = out; *p; p++)
        *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
}

static json_t *number(uint64_t value)
{
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

static json_t *bytes_value(const ProtobufCBinaryData *bytes)
{
    char *text = calloc(bytes->len, 2);
    for (size_t i = 0; text && i < bytes->len; i++) {
        static const char digits[] = "0123456789abcdef";
        text[2 * i] = digits[bytes->data[i] >> 4];
        text[2 * i + 1] = digits[bytes->data[i] & 15];
    }
    json_t *value = text ? json_stringn(text, 2 * bytes->len) : json_null();
    free(text);
    return value;
}

/* One value of the field, at its place in the message or in a repeated field's list. */
static json_t *value_of(const ProtobufCFieldDescriptor *field, const void *at)
{
    char word[64];
    json_t *text;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_integer(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return number(*(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_real((double)*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_real(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        spw_json_word(field->descriptor, *(const int *)at, word, sizeof word);
        return json_string(word);
    case PROTOBUF_C_TYPE_STRING:
        text = json_string(*(char *const *)at);
        return text ? text : json_null(); /* no UTF-8: the sidecar sends none */
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_value(at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return spw_json_of_message(*(ProtobufCMessage *const *)at);
    }
    return json_null();
}

static size_t size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static bool is_there(const ProtobufCFieldDescriptor *field, const char *base)
{
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)(base + field->offset) != NULL;
    return *(const protobuf_c_boolean *)(base + field->quantifier_offset) != 0;
}

json_t *spw_json_of_message(const ProtobufCMessage *message)
{
    const char *base = (const char *)message;
    json_t *object = json_object();
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count = *(const size_t *)(base + field->quantifier_offset);
            const char *list = *(char *const *)(base + field->offset);
            json_t *array = json_array();
            for (size_t n = 0; n < count; n++)
                json_array_append_new(array, value_of(field, list + n * size_of(field->type)));
            json_object_set_new(object, field->name, array);
        } else if (is_there(field, base)) {
            json_object_set_new(object, field->name, value_of(field, base + field->offset));
        }
    }
    return object;
}

json_t *spw_json_of_flag(const Spillway__V1__Flag *flag)
{
    json_t *object = spw_json_of_message(&flag->base);
    json_t *request =
        flag->request_json ? json_loads(flag->request_json, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (request) {
        json_object_del(object, "request_json");
        json_object_set_new(object, "request", request);
    }
    return object;
}

void spw_json_print(json_t *value, bool compact)
{
    if (!value || json_dumpf(value, stdout, compact ? JSON_COMPACT : JSON_INDENT(2)) < 0)
        fprintf(stderr, "spillwayctl: no memory for the answer\n");
    putchar('\n');
    json_decref(value);
}
