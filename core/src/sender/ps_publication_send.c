/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_send.c: sends data, retransmits, SETUPs and heartbeats (docs/spec/wire-format.md
 * section 5). A datagram is a run of whole frames up to the MTU; a PAD ends it, as its header
 * only. */
#include <string.h>

#include "ps_frame.h"
#include "ps_inline.h"
#include "ps_policy.h"
#include "ps_assert.h"
#include "ps_sender.h"

enum { PREFETCH_BYTES = 768, PREFETCH_FRAMES = 4 };

/* One datagram found in the log. */
typedef struct scan {
    int32_t wire_bytes; /* on the wire; 0 none */
    int32_t span_bytes; /* of stream (a PAD counts whole) */
    int32_t dropped;    /* messages that padding states */
    int16_t messages;   /* DATA frames with the END flag: a datagram has at most 2047 frames */
    bool shut;          /* a complete frame is there, but max_bytes is too small for it */
    bool corrupt;       /* the log holds no valid frame at the position */
} scan_t;
_Static_assert(sizeof(scan_t) == 16, "two stores write it");

/* Sums over datagrams. */
typedef struct scans_sum {
    int64_t span_bytes;
    int64_t messages;
    int64_t dropped;
    int32_t wire_bytes;
} scans_sum_t;

static inline void add_scan(scans_sum_t *sum, const scan_t *scan)
{
    sum->span_bytes += scan->span_bytes;
    sum->messages += scan->messages;
    sum->dropped += scan->dropped;
    sum->wire_bytes += scan->wire_bytes;
}

/* Fetches a header ahead of `at`: a few frames of the latest length, of short ones more.  It may
 * lie beyond the term; then this does nothing. */
static inline void prefetch_header(const uint8_t *at, int32_t step)
{
    const int32_t frames = step * PREFETCH_FRAMES;
    __builtin_prefetch(at + (frames > PREFETCH_BYTES ? frames : PREFETCH_BYTES));
}

/* Out of line: a datagram ends so once a term. */
static PS_NOINLINE int32_t count_dropped(const ps_frame_t *last)
{
    return last->type == PS_TYPE_PAD ? ps_frame_messages(last) : 0;
}

/* Whole frames from position on, at most max_bytes, within one term.  at: the first frame.  Bound:
 * max_bytes / 32. */
static PS_ALWAYS_INLINE void scan_datagram(const ps_publication_t *pub, const uint8_t *at,
                                           int64_t position, int32_t max_bytes, scan_t *out)
{
    const int32_t start = (int32_t)(position & pub->log.term_mask);
    int32_t offset = start, step = 0, wire_bytes = 0, messages = 0, dropped = 0;
    bool shut = false, corrupt = false;
    while (wire_bytes < max_bytes) {
        const ps_frame_t *frame = (const ps_frame_t *)(const void *)at;
        const int32_t length = ps_frame_length_acquire(frame);
        if (length <= 0) {
            break; /* no frame yet, or a claim */
        }
        const int32_t span = ps_publication_checked_span(pub, frame, length, offset);
        if (span < 0) {
            corrupt = wire_bytes == 0;
            break;
        }
        const bool pad = frame->type == PS_TYPE_PAD;
        const int32_t wire = pad ? PS_HEADER_BYTES : span;
        if (wire_bytes + wire > max_bytes) {
            shut = wire_bytes == 0;
            break;
        }
        wire_bytes += wire;
        messages += !pad && (frame->flags & PS_FLAG_END) != 0;
        offset += span;
        if (pad || offset >= pub->log.term_length) {
            dropped = count_dropped(frame);
            break;
        }
        at += ps_frame_guess(&step, span);
        prefetch_header(at, step);
    }
    *out = (scan_t){ .wire_bytes = wire_bytes,
                     .span_bytes = offset - start,
                     .dropped = dropped,
                     .messages = (int16_t)messages,
                     .shut = shut,
                     .corrupt = corrupt };
}

/* Writes the send time into the frames of a datagram, where the channel requests it. */
static void stamp(const ps_publication_t *pub, int64_t position, int32_t wire_bytes, int64_t now_ns)
{
    const int64_t epoch_ns = now_ns + ps_context_epoch_offset_ns(pub->context);
    const int32_t place = pub->params.channel_timestamp_offset;
    uint8_t *at = ps_log_at(&pub->log, position);
    for (int32_t done = 0; done + PS_HEADER_BYTES <= wire_bytes;) {
        ps_frame_t *frame = (ps_frame_t *)(void *)(at + done);
        const int32_t length = ps_frame_length_acquire(frame);
        const int32_t room = wire_bytes - done;
        if (length < PS_HEADER_BYTES || length > room || frame->type != PS_TYPE_DATA) {
            return;
        }
        if (place < 0) {
            frame->reserved_value = epoch_ns;
        } else if ((frame->flags & PS_FLAG_BEGIN) != 0 && place <= length - PS_HEADER_BYTES - 8) {
            memcpy(at + done + PS_HEADER_BYTES + place, &epoch_ns, sizeof(epoch_ns));
        }
        done += ps_align32(length);
    }
}

