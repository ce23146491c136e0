/* spillway.h: ask a Spillway sidecar, from C or C++, without a library: one file, libc only.
 *
 * GENERATED from shm/ by clients/c/bundle.py: do not edit. Copyright the Spillway authors, Apache-2.0.
 * The documentation of every call stands at its definition, from "spw_client.h" down to the end of this file. What comes
 * before it is packed; the same code with its comments is in shm/ of the Spillway repository, file by file.
 * Include it before any system header (or define _GNU_SOURCE); link with -pthread.
 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- spw_status.h ---- */
/* spw_status.h: the one table of cold-path results: code, name, text, what the operator does.
 *
 * Owns: enum spw_status and its texts. Called by: every cold path of client and sidecar (attach, configuration,
 * stores, files). Thread: any; pure. The hot path never returns these: it answers enum spw_verdict (spw_admission.h).
 */

#define SPW_WARN_UNUSED __attribute__((warn_unused_result))

/* X(code, NAME, text, what the operator does). Codes are stable: scripts and other languages see them. */
#define SPW_STATUS_TABLE(X)                                                                                                                                    \
  X(0, OK, "success", "nothing")                                                                                                                               \
  X(-1, INVALID, "an argument or value is out of its range", "correct the value the message names")                                                            \
  X(-2, NO_MEMORY, "memory could not be had", "raise the container's memory limit")                                                                            \
  X(-3, SYSTEM, "a system call failed", "read errno's text in the message")                                                                                    \
  X(-4, NOT_FOUND, "no such account, integration, file or record",                                                                                             \
      "check the name against the "                                                                                                                            \
      "configuration")                                                                                                                                         \
  X(-5, NO_SEGMENT, "the segment is not there", "start the sidecar; check that both volumes are mounted")                                                      \
  X(-6, NOT_READY, "the segment is being made", "try again; the sidecar publishes the ready word last")                                                        \
  X(-7, VERSION_MISMATCH, "client and segment have layouts that cannot read each other", "upgrade the older of client header and sidecar")                     \
  X(-8, CORRUPT, "the segment, file or record is damaged", "restart the sidecar; it makes a new one")                                                          \
  X(-9, CLOCK_MISMATCH, "client and segment are on different clocks or boots", "do not share the volume between hosts or time namespaces")                     \
  X(-10, NO_SPACE, "the volume is too small", "raise the volume's sizeLimit to the size the message names")                                                    \
  X(-11, BUSY, "another sidecar holds this directory", "stop the other sidecar")                                                                               \
  X(-12, FULL, "a table of fixed size is full", "raise the capacity the message names")                                                                        \
  X(-13, REFUSED, "the provider or peer refused", "read the peer's message")                                                                                   \
  X(-14, TIMEOUT, "the deadline passed", "check the peer's health")                                                                                            \
  X(-15, CONFLICT, "somebody else changed it first", "read the current version and try again")                                                                 \
  X(-16, PARSE, "the text does not follow its grammar", "correct the place the message names")

enum spw_status {
#define SPW_STATUS_ENUM(code, name, text, action) SPW_STATUS_##name = (code),
  SPW_STATUS_TABLE(SPW_STATUS_ENUM)
#undef SPW_STATUS_ENUM
};

/* The stable name ("NO_SEGMENT"), never NULL. */
static inline const char *spw_status_name(enum spw_status status) {
  switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                                                                              \
  case SPW_STATUS_##name: return #name;
    SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
  default: return "UNKNOWN";
  }
}

/* What happened, in words; never NULL. */
static inline const char *spw_status_text(enum spw_status status) {
  switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                                                                              \
  case SPW_STATUS_##name: return text;
    SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
  default: return "unknown status";
  }
}

/* What the operator does about it; never NULL. */
static inline const char *spw_status_action(enum spw_status status) {
  switch (status) {
#define SPW_STATUS_CASE(code, name, text, action)                                                                                                              \
  case SPW_STATUS_##name: return action;
    SPW_STATUS_TABLE(SPW_STATUS_CASE)
#undef SPW_STATUS_CASE
  default: return "report it";
  }
}


/* ---- spw_quote.h ---- */
/* spw_quote.h: the words of a quote: what a caller asks and what it is told.
 *
 * Owns: the normalised request and answer and every enumeration they use. Types and name tables only.
 * Called by: the client header, the doors, the provider profiles, the flag store. Thread: any; pure.
 *
 * Money is in minor units (cents) of the request's currency, signed 64 bit. Rates are parts per billion (ppb) of
 * the taxable amount: 9.2 % = 92,000,000 ppb. Text is NUL-terminated UTF-8, borrowed from the caller; NULL = absent.
 */

#define SPW_NAME_BYTES 64u                             /* account, integration, source names, with their NUL */
#define SPW_ID_BYTES 40u                               /* "sq_" or "sf_" + 32 hex digits + NUL, padded */
#define SPW_CALLER_ID_BYTES 72u                        /* decision, order and quote references of the caller, with NUL */
#define SPW_AMOUNT_MAX_MINOR INT64_C(1000000000000000) /* of a line: 512 of them at 429 % stay below 2^63 */
#define SPW_LINES_MAX_COUNT 512u                       /* lines of one quote */
#define SPW_REQUEST_MAX_BYTES 30720u                   /* the normalised request as JSON: what the chained cells of one flag hold */

/* What became of one quote. */
#define SPW_DECISION_TABLE(X)                                                                                                                                  \
  X(0, NONE, "none")                                                                                                                                           \
  X(1, LIVE, "live")                                                                                                                                           \
  X(2, FALLBACK, "fallback")                                                                                                                                   \
  X(3, REJECTED, "rejected")

/* Why a cached rate was served: exactly one of these. */
#define SPW_FALLBACK_TABLE(X)                                                                                                                                  \
  X(0, NONE, "none")                                                                                                                                           \
  X(1, RATE_LIMIT_PROACTIVE, "rate-limit-proactive")                                                                                                           \
  X(2, RATE_LIMIT_429, "rate-limit-429")                                                                                                                       \
  X(3, CIRCUIT_BREAKER_OPEN, "circuit-breaker-open")                                                                                                           \
  X(4, PROVIDER_TIMEOUT, "provider-timeout")                                                                                                                   \
  X(5, PROVIDER_ERROR, "provider-error")                                                                                                                       \
  X(6, SIDECAR_UNAVAILABLE, "sidecar-unavailable")

/* The finer rule that fired. */
#define SPW_CAUSE_TABLE(X)                                                                                                                                     \
  X(0, NONE, "none")                                                                                                                                           \
  X(1, BUCKET_EMPTY, "bucket-empty")                                                                                                                           \
  X(2, REMAINING_BELOW_BUFFER, "remaining-below-buffer")                                                                                                       \
  X(3, GATE_SHUT, "gate-shut")                                                                                                                                 \
  X(4, BREAKER_OPEN, "breaker-open")                                                                                                                           \
  X(5, BREAKER_FORCED, "breaker-forced")                                                                                                                       \
  X(6, CONCURRENCY, "concurrency")                                                                                                                             \
  X(7, LEASE_EXHAUSTED, "lease-exhausted")                                                                                                                     \
  X(8, BATCH_RESERVE, "batch-reserve")                                                                                                                         \
  X(9, RATE_ZERO, "rate-zero")                                                                                                                                 \
  X(10, RETRY_429, "retry-429")                                                                                                                                \
  X(11, RETRY_NO_TOKEN, "retry-no-token")                                                                                                                      \
  X(12, RETRY_TOO_LATE, "retry-too-late")                                                                                                                      \
  X(13, TIMEOUT, "timeout")                                                                                                                                    \
  X(14, CONNECT, "connect")                                                                                                                                    \
  X(15, STATUS_5XX, "status-5xx")                                                                                                                              \
  X(16, BAD_ANSWER, "bad-answer")                                                                                                                              \
  X(17, NOT_ATTACHED, "not-attached")                                                                                                                          \
  X(18, SIDECAR_GONE, "sidecar-gone")                                                                                                                          \
  X(19, FORCED, "forced")                                                                                                                                      \
  X(20, KILL_SWITCH, "kill-switch")                                                                                                                            \
  X(21, COST_ABOVE_BURST, "cost-above-burst")

/* At which level the rate table matched, most specific first. */
#define SPW_MATCH_TABLE(X)                                                                                                                                     \
  X(0, NONE, "none")                                                                                                                                           \
  X(1, ZIP9, "zip9")                                                                                                                                           \
  X(2, ZIP5, "zip5")                                                                                                                                           \
  X(3, STATE, "state-average")                                                                                                                                 \
  X(4, COUNTRY, "country")                                                                                                                                     \
  X(5, DEFAULT, "default-rate")                                                                                                                                \
  X(6, NO_NEXUS, "no-nexus")                                                                                                                                   \
  X(7, EXEMPT, "exempt")                                                                                                                                       \
  X(8, LEARNED, "learned")                                                                                                                                     \
  X(9, MIXED, "mixed")

/* How fallback tax is rounded: half up per line, or half up once per order. */
#define SPW_ROUNDING_TABLE(X)                                                                                                                                  \
  X(0, HALF_UP_LINE, "half-up/line")                                                                                                                           \
  X(1, HALF_UP_ORDER, "half-up/order")

/* Estimates (carts) are never reconciled; orders are, once placed. */
#define SPW_PURPOSE_TABLE(X)                                                                                                                                   \
  X(0, ESTIMATE, "estimate")                                                                                                                                   \
  X(1, ORDER, "order")

#define SPW__ENUM(PREFIX, code, name) PREFIX##_##name = (code),
#define SPW__X(code, name, text) SPW__ENUM(SPW_DECISION, code, name)
enum spw_decision { SPW_DECISION_TABLE(SPW__X) SPW_DECISION_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_FALLBACK, code, name)
enum spw_fallback { SPW_FALLBACK_TABLE(SPW__X) SPW_FALLBACK_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_CAUSE, code, name)
enum spw_cause { SPW_CAUSE_TABLE(SPW__X) SPW_CAUSE_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_MATCH, code, name)
enum spw_match { SPW_MATCH_TABLE(SPW__X) SPW_MATCH_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_ROUNDING, code, name)
enum spw_rounding { SPW_ROUNDING_TABLE(SPW__X) SPW_ROUNDING_COUNT };
#undef SPW__X
#define SPW__X(code, name, text) SPW__ENUM(SPW_PURPOSE, code, name)
enum spw_purpose { SPW_PURPOSE_TABLE(SPW__X) SPW_PURPOSE_COUNT };
#undef SPW__X

/* spw_<noun>_name(value): the word used in JSON, metrics and flags; "unknown" outside the table. */
#define SPW__X(code, name, text)                                                                                                                               \
  case code:                                                                                                                                                   \
    return text;
#define SPW__NAME_FN(noun, TABLE)                                                                                                                              \
  static inline const char *spw_##noun##_name(uint32_t value) {                                                                                                \
    switch (value) {                                                                                                                                           \
      TABLE(SPW__X)                                                                                                                                            \
    default: return "unknown";                                                                                                                                 \
    }                                                                                                                                                          \
  }
SPW__NAME_FN(decision, SPW_DECISION_TABLE)
SPW__NAME_FN(fallback, SPW_FALLBACK_TABLE)
SPW__NAME_FN(cause, SPW_CAUSE_TABLE)
SPW__NAME_FN(match, SPW_MATCH_TABLE)
SPW__NAME_FN(rounding, SPW_ROUNDING_TABLE)
SPW__NAME_FN(purpose, SPW_PURPOSE_TABLE)
#undef SPW__X
#undef SPW__NAME_FN
#undef SPW__ENUM

struct spw_address {
  const char *country; /* ISO 3166-1 alpha-2, NULL = "US" */
  const char *state;   /* two letters in the US */
  const char *zip;     /* "98110", "98110-1234", "981101234" */
  const char *city; const char *line1;
};

struct spw_line {
  const char *id;         /* the caller's line name, unique in the quote */
  const char *tax_code;   /* the provider's code of the product; NULL = general goods */
  int64_t quantity_micro; /* millionths: 2 pieces = 2,000,000; 0 = one piece */
  int64_t amount_minor;   /* the extended amount of the line: price x quantity less discounts */
};

struct spw_quote_request {
  const char *account; const char *integration;
  const char *decision_id; /* the caller's; the same id never makes a second flag. NULL = minted */
  const char *quote_ref;   /* the caller's reference of cart or quote, for look-ups; NULL = none */
  const char *currency;    /* ISO 4217; NULL = "USD" */
  const char *date;        /* "YYYY-MM-DD", date of supply; NULL = the day it is at the destination */
  enum spw_purpose purpose;
  uint32_t deadline_ms; /* 0 = the account's deadline; a larger one is cut to it */
  struct spw_address ship_from; struct spw_address ship_to; const char *customer_id;
  const char *exemption; /* reason such as "resale"; NULL = taxable */
  int64_t shipping_minor; const char *shipping_tax_code; const struct spw_line *lines;
  uint32_t line_count; /* 1 .. SPW_LINES_MAX_COUNT */
};

/* The tax of one line, in the request's order. The last entry of an answer's list is shipping. */
struct spw_line_tax { int64_t taxable_minor; int64_t tax_minor; };

