/* conf_account.c: the rules of one account: provider, url, secrets, limit, breaker, integrations.
 *
 * Owns: spw_check_account. Called by: conf_check.c. Thread: any. Values of credentials never get into an error text,
 * nor does a url that may hold a password.
 */
#include "sidecar/conf/conf_check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sidecar/conf/conf_text.h"
#include "sidecar/provider/provider.h"

#define HEADER_BUFFER_MAX_PPM 500000u
#define BATCH_RESERVE_MAX_PPM 900000u
#define CONCURRENCY_MAX       256u
#define DEADLINE_MIN_MS       100u
#define DEADLINE_MAX_MS       10000u
#define COOLDOWN_SEPARATOR    ".."

/* --- url ---------------------------------------------------------------------------------------------------- */

/* host[:port] with nothing after it; a v6 address stands in brackets. */
bool spw_is_authority(const char *text)
{
    static const char DIGITS[] = "0123456789";
    static const char HOST[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    size_t host_bytes;
    if (text[0] == '[') {
        host_bytes = 1 + strspn(text + 1, "0123456789abcdefABCDEF:.");
        if (host_bytes == 1 || text[host_bytes] != ']')
            return false;
        host_bytes++;
    } else {
        host_bytes = strspn(text, HOST);
        if (!host_bytes || text[0] == '.' || text[0] == '-')
            return false;
    }
    const char *rest = text + host_bytes;
    if (!*rest)
        return true;
    size_t digits_count = strspn(rest + 1, DIGITS);
    if (*rest != ':' || !digits_count || digits_count > 5 || rest[1 + digits_count] || rest[1] == '0')
        return false;
    return strtoul(rest + 1, NULL, 10) <= UINT16_MAX;
}

static enum spw_status check_url(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                 struct spw_conf_account *out)
{
    const char *url = in->url ? in->url : out->url;
    if (!url[0])
        return spw_check_fault(c, "url", "is missing: provider %s has none of its own", out->provider);
    out->allow_plain_http = in->has_allow_plain_http && in->allow_plain_http;
    bool https = !strncmp(url, "https://", 8), http = !strncmp(url, "http://", 7);
    if (!https && !http)
        return spw_check_fault(c, "url", "must begin with https://");
    if (http && !out->allow_plain_http)
        return spw_check_fault(
            c, "url",
            "is http://, so the credentials would travel unencrypted: write https://, or set "
            "allow_plain_http: true for a test provider");
    if (https && out->allow_plain_http)
        return spw_check_fault(c, "allow_plain_http", "does nothing with an https:// url: remove it");
    if (!spw_is_authority(url + (https ? 8 : 7)))
        return spw_check_fault(
            c, "url",
            "must be a scheme and host[:port] alone, as https://api.example.com: no user name, path, "
            "query or '/' at the end");
    enum spw_status status = spw_check_text(c, "url", in->url, out->url, sizeof out->url);
    if (!status)
        status = spw_check_path(c, "ca_file", in->ca_file, out->ca_file, sizeof out->ca_file);
    if (status || !in->ca_file)
        return status;
    if (http)
        return spw_check_fault(c, "ca_file", "does nothing with an http:// url: remove it");
    return spw_check_pem(c, "ca_file", out->ca_file, "CERTIFICATE");
}

/* --- provider ----------------------------------------------------------------------------------------------- */

/* A provider whose paths hold a connection's id cannot be called without one. */
static bool needs_connection(const struct spw_profile *profile)
{
    for (size_t i = 0; i < profile->routes_count; i++)
        if (strstr(profile->routes[i].path, "{connectionId}"))
            return true;
    return false;
}

static enum spw_status check_connection(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                        const struct spw_profile *profile, struct spw_conf_account *out)
{
    bool needed = needs_connection(profile);
    if (needed && !in->connection)
        return spw_check_fault(c, "connection",
                               "is missing: copy the connection's id from the provider's settings");
    if (!needed && in->connection)
        return spw_check_fault(c, "connection", "is not used by provider %s: remove it", out->provider);
    if (needed && strchr(in->connection, '.'))
        return spw_check_fault(c, "connection", "is no connection id: write letters, digits, '-' and '_'");
    return spw_check_name(c, "connection", in->connection, out->connection, sizeof out->connection);
}

static enum spw_status check_company(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                     const struct spw_profile *profile, struct spw_conf_account *out)
{
    if (profile->has_company && !in->company)
        return spw_check_fault(c, "company",
                               "is missing: write the company code, as the provider's settings show it");
    if (!profile->has_company && in->company)
        return spw_check_fault(c, "company", "is not used by provider %s: remove it", out->provider);
    return spw_check_name(c, "company", in->company, out->company, sizeof out->company);
}

/* "POST /v1/charges" */
static enum spw_status read_route(struct spw_check *c, const char *field, const char *text,
                                  struct spw_conf_route *out)
{
    static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
    const char *blank = strchr(text, ' ');
    size_t bytes = blank ? (size_t)(blank - text) : 0;
    for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
        if (bytes && bytes == strlen(METHODS[i]) && memcmp(text, METHODS[i], bytes) == 0)
            memcpy(out->method, text, bytes + 1);
    if (!blank || !out->method[0])
        return spw_check_fault(
            c, field,
            "must begin with GET, HEAD, POST, PUT, PATCH or DELETE and one blank: write it as POST "
            "/v1/charges");
    out->method[bytes] = 0;
    const char *path = blank + 1;
    if (!spw_profile_path_is_plain(path))
        return spw_check_fault(
            c, field,
            "has a path that is not plain: begin with '/', no query, no '..', no '%%'; a segment * stands "
            "for any one segment");
    if (strlen(path) >= sizeof out->path)
        return spw_check_fault(c, field, "has a path of %zu bytes: at most %zu", strlen(path),
                               sizeof out->path - 1);
    memcpy(out->path, path, strlen(path) + 1);
    return SPW_STATUS_OK;
}

/* A header's name, or a name and a scheme: "Authorization: Bearer". */
static enum spw_status check_credential_header(struct spw_check *c, const char *text,
                                               struct spw_conf_account *out)
{
    static const char TOKEN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    if (!text)
        return SPW_STATUS_OK;
    size_t bytes = strspn(text, TOKEN);
    const char *rest = text + bytes;
    if (rest[0] == ':' && rest[1] == ' ' && rest[2])
        rest += 2 + strspn(rest + 2, TOKEN);
    if (!bytes || *rest)
        return spw_check_fault(
            c, "credential_header",
            "is no header: write a name, as X-API-Key, or a name and a scheme, as Authorization: Bearer");
    return spw_check_text(c, "credential_header", text, out->credential_header,
                          sizeof out->credential_header);
}

/* What only provider http has: its requests are not known beforehand. */
static enum spw_status check_routes(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                    const struct spw_profile *profile, struct spw_conf_account *out)
{
    if (profile->is_tax && in->n_routes)
        return spw_check_fault(c, "routes", "belongs to provider http; %s has its own: remove it",
                               out->provider);
    if (profile->is_tax && in->credential_header)
        return spw_check_fault(c, "credential_header", "belongs to provider http; %s has its own: remove it",
                               out->provider);
    if (profile->is_tax)
        return SPW_STATUS_OK;
    if (!in->n_routes)
        return spw_check_fault(c, "routes",
                               "is missing: list what the credential may be used for, as [POST /v1/charges]");
    if (in->n_routes > SPW_CONF_ROUTES_MAX_COUNT)
        return spw_check_fault(c, "routes", "has %zu entries: at most %u", in->n_routes,
                               SPW_CONF_ROUTES_MAX_COUNT);
    for (size_t i = 0; i < in->n_routes; i++) {
        char field[32];
        snprintf(field, sizeof field, "routes[%zu]", i);
        enum spw_status status = read_route(c, field, in->routes[i], &out->routes[i]);
        if (status)
            return status;
        out->routes_count++;
    }
    return check_credential_header(c, in->credential_header, out);
}

/* Also takes over the profile's url, which the account's own replaces. */
static enum spw_status check_provider(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                      struct spw_conf_account *out)
{
    if (!in->provider)
        return spw_check_fault(c, "provider", "is missing: write one of %s", spw_profile_names());
    enum spw_status status = spw_check_name(c, "provider", in->provider, out->provider, sizeof out->provider);
    if (status)
        return status;
    const struct spw_profile *profile = spw_profile_find(out->provider);
    if (!profile) {
        char shown[SPW_SHOWN_BYTES];
        return spw_check_fault(c, "provider", "%s is not known: write one of %s",
                               spw_text_show(out->provider, strlen(out->provider), shown),
                               spw_profile_names());
    }
    status = check_connection(c, in, profile, out);
    if (!status)
        status = check_company(c, in, profile, out);
    if (!status)
        status = check_routes(c, in, profile, out);
    return status ? status : spw_check_text(c, "url", profile->default_url, out->url, sizeof out->url);
}

/* --- secrets ------------------------------------------------------------------------------------------------ */

static bool is_variable_name(const char *text)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return text[0] && !(text[0] >= '0' && text[0] <= '9') && strspn(text, LETTERS) == strlen(text);
}

