/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_stamp.c: timestamps in messages (ps_sim_stamp.h).  A sender writes its own into each frame
 * as it leaves for the first time; a receiver writes two, of arrival and of reading, in this order,
 * into what it takes.  At an offset of the payload only the frame that begins a message has one,
 * and only when all of it fits; in the reserved value each frame has one.
 */
#include <stdlib.h>

#include "ps_sim_stamp.h"
#include "ps_wire_fields.h"

enum {
    MAX_STREAMS = 256,
    SEEN = 8192,
    PASSED = 256,
    TRIED = 64,
    RESERVED = -8,
    NOWHERE = INT32_MIN,
    STAMP_BYTES = 8
};

/* A datagram, and when. */
typedef struct seen {
    int64_t from, to;
    int64_t times_ns[2]; /* sent; or arrived, and read */
} seen_t;

/* A stream as one side stamps it. */
typedef struct stamped {
    int32_t host;   /* that reads; -1: the sender's side */
    int32_t sender; /* host, of the sender's side */
    int32_t session_id, stream_id, mtu;
    int32_t places[2];
    int64_t epoch_offset_ns;
    int64_t high; /* end of what left, to whomever, or was passed over */
    uint64_t count, passed_count, tried_count;
    seen_t seen[SEEN];
    seen_t tried[TRIED];   /* stamped for a socket that did not take it */
    seen_t passed[PASSED]; /* by a sender that spies led: without a time */
} stamped_t;

struct ps_sim_stamps {
    int32_t count;
    stamped_t *streams[MAX_STREAMS];
};

void ps_sim_stamps_free(ps_probe_t *probe)
{
    for (int32_t i = 0; probe->stamps != NULL && i < probe->stamps->count; i++) {
        free(probe->stamps->streams[i]);
    }
    free(probe->stamps);
    probe->stamps = NULL;
}

static stamped_t *find(const ps_probe_t *probe, int32_t host, int32_t session_id, int32_t stream_id)
{
    for (int32_t i = 0; probe->stamps != NULL && i < probe->stamps->count; i++) {
        stamped_t *stream = probe->stamps->streams[i];
        if (stream->host == host && stream->session_id == session_id &&
            stream->stream_id == stream_id) {
            return stream;
        }
    }
    return NULL;
}

/* The stream's entry, made when there is none.  NULL: no memory. */
static stamped_t *entry_of(ps_probe_t *probe, int32_t host, const ps_log_t *log,
                           const ps_context_t *context)
{
    stamped_t *found = find(probe, host, log->session_id, log->stream_id);
    if (found != NULL) {
        return found;
    }
    if (probe->stamps == NULL) {
        probe->stamps = calloc(1, sizeof *probe->stamps);
    }
    if (probe->stamps == NULL || probe->stamps->count == MAX_STREAMS ||
        (found = calloc(1, sizeof *found)) == NULL) {
        return NULL;
    }
    probe->stamps->streams[probe->stamps->count++] = found;
    found->host = host;
    found->session_id = log->session_id;
    found->stream_id = log->stream_id;
    found->mtu = log->mtu;
    found->epoch_offset_ns = ps_context_epoch_offset_ns(context);
    return found;
}

static void keep(stamped_t *stream, int64_t from, int64_t span, int64_t first_ns, int64_t second_ns)
{
    stream->seen[stream->count++ % SEEN] =
        (seen_t){ .from = from, .to = from + span, .times_ns = { first_ns, second_ns } };
}

static int64_t position_of(const ps_log_t *log, const ps_data_t *data)
{
    return (int64_t)(int32_t)((uint32_t)data->term_id - (uint32_t)log->initial_term_id) *
               log->term_length +
           data->term_offset;
}

/* Whether a frame that begins a message, with so much payload, has a stamp at that place. */
static bool fits(int32_t place, int64_t payload)
{
    return place >= 0 && payload - STAMP_BYTES >= place;
}

/* Data sent for the first time has the present time, and only at the stated offset. */
static const char *check_frames(const stamped_t *stream, const ps_sim_packet_t *packet,
                                int64_t now_ns)
{
    const int64_t wanted = now_ns + stream->epoch_offset_ns;
    for (uint32_t at = 0; at + PS_HEADER_BYTES <= packet->length;) {
        ps_frame_t frame;
        memcpy(&frame, packet->data + at, sizeof frame);
        const bool data = frame.type == PS_TYPE_DATA;
        const int64_t reserved = frame.reserved_value;
        int64_t found = wanted;
        const bool marked = !data && ps_is_gap_mark(reserved); /* it states what was dropped */
        if (!marked && reserved != (data && stream->places[0] == RESERVED ? wanted : 0)) {
            return "the reserved value of what left is not the time of sending";
        }
        if (data && (frame.flags & PS_FLAG_BEGIN) != 0 &&
            fits(stream->places[0], frame.frame_length - PS_HEADER_BYTES)) {
            memcpy(&found, packet->data + at + PS_HEADER_BYTES + stream->places[0], STAMP_BYTES);
        }
        if (found != wanted) {
            return "what left has not the time of sending";
        }
        at += (uint32_t)ps_align32(frame.frame_length);
    }
    return NULL;
}

