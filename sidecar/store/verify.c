/* verify.c: does a flag agree with the live tables? A cell is written by a process that may have been taken over; what
 * it says of account, source, rate and amounts is checked against what the sidecar itself published.
 *
 * Owns: nothing. Called by: flags. Thread: the store thread; reads the segment.
 *
 * A doubt loses nothing: the flag is stored with its reason and waits for a person. A rate table changed in the instant
 * between answer and storing gives a doubt too.
 */
#include "sidecar/store/drain.h"

#include <string.h>

#include "shm/spw_fallback.h"

#define RATE_MAX_PPB     UINT32_C(1000000000)
#define AMOUNT_MAX_MINOR INT64_C(1000000000000000) /* 513 of them add up without overflow */

static bool is_amount(int64_t minor)
{
    return minor >= -AMOUNT_MAX_MINOR && minor <= AMOUNT_MAX_MINOR;
}

static const char *doubt_account(const struct spw_map *map, const struct spw_flag_record *r)
{
    const struct spw_account *account = spw_account_at(map, r->account_index);
    if (!account || account->state == SPW_RECORD_FREE)
        return "no such account in the segment";
    if (strncmp(account->name, r->account, sizeof account->name) != 0)
        return "the account's index and name are of two accounts";
    if (account->record_generation != r->account_generation)
        return "the account's record is of another generation";
    return NULL;
}

/* The named source among those of the active half. */
static bool source_is_active(const struct spw_map *map, const struct spw_flag_record *r)
{
    /* SYNC rates-active: acquire: the half was filled before it was made active. */
    uint64_t active = spw_load_acq(&spw_map_pub(map)->rates_active);
    const struct spw_rate_half *half = spw_rate_half_at(map, active & 1);
    for (uint32_t i = 0; active && i < half->sources_count && i < SPW_SOURCES_MAX_COUNT; i++) {
        const struct spw_source *at = spw_source_at(map, (active & 1) * SPW_SOURCES_MAX_COUNT + i);
        struct spw_source source;
        spw_copy_rlx((uint64_t *)(void *)&source, (const uint64_t *)(const void *)at, sizeof source / 8);
        if (strncmp(source.name, r->source, sizeof source.name) == 0 && source.as_of_day == r->as_of_day &&
            memcmp(source.sha256, r->source_sha256, sizeof source.sha256) == 0)
            return true;
    }
    return false;
}

static const char *doubt_table_rate(const struct spw_map *map, const struct spw_flag_record *r,
                                    uint32_t level)
{
    if (!source_is_active(map, r))
        return "its source is none of the rate table's";
    struct spw_address address = {.country = r->country, .state = r->state, .zip = r->zip[0] ? r->zip : NULL};
    struct spw_place place;
    struct spw_rate_record found;
    struct spw_source source;
    const uint32_t levels[] = {level, 0};
    if (!spw_place_from(&address, &place))
        return "its destination is none";
    int32_t day = (int32_t)(r->created_unix_ms / 86400000);
    if (r->date[0])
        (void)spw_date_parse(r->date, &day);
    place.day = day > 0 ? (uint32_t)day : 0;
    if (level == SPW_RATE_STATE && !place.state[0])
        return "its destination has no state";
    enum spw_rates_result result = spw_rates_find(map, &place, levels, &found, &source);
    if (result == SPW_RATES_NOT_FOUND)
        return "the rate table does not know its destination";
    if (result == SPW_RATES_FOUND && (found.combined_ppb != r->combined_ppb ||
                                      found.state_ppb != r->state_ppb || found.county_ppb != r->county_ppb ||
                                      found.city_ppb != r->city_ppb || found.special_ppb != r->special_ppb))
        return "the rate table has another rate for its destination";
    return NULL;
}

static const char *doubt_default_rate(const struct spw_map *map, const struct spw_flag_record *r)
{
    static struct spw_policy policy; /* the store thread's; 5.6 KB */
    if (spw_policy_read(map, &policy) &&
        (policy.on_no_rate != SPW_NO_RATE_DEFAULT || policy.default_rate_ppb != r->combined_ppb))
        return "its rate is not the configured default rate";
    return NULL;
}

static const char *doubt_rate(const struct spw_map *map, const struct spw_flag_record *r)
{
    switch (r->match) {
    case SPW_MATCH_ZIP9:
        return doubt_table_rate(map, r, SPW_RATE_ZIP9);
    case SPW_MATCH_ZIP5:
        return doubt_table_rate(map, r, SPW_RATE_ZIP5);
    case SPW_MATCH_STATE:
        return doubt_table_rate(map, r, SPW_RATE_STATE);
    case SPW_MATCH_COUNTRY:
        return doubt_table_rate(map, r, SPW_RATE_COUNTRY);
    case SPW_MATCH_DEFAULT:
        return doubt_default_rate(map, r);
    case SPW_MATCH_NO_NEXUS:
    case SPW_MATCH_EXEMPT:
        return r->combined_ppb || r->tax_minor ? "it has tax where it says there is none" : NULL;
    case SPW_MATCH_LEARNED:
    case SPW_MATCH_MIXED: /* lines at rates of their own, which the assumptions name */
        return strcmp(r->source, SPW_LEARNED_SOURCE) == 0 || source_is_active(map, r)
                   ? NULL
                   : "its source is none of the rate table's";
    default:
        return "it names no rate";
    }
}

/* Do the lines add up, and does each follow from the rate? */
static const char *doubt_amounts(const struct spw_flag_view *flag)
{
    const struct spw_flag_record *r = &flag->record;
    bool per_line = r->rounding == SPW_ROUNDING_HALF_UP_LINE,
         learned = r->match == SPW_MATCH_LEARNED || r->match == SPW_MATCH_MIXED;
    int64_t taxable = 0, tax = 0;
    if (r->combined_ppb > RATE_MAX_PPB)
        return "its rate is above 100 %";
    for (uint32_t i = 0; i < r->lines_count; i++) {
        struct spw_line_tax line;
        memcpy(&line, flag->lines + i * sizeof line, sizeof line);
        if (!is_amount(line.taxable_minor) || !is_amount(line.tax_minor))
            return "an amount is beyond all reason";
        if (per_line && !learned && line.tax_minor != spw_tax_minor(line.taxable_minor, r->combined_ppb))
            return "the tax of a line does not follow from its rate";
        taxable += line.taxable_minor;
        tax += line.tax_minor;
    }
    if (taxable != r->taxable_minor || tax != r->tax_minor)
        return "its lines do not add up to its totals";
    if (!per_line && !learned && tax != spw_tax_minor(taxable, r->combined_ppb))
        return "its tax does not follow from its rate";
    return NULL;
}

const char *spw_flag_doubt(const struct spw_map *map, const struct spw_flag_view *flag)
{
    if (flag->record.origin > 1)
        return "its origin is an import: nobody vouches for it";
    const char *doubt = doubt_account(map, &flag->record);
    if (!doubt)
        doubt = doubt_rate(map, &flag->record);
    return doubt ? doubt : doubt_amounts(flag);
}