size_t spw_conf_secret_bytes(const char *bytes, size_t count)
{
    while (count > 0 && (bytes[count - 1] == '\n' || bytes[count - 1] == '\r'))
        count--;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return 0;
    }
    return count <= SPW_CONF_SECRET_MAX_BYTES ? count : 0;
}

static enum spw_status check_secret_bytes(struct spw_check *c, const char *field, const char *bytes,
                                          size_t count)
{
    if (spw_conf_secret_bytes(bytes, count))
        return SPW_STATUS_OK;
    return spw_check_fault(c, field,
                           "holds no key: store the key alone, on one line, without blanks, at most %u bytes",
                           SPW_CONF_SECRET_MAX_BYTES);
}

/* The names of the two keys that may tell a secret, and what they say. */
struct secret_keys {
    const char *file_field, *env_field;
    const char *file, *env;
};

static enum spw_status check_secret_file(struct spw_check *c, const char *field, const char *file)
{
    char bytes[SPW_CONF_SECRET_MAX_BYTES + 3]; /* a line's end may follow */
    enum spw_status status = spw_check_readable(c, field, file);
    if (status || !c->references)
        return status;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    if (fd >= 0)
        close(fd);
    status = check_secret_bytes(c, field, bytes, count > 0 ? (size_t)count : 0);
    explicit_bzero(bytes, sizeof bytes);
    return status;
}

