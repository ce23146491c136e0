/* file.c: an order's way into the provider's own books, and back out of them: only what was read back is closed.
 *
 * Owns: the way of a filing from claim to result. Called by: engine.c. Thread: the loop thread.
 *
 *   needed -> (calculate) -> SENT is on the disk -> book -> read back -> filed
 *
 * The document's id is the order's own, where the provider takes such an id, so that what the shop itself has filed is
 * recognised; otherwise it is made of the flag's id. Either way it is the same at every try. A row that comes back as SENT
 * is read back before anything is sent again. A document made from a calculation keeps that calculation's id beside its
 * own: the same request again then has the same answer.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "sidecar/obs/log.h"
#include "sidecar/reconcile/engine_internal.h"

#define SENT_LEASE_MS       60000
#define DOCUMENT_MAX_BYTES  50u /* AvaTax's code; the others take more */
#define CALCULATION_DIVIDER '/'

/* Booking and reading back are the same request, which needs a calculation. */
static bool is_from_calculation(const struct spw_profile *profile)
{
    return profile->book && profile->book == profile->book_back;
}

uint32_t spw_file_calls_count(const struct spw_profile *profile)
{
    if (!profile->book)
        return 0;
    return is_from_calculation(profile) || profile->book_overwrites ? 3 : 2;
}

/* ---- results ---- */

static void filed_done(struct spw_store_job *job)
{
    struct spw_work *work = job->owner;
    struct spw_filed_request *r = &work->filed;
    struct spw_reconcile_account *account = work->account;
    bool ok = job->error.status == SPW_STATUS_OK;
    if (!ok && job->error.status != SPW_STATUS_CONFLICT)
        spw_log(SPW_LOG_WARN, "file.result", "account %s: %s; it is due again", account->conf->name,
                job->error.text);
    if (ok && r->filing == SPW_FILING_SENT && work->step == SPW_STEP_FILE_BOOK) {
        work->revision = r->revision;
        work->lease_unix_ms = r->next_try_unix_ms;
        spw_work_queue(work);
        return;
    }
    if (ok && r->filing == SPW_FILING_FILED)
        account->status.filed_total++;
    spw_work_free(work);
}

static void post(struct spw_work *work, enum spw_filing_state filing, int64_t next_unix_ms, const char *why)
{
    struct spw_filed_request *r = &work->filed;
    struct spw_store *store = work->account->engine->options.store;
    memset(r, 0, sizeof *r);
    memcpy(r->flag_id, work->row->record.flag_id, sizeof r->flag_id);
    r->job.done = filed_done;
    r->job.owner = work;
    r->expected_revision = work->revision;
    r->now_unix_ms = spw_work_wall_ms(work);
    r->filing = filing;
    r->next_try_unix_ms = next_unix_ms;
    snprintf(r->document_id, sizeof r->document_id, "%.63s%.1s%.63s", work->document,
             work->calculation[0] ? "/" : "", work->calculation);
    snprintf(r->why, sizeof r->why, "%s", why);
    snprintf(r->who, sizeof r->who, "file");
    spw_store_filed(store, r);
}

void spw_file_set_aside(struct spw_work *work, const char *why)
{
    work->account->status.filing_failed_total++;
    post(work, SPW_FILING_FAILED, INT64_MAX, why);
}

void spw_file_failed(struct spw_work *work, const char *why)
{
    uint32_t tries = work->row->reconciliation.filing_attempts;
    if (tries >= SPW_TRIES_MAX_COUNT) {
        char text[SPW_WHY_BYTES];
        snprintf(text, sizeof text, "tried %u times; at last: %.200s", tries, why);
        spw_file_set_aside(work, text);
        return;
    }
    work->account->status.retries_total++;
    /* What was sent stays SENT: perhaps it arrived, so that it is read back first. */
    bool sent = work->row->reconciliation.filing == SPW_FILING_SENT || work->step == SPW_STEP_FILE_BOOK ||
                work->step == SPW_STEP_FILE_BACK;
    work->step = SPW_STEP_FILE_BACK; /* nothing follows */
    post(work, sent ? SPW_FILING_SENT : SPW_FILING_FAILED, spw_work_again_ms(work, tries), why);
}

