/* key.h: what kept answers are found by: a short digest under a secret.
 *
 * Owns: struct spw_key and the secret it is made under. Called by: decide.c, pass_book.c. Thread: a maker is used by one
 * thread at a time.
 *
 * The digest is libcrypto's SipHash-2-4 of 128 bits under a secret drawn at start: nobody can make two carts share a key,
 * nor many documents fall into one chain of a table, and no address stays here.
 */
#ifndef SPW_HTTP_KEY_H
#define SPW_HTTP_KEY_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spw_key {
    uint8_t bytes[16];
};

struct spw_key_maker {
    EVP_MAC_CTX *mac; /* kept: to make one costs more than a key */
    uint8_t secret[16];
};
/* false: the kernel gives no random bytes, no memory, or a libcrypto without SipHash. */
bool spw_key_maker_init(struct spw_key_maker *maker);
/* Nothing for one that is zeroed. */
void spw_key_maker_clean_up(struct spw_key_maker *maker);
/* Of `kind` and the bytes: the same text of two kinds has two keys. */
void spw_key_make(const struct spw_key_maker *maker, const char *kind, const char *text, size_t bytes,
                  struct spw_key *out);

#endif
