/* variance.c: see variance.h. Thread: any; pure. */
#include "sidecar/reconcile/variance.h"

#include <stdio.h>
#include <string.h>

#include "shm/spw_rates.h"
#include "sidecar/provider/decimal.h"

#define PPB     INT64_C(1000000000)
#define DAY_MS  INT64_C(86400000)
#define HOUR_MS INT64_C(3600000)

/* To whole minor units, half away from zero. */
static int64_t to_minor(spw_wide ppb)
{
    return (int64_t)(ppb < 0 ? -((-ppb + PPB / 2) / PPB) : (ppb + PPB / 2) / PPB);
}

static bool counts(const struct spw_line_tax *line)
{
    return line->tax_minor || line->taxable_minor;
}

int64_t spw_variance_bound_halves(const struct spw_variance_sides *s)
{
    int64_t lines = 0;
    for (uint32_t i = 0; i < s->lines_count; i++)
        lines += counts(&s->collected[i]) || counts(&s->live[i]);
    return lines * ((int64_t)s->jurisdictions_count + 1);
}

/* A rate out of tax and base, when nobody states one. */
static uint32_t effective_ppb(const struct spw_line_tax *line)
{
    if (line->taxable_minor <= 0 || line->tax_minor <= 0)
        return 0;
    spw_wide ppb = ((spw_wide)line->tax_minor * PPB + line->taxable_minor / 2) / line->taxable_minor;
    return ppb > UINT32_MAX ? UINT32_MAX : (uint32_t)ppb;
}

/* The cached rate of a line: the order's one rate, where this line's tax is what that gives. */
static uint32_t cached_ppb(const struct spw_variance_sides *s, uint32_t i)
{
    const struct spw_line_tax *c = &s->collected[i];
    int64_t by_rate = to_minor((spw_wide)c->taxable_minor * s->rate_ppb);
    int64_t off = by_rate - c->tax_minor;
    if (s->rate_ppb && off >= -1 && off <= 1) /* rounding by order moves a cent between lines */
        return s->rate_ppb;
    return effective_ppb(c);
}

/* The live rate of a line. Where it is not stated and the same base gives the same tax but for rounding, it is the
 * cached one: a cent on a small amount must not look like another rate. */
static uint32_t live_ppb(const struct spw_variance_sides *s, uint32_t i, uint32_t cached)
{
    const struct spw_line_tax *l = &s->live[i];
    if (s->live_rates && s->live_rates[i].known && (s->live_rates[i].ppb || !l->tax_minor))
        return s->live_rates[i].ppb;
    spw_wide halves = ((spw_wide)l->taxable_minor * cached - (spw_wide)l->tax_minor * PPB) * 2;
    if (halves < 0)
        halves = -halves;
    if (halves <= (spw_wide)(s->jurisdictions_count + 1) * PPB)
        return cached;
    return effective_ppb(l);
}

void spw_variance_split(const struct spw_variance_sides *s, struct spw_variance *out)
{
    spw_wide base = 0, rate = 0;
    memset(out, 0, sizeof *out);
    out->live_tax_minor = s->live_tax_minor;
    out->variance_minor = s->tax_collected_minor - s->live_tax_minor;
    if (s->cached_no_nexus != s->live_no_nexus) {
        out->nexus_minor = out->variance_minor;
        return;
    }
    for (uint32_t i = 0; i < s->lines_count; i++) {
        const struct spw_line_tax *c = &s->collected[i], *l = &s->live[i];
        uint32_t cached = cached_ppb(s, i), live = live_ppb(s, i, cached);
        if (!cached && !c->taxable_minor) /* nothing was taxed here: what is missing is its base */
            cached = live;
        base += (spw_wide)cached * (c->taxable_minor - l->taxable_minor);
        rate += ((spw_wide)cached - live) * l->taxable_minor;
    }
    out->base_minor = to_minor(base);
    out->rate_minor = to_minor(rate);
    out->rounding_noise_minor = out->variance_minor - out->base_minor - out->rate_minor;
    int64_t most = spw_variance_bound_halves(s) / 2;
    int64_t noise = out->rounding_noise_minor;
    int64_t kept = noise > most ? most : noise < -most ? -most : noise;
    out->rounding_noise_minor = kept;
    out->rate_minor += noise - kept;
}

static void say(char *out, size_t room, const char *format, int64_t a_minor, int64_t b_minor)
{
    char a[32], b[32];
    spw_format_minor(a_minor, a, sizeof a);
    spw_format_minor(b_minor, b, sizeof b);
    snprintf(out, room, format, a, b);
}

enum spw_reconcile_state spw_variance_judge(const struct spw_verdict_facts *f,
                                            const struct spw_conf_reconcile *conf, char *why, size_t room)
{
    const struct spw_variance *v = &f->variance;
    int64_t off = f->tax_collected_minor - f->tax_shown_minor, under = -v->variance_minor;
    why[0] = 0;
    if ((off < 0 ? -off : off) * 2 > f->bound_halves) {
        say(why, room,
            "the order says that %s was collected, the fallback had answered %s: not the same cart?",
            f->tax_collected_minor, f->tax_shown_minor);
        return SPW_RECONCILE_EXCEPTION;
    }
    if (!v->rate_minor && !v->base_minor && !v->nexus_minor)
        return SPW_RECONCILE_NOISE;
    if (!f->verified) {
        snprintf(why, room, "the flag is not verified, and there is more to it than rounding");
        return SPW_RECONCILE_EXCEPTION;
    }
    if (under == 0) /* causes that cancel one another: nothing is owed to anybody */
        return SPW_RECONCILE_NOISE;
    if (under < 0)
        return conf->refund ? SPW_RECONCILE_OVER_REFUND : SPW_RECONCILE_OVER_REMIT;
    if (under > conf->absorb_under_minor) {
        say(why, room, "under-collected by %s, more than absorb_under %s", under, conf->absorb_under_minor);
        return SPW_RECONCILE_EXCEPTION;
    }
    if (under > conf->absorb_period_minor - f->absorbed_minor) {
        say(why, room, "under-collected by %s: absorb_period %s is used up", under,
            conf->absorb_period_minor);
        return SPW_RECONCILE_EXCEPTION;
    }
    return SPW_RECONCILE_ABSORBED_UNDER;
}

static int32_t day_of(int64_t local_ms)
{
    return (int32_t)(local_ms >= 0 ? local_ms / DAY_MS : -((-local_ms + DAY_MS - 1) / DAY_MS));
}

bool spw_destination_same_day(const char *state, int64_t sale_unix_ms, int64_t now_unix_ms, const char *date)
{
    bool dated = !date[0];
    for (int64_t hours = spw_hours_behind(state) - 1; hours <= spw_hours_behind(state) + 1; hours++) {
        char text[16];
        int32_t day = day_of(sale_unix_ms - hours * HOUR_MS);
        if (day != day_of(now_unix_ms - hours * HOUR_MS))
            return false;
        spw_format_day(day, text, sizeof text);
        dated |= strcmp(text, date) == 0;
    }
    return dated;
}
