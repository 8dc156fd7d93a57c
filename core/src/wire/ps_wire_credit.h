/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_credit.h: the EXT frame CREDIT, with which the sender answers a receiver that has begun a
 * new credit epoch (docs/wire-extensions.md). The sender sends CREDIT frames only to a receiver
 * whose status message requests a CREDIT frame.
 *
 *   EXT header (24)  i64 receiver id, u32 epoch, u32 flags, i64 ordinal */
#ifndef PS_WIRE_CREDIT_H
#define PS_WIRE_CREDIT_H

#include "ps_wire.h"

enum { PS_CREDIT_BYTES = 48, PS_CREDIT_ANSWER_SETTLED = 1 };

typedef struct ps_wire_credit {
    int32_t session_id, stream_id;
    int64_t receiver_id;
    uint32_t epoch;
    uint32_t flags;  /* The flag PS_CREDIT_ANSWER_SETTLED states two facts: the sender has sent all
                      * messages below `ordinal`, and will send no other message in this credit
                      * epoch. */
    int64_t ordinal; /* Number of messages for which publishers had taken credits when the credit
                      * epoch began. With PS_CREDIT_ANSWER_SETTLED: the number of messages that
                      * publishers have published. */
} ps_credit_frame_t;

/* Decodes a CREDIT frame; call ps_wire_check first. If the frame is longer than PS_CREDIT_BYTES,
 * the function ignores the bytes after the known fields. Returns ps_wire_fault. */
int ps_wire_credit(const uint8_t *data, uint32_t length, ps_credit_frame_t *out);
/* Writes a CREDIT frame into the buffer `out` of PS_CONTROL_MAX bytes. Returns the datagram's
 * length. */
uint32_t ps_wire_build_credit(uint8_t *out, const ps_credit_frame_t *credit);

#endif
