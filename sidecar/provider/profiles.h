/* profiles.h: the profiles there are, one file (pair) each.
 *
 * Owns: their declarations. Called by: profile.c, which has the one table of them. Thread: any; pure.
 */
#ifndef SPW_PROVIDER_PROFILES_H
#define SPW_PROVIDER_PROFILES_H

#include "sidecar/provider/provider.h"

extern const struct spw_profile spw_profile_avatax;
extern const struct spw_profile spw_profile_taxjar;
extern const struct spw_profile spw_profile_stripe;
extern const struct spw_profile spw_profile_taxcloud;
extern const struct spw_profile spw_profile_http;

#endif
