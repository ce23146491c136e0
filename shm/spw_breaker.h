/* spw_breaker.h: the circuit breaker: one state word and a window of sixteen.
 *
 * Owns: breaker and window words of an account. Called by: admission (enter), whoever has an outcome (outcome).
 * Thread/process: any number; lock-free; works with the sidecar dead.
 *
 *   word: {state:2 | consecutive:8 | trips:4 | epoch:11 | time_ms:39}
 *   time_ms: CLOSED since when; OPEN until when; HALF_OPEN when the probe counts as lost.
 *
 * CLOSED -> OPEN on N consecutive 429s, or when the bad share of the window exceeds the ratio with at least
 * `minimum` outcomes. OPEN -> HALF_OPEN by the one caller whose CAS wins after the cooldown: it is the probe. Its
 * outcome alone decides: CLOSED, or OPEN with the cooldown doubled up to the maximum. A probe that died is replaced
 * after time_ms. Each transition raises the epoch; an outcome of another epoch is counted in the window, not applied.
 */
#ifndef SPW_BREAKER_H
#define SPW_BREAKER_H

#include "shm/spw_latch.h"
#include "shm/spw_map.h"

#ifdef __cplusplus
extern "C" {
#endif

enum spw_breaker_state { SPW_BREAKER_CLOSED, SPW_BREAKER_OPEN, SPW_BREAKER_HALF_OPEN };

#define SPW_TIME_MASK  ((UINT64_C(1) << 39) - 1) /* 17 years of milliseconds */
#define SPW_EPOCH_MASK UINT64_C(0x7FF)
#define SPW_TRIPS_MAX  15u
#define SPW__BREAKER_SLACK_MS                                                                                \
    3600000u /* how much further ahead than a cooldown a word is believed: a clock may be behind */

struct spw_breaker_word {
    uint32_t state;
    uint32_t consecutive;
    uint32_t trips;
    uint32_t epoch;
    uint64_t time_ms;
};

static inline uint64_t spw_breaker_pack(const struct spw_breaker_word *b)
{
    return (uint64_t)(b->state & 3) << 62 | (uint64_t)(b->consecutive & 0xFF) << 54 |
           (uint64_t)(b->trips & 0xF) << 50 | ((uint64_t)b->epoch & SPW_EPOCH_MASK) << 39 |
           (b->time_ms & SPW_TIME_MASK);
}

static inline struct spw_breaker_word spw_breaker_unpack(uint64_t word)
{
    struct spw_breaker_word b;
    b.state = (uint32_t)(word >> 62);
    b.consecutive = (uint32_t)(word >> 54 & 0xFF);
    b.trips = (uint32_t)(word >> 50 & 0xF);
    b.epoch = (uint32_t)(word >> 39 & SPW_EPOCH_MASK);
    b.time_ms = word & SPW_TIME_MASK;
    return b;
}

/* Copy the account's breaker and gate settings; false only when the publisher kept overtaking. */
static inline bool spw_account_conf_read(const struct spw_account *account, struct spw_account_conf *out)
{
    return spw_latch_read(&account->conf_seq, (const uint64_t *)(const void *)account->conf,
                          sizeof(struct spw_account_conf) / 8, out, sizeof *out / 8) &&
           out->window_tick_ms != 0;
}

/* A state that does not exist, or a time no honest writer could have set: treat as OPEN for one minimum cooldown. */
static inline bool spw__breaker_sane(const struct spw_breaker_word *b, const struct spw_account_conf *conf,
                                     uint64_t now_ms)
{
    uint64_t ahead = (uint64_t)conf->cooldown_max_ms + conf->probe_ms + SPW__BREAKER_SLACK_MS;
    return b->state <= SPW_BREAKER_HALF_OPEN && b->time_ms <= now_ms + ahead;
}

enum spw_breaker_verdict { SPW_BREAKER_PASS, SPW_BREAKER_PROBE, SPW_BREAKER_REFUSE, SPW_BREAKER_GONE };

struct spw_breaker_answer {
    enum spw_breaker_verdict verdict;
    uint32_t epoch;
    uint64_t wait_ns; /* REFUSE: until a probe may be tried */
    uint32_t state;
    bool forced;
    bool observed; /* observe mode let a call pass that would have been refused */
};

/* May a call be made? take false: only look (a probe that could be had counts as PASS). */
static inline struct spw_breaker_answer spw_breaker_enter(const struct spw_map *map,
                                                          const struct spw_account *account,
                                                          struct spw_account_words *words,
                                                          const struct spw_account_conf *conf,
                                                          uint64_t now_ns, bool take)
{
    struct spw_breaker_answer answer;
    memset(&answer, 0, sizeof answer);
    uint64_t now_ms = spw_map_ms(map, now_ns);
    /* SYNC forced: relaxed: a lone word, read at each decision. */
    uint64_t forced = spw_load_rlx(&account->forced);
    for (;;) {
        /* SYNC breaker: acquire. */
        uint64_t word = spw_load_acq(&words->breaker);
        if (word == SPW_MOVED) {
            answer.verdict = SPW_BREAKER_GONE;
            return answer;
        }
        struct spw_breaker_word b = spw_breaker_unpack(word);
        answer.epoch = b.epoch;
        answer.state = b.state;
        bool observe = forced == SPW_FORCED_OBSERVE;
        if (forced != SPW_FORCED_NOT && !observe) {
            answer.forced = true;
            answer.verdict = forced == SPW_FORCED_OPEN ? SPW_BREAKER_REFUSE : SPW_BREAKER_PASS;
            answer.wait_ns = forced == SPW_FORCED_OPEN ? UINT64_MAX : 0;
            return answer;
        }
        if (b.state == SPW_BREAKER_CLOSED) {
            answer.verdict = SPW_BREAKER_PASS;
            return answer;
        }
        struct spw_breaker_word next = b;
        bool sane = spw__breaker_sane(&b, conf, now_ms);
        if (!sane) {
            next.state = SPW_BREAKER_OPEN;
            next.time_ms = now_ms + conf->cooldown_min_ms;
            next.epoch++;
        } else if (now_ms < b.time_ms) {
            answer.verdict = observe ? SPW_BREAKER_PASS : SPW_BREAKER_REFUSE;
            answer.observed = observe;
            answer.epoch = (b.epoch - observe) & SPW_EPOCH_MASK; /* let through, it is no probe */
            answer.wait_ns = observe ? 0 : spw_map_ns_of_ms(map, b.time_ms) - now_ns;
            return answer;
        } else {
            next.state = SPW_BREAKER_HALF_OPEN;
            next.epoch++;
            next.time_ms = now_ms + conf->probe_ms;
        }
        if (sane && !take) {
            answer.verdict = SPW_BREAKER_PASS;
            return answer;
        }
        /* SYNC breaker: acq_rel: of all callers that see the cooldown over, one wins and is the probe. */
        if (spw_cas(&words->breaker, &word, spw_breaker_pack(&next)) && sane) {
            answer.verdict = SPW_BREAKER_PROBE;
            answer.epoch = next.epoch & SPW_EPOCH_MASK;
            answer.state = SPW_BREAKER_HALF_OPEN;
            return answer;
        }
    }
}

/* A probe that is not made after all, or says nothing: the next caller is the probe. */
static inline void spw_breaker_probe_back(const struct spw_map *map, struct spw_account_words *words,
                                          uint32_t epoch, uint64_t now_ns)
{
    /* SYNC breaker: acquire. */
    uint64_t word = spw_load_acq(&words->breaker);
    struct spw_breaker_word b = spw_breaker_unpack(word);
    if (b.state != SPW_BREAKER_HALF_OPEN || b.epoch != epoch)
        return;
    b.state = SPW_BREAKER_OPEN;
    b.epoch++;
    b.time_ms = spw_map_ms(map, now_ns);
    (void)spw_cas(&words->breaker, &word, spw_breaker_pack(&b)); /* SYNC breaker: acq_rel */
}

/* What a call's end means for the breaker. */
enum spw_outcome {
    SPW_OUTCOME_OK, /* the provider answered, whatever it said about this one request (a 400 is the caller's) */
    SPW_OUTCOME_THROTTLED, /* 429 that means "too fast" */
    SPW_OUTCOME_FAILED,    /* 5xx, timeout, broken answer, no connection */
    SPW_OUTCOME_NEUTRAL    /* says nothing of the provider: a lock timeout, a call given up by its caller */
};

/* What an answer's HTTP status says of the provider, 0 = no answer. No answer, 408 and 5xx speak against it. Any other
 * status but 429 says that it answers, whatever it thought of this request (400, 422) or of the caller's key, path or
 * method (401, 403, 404, 405). */
static inline enum spw_outcome spw_outcome_of_status(uint32_t http_status)
{
    bool failed = http_status == 0 || http_status == 408 || http_status >= 500;
    return http_status == 429 ? SPW_OUTCOME_THROTTLED : failed ? SPW_OUTCOME_FAILED : SPW_OUTCOME_OK;
}

/* Does the answer show that calls are accepted again? A refused key does not. */
static inline bool spw_status_accepts(uint32_t http_status)
{
    return spw_outcome_of_status(http_status) == SPW_OUTCOME_OK && http_status != 401 && http_status != 403;
}

static inline void spw__window_count(struct spw_account_words *words, uint32_t tick, bool bad)
{
    uint64_t *cell = &words->window[tick % SPW_WINDOW_WORDS];
    for (unsigned i = 0; i < SPW_WINDOW_WORDS * 64; i++) {
        /* SYNC window: relaxed: statistics that the breaker sums; each word is self-contained. */
        uint64_t word = spw_load_rlx(cell);
        uint64_t n_total = word & 0xFFFF, n_bad = word >> 16 & 0xFFFF;
        if ((uint32_t)(word >> 32) != tick)
            n_total = n_bad = 0;
        if (n_total == 0xFFFF) { /* keep the share, lose resolution */
            n_total /= 2;
            n_bad /= 2;
        }
        n_total++;
        n_bad += bad;
        /* SYNC window: relaxed would do. */
        if (spw_cas(cell, &word, (uint64_t)tick << 32 | n_bad << 16 | n_total))
            return;
    }
}

static inline bool spw__window_bad(const struct spw_account_words *words, const struct spw_account_conf *conf,
                                   uint32_t tick, uint32_t since_tick)
{
    uint64_t total = 0, bad = 0;
    for (unsigned i = 0; i < SPW_WINDOW_WORDS; i++) {
        /* SYNC window: relaxed: see above. */
        uint64_t word = spw_load_rlx(&words->window[i]);
        uint32_t at = (uint32_t)(word >> 32);
        if (at > tick || tick - at >= 10 || at < since_tick)
            continue;
        total += word & 0xFFFF;
        bad += word >> 16 & 0xFFFF;
    }
    return total >= conf->minimum_count && bad * 1000000u > (uint64_t)conf->ratio_429_ppm * total;
}

/* The cooldown of the n-th trip in a row: minimum, doubled each time, at most the maximum. */
static inline uint64_t spw_breaker_cooldown_ms(const struct spw_account_conf *conf, uint32_t trips)
{
    uint64_t ms = conf->cooldown_min_ms;
    for (uint32_t i = 1; i < trips && ms < conf->cooldown_max_ms; i++)
        ms *= 2;
    return ms < conf->cooldown_max_ms ? ms : conf->cooldown_max_ms;
}

static inline void spw__breaker_trip(const struct spw_map *map, struct spw_breaker_word *b,
                                     const struct spw_account_conf *conf, uint64_t now_ns)
{
    b->trips = b->trips < SPW_TRIPS_MAX ? b->trips + 1 : SPW_TRIPS_MAX;
    b->state = SPW_BREAKER_OPEN;
    b->consecutive = 0;
    b->epoch++;
    b->time_ms = spw_map_ms_up(map, now_ns) + spw_breaker_cooldown_ms(conf, b->trips);
}

/* Tell the breaker how a call of `epoch` ended. true when this outcome opened or closed it. */
static inline bool spw_breaker_outcome(const struct spw_map *map, struct spw_account_words *words,
                                       const struct spw_account_conf *conf, uint64_t now_ns, uint32_t epoch,
                                       enum spw_outcome outcome)
{
    if (outcome == SPW_OUTCOME_NEUTRAL)
        return false;
    bool bad = outcome != SPW_OUTCOME_OK;
    uint32_t tick = (uint32_t)(spw_map_ms(map, now_ns) / conf->window_tick_ms);
    spw__window_count(words, tick, bad);
    for (;;) {
        /* SYNC breaker: acquire: the CLOSED word is read before the window is summed, so that a breaker closed in
         * between is not opened by what came before. */
        uint64_t word = spw_load_acq(&words->breaker);
        struct spw_breaker_word b = spw_breaker_unpack(word);
        if (word == SPW_MOVED || b.epoch != epoch || b.state == SPW_BREAKER_OPEN)
            return false;
        struct spw_breaker_word next = b;
        if (b.state == SPW_BREAKER_HALF_OPEN) {
            if (bad) {
                spw__breaker_trip(map, &next, conf, now_ns);
            } else {
                memset(&next, 0, sizeof next);
                next.epoch = b.epoch + 1;
                next.time_ms = spw_map_ms(map, now_ns);
            }
        } else if (outcome == SPW_OUTCOME_OK) {
            next.consecutive = 0;
        } else {
            uint32_t in_a_row = b.consecutive < 255 ? b.consecutive + 1 : 255;
            next.consecutive = outcome == SPW_OUTCOME_THROTTLED ? in_a_row : 0;
            uint32_t since_tick = (uint32_t)(b.time_ms / conf->window_tick_ms);
            if (next.consecutive >= conf->consecutive_429_count ||
                spw__window_bad(words, conf, tick, since_tick))
                spw__breaker_trip(map, &next, conf, now_ns);
        }
        uint64_t packed = spw_breaker_pack(&next);
        /* SYNC breaker: acq_rel: opening is a CAS from the very word that was judged. */
        if (packed != word && !spw_cas(&words->breaker, &word, packed))
            continue;
        /* The window of a closed breaker begins here, not at its tick's beginning. SYNC window: relaxed: statistics. */
        if (b.state == SPW_BREAKER_HALF_OPEN && next.state == SPW_BREAKER_CLOSED)
            spw_store_rlx(&words->window[tick % SPW_WINDOW_WORDS], (uint64_t)tick << 32);
        return next.state != b.state;
    }
}

#ifdef __cplusplus
}
#endif

#endif
