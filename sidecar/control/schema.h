/* schema.h: the schemas of what is served, indexed for reflection. Internal to control/.
 *
 * Owns: the index over the embedded FileDescriptorSet (proto/descriptor_set.h). Called by: server.c, reflection.c.
 * Thread: any; immutable once made.
 */
#ifndef SPW_CONTROL_SCHEMA_H
#define SPW_CONTROL_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include "sidecar/obs/error.h"

struct spw_schema;

/* A serialised FileDescriptorProto, as it lies. */
struct spw_schema_file {
    const uint8_t *bytes;
    size_t bytes_count;
};

enum spw_status spw_schema_new(struct spw_schema **out, struct spw_error *err) SPW_WARN_UNUSED;
void spw_schema_destroy(struct spw_schema *schema);

/* The file of that name or holding that symbol (full name of a service, method, message, field, enumeration or value),
 * followed by all it imports, each once. 0 = there is none; never more than room. */
size_t spw_schema_by_name(const struct spw_schema *schema, const char *name, struct spw_schema_file *out,
                          size_t room);
size_t spw_schema_by_symbol(const struct spw_schema *schema, const char *symbol, struct spw_schema_file *out,
                            size_t room);

/* Full name of the i-th service, NULL after the last. */
const char *spw_schema_service(const struct spw_schema *schema, size_t i);

#endif
