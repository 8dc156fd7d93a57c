/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_rest.c: what an idle stream costs. A host may have thousands of idle streams, each
 * with a heartbeat and a status message a second (docs/decisions/0335).
 *
 * A status message of an idle stream has the bytes of the last one. If nothing that it depends on
 * has changed, it changes only the time at which its receiver was heard. A publication rests if the
 * timers found nothing but heartbeats to come. Until something makes it ready, or sets a timer, a
 * visit of its timers sends a heartbeat and checks that the receiver is not silent. */
#include <string.h>

#include "ps_policy.h"
#include "ps_sender.h"

/* Returns true if all data was sent, nothing blocks publishers, and the receiver is the only one: a
 * repeated status message then states nothing. */
static bool is_at_rest(const ps_publication_t *pub)
{
    return pub->connected && pub->receiver_count == 1 && pub->state == PS_PUBLICATION_ACTIVE &&
           !pub->revoked && !pub->params.group && pub->fc.kind == PS_FC_UNICAST && !pub->nak &&
           !pub->adopted_connection && !ps_publication_has_credits(pub) && !pub->window_shut &&
           !pub->greets && pub->sender_position >= pub->producer_position &&
           atomic_load_explicit(&pub->slot->cause, memory_order_relaxed) == PS_CAUSE_NONE;
}

void ps_publication_note_sm(ps_publication_t *pub, const uint8_t *data, uint32_t length,
                            const ps_addr_t *from)
{
    ps_publication_heard_t *heard = &pub->heard;
    heard->length = 0;
    if (length > sizeof(heard->bytes) || !is_at_rest(pub) ||
        pub->receivers[0].edge != pub->sender_limit) {
        return;
    }
    memcpy(heard->bytes, data, length);
    heard->length = length;
    heard->from = *from;
    heard->sender_position = pub->sender_position;
    heard->sender_limit = pub->sender_limit;
}

bool ps_publication_repeats_sm(ps_publication_t *pub, const uint8_t *data, uint32_t length,
                               const ps_addr_t *from, int64_t now_ns)
{
    const ps_publication_heard_t *heard = &pub->heard;
    if (!pub->resting || heard->length != length ||
        heard->sender_position != pub->sender_position ||
        heard->sender_limit != pub->sender_limit || memcmp(heard->bytes, data, length) != 0 ||
        !ps_addr_equal(&heard->from, from)) {
        return false;
    }
    ps_publication_receiver_t *receiver = &pub->receivers[0];
    receiver->heard_ns = now_ns;
    receiver->view.heard_ns = now_ns;
    ps_snapshot_heard(pub->snapshot, 0, now_ns);
    return true;
}

static int64_t next_beat_ns(const ps_publication_t *pub)
{
    return ps_publication_next_beat_ns(pub, true, pub->context->params.idle_heartbeat_interval_ns);
}

void ps_publication_check_rest(ps_publication_t *pub)
{
    pub->resting = is_at_rest(pub) && pub->pending == 0 && pub->subscriber_count == 0 &&
                   !pub->turn.queued && !pub->resend.queued && !pub->hot && !pub->rated &&
                   !pub->drops && !pub->setup_elicited && !pub->withheld && !pub->short_send &&
                   !pub->cleaning_behind && !pub->storage_clamped && !pub->quarantine_clamped &&
                   pub->quarantine_count == 0 && pub->fc.due_ns == INT64_MAX &&
                   pub->paced_until_ns == INT64_MAX && pub->admit_due_ns == INT64_MAX &&
                   pub->pressure.state == PS_WATERMARK_NORMAL && pub->pressure.episodes == 0 &&
                   ps_retransmit_next_ns(&pub->retransmit) == INT64_MAX;
    pub->rest_kept = false;
    pub->rest_beat_ns = next_beat_ns(pub);
}

int64_t ps_publication_rest(ps_publication_t *pub, int64_t now_ns)
{
    const ps_driver_params_t *params = &pub->context->params;
    const int64_t silent_ns = pub->receivers[0].heard_ns + params->connection_timeout_ns;
    if (now_ns >= silent_ns ||
        atomic_load_explicit(&pub->slot->dirty, memory_order_seq_cst) != PS_DIRTY_NOT ||
        ps_log_producer_position(&pub->log) != pub->sender_position) {
        return 0;
    }
    if (now_ns >= pub->rest_beat_ns) {
        if (!ps_send_endpoint_reachable(pub->endpoint)) {
            return 0;
        }
        if (!pub->rest_kept) {
            ps_publication_build_heartbeat(pub, pub->rest_frame);
            pub->rest_kept = true;
        }
        ps_send_endpoint_queue(pub->endpoint, pub, pub->rest_frame, now_ns);
        pub->heartbeat_sent_ns = now_ns;
        pub->rest_beat_ns = next_beat_ns(pub);
    }
    return pub->rest_beat_ns < silent_ns ? pub->rest_beat_ns : silent_ns;
}
