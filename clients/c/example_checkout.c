/* example_checkout.c: a checkout that asks for its tax, places the order, and goes on whatever happens.
 *
 *     cc -I clients/c clients/c/example_checkout.c -o example_checkout -pthread && ./example_checkout
 */
#include "spillway.h"
#include <inttypes.h>

int main(void)
{
    static struct spw_client spillway;
    (void)spw_attach(&spillway, NULL); /* attaches by itself later if the sidecar is not there yet */
    const struct spw_line lines[] = {{"1", NULL, 2000000, 3998}, {"2", NULL, 1000000, 2500}};
    const struct spw_quote_request request = {
        .account = "taxcloud-main",
        .integration = "web",
        .purpose = SPW_PURPOSE_ORDER,
        .ship_from = {"US", "TX", "75201", "Dallas", "1500 Marilla St"},
        .ship_to = {"US", "WA", "98110-1234", "Bainbridge Island", "100 Ravine Ln NE"},
        .shipping_minor = 795,
        .lines = lines,
        .line_count = 2};
    struct spw_quote_reply reply = {0};
    enum spw_status status = spw_quote(&spillway, &request, &reply);
    if (status != SPW_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", spw_status_text(status), spw_status_action(status));
        return 1;
    }
    if (reply.decision == SPW_DECISION_REJECTED || reply.decision == SPW_DECISION_NONE) {
        printf("%s %s%s\n", spw_decision_name(reply.decision), reply.reason, reply.error);
        return 2; /* the address is wrong, or no rate is known: ask the customer, never charge a guess */
    }
    printf("%s tax %" PRId64 ".%02d %s\n", spw_decision_name(reply.decision), reply.tax_minor / 100,
           (int)(reply.tax_minor % 100), reply.type ? spw_fallback_name(reply.type) : "from the provider");
    /* ... the customer pays ... */
    status = spw_order_placed(&spillway, reply.quote_id, "100048213", reply.tax_minor, "USD");
    return status == SPW_STATUS_OK ? 0 : 3;
}
