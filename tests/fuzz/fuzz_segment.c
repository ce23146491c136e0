/* fuzz_segment.c: a hostile segment against every operation of the client header.
 *
 * Owns: a valid segment and a client. Called by: libFuzzer, or replay.c. Thread: one.
 *
 * The input is a little program of 12-byte steps: damage a word of either file (anywhere, or where the hot words are),
 * cut a file, forget the mapping and attach again, or call the client. Whatever it does, calls end, nothing outside the
 * mapping is touched (the address sanitizer and unmapped neighbours see to that), and answers stay within their types.
 */
#include "shm/spw_client.h"

#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/segment_fixture.h"

#define STEP_BYTES 12u
#define STEPS_MAX  64u

#define EXPECT SPW_FUZZ_EXPECT

static struct {
    struct spw_fixture fixture;
    uint8_t *pristine_pub, *pristine_rw;
    struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket[4];
    unsigned tickets;
    uint64_t pub_bytes, rw_bytes; /* as cut by this input */
} world;

struct step {
    uint8_t op, how;
    uint16_t place;
    uint64_t value;
};

static void remove_fixture(void)
{
    spw_detach(&world.client);
    spw_fixture_remove(&world.fixture);
    free(world.pristine_pub);
    free(world.pristine_rw);
}

static void make_world(void)
{
    const struct spw_fixture_options options = {.parent_dir = "/dev/shm", .cells = 16, .slots = 4};
    spw_fixture_make(&world.fixture, &options);
    const struct spw_map *map = &world.fixture.map;
    world.pristine_pub = malloc(map->pub_bytes);
    world.pristine_rw = malloc(map->rw_bytes);
    EXPECT(world.pristine_pub && world.pristine_rw);
    memcpy(world.pristine_pub, map->pub, map->pub_bytes);
    memcpy(world.pristine_rw, map->rw, map->rw_bytes);
    atexit(remove_fixture);
}

static void attach(void)
{
    const struct spw_attach_options options = {.pub_dir = world.fixture.pub_dir,
                                               .rw_dir = world.fixture.rw_dir,
                                               .on_unattached = SPW_UNATTACHED_DENY,
                                               .grace_ms = 1};
    spw_detach(&world.client);
    enum spw_status status = spw_attach(&world.client, &options);
    EXPECT(spw_status_name(status)[0] != 0);
    EXPECT((world.client.map != NULL) == (status == SPW_STATUS_OK));
    spw_ref_init(&world.ref, "main", "shop0");
}

/* The valid segment again, and everybody attached to it. Its own mapping is made once and never cut. */
static void start_over(void)
{
    const struct spw_map *map = &world.fixture.map;
    const char *dirs[2] = {world.fixture.pub_dir, world.fixture.rw_dir};
    const uint64_t whole[2] = {map->pub_bytes, map->rw_bytes};
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/" SPW_PUB_NAME, dirs[i]);
        EXPECT(truncate(path, (off_t)whole[i]) == 0);
    }
    world.pub_bytes = map->pub_bytes;
    world.rw_bytes = map->rw_bytes;
    memcpy(map->pub, world.pristine_pub, map->pub_bytes);
    memcpy(map->rw, world.pristine_rw, map->rw_bytes);
    spw_map_pub(map)->heartbeat_ns = spw_now_ns();
    memset(world.ticket, 0, sizeof world.ticket);
    world.tickets = 0;
    attach();
}

/* Where a word is damaged: anywhere in a file, or in the parts that a decision loads. */
static uint64_t *target(const struct step *s)
{
    const struct spw_map *map = &world.fixture.map;
    bool rw = s->how & 1;
    uint8_t *file = rw ? map->rw : map->pub;
    uint64_t bytes = rw ? world.rw_bytes : world.pub_bytes, from = 0, span = bytes;
    if (s->how & 2) {
        const struct spw_section *sections = rw ? map->rw_section : map->pub_section;
        const struct spw_section *section = &sections[(s->how >> 2) % (rw ? 7 : 8)];
        from = section->offset_bytes;
        span = (uint64_t)section->stride_bytes * section->count;
    } else if (s->how & 4) {
        span = SPW_HEADER_BYTES;
    }
    uint64_t at = from + (span >= 8 ? s->place % (span / 8) * 8 : 0);
    return at + 8 <= bytes ? (uint64_t *)(void *)(file + at) : NULL;
}

