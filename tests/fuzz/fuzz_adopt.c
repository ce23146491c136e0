/* fuzz_adopt.c: the sidecar's start on a segment that somebody has had in hand.
 *
 * Owns: a directory with the files of a valid segment and a configuration. Called by: libFuzzer, or replay.c. Thread:
 * one.
 *
 * The input is steps of 12 bytes: damage a word of either file, cut a file, remove one, leave one half of another
 * segment, write noise. Then the sidecar opens what is there, sweeps it, changes a limit, and an application decides by
 * it. The start succeeds, always: by adopting or by making new; and the segment it ends with is valid.
 */
#include "shm/spw_client.h"

#include "sidecar/conf/conf.h"
#include "sidecar/obs/log.h"
#include "sidecar/state/state.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>

#define EXPECT     SPW_FUZZ_EXPECT
#define STEP_BYTES 12u
#define STEPS_MAX  32u

static struct {
    char dir[64], pub_dir[80], rw_dir[80];
    struct spw_conf *conf;
    uint8_t *file[2];
    size_t bytes[2];
    struct spw_section sections[2][SPW_SECTIONS_MAX_COUNT];
} world;

struct step {
    uint8_t op, how;
    uint16_t place;
    uint64_t value;
};

static const char conf_text[] =
    "accounts:\n"
    "  main: {provider: taxcloud, connection: c, credentials: {api_key_env: HOME},\n"
    "         limit: {rate: 100/s, burst: 100, pods: 1}, concurrency: 4, integrations: {web: checkout}}\n"
    "segment: {pub_dir: %s, rw_dir: %s, slots: 8, cells: 64, rate_records: 1024}\n";

static const char *dir_of(int file)
{
    return file ? world.rw_dir : world.pub_dir;
}

static void path_of(int file, char *path, size_t room)
{
    snprintf(path, room, "%s/" SPW_PUB_NAME, dir_of(file));
}

static void empty_dir(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
}

static void remove_world(void)
{
    for (int i = 0; i < 2; i++) {
        empty_dir(dir_of(i));
        rmdir(dir_of(i));
        free(world.file[i]);
    }
    rmdir(world.dir);
    spw_conf_destroy(world.conf);
}

