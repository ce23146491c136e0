/* record.h: finds what has changed in the state and writes it into the journal. Internal to control/.
 *
 * Owns: struct spw_record, how everything was at the last look. Called by: the method files around each change, the
 * timer in record.c four times a second, which finds what moved by itself. Thread: the loop's.
 */
#ifndef SPW_CONTROL_RECORD_H
#define SPW_CONTROL_RECORD_H

#include "sidecar/control/journal.h"
#include "sidecar/loop/loop.h"
#include "sidecar/state/state.h"

struct spw_call;
struct spw_control;

/* Whose doing it was. */
struct spw_doer {
    const char *who;   /* "uid 0" */
    const char *cause; /* "Limits.Set" */
    uint64_t for_ms;   /* it goes back by itself after this; 0 = it stays */
};

/* The peer of a call: its user's number, a certificate's name, or its address. Loop thread. */
void spw_doer_of_call(const struct spw_call *call, char *who, size_t room);

/* What moved by itself. */
#define SPW_DOER_SIDECAR ((struct spw_doer){"sidecar", "", 0})

#define SPW_DOER_BYTES 96u

struct spw_record;
struct spw_record *spw_record_new(struct spw_control *control);
/* Take what is there as known, and begin to look. */
void spw_record_start(struct spw_record *record);
/* No more looks. */
void spw_record_stop(struct spw_record *record);
void spw_record_destroy(struct spw_record *record);

/* How a reload of the configuration went, as a change of kind "config". */
void spw_record_reload(struct spw_record *record, uint32_t changes_count, const char *refusal);

/* Write down what differs from the last look; account NULL: of all. Watchers are told. */
void spw_record_look(struct spw_record *record, const char *account, const struct spw_doer *doer);

#endif
