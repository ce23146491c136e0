/* profile.c: the table of providers, the path allow-list, and the ends of calls and answers.
 *
 * Owns: the one list of profiles. Called by: http/, conf/. Thread: any; pure.
 */
#include "sidecar/provider/provider.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sidecar/provider/profiles.h"

static const struct spw_profile *const profiles[] = {
    &spw_profile_avatax, &spw_profile_taxjar, &spw_profile_stripe, &spw_profile_taxcloud, &spw_profile_http};
#define PROFILE_NAMES "avatax, taxjar, stripe, taxcloud, http"

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
 * looks encoded, parent-like, or like an authority, query, parameter or fragment is refused whole. */
bool spw_profile_path_is_plain(const char *path)
{
    if (path[0] != '/')
        return false; /* also the absolute form "https://..." and "*" */
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c <= 0x20 || c >= 0x7f || c == '@' || c == '%' || c == '?' || c == '#' || c == '\\' || c == ';')
            return false;
        if (c == '/' && (p[1] == '/' || (p[1] == '.' && (p[2] == '/' || p[2] == 0))))
            return false;
        if (c == '.' && p[1] == '.')
            return false;
    }
    return true;
}

static size_t segment_bytes(const char *text)
{
    return (size_t)(strchrnul(text, '/') - text);
}

static bool segment_is(const char *text, size_t bytes, const char *word)
{
    return bytes == strlen(word) && memcmp(text, word, bytes) == 0;
}

/* pattern "/tax/connections/{connectionId}/carts/ *" against path, segment by segment. */
static bool path_matches(const char *pattern, const char *path, const struct spw_conf_account *account)
{
    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        size_t want = segment_bytes(pattern);
        size_t have = segment_bytes(path);
        if (have == 0)
            return false;
        bool fits;
        if (segment_is(pattern, want, "{connectionId}"))
            fits = segment_is(path, have, account->connection);
        else if (segment_is(pattern, want, "{company}"))
            fits = segment_is(path, have, account->company);
        else
            fits = segment_is(pattern, want, "*") || (have == want && memcmp(path, pattern, have) == 0);
        if (!fits)
            return false;
        pattern += want;
        path += have;
    }
    return *pattern == 0 && *path == 0;
}

/* An account with provider http lists its own routes. What such a request does is not known, so none may be answered
 * from a cache, queued or repeated: all are READ, which is passed or refused. */
static const struct spw_route *configured_route(const struct spw_conf_account *account, const char *method,
                                                const char *path)
{
    static const struct spw_route found[] = {{"GET", "/", SPW_ROUTE_READ},   {"HEAD", "/", SPW_ROUTE_READ},
                                             {"POST", "/", SPW_ROUTE_READ},  {"PUT", "/", SPW_ROUTE_READ},
                                             {"PATCH", "/", SPW_ROUTE_READ}, {"DELETE", "/", SPW_ROUTE_READ}};
    for (uint32_t i = 0; i < account->routes_count && i < SPW_CONF_ROUTES_MAX_COUNT; i++) {
        if (strcmp(account->routes[i].method, method) != 0 ||
            !path_matches(account->routes[i].path, path, account))
            continue;
        for (size_t k = 0; k < sizeof found / sizeof found[0]; k++)
            if (strcmp(found[k].method, method) == 0)
                return &found[k];
    }
    return NULL;
}

const struct spw_route *spw_profile_route(const struct spw_profile *profile,
                                          const struct spw_conf_account *account, const char *method,
                                          const char *path)
{
    if (!profile || !account || !method || !path || !spw_profile_path_is_plain(path))
        return NULL;
    for (size_t i = 0; i < profile->routes_count; i++) {
        const struct spw_route *route = &profile->routes[i];
        if (strcmp(route->method, method) == 0 && path_matches(route->path, path, account))
            return route;
    }
    return profile->is_tax ? NULL : configured_route(account, method, path);
}

bool spw_profile_allows(const struct spw_profile *profile, const struct spw_conf_account *account,
                        const struct spw_call *call)
{
    char path[1024];
    size_t base_bytes = strlen(account->url);
    if (!call->url || strncmp(call->url, account->url, base_bytes) != 0)
        return false;
    const char *rest = call->url + base_bytes;
    size_t bytes = (size_t)(strchrnul(rest, '?') - rest);
    if (bytes >= sizeof path)
        return false;
    memcpy(path, rest, bytes);
    path[bytes] = 0;
    return spw_profile_route(profile, account, call->method, path) != NULL;
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

void spw_answer_clear(struct spw_answer *answer)
{
    memset(answer, 0, offsetof(struct spw_answer, lines));
}

void spw_answer_clean_up(struct spw_answer *answer)
{
    free(answer->error_json);
    answer->error_json = NULL;
}

void spw_native_quote_clean_up(struct spw_native_quote *quote)
{
    free(quote->lines);
    memset(quote, 0, sizeof *quote);
}

void spw_native_answer_clean_up(struct spw_native_answer *answer)
{
    free(answer->body);
    memset(answer, 0, sizeof *answer);
}
