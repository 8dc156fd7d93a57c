/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire.c: checks, decoding and building of frames (docs/spec/wire-format.md).
 *
 * Fields are read with memcpy, since receiver ids and timestamps are not aligned and a datagram may
 * start anywhere. Two checks are stricter than Aeron's: frames shorter than their own header, and
 * chains that change session or term, are dropped. No correct peer is affected; such frames would
 * put invalid headers into the log. */
#include "ps_wire.h"

#include "ps_assert.h"
#include <stdbool.h>
#include <string.h>

#include "ps_frame.h"
#include "ps_wire_fields.h"

_Static_assert(PS_CONTROL_MAX >= PS_ERR_BYTES + 64, "control datagrams hold some error text");
_Static_assert(PS_CONTROL_MAX >= PS_SM_TAG_BYTES + PS_TRAILER_MAX, "an SM and its trailer fit");

/* ---- first check ----------------------------------------------------------------------------- */

/* Least datagram length of a control type, 0 for a type that is no control type. */
static uint32_t control_minimum(uint16_t type)
{
    switch (type) {
    case PS_TYPE_NAK: return PS_NAK_BYTES;
    case PS_TYPE_SM: return PS_SM_BYTES;
    case PS_TYPE_ERR: return PS_ERR_BYTES;
    case PS_TYPE_SETUP: return PS_SETUP_BYTES;
    case PS_TYPE_RTTM: return PS_RTTM_BYTES;
    case PS_TYPE_RES: return 22;
    case PS_TYPE_RSP_SETUP: return PS_RSP_SETUP_BYTES;
    case PS_TYPE_EXT: return PS_EXT_HEADER_BYTES;
    default: return 0;
    }
}

int ps_wire_check(const uint8_t *data, uint32_t length, uint16_t *type)
{
    PS_ASSERT(data != NULL && type != NULL);
    *type = 0;
    if (length < 8) {
        return PS_WIRE_SHORT;
    }
    const int32_t frame_length = ps_get_i32(data);
    *type = ps_get_u16(data + 6);
    if (frame_length < 0) {
        return PS_WIRE_NEGATIVE;
    }
    if (data[4] != 0) {
        return PS_WIRE_BAD_VERSION;
    }
    if (*type == PS_TYPE_DATA || *type == PS_TYPE_PAD) {
        if (length < PS_HEADER_BYTES) {
            return PS_WIRE_SHORT;
        }
        return length % PS_FRAME_ALIGNMENT == 0 ? PS_WIRE_OK : PS_WIRE_UNALIGNED;
    }
    const uint32_t minimum = control_minimum(*type);
    if (minimum == 0) {
        return PS_WIRE_UNKNOWN_TYPE;
    }
    if (*type == PS_TYPE_EXT) {
        if (length < minimum || ps_get_u32(data + 8) != PS_EXT_MAGIC) {
            return PS_WIRE_UNKNOWN_TYPE;
        }
    } else if (length < minimum) {
        return PS_WIRE_SHORT;
    }
    return (uint32_t)frame_length <= length ? PS_WIRE_OK : PS_WIRE_TRUNCATED;
}

/* ---- decoders -------------------------------------------------------------------------------- */

/* PS_TERM_MAX: the end of a stream of the longest terms (ps_place_of). */
static int offset_is_valid(int32_t offset)
{
    return offset >= 0 && offset <= PS_TERM_MAX && offset % PS_FRAME_ALIGNMENT == 0;
}

/* The trailer starts behind frame_length; a frame that claims less than its base has none. */
static void read_trailer(const uint8_t *data, uint32_t length, uint32_t base, ps_trailer_t *out)
{
    const uint32_t frame_length = (uint32_t)ps_get_i32(data);
    if (frame_length < base || frame_length > length) {
        ps_trailer_clear(out);
        return;
    }
    ps_trailer_read(data + frame_length, length - frame_length, out);
}