static void send_it(struct spw_work *work)
{
    work->step = SPW_STEP_FILE_BOOK;
    post(work, SPW_FILING_SENT, spw_work_wall_ms(work) + SENT_LEASE_MS, "");
}

/* It is in the books: with the tax that was collected? */
static void close_it(struct spw_work *work, const struct spw_booked_answer *answer)
{
    char why[SPW_WHY_BYTES], there[32], collected[32];
    if (!is_from_calculation(work->account->profile) && answer->has_tax &&
        answer->tax_minor != work->row->tax_collected_minor && !work->look_only) {
        spw_format_minor(answer->tax_minor, there, sizeof there);
        spw_format_minor(work->row->tax_collected_minor, collected, sizeof collected);
        snprintf(why, sizeof why,
                 "the books hold document %s with tax %s, collected was %s: somebody else filed it",
                 work->document, there, collected);
        spw_file_set_aside(work, why);
        return;
    }
    post(work, SPW_FILING_FILED, 0, "read back");
}

/* ---- the beginning ---- */

static bool is_plain_id(const char *id)
{
    size_t bytes = strlen(id);
    for (size_t i = 0; i < bytes; i++) {
        if (!isalnum((unsigned char)id[i]) && id[i] != '-' && id[i] != '_')
            return false;
    }
    return bytes && bytes <= DOCUMENT_MAX_BYTES;
}

static void name_document(struct spw_work *work)
{
    const struct spw_flag_row *row = work->row;
    const char *known = row->reconciliation.document_id, *divider = strchr(known, CALCULATION_DIVIDER);
    if (known[0]) {
        int bytes = divider ? (int)(divider - known) : (int)strlen(known);
        snprintf(work->document, sizeof work->document, "%.*s", bytes, known);
        snprintf(work->calculation, sizeof work->calculation, "%s", divider ? divider + 1 : "");
    } else if (row->orders_count == 1 && is_plain_id(row->order_id)) {
        snprintf(work->document, sizeof work->document, "%s", row->order_id);
    } else {
        snprintf(work->document, sizeof work->document, "SPW-%s", row->record.flag_id + strlen("sf_"));
    }
}

void spw_file_begin(struct spw_work *work)
{
    const struct spw_flag_row *row = work->row;
    const struct spw_profile *profile = work->account->profile;
    bool sent = row->reconciliation.filing == SPW_FILING_SENT;
    name_document(work);
    /* The order was taken back or changed after it was sent: look whether it arrived, send nothing. */
    work->look_only =
        row->state != SPW_FLAG_CONFIRMED || row->reconciliation.state == SPW_RECONCILE_EXCEPTION;
    if (!profile || !profile->book) {
        spw_file_set_aside(work, "its account is not in the configuration any more");
    } else if (!work->parsed) {
        spw_file_set_aside(work,
                           "its request cannot be read any more: it was imported without, or forgotten");
    } else if (is_from_calculation(profile)) {
        work->step = work->calculation[0] ? SPW_STEP_FILE_BACK : SPW_STEP_FILE_CALCULATE;
        if (work->look_only && !work->calculation[0])
            spw_file_set_aside(work, "its order changed before a document was made");
        else
            spw_work_queue(work);
    } else if (sent || work->look_only || profile->book_overwrites) {
        work->step = SPW_STEP_FILE_LOOK;
        spw_work_queue(work);
    } else {
        send_it(work);
    }
}

/* ---- calls ---- */

