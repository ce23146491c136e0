/* profile.c: the table of providers, and the ends of calls and answers.
 *
 * Owns: the one list of profiles. Called by: http/, conf/. Thread: any; pure.
 */
#include "sidecar/provider/provider.h"

#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/taxcloud.h"

static const struct spw_profile *const profiles[] = {&spw_profile_taxcloud};
#define PROFILE_NAMES "taxcloud"

const struct spw_profile *spw_profile_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof profiles / sizeof profiles[0]; i++)
        if (strcmp(profiles[i]->name, name) == 0)
            return profiles[i];
    return NULL;
}

const char *spw_profile_names(void)
{
    return PROFILE_NAMES;
}

void spw_call_clean_up(struct spw_call *call)
{
    free(call->url);
    for (size_t i = 0; i < call->header_count; i++) {
        explicit_bzero(call->headers[i], strlen(call->headers[i])); /* one of them is the credential */
        free(call->headers[i]);
    }
    free(call->body);
    memset(call, 0, sizeof *call);
}

void spw_answer_clean_up(struct spw_answer *answer)
{
    free(answer->error_json);
    answer->error_json = NULL;
}
