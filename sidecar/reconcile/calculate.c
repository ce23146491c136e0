/* calculate.c: a row's live tax, and what follows from it.
 *
 * Owns: the way of a work from claim to result. Called by: engine.c. Thread: the loop thread.
 *
 * The absorb cap of the day is asked of the ledger for one row at a time: the next sum is asked for after the last result
 * was handed over, and the ledger does its jobs in order, so that no two rows spend the same cents.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_rates.h"
#include "sidecar/obs/log.h"
#include "sidecar/reconcile/engine_internal.h"
#include "sidecar/reconcile/variance.h"

#define DAY_MS INT64_C(86400000)

/* ---- results ---- */

static void reconciled_done(struct spw_store_job *job)
{
    struct spw_work *work = job->owner;
    struct spw_reconciled_request *r = &work->reconciled;
    struct spw_reconcile_account *account = work->account;
    if (job->error.status == SPW_STATUS_OK && r->state != SPW_RECONCILE_PENDING)
        account->status.reconciled_total++;
    else if (job->error.status != SPW_STATUS_OK && job->error.status != SPW_STATUS_CONFLICT)
        spw_log(SPW_LOG_WARN, "reconcile.result", "account %s: %s; it is due again", account->conf->name,
                job->error.text);
    if (r->filing == SPW_FILING_NEEDED)
        account->due_at_ns[SPW_DUE_FILE] = 0;
    spw_work_free(work);
}

static void post(struct spw_work *work, enum spw_reconcile_state state, const char *why)
{
    struct spw_reconciled_request *r = &work->reconciled;
    struct spw_reconcile *engine = work->account->engine;
    const struct spw_conf_reconcile *conf = &engine->options.conf->reconcile;
    memcpy(r->flag_id, work->row->record.flag_id, sizeof r->flag_id);
    r->job.done = reconciled_done;
    r->job.owner = work;
    r->expected_revision = work->revision;
    r->now_unix_ms = spw_work_wall_ms(work);
    r->state = state;
    snprintf(r->why, sizeof r->why, "%s", why);
    snprintf(r->who, sizeof r->who, "reconcile");
    if (state != SPW_RECONCILE_PENDING && state != SPW_RECONCILE_EXCEPTION && conf->file)
        r->filing = work->account->profile->book ? SPW_FILING_NEEDED : SPW_FILING_NOT_POSSIBLE;
    spw_store_reconciled(engine->options.store, r);
}

void spw_calculate_exception(struct spw_work *work, const char *why)
{
    post(work, SPW_RECONCILE_EXCEPTION, why);
}

void spw_calculate_failed(struct spw_work *work, const char *why)
{
    uint32_t tries = work->row->reconciliation.attempts;
    if (tries >= SPW_TRIES_MAX_COUNT) {
        char text[SPW_WHY_BYTES];
        snprintf(text, sizeof text, "tried %u times; at last: %.200s", tries, why);
        post(work, SPW_RECONCILE_EXCEPTION, text);
        return;
    }
    work->account->status.retries_total++;
    work->reconciled.next_try_unix_ms = spw_work_again_ms(work, tries);
    post(work, SPW_RECONCILE_PENDING, why);
}

/* ---- the verdict ---- */

static void judge(struct spw_work *work, int64_t absorbed_minor)
{
    const struct spw_flag_row *row = work->row;
    struct spw_verdict_facts facts = {.variance = work->pending.variance,
                                      .verified = row->verified,
                                      .tax_shown_minor = row->record.tax_minor,
                                      .tax_collected_minor = row->tax_collected_minor,
                                      .bound_halves = work->pending.bound_halves,
                                      .absorbed_minor = absorbed_minor};
    char why[SPW_WHY_BYTES];
    enum spw_reconcile_state state =
        spw_variance_judge(&facts, &work->account->engine->options.conf->reconcile, why, sizeof why);
    work->reconciled.live_known = true;
    work->reconciled.variance = work->pending.variance;
    post(work, state, why);
}

static void ask_absorbed(struct spw_work *work);

static void absorbed_done(struct spw_store_job *job)
{
    struct spw_work *work = job->owner;
    struct spw_reconcile *engine = work->account->engine;
    engine->judging = work->judge_next;
    if (job->error.status == SPW_STATUS_OK) {
        judge(work, work->absorbed.absorbed_minor);
    } else {
        spw_log(SPW_LOG_WARN, "reconcile.sum", "%s; the row is due again", job->error.text);
        spw_work_free(work);
    }
    if (engine->judging && !engine->stopped)
        ask_absorbed(engine->judging);
}

static void ask_absorbed(struct spw_work *work)
{
    int64_t now_ms = spw_work_wall_ms(work);
    work->absorbed.job.done = absorbed_done;
    work->absorbed.job.owner = work;
    memcpy(work->absorbed.currency, work->row->record.currency, sizeof work->absorbed.currency);
    work->absorbed.from_unix_ms = now_ms - now_ms % DAY_MS;
    work->absorbed.until_unix_ms = INT64_MAX;
    spw_store_absorbed(work->account->engine->options.store, &work->absorbed);
}

