/* job.c: the end of a quote: live, rejected, fallback with its flag, none; and an answer told again.
 *
 * Owns: the flag of a quote, the counters of its account. Called by: decide.c, flight.c. Thread: the loop thread.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spw_flag.h"
#include "sidecar/http/decide_internal.h"
#include "sidecar/obs/log.h"

#define REPEAT_NS                                                                                            \
    UINT64_C(600000000000) /* how long a decision is remembered: far longer than any client retries */

struct spw_job *spw_job_new(struct spw_decider *d)
{
    struct spw_job *job = d->spare_jobs;
    if (!job)
        job = malloc(sizeof *job);
    else {
        d->spare_jobs = job->next;
        d->spare_jobs_count--;
    }
    if (job) {
        memset(job, 0, offsetof(struct spw_job, fallback));
        job->decider = d;
        d->jobs_count++;
    }
    return job;
}

void spw_job_free(struct spw_job *job)
{
    spw_loop_timer_cancel(job->decider->options.loop, &job->deadline);
    free(job->handback);
    struct spw_decider *d = job->decider;
    d->jobs_count--;
    if (d->spare_jobs_count == SPW_SPARES_MAX_COUNT) {
        free(job);
        return;
    }
    job->next = d->spare_jobs;
    d->spare_jobs = job;
    d->spare_jobs_count++;
}

static void count_latency(struct spw_decider_counters *c, enum spw_decision decision, uint64_t took_ns)
{
    uint32_t bucket = 0;
    while (bucket < SPW_LATENCY_BUCKETS && (double)took_ns / 1e9 > spw_latency_bounds_s[bucket])
        bucket++;
    c->latency[decision][bucket]++;
    c->latency_sum_us[decision] += took_ns / 1000;
}

static void tell(struct spw_job *job, enum spw_decision decision)
{
    struct spw_result *r = &job->result;
    r->decision = decision;
    r->request = &job->request;
    r->provider = job->account->profile->name;
    if (decision != SPW_DECISION_FALLBACK && decision != SPW_DECISION_NONE)
        r->type = SPW_FALLBACK_NONE;
    count_latency(&job->account->counters, decision, spw_now_ns() - job->started_ns);
    spw_log_traced(SPW_LOG_DEBUG, "quote.decided", &job->trace,
                   "account %s: %s, %s, %s, quote %s, attempts %u", job->account->conf->name,
                   spw_decision_name(decision), spw_fallback_name(r->type), spw_cause_name(r->cause),
                   r->quote_id[0] ? r->quote_id : "-", r->attempts);
    job->done(job->owner, r);
    spw_job_free(job);
}

/* Where the caller may ask for this very decision again. What was handed back is not in the ledger: it is told once. A
 * live answer in the provider's own form is the provider's to repeat. */
static void remember(const struct spw_job *job)
{
    struct spw_decider *d = job->decider;
    const struct spw_result *r = &job->result;
    uint64_t now_ns = spw_decider_now(d);
    if (!r->handback && !r->native)
        spw_reuse_put(d->decisions, &job->decision_key, now_ns, now_ns + REPEAT_NS, r);
}

static void finish(struct spw_job *job, enum spw_decision decision)
{
    struct spw_result *r = &job->result;
    struct spw_decider_counters *c = &job->account->counters;
    bool fallback = decision == SPW_DECISION_FALLBACK, none = decision == SPW_DECISION_NONE;
    r->decision = decision;
    r->decided_unix_ms = spw_wall_ms();
    c->decisions[decision]++;
    if (fallback)
        c->fallbacks[r->type]++;
    if (fallback)
        c->matches[job->result.fallback->match % SPW_MATCH_COUNT]++;
    if (fallback || none)
        spw_state_fallback_count(job->decider->options.state, job->account_index,
                                 none ? SPW_FALLBACK_NONE : r->type);
    if (fallback || decision == SPW_DECISION_LIVE)
        remember(job);
    tell(job, decision);
}

/* ---- live, rejected ---- */

void spw_job_live(struct spw_job *job, const struct spw_answer *answer,
                  const struct spw_http_response *native)
{
    struct spw_result *r = &job->result;
    if (spw_job_repeated(job))
        return;
    spw_decider_new_id(job->decider, r->quote_id, "sq_");
    r->tax_minor = answer->tax_minor;
    r->lines = answer->lines;
    r->lines_count = answer->lines_count;
    r->answer = answer;
    r->native = native;
    r->cause = SPW_CAUSE_NONE;
    spw_store_note_live(job->decider->options.store, r->quote_id, job->account_index);
    uint64_t now_ns = spw_decider_now(job->decider);
    uint64_t reuse_ms = job->account->conf->reuse_ms;
    r->decision = SPW_DECISION_LIVE;
    if (reuse_ms && !native)
        spw_reuse_put(job->decider->carts, &job->cart_key, now_ns, now_ns + reuse_ms * UINT64_C(1000000), r);
    finish(job, SPW_DECISION_LIVE);
}

