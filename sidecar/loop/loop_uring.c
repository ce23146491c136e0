/* loop_uring.c: the loop's waiting by io_uring: one oneshot poll per watched descriptor, one enter per turn.
 *
 * Owns: the ring and, per index, what is asked of the kernel. Called by: loop.c through spw_loop_uring_ops.
 * Thread: the loop thread. open may run elsewhere: the ring is made disabled and enabled by begin, because with
 * SINGLE_ISSUER the thread that enables it is the only one that may submit.
 *
 * Level-triggered for the caller: a oneshot poll that fired is asked for again before the next wait, and the kernel
 * answers at once when the descriptor is still ready. A poll in flight holds the open file, so that close() alone
 * would send the peer no end: forget cancels it and has the cancellation processed before it returns.
 */
#include "sidecar/loop/loop_backend.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBMISSION_ENTRIES = 256, COMPLETION_ENTRIES = 4096 };

/* Token of requests whose completion nobody waits for; index 0 is never given out. */
#define NOBODY UINT64_C(0)

/* IORING_SETUP_* of the ring we want: made here, enabled by the loop thread. Linux 6.1 has them all. */
#define BEST_FLAGS  (IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)
#define PLAIN_FLAGS (IORING_SETUP_R_DISABLED)

/* How long a poll rests that told nothing anybody asked for. */
#define REST_NS UINT64_C(10000000)

struct interest {
    uint64_t token;       /* what to report */
    uint64_t armed_token; /* of the poll in flight */
    int fd;
    uint32_t events; /* wanted; 0 = none */
    bool armed;
    bool resting; /* not asked again before one more wait, see reap */
    bool dirty;   /* in the list of indexes to look at before the next wait */
};

struct uring_state {
    struct io_uring ring;
    bool enabled;
    struct interest *interests; /* by index */
    uint32_t *dirty;            /* indexes; room for every one of them */
    uint32_t dirty_count;
    uint32_t capacity;
};

/* -------- probing -------- */

static int read_io_uring_disabled(void)
{
    int value = 0;
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1) { /* NOLINT(cert-err34-c): the kernel wrote it */
            value = 0;
        }
        fclose(file);
    }
    return value;
}

static const char *likely_cause(int error)
{
    if ((error == EPERM || error == EACCES) && read_io_uring_disabled() != 0) {
        return "the sysctl kernel.io_uring_disabled is set on this node";
    }
    switch (error) {
    case EPERM:
    case EACCES:
        return "a seccomp profile or security module forbids it";
    case ENOSYS:
        return "a seccomp profile hides it or the kernel has none";
    case ENOMEM:
        return "the memory limit or RLIMIT_MEMLOCK is too small";
    case EMFILE:
    case ENFILE:
        return "too many open files";
    case EINVAL:
    case EOPNOTSUPP:
        return "the kernel is too old";
    default:
        return "unexpected";
    }
}

static enum spw_status refused(struct spw_error *err, const char *call, int error)
{
    return spw_error_set(err, SPW_STATUS_SYSTEM, "%s: %s (%s): %s", call, strerrorname_np(error),
                         strerror(error), likely_cause(error));
}

/* Set-up, register and enter can be forbidden one by one: try all three on a ring of two entries, so that the
 * decision made at start holds for the whole run. */
static enum spw_status probe(struct spw_error *err)
{
    struct io_uring ring;
    struct io_uring_params params = {0};
    int rc = io_uring_queue_init_params(2, &ring, &params);
    if (rc < 0) {
        return refused(err, "io_uring_setup", -rc);
    }
    const uint32_t features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((params.features & features) != features) {
        io_uring_queue_exit(&ring);
        return refused(err, "io_uring_setup", EOPNOTSUPP);
    }
    struct io_uring_probe *ops = io_uring_get_probe_ring(&ring);
    bool can_poll = ops != NULL && io_uring_opcode_supported(ops, IORING_OP_POLL_ADD) &&
                    io_uring_opcode_supported(ops, IORING_OP_POLL_REMOVE);
    io_uring_free_probe(ops);
    if (!can_poll) {
        io_uring_queue_exit(&ring);
        return spw_error_set(
            err, SPW_STATUS_SYSTEM,
            "io_uring_register: no poll requests: a seccomp profile forbids it or the kernel is "
            "too old");
    }
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    rc = io_uring_submit_and_wait(&ring, 1);
    io_uring_queue_exit(&ring);
    return rc < 0 ? refused(err, "io_uring_enter", -rc) : SPW_STATUS_OK;
}

