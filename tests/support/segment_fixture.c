/* segment_fixture.c: see segment_fixture.h. */
#include "tests/support/segment_fixture.h"

#include <inttypes.h>
#include <stdlib.h>

#include "shm/spw_bucket.h"
#include "shm/spw_fallback.h"

#define CHECK(condition, what)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "segment_fixture.c:%d: %s: %s\n", __LINE__, what, strerror(errno));              \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#define INDEX_WORDS_PER_HALF 64u
#define RECORDS_PER_HALF     16u
#define FIRST_OF_NOVEMBER    20393 /* 2025-11-01 in days since 1970-01-01 */

struct section_plan {
    uint32_t stride_bytes;
    uint32_t count;
};

/* Lay the sections out behind the header; returns the file's bytes. */
static uint64_t lay_out(const struct section_plan *plan, unsigned count, struct spw_section *out)
{
    uint64_t at = SPW_HEADER_BYTES;
    for (unsigned i = 0; i < count; i++) {
        out[i] = (struct spw_section){at, plan[i].stride_bytes, plan[i].count};
        at += ((uint64_t)plan[i].stride_bytes * plan[i].count + 127) / 128 * 128;
    }
    return (at + 4095) / 4096 * 4096;
}

static void make_file(const char *dir, uint64_t magic, uint64_t generation, const struct section_plan *plan,
                      unsigned sections)
{
    struct spw_header header = {.magic = magic,
                                .layout_major = SPW_LAYOUT_MAJOR,
                                .layout_minor = SPW_LAYOUT_MINOR,
                                .oldest_compatible_major = SPW_OLDEST_COMPATIBLE_MAJOR,
                                .header_bytes = SPW_HEADER_BYTES,
                                .format_hash = spw_format_hash(),
                                .generation = generation,
                                .clock_id = CLOCK_BOOTTIME,
                                .section_count = sections,
                                .base_ns = spw_now_ns(),
                                .lock_base = SPW_LOCK_BASE,
                                .ready = 1,
                                .heartbeat_ns = spw_now_ns()};
    spw_boot_id(header.boot_id);
    header.total_bytes = lay_out(plan, sections, header.sections);
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, SPW_PUB_NAME);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
    CHECK(fd >= 0, path);
    CHECK(posix_fallocate(fd, 0, (off_t)header.total_bytes) == 0, path);
    CHECK(pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header, path);
    close(fd);
}

static void fill_accounts(const struct spw_map *map)
{
    static const struct spw_account_conf conf = {.consecutive_429_count = 5,
                                                 .ratio_429_ppm = 200000,
                                                 .minimum_count = 20,
                                                 .window_tick_ms = 1000,
                                                 .cooldown_min_ms = 30000,
                                                 .cooldown_max_ms = 60000,
                                                 .probe_ms = 5000,
                                                 .deadline_ms = 1500,
                                                 .header_buffer_ppm = 150000,
                                                 .permit_ms = 2500};
    uint32_t accounts = map->pub_section[SPW_PUB_ACCOUNTS].count,
             limiters = map->pub_section[SPW_PUB_LIMITERS].count;
    for (uint32_t i = 0; i < accounts; i++) {
        struct spw_account *a = spw_account_at(map, i);
        struct spw_integration *integration = spw_integration_at(map, i);
        CHECK(a && integration, "accounts");
        a->record_generation = 1;
        snprintf(a->provider, sizeof a->provider, "taxcloud");
        if (i < 2)
            snprintf(a->name, sizeof a->name, "%s", i ? "second" : "main");
        else
            snprintf(a->name, sizeof a->name, "account%" PRIu32, i);
        a->version = 1;
        spw_latch_write(&a->conf_seq, (uint64_t *)(void *)a->conf, sizeof conf / 8, &conf, sizeof conf / 8);
        a->state = SPW_RECORD_LIVE;
        integration->record_generation = 1;
        integration->account_index = i;
        snprintf(integration->name, sizeof integration->name, "shop%" PRIu32, i);
        integration->state = SPW_RECORD_LIVE;
    }
    for (uint32_t i = 0; i < limiters; i++) {
        struct spw_limiter *l = spw_limiter_at(map, i);
        struct spw_account *a = spw_account_at(map, i % accounts);
        CHECK(l && a, "limiters");
        l->record_generation = 1;
        l->kind = SPW_LIMITER_BUCKET;
        l->account_index = i % accounts;
        snprintf(l->name, sizeof l->name, "bucket%" PRIu32, i);
        CHECK(spw_bucket_configure(l, spw_limiter_words_at(map, i), 100, UINT64_C(1000000000), 100, 0, 1,
                                   spw_now_ns(), true),
              "bucket");
        l->state = SPW_RECORD_LIVE;
        if (a->limiters_count < SPW_LIMITERS_PER_ACCOUNT)
            a->limiters[a->limiters_count++] = i;
    }
}

