/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_events.c: events of a publication that did not fit into the agent's ring. */
#include "ps_sender.h"
#include "ps_assert.h"

static bool emit_tethers(ps_publication_t *pub)
{
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        ps_publication_subscriber_t *subscriber = &pub->subscribers[i];
        ps_event_t event = { .type = PS_EV_SUBSCRIBER,
                             .subscriber = { .position_counter_id = subscriber->counter_id,
                                             .state = subscriber->tether.state } };
        if (subscriber->tether_pending && !ps_publication_emit(pub, &event)) {
            return false;
        }
        PS_ASSERT(subscriber->tether.state <= PS_TETHER_CLOSED);
        subscriber->tether_pending = false;
    }
    return true;
}

/* A report that waited for room in the ring counts from now: the next comes a second later. */
static bool emit_triggered(ps_publication_t *pub)
{
    ps_event_t event = { .type = PS_EV_NONE };
    ps_publication_describe_pressure(pub, false, &event);
    if (!ps_publication_emit(pub, &event)) {
        return false;
    }
    pub->pressure.reported_ns = ps_publication_sender(pub)->now_ns;
    return true;
}

/* Reports a receiver that requested to join. */
static bool emit_join(ps_publication_t *pub)
{
    ps_event_t event = { .type = PS_EV_JOIN,
                         .join = { .source = pub->join_from,
                                   .receiver_id = pub->join_id,
                                   .refused = pub->join_refused,
                                   .verdict = pub->join_verdict } };
    if (!ps_publication_emit(pub, &event)) {
        return false;
    }
    pub->join_refused = 0;
    return true;
}

static bool emit_one(ps_publication_t *pub, uint32_t bit)
{
    ps_event_t event = { .type = PS_EV_NONE };
    switch (bit) {
    case PS_PEND_CONNECTED:
        event.type = PS_EV_PUB_CONNECTED;
        event.connection.connected = pub->connected;
        break;
    case PS_PEND_DRAINED:
        event.type = PS_EV_PUB_DRAINED;
        event.drained.position = pub->sender_position;
        event.drained.unsent = pub->end_position - pub->sender_position;
        break;
    case PS_PEND_EOS_ACK: event.type = PS_EV_PUB_EOS_ACK; break;
    case PS_PEND_TERMS_RELEASED:
        event.type = PS_EV_TERMS_RELEASED;
        event.terms.kept_to = pub->released_to;
        event.terms.kept_from = pub->kept_position;
        break;
    case PS_PEND_TERM:
        event.type = PS_EV_TERM_NEEDED;
        event.term.reserved = pub->reserved_position;
        break;
    case PS_PEND_UNBLOCKED:
        event.type = PS_EV_PUB_UNBLOCKED;
        event.unblocked.position = pub->unblocked_at;
        event.unblocked.bytes = pub->unblocked_bytes;
        break;
    case PS_PEND_CORRUPT:
        event.type = PS_EV_ENDPOINT_ERROR;
        event.error.code = PS_E_CORRUPT;
        break;
    case PS_PEND_JOIN: return emit_join(pub);
    case PS_PEND_TRIGGERED: return emit_triggered(pub);
    case PS_PEND_RELIEVED: ps_publication_describe_pressure(pub, true, &event); break;
    default: return emit_tethers(pub);
    }
    return ps_publication_emit(pub, &event);
}

void ps_publication_flush_events(ps_publication_t *pub, int64_t now_ns)
{
    for (uint32_t bit = 1; bit <= PS_PEND_LAST; bit <<= 1) {
        if ((pub->pending & bit) != 0) {
            if (!emit_one(pub, bit)) { /* ring full: again at the next tick */
                ps_publication_due(pub, now_ns + PS_TICK_NS);
                return;
            }
            pub->pending &= ~bit;
        }
    }
}

void ps_publication_check_drained(ps_publication_t *pub)
{
    if (pub->state == PS_PUBLICATION_ACTIVE) {
        return;
    }
    const bool network = pub->endpoint != NULL;
    const bool sent = !network || pub->sender_position >= pub->end_position;
    /* Also when drained: a receiver that returns while the publication lingers gets the rest. */
    pub->end_of_stream = pub->end_of_stream || sent;
    if (pub->state != PS_PUBLICATION_DRAINING) {
        return;
    }
    const bool read = pub->gating_count == 0 || pub->slowest_position >= pub->end_position;
    if ((sent || !(pub->has_receivers || pub->adopted_connection) || pub->corrupt) && read) {
        pub->state = PS_PUBLICATION_DRAINED;
        pub->pending |= PS_PEND_DRAINED;
    }
}
