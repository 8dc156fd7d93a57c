/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_send_endpoint_join.c: answers to receivers that request all streams of a dynamic
 * multi-destination channel (docs/decisions/0075). The SETUPs go to the requesting address only, at
 * the end of the poll that received the request. A receiver joins within a round trip for any
 * number of other requests, and a forged request sends nothing to other receivers. */
#include "ps_sender.h"
#include "ps_assert.h"

static bool is_open(const ps_publication_t *pub, const ps_send_endpoint_t *endpoint)
{
    return pub->endpoint == endpoint && !pub->removed && !pub->end_of_stream;
}

/* SETUPs of at most `most` publications, beginning where the last answer ended.  Returns how many;
 * bound: one check each publication. */
static int32_t gather(ps_send_endpoint_t *endpoint, int32_t most,
                      uint8_t frames[PS_JOIN_SETUPS][PS_CONTROL_MAX], ps_dgram_t *dgrams)
{
    const ps_sender_t *sender = endpoint->sender;
    const int32_t n = sender->publication_count;
    int32_t count = 0;
    int32_t at = endpoint->join_cursor < n ? endpoint->join_cursor : 0;
    for (int32_t i = 0; i < n && count < most; i++) {
        const ps_publication_t *pub = sender->publications[at];
        if (is_open(pub, endpoint)) {
            dgrams[count] =
                (ps_dgram_t){ frames[count], ps_publication_build_setup(pub, frames[count]) };
            count++;
        }
        at = at + 1 < n ? at + 1 : 0;
    }
    endpoint->join_cursor = at;
    return count;
}

void ps_send_endpoint_answer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    uint8_t frames[PS_JOIN_SETUPS][PS_CONTROL_MAX];
    ps_dgram_t dgrams[PS_JOIN_SETUPS];
    const int32_t joins = endpoint->join_count;
    int32_t most = PS_JOIN_BUDGET / (joins > 0 ? joins : 1);
    int64_t bytes = 0;
    most = most < PS_JOIN_SETUPS ? most : PS_JOIN_SETUPS;
    endpoint->join_count = 0;
    const int32_t count = joins > 0 ? gather(endpoint, most, frames, dgrams) : 0;
    for (int32_t i = 0; i < joins && count > 0; i++) {
        if (ps_destinations_has(&endpoint->destinations, &endpoint->joins[i])) {
            continue; /* confirmed meanwhile: it gets what all get */
        }
        const int taken =
            endpoint->ops->send(endpoint->data, &endpoint->joins[i], dgrams, count, now_ns);
        for (int32_t k = 0; k < taken; k++) {
            bytes += dgrams[k].length;
        }
        if (taken < count) { /* the receiver requests again */
            ps_system_add(endpoint->context, PS_SYS_SHORT_SENDS, 1);
        }
    }
    if (bytes > 0) {
        ps_system_add(endpoint->context, PS_SYS_BYTES_SENT, bytes);
    }
}

void ps_send_endpoint_join(ps_send_endpoint_t *endpoint, const ps_addr_t *to, int64_t now_ns)
{
    if (endpoint->join_count == PS_JOIN_ANSWERS) {
        ps_send_endpoint_answer(endpoint, now_ns);
    }
    if (endpoint->destinations.provisional_count == 1) { /* the first: its timer begins */
        endpoint->due_ns = now_ns;
        ps_sender_due(endpoint->sender, now_ns);
    }
    PS_ASSERT(endpoint->join_count < PS_JOIN_ANSWERS);
    endpoint->joins[endpoint->join_count++] = *to;
}

int64_t ps_send_endpoint_join_timer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t interval_ns = endpoint->context->params.setup_interval_ns;
    ps_destinations_t *list = &endpoint->destinations;
    int64_t next_ns = INT64_MAX;
    for (int32_t i = 0; i < list->provisional_count; i++) {
        ps_provisional_t *place = &list->provisional[i];
        if (now_ns - place->answered_ns >= interval_ns) {
            place->answered_ns = now_ns;
            ps_send_endpoint_join(endpoint, &place->address, now_ns);
        }
        const int64_t due_ns = place->answered_ns + interval_ns;
        next_ns = due_ns < next_ns ? due_ns : next_ns;
    }
    if (endpoint->join_count > 0) {
        ps_send_endpoint_answer(endpoint, now_ns);
    }
    return next_ns;
}
