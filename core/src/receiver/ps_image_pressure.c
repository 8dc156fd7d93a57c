/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_pressure.c: a stream under NAK-strength control: says how full the queue is, to a sender
 * that asked to be told, and only when it is too full (ps_nak_rate.h).
 */
#include "ps_image.h"
#include "ps_pressure.h"
#include "ps_receiver.h"

static void send_pressure(ps_image_t *image, int32_t level, uint32_t fill_ppm, int64_t now_ns)
{
    const ps_pressure_t pressure = {
        .session_id = image->params.session_id,
        .stream_id = image->params.stream_id,
        .receiver_id = image->endpoint->params.receiver_id,
        .fill_ppm = fill_ppm,
        .level = level,
        .rtt_ns = image->rtt.smoothed_ns > 0 ? image->rtt.smoothed_ns : 0,
        .client_id = atomic_load_explicit(&image->slot->limiting_client, memory_order_relaxed),
        .backlog_bytes = ps_image_contiguous(image) - image->consumption
    };

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(image->receiver, destination, &image->connections[i].control);

            ps_receiver_outbox_commit(image->receiver, ps_wire_build_pressure(frame, &pressure));
        }
    }
    atomic_fetch_add_explicit(&image->shown_pressure, 1, memory_order_relaxed);
}

int32_t ps_image_pressure(ps_image_t *image, int64_t now_ns)
{
    uint32_t fill_ppm = 0;
    int64_t due_ns = INT64_MAX;

    if (!ps_image_wants_pressure(image)) {
        return 0;
    }
    const ps_nak_input_t input = { .now_ns = now_ns,
                                   .unread = ps_image_contiguous(image) - image->consumption,
                                   .capacity = image->log.term_length / 2,
                                   .consumption = image->consumption,
                                   .rtt_ns = image->rtt.smoothed_ns,
                                   .group = image->params.group != 0,
                                   .random = image->pressure_random };
    const int32_t level = ps_nak_signal_step(&image->pressure, &input, &fill_ppm, &due_ns);

    if (level == 0) {
        if (due_ns != INT64_MAX) {
            ps_image_timer(image, due_ns);
        }
        return 0;
    }
    image->pressure_random = (uint32_t)ps_random_next(&image->receiver->random);
    send_pressure(image, level, fill_ppm, now_ns);
    ps_image_timer(image, due_ns);
    return 1;
}
