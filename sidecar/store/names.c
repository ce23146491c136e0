/* names.c: the words for what is stored as a number.
 *
 * Owns: the words. Called by: schema, control/, http/metrics.c, reconcile. Thread: any; pure.
 */
#include "sidecar/store/reconcile_rows.h"

#include <string.h>

const char *spw_flag_state_name(uint32_t state)
{
    static const char *const name[SPW_FLAG_STATES] = {"provisional", "confirmed", "cancelled",
                                                      "superseded",  "abandoned", "unplaced"};
    return state < SPW_FLAG_STATES ? name[state] : "unknown";
}

const char *spw_reconcile_state_name(uint32_t state)
{
    static const char *const name[SPW_RECONCILE_STATES] = {
        "none",      "pending",  "noise", "absorbed-under", "over-collected-remit", "over-collected-refund",
        "exception", "resolved",
    };
    return state < SPW_RECONCILE_STATES ? name[state] : "unknown";
}

const char *spw_filing_state_name(uint32_t state)
{
    static const char *const name[SPW_FILING_STATES] = {"none",  "needed", "sent",
                                                        "filed", "failed", "not-possible"};
    return state < SPW_FILING_STATES ? name[state] : "unknown";
}

static const char *const decision_word[SPW_DECIDE_COUNT] = {"note",  "retry",  "absorb",
                                                            "remit", "refund", "accept"};

const char *spw_decision_word(enum spw_exception_decision decision)
{
    return decision < SPW_DECIDE_COUNT ? decision_word[decision] : "unknown";
}

bool spw_decision_of_word(const char *word, enum spw_exception_decision *out)
{
    for (uint32_t i = 0; word && i < SPW_DECIDE_COUNT; i++) {
        if (strcmp(word, decision_word[i]) == 0) {
            *out = (enum spw_exception_decision)i;
            return true;
        }
    }
    return false;
}
