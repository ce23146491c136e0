/* log.c: see log.h. */
#include "sidecar/obs/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/obs/trace.h"

static enum spw_log_level g_least = SPW_LOG_INFO;
static bool g_json;

static const char *const level_name[] = {"debug", "info", "warn", "error"};

void spw_log_configure(enum spw_log_level least, bool as_json)
{
    g_least = least;
    g_json = as_json;
}

/* Copy text as the inside of a JSON string; control bytes become spaces so that one event is one line. */
static size_t escape(char *out, size_t room, const char *text, bool json)
{
    size_t n = 0;
    for (; *text && n + 3 < room; text++) {
        unsigned char c = (unsigned char)*text;
        if (json && (c == '"' || c == '\\'))
            out[n++] = '\\';
        out[n++] = c < 0x20 ? ' ' : (char)c;
    }
    out[n] = 0;
    return n;
}

static void write_line(enum spw_log_level level, const char *event, const struct spw_trace *trace,
                       const char *format, va_list args) __attribute__((format(printf, 4, 0)));
static void write_line(enum spw_log_level level, const char *event, const struct spw_trace *trace,
                       const char *format, va_list args)
{
    if (level < g_least)
        return;
    char message[1024], traced[96] = "";
    vsnprintf(message, sizeof message, format, args);
    if (trace && trace->trace_id[0])
        snprintf(traced, sizeof traced,
                 g_json ? ",\"trace_id\":\"%s\",\"span_id\":\"%s\"" : " trace_id=%s span_id=%s",
                 trace->trace_id, trace->span_id);
    char text[2 * sizeof message];
    escape(text, sizeof text, message, g_json);

    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);

    char line[sizeof text + 256];
    int n =
        snprintf(line, sizeof line,
                 g_json ? "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"%s\"%s}\n"
                        : "%s.%03ldZ %-5s %s: %s%s\n",
                 stamp, now.tv_nsec / 1000000, level_name[level], event, text, traced);
    /* A log that cannot be written must not stop checkout: the result is dropped on purpose. */
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
}

void spw_log(enum spw_log_level level, const char *event, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(level, event, NULL, format, args);
    va_end(args);
}

void spw_log_traced(enum spw_log_level level, const char *event, const struct spw_trace *trace,
                    const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(level, event, trace, format, args);
    va_end(args);
}