static void count_back_pressure(ps_publication_t *pub)
{
    if (!pub->back_pressured) {
        pub->back_pressured = true;
        atomic_fetch_add_explicit(pub->back_pressure_cell, 1, memory_order_relaxed);
        ps_system_add(pub->context, PS_SYS_BACK_PRESSURE, 1);
    }
}

static int32_t datagram_limit(const ps_publication_t *pub, int64_t position, int64_t left)
{
    const int64_t rest = ps_publication_term(pub) - (position & pub->log.term_mask);
    int64_t max_bytes = pub->log.mtu < rest ? pub->log.mtu : rest;
    max_bytes = left < max_bytes ? left : max_bytes;
    return (int32_t)max_bytes;
}

/* Cuts a datagram behind the last message that credits grant after `before` others. */
static PS_NOINLINE void cut_to_credits(const ps_publication_t *pub, int64_t position,
                                       int64_t before, scan_t *scan)
{
    const int64_t credited = ps_publication_credit_room(pub) - before;
    if (scan->messages > credited) {
        scan_datagram(pub, ps_log_at(&pub->log, position), position,
                      ps_publication_credit_bytes(pub, position, scan->span_bytes, credited), scan);
    }
}

/* Returns the bound of the running turn. */
static inline int64_t turn_bytes(const ps_publication_t *pub)
{
    const int64_t turn = ps_publication_sender(pub)->turn_bytes;
    const int64_t most = pub->endpoint->turn_most;
    return turn < most ? turn : most;
}

/* Collects datagrams of new data.  Returns how many; *more: the turn's bound ended it. */
static int32_t collect(ps_publication_t *pub, ps_dgram_t *dgrams, scan_t *scans, scans_sum_t *sum,
                       int64_t now_ns, bool *more)
{
    int64_t position = pub->sender_position;
    const int64_t paced = ps_pacer_room(&pub->congestion_pace, now_ns);
    const int64_t rated = ps_publication_rate_room(pub, now_ns);
    const int64_t room = paced < rated ? paced : rated;
    const int64_t turn = turn_bytes(pub);
    const int64_t most = room < turn ? room : turn;
    const int64_t credited = ps_publication_credit_room(pub);
    const int64_t admitted = ps_publication_message_room(pub, now_ns);
    const int64_t messages = admitted < credited ? admitted : credited;
    int32_t count = 0;
    pub->window_shut = false;
    while (count < PS_TURN_DATAGRAMS && sum->wire_bytes < most && sum->messages < messages) {
        const int64_t window = pub->sender_limit - position;
        if (window <= 0) {
            pub->window_shut = ps_publication_frame_is_there(pub, position);
            return count;
        }
        scan_t *scan = &scans[count];
        const uint8_t *at = ps_log_at(&pub->log, position);
        scan_datagram(pub, at, position, datagram_limit(pub, position, window), scan);
        if (scan->corrupt && !pub->corrupt) {
            pub->corrupt = true;
            pub->pending |= PS_PEND_CORRUPT;
            ps_system_add(pub->context, PS_SYS_ERRORS, 1);
        }
        if (scan->wire_bytes == 0) {
            pub->window_shut = scan->shut;
            return count;
        }
        if (pub->credits.on) {
            cut_to_credits(pub, position, sum->messages + sum->dropped, scan);
            if (scan->wire_bytes == 0) {
                return count; /* the drops that the last datagram states took the credits */
            }
        }
        if (pub->params.channel_timestamp) {
            stamp(pub, position, scan->wire_bytes, now_ns);
        }
        dgrams[count++] = (ps_dgram_t){ at, (uint32_t)scan->wire_bytes };
        position += scan->span_bytes;
        add_scan(sum, scan);
    }
    *more = true;
    return count;
}

/* The socket did not accept all datagrams of a turn. After an error, only this stream waits: the
 * error may be due to its datagrams, for example to their length. *more: a further turn is due. */