static void fill_policy(const struct spw_map *map)
{
    static const struct spw_policy policy = {
        .nexus_all = 1, .shipping_taxable = 1, .warn_age_days = 36500, .refuse_age_days = 36500};
    size_t stride_words = map->pub_section[SPW_PUB_POLICY].stride_bytes / 8;
    spw_latch_write(&spw_map_pub(map)->policy_seq, (uint64_t *)(void *)spw_policy_at(map, 0), stride_words,
                    &policy, sizeof policy / 8);
}

/* Half 0 of the rate table, made active. */
static void fill_rates(const struct spw_map *map)
{
    static const struct spw_rate_record row[] = {
        {.country = "US",
         .state = "WA",
         .zip5 = 98110,
         .state_ppb = 65000000,
         .city_ppb = 27000000,
         .combined_ppb = 92000000,
         .level = SPW_RATE_ZIP5},
        {.country = "US",
         .state = "TX",
         .zip5 = 78701,
         .state_ppb = 62500000,
         .city_ppb = 10000000,
         .special_ppb = 10000000,
         .combined_ppb = 82500000,
         .level = SPW_RATE_ZIP5},
        {.country = "US",
         .state = "NY",
         .zip5 = 10001,
         .state_ppb = 40000000,
         .city_ppb = 45000000,
         .special_ppb = 3750000,
         .combined_ppb = 88750000,
         .level = SPW_RATE_ZIP5},
        {.country = "US", .state = "OR", .zip5 = 97201, .level = SPW_RATE_ZIP5},
        {.country = "US",
         .state = "WA",
         .state_ppb = 65000000,
         .county_ppb = 23600000,
         .combined_ppb = 88600000,
         .level = SPW_RATE_STATE},
        {.country = "US",
         .state = "TX",
         .state_ppb = 62500000,
         .county_ppb = 19500000,
         .combined_ppb = 82000000,
         .level = SPW_RATE_STATE},
    };
    for (uint32_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct spw_rate_record *record = spw_rate_record_at(map, i);
        *record = row[i];
        record->plus4_lo = record->plus4_hi = UINT16_MAX;
        record->key = spw_rate_key(record->level, record->country, record->state, record->zip5);
        uint64_t hash = spw_rate_hash(record->key), at = hash;
        while (*spw_rate_index_at(map, at & map->index_mask))
            at++;
        *spw_rate_index_at(map, at & map->index_mask) = spw_rate_index_word(hash, i);
    }
    struct spw_source *source = spw_source_at(map, 0);
    struct spw_rate_half *half = spw_rate_half_at(map, 0);
    CHECK(source && half, "rates");
    snprintf(source->name, sizeof source->name, "table-2025");
    source->as_of_day = FIRST_OF_NOVEMBER;
    source->rows_count = sizeof row / sizeof row[0];
    memset(source->sha256, 0x5A, sizeof source->sha256);
    half->version = 1;
    half->records_count = sizeof row / sizeof row[0];
    half->sources_count = 1;
    spw_store_rel(&spw_map_pub(map)->rates_active, UINT64_C(1) << 1);
}

