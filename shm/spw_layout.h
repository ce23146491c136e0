/* spw_layout.h: the two shared-memory files, byte by byte. Types, constants, assertions; no algorithms.
 *
 * Owns: the segment contract. Called by: everything that maps the segment. See shm/README.md for the byte table and
 * the writer matrix; tests/abi/check_layout.py holds that page and this file together.
 *
 * `pub` (read-only in the app): configuration, switches, evidence, rate tables, heartbeat. Writer: the sidecar alone.
 * `rw`: words that clients and sidecar change by compare-and-swap, and the flag cells.
 *
 * Rules: no pointers, offsets only; fixed widths; host byte order (the magic shows it); strides and counts are read
 * from the header, never sizeof, so that records may grow at their end within a major version; spare room is zero.
 */
#ifndef SPW_LAYOUT_H
#define SPW_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "shm/spw_atomic.h"
#include "shm/spw_quote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_LAYOUT_MAJOR            1u
#define SPW_LAYOUT_MINOR            1u
#define SPW_OLDEST_COMPATIBLE_MAJOR 1u

#define SPW_MAGIC_PUB                                                                                        \
    UINT64_C(0x31425550575053AA)                  /* 0xAA "SPWPUB1" in memory order on a little-endian host */
#define SPW_MAGIC_RW UINT64_C(0x3157525F575053AA) /* 0xAA "SPW_RW1" */

#define SPW_PUB_NAME  "segment" /* file names inside the two directories */
#define SPW_RW_NAME   "segment"
#define SPW_PREV_NAME "segment.prev." /* + generation: one that was replaced and is not drained yet */

#define SPW_HEADER_BYTES          512u
#define SPW_LINE_BYTES            128u /* two lines of 64: what the adjacent-line prefetcher pulls together */
#define SPW_LIMITERS_PER_ACCOUNT  8u
#define SPW_CONFIG_SLOTS          16u
#define SPW_WINDOW_WORDS          16u
#define SPW_PERMITS_PER_ACCOUNT   256u
#define SPW_STATS_COUNT           16u
#define SPW_CELL_BYTES            2048u
#define SPW_CHAIN_MAX_CELLS       24u
#define SPW_ASSUMPTIONS_MAX_BYTES 4096u
#define SPW_SOURCES_MAX_COUNT     16u
#define SPW_NEXUS_MAX_COUNT       64u
#define SPW_TAX_CODES_MAX_COUNT   128u
#define SPW_LEARNED_WAYS          8u /* places a learned rate may lie in, beside one another */
#define SPW_HEARTBEAT_NS          UINT64_C(250000000)  /* the sidecar writes it this often ... */
#define SPW_HEARTBEAT_STALE_NS    UINT64_C(2000000000) /* ... and counts as gone after this */
#define SPW_HEARTBEAT_STOPPED     UINT64_MAX           /* clean stop */
#define SPW_MOVED                 UINT64_MAX          /* a word whose content now lives in the next segment */
#define SPW_LOCK_BASE             (UINT64_C(1) << 40) /* OFD lock byte of slot i in rw: far past the file's end */

/* Sections: {offset, stride, count} in the header. */
enum spw_pub_section {
    SPW_PUB_ACCOUNTS,     /* struct spw_account */
    SPW_PUB_INTEGRATIONS, /* struct spw_integration */
    SPW_PUB_LIMITERS,     /* struct spw_limiter */
    SPW_PUB_POLICY,       /* struct spw_policy, two slots of one latch */
    SPW_PUB_RATE_HALVES,  /* struct spw_rate_half, two */
    SPW_PUB_SOURCES,      /* struct spw_source, SPW_SOURCES_MAX_COUNT for each half */
    SPW_PUB_RATE_INDEX,   /* uint64_t, two halves */
    SPW_PUB_RATE_RECORDS, /* struct spw_rate_record, two halves */
    SPW_PUB_LEARNED,      /* struct spw_learned_rate; since 1.1, absent before */
    SPW_PUB_SECTIONS
};

