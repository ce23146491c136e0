/* early.c: an application that starts before the sidecar: it asks for admission until a segment answers.
 *
 *   pod_early ACCOUNT
 *
 * "waiting" when the first answer was that there is no segment, then, when the segment has allowed one:
 * "attached after N answers without a segment, M of them may call". Exit 0; 1 = it never said so in two minutes.
 * Owns: nothing. Thread: one.
 */
#include "spillway.h"

#include <stdio.h>

#define TRIES    1200u
#define PAUSE_NS 100000000L

int main(int argc, char **argv)
{
    static struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket;
    unsigned without = 0, may_call = 0;
    (void)spw_attach(&client, NULL);
    spw_ref_init(&ref, argc > 1 ? argv[1] : "main", NULL);
    for (unsigned i = 0; i < TRIES; i++) {
        const struct timespec pause = {0, PAUSE_NS};
        struct spw_admission admission = spw_acquire(&client, &ref, 1, 0, &ticket);
        if (admission.verdict == SPW_ALLOW) {
            spw_give_up(&client, &ticket);
            printf("attached after %u answers without a segment, %u of them may call\n", without, may_call);
            spw_detach(&client);
            return 0;
        }
        without += admission.verdict == SPW_NOT_ATTACHED;
        may_call += admission.may_call;
        if (without == 1 && i == 0) {
            puts("waiting");
            fflush(stdout);
        }
        nanosleep(&pause, NULL);
    }
    return 1;
}
