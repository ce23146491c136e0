/* spw_status.h: the one table of cold-path results: code, name, text, what the operator does.
 *
 * Owns: enum spw_status and its texts. Called by: every cold path of client and sidecar (attach, configuration,
 * stores, files). Thread: any; pure. The hot path never returns these: it answers enum spw_verdict (spw_admission.h).
 */
#ifndef SPW_STATUS_H
#define SPW_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_WARN_UNUSED __attribute__((warn_unused_result))

/* X(code, NAME, text, what the operator does). Codes are stable: scripts and other languages see them. */
#define SPW_STATUS_TABLE(X)                                                                                  \
    X(0, OK, "success", "nothing")                                                                           \
    X(-1, INVALID, "an argument or value is out of its range", "correct the value the message names")        \
    X(-2, NO_MEMORY, "memory could not be had", "raise the container's memory limit")                        \
    X(-3, SYSTEM, "a system call failed", "read errno's text in the message")                                \
    X(-4, NOT_FOUND, "no such account, integration, file or record",                                         \
      "check the name against the "                                                                          \
      "configuration")                                                                                       \
    X(-5, NO_SEGMENT, "the segment is not there", "start the sidecar; check that both volumes are mounted")  \
    X(-6, NOT_READY, "the segment is being made", "try again; the sidecar publishes the ready word last")    \
    X(-7, VERSION_MISMATCH, "client and segment have layouts that cannot read each other",                   \
      "upgrade the older of client header and sidecar")                                                      \
    X(-8, CORRUPT, "the segment, file or record is damaged", "restart the sidecar; it makes a new one")      \
    X(-9, CLOCK_MISMATCH, "client and segment are on different clocks or boots",                             \
      "do not share the volume between hosts or time namespaces")                                            \
    X(-10, NO_SPACE, "the volume is too small",                                                              \
      "raise the volume's sizeLimit to the size the message names")                                          \
    X(-11, BUSY, "another sidecar holds this directory", "stop the other sidecar")                           \
    X(-12, FULL, "a table of fixed size is full", "raise the capacity the message names")                    \
    X(-13, REFUSED, "the provider or peer refused", "read the peer's message")                               \
    X(-14, TIMEOUT, "the deadline passed", "check the peer's health")                                        \
    X(-15, CONFLICT, "somebody else changed it first", "read the current version and try again")             \
    X(-16, PARSE, "the text does not follow its grammar", "correct the place the message names")

enum spw_status {
#define SPW_STATUS_ENUM(code, name, text, action) SPW_STATUS_##name = (code),
    SPW_STATUS_TABLE(SPW_STATUS_ENUM)
#undef SPW_STATUS_ENUM
};

/* The stable name ("NO_SEGMENT"), never NULL. */
static inline const char *spw_status_name(enum spw_status status)
{
    switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                            \
    case SPW_STATUS_##name:                                                                                  \
        return #name;
        SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
    default:
        return "UNKNOWN";
    }
}

/* What happened, in words; never NULL. */
static inline const char *spw_status_text(enum spw_status status)
{
    switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                            \
    case SPW_STATUS_##name:                                                                                  \
        return text;
        SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
    default:
        return "unknown status";
    }
}

/* What the operator does about it; never NULL. */
static inline const char *spw_status_action(enum spw_status status)
{
    switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                            \
    case SPW_STATUS_##name:                                                                                  \
        return action;
        SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
    default:
        return "report it";
    }
}

#ifdef __cplusplus
}
#endif

#endif