enum spw_rw_section {
    SPW_RW_ACCOUNTS,   /* struct spw_account_words, same index as in pub */
    SPW_RW_LIMITERS,   /* struct spw_limiter_words, same index as in pub */
    SPW_RW_PERMITS,    /* uint64_t, SPW_PERMITS_PER_ACCOUNT for each account */
    SPW_RW_SLOTS,      /* struct spw_slot */
    SPW_RW_STATS,      /* struct spw_stats, one for each slot and account: [slot * accounts + account] */
    SPW_RW_CELL_WORDS, /* uint64_t */
    SPW_RW_CELLS,      /* struct spw_cell */
    SPW_RW_SECTIONS
};
#define SPW_PUB_SECTIONS_1_0   8u /* what every segment of this major version has */
#define SPW_SECTIONS_MAX_COUNT 12u

struct spw_section {
    uint64_t offset_bytes;
    uint32_t stride_bytes;
    uint32_t count;
};

/* Both files begin with this. */
struct spw_header {
    uint64_t magic;
    uint32_t layout_major;
    uint32_t layout_minor;
    uint32_t oldest_compatible_major; /* a client of this major or later can read the file */
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint64_t format_hash; /* over the offsets and base sizes a client of this major relies on */
    uint64_t generation;  /* random; the same in both files of a segment */
    uint32_t clock_id;    /* CLOCK_BOOTTIME */
    uint32_t section_count;
    uint8_t boot_id[16];
    uint64_t base_ns; /* CLOCK_BOOTTIME when made: milliseconds inside words count from here */
    uint64_t lock_base;
    uint8_t spare0[40];
    struct spw_section sections[SPW_SECTIONS_MAX_COUNT];
    uint8_t spare1[64];
    /* A line of its own: the words every decision loads (pub). */
    uint64_t ready;        /* 1, stored last with release */
    uint64_t retired;      /* 1: this segment is being replaced */
    uint64_t heartbeat_ns; /* CLOCK_BOOTTIME of the sidecar's last sign of life, or SPW_HEARTBEAT_STOPPED */
    uint64_t switches;     /* SPW_SWITCH_* for all limiters */
    uint64_t rates_active; /* half in bit 0, version above */
    uint64_t policy_seq;   /* latch counter of the policy */
    uint64_t cells_hint; /* rw: raised after a cell became READY; only a hint, a full look finds every cell */
    uint64_t changes;    /* pub, since 1.1: counts changes of what decisions go by: see spw_changed */
    uint8_t spare2[64];
};

/* Switch words: read at each decision after a change, so effective at once. */
#define SPW_SWITCH_KILL    UINT64_C(1) /* the limiter is off: it admits and charges nothing */
#define SPW_SWITCH_OBSERVE UINT64_C(2) /* the limiter decides and counts, but never refuses */

enum spw_record_state { SPW_RECORD_FREE, SPW_RECORD_LIVE, SPW_RECORD_REMOVED };
enum spw_limiter_kind { SPW_LIMITER_BUCKET, SPW_LIMITER_LEAKY, SPW_LIMITER_WINDOW, SPW_LIMITER_CONCURRENCY };
/* What kind of call it is: an account's limiters may apply to some kinds only. */
enum spw_endpoint { SPW_ENDPOINT_CALCULATE, SPW_ENDPOINT_RECORD, SPW_ENDPOINT_OTHER, SPW_ENDPOINT_REFUND };
#define SPW_ENDPOINTS_COUNT 4u
enum spw_forced {
    SPW_FORCED_NOT,
    SPW_FORCED_OPEN,
    SPW_FORCED_CLOSED,
    SPW_FORCED_DISABLED,
    SPW_FORCED_OBSERVE
};