/* Only what may be absorbed needs the sum. */
static void conclude(struct spw_work *work)
{
    struct spw_reconcile *engine = work->account->engine;
    struct spw_work **end = &engine->judging;
    if (work->pending.variance.variance_minor >= 0) {
        judge(work, 0);
        return;
    }
    bool first = !engine->judging;
    while (*end)
        end = &(*end)->judge_next;
    *end = work;
    if (first)
        ask_absorbed(work);
}

/* ---- the answer ---- */

static void take_live(struct spw_work *work, const struct spw_answer *answer)
{
    const struct spw_flag_row *row = work->row;
    struct spw_variance_sides sides = {.collected = row->lines,
                                       .live = answer->lines,
                                       .live_rates = answer->line_rates,
                                       .lines_count = row->record.lines_count,
                                       .tax_collected_minor = row->tax_collected_minor,
                                       .live_tax_minor = answer->tax_minor,
                                       .rate_ppb = row->record.combined_ppb,
                                       .cached_no_nexus = row->record.match == SPW_MATCH_NO_NEXUS,
                                       .live_no_nexus = answer->no_nexus,
                                       .jurisdictions_count =
                                           work->account->profile->jurisdictions_rounded_count};
    if (answer->lines_count != row->record.lines_count) {
        spw_calculate_exception(work, "the flag's lines are not those the provider calculated");
        return;
    }
    if (sides.cached_no_nexus && !answer->tax_minor) /* they agree */
        sides.live_no_nexus = true;
    spw_variance_split(&sides, &work->pending.variance);
    work->pending.bound_halves = spw_variance_bound_halves(&sides);
    conclude(work);
}

static void take_answer(struct spw_work *work, const struct spw_answer *answer, uint32_t status, bool batch)
{
    char why[SPW_WHY_BYTES];
    const char *name = work->account->profile->name;
    switch (answer->kind) {
    case SPW_ANSWER_OK:
        take_live(work, answer);
        return;
    case SPW_ANSWER_REJECTED:
        if (batch) { /* which of them is at fault, only a call of its own says */
            work->alone = true;
            spw_work_queue(work);
            return;
        }
        snprintf(why, sizeof why, "%s refuses to calculate it: status %u", name, status);
        spw_calculate_exception(work, why);
        return;
    case SPW_ANSWER_THROTTLED:
    case SPW_ANSWER_BUSY:
        snprintf(why, sizeof why, "%s asks to wait: status %u", name, status);
        break;
    default:
        snprintf(why, sizeof why, "%s answered status %u: %.120s", name, status, answer->detail);
    }
    spw_calculate_failed(work, why);
}

enum spw_answer_kind spw_calculate_answered(struct spw_work **works, uint32_t count,
                                            const struct spw_errand_answer *a)
{
    const struct spw_profile *profile = works[0]->account->profile;
    const struct spw_quote_request *quotes[SPW_DUE_MAX_COUNT];
    const char *keys[SPW_DUE_MAX_COUNT];
    char why[SPW_WHY_BYTES];
    struct spw_answer *answers = a->answered ? calloc(count, sizeof *answers) : NULL;
    if (!answers) {
        snprintf(why, sizeof why, "no answer: %.200s", a->detail);
        for (uint32_t i = 0; i < count; i++)
            spw_calculate_failed(works[i], why);
        return SPW_ANSWER_BROKEN;
    }
    for (uint32_t i = 0; i < count; i++) {
        quotes[i] = &works[i]->quote;
        keys[i] = works[i]->row->record.quote_id;
    }
    if (count > 1)
        profile->read_batch(quotes, count, keys, a->status, a->headers, a->headers_bytes, a->body,
                            a->body_bytes, answers);
    else
        profile->read(quotes[0], a->status, a->headers, a->headers_bytes, a->body, a->body_bytes, answers);
    enum spw_answer_kind kind = answers[0].kind;
    for (uint32_t i = 0; i < count; i++) {
        if (answers[i].kind == SPW_ANSWER_OK)
            kind = SPW_ANSWER_OK;
        take_answer(works[i], &answers[i], a->status, count > 1);
        spw_answer_clean_up(&answers[i]);
    }
    free(answers);
    return kind;
}

/* ---- the beginning ---- */

void spw_calculate_begin(struct spw_work *work)
{
    const struct spw_flag_record *f = &work->row->record;
    char why[SPW_WHY_BYTES], sale[16], today[16];
    work->step = SPW_STEP_CALCULATE;
    if (!work->account->profile) {
        snprintf(why, sizeof why,
                 "account %.63s is not in the configuration any more, or its provider calculates nothing",
                 f->account);
        spw_calculate_exception(work, why);
        return;
    }
    if (!work->parsed) {
        spw_calculate_exception(
            work, "its request cannot be calculated again: it was imported without, or forgotten");
        return;
    }
    int64_t now_ms = spw_work_wall_ms(work);
    if (!work->account->profile->takes_date &&
        !spw_destination_same_day(f->state, f->created_unix_ms, now_ms, f->date)) {
        spw_format_day(spw_day_there(f->state, f->created_unix_ms), sale, sizeof sale);
        spw_format_day(spw_day_there(f->state, now_ms), today, sizeof today);
        snprintf(why, sizeof why,
                 "%s cannot calculate for a past date: the sale is of %.11s, at its destination it is or may "
                 "be another"
                 " day, %s",
                 work->account->profile->name, f->date[0] ? f->date : sale, today);
        spw_calculate_exception(work, why);
        return;
    }
    spw_work_queue(work);
}
