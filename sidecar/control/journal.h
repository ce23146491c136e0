/* journal.h: the last 65,536 changes, numbered from 1 since the start. Internal to control/.
 *
 * Owns: struct spw_journal. Called by: record.c (append), watch.c and audit.c (read). Thread: append on the loop's; the
 * rest on any, behind a lock of its own.
 *
 * A change is kept packed, about 150 bytes: 10 MiB when full, nothing before changes are made.
 */
#ifndef SPW_CONTROL_JOURNAL_H
#define SPW_CONTROL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/spillway/v1/control.pb-c.h"

#define SPW_JOURNAL_KEPT_COUNT 65536u

struct spw_journal;

struct spw_journal *spw_journal_new(void); /* never NULL: as gRPC's allocator */
void spw_journal_destroy(struct spw_journal *journal);
/* 16 hex digits that no other start has. */
const char *spw_journal_name(const struct spw_journal *journal);

/* Gives the change its version and keeps it. The version. */
uint64_t spw_journal_append(struct spw_journal *journal, Spillway__V1__Change *change);
/* Newest version, 0 = none yet; *oldest is the oldest that is kept. */
uint64_t spw_journal_newest(struct spw_journal *journal, uint64_t *oldest);
/* A copy to be freed by protobuf_c_message_free_unpacked; NULL = it is not kept. */
Spillway__V1__Change *spw_journal_get(struct spw_journal *journal, uint64_t version);

#endif