/* ---- spw_atomic.h ---- */
#ifdef __cplusplus
#define SPW_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define SPW_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#define SPW_HOT static inline __attribute__((always_inline))
#define SPW_ASIDE __attribute__((noinline, unused))
#define SPW_COLD __attribute__((noinline, cold, unused))
#define SPW_SELDOM(condition) __builtin_expect(!!(condition), 0)
SPW_STATIC_ASSERT(sizeof(void *) == 8, "spillway needs a 64-bit target");
SPW_STATIC_ASSERT(__GCC_ATOMIC_LLONG_LOCK_FREE == 2, "64-bit words must be lock-free: processes share them");
SPW_HOT uint64_t spw_load_acq(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
SPW_HOT uint64_t spw_load_rlx(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
SPW_HOT uint32_t spw_load32_rlx(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
SPW_HOT uint32_t spw_load32_acq(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
SPW_HOT void spw_store_rlx(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
SPW_HOT bool spw_cas(uint64_t *word, uint64_t *expected, uint64_t desired) {
  return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); }
SPW_HOT uint64_t spw_add(uint64_t *word, uint64_t n) { return __atomic_fetch_add(word, n, __ATOMIC_ACQ_REL); }
SPW_HOT uint64_t spw_add_rlx(uint64_t *word, uint64_t n) { return __atomic_fetch_add(word, n, __ATOMIC_RELAXED); }
SPW_HOT void spw_fence_acq(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
SPW_HOT void spw_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}
SPW_HOT void spw_copy_rlx(uint64_t *to, const uint64_t *from, size_t words) {
  for (size_t i = 0; i < words; i++) { uint64_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED); __atomic_store_n(&to[i], word, __ATOMIC_RELAXED); }
}

/* ---- spw_layout.h ---- */
#define SPW_LAYOUT_MAJOR 1u
#define SPW_OLDEST_COMPATIBLE_MAJOR 1u
#define SPW_MAGIC_PUB UINT64_C(0x31425550575053AA)
#define SPW_MAGIC_RW UINT64_C(0x3157525F575053AA)
#define SPW_PUB_NAME "segment"
#define SPW_RW_NAME "segment"
#define SPW_HEADER_BYTES 512u
#define SPW_LIMITERS_PER_ACCOUNT 8u
#define SPW_CONFIG_SLOTS 16u
#define SPW_WINDOW_WORDS 16u
#define SPW_PERMITS_PER_ACCOUNT 256u
#define SPW_STATS_COUNT 16u
#define SPW_CELL_BYTES 2048u
#define SPW_CHAIN_MAX_CELLS 24u
#define SPW_ASSUMPTIONS_MAX_BYTES 4096u
#define SPW_SOURCES_MAX_COUNT 16u
#define SPW_NEXUS_MAX_COUNT 64u
#define SPW_TAX_CODES_MAX_COUNT 128u
#define SPW_LEARNED_WAYS 8u
#define SPW_HEARTBEAT_STALE_NS UINT64_C(2000000000)
#define SPW_HEARTBEAT_STOPPED UINT64_MAX
#define SPW_MOVED UINT64_MAX
enum spw_pub_section {
  SPW_PUB_ACCOUNTS, SPW_PUB_INTEGRATIONS, SPW_PUB_LIMITERS, SPW_PUB_POLICY, SPW_PUB_RATE_HALVES, SPW_PUB_SOURCES, SPW_PUB_RATE_INDEX, SPW_PUB_RATE_RECORDS,
  SPW_PUB_LEARNED,
  SPW_PUB_SECTIONS
};
enum spw_rw_section { SPW_RW_ACCOUNTS, SPW_RW_LIMITERS, SPW_RW_PERMITS, SPW_RW_SLOTS, SPW_RW_STATS, SPW_RW_CELL_WORDS, SPW_RW_CELLS, SPW_RW_SECTIONS };
#define SPW_PUB_SECTIONS_1_0 8u
#define SPW_SECTIONS_MAX_COUNT 12u
struct spw_section { uint64_t offset_bytes; uint32_t stride_bytes; uint32_t count; };
struct spw_header {
  uint64_t magic; uint32_t layout_major; uint32_t layout_minor; uint32_t oldest_compatible_major; uint32_t header_bytes; uint64_t total_bytes;
  uint64_t format_hash; uint64_t generation; uint32_t clock_id; uint32_t section_count; uint8_t boot_id[16]; uint64_t base_ns; uint64_t lock_base;
  uint8_t spare0[40]; struct spw_section sections[SPW_SECTIONS_MAX_COUNT]; uint8_t spare1[64]; uint64_t ready; uint64_t retired; uint64_t heartbeat_ns;
  uint64_t switches; uint64_t rates_active; uint64_t policy_seq; uint64_t cells_hint; uint64_t changes; uint8_t spare2[64];
};
#define SPW_SWITCH_KILL UINT64_C(1)
#define SPW_SWITCH_OBSERVE UINT64_C(2)
enum spw_record_state { SPW_RECORD_FREE, SPW_RECORD_LIVE, SPW_RECORD_REMOVED };
enum spw_limiter_kind { SPW_LIMITER_BUCKET, SPW_LIMITER_LEAKY, SPW_LIMITER_WINDOW, SPW_LIMITER_CONCURRENCY };
enum spw_endpoint { SPW_ENDPOINT_CALCULATE, SPW_ENDPOINT_RECORD, SPW_ENDPOINT_OTHER, SPW_ENDPOINT_REFUND };
enum spw_forced { SPW_FORCED_NOT, SPW_FORCED_OPEN, SPW_FORCED_CLOSED, SPW_FORCED_DISABLED, SPW_FORCED_OBSERVE };
struct spw_account_conf {
  uint32_t consecutive_429_count; uint32_t ratio_429_ppm; uint32_t minimum_count; uint32_t window_tick_ms; uint32_t cooldown_min_ms; uint32_t cooldown_max_ms;
  uint32_t probe_ms; uint32_t deadline_ms; uint32_t header_buffer_ppm; uint32_t on_full; uint32_t permit_ms; uint32_t permits_per_process_count;
  uint32_t permits_most_count; uint32_t spare[3];
};
struct spw_evidence {
  uint64_t limit_count; uint64_t remaining_count; int64_t reset_unix_ms; uint64_t observed_ns; uint32_t known; uint32_t status; uint64_t spare[3];
};
struct spw_account {
  uint32_t state; uint32_t record_generation; uint64_t switches; uint64_t forced; uint64_t version; uint32_t limiters_count; uint32_t permits_count;
  uint32_t limiters[SPW_LIMITERS_PER_ACCOUNT]; char name[SPW_NAME_BYTES]; char provider[32]; uint64_t conf_seq; struct spw_account_conf conf[2];
  uint64_t evidence_seq; struct spw_evidence evidence[2]; uint32_t skip; uint8_t spare1[68];
};
struct spw_integration {
  uint32_t state; uint32_t record_generation; uint32_t account_index; uint32_t batch; char name[SPW_NAME_BYTES]; uint32_t skip; uint8_t spare[44];
};
struct spw_limiter_conf {
  uint64_t version; uint64_t units_num; uint64_t units_den; uint64_t units_fixed; uint64_t units_per_token; uint64_t burst_units; uint64_t reserve_units;
  uint64_t e0_units; uint64_t base_ns; uint64_t tokens_count; uint64_t period_ns; uint64_t burst_count; uint64_t window_ns; uint64_t window_units;
  uint64_t window_e0_units; uint64_t spare[1];
};
struct spw_limiter {
  uint32_t state; uint32_t record_generation; uint32_t kind; uint32_t account_index; char name[32]; uint64_t switches; uint64_t current; uint8_t spare[64];
  struct spw_limiter_conf conf[SPW_CONFIG_SLOTS];
};
enum spw_no_rate_policy { SPW_NO_RATE_BLOCK, SPW_NO_RATE_STATE_AVERAGE, SPW_NO_RATE_DEFAULT };
enum spw_tax_code_rule { SPW_RULE_GENERAL, SPW_RULE_EXEMPT, SPW_RULE_LEARNED, SPW_RULE_REFUSE };
struct spw_tax_code { char code[32]; uint32_t rule; uint32_t spare; };
struct spw_policy {
  uint32_t nexus_all; uint32_t nexus_count; char nexus[SPW_NEXUS_MAX_COUNT][4]; uint32_t on_no_rate; uint32_t default_rate_ppb; uint32_t rounding;
  uint32_t shipping_taxable; uint32_t warn_age_days; uint32_t refuse_age_days; uint32_t tax_rule_default; uint32_t tax_codes_count;
  struct spw_tax_code tax_codes[SPW_TAX_CODES_MAX_COUNT]; uint32_t shipping_except_count; uint32_t spare0; char shipping_except[SPW_NEXUS_MAX_COUNT][2];
  uint64_t spare[11];
};
struct spw_rate_half {
  uint64_t seq; uint64_t version; uint32_t records_count; uint32_t sources_count; uint64_t loaded_unix_ms; uint32_t coded_count; uint32_t upserts_count;
  uint32_t replaced_count; uint32_t spare0; uint8_t spare[80];
};
struct spw_source { char name[SPW_NAME_BYTES]; int32_t as_of_day; uint32_t rows_count; uint8_t sha256[32]; uint8_t spare[24]; };
enum spw_rate_level { SPW_RATE_ZIP5 = 1, SPW_RATE_ZIP9 = 2, SPW_RATE_STATE = 3, SPW_RATE_COUNTRY = 4 };
struct spw_rate_record {
  uint64_t key; char country[4]; char state[4]; uint32_t zip5; uint16_t plus4_lo; uint16_t plus4_hi; uint32_t state_ppb; uint32_t county_ppb; uint32_t city_ppb;
  uint32_t special_ppb; uint32_t combined_ppb; uint16_t source; uint8_t level; uint8_t flags; uint32_t valid_from_day; uint32_t valid_to_day;
  uint32_t tax_code_hash; uint32_t spare;
};
struct spw_learned_rate {
  uint64_t seq; uint64_t key; uint64_t subject; int64_t learned_unix_ms; uint32_t combined_ppb; uint32_t state_ppb; uint32_t county_ppb; uint32_t city_ppb;
  uint32_t special_ppb; char state[4]; uint32_t seen_count; uint32_t spare;
};
struct spw_account_words { uint64_t breaker; uint64_t gate; uint64_t spare0[14]; uint64_t window[SPW_WINDOW_WORDS]; };
struct spw_limiter_words { uint64_t level; uint64_t returned_units; uint64_t healed_count; uint64_t returning_units; uint64_t spare[12]; };
enum spw_slot_state { SPW_SLOT_FREE, SPW_SLOT_LIVE, SPW_SLOT_DEAD, SPW_SLOT_RESERVED };
struct spw_slot { uint64_t word; uint64_t attached_ns; uint32_t uid; uint32_t spare0; uint64_t spare[13]; };
enum spw_stat {
  SPW_STAT_ALLOW, SPW_STAT_DENY_BUCKET, SPW_STAT_DENY_GATE, SPW_STAT_DENY_BREAKER, SPW_STAT_DENY_CONCURRENCY, SPW_STAT_DENY_OTHER, SPW_STAT_OBSERVED,
  SPW_STAT_FALLBACK, SPW_STAT_NO_RATE, SPW_STAT_FLAG_REFUSED, SPW_STAT_USED,
  SPW_STAT_OWN = SPW_STAT_USED
};
struct spw_stats { uint64_t count[SPW_STATS_COUNT]; };
enum spw_cell_state { SPW_CELL_FREE, SPW_CELL_WRITING, SPW_CELL_READY, SPW_CELL_CHAINED, SPW_CELL_TAKEN };
struct spw_cell { uint32_t next; uint32_t next_cycle; uint32_t bytes; uint32_t spare; uint8_t data[SPW_CELL_BYTES - 16]; };
enum spw_cell_kind { SPW_CELL_FLAG = 1, SPW_CELL_ORDER = 2 };
struct spw_cell_prefix { uint32_t kind; uint32_t record_bytes; };
struct spw_flag_record {
  char flag_id[SPW_ID_BYTES]; char quote_id[SPW_ID_BYTES]; char decision_id[SPW_CALLER_ID_BYTES]; char quote_ref[SPW_CALLER_ID_BYTES];
  char account[SPW_NAME_BYTES]; char integration[SPW_NAME_BYTES]; uint32_t account_index; uint32_t account_generation; char currency[4]; char country[4];
  char state[8]; char zip[12]; char date[12]; uint32_t spare0[2]; int64_t created_unix_ms; uint64_t created_ns; uint8_t origin; uint8_t type; uint8_t cause;
  uint8_t purpose; uint8_t match; uint8_t rounding; uint8_t breaker_state; uint8_t evidence_known; uint16_t provider_status; uint16_t attempts; uint32_t uid;
  uint64_t limit_count; uint64_t remaining_count; int64_t reset_unix_ms; uint64_t bucket_tokens_milli; uint64_t config_version; int64_t taxable_minor;
  int64_t total_minor; int64_t tax_minor; uint32_t state_ppb; uint32_t county_ppb; uint32_t city_ppb; uint32_t special_ppb; uint32_t combined_ppb;
  int32_t as_of_day; uint32_t age_days; uint32_t stale; char source[SPW_NAME_BYTES]; uint8_t source_sha256[32]; uint32_t lines_count;
  uint32_t assumptions_bytes; uint32_t request_bytes; uint32_t slot; uint32_t slot_generation; uint32_t spare1; uint64_t spare2[14];
};
enum spw_order_op { SPW_ORDER_PLACED = 1, SPW_ORDER_CANCELLED = 2, SPW_ORDER_ABANDONED = 3 };
struct spw_order_record {
  uint32_t op; uint32_t spare0; char quote_id[SPW_ID_BYTES]; char order_id[SPW_CALLER_ID_BYTES]; char account[SPW_NAME_BYTES]; char currency[4];
  uint32_t spare1; int64_t tax_collected_minor; int64_t placed_unix_ms; int64_t created_unix_ms; uint64_t spare2[13];
};

/* ---- spw_latch.h ---- */
#define SPW_LATCH_TRIES 64
static inline bool spw_latch_read(const uint64_t *seq, const uint64_t *slots, size_t stride_words, void *out, size_t words) {
  for (int i = 0; i < SPW_LATCH_TRIES; i++) {
    uint64_t before = spw_load_acq(seq); spw_copy_rlx((uint64_t *)out, slots + (before & 1) * stride_words, words); spw_fence_acq();
    if (spw_load_rlx(seq) == before) return true;
    spw_relax(); }
  return false; }

/* ---- spw_gcra.h ---- */
__extension__ typedef unsigned __int128 spw_u128; __extension__ typedef __int128 spw_i128;
#define SPW_LEVEL_MAX ((UINT64_C(1) << 60) - 2)
#define SPW_UNITS_PER_NS 3u
#define SPW_BURST_MAX_UNITS UINT64_C(160000000000000000)
#define SPW_PERIOD_MAX_NS UINT64_C(100000000000000000)
#define SPW_RATE_MAX_PER_NS 1u
#define SPW_FOREVER_NS UINT64_MAX
#define SPW_RESERVE_MAX_NS UINT64_C(3600000000000)
struct spw_gcra {
  uint64_t version; uint64_t units_num, units_den, units_fixed; uint64_t window_ns; uint64_t units_per_token; uint64_t burst_units; uint64_t reserve_units;
  uint64_t e0_units; uint64_t base_ns;
};
static inline uint64_t spw__gcd(uint64_t a, uint64_t b) {
  while (b) { uint64_t r = a % b; a = b; b = r; }
  return a; }
static inline uint64_t spw__gcra_salt(uint64_t version) { return (version * UINT64_C(0x9E3779B97F4A7C15)) >> 10; }
static inline bool spw_gcra_configure(
    struct spw_limiter_conf *out, uint64_t tokens_count, uint64_t period_ns, uint64_t burst_count, uint64_t reserve_count, uint64_t base_ns, uint64_t version) {
  if (period_ns == 0 || period_ns > SPW_PERIOD_MAX_NS || tokens_count > period_ns * SPW_RATE_MAX_PER_NS) return false;
  uint64_t num = 0, den = 1, per_token = 1000000000;
  while (tokens_count == 0 && burst_count > SPW_BURST_MAX_UNITS / per_token && per_token > 1) per_token /= 1000;
  if (tokens_count > 0) {
    uint64_t g = spw__gcd(tokens_count, period_ns); uint64_t t = tokens_count / g, p = period_ns / g;
    per_token = t <= SPW_UNITS_PER_NS ? p : (uint64_t)((spw_u128)p * SPW_UNITS_PER_NS / t);
    for (uint64_t step_ns = 1000; t > SPW_UNITS_PER_NS && step_ns <= 1000000; step_ns *= 1000) {
      uint64_t whole = p / spw__gcd(p, step_ns);
      if (whole <= per_token) { per_token -= per_token % whole; break; }
    }
    spw_u128 n = (spw_u128)per_token * t; uint64_t h = spw__gcd((uint64_t)(n % p == 0 ? p : n % p), p); num = (uint64_t)(n / h); den = p / h; }
  if (burst_count != 0 && burst_count > SPW_BURST_MAX_UNITS / per_token) return false;
  out->version = version; out->units_num = num; out->units_den = den; out->units_fixed = den > 1 ? (uint64_t)(((spw_u128)num << 62) / den) : 0;
  out->units_per_token = per_token; out->burst_units = burst_count * per_token;
  out->reserve_units = (reserve_count < burst_count ? reserve_count : burst_count) * per_token; out->e0_units = out->burst_units + spw__gcra_salt(version);
  out->base_ns = base_ns; out->tokens_count = tokens_count; out->period_ns = period_ns; out->burst_count = burst_count; return true; }
static inline void spw_gcra_of(const struct spw_limiter_conf *c, struct spw_gcra *out) {
  bool window = c->window_ns != 0; out->units_num = window ? c->window_units : c->units_num; out->units_den = window ? 0 : c->units_den;
  out->units_fixed = c->units_fixed; out->window_ns = c->window_ns; out->units_per_token = c->units_per_token;
  out->burst_units = window ? c->window_units : c->burst_units; out->reserve_units = c->reserve_units;
  out->e0_units = window ? c->window_e0_units : c->e0_units; out->base_ns = c->base_ns; }
static inline uint64_t spw_gcra_earned(const struct spw_gcra *g, uint64_t now_ns) {
  if (now_ns < g->base_ns) return g->e0_units;
  uint64_t dt = now_ns - g->base_ns; spw_u128 earned;
  if (g->units_den == 1) { earned = (spw_u128)dt * g->units_num; }
  else if (g->units_den == 0) { earned = (spw_u128)(dt / g->window_ns + 1) * g->units_num; }
  else { earned = ((spw_u128)dt * g->units_fixed) >> 62; if ((earned + 1) * g->units_den <= (spw_u128)dt * g->units_num) earned++; }
  earned += g->e0_units; return earned < SPW_LEVEL_MAX ? (uint64_t)earned : SPW_LEVEL_MAX; }
static inline uint64_t spw__gcra_fraction(const struct spw_gcra *g, uint64_t earned, uint64_t now_ns) {
  if (g->units_den <= 1 || now_ns <= g->base_ns || earned >= SPW_LEVEL_MAX) return 0;
  return (spw_u128)(earned - g->e0_units) * g->units_den != (spw_u128)(now_ns - g->base_ns) * g->units_num; }
static inline uint64_t spw_gcra_when(const struct spw_gcra *g, uint64_t units) {
  if (units <= g->e0_units) return g->units_den ? g->base_ns : 0;
  if (g->units_num == 0 || units > SPW_LEVEL_MAX) return SPW_FOREVER_NS;
  uint64_t more = units - g->e0_units;
  spw_u128 dt = g->units_den ? ((spw_u128)more * g->units_den + g->units_num - 1) / g->units_num : (spw_u128)((more - 1) / g->units_num) * g->window_ns;
  if (dt > UINT64_MAX - 1 - g->base_ns) return SPW_FOREVER_NS;
  return g->base_ns + (uint64_t)dt; }
static inline spw_u128 spw_gcra_earned_in(const struct spw_gcra *g, uint64_t span_ns) {
  return g->units_den ? (spw_u128)span_ns * g->units_num / g->units_den : (spw_u128)(span_ns / g->window_ns + 1) * g->units_num; }
enum spw_gcra_result { SPW_GCRA_TAKE, SPW_GCRA_WAIT, SPW_GCRA_NEVER };
static inline enum spw_gcra_result spw_gcra_take(const struct spw_gcra *g, uint64_t level, uint64_t now_ns, uint64_t tokens, uint64_t keep_units,
    uint64_t max_wait_ns, uint64_t *next_level, uint64_t *wait_ns) {
  *wait_ns = SPW_FOREVER_NS;
  if (tokens > (g->burst_units - (keep_units < g->burst_units ? keep_units : g->burst_units)) / g->units_per_token) return SPW_GCRA_NEVER;
  uint64_t need = tokens * g->units_per_token; uint64_t earned = spw_gcra_earned(g, now_ns);
  uint64_t earned_up = earned + spw__gcra_fraction(g, earned, now_ns);
  if (earned_up > level && earned_up - level > g->burst_units) { *next_level = earned_up - g->burst_units + need; *wait_ns = 0; return SPW_GCRA_TAKE; }
  uint64_t target = level + need + keep_units;
  if (target <= earned) { *next_level = level + need; *wait_ns = 0; return SPW_GCRA_TAKE; }
  uint64_t at_ns = spw_gcra_when(g, target); if (at_ns == SPW_FOREVER_NS) return SPW_GCRA_NEVER;
  *wait_ns = at_ns > now_ns ? at_ns - now_ns : 0; if (*wait_ns > max_wait_ns || max_wait_ns == 0) return SPW_GCRA_WAIT;
  uint64_t floor = spw_gcra_earned(g, at_ns) - g->burst_units; *next_level = (g->units_den == 0 && floor > level ? floor : level) + need; return SPW_GCRA_TAKE;
}
static inline uint64_t spw_gcra_available(const struct spw_gcra *g, uint64_t level, uint64_t now_ns) {
  uint64_t earned = spw_gcra_earned(g, now_ns); if (level >= earned) return 0;
  return earned - level < g->burst_units ? earned - level : g->burst_units; }

/* ---- spw_map.h ---- */
#define SPW_CLOCK_AHEAD_MAX_NS UINT64_C(60000000000)
struct spw_identity { int lock_fd; uint32_t slot; uint32_t generation; uint32_t uid; };
#define SPW_MAP_COUNTERS 16u
struct spw_map {
  uint8_t *pub; uint8_t *rw; uint64_t pub_bytes, rw_bytes; uint64_t pub_inode, rw_inode; uint64_t generation; uint64_t made_ns; uint64_t base_ns;
  uint64_t lock_base; uint32_t layout_major, layout_minor; struct spw_section pub_section[SPW_PUB_SECTIONS]; struct spw_section rw_section[SPW_RW_SECTIONS];
  uint64_t index_mask; uint32_t records_per_half; struct spw_identity self; const void *counter[SPW_MAP_COUNTERS]; struct spw_map *older;
};
static inline struct spw_header *spw_map_pub(const struct spw_map *map) { return (struct spw_header *)(void *)map->pub; }
static inline struct spw_header *spw_map_rw(const struct spw_map *map) { return (struct spw_header *)(void *)map->rw; }
static inline uint64_t spw_now_ns(void) {
  struct timespec t; clock_gettime(CLOCK_BOOTTIME, &t); return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec; }
static inline int64_t spw_wall_ms(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static inline uint64_t spw_map_ms(const struct spw_map *map, uint64_t ns) { return ns > map->base_ns ? (ns - map->base_ns) / UINT64_C(1000000) : 0; }
static inline uint64_t spw_map_ms_up(const struct spw_map *map, uint64_t ns) {
  return ns > map->base_ns ? (ns - map->base_ns + UINT64_C(999999)) / UINT64_C(1000000) : 0; }
static inline uint64_t spw_map_ns_of_ms(const struct spw_map *map, uint64_t ms) { return map->base_ns + ms * UINT64_C(1000000); }
static inline uint64_t spw__map_wait_ns(const struct spw_map *map, uint64_t ms, uint64_t max_ms, uint64_t now_ns) {
  uint64_t wait_ns = spw_map_ns_of_ms(map, ms) - now_ns; return wait_ns <= max_ms * UINT64_C(1000000) ? wait_ns : 0; }
static inline uint64_t spw_format_hash(void) {
  static const uint16_t facts[] = {
      sizeof(struct spw_header), offsetof(struct spw_header, ready), sizeof(struct spw_account), offsetof(struct spw_account, limiters_count),
      offsetof(struct spw_account, conf), offsetof(struct spw_account, evidence), sizeof(struct spw_account_conf), sizeof(struct spw_evidence),
      sizeof(struct spw_integration), offsetof(struct spw_integration, name), sizeof(struct spw_limiter), sizeof(struct spw_limiter_conf),
      offsetof(struct spw_limiter, conf), offsetof(struct spw_limiter_conf, base_ns), sizeof(struct spw_policy), offsetof(struct spw_policy, tax_codes),
      sizeof(struct spw_rate_half), sizeof(struct spw_source), sizeof(struct spw_rate_record), offsetof(struct spw_rate_record, combined_ppb),
      sizeof(struct spw_account_words), sizeof(struct spw_limiter_words), sizeof(struct spw_slot), sizeof(struct spw_stats), sizeof(struct spw_cell),
      sizeof(struct spw_flag_record), offsetof(struct spw_flag_record, lines_count), sizeof(struct spw_order_record), SPW_CONFIG_SLOTS, SPW_WINDOW_WORDS,
      SPW_PERMITS_PER_ACCOUNT, SPW_LIMITERS_PER_ACCOUNT,
  };
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) hash = (hash ^ facts[i]) * UINT64_C(1099511628211);
  return hash; }
static inline void spw_boot_id(uint8_t out[16]) {
  memset(out, 0, 16); int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC); if (fd < 0) return;
  char text[64]; ssize_t n = read(fd, text, sizeof text - 1); close(fd); unsigned nibbles = 0;
  for (ssize_t i = 0; i < n && nibbles < 32; i++) {
    char c = text[i]; int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; if (v < 0) continue;
    out[nibbles / 2] = (uint8_t)(out[nibbles / 2] | (nibbles % 2 ? v : v << 4)); nibbles++; }
}
static inline void *spw__record(uint8_t *file, const struct spw_section *section, uint64_t index) {
  return index < section->count ? file + section->offset_bytes + index * section->stride_bytes : NULL; }
#define SPW__ACCESSOR(noun, type, file, section)                                                                                                               \
  static inline type *spw_##noun##_at(const struct spw_map *map, uint64_t index) {                                                                             \
    return (type *)spw__record(map->file, &map->file##_section[section], index);                                                                               \
  }
SPW__ACCESSOR(account, struct spw_account, pub, SPW_PUB_ACCOUNTS)
SPW__ACCESSOR(integration, struct spw_integration, pub, SPW_PUB_INTEGRATIONS) SPW__ACCESSOR(limiter, struct spw_limiter, pub, SPW_PUB_LIMITERS)
SPW__ACCESSOR(policy, struct spw_policy, pub, SPW_PUB_POLICY) SPW__ACCESSOR(rate_half, struct spw_rate_half, pub, SPW_PUB_RATE_HALVES)
SPW__ACCESSOR(source, struct spw_source, pub, SPW_PUB_SOURCES) SPW__ACCESSOR(rate_index, uint64_t, pub, SPW_PUB_RATE_INDEX)
SPW__ACCESSOR(rate_record, struct spw_rate_record, pub, SPW_PUB_RATE_RECORDS) SPW__ACCESSOR(learned, struct spw_learned_rate, pub, SPW_PUB_LEARNED)
SPW__ACCESSOR(account_words, struct spw_account_words, rw, SPW_RW_ACCOUNTS) SPW__ACCESSOR(limiter_words, struct spw_limiter_words, rw, SPW_RW_LIMITERS)
SPW__ACCESSOR(permit, uint64_t, rw, SPW_RW_PERMITS) SPW__ACCESSOR(slot, struct spw_slot, rw, SPW_RW_SLOTS)
SPW__ACCESSOR(stats, struct spw_stats, rw, SPW_RW_STATS) SPW__ACCESSOR(cell_word, uint64_t, rw, SPW_RW_CELL_WORDS)
SPW__ACCESSOR(cell, struct spw_cell, rw, SPW_RW_CELLS)
#undef SPW__ACCESSOR
struct spw__section_rule { uint32_t base_bytes; uint32_t count; uint32_t count_max; };
static inline bool spw__sections_ok(const struct spw_section *s, const struct spw__section_rule *rule, unsigned n, uint64_t total_bytes) {
  for (unsigned i = 0; i < n; i++) {
    if (rule[i].base_bytes == 0 && s[i].count == 0) continue;
    if (s[i].stride_bytes < rule[i].base_bytes || s[i].stride_bytes % 8 || s[i].stride_bytes > (1u << 20) || s[i].offset_bytes % 8 ||
        s[i].offset_bytes < SPW_HEADER_BYTES || s[i].count > rule[i].count_max || (rule[i].count && s[i].count != rule[i].count) ||
        s[i].offset_bytes > total_bytes || (uint64_t)s[i].stride_bytes * s[i].count > total_bytes - s[i].offset_bytes)
      return false; }
  return true; }
static inline bool spw__shape_ok(struct spw_map *map) {
  static const struct spw__section_rule pub_rule[SPW_PUB_SECTIONS] = {
      {sizeof(struct spw_account), 0, 1024}, {sizeof(struct spw_integration), 0, 4096}, {sizeof(struct spw_limiter), 0, 4096},
      {sizeof(struct spw_policy), 2, 2}, {sizeof(struct spw_rate_half), 2, 2},
      {sizeof(struct spw_source), 2 * SPW_SOURCES_MAX_COUNT, 256},
      {8, 0, 1u << 28}, {sizeof(struct spw_rate_record), 0, 1u << 27}, {0, 0, 1u << 24},
  };
  static const struct spw__section_rule rw_rule[SPW_RW_SECTIONS] = {
      {sizeof(struct spw_account_words), 0, 1024}, {sizeof(struct spw_limiter_words), 0, 4096},
      {8, 0, 1024 * SPW_PERMITS_PER_ACCOUNT},
      {sizeof(struct spw_slot), 0, 512},
      {sizeof(struct spw_stats), 0, 512 * 1024},
      {8, 0, 1u << 20}, {sizeof(struct spw_cell), 0, 1u << 20},
  };
  const struct spw_section *p = map->pub_section, *r = map->rw_section;
  if (!spw__sections_ok(p, pub_rule, SPW_PUB_SECTIONS, map->pub_bytes) || !spw__sections_ok(r, rw_rule, SPW_RW_SECTIONS, map->rw_bytes)) return false;
  uint32_t accounts = p[SPW_PUB_ACCOUNTS].count, index_words = p[SPW_PUB_RATE_INDEX].count / 2; map->index_mask = (uint64_t)index_words - 1;
  map->records_per_half = p[SPW_PUB_RATE_RECORDS].count / 2; uint32_t learned = p[SPW_PUB_LEARNED].count;
  if (learned && (p[SPW_PUB_LEARNED].stride_bytes < sizeof(struct spw_learned_rate) || learned < SPW_LEARNED_WAYS || (learned & (learned - 1)) != 0))
    return false;
  return accounts && r[SPW_RW_ACCOUNTS].count == accounts && r[SPW_RW_LIMITERS].count == p[SPW_PUB_LIMITERS].count &&
      r[SPW_RW_PERMITS].count == accounts * SPW_PERMITS_PER_ACCOUNT && r[SPW_RW_SLOTS].count && r[SPW_RW_STATS].count == accounts * r[SPW_RW_SLOTS].count &&
      r[SPW_RW_CELLS].count == r[SPW_RW_CELL_WORDS].count && r[SPW_RW_CELLS].count >= 2 && r[SPW_RW_PERMITS].stride_bytes == 8 &&
      r[SPW_RW_CELL_WORDS].stride_bytes == 8 && p[SPW_PUB_RATE_INDEX].stride_bytes == 8 && index_words && (index_words & (index_words - 1)) == 0 &&
      p[SPW_PUB_RATE_INDEX].count % 2 == 0 && p[SPW_PUB_RATE_RECORDS].count % 2 == 0 && index_words > map->records_per_half;
}
static inline enum spw_status spw__header_check(
    const uint8_t *file, uint64_t file_bytes, uint64_t magic, unsigned least_sections, unsigned sections, struct spw_section *out, struct spw_map *map) {
  const struct spw_header *h = (const struct spw_header *)(const void *)file; if (spw_load_acq(&h->ready) != 1) return SPW_STATUS_NOT_READY;
  struct spw_header copy; memset(&copy, 0, sizeof copy); memcpy(&copy, file, offsetof(struct spw_header, ready));
  if (copy.magic != magic) return SPW_STATUS_CORRUPT;
  if (copy.oldest_compatible_major > SPW_LAYOUT_MAJOR || copy.layout_major < SPW_OLDEST_COMPATIBLE_MAJOR || copy.format_hash != spw_format_hash())
    return SPW_STATUS_VERSION_MISMATCH;
  uint8_t boot[16];
  static const uint8_t unknown[16] = {0};
  spw_boot_id(boot);
  if (copy.clock_id != (uint32_t)CLOCK_BOOTTIME ||
      (memcmp(boot, unknown, 16) != 0 && memcmp(copy.boot_id, unknown, 16) != 0 && memcmp(boot, copy.boot_id, 16) != 0))
    return SPW_STATUS_CLOCK_MISMATCH;
  uint64_t beat = spw_load_rlx(&h->heartbeat_ns);
  if (beat != SPW_HEARTBEAT_STOPPED && beat > spw_now_ns() + SPW_CLOCK_AHEAD_MAX_NS) return SPW_STATUS_CLOCK_MISMATCH;
  if (copy.total_bytes > file_bytes || copy.header_bytes < SPW_HEADER_BYTES || copy.section_count < least_sections ||
      copy.section_count > SPW_SECTIONS_MAX_COUNT || copy.base_ns == 0 || copy.base_ns > spw_now_ns())
    return SPW_STATUS_CORRUPT;
  memset(out, 0, sections * sizeof out[0]); memcpy(out, copy.sections, (copy.section_count < sections ? copy.section_count : sections) * sizeof out[0]);
  if (map->generation && map->generation != copy.generation) return SPW_STATUS_NOT_READY;
  map->generation = copy.generation; map->base_ns = copy.base_ns; map->lock_base = copy.lock_base; map->layout_major = copy.layout_major;
  map->layout_minor = copy.layout_minor; return SPW_STATUS_OK; }
static inline bool spw__path(char *out, size_t room, const char *dir, const char *name) {
  size_t dir_bytes = strlen(dir), name_bytes = strlen(name); if (dir_bytes + name_bytes + 2 > room) return false;
  memcpy(out, dir, dir_bytes + 1); out[dir_bytes] = '/'; memcpy(out + dir_bytes + 1, name, name_bytes); out[dir_bytes + 1 + name_bytes] = 0; return true; }
static inline enum spw_status spw__file_map(const char *dir, const char *name, bool writable, uint8_t **out, uint64_t *bytes, uint64_t *inode) {
  char path[4096]; if (!spw__path(path, sizeof path, dir, name)) return SPW_STATUS_INVALID;
  int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW); if (fd < 0) return errno == ENOENT ? SPW_STATUS_NO_SEGMENT : SPW_STATUS_SYSTEM;
  struct stat st; enum spw_status status = SPW_STATUS_OK;
  if (fstat(fd, &st) != 0) status = SPW_STATUS_SYSTEM;
  else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < SPW_HEADER_BYTES) status = SPW_STATUS_CORRUPT;
  if (status == SPW_STATUS_OK) {
    void *base = mmap(NULL, (size_t)st.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) status = SPW_STATUS_SYSTEM;
    else *out = (uint8_t *)base;
    *bytes = (uint64_t)st.st_size; *inode = (uint64_t)st.st_ino; }
  close(fd); return status; }
static inline void spw_map_close(struct spw_map *map) {
  if (map->pub) munmap(map->pub, (size_t)map->pub_bytes);
  if (map->rw) munmap(map->rw, (size_t)map->rw_bytes);
  map->pub = map->rw = NULL; }
static inline enum spw_status SPW_WARN_UNUSED spw_map_open(struct spw_map *map, const char *pub_dir, const char *rw_dir, const char *name, bool pub_writable) {
  map->self.lock_fd = -1; enum spw_status status = spw__file_map(pub_dir, name, pub_writable, &map->pub, &map->pub_bytes, &map->pub_inode);
  if (status == SPW_STATUS_OK) status = spw__file_map(rw_dir, name, true, &map->rw, &map->rw_bytes, &map->rw_inode);
  if (status == SPW_STATUS_OK)
    status = spw__header_check(map->pub, map->pub_bytes, SPW_MAGIC_PUB, SPW_PUB_SECTIONS_1_0, SPW_PUB_SECTIONS, map->pub_section, map);
  if (status == SPW_STATUS_OK) status = spw__header_check(map->rw, map->rw_bytes, SPW_MAGIC_RW, SPW_RW_SECTIONS, SPW_RW_SECTIONS, map->rw_section, map);
  if (status == SPW_STATUS_OK && !spw__shape_ok(map)) status = SPW_STATUS_CORRUPT;
  if (status != SPW_STATUS_OK) spw_map_close(map);
  map->made_ns = spw_now_ns(); return status; }
static inline uint64_t spw_map_silence_ns(const struct spw_map *map, uint64_t now_ns) {
  uint64_t beat = spw_load_rlx(&spw_map_pub(map)->heartbeat_ns); if (beat == SPW_HEARTBEAT_STOPPED) return SPW_HEARTBEAT_STOPPED;
  return now_ns > beat ? now_ns - beat : 0; }

/* ---- spw_slot.h ---- */
#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif
static inline uint64_t spw_slot_word(uint32_t generation, uint32_t state) { return (uint64_t)generation << 8 | state; }
static inline uint32_t spw_slot_generation(uint64_t word) { return (uint32_t)(word >> 8); }
static inline uint32_t spw_slot_state(uint64_t word) { return (uint32_t)(word & 0xFF); }
static inline bool spw__slot_lock(int fd, const struct spw_map *map, uint32_t slot, int how) {
  struct flock lock; memset(&lock, 0, sizeof lock); lock.l_type = (short)how; lock.l_whence = SEEK_SET; lock.l_start = (off_t)(map->lock_base + slot);
  lock.l_len = 1; return fcntl(fd, F_OFD_SETLK, &lock) == 0; }
static inline enum spw_status SPW_WARN_UNUSED spw_slot_claim(struct spw_map *map, const char *rw_dir, const char *name) {
  char path[4096]; if (!spw__path(path, sizeof path, rw_dir, name)) return SPW_STATUS_INVALID;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW); if (fd < 0) return SPW_STATUS_SYSTEM;
  struct stat st;
  if (fstat(fd, &st) != 0 || (uint64_t)st.st_ino != map->rw_inode) { close(fd); return SPW_STATUS_NOT_READY; }
  uint32_t slots = map->rw_section[SPW_RW_SLOTS].count; uint32_t first = (uint32_t)(spw_now_ns() >> 10) % slots;
  for (uint32_t i = 0; i < slots; i++) {
    uint32_t index = (first + i) % slots; struct spw_slot *slot = spw_slot_at(map, index); uint64_t word = spw_load_acq(&slot->word);
    if (spw_slot_state(word) != SPW_SLOT_FREE || !spw__slot_lock(fd, map, index, F_WRLCK)) continue;
    uint64_t expected = word;
    if (spw_slot_state(word) == SPW_SLOT_FREE && spw_cas(&slot->word, &expected, spw_slot_word(spw_slot_generation(word), SPW_SLOT_LIVE))) {
      map->self.lock_fd = fd; map->self.slot = index; map->self.generation = spw_slot_generation(word); map->self.uid = (uint32_t)geteuid();
      slot->attached_ns = spw_now_ns(); slot->uid = map->self.uid; return SPW_STATUS_OK; }
    spw__slot_lock(fd, map, index, F_UNLCK); }
  close(fd); return SPW_STATUS_FULL; }
static inline void spw_slot_release(struct spw_map *map) {
  struct stat st; if (map->self.lock_fd >= 0 && fstat(map->self.lock_fd, &st) == 0 && (uint64_t)st.st_ino == map->rw_inode) close(map->self.lock_fd);
  map->self.lock_fd = -1; }

