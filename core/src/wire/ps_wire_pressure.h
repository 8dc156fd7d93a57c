/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_pressure.h: the EXT frame PRESSURE, with which a receiver reports the fill level of its
 * receive queue (docs/wire-extensions.md, docs/flow-control.md). A receiver sends PRESSURE frames
 * only to a sender whose SETUP requested them (PS_CAP_PRESSURE).
 *
 *   EXT header (24)  i64 receiver id, u32 fill in ppm, u8 level 1..4, u8[3] 0,
 *                    i64 round trip in ns (0 unknown), i64 id of the client that lags (0 unknown),
 *                    i64 its unread bytes
 *   longer frames    i64 bytes per second that its slowest reader consumes, i64 cadence of that
 *                    reader in ns, i64 bytes unread after its last batch, i64 bytes sent beyond
 *                    half a term (each 0 unknown)
 *
 * Older receivers send only the first PS_PRESSURE_BYTES bytes of a PRESSURE frame, and older
 * senders read only these bytes. */
#ifndef PS_WIRE_PRESSURE_H
#define PS_WIRE_PRESSURE_H

#include "ps_wire.h"

enum { PS_PRESSURE_BYTES = 64, PS_PRESSURE_LONG_BYTES = 96 };

typedef struct ps_wire_pressure {
    int32_t session_id, stream_id;
    int64_t receiver_id;
    uint32_t fill_ppm;
    int32_t level;
    int64_t rtt_ns;
    int64_t client_id;
    int64_t backlog_bytes;
    int64_t rate, cadence_ns, residue, overrun; /* 0 unknown */
} ps_pressure_t;

/* Decodes a PRESSURE frame; call ps_wire_check first. If the frame is longer than
 * PS_PRESSURE_LONG_BYTES, the function ignores the bytes after the known fields. Returns
 * ps_wire_fault. */
int ps_wire_pressure(const uint8_t *data, uint32_t length, ps_pressure_t *out);
/* Writes a PRESSURE frame into the buffer `out` of PS_CONTROL_MAX bytes. Returns the datagram's
 * length. */
uint32_t ps_wire_build_pressure(uint8_t *out, const ps_pressure_t *pressure);

#endif
