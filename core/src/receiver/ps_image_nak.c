/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_nak.c: requests missing ranges, or pads over them, and reports losses.
 *
 * A penstock sender retransmits many ranges at once, so the receiver requests every due gap. An
 * Aeron unicast sender has one retransmit action, which a NAK for another range replaces. The
 * receiver requests only the first gap from it, and repeats the NAK only when an answer could have
 * arrived. */
#include "ps_image.h"
#include "ps_assert.h"

#include "ps_receiver.h"

enum { URGENT_PARTS = 8 };

static bool takes_lists(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_NAK_LIST) != 0;
}

/* Sends the ranges of the list, as one frame if the sender accepts it, and empties the list. */
static void send_naks(ps_image_t *image, ps_nak_list_t *list, int64_t now_ns, bool plain)
{
    ps_receiver_t *receiver = image->receiver;
    bool as_list = list->count > 1 && takes_lists(image) && !plain;
    int32_t frames = as_list ? 1 : list->count;
    bool left = false;

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];
        const ps_addr_t *to = &image->connections[i].control;

        if (destination == NULL || !ps_image_connection_live(image, i, now_ns)) {
            continue;
        }
        left = true;
        for (int32_t k = 0; k < frames; k++) {
            uint8_t *frame = ps_receiver_outbox(receiver, destination, to);
            ps_nak_t nak = { .session_id = list->session_id,
                             .stream_id = list->stream_id,
                             .term_id = list->ranges[k].term_id,
                             .term_offset = list->ranges[k].term_offset,
                             .length = list->ranges[k].length };

            ps_receiver_outbox_commit(receiver, as_list ? ps_wire_build_nak_list(frame, list)
                                                        : ps_wire_build_nak(frame, &nak));
        }
    }
    if (left) {
        receiver->naks_sent += frames;
        atomic_fetch_add_explicit(image->naks_cell, frames, memory_order_relaxed);
    }
    list->count = 0;
}

static void add_range(const ps_image_t *image, ps_nak_list_t *list, int64_t position,
                      int32_t length)
{
    const ps_log_t *log = &image->log;
    int32_t at = list->count++;

    list->ranges[at].term_id = ps_term_id_at(position, log->shift, log->initial_term_id);
    list->ranges[at].term_offset = (int32_t)(position & log->term_mask);
    list->ranges[at].length = length;
}

/* Returns the length of the part of a gap that lies in its first term and in storage that no reader
 * uses; 0: none. */
static int32_t part_of(const ps_image_t *image, const ps_gap_t *gap)
{
    int64_t left = image->log.term_length - (gap->from & image->log.term_mask);
    int64_t room = ps_image_room(image);
    int64_t end = gap->to < room ? gap->to : room;
    int64_t length = end > gap->from ? end - gap->from : 0;

    return (int32_t)(length < left ? length : left);
}

/* Counts gaps whose first timer has expired as lost; before that they may be late only. The timer
 * is random, or follows the observed path, so a later gap may expire before an earlier one. */
static void count_losses(ps_image_t *image, int64_t now_ns)
{
    if (now_ns < image->lost_due_ns) {
        return;
    }
    image->lost_due_ns = INT64_MAX;
    for (int32_t i = 0; i < image->gaps.count; i++) {
        ps_gap_t *gap = &image->gaps.items[i];

        if (!gap->lost && gap->due_ns <= now_ns) {
            gap->lost = true;
            ps_image_count_loss(image, gap->from, gap->to);
            image->lost_gaps += image->lost_gaps < INT32_MAX;
            ps_reordering_lost(&image->reordering);
        } else if (!gap->lost && gap->due_ns < image->lost_due_ns) {
            image->lost_due_ns = gap->due_ns;
        }
    }
}

/* reliable=false: pads over missing data, so that readers continue. */
static int32_t pad_over(ps_image_t *image)
{
    int32_t work = 0;

    while (image->gaps.count > 0 && work < PS_IMAGE_NAKS_PER_CYCLE) {
        int64_t from = image->gaps.items[0].from;
        int32_t length = part_of(image, &image->gaps.items[0]);

        if (length == 0) {
            break; /* PS_EV_TERM_NEEDED is out */
        }
        (void)ps_gaps_fill(&image->gaps, from, from + length);
        ps_image_seal(image, from + length);
        /* It was the end of what is there without a gap: the word is 0. */
        if (ps_log_pad_marked(&image->log, from, length, ps_gap_mark(PS_GAP_UNKNOWN)) == 1) {
            ps_system_add(image->context, PS_SYS_LOSS_GAP_FILLS, 1);
        }
        work++;
    }
    image->nak_due_ns = image->gaps.count > 0 ? image->receiver->now_ns + PS_TICK_NS : INT64_MAX;
    return work;
}

/* Under NAK-strength control the sender does not wait for the slow receivers of a group. The delay
 * of a NAK must not last until the sender can no longer retransmit the gap. Returns true if the
 * sender will be half a term beyond the gap when a NAK arrives that leaves now. The sender is
 * expected to keep its speed since the gap was found. A burst of the sender is at most a sixteenth
 * of a term, so less than an eighth shows no speed. */
static bool is_urgent(const ps_image_t *image, const ps_gap_t *gap, int64_t now_ns)
{
    const int64_t sent = image->sent_seen > image->hwm ? image->sent_seen : image->hwm;
    const int64_t beyond = sent - gap->from;
    const int64_t left = image->log.term_length / 2 - beyond;
    const int64_t rtt_us = image->rtt.smoothed_ns / 1000;

    if (image->params.group == 0 || !ps_image_under_nak(image) ||
        beyond < image->log.term_length / URGENT_PARTS) {
        return false;
    }
    return left <= 0 || rtt_us == 0 || beyond * rtt_us / left >= (now_ns - gap->opened_ns) / 1000;
}

