/* step.h: what stands in front of every file of a model build (-include): the shared headers run as they are, and each
 * access to shared memory, each system call and each copy becomes a switch point.
 *
 * Owns: nothing. Called by: shm/ and sidecar/state/ as the models compile them. Thread: the scheduler's only one.
 */
#ifndef SPW_MODEL_STEP_H
#define SPW_MODEL_STEP_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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

/* An access to `word`: another process may go on here, or this one die. learnt_bytes: how much of the word the access
 * tells the process; 0 when it only stores. Nothing happens outside shared memory and outside processes. */
void spw_step(const void *word, size_t learnt_bytes);
void *spw_step_memcpy(void *to, const void *from, size_t bytes);
int spw_step_fcntl(int fd, int command, struct flock *lock);
int spw_step_clock(struct timespec *out);
void *spw_step_alloc(size_t bytes);
/* Files of a model that has a directory: see files.c. */
int spw_step_open(const char *path);
int spw_step_close(int fd);
int spw_step_fstat(int fd, struct stat *out);
int spw_step_stat(const char *path, struct stat *out);
void *spw_step_mmap(int fd);

#define SPW_STEP_SEE(word) spw_step((word), sizeof *(word))
#define SPW_STEP_SET(word) spw_step((word), 0)
#undef memcpy
#define memcpy(to, from, bytes)  spw_step_memcpy((to), (from), (bytes))
#define fcntl(fd, command, lock) spw_step_fcntl((fd), (command), (lock))
#define clock_gettime(id, out)   spw_step_clock(out)
#define open(path, ...)          spw_step_open(path)
#define close(fd)                spw_step_close(fd)
#define fstat(fd, out)           spw_step_fstat((fd), (out))
#define stat(path, out)          spw_step_stat((path), (out))
#define mmap(at, bytes, prot, flags, fd, off)                                                                \
    ((void)(prot), (fd) < 0 ? spw_step_alloc(bytes) : spw_step_mmap(fd))
#define munmap(at, bytes) ((void)(at), (void)(bytes))
#define malloc(bytes)     spw_step_alloc(bytes)
#define calloc(n, bytes)  spw_step_alloc((n) * (bytes))
#define free(at)          ((void)(at))

#endif
