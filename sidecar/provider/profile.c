/* profile.c: the table of providers, the path allow-list, and the ends of calls and answers.
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

/* A path that two servers could read in two ways is no path of ours: the caller has decoded once, so what still
 * looks encoded, parent-like, or like an authority, query or fragment is refused whole. */
static bool path_is_plain(const char *path)
{
    if (path[0] != '/')
        return false; /* also the absolute form "https://..." and "*" */
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c <= 0x20 || c >= 0x7f || strchr("@%?#\\", c))
            return false;
        if (c == '/' && p[1] == '/')
            return false;
        if (c == '.' && p[1] == '.')
            return false;
        if (c == '/' && p[1] == '.' && (p[2] == '/' || p[2] == 0))
            return false;
    }
    return true;
}

static size_t segment_bytes(const char *text)
{
    return strcspn(text, "/");
}

/* pattern "/tax/connections/{connectionId}/carts/ *" against path, segment by segment. */
static bool path_matches(const char *pattern, const char *path, const char *connection)
{
    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        size_t want = segment_bytes(pattern);
        size_t have = segment_bytes(path);
        if (have == 0)
            return false;
        if (want == strlen("{connectionId}") && memcmp(pattern, "{connectionId}", want) == 0) {
            if (have != strlen(connection) || memcmp(path, connection, have) != 0)
                return false;
        } else if (!(want == 1 && *pattern == '*')) {
            if (have != want || memcmp(path, pattern, have) != 0)
                return false;
        }
        pattern += want;
        path += have;
    }
    return *pattern == 0 && *path == 0;
}

const struct spw_route *spw_profile_route(const struct spw_profile *profile,
                                          const struct spw_conf_account *account, const char *method,
                                          const char *path)
{
    if (!profile || !account || !method || !path || !path_is_plain(path))
        return NULL;
    for (size_t i = 0; i < profile->routes_count; i++) {
        const struct spw_route *route = &profile->routes[i];
        if (strcmp(route->method, method) == 0 && path_matches(route->path, path, account->connection))
            return route;
    }
    return NULL;
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

void spw_native_quote_clean_up(struct spw_native_quote *quote)
{
    free(quote->lines);
    free(quote->texts);
    memset(quote, 0, sizeof *quote);
}

void spw_native_answer_clean_up(struct spw_native_answer *answer)
{
    free(answer->body);
    memset(answer, 0, sizeof *answer);
}