int ps_wire_setup(const uint8_t *data, uint32_t length, ps_setup_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_SETUP_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->flags = data[5];
    out->term_offset = ps_get_i32(data + 8);
    out->session_id = ps_get_i32(data + 12);
    out->stream_id = ps_get_i32(data + 16);
    out->initial_term_id = ps_get_i32(data + 20);
    out->active_term_id = ps_get_i32(data + 24);
    out->term_length = ps_get_i32(data + 28);
    out->mtu = ps_get_i32(data + 32);
    out->ttl = ps_get_i32(data + 36);
    read_trailer(data, length, PS_SETUP_BYTES, &out->trailer);
    const int32_t term = out->term_length;
    if (term < PS_TERM_MIN || term > PS_TERM_MAX || (term & (term - 1)) != 0) {
        return PS_WIRE_BAD_FIELD;
    }
    if (!offset_is_valid(out->term_offset) || out->term_offset >= term) {
        return PS_WIRE_BAD_FIELD;
    }
    if (out->mtu < 32 || out->mtu > PS_MTU_MAX || out->mtu % PS_FRAME_ALIGNMENT != 0) {
        return PS_WIRE_BAD_FIELD;
    }
    if (out->ttl < 0 || out->ttl > PS_TTL_MAX) {
        return PS_WIRE_BAD_FIELD;
    }
    return ps_wrap_sub(out->active_term_id, out->initial_term_id) < 0 ? PS_WIRE_BAD_FIELD
                                                                      : PS_WIRE_OK;
}

int ps_wire_sm(const uint8_t *data, uint32_t length, ps_sm_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_SM_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->flags = data[5];
    out->session_id = ps_get_i32(data + 8);
    out->stream_id = ps_get_i32(data + 12);
    out->term_id = ps_get_i32(data + 16);
    out->term_offset = ps_get_i32(data + 20);
    out->window = ps_get_i32(data + 24);
    out->receiver_id = ps_get_i64(data + 28);
    if (length >= PS_SM_TAG_BYTES && ps_get_i32(data) == PS_SM_TAG_BYTES) {
        out->has_group_tag = 1;
        out->group_tag = ps_get_i64(data + 36);
    }
    read_trailer(data, length, PS_SM_BYTES, &out->trailer);
    if (!offset_is_valid(out->term_offset)) {
        return PS_WIRE_BAD_FIELD;
    }
    return out->window >= 0 && out->window <= PS_TERM_MAX / 2 ? PS_WIRE_OK : PS_WIRE_BAD_FIELD;
}

int ps_wire_nak(const uint8_t *data, uint32_t length, ps_nak_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_NAK_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->session_id = ps_get_i32(data + 8);
    out->stream_id = ps_get_i32(data + 12);
    out->term_id = ps_get_i32(data + 16);
    out->term_offset = ps_get_i32(data + 20);
    out->length = ps_get_i32(data + 24);
    if (!offset_is_valid(out->term_offset) || out->length < 0) {
        return PS_WIRE_BAD_FIELD;
    }
    return (int64_t)out->term_offset + out->length <= PS_TERM_MAX ? PS_WIRE_OK : PS_WIRE_BAD_FIELD;
}

int ps_wire_rttm(const uint8_t *data, uint32_t length, ps_rttm_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_RTTM_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->flags = data[5];
    out->session_id = ps_get_i32(data + 8);
    out->stream_id = ps_get_i32(data + 12);
    out->echo_ns = ps_get_i64(data + 16);
    out->reception_delta_ns = ps_get_i64(data + 24);
    out->receiver_id = ps_get_i64(data + 32);
    return PS_WIRE_OK;
}

int ps_wire_err(const uint8_t *data, uint32_t length, ps_err_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_ERR_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->has_group_tag = (data[5] & PS_ERR_HAS_TAG) != 0;
    out->session_id = ps_get_i32(data + 8);
    out->stream_id = ps_get_i32(data + 12);
    out->receiver_id = ps_get_i64(data + 16);
    out->group_tag = ps_get_i64(data + 24);
    out->code = ps_get_i32(data + 32);
    const int32_t text_length = ps_get_i32(data + 36);
    const int32_t frame_length = ps_get_i32(data);
    if (text_length < 0 || text_length > PS_ERR_TEXT_MAX ||
        PS_ERR_BYTES + text_length > frame_length || (uint32_t)frame_length > length) {
        return PS_WIRE_BAD_FIELD;
    }
    out->text_length = text_length;
    out->text = data + PS_ERR_BYTES;
    return PS_WIRE_OK;
}