static bool carries_data(const uint8_t *bytes, uint32_t length, ps_data_t *data)
{
    uint16_t type = 0;
    return ps_wire_check(bytes, length, &type) == PS_WIRE_OK &&
           (type == PS_TYPE_DATA || type == PS_TYPE_PAD) &&
           ps_wire_data(bytes, length, data) == PS_WIRE_OK && !data->is_heartbeat;
}

/* The entry of the publication whose data these bytes are, and what of it.  NULL: not data, or of a
 * channel without a time of sending. */
static stamped_t *outgoing(ps_probe_t *probe, int32_t host, const uint8_t *bytes, uint32_t length,
                           int64_t *from, int64_t *to)
{
    ps_data_t data;
    int32_t span = 0;
    int32_t messages = 0;
    if (!carries_data(bytes, length, &data)) {
        return NULL;
    }
    const ps_probe_pub_t *model = ps_probe_pub(probe, host, data.session_id, data.stream_id);
    if (model == NULL || !model->pub->params.channel_timestamp ||
        ps_wire_chain(bytes, length, model->pub->log.term_length, &span, &messages) != PS_WIRE_OK) {
        return NULL;
    }
    const ps_publication_t *pub = model->pub;
    stamped_t *stream = entry_of(probe, -1, &pub->log, pub->context);
    if (stream != NULL) {
        stream->places[0] = pub->params.channel_timestamp_offset;
        stream->places[1] = NOWHERE;
        stream->sender = host;
        *from = position_of(&pub->log, &data);
        *to = *from + span;
    }
    return stream;
}

void ps_sim_stamp_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       enum ps_sim_kind kind, int64_t now_ns)
{
    int64_t from = 0;
    int64_t to = 0;
    stamped_t *stream = outgoing(probe, host, packet->data, packet->length, &from, &to);
    if (stream == NULL) {
        return;
    }
    keep(stream, from, to - from, now_ns, now_ns);
    /* Data that is new for one destination may have been sent to another destination before. */
    const bool first = kind == PS_SIM_FRESH && to > stream->high;
    const char *wrong = first ? check_frames(stream, packet, now_ns) : NULL;
    stream->high = to > stream->high ? to : stream->high;
    if (wrong != NULL) {
        ps_probe_fail(probe, host, stream->session_id, "%s", wrong);
    }
}

void ps_sim_stamp_refused(ps_probe_t *probe, int32_t host, const uint8_t *bytes, uint32_t length,
                          int64_t now_ns)
{
    int64_t from = 0;
    int64_t to = 0;
    stamped_t *stream = outgoing(probe, host, bytes, length, &from, &to);
    if (stream == NULL || from < stream->high) {
        return; /* a retransmit keeps its time */
    }
    const seen_t tried = { .from = from, .to = to, .times_ns = { now_ns, now_ns } };
    for (uint64_t i = 0; i < TRIED && i < stream->tried_count; i++) {
        if (stream->tried[i].from == from) {
            stream->tried[i] = tried; /* the newer time is written over the older */
            return;
        }
    }
    stream->tried[stream->tried_count++ % TRIED] = tried;
}

/* There is no receiver on the network. If data that the sender passed is requested later, it is
 * sent as it was published. */
void ps_sim_stamp_passed(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t from, int64_t to)
{
    const ps_publication_t *pub = model->pub;
    stamped_t *stream =
        pub->params.channel_timestamp ? entry_of(probe, -1, &pub->log, pub->context) : NULL;
    if (stream == NULL) {
        return;
    }
    stream->places[0] = pub->params.channel_timestamp_offset;
    stream->places[1] = NOWHERE;
    stream->sender = model->host;
    stream->high = to > stream->high ? to : stream->high;
    seen_t *last = &stream->passed[(stream->passed_count + PASSED - 1) % PASSED];
    if (stream->passed_count > 0 && last->to == from) {
        last->to = to;
    } else {
        stream->passed[stream->passed_count++ % PASSED] = (seen_t){ .from = from, .to = to };
    }
}

static bool was_passed(const stamped_t *stream, int64_t from, int64_t to)
{
    for (uint64_t i = 0; i < PASSED && i < stream->passed_count; i++) {
        if (stream->passed[i].from < to && from < stream->passed[i].to) {
            return true;
        }
    }
    return false;
}

