/* spw_atomic.h: the only file that says __atomic_* about shared words. The names carry the memory order.
 *
 * Owns: nothing. Called by: every file of shm/ and the sidecar's publisher. Thread/process: any.
 *
 * Why not C11 _Atomic: a C++ compiler refuses it and it may hide a lock; plain 64-bit words with these builtins are
 * the same instruction in both languages and work between processes. Each use that is not plain statistics carries a
 * comment "SYNC name: ..."; every name stands on a releasing and on an acquiring side (tests/abi/check_sync.py).
 */
#ifndef SPW_ATOMIC_H
#define SPW_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SPW_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define SPW_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* For what a decision is made of, however the application is compiled; for what is run beside it, out of its way; and for
 * what is seldom run. */
#define SPW_HOT               static inline __attribute__((always_inline))
#define SPW_ASIDE             __attribute__((noinline, unused))
#define SPW_COLD              __attribute__((noinline, cold, unused))
#define SPW_SELDOM(condition) __builtin_expect(!!(condition), 0)

#ifdef __cplusplus
extern "C" {
#endif

SPW_STATIC_ASSERT(sizeof(void *) == 8, "spillway needs a 64-bit target");
SPW_STATIC_ASSERT(__GCC_ATOMIC_LLONG_LOCK_FREE == 2, "64-bit words must be lock-free: processes share them");

/* Nothing, except in tests/model: there each access is a place at which another process may go on, or this one die.
 * SEE: the access learns what is in the word; SET: it only stores. */
#ifndef SPW_STEP_SEE
#define SPW_STEP_SEE(word)
#define SPW_STEP_SET(word)
#endif

SPW_HOT uint64_t spw_load_acq(const uint64_t *word)
{
    SPW_STEP_SEE(word);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

SPW_HOT uint64_t spw_load_rlx(const uint64_t *word)
{
    SPW_STEP_SEE(word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

SPW_HOT uint32_t spw_load32_rlx(const uint32_t *word)
{
    SPW_STEP_SEE(word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

SPW_HOT uint32_t spw_load32_acq(const uint32_t *word)
{
    SPW_STEP_SEE(word);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

SPW_HOT void spw_store_rel(uint64_t *word, uint64_t value)
{
    SPW_STEP_SET(word);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

SPW_HOT void spw_store_rlx(uint64_t *word, uint64_t value)
{
    SPW_STEP_SET(word);
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

SPW_HOT void spw_store32_rlx(uint32_t *word, uint32_t value)
{
    SPW_STEP_SET(word);
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

SPW_HOT void spw_store32_rel(uint32_t *word, uint32_t value)
{
    SPW_STEP_SET(word);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Compare and swap: true when *word was *expected and is now desired; else *expected holds what was found.
 * acq_rel on success, acquire on failure: one strength serves every caller, and on x86-64 and arm64 with LSE it
 * costs what the weaker forms cost. */
SPW_HOT bool spw_cas(uint64_t *word, uint64_t *expected, uint64_t desired)
{
    SPW_STEP_SEE(word);
    return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

SPW_HOT uint64_t spw_exchange(uint64_t *word, uint64_t value)
{
    SPW_STEP_SEE(word);
    return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

SPW_HOT uint64_t spw_add(uint64_t *word, uint64_t n)
{
    SPW_STEP_SEE(word);
    return __atomic_fetch_add(word, n, __ATOMIC_ACQ_REL);
}

/* Statistics only: orders nothing. */
SPW_HOT uint64_t spw_add_rlx(uint64_t *word, uint64_t n)
{
    SPW_STEP_SEE(word);
    return __atomic_fetch_add(word, n, __ATOMIC_RELAXED);
}

SPW_HOT void spw_fence_acq(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

SPW_HOT void spw_fence_rel(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Tell the processor that this is a retry of a CAS loop. */
SPW_HOT void spw_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* memcpy whose source or target another process may be writing: whole 64-bit words, each access atomic, no order. */
SPW_HOT void spw_copy_rlx(uint64_t *to, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        SPW_STEP_SEE(&from[i]);
        uint64_t word = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        SPW_STEP_SET(&to[i]);
        __atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
    }
}

#ifdef __cplusplus
}
#endif

#endif