static void make_world(void)
{
    char text[1024];
    struct spw_error err;
    struct spw_state *state = NULL;
    spw_log_configure(SPW_LOG_ERROR, false);
    snprintf(world.dir, sizeof world.dir, "/dev/shm/spw-fuzz-XXXXXX");
    EXPECT(mkdtemp(world.dir));
    snprintf(world.pub_dir, sizeof world.pub_dir, "%s/pub", world.dir);
    snprintf(world.rw_dir, sizeof world.rw_dir, "%s/rw", world.dir);
    EXPECT(mkdir(world.pub_dir, 0700) == 0 && mkdir(world.rw_dir, 0700) == 0);
    int n = snprintf(text, sizeof text, conf_text, world.pub_dir, world.rw_dir);
    if (spw_conf_parse("fuzz", text, (size_t)n, &world.conf, &err) != SPW_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    EXPECT(spw_state_open(world.conf, &state, &err) == SPW_STATUS_OK);
    const struct spw_map *map = spw_state_map(state);
    const uint8_t *from[2] = {map->pub, map->rw};
    world.bytes[0] = map->pub_bytes;
    world.bytes[1] = map->rw_bytes;
    for (int i = 0; i < 2; i++) {
        world.file[i] = malloc(world.bytes[i]);
        EXPECT(world.file[i]);
        memcpy(world.file[i], from[i], world.bytes[i]);
        memcpy(world.sections[i], from[i] + offsetof(struct spw_header, sections), sizeof world.sections[i]);
    }
    spw_state_close(state, false);
    atexit(remove_world);
}

/* Where a word is damaged: in the header, in one of the sections, or anywhere. */
static size_t target(const struct step *s, int file)
{
    size_t from = 0, span = world.bytes[file];
    const struct spw_section *section = &world.sections[file][(s->how >> 3) % (file ? 7 : 8)];
    if ((s->how >> 1 & 3) == 1)
        span = SPW_HEADER_BYTES;
    if ((s->how >> 1 & 3) >= 2) {
        from = section->offset_bytes;
        span = (size_t)section->stride_bytes * section->count;
    }
    return from + (span >= 8 ? s->place % (span / 8) * 8 : 0);
}

static void damage(const struct step *s, uint8_t *copy[2])
{
    int file = s->how & 1;
    size_t at = target(s, file);
    uint64_t word;
    if (at + 8 > world.bytes[file])
        return;
    memcpy(&word, copy[file] + at, 8);
    switch (s->op >> 4) {
    case 0:
        word = SPW_MOVED;
        break;
    case 1:
        word = 0;
        break;
    case 2:
        word ^= UINT64_C(1) << (s->value & 63);
        break;
    case 3:
        word = spw_now_ns() + s->value;
        break;
    case 4:
        word += s->value;
        break;
    default:
        word = s->value;
    }
    memcpy(copy[file] + at, &word, 8);
}

static void write_files(uint8_t *copy[2], const size_t bytes[2])
{
    for (int i = 0; i < 2; i++) {
        char path[120];
        empty_dir(dir_of(i));
        if (bytes[i] == SIZE_MAX)
            continue; /* removed */
        path_of(i, path, sizeof path);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        EXPECT(fd >= 0 && write(fd, copy[i], bytes[i]) == (ssize_t)bytes[i]);
        close(fd);
    }
}

static void use(struct spw_state *state)
{
    const struct spw_attach_options options = {.pub_dir = world.pub_dir, .rw_dir = world.rw_dir};
    static struct spw_client client;
    struct spw_conf_limit limit = world.conf->accounts[0].limit;
    struct spw_limit_view view;
    struct spw_breaker_view breaker;
    struct spw_error err;
    struct spw_ref ref;
    struct spw_ticket ticket;
    uint64_t now_ns = spw_now_ns();
    spw_state_heartbeat(state, now_ns);
    for (int i = 0; i < 3; i++)
        spw_state_sweep(state, now_ns + (uint64_t)i * UINT64_C(500000000));
    EXPECT(spw_state_limit_get(state, "main", now_ns, &view, &err) == SPW_STATUS_OK);
    limit.rate.tokens_count++;
    EXPECT(spw_state_limit_set(state, "main", &limit, 0, false, now_ns, &view, &err) == SPW_STATUS_OK);
    EXPECT(spw_state_breaker_get(state, "main", now_ns, &breaker, &err) == SPW_STATUS_OK);
    enum spw_status status = spw_attach(&client, &options);
    EXPECT(status == SPW_STATUS_OK);
    spw_ref_init(&ref, "main", "web");
    for (int i = 0; i < 4; i++) {
        struct spw_admission a = spw_acquire(&client, &ref, 1, 0, &ticket);
        EXPECT(a.verdict <= SPW_NEVER);
        if (a.may_call)
            spw_report(&client, &ticket, 200, -1);
    }
    spw_detach(&client);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!world.conf)
        make_world();
    uint8_t *copy[2];
    size_t left[2] = {world.bytes[0], world.bytes[1]};
    for (int i = 0; i < 2; i++) {
        copy[i] = malloc(world.bytes[i]);
        EXPECT(copy[i]);
        memcpy(copy[i], world.file[i], world.bytes[i]);
    }
    for (size_t i = 0; i < STEPS_MAX && (i + 1) * STEP_BYTES <= bytes; i++) {
        struct step s;
        memcpy(&s.op, data + i * STEP_BYTES, 1);
        memcpy(&s.how, data + i * STEP_BYTES + 1, 1);
        memcpy(&s.place, data + i * STEP_BYTES + 2, 2);
        memcpy(&s.value, data + i * STEP_BYTES + 4, 8);
        if ((s.op & 15) == 15)
            left[s.how & 1] = s.how & 2 ? SIZE_MAX : s.value % (world.bytes[s.how & 1] + 1);
        else
            damage(&s, copy);
    }
    write_files(copy, left);
    free(copy[0]);
    free(copy[1]);
    struct spw_state *state = NULL;
    struct spw_error err;
    enum spw_status status = spw_state_open(world.conf, &state, &err);
    if (status != SPW_STATUS_OK)
        fprintf(stderr, "%s\n", err.text);
    EXPECT(status == SPW_STATUS_OK);
    use(state);
    spw_state_close(state, true);
    return 0;
}