static PS_NOINLINE void note_short(ps_publication_t *pub, ps_band_entry_t *entry, int32_t taken,
                                   int64_t now_ns, bool *more)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    if (!pub->endpoint->failed) {
        ps_sender_socket_is_full(sender, pub->endpoint, entry, taken > 0);
    } else if (taken > 0) {
        *more = true;
    } else {
        ps_publication_due(pub, now_ns + PS_TICK_NS);
        sender->urgent = true;
    }
}

/* Shortens the heartbeat timer after an idle time, so that a loss of the present data is noticed
 * soon. */
static void arm_heartbeat(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t due_ns = now_ns + pub->context->params.heartbeat_interval_ns;
    if (*pub->due_ns > due_ns) {
        ps_publication_due(pub, due_ns);
    }
}

static int32_t send_data(ps_publication_t *pub, int64_t now_ns, bool *more)
{
    ps_dgram_t dgrams[PS_TURN_DATAGRAMS];
    scan_t scans[PS_TURN_DATAGRAMS];
    scans_sum_t sum = { 0, 0, 0, 0 };
    bool left = false;
    if (pub->revoked || pub->corrupt || !ps_send_endpoint_reachable(pub->endpoint)) {
        return 0;
    }
    const bool waits = ps_publication_frame_is_there(pub, pub->sender_position);
    pub->paced = waits && ps_publication_pace_shut(pub, now_ns);
    if (pub->paced || (waits && (ps_publication_credit_room(pub) <= 0 ||
                                 ps_publication_rate_shut(pub, now_ns)))) {
        pub->window_shut = false;
        pub->withheld = false;
        return 0;
    }
    const bool governed = waits && ps_publication_sender(pub)->governor.holds;
    pub->withheld = false;
    const int32_t count = collect(pub, dgrams, scans, &sum, now_ns, &left);
    if (count == 0) {
        pub->short_send = false;
        if (pub->window_shut) {
            count_back_pressure(pub);
        }
        return 0;
    }
    if (governed &&
        (ps_sender_defers(ps_publication_sender(pub), pub) ||
         (count == 1 && !left && !pub->window_shut && scans[0].wire_bytes < pub->log.mtu &&
          ps_sender_coalesces(ps_publication_sender(pub), pub)))) {
        pub->withheld = true;
        pub->window_shut = false;
        pub->short_send = false;
        return 0;
    }
    const int32_t taken =
        ps_send_endpoint_send_sum(pub->endpoint, dgrams, count, sum.wire_bytes, now_ns);
    if (taken < count) {
        sum = (scans_sum_t){ 0, 0, 0, 0 };
        for (int32_t i = 0; i < taken; i++) {
            add_scan(&sum, &scans[i]);
        }
    }
    if (taken > 0) {
        pub->back_pressured = false;
        pub->partial_since_ns = -1;
        pub->data_sent_ns = now_ns;
        pub->heartbeat_sent_ns = now_ns;
        arm_heartbeat(pub, now_ns);
        pub->dropped_sent += sum.dropped;
        ps_publication_move_sender(pub, pub->sender_position + sum.span_bytes,
                                   sum.messages + sum.dropped, now_ns);
        ps_publication_paced(pub, sum.wire_bytes, 0);
        ps_publication_rate_sent(pub, sum.wire_bytes, sum.messages, now_ns);
        pub->padding_bytes += sum.span_bytes - sum.wire_bytes;
    }
    pub->short_send = taken < count;
    pub->window_shut = pub->window_shut && !pub->short_send; /* what is left would still fit */
    if (pub->short_send) {
        note_short(pub, &pub->turn, taken, now_ns, more);
        return sum.wire_bytes;
    }
    *more = *more || left;
    return sum.wire_bytes;
}

/* Returns true if the frame at position has the requested position in its header. */
static bool is_frame_of(const ps_publication_t *pub, int64_t position)
{
    const ps_frame_t *frame = ps_frame_at(&pub->log, position);
    return ps_frame_length_acquire(frame) > 0 && frame->session_id == pub->log.session_id &&
           frame->term_offset == (int32_t)(position & pub->log.term_mask) &&
           frame->term_id == ps_term_id_at(position, pub->log.shift, pub->log.initial_term_id);
}

int64_t ps_publication_resend_floor(const ps_publication_t *pub)
{
    const int64_t floor = ps_publication_sent_floor(pub);
    return floor > 0 ? floor : 0;
}

/* Collects datagrams of an action from its cursor on, within sent data that is still in the log.
 * *done: the action has no further data. Returns the number of datagrams. */
