/* key.c: see key.h. */
#include "sidecar/http/key.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool spw_key_maker_init(struct spw_key_maker *maker)
{
    EVP_MAC *siphash = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    maker->mac = siphash ? EVP_MAC_CTX_new(siphash) : NULL;
    EVP_MAC_free(siphash); /* the context holds it */
    return maker->mac && getrandom(maker->secret, sizeof maker->secret, 0) == (ssize_t)sizeof maker->secret;
}

void spw_key_maker_clean_up(struct spw_key_maker *maker)
{
    EVP_MAC_CTX_free(maker->mac);
    explicit_bzero(maker, sizeof *maker);
}

static bool update(EVP_MAC_CTX *mac, const char *text, size_t bytes)
{
    return EVP_MAC_update(mac, (const unsigned char *)text, bytes) == 1;
}

void spw_key_make(const struct spw_key_maker *maker, const char *kind, const char *text, size_t bytes,
                  struct spw_key *out)
{
    size_t count = 0;
    /* The kind with its NUL byte: where it ends is beyond doubt. */
    bool ok = EVP_MAC_init(maker->mac, maker->secret, sizeof maker->secret, NULL) == 1 &&
              update(maker->mac, kind, strlen(kind) + 1) && update(maker->mac, text, bytes) &&
              EVP_MAC_final(maker->mac, out->bytes, &count, sizeof out->bytes) == 1;
    /* None of it is known to fail; a key that nobody else has would share nothing. */
    if ((!ok || count != sizeof out->bytes) && getrandom(out->bytes, sizeof out->bytes, 0) < 0)
        abort(); /* two carts under one key would have one tax */
}
