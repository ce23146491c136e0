/* config.c: spillwayctl config show | diff: the configuration in force, and what another file would change.
 *
 * Owns: nothing. Called by: main.c. Thread: one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/spillway/v1/control.pb-c.h"
#include "sidecar/ctl/client.h"
#include "sidecar/ctl/table.h"
#include "sidecar/message/json.h"

#define FILE_MAX_BYTES ((size_t)1 << 20)

static const char *from(const Spillway__V1__ConfigValue *value)
{
    static const char *const words[] = {"", "file", "overlay", "runtime"};
    return (unsigned)value->origin < sizeof words / sizeof *words ? words[value->origin] : "";
}

static int run_show(struct spw_ctl *ctl)
{
    static const char *const titles[] = {"SETTING", "IN FORCE", "FROM", "FILE"};
    Spillway__V1__ShowConfigRequest request = SPILLWAY__V1__SHOW_CONFIG_REQUEST__INIT;
    ProtobufCMessage *message;
    int code = spw_client_unary(ctl, "/spillway.v1.Configuration/Show", &request.base,
                                &spillway__v1__show_config_reply__descriptor, &message);
    if (code)
        return code;
    const Spillway__V1__ShowConfigReply *reply = (const Spillway__V1__ShowConfigReply *)message;
    if (ctl->json) {
        spw_json_print(spw_json_of_message(message), false);
    } else {
        struct spw_table table = {.columns_count = 4, .titles = titles};
        for (size_t i = 0; i < reply->n_values; i++) {
            const Spillway__V1__ConfigValue *value = reply->values[i];
            spw_table_add(&table, "%s", value->path ? value->path : "");
            spw_table_add(&table, "%s", value->value ? value->value : "");
            spw_table_add(&table, "%s", from(value));
            spw_table_add(&table, "%s", value->file_value ? value->file_value : "");
        }
        spw_table_print(&table);
        if (reply->last_error)
            printf("\nThe last reload was refused: %s\n", reply->last_error);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return SPW_CTL_OK;
}

static int read_file(const struct spw_ctl *ctl, const char *path, Spillway__V1__DiffConfigRequest *request)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s: cannot be opened: %s", path, strerror(errno));
    request->text.data = malloc(FILE_MAX_BYTES + 1);
    if (request->text.data)
        request->text.len = fread(request->text.data, 1, FILE_MAX_BYTES + 1, file);
    bool failed = ferror(file) || !request->text.data || request->text.len > FILE_MAX_BYTES;
    fclose(file);
    if (!failed)
        return SPW_CTL_OK;
    free(request->text.data);
    return spw_ctl_fail(ctl, SPW_CTL_REFUSED, "%s: cannot be read, or is larger than 1 MiB", path);
}

static int print_changes(const Spillway__V1__DiffConfigReply *reply)
{
    static const char *const titles[] = {"LINE", "SETTING", "IN FORCE", "FILE", "HOW"};
    struct spw_table table = {.columns_count = 5, .titles = titles};
    if (!reply->n_changes) {
        printf("A reload would change nothing.\n");
        return SPW_CTL_OK;
    }
    for (size_t i = 0; i < reply->n_changes; i++) {
        const Spillway__V1__ConfigChange *change = reply->changes[i];
        if (change->has_line)
            spw_table_add(&table, "%u", change->line);
        else
            spw_table_add(&table, "-");
        spw_table_add(&table, "%s", change->path ? change->path : "");
        spw_table_add(&table, "%s", change->before ? change->before : "");
        spw_table_add(&table, "%s", change->after ? change->after : "");
        spw_table_add(&table, "%s", change->restart ? "restart" : "in place");
    }
    spw_table_print(&table);
    for (size_t i = 0; i < reply->n_changes; i++)
        if (reply->changes[i]->restart)
            printf("%s: %s\n", reply->changes[i]->path, reply->changes[i]->restart);
    if (reply->needs_restart)
        printf("A reload of this file would be refused whole: restart the sidecar with it.\n");
    return SPW_CTL_OK;
}

static int run_diff(struct spw_ctl *ctl)
{
    Spillway__V1__DiffConfigRequest request = SPILLWAY__V1__DIFF_CONFIG_REQUEST__INIT;
    ProtobufCMessage *message;
    int code = read_file(ctl, ctl->arguments[0], &request);
    if (code)
        return code;
    request.has_text = true;
    request.name = ctl->arguments[0];
    code = spw_client_unary(ctl, "/spillway.v1.Configuration/Diff", &request.base,
                            &spillway__v1__diff_config_reply__descriptor, &message);
    free(request.text.data);
    if (code)
        return code;
    if (ctl->json)
        spw_json_print(spw_json_of_message(message), false);
    else
        code = print_changes((const Spillway__V1__DiffConfigReply *)message);
    protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

const struct spw_ctl_command spw_ctl_config_commands[] = {
    {.group = "config",
     .name = "show",
     .arguments = "",
     .summary = "Every setting in force, where it is from (file, overlay = kept by --persist, runtime), and "
                "the file's own.",
     .examples = "  spillwayctl config show\n",
     .run = run_show},
    {.group = "config",
     .name = "diff",
     .arguments = "FILE",
     .summary = "What a reload of FILE would change, and what of it needs a restart. Changes nothing.",
     .examples = "  spillwayctl config diff /etc/spillway/spillway.yaml\n",
     .arguments_min = 1,
     .arguments_max = 1,
     .run = run_diff},
    {.name = NULL}};