/* ---- spw_bucket.h ---- */
#define SPW_LEVEL_BITS 60
#define SPW_CAS_TRIES 100000
#define SPW_AHEAD_MAX_NS (2 * SPW_RESERVE_MAX_NS)
static inline uint64_t spw_bucket_word(uint32_t slot, uint64_t level) { return (uint64_t)slot << SPW_LEVEL_BITS | level; }
static inline uint32_t spw_bucket_slot(uint64_t word) { return (uint32_t)(word >> SPW_LEVEL_BITS); }
static inline uint64_t spw_bucket_level(uint64_t word) { return word & ((UINT64_C(1) << SPW_LEVEL_BITS) - 1); }
static inline bool spw_limiter_conf_read(const struct spw_limiter *limiter, uint32_t slot, struct spw_gcra *out) {
  const struct spw_limiter_conf *c = &limiter->conf[slot]; uint64_t version = spw_load_acq(&c->version); out->version = version / 2;
  struct spw_limiter_conf copy; spw_copy_rlx(&copy.version, &c->version, sizeof copy / 8); spw_fence_acq();
  if (!version || version % 2 || spw_load_rlx(&c->version) != version || !copy.units_den || !copy.units_per_token) return false;
  spw_gcra_of(&copy, out); return true; }
static inline bool spw_bucket_level_ok(const struct spw_gcra *g, uint64_t level, uint64_t now_ns) {
  uint64_t earned = spw_gcra_earned(g, now_ns); if (level <= earned) return true;
  return level - earned <= spw_gcra_earned_in(g, SPW_AHEAD_MAX_NS) + g->burst_units; }
static inline void spw_bucket_heal(const struct spw_limiter *limiter, struct spw_limiter_words *words, uint64_t bad, uint64_t now_ns) {
  struct spw_gcra g; uint32_t slot = (uint32_t)(spw_load_acq(&limiter->current) % SPW_CONFIG_SLOTS); if (!spw_limiter_conf_read(limiter, slot, &g)) return;
  if (spw_cas(&words->level, &bad, spw_bucket_word(slot, spw_gcra_earned(&g, now_ns)))) spw_add_rlx(&words->healed_count, 1); }
enum spw_bucket_result { SPW_BUCKET_TAKEN, SPW_BUCKET_WAIT, SPW_BUCKET_NEVER, SPW_BUCKET_MOVED };
struct spw_charge { uint64_t version; uint64_t level; uint64_t returned; uint64_t taken_ns; };
struct spw_bucket_answer {
  enum spw_bucket_result result; uint64_t wait_ns; enum spw_cause why_never; uint64_t version; uint64_t available_units; uint64_t units_per_token;
  struct spw_charge charge;
};
static inline bool spw__bucket_read(const struct spw_limiter *limiter, struct spw_limiter_words *words, uint64_t now_ns, uint64_t *word, struct spw_gcra *g) {
  *word = spw_load_acq(&words->level); if (*word == SPW_MOVED) return true;
  if (!spw_limiter_conf_read(limiter, spw_bucket_slot(*word), g)) {
    if (spw_load_acq(&words->level) == *word) spw_bucket_heal(limiter, words, *word, now_ns);
    return false; }
  if (!spw_bucket_level_ok(g, spw_bucket_level(*word), now_ns)) { spw_bucket_heal(limiter, words, *word, now_ns); return false; }
  return true; }
static inline enum spw_cause spw__bucket_why_never(const struct spw_gcra *g, uint64_t tokens, bool keep_reserve) {
  if (g->units_num == 0) return SPW_CAUSE_RATE_ZERO;
  return tokens > g->burst_units / g->units_per_token || !keep_reserve ? SPW_CAUSE_COST_ABOVE_BURST : SPW_CAUSE_BATCH_RESERVE; }
static inline struct spw_bucket_answer spw_bucket_take(
    const struct spw_limiter *limiter, struct spw_limiter_words *words, uint64_t now_ns, uint64_t tokens, bool keep_reserve, uint64_t max_wait_ns, bool take) {
  struct spw_bucket_answer answer; memset(&answer, 0, sizeof answer); answer.result = SPW_BUCKET_WAIT;
  if (max_wait_ns > SPW_RESERVE_MAX_NS) max_wait_ns = SPW_RESERVE_MAX_NS;
  for (int i = 0; i < SPW_CAS_TRIES; i++) {
    uint64_t word, next = 0; struct spw_gcra g; uint64_t returned = spw_load_acq(&words->returned_units);
    if (!spw__bucket_read(limiter, words, now_ns, &word, &g)) { spw_relax(); continue; }
    if (word == SPW_MOVED) { answer.result = SPW_BUCKET_MOVED; return answer; }
    enum spw_gcra_result result =
        spw_gcra_take(&g, spw_bucket_level(word), now_ns, tokens, keep_reserve ? g.reserve_units : 0, max_wait_ns, &next, &answer.wait_ns);
    answer.version = g.version; answer.units_per_token = g.units_per_token; answer.available_units = spw_gcra_available(&g, spw_bucket_level(word), now_ns);
    if (result != SPW_GCRA_TAKE) {
      answer.result = result == SPW_GCRA_NEVER ? SPW_BUCKET_NEVER : SPW_BUCKET_WAIT; answer.why_never = spw__bucket_why_never(&g, tokens, keep_reserve);
      return answer; }
    answer.result = SPW_BUCKET_TAKEN; answer.charge.version = g.version; answer.charge.level = spw_bucket_level(word); answer.charge.returned = returned;
    answer.charge.taken_ns = now_ns; if (!take || spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), next))) return answer;
    answer.result = SPW_BUCKET_WAIT; spw_relax(); }
  answer.wait_ns = 0; return answer; }
static inline uint64_t spw__bucket_full(const struct spw_gcra *g, uint64_t now_ns) {
  uint64_t earned = spw_gcra_earned(g, now_ns); return earned + spw__gcra_fraction(g, earned, now_ns) - g->burst_units; }
static inline void spw_bucket_give_back(
    const struct spw_limiter *limiter, struct spw_limiter_words *words, uint64_t now_ns, uint64_t tokens, const struct spw_charge *charge) {
  for (int i = 0; i < SPW_CAS_TRIES; i++) {
    uint64_t word; struct spw_gcra g; uint64_t before = spw_load_acq(&words->returning_units);
    if (!spw__bucket_read(limiter, words, now_ns, &word, &g)) continue;
    if (word == SPW_MOVED || g.version != charge->version || tokens > g.burst_units / g.units_per_token) return;
    uint64_t shift = spw_load_acq(&words->returning_units) - charge->returned; uint64_t cost = tokens * g.units_per_token, held = spw_bucket_level(word);
    uint64_t at_ns = charge->taken_ns, window_ns = g.units_den ? 0 : spw_gcra_when(&g, charge->level + cost); if (window_ns > at_ns) at_ns = window_ns;
    uint64_t floor = spw__bucket_full(&g, at_ns), full = spw__bucket_full(&g, now_ns); uint64_t base = charge->level > floor ? charge->level : floor;
    uint64_t from = base > shift ? base - shift : 0; bool top = held == from + cost; if (!top && from < floor) from = floor;
    uint64_t to = from + cost, earned = spw_gcra_earned(&g, now_ns); if (from < full) from = full;
    if (held < to || (g.units_den == 0 && held > floor + g.burst_units)) return;
    if (top && shift == 0 && charge->level < from) from = charge->level;
    if (held > earned && held > to) from += held - (to > earned ? to : earned);
    if (from >= to) return;
    uint64_t others = spw_add(&words->returning_units, to - from);
    bool done = spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), held - (to - from)));
    if (!done || (top && others == before && spw_load_acq(&words->returning_units) == before + (to - from))) (void)spw_add(&words->returning_units, from - to);
    else (void)spw_add(&words->returned_units, to - from);
    if (done) return;
    spw_relax(); }
}

/* ---- spw_breaker.h ---- */
enum spw_breaker_state { SPW_BREAKER_CLOSED, SPW_BREAKER_OPEN, SPW_BREAKER_HALF_OPEN };
#define SPW_TIME_MASK ((UINT64_C(1) << 39) - 1)
#define SPW_EPOCH_MASK UINT64_C(0x7FF)
#define SPW_TRIPS_MAX 15u
#define SPW__BREAKER_SLACK_MS 3600000u
struct spw_breaker_word { uint32_t state; uint32_t consecutive; uint32_t trips; uint32_t epoch; uint64_t time_ms; };
static inline uint64_t spw_breaker_pack(const struct spw_breaker_word *b) {
  return (uint64_t)(b->state & 3) << 62 | (uint64_t)(b->consecutive & 0xFF) << 54 | (uint64_t)(b->trips & 0xF) << 50 |
      ((uint64_t)b->epoch & SPW_EPOCH_MASK) << 39 | (b->time_ms & SPW_TIME_MASK);
}
static inline struct spw_breaker_word spw_breaker_unpack(uint64_t word) {
  struct spw_breaker_word b; b.state = (uint32_t)(word >> 62); b.consecutive = (uint32_t)(word >> 54 & 0xFF); b.trips = (uint32_t)(word >> 50 & 0xF);
  b.epoch = (uint32_t)(word >> 39 & SPW_EPOCH_MASK); b.time_ms = word & SPW_TIME_MASK; return b; }
static inline bool spw_account_conf_read(const struct spw_account *account, struct spw_account_conf *out) {
  return spw_latch_read(&account->conf_seq, (const uint64_t *)(const void *)account->conf, sizeof(struct spw_account_conf) / 8, out, sizeof *out / 8) &&
      out->window_tick_ms != 0;
}
static inline bool spw__breaker_sane(const struct spw_breaker_word *b, const struct spw_account_conf *conf, uint64_t now_ms) {
  uint64_t ahead = (uint64_t)conf->cooldown_max_ms + conf->probe_ms + SPW__BREAKER_SLACK_MS;
  return b->state <= SPW_BREAKER_HALF_OPEN && b->time_ms <= now_ms + ahead; }
enum spw_breaker_verdict { SPW_BREAKER_PASS, SPW_BREAKER_PROBE, SPW_BREAKER_REFUSE, SPW_BREAKER_GONE };
struct spw_breaker_answer { enum spw_breaker_verdict verdict; uint32_t epoch; uint64_t wait_ns; uint32_t state; bool forced; bool observed; };
static inline struct spw_breaker_answer spw_breaker_enter(const struct spw_map *map, const struct spw_account *account, struct spw_account_words *words,
    const struct spw_account_conf *conf, uint64_t now_ns, bool take) {
  struct spw_breaker_answer answer; memset(&answer, 0, sizeof answer); uint64_t now_ms = spw_map_ms(map, now_ns);
  uint64_t forced = spw_load_rlx(&account->forced);
  for (;;) {
    uint64_t word = spw_load_acq(&words->breaker);
    if (word == SPW_MOVED) { answer.verdict = SPW_BREAKER_GONE; return answer; }
    struct spw_breaker_word b = spw_breaker_unpack(word); answer.epoch = b.epoch; answer.state = b.state; bool observe = forced == SPW_FORCED_OBSERVE;
    if (forced != SPW_FORCED_NOT && !observe) {
      answer.forced = true; answer.verdict = forced == SPW_FORCED_OPEN ? SPW_BREAKER_REFUSE : SPW_BREAKER_PASS;
      answer.wait_ns = forced == SPW_FORCED_OPEN ? UINT64_MAX : 0; return answer; }
    if (b.state == SPW_BREAKER_CLOSED) { answer.verdict = SPW_BREAKER_PASS; return answer; }
    struct spw_breaker_word next = b; bool sane = spw__breaker_sane(&b, conf, now_ms);
    if (!sane) { next.state = SPW_BREAKER_OPEN; next.time_ms = now_ms + conf->cooldown_min_ms; next.epoch++; }
    else if (now_ms < b.time_ms) {
      answer.verdict = observe ? SPW_BREAKER_PASS : SPW_BREAKER_REFUSE; answer.observed = observe; answer.epoch = (b.epoch - observe) & SPW_EPOCH_MASK;
      answer.wait_ns = observe ? 0 : spw_map_ns_of_ms(map, b.time_ms) - now_ns; return answer;
    } else {
      next.state = SPW_BREAKER_HALF_OPEN; next.epoch++; next.time_ms = now_ms + conf->probe_ms; }
    if (sane && !take) { answer.verdict = SPW_BREAKER_PASS; return answer; }
    if (spw_cas(&words->breaker, &word, spw_breaker_pack(&next)) && sane) {
      answer.verdict = SPW_BREAKER_PROBE; answer.epoch = next.epoch & SPW_EPOCH_MASK; answer.state = SPW_BREAKER_HALF_OPEN; return answer; }
  } }
static inline void spw_breaker_probe_back(const struct spw_map *map, struct spw_account_words *words, uint32_t epoch, uint64_t now_ns) {
  uint64_t word = spw_load_acq(&words->breaker); struct spw_breaker_word b = spw_breaker_unpack(word);
  if (b.state != SPW_BREAKER_HALF_OPEN || b.epoch != epoch) return;
  b.state = SPW_BREAKER_OPEN; b.epoch++; b.time_ms = spw_map_ms(map, now_ns); (void)spw_cas(&words->breaker, &word, spw_breaker_pack(&b)); }
enum spw_outcome { SPW_OUTCOME_OK, SPW_OUTCOME_THROTTLED, SPW_OUTCOME_FAILED, SPW_OUTCOME_NEUTRAL };
static inline enum spw_outcome spw_outcome_of_status(uint32_t http_status) {
  bool failed = http_status == 0 || http_status == 408 || http_status >= 500;
  return http_status == 429 ? SPW_OUTCOME_THROTTLED : failed ? SPW_OUTCOME_FAILED : SPW_OUTCOME_OK; }
static inline bool spw_status_accepts(uint32_t http_status) {
  return spw_outcome_of_status(http_status) == SPW_OUTCOME_OK && http_status != 401 && http_status != 403; }
static inline void spw__window_count(struct spw_account_words *words, uint32_t tick, bool bad) {
  uint64_t *cell = &words->window[tick % SPW_WINDOW_WORDS];
  for (unsigned i = 0; i < SPW_WINDOW_WORDS * 64; i++) {
    uint64_t word = spw_load_rlx(cell); uint64_t n_total = word & 0xFFFF, n_bad = word >> 16 & 0xFFFF; if ((uint32_t)(word >> 32) != tick) n_total = n_bad = 0;
    if (n_total == 0xFFFF) { n_total /= 2; n_bad /= 2; }
    n_total++; n_bad += bad; if (spw_cas(cell, &word, (uint64_t)tick << 32 | n_bad << 16 | n_total)) return; }
}
static inline bool spw__window_bad(const struct spw_account_words *words, const struct spw_account_conf *conf, uint32_t tick, uint32_t since_tick) {
  uint64_t total = 0, bad = 0;
  for (unsigned i = 0; i < SPW_WINDOW_WORDS; i++) {
    uint64_t word = spw_load_rlx(&words->window[i]); uint32_t at = (uint32_t)(word >> 32); if (at > tick || tick - at >= 10 || at < since_tick) continue;
    total += word & 0xFFFF; bad += word >> 16 & 0xFFFF; }
  return total >= conf->minimum_count && bad * 1000000u > (uint64_t)conf->ratio_429_ppm * total; }
static inline uint64_t spw_breaker_cooldown_ms(const struct spw_account_conf *conf, uint32_t trips) {
  uint64_t ms = conf->cooldown_min_ms; for (uint32_t i = 1; i < trips && ms < conf->cooldown_max_ms; i++) ms *= 2;
  return ms < conf->cooldown_max_ms ? ms : conf->cooldown_max_ms; }
static inline void spw__breaker_trip(const struct spw_map *map, struct spw_breaker_word *b, const struct spw_account_conf *conf, uint64_t now_ns) {
  b->trips = b->trips < SPW_TRIPS_MAX ? b->trips + 1 : SPW_TRIPS_MAX; b->state = SPW_BREAKER_OPEN; b->consecutive = 0; b->epoch++;
  b->time_ms = spw_map_ms_up(map, now_ns) + spw_breaker_cooldown_ms(conf, b->trips); }
static inline bool spw_breaker_outcome(const struct spw_map *map, struct spw_account_words *words, const struct spw_account_conf *conf, uint64_t now_ns,
    uint32_t epoch, enum spw_outcome outcome) {
  if (outcome == SPW_OUTCOME_NEUTRAL) return false;
  bool bad = outcome != SPW_OUTCOME_OK; uint32_t tick = (uint32_t)(spw_map_ms(map, now_ns) / conf->window_tick_ms); spw__window_count(words, tick, bad);
  for (;;) {
    uint64_t word = spw_load_acq(&words->breaker); struct spw_breaker_word b = spw_breaker_unpack(word);
    if (word == SPW_MOVED || b.epoch != epoch || b.state == SPW_BREAKER_OPEN) return false;
    struct spw_breaker_word next = b;
    if (b.state == SPW_BREAKER_HALF_OPEN) {
      if (bad) { spw__breaker_trip(map, &next, conf, now_ns); }
      else { memset(&next, 0, sizeof next); next.epoch = b.epoch + 1; next.time_ms = spw_map_ms(map, now_ns); }
    } else if (outcome == SPW_OUTCOME_OK) { next.consecutive = 0; }
    else {
      uint32_t in_a_row = b.consecutive < 255 ? b.consecutive + 1 : 255; next.consecutive = outcome == SPW_OUTCOME_THROTTLED ? in_a_row : 0;
      uint32_t since_tick = (uint32_t)(b.time_ms / conf->window_tick_ms);
      if (next.consecutive >= conf->consecutive_429_count || spw__window_bad(words, conf, tick, since_tick)) spw__breaker_trip(map, &next, conf, now_ns); }
    uint64_t packed = spw_breaker_pack(&next); if (packed != word && !spw_cas(&words->breaker, &word, packed)) continue;
    if (b.state == SPW_BREAKER_HALF_OPEN && next.state == SPW_BREAKER_CLOSED) spw_store_rlx(&words->window[tick % SPW_WINDOW_WORDS], (uint64_t)tick << 32);
    return next.state != b.state; }
}

/* ---- spw_gate.h ---- */
#define SPW_GATE_TABLE(X)                                                                                                                                      \
  X(0, NONE, "none")                                                                                                                                           \
  X(1, RETRY_AFTER, "retry-after")                                                                                                                             \
  X(2, RESET, "reset")                                                                                                                                         \
  X(3, BUFFER_RESET, "buffer-until-reset")                                                                                                                     \
  X(4, UNKNOWN_429, "429-without-reset")                                                                                                                       \
  X(5, UNKNOWN_BUFFER, "buffer-without-reset")                                                                                                                 \
  X(6, GOAWAY, "goaway")                                                                                                                                       \
  X(7, REFRESH, "refresh-in-flight")                                                                                                                           \
  X(8, BY_HAND, "by-hand")
#define SPW__X(code, name, text) SPW_GATE_##name = (code),
enum spw_gate_source { SPW_GATE_TABLE(SPW__X) SPW_GATE_COUNT };
#undef SPW__X
#define SPW__X(code, name, text)                                                                                                                               \
  case code: return text;
static inline const char *spw_gate_name(uint32_t source) {
  switch (source) {
    SPW_GATE_TABLE(SPW__X)
  default: return "unknown"; }
}
#undef SPW__X
#define SPW_GATE_UNKNOWN_MS UINT64_C(1000)
#define SPW_GATE_MAX_MS UINT64_C(86400000)
#define SPW__GATE_AHEAD_MS (SPW_GATE_MAX_MS + UINT64_C(3600000))
#define SPW__OBS_MASK UINT64_C(0x1FFFFF)
static inline uint64_t spw__gate_word(uint32_t source, uint64_t observation, uint64_t until_ms) {
  return (uint64_t)source << 60 | (observation & SPW__OBS_MASK) << 39 | (until_ms & SPW_TIME_MASK); }
static inline uint32_t spw_gate_source(uint64_t word) { return (uint32_t)(word >> 60); }
static inline uint64_t spw_gate_until_ms(uint64_t word) { return word & SPW_TIME_MASK; }
static inline bool spw__gate_newer(uint64_t a, uint64_t b) { uint64_t d = (a - b) & SPW__OBS_MASK; return d != 0 && d <= SPW__OBS_MASK / 2; }
static inline bool spw__gate_asks(uint32_t source) { return source == SPW_GATE_UNKNOWN_429 || source == SPW_GATE_UNKNOWN_BUFFER || source == SPW_GATE_REFRESH; }
enum spw_gate_verdict { SPW_GATE_PASS, SPW_GATE_PASS_REFRESH, SPW_GATE_SHUT, SPW_GATE_GONE };
static inline enum spw_gate_verdict spw_gate_enter(const struct spw_map *map, struct spw_account_words *words, const struct spw_account_conf *conf,
    uint64_t now_ns, bool take, uint64_t *wait_ns, uint32_t *source) {
  uint64_t now_ms = spw_map_ms(map, now_ns);
  for (;;) {
    uint64_t word = spw_load_acq(&words->gate); if (word == 0) return SPW_GATE_PASS;
    if (word == SPW_MOVED) return SPW_GATE_GONE;
    *source = spw_gate_source(word); uint64_t until_ms = spw_gate_until_ms(word);
    if (now_ms < until_ms && until_ms <= now_ms + SPW__GATE_AHEAD_MS) { *wait_ns = spw_map_ns_of_ms(map, until_ms) - now_ns; return SPW_GATE_SHUT; }
    if (until_ms > now_ms || !spw__gate_asks(*source) || !take) return SPW_GATE_PASS;
    if (spw_cas(&words->gate, &word, spw__gate_word(SPW_GATE_REFRESH, word >> 39 & SPW__OBS_MASK, now_ms + conf->probe_ms))) return SPW_GATE_PASS_REFRESH; }
}
static inline void spw_gate_shut(
    const struct spw_map *map, struct spw_account_words *words, uint64_t until_ns, uint32_t source, uint64_t sent_ns, uint64_t now_ns) {
  uint64_t observation = spw_map_ms(map, sent_ns) >> 6, now_ms = spw_map_ms(map, now_ns); uint64_t until_ms = spw_map_ms_up(map, until_ns);
  if (until_ms > now_ms + SPW_GATE_MAX_MS) until_ms = now_ms + SPW_GATE_MAX_MS;
  for (;;) {
    uint64_t word = spw_load_acq(&words->gate); if (word == SPW_MOVED) return;
    uint64_t old_until_ms = spw_gate_until_ms(word), old_observation = word >> 39 & SPW__OBS_MASK; bool asked = spw_gate_source(word) == SPW_GATE_REFRESH;
    bool held = spw_gate_source(word) == SPW_GATE_BY_HAND && old_until_ms > now_ms && old_until_ms <= now_ms + SPW__GATE_AHEAD_MS;
    bool newer = word == 0 || old_until_ms <= now_ms || spw__gate_newer(observation, old_observation);
    if ((!newer || held) && until_ms <= old_until_ms && !asked) return;
    if (spw_cas(&words->gate, &word, spw__gate_word(source, newer ? observation : old_observation, until_ms))) return; }
}
static inline void spw_gate_open(const struct spw_map *map, struct spw_account_words *words, uint64_t sent_ns, uint64_t now_ns, bool refresh) {
  uint64_t observation = spw_map_ms(map, sent_ns) >> 6, now_ms = spw_map_ms(map, now_ns); uint64_t word = spw_load_acq(&words->gate);
  while (word != 0 && word != SPW_MOVED) {
    uint32_t source = spw_gate_source(word); bool mine = refresh && source == SPW_GATE_REFRESH;
    bool told = (source == SPW_GATE_RETRY_AFTER || source == SPW_GATE_BY_HAND) && now_ms < spw_gate_until_ms(word);
    if (!mine && (told || !spw__gate_newer(observation, word >> 39 & SPW__OBS_MASK))) return;
    if (spw_cas(&words->gate, &word, 0)) return; }
}
static inline void spw_gate_refresh_back(
    const struct spw_map *map, struct spw_account_words *words, const struct spw_account_conf *conf, uint64_t claimed_ns, uint64_t now_ns) {
  uint64_t word = spw_load_acq(&words->gate), observation = word >> 39 & SPW__OBS_MASK;
  if (spw_gate_source(word) == SPW_GATE_REFRESH && spw_gate_until_ms(word) == spw_map_ms(map, claimed_ns) + conf->probe_ms)
    (void)spw_cas(&words->gate, &word, spw__gate_word(SPW_GATE_REFRESH, observation, spw_map_ms(map, now_ns))); }

/* ---- spw_permit.h ---- */
#define SPW_PERMIT_TIME_MASK ((UINT64_C(1) << 38) - 1)
#define SPW_PERMIT_MAX_MS 60000u
#define SPW__PERMIT_AHEAD_MS (SPW_PERMIT_MAX_MS + 3600000u)
static inline uint64_t spw_permit_word(uint32_t slot, uint32_t generation, uint32_t use, uint64_t expiry_ms) {
  return (uint64_t)(slot & 0x1FF) << 55 | (uint64_t)(generation & 0x3FF) << 45 | (uint64_t)(use & 0x7F) << 38 | (expiry_ms & SPW_PERMIT_TIME_MASK); }
static inline bool spw_permit_mine(const struct spw_map *map, uint64_t word) {
  return word >> 45 == spw_permit_word(map->self.slot, map->self.generation, 0, 0) >> 45; }
static inline bool spw__permit_busy(uint64_t held, uint64_t now_ms) {
  uint64_t expiry_ms = held & SPW_PERMIT_TIME_MASK; return held == SPW_MOVED || (held != 0 && expiry_ms > now_ms && expiry_ms <= now_ms + SPW__PERMIT_AHEAD_MS);
}
static inline bool spw_permit_take(
    const struct spw_map *map, uint32_t account_index, uint32_t count, uint32_t use, uint32_t life_ms, uint64_t now_ns, uint64_t *word, uint32_t *index) {
  uint64_t now_ms = spw_map_ms(map, now_ns); if (life_ms > SPW_PERMIT_MAX_MS) life_ms = SPW_PERMIT_MAX_MS;
  uint64_t mine = spw_permit_word(map->self.slot, map->self.generation, use, now_ms + life_ms);
  if (count > SPW_PERMITS_PER_ACCOUNT) count = SPW_PERMITS_PER_ACCOUNT;
  for (uint32_t i = 0; i < count; i++) {
    *index = account_index * SPW_PERMITS_PER_ACCOUNT + i; uint64_t *permit = spw_permit_at(map, *index); if (!permit) return false;
    uint64_t held = spw_load_acq(permit);
    while (!spw__permit_busy(held, now_ms)) {
      if (spw_cas(permit, &held, mine)) { *word = mine; return true; }
    } }
  return false; }
static inline void spw_permit_release(const struct spw_map *map, uint32_t index, uint64_t word) {
  uint64_t *permit = spw_permit_at(map, index); if (permit) (void)spw_cas(permit, &word, 0); }
static inline uint32_t spw_permit_busy_count(const struct spw_map *map, uint32_t account_index, uint32_t count, bool mine, uint64_t now_ns, uint64_t *wait_ns) {
  uint64_t now_ms = spw_map_ms(map, now_ns), first_ms = now_ms + SPW__PERMIT_AHEAD_MS; uint32_t n = 0;
  for (uint32_t i = 0; i < count && i < SPW_PERMITS_PER_ACCOUNT; i++) {
    uint64_t *permit = spw_permit_at(map, (uint64_t)account_index * SPW_PERMITS_PER_ACCOUNT + i); uint64_t held = permit ? spw_load_rlx(permit) : SPW_MOVED;
    if (!spw__permit_busy(held, now_ms) || (mine && !spw_permit_mine(map, held))) continue;
    n++; if (held != SPW_MOVED && (held & SPW_PERMIT_TIME_MASK) < first_ms) first_ms = held & SPW_PERMIT_TIME_MASK; }
  *wait_ns = spw_map_ns_of_ms(map, first_ms) - now_ns; return n; }


