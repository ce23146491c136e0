/* key.h: what kept answers are found by: a short digest under a secret.
 *
 * Owns: struct spw_key and the secret it is made under. Called by: decide.c, pass_book.c. Thread: any; pure.
 *
 * The digest is SipHash-2-4 of 128 bits (Aumasson and Bernstein 2012) under a secret drawn at start: nobody can make two
 * carts share a key, nor many documents fall into one chain of a table, and no address stays here. A cryptographic hash
 * of libcrypto's would do as well; setting one up costs more than all else that is done with a key.
 */
#ifndef SPW_HTTP_KEY_H
#define SPW_HTTP_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spw_key {
    uint8_t bytes[16];
};

struct spw_key_maker {
    uint8_t secret[16];
};
/* false: the kernel gives no random bytes. */
bool spw_key_maker_init(struct spw_key_maker *maker);
void spw_key_maker_clean_up(struct spw_key_maker *maker);
/* Of `kind` and the bytes: the same text of two kinds has two keys. */
void spw_key_make(const struct spw_key_maker *maker, const char *kind, const char *text, size_t bytes,
                  struct spw_key *out);

/* The digest itself. */
void spw_siphash(const uint8_t secret[16], const void *text, size_t bytes, uint8_t out[16]);

#endif
