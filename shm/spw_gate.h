/* spw_gate.h: the gate of an account: one word: closed until T, why, and how new the observation was.
 *
 * Owns: the gate word. Called by: admission (enter), whoever has read an answer (shut, open). Thread/process: any.
 *
 *   word: {source:4 | observation:21 | closed_until_ms:39}
 *
 * The observation is the sending time of the call whose answer spoke, in steps of 64 ms: only a newer call may open
 * the gate or shorten the wait, whatever order answers arrive in. When the provider did not say when it will accept
 * again (UNKNOWN sources), the gate is shut for a moment and then lets one call through to ask: without a call there
 * would be no headers, for ever.
 */
#ifndef SPW_GATE_H
#define SPW_GATE_H

#include "shm/spw_breaker.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_GATE_TABLE(X)                                                                                    \
    X(0, NONE, "none")                                                                                       \
    X(1, RETRY_AFTER, "retry-after")                                                                         \
    X(2, RESET, "reset")                                                                                     \
    X(3, BUFFER_RESET, "buffer-until-reset")                                                                 \
    X(4, UNKNOWN_429, "429-without-reset")                                                                   \
    X(5, UNKNOWN_BUFFER, "buffer-without-reset")                                                             \
    X(6, GOAWAY, "goaway")                                                                                   \
    X(7, REFRESH, "refresh-in-flight")                                                                       \
    X(8, BY_HAND, "by-hand")

#define SPW__X(code, name, text) SPW_GATE_##name = (code),
enum spw_gate_source { SPW_GATE_TABLE(SPW__X) SPW_GATE_COUNT };
#undef SPW__X
#define SPW__X(code, name, text)                                                                             \
    case code:                                                                                               \
        return text;
static inline const char *spw_gate_name(uint32_t source)
{
    switch (source) {
        SPW_GATE_TABLE(SPW__X)
    default:
        return "unknown";
    }
}
#undef SPW__X

#define SPW_GATE_UNKNOWN_MS UINT64_C(1000)     /* shut for this long when no reset is known */
#define SPW_GATE_MAX_MS     UINT64_C(86400000) /* no provider's word is believed beyond a day */
#define SPW__GATE_AHEAD_MS                                                                                   \
    (SPW_GATE_MAX_MS + UINT64_C(3600000)) /* believed, for readers whose clock is behind */
#define SPW__OBS_MASK UINT64_C(0x1FFFFF)

static inline uint64_t spw__gate_word(uint32_t source, uint64_t observation, uint64_t until_ms)
{
    return (uint64_t)source << 60 | (observation & SPW__OBS_MASK) << 39 | (until_ms & SPW_TIME_MASK);
}
static inline uint32_t spw_gate_source(uint64_t word)
{
    return (uint32_t)(word >> 60);
}
static inline uint64_t spw_gate_until_ms(uint64_t word)
{
    return word & SPW_TIME_MASK;
}

/* Is observation a newer than b, on a circle of 37 hours? */
static inline bool spw__gate_newer(uint64_t a, uint64_t b)
{
    uint64_t d = (a - b) & SPW__OBS_MASK;
    return d != 0 && d <= SPW__OBS_MASK / 2;
}

/* Does the next caller after this moment ask for all? */
static inline bool spw__gate_asks(uint32_t source)
{
    return source == SPW_GATE_UNKNOWN_429 || source == SPW_GATE_UNKNOWN_BUFFER || source == SPW_GATE_REFRESH;
}

enum spw_gate_verdict { SPW_GATE_PASS, SPW_GATE_PASS_REFRESH, SPW_GATE_SHUT, SPW_GATE_GONE };

/* May a call be made? take false: only look. REFRESH: this caller is the one that asks; the gate stays shut for the
 * others until its answer is read or probe_ms have passed. */
