/* json.h: any message of the control API as JSON.
 *
 * Owns: the mapping. Called by: spillwayctl's command files, the sink. Thread: any; pure.
 *
 * Names are those of control.proto. Absent fields are left out. Whole numbers are numbers, text above 2^63 - 1. Words of
 * enumerations are in lower case without their prefix ("open"). Bytes are hex digits.
 */
#ifndef SPW_MESSAGE_JSON_H
#define SPW_MESSAGE_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "proto/spillway/v1/control.pb-c.h"

json_t *spw_json_of_message(const ProtobufCMessage *message);
/* The same of a flag, with its request opened up, so that it can be asked for by path: a line of an export. */
json_t *spw_json_of_flag(const Spillway__V1__Flag *flag);
/* On stdout, with a line feed, and freed. compact: on one line. */
void spw_json_print(json_t *value, bool compact);
/* The word of an enumeration's value, as in JSON. */
void spw_json_word(const ProtobufCEnumDescriptor *descriptor, int value, char *out, size_t room);

#endif
