/* echo.h: the floor of bench control: a bare echo on gRPC C core.
 *
 * Owns: nothing. Called by: bench/control.c. Thread: the child's.
 */
#ifndef SPW_BENCH_CONTROL_ECHO_H
#define SPW_BENCH_CONTROL_ECHO_H

#define BENCH_ECHO_METHOD "/bench.Echo/Echo"

/* Serves one connection on the Unix socket until it is killed. */
void bench_echo_serve(const char *path) __attribute__((noreturn));

#endif