/* What the breaker and gate of an account go by. One slot of a two-slot latch; 64 bytes. */
struct spw_account_conf {
    uint32_t consecutive_429_count;
    uint32_t ratio_429_ppm;
    uint32_t minimum_count;
    uint32_t window_tick_ms; /* a tenth of the window: the width of one window word */
    uint32_t cooldown_min_ms;
    uint32_t cooldown_max_ms;
    uint32_t probe_ms; /* life of the half-open probe's permit */
    uint32_t deadline_ms;
    uint32_t header_buffer_ppm;
    uint32_t on_full;                   /* what a caller does when no cell is free: 0 hand back, 1 deny */
    uint32_t permit_ms;                 /* life of a concurrency permit: deadline + 1 s */
    uint32_t permits_per_process_count; /* since 1.1: of these, what one process may hold; 0 = all */
    uint32_t
        permits_most_count; /* since 1.1: the most there were in this segment: what was lowered is still held */
    uint32_t spare[3];
};

/* What the provider last said about its limit. One slot of a two-slot latch; 64 bytes. */
#define SPW_EVIDENCE_LIMIT     1u
#define SPW_EVIDENCE_REMAINING 2u
#define SPW_EVIDENCE_RESET     4u
struct spw_evidence {
    uint64_t limit_count;
    uint64_t remaining_count;
    int64_t reset_unix_ms;
    uint64_t observed_ns; /* CLOCK_BOOTTIME at receipt */
    uint32_t known;       /* SPW_EVIDENCE_*: what is not known is not 0 */
    uint32_t status;      /* HTTP status of that answer */
    uint64_t spare[3];
};

struct spw_account {
    /* The first line of 64 bytes is what a decision loads. */
    uint32_t state; /* enum spw_record_state */
    uint32_t record_generation;
    uint64_t switches; /* SPW_SWITCH_* for the account's limiters */
    uint64_t forced;   /* enum spw_forced: the breaker by hand */
    uint64_t version;  /* of the last change to any of its limits or its breaker */
    uint32_t limiters_count;
    uint32_t permits_count; /* concurrency: calls in flight from this pod; 0 = not limited */
    uint32_t limiters[SPW_LIMITERS_PER_ACCOUNT]; /* indexes, narrowest first, the account-wide one last */
    char name[SPW_NAME_BYTES];
    char provider[32];
    uint64_t conf_seq;
    struct spw_account_conf conf[2];
    uint64_t evidence_seq;
    struct spw_evidence evidence[2];
    uint32_t skip; /* since 1.1: as an integration's, for a caller without one */
    uint8_t spare1[68];
};

struct spw_integration {
    uint32_t state;
    uint32_t record_generation;
    uint32_t account_index;
    uint32_t batch; /* 1 = class batch: leaves the reserve */
    char name[SPW_NAME_BYTES];
    uint32_t skip; /* since 1.1: a byte for each enum spw_endpoint; bit i: limiters[i] does not apply */
    uint8_t spare[44];
};

/* One of 16 configurations of a limiter. The limiter's word names the one in force, so that rate and level change
 * together in one CAS. Units: a token costs units_per_token; units_num units are earned every units_den ns.
 * A fixed window (since 1.1) is a bucket that earns window_units at base_ns and at each window_ns after it. Its other
 * fields tell a client of layout 1.0, which would let it drip, that it never passes. */
struct spw_limiter_conf {
    uint64_t version; /* 0 = never written; odd while being written */
    uint64_t units_num;
    uint64_t units_den;
    uint64_t units_fixed; /* units per ns as 2.62 fixed point, rounded down; used when units_den > 1 */
    uint64_t units_per_token;
    uint64_t burst_units;
    uint64_t reserve_units; /* what class batch leaves */
    uint64_t e0_units;      /* units "earned" at base_ns */
    uint64_t base_ns;
    uint64_t tokens_count; /* the rate as configured, for this pod: tokens_count per period_ns */
    uint64_t period_ns;
    uint64_t burst_count;
    uint64_t window_ns; /* since 1.1: 0 = no window */
    uint64_t window_units;
    uint64_t window_e0_units; /* as e0_units */
    uint64_t spare[1];
};

struct spw_limiter {
    uint32_t state;
    uint32_t record_generation;
    uint32_t kind; /* enum spw_limiter_kind */
    uint32_t account_index;
    char name[32];
    uint64_t switches;
    uint64_t
        current; /* configuration slot the sidecar last made current: what a poisoned word is healed to */
    uint8_t spare[64];
    struct spw_limiter_conf conf[SPW_CONFIG_SLOTS];
};