/* ---- spw_admission.h ---- */
enum spw_verdict { SPW_ALLOW = 0, SPW_DENY = 1, SPW_NEVER = 2, SPW_NOT_ATTACHED = 3, SPW_BAD_HANDLE = 4 };
enum { SPW_ACQUIRE_PEEK = 1, SPW_ACQUIRE_RETRY = 2, SPW_ACQUIRE_BATCH = 4, SPW_ACQUIRE_SHARE = 8 };
#define SPW_ACQUIRE_SKIP(mask) ((uint32_t)(mask) << 8)
struct spw_admission {
  enum spw_verdict verdict; enum spw_cause cause; uint32_t breaker_state; bool observed; bool may_call; uint64_t wait_ns; uint64_t start_at_ns;
  uint64_t version; uint64_t units_per_token; uint64_t available_units;
};
struct spw_ticket {
  uint64_t generation; uint64_t taken_ns; uint64_t permit_word; uint64_t tokens; uint32_t account_index; uint32_t permit_index; uint32_t epoch; bool has_permit;
  bool refresh; bool probe; uint8_t charged; uint32_t flags; uint64_t start_at_ns; struct spw_charge charge[SPW_LIMITERS_PER_ACCOUNT];
};
#define SPW__TAKE_TRIES 64u
#define SPW__TICKET_HEAD_BYTES offsetof(struct spw_ticket, charge)
static inline uint64_t spw_admission_tokens_milli(const struct spw_admission *a) {
  if (a->units_per_token == 0) return 0;
  uint64_t whole = a->available_units / a->units_per_token, rest = a->available_units % a->units_per_token;
  return whole * 1000 + (uint64_t)((spw_u128)rest * 1000 / a->units_per_token); }
static inline struct spw_stats *spw__stats(const struct spw_map *map, uint32_t account_index) {
  if (map->self.lock_fd < 0) return NULL;
  return spw_stats_at(map, (uint64_t)map->self.slot * map->pub_section[SPW_PUB_ACCOUNTS].count + account_index); }
static inline void spw_stat_count(const struct spw_map *map, uint32_t account_index, enum spw_stat stat) {
  struct spw_stats *stats = spw__stats(map, account_index); if (stats) spw_add_rlx(&stats->count[stat], 1); }
static inline enum spw_stat spw__stat_of(enum spw_cause cause) {
  switch (cause) {
  case SPW_CAUSE_BUCKET_EMPTY:
  case SPW_CAUSE_BATCH_RESERVE:
  case SPW_CAUSE_RATE_ZERO:
  case SPW_CAUSE_COST_ABOVE_BURST: return SPW_STAT_DENY_BUCKET;
  case SPW_CAUSE_GATE_SHUT:
  case SPW_CAUSE_REMAINING_BELOW_BUFFER: return SPW_STAT_DENY_GATE;
  case SPW_CAUSE_BREAKER_OPEN:
  case SPW_CAUSE_BREAKER_FORCED: return SPW_STAT_DENY_BREAKER;
  case SPW_CAUSE_CONCURRENCY: return SPW_STAT_DENY_CONCURRENCY;
  default: return SPW_STAT_DENY_OTHER; }
}
static inline enum spw_fallback spw_refusal_type(enum spw_cause cause) {
  return cause == SPW_CAUSE_BREAKER_OPEN || cause == SPW_CAUSE_BREAKER_FORCED ? SPW_FALLBACK_CIRCUIT_BREAKER_OPEN : SPW_FALLBACK_RATE_LIMIT_PROACTIVE; }
struct spw__account_view {
  const struct spw_map *map; const struct spw_account *account; struct spw_account_words *words; struct spw_account_conf conf; uint32_t index;
  uint32_t permits_count; uint32_t limiters_count; uint32_t flags; uint64_t tokens; uint64_t now_ns; uint64_t last_start_ns; uint32_t late;
  const struct spw_limiter *limiter[SPW_LIMITERS_PER_ACCOUNT]; struct spw_limiter_words *limiter_words[SPW_LIMITERS_PER_ACCOUNT]; uint64_t switches;
};
static inline bool spw__account_open(const struct spw_map *map, uint32_t index, uint32_t generation, struct spw__account_view *v) {
  v->map = map; v->index = index; v->account = spw_account_at(map, index); v->words = spw_account_words_at(map, index);
  if (!v->account || !v->words || spw_load32_acq(&v->account->state) != SPW_RECORD_LIVE || spw_load32_rlx(&v->account->record_generation) != generation ||
      !spw_account_conf_read(v->account, &v->conf))
    return false;
  v->switches = spw_load_rlx(&v->account->switches) | spw_load_rlx(&spw_map_pub(map)->switches); v->permits_count = spw_load32_rlx(&v->account->permits_count);
  v->limiters_count = spw_load32_rlx(&v->account->limiters_count); if (v->limiters_count > SPW_LIMITERS_PER_ACCOUNT) return false;
  for (uint32_t i = 0; i < v->limiters_count; i++) {
    uint32_t limiter = spw_load32_rlx(&v->account->limiters[i]); v->limiter[i] = spw_limiter_at(map, limiter);
    v->limiter_words[i] = spw_limiter_words_at(map, limiter); if (!v->limiter[i] || !v->limiter_words[i]) return false; }
  return true; }
static inline bool spw__deny(struct spw_admission *a, enum spw_verdict verdict, enum spw_cause cause, uint64_t wait_ns) {
  bool first = a->verdict == SPW_ALLOW; if (verdict == SPW_NOT_ATTACHED || first || (a->verdict == SPW_DENY && verdict == SPW_NEVER)) a->verdict = verdict;
  if (verdict == SPW_NOT_ATTACHED || first) a->cause = cause;
  if (wait_ns > a->wait_ns) a->wait_ns = wait_ns;
  return false; }
static inline bool spw__admit_state(struct spw__account_view *v, bool take, struct spw_admission *a, struct spw_ticket *ticket) {
  uint64_t wait_ns = 0; uint32_t source = 0; bool retry = (v->flags & SPW_ACQUIRE_RETRY) != 0;
  enum spw_gate_verdict gate = spw_gate_enter(v->map, v->words, &v->conf, v->now_ns, take && !retry, &wait_ns, &source);
  if (gate == SPW_GATE_GONE) return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
  bool buffer = source == SPW_GATE_BUFFER_RESET || source == SPW_GATE_UNKNOWN_BUFFER;
  bool own = buffer || source == SPW_GATE_UNKNOWN_429 || source == SPW_GATE_REFRESH; bool shut = gate == SPW_GATE_SHUT && !(retry && own);
  ticket->refresh = gate == SPW_GATE_PASS_REFRESH;
  struct spw_breaker_answer b = spw_breaker_enter(v->map, v->account, v->words, &v->conf, v->now_ns, take && !shut); a->breaker_state = b.state;
  a->observed = a->observed || b.observed; if (b.verdict == SPW_BREAKER_GONE) return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
  if (b.verdict == SPW_BREAKER_REFUSE)
    return spw__deny(a, b.wait_ns == UINT64_MAX ? SPW_NEVER : SPW_DENY, b.forced ? SPW_CAUSE_BREAKER_FORCED : SPW_CAUSE_BREAKER_OPEN,
        b.wait_ns > wait_ns ? b.wait_ns : wait_ns);
  if (shut) return spw__deny(a, SPW_DENY, buffer ? SPW_CAUSE_REMAINING_BELOW_BUFFER : SPW_CAUSE_GATE_SHUT, wait_ns);
  ticket->epoch = b.epoch; ticket->probe = b.verdict == SPW_BREAKER_PROBE; return true; }
static inline bool spw__admit_limiter(
    struct spw__account_view *v, uint32_t i, bool take, struct spw_admission *a, struct spw_ticket *ticket, uint64_t *wait_ns) {
  *wait_ns = 0; uint64_t switches = v->switches | spw_load_rlx(&v->limiter[i]->switches);
  if ((v->flags >> 8 >> i & 1) || (switches & SPW_SWITCH_KILL)) return true;
  bool batch = (v->flags & SPW_ACQUIRE_BATCH) != 0, observe = (switches & SPW_SWITCH_OBSERVE) != 0;
  struct spw_bucket_answer b =
      spw_bucket_take(v->limiter[i], v->limiter_words[i], v->now_ns, v->tokens, batch, observe ? 0 : v->last_start_ns - v->now_ns, take);
  a->version = b.version; a->available_units = b.available_units; a->units_per_token = b.units_per_token;
  if (b.result == SPW_BUCKET_TAKEN) {
    if (take) { ticket->charged = (uint8_t)(ticket->charged | 1u << i); ticket->charge[i] = b.charge; }
    *wait_ns = b.wait_ns; return true; }
  if (b.result == SPW_BUCKET_MOVED) return spw__deny(a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0);
  if (observe) { a->observed = true; return true; }
  if (b.result == SPW_BUCKET_NEVER) return spw__deny(a, SPW_NEVER, b.why_never, SPW_FOREVER_NS);
  bool reserve = batch && b.available_units >= v->tokens * b.units_per_token;
  return spw__deny(a, SPW_DENY, reserve ? SPW_CAUSE_BATCH_RESERVE : SPW_CAUSE_BUCKET_EMPTY, b.wait_ns); }
static inline bool spw__permits_out(struct spw__account_view *v, uint32_t spare, uint64_t *wait_ns) {
  uint32_t share = (v->flags & SPW_ACQUIRE_SHARE) ? v->conf.permits_per_process_count : 0; uint32_t most = v->conf.permits_most_count;
  most = most > v->permits_count ? most : v->permits_count; if (!v->permits_count) return false;
  return spw_permit_busy_count(v->map, v->index, most, false, v->now_ns, wait_ns) + spare > v->permits_count ||
      (share && spw_permit_busy_count(v->map, v->index, most, true, v->now_ns, wait_ns) + spare > share);
}
static inline bool spw__admit_look(struct spw__account_view *v, struct spw_admission *a, struct spw_ticket *ticket, uint64_t *wait_ns) {
  uint64_t one_ns; bool ok = spw__admit_state(v, false, a, ticket);
  if (spw__permits_out(v, 1, &one_ns)) ok = spw__deny(a, SPW_DENY, SPW_CAUSE_CONCURRENCY, one_ns);
  *wait_ns = 0;
  for (uint32_t i = 0; i < v->limiters_count && a->verdict != SPW_NOT_ATTACHED; i++) {
    ok = spw__admit_limiter(v, i, false, a, ticket, &one_ns) && ok;
    if (one_ns > *wait_ns) { *wait_ns = one_ns; v->late = i; }
  }
  return ok && a->verdict != SPW_NOT_ATTACHED; }
static inline void spw__ticket_undo(struct spw__account_view *v, struct spw_ticket *ticket) {
  for (uint32_t i = 0; i < v->limiters_count; i++) {
    if (ticket->charged >> i & 1) spw_bucket_give_back(v->limiter[i], v->limiter_words[i], v->now_ns, ticket->tokens, &ticket->charge[i]); }
  if (ticket->has_permit && spw_permit_mine(v->map, ticket->permit_word)) spw_permit_release(v->map, ticket->permit_index, ticket->permit_word);
  if (ticket->probe) spw_breaker_probe_back(v->map, v->words, ticket->epoch, v->now_ns);
  if (ticket->refresh) spw_gate_refresh_back(v->map, v->words, &v->conf, ticket->taken_ns, v->now_ns);
  ticket->charged = 0; ticket->has_permit = ticket->probe = ticket->refresh = false; }
static inline bool spw__take_tokens(struct spw__account_view *v, uint64_t *wait_ns, struct spw_admission *a, struct spw_ticket *ticket) {
  for (uint32_t again = 0; again < SPW__TAKE_TRIES; again++) {
    if (*wait_ns && !spw__admit_limiter(v, v->late, true, a, ticket, wait_ns)) return false;
    if (*wait_ns) return true;
    for (uint32_t i = 0; i < v->limiters_count && *wait_ns == 0; i++) {
      if (ticket->charged >> i & 1) continue;
      if (!spw__admit_limiter(v, i, true, a, ticket, wait_ns)) return false;
      v->late = i; }
    if (*wait_ns == 0) return true;
    spw__ticket_undo(v, ticket); }
  return spw__deny(a, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY, *wait_ns); }
static inline bool spw__take_permit(struct spw__account_view *v, uint64_t wait_ahead_ns, struct spw_admission *a, struct spw_ticket *ticket) {
  uint64_t wait_ns = 0; if (!v->permits_count || v->map->self.lock_fd < 0) return true;
  uint32_t use = (uint32_t)(v->now_ns >> 8); uint32_t life_ms = v->conf.permit_ms + (uint32_t)((wait_ahead_ns + 999999) / 1000000);
  ticket->has_permit = !spw__permits_out(v, 1, &wait_ns) &&
      spw_permit_take(v->map, v->index, v->permits_count, use, life_ms, v->now_ns, &ticket->permit_word, &ticket->permit_index);
  bool over = ticket->has_permit && spw__permits_out(v, 0, &wait_ns);
  return (ticket->has_permit && !over) || spw__deny(a, SPW_DENY, SPW_CAUSE_CONCURRENCY, wait_ns); }
static inline bool spw__admit_take(struct spw__account_view *v, uint64_t wait_ns, struct spw_admission *a, struct spw_ticket *ticket) {
  if (!spw__take_tokens(v, &wait_ns, a, ticket) || !spw__take_permit(v, wait_ns, a, ticket) || !spw__admit_state(v, true, a, ticket)) {
    spw__ticket_undo(v, ticket); return false; }
  if (wait_ns) { a->start_at_ns = ticket->start_at_ns = v->now_ns + wait_ns; ticket->flags = v->flags; }
  return true; }
static inline void spw__view_ask(struct spw__account_view *v, uint32_t flags, uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns) {
  uint64_t most_ns = SPW_RESERVE_MAX_NS;
  if (v->permits_count) most_ns = v->conf.permit_ms < SPW_PERMIT_MAX_MS ? (SPW_PERMIT_MAX_MS - v->conf.permit_ms) * UINT64_C(1000000) : 0;
  v->flags = flags; v->tokens = tokens; v->now_ns = now_ns; v->last_start_ns = now_ns + (max_wait_ns < most_ns ? max_wait_ns : most_ns); }
static inline struct spw_admission spw_admit(const struct spw_map *map, uint32_t account_index, uint32_t account_generation, uint32_t flags, uint64_t tokens,
    uint64_t max_wait_ns, uint64_t now_ns, struct spw_ticket *ticket) {
  struct spw_admission a; struct spw__account_view v; uint64_t wait_ns; memset(&a, 0, sizeof a); memset(ticket, 0, SPW__TICKET_HEAD_BYTES);
  ticket->generation = map->generation; ticket->account_index = account_index; ticket->taken_ns = now_ns; ticket->tokens = tokens;
  if (!spw__account_open(map, account_index, account_generation, &v)) { a.verdict = SPW_BAD_HANDLE; return a; }
  spw__view_ask(&v, flags, tokens, max_wait_ns, now_ns); bool peek = (flags & SPW_ACQUIRE_PEEK) != 0; bool ok = spw__admit_look(&v, &a, ticket, &wait_ns);
  if (ok && peek && wait_ns) a.start_at_ns = now_ns + wait_ns;
  if (ok && !peek) ok = spw__admit_take(&v, wait_ns, &a, ticket);
  a.may_call = ok;
  if (!peek && a.verdict != SPW_NOT_ATTACHED) {
    spw_stat_count(map, account_index, ok ? SPW_STAT_ALLOW : spw__stat_of(a.cause)); if (a.observed) spw_stat_count(map, account_index, SPW_STAT_OBSERVED); }
  return a; }
static inline bool spw__ticket_open(const struct spw_map *map, const struct spw_ticket *ticket, uint64_t now_ns, struct spw__account_view *v) {
  const struct spw_account *account = spw_account_at(map, ticket->account_index);
  if (ticket->generation != map->generation || !account || !spw__account_open(map, ticket->account_index, account->record_generation, v)) return false;
  spw__view_ask(v, ticket->flags, ticket->tokens, 0, now_ns); return true; }
static inline void spw_abandon(const struct spw_map *map, struct spw_ticket *ticket, uint64_t now_ns) {
  struct spw__account_view v; if (spw__ticket_open(map, ticket, now_ns, &v)) spw__ticket_undo(&v, ticket);
  ticket->generation = 0; }
static inline struct spw_admission spw_confirm(const struct spw_map *map, struct spw_ticket *ticket, uint64_t now_ns) {
  struct spw_admission a; struct spw__account_view v; memset(&a, 0, sizeof a);
  if (!spw__ticket_open(map, ticket, now_ns, &v)) { (void)spw__deny(&a, SPW_NOT_ATTACHED, SPW_CAUSE_NOT_ATTACHED, 0); return a; }
  if (now_ns < ticket->start_at_ns) { (void)spw__deny(&a, SPW_DENY, SPW_CAUSE_BUCKET_EMPTY, ticket->start_at_ns - now_ns); return a; }
  if (ticket->probe) spw_breaker_probe_back(map, v.words, ticket->epoch, now_ns);
  if (ticket->refresh) spw_gate_refresh_back(map, v.words, &v.conf, ticket->taken_ns, now_ns);
  ticket->probe = ticket->refresh = false; ticket->taken_ns = now_ns; uint64_t wait_ns = 0;
  a.may_call = (ticket->start_at_ns == 0 || spw__take_tokens(&v, &wait_ns, &a, ticket)) && spw__admit_state(&v, true, &a, ticket); ticket->start_at_ns = 0;
  if (!a.may_call) { spw_abandon(map, ticket, now_ns); spw_stat_count(map, v.index, spw__stat_of(a.cause)); }
  return a; }
struct spw_call_end { enum spw_outcome outcome; bool gate_shut; uint64_t gate_until_ns; uint32_t gate_source; bool gate_open; };
static inline bool spw_settle(const struct spw_map *map, const struct spw_ticket *ticket, uint64_t now_ns, const struct spw_call_end *end) {
  struct spw__account_view v; if (!spw__ticket_open(map, ticket, now_ns, &v)) return false;
  if (ticket->has_permit && spw_permit_mine(map, ticket->permit_word)) spw_permit_release(map, ticket->permit_index, ticket->permit_word);
  bool changed = false;
  if (end->outcome == SPW_OUTCOME_NEUTRAL && ticket->probe) spw_breaker_probe_back(map, v.words, ticket->epoch, now_ns);
  else if (spw_load_rlx(&v.account->forced) != SPW_FORCED_DISABLED) changed = spw_breaker_outcome(map, v.words, &v.conf, now_ns, ticket->epoch, end->outcome);
  if (end->gate_shut) spw_gate_shut(map, v.words, end->gate_until_ns, end->gate_source, ticket->taken_ns, now_ns);
  else if (end->gate_open) spw_gate_open(map, v.words, ticket->taken_ns, now_ns, ticket->refresh);
  else if (end->outcome == SPW_OUTCOME_NEUTRAL && ticket->refresh) spw_gate_refresh_back(map, v.words, &v.conf, ticket->taken_ns, now_ns);
  return changed; }

/* ---- spw_ref.h ---- */
struct spw__ref_bucket {
  const struct spw_map *map; uint64_t made_ns; uint64_t changes; uint64_t base_ns, span_ns; uint64_t tokens_max; uint32_t free_endpoints;
  struct spw_limiter_words *words; uint64_t full0_word; uint64_t ns_fixed; int64_t room_ns, ns_per_token; uint64_t version, units_per_token;
  uint64_t units_fixed; uint64_t units_num, units_den; uint64_t slot; uint64_t e0_units, burst_units, nearly_full_units, keep_units;
};
struct spw_ref {
  char account[SPW_NAME_BYTES]; char integration[SPW_NAME_BYTES]; enum spw_endpoint endpoint; uint64_t generation; uint32_t account_index, account_generation;
  bool batch; const uint8_t *pub, *rw; const struct spw_account *record; const uint32_t *skip; struct spw_account_words *words; struct spw__ref_bucket bucket;
  uint64_t *counts; const struct spw_ref *counter; struct spw_account_conf conf;
};
static inline void spw__ref_name(char out[SPW_NAME_BYTES], const char *name) {
  size_t n = 0; for (; name && n < SPW_NAME_BYTES - 1 && name[n]; n++) out[n] = name[n];
  if (name && name[n]) out[0] = 0; }
static inline void spw_ref_init(struct spw_ref *ref, const char *account, const char *integration) {
  memset(ref, 0, sizeof *ref); spw__ref_name(ref->account, account); spw__ref_name(ref->integration, integration); }
static inline bool spw__ref_find(const struct spw_map *map, struct spw_ref *ref) {
  ref->generation = 0; ref->batch = false; ref->bucket.map = NULL;
  for (uint32_t i = 0; i < map->pub_section[SPW_PUB_ACCOUNTS].count; i++) {
    const struct spw_account *a = spw_account_at(map, i);
    if (a && spw_load32_acq(&a->state) == SPW_RECORD_LIVE && strncmp(a->name, ref->account, sizeof a->name) == 0) {
      ref->account_index = i; ref->account_generation = a->record_generation; ref->generation = map->generation; ref->pub = map->pub; ref->rw = map->rw;
      ref->record = a; ref->skip = &a->skip; ref->words = spw_account_words_at(map, i); }
  }
  bool more = ref->generation && ref->integration[0];
  for (uint32_t i = 0; more && i < map->pub_section[SPW_PUB_INTEGRATIONS].count; i++) {
    const struct spw_integration *n = spw_integration_at(map, i);
    if (spw_load32_acq(&n->state) == SPW_RECORD_LIVE && n->account_index == ref->account_index && strncmp(n->name, ref->integration, sizeof n->name) == 0) {
      ref->batch = n->batch != 0; ref->skip = &n->skip; more = false; }
  }
  return ref->generation != 0; }
SPW_HOT uint32_t spw__ref_skip(const struct spw_ref *ref) { return spw_load32_rlx(ref->skip) >> ((uint32_t)ref->endpoint & 3) * 8 & 0xFF; }
static inline uint32_t spw_ref_flags(const struct spw_ref *ref) {
  return SPW_ACQUIRE_SKIP(spw__ref_skip(ref)) | (ref->batch ? (uint32_t)SPW_ACQUIRE_BATCH : 0); }
SPW_HOT bool spw__ref_is_of(const struct spw_map *map, const struct spw_ref *ref) {
  return ref->generation == map->generation && ref->pub == map->pub && ref->rw == map->rw; }
static inline void spw__ref_claim_counter(const struct spw_map *map, struct spw_ref *ref) {
  const void **at = (const void **)(uintptr_t)&map->counter[ref->account_index % SPW_MAP_COUNTERS], *nobody = NULL;
  bool mine = __atomic_compare_exchange_n(at, &nobody, ref, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) || nobody == ref;
  struct spw_stats *stats = spw__stats(map, ref->account_index); ref->counts = stats ? stats->count : NULL; ref->counter = mine && stats ? ref : NULL; }
SPW_HOT void spw__ref_count(const struct spw_ref *ref, enum spw_stat stat) {
  if (ref->counter == ref) spw_store_rlx(&ref->counts[SPW_STAT_OWN + stat], spw_load_rlx(&ref->counts[SPW_STAT_OWN + stat]) + 1);
  else if (ref->counts) spw_add_rlx(&ref->counts[stat], 1); }
#define SPW__REF_NS_SHORT 3
SPW_HOT uint64_t spw__ref_ns(const struct spw__ref_bucket *b, uint64_t units) { return (uint64_t)((spw_u128)units * b->ns_fixed >> 64); }
static inline bool spw__ref_learn_bucket(const struct spw_limiter *limiter, bool batch, struct spw__ref_bucket *b) {
  struct spw_gcra g; uint32_t slot = spw_bucket_slot(spw_load_acq(&b->words->level));
  if (!spw_limiter_conf_read(limiter, slot, &g) || g.units_den == 0 || g.units_den > SPW_LEVEL_MAX || g.units_num < g.units_den ||
      g.units_num / g.units_den > SPW_UNITS_PER_NS || g.e0_units < g.burst_units || g.e0_units > SPW_LEVEL_MAX / 2 || g.reserve_units > g.burst_units)
    return false;
  b->base_ns = g.base_ns; b->span_ns = (SPW_LEVEL_MAX - g.e0_units) / (SPW_UNITS_PER_NS + 1); b->slot = spw_bucket_word(slot, 0);
  b->full0_word = spw_bucket_word(slot, g.e0_units - g.burst_units); b->units_fixed = g.units_den == 1 ? g.units_num << 62 : g.units_fixed;
  b->ns_fixed = (uint64_t)((((spw_u128)g.units_den << 64) - 1) / g.units_num); b->units_num = g.units_num; b->units_den = g.units_den; b->e0_units = g.e0_units;
  b->burst_units = g.burst_units; b->nearly_full_units = g.burst_units > 2 ? g.burst_units - 2 : 0; b->units_per_token = g.units_per_token;
  b->keep_units = batch ? g.reserve_units : 0; b->tokens_max = (g.burst_units - b->keep_units) / g.units_per_token; b->version = g.version;
  b->ns_per_token = (int64_t)spw__ref_ns(b, g.units_per_token) + SPW__REF_NS_SHORT;
  b->room_ns = (int64_t)spw__ref_ns(b, g.burst_units - b->keep_units) - SPW__REF_NS_SHORT; return true; }
static inline void spw__ref_learn(const struct spw_map *map, struct spw_ref *ref) {
  struct spw__ref_bucket *b = &ref->bucket; const struct spw_account *r = ref->record; struct spw_header *pub = spw_map_pub(map); b->map = NULL;
  b->changes = spw_load_acq(&pub->changes); uint32_t index = spw_load32_rlx(&r->limiters[0]); const struct spw_limiter *limiter = spw_limiter_at(map, index);
  b->words = spw_limiter_words_at(map, index);
  if (map->layout_minor == 0 || !limiter || !b->words || !ref->words || spw_load32_acq(&r->state) != SPW_RECORD_LIVE ||
      spw_load32_rlx(&r->record_generation) != ref->account_generation || spw_load32_rlx(&r->limiters_count) != 1 || spw_load32_rlx(&r->permits_count) != 0 ||
      spw_load_rlx(&r->forced) != SPW_FORCED_NOT || !spw_account_conf_read(r, &ref->conf) || !spw__ref_learn_bucket(limiter, ref->batch, b))
    return;
  uint64_t switches = spw_load_rlx(&r->switches) | spw_load_rlx(&limiter->switches) | spw_load_rlx(&pub->switches);
  uint32_t skip = switches & SPW_SWITCH_KILL ? UINT32_C(0x01010101) : spw_load32_rlx(ref->skip); b->free_endpoints = 0;
  for (uint32_t i = 0; i < 32; i++) b->free_endpoints |= (skip >> i % 4 * 8 & 1) << i;
  spw__ref_claim_counter(map, ref); b->made_ns = map->made_ns; b->map = switches == 0 || switches & SPW_SWITCH_KILL ? map : NULL; }
