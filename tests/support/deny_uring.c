/* deny_uring.c: runs a program where io_uring is refused, as under a container runtime's default seccomp profile.
 *
 *   deny_uring EPERM|ENOSYS PROGRAM [ARGUMENT...]
 *
 * Exit: the program's own; 2 wrong arguments, 126 the filter or the program could not be set up.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int deny(int number, unsigned answer)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (answer & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof program[0], .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

int main(int argc, char **argv)
{
    unsigned answer = argc < 3                         ? 0
                      : strcmp(argv[1], "EPERM") == 0  ? EPERM
                      : strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS
                                                       : 0;
    if (!answer) {
        fprintf(stderr, "deny_uring EPERM|ENOSYS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (deny(SYS_io_uring_setup, answer) != 0)
        perror("deny_uring: seccomp");
    else if (execv(argv[2], argv + 2) != 0)
        perror(argv[2]);
    return 126;
}