static int make_ring(struct io_uring *ring, uint32_t flags)
{
    struct io_uring_params params = {.flags = flags | IORING_SETUP_CQSIZE, .cq_entries = COMPLETION_ENTRIES};
    return io_uring_queue_init_params(SUBMISSION_ENTRIES, ring, &params);
}

static enum spw_status uring_open(void **state, char *note, size_t note_bytes, struct spw_error *err)
{
    enum spw_status status = probe(err);
    if (status != SPW_STATUS_OK) {
        return status;
    }
    struct uring_state *uring = calloc(1, sizeof *uring);
    if (uring == NULL) {
        return spw_error_set(err, SPW_STATUS_NO_MEMORY, "no memory for the ring: raise the memory limit");
    }
    snprintf(note, note_bytes, "io_uring, single issuer with deferred task work");
    int rc = make_ring(&uring->ring, BEST_FLAGS);
    if (rc == -EINVAL) {
        snprintf(note, note_bytes, "io_uring without deferred task work (the kernel is older than 6.1)");
        rc = make_ring(&uring->ring, PLAIN_FLAGS);
    }
    if (rc < 0) {
        free(uring);
        return refused(err, "io_uring_setup", -rc);
    }
    *state = uring;
    return SPW_STATUS_OK;
}

static void uring_close(void *state)
{
    struct uring_state *uring = state;
    io_uring_queue_exit(&uring->ring);
    free(uring->interests);
    free(uring->dirty);
    free(uring);
}

static enum spw_status uring_begin(void *state, struct spw_error *err)
{
    struct uring_state *uring = state;
    if (uring->enabled) {
        return SPW_STATUS_OK;
    }
    /* liburing 2.3 declares io_uring_enable_rings but does not export it. */
    int rc = io_uring_register((unsigned)uring->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (rc < 0) {
        return refused(err, "loop: io_uring_register(ENABLE_RINGS)", -rc);
    }
    uring->enabled = true;
    /* Saves a look-up of the ring's descriptor per turn; without it all works as well. */
    (void)io_uring_register_ring_fd(&uring->ring);
    return SPW_STATUS_OK;
}

/* -------- interests -------- */

static bool reserve(struct uring_state *uring, uint32_t index)
{
    if (index < uring->capacity) {
        return true;
    }
    uint32_t capacity = uring->capacity == 0 ? 64 : uring->capacity;
    while (capacity <= index) {
        capacity *= 2;
    }
    uint32_t *dirty = realloc(uring->dirty, capacity * sizeof *dirty);
    if (dirty == NULL) {
        return false;
    }
    uring->dirty = dirty;
    struct interest *interests = realloc(uring->interests, capacity * sizeof *interests);
    if (interests == NULL) {
        return false;
    }
    memset(interests + uring->capacity, 0, (capacity - uring->capacity) * sizeof *interests);
    uring->interests = interests;
    uring->capacity = capacity;
    return true;
}

static void mark_dirty(struct uring_state *uring, uint32_t index)
{
    if (!uring->interests[index].dirty) {
        uring->interests[index].dirty = true;
        uring->dirty[uring->dirty_count++] = index;
    }
}

static enum spw_status uring_watch(void *state, uint64_t token, int fd, uint32_t events, bool was_watched)
{
    struct uring_state *uring = state;
    uint32_t index = (uint32_t)token;
    (void)was_watched;
    if (!reserve(uring, index)) {
        return SPW_STATUS_NO_MEMORY;
    }
    struct interest *interest = &uring->interests[index];
    interest->token = token;
    interest->fd = fd;
    interest->events = events;
    interest->resting = false;
    mark_dirty(uring, index);
    return SPW_STATUS_OK;
}

/* A submission entry; NULL when the queue is full and the kernel takes nothing just now. */
static struct io_uring_sqe *next_entry(struct uring_state *uring)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);
    if (entry == NULL && io_uring_submit(&uring->ring) >= 0) {
        entry = io_uring_get_sqe(&uring->ring);
    }
    return entry;
}

static bool cancel_armed(struct uring_state *uring, struct interest *interest)
{
    struct io_uring_sqe *entry = next_entry(uring);
    if (entry == NULL) {
        return false;
    }
    io_uring_prep_poll_remove(entry, interest->armed_token);
    io_uring_sqe_set_data64(entry, NOBODY);
    interest->armed = false;
    return true;
}

static void uring_forget(void *state, uint32_t index, int fd)
{
    struct uring_state *uring = state;
    struct interest *interest = &uring->interests[index];
    (void)fd;
    interest->events = 0;
    interest->resting = false;
    if (!interest->armed) {
        return;
    }
    if (!cancel_armed(uring, interest)) {
        mark_dirty(uring, index); /* the flush before the next wait cancels it */
        return;
    }
    /* Also runs the deferred work that lets go of the file. It fails only when another thread than the loop's
     * takes the sidecar apart after the run; then the end of the ring lets go. */
    (void)io_uring_submit_and_get_events(&uring->ring);
}

