/* conf_check.c: see conf_check.h: the checks of single fields, and the parts of the file that are not accounts and
 * not the fallback. */
#include "sidecar/conf/conf_check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sidecar/conf/conf_text.h"

#define DRAIN_MAX_MS 600000u
/* A Unix socket's name has at most 107 bytes; the sockets lie in pub_dir. */
#define PUB_DIR_MAX_BYTES 80u
#define NAME_LETTERS      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* --- errors ------------------------------------------------------------------------------------------------- */

enum spw_status spw_check_place(struct spw_check *c, const char *field, enum spw_status status)
{
    char path[SPW_CONF_PATH_BYTES * 2];
    snprintf(path, sizeof path, "%s%s%s", c->base, c->base[0] && field[0] ? "." : "", field);
    const struct spw_yaml_place *place = spw_yaml_places_find(c->places, path);
    spw_error_prefix(c->err, "%s:%u:%u: %s%s", c->name, place ? place->line : 1, place ? place->column : 1,
                     path, path[0] ? ": " : "");
    return status;
}

enum spw_status spw_check_fault(struct spw_check *c, const char *field, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spw_error_set(c->err, SPW_STATUS_INVALID, "%s", text);
    return spw_check_place(c, field, SPW_STATUS_INVALID);
}

/* --- single fields ------------------------------------------------------------------------------------------ */

enum spw_status spw_check_text(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room)
{
    if (!text)
        return SPW_STATUS_OK;
    size_t bytes = strlen(text);
    if (bytes >= room)
        return spw_check_fault(c, field, "is %zu bytes long: at most %zu", bytes, room - 1);
    memcpy(out, text, bytes + 1);
    return SPW_STATUS_OK;
}

enum spw_status spw_check_name(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room)
{
    if (text && (strspn(text, NAME_LETTERS "._-") != strlen(text) || !strspn(text, NAME_LETTERS)))
        return spw_check_fault(
            c, field,
            "is no name: write letters, digits, '.', '_' and '-', beginning with a letter or digit");
    return spw_check_text(c, field, text, out, room);
}

enum spw_status spw_check_path(struct spw_check *c, const char *field, const char *text, char *out,
                               size_t room)
{
    if (!text)
        return SPW_STATUS_OK;
    size_t bytes = strlen(text);
    bool climbs = strstr(text, "/../") || (bytes >= 3 && !strcmp(text + bytes - 3, "/.."));
    /* The text is not shown: somebody may have put the secret itself where its path belongs. */
    if (text[0] != '/' || bytes < 2 || text[bytes - 1] == '/' || climbs)
        return spw_check_fault(
            c, field, "is no absolute path: begin with '/', without '..' and without '/' at the end");
    return spw_check_text(c, field, text, out, room);
}

enum spw_status spw_check_readable(struct spw_check *c, const char *field, const char *path)
{
    if (!c->references)
        return SPW_STATUS_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return spw_check_fault(
            c, field, "cannot be read (%s): mount the file, and let the sidecar's user or group read it",
            strerror(error));
    }
    close(fd);
    if (!S_ISREG(st.st_mode))
        return spw_check_fault(c, field, "is no regular file: name the file itself");
    if (!st.st_size)
        return spw_check_fault(c, field, "names an empty file: fill it");
    return SPW_STATUS_OK;
}

enum spw_status spw_check_pem(struct spw_check *c, const char *field, const char *path, const char *kind)
{
    enum spw_status status = spw_check_readable(c, field, path);
    if (status || !c->references)
        return status;
    FILE *file = fopen(path, "re");
    char line[256], end[48];
    bool found = false;
    snprintf(end, sizeof end, "%s-----", kind);
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, "-----BEGIN ", 11) == 0 && strstr(line, end);
    if (file)
        fclose(file);
    if (found)
        return SPW_STATUS_OK;
    return spw_check_fault(c, field, "%.200s holds no %s in PEM form: name one that does", path, kind);
}

enum spw_status spw_check_count(struct spw_check *c, const char *field, bool has, uint32_t value,
                                uint32_t least, uint32_t most, uint32_t *out)
{
    if (!has)
        return SPW_STATUS_OK;
    if (value < least || value > most)
        return spw_check_fault(c, field, "%u is out of range: write %u to %u", value, least, most);
    *out = value;
    return SPW_STATUS_OK;
}