static inline enum spw_gate_verdict spw_gate_enter(const struct spw_map *map, struct spw_account_words *words,
                                                   const struct spw_account_conf *conf, uint64_t now_ns,
                                                   bool take, uint64_t *wait_ns, uint32_t *source)
{
    uint64_t now_ms = spw_map_ms(map, now_ns);
    for (;;) {
        /* SYNC gate: acquire. */
        uint64_t word = spw_load_acq(&words->gate);
        if (word == 0)
            return SPW_GATE_PASS;
        if (word == SPW_MOVED)
            return SPW_GATE_GONE;
        *source = spw_gate_source(word);
        uint64_t until_ms = spw_gate_until_ms(word);
        if (now_ms < until_ms && until_ms <= now_ms + SPW__GATE_AHEAD_MS) {
            *wait_ns = spw_map_ns_of_ms(map, until_ms) - now_ns;
            return SPW_GATE_SHUT;
        }
        if (until_ms > now_ms || !spw__gate_asks(*source) || !take)
            return SPW_GATE_PASS; /* open, or further ahead than anybody may shut it: a damaged word */
        /* SYNC gate: acq_rel: one of the callers that find the moment over asks for all. */
        if (spw_cas(&words->gate, &word,
                    spw__gate_word(SPW_GATE_REFRESH, word >> 39 & SPW__OBS_MASK, now_ms + conf->probe_ms)))
            return SPW_GATE_PASS_REFRESH;
    }
}

/* Shut the gate until until_ns because of an answer to a call sent at sent_ns. */
static inline void spw_gate_shut(const struct spw_map *map, struct spw_account_words *words,
                                 uint64_t until_ns, uint32_t source, uint64_t sent_ns, uint64_t now_ns)
{
    uint64_t observation = spw_map_ms(map, sent_ns) >> 6, now_ms = spw_map_ms(map, now_ns);
    uint64_t until_ms = spw_map_ms_up(map, until_ns);
    if (until_ms > now_ms + SPW_GATE_MAX_MS)
        until_ms = now_ms + SPW_GATE_MAX_MS;
    for (;;) {
        /* SYNC gate: acquire. */
        uint64_t word = spw_load_acq(&words->gate);
        if (word == SPW_MOVED)
            return;
        uint64_t old_until_ms = spw_gate_until_ms(word), old_observation = word >> 39 & SPW__OBS_MASK;
        bool asked = spw_gate_source(word) == SPW_GATE_REFRESH;
        bool held = spw_gate_source(word) == SPW_GATE_BY_HAND && old_until_ms > now_ms &&
                    old_until_ms <= now_ms + SPW__GATE_AHEAD_MS;
        bool newer = word == 0 || old_until_ms <= now_ms || spw__gate_newer(observation, old_observation);
        if ((!newer || held) && until_ms <= old_until_ms && !asked)
            return;
        /* SYNC gate: acq_rel. */
        if (spw_cas(&words->gate, &word,
                    spw__gate_word(source, newer ? observation : old_observation, until_ms)))
            return;
    }
}

/* The answer to a call sent at sent_ns shows that the provider accepts again: open, unless a newer call said
 * otherwise. A wait the provider asked for in words (RETRY_AFTER), or an operator, is kept to its end. */
static inline void spw_gate_open(const struct spw_map *map, struct spw_account_words *words, uint64_t sent_ns,
                                 uint64_t now_ns, bool refresh)
{
    uint64_t observation = spw_map_ms(map, sent_ns) >> 6, now_ms = spw_map_ms(map, now_ns);
    /* SYNC gate: acquire. */
    uint64_t word = spw_load_acq(&words->gate);
    while (word != 0 && word != SPW_MOVED) {
        uint32_t source = spw_gate_source(word);
        bool mine = refresh && source == SPW_GATE_REFRESH;
        bool told = (source == SPW_GATE_RETRY_AFTER || source == SPW_GATE_BY_HAND) &&
                    now_ms < spw_gate_until_ms(word);
        if (!mine && (told || !spw__gate_newer(observation, word >> 39 & SPW__OBS_MASK)))
            return;
        /* SYNC gate: acq_rel. */
        if (spw_cas(&words->gate, &word, 0))
            return;
    }
}

/* A refresh that was claimed at claimed_ns and is not made after all: the next caller asks. */
static inline void spw_gate_refresh_back(const struct spw_map *map, struct spw_account_words *words,
                                         const struct spw_account_conf *conf, uint64_t claimed_ns,
                                         uint64_t now_ns)
{
    /* SYNC gate: acquire. */
    uint64_t word = spw_load_acq(&words->gate), observation = word >> 39 & SPW__OBS_MASK;
    if (spw_gate_source(word) == SPW_GATE_REFRESH &&
        spw_gate_until_ms(word) == spw_map_ms(map, claimed_ns) + conf->probe_ms)
        (void)spw_cas(&words->gate, &word, /* SYNC gate: acq_rel */
                      spw__gate_word(SPW_GATE_REFRESH, observation, spw_map_ms(map, now_ns)));
}

#ifdef __cplusplus
}
#endif

#endif
