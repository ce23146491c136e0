/* lines.c: see lines.h. */
#include "sidecar/http/lines.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sidecar/http/field.h"

void spw_http_lines_clean_up(struct spw_http_lines *lines)
{
    curl_slist_free_all(lines->list);
    *lines = (struct spw_http_lines){0};
}

static bool name_is(const char *line, size_t name_bytes, const char *name)
{
    return strlen(name) == name_bytes && strncasecmp(line, name, name_bytes) == 0;
}

static bool set_here(const char *line, size_t name_bytes)
{
    static const char *const names[] = {"Host",       "Content-Length",  "Transfer-Encoding",
                                        "Connection", "Accept-Encoding", "Expect"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (name_is(line, name_bytes, names[i])) {
            return true;
        }
    }
    return false;
}

static bool append_line(struct spw_http_lines *lines, const char *line)
{
    struct curl_slist *list = curl_slist_append(lines->list, line);
    if (list == NULL) {
        return false;
    }
    lines->list = list;
    return true;
}

/* libcurl reads "Name:" as "send no such header"; "Name;" is how it sends an empty one. */
static bool append_header(struct spw_http_lines *lines, const char *line, size_t bytes, bool *verbatim)
{
    if (line[bytes + 1 + strspn(line + bytes + 1, " \t")] != '\0') {
        return append_line(lines, line);
    }
    *verbatim = false;
    char *empty = strndup(line, bytes + 1);
    if (empty == NULL) {
        return false;
    }
    empty[bytes] = ';';
    bool ok = append_line(lines, empty);
    free(empty);
    return ok;
}

/* libcurl decodes whatever it can; as few and short lines as can be, because it writes a head byte by byte, and looks
 * through the list for each line of its own. */
static bool append_own(struct spw_http_lines *lines)
{
    return append_line(lines, "Accept-Encoding: gzip") &&
           (!lines->no_expect || append_line(lines, "Expect:"));
}

/* Most calls of an account carry the same lines: then those of the handle's last call stand. */
static bool has_same_lines(const struct spw_http_lines *lines, const char *const *headers, size_t count,
                           bool no_expect)
{
    if (!lines->is_verbatim || lines->count != count || lines->no_expect != no_expect) {
        return false;
    }
    const struct curl_slist *kept = lines->no_expect ? lines->list->next->next : lines->list->next;
    for (size_t i = 0; i < count; i++, kept = kept->next) {
        if (strcmp(kept->data, headers[i]) != 0) {
            return false;
        }
    }
    return true;
}

enum spw_status spw_http_lines_set(struct spw_http_lines *lines, const char *const *headers, size_t count,
                                   bool no_expect, struct spw_error *err)
{
    if (has_same_lines(lines, headers, count, no_expect)) {
        return SPW_STATUS_OK;
    }
    spw_http_lines_clean_up(lines);
    lines->no_expect = no_expect;
    bool has_type = false, has_accept = false, verbatim = true;
    bool ok = append_own(lines);
    for (size_t i = 0; ok && i < count; i++) {
        const char *line = headers[i];
        size_t bytes = spw_field_name_bytes(line);
        if (bytes == 0 || line[bytes] != ':' || strpbrk(line, "\r\n") != NULL) {
            return spw_error_set(err, SPW_STATUS_INVALID,
                                 "request: header line %zu is not \"Name: value\" on one "
                                 "line",
                                 i + 1);
        }
        has_type = has_type || name_is(line, bytes, "Content-Type");
        has_accept = has_accept || name_is(line, bytes, "Accept");
        if (set_here(line, bytes)) {
            verbatim = false;
        } else {
            ok = append_header(lines, line, bytes, &verbatim);
        }
    }
    if (ok && !has_type) {
        ok = append_line(lines, "Content-Type:"); /* none, rather than libcurl's form type */
    }
    if (ok && !has_accept) {
        ok = append_line(lines, "Accept:");
    }
    lines->is_verbatim = ok && verbatim;
    lines->count = count;
    return ok ? SPW_STATUS_OK : spw_error_set(err, SPW_STATUS_NO_MEMORY, "request: no memory for headers");
}
