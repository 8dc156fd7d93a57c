/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_reordering.h: learns by how much datagrams of one path arrive late because others overtook
 * them. The receiver requests a gap, and counts a loss, only if the gap is older than this delay.
 *
 * If a gap fills before the receiver has requested it, a datagram was late. If a gap fills after
 * one request, the frame may be the retransmit or the late original. If the same bytes then arrive
 * a second time, the frame was the original (RFC 8985 draws the same conclusion from duplicate
 * acknowledgements).
 *
 * Pure: no clock. For unicast, where no other receiver sends NAKs. Owner: the receiver agent. */
#ifndef PS_REORDERING_H
#define PS_REORDERING_H

#include <stdint.h>

enum { PS_REORDERING_SUSPECTS = 16 };

typedef struct ps_suspect {
    int64_t from, to; /* range that arrived after one request; from == to: none */
    int64_t late_ns;  /* time from the opening of the gap to the arrival of this range */
} ps_suspect_t;

typedef struct ps_reordering {
    int64_t window_ns; /* a gap is requested only when it is older than this; 0: no datagram was
                        * late so far */
    ps_suspect_t suspects[PS_REORDERING_SUSPECTS];
    uint32_t next;
} ps_reordering_t;

/* Records that [from, to) of a gap arrived, late_ns >= 0 after the gap opened and after `requested`
 * requests. least_ns: least round trip of the path, 0 unknown. */
void ps_reordering_filled(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t late_ns,
                          int32_t requested, int64_t least_ns);
/* Records that [from, to) arrived a second time. */
void ps_reordering_twice(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t least_ns);
/* Records a gap that did not fill within the window, and shortens the window by a sixteenth. */
void ps_reordering_lost(ps_reordering_t *reordering);

#endif
