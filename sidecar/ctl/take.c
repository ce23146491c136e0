/* take.c: one admission from the place of an application. See take.h.
 *
 * Owns: a client, for the time of one call. Called by: check.c. Thread: one.
 */
#include "sidecar/ctl/take.h"

#include "shm/spw_client.h"

void spw_ctl_take(const char *account, struct spw_ctl_take *out)
{
    struct spw_client client;
    struct spw_ref ref;
    struct spw_ticket ticket;
    memset(out, 0, sizeof *out);
    enum spw_status status = spw_attach(&client, NULL);
    if (status != SPW_STATUS_OK) {
        out->why = spw_status_text(status);
        if (status != SPW_STATUS_INVALID)
            spw_detach(&client);
        return;
    }
    spw_ref_init(&ref, account, NULL);
    struct spw_admission admission = spw_acquire(&client, &ref, 1, 0, &ticket);
    out->answered = admission.verdict != SPW_NOT_ATTACHED && admission.verdict != SPW_BAD_HANDLE;
    out->allowed = admission.verdict == SPW_ALLOW;
    out->tokens_milli = spw_admission_tokens_milli(&admission);
    out->why = admission.verdict == SPW_BAD_HANDLE ? "no such account" : spw_cause_name(admission.cause);
    if (out->allowed)
        spw_give_up(&client, &ticket);
    spw_detach(&client);
}
