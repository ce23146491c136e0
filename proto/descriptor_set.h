/* descriptor_set.h: the schemas of the gRPC services as one serialised google.protobuf.FileDescriptorSet.
 *
 * Owns: nothing but constant bytes, put in by the build. Called by: sidecar/control (reflection). Thread: any.
 */
#ifndef SPW_PROTO_DESCRIPTOR_SET_H
#define SPW_PROTO_DESCRIPTOR_SET_H

/* The bytes from the first to before the second. */
extern const unsigned char spw_descriptor_set[];
extern const unsigned char spw_descriptor_set_end[];

#endif
