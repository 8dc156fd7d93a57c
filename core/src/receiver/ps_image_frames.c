/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_frames.c: processes datagrams for an image: data, padding, heartbeats, joined runs, and
 * runs that were received directly into the log. */
#include <string.h>

#include "ps_image.h"
#include "ps_assert.h"
#include "ps_receiver.h"

static int on_heartbeat(ps_image_t *image, const ps_recv_destination_t *destination,
                        const ps_data_t *first, int64_t position, const ps_addr_t *from)
{
    ps_connection_t *connection = &image->connections[destination->index];
    int64_t oldest = image->sm_position - image->log.term_length;

    if (position < (oldest > 0 ? oldest : 0)) {
        ps_system_add(image->context, PS_SYS_UNDER_RUNS, 1);
        return PS_WIRE_OK;
    }
    ps_system_add(image->context, PS_SYS_HEARTBEATS_RECEIVED, 1);
    ps_image_touch(image, destination, from, position);
    image->packet_ns = image->receiver->now_ns;
    if (position > image->hwm) {
        (void)ps_image_raise_hwm(image, position);
    } else if (position < image->hwm) {
        ps_image_on_low_heartbeat(image, connection, position);
    }
    if (ps_image_under_nak(image)) {
        ps_image_on_stated(image, position);
    }
    if ((first->flags & PS_FLAG_EOS) != 0) {
        ps_image_on_eos(image, destination, position, first->flags);
    } else {
        ps_image_withdraw_end(image, connection);
    }
    return PS_WIRE_OK;
}

/* Returns true if the datagram fits into storage. A sender may pass padding at the end of a term
 * beyond the window. Only its header is written, and the first page of the next term always has
 * memory. */
static bool has_room(const ps_image_t *image, int64_t position, uint32_t length, int64_t end)
{
    int64_t room = ps_image_room(image);
    int64_t free_end = image->free_to + INT64_C(3) * image->log.term_length - PS_FRAME_ALIGNMENT;

    if (end <= room) {
        return true;
    }
    return (end & image->log.term_mask) == 0 && position + ps_align32_64(length) <= room &&
           end <= free_end;
}

static int on_chain(ps_image_t *image, const ps_recv_destination_t *destination, int64_t position,
                    const uint8_t *data, uint32_t length, const ps_addr_t *from, int64_t rx_ns)
{
    int32_t span;
    int32_t messages;
    int64_t end;
    int fault = ps_wire_chain(data, length, image->log.term_length, &span, &messages);

    if (fault != PS_WIRE_OK) {
        return fault;
    }
    end = position + span;
    if (end - ps_image_contiguous(image) > image->log.term_length / 2 &&
        ps_image_under_nak(image)) {
        ps_image_on_beyond(image, position, end);
    }
    if (end > ps_image_edge(image)) {
        ps_system_add(image->context, PS_SYS_OVER_RUNS, 1);
        return PS_WIRE_OK;
    }
    if (position < image->sm_position) {
        ps_system_add(image->context, PS_SYS_UNDER_RUNS, 1);
        if (end >= image->sm_position - image->congestion.window_max) {
            ps_reordering_twice(&image->reordering, position, end, image->rtt.least_ns);
            ps_image_touch(image, destination, from, end);
        }
        return PS_WIRE_OK;
    }
    ps_image_touch(image, destination, from, end);
    image->packet_ns = image->receiver->now_ns;
    ps_image_check_storage(image);
    if (!has_room(image, position, length, end)) {
        return PS_WIRE_OK; /* no memory for it yet: it will be requested again */
    }
    if (ps_image_insert(image, data, length, position, span, messages, rx_ns)) {
        ps_receiver_make_hot(image->receiver, image);
    } else {
        ps_reordering_twice(&image->reordering, position, end, image->rtt.least_ns);
    }
    return PS_WIRE_OK;
}

/* Padding extends to the end of its term, or it is an aborted claim of one frame. */
static bool is_behind_padding(const ps_log_t *log, int64_t position, int64_t edge)
{
    const bool ends_term = (position & log->term_mask) == 0;
    return position - edge < (ends_term ? log->term_length : log->mtu);
}

/* A sender may pass padding that begins inside the window. It then stays behind the padding, beyond
 * the accepted range, until a reader advances. The sender is alive, and the data missing up to the
 * edge must be requested, because no other frame shows it. Under NAK-strength control a sender may
 * be at any position beyond the edge. A sender that is too far away to retransmit the first gap
 * does not keep the image alive: such an image would never end, and read nothing. */
static int on_heartbeat_beyond(ps_image_t *image, const ps_recv_destination_t *destination,
                               int64_t position, const ps_addr_t *from)
{
    const int64_t edge = ps_image_edge(image);
    const int64_t reach =
        ps_log_repair_reach(image->log.term_length, image->log.mtu, ps_image_under_nak(image));
    const bool lost = image->params.reliable && position - ps_image_contiguous(image) > reach;

    if (ps_image_under_nak(image)) {
        ps_image_on_stated(image, position);
    }
    if (!is_behind_padding(&image->log, position, edge)) {
        ps_system_add(image->context, PS_SYS_OVER_RUNS, 1);
        return PS_WIRE_OK;
    }
    ps_system_add(image->context, PS_SYS_HEARTBEATS_RECEIVED, 1);
    ps_image_touch(image, destination, from, position);
    image->packet_ns = lost ? image->packet_ns : image->receiver->now_ns;
    ps_image_withdraw_end(image, &image->connections[destination->index]);
    if (edge > image->hwm) {
        (void)ps_image_raise_hwm(image, edge);
    }
    return PS_WIRE_OK;
}