static enum spw_status check_secret(struct spw_check *c, const struct secret_keys *in,
                                    struct spw_conf_secret *out)
{
    if (in->file && in->env)
        return spw_check_fault(c, "credentials", "names both %s and %s: keep one",
                               in->file_field + strlen("credentials."),
                               in->env_field + strlen("credentials."));
    if (in->file) {
        enum spw_status status = spw_check_path(c, in->file_field, in->file, out->file, sizeof out->file);
        return status ? status : check_secret_file(c, in->file_field, out->file);
    }
    if (!is_variable_name(in->env))
        return spw_check_fault(c, in->env_field,
                               "is no name of an environment variable: write its name, never the key itself");
    enum spw_status status = spw_check_text(c, in->env_field, in->env, out->env, sizeof out->env);
    if (status || !c->references)
        return status;
    const char *value = getenv(out->env);
    if (!value || !value[0])
        return spw_check_fault(
            c, in->env_field,
            "names an environment variable that is not set: set it in the sidecar's container");
    size_t count = strlen(value); /* a variable's value is used as it is: a line's end in it is a fault */
    bool whole = spw_conf_secret_bytes(value, count) == count;
    return check_secret_bytes(c, in->env_field, value, whole ? count : 0);
}

/* One key, or where the provider has two parts a user name and a password. */
static enum spw_status check_credentials(struct spw_check *c, const Spillway__V1__CredentialsConfig *in,
                                         const struct spw_profile *profile, struct spw_conf_account *out)
{
    if (!in)
        return spw_check_fault(c, "credentials",
                               profile->has_user
                                   ? "is missing: write {username_file: /path, password_file: /path}, or "
                                     "{api_key_file: /path} for a bearer token"
                                   : "is missing: write {api_key_file: /path} or {api_key_env: NAME}");
    struct secret_keys key = {"credentials.api_key_file", "credentials.api_key_env", in->api_key_file,
                              in->api_key_env};
    struct secret_keys user = {"credentials.username_file", "credentials.username_env", in->username_file,
                               in->username_env};
    struct secret_keys password = {"credentials.password_file", "credentials.password_env", in->password_file,
                                   in->password_env};
    bool has_key = key.file || key.env, has_user = user.file || user.env,
         has_password = password.file || password.env;
    if ((has_user || has_password) && !profile->has_user)
        return spw_check_fault(c, "credentials",
                               "has a user name or password: provider %s takes {api_key_file: /path} alone",
                               out->provider);
    if (has_key && (has_user || has_password))
        return spw_check_fault(c, "credentials", "has a key and a user name or password: keep one kind");
    if (!has_key && !has_user && !has_password)
        return spw_check_fault(c, "credentials", "is empty: name the file or variable with the secret");
    if (has_user != has_password)
        return spw_check_fault(c, "credentials", "has %s alone: a user name and a password belong together",
                               has_user ? "a user name" : "a password");
    if (has_key)
        return check_secret(c, &key, &out->api_key);
    enum spw_status status = check_secret(c, &user, &out->user);
    return status ? status : check_secret(c, &password, &out->api_key);
}

