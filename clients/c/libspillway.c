/* libspillway.c: see libspillway.h. */
#include "spillway.h"

#include "libspillway.h"

struct spillway {
    struct spw_client client;
};

_Static_assert(SPW__TICKET_HEAD_BYTES <= 8 * sizeof(uint64_t), "a ticket must fit the caller's 64 bytes");
_Static_assert(sizeof(struct spw_ticket) <= SPILLWAY_RESERVATION_WORDS * sizeof(uint64_t),
               "and a reservation");

struct spillway *spillway_new(const char *pub_dir, const char *rw_dir, int on_unattached)
{
    struct spw_attach_options options = {0};
    options.pub_dir = pub_dir;
    options.rw_dir = rw_dir;
    options.on_unattached = (enum spw_unattached)on_unattached;
    struct spillway *s = calloc(1, sizeof *s);
    if (s && spw_attach(&s->client, &options) == SPW_STATUS_INVALID) {
        free(s);
        return NULL;
    }
    return s;
}

void spillway_destroy(struct spillway *s)
{
    if (s)
        spw_detach(&s->client);
    free(s);
}

int spillway_status(const struct spillway *s)
{
    return s ? (int)s->client.last_status : (int)SPW_STATUS_INVALID;
}

/* A language's buffer may lie at any address: it is copied as bytes. */
static int tell(const struct spw_admission *a, struct spillway_decision *decision)
{
    struct spillway_decision d;
    memset(&d, 0, sizeof d);
    d.verdict = a->verdict;
    d.may_call = a->may_call;
    d.cause = a->cause;
    d.observed = a->observed;
    d.wait_ns = a->wait_ns;
    d.start_at_ns = a->start_at_ns;
    d.version = a->version;
    if (decision)
        memcpy((void *)decision, &d, sizeof d);
    return a->may_call;
}

static int tell_bad_call(struct spillway_decision *decision)
{
    struct spw_admission a;
    memset(&a, 0, sizeof a);
    a.verdict = SPW_BAD_HANDLE;
    return tell(&a, decision);
}

int spillway_acquire(struct spillway *s, const char *account, const char *integration, uint64_t tokens,
                     uint64_t max_wait_ns, uint64_t ticket[8], struct spillway_decision *decision)
{
    struct spw_ref ref;
    struct spw_ticket t;
    if (!s || !ticket)
        return tell_bad_call(decision);
    spw_ref_init(&ref, account, integration);
    struct spw_admission a = spw_acquire(&s->client, &ref, tokens, max_wait_ns, &t);
    t.charged = 0; /* what it was charged on has no room here: it cannot be given up */
    memset((void *)ticket, 0, 8 * sizeof ticket[0]);
    memcpy((void *)ticket, &t, SPW__TICKET_HEAD_BYTES);
    return tell(&a, decision);
}

int spillway_reserve(struct spillway *s, const char *account, const char *integration, int endpoint,
                     uint64_t tokens, uint64_t max_wait_ns, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision)
{
    struct spw_ref ref;
    struct spw_ticket t;
    if (!s || !reservation)
        return tell_bad_call(decision);
    memset(&t, 0, sizeof t);
    spw_ref_init(&ref, account, integration);
    bool known = endpoint >= 0 && endpoint <= (int)SPW_ENDPOINT_REFUND;
    ref.endpoint = known ? (enum spw_endpoint)endpoint : SPW_ENDPOINT_OTHER;
    struct spw_admission a = spw_acquire(&s->client, &ref, tokens, max_wait_ns, &t);
    memcpy((void *)reservation, &t, sizeof t);
    return tell(&a, decision);
}

int spillway_confirm(struct spillway *s, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision)
{
    struct spw_ticket t;
    if (!s || !reservation)
        return tell_bad_call(decision);
    memcpy(&t, (const void *)reservation, sizeof t);
    struct spw_admission a = spw_reservation_confirm(&s->client, &t);
    memcpy((void *)reservation, &t, sizeof t);
    return tell(&a, decision);
}

void spillway_give_up(struct spillway *s, uint64_t reservation[SPILLWAY_RESERVATION_WORDS])
{
    struct spw_ticket t;
    if (!s || !reservation)
        return;
    memcpy(&t, (const void *)reservation, sizeof t);
    spw_give_up(&s->client, &t);
    memcpy((void *)reservation, &t, sizeof t);
}

void spillway_report(struct spillway *s, const uint64_t ticket[8], uint32_t http_status,
                     int64_t retry_after_ms)
{
    struct spw_ticket t;
    if (!s || !ticket)
        return;
    memcpy(&t, (const void *)ticket, SPW__TICKET_HEAD_BYTES);
    spw_report(&s->client, &t, http_status, retry_after_ms);
}

int64_t spillway_rate_ppb(struct spillway *s, const char *zip)
{
    struct spw_rate_record record;
    struct spw_source source;
    if (!s)
        return (int64_t)SPW_STATUS_INVALID;
    enum spw_status status = spw_rate_lookup(&s->client, zip, &record, &source);
    return status == SPW_STATUS_OK ? (int64_t)record.combined_ppb : (int64_t)status;
}

int spillway_order_placed(struct spillway *s, const char *quote_id, const char *order_id, int64_t tax_minor,
                          const char *currency)
{
    return s ? (int)spw_order_placed(&s->client, quote_id, order_id, tax_minor, currency)
             : (int)SPW_STATUS_INVALID;
}

int spillway_order_cancelled(struct spillway *s, const char *order_id)
{
    return s ? (int)spw_order_cancelled(&s->client, order_id) : (int)SPW_STATUS_INVALID;
}

int spillway_quote_abandoned(struct spillway *s, const char *quote_id)
{
    return s ? (int)spw_quote_abandoned(&s->client, quote_id) : (int)SPW_STATUS_INVALID;
}

int spillway_wait_durable(struct spillway *s, uint32_t timeout_ms)
{
    return s ? (int)spw_wait_durable(&s->client, timeout_ms) : (int)SPW_STATUS_INVALID;
}

const char *spillway_cause_name(int cause)
{
    return spw_cause_name((uint32_t)cause);
}

const char *spillway_status_text(int status)
{
    return spw_status_text((enum spw_status)status);
}