void spw_job_rejected(struct spw_job *job, const struct spw_answer *answer,
                      const struct spw_http_response *native)
{
    job->result.answer = answer;
    job->result.native = native;
    finish(job, SPW_DECISION_REJECTED);
}

/* ---- fallback ---- */

size_t spw_job_request_json(const struct spw_job *job)
{
    struct spw_decider *d = job->decider;
    return spw_request_json(&job->request, d->text, sizeof d->text);
}

static enum spw_status record_flag(struct spw_job *job, struct spw_flag_record *record)
{
    struct spw_flag_facts f;
    memset(&f, 0, sizeof f);
    f.request = &job->request;
    f.request_bytes = spw_job_request_json(job);
    f.request_json = job->decider->text;
    f.answer = &job->fallback;
    f.lines = job->lines;
    f.flag_id = job->result.flag_id;
    f.quote_id = job->result.quote_id;
    f.decision_id = job->result.decision_id;
    f.account_index = job->account_index;
    f.account_generation = job->account_generation;
    f.type = job->result.type;
    f.cause = job->result.cause;
    f.origin = 1;
    f.uid = job->uid;
    f.provider_status = job->result.provider_status;
    f.attempts = job->result.attempts;
    f.breaker_state = job->admission.breaker_state;
    f.tokens_milli = spw_admission_tokens_milli(&job->admission);
    f.config_version = job->admission.version;
    spw_flag_fill(job->decider->map, &f, record);
    enum spw_status status = spw_flag_write(job->decider->map, (uint32_t)job->decider->id_low, record, &f);
    if (status == SPW_STATUS_OK)
        spw_store_wake(job->decider->options.store);
    return status;
}

/* No cell was free: the caller stores the flag itself, or gets no fallback; as configured. */
static void flag_refused(struct spw_job *job, const struct spw_flag_record *record)
{
    const char *json = job->decider->text;
    size_t bytes = spw_job_request_json(job), room = bytes + 2048;
    /* An SDK would not know what to do with a flag in its hands. */
    bool hand_back = job->decider->options.conf->on_full == SPW_ON_FULL_HAND_BACK && !job->is_native;
    spw_stat_count(job->decider->map, job->account_index, SPW_STAT_FLAG_REFUSED);
    job->handback = hand_back ? malloc(room) : NULL;
    if (!job->handback || !spw_flag_line(record, json, bytes, job->handback, room)) {
        job->result.reason = "flag-refused";
        finish(job, SPW_DECISION_NONE);
        return;
    }
    job->result.flag_id[0] = 0;
    job->result.handback = job->handback;
    finish(job, SPW_DECISION_FALLBACK);
}

void spw_job_fall_back(struct spw_job *job, enum spw_fallback type, enum spw_cause cause)
{
    struct spw_result *r = &job->result;
    struct spw_flag_record record;
    if (spw_job_repeated(job))
        return;
    r->type = type;
    r->cause = cause;
    r->answer = NULL;
    spw_fallback_compute(job->decider->map, &job->request, spw_wall_ms(), job->lines, &job->fallback);
    if (job->fallback.why_not != SPW_ANSWERED) {
        r->reason = spw_no_answer_name(job->fallback.why_not);
        finish(job, SPW_DECISION_NONE);
        return;
    }
    spw_decider_new_id(job->decider, r->quote_id, "sq_");
    spw_decider_new_id(job->decider, r->flag_id, "sf_");
    r->tax_minor = job->fallback.tax_minor;
    r->lines = job->lines;
    r->lines_count = job->request.line_count + 1;
    r->fallback = &job->fallback;
    if (record_flag(job, &record) != SPW_STATUS_OK) {
        flag_refused(job, &record);
        return;
    }
    finish(job, SPW_DECISION_FALLBACK);
}

/* ---- told again ---- */

void spw_job_repeat(struct spw_job *job, const struct spw_result *kept)
{
    job->account->counters.repeated++;
    job->result = *kept;
    tell(job, kept->decision);
}

void spw_job_reuse(struct spw_job *job, const struct spw_result *kept)
{
    struct spw_result *r = &job->result;
    char decision_id[SPW_CALLER_ID_BYTES], quote_ref[SPW_CALLER_ID_BYTES];
    memcpy(decision_id, r->decision_id, sizeof decision_id);
    memcpy(quote_ref, r->quote_ref, sizeof quote_ref);
    *r = *kept;
    memcpy(r->decision_id, decision_id, sizeof decision_id);
    memcpy(r->quote_ref, quote_ref, sizeof quote_ref);
    spw_decider_new_id(job->decider, r->quote_id, "sq_");
    r->reused = true;
    spw_store_note_live(job->decider->options.store, r->quote_id, job->account_index);
    r->attempts = 0;
    r->provider_ms = 0;
    job->account->counters.reused++;
    finish(job, SPW_DECISION_LIVE);
}

