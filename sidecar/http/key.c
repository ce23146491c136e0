/* key.c: see key.h. */
#include "sidecar/http/key.h"

#include <string.h>
#include <sys/random.h>

bool spw_key_maker_init(struct spw_key_maker *maker)
{
    return getrandom(maker->secret, sizeof maker->secret, 0) == (ssize_t)sizeof maker->secret;
}

void spw_key_maker_clean_up(struct spw_key_maker *maker)
{
    explicit_bzero(maker, sizeof *maker);
}

void spw_key_make(const struct spw_key_maker *maker, const char *kind, const char *text, size_t bytes,
                  struct spw_key *out)
{
    uint8_t of_kind[16]; /* each kind has a secret of its own, so no text of one can pass for another's */
    spw_siphash(maker->secret, kind, strlen(kind), of_kind);
    spw_siphash(of_kind, text, bytes, out->bytes);
}

/* ---- SipHash, in the names of its paper ---- */

static uint64_t rotated(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[2] = rotated(v[2], 32);
    }
}

static void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

void spw_siphash(const uint8_t secret[16], const void *text, size_t bytes, uint8_t out[16])
{
    const uint8_t *at = text;
    uint64_t k[2], word, digest[2];
    memcpy(k, secret, sizeof k);
    uint64_t v[4] = {k[0] ^ UINT64_C(0x736f6d6570736575), k[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                     k[0] ^ UINT64_C(0x6c7967656e657261), k[1] ^ UINT64_C(0x7465646279746573)};
    for (size_t left = bytes; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        take(v, word);
    }
    word = 0;
    memcpy(&word, at, bytes % sizeof word);
    take(v, word | (uint64_t)bytes << 56);
    v[2] ^= 0xee;
    mix(v, 4);
    digest[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    mix(v, 4);
    digest[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    memcpy(out, digest, sizeof digest);
}
