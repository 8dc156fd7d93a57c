/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_credit.c: see ps_wire_credit.h.
 */
#include "ps_wire_credit.h"

#include "ps_wire_fields.h"

int ps_wire_credit(const uint8_t *data, uint32_t length, ps_credit_frame_t *out)
{
    memset(out, 0, sizeof(*out));
    if (length < PS_EXT_HEADER_BYTES) {
        return PS_WIRE_SHORT;
    }
    const int32_t frame_length = ps_get_i32(data);
    if (frame_length < PS_CREDIT_BYTES || (uint32_t)frame_length > length) {
        return PS_WIRE_BAD_FIELD;
    }
    out->session_id = ps_get_i32(data + 16);
    out->stream_id = ps_get_i32(data + 20);
    out->receiver_id = ps_get_i64(data + 24);
    out->epoch = ps_get_u32(data + 32);
    out->flags = ps_get_u32(data + 36);
    out->ordinal = ps_get_i64(data + 40);
    return ps_believed_ordinal(out->ordinal) >= 0 ? PS_WIRE_OK : PS_WIRE_BAD_FIELD;
}

uint32_t ps_wire_build_credit(uint8_t *out, const ps_credit_frame_t *credit)
{
    memset(out, 0, PS_CREDIT_BYTES);
    ps_put_i32(out, PS_CREDIT_BYTES);
    ps_put_u16(out + 6, PS_TYPE_EXT);
    ps_put_u32(out + 8, PS_EXT_MAGIC);
    out[12] = PS_EXT_VERSION;
    ps_put_u16(out + 14, PS_EXT_CREDIT);
    ps_put_i32(out + 16, credit->session_id);
    ps_put_i32(out + 20, credit->stream_id);
    ps_put_i64(out + 24, credit->receiver_id);
    ps_put_u32(out + 32, credit->epoch);
    ps_put_u32(out + 36, credit->flags);
    ps_put_i64(out + 40, credit->ordinal);
    return PS_CREDIT_BYTES;
}