/* A row of the ledger as the answer it was. */
struct past {
    const struct spw_job *job;
    size_t request_bytes; /* of the job's, in the decider's text */
    struct spw_result result;
    struct spw_fallback_answer fallback;
    struct spw_line_tax *lines;
    bool found;
};

static void take_row(struct past *past, const struct spw_flag_row *row)
{
    const struct spw_flag_record *f = &row->record;
    struct spw_result *r = &past->result;
    struct spw_fallback_answer *a = &past->fallback;
    size_t assumed = strlen(row->assumptions);
    memset(r, 0, sizeof *r);
    memset(a, 0, sizeof *a);
    r->decision = SPW_DECISION_FALLBACK;
    r->type = (enum spw_fallback)f->type;
    r->cause = (enum spw_cause)f->cause;
    memcpy(r->quote_id, f->quote_id, sizeof r->quote_id);
    memcpy(r->flag_id, f->flag_id, sizeof r->flag_id);
    memcpy(r->decision_id, f->decision_id, sizeof r->decision_id);
    memcpy(r->quote_ref, f->quote_ref, sizeof r->quote_ref);
    memcpy(r->account, f->account, sizeof r->account);
    r->decided_unix_ms = f->created_unix_ms;
    r->tax_minor = f->tax_minor;
    r->provider_status = f->provider_status;
    r->attempts = f->attempts;
    r->lines = past->lines;
    r->lines_count = f->lines_count;
    r->fallback = a;
    a->match = (enum spw_match)f->match;
    a->rounding = (enum spw_rounding)f->rounding;
    a->rate.state_ppb = f->state_ppb;
    a->rate.county_ppb = f->county_ppb;
    a->rate.city_ppb = f->city_ppb;
    a->rate.special_ppb = f->special_ppb;
    a->rate.combined_ppb = f->combined_ppb;
    a->source.as_of_day = f->as_of_day;
    memcpy(a->source.name, f->source, sizeof a->source.name);
    memcpy(a->source.sha256, f->source_sha256, sizeof a->source.sha256);
    a->age_days = f->age_days;
    a->stale = f->stale != 0;
    a->total_minor = f->total_minor;
    a->taxable_minor = f->taxable_minor;
    a->tax_minor = f->tax_minor;
    a->assumptions_bytes = assumed < sizeof a->assumptions ? assumed : sizeof a->assumptions - 1;
    memcpy(a->assumptions, row->assumptions, a->assumptions_bytes);
    memcpy(past->lines, row->lines, f->lines_count * sizeof row->lines[0]);
}

static bool look_at_row(void *owner, const struct spw_flag_row *row)
{
    struct past *past = owner;
    const struct spw_job *job = past->job;
    past->found = strcmp(row->record.account, job->request.account) == 0 &&
                  strcmp(row->record.decision_id, job->result.decision_id) == 0 &&
                  row->record.lines_count == job->request.line_count + 1 &&
                  strlen(row->request_json) == past->request_bytes &&
                  memcmp(row->request_json, job->decider->text, past->request_bytes) == 0;
    if (past->found)
        take_row(past, row);
    return !past->found;
}

#define CROWDED_NS UINT64_C(60000000000)

/* Before the last start, or pushed out of memory while young: what was answered with a flag is in the ledger. It is asked only
 * while memory cannot know, so that quotes do not wait for the disk. */
static bool ledger_may_know(const struct spw_decider *d)
{
    uint64_t now_ns = spw_decider_now(d), crowded_ns = spw_reuse_crowded_ns(d->decisions);
    return (d->has_past && now_ns - d->started_ns < REPEAT_NS) ||
           (crowded_ns && now_ns - crowded_ns < CROWDED_NS);
}

static bool repeat_from_ledger(struct spw_job *job)
{
    struct past *past = calloc(1, sizeof *past);
    struct spw_error err;
    bool found = false;
    if (past) {
        past->job = job;
        past->lines = job->lines;
        past->request_bytes = spw_job_request_json(job);
        found = spw_store_find(job->decider->options.store, job->result.decision_id, 16, look_at_row, past,
                               &err) == SPW_STATUS_OK &&
                past->found;
    }
    if (found) {
        past->result.handback = NULL;
        job->result = past->result;
        remember(job);
        spw_job_repeat(job, &past->result);
    }
    free(past);
    return found;
}

bool spw_job_repeated(struct spw_job *job)
{
    struct spw_result kept;
    struct spw_decider *d = job->decider;
    if (!job->has_decision_key)
        return false;
    if (spw_reuse_get(d->decisions, &job->decision_key, spw_decider_now(d), &kept)) {
        spw_job_repeat(job, &kept);
        return true;
    }
    bool first_look = !job->flight && !job->looked;
    job->looked = true;
    return first_look && ledger_may_know(d) && repeat_from_ledger(job);
}