int ps_wire_rsp_setup(const uint8_t *data, uint32_t length, ps_rsp_setup_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_RSP_SETUP_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->session_id = ps_get_i32(data + 8);
    out->stream_id = ps_get_i32(data + 12);
    out->response_session_id = ps_get_i32(data + 16);
    return PS_WIRE_OK;
}

int ps_wire_data(const uint8_t *data, uint32_t length, ps_data_t *out)
{
    PS_ASSERT(data != NULL && out != NULL);
    memset(out, 0, sizeof *out);
    if (length < PS_HEADER_BYTES) {
        return PS_WIRE_SHORT;
    }
    out->flags = data[5];
    out->type = ps_get_u16(data + 6);
    out->term_offset = ps_get_i32(data + 8);
    out->session_id = ps_get_i32(data + 12);
    out->stream_id = ps_get_i32(data + 16);
    out->term_id = ps_get_i32(data + 20);
    out->is_heartbeat = length == PS_HEARTBEAT_BYTES && ps_get_i32(data) == 0;
    return offset_is_valid(out->term_offset) ? PS_WIRE_OK : PS_WIRE_BAD_FIELD;
}

/* Returns 1 if a frame of a chain has the ids of the first frame and a valid length. */
static int chained_frame_is_valid(const uint8_t *first, const uint8_t *frame)
{
    const uint16_t type = ps_get_u16(frame + 6);
    return ps_get_i32(frame) >= PS_HEADER_BYTES && frame[4] == 0 &&
           (type == PS_TYPE_DATA || type == PS_TYPE_PAD) && memcmp(first + 12, frame + 12, 12) == 0;
}

int ps_wire_chain(const uint8_t *data, uint32_t length, int32_t term_length, int32_t *span,
                  int32_t *messages)
{
    PS_ASSERT(data != NULL && span != NULL && messages != NULL);
    *span = 0;
    *messages = 0;
    if (length < PS_HEADER_BYTES || length % PS_FRAME_ALIGNMENT != 0) {
        return PS_WIRE_UNALIGNED;
    }
    const int32_t start = ps_get_i32(data + 8);
    if (!offset_is_valid(start) || start >= term_length) {
        return PS_WIRE_BAD_FIELD;
    }
    int64_t covered = 0;
    int64_t whole = 0;
    for (uint32_t at = 0; at < length;) {
        const uint8_t *frame = data + at;
        if (!chained_frame_is_valid(data, frame) || ps_get_i32(frame + 8) != start + covered) {
            return PS_WIRE_BAD_CHAIN;
        }
        const int64_t aligned = ps_align32_64(ps_get_i32(frame));
        const int is_pad = ps_get_u16(frame + 6) == PS_TYPE_PAD;
        if (aligned > (int64_t)(length - at) && !is_pad) {
            return PS_WIRE_BAD_CHAIN;
        }
        covered += aligned;
        if (start + covered > term_length) {
            return PS_WIRE_BAD_CHAIN;
        }
        whole += is_pad ? ps_marked_messages((int64_t)ps_get_u64(frame + 24))
                        : (frame[5] & PS_FLAG_END) != 0;
        at = aligned >= (int64_t)(length - at) ? length : at + (uint32_t)aligned;
    }
    *span = (int32_t)covered;
    *messages = whole < INT32_MAX ? (int32_t)whole : INT32_MAX;
    return PS_WIRE_OK;
}

/* Common fields of all frames of a run, and the next offset. */
typedef struct run {
    uint64_t session; /* bytes 8..16 of a header, but for the term offset */
    uint64_t stream;  /* bytes 16..24: stream and term */
    uint32_t offset;  /* of the next frame */
    int32_t step;     /* aligned length of the latest frame: probably of the next one too */
    uint32_t messages;
} run_t;

