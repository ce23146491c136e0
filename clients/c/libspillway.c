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
    return s->client.last_status;
}

static int tell(const struct spw_admission *a, struct spillway_decision *decision)
{
    memset(decision, 0, sizeof *decision);
    decision->verdict = a->verdict;
    decision->may_call = a->may_call;
    decision->cause = a->cause;
    decision->observed = a->observed;
    decision->wait_ns = a->wait_ns;
    decision->start_at_ns = a->start_at_ns;
    decision->version = a->version;
    return a->may_call;
}

int spillway_acquire(struct spillway *s, const char *account, const char *integration, uint64_t tokens,
                     uint64_t max_wait_ns, uint64_t ticket[8], struct spillway_decision *decision)
{
    struct spw_ref ref;
    struct spw_ticket t;
    spw_ref_init(&ref, account, integration);
    struct spw_admission a = spw_acquire(&s->client, &ref, tokens, max_wait_ns, &t);
    t.charged = 0; /* what it was charged on has no room here: it cannot be given up */
    memset(ticket, 0, 8 * sizeof ticket[0]);
    memcpy(ticket, &t, SPW__TICKET_HEAD_BYTES);
    return tell(&a, decision);
}

int spillway_reserve(struct spillway *s, const char *account, const char *integration, int endpoint,
                     uint64_t tokens, uint64_t max_wait_ns, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision)
{
    struct spw_ref ref;
    struct spw_ticket t;
    memset(&t, 0, sizeof t);
    spw_ref_init(&ref, account, integration);
    ref.endpoint = (enum spw_endpoint)endpoint;
    struct spw_admission a = spw_acquire(&s->client, &ref, tokens, max_wait_ns, &t);
    memcpy(reservation, &t, sizeof t);
    return tell(&a, decision);
}

int spillway_confirm(struct spillway *s, uint64_t reservation[SPILLWAY_RESERVATION_WORDS],
                     struct spillway_decision *decision)
{
    struct spw_ticket t;
    memcpy(&t, reservation, sizeof t);
    struct spw_admission a = spw_reservation_confirm(&s->client, &t);
    memcpy(reservation, &t, sizeof t);
    return tell(&a, decision);
}

void spillway_give_up(struct spillway *s, uint64_t reservation[SPILLWAY_RESERVATION_WORDS])
{
    struct spw_ticket t;
    memcpy(&t, reservation, sizeof t);
    spw_give_up(&s->client, &t);
    memcpy(reservation, &t, sizeof t);
}

void spillway_report(struct spillway *s, const uint64_t ticket[8], uint32_t http_status,
                     int64_t retry_after_ms)
{
    struct spw_ticket t;
    memcpy(&t, ticket, SPW__TICKET_HEAD_BYTES);
    spw_report(&s->client, &t, http_status, retry_after_ms);
}

int64_t spillway_rate_ppb(struct spillway *s, const char *zip)
{
    struct spw_rate_record record;
    struct spw_source source;
    enum spw_status status = spw_rate_lookup(&s->client, zip, &record, &source);
    return status == SPW_STATUS_OK ? (int64_t)record.combined_ppb : (int64_t)status;
}

int spillway_order_placed(struct spillway *s, const char *quote_id, const char *order_id, int64_t tax_minor,
                          const char *currency)
{
    return spw_order_placed(&s->client, quote_id, order_id, tax_minor, currency);
}

int spillway_order_cancelled(struct spillway *s, const char *order_id)
{
    return spw_order_cancelled(&s->client, order_id);
}

int spillway_quote_abandoned(struct spillway *s, const char *quote_id)
{
    return spw_quote_abandoned(&s->client, quote_id);
}

int spillway_wait_durable(struct spillway *s, uint32_t timeout_ms)
{
    return spw_wait_durable(&s->client, timeout_ms);
}

const char *spillway_cause_name(int cause)
{
    return spw_cause_name((uint32_t)cause);
}

const char *spillway_status_text(int status)
{
    return spw_status_text((enum spw_status)status);
}