struct spw__ref_verdict {
  enum spw_verdict verdict; enum spw_cause cause; enum spw_stat stat; uint32_t breaker_state, epoch; uint64_t wait_ns;
  uint64_t in_hand_units, version, units_per_token;
};
SPW_HOT uint32_t spw__ref_epoch(uint64_t breaker) { return (uint32_t)(breaker >> 39 & SPW_EPOCH_MASK); }
static inline bool spw__ref_shut(
    const struct spw_map *map, const struct spw_ref *ref, uint64_t breaker, uint64_t gate, uint64_t now_ns, struct spw__ref_verdict *d) {
  uint32_t state = (uint32_t)(breaker >> 62), source = spw_gate_source(gate); if (gate == SPW_MOVED || state > SPW_BREAKER_HALF_OPEN) return false;
  uint64_t ahead_ms = (uint64_t)ref->conf.cooldown_max_ms + ref->conf.probe_ms + SPW__BREAKER_SLACK_MS;
  uint64_t gate_ns = spw__map_wait_ns(map, spw_gate_until_ms(gate), SPW__GATE_AHEAD_MS, now_ns);
  uint64_t open_ns = spw__map_wait_ns(map, breaker & SPW_TIME_MASK, ahead_ms, now_ns); d->verdict = SPW_DENY; d->breaker_state = state;
  if (state != SPW_BREAKER_CLOSED && open_ns) {
    d->cause = SPW_CAUSE_BREAKER_OPEN; d->stat = SPW_STAT_DENY_BREAKER; d->wait_ns = open_ns > gate_ns ? open_ns : gate_ns;
  } else if (state == SPW_BREAKER_CLOSED && gate_ns) {
    bool buffer = source == SPW_GATE_BUFFER_RESET || source == SPW_GATE_UNKNOWN_BUFFER;
    d->cause = buffer ? SPW_CAUSE_REMAINING_BELOW_BUFFER : SPW_CAUSE_GATE_SHUT; d->stat = SPW_STAT_DENY_GATE; d->wait_ns = gate_ns;
  } else {
    d->verdict = SPW_ALLOW; return state == SPW_BREAKER_CLOSED && !spw__gate_asks(source); }
  return true; }
SPW_HOT uint64_t spw__ref_units(const struct spw__ref_bucket *b, uint64_t dt_ns) { return (uint64_t)((spw_u128)(dt_ns * 4) * b->units_fixed >> 64); }
SPW_HOT uint64_t spw__ref_missing(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units) {
  return b->units_den > 1 && dt_ns * b->units_num - units * b->units_den >= b->units_den; }
SPW_HOT uint64_t spw__ref_wait_ns(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units) {
  uint64_t ns = spw__ref_ns(b, units); uint64_t left = units * b->units_den - ns * b->units_num; ns += (uint64_t)(left > 0) + (uint64_t)(left > b->units_num);
  return ns > dt_ns ? ns - dt_ns : 0; }
SPW_HOT enum spw_cause spw__ref_cause(const struct spw_ref *ref, uint64_t in_hand, uint64_t need) {
  return ref->batch && in_hand >= need ? SPW_CAUSE_BATCH_RESERVE : SPW_CAUSE_BUCKET_EMPTY; }
SPW_HOT uint64_t spw__ref_full_level(const struct spw__ref_bucket *b, uint64_t dt_ns, uint64_t units) {
  uint64_t rest = dt_ns * b->units_num - units * b->units_den;
  return b->e0_units + units + (uint64_t)(rest > 0) + (uint64_t)(rest > b->units_den) - b->burst_units; }
SPW_HOT bool spw__ref_holds(const struct spw_ref *ref) {
  const struct spw_header *pub = (const struct spw_header *)(const void *)ref->pub; return spw_load_acq(&pub->changes) == ref->bucket.changes; }
SPW_HOT void spw__ref_answer(const struct spw_ref *ref, const struct spw__ref_verdict *d, uint64_t tokens, uint64_t now_ns, bool charged,
    struct spw_admission *a, struct spw_ticket *ticket) {
  a->verdict = d->verdict; a->cause = d->cause; a->breaker_state = d->breaker_state; a->observed = false; a->may_call = d->verdict == SPW_ALLOW;
  a->wait_ns = d->wait_ns; a->start_at_ns = 0; a->version = d->version; a->units_per_token = d->units_per_token; a->available_units = d->in_hand_units;
  ticket->generation = ref->generation; ticket->taken_ns = now_ns; ticket->tokens = tokens; ticket->account_index = ref->account_index;
  ticket->permit_index = 0; ticket->permit_word = 0; ticket->start_at_ns = 0; ticket->epoch = d->epoch; ticket->has_permit = false; ticket->refresh = false;
  ticket->probe = false; ticket->charged = charged; ticket->flags = 0; }
SPW_HOT void spw__ref_charge(const struct spw__ref_bucket *b, uint64_t word, uint64_t returned, uint64_t now_ns, struct spw_ticket *ticket) {
  ticket->charge[0].version = b->version; ticket->charge[0].level = word ^ b->slot; ticket->charge[0].returned = returned; ticket->charge[0].taken_ns = now_ns;
}
static inline bool spw__ref_take(
    const struct spw_ref *ref, uint64_t tokens, uint64_t now_ns, bool take, struct spw__ref_verdict *d, struct spw_ticket *ticket) {
  const struct spw__ref_bucket *b = &ref->bucket; uint64_t dt_ns = now_ns - b->base_ns, need = tokens * b->units_per_token;
  uint64_t units = spw__ref_units(b, dt_ns), earned = b->e0_units + units; uint64_t returned = spw_load_acq(&b->words->returned_units);
  uint64_t word = spw_load_acq(&b->words->level), level = word ^ b->slot, next = level + need; if (level > earned || !spw__ref_holds(ref)) return false;
  uint64_t in_hand = earned - level, full = 0, wait_ns = 0; bool enough = in_hand >= need + b->keep_units; take = take && d->verdict == SPW_ALLOW;
  if (in_hand >= b->nearly_full_units && (take || !enough)) full = spw__ref_full_level(b, dt_ns, units);
  if (level < full) next = full + need;
  else if (!enough) wait_ns = spw__ref_wait_ns(b, dt_ns, next + b->keep_units - b->e0_units);
  d->in_hand_units = in_hand < b->burst_units ? in_hand + spw__ref_missing(b, dt_ns, units) : b->burst_units; d->version = b->version;
  d->units_per_token = b->units_per_token;
  if (wait_ns && d->verdict == SPW_ALLOW) { d->verdict = SPW_DENY; d->cause = spw__ref_cause(ref, d->in_hand_units, need); d->stat = SPW_STAT_DENY_BUCKET; }
  d->wait_ns = wait_ns > d->wait_ns ? wait_ns : d->wait_ns; if (!take || wait_ns) return true;
  spw__ref_charge(b, word, returned, now_ns, ticket); return spw_cas(&b->words->level, &word, b->slot | next); }
SPW_HOT bool spw__ref_serves(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens) {
  const struct spw__ref_bucket *b = &ref->bucket; return map && b->map == map && b->made_ns == map->made_ns && tokens <= b->tokens_max; }
SPW_HOT bool spw__ref_free(const struct spw_ref *ref) { return ref->bucket.free_endpoints >> ((uint32_t)ref->endpoint % 32) & 1; }
static inline bool spw__ref_quiet(
    const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens, uint64_t now_ns, bool take, struct spw_admission *a, struct spw_ticket *ticket) {
  struct spw__ref_verdict d = {SPW_ALLOW, SPW_CAUSE_NONE, SPW_STAT_ALLOW, 0, 0, 0, 0, 0, 0};
  if (!spw__ref_serves(map, ref, tokens) || now_ns - ref->bucket.base_ns > ref->bucket.span_ns) return false;
  const struct spw_account_words *words = ref->words; uint64_t breaker = spw_load_acq(&words->breaker); uint64_t gate = spw_load_acq(&words->gate);
  bool free = spw__ref_free(ref);
  if (breaker >> 62 | gate) {
    if (!spw__ref_shut(map, ref, breaker, gate, now_ns, &d)) return false;
    if (d.verdict != SPW_ALLOW) {
      if (free ? !spw__ref_holds(ref) : !spw__ref_take(ref, tokens, now_ns, false, &d, ticket)) return false;
      if (take) spw__ref_count(ref, d.stat);
      d.verdict = SPW_DENY; spw__ref_answer(ref, &d, tokens, now_ns, false, a, ticket); return true; }
  }
  d.epoch = spw__ref_epoch(breaker); if (free ? !spw__ref_holds(ref) : !spw__ref_take(ref, tokens, now_ns, take, &d, ticket)) return false;
  spw__ref_answer(ref, &d, tokens, now_ns, take && !free && d.verdict == SPW_ALLOW, a, ticket); if (take) spw__ref_count(ref, d.stat);
  return true; }
SPW_HOT bool spw__ref_deny(const struct spw_ref *ref, uint64_t word, uint64_t breaker, uint64_t tokens, uint64_t now_ns, bool take, struct spw_admission *a,
    struct spw_ticket *ticket) {
  const struct spw__ref_bucket *b = &ref->bucket; uint64_t dt_ns = now_ns - b->base_ns, units = spw__ref_units(b, dt_ns);
  uint64_t level = word ^ b->slot, need = tokens * b->units_per_token, in_hand = b->e0_units + units - level;
  uint64_t wait_ns = spw__ref_wait_ns(b, dt_ns, level + need + b->keep_units - b->e0_units); if (in_hand >= need + b->keep_units || wait_ns == 0) return false;
  in_hand += spw__ref_missing(b, dt_ns, units);
  const struct spw__ref_verdict d = {
      SPW_DENY, spw__ref_cause(ref, in_hand, need), SPW_STAT_DENY_BUCKET, 0, spw__ref_epoch(breaker), wait_ns, in_hand, b->version, b->units_per_token};
  spw__ref_answer(ref, &d, tokens, now_ns, false, a, ticket); if (take) spw__ref_count(ref, d.stat);
  return true; }
SPW_HOT bool spw__ref_look(const struct spw_map *map, const struct spw_ref *ref, uint64_t tokens, uint64_t *breaker) {
  if (SPW_SELDOM(!spw__ref_serves(map, ref, tokens) || spw__ref_free(ref))) return false;
  const struct spw_account_words *words = ref->words; *breaker = spw_load_acq(&words->breaker); uint64_t gate = spw_load_acq(&words->gate);
  return !SPW_SELDOM(*breaker >> 62 | gate); }
SPW_HOT bool spw__ref_quick(
    const struct spw_ref *ref, uint64_t breaker, uint64_t tokens, uint64_t now_ns, bool take, struct spw_admission *a, struct spw_ticket *ticket) {
  const struct spw__ref_bucket *b = &ref->bucket; struct spw_limiter_words *words = b->words;
  uint64_t dt_ns = now_ns - b->base_ns, need = tokens * b->units_per_token; int64_t room_ns = b->room_ns - (int64_t)tokens * b->ns_per_token;
  if (SPW_SELDOM(dt_ns > b->span_ns)) return false;
  uint64_t returned = spw_load_acq(&words->returned_units); uint64_t word = spw_load_acq(&words->level);
  for (int i = 1;; i++) {
    uint64_t next = word + need; int64_t full_ns = (int64_t)(spw__ref_ns(b, word - b->full0_word) - dt_ns); if (SPW_SELDOM(!spw__ref_holds(ref))) return false;
    if (SPW_SELDOM(full_ns > room_ns)) return spw__ref_deny(ref, word, breaker, tokens, now_ns, take, a, ticket);
    if (full_ns < 0) {
      uint64_t full = spw__ref_full_level(b, dt_ns, spw__ref_units(b, dt_ns)); if (SPW_SELDOM((word ^ b->slot) >= full)) return false;
      next = b->slot | (full + need); }
    if (!take || spw_cas(&words->level, &word, next)) break;
    if (i == SPW_CAS_TRIES) return false;
    if (i > 4) spw_relax(); }
  uint64_t level = word ^ b->slot, units = spw__ref_units(b, dt_ns); uint64_t in_hand = b->e0_units + units - level + spw__ref_missing(b, dt_ns, units);
  const struct spw__ref_verdict d = {SPW_ALLOW, SPW_CAUSE_NONE, SPW_STAT_ALLOW, 0, spw__ref_epoch(breaker), 0,
      in_hand < b->burst_units ? in_hand : b->burst_units, b->version, b->units_per_token};
  spw__ref_answer(ref, &d, tokens, now_ns, take, a, ticket);
  if (take) { spw__ref_charge(b, word, returned, now_ns, ticket); spw__ref_count(ref, d.stat); }
  return true; }
static inline struct spw_admission spw__ref_whole(
    const struct spw_map *map, struct spw_ref *ref, uint32_t flags, uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns, struct spw_ticket *ticket) {
  struct spw_admission a =
      spw_admit(map, ref->account_index, ref->account_generation, flags | spw_ref_flags(ref) | SPW_ACQUIRE_SHARE, tokens, max_wait_ns, now_ns, ticket);
  if (a.verdict != SPW_BAD_HANDLE) spw__ref_learn(map, ref);
  return a; }


/* ---- spw_text.h ---- */
struct spw_text { char *at; size_t used, room; bool overflow; };
static inline struct spw_text spw_text_on(char *buffer, size_t room) {
  struct spw_text t; t.at = buffer; t.used = 0; t.room = room; t.overflow = room == 0; if (room) buffer[0] = 0;
  return t; }
static inline char *spw__text_take(struct spw_text *t, size_t count) {
  if (t->overflow || count + 1 > t->room - t->used) { t->overflow = true; return NULL; }
  char *to = t->at + t->used; t->used += count; to[count] = 0; return to; }
static inline void spw_text_bytes(struct spw_text *t, const char *bytes, size_t count) {
  char *to = spw__text_take(t, count); if (to) memcpy(to, bytes, count); }
static inline void spw_text_put(struct spw_text *t, const char *text) { spw_text_bytes(t, text, strlen(text)); }
static inline void spw_text_u64(struct spw_text *t, uint64_t value) {
  char digits[24]; size_t n = sizeof digits;
  do {
    digits[--n] = (char)('0' + value % 10); value /= 10;
  } while (value);
  spw_text_bytes(t, digits + n, sizeof digits - n); }
static inline void spw_text_i64(struct spw_text *t, int64_t value) {
  if (value < 0) spw_text_put(t, "-");
  spw_text_u64(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value); }
static inline void spw_text_decimal(struct spw_text *t, int64_t value, unsigned digits, bool trim) {
  uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value; char text[48]; size_t at = sizeof text;
  for (; trim && digits && magnitude % 10 == 0; digits--) magnitude /= 10;
  if (digits) {
    for (; digits; digits--, magnitude /= 10) text[--at] = (char)('0' + magnitude % 10);
    text[--at] = '.'; }
  do {
    text[--at] = (char)('0' + magnitude % 10); magnitude /= 10;
  } while (magnitude);
  if (value < 0) text[--at] = '-';
  spw_text_bytes(t, text + at, sizeof text - at); }
static inline size_t spw_utf8_bytes(const char *at, size_t left) {
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *text = (const unsigned char *)at; if (text[0] < 0x80) return 1;
  size_t n = text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2; if (text[0] < 0xC2 || text[0] > 0xF4 || left < n) return 0;
  uint32_t code = text[0] & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((text[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (text[i] & 0x3Fu); }
  return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0 : n; }
static inline bool spw_is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7F; }
static inline bool spw_utf8_is_name(const char *text, size_t count) {
  for (size_t i = 0; i < count;) {
    size_t n = spw_utf8_bytes(text + i, count - i); if (n == 0 || spw_is_control(text[i])) return false;
    i += n; }
  return true; }
static inline bool spw_text_is_name(const char *text) { return !text || spw_utf8_is_name(text, strlen(text)); }
static inline const char *spw_request_bad_name(const struct spw_quote_request *q) {
  return !spw_text_is_name(q->decision_id)    ? "decision_id"
      : !spw_text_is_name(q->quote_ref)       ? "quote_ref"
      : !spw_text_is_name(q->account)         ? "account"
      : !spw_text_is_name(q->integration)     ? "integration"
      : !spw_text_is_name(q->currency)        ? "currency"
      : !spw_text_is_name(q->date)            ? "date"
      : !spw_text_is_name(q->ship_to.country) ? "ship_to.country"
      : !spw_text_is_name(q->ship_to.state)   ? "ship_to.state"
      : !spw_text_is_name(q->ship_to.zip)     ? "ship_to.zip"
                                              : NULL;
}
static inline size_t spw__json_plain(const char *text) {
  size_t n = 0;
  while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\') n++;
  return n; }
static inline void spw_text_json(struct spw_text *t, const char *text) {
  static const char hex[] = "0123456789abcdef";
  if (!text) { spw_text_put(t, "null"); return; }
  size_t plain = spw__json_plain(text); char *whole = text[plain] ? NULL : spw__text_take(t, plain + 2);
  if (whole) { whole[0] = whole[plain + 1] = '"'; memcpy(whole + 1, text, plain); return; }
  spw_text_bytes(t, "\"", 1);
  while (*text) {
    plain = spw__json_plain(text); spw_text_bytes(t, text, plain); text += plain; if (!*text) break;
    unsigned char c = (unsigned char)*text++;
    if (c == '"' || c == '\\') {
      char two[2] = {'\\', (char)c};
      spw_text_bytes(t, two, 2);
    } else {
      char six[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
      spw_text_bytes(t, six, 6); }
  }
  spw_text_bytes(t, "\"", 1); }
static inline void spw__json_name(struct spw_text *t, const char *name) {
  size_t n = strlen(name); char *to = spw__text_take(t, n + 3); if (!to) return;
  memcpy(to + 1, name, n + 1); to[0] = to[n + 1] = '"'; to[n + 2] = ':'; }
static inline void spw__json_field(struct spw_text *t, const char *name, const char *value) {
  if (!value) return;
  if (t->used && t->at[t->used - 1] != '{') spw_text_put(t, ",");
  spw__json_name(t, name); spw_text_json(t, value); }
static inline void spw__json_address(struct spw_text *t, const char *name, const struct spw_address *a) {
  if (!a->country && !a->state && !a->zip && !a->city && !a->line1) return;
  spw_text_put(t, ",\""); spw_text_put(t, name);
  spw_text_put(t, "\":{");
  spw__json_field(t, "country", a->country); spw__json_field(t, "state", a->state); spw__json_field(t, "zip", a->zip); spw__json_field(t, "city", a->city);
  spw__json_field(t, "line1", a->line1); spw_text_put(t, "}"); }
static inline size_t spw_request_json(const struct spw_quote_request *q, char *buffer, size_t room) {
  struct spw_text t = spw_text_on(buffer, room);
  spw_text_put(&t, "{");
  spw__json_field(&t, "account", q->account); spw__json_field(&t, "integration", q->integration); spw__json_field(&t, "decision_id", q->decision_id);
  spw__json_field(&t, "purpose", spw_purpose_name(q->purpose)); spw__json_field(&t, "quote_ref", q->quote_ref);
  spw__json_field(&t, "currency", q->currency ? q->currency : "USD"); spw__json_field(&t, "date", q->date);
  if (q->deadline_ms) { spw_text_put(&t, ",\"deadline_ms\":"); spw_text_u64(&t, q->deadline_ms); }
  spw__json_address(&t, "ship_from", &q->ship_from); spw__json_address(&t, "ship_to", &q->ship_to);
  if (q->customer_id || q->exemption) {
    spw_text_put(&t, ",\"customer\":{");
    spw__json_field(&t, "id", q->customer_id); spw__json_field(&t, "exemption", q->exemption); spw_text_put(&t, "}"); }
  if (q->shipping_minor || q->shipping_tax_code) {
    spw_text_put(&t, ",\"shipping\":{\"amount\":\"");
    spw_text_decimal(&t, q->shipping_minor, 2, false); spw_text_put(&t, "\""); spw__json_field(&t, "tax_code", q->shipping_tax_code); spw_text_put(&t, "}"); }
  spw_text_put(&t, ",\"lines\":[");
  for (uint32_t i = 0; i < q->line_count; i++) {
    const struct spw_line *line = &q->lines[i];
    spw_text_put(&t, i ? ",{" : "{");
    spw__json_field(&t, "id", line->id); spw__json_field(&t, "tax_code", line->tax_code);
    spw_text_put(&t, line->id || line->tax_code ? ",\"quantity\":\"" : "\"quantity\":\"");
    spw_text_decimal(&t, line->quantity_micro ? line->quantity_micro : 1000000, 6, true); spw_text_put(&t, "\",\"amount\":\"");
    spw_text_decimal(&t, line->amount_minor, 2, false); spw_text_put(&t, "\"}"); }
  spw_text_put(&t, "]}"); return t.overflow ? 0 : t.used; }
static inline bool spw_zip_parse(const char *text, uint32_t *zip5, uint32_t *plus4, bool *has_plus4) {
  uint32_t five = 0, four = 0, digits = 0; bool dash = false, ended = false; if (!text) return false;
  for (; *text; text++) {
    if (*text == ' ' || *text == '\t') { ended = digits > 0; }
    else if (*text == '-' && digits == 5 && !dash && !ended) { dash = true; }
    else if (*text >= '0' && *text <= '9' && digits < 9 && !ended) {
      uint32_t d = (uint32_t)(*text - '0');
      if (digits < 5) five = five * 10 + d;
      else four = four * 10 + d;
      digits++;
    } else {
      return false; }
  }
  if (digits != 5 && digits != 9) return false;
  *zip5 = five; *plus4 = four; *has_plus4 = digits == 9; return true; }
static inline void spw_text_day(struct spw_text *t, int32_t day) {
  uint32_t z = (uint32_t)(day < 0 ? 0 : day) + 719468, era = z / 146097, in_era = z % 146097;
  uint32_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365; uint32_t of_year = in_era - (365 * year + year / 4 - year / 100);
  uint32_t m = (5 * of_year + 2) / 153, d = of_year - (153 * m + 2) / 5 + 1; m = m < 10 ? m + 3 : m - 9; spw_text_u64(t, year + era * 400 + (m <= 2));
  spw_text_put(t, m < 10 ? "-0" : "-"); spw_text_u64(t, m); spw_text_put(t, d < 10 ? "-0" : "-"); spw_text_u64(t, d); }
static inline bool spw_date_parse(const char *text, int32_t *day) {
  static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int32_t part[3] = {0, 0, 0};
  static const uint8_t digits[3] = {4, 2, 2};
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < digits[i]; k++, text++) {
      if (*text < '0' || *text > '9') return false;
      part[i] = part[i] * 10 + (*text - '0'); }
    if (i < 2 && *text++ != '-') return false; }
  int32_t y = part[0], m = part[1], d = part[2]; bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
  if (*text || y < 1970 || m < 1 || m > 12 || d < 1 || d > month_days[m - 1] + (m == 2 && leap)) return false;
  int32_t before = y - 1, total = before * 365 + before / 4 - before / 100 + before / 400 - 719162;
  for (int32_t i = 1; i < m; i++) total += month_days[i - 1] + (i == 2 && leap);
  *day = total + d - 1; return true; }

/* ---- spw_rates.h ---- */
#define SPW_RATES_TRIES 8
#define SPW_LEARNED_SOURCE "learned"
#define SPW_RATES_PROBES 256
static inline uint64_t spw_rate_key(uint32_t level, const char *country, const char *state, uint32_t zip5) {
  uint64_t key = (uint64_t)level << 56 | (uint64_t)(uint8_t)country[0] << 48 | (uint64_t)(uint8_t)country[1] << 40;
  if (level == SPW_RATE_STATE) key |= (uint64_t)(uint8_t)state[0] << 8 | (uint8_t)state[1];
  else if (level != SPW_RATE_COUNTRY) key |= zip5;
  return key; }
static inline uint64_t spw_rate_hash(uint64_t key) {
  key ^= key >> 33; key *= UINT64_C(0xFF51AFD7ED558CCD); key ^= key >> 33; key *= UINT64_C(0xC4CEB9FE1A85EC53); return key ^ key >> 33; }
static inline uint32_t spw_tax_code_hash(const char *code) {
  uint32_t hash = 2166136261u; if (!code || !code[0]) return 0;
  for (; *code; code++) hash = (hash ^ (uint8_t)*code) * 16777619u;
  return hash ? hash : 1; }
static inline uint64_t spw_rate_key_coded(uint64_t key, uint32_t tax_code_hash) {
  return tax_code_hash ? (key ^ (uint64_t)tax_code_hash << 17) | UINT64_C(1) << 63 : key; }
static inline bool spw_rate_holds_on(const struct spw_rate_record *record, uint32_t day) {
  return day == 0 || ((record->valid_from_day == 0 || record->valid_from_day <= day) && (record->valid_to_day == 0 || day <= record->valid_to_day)); }
static inline enum spw_match spw_rate_match(uint32_t level) {
  return level == SPW_RATE_ZIP9   ? SPW_MATCH_ZIP9
      : level == SPW_RATE_ZIP5    ? SPW_MATCH_ZIP5
      : level == SPW_RATE_STATE   ? SPW_MATCH_STATE
      : level == SPW_RATE_COUNTRY ? SPW_MATCH_COUNTRY
                                  : SPW_MATCH_NONE;
}
struct spw_place { char country[4]; char state[4]; uint32_t zip5; uint32_t plus4; bool has_zip, has_plus4; bool padded; uint32_t day; uint32_t tax_code_hash; };
static inline int64_t spw_hours_behind(const char *state) {
  static const char zones[] = "AL6AR6IL6IA6KS6LA6MN6MS6MO6NE6ND6OK6SD6TN6TX6WI6AZ7CO7ID7MT7NM7UT7WY7"
                              "CA8NV8OR8WA8AK9HI:PR4VI4GU&MP&AS;";
  for (size_t i = 0; i < sizeof zones - 1 && state[0]; i += 3) { if (zones[i] == state[0] && zones[i + 1] == state[1]) return zones[i + 2] - '0'; }
  return state[0] ? 5 : 0; }
static inline int64_t spw__year_begins(int64_t year) { int64_t before = year - 1; return before * 365 + before / 4 - before / 100 + before / 400 - 719162; }
static inline bool spw__is_daylight(const char *state, int64_t standard_s) {
  int64_t day = standard_s / 86400, year = 1970 + day * 400 / 146097; static const char without[] = "AZHIPRVIGUMPAS";
  for (size_t i = 0; i < sizeof without - 1; i += 2) { if (without[i] == state[0] && without[i + 1] == state[1]) return false; }
  if (!state[0] || standard_s < 0) return false;
  year += (day >= spw__year_begins(year + 1)) - (day < spw__year_begins(year)); int64_t november = spw__year_begins(year + 1) - 61, march = november - 245;
  march += 7 + (10 - march % 7) % 7; november += (10 - november % 7) % 7; return standard_s >= march * 86400 + 2 * 3600 && standard_s < november * 86400 + 3600;
}
static inline int32_t spw_day_there(const char *state, int64_t unix_ms) {
  int64_t local_s = unix_ms / 1000 - (unix_ms % 1000 < 0) - spw_hours_behind(state) * 3600; local_s += spw__is_daylight(state, local_s) ? 3600 : 0;
  return (int32_t)(local_s / 86400 - (local_s % 86400 < 0)); }