static void take_rate_headers(const Spillway__V1__RateHeadersConfig *in, struct spw_conf_account *out)
{
    static const enum spw_reset_unit UNITS[] = {SPW_RESET_AUTO,     SPW_RESET_AUTO,    SPW_RESET_DELTA_S,
                                                SPW_RESET_DELTA_MS, SPW_RESET_EPOCH_S, SPW_RESET_EPOCH_MS};
    out->reset_unit = UNITS[in && in->has_reset_unit ? in->reset_unit : 0];
}

/* --- breaker ------------------------------------------------------------------------------------------------ */

static enum spw_status check_cooldown(struct spw_check *c, const char *text, struct spw_conf_breaker *out)
{
    if (!text)
        return SPW_STATUS_OK;
    char from[SPW_SHOWN_BYTES];
    const char *separator = strstr(text, COOLDOWN_SEPARATOR);
    size_t bytes = separator ? (size_t)(separator - text) : strlen(text);
    if (bytes >= sizeof from)
        return spw_check_fault(c, "breaker.cooldown", "is no duration: write two, as 30s..60s");
    memcpy(from, text, bytes);
    from[bytes] = 0;
    const char *to = separator ? separator + strlen(COOLDOWN_SEPARATOR) : from;
    enum spw_status status =
        spw_check_duration(c, "breaker.cooldown", from, 0, UINT32_MAX, &out->cooldown_min_ms);
    return status ? status
                  : spw_check_duration(c, "breaker.cooldown", to, 0, UINT32_MAX, &out->cooldown_max_ms);
}

static enum spw_status check_breaker(struct spw_check *c, const Spillway__V1__BreakerConfig *in,
                                     struct spw_conf_breaker *out)
{
    *out = (struct spw_conf_breaker){.consecutive_429_count = 5,
                                     .ratio_429_ppm = 200000,
                                     .minimum_count = 20,
                                     .window_ms = 10000,
                                     .cooldown_min_ms = 30000,
                                     .cooldown_max_ms = 60000,
                                     .mode = SPW_BREAKER_ENFORCE};
    if (!in)
        return SPW_STATUS_OK;
    if (in->has_consecutive_429)
        out->consecutive_429_count = in->consecutive_429;
    if (in->has_minimum)
        out->minimum_count = in->minimum;
    if (in->has_mode && in->mode == SPILLWAY__V1__BREAKER_CONFIG__MODE__MODE_OBSERVE)
        out->mode = SPW_BREAKER_OBSERVE;
    if (in->has_mode && in->mode == SPILLWAY__V1__BREAKER_CONFIG__MODE__MODE_DISABLED)
        out->mode = SPW_BREAKER_DISABLED;
    enum spw_status status =
        spw_check_percent(c, "breaker.ratio_429", in->ratio_429, 1000000, &out->ratio_429_ppm);
    if (!status)
        status = spw_check_duration(c, "breaker.window", in->window, 0, UINT32_MAX, &out->window_ms);
    if (!status)
        status = check_cooldown(c, in->cooldown, out);
    if (status)
        return status;
    const char *field = "";
    status = spw_breaker_check(out, &field, c->err);
    if (!status)
        return status;
    char path[64];
    snprintf(path, sizeof path, "breaker.%s", field);
    return spw_check_place(c, path, status);
}