static void format_ms(uint32_t ms, char *out, size_t room)
{
    static const struct {
        uint32_t ms;
        const char *unit;
    } UNITS[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
    size_t i = 0;
    while (ms < UNITS[i].ms ? UNITS[i].ms > 1 : ms % UNITS[i].ms != 0)
        i++;
    snprintf(out, room, "%u%s", ms / UNITS[i].ms, UNITS[i].unit);
}

enum spw_status spw_check_duration(struct spw_check *c, const char *field, const char *text,
                                   uint32_t least_ms, uint32_t most_ms, uint32_t *out_ms)
{
    if (!text)
        return SPW_STATUS_OK;
    uint64_t ms;
    enum spw_status status = spw_parse_duration_ms(text, &ms, c->err);
    if (status)
        return spw_check_place(c, field, status);
    if (ms < least_ms || ms > most_ms) {
        char least[16], most[16], shown[SPW_SHOWN_BYTES];
        format_ms(least_ms, least, sizeof least);
        format_ms(most_ms, most, sizeof most);
        return spw_check_fault(c, field, "%s is out of range: write %s to %s",
                               spw_text_show(text, strlen(text), shown), least, most);
    }
    *out_ms = (uint32_t)ms;
    return SPW_STATUS_OK;
}

enum spw_status spw_check_percent(struct spw_check *c, const char *field, const char *text, uint32_t most_ppm,
                                  uint32_t *out_ppm)
{
    if (!text)
        return SPW_STATUS_OK;
    uint32_t ppm;
    enum spw_status status = spw_parse_percent_ppm(text, &ppm, c->err);
    if (status)
        return spw_check_place(c, field, status);
    if (ppm > most_ppm) {
        char shown[SPW_SHOWN_BYTES];
        return spw_check_fault(c, field, "%s is out of range: write 0%% to %u%%",
                               spw_text_show(text, strlen(text), shown), most_ppm / 10000);
    }
    *out_ppm = ppm;
    return SPW_STATUS_OK;
}

/* --- segment ------------------------------------------------------------------------------------------------ */

/* Is b the directory a, or within it? */
static bool is_within(const char *a, const char *b)
{
    size_t bytes = strlen(a);
    return !strncmp(a, b, bytes) && (b[bytes] == 0 || b[bytes] == '/');
}

static enum spw_status check_segment(struct spw_check *c, const Spillway__V1__SegmentConfig *in,
                                     struct spw_conf_segment *out)
{
    static const Spillway__V1__SegmentConfig ABSENT = SPILLWAY__V1__SEGMENT_CONFIG__INIT;
    if (!in)
        in = &ABSENT;
    *out = (struct spw_conf_segment){.pub_dir = "/run/spillway/pub",
                                     .rw_dir = "/run/spillway/rw",
                                     .gid = UINT32_MAX,
                                     .slots_count = 256,
                                     .cells_count = 2048,
                                     .rate_records_count = 65536};
    snprintf(c->base, sizeof c->base, "segment");
    enum spw_status status = spw_check_path(c, "pub_dir", in->pub_dir, out->pub_dir, PUB_DIR_MAX_BYTES + 1);
    if (!status)
        status = spw_check_path(c, "rw_dir", in->rw_dir, out->rw_dir, sizeof out->rw_dir);
    if (!status)
        status = spw_check_count(c, "gid", in->has_gid, in->gid, 0, UINT32_MAX - 1, &out->gid);
    if (!status)
        status = spw_check_count(c, "slots", in->has_slots, in->slots, 8, 512, &out->slots_count);
    if (!status)
        status = spw_check_count(c, "cells", in->has_cells, in->cells, 64, 65536, &out->cells_count);
    if (!status)
        status = spw_check_count(c, "rate_records", in->has_rate_records, in->rate_records, 1024, 1048576,
                                 &out->rate_records_count);
    if (!status && (is_within(out->pub_dir, out->rw_dir) || is_within(out->rw_dir, out->pub_dir)))
        return spw_check_fault(
            c, in->rw_dir ? "rw_dir" : "pub_dir",
            "pub_dir and rw_dir must be two directories, neither inside the other: the app mounts "
            "one read-only and one read-write");
    return status;
}

/* --- doors -------------------------------------------------------------------------------------------------- */

/* "address:port", "[v6]:port"; false when it is neither. */
bool spw_listen_read(const char *text, struct spw_listen_address *out)
{
    char host[INET6_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    bool v6 = text[0] == '[';
    if (!colon || (v6 && (colon < text + 2 || colon[-1] != ']')))
        return false;
    size_t bytes = (size_t)(colon - text) - (v6 ? 2 : 0);
    if (bytes >= sizeof host)
        return false;
    memcpy(host, text + v6, bytes);
    host[bytes] = 0;
    struct in_addr v4_address;
    struct in6_addr v6_address;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, host, v6 ? (void *)&v6_address : (void *)&v4_address) != 1)
        return false;
    out->is_loopback = v6 ? IN6_IS_ADDR_LOOPBACK(&v6_address) : (ntohl(v4_address.s_addr) >> 24) == 127;
    const char *digits = colon + 1;
    size_t digits_count = strlen(digits);
    if (!digits_count || digits_count > 5 || strspn(digits, "0123456789") != digits_count || digits[0] == '0')
        return false;
    uint32_t port = 0;
    for (; *digits; digits++)
        port = port * 10 + (uint32_t)(*digits - '0');
    out->port = (uint16_t)port;
    return port <= UINT16_MAX;
}

