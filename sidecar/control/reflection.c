/* reflection.c: grpc.reflection.v1 and v1alpha, which have the same wire form.
 *
 * Owns: nothing; answers from the schema index. Called by: call.c. Thread: the server's.
 */
#include <string.h>

#include "proto/grpc/reflection/v1/reflection.pb-c.h"
#include "sidecar/control/methods.h"
#include "sidecar/control/server.h"

#define FILES_MAX_COUNT    16u
#define SERVICES_MAX_COUNT 16u

static void respond(struct spw_call *call, Grpc__Reflection__V1__ServerReflectionRequest *request,
                    Grpc__Reflection__V1__ServerReflectionResponse *response)
{
    response->valid_host = request->host;
    response->original_request = request;
    spw_call_send(call, &response->base);
}

static void respond_error(struct spw_call *call, Grpc__Reflection__V1__ServerReflectionRequest *request,
                          grpc_status_code code, char *text)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = (int32_t)code;
    error.error_message = text;
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response.error_response = &error;
    respond(call, request, &response);
}

static void respond_files(struct spw_call *call, Grpc__Reflection__V1__ServerReflectionRequest *request,
                          const struct spw_schema_file *files, size_t count)
{
    static char UNKNOWN[] = "no such file or symbol: list_services names what there is";
    if (!count) {
        respond_error(call, request, GRPC_STATUS_NOT_FOUND, UNKNOWN);
        return;
    }
    ProtobufCBinaryData bytes[FILES_MAX_COUNT];
    for (size_t i = 0; i < count; i++) {
        bytes[i].data = (uint8_t *)files[i].bytes; /* protobuf-c has no const, and only reads */
        bytes[i].len = files[i].bytes_count;
    }
    Grpc__Reflection__V1__FileDescriptorResponse list = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    list.n_file_descriptor_proto = count;
    list.file_descriptor_proto = bytes;
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &list;
    respond(call, request, &response);
}

static void respond_services(struct spw_call *call, Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    Grpc__Reflection__V1__ServiceResponse services[SERVICES_MAX_COUNT];
    Grpc__Reflection__V1__ServiceResponse *pointers[SERVICES_MAX_COUNT];
    size_t count = 0;
    const char *name;
    for (; count < SERVICES_MAX_COUNT && (name = spw_schema_service(call->control->schema, count)); count++) {
        grpc__reflection__v1__service_response__init(&services[count]);
        services[count].name = (char *)name;
        pointers[count] = &services[count];
    }
    Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    list.n_service = count;
    list.service = pointers;
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response.list_services_response = &list;
    respond(call, request, &response);
}

static void on_message(struct spw_call *call, ProtobufCMessage *message)
{
    static char NO_EXTENSIONS[] = "these schemas have no extensions";
    static char NOTHING_ASKED[] = "the request asks for nothing: set one of message_request";
    if (!message) {
        spw_call_finish(call);
        return;
    }
    Grpc__Reflection__V1__ServerReflectionRequest *request =
        (Grpc__Reflection__V1__ServerReflectionRequest *)message;
    struct spw_schema_file files[FILES_MAX_COUNT];
    const struct spw_schema *schema = call->control->schema;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        respond_files(call, request, files,
                      spw_schema_by_name(schema, request->file_by_filename, files, FILES_MAX_COUNT));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        respond_files(call, request, files,
                      spw_schema_by_symbol(schema, request->file_containing_symbol, files, FILES_MAX_COUNT));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        respond_services(call, request);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        respond_error(call, request, GRPC_STATUS_NOT_FOUND, NO_EXTENSIONS);
        break;
    default:
        respond_error(call, request, GRPC_STATUS_INVALID_ARGUMENT, NOTHING_ASKED);
    }
}

void spw_reflection_begin(struct spw_call *call)
{
    call->on_message = on_message;
    call->on_sent = spw_call_receive;
    spw_call_receive(call);
}