static inline int32_t spw_address_day(const struct spw_address *to, int64_t unix_ms) {
  char state[3] = "";
  if (to->state && (!to->country || !to->country[0] || strcmp(to->country, "US") == 0)) {
    for (size_t i = 0; i < 2 && to->state[i]; i++) state[i] = (char)(to->state[i] >= 'a' && to->state[i] <= 'z' ? to->state[i] - 32 : to->state[i]); }
  return spw_day_there(state, unix_ms); }
enum spw_rates_result { SPW_RATES_FOUND, SPW_RATES_NOT_FOUND, SPW_RATES_BUSY };
static inline bool spw__rates_probe(const struct spw_map *map, uint32_t half, uint32_t level, const struct spw_place *place, struct spw_rate_record *out) {
  uint64_t key = spw_rate_key_coded(spw_rate_key(level, place->country, place->state, place->zip5), place->tax_code_hash);
  uint64_t hash = spw_rate_hash(key), words = map->index_mask + 1;
  for (uint64_t i = 0; i < SPW_RATES_PROBES; i++) {
    uint64_t word = spw_load_acq(spw_rate_index_at(map, half * words + ((hash + i) & map->index_mask))); if (word == 0) return false;
    if ((word ^ hash) >> 32) continue;
    uint64_t index = (word & 0xFFFFFFFF) - 1;
    const struct spw_rate_record *record = index < map->records_per_half ? spw_rate_record_at(map, (uint64_t)half * map->records_per_half + index) : NULL;
    if (!record) return false;
    spw_copy_rlx((uint64_t *)(void *)out, (const uint64_t *)(const void *)record, sizeof *out / 8);
    if (out->key == key && out->tax_code_hash == place->tax_code_hash && spw_rate_holds_on(out, place->day) &&
        (level != SPW_RATE_ZIP9 || (place->has_plus4 && out->plus4_lo <= place->plus4 && place->plus4 <= out->plus4_hi)))
      return true; }
  return false; }
static inline enum spw_rates_result spw_rates_find(
    const struct spw_map *map, const struct spw_place *place, const uint32_t *levels, struct spw_rate_record *out, struct spw_source *source) {
  const struct spw_header *header = spw_map_pub(map);
  for (int i = 0; i < SPW_RATES_TRIES; i++) {
    uint64_t active = spw_load_acq(&header->rates_active); if (active == 0) return SPW_RATES_NOT_FOUND;
    uint32_t half = (uint32_t)(active & 1); const struct spw_rate_half *h = spw_rate_half_at(map, half); uint64_t seq = spw_load_acq(&h->seq);
    bool found = false; if (place->tax_code_hash && spw_load32_rlx(&h->coded_count) == 0) return SPW_RATES_NOT_FOUND;
    for (const uint32_t *level = levels; seq % 2 == 0 && *level && !found; level++) {
      bool usable = *level == SPW_RATE_STATE ? place->state[0] != 0
          : *level == SPW_RATE_COUNTRY       ? true
          : *level == SPW_RATE_ZIP9          ? place->has_plus4
                                             : place->has_zip;
      found = usable && spw__rates_probe(map, half, *level, place, out); }
    if (found) {
      const struct spw_source *s = spw_source_at(map, (uint64_t)half * SPW_SOURCES_MAX_COUNT + out->source % SPW_SOURCES_MAX_COUNT);
      if (s) spw_copy_rlx((uint64_t *)(void *)source, (const uint64_t *)(const void *)s, sizeof *source / 8);
      source->name[SPW_NAME_BYTES - 1] = 0; }
    spw_fence_acq(); if (seq % 2 == 0 && spw_load_rlx(&h->seq) == seq) return found ? SPW_RATES_FOUND : SPW_RATES_NOT_FOUND;
    spw_relax(); }
  return SPW_RATES_BUSY; }
static inline uint64_t spw_learned_key(uint32_t level, const struct spw_place *place) {
  uint64_t key = spw_rate_key(level, place->country, place->state, place->zip5); return level == SPW_RATE_ZIP9 ? key | (uint64_t)place->plus4 << 17 : key; }
static inline uint64_t spw__fold(uint64_t hash, const char *text, size_t most) {
  for (size_t i = 0; text && i < most && text[i]; i++) { uint8_t c = (uint8_t)text[i]; hash = (hash ^ c) * UINT64_C(1099511628211); }
  return (hash ^ 0xFF) * UINT64_C(1099511628211); }
static inline uint64_t spw_learned_subject(const char *account, const struct spw_address *from, const char *tax_code) {
  const char *text[2] = {from->country && from->country[0] ? from->country : "US", from->state};
  uint64_t hash = spw__fold(UINT64_C(14695981039346656037), account, SPW_NAME_BYTES);
  for (int i = 0; i < 2; i++) {
    char capitals[2] = {0, 0};
    for (int k = 0; text[i] && k < 2 && text[i][k]; k++) capitals[k] = (char)(text[i][k] >= 'a' && text[i][k] <= 'z' ? text[i][k] - 32 : text[i][k]);
    hash = spw__fold(hash, capitals, 2); }
  return spw_rate_hash(spw__fold(hash, tax_code, SIZE_MAX)); }
static inline uint64_t spw_learned_set(uint32_t count, uint64_t key, uint64_t subject) {
  return spw_rate_hash(key ^ subject) & (count - 1) & ~(uint64_t)(SPW_LEARNED_WAYS - 1); }
static inline bool spw__learned_at(const struct spw_map *map, uint64_t key, uint64_t subject, struct spw_learned_rate *out) {
  uint32_t count = map->pub_section[SPW_PUB_LEARNED].count; uint64_t first = count ? spw_learned_set(count, key, subject) : 0;
  for (uint64_t i = first; count && i < first + SPW_LEARNED_WAYS; i++) {
    const struct spw_learned_rate *entry = spw_learned_at(map, i); if (!entry) return false;
    uint64_t seq = spw_load_acq(&entry->seq); if (seq == 0 || seq % 2) continue;
    spw_copy_rlx((uint64_t *)(void *)out, (const uint64_t *)(const void *)entry, sizeof *out / 8); spw_fence_acq();
    if (spw_load_rlx(&entry->seq) == seq && out->key == key && out->subject == subject) return true; }
  return false; }
static inline bool spw_learned_find(const struct spw_map *map, const struct spw_place *place, uint64_t subject, struct spw_learned_rate *out, uint32_t *level) {
  *level = SPW_RATE_ZIP9; if (place->has_plus4 && spw__learned_at(map, spw_learned_key(*level, place), subject, out)) return true;
  *level = SPW_RATE_ZIP5; return place->has_zip && spw__learned_at(map, spw_learned_key(*level, place), subject, out); }
static inline bool spw_zip_has_zeros(const char *state) {
  static const char states[] = "CTMAMENHNJNYPRRIVIVTAE";
  for (size_t i = 0; state && state[0] && i < sizeof states - 1; i += 2) { if (state[0] == states[i] && state[1] == states[i + 1]) return true; }
  return false; }
static inline bool spw__zip_padded(const char *text, struct spw_place *place) {
  char full[16]; size_t digits = 0, bytes = 0;
  while (*text == ' ') text++;
  while (text[digits] >= '0' && text[digits] <= '9') digits++;
  while (text[bytes] && text[bytes] != ' ') bytes++;
  if (digits < 3 || digits > 4 || bytes > 9 || !spw_zip_has_zeros(place->state)) return false;
  memset(full, 0, sizeof full); memset(full, '0', 5 - digits); memcpy(full + 5 - digits, text, bytes);
  place->padded = spw_zip_parse(full, &place->zip5, &place->plus4, &place->has_plus4); return place->padded; }
static inline bool spw_place_from(const struct spw_address *address, struct spw_place *place) {
  memset(place, 0, sizeof *place); const char *country = address->country && address->country[0] ? address->country : "US";
  for (int i = 0; i < 2 && country[i]; i++) place->country[i] = (char)(country[i] >= 'a' && country[i] <= 'z' ? country[i] - 32 : country[i]);
  for (int i = 0; address->state && i < 2 && address->state[i]; i++) {
    char c = address->state[i]; place->state[i] = (char)(c >= 'a' && c <= 'z' ? c - 32 : c); }
  if (memcmp(place->country, "US", 3) != 0 || !address->zip) return true;
  place->has_zip = spw_zip_parse(address->zip, &place->zip5, &place->plus4, &place->has_plus4) || spw__zip_padded(address->zip, place); return place->has_zip; }

/* ---- spw_fallback.h ---- */
enum spw_no_answer {
  SPW_ANSWERED, SPW_NO_ANSWER_RATE, SPW_NO_ANSWER_TOO_OLD, SPW_NO_ANSWER_TAX_CODE, SPW_NO_ANSWER_TABLE, SPW_NO_ANSWER_PLACE,
  SPW_NO_ANSWER_CURRENCY
};
static inline const char *spw_no_answer_name(uint32_t why) {
  static const char *const name[] = {"", "no-rate", "rates-too-old", "tax-code-refused", "rates-unreadable", "bad-destination", "bad-currency"};
  return why < sizeof name / sizeof name[0] ? name[why] : "unknown"; }
struct spw_fallback_answer {
  enum spw_no_answer why_not; enum spw_match match; struct spw_rate_record rate; struct spw_source source; uint32_t age_days; bool stale;
  enum spw_rounding rounding; int64_t total_minor; int64_t taxable_minor; int64_t tax_minor; size_t assumptions_bytes;
  char assumptions[SPW_ASSUMPTIONS_MAX_BYTES];
};
static inline int64_t spw_tax_minor(int64_t taxable_minor, uint32_t ppb) {
  uint64_t magnitude = taxable_minor < 0 ? 0 - (uint64_t)taxable_minor : (uint64_t)taxable_minor;
  uint64_t tax = (uint64_t)(((spw_u128)magnitude * ppb + 500000000u) / 1000000000u); return taxable_minor < 0 ? -(int64_t)tax : (int64_t)tax; }
static inline uint32_t spw__tax_rule(const struct spw_policy *policy, const char *code) {
  for (uint32_t i = 0; code && i < policy->tax_codes_count && i < SPW_TAX_CODES_MAX_COUNT; i++) {
    if (strncmp(policy->tax_codes[i].code, code, sizeof policy->tax_codes[i].code) == 0) return policy->tax_codes[i].rule; }
  return code ? policy->tax_rule_default : (uint32_t)SPW_RULE_GENERAL; }
static inline bool spw__nexus(const struct spw_policy *policy, const char *state) {
  if (policy->nexus_all || !state[0]) return true;
  for (uint32_t i = 0; i < policy->nexus_count && i < SPW_NEXUS_MAX_COUNT; i++) { if (strncmp(policy->nexus[i], state, 2) == 0) return true; }
  return false; }
static inline void spw__assume(struct spw_text *t, const char *line_id, const char *code, const char *what) {
  size_t before = t->used;
  if (line_id) { spw_text_put(t, "line "); spw_text_put(t, line_id); spw_text_put(t, ": "); }
  if (code) { spw_text_put(t, code); spw_text_put(t, " "); }
  spw_text_put(t, what); spw_text_put(t, "\n");
  if (t->overflow) { t->used = before; t->at[before] = 0; }
}
struct spw__quoting {
  const struct spw_map *map; const struct spw_policy *policy; const struct spw_quote_request *q; struct spw_place place; int32_t today; struct spw_text notes;
  bool general; enum spw_no_answer no_general;
};
struct spw__sourced { struct spw_rate_record rate; struct spw_source source; uint32_t age_days; bool stale; };
static inline bool spw__young_enough(const struct spw__quoting *c, struct spw__sourced *s) {
  s->age_days = c->today > s->source.as_of_day ? (uint32_t)(c->today - s->source.as_of_day) : 0; s->stale = s->age_days > c->policy->warn_age_days;
  return s->age_days <= c->policy->refuse_age_days; }
static inline void spw__use(struct spw_fallback_answer *out, const struct spw__sourced *s, enum spw_match match) {
  out->rate = s->rate; out->source = s->source; out->age_days = s->age_days; out->stale = s->stale; out->match = match; }
static inline bool spw__learned(const struct spw__quoting *c, const char *code, struct spw__sourced *s) {
  struct spw_learned_rate found; uint32_t level; memset(s, 0, sizeof *s);
  if (!spw_learned_find(c->map, &c->place, spw_learned_subject(c->q->account, &c->q->ship_from, code), &found, &level)) return false;
  memcpy(s->rate.country, c->place.country, sizeof s->rate.country); memcpy(s->rate.state, found.state, sizeof s->rate.state);
  s->rate.state[sizeof s->rate.state - 1] = 0; s->rate.level = (uint8_t)level; s->rate.zip5 = c->place.zip5; s->rate.combined_ppb = found.combined_ppb;
  s->rate.state_ppb = found.state_ppb; s->rate.county_ppb = found.county_ppb; s->rate.city_ppb = found.city_ppb; s->rate.special_ppb = found.special_ppb;
  memcpy(s->source.name, SPW_LEARNED_SOURCE, sizeof SPW_LEARNED_SOURCE); s->source.as_of_day = (int32_t)(found.learned_unix_ms / 86400000);
  return (int32_t)c->place.day + 1 >= s->source.as_of_day && spw__young_enough(c, s); }
static inline bool spw__coded(const struct spw__quoting *c, const char *code, struct spw__sourced *s) {
  static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
  struct spw_place place = c->place; place.tax_code_hash = spw_tax_code_hash(code);
  return spw_rates_find(c->map, &place, levels, &s->rate, &s->source) == SPW_RATES_FOUND && spw__young_enough(c, s); }
static inline enum spw_no_answer spw__general_rate(struct spw__quoting *c, struct spw_fallback_answer *out) {
  static const uint32_t exact[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
  static const uint32_t average[] = {SPW_RATE_STATE, 0};
  static const uint32_t abroad[] = {SPW_RATE_STATE, SPW_RATE_COUNTRY, 0};
  bool us = memcmp(c->place.country, "US", 3) == 0; struct spw__sourced s; memset(&s, 0, sizeof s);
  enum spw_rates_result result = spw_rates_find(c->map, &c->place, us ? exact : abroad, &s.rate, &s.source);
  if (result == SPW_RATES_BUSY) return SPW_NO_ANSWER_TABLE;
  bool old = result == SPW_RATES_FOUND && !spw__young_enough(c, &s);
  if (result == SPW_RATES_FOUND && !old) { spw__use(out, &s, spw_rate_match(s.rate.level)); return SPW_ANSWERED; }
  struct spw__sourced other;
  if (spw__learned(c, NULL, &other)) { spw__use(out, &other, SPW_MATCH_LEARNED); return SPW_ANSWERED; }
  if (us && !old && c->policy->on_no_rate == SPW_NO_RATE_STATE_AVERAGE) {
    result = spw_rates_find(c->map, &c->place, average, &s.rate, &s.source); if (result == SPW_RATES_BUSY) return SPW_NO_ANSWER_TABLE;
    old = result == SPW_RATES_FOUND && !spw__young_enough(c, &s);
    if (result == SPW_RATES_FOUND && !old) { spw__use(out, &s, SPW_MATCH_STATE); return SPW_ANSWERED; }
  }
  if (c->policy->on_no_rate != SPW_NO_RATE_DEFAULT) {
    if (old) spw__use(out, &s, SPW_MATCH_NONE);
    return old ? SPW_NO_ANSWER_TOO_OLD : SPW_NO_ANSWER_RATE; }
  memset(&s, 0, sizeof s); s.rate.combined_ppb = c->policy->default_rate_ppb; spw__use(out, &s, SPW_MATCH_DEFAULT); return SPW_ANSWERED; }
enum spw__rate_kind { SPW__RATE_GENERAL, SPW__RATE_LEARNED, SPW__RATE_CODED, SPW__RATE_UNKNOWN };
static inline void spw__assume_own(struct spw__quoting *c, const char *id, const char *code, const struct spw__sourced *s, bool learned) {
  char what[160]; struct spw_text t = spw_text_on(what, sizeof what); spw_text_put(&t, "at "); spw_text_decimal(&t, s->rate.combined_ppb, 9, true);
  spw_text_put(&t, learned ? ", learned " : ", its own rate of ");
  if (learned) spw_text_day(&t, s->source.as_of_day);
  else spw_text_put(&t, s->source.name);
  spw__assume(&c->notes, id, code, what); }
static inline enum spw__rate_kind spw__line_rate(struct spw__quoting *c, const char *id, const char *code, uint32_t rule, struct spw__sourced *s) {
  bool coded = code && code[0];
  if (coded && rule == SPW_RULE_LEARNED && spw__learned(c, code, s)) { spw__assume_own(c, id, code, s, true); return SPW__RATE_LEARNED; }
  if (coded && spw__coded(c, code, s)) { spw__assume_own(c, id, code, s, false); return SPW__RATE_CODED; }
  if (coded && !c->general && spw__learned(c, code, s)) { spw__assume_own(c, id, code, s, true); return SPW__RATE_LEARNED; }
  if (c->general && rule == SPW_RULE_LEARNED) spw__assume(&c->notes, id, code, "at general rate");
  return c->general ? SPW__RATE_GENERAL : SPW__RATE_UNKNOWN; }
static inline bool spw__shipping_taxed(const struct spw_policy *policy, const char *state) {
  for (uint32_t i = 0; state[0] && i < policy->shipping_except_count && i < SPW_NEXUS_MAX_COUNT; i++) {
    if (memcmp(policy->shipping_except[i], state, 2) == 0) return !policy->shipping_taxable; }
  return policy->shipping_taxable != 0; }
static inline int64_t spw__round_e9(spw_i128 tax_e9) {
  spw_i128 magnitude = tax_e9 < 0 ? -tax_e9 : tax_e9; int64_t minor = (int64_t)((magnitude + 500000000) / 1000000000); return tax_e9 < 0 ? -minor : minor; }
struct spw__kinds { uint32_t count[SPW__RATE_UNKNOWN]; struct spw__sourced first; };
static inline void spw__answer_rate(const struct spw__quoting *c, const struct spw__kinds *kinds, struct spw_fallback_answer *out) {
  uint32_t own = kinds->count[SPW__RATE_LEARNED] + kinds->count[SPW__RATE_CODED]; if (own == 0) return;
  bool learned = kinds->count[SPW__RATE_LEARNED] == own && kinds->count[SPW__RATE_GENERAL] == 0;
  if (learned || !c->general) spw__use(out, &kinds->first, SPW_MATCH_LEARNED);
  out->match = learned ? SPW_MATCH_LEARNED : SPW_MATCH_MIXED; }
static inline int64_t spw__taxable(
    struct spw__quoting *c, const struct spw_fallback_answer *out, const char *id, const char *code, uint32_t rule, bool shipping, int64_t amount) {
  if (out->match == SPW_MATCH_NO_NEXUS || out->match == SPW_MATCH_EXEMPT) return 0;
  if (rule == SPW_RULE_EXEMPT) { spw__assume(&c->notes, id, code, "exempt by rule"); return 0; }
  if (shipping && !spw__shipping_taxed(c->policy, c->place.state)) {
    if (amount) spw__assume(&c->notes, NULL, "shipping", "not taxed by rule");
    return 0; }
  return amount; }
static inline enum spw_no_answer spw__fallback_lines(struct spw__quoting *c, struct spw_fallback_answer *out, struct spw_line_tax *lines) {
  const struct spw_quote_request *q = c->q; bool zero_rate = out->match == SPW_MATCH_NO_NEXUS || out->match == SPW_MATCH_EXEMPT;
  bool per_order = c->policy->rounding == SPW_ROUNDING_HALF_UP_ORDER; struct spw__kinds kinds; spw_i128 running_e9 = 0; memset(&kinds, 0, sizeof kinds);
  for (uint32_t i = 0; i <= q->line_count; i++) {
    bool shipping = i == q->line_count; int64_t amount = shipping ? q->shipping_minor : q->lines[i].amount_minor;
    const char *code = shipping ? q->shipping_tax_code : q->lines[i].tax_code; const char *id = shipping ? "shipping" : q->lines[i].id ? q->lines[i].id : "?";
    uint32_t rule = spw__tax_rule(c->policy, code), ppb = 0; if (rule == SPW_RULE_REFUSE && !zero_rate) return SPW_NO_ANSWER_TAX_CODE;
    int64_t taxable = spw__taxable(c, out, id, code, rule, shipping, amount);
    bool taxed = !zero_rate && (taxable != 0 || (!shipping && rule != SPW_RULE_EXEMPT));
    if (taxed) {
      struct spw__sourced s; enum spw__rate_kind kind = spw__line_rate(c, id, code, rule, &s); if (kind == SPW__RATE_UNKNOWN) return c->no_general;
      if (kind != SPW__RATE_GENERAL && kinds.count[SPW__RATE_LEARNED] + kinds.count[SPW__RATE_CODED] == 0) kinds.first = s;
      kinds.count[kind]++; ppb = kind == SPW__RATE_GENERAL ? out->rate.combined_ppb : s.rate.combined_ppb; }
    int64_t before = spw__round_e9(running_e9); running_e9 += (spw_i128)taxable * ppb; lines[i].taxable_minor = taxable;
    lines[i].tax_minor = per_order ? spw__round_e9(running_e9) - before : spw_tax_minor(taxable, ppb); out->total_minor += amount;
    out->taxable_minor += taxable; out->tax_minor += lines[i].tax_minor; }
  if (!zero_rate && !c->general && kinds.count[SPW__RATE_LEARNED] + kinds.count[SPW__RATE_CODED] == 0) return c->no_general;
  spw__answer_rate(c, &kinds, out); return SPW_ANSWERED; }
static inline bool spw_policy_read(const struct spw_map *map, struct spw_policy *out) {
  return spw_latch_read(&spw_map_pub(map)->policy_seq, (const uint64_t *)(const void *)spw_policy_at(map, 0), map->pub_section[SPW_PUB_POLICY].stride_bytes / 8,
      out, sizeof *out / 8);
}
static inline void spw__assume_place(struct spw__quoting *c, const struct spw_fallback_answer *out) {
  bool matched_zip = c->general && (out->match == SPW_MATCH_ZIP5 || out->match == SPW_MATCH_ZIP9);
  if (c->place.padded) {
    char zip[8]; struct spw_text t = spw_text_on(zip, sizeof zip);
    for (uint32_t part = 10000; part > c->place.zip5 && part > 1; part /= 10) spw_text_put(&t, "0");
    spw_text_u64(&t, c->place.zip5); spw__assume(&c->notes, NULL, zip, "read for a ZIP code without its leading zeros"); }
  if (!c->policy->nexus_all && !c->place.state[0]) spw__assume(&c->notes, NULL, NULL, "the state is not known: taken for registered");
  if (matched_zip && c->place.state[0] && memcmp(c->place.state, out->rate.state, 2) != 0)
    spw__assume(&c->notes, NULL, out->rate.state, "is the state of the ZIP code, not the one of the address");
  if (c->general && out->match == SPW_MATCH_STATE) spw__assume(&c->notes, NULL, c->place.state, "rate of the whole state: its ZIP code is not known");
  if (c->general && out->match == SPW_MATCH_COUNTRY) spw__assume(&c->notes, NULL, c->place.country, "rate of the whole country");
  if (c->general && out->match == SPW_MATCH_DEFAULT) spw__assume(&c->notes, NULL, NULL, "the default rate: none is known for the destination");
  if (c->general && out->match == SPW_MATCH_LEARNED) {
    struct spw__sourced s; memset(&s, 0, sizeof s); s.rate = out->rate; s.source = out->source; spw__assume_own(c, NULL, NULL, &s, true); }
}
static inline bool spw_currency_has_cents(const char *currency) {
  static const char others[] = "BHDBIFCLPDJFGNFIQDISKJODJPYKMFKRWKWDLYDMGAMRUOMRPYGRWFTNDUGXUYIVNDVUVXAFXOFXPF";
  for (size_t i = 0; currency && currency[0] && i < sizeof others - 1; i += 3) { if (strncmp(currency, others + i, 3) == 0) return false; }
  return true; }
static inline void spw_fallback_compute(
    const struct spw_map *map, const struct spw_quote_request *q, int64_t now_unix_ms, struct spw_line_tax *lines, struct spw_fallback_answer *out) {
  struct spw_policy policy; struct spw__quoting c; int32_t sale_day; memset(out, 0, sizeof *out); memset(&c, 0, sizeof c); c.map = map; c.policy = &policy;
  c.q = q; c.today = (int32_t)(now_unix_ms / 86400000); c.notes = spw_text_on(out->assumptions, sizeof out->assumptions);
  if (!spw_policy_read(map, &policy)) { out->why_not = SPW_NO_ANSWER_TABLE; return; }
  out->rounding = (enum spw_rounding)policy.rounding;
  out->why_not = !spw_place_from(&q->ship_to, &c.place) ? SPW_NO_ANSWER_PLACE : !spw_currency_has_cents(q->currency) ? SPW_NO_ANSWER_CURRENCY : SPW_ANSWERED;
  if (out->why_not != SPW_ANSWERED) return;
  if (!q->date || !spw_date_parse(q->date, &sale_day)) sale_day = spw_address_day(&q->ship_to, now_unix_ms);
  c.place.day = sale_day > 0 ? (uint32_t)sale_day : 0; c.no_general = spw__general_rate(&c, out); c.general = c.no_general == SPW_ANSWERED;
  if (!c.place.state[0] && c.general && (out->match == SPW_MATCH_ZIP5 || out->match == SPW_MATCH_ZIP9))
    memcpy(c.place.state, out->rate.state, sizeof c.place.state);
  if (!spw__nexus(&policy, c.place.state) || (q->exemption && q->exemption[0])) {
    bool nexus = spw__nexus(&policy, c.place.state); memset(&out->rate, 0, sizeof out->rate); out->match = nexus ? SPW_MATCH_EXEMPT : SPW_MATCH_NO_NEXUS;
    if (nexus) spw__assume(&c.notes, NULL, q->exemption, "exemption taken as stated");
  } else {
    spw__assume_place(&c, out); }
  out->why_not = spw__fallback_lines(&c, out, lines); out->assumptions_bytes = c.notes.used; }

/* ---- spw_cell.h ---- */
#define SPW_CELL_CYCLE_MASK UINT64_C(0x7FFFFFF)
#define SPW_CELL_DATA_BYTES (SPW_CELL_BYTES - 16u)
static inline uint64_t spw_cell_pack(uint32_t state, uint32_t slot, uint32_t generation, uint64_t cycle) {
  return (uint64_t)state << 61 | (uint64_t)(slot & 0x3FF) << 51 | (uint64_t)(generation & 0xFFFFFF) << 27 | (cycle & SPW_CELL_CYCLE_MASK); }
static inline uint32_t spw_cell_state(uint64_t word) { return (uint32_t)(word >> 61); }
static inline uint64_t spw_cell_owner(uint64_t word) { return word >> 27 & 0x3FFFFFFFF; }
static inline uint64_t spw_cell_with(uint64_t word, uint32_t state) { return (word & ~(UINT64_C(7) << 61)) | (uint64_t)state << 61; }
static inline uint64_t spw_cell_freed(uint64_t word) { return spw_cell_pack(SPW_CELL_FREE, 0, 0, (word & SPW_CELL_CYCLE_MASK) + 1); }
struct spw_part { const void *bytes; size_t count; };
struct spw__claim { uint32_t index; uint64_t word; };
static inline void spw__cells_give_back(const struct spw_map *map, const struct spw__claim *claim, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) { uint64_t mine = claim[i].word; (void)spw_cas(spw_cell_word_at(map, claim[i].index), &mine, spw_cell_freed(mine)); }
}
static inline bool spw__cells_claim(const struct spw_map *map, struct spw__claim *claim, uint32_t wanted, uint32_t hint) {
  uint32_t cells = map->rw_section[SPW_RW_CELL_WORDS].count, half = cells / 2;
  uint32_t first = (uint32_t)((uint64_t)map->self.slot * 2654435761u % cells), got = 0;
  for (uint32_t i = 0; i < half && got < wanted; i++) {
    uint32_t index = (first + (hint + i) % half) % cells; uint64_t *word = spw_cell_word_at(map, index); uint64_t seen = spw_load_acq(word);
    if (spw_cell_state(seen) != SPW_CELL_FREE) continue;
    uint64_t mine = spw_cell_pack(SPW_CELL_WRITING, map->self.slot, map->self.generation, seen);
    if (spw_cas(word, &seen, mine)) { claim[got].index = index; claim[got++].word = mine; }
  }
  if (got == wanted) return true;
  spw__cells_give_back(map, claim, got); return false; }