/* The fallback's rules. One slot of a two-slot latch. */
enum spw_no_rate_policy { SPW_NO_RATE_BLOCK, SPW_NO_RATE_STATE_AVERAGE, SPW_NO_RATE_DEFAULT };
enum spw_tax_code_rule { SPW_RULE_GENERAL, SPW_RULE_EXEMPT, SPW_RULE_LEARNED, SPW_RULE_REFUSE };
struct spw_tax_code {
    char code[32];
    uint32_t rule; /* enum spw_tax_code_rule */
    uint32_t spare;
};
struct spw_policy {
    uint32_t nexus_all;
    uint32_t nexus_count;
    char nexus[SPW_NEXUS_MAX_COUNT][4];
    uint32_t on_no_rate; /* enum spw_no_rate_policy */
    uint32_t default_rate_ppb;
    uint32_t rounding; /* enum spw_rounding */
    uint32_t shipping_taxable;
    uint32_t warn_age_days;
    uint32_t refuse_age_days;
    uint32_t tax_rule_default;
    uint32_t tax_codes_count;
    struct spw_tax_code tax_codes[SPW_TAX_CODES_MAX_COUNT];
    /* Since 1.1: states in which shipping is taxed the other way than shipping_taxable says, two letters each. */
    uint32_t shipping_except_count;
    uint32_t spare0;
    char shipping_except[SPW_NEXUS_MAX_COUNT][2];
    uint64_t spare[11];
};

/* Rate table: two halves; the inactive one is filled, then rates_active is flipped. In a half, an index word names an
 * immutable record, so that a reader sees the old record or the new one, never a mix. */
struct spw_rate_half {
    uint64_t seq; /* odd while the half is being rewritten */
    uint64_t version;
    uint32_t records_count;
    uint32_t sources_count;
    uint64_t loaded_unix_ms;
    uint32_t coded_count;   /* since 1.1: records for single tax codes; 0 = nobody has to look for them */
    uint32_t upserts_count; /* since 1.1: rows put in since the half was filled */
    uint32_t
        replaced_count; /* since 1.1: records no index word names any more; the next filling drops them */
    uint32_t spare0;
    uint8_t spare[80];
};

struct spw_source {
    char name[SPW_NAME_BYTES];
    int32_t as_of_day; /* days since 1970-01-01 */
    uint32_t rows_count;
    uint8_t sha256[32];
    uint8_t spare[24];
};

/* Index word: {tag : 32 | record index + 1 : 32}, 0 = empty. */
enum spw_rate_level { SPW_RATE_ZIP5 = 1, SPW_RATE_ZIP9 = 2, SPW_RATE_STATE = 3, SPW_RATE_COUNTRY = 4 };
struct spw_rate_record {
    uint64_t key; /* see spw_rates.h */
    char country[4];
    char state[4];
    uint32_t zip5;
    uint16_t plus4_lo;
    uint16_t plus4_hi;
    uint32_t state_ppb;
    uint32_t county_ppb;
    uint32_t city_ppb;
    uint32_t special_ppb;
    uint32_t combined_ppb;
    uint16_t source; /* index into the half's sources */
    uint8_t level;   /* enum spw_rate_level */
    uint8_t flags;
    uint32_t valid_from_day; /* first and last day it holds, since 1970-01-01; 0 = not stated */
    uint32_t valid_to_day;
    uint32_t tax_code_hash; /* 0 = general goods */
    uint32_t spare;
};
#define SPW_RATE_FLAG_AVERAGE 1u /* computed from the rows, not stated by a table */
#define SPW_RATE_FLAG_LEAST   2u /* a state's own rate without its places': gives way to an average */

/* What a provider charged for one tax code of one account at one destination. Since 1.1. Hashed by key and subject into
 * sets of SPW_LEARNED_WAYS; the oldest of a set gives way. seq is odd while the one writer changes the entry. */
