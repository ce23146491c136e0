/* explore.h: an exhaustive scheduler for up to four processes on shared memory.
 *
 * Owns: the interface between a model and the search. Called by: model_*.c. Thread: one.
 *
 * A model says what lies in shared memory at first, what each process does, which may die, and what must hold. The
 * search runs the processes in every order of their switch points (see step.h), and lets those that are mortal die at
 * each, as long as deaths are left. It is depth first over states: shared memory, locks, and each process' registers and
 * stack; a state met again is not searched again, and its number of schedules is added instead.
 *
 * What it shows holds for sequential consistency: memory orders are reviewed by their SYNC comments (shm/README.md).
 */
#ifndef SPW_MODEL_EXPLORE_H
#define SPW_MODEL_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_MODEL_PROCESSES    4u
#define SPW_MODEL_SHARED_BYTES (160u * 1024u)
#define SPW_MODEL_LOCKS        32u

struct spw_model {
    const char *name;
    unsigned processes;
    unsigned deaths; /* in one schedule, at most */
    bool mortal[SPW_MODEL_PROCESSES];
    void (*set_up)(void);                   /* fills shared memory */
    void (*run[SPW_MODEL_PROCESSES])(void); /* what a process does */
    void (*always)(void);                   /* holds after each step; NULL = nothing */
    void (*at_end)(void);                   /* holds when all have ended or died; may change shared memory */
    bool
        sequential; /* each end must be one that the processes, one after the other in some order, can reach too */
    bool also_plain; /* count the schedules without merging states too: a check of the search itself */
    uint64_t least_schedules; /* fewer: the model has lost its point */
};

/* Explore all of them; the program's exit status. argv: "--expect-fault" turns it round: 0 when a fault was found.
 * SPW_MODEL_ONLY=name runs one of them. Prints a line for each. */
int spw_models_run(const struct spw_model *models, size_t count, int argc, char **argv);

/* Shared memory, from set_up: zeroed, aligned to 128. spw_model_unhashed: bytes that follow from others. */
void *spw_model_shared(const char *name, size_t bytes);
void spw_model_unhashed(const void *at, size_t bytes);
/* Nobody writes these bytes: no switch points there. Unhashed and constant ranges are told in rising order. */
void spw_model_constant(const void *at, size_t bytes);

/* From set_up: `sequential` compares these bytes alone, not all of the shared memory. */
void spw_model_compare(const void *at, size_t bytes);

/* In a process: which one, memory of its own (zeroed; from set_up on it may be asked for), a point at which it may
 * die, and what it reports: `result` counts at the end even if the process died later. */
unsigned spw_model_self(void);
void *spw_model_own(unsigned process, size_t bytes);
void spw_model_point(void);
uint64_t *spw_model_result(unsigned process);
bool spw_model_dead(unsigned process);
unsigned spw_model_deaths(void);

/* In a process: no switch points from here on, or again. What it does meanwhile is one step. */
void spw_model_quiet(bool on);

/* scripts/soak: larger bounds, where a model has them (SPW_MODEL_DEEP). */
bool spw_model_deep(void);

/* The clock of the process that asks; of all when process is SPW_MODEL_PROCESSES. */
void spw_model_clock(unsigned process, uint64_t now_ns);

/* Tell the search that something does not hold. Used through SPW_HOLDS. */
void spw_model_fault(const char *file, int line, const char *what);
#define SPW_HOLDS(condition)                                                                                 \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            spw_model_fault(__FILE__, __LINE__, #condition);                                                 \
    } while (0)

/* Numbers the descriptors of the process that runs; and the end of one, with its locks. */
int spw_model_descriptor(void);
void spw_model_unlock(int fd);

/* Who holds lock byte `index`: a process, or -1. */
int spw_model_lock_owner(uint64_t index);

#endif