enum spw_status spw_check_listen(struct spw_check *c, const char *field, const char *text, bool loopback_only,
                                 char *out, struct spw_listen_address *address)
{
    enum spw_status status = spw_check_text(c, field, text, out, SPW_PATH_BYTES);
    if (status || !out[0])
        return status;
    if (!spw_listen_read(out, address))
        return spw_check_fault(
            c, field,
            "is no listening address: write a numeric address and a port from 1 to 65535, as "
            "127.0.0.1:8390 or [::1]:8390");
    if (loopback_only && !address->is_loopback)
        return spw_check_fault(
            c, field,
            "must be on loopback (127.0.0.1 or [::1]): this door trusts whoever reaches it inside "
            "the pod, and nobody outside may");
    return SPW_STATUS_OK;
}

static enum spw_status check_listen(struct spw_check *c, const Spillway__V1__ListenConfig *in,
                                    struct spw_conf *out)
{
    static const Spillway__V1__ListenConfig ABSENT = SPILLWAY__V1__LISTEN_CONFIG__INIT;
    if (!in)
        in = &ABSENT;
    snprintf(c->base, sizeof c->base, "listen");
    snprintf(out->admin_listen, sizeof out->admin_listen, "0.0.0.0:9090");
    struct spw_listen_address quote = {0}, admin = {0}, control = {0}, tls = {0};
    enum spw_status status = spw_check_listen(c, "quote", in->quote, true, out->quote_listen, &quote);
    if (!status)
        status = spw_check_listen(c, "admin", in->admin, false, out->admin_listen, &admin);
    if (!status)
        status = spw_check_listen(c, "control", in->control, true, out->control_listen, &control);
    if (!status)
        status = spw_check_control(c, in, out, &tls);
    if (status)
        return status;
    if (tls.port && (tls.port == quote.port || tls.port == admin.port || tls.port == control.port))
        return spw_check_fault(c, "control_tls.address", "has the port of another door: give each its own");
    if (quote.port && (quote.port == admin.port || quote.port == control.port))
        return spw_check_fault(c, "quote", "has the port of another door: give each its own");
    if (control.port && control.port == admin.port)
        return spw_check_fault(c, "control", "has the port of another door: give each its own");
    out->require_app_uid_differs = in->has_require_app_uid_differs && in->require_app_uid_differs;
    return SPW_STATUS_OK;
}

/* Every TCP door has a port of its own. */
static enum spw_status check_account_doors(struct spw_check *c, const struct spw_conf *out)
{
    const char *const others[] = {out->quote_listen, out->admin_listen, out->control_listen,
                                  out->control_tls.address};
    for (uint32_t i = 0; i < out->accounts_count; i++) {
        struct spw_listen_address own = {0}, other = {0};
        if (!spw_listen_read(out->accounts[i].listen, &own))
            continue;
        bool taken = false;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
            taken |= spw_listen_read(others[k], &other) && other.port == own.port;
        for (uint32_t k = 0; k < i; k++)
            taken |= spw_listen_read(out->accounts[k].listen, &other) && other.port == own.port;
        snprintf(c->base, sizeof c->base, "accounts.%s", out->accounts[i].name);
        if (taken)
            return spw_check_fault(c, "listen", "has the port of another door: give each its own");
    }
    return SPW_STATUS_OK;
}