struct spw_learned_rate {
    uint64_t seq;
    uint64_t key;     /* see spw_learned_key */
    uint64_t subject; /* account, ship-from and tax code: see spw_learned_subject */
    int64_t learned_unix_ms;
    uint32_t combined_ppb;
    uint32_t state_ppb;
    uint32_t county_ppb;
    uint32_t city_ppb;
    uint32_t special_ppb;
    char state[4];
    uint32_t seen_count; /* answers that said the same in a row; statistics */
    uint32_t spare;
};

/* ---- rw ---- */

/* Breaker word: {state:2 | consecutive:8 | trips:4 | epoch:11 | time_ms:39}; see spw_breaker.h.
 * Gate word:    {source:4 | observation:21 | closed_until_ms:39}; see spw_gate.h.
 * Window word:  {tick:32 | bad:16 | total:16}. */
struct spw_account_words {
    uint64_t breaker;
    uint64_t gate;
    uint64_t spare0[14];
    uint64_t window[SPW_WINDOW_WORDS];
};

struct spw_limiter_words {
    uint64_t level;           /* {configuration slot : 4 | level in units : 60}, or SPW_MOVED */
    uint64_t returned_units;  /* since 1.1: given back so far; see spw_bucket_give_back */
    uint64_t healed_count;    /* impossible words replaced; statistics */
    uint64_t returning_units; /* since 1.1: the same, and what is being given back now */
    uint64_t spare[12];
};

/* Slot word: {generation : 32 | state : 8}; a slot is an attached process, alive while its lock byte is held. */
enum spw_slot_state {
    SPW_SLOT_FREE,
    SPW_SLOT_LIVE,
    SPW_SLOT_DEAD,    /* being swept */
    SPW_SLOT_RESERVED /* slot 0: nobody's; its statistics are the sums of those who left */
};
struct spw_slot {
    uint64_t word;
    uint64_t attached_ns;
    uint32_t uid;
    uint32_t spare0;
    uint64_t spare[13];
};

/* Decisions of one process for one account; its own line, so that counting never fights. */
enum spw_stat {
    SPW_STAT_ALLOW,
    SPW_STAT_DENY_BUCKET,
    SPW_STAT_DENY_GATE,
    SPW_STAT_DENY_BREAKER,
    SPW_STAT_DENY_CONCURRENCY,
    SPW_STAT_DENY_OTHER,
    SPW_STAT_OBSERVED, /* would have been refused, observe mode let it pass */
    SPW_STAT_FALLBACK, /* fallback answers given out by the client itself */
    SPW_STAT_NO_RATE,
    SPW_STAT_FLAG_REFUSED,
    SPW_STAT_USED,
    SPW_STAT_OWN =
        SPW_STAT_USED /* since 1.1: the first SPW_STATS_OWN_COUNT again, by plain stores: see spw_ref.h */
};
#define SPW_STATS_OWN_COUNT 4u
struct spw_stats {
    uint64_t count[SPW_STATS_COUNT];
};

/* Permit word: {slot:9 | slot generation:10 | use:7 | expiry_ms:38}, 0 = free. */

/* Cell word: {state:3 | slot:10 | slot generation:24 | cycle:27}. */
enum spw_cell_state { SPW_CELL_FREE, SPW_CELL_WRITING, SPW_CELL_READY, SPW_CELL_CHAINED, SPW_CELL_TAKEN };
struct spw_cell {
    uint32_t next;       /* index + 1 of the next cell of the chain, 0 = last */
    uint32_t next_cycle; /* the cycle in which that cell belongs to this chain */
    uint32_t bytes;      /* used of data */
    uint32_t spare;
    uint8_t data[SPW_CELL_BYTES - 16];
};

enum spw_cell_kind { SPW_CELL_FLAG = 1, SPW_CELL_ORDER = 2 };

/* A chain's data begins with this; for a flag, spw_flag_record and its three texts follow. Sizes are checked. */
struct spw_cell_prefix {
    uint32_t kind;
    uint32_t record_bytes; /* sizeof of the record as its writer knew it */
};

