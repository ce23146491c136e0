/* test_cells.c: writers and the ledger's process are killed at random; no acknowledged flag is lost, doubled or torn.
 *
 * Eight writer processes write flags into cells as fast as they can, one process runs the ledger, and this one kills
 * any of the nine (SPW_KILLS times, default 100), starts it anew and sweeps dead slots as the sidecar does. A writer
 * notes a flag's id in a file of its own after spw_cell_write said OK: those bytes survive its death as the cell does.
 *
 * At the end: every noted flag is exported exactly once; every exported flag is whole (its content follows from its
 * id); sequences are contiguous; all cells and slots are free; every writer could still write after the last kill.
 * SPW_SEED repeats the choice of victims and pauses.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "sidecar/obs/log.h"
#include "sidecar/store/store.h"
#include "tests/support/segment_fixture.h"

#define WRITERS    8
#define CELLS      1024
#define SLOTS      24
#define WATCHDOG_S 1100 /* a hang fails; how fast it is, no test says */

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "test_cells.c:%d: %s: ", __LINE__, #condition);                                  \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)

static int failures;
static struct spw_fixture segment;
static char ledger_file[300];

/* Shared with the children: when to stop, and how far each writer has come. */
struct board {
    uint64_t stop_writers, stop_store;
    uint64_t written[WRITERS]; /* by all lives of this writer */
};
static struct board *board;

static uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ---- what is in a flag: all of it follows from (writer, life, number) ---- */

struct flag_name {
    uint32_t writer, life, number;
};

/* Mostly one cell; every fourth a chain of up to twelve. */
static size_t request_of(const struct flag_name *name, char *out, size_t room)
{
    uint64_t seed = (uint64_t)name->writer << 48 ^ (uint64_t)name->life << 24 ^ name->number;
    size_t bytes = name->number % 4 ? 60 + random_next(&seed) % 200 : 2000 + random_next(&seed) % 20000;
    bytes = bytes < room ? bytes : room - 1;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (char)('a' + random_next(&seed) % 26);
    out[bytes] = 0;
    return bytes;
}

static void fill_flag(const struct spw_map *map, const struct flag_name *name, struct spw_flag_record *record,
                      struct spw_line_tax lines[2])
{
    char tag[32];
    snprintf(tag, sizeof tag, "%u-%u-%u", name->writer, name->life, name->number);
    spw_fixture_flag(map, record, lines, tag);
    record->reset_unix_ms = (int64_t)name->number * 1000003 + name->life;
    record->limit_count = (uint64_t)name->writer << 32 | name->number;
}

/* ---- the children ---- */

static void begin_child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(WATCHDOG_S);
}

static void run_writer(uint32_t writer, uint32_t life)
{
    begin_child();
    struct spw_map map;
    spw_fixture_attach(&segment, &map);
    while (spw_slot_claim(&map, segment.rw_dir, SPW_RW_NAME) != SPW_STATUS_OK)
        usleep(1000); /* all slots of the dead are still being swept */
    char path[300], line[64];
    snprintf(path, sizeof path, "%s/noted.%u", segment.dir, writer);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    static char request[24000];
    for (uint32_t number = 0; !spw_load_acq(&board->stop_writers);) {
        struct flag_name name = {writer, life, number};
        struct spw_flag_record record;
        struct spw_line_tax lines[2];
        fill_flag(&map, &name, &record, lines);
        request_of(&name, request, sizeof request);
        enum spw_status status =
            spw_fixture_flag_write(&map, &record, lines, "an assumption\n", request, number);
        if (status == SPW_STATUS_FULL) {
            usleep(200);
            continue;
        }
        int n = snprintf(line, sizeof line, "%u %u %u\n", writer, life, number);
        if (status != SPW_STATUS_OK || write(fd, line, (size_t)n) != n)
            _exit(3);
        spw_add_rlx(&board->written[writer], 1);
        number++;
    }
    _exit(0); /* the slot's lock goes with the process, as in a death */
}

static void run_store(void)
{
    begin_child();
    spw_log_configure(SPW_LOG_WARN, false);
    struct spw_map map;
    spw_fixture_attach(&segment, &map);
    struct spw_store *store;
    struct spw_error err = {0};
    struct spw_store_options options = {.file = ledger_file, .map = &map, .poll_ms = 1};
    if (spw_store_open(&options, &store, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "store: %s\n", err.text);
        _exit(4);
    }
    while (!spw_load_acq(&board->stop_store))
        usleep(500);
    spw_store_close(store);
    spw_fixture_detach(&map);
    exit(0); /* not _exit: the leak checker looks here */
}