void spw_fixture_make(struct spw_fixture *fixture, const struct spw_fixture_options *options)
{
    static const struct spw_fixture_options none;
    const struct spw_fixture_options *o = options ? options : &none;
    uint32_t accounts = o->accounts ? o->accounts : 2, limiters = o->limiters ? o->limiters : 4;
    uint32_t slots = o->slots ? o->slots : 8, cells = o->cells ? o->cells : 64;
    const char *tmp = getenv("TMPDIR"), *parent = o->parent_dir ? o->parent_dir : tmp ? tmp : "/tmp";
    memset(fixture, 0, sizeof *fixture);
    snprintf(fixture->dir, sizeof fixture->dir, "%s/spw-segment-XXXXXX", parent);
    CHECK(mkdtemp(fixture->dir) != NULL, fixture->dir);
    snprintf(fixture->pub_dir, sizeof fixture->pub_dir, "%s/pub", fixture->dir);
    snprintf(fixture->rw_dir, sizeof fixture->rw_dir, "%s/rw", fixture->dir);
    CHECK(mkdir(fixture->pub_dir, 0770) == 0 && mkdir(fixture->rw_dir, 0770) == 0, fixture->dir);

    const struct section_plan pub[SPW_PUB_SECTIONS] = {
        {sizeof(struct spw_account), accounts}, {sizeof(struct spw_integration), accounts},
        {sizeof(struct spw_limiter), limiters}, {sizeof(struct spw_policy), 2},
        {sizeof(struct spw_rate_half), 2},      {sizeof(struct spw_source), 2 * SPW_SOURCES_MAX_COUNT},
        {8, 2 * INDEX_WORDS_PER_HALF},          {sizeof(struct spw_rate_record), 2 * RECORDS_PER_HALF},
        {sizeof(struct spw_learned_rate), 64},
    };
    const struct section_plan rw[SPW_RW_SECTIONS] = {
        {sizeof(struct spw_account_words), accounts},
        {sizeof(struct spw_limiter_words), limiters},
        {8, accounts * SPW_PERMITS_PER_ACCOUNT},
        {sizeof(struct spw_slot), slots},
        {sizeof(struct spw_stats), accounts * slots},
        {8, cells},
        {sizeof(struct spw_cell), cells},
    };
    uint64_t generation = spw_now_ns() ^ (uint64_t)getpid() << 40;
    make_file(fixture->pub_dir, SPW_MAGIC_PUB, generation, pub, SPW_PUB_SECTIONS);
    make_file(fixture->rw_dir, SPW_MAGIC_RW, generation, rw, SPW_RW_SECTIONS);
    enum spw_status status =
        spw_map_open(&fixture->map, fixture->pub_dir, fixture->rw_dir, SPW_PUB_NAME, true);
    CHECK(status == SPW_STATUS_OK, spw_status_text(status));
    fill_accounts(&fixture->map);
    fill_policy(&fixture->map);
    fill_rates(&fixture->map);
}

void spw_fixture_attach(const struct spw_fixture *fixture, struct spw_map *map)
{
    memset(map, 0, sizeof *map);
    enum spw_status status = spw_map_open(map, fixture->pub_dir, fixture->rw_dir, SPW_PUB_NAME, false);
    CHECK(status == SPW_STATUS_OK, spw_status_text(status));
}

void spw_fixture_detach(struct spw_map *map)
{
    spw_slot_release(map);
    spw_map_close(map);
}

void spw_fixture_claim(struct spw_map *map, const struct spw_fixture *fixture)
{
    enum spw_status status = spw_slot_claim(map, fixture->rw_dir, SPW_RW_NAME);
    CHECK(status == SPW_STATUS_OK, spw_status_text(status));
}

void spw_fixture_remove(struct spw_fixture *fixture)
{
    spw_fixture_detach(&fixture->map);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", fixture->dir);
    CHECK(system(command) == 0, fixture->dir);
}

int spw_fixture_rw_open(const struct spw_fixture *fixture)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", fixture->rw_dir, SPW_RW_NAME);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, path);
    return fd;
}

