/* token.h: the local token: what a caller on loopback shows so that the port is no oracle for the account's credential.
 *
 * Owns: the pod's token file in pub, and the token in memory. Called by: quote_door.c, pass_door.c. Thread: the loop
 * thread. Never logged.
 */
#ifndef SPW_HTTP_TOKEN_H
#define SPW_HTTP_TOKEN_H

#include "sidecar/http/secret.h"

#define SPW_TOKEN_BYTES 32 /* of randomness; twice as many hex digits */

struct spw_token {
    char text[2 * SPW_TOKEN_BYTES + 1]; /* of the pod */
    struct spw_conf_secret conf;        /* a configured one instead, read again when its file changes */
    struct spw_secret secret;
};

/* The pod's token: the one in the file when it is a token of this user's that nobody else could have written, so that
 * callers keep theirs over a restart; otherwise a fresh one, put there in one step. gid UINT32_MAX = leave. */
enum spw_status spw_token_open(struct spw_token *token, const char *path, uint32_t gid,
                               struct spw_error *err) SPW_WARN_UNUSED;
/* The token in a configured file. */
void spw_token_open_file(struct spw_token *token, const char *path);
/* Takes the same time wherever the first difference is; the length is no secret. */
bool spw_token_matches(struct spw_token *token, const char *given, uint64_t now_ns);
void spw_token_clean_up(struct spw_token *token);

#endif
