/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_wire_nak_list.h: the EXT frame NAK_LIST (docs/wire-extensions.md). A receiver requests many
 * missing ranges in one such frame, if the sender's SETUP announced PS_CAP_NAK_LIST.
 *
 *   EXT header (24)   { i32 term id, i32 term offset, i32 length } * n      n = 1..40
 */
#ifndef PS_WIRE_NAK_LIST_H
#define PS_WIRE_NAK_LIST_H

#include "ps_wire.h"

enum { PS_NAK_RANGE_BYTES = 12, PS_NAK_LIST_MAX = 40 };

typedef struct ps_wire_nak_list {
    int32_t session_id, stream_id;
    int32_t count;
    struct {
        int32_t term_id, term_offset, length;
    } ranges[PS_NAK_LIST_MAX];
} ps_nak_list_t;

/* Returns the subtype of an EXT frame that passed ps_wire_check; -1 if the version of the EXT frame
 * is unknown. */
int32_t ps_wire_ext_subtype(const uint8_t *data, uint32_t length);
/* Reads a NAK_LIST after ps_wire_check.  Returns ps_wire_fault. */
int ps_wire_nak_list(const uint8_t *data, uint32_t length, ps_nak_list_t *out);
/* Writes a NAK_LIST frame of 1 to 40 ranges into the buffer `out` of PS_CONTROL_MAX bytes. Returns
 * the datagram's length. */
uint32_t ps_wire_build_nak_list(uint8_t *out, const ps_nak_list_t *list);

#endif