uint32_t spw_fixture_sweep(const struct spw_map *map, int fd)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < map->rw_section[SPW_RW_SLOTS].count; i++) {
        uint64_t *at = &spw_slot_at(map, i)->word;
        uint64_t word = spw_load_acq(at);
        uint32_t generation = spw_slot_generation(word);
        if (spw_slot_state(word) == SPW_SLOT_LIVE && !spw_slot_held(fd, map, i) &&
            spw_cas(at, &word, spw_slot_word(generation, SPW_SLOT_DEAD)))
            word = spw_slot_word(generation, SPW_SLOT_DEAD);
        if (spw_slot_state(word) == SPW_SLOT_DEAD && spw_cell_sweep(map, i, generation))
            (void)spw_cas(at, &word, spw_slot_word(generation + 1, SPW_SLOT_FREE));
        busy += spw_slot_state(spw_load_acq(at)) != SPW_SLOT_FREE;
    }
    return busy;
}

uint32_t spw_fixture_cells_busy(const struct spw_map *map)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < map->rw_section[SPW_RW_CELL_WORDS].count; i++)
        busy += spw_cell_state(spw_load_acq(spw_cell_word_at(map, i))) != SPW_CELL_FREE;
    return busy;
}

void spw_fixture_flag(const struct spw_map *map, struct spw_flag_record *record, struct spw_line_tax lines[2],
                      const char *tag)
{
    memset(record, 0, sizeof *record);
    snprintf(record->flag_id, sizeof record->flag_id, "sf_%s", tag);
    snprintf(record->quote_id, sizeof record->quote_id, "sq_%s", tag);
    snprintf(record->decision_id, sizeof record->decision_id, "d-%s", tag);
    snprintf(record->account, sizeof record->account, "main");
    snprintf(record->integration, sizeof record->integration, "shop0");
    record->account_generation = 1;
    snprintf(record->currency, sizeof record->currency, "USD");
    snprintf(record->country, sizeof record->country, "US");
    snprintf(record->state, sizeof record->state, "WA");
    snprintf(record->zip, sizeof record->zip, "98110");
    snprintf(record->date, sizeof record->date, "2025-11-28");
    record->created_unix_ms = spw_wall_ms();
    record->created_ns = spw_now_ns();
    record->type = SPW_FALLBACK_RATE_LIMIT_PROACTIVE;
    record->cause = SPW_CAUSE_BUCKET_EMPTY;
    record->purpose = SPW_PURPOSE_ORDER;
    record->match = SPW_MATCH_ZIP5;
    record->rounding = SPW_ROUNDING_HALF_UP_LINE;
    record->uid = (uint32_t)geteuid();
    record->config_version = 1;
    record->state_ppb = 65000000;
    record->city_ppb = 27000000;
    record->combined_ppb = 92000000;
    record->as_of_day = FIRST_OF_NOVEMBER;
    record->age_days = 27;
    snprintf(record->source, sizeof record->source, "table-2025");
    memset(record->source_sha256, 0x5A, sizeof record->source_sha256);
    record->slot = map->self.slot;
    record->slot_generation = map->self.generation;
    lines[0] = (struct spw_line_tax){10000, 920};
    lines[1] = (struct spw_line_tax){795, 73};
    record->lines_count = 2;
    record->total_minor = record->taxable_minor = 10795;
    record->tax_minor = 993;
}

enum spw_status spw_fixture_flag_write(const struct spw_map *map, struct spw_flag_record *record,
                                       const struct spw_line_tax *lines, const char *assumptions,
                                       const char *request, uint32_t hint)
{
    const struct spw_cell_prefix prefix = {SPW_CELL_FLAG, sizeof *record};
    record->assumptions_bytes = (uint32_t)strlen(assumptions);
    record->request_bytes = (uint32_t)strlen(request);
    const struct spw_part parts[] = {
        {&prefix, sizeof prefix},
        {record, sizeof *record},
        {lines, record->lines_count * sizeof *lines},
        {assumptions, record->assumptions_bytes},
        {request, record->request_bytes},
    };
    return spw_cell_write(map, hint, parts, sizeof parts / sizeof parts[0]);
}

enum spw_status spw_fixture_order_write(const struct spw_map *map, const struct spw_order_record *record,
                                        uint32_t hint)
{
    const struct spw_cell_prefix prefix = {SPW_CELL_ORDER, sizeof *record};
    const struct spw_part parts[] = {{&prefix, sizeof prefix}, {record, sizeof *record}};
    return spw_cell_write(map, hint, parts, 2);
}
