/* log.h: structured log lines on stderr, as text or JSON.
 *
 * Owns: the process's log level and form. Called by: every room. Thread: any (one write(2) a line).
 * Of one event at most 100 lines in 10 s; the next one that is written says how many were left out. Debug lines are
 * not counted.
 * A line: time, level, event (a stable dotted word), then the message. Never a secret, an address or a body.
 */
#ifndef SPW_OBS_LOG_H
#define SPW_OBS_LOG_H

#include <stdbool.h>

struct spw_trace; /* trace.h */

enum spw_log_level { SPW_LOG_DEBUG, SPW_LOG_INFO, SPW_LOG_WARN, SPW_LOG_ERROR };

void spw_log_configure(enum spw_log_level least, bool as_json);

/* spw_log(SPW_LOG_WARN, "loop.backend", "io_uring refused (%s): using epoll", why) */
void spw_log(enum spw_log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same of something that belongs to a trace: the line names trace and span (fields trace_id and span_id in JSON, words
 * behind the message in text). NULL, or no trace: as spw_log. */
void spw_log_traced(enum spw_log_level level, const char *event, const struct spw_trace *trace,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
