/* log.c: see log.h. */
#include "sidecar/obs/log.h"

#include <stdarg.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sidecar/obs/log_limit.h"
#include "sidecar/obs/trace.h"

static enum spw_log_level g_least = SPW_LOG_INFO;
static bool g_json;

/* Events are a fixed set of words of the code; one more than there is room for is not limited. */
#define EVENTS_MAX_COUNT 128
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *event;
    struct spw_log_limit limit;
} g_events[EVENTS_MAX_COUNT];

static bool may_write(const char *event, uint32_t *dropped_count)
{
    struct timespec now;
    bool may = true;
    *dropped_count = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&g_lock);
    for (int i = 0; i < EVENTS_MAX_COUNT; i++) {
        if (!g_events[i].event)
            g_events[i].event = event;
        if (strcmp(g_events[i].event, event) != 0)
            continue;
        may = spw_log_limit_take(&g_events[i].limit,
                                 (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec,
                                 dropped_count);
        break;
    }
    pthread_mutex_unlock(&g_lock);
    return may;
}

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
    uint32_t dropped_count = 0;
    if (level < g_least || (level > SPW_LOG_DEBUG && !may_write(event, &dropped_count)))
        return;
    char message[1024], traced[96] = "";
    vsnprintf(message, sizeof message, format, args);
    size_t used = strlen(message);
    if (dropped_count)
        snprintf(message + used, sizeof message - used, " [%u lines of this event were left out before]",
                 dropped_count);
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