static int32_t collect_resend(const ps_publication_t *pub, const ps_resend_t *action,
                              ps_dgram_t *dgrams, int64_t *ends, int32_t room, bool *done)
{
    const int64_t to = action->to < pub->sender_position ? action->to : pub->sender_position;
    int64_t position = action->cursor;
    int32_t count = 0;
    while (position >= ps_publication_resend_floor(pub) && position < to && count < room &&
           is_frame_of(pub, position)) {
        scan_t scan;
        const uint8_t *at = ps_log_at(&pub->log, position);
        scan_datagram(pub, at, position, datagram_limit(pub, position, to - position), &scan);
        if (scan.wire_bytes == 0) {
            break;
        }
        dgrams[count] = (ps_dgram_t){ at, (uint32_t)scan.wire_bytes };
        position += scan.span_bytes;
        ends[count++] = position;
    }
    *done = position >= to || count < room;
    return count;
}

static void count_resend(ps_publication_t *pub, ps_resend_t *action)
{
    if (!action->started) {
        action->started = true;
        ps_system_add(pub->context, PS_SYS_RETRANSMITS_SENT, 1);
    }
}

/* Returns the number of datagrams that may be retransmitted now: 1..PS_TURN_DATAGRAMS. */
static int32_t resend_room(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t paced = ps_pacer_room(&pub->congestion_pace, now_ns);
    const int64_t repair = ps_pacer_room(&pub->repair, now_ns);
    const int64_t turn = turn_bytes(pub);
    const int64_t room = paced < repair ? paced : repair;
    const int64_t datagrams = (room < turn ? room : turn) / pub->log.mtu + 1;
    return (int32_t)(datagrams < PS_TURN_DATAGRAMS ? datagrams : PS_TURN_DATAGRAMS);
}

/* Sends one slice of due retransmits: at most one send call, so that new data keeps its turn, and
 * at most the repair budget. Several short actions share the call. */
static int32_t resend_slice(ps_publication_t *pub, int64_t now_ns, bool *more)
{
    ps_dgram_t dgrams[PS_TURN_DATAGRAMS];
    int64_t ends[PS_TURN_DATAGRAMS];
    ps_resend_t *due[PS_TURN_DATAGRAMS];
    bool done[PS_TURN_DATAGRAMS];
    int32_t starts[PS_TURN_DATAGRAMS + 1];
    int32_t count = 0, bytes = 0, used = 0;
    if (pub->retransmit.pending == 0 || ps_publication_repair_shut(pub, now_ns) ||
        ps_publication_pace_shut(pub, now_ns)) {
        return 0;
    }
    const int32_t most = resend_room(pub, now_ns);
    const int32_t found = ps_retransmit_due(&pub->retransmit, now_ns, due, most);
    PS_ASSERT(most > 0 && most <= PS_TURN_DATAGRAMS && found <= most);
    for (; used < found && count < most; used++) {
        starts[used] = count;
        count +=
            collect_resend(pub, due[used], dgrams + count, ends + count, most - count, &done[used]);
    }
    starts[used] = count;
    const int32_t taken =
        count == 0 ? 0 : ps_send_endpoint_send(pub->endpoint, dgrams, count, now_ns);
    for (int32_t i = 0; i < used; i++) {
        const int32_t last = taken < starts[i + 1] ? taken : starts[i + 1];
        if (last > starts[i]) {
            due[i]->cursor = ends[last - 1];
            count_resend(pub, due[i]);
        }
        if (done[i] && taken >= starts[i + 1]) {
            ps_retransmit_done(&pub->retransmit, due[i], now_ns);
        }
    }
    for (int32_t i = 0; i < taken; i++) {
        bytes += (int32_t)dgrams[i].length;
    }
    if (taken < count) {
        note_short(pub, &pub->resend, taken, now_ns, more);
    }
    ps_system_add(pub->context, PS_SYS_RETRANSMITTED_BYTES, bytes);
    ps_publication_paced(pub, 0, bytes);
    const int64_t next_ns = ps_retransmit_next_ns(&pub->retransmit);
    *more = *more || (taken == count && next_ns <= now_ns);
    if (pub->retransmit.pending > 0 && next_ns > now_ns) { /* the timer was of an earlier action */
        ps_publication_due(pub, next_ns);
    }
    return bytes;
}

int32_t ps_publication_turn(ps_publication_t *pub, int64_t now_ns, bool *more)
{
    int32_t bytes = 0;
    *more = false;
    if (pub->endpoint != NULL) {
        bytes = send_data(pub, now_ns, more);
    }
    if (ps_publication_update(pub, *more, now_ns)) {
        *more = true;
    }
    return bytes;
}

int32_t ps_publication_repair_turn(ps_publication_t *pub, int64_t now_ns, bool *more)
{
    *more = false;
    return resend_slice(pub, now_ns, more);
}