/* Bring one index in line with what is wanted; false = no room now. */
static bool settle(struct uring_state *uring, struct interest *interest)
{
    if (interest->armed && (interest->events == 0 || interest->armed_token != interest->token) &&
        !cancel_armed(uring, interest)) {
        return false;
    }
    if (interest->events == 0 || interest->armed) {
        return true;
    }
    struct io_uring_sqe *entry = next_entry(uring);
    if (entry == NULL) {
        return false;
    }
    io_uring_prep_poll_add(entry, interest->fd, spw_loop_to_poll(interest->events));
    io_uring_sqe_set_data64(entry, interest->token);
    interest->armed = true;
    interest->armed_token = interest->token;
    return true;
}

/* How long the next wait may last: no time when the queue was full, a little when a poll rests. */
static uint64_t flush(struct uring_state *uring)
{
    uint64_t longest_ns = SPW_LOOP_FOREVER;
    uint32_t left = 0;
    for (uint32_t i = 0; i < uring->dirty_count; i++) {
        uint32_t index = uring->dirty[i];
        struct interest *interest = &uring->interests[index];
        if (interest->resting) {
            interest->resting = false;
            longest_ns = longest_ns < REST_NS ? longest_ns : REST_NS;
            uring->dirty[left++] = index;
        } else if (longest_ns > 0 && settle(uring, interest)) {
            interest->dirty = false;
        } else {
            longest_ns = 0;
            uring->dirty[left++] = index;
        }
    }
    uring->dirty_count = left;
    return longest_ns;
}

/* -------- waiting -------- */

/* io_uring reports a half-closed peer (RDHUP) to everybody, asked or not, and for ever. Who waits only for room to
 * write is not told, and the poll rests during one wait, so that it does not turn the loop without end. */
static uint32_t told(struct interest *interest, uint32_t bits)
{
    if ((interest->events & SPW_LOOP_HANGUP) == 0) {
        bits &= ~(uint32_t)POLLRDHUP;
        interest->resting = bits == 0;
    }
    return spw_loop_from_poll(bits);
}

static size_t reap(struct uring_state *uring, struct spw_loop_event *events, size_t capacity)
{
    size_t count = 0;
    struct io_uring_cqe *cqe;
    while (count < capacity && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        uint64_t token = io_uring_cqe_get_data64(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        if (token == NOBODY) {
            continue;
        }
        uint32_t index = (uint32_t)token;
        struct interest *interest = &uring->interests[index];
        if (!interest->armed || interest->armed_token != token) {
            continue; /* cancelled, and the cancellation came too late or is this very completion */
        }
        interest->armed = false;
        mark_dirty(uring, index);
        events[count].token = token;
        events[count].events = result < 0 ? (uint32_t)SPW_LOOP_ERROR : told(interest, (uint32_t)result);
        count += events[count].events != 0;
    }
    return count;
}

/* Not for no time at all: a wait that has timed out before it begins still arms a timer and goes to sleep by it, which
 * costs more than all else in a turn. */
static int wait_for(struct uring_state *uring, uint64_t timeout_ns)
{
    struct __kernel_timespec timeout = {.tv_sec = (long long)(timeout_ns / 1000000000),
                                        .tv_nsec = (long long)(timeout_ns % 1000000000)};
    struct io_uring_cqe *first;
    return io_uring_submit_and_wait_timeout(&uring->ring, &first, 1,
                                            timeout_ns == SPW_LOOP_FOREVER ? NULL : &timeout, NULL);
}

static enum spw_status uring_wait(void *state, uint64_t timeout_ns, struct spw_loop_event *events,
                                  size_t capacity, size_t *count, struct spw_error *err)
{
    struct uring_state *uring = state;
    uint64_t longest_ns = flush(uring);
    timeout_ns = timeout_ns < longest_ns ? timeout_ns : longest_ns;
    int rc = timeout_ns == 0 ? io_uring_submit_and_get_events(&uring->ring) : wait_for(uring, timeout_ns);
    *count = 0;
    /* EBUSY and EAGAIN: the kernel wants completions taken first, which is what comes next. */
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EBUSY && rc != -EAGAIN) {
        return refused(err, "loop: io_uring_enter", -rc);
    }
    *count = reap(uring, events, capacity);
    return SPW_STATUS_OK;
}

const struct spw_loop_backend_ops spw_loop_uring_ops = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .begin = uring_begin,
    .watch = uring_watch,
    .forget = uring_forget,
    .wait = uring_wait,
};