/* --- the rest and the whole --------------------------------------------------------------------------------- */

static void take_loop_and_log(const Spillway__V1__LoopConfig *loop, const Spillway__V1__LogConfig *log,
                              struct spw_conf *out)
{
    static const char *const BACKENDS[] = {"auto", "auto", "io_uring", "epoll"};
    static const char *const LEVELS[] = {"info", "debug", "info", "warn", "error"};
    snprintf(out->loop_backend, sizeof out->loop_backend, "%s",
             BACKENDS[loop && loop->has_backend ? loop->backend : 0]);
    snprintf(out->log_level, sizeof out->log_level, "%s", LEVELS[log && log->has_level ? log->level : 0]);
    out->log_json = log && log->has_format && log->format == SPILLWAY__V1__LOG_CONFIG__FORMAT__FORMAT_JSON;
}

static enum spw_status check_accounts(struct spw_check *c, const Spillway__V1__Config *in,
                                      struct spw_conf *out)
{
    if (!in->n_accounts)
        return spw_check_fault(c, "accounts", "is missing: write at least one account");
    if (in->n_accounts > SPW_CONF_ACCOUNTS_MAX_COUNT && !c->any_count)
        return spw_check_fault(c, "accounts", "has %zu entries: at most %u accounts", in->n_accounts,
                               SPW_CONF_ACCOUNTS_MAX_COUNT);
    /* Room for those that a reload adds: who holds one of them may go on. */
    size_t room = in->n_accounts > SPW_CONF_ACCOUNTS_MAX_COUNT ? in->n_accounts : SPW_CONF_ACCOUNTS_MAX_COUNT;
    out->accounts = calloc(room, sizeof out->accounts[0]);
    if (!out->accounts)
        return spw_error_set(c->err, SPW_STATUS_NO_MEMORY, "%s: no memory for the configuration", c->name);
    uint32_t integrations = 0;
    for (size_t i = 0; i < in->n_accounts; i++) {
        struct spw_conf_account *account = &out->accounts[i];
        enum spw_status status = spw_check_account(c, in->accounts[i]->key, in->accounts[i]->value, account);
        if (status)
            return status;
        out->accounts_count++;
        integrations += account->integrations_count;
        if (integrations > SPW_CONF_INTEGRATIONS_MAX_COUNT && !c->any_count)
            return spw_check_fault(c, "integrations",
                                   "brings the file to %u integrations: at most %u over all accounts",
                                   integrations, SPW_CONF_INTEGRATIONS_MAX_COUNT);
    }
    return SPW_STATUS_OK;
}

enum spw_status spw_check_config(struct spw_check *c, const Spillway__V1__Config *in, struct spw_conf *out)
{
    enum spw_status status = check_accounts(c, in, out);
    if (!status)
        status = spw_check_fallback(c, in->fallback, &out->fallback);
    if (!status)
        status = spw_check_refreshes(c, in->fallback, out);
    if (!status)
        status = check_segment(c, in->segment, &out->segment);
    if (!status)
        status = check_listen(c, in->listen, out);
    if (!status)
        status = check_account_doors(c, out);
    if (!status)
        status = spw_check_store(c, in->store, out);
    if (!status)
        status = spw_check_alert(c, in->fallback ? in->fallback->alert : NULL, &out->alert);
    if (!status)
        status = spw_check_reconcile(c, in->reconcile, &out->reconcile);
    if (status)
        return status;
    take_loop_and_log(in->loop, in->log, out);
    c->base[0] = 0;
    out->drain_ms = 10000;
    if (in->test && in->test->has_seed && !in->test->seed)
        return spw_check_fault(c, "test.seed", "0 is out of range: write a number from 1, or leave it out");
    out->test_seed = in->test && in->test->has_seed ? in->test->seed : 0;
    return spw_check_duration(c, "drain", in->drain, 0, DRAIN_MAX_MS, &out->drain_ms);
}