static bool send_one(ps_publication_t *pub, const uint8_t *data, uint32_t length, int64_t now_ns)
{
    const ps_dgram_t dgram = { data, length };
    return ps_send_endpoint_reachable(pub->endpoint) &&
           ps_send_endpoint_send(pub->endpoint, &dgram, 1, now_ns) == 1;
}

_Static_assert((int)PS_FC_TAGGED == PS_WIRE_FC_TAGGED && PS_FC_CUSTOM + 1 == PS_WIRE_FC_COUNT,
               "flow control is stated by its number");

uint32_t ps_publication_build_setup(const ps_publication_t *pub, uint8_t *out)
{
    const ps_driver_params_t *params = &pub->context->params;
    const ps_setup_t setup = {
        .term_offset = (int32_t)(pub->sender_position & pub->log.term_mask),
        .session_id = pub->log.session_id,
        .stream_id = pub->log.stream_id,
        .initial_term_id = pub->log.initial_term_id,
        .active_term_id =
            ps_term_id_at(pub->sender_position, pub->log.shift, pub->log.initial_term_id),
        .term_length = pub->log.term_length,
        .mtu = pub->log.mtu,
        .ttl = pub->params.ttl,
        .flags = pub->params.group ? PS_SETUP_GROUP : 0,
    };
    const bool skips = pub->params.policy == PS_POLICY_DROP_OLDEST;
    const ps_trailer_t trailer = {
        .capabilities =
            (pub->nak ? PS_CAP_PRESSURE : 0u) | PS_CAP_PENSTOCK | PS_CAP_ORDINALS |
            PS_CAP_NAK_LIST |
            (pub->nak || pub->params.flow_control == PS_FC_CUSTOM ? 0u : PS_CAP_CREDITS),
        .daemon_id = params->daemon_id,
        .daemon_epoch = params->daemon_epoch,
        .ordinal = pub->sent_ordinal,
        .flow_control = pub->params.flow_control,
        .group_tag = pub->params.fc_group_tag,
        .policy = skips ? pub->params.policy : PS_POLICY_NONE, /* receivers apply no other */
        .depth_bytes = skips ? pub->params.depth_bytes : 0,
        .depth_messages = skips ? (uint32_t)pub->params.reader_depth_messages : 0,
        .retention_bytes = pub->params.retention_bytes,
        .retention_ns = pub->params.retention_ns,
        .relay_path = pub->params.relay_path,
        .credit_weight = (uint32_t)pub->params.credit_weight,
        .priority = pub->params.priority <= PS_PRIORITY_MAX ? pub->params.priority : 0,
        .credit_limit = -1,
        .released_ordinal = -1,
    };
    return ps_wire_build_setup(out, &setup, params->advertise ? &trailer : NULL);
}

bool ps_publication_send_setup(ps_publication_t *pub, int64_t now_ns)
{
    uint8_t out[PS_CONTROL_MAX];
    const uint32_t length = ps_publication_build_setup(pub, out);
    if (!send_one(pub, out, length, now_ns)) {
        return false;
    }
    pub->setup_sent_ns = now_ns;
    if (pub->has_receivers) {
        pub->setup_elicited = false;
    }
    pub->fc.ops->on_setup_sent(&pub->fc, pub->sender_limit, now_ns);
    ps_publication_show_joiner(pub, now_ns);
    return true;
}

void ps_publication_build_heartbeat(const ps_publication_t *pub, uint8_t *out)
{
    uint8_t flags = PS_FLAG_UNFRAGMENTED;
    if (pub->revoked) {
        flags |= PS_FLAG_EOS | PS_FLAG_REVOKED;
    } else if (pub->end_of_stream && pub->params.signal_eos) {
        flags |= PS_FLAG_EOS;
    }
    const ps_place_t place =
        ps_place_of(pub->sender_position, pub->log.shift, pub->log.initial_term_id);
    const uint32_t length = ps_wire_build_heartbeat(out, pub->log.session_id, pub->log.stream_id,
                                                    place.term_id, place.term_offset, flags);
    PS_ASSERT(length == PS_HEARTBEAT_BYTES);
    (void)length;
}

bool ps_publication_send_heartbeat(ps_publication_t *pub, int64_t now_ns)
{
    uint8_t out[PS_HEARTBEAT_BYTES];
    if (!ps_send_endpoint_reachable(pub->endpoint)) {
        return false;
    }
    ps_publication_build_heartbeat(pub, out);
    ps_send_endpoint_queue(pub->endpoint, pub, out, now_ns);
    pub->heartbeat_sent_ns = now_ns;
    pub->greets = false;
    return true;
}