enum { PS_RUN_KIND_MASK = (int)0xFFFF00FF, PS_RUN_KIND = PS_TYPE_DATA << 16 };

/* The frame at data, whose first 8 bytes are word, with left bytes of its datagram: its aligned
 * length if it continues the run, else 0. */
static inline uint32_t step_of(uint64_t word, const uint8_t *data, uint32_t left, run_t *run)
{
    const uint32_t frame_length = (uint32_t)word;
    const uint32_t kind = (uint32_t)(word >> 32);
    const uint64_t differs = (ps_get_u64(data + 8) ^ (run->session | run->offset)) |
                             (ps_get_u64(data + 16) ^ run->stream) |
                             ((kind & (uint32_t)PS_RUN_KIND_MASK) ^ PS_RUN_KIND);
    if (differs != 0 || frame_length < PS_HEADER_BYTES || frame_length > left) {
        return 0;
    }
    const uint32_t aligned = (frame_length + PS_FRAME_ALIGNMENT - 1) & ~31u;
    const uint32_t step = (uint32_t)ps_frame_guess(&run->step, (int32_t)aligned);
    run->messages += (kind >> 14) & 1; /* PS_FLAG_END */
    run->offset += step;
    return step;
}

/* Frames of one datagram, whose length is a multiple of 32. */
static bool walk_datagram(uint64_t first_word, const uint8_t *data, uint32_t length, run_t *run)
{
    uint32_t step = step_of(first_word, data, length, run);
    uint32_t at = step;
    while (step > 0 && at < length) {
        step = step_of(ps_get_u64(data + at), data + at, length - at, run);
        at += step;
    }
    return step > 0;
}

uint32_t ps_wire_run_from(uint64_t first_word, const uint8_t *data, uint32_t length,
                          uint32_t segment, int32_t term_length, int32_t *messages)
{
    PS_ASSERT(data != NULL && messages != NULL);
    *messages = 0;
    if (length < PS_HEADER_BYTES || ((length | segment) & (PS_FRAME_ALIGNMENT - 1)) != 0) {
        return 0;
    }
    const int32_t start = ps_get_i32(data + 8);
    if (!offset_is_valid(start) || start >= term_length) {
        return 0;
    }
    const uint64_t ids = ps_get_u64(data + 8);
    run_t run = { .session = ids ^ (uint32_t)ids,
                  .stream = ps_get_u64(data + 16),
                  .offset = (uint32_t)start };
    uint32_t done = 0;
    while (done < length) {
        const uint32_t size = length - done < segment ? length - done : segment;
        const uint64_t word = done == 0 ? first_word : ps_get_u64(data + done);
        if (size > (uint32_t)term_length - run.offset ||
            !walk_datagram(word, data + done, size, &run)) {
            break;
        }
        done += size;
        *messages = (int32_t)run.messages;
    }
    return done;
}

uint32_t ps_wire_run(const uint8_t *data, uint32_t length, uint32_t segment, int32_t term_length,
                     int32_t *messages)
{
    *messages = 0;
    return length < PS_HEADER_BYTES
               ? 0
               : ps_wire_run_from(ps_get_u64(data), data, length, segment, term_length, messages);
}

/* ---- builders -------------------------------------------------------------------------------- */

static void put_header(uint8_t *out, int32_t frame_length, uint8_t flags, uint16_t type)
{
    ps_put_i32(out, frame_length);
    out[4] = 0;
    out[5] = flags;
    ps_put_u16(out + 6, type);
}

uint32_t ps_wire_build_setup(uint8_t *out, const ps_setup_t *setup, const ps_trailer_t *trailer)
{
    PS_ASSERT(out != NULL && setup != NULL);
    put_header(out, PS_SETUP_BYTES, setup->flags, PS_TYPE_SETUP);
    ps_put_i32(out + 8, setup->term_offset);
    ps_put_i32(out + 12, setup->session_id);
    ps_put_i32(out + 16, setup->stream_id);
    ps_put_i32(out + 20, setup->initial_term_id);
    ps_put_i32(out + 24, setup->active_term_id);
    ps_put_i32(out + 28, setup->term_length);
    ps_put_i32(out + 32, setup->mtu);
    ps_put_i32(out + 36, setup->ttl);
    return PS_SETUP_BYTES + ps_trailer_write_setup(out + PS_SETUP_BYTES, trailer);
}