static inline bool spw__cells_fill(
    const struct spw_map *map, const struct spw__claim *claim, uint32_t cells, const struct spw_part *parts, size_t parts_count) {
  size_t part = 0, offset = 0;
  for (uint32_t i = 0; i < cells; i++) {
    struct spw_cell *cell = spw_cell_at(map, claim[i].index); uint32_t used = 0; if (!cell) return false;
    while (used < SPW_CELL_DATA_BYTES && part < parts_count) {
      size_t n = parts[part].count - offset; if (n > SPW_CELL_DATA_BYTES - used) n = SPW_CELL_DATA_BYTES - used;
      if (n) memcpy(cell->data + used, (const uint8_t *)parts[part].bytes + offset, n);
      used += (uint32_t)n; offset += n;
      if (offset == parts[part].count) { part++; offset = 0; }
    }
    bool last = i + 1 == cells; cell->bytes = used; cell->next = last ? 0 : claim[i + 1].index + 1;
    cell->next_cycle = last ? 0 : (uint32_t)(claim[i + 1].word & SPW_CELL_CYCLE_MASK); }
  return true; }
static inline enum spw_status SPW_WARN_UNUSED spw_cell_write(const struct spw_map *map, uint32_t hint, const struct spw_part *parts, size_t parts_count) {
  struct spw__claim claim[SPW_CHAIN_MAX_CELLS]; size_t total = 0; for (size_t i = 0; i < parts_count; i++) total += parts[i].count;
  if (total == 0 || total > (size_t)SPW_CHAIN_MAX_CELLS * SPW_CELL_DATA_BYTES) return SPW_STATUS_INVALID;
  if (map->self.lock_fd < 0) return SPW_STATUS_NOT_READY;
  uint32_t cells = (uint32_t)((total + SPW_CELL_DATA_BYTES - 1) / SPW_CELL_DATA_BYTES); if (!spw__cells_claim(map, claim, cells, hint)) return SPW_STATUS_FULL;
  if (!spw__cells_fill(map, claim, cells, parts, parts_count)) { spw__cells_give_back(map, claim, cells); return SPW_STATUS_CORRUPT; }
  for (uint32_t i = cells; i-- > 0;) {
    uint64_t mine = claim[i].word;
    if (!spw_cas(spw_cell_word_at(map, claim[i].index), &mine, spw_cell_with(mine, i ? SPW_CELL_CHAINED : SPW_CELL_READY))) return SPW_STATUS_NOT_READY; }
  struct spw_slot *slot = spw_slot_at(map, map->self.slot); uint64_t live = spw_slot_word(map->self.generation, SPW_SLOT_LIVE);
  if (!slot || !spw_cas(&slot->word, &live, live)) return SPW_STATUS_NOT_READY;
  spw_add_rlx(&spw_map_rw(map)->cells_hint, 1); return SPW_STATUS_OK; }
static inline bool spw_cell_recorded(const struct spw_map *map, uint32_t slot, uint32_t generation) {
  uint64_t owner = spw_cell_owner(spw_cell_pack(0, slot, generation, 0));
  for (uint32_t i = 0; i < map->rw_section[SPW_RW_CELL_WORDS].count; i++) {
    uint64_t seen = spw_load_acq(spw_cell_word_at(map, i)); if (spw_cell_state(seen) == SPW_CELL_READY && spw_cell_owner(seen) == owner) return true; }
  return false; }

/* ---- spw_flag.h ---- */
struct spw_flag_facts {
  const struct spw_quote_request *request; const char *request_json; size_t request_bytes; const struct spw_fallback_answer *answer;
  const struct spw_line_tax *lines; const char *flag_id, *quote_id, *decision_id; uint32_t account_index, account_generation; enum spw_fallback type;
  enum spw_cause cause; uint8_t origin; uint32_t uid; uint32_t provider_status; uint32_t attempts; uint32_t breaker_state; uint64_t tokens_milli;
  uint64_t config_version;
};
static inline void spw__text_field(char *out, size_t room, const char *text) {
  memset(out, 0, room); for (size_t i = 0; text && text[i] && i + 1 < room; i++) out[i] = text[i]; }
#define SPW__SET(array, text) spw__text_field(array, sizeof(array), text)
static inline bool spw_evidence_read(const struct spw_account *account, struct spw_evidence *out) {
  return spw_latch_read(&account->evidence_seq, (const uint64_t *)(const void *)account->evidence, sizeof *out / 8, out, sizeof *out / 8); }
static inline void spw__flag_evidence(const struct spw_map *map, uint32_t account_index, struct spw_flag_record *r) {
  const struct spw_account *account = spw_account_at(map, account_index); struct spw_evidence e; if (!account || !spw_evidence_read(account, &e)) return;
  r->evidence_known = (uint8_t)e.known; r->limit_count = e.limit_count; r->remaining_count = e.remaining_count; r->reset_unix_ms = e.reset_unix_ms; }
static inline void spw_flag_fill(const struct spw_map *map, const struct spw_flag_facts *f, struct spw_flag_record *r) {
  const struct spw_quote_request *q = f->request; const struct spw_fallback_answer *a = f->answer; struct spw_place place; memset(r, 0, sizeof *r);
  SPW__SET(r->flag_id, f->flag_id); SPW__SET(r->quote_id, f->quote_id); SPW__SET(r->decision_id, f->decision_id); SPW__SET(r->quote_ref, q->quote_ref);
  SPW__SET(r->account, q->account); SPW__SET(r->integration, q->integration); SPW__SET(r->currency, q->currency ? q->currency : "USD");
  SPW__SET(r->zip, q->ship_to.zip); SPW__SET(r->date, q->date); (void)spw_place_from(&q->ship_to, &place); SPW__SET(r->country, place.country);
  SPW__SET(r->state, place.state[0] ? place.state : a->rate.state); r->account_index = f->account_index; r->account_generation = f->account_generation;
  r->created_unix_ms = spw_wall_ms(); r->created_ns = spw_now_ns(); r->origin = f->origin; r->type = (uint8_t)f->type; r->cause = (uint8_t)f->cause;
  r->purpose = (uint8_t)q->purpose; r->match = (uint8_t)a->match; r->rounding = (uint8_t)a->rounding; r->breaker_state = (uint8_t)f->breaker_state;
  r->provider_status = (uint16_t)f->provider_status; r->attempts = (uint16_t)f->attempts; r->uid = f->uid; r->bucket_tokens_milli = f->tokens_milli;
  r->config_version = f->config_version; spw__flag_evidence(map, f->account_index, r); r->taxable_minor = a->taxable_minor; r->total_minor = a->total_minor;
  r->tax_minor = a->tax_minor; r->state_ppb = a->rate.state_ppb; r->county_ppb = a->rate.county_ppb; r->city_ppb = a->rate.city_ppb;
  r->special_ppb = a->rate.special_ppb; r->combined_ppb = a->rate.combined_ppb; r->as_of_day = a->source.as_of_day; r->age_days = a->age_days;
  r->stale = a->stale; SPW__SET(r->source, a->source.name); memcpy(r->source_sha256, a->source.sha256, sizeof r->source_sha256);
  r->lines_count = q->line_count + 1; r->assumptions_bytes = (uint32_t)a->assumptions_bytes; r->request_bytes = (uint32_t)f->request_bytes;
  r->slot = map->self.slot; r->slot_generation = map->self.generation; }
static inline enum spw_status SPW_WARN_UNUSED spw_flag_write(
    const struct spw_map *map, uint32_t hint, const struct spw_flag_record *record, const struct spw_flag_facts *f) {
  struct spw_cell_prefix prefix = {SPW_CELL_FLAG, sizeof *record};
  struct spw_part parts[5]; parts[0].bytes = &prefix; parts[0].count = sizeof prefix; parts[1].bytes = record; parts[1].count = sizeof *record;
  parts[2].bytes = f->lines; parts[2].count = record->lines_count * sizeof f->lines[0]; parts[3].bytes = f->answer->assumptions;
  parts[3].count = record->assumptions_bytes; parts[4].bytes = f->request_json; parts[4].count = record->request_bytes;
  return spw_cell_write(map, hint, parts, 5); }
static inline size_t spw_flag_line(const struct spw_flag_record *r, const char *request_json, size_t request_bytes, char *out, size_t room) {
  struct spw_text t = spw_text_on(out, room);
  spw_text_put(&t, "{");
  spw__json_field(&t, "flag_id", r->flag_id); spw__json_field(&t, "quote_id", r->quote_id); spw__json_field(&t, "decision_id", r->decision_id);
  spw__json_field(&t, "account", r->account); spw__json_field(&t, "integration", r->integration); spw__json_field(&t, "type", spw_fallback_name(r->type));
  spw__json_field(&t, "cause", spw_cause_name(r->cause)); spw__json_field(&t, "match", spw_match_name(r->match));
  spw__json_field(&t, "purpose", spw_purpose_name(r->purpose)); spw__json_field(&t, "rounding", spw_rounding_name(r->rounding));
  spw__json_field(&t, "quote_ref", r->quote_ref); spw__json_field(&t, "country", r->country); spw__json_field(&t, "state", r->state);
  spw__json_field(&t, "zip", r->zip); spw__json_field(&t, "date", r->date); spw__json_field(&t, "currency", r->currency);
  spw__json_field(&t, "source", r->source); spw_text_put(&t, ",\"created_unix_ms\":"); spw_text_i64(&t, r->created_unix_ms);
  spw_text_put(&t, ",\"as_of_day\":"); spw_text_i64(&t, r->as_of_day); spw_text_put(&t, ",\"tax\":\""); spw_text_decimal(&t, r->tax_minor, 2, false);
  spw_text_put(&t, "\",\"taxable\":\""); spw_text_decimal(&t, r->taxable_minor, 2, false); spw_text_put(&t, "\",\"total\":\"");
  spw_text_decimal(&t, r->total_minor, 2, false); spw_text_put(&t, "\",\"rate\":\""); spw_text_decimal(&t, r->combined_ppb, 9, true);
  spw_text_put(&t, "\",\"request\":"); spw_text_bytes(&t, request_json, request_bytes); spw_text_put(&t, "}"); return t.overflow ? 0 : t.used; }
static inline enum spw_status SPW_WARN_UNUSED spw_order_write(const struct spw_map *map, uint32_t hint, const struct spw_order_record *record) {
  struct spw_cell_prefix prefix = {SPW_CELL_ORDER, sizeof *record};
  struct spw_part parts[2]; parts[0].bytes = &prefix; parts[0].count = sizeof prefix; parts[1].bytes = record; parts[1].count = sizeof *record;
  return spw_cell_write(map, hint, parts, 2); }
static inline void spw_id_make(char out[SPW_ID_BYTES], const char *prefix, uint64_t high, uint64_t low) {
  static const char hex[] = "0123456789abcdef"; memset(out, 0, SPW_ID_BYTES); memcpy(out, prefix, 3);
  for (int i = 0; i < 16; i++) { out[3 + i] = hex[high >> (60 - 4 * i) & 15]; out[19 + i] = hex[low >> (60 - 4 * i) & 15]; }
}

/* ---- spw_exchange.h ---- */
static inline bool spw__wait_fd(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now_ns = spw_now_ns(); if (now_ns >= deadline_ns) return false;
    struct pollfd p; p.fd = fd; p.events = events; p.revents = 0; int n = poll(&p, 1, (int)((deadline_ns - now_ns) / 1000000 + 1)); if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false; }
}
static inline uint32_t spw__exchange(const char *pub_dir, const char *head, size_t head_bytes, const char *body, size_t body_bytes, uint64_t deadline_ns,
    char *answer, size_t room, const char **answer_body) {
  struct sockaddr_un address; memset(&address, 0, sizeof address); address.sun_family = AF_UNIX; size_t dir_bytes = strlen(pub_dir);
  if (dir_bytes + sizeof "/quote.sock" > sizeof address.sun_path) return 0;
  memcpy(address.sun_path, pub_dir, dir_bytes); memcpy(address.sun_path + dir_bytes, "/quote.sock", sizeof "/quote.sock");
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); if (fd < 0) return 0;
  uint32_t status = 0; size_t sent = 0, got = 0, total = head_bytes + body_bytes; char *end = NULL;
  if (connect(fd, (struct sockaddr *)(void *)&address, sizeof address) != 0) goto out;
  while (sent < total) {
    const char *from = sent < head_bytes ? head + sent : body + (sent - head_bytes); size_t left = sent < head_bytes ? head_bytes - sent : total - sent;
    ssize_t n = send(fd, from, left, MSG_NOSIGNAL); bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n > 0) sent += (size_t)n;
    else if (!again || !spw__wait_fd(fd, POLLOUT, deadline_ns)) goto out; }
  while (got < room - 1) {
    ssize_t n = recv(fd, answer + got, room - 1 - got, 0); if (n == 0) break;
    if (n < 0) {
      if ((errno != EAGAIN && errno != EINTR) || !spw__wait_fd(fd, POLLIN, deadline_ns)) goto out;
      continue; }
    got += (size_t)n; answer[got] = 0; end = strstr(answer, "\r\n\r\n"); if (end && (got == room - 1 || strncmp(answer, "HTTP/1.1 4", 10) != 0)) break; }
  if (end && strncmp(answer, "HTTP/1.1 ", 9) == 0) { status = (uint32_t)strtoul(answer + 9, NULL, 10); *end = 0; *answer_body = end + 4; }
out:
  close(fd); return status; }
static inline const char *spw__header(const char *head, const char *name, char *value, size_t room) {
  size_t name_bytes = strlen(name); value[0] = 0;
  for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
    line += 2; size_t i = 0;
    while (i < name_bytes && (line[i] | 0x20) == (name[i] | 0x20)) i++;
    if (i < name_bytes || line[i] != ':') continue;
    const char *from = line + i + 1; from += strspn(from, " "); size_t n = strcspn(from, "\r\n"); n = n < room - 1 ? n : room - 1; memcpy(value, from, n);
    value[n] = 0; return value; }
  return value; }
static inline int64_t spw__header_i64(const char *head, const char *name, bool *known) {
  char value[32], *end = NULL; spw__header(head, name, value, sizeof value); errno = 0; long long number = strtoll(value, &end, 10);
  *known = value[0] != 0 && *end == 0 && errno == 0; return *known ? (int64_t)number : 0; }

/* ---- spw_client.h ---- */
/* spw_client.h: what a checkout process calls. Everything a developer needs to know is in this file's comments.
 *
 * Owns: struct spw_client, one per process. Called by: applications. libc only; C11 and C++17; 64-bit Linux.
 *
 *     struct spw_client spillway;
 *     spw_attach(&spillway, NULL);                       // works before the sidecar is there, too
 *     struct spw_quote_reply reply = {0};
 *     spw_quote(&spillway, &request, &reply);            // live, or at once from the cache
 *     ... place the order ...
 *     spw_order_placed(&spillway, reply.quote_id, "100048213", reply.tax_minor, "USD");
 *
 * Compile: include this file before any system header, or define _GNU_SOURCE; link with -pthread.
 * Threads: a client may be used by all threads of its process. Fork: a child gets its own identity by itself (a
 * pthread_atfork handler); exec needs nothing. Signals: spw_acquire and spw_report are async-signal-safe (with a
 * spw_ref and a ticket of the handler's own); nothing else is. They leave errno alone. Cost: spw_acquire, spw_report and
 * spw_order_placed make no system call, but for some when a segment has come or gone; spw_quote: the same when it
 * answers from the cache, else one exchange over a Unix socket.
 */

/* What spw_acquire lets through while there is no segment. Never a silent ALLOW: the verdict is NOT_ATTACHED, and
 * may_call follows this option. */
enum spw_unattached {
  SPW_UNATTACHED_BOUNDED, /* default: a rate of this process alone */
  SPW_UNATTACHED_DENY,
  SPW_UNATTACHED_ALLOW
};

struct spw_attach_options {
  const char *pub_dir; /* NULL = $SPILLWAY_PUB_DIR, else /run/spillway/pub */
  const char *rw_dir;  /* NULL = $SPILLWAY_RW_DIR, else /run/spillway/rw */
  enum spw_unattached on_unattached;
  uint32_t bounded_per_s; /* BOUNDED: calls a second and burst of this process; 0 = 5 */
  uint32_t grace_ms;      /* how much longer than the deadline spw_quote waits for the sidecar; 0 = 200 */
};

struct spw_client {
  struct spw_map *map;      /* the newest mapped segment; NULL before the first */
  uint32_t attaching;       /* 1 while a thread maps */
  uint64_t next_try_ns;     /* not before: looking for a segment costs system calls */
  uint64_t next_look_ns;    /* the same while the sidecar is silent: there may be no successor for long */
  uint64_t id_high, id_low; /* random per process; id_low counts */
  struct spw_limiter_conf bounded; uint64_t bounded_level; enum spw_unattached on_unattached; uint32_t grace_ms;
  enum spw_status last_status; /* of the last attempt to attach */
  char pub_dir[256]; char rw_dir[256];
  struct spw_client **list;   /* the list this client is in: one per translation unit that attaches ... */
  pthread_mutex_t *list_lock; /* ... with its lock */
  struct spw_client *next;
};

#define SPW__RETRY_NS UINT64_C(100000000)    /* between attempts while there is no segment in force */
#define SPW__RETRY_SOON_NS UINT64_C(2000000) /* ... while one is being put in place */
#define SPW__KEEP_OLD_NS UINT64_C(60000000000)
#define SPW__LOOK_NS UINT64_C(1000000000) /* between looks for a successor while the sidecar is silent */

/* ---- attach, fork, re-attach ---- */

static struct spw_client *spw__clients; static pthread_mutex_t spw__clients_lock = PTHREAD_MUTEX_INITIALIZER; static int spw__fork_hooked;

static inline void spw__seed(struct spw_client *c) {
  uint64_t seed[2];
  if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
    seed[0] = spw_now_ns() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)getpid() << 32; seed[1] = (uint64_t)spw_wall_ms() ^ (uint64_t)(uintptr_t)c;
  }
  c->id_high = seed[0]; c->id_low = seed[1];
}

/* The child of a fork: the parent's lock must not look alive through us, and our slot must be our own. */
static inline void spw__fork_child(void) {
  for (struct spw_client *c = spw__clients; c; c = c->next) {
    for (struct spw_map *m = c->map; m; m = m->older) spw_slot_release(m);
    c->attaching = 0; spw__seed(c); if (c->map && spw_slot_claim(c->map, c->rw_dir, SPW_RW_NAME) != SPW_STATUS_OK) c->map->self.lock_fd = -1;
    if (c->map)
      c->map->made_ns = spw_now_ns();
  }
  pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER; spw__clients_lock = fresh;
}

static inline void spw__fork_prepare(void) { pthread_mutex_lock(&spw__clients_lock); }
static inline void spw__fork_parent(void) { pthread_mutex_unlock(&spw__clients_lock); }