static void damage(const struct step *s)
{
    uint64_t *word = target(s);
    if (!word)
        return;
    switch (s->op >> 4) {
    case 0:
        *word = SPW_MOVED;
        break;
    case 1:
        *word = 0;
        break;
    case 2:
        *word ^= UINT64_C(1) << (s->value & 63);
        break;
    case 3:
        *word = spw_now_ns() + s->value;
        break;
    case 4:
        *word += s->value;
        break;
    default:
        *word = s->value;
    }
}

/* A client that mapped the whole file would be killed by touching what was cut: it attaches anew, as after a start. */
static void cut(const struct step *s)
{
    bool rw = s->how & 1;
    uint64_t *bytes = rw ? &world.rw_bytes : &world.pub_bytes;
    char path[300];
    spw_detach(&world.client);
    snprintf(path, sizeof path, "%s/" SPW_PUB_NAME, rw ? world.fixture.rw_dir : world.fixture.pub_dir);
    *bytes = s->value % (*bytes + 1);
    EXPECT(truncate(path, (off_t)*bytes) == 0);
    attach();
}

static void acquire(const struct step *s)
{
    struct spw_ticket *ticket = &world.ticket[world.tickets++ % 4];
    struct spw_admission a =
        spw_acquire(&world.client, &world.ref, s->value & 0xFFFF, s->how & 1 ? s->value : 0, ticket);
    EXPECT(a.verdict <= SPW_BAD_HANDLE && a.cause < SPW_CAUSE_COUNT);
    EXPECT(a.may_call == (a.verdict == SPW_ALLOW));
    (void)spw_admission_tokens_milli(&a);
}

static void quote(const struct step *s)
{
    const struct spw_line line = {.id = "1", .amount_minor = (int64_t)(s->value & 0xFFFFFF)};
    const struct spw_quote_request request = {.account = s->how & 1 ? "main" : "second",
                                              .integration = "shop0",
                                              .currency = "USD",
                                              .deadline_ms = 1,
                                              .ship_to = {.country = "US", .state = "WA", .zip = "98110"},
                                              .lines = &line,
                                              .line_count = 1};
    char line_json[16384];
    struct spw_quote_reply reply;
    memset(&reply, 0, sizeof reply);
    reply.handback = line_json;
    reply.handback_room = sizeof line_json;
    enum spw_status status = spw_quote(&world.client, &request, &reply);
    EXPECT(status <= 0 && spw_status_name(status)[0] != 0);
    EXPECT(memchr(reply.quote_id, 0, sizeof reply.quote_id) && memchr(reply.reason, 0, sizeof reply.reason));
}

static void call(const struct step *s)
{
    struct spw_rate_record record;
    struct spw_source source;
    struct spw_ticket *ticket = &world.ticket[s->how % 4];
    const struct spw_map *map = world.client.map;
    switch (s->op >> 4) {
    case 0:
    case 1:
    case 2:
    case 3:
        acquire(s);
        break;
    case 4:
    case 5:
    case 6:
        spw_report(&world.client, ticket,
                   s->value & 1   ? 429
                   : s->value & 2 ? 503
                                  : 200,
                   (int64_t)(s->value >> 8));
        break;
    case 7:
        if (map)
            spw_abandon(map, ticket, spw_now_ns());
        break;
    case 8:
        (void)!spw_order_placed(&world.client, "sq_1", "order-1", (int64_t)s->value, "USD");
        break;
    case 9:
        (void)!spw_rate_lookup(&world.client, s->how & 1 ? "98110" : "10001-1234", &record, &source);
        break;
    case 10:
    case 11:
        quote(s);
        break;
    case 12:
        spw_ref_init(&world.ref, s->how & 1 ? "second" : "main", s->how & 2 ? "shop1" : "shop0");
        break;
    default:
        attach();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!world.pristine_pub)
        make_world();
    start_over();
    for (size_t i = 0; i < STEPS_MAX && (i + 1) * STEP_BYTES <= bytes; i++) {
        struct step s;
        memcpy(&s.op, data + i * STEP_BYTES, 1);
        memcpy(&s.how, data + i * STEP_BYTES + 1, 1);
        memcpy(&s.place, data + i * STEP_BYTES + 2, 2);
        memcpy(&s.value, data + i * STEP_BYTES + 4, 8);
        if ((s.op & 15) < 6)
            damage(&s);
        else if ((s.op & 15) == 6)
            cut(&s);
        else
            call(&s);
    }
    return 0;
}