uint32_t ps_wire_build_sm(uint8_t *out, const ps_sm_t *sm, const ps_trailer_t *trailer)
{
    PS_ASSERT(out != NULL && sm != NULL);
    const uint32_t base = sm->has_group_tag ? PS_SM_TAG_BYTES : PS_SM_BYTES;
    put_header(out, (int32_t)base, sm->flags, PS_TYPE_SM);
    ps_put_i32(out + 8, sm->session_id);
    ps_put_i32(out + 12, sm->stream_id);
    ps_put_i32(out + 16, sm->term_id);
    ps_put_i32(out + 20, sm->term_offset);
    ps_put_i32(out + 24, sm->window);
    ps_put_i64(out + 28, sm->receiver_id);
    if (sm->has_group_tag) {
        ps_put_i64(out + 36, sm->group_tag);
    }
    return base + ps_trailer_write_sm(out + base, trailer);
}

uint32_t ps_wire_build_nak(uint8_t *out, const ps_nak_t *nak)
{
    PS_ASSERT(out != NULL && nak != NULL);
    put_header(out, PS_NAK_BYTES, 0, PS_TYPE_NAK);
    ps_put_i32(out + 8, nak->session_id);
    ps_put_i32(out + 12, nak->stream_id);
    ps_put_i32(out + 16, nak->term_id);
    ps_put_i32(out + 20, nak->term_offset);
    ps_put_i32(out + 24, nak->length);
    return PS_NAK_BYTES;
}

uint32_t ps_wire_build_rttm(uint8_t *out, const ps_rttm_t *rttm)
{
    PS_ASSERT(out != NULL && rttm != NULL);
    put_header(out, PS_RTTM_BYTES, rttm->flags, PS_TYPE_RTTM);
    ps_put_i32(out + 8, rttm->session_id);
    ps_put_i32(out + 12, rttm->stream_id);
    ps_put_i64(out + 16, rttm->echo_ns);
    ps_put_i64(out + 24, rttm->reception_delta_ns);
    ps_put_i64(out + 32, rttm->receiver_id);
    return PS_RTTM_BYTES;
}

uint32_t ps_wire_build_err(uint8_t *out, const ps_err_t *err)
{
    PS_ASSERT(out != NULL && err != NULL);
    const int32_t room = PS_CONTROL_MAX - PS_ERR_BYTES;
    int32_t text_length = err->text == NULL || err->text_length < 0 ? 0 : err->text_length;
    text_length = text_length > room ? room : text_length;
    put_header(out, PS_ERR_BYTES + text_length, err->has_group_tag ? PS_ERR_HAS_TAG : 0,
               PS_TYPE_ERR);
    ps_put_i32(out + 8, err->session_id);
    ps_put_i32(out + 12, err->stream_id);
    ps_put_i64(out + 16, err->receiver_id);
    ps_put_i64(out + 24, err->has_group_tag ? err->group_tag : -1);
    ps_put_i32(out + 32, err->code);
    ps_put_i32(out + 36, text_length);
    if (text_length > 0) {
        memcpy(out + PS_ERR_BYTES, err->text, (size_t)text_length);
    }
    return (uint32_t)(PS_ERR_BYTES + text_length);
}

uint32_t ps_wire_build_heartbeat(uint8_t *out, int32_t session_id, int32_t stream_id,
                                 int32_t term_id, int32_t term_offset, uint8_t flags)
{
    PS_ASSERT(out != NULL);
    put_header(out, 0, flags, PS_TYPE_DATA);
    ps_put_i32(out + 8, term_offset);
    ps_put_i32(out + 12, session_id);
    ps_put_i32(out + 16, stream_id);
    ps_put_i32(out + 20, term_id);
    ps_put_i64(out + 24, 0);
    return PS_HEARTBEAT_BYTES;
}
