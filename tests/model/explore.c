/* explore.c: see explore.h.
 *
 * Owns: the world (shared memory, locks, what each process has learnt), the processes' stacks and the set of states
 * met. Thread: one; a process is a coroutine that is left and entered by _setjmp and _longjmp, and put back by copying
 * its stack.
 */
#include "tests/model/step.h"
#include "tests/model/explore.h"

#include <inttypes.h>
#include <setjmp.h>
#include <ucontext.h>

#undef memcpy
#undef clock_gettime
#undef malloc
#undef calloc
#undef free
#undef mmap
#undef munmap

#define STACK_BYTES (256u * 1024u)
#define OWN_BYTES   (8u * 1024u)
#define DEPTH_MAX   20000u /* deeper is a process that does not end */
#define NAMES_MAX   32u
#define RESULTS     8u

enum process_state { ABSENT, RUNNING, ENDED, DEAD };

/* What tells two states apart. All fields are 64 bits wide: no padding to hash. */
struct told {
    uint64_t deaths;
    uint64_t state[SPW_MODEL_PROCESSES];
    uint64_t inside[SPW_MODEL_PROCESSES][2]; /* of its registers, stack and own memory */
    uint64_t result[SPW_MODEL_PROCESSES][RESULTS];
    uint64_t lock[SPW_MODEL_LOCKS]; /* descriptor << 8 | process + 1 */
    uint64_t now_ns[SPW_MODEL_PROCESSES];
    uint64_t opened[SPW_MODEL_PROCESSES]; /* descriptors, so far */
};

static struct world {
    struct told told;
    jmp_buf context[SPW_MODEL_PROCESSES];
    uintptr_t low[SPW_MODEL_PROCESSES];  /* the used part of its stack begins here */
    const void *at[SPW_MODEL_PROCESSES]; /* the word it is about to access */
    uint64_t learns[SPW_MODEL_PROCESSES];
    size_t own_used[SPW_MODEL_PROCESSES];
    _Alignas(16) uint8_t own[SPW_MODEL_PROCESSES][OWN_BYTES];
    _Alignas(128) uint8_t shared[SPW_MODEL_SHARED_BYTES];
} world;

struct range {
    const char *name;
    const uint8_t *at;
    size_t bytes;
};
static struct range names[NAMES_MAX], unhashed[NAMES_MAX], constant[NAMES_MAX];
static unsigned names_count, unhashed_count, constant_count;
static size_t shared_used;
static struct range compared; /* what `sequential` compares; nothing = all that is hashed */

static const struct spw_model *model;
static uint8_t *stacks;
static jmp_buf scheduler;
static ucontext_t scheduler_context, process_context;
static int current = -1;
static bool quiet; /* the process that runs has no switch points for now */
static bool plain; /* a state met again is searched again */
static bool faulty;
static char fault_text[512];
static uint64_t states, deepest;
static unsigned depth_now, fault_depth; /* steps on the path to here, and to the fault */

static struct step {
    uint8_t process;
    bool died;
    const void *at;
    uint64_t learns;
} path[DEPTH_MAX + 1];

/* ---- hashing: two lanes of 64 bits ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v;
    h *= UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static void hash_bytes(uint64_t h[2], const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t v;
    for (; count >= 8; count -= 8, at += 8) {
        memcpy(&v, at, 8);
        h[0] = mix(h[0], v);
        h[1] = (h[1] ^ v) * UINT64_C(0xD6E8FEB86659FD93);
        h[1] ^= h[1] >> 32;
    }
    v = count;
    memcpy(&v, at, count < 7 ? count : 7);
    h[0] = mix(h[0], v ^ (uint64_t)count << 56);
    h[1] = (h[1] ^ v) * UINT64_C(0xD6E8FEB86659FD93) + count;
}

/* Ranges are registered in rising order of address. */
static void hash_shared(uint64_t h[2])
{
    const uint8_t *at = world.shared, *end = world.shared + shared_used;
    for (unsigned i = 0; i < unhashed_count; i++) {
        hash_bytes(h, at, (size_t)(unhashed[i].at - at));
        at = unhashed[i].at + unhashed[i].bytes;
    }
    hash_bytes(h, at, (size_t)(end - at));
}

/* ---- what models call ---- */

void *spw_model_shared(const char *name, size_t bytes)
{
    uint8_t *at = world.shared + shared_used;
    shared_used += (bytes + 127) / 128 * 128;
    if (shared_used > sizeof world.shared || names_count == NAMES_MAX)
        abort();
    names[names_count++] = (struct range){name, at, bytes};
    return at;
}

