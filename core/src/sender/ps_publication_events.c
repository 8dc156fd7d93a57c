/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_events.c: events of a publication that wait for room in the agent's ring.
 */
#include "ps_sender.h"

static bool emit(ps_publication_t *pub, int32_t type, int64_t a, int64_t b, int32_t reason)
{
    return ps_sender_emit(ps_publication_sender(pub), type, PS_KIND_PUBLICATION, pub->id, a, b,
                          reason);
}

static bool emit_tethers(ps_publication_t *pub)
{
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        if (subscriber->tether_pending &&
            !emit(pub, PS_EV_SUBSCRIBER, subscriber->counter_id, 0, subscriber->tether.state)) {
            return false;
        }
        subscriber->tether_pending = false;
    }
    return true;
}

/* Reports on a receiver that asked to join. */
static bool emit_join(ps_publication_t *pub)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    const ps_event_t event = { .type = PS_EV_JOIN,
                               .kind = PS_KIND_PUBLICATION,
                               .id = pub->id,
                               .now_ns = sender->now_ns,
                               .a = pub->join_id,
                               .b = pub->join_refused,
                               .reason = pub->join_verdict,
                               .session_id = pub->log.session_id,
                               .stream_id = pub->log.stream_id,
                               .from = pub->join_from };
    if (!ps_agent_emit(sender->agent, &event)) {
        return false;
    }
    pub->join_refused = 0;
    return true;
}

static bool emit_one(ps_publication_t *pub, uint32_t bit)
{
    switch (bit) {
    case PS_PEND_CONNECTED: return emit(pub, PS_EV_PUB_CONNECTED, pub->connected, 0, 0);
    case PS_PEND_DRAINED:
        return emit(pub, PS_EV_PUB_DRAINED, pub->sender_position,
                    pub->end_position - pub->sender_position, 0);
    case PS_PEND_EOS_ACK: return emit(pub, PS_EV_PUB_EOS_ACK, 0, 0, 0);
    case PS_PEND_TERMS_RELEASED:
        return emit(pub, PS_EV_TERMS_RELEASED, pub->released_to, pub->kept_position, 0);
    case PS_PEND_TERM: return emit(pub, PS_EV_TERM_NEEDED, pub->reserved_position, 0, 0);
    case PS_PEND_UNBLOCKED:
        return emit(pub, PS_EV_PUB_UNBLOCKED, pub->unblocked_at, pub->unblocked_bytes, 0);
    case PS_PEND_CORRUPT:
        return emit(pub, PS_EV_ENDPOINT_ERROR, pub->sender_position, 0, PS_E_CORRUPT);
    case PS_PEND_JOIN: return emit_join(pub);
    default: return emit_tethers(pub);
    }
}

void ps_publication_flush_events(ps_publication_t *pub, int64_t now_ns)
{
    for (uint32_t bit = 1; bit <= PS_PEND_LAST; bit <<= 1) {
        if ((pub->pending & bit) != 0) {
            if (!emit_one(pub, bit)) { /* ring full: again at the next tick */
                *pub->due_ns = now_ns + PS_TICK_NS;
                ps_sender_due(ps_publication_sender(pub), *pub->due_ns);
                return;
            }
            pub->pending &= ~bit;
        }
    }
}

void ps_publication_check_drained(ps_publication_t *pub)
{
    if (pub->state != PS_PUBLICATION_DRAINING) {
        return;
    }
    const bool network = pub->endpoint != NULL;
    const bool sent = !network || pub->sender_position >= pub->end_position;
    pub->end_of_stream = pub->end_of_stream || sent;
    const bool read = pub->gating_count == 0 || pub->slowest_position >= pub->end_position;
    if ((sent || !(pub->has_receivers || pub->adopted_connection) || pub->corrupt) && read) {
        pub->state = PS_PUBLICATION_DRAINED;
        pub->pending |= PS_PEND_DRAINED;
    }
}