int ps_image_on_data(ps_image_t *image, const ps_recv_destination_t *destination,
                     const ps_data_t *first, const uint8_t *data, uint32_t length,
                     const ps_addr_t *from, int64_t rx_ns)
{
    const ps_log_t *log = &image->log;
    int64_t position;

    if (image->rejected || image->state != PS_IMAGE_ACTIVE || image->endpoint == NULL) {
        return PS_WIRE_OK;
    }
    if (first->term_offset < 0 || first->term_offset > log->term_length ||
        first->term_offset % PS_FRAME_ALIGNMENT != 0) {
        return PS_WIRE_BAD_FIELD;
    }
    position =
        ps_position_stated(first->term_id, first->term_offset, log->shift, log->initial_term_id);
    if (position < 0 || (position == ps_max_position(log->shift) && !first->is_heartbeat)) {
        return PS_WIRE_OK;
    }
    if (!ps_image_admits(image, destination->index, from)) {
        ps_image_count_foreign(image, destination->index, from);
        return PS_WIRE_OK;
    }
    if (!first->is_heartbeat) {
        return on_chain(image, destination, position, data, length, from, rx_ns);
    }
    if (position > ps_image_edge(image)) {
        return on_heartbeat_beyond(image, destination, position, from);
    }
    return on_heartbeat(image, destination, first, position, from);
}

uint32_t ps_image_on_run(ps_image_t *image, const ps_recv_destination_t *destination,
                         const uint8_t *data, uint32_t length, uint32_t segment,
                         const ps_addr_t *from, int64_t rx_ns)
{
    const ps_log_t *log = &image->log;
    ps_data_t first;
    int32_t messages;
    uint32_t taken;
    int64_t end;

    if (image->rejected || image->state != PS_IMAGE_ACTIVE || image->endpoint == NULL ||
        ps_wire_data(data, length, &first) != PS_WIRE_OK ||
        ps_wrap_sub(first.term_id, log->initial_term_id) < 0 ||
        ps_position(first.term_id, first.term_offset, log->shift, log->initial_term_id) !=
            image->hwm ||
        !ps_image_admits(image, destination->index, from)) {
        return 0;
    }
    taken = ps_wire_run(data, length, segment, log->term_length, &messages);
    PS_ASSERT(taken <= length);
    end = image->hwm + taken;
    if (taken == 0 || image->hwm < image->sm_position || end > ps_image_edge(image) ||
        end - ps_image_contiguous(image) > log->term_length / 2 + taken) {
        return 0;
    }
    ps_image_check_storage(image);
    if (end > ps_image_room(image)) {
        return 0;
    }
    ps_image_touch(image, destination, from, end);
    image->packet_ns = image->receiver->now_ns;
    (void)ps_image_insert(image, data, taken, image->hwm, (int32_t)taken, messages, rx_ns);
    ps_receiver_make_hot(image->receiver, image);
    return taken;
}

bool ps_image_direct_range(const ps_image_t *image, ps_direct_range_t *out)
{
    int64_t end = ps_image_edge(image);
    int64_t term_end = (image->hwm | image->log.term_mask) + 1;
    int64_t room = ps_image_room(image);

    if (image->rejected || image->state != PS_IMAGE_ACTIVE || image->endpoint == NULL ||
        image->gaps.count > 0 || image->hwm < image->sm_position ||
        image->endpoint->params.media_timestamp || image->endpoint->params.channel_timestamp) {
        return false;
    }
    end = end < term_end ? end : term_end;
    end = end < room ? end : room;
    end = end < image->hwm + PS_DIRECT_MOST ? end : image->hwm + PS_DIRECT_MOST;
    if (end < image->hwm + PS_DIRECT_LEAST) {
        return false;
    }
    *out = (ps_direct_range_t){ .at = ps_log_at(&image->log, image->hwm),
                                .length = (uint32_t)(end - image->hwm) };
    return true;
}

uint32_t ps_image_on_direct(ps_image_t *image, const ps_recv_destination_t *destination,
                            const ps_direct_range_t *range, uint64_t first_word, uint32_t length,
                            uint32_t segment, const ps_addr_t *from, uint64_t *next_word)
{
    const ps_log_t *log = &image->log;
    const ps_frame_t *first = ps_frame_at(log, image->hwm);
    int32_t messages;
    uint32_t taken;

    PS_ASSERT(range->at == (const uint8_t *)first && length <= range->length);
    if (length < PS_HEADER_BYTES || first->session_id != image->params.session_id ||
        first->stream_id != image->params.stream_id ||
        first->term_offset != (int32_t)(image->hwm & log->term_mask) ||
        first->term_id != ps_term_id_at(image->hwm, log->shift, log->initial_term_id)) {
        return 0;
    }
    taken = ps_wire_run_from(first_word, range->at, length, segment, log->term_length, &messages);
    PS_ASSERT(taken <= length);
    if (taken == 0 || !ps_image_admits(image, destination->index, from)) {
        return 0;
    }
    ps_image_check_storage(image);
    ps_image_touch(image, destination, from, image->hwm + taken);
    image->packet_ns = image->receiver->now_ns;
    if (taken < range->length) { /* what is revealed ends with a zero there */
        memcpy(next_word, range->at + taken, sizeof(*next_word));
    }
    ps_image_reveal(image, first_word, taken, messages);
    ps_receiver_make_hot(image->receiver, image);
    return taken;
}