void ps_sim_stamp_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                       int64_t rx_ns, int64_t now_ns)
{
    ps_data_t data;
    int32_t span = 0;
    int32_t messages = 0;
    if (!carries_data(packet->data, packet->length, &data)) {
        return;
    }
    const ps_probe_image_t *model =
        ps_probe_image(probe, host, data.session_id, data.stream_id, now_ns);
    const ps_recv_endpoint_t *endpoint = model == NULL ? NULL : model->image->endpoint;
    if (endpoint == NULL ||
        (!endpoint->params.media_timestamp && !endpoint->params.channel_timestamp) ||
        ps_wire_chain(packet->data, packet->length, model->image->log.term_length, &span,
                      &messages) != PS_WIRE_OK) {
        return;
    }
    const ps_image_t *image = model->image;
    stamped_t *stream = entry_of(probe, host, &image->log, image->context);
    if (stream == NULL) {
        return;
    }
    stream->places[0] =
        endpoint->params.media_timestamp ? endpoint->params.media_timestamp_offset : NOWHERE;
    stream->places[1] =
        endpoint->params.channel_timestamp ? endpoint->params.channel_timestamp_offset : NOWHERE;
    keep(stream, position_of(&image->log, &data), span, rx_ns, now_ns);
}

/* Whether a datagram with bytes from [from, to) was seen at that time. */
static bool was_seen(const stamped_t *stream, int32_t which, int64_t from, int64_t to,
                     int64_t epoch_ns)
{
    const uint64_t kept = stream->count < SEEN ? stream->count : SEEN;
    for (uint64_t i = 1; i <= kept; i++) {
        const seen_t *seen = &stream->seen[(stream->count - i) % SEEN];
        if (seen->from < to && from < seen->to &&
            seen->times_ns[which] + stream->epoch_offset_ns == epoch_ns) {
            return true;
        }
    }
    return stream->count > SEEN; /* too long ago to say */
}

/* Whether bytes from [from, to) were to leave at that time, and the socket did not take them. */
static bool was_tried(const stamped_t *stream, int64_t from, int64_t to, int64_t epoch_ns)
{
    for (uint64_t i = 0; i < TRIED && i < stream->tried_count; i++) {
        const seen_t *tried = &stream->tried[i];
        if (tried->from < to && from < tried->to &&
            tried->times_ns[0] + stream->epoch_offset_ns == epoch_ns) {
            return true;
        }
    }
    return false;
}

/* Whether a stamp in the payload of the frame at from is a time of this side. */
static bool is_time(const stamped_t *stream, int32_t which, int64_t from, bool unsent,
                    int64_t epoch_ns)
{
    return was_seen(stream, which, from, from + 1, epoch_ns) ||
           (unsent && was_tried(stream, from, from + 1, epoch_ns));
}

/* One side's stamps of a message.  unsent: it may be read before it left.  forged: a stranger may
 * have changed the payload's first byte since.  reserved: what the message must have there, as it
 * stands. */
static bool take_over(const stamped_t *stream, const ps_message_t *message, bool unsent,
                      bool forged, uint8_t *published, bool *reserved)
{
    const int64_t most = stream->mtu - PS_HEADER_BYTES;
    const int64_t payload = message->length < most ? message->length : most;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t place = stream->places[i];
        /* Below it may be a stamp that the other side, or the second, has written over. */
        const bool last = i == 1 || place != stream->places[1];
        const int64_t from = message->start_position;
        int64_t value = message->reserved_value;
        if (place == RESERVED && last) {
            *reserved = was_seen(stream, i, from, message->position, value) ||
                        (unsent && was_tried(stream, from, message->position, value));
        } else if (fits(place, payload) && last) {
            memcpy(&value, message->data + place, STAMP_BYTES);
            if (forged && place == 0 && !is_time(stream, i, from, unsent, value)) {
                value ^= PS_SIM_FORGED_BITS; /* the first byte is the lowest */
            }
            if (!is_time(stream, i, from, unsent, value)) {
                return false;
            }
            memcpy(published + place, &value, STAMP_BYTES);
        }
    }
    return true;
}

static bool writes_over(const stamped_t *later, int32_t place)
{
    return later != NULL && (later->places[0] == place || later->places[1] == place);
}

const char *ps_sim_stamp_expected(const ps_probe_t *probe, int32_t host,
                                  const ps_message_t *message, bool estranged, uint8_t *published)
{
    const stamped_t *in = find(probe, host, message->session_id, message->stream_id);
    const stamped_t *out = find(probe, -1, message->session_id, message->stream_id);
    const bool zero = message->reserved_value == 0;
    bool reserved = zero;
    const bool spy = in == NULL && out != NULL && out->sender == host;
    if (spy && reserved && memcmp(published, message->data, (size_t)message->length) == 0) {
        return NULL; /* a spy may be ahead of the sender */
    }
    const bool passed = out != NULL && was_passed(out, message->start_position, message->position);
    /* A time that a receiver writes into the reserved value does not concern an offset in the
     * payload. */
    const bool plain = passed && (zero || out->places[0] != RESERVED);
    if (out != NULL && !writes_over(in, out->places[0]) &&
        !take_over(out, message, spy || passed, estranged, published, &reserved) && !plain) {
        return "has not the time at which it was sent";
    }
    reserved = reserved || (plain && zero);
    /* The receiver writes its times after what a stranger changed. */
    if (in != NULL && !take_over(in, message, false, false, published, &reserved)) {
        return "has not the time at which it came";
    }
    return reserved ? NULL : "has another reserved value than it should";
}
