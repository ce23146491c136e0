/* ca_store.h: trusted authorities, parsed once and shared by all connections.
 *
 * Owns: the parsed bundle of each file in use. Called by: client.c. Thread: the loop thread; a changed file is parsed on
 * a thread of its own, because that takes a tenth of a second and more.
 */
#ifndef SPW_HTTP_CA_STORE_H
#define SPW_HTTP_CA_STORE_H

#include <openssl/x509.h>

#include "sidecar/loop/loop.h"

struct spw_ca_store;

/* Parse the file now, or share what an earlier caller has parsed of it. NULL: it cannot be read or holds no certificate;
 * err says why. */
struct spw_ca_store *spw_ca_store_open(struct spw_loop *loop, const char *path, struct spw_error *err);
void spw_ca_store_close(struct spw_ca_store *store);

/* The authorities to verify with, borrowed until the loop's next turn. Looks at the file at most once a second: one that
 * changed is in force as soon as it is parsed; one that cannot be read leaves the last good one in use. */
X509_STORE *spw_ca_store_get(struct spw_ca_store *store, uint64_t now_ns);

#endif