/* One fallback, complete enough to be calculated again. Integers in host order, text NUL-padded. */
struct spw_flag_record {
    char flag_id[SPW_ID_BYTES];
    char quote_id[SPW_ID_BYTES];
    char decision_id[SPW_CALLER_ID_BYTES];
    char quote_ref[SPW_CALLER_ID_BYTES];
    char account[SPW_NAME_BYTES];
    char integration[SPW_NAME_BYTES];
    uint32_t account_index;
    uint32_t account_generation;
    char currency[4];
    char country[4];
    char state[8];
    char zip[12];
    char date[12];
    uint32_t spare0[2];
    int64_t created_unix_ms;
    uint64_t created_ns; /* CLOCK_BOOTTIME */
    uint8_t origin;      /* 0 segment (the client itself), 1 loop (the sidecar) */
    uint8_t type;        /* enum spw_fallback */
    uint8_t cause;       /* enum spw_cause */
    uint8_t purpose;     /* enum spw_purpose */
    uint8_t match;       /* enum spw_match */
    uint8_t rounding;    /* enum spw_rounding */
    uint8_t breaker_state;
    uint8_t evidence_known; /* SPW_EVIDENCE_* */
    uint16_t provider_status;
    uint16_t attempts;
    uint32_t uid; /* of the peer (loop) or the process (segment) */
    uint64_t limit_count;
    uint64_t remaining_count;
    int64_t reset_unix_ms;
    uint64_t bucket_tokens_milli; /* thousandths of a token left in the local bucket */
    uint64_t config_version;
    int64_t taxable_minor;
    int64_t total_minor; /* lines and shipping before tax */
    int64_t tax_minor;
    uint32_t state_ppb;
    uint32_t county_ppb;
    uint32_t city_ppb;
    uint32_t special_ppb;
    uint32_t combined_ppb;
    int32_t as_of_day;
    uint32_t age_days;
    uint32_t stale;
    char source[SPW_NAME_BYTES];
    uint8_t source_sha256[32];
    uint32_t lines_count;       /* entries of struct spw_line_tax that follow, shipping last */
    uint32_t assumptions_bytes; /* text that follows: one assumption a line */
    uint32_t request_bytes;     /* the normalised request as JSON, follows last */
    uint32_t slot;
    uint32_t slot_generation;
    uint32_t spare1;
    uint64_t spare2[14];
};

/* Binds a quote to an order, cancels the order, or says of a quote that no order will come of it. */
enum spw_order_op { SPW_ORDER_PLACED = 1, SPW_ORDER_CANCELLED = 2, SPW_ORDER_ABANDONED = 3 };
struct spw_order_record {
    uint32_t op;
    uint32_t spare0;
    char quote_id[SPW_ID_BYTES];
    char order_id[SPW_CALLER_ID_BYTES];
    char account[SPW_NAME_BYTES];
    char currency[4];
    uint32_t spare1;
    int64_t tax_collected_minor;
    int64_t placed_unix_ms;
    int64_t created_unix_ms;
    uint64_t spare2[13];
};

