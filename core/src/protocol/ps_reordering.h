/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_reordering.h: measures how late a path delivers reordered datagrams. A reordered datagram
 * arrives after a datagram that was sent later. The receiver sends a NAK for a gap, and counts the
 * gap as a loss, only when the gap is older than the learned delay.
 *
 * If a gap fills before the receiver has sent a NAK for the gap, a datagram was late. If a gap
 * fills after one NAK, the frame that filled the gap may be the retransmit or the late original. If
 * the bytes of the gap arrive a second time, the frame that filled the gap was the late original.
 * TCP uses the same rule (RFC 8985): a reported duplicate shows that the original was only late.
 *
 * Pure: no clock. Only unicast streams use the learned delay, because in a group other receivers'
 * NAKs would disturb the measurement. Owner: the receiver agent. */
#ifndef PS_REORDERING_H
#define PS_REORDERING_H

#include <stdint.h>

enum { PS_REORDERING_SUSPECTS = 16 };

typedef struct ps_suspect {
    int64_t from, to; /* Range that arrived after the receiver had sent one NAK for this range; from
                       * == to: no range. */
    int64_t late_ns;  /* Time from the opening of the gap to the arrival of the range [from, to). */
} ps_suspect_t;

typedef struct ps_reordering {
    int64_t window_ns; /* Learned delay: the receiver sends a NAK only for a gap that is older than
                        * this delay. 0: no datagram was late so far. */
    ps_suspect_t suspects[PS_REORDERING_SUSPECTS];
    uint32_t next;
} ps_reordering_t;

/* Records that the range [from, to) of a gap arrived. The parameter late_ns (>= 0) is the time
 * since the gap opened; `requested` is the number of NAKs sent for the gap; least_ns is the least
 * round trip of the path (0: unknown). */
void ps_reordering_filled(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t late_ns,
                          int32_t requested, int64_t least_ns);
/* Records that the data of the positions [from, to) arrived a second time. */
void ps_reordering_twice(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t least_ns);
/* Records a gap that did not fill within the learned delay, and reduces the delay by a
 * sixteenth. */
void ps_reordering_lost(ps_reordering_t *reordering);

#endif