static int64_t retry_ns(ps_image_t *image, const ps_gap_t *gap, int32_t requested, int64_t now_ns)
{
    const int64_t answer_ns = ps_rtt_timeout_ns(&image->rtt);
    ps_nak_policy_t policy = image->nak;

    if (answer_ns > 0 && is_urgent(image, gap, now_ns)) {
        policy.max_backoff_ns = 0;
    }
    return ps_nak_retry_ns(&policy, answer_ns, requested, &image->receiver->random);
}

/* Ends the random delay before the first NAK of each urgent gap. */
static void hasten(ps_image_t *image, int64_t now_ns)
{
    for (int32_t i = 0; i < image->gaps.count; i++) {
        ps_gap_t *gap = &image->gaps.items[i];

        if (gap->requested == 0 && gap->due_ns > now_ns && is_urgent(image, gap, now_ns)) {
            gap->due_ns = now_ns;
            image->nak_due_ns = now_ns;
            image->lost_due_ns = now_ns;
        }
    }
}

/* The first gap shrinks: its retransmit is in progress, and another NAK would cancel the rest. */
static void hold_while_repaired(ps_image_t *image, int64_t now_ns)
{
    ps_gap_t *front = &image->gaps.items[0];

    if (front->requested > 0 && front->from != image->front_from) {
        front->due_ns = now_ns + retry_ns(image, front, 0, now_ns);
    }
    image->front_from = front->from;
}

static bool one_at_a_time(const ps_image_t *image)
{
    return (!image->params.group && image->peer_capabilities == 0) ||
           image->receiver->params->loss_recovery == PS_LOSS_SINGLE_GAP;
}

/* Requests the gaps that are due, the oldest first; returns ranges requested, *due_ns is the
 * earliest timer of all. */
static int32_t request(ps_image_t *image, int32_t limit, int64_t now_ns, int64_t *due_ns)
{
    ps_nak_list_t list = { .session_id = image->params.session_id,
                           .stream_id = image->params.stream_id };
    ps_nak_list_t front = list;
    int32_t most = takes_lists(image) ? PS_IMAGE_NAK_RANGES_PER_CYCLE : PS_IMAGE_NAKS_PER_CYCLE;
    int32_t checks = 0;
    int32_t requested = 0;

    for (int32_t i = 0; i < limit; i++) {
        ps_gap_t *gap = &image->gaps.items[i];

        if (gap->due_ns <= now_ns && checks < most) {
            int32_t length = part_of(image, gap);
            int32_t before = gap->requested;

            if (length > 0) {
                add_range(image, &list, gap->from, length);
                gap->requested += gap->requested < INT32_MAX;
                requested++; /* the check of a gap without memory is no work */
            }
            if (list.count == PS_NAK_LIST_MAX) {
                send_naks(image, &list, now_ns, false);
            }
            if (length > 0 && i == 0 && before >= PS_IMAGE_LIST_TRIES && takes_lists(image)) {
                /* Lists had no effect; perhaps the sender does not read them. It must read a plain
                 * NAK. */
                add_range(image, &front, gap->from, length);
                send_naks(image, &front, now_ns, true);
            }
            gap->due_ns = now_ns + retry_ns(image, gap, before, now_ns);
            checks++;
        }
        *due_ns = gap->due_ns < *due_ns ? gap->due_ns : *due_ns;
    }
    if (list.count > 0) {
        send_naks(image, &list, now_ns, false);
    }
    return requested;
}

int32_t ps_image_request(ps_image_t *image, int64_t now_ns)
{
    bool single = one_at_a_time(image);
    int32_t limit = single && image->gaps.count > 1 ? 1 : image->gaps.count;
    const int64_t sent = image->receiver->naks_sent;
    int64_t due_ns = INT64_MAX;
    int32_t requested;

    if (!image->params.reliable) {
        count_losses(image, now_ns);
        return pad_over(image);
    }
    if (image->revoked || image->rejected || image->endpoint == NULL ||
        image->state != PS_IMAGE_ACTIVE) {
        image->nak_due_ns = INT64_MAX;
        return 0;
    }
    hasten(image, now_ns);
    if (single) {
        hold_while_repaired(image, now_ns);
    } else if (now_ns < image->nak_due_ns) {
        return 0; /* no timer of the list is due */
    }
    count_losses(image, now_ns);
    requested = request(image, limit, now_ns, &due_ns);
    PS_ASSERT(requested <= limit);
    image->nak_due_ns = due_ns;
    return image->receiver->naks_sent > sent ? requested : 0; /* without a path no frame leaves */
}

void ps_image_report_loss(ps_image_t *image, int64_t now_ns)
{
    ps_event_t event = {
        .type = PS_EV_LOSS,
        .loss = { .bytes = image->lost_bytes, .position = image->hwm, .gaps = image->lost_gaps }
    };

    if (now_ns < image->loss_due_ns) {
        ps_image_timer(image, image->loss_due_ns);
    } else if (ps_image_emit(image, &event)) {
        image->lost_bytes = 0;
        image->lost_gaps = 0;
        image->loss_due_ns = now_ns + PS_LOSS_EVENT_NS;
    } else {
        ps_image_timer(image, now_ns + PS_TICK_NS);
    }
}