/* SIDECAR ONLY: held by every build of the sidecar and its tests; a client compares the format hash. */
#define SPW__AT(type, field, offset)                                                                         \
    SPW_STATIC_ASSERT(offsetof(struct type, field) == (offset), #type "." #field " moved")
#define SPW__SIZE(type, bytes) SPW_STATIC_ASSERT(sizeof(struct type) == (bytes), #type " changed its size")

SPW__SIZE(spw_header, 512);
SPW__AT(spw_header, magic, 0);
SPW__AT(spw_header, layout_major, 8);
SPW__AT(spw_header, layout_minor, 12);
SPW__AT(spw_header, oldest_compatible_major, 16);
SPW__AT(spw_header, header_bytes, 20);
SPW__AT(spw_header, total_bytes, 24);
SPW__AT(spw_header, format_hash, 32);
SPW__AT(spw_header, generation, 40);
SPW__AT(spw_header, clock_id, 48);
SPW__AT(spw_header, section_count, 52);
SPW__AT(spw_header, boot_id, 56);
SPW__AT(spw_header, base_ns, 72);
SPW__AT(spw_header, lock_base, 80);
SPW__AT(spw_header, sections, 128);
SPW__AT(spw_header, ready, 384);
SPW__AT(spw_header, retired, 392);
SPW__AT(spw_header, heartbeat_ns, 400);
SPW__AT(spw_header, switches, 408);
SPW__AT(spw_header, rates_active, 416);
SPW__AT(spw_header, policy_seq, 424);
SPW__AT(spw_header, cells_hint, 432);
SPW__AT(spw_header, changes, 440);
SPW__SIZE(spw_section, 16);

SPW__SIZE(spw_account_conf, 64);
SPW__AT(spw_account_conf, permits_per_process_count, 44);
SPW__SIZE(spw_evidence, 64);
SPW__SIZE(spw_account, 512);
SPW__AT(spw_account, switches, 8);
SPW__AT(spw_account, forced, 16);
SPW__AT(spw_account, version, 24);
SPW__AT(spw_account, limiters_count, 32);
SPW__AT(spw_account, permits_count, 36);
SPW__AT(spw_account, limiters, 40);
SPW__AT(spw_account, name, 72);
SPW__AT(spw_account, provider, 136);
SPW__AT(spw_account, conf_seq, 168);
SPW__AT(spw_account, conf, 176);
SPW__AT(spw_account, evidence_seq, 304);
SPW__AT(spw_account, evidence, 312);
SPW__AT(spw_account, skip, 440);
SPW__SIZE(spw_integration, 128);
SPW__AT(spw_integration, name, 16);
SPW__AT(spw_integration, skip, 80);
SPW__SIZE(spw_limiter_conf, 128);
SPW__AT(spw_limiter_conf, window_ns, 96);
SPW__SIZE(spw_limiter, 128 + 16 * 128);
SPW__AT(spw_limiter, name, 16);
SPW__AT(spw_limiter, switches, 48);
SPW__AT(spw_limiter, current, 56);
SPW__AT(spw_limiter, conf, 128);
SPW__SIZE(spw_tax_code, 40);
SPW__SIZE(spw_policy, 5640);
SPW__AT(spw_policy, nexus, 8);
SPW__AT(spw_policy, on_no_rate, 264);
SPW__AT(spw_policy, tax_codes, 296);
SPW__SIZE(spw_rate_half, 128);
SPW__SIZE(spw_source, 128);
SPW__AT(spw_source, as_of_day, 64);
SPW__AT(spw_source, sha256, 72);
SPW__SIZE(spw_rate_record, 64);
SPW__AT(spw_rate_record, zip5, 16);
SPW__AT(spw_rate_record, state_ppb, 24);
SPW__AT(spw_rate_record, combined_ppb, 40);
SPW__AT(spw_rate_record, source, 44);
SPW__AT(spw_policy, shipping_except, 5424);
SPW__AT(spw_rate_half, coded_count, 32);
SPW__SIZE(spw_learned_rate, 64);

SPW__SIZE(spw_account_words, 256);
SPW__AT(spw_account_words, gate, 8);
SPW__AT(spw_account_words, window, 128);
SPW__SIZE(spw_limiter_words, 128);
SPW__AT(spw_limiter_words, returning_units, 24);
SPW__SIZE(spw_slot, 128);
SPW__SIZE(spw_stats, 128);
SPW__SIZE(spw_cell, SPW_CELL_BYTES);
SPW__SIZE(spw_flag_record, 768);
SPW__AT(spw_flag_record, account, 224);
SPW__AT(spw_flag_record, created_unix_ms, 408);
SPW__AT(spw_flag_record, origin, 424);
SPW__AT(spw_flag_record, limit_count, 440);
SPW__AT(spw_flag_record, tax_minor, 496);
SPW__AT(spw_flag_record, source, 536);
SPW__AT(spw_flag_record, lines_count, 632);
SPW__SIZE(spw_order_record, 320);
/* END SIDECAR ONLY */

#ifdef __cplusplus
}
#endif

#endif