void spw_model_unhashed(const void *at, size_t bytes)
{
    if (unhashed_count == NAMES_MAX)
        abort();
    unhashed[unhashed_count++] = (struct range){"", at, bytes};
}

void spw_model_compare(const void *at, size_t bytes)
{
    compared = (struct range){"", at, bytes};
}

void spw_model_constant(const void *at, size_t bytes)
{
    spw_model_unhashed(at, bytes);
    constant[constant_count++] = (struct range){"", at, bytes};
}

unsigned spw_model_self(void)
{
    return (unsigned)current;
}

void *spw_model_own(unsigned process, size_t bytes)
{
    size_t *used = &world.own_used[process];
    void *at = world.own[process] + *used;
    *used += (bytes + 15) / 16 * 16;
    if (*used > OWN_BYTES)
        abort();
    memset(at, 0, bytes); /* another schedule may have been here */
    return at;
}

void *spw_step_alloc(size_t bytes)
{
    static uint8_t
        spare[OWN_BYTES]; /* at the end of a schedule nothing is given back, and one piece is enough */
    if (current >= 0)
        return spw_model_own((unsigned)current, bytes);
    memset(spare, 0, sizeof spare);
    return bytes <= sizeof spare ? spare : NULL;
}

void spw_model_quiet(bool on)
{
    quiet = on;
}

bool spw_model_deep(void)
{
    return getenv("SPW_MODEL_DEEP") != NULL;
}

uint64_t *spw_model_result(unsigned process)
{
    return world.told.result[process];
}

bool spw_model_dead(unsigned process)
{
    return world.told.state[process] == DEAD;
}

unsigned spw_model_deaths(void)
{
    return (unsigned)world.told.deaths;
}

void spw_model_clock(unsigned process, uint64_t now_ns)
{
    for (unsigned i = 0; i < SPW_MODEL_PROCESSES; i++) {
        if (i == process || process == SPW_MODEL_PROCESSES)
            world.told.now_ns[i] = now_ns;
    }
}

int spw_step_clock(struct timespec *out)
{
    uint64_t now_ns = world.told.now_ns[current < 0 ? 0 : current];
    out->tv_sec = (time_t)(now_ns / 1000000000u);
    out->tv_nsec = (long)(now_ns % 1000000000u);
    return 0;
}

void spw_model_fault(const char *file, int line, const char *what)
{
    if (faulty)
        return;
    faulty = true;
    fault_depth = depth_now;
    snprintf(fault_text, sizeof fault_text, "%s:%d: %s", file, line, what);
}

int spw_model_lock_owner(uint64_t index)
{
    return index < SPW_MODEL_LOCKS ? (int)(world.told.lock[index] & 0xFF) - 1 : -1;
}

/* ---- switch points ---- */

static bool is_shared(const void *at)
{
    for (unsigned i = 0; i < constant_count; i++) {
        if ((const uint8_t *)at >= constant[i].at && (const uint8_t *)at < constant[i].at + constant[i].bytes)
            return false;
    }
    return (const uint8_t *)at >= world.shared && (const uint8_t *)at < world.shared + shared_used;
}

