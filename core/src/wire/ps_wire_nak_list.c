/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_nak_list.c: see ps_wire_nak_list.h.
 */
#include "ps_wire_nak_list.h"

#include "ps_assert.h"

#include "ps_wire_fields.h"

_Static_assert(PS_EXT_HEADER_BYTES + PS_NAK_LIST_MAX * PS_NAK_RANGE_BYTES <= PS_CONTROL_MAX,
               "a full list is one control datagram");

int32_t ps_wire_ext_subtype(const uint8_t *data, uint32_t length)
{
    PS_ASSERT(length >= PS_EXT_HEADER_BYTES);
    (void)length;
    return data[12] == PS_EXT_VERSION ? ps_get_u16(data + 14) : -1;
}

int ps_wire_nak_list(const uint8_t *data, uint32_t length, ps_nak_list_t *out)
{
    const int32_t frame_length = length >= PS_EXT_HEADER_BYTES ? ps_get_i32(data) : 0;
    const int32_t body = frame_length > 0 ? frame_length - PS_EXT_HEADER_BYTES : 0;

    out->count = 0;
    if (length < PS_EXT_HEADER_BYTES) {
        return PS_WIRE_SHORT;
    }
    if (body < PS_NAK_RANGE_BYTES || (uint32_t)frame_length > length ||
        body % PS_NAK_RANGE_BYTES != 0 || body / PS_NAK_RANGE_BYTES > PS_NAK_LIST_MAX) {
        return PS_WIRE_BAD_FIELD;
    }
    out->session_id = ps_get_i32(data + 16);
    out->stream_id = ps_get_i32(data + 20);
    out->count = body / PS_NAK_RANGE_BYTES;
    for (int32_t i = 0; i < out->count; i++) {
        const uint8_t *at = data + PS_EXT_HEADER_BYTES + i * PS_NAK_RANGE_BYTES;
        out->ranges[i].term_id = ps_get_i32(at);
        out->ranges[i].term_offset = ps_get_i32(at + 4);
        out->ranges[i].length = ps_get_i32(at + 8);
    }
    return PS_WIRE_OK;
}

uint32_t ps_wire_build_nak_list(uint8_t *out, const ps_nak_list_t *list)
{
    const uint32_t length = PS_EXT_HEADER_BYTES + (uint32_t)list->count * PS_NAK_RANGE_BYTES;

    PS_ASSERT(list->count >= 1 && list->count <= PS_NAK_LIST_MAX);
    memset(out, 0, PS_EXT_HEADER_BYTES);
    ps_put_i32(out, (int32_t)length);
    ps_put_u16(out + 6, PS_TYPE_EXT);
    ps_put_u32(out + 8, PS_EXT_MAGIC);
    out[12] = PS_EXT_VERSION;
    ps_put_u16(out + 14, PS_EXT_NAK_LIST);
    ps_put_i32(out + 16, list->session_id);
    ps_put_i32(out + 20, list->stream_id);
    for (int32_t i = 0; i < list->count; i++) {
        uint8_t *at = out + PS_EXT_HEADER_BYTES + i * PS_NAK_RANGE_BYTES;
        ps_put_i32(at, list->ranges[i].term_id);
        ps_put_i32(at + 4, list->ranges[i].term_offset);
        ps_put_i32(at + 8, list->ranges[i].length);
    }
    return length;
}
