/* conf_yaml.h: a YAML document walked into a protobuf-c message by its descriptors.
 *
 * Owns: the mapping of YAML to schema, and where in the file each value stood. Called by: conf.c. Thread: any; pure.
 * Knows no field by name: messages, maps, lists, text, whole numbers, booleans and enumerations are enough for it.
 */
#ifndef SPW_CONF_CONF_YAML_H
#define SPW_CONF_CONF_YAML_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

#define SPW_CONF_PATH_BYTES 448u /* the schema's deepest path with the longest names */

struct spw_yaml_place {
    char *path;      /* "accounts.main.limit.rate", "fallback.nexus[2]" */
    uint32_t line;   /* 1-based */
    uint32_t column; /* 1-based */
};

struct spw_yaml_places {
    struct spw_yaml_place *list;
    size_t count;
    size_t room_count;
};

/* On success *out is the message, to be freed by protobuf_c_message_free_unpacked(*out, NULL), and places knows every
 * value of the file. On failure *out is NULL and err names file, line, column, path and remedy. places is cleaned up
 * by the caller in both cases. */
enum spw_status spw_yaml_read(const char *name, const char *text, size_t bytes,
                              const ProtobufCMessageDescriptor *schema, ProtobufCMessage **out,
                              struct spw_yaml_places *places, struct spw_error *err) SPW_WARN_UNUSED;

/* The place of this path or, when the file does not have it, of its nearest ancestor; NULL when there is none. */
const struct spw_yaml_place *spw_yaml_places_find(const struct spw_yaml_places *places, const char *path);
void spw_yaml_places_clean_up(struct spw_yaml_places *places);

#endif