static inline uintptr_t stack_pointer(void)
{
    uintptr_t sp;
#if defined(__x86_64__)
    __asm__ __volatile__("mov %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
    __asm__ __volatile__("mov %0, sp" : "=r"(sp));
#else
#error "say here how the stack pointer is read"
#endif
    return sp;
}

__attribute__((noinline)) static void park(const void *at, uint64_t learns)
{
    unsigned self = (unsigned)current;
    world.at[self] = at;
    world.learns[self] = learns;
    world.low[self] = stack_pointer();
    if (_setjmp(world.context[self]) == 0)
        _longjmp(scheduler, 1);
}

void spw_step(const void *word, size_t learnt_bytes)
{
    if (current < 0 || quiet || !is_shared(word))
        return;
    park(word, learnt_bytes);
}

void spw_model_point(void)
{
    if (current >= 0 && !quiet)
        park(NULL, 0);
}

/* A copy is two: the other side may be caught half-way. */
void *spw_step_memcpy(void *to, const void *from, size_t bytes)
{
    bool shared = current >= 0 && !quiet && (is_shared(to) || is_shared(from));
    size_t half = shared ? bytes / 2 : bytes;
    const void *place = is_shared(to) ? to : from;
    for (size_t at = 0; at < bytes; at = half, half = bytes - half) {
        if (shared)
            park(place, is_shared(from) ? half : 0);
        memcpy((uint8_t *)to + at, (const uint8_t *)from + at, half);
        if (at + half >= bytes)
            break;
    }
    return to;
}

int spw_model_descriptor(void)
{
    return current < 0 ? 0 : (int)world.told.opened[current]++;
}

/* As a lock table knows the descriptor of the process that runs; 0 outside processes. */
static uint64_t lock_holder(int fd)
{
    return current < 0 ? 0 : (uint64_t)(uint32_t)fd << 8 | (uint64_t)(current + 1);
}

void spw_model_unlock(int fd)
{
    for (unsigned i = 0; i < SPW_MODEL_LOCKS; i++) {
        if (world.told.lock[i] && world.told.lock[i] == lock_holder(fd))
            world.told.lock[i] = 0;
    }
}

/* Locks of open file descriptions. */
int spw_step_fcntl(int fd, int command, struct flock *lock)
{
    uint64_t index = (uint64_t)lock->l_start % SPW_MODEL_LOCKS;
    uint64_t *owner = &world.told.lock[index];
    if (current >= 0 && !quiet)
        park(owner, 8);
    uint64_t self = lock_holder(fd);
    bool others = *owner != 0 && (*owner != self || self == 0);
    if (command == F_OFD_GETLK) {
        if (!others)
            lock->l_type = F_UNLCK;
        return 0;
    }
    if (lock->l_type == F_UNLCK) {
        if (!others)
            *owner = 0;
        return 0;
    }
    if (others) {
        errno = EAGAIN;
        return -1;
    }
    *owner = self;
    return 0;
}

/* ---- running ---- */

static void die(unsigned process)
{
    world.told.state[process] = DEAD;
    world.told.deaths++;
    memset(world.told.inside[process], 0, sizeof world.told.inside[process]);
    for (unsigned i = 0; i < SPW_MODEL_LOCKS; i++) {
        if ((world.told.lock[i] & 0xFF) == process + 1)
            world.told.lock[i] = 0;
    }
}

static void life(void)
{
    unsigned self = (unsigned)current;
    park(NULL, 0); /* everybody has begun, nobody has done anything */
    model->run[self]();
    self = (unsigned)current;
    world.told.state[self] = ENDED;
    memset(world.told.inside[self], 0, sizeof world.told.inside[self]);
    _longjmp(scheduler, 1);
}

static void begin(unsigned process)
{
    current = (int)process;
    if (_setjmp(scheduler) == 0) {
        getcontext(&process_context);
        process_context.uc_stack.ss_sp = stacks + (size_t)process * STACK_BYTES;
        process_context.uc_stack.ss_size = STACK_BYTES;
        process_context.uc_link = NULL;
        makecontext(&process_context, life, 0);
        swapcontext(&scheduler_context, &process_context);
    }
    current = -1;
}

static uint8_t *stack_top(unsigned process)
{
    return stacks + (size_t)(process + 1) * STACK_BYTES;
}

/* What a process is in the middle of: its registers, its stack, and memory of its own. What is left over in unused
 * places only makes equal states look different. */
static void look_inside(unsigned process)
{
    uint64_t *key = world.told.inside[process];
    key[0] = key[1] = 1;
    hash_bytes(key, &world.context[process], sizeof world.context[process]);
    hash_bytes(key, (const void *)world.low[process],
               (size_t)(stack_top(process) - (uint8_t *)world.low[process]));
    hash_bytes(key, world.own[process], world.own_used[process]);
}

/* On to its next switch point. */
static void advance(unsigned process)
{
    current = (int)process;
    if (_setjmp(scheduler) == 0)
        _longjmp(world.context[process], 1);
    current = -1;
    if (world.told.state[process] == RUNNING)
        look_inside(process);
}

/* ---- images of the world ---- */

static uint8_t *images;
static size_t images_room, images_used;

static size_t copy_bytes(void *a, void *b, size_t bytes, bool save)
{
    if (save)
        memcpy(b, a, bytes);
    else
        memcpy(a, b, bytes);
    return (bytes + 15) / 16 * 16;
}

/* The same walk saves and restores. */
static size_t walk(uint8_t *image, bool save)
{
    size_t at = copy_bytes(&world, image, offsetof(struct world, own), save);
    at += copy_bytes(world.shared, image + at, shared_used, save);
    for (unsigned i = 0; i < model->processes; i++) {
        if (world.told.state[i] != RUNNING)
            continue;
        at += copy_bytes(world.own[i], image + at, world.own_used[i], save);
        at += copy_bytes((void *)world.low[i], image + at, (size_t)(stack_top(i) - (uint8_t *)world.low[i]),
                         save);
    }
    return at;
}

static size_t save_image(void)
{
    size_t at = images_used;
    if (images_room - images_used < sizeof world + SPW_MODEL_PROCESSES * (size_t)STACK_BYTES) {
        size_t room = images_room * 2 + 64u * 1024u * 1024u;
        uint8_t *more = realloc(images, room);
        if (!more)
            abort();
        images = more;
        images_room = room;
    }
    images_used += walk(images + at, true);
    return at;
}

/* ---- the set of states met, with the number of schedules that lead on from each ---- */

struct met {
    uint64_t key[2];
    double schedules; /* 0 = free */
};
static struct met *met;
static size_t met_room, met_count;

static struct met *met_find(const uint64_t key[2])
{
    size_t i = key[0] & (met_room - 1);
    while (met[i].schedules != 0 && (met[i].key[0] != key[0] || met[i].key[1] != key[1]))
        i = (i + 1) & (met_room - 1);
    return &met[i];
}

static void met_make(size_t room)
{
    struct met *old = met;
    size_t old_room = met_room;
    met = calloc(room, sizeof *met);
    if (!met)
        abort();
    met_room = room;
    for (size_t i = 0; i < old_room; i++) {
        if (old[i].schedules != 0)
            *met_find(old[i].key) = old[i];
    }
    free(old);
}

static void met_add(const uint64_t key[2], double schedules)
{
    if (++met_count * 2 > met_room)
        met_make(met_room * 2);
    struct met *place = met_find(key);
    place->key[0] = key[0];
    place->key[1] = key[1];
    place->schedules = schedules;
}

static void state_key(uint64_t key[2])
{
    key[0] = UINT64_C(0x243F6A8885A308D3);
    key[1] = UINT64_C(0x13198A2E03707344);
    hash_bytes(key, &world.told, sizeof world.told);
    hash_shared(key);
}

/* ---- one after the other: what a correct end looks like ---- */

static uint64_t (*ends)[2];
static size_t ends_count;

/* Of an end: shared memory, who died, and what the others reported. */
static void end_key(uint64_t key[2])
{
    key[0] = 1;
    key[1] = 2;
    for (unsigned i = 0; i < model->processes; i++) {
        bool dead = world.told.state[i] == DEAD;
        hash_bytes(key, &dead, sizeof dead);
        if (!dead)
            hash_bytes(key, world.told.result[i], sizeof world.told.result[i]);
    }
    if (compared.bytes)
        hash_bytes(key, compared.at, compared.bytes);
    else
        hash_shared(key);
}

static void sequential_ends(unsigned left, unsigned dead)
{
    if (left == 0) {
        ends = realloc(ends, (ends_count + 1) * sizeof *ends);
        if (!ends)
            abort();
        end_key(ends[ends_count++]);
        return;
    }
    for (unsigned i = 0; i < model->processes; i++) {
        if (!(left >> i & 1))
            continue;
        size_t here = save_image();
        if (dead >> i & 1) { /* as if it had never lived; below: as if it had died after its last access */
            die(i);
            sequential_ends(left & ~(1u << i), dead);
            walk(images + here, false);
        }
        while (world.told.state[i] == RUNNING)
            advance(i);
        if (dead >> i & 1)
            die(i);
        sequential_ends(left & ~(1u << i), dead);
        walk(images + here, false);
        images_used = here;
    }
}

static void find_ends(void)
{
    ends_count = 0;
    for (unsigned dead = 0; dead < 1u << model->processes; dead++) {
        bool possible = (unsigned)__builtin_popcount(dead) <= model->deaths;
        for (unsigned i = 0; i < model->processes; i++)
            possible &= !(dead >> i & 1) || model->mortal[i];
        if (possible)
            sequential_ends((1u << model->processes) - 1, dead);
    }
}

static bool end_is_known(void)
{
    uint64_t key[2];
    end_key(key);
    for (size_t i = 0; i < ends_count; i++) {
        if (ends[i][0] == key[0] && ends[i][1] == key[1])
            return true;
    }
    return false;
}

/* ---- the search ---- */

static double explore(unsigned depth);

static void check_end(void)
{
    if (model->sequential)
        SPW_HOLDS(end_is_known());
    if (model->at_end)
        model->at_end();
}

static double go_on(unsigned process, bool death, unsigned depth)
{
    path[depth] = (struct step){(uint8_t)process, death, world.at[process], world.learns[process]};
    depth_now = depth + 1;
    if (death)
        die(process);
    else
        advance(process);
    if (model->always)
        model->always();
    return faulty ? 1 : explore(depth + 1);
}

/* From the present state on; the number of schedules. On return the world is anywhere. */
static double explore(unsigned depth)
{
    uint64_t key[2];
    depth_now = depth;
    double schedules = 0;
    unsigned running = 0;
    if (depth > deepest)
        deepest = depth;
    if (depth == DEPTH_MAX) {
        spw_model_fault(model->name, 0, "a process does not end");
        return 1;
    }
    state_key(key);
    const struct met *known = met_find(key);
    if (known->schedules != 0 && !plain)
        return known->schedules;
    states++;
    size_t image = save_image();
    for (unsigned i = 0; i < model->processes && !faulty; i++) {
        if (world.told.state[i] != RUNNING)
            continue;
        running++;
        schedules += go_on(i, false, depth);
        if (faulty)
            break;
        walk(images + image, false);
        if (model->mortal[i] && world.told.deaths < model->deaths) {
            schedules += go_on(i, true, depth);
            if (faulty)
                break;
            walk(images + image, false);
        }
    }
    if (running == 0) {
        check_end();
        schedules = 1;
        if (!faulty)
            walk(images + image, false);
    }
    images_used = image;
    if (faulty)
        return 1;
    if (!plain)
        met_add(key, schedules);
    return schedules;
}

/* ---- reports ---- */

static void print_step(const struct step *step)
{
    const uint8_t *at = step->at;
    if (step->died) {
        printf("  %u dies\n", step->process);
        return;
    }
    for (unsigned i = 0; i < names_count; i++) {
        if (at >= names[i].at && at < names[i].at + names[i].bytes) {
            printf("  %u %s %s+%zu\n", step->process, step->learns ? "sees or swaps" : "stores",
                   names[i].name, (size_t)(at - names[i].at));
            return;
        }
    }
    printf("  %u goes on\n", step->process);
}

static void print_fault(void)
{
    printf("%s: %s, after\n", model->name, fault_text);
    for (unsigned i = 0; i < fault_depth && i < 400; i++)
        print_step(&path[i]);
}

static void prepare(void)
{
    memset(&world, 0, sizeof world);
    shared_used = names_count = unhashed_count = constant_count = 0;
    images_used = 0;
    compared.bytes = 0;
    faulty = false;
    states = deepest = 0;
    depth_now = fault_depth = 0;
    met_count = met_room = 0;
    met_make(1u << 16);
    current = -1;
    model->set_up();
    for (unsigned i = 0; i < model->processes; i++)
        world.told.state[i] = RUNNING;
    for (unsigned i = 0; i < model->processes; i++)
        begin(i);
}

/* The search without its memory of states finds as many schedules. */
static void compare_plain(const struct spw_model *m, double schedules)
{
    plain = true;
    prepare();
    double found = explore(0);
    plain = false;
    if (!faulty && found != schedules)
        spw_model_fault(m->name, 0, "as many schedules without merging states as with it");
}

/* true: a fault. */
static bool run_one(const struct spw_model *m, bool expect_fault)
{
    struct timespec begun, ended;
    model = m;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    prepare();
    size_t image = save_image();
    if (m->sequential)
        find_ends();
    walk(images + image, false);
    double schedules = explore(0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    double took_s = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
    if (!faulty && schedules < (double)m->least_schedules)
        spw_model_fault(m->name, 0, "fewer schedules than it should have");
    uint64_t merged_states = states, merged_deepest = deepest;
    if (!faulty && m->also_plain)
        compare_plain(m, schedules);
    if (faulty) {
        print_fault();
    } else {
        printf("%-28s %12" PRIu64 " states %12.4g schedules, longest %4" PRIu64 ", deaths %u, %.1f s\n",
               m->name, merged_states, schedules, merged_deepest, m->deaths, took_s);
    }
    if (faulty && expect_fault)
        printf("%s: the fault was found\n", m->name);
    free(met);
    met = NULL;
    return faulty;
}

int spw_models_run(const struct spw_model *models, size_t count, int argc, char **argv)
{
    bool expect_fault = argc > 1 && strcmp(argv[1], "--expect-fault") == 0, any = false;
    const char *only = getenv("SPW_MODEL_ONLY");
    setvbuf(stdout, NULL, _IOLBF, 0);
    stacks = mmap(NULL, SPW_MODEL_PROCESSES * (size_t)STACK_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < count; i++) {
        if (only && strcmp(only, models[i].name) != 0)
            continue;
        any |= run_one(&models[i], expect_fault);
        if (any && expect_fault)
            break;
    }
    return any != expect_fault;
}
