/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_nak.c: asking for what is missing, or padding it over, and reporting losses.
 *
 * A penstock sender repairs many ranges at once, so every gap that is due is asked for.  An Aeron
 * unicast sender has one retransmit action that a NAK for another range replaces; it is asked for
 * the first gap only, and again not before an answer could have come.
 */
#include "ps_image.h"

#include "ps_receiver.h"

static void send_nak(ps_image_t *image, int64_t position, int32_t length, int64_t now_ns)
{
    ps_receiver_t *receiver = image->receiver;
    const ps_log_t *log = &image->log;
    ps_nak_t nak = { .session_id = image->params.session_id, .stream_id = image->params.stream_id,
                     .term_id = ps_term_id_at(position, log->shift, log->initial_term_id),
                     .term_offset = (int32_t)(position & log->term_mask), .length = length };

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(receiver, destination, &image->connections[i].control);

            ps_receiver_outbox_commit(receiver, ps_wire_build_nak(frame, &nak));
        }
    }
    receiver->naks_sent++;
    atomic_fetch_add_explicit(image->naks_cell, 1, memory_order_relaxed);
}

/* The part of a gap that lies in the term it begins in, and where there is storage; 0: none. */
static int32_t part_of(const ps_image_t *image, const ps_gap_t *gap)
{
    int64_t left = image->log.term_length - (gap->from & image->log.term_mask);
    int64_t end = gap->to < image->reserved_position ? gap->to : image->reserved_position;
    int64_t length = end > gap->from ? end - gap->from : 0;

    return (int32_t)(length < left ? length : left);
}

/* reliable=false: what is missing becomes padding, readers go on. */
static int32_t pad_over(ps_image_t *image)
{
    int32_t work = 0;

    while (image->gaps.count > 0 && work < PS_IMAGE_NAKS_PER_CYCLE) {
        int64_t from = image->gaps.items[0].from;
        int32_t length = part_of(image, &image->gaps.items[0]);

        if (length == 0) {
            break; /* PS_EV_TERM_NEEDED is out */
        }
        /* The list says that nothing was ever written there, so the word is 0. */
        if (ps_log_pad(&image->log, from, length, 0) == 1) {
            ps_system_add(image->driver, PS_SYS_LOSS_GAP_FILLS, 1);
        }
        (void)ps_gaps_fill(&image->gaps, from, from + length);
        work++;
    }
    image->nak_due_ns =
        image->gaps.count > 0 ? image->receiver->now_ns + PS_TICK_NS : INT64_MAX;
    return work;
}

/* The first gap shrinks: its repair is under way, so asking again would cancel the rest of it. */
static void hold_while_repaired(ps_image_t *image, int64_t now_ns)
{
    ps_gap_t *front = &image->gaps.items[0];

    if (front->asked > 0 && front->from != image->front_from) {
        front->due_ns = now_ns + ps_nak_retry_ns(&image->nak, image->rtt_ns, 0,
                                                 &image->receiver->random);
    }
    image->front_from = front->from;
}

int32_t ps_image_ask(ps_image_t *image, int64_t now_ns)
{
    bool one_at_a_time = !image->params.group && image->params.peer_capabilities == 0;
    int32_t limit = one_at_a_time && image->gaps.count > 1 ? 1 : image->gaps.count;
    int64_t due_ns = INT64_MAX;
    int32_t asked = 0;

    if (!image->params.reliable) {
        return pad_over(image);
    }
    if (image->revoked || image->endpoint == NULL || image->state != PS_IMAGE_ACTIVE) {
        image->nak_due_ns = INT64_MAX;
        return 0;
    }
    if (one_at_a_time) {
        hold_while_repaired(image, now_ns);
    }
    for (int32_t i = 0; i < limit; i++) {
        ps_gap_t *gap = &image->gaps.items[i];

        if (gap->due_ns <= now_ns && asked < PS_IMAGE_NAKS_PER_CYCLE) {
            int32_t length = part_of(image, gap);
            int32_t before = gap->asked;

            if (length > 0) {
                send_nak(image, gap->from, length, now_ns);
                gap->asked += gap->asked < INT32_MAX;
            }
            gap->due_ns = now_ns + ps_nak_retry_ns(&image->nak, image->rtt_ns, before,
                                                   &image->receiver->random);
            asked++;
        }
        due_ns = gap->due_ns < due_ns ? gap->due_ns : due_ns;
    }
    image->nak_due_ns = due_ns;
    return asked;
}

void ps_image_report_loss(ps_image_t *image, int64_t now_ns)
{
    ps_event_t event = { .type = PS_EV_LOSS, .a = image->lost_bytes, .b = image->hwm };

    if (now_ns < image->loss_due_ns) {
        ps_image_timer(image, image->loss_due_ns);
    } else if (ps_image_emit(image, &event)) {
        image->lost_bytes = 0;
        image->loss_due_ns = now_ns + PS_LOSS_EVENT_NS;
    } else {
        ps_image_timer(image, now_ns + PS_TICK_NS);
    }
}