/* ---- the killer ---- */

static pid_t child[WRITERS + 1]; /* the last is the ledger's */
static uint32_t life[WRITERS + 1];

static void start(unsigned which)
{
    child[which] = fork();
    if (child[which] == 0) {
        if (which < WRITERS)
            run_writer(which, life[which]);
        else
            run_store();
    }
    life[which]++;
}

static void kill_and_restart(unsigned which)
{
    int status = 0;
    kill(child[which], SIGKILL);
    waitpid(child[which], &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "child %u ended by itself: status %x", which,
          status);
    start(which);
}

static void end(unsigned which)
{
    int status = 0;
    waitpid(child[which], &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %u: status %x", which, status);
}

/* ---- what came of it ---- */

struct result {
    uint8_t *seen[WRITERS]; /* of each (life, number): times exported */
    uint32_t room[WRITERS]; /* numbers of one life */
    uint64_t rows;
    uint64_t torn;
};

static uint8_t *times_seen(struct result *result, const struct flag_name *name)
{
    if (name->writer >= WRITERS || name->life >= life[name->writer] ||
        name->number >= result->room[name->writer])
        return NULL;
    return &result->seen[name->writer][(size_t)name->life * result->room[name->writer] + name->number];
}

/* The record has no hole: all of it is stored or zero. */
static bool same_bytes(const void *a, const void *b, size_t count)
{
    return memcmp(a, b, count) == 0;
}

/* Three numbers with a byte between them. */
static bool parse_name(const char *text, char between, struct flag_name *out)
{
    uint32_t *part[] = {&out->writer, &out->life, &out->number};
    for (int i = 0; i < 3; i++) {
        char *end;
        *part[i] = (uint32_t)strtoul(text, &end, 10);
        if (end == text || (i < 2 && *end != between))
            return false;
        text = end + 1;
    }
    return true;
}

static bool check_row(void *owner, const struct spw_flag_row *row)
{
    static char request[24000];
    struct result *result = owner;
    struct flag_name name = {0};
    struct spw_flag_record want;
    struct spw_line_tax lines[2];
    result->rows++;
    CHECK(row->sequence == result->rows, "sequence %" PRIu64, row->sequence);
    uint8_t *seen = NULL;
    if (parse_name(row->record.flag_id + 3, '-', &name))
        seen = times_seen(result, &name);
    CHECK(seen != NULL, "a flag nobody wrote: %s", row->record.flag_id);
    if (!seen)
        return true;
    ++*seen;
    fill_flag(&segment.map, &name, &want, lines);
    want.assumptions_bytes = (uint32_t)strlen("an assumption\n");
    want.request_bytes = (uint32_t)request_of(&name, request, sizeof request);
    want.slot = row->record.slot; /* of the process that wrote it */
    want.slot_generation = row->record.slot_generation;
    want.created_unix_ms = row->record.created_unix_ms;
    want.created_ns = row->record.created_ns;
    if (!same_bytes(&want, &row->record, sizeof want) || memcmp(lines, row->lines, sizeof lines) != 0 ||
        strcmp(request, row->request_json) != 0 || strcmp("an assumption\n", row->assumptions) != 0 ||
        !row->verified)
        result->torn++;
    return true;
}

/* Every line a writer noted. */
static uint64_t check_noted(struct result *result)
{
    uint64_t noted = 0, lost = 0, doubled = 0;
    for (unsigned writer = 0; writer < WRITERS; writer++) {
        char path[300];
        snprintf(path, sizeof path, "%s/noted.%u", segment.dir, writer);
        FILE *f = fopen(path, "r");
        char line[64];
        while (f && fgets(line, sizeof line, f)) {
            struct flag_name name = {0};
            CHECK(parse_name(line, ' ', &name), "noted: %s", line);
            const uint8_t *seen = times_seen(result, &name);
            noted++;
            lost += !seen || *seen == 0;
            doubled += seen && *seen > 1;
        }
        if (f)
            fclose(f);
    }
    CHECK(lost == 0, "%" PRIu64 " acknowledged flags lost of %" PRIu64, lost, noted);
    CHECK(doubled == 0, "%" PRIu64 " flags exported twice", doubled);
    return noted;
}

static void check_ledger(unsigned kills)
{
    struct result result = {0};
    struct spw_store *store = NULL;
    struct spw_error err = {0};
    struct spw_store_options options = {.file = ledger_file};
    CHECK(spw_store_open(&options, &store, &err) == SPW_STATUS_OK, "%s", err.text);
    if (!store)
        return;
    struct spw_store_counts counts;
    spw_store_counts(store, &counts);
    for (unsigned i = 0; i < WRITERS; i++) {
        result.room[i] =
            (uint32_t)spw_load_rlx(&board->written[i]) + 64; /* one life may have written all of them */
        result.seen[i] = calloc((size_t)result.room[i] * life[i], 1);
    }
    uint64_t next = 0;
    CHECK(spw_store_export(store, 0, UINT32_MAX, check_row, &result, &next, &err) == SPW_STATUS_OK, "%s",
          err.text);
    spw_store_close(store);
    uint64_t noted = check_noted(&result);
    CHECK(result.torn == 0, "%" PRIu64 " flags torn", result.torn);
    CHECK(counts.damaged_count == 0, "%" PRIu64 " records damaged", counts.damaged_count);
    CHECK(result.rows == counts.newest_sequence, "%" PRIu64 " rows, newest %" PRIu64, result.rows,
          counts.newest_sequence);
    CHECK(result.rows >= noted && noted > 0, "%" PRIu64 " rows of %" PRIu64 " noted", result.rows, noted);
    printf("%u kills: %" PRIu64 " flags acknowledged, %" PRIu64 " stored, %" PRIu64
           " second copies dropped\n",
           kills, noted, result.rows, counts.duplicate_count);
    for (unsigned i = 0; i < WRITERS; i++)
        free(result.seen[i]);
}

int main(void)
{
    const char *kills_text = getenv("SPW_KILLS"), *seed_text = getenv("SPW_SEED");
    unsigned kills = kills_text ? (unsigned)strtoul(kills_text, NULL, 10) : 100;
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : spw_now_ns();
    printf("SPW_SEED=%" PRIu64 " SPW_KILLS=%u\n", seed, kills);
    fflush(stdout);
    alarm(WATCHDOG_S);
    struct spw_fixture_options options = {.cells = CELLS, .slots = SLOTS};
    spw_fixture_make(&segment, &options);
    snprintf(ledger_file, sizeof ledger_file, "%s/ledger.db", segment.dir);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    int fd = spw_fixture_rw_open(&segment);
    for (unsigned i = 0; i <= WRITERS; i++)
        start(i);

    for (unsigned i = 0; i < kills && failures == 0; i++) {
        for (unsigned pause = (unsigned)(random_next(&seed) % 20); pause-- > 0;) {
            usleep((useconds_t)(random_next(&seed) % 3000));
            (void)spw_fixture_sweep(&segment.map, fd);
        }
        /* The ledger's process every third time: its windows are narrower than a writer's. */
        uint64_t roll = random_next(&seed);
        kill_and_restart(roll % 3 == 0 ? WRITERS : (unsigned)(roll / 3 % WRITERS));
    }

    /* Nobody is stuck: each writer gets on after the last kill. */
    for (unsigned i = 0; i < WRITERS; i++) {
        for (uint64_t before = spw_load_rlx(&board->written[i]);
             spw_load_rlx(&board->written[i]) < before + 3;) {
            usleep(1000);
            (void)spw_fixture_sweep(&segment.map, fd);
        }
    }
    spw_store_rel(&board->stop_writers, 1);
    for (unsigned i = 0; i < WRITERS; i++)
        end(i);
    /* All slots are given up, all cells come back. The watchdog ends what never gets there. */
    while (spw_fixture_sweep(&segment.map, fd) != 0 || spw_fixture_cells_busy(&segment.map) != 0)
        usleep(1000);
    spw_store_rel(&board->stop_store, 1);
    end(WRITERS);
    check_ledger(kills);
    close(fd);
    if (failures == 0)
        spw_fixture_remove(&segment);
    else
        fprintf(stderr, "kept: %s\n", segment.dir);
    munmap(board, sizeof *board);
    return failures != 0;
}