enum spw_status spw_file_build(struct spw_work *work, const struct spw_credential *credential,
                               struct spw_call *out, struct spw_error *err)
{
    const struct spw_profile *profile = work->account->profile;
    struct spw_booking booking = {.quote = &work->quote,
                                  .collected = work->row->lines,
                                  .tax_collected_minor = work->row->tax_collected_minor,
                                  .order_id = work->row->order_id,
                                  .document = work->document,
                                  .date = work->date,
                                  .calculation = work->calculation};
    char key[SPW_CALLER_ID_BYTES + 16];
    if (work->step == SPW_STEP_FILE_CALCULATE) {
        snprintf(key, sizeof key, "spw-file-%s", work->document);
        return profile->build(&work->quote, work->account->conf, credential, key, out, err);
    }
    return work->step == SPW_STEP_FILE_BOOK
               ? profile->book(&booking, work->account->conf, credential, out, err)
               : profile->book_back(&booking, work->account->conf, credential, out, err);
}

static enum spw_answer_kind kind_of(enum spw_booked booked)
{
    switch (booked) {
    case SPW_BOOKED_THROTTLED:
        return SPW_ANSWER_THROTTLED;
    case SPW_BOOKED_FAILED:
        return SPW_ANSWER_ERROR;
    case SPW_BOOKED_REJECTED:
        return SPW_ANSWER_REJECTED;
    default:
        return SPW_ANSWER_OK;
    }
}

static void go_on(struct spw_work *work, const struct spw_booked_answer *answer)
{
    bool back = work->step != SPW_STEP_FILE_BOOK;
    switch (answer->booked) {
    case SPW_BOOKED:
    case SPW_BOOKED_ALREADY:
        if (back) {
            close_it(work, answer);
        } else {
            work->step = SPW_STEP_FILE_BACK;
            spw_work_queue(work);
        }
        return;
    case SPW_BOOKED_MISSING:
        if (work->step == SPW_STEP_FILE_BACK)
            spw_file_failed(work, "it was taken, and is not in the books yet");
        else if (work->look_only)
            spw_file_set_aside(work, "its order changed after it was sent; it is not in the books");
        else
            send_it(work);
        return;
    case SPW_BOOKED_REJECTED:
        spw_file_set_aside(work, answer->detail);
        return;
    default:
        spw_file_failed(work, answer->detail);
    }
}

static enum spw_answer_kind take_calculation(struct spw_work *work, const struct spw_errand_answer *a)
{
    struct spw_answer answer = {.kind = SPW_ANSWER_OK};
    char why[SPW_WHY_BYTES];
    work->account->profile->read(&work->quote, a->status, a->headers, a->headers_bytes, a->body,
                                 a->body_bytes, &answer);
    enum spw_answer_kind kind = answer.kind;
    snprintf(why, sizeof why, "no calculation to file: status %u %.120s", a->status, answer.detail);
    if (kind == SPW_ANSWER_OK && strlen(answer.calculation) < sizeof work->calculation) {
        snprintf(work->calculation, sizeof work->calculation, "%s", answer.calculation);
        send_it(work);
    } else if (kind == SPW_ANSWER_REJECTED) {
        spw_file_set_aside(work, why);
    } else {
        spw_file_failed(work, why);
    }
    spw_answer_clean_up(&answer);
    return kind;
}

enum spw_answer_kind spw_file_answered(struct spw_work *work, const struct spw_errand_answer *a)
{
    const struct spw_profile *profile = work->account->profile;
    struct spw_booking booking = {
        .quote = &work->quote, .document = work->document, .order_id = work->row->order_id};
    struct spw_booked_answer answer;
    if (!a->answered) {
        char why[SPW_WHY_BYTES];
        snprintf(why, sizeof why, "no answer: %.200s", a->detail);
        spw_file_failed(work, why);
        return SPW_ANSWER_BROKEN;
    }
    if (work->step == SPW_STEP_FILE_CALCULATE)
        return take_calculation(work, a);
    if (work->step == SPW_STEP_FILE_BOOK)
        profile->read_book(&booking, a->status, a->body, a->body_bytes, &answer);
    else
        profile->read_book_back(&booking, a->status, a->body, a->body_bytes, &answer);
    go_on(work, &answer);
    return kind_of(answer.booked);
}
