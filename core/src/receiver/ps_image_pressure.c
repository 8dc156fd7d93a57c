/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_pressure.c: a stream under NAK-strength control: measures how its readers consume, and
 * signals a full queue to a sender that requested signals (ps_pressure_signal.h). */
#include "ps_image.h"
#include "ps_wire_pressure.h"
#include "ps_receiver.h"

static int64_t furthest(const ps_image_t *image)
{
    return image->sent_seen > image->hwm ? image->sent_seen : image->hwm;
}

static void send_pressure(ps_image_t *image, const ps_pressure_reader_t *reader, int32_t level,
                          int64_t now_ns)
{
    const int64_t capacity = image->log.term_length / 2;
    const int64_t fill = furthest(image) - reader->position;
    const ps_pressure_t pressure = {
        .session_id = image->params.session_id,
        .stream_id = image->params.stream_id,
        .receiver_id = image->endpoint->params.receiver_id,
        .fill_ppm =
            fill >= capacity ? PS_PRESSURE_PPM : (uint32_t)(fill * PS_PRESSURE_PPM / capacity),
        .level = level,
        .rtt_ns = image->rtt.smoothed_ns > 0 ? image->rtt.smoothed_ns : 0,
        .client_id = atomic_load_explicit(&image->slot->limiting_client, memory_order_relaxed),
        .backlog_bytes = ps_image_contiguous(image) - image->consumption,
        .rate = reader->rate,
        .cadence_ns = reader->cadence_ns,
        .residue = ps_pressure_reader_residue(reader),
        .overrun = fill > capacity ? fill - capacity : 0
    };

    for (int32_t i = 0; i < image->endpoint->destinations_end; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(image->receiver, destination, &image->connections[i].control);

            ps_receiver_outbox_commit(image->receiver, ps_wire_build_pressure(frame, &pressure));
        }
    }
    atomic_fetch_add_explicit(&image->shown_pressure, 1, memory_order_relaxed);
}

static void check_readers(ps_image_t *image, int64_t now_ns)
{
    const int64_t end = ps_image_contiguous(image);

    for (int32_t i = 0; i < image->n_subscribers; i++) {
        ps_image_subscriber_t *subscriber = &image->subscribers[i];

        if (ps_tether_gates(&subscriber->tether) && !subscriber->isolation.lagged) {
            ps_pressure_reader_check(&subscriber->reader, ps_image_position_of(image, subscriber),
                                     end, now_ns);
        } else { /* it skips data before it counts again */
            ps_pressure_reader_skip(&subscriber->reader);
        }
    }
}

int32_t ps_image_pressure(ps_image_t *image, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;

    if (ps_image_under_nak(image)) {
        check_readers(image, now_ns); /* also while they read the rest of an image that ended */
    }
    if (!ps_image_wants_pressure(image) || !ps_image_has_path(image, now_ns)) {
        return 0;
    }
    const ps_pressure_reader_t *reader = ps_image_signalled_reader(image, now_ns);
    const ps_pressure_input_t input = {
        .now_ns = now_ns,
        .fill = furthest(image) - (reader != NULL ? reader->position : image->consumption),
        .capacity = image->log.term_length / 2,
        .rtt_ns = image->rtt.smoothed_ns,
        .cadence_ns = reader != NULL ? reader->cadence_ns : 0,
        .group = image->params.group != 0,
        .paused = reader == NULL,
        .random = image->pressure_random
    };
    const int32_t level = ps_pressure_signal_step(&image->pressure, &input, &due_ns);

    if (level > 0) {
        image->pressure_random = (uint32_t)ps_random_next(&image->receiver->random);
        send_pressure(image, reader, level, now_ns);
    }
    if (due_ns != INT64_MAX) {
        ps_image_timer(image, due_ns);
    }
    return level > 0;
}
