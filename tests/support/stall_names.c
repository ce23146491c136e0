/* stall_names.c: a name server that does not answer: getaddrinfo() of stalled.example hangs, any other is the real one.
 *
 * Owns: nothing. Preloaded into the sidecar by tests/integration/test_engine.py. Thread: any.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    union {
        void *object;
        getaddrinfo_fn *function;
    } real = {.object = dlsym(RTLD_NEXT, "getaddrinfo")};
    if (name && strcmp(name, "stalled.example") == 0)
        sleep(30);
    return real.function(name, service, hints, out);
}