/* A map's own memory. Not of malloc, which a signal handler must not call. */
static inline struct spw_map *spw__map_new(void) {
  void *fresh = mmap(NULL, sizeof(struct spw_map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return fresh == MAP_FAILED ? NULL : (struct spw_map *)fresh;
}

static inline void spw__map_free(struct spw_map *map) { if (map) munmap(map, sizeof *map); }

/* Leave a map and those it replaced. */
static inline void spw__maps_leave(struct spw_map *map) {
  while (map) { struct spw_map *older = map->older; spw_slot_release(map); spw_map_close(map); spw__map_free(map); map = older; }
}

/* Let go of maps that were replaced a minute ago: no thread is still inside one, and their pages count against the
 * volume until nobody maps them. now_ns may be older than the newest map, which another thread has just made. */
static inline void spw__drop_old(struct spw_client *c, uint64_t now_ns) {
  uint32_t nobody = 0; struct spw_map *map = __atomic_load_n(&c->map, __ATOMIC_ACQUIRE);
  if (!map || !__atomic_load_n(&map->older, __ATOMIC_RELAXED) || now_ns < map->made_ns + SPW__KEEP_OLD_NS ||
      !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  int kept_errno = errno; struct spw_map *old = c->map == map ? map->older : NULL;
  if (old) { __atomic_store_n(&map->older, (struct spw_map *)NULL, __ATOMIC_RELAXED); spw__maps_leave(old); }
  errno = kept_errno; __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE);
}

/* Is the file at the segment's path still the one that is mapped? One system call. */
static inline bool spw__still_there(const struct spw_client *c) {
  char path[300]; struct stat st;
  return spw__path(path, sizeof path, c->pub_dir, SPW_PUB_NAME) && stat(path, &st) == 0 && (uint64_t)st.st_ino == c->map->pub_inode;
}

/* Map the segment that is there now and make it the client's. Cold; one thread at a time, the others go on. */
static inline void spw__map_newest(struct spw_client *c, uint64_t now_ns) {
  uint32_t nobody = 0;
  if (now_ns < __atomic_load_n(&c->next_try_ns, __ATOMIC_RELAXED) ||
      !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  int kept_errno = errno;
  if (c->map && spw__still_there(c)) {
    errno = kept_errno; __atomic_store_n(&c->next_try_ns, now_ns + SPW__RETRY_SOON_NS, __ATOMIC_RELAXED); __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE);
    return;
  }
  struct spw_map *fresh = spw__map_new(), *old = c->map;
  enum spw_status status = fresh ? spw_map_open(fresh, c->pub_dir, c->rw_dir, SPW_PUB_NAME, false) : SPW_STATUS_NO_MEMORY;
  bool same = status == SPW_STATUS_OK && old && old->generation == fresh->generation;
  if (status == SPW_STATUS_OK && !same) {
    enum spw_status claimed = spw_slot_claim(fresh, c->rw_dir, SPW_RW_NAME);
    if (claimed == SPW_STATUS_NOT_READY) { status = claimed; spw_map_close(fresh); }
  }
  if (status == SPW_STATUS_OK && !same) { fresh->older = old; __atomic_store_n(&c->map, fresh, __ATOMIC_RELEASE); }
  else {
    if (same) spw_map_close(fresh);
    spw__map_free(fresh);
  }
  c->last_status = status; errno = kept_errno; bool soon = status == SPW_STATUS_NOT_READY || status == SPW_STATUS_OK;
  uint64_t pause_ns = soon ? SPW__RETRY_SOON_NS : SPW__RETRY_NS; __atomic_store_n(&c->next_try_ns, now_ns + pause_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE);
}

/* A process that attached when every slot was taken asks again once a second. It goes over to a fresh mapping, since
 * other threads are reading who the old one is. */
static inline void spw__claim_late(struct spw_client *c, uint64_t now_ns) {
  uint32_t nobody = 0; struct spw_map *map = __atomic_load_n(&c->map, __ATOMIC_ACQUIRE);
  if (!map || map->self.lock_fd >= 0 || now_ns < __atomic_load_n(&c->next_look_ns, __ATOMIC_RELAXED) ||
      !__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  __atomic_store_n(&c->next_look_ns, now_ns + SPW__LOOK_NS, __ATOMIC_RELAXED); int kept_errno = errno;
  struct spw_map *fresh = c->map == map ? spw__map_new() : NULL;
  if (fresh && spw_map_open(fresh, c->pub_dir, c->rw_dir, SPW_PUB_NAME, false) == SPW_STATUS_OK) {
    if (fresh->generation == map->generation && spw_slot_claim(fresh, c->rw_dir, SPW_RW_NAME) == SPW_STATUS_OK) {
      fresh->older = map; __atomic_store_n(&c->map, fresh, __ATOMIC_RELEASE); fresh = NULL;
    } else {
      spw_map_close(fresh);
    }
  }
  spw__map_free(fresh); errno = kept_errno; __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE);
}

/* The segment to read rates from and write flags to: the newest mapped, even while it is being replaced. */
static inline struct spw_map *spw__data_map(struct spw_client *c) { return __atomic_load_n(&c->map, __ATOMIC_ACQUIRE); }

/* The segment to decide by; NULL when there is none in force. */
static inline struct spw_map *spw__live_map(struct spw_client *c, uint64_t now_ns) {
  struct spw_map *map = spw__data_map(c);
  if (map && spw_load_acq(&spw_map_pub(map)->retired) == 0) {
    if (spw_map_silence_ns(map, now_ns) <= SPW_HEARTBEAT_STALE_NS) return map;
    if (now_ns >= __atomic_load_n(&c->next_look_ns, __ATOMIC_RELAXED)) {
      __atomic_store_n(&c->next_look_ns, now_ns + SPW__LOOK_NS, __ATOMIC_RELAXED); spw__map_newest(c, now_ns);
    }
    return spw__data_map(c);
  }
  spw__map_newest(c, now_ns); map = spw__data_map(c); return map && spw_load_acq(&spw_map_pub(map)->retired) == 0 ? map : NULL;
}

/* Prepare a client and attach it if a segment is there. options NULL = all defaults. OK, or why there is no segment
 * yet: the client is usable all the same, answers NOT_ATTACHED, and attaches by itself within 100 ms of the segment's
 * appearing. INVALID (a path too long): not usable. */
static inline enum spw_status spw_attach(struct spw_client *c, const struct spw_attach_options *options) {
  struct spw_attach_options none; memset(&none, 0, sizeof none); if (!options) options = &none;
  memset(c, 0, sizeof *c); const char *pub = options->pub_dir ? options->pub_dir : getenv("SPILLWAY_PUB_DIR");
  const char *rw = options->rw_dir ? options->rw_dir : getenv("SPILLWAY_RW_DIR"); pub = pub ? pub : "/run/spillway/pub"; rw = rw ? rw : "/run/spillway/rw";
  if (strlen(pub) >= sizeof c->pub_dir - 16 || strlen(rw) >= sizeof c->rw_dir - 16) return SPW_STATUS_INVALID;
  memcpy(c->pub_dir, pub, strlen(pub) + 1); memcpy(c->rw_dir, rw, strlen(rw) + 1); c->on_unattached = options->on_unattached;
  c->grace_ms = options->grace_ms ? options->grace_ms : 200; uint32_t per_s = options->bounded_per_s ? options->bounded_per_s : 5;
  (void)spw_gcra_configure(&c->bounded, per_s, UINT64_C(1000000000), per_s, 0, spw_now_ns(), 1);
  c->bounded_level = c->bounded.e0_units - c->bounded.burst_units; spw__seed(c); pthread_mutex_lock(&spw__clients_lock);
  if (!spw__fork_hooked) spw__fork_hooked = pthread_atfork(spw__fork_prepare, spw__fork_parent, spw__fork_child) == 0;
  c->list = &spw__clients; c->list_lock = &spw__clients_lock; c->next = spw__clients; spw__clients = c; pthread_mutex_unlock(&spw__clients_lock);
  c->last_status = SPW_STATUS_NO_SEGMENT; spw__map_newest(c, spw_now_ns()); return c->last_status;
}

/* Leave, for good: the client answers NOT_ATTACHED until spw_attach prepares it again. No other thread may be using it. */
static inline void spw_detach(struct spw_client *c) {
  if (!c->list_lock) return;
  pthread_mutex_lock(c->list_lock);
  for (struct spw_client **at = c->list; at && *at; at = &(*at)->next) {
    if (*at == c) { *at = c->next; break; }
  }
  pthread_mutex_unlock(c->list_lock); spw__maps_leave(c->map); c->map = NULL; c->next_try_ns = UINT64_MAX;
}

/* ---- acquire and report: for callers that call the provider themselves ---- */

static inline struct spw_admission spw__unattached(struct spw_client *c, uint64_t tokens, uint64_t now_ns) {
  struct spw_admission a; memset(&a, 0, sizeof a); a.verdict = SPW_NOT_ATTACHED; a.cause = SPW_CAUSE_NOT_ATTACHED;
  a.may_call = c->on_unattached == SPW_UNATTACHED_ALLOW; if (c->on_unattached != SPW_UNATTACHED_BOUNDED) return a;
  struct spw_gcra g; memset(&g, 0, sizeof g); spw_gcra_of(&c->bounded, &g); uint64_t level = spw_load_acq(&c->bounded_level), next = 0;
  do {
    if (spw_gcra_take(&g, level, now_ns, tokens, 0, 0, &next, &a.wait_ns) != SPW_GCRA_TAKE) return a;
  } while (!spw_cas(&c->bounded_level, &level, next));
  a.may_call = true; return a;
}

/* What was remembered is good until the sidecar has been silent for too long, and then looked at again. A heartbeat that
 * seems to be ahead, by a moment or by far, is not trusted at all. */
static inline void spw__ref_trust(const struct spw_map *map, struct spw_ref *ref, uint64_t now_ns) {
  struct spw__ref_bucket *b = &ref->bucket; uint64_t beat_ns = spw_load_rlx(&spw_map_pub(map)->heartbeat_ns);
  uint64_t until_ns = beat_ns + SPW_HEARTBEAT_STALE_NS - b->base_ns;
  if (now_ns - beat_ns > SPW_HEARTBEAT_STALE_NS) b->map = NULL;
  else if (until_ns < b->span_ns) b->span_ns = until_ns;
}

/* The decision when anything is unusual: no segment, a new one, an account not looked up yet, or not quiet. */
static SPW_COLD struct spw_admission spw__acquire_whole(
    struct spw_client *c, struct spw_ref *ref, uint32_t flags, uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns, struct spw_ticket *ticket) {
  spw__drop_old(c, now_ns); spw__claim_late(c, now_ns); struct spw_map *map = spw__live_map(c, now_ns); struct spw_admission a;
  if (map && (spw__ref_is_of(map, ref) || spw__ref_find(map, ref))) {
    a = spw__ref_whole(map, ref, flags, tokens, max_wait_ns, now_ns, ticket); spw__ref_trust(map, ref, now_ns);
  } else {
    memset(ticket, 0, SPW__TICKET_HEAD_BYTES); memset(&a, 0, sizeof a); a.verdict = map ? SPW_BAD_HANDLE : SPW_NOT_ATTACHED;
  }
  if (a.verdict == SPW_BAD_HANDLE) ref->generation = 0;
  return a.verdict == SPW_NOT_ATTACHED ? spw__unattached(c, tokens, now_ns) : a;
}

/* The map to decide by while nothing is unusual. */
SPW_HOT const struct spw_map *spw__quiet_map(struct spw_client *c) {
  const struct spw_map *map = spw__data_map(c); return map && spw_load_acq(&spw_map_pub(map)->retired) == 0 ? map : NULL;
}

/* The decision when it is no ordinary take. */
static SPW_ASIDE struct spw_admission spw__acquire_aside(
    struct spw_client *c, struct spw_ref *ref, uint32_t flags, uint64_t tokens, uint64_t max_wait_ns, uint64_t now_ns, struct spw_ticket *ticket) {
  struct spw_admission a; if (max_wait_ns == 0 && spw__ref_quiet(spw__quiet_map(c), ref, tokens, now_ns, !(flags & SPW_ACQUIRE_PEEK), &a, ticket)) return a;
  return spw__acquire_whole(c, ref, flags, tokens, max_wait_ns, now_ns, ticket);
}

/* spw_acquire and spw_peek. */
SPW_HOT struct spw_admission spw__acquire(
    struct spw_client *c, struct spw_ref *ref, uint32_t flags, uint64_t tokens, uint64_t max_wait_ns, struct spw_ticket *ticket) {
  struct spw_admission a; uint64_t breaker; bool quiet = max_wait_ns == 0 && spw__ref_look(spw__quiet_map(c), ref, tokens, &breaker);
  uint64_t now_ns = spw_now_ns(); if (quiet && spw__ref_quick(ref, breaker, tokens, now_ns, !(flags & SPW_ACQUIRE_PEEK), &a, ticket)) return a;
  return spw__acquire_aside(c, ref, flags, tokens, max_wait_ns, now_ns, ticket);
}

/* May this process make a provider call that costs `tokens` now? Look at may_call; when it is true, make the call
 * (not before start_at_ns, CLOCK_BOOTTIME) and tell spw_report how it ended. max_wait_ns > 0 reserves tokens that
 * will be earned within that time (an hour at most): then wait, and ask spw_reservation_confirm before the call. 0 never
 * waits. ref->endpoint says what kind of call it is. Lock-free, no system call while attached. */
static inline struct spw_admission spw_acquire(struct spw_client *c, struct spw_ref *ref, uint64_t tokens, uint64_t max_wait_ns, struct spw_ticket *ticket) {
  return spw__acquire(c, ref, 0, tokens, max_wait_ns, ticket);
}

/* Would spw_acquire allow it now? Loads only: nothing is taken, reserved or counted. */
static inline struct spw_admission spw_peek(struct spw_client *c, struct spw_ref *ref, uint64_t tokens) {
  struct spw_ticket unused; return spw__acquire(c, ref, SPW_ACQUIRE_PEEK, tokens, 0, &unused);
}

/* The start_at_ns of a reservation has come: do gate and breaker still let the call through? may_call: make it, then
 * spw_report. Else do not: too early (DENY, wait_ns says how much, nothing has changed), or they have shut meanwhile, and
 * the reservation has been given back. Costs as spw_acquire. */
static inline struct spw_admission spw_reservation_confirm(struct spw_client *c, struct spw_ticket *ticket) {
  uint64_t now_ns = spw_now_ns(); struct spw_map *map = spw__live_map(c, now_ns); struct spw_admission a; memset(&a, 0, sizeof a); a.verdict = SPW_NOT_ATTACHED;
  if (map) a = spw_confirm(map, ticket, now_ns);
  return a.verdict == SPW_NOT_ATTACHED ? spw__unattached(c, ticket->tokens, now_ns) : a;
}

/* A call that spw_acquire allowed is not made after all, or a reservation no longer wanted: everything it held goes back,
 * so that it counts as never taken. Instead of spw_report; once. Costs as spw_acquire. */
static inline void spw_give_up(struct spw_client *c, struct spw_ticket *ticket) {
  struct spw_map *map = spw__data_map(c); if (map) spw_abandon(map, ticket, spw_now_ns());
}

/* Tell how the call ended: http_status 0 = no answer (timeout, no connection). It, 408, 429 and 5xx speak against the
 * provider; any other says that it answers, whatever it thought of this request. retry_after_ms: what the provider asked
 * for, -1 = nothing. Call it once for each ticket whose call was made. */
static inline void spw_report(struct spw_client *c, const struct spw_ticket *ticket, uint32_t http_status, int64_t retry_after_ms) {
  struct spw_call_end end; uint64_t now_ns = spw_now_ns(); spw__drop_old(c, now_ns); struct spw_map *map = spw__data_map(c); memset(&end, 0, sizeof end);
  end.outcome = spw_outcome_of_status(http_status);
  if (http_status == 429) {
    bool known = retry_after_ms > 0; uint64_t pause_ms = known ? (uint64_t)retry_after_ms : SPW_GATE_UNKNOWN_MS;
    if (pause_ms > SPW_GATE_MAX_MS) pause_ms = SPW_GATE_MAX_MS;
    end.gate_shut = true; end.gate_source = known ? SPW_GATE_RETRY_AFTER : SPW_GATE_UNKNOWN_429; end.gate_until_ns = now_ns + pause_ms * UINT64_C(1000000);
  }
  end.gate_open = spw_status_accepts(http_status); if (map && ticket->generation) (void)spw_settle(map, ticket, now_ns, &end);
}

/* ---- quote and order: for callers that let the sidecar call ---- */

/* Zero it before the call. handback and handback_room may be set: they receive the flag's line of JSON when no cell was
 * free (flag_refused): the only record of this fallback, which no ledger has. Store it, and reconcile from it. */
struct spw_quote_reply {
  enum spw_decision decision;
  enum spw_fallback type; /* FALLBACK: exactly one type */
  enum spw_cause cause; enum spw_match match;
  int64_t tax_minor; /* meaningless unless LIVE or FALLBACK: not known is not zero */
  uint32_t rate_ppb; uint32_t age_days; bool stale; bool flag_refused; char quote_id[SPW_ID_BYTES]; char flag_id[SPW_ID_BYTES];
  char decision_id[SPW_CALLER_ID_BYTES]; /* yours, or the one minted */
  char reason[64];                       /* NONE: why */
  char error[1024];                      /* REJECTED: the provider's own words, JSON */
  uint32_t lines_count;                  /* entries of lines: yours, then shipping; 0 where they are not known */
  struct spw_line_tax lines[SPW_LINES_MAX_COUNT + 1]; char *handback; size_t handback_room;
};

static inline uint64_t spw__next_id(struct spw_client *c) { return spw_add_rlx(&c->id_low, 1); }

/* Serve from the cache and record the flag. */
static inline void spw__quote_fallback(struct spw_client *c, struct spw_map *map, const struct spw_quote_request *q, const char *json, size_t json_bytes,
    const struct spw_ref *ref, enum spw_fallback type, enum spw_cause cause, const struct spw_admission *a, struct spw_quote_reply *reply) {
  struct spw_fallback_answer answer; struct spw_flag_facts facts; struct spw_flag_record record;
  spw_fallback_compute(map, q, spw_wall_ms(), reply->lines, &answer); reply->type = type; reply->cause = cause;
  if (answer.why_not != SPW_ANSWERED) {
    reply->decision = SPW_DECISION_NONE; reply->lines_count = 0; SPW__SET(reply->reason, spw_no_answer_name(answer.why_not));
    spw_stat_count(map, ref->account_index, SPW_STAT_NO_RATE); return;
  }
  spw_id_make(reply->quote_id, "sq_", c->id_high, spw__next_id(c)); spw_id_make(reply->flag_id, "sf_", c->id_high, spw__next_id(c));
  memset(&facts, 0, sizeof facts); facts.request = q; facts.request_json = json; facts.request_bytes = json_bytes; facts.answer = &answer;
  facts.lines = reply->lines; facts.flag_id = reply->flag_id; facts.quote_id = reply->quote_id; facts.decision_id = reply->decision_id;
  facts.account_index = ref->account_index; facts.account_generation = ref->account_generation; facts.type = type; facts.cause = cause;
  facts.uid = map->self.uid; facts.breaker_state = a->breaker_state; facts.tokens_milli = spw_admission_tokens_milli(a); facts.config_version = a->version;
  spw_flag_fill(map, &facts, &record); enum spw_status status = spw_flag_write(map, (uint32_t)spw__next_id(c), &record, &facts);
  if (spw_load_acq(&spw_map_pub(map)->retired)) {
    struct spw_map *fresh = spw__live_map(c, spw_now_ns());
    if (fresh && fresh != map) status = spw_flag_write(fresh, (uint32_t)spw__next_id(c), &record, &facts);
  }
  reply->decision = SPW_DECISION_FALLBACK; reply->match = answer.match; reply->tax_minor = answer.tax_minor; reply->rate_ppb = answer.rate.combined_ppb;
  reply->age_days = answer.age_days; reply->stale = answer.stale; reply->lines_count = q->line_count + 1;
  if (status == SPW_STATUS_OK) { spw_stat_count(map, ref->account_index, SPW_STAT_FALLBACK); return; }
  spw_stat_count(map, ref->account_index, SPW_STAT_FLAG_REFUSED); struct spw_account_conf conf;
  const struct spw_account *account = spw_account_at(map, ref->account_index);
  bool deny = !account || !spw_account_conf_read(account, &conf) || conf.on_full != 0; reply->flag_refused = true;
  if (!deny && reply->handback && spw_flag_line(&record, json, json_bytes, reply->handback, reply->handback_room)) return;
  reply->decision = SPW_DECISION_NONE; reply->lines_count = 0; SPW__SET(reply->reason, "flag-refused");
}

/* ---- the answer of the quote door ---- */

static inline uint32_t spw__code_of(const char *text, const char *(*name)(uint32_t), uint32_t count) {
  for (uint32_t i = 0; i < count; i++) { if (strcmp(name(i), text) == 0) return i; }
  return 0;
}

/* Read the sidecar's answer. false: it makes no sense, treat it as none. */
static inline bool spw__reply_read(const char *head, const char *body, uint32_t line_count, struct spw_quote_reply *reply) {
  char value[64], list[SPW_LINES_MAX_COUNT * 12]; bool known = false; spw__header(head, "Spillway-Decision", value, sizeof value);
  reply->decision = (enum spw_decision)spw__code_of(value, spw_decision_name, SPW_DECISION_COUNT);
  if (value[0] == 0 || strcmp(value, spw_decision_name(reply->decision)) != 0) return false;
  spw__header(head, "Spillway-Quote", reply->quote_id, sizeof reply->quote_id); spw__header(head, "Spillway-Flag", reply->flag_id, sizeof reply->flag_id);
  spw__header(head, "Spillway-Reason", reply->reason, sizeof reply->reason); spw__header(head, "Spillway-Type", value, sizeof value);
  reply->type = (enum spw_fallback)spw__code_of(value, spw_fallback_name, SPW_FALLBACK_COUNT); spw__header(head, "Spillway-Cause", value, sizeof value);
  reply->cause = (enum spw_cause)spw__code_of(value, spw_cause_name, SPW_CAUSE_COUNT); spw__header(head, "Spillway-Match", value, sizeof value);
  reply->match = (enum spw_match)spw__code_of(value, spw_match_name, SPW_MATCH_COUNT);
  reply->rate_ppb = (uint32_t)spw__header_i64(head, "Spillway-Rate-Ppb", &known);
  reply->age_days = (uint32_t)spw__header_i64(head, "Spillway-Age-Days", &known); reply->stale = spw__header_i64(head, "Spillway-Stale", &known) == 1;
  if (reply->decision == SPW_DECISION_REJECTED) SPW__SET(reply->error, body);
  if (reply->decision != SPW_DECISION_LIVE && reply->decision != SPW_DECISION_FALLBACK) return true;
  reply->tax_minor = spw__header_i64(head, "Spillway-Tax-Minor", &known);
  if (!known || !reply->quote_id[0] || (reply->decision == SPW_DECISION_FALLBACK && !reply->flag_id[0])) return false;
  spw__header(head, "Spillway-Lines-Minor", list, sizeof list); char *at = list;
  for (uint32_t i = 0; i <= line_count && *at; i++) {
    reply->lines[i].taxable_minor = strtoll(at, &at, 10); if (*at == '/') reply->lines[i].tax_minor = strtoll(at + 1, &at, 10);
    at += *at == ','; reply->lines_count = i + 1;
  }
  if (reply->lines_count != line_count + 1) reply->lines_count = 0;
  return true;
}

static inline bool spw__quote_live(
    struct spw_client *c, const struct spw_quote_request *q, const char *json, size_t json_bytes, uint32_t deadline_ms, struct spw_quote_reply *reply) {
  char answer[16384], head_buffer[256]; const char *body = ""; struct spw_text head = spw_text_on(head_buffer, sizeof head_buffer);
  spw_text_put(&head,
      "POST /spillway/v1/quote HTTP/1.1\r\nHost: spillway\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: ");
  spw_text_u64(&head, json_bytes); spw_text_put(&head, "\r\n\r\n");
  uint64_t until_ns = spw_now_ns() + ((uint64_t)deadline_ms + c->grace_ms) * UINT64_C(1000000);
  uint32_t status = spw__exchange(c->pub_dir, head_buffer, head.used, json, json_bytes, until_ns, answer, sizeof answer, &body);
  return status && spw__reply_read(answer, body, q->line_count, reply);
}

static inline bool spw__amounts_ok(const struct spw_quote_request *q) {
  bool ok = q->shipping_minor <= SPW_AMOUNT_MAX_MINOR && q->shipping_minor >= -SPW_AMOUNT_MAX_MINOR;
  for (uint32_t i = 0; i < q->line_count && ok; i++) ok = q->lines[i].amount_minor <= SPW_AMOUNT_MAX_MINOR && q->lines[i].amount_minor >= -SPW_AMOUNT_MAX_MINOR;
  return ok;
}

/* The tax of a cart or order: live through the sidecar, or at once from the cache with a durable flag when the live
 * call must not be made or cannot be had. OK: look at reply->decision. INVALID: the request itself (no lines, too many,
 * too long, an amount beyond SPW_AMOUNT_MAX_MINOR, control characters or bytes that are not UTF-8 in an id, a state or
 * another name). NOT_FOUND: no such account. Waits at most the deadline + grace_ms. */
static inline enum spw_status SPW_WARN_UNUSED spw_quote(struct spw_client *c, const struct spw_quote_request *request, struct spw_quote_reply *reply) {
  char json[SPW_REQUEST_MAX_BYTES]; struct spw_quote_request q = *request; struct spw_ticket unused; struct spw_admission a; struct spw_ref ref;
  bool refused = false; uint64_t now_ns = spw_now_ns();
  if (!q.account || !q.lines || q.line_count == 0 || q.line_count > SPW_LINES_MAX_COUNT || !spw__amounts_ok(&q) ||
      (q.decision_id && strlen(q.decision_id) >= SPW_CALLER_ID_BYTES) || spw_request_bad_name(&q))
    return SPW_STATUS_INVALID;
  if (q.decision_id) SPW__SET(reply->decision_id, q.decision_id);
  else spw_id_make(reply->decision_id, "sd_", c->id_high, spw__next_id(c));
  q.decision_id = reply->decision_id; size_t json_bytes = spw_request_json(&q, json, sizeof json); if (json_bytes == 0) return SPW_STATUS_INVALID;
  spw__drop_old(c, now_ns); spw__claim_late(c, now_ns); struct spw_map *map = spw__live_map(c, now_ns);
  uint32_t deadline_ms = q.deadline_ms ? q.deadline_ms : 1800; memset(&a, 0, sizeof a); a.may_call = true;
  spw_ref_init(&ref, q.account, q.integration ? q.integration : "");
  if (map) {
    struct spw_account_conf conf; if (!spw__ref_find(map, &ref)) return SPW_STATUS_NOT_FOUND;
    if (spw_account_conf_read(spw_account_at(map, ref.account_index), &conf) && (!q.deadline_ms || q.deadline_ms > conf.deadline_ms))
      deadline_ms = conf.deadline_ms;
    a = spw_admit(map, ref.account_index, ref.account_generation, SPW_ACQUIRE_PEEK | spw_ref_flags(&ref), 1, 0, now_ns, &unused);
    refused = a.verdict == SPW_DENY || a.verdict == SPW_NEVER;
    if (refused && map->self.lock_fd >= 0) {
      spw__quote_fallback(c, map, &q, json, json_bytes, &ref, spw_refusal_type(a.cause), a.cause, &a, reply);
      spw_stat_count(map, ref.account_index, spw__stat_of(a.cause)); return SPW_STATUS_OK;
    }
  }
  if (spw__quote_live(c, &q, json, json_bytes, deadline_ms, reply)) return SPW_STATUS_OK;
  map = spw__data_map(c);
  if (!map) { reply->decision = SPW_DECISION_NONE; SPW__SET(reply->reason, "not-attached"); return SPW_STATUS_OK; }
  if (!ref.generation && !spw__ref_find(map, &ref)) return SPW_STATUS_NOT_FOUND;
  spw__quote_fallback(c, map, &q, json, json_bytes, &ref, refused ? spw_refusal_type(a.cause) : SPW_FALLBACK_SIDECAR_UNAVAILABLE,
      refused ? a.cause : SPW_CAUSE_SIDECAR_GONE, &a, reply);
  return SPW_STATUS_OK;
}

static inline enum spw_status spw__order(
    struct spw_client *c, uint32_t op, const char *quote_id, const char *order_id, int64_t tax_minor, const char *currency) {
  struct spw_order_record record; struct spw_map *map = spw__live_map(c, spw_now_ns()); map = map ? map : spw__data_map(c);
  bool named = order_id && order_id[0];
  if ((!named && op != SPW_ORDER_ABANDONED) || (named && strlen(order_id) >= SPW_CALLER_ID_BYTES) || (quote_id && strlen(quote_id) >= SPW_ID_BYTES) ||
      !spw_text_is_name(quote_id) || !spw_text_is_name(order_id) || !spw_text_is_name(currency))
    return SPW_STATUS_INVALID;
  if (!map) return SPW_STATUS_NO_SEGMENT;
  memset(&record, 0, sizeof record); record.op = op; SPW__SET(record.quote_id, quote_id); SPW__SET(record.order_id, order_id);
  SPW__SET(record.currency, currency ? currency : "USD"); record.tax_collected_minor = tax_minor; record.created_unix_ms = spw_wall_ms();
  record.placed_unix_ms = record.created_unix_ms; enum spw_status status = spw_order_write(map, (uint32_t)spw__next_id(c), &record);
  if (spw_load_acq(&spw_map_pub(map)->retired)) {
    struct spw_map *fresh = spw__live_map(c, spw_now_ns()); if (fresh && fresh != map) status = spw_order_write(fresh, (uint32_t)spw__next_id(c), &record);
  }
  return status;
}

/* The order of this quote was placed and so much tax was collected. OK: recorded, it survives the SIGKILL of every
 * process. Idempotent by (quote_id, order_id). FULL, NOT_READY, NO_SEGMENT: not recorded; post it to the orders door
 * (POST /spillway/v1/orders) later. INVALID: an id is empty, too long, or not UTF-8 without control characters. */
static inline enum spw_status SPW_WARN_UNUSED spw_order_placed(
    struct spw_client *c, const char *quote_id, const char *order_id, int64_t tax_collected_minor, const char *currency) {
  if (!quote_id || !quote_id[0]) return SPW_STATUS_INVALID;
  return spw__order(c, SPW_ORDER_PLACED, quote_id, order_id, tax_collected_minor, currency);
}

static inline enum spw_status SPW_WARN_UNUSED spw_order_cancelled(struct spw_client *c, const char *order_id) {
  return spw__order(c, SPW_ORDER_CANCELLED, NULL, order_id, 0, NULL);
}

/* No order will come of this quote: its flag, if it has one, is abandoned at once and not after a day. An order that comes
 * all the same counts. Results as for spw_order_placed. */
static inline enum spw_status SPW_WARN_UNUSED spw_quote_abandoned(struct spw_client *c, const char *quote_id) {
  return quote_id && quote_id[0] ? spw__order(c, SPW_ORDER_ABANDONED, quote_id, NULL, 0, NULL) : SPW_STATUS_INVALID;
}

/* Is anything that this process recorded still in a cell, be it of a segment that was replaced? */
static inline bool spw__recorded(struct spw_client *c) {
  uint32_t nobody = 0; bool any = false; if (!__atomic_compare_exchange_n(&c->attaching, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
  for (const struct spw_map *m = c->map; m && !any; m = m->older) any = m->self.lock_fd >= 0 && spw_cell_recorded(m, m->self.slot, m->self.generation);
  __atomic_store_n(&c->attaching, 0, __ATOMIC_RELEASE); return any;
}

/* Wait until all that this process has recorded is durable, which the sidecar sees to within some milliseconds. OK: it is
 * on the disk. TIMEOUT: not within timeout_ms; it is recorded, and becomes durable as soon as a sidecar runs and can
 * write. NO_SEGMENT: not attached. Looks every millisecond (one sleep each); about a nanosecond a cell. Any thread; not for
 * a signal handler. */
static inline enum spw_status SPW_WARN_UNUSED spw_wait_durable(struct spw_client *c, uint32_t timeout_ms) {
  uint64_t until_ns = spw_now_ns() + timeout_ms * UINT64_C(1000000); if (!spw__data_map(c)) return SPW_STATUS_NO_SEGMENT;
  while (spw__recorded(c)) {
    struct timespec pause = {0, 1000000};
    if (spw_now_ns() >= until_ns) return SPW_STATUS_TIMEOUT;
    (void)nanosleep(&pause, NULL);
  }
  return SPW_STATUS_OK;
}

/* The cached rate for a US ZIP code ("98110", "98110-1234"), without making a flag: for display only. OK, NOT_FOUND,
 * NO_SEGMENT, INVALID (no ZIP code), BUSY (the table changed under every try). */
static inline enum spw_status SPW_WARN_UNUSED spw_rate_lookup(
    struct spw_client *c, const char *zip, struct spw_rate_record *record, struct spw_source *source) {
  static const uint32_t levels[] = {SPW_RATE_ZIP9, SPW_RATE_ZIP5, 0};
  struct spw_address address; struct spw_place place; struct spw_map *map = spw__data_map(c); memset(&address, 0, sizeof address); address.zip = zip;
  if (!map) return SPW_STATUS_NO_SEGMENT;
  if (!zip || !spw_place_from(&address, &place)) return SPW_STATUS_INVALID;
  enum spw_rates_result result = spw_rates_find(map, &place, levels, record, source);
  return result == SPW_RATES_FOUND ? SPW_STATUS_OK : result == SPW_RATES_BUSY ? SPW_STATUS_BUSY : SPW_STATUS_NOT_FOUND;
}


#ifdef __cplusplus
}
#endif

#endif