/* --- integrations and the whole ----------------------------------------------------------------------------- */

static enum spw_status check_integrations(struct spw_check *c, const Spillway__V1__AccountConfig *in,
                                          struct spw_conf_account *out)
{
    if (in->n_integrations > SPW_CONF_INTEGRATIONS_MAX_COUNT)
        return spw_check_fault(c, "integrations", "has %zu entries: at most %u over all accounts",
                               in->n_integrations, SPW_CONF_INTEGRATIONS_MAX_COUNT);
    if (!in->n_integrations) {
        out->integrations[0] = (struct spw_conf_integration){.name = "default", .class_ = SPW_CLASS_CHECKOUT};
        out->integrations_count = 1;
        return SPW_STATUS_OK;
    }
    for (size_t i = 0; i < in->n_integrations; i++) {
        const Spillway__V1__AccountConfig__IntegrationsEntry *entry = in->integrations[i];
        struct spw_conf_integration *integration = &out->integrations[i];
        char field[SPW_CONF_PATH_BYTES];
        snprintf(field, sizeof field, "integrations.%s", entry->key);
        enum spw_status status =
            spw_check_name(c, field, entry->key, integration->name, sizeof integration->name);
        if (status)
            return status;
        integration->class_ = entry->value == SPILLWAY__V1__ACCOUNT_CONFIG__CLASS__CLASS_BATCH
                                  ? SPW_CLASS_BATCH
                                  : SPW_CLASS_CHECKOUT;
        out->integrations_count++;
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_check_account(struct spw_check *c, const char *name,
                                  const Spillway__V1__AccountConfig *in, struct spw_conf_account *out)
{
    snprintf(c->base, sizeof c->base, "accounts.%s", name);
    enum spw_status status = spw_check_name(c, "", name, out->name, sizeof out->name);
    out->header_buffer_ppm = 150000;
    out->batch_reserve_ppm = 100000;
    out->deadline_ms = 1800;
    if (!status)
        status = check_provider(c, in, out);
    if (!status)
        status = check_url(c, in, out);
    if (!status)
        status = check_credentials(c, in->credentials, spw_profile_find(out->provider), out);
    if (!status)
        status = spw_check_limit(c, in->limit, out);
    if (!status)
        status = spw_check_percent(c, "header_buffer", in->header_buffer, HEADER_BUFFER_MAX_PPM,
                                   &out->header_buffer_ppm);
    if (!status)
        status = spw_check_percent(c, "batch_reserve", in->batch_reserve, BATCH_RESERVE_MAX_PPM,
                                   &out->batch_reserve_ppm);
    if (!status)
        status = spw_check_count(c, "concurrency", in->has_concurrency, in->concurrency, 0, CONCURRENCY_MAX,
                                 &out->concurrency_count);
    if (!status)
        status = spw_check_duration(c, "deadline", in->deadline, DEADLINE_MIN_MS, DEADLINE_MAX_MS,
                                    &out->deadline_ms);
    if (!status)
        status = check_breaker(c, in->breaker, &out->breaker);
    take_rate_headers(in->rate_headers, out);
    if (!status)
        status = spw_check_calls(c, in, out);
    if (!status)
        status = check_integrations(c, in, out);
    return status ? status : spw_check_limiters(c, in, out);
}
