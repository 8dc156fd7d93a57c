/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_pressure.c: see ps_wire_pressure.h.
 */
#include "ps_wire_pressure.h"

#include "ps_assert.h"
#include <stdbool.h>

#include "ps_wire_fields.h"

/* Larger values are invalid, so that sums and products stay far below 2^63. */
#define MOST (INT64_C(1) << 40)

int ps_wire_pressure(const uint8_t *data, uint32_t length, ps_pressure_t *out)
{
    memset(out, 0, sizeof(*out));
    if (length < PS_EXT_HEADER_BYTES) {
        return PS_WIRE_SHORT;
    }
    const int32_t frame_length = ps_get_i32(data);
    if (frame_length < PS_PRESSURE_BYTES || (uint32_t)frame_length > length) {
        return PS_WIRE_BAD_FIELD;
    }
    out->session_id = ps_get_i32(data + 16);
    out->stream_id = ps_get_i32(data + 20);
    out->receiver_id = ps_get_i64(data + 24);
    out->fill_ppm = ps_get_u32(data + 32);
    out->level = data[36];
    out->rtt_ns = ps_get_i64(data + 40);
    out->client_id = ps_get_i64(data + 48);
    out->backlog_bytes = ps_get_i64(data + 56);
    if (frame_length >= PS_PRESSURE_LONG_BYTES) {
        out->rate = ps_get_i64(data + 64);
        out->cadence_ns = ps_get_i64(data + 72);
        out->residue = ps_get_i64(data + 80);
        out->overrun = ps_get_i64(data + 88);
    }
    const bool sound = out->level >= 1 && out->level <= 4 && out->fill_ppm <= 1000000 &&
                       out->rtt_ns >= 0 && out->backlog_bytes >= 0 && out->rate >= 0 &&
                       out->rate <= MOST && out->cadence_ns >= 0 && out->cadence_ns <= MOST &&
                       out->residue >= 0 && out->residue <= MOST && out->overrun >= 0 &&
                       out->overrun <= MOST;
    return sound ? PS_WIRE_OK : PS_WIRE_BAD_FIELD;
}

uint32_t ps_wire_build_pressure(uint8_t *out, const ps_pressure_t *pressure)
{
    PS_ASSERT(pressure->level >= 1 && pressure->level <= 4);
    memset(out, 0, PS_PRESSURE_LONG_BYTES);
    ps_put_i32(out, PS_PRESSURE_LONG_BYTES);
    ps_put_u16(out + 6, PS_TYPE_EXT);
    ps_put_u32(out + 8, PS_EXT_MAGIC);
    out[12] = PS_EXT_VERSION;
    ps_put_u16(out + 14, PS_EXT_PRESSURE);
    ps_put_i32(out + 16, pressure->session_id);
    ps_put_i32(out + 20, pressure->stream_id);
    ps_put_i64(out + 24, pressure->receiver_id);
    ps_put_u32(out + 32, pressure->fill_ppm);
    out[36] = (uint8_t)pressure->level;
    ps_put_i64(out + 40, pressure->rtt_ns);
    ps_put_i64(out + 48, pressure->client_id);
    ps_put_i64(out + 56, pressure->backlog_bytes);
    ps_put_i64(out + 64, pressure->rate);
    ps_put_i64(out + 72, pressure->cadence_ns);
    ps_put_i64(out + 80, pressure->residue);
    ps_put_i64(out + 88, pressure->overrun);
    return PS_PRESSURE_LONG_BYTES;
}
