/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_outrun.c: a stream under NAK-strength control that is ahead of its readers by more than
 * is kept for them.
 *
 *   consumption        missing       consumption + T       sent_seen
 *   ----|-----------------[----------------)-----------------|
 *       '----------- kept, or requested ---'  not accepted, requested when there is room
 *
 * A sender retransmits as far back as ps_log_repair_reach.  When the first missing byte is further
 * back than that, nothing will fill it any more: the image ends, its readers read what is there,
 * and the session is joined again at its present position.
 */
#include "ps_image.h"

#include "ps_receiver.h"

enum { BELIEVED = 2, CATCH_UP_PARTS = 32 };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A single datagram may be forged; several in a row come from the sender. */
static bool is_believed(ps_image_t *image, int64_t position, int64_t end)
{
    const int64_t half = image->log.term_length / 2;
    const bool follows = position >= image->beyond_end && position - image->beyond_end <= half;

    image->beyond_count = follows ? image->beyond_count + (image->beyond_count < BELIEVED) : 0;
    image->beyond_end = end;
    return image->beyond_count >= BELIEVED;
}

void ps_image_on_beyond(ps_image_t *image, int64_t position, int64_t end)
{
    const int64_t reach = ps_log_repair_reach(image->log.term_length, image->log.mtu, 1);
    const bool keeps = end <= ps_image_edge(image) && end <= ps_image_room(image);

    if (keeps && end - ps_image_contiguous(image) <= reach) {
        return; /* what is missing can still come */
    }
    if (!is_believed(image, position, end)) {
        return;
    }
    image->packet_ns = image->receiver->now_ns;
    image->sent_seen = larger(image->sent_seen, end);
    ps_receiver_make_hot(image->receiver, image);
    /* Padding moves an unreliable stream forward, but an image that is not established has no
     * reader. */
    if ((image->params.reliable || !image->established) &&
        ps_image_contiguous(image) < image->sent_seen - reach) {
        ps_image_end(image, PS_END_OUTRUN);
    }
}

/* A heartbeat that repeats the position counts as a further datagram. A heartbeat below, which the
 * source sends at its real position, withdraws it. */
void ps_image_on_stated(ps_image_t *image, int64_t position)
{
    if (position < image->beyond_end) {
        image->beyond_count = 0;
    }
    if (position - ps_image_contiguous(image) > image->log.term_length / 2) {
        ps_image_on_beyond(image, position, position);
    }
}

/* In steps, so that a request is not for a few bytes. */
void ps_image_catch_up(ps_image_t *image)
{
    const int64_t edge = ps_image_edge(image);
    const int64_t to = image->sent_seen < edge ? image->sent_seen : edge;

    if (image->sent_seen > image->hwm && ps_image_under_nak(image) &&
        image->state == PS_IMAGE_ACTIVE &&
        (to == image->sent_seen || to - image->hwm >= image->log.term_length / CATCH_UP_PARTS) &&
        to > image->hwm) {
        (void)ps_image_raise_hwm(image, to);
    }
}

const ps_pressure_reader_t *ps_image_signalled_reader(const ps_image_t *image, int64_t now_ns)
{
    const ps_pressure_reader_t *slowest = NULL;

    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_pressure_reader_t *reader = &image->subscribers[i].reader;

        if (ps_tether_gates(&image->subscribers[i].tether) &&
            !image->subscribers[i].isolation.lagged && reader->started &&
            !ps_pressure_reader_paused(reader, now_ns) &&
            (slowest == NULL || reader->position < slowest->position)) {
            slowest = reader;
        }
    }
    return slowest;
}

void ps_image_remember(const ps_image_t *image)
{
    ps_recv_endpoint_t *endpoint = image->endpoint;
    const ps_pressure_reader_t *reader = ps_image_signalled_reader(image, image->receiver->now_ns);

    if (endpoint == NULL || (reader == NULL && image->n_subscribers == 0)) {
        return;
    }
    reader = reader == NULL ? &image->subscribers[0].reader : reader;
    ps_recv_learned_t *entry = NULL;
    for (int32_t i = 0; i < PS_RECV_LEARNED && entry == NULL; i++) {
        ps_recv_learned_t *known = &endpoint->learned[i];

        entry = known->stream_id == image->params.stream_id &&
                        known->session_id == image->params.session_id
                    ? known
                    : NULL;
    }
    if (entry == NULL) {
        entry = &endpoint->learned[endpoint->next_learned];
        endpoint->next_learned = (endpoint->next_learned + 1) % PS_RECV_LEARNED;
    }
    *entry = (ps_recv_learned_t){ .stream_id = image->params.stream_id,
                                  .session_id = image->params.session_id,
                                  .learned = ps_pressure_reader_learned(reader) };
}

ps_pressure_learned_t ps_image_recall(const ps_image_t *image)
{
    const ps_recv_endpoint_t *endpoint = image->endpoint;

    for (int32_t i = 0; endpoint != NULL && i < PS_RECV_LEARNED; i++) {
        if (endpoint->learned[i].stream_id == image->params.stream_id &&
            endpoint->learned[i].session_id == image->params.session_id) {
            return endpoint->learned[i].learned;
        }
    }
    return (ps_pressure_learned_t){ 0 };
}
