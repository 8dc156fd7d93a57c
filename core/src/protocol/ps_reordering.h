/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_reordering.h: lateness of overtaken datagrams, learned from one path. The receiver requests
 * a gap, and counts a loss, only when the gap is older than that.
 *
 * A gap that closes before it was requested held something late. If a gap fills after one
 * request, the frame may be the retransmit or the late original. It was the original if the same
 * bytes come a second time (the proof that RFC 8985 takes from duplicate acknowledgements).
 *
 * Pure: no clock. For unicast, where no other receiver sends NAKs. Owner: the receiver agent. */
#ifndef PS_REORDERING_H
#define PS_REORDERING_H

#include <stdint.h>

enum { PS_REORDERING_SUSPECTS = 16 };

typedef struct ps_suspect {
    int64_t from, to; /* came after they were requested once; from == to: none */
    int64_t late_ns;  /* so long after the gap opened */
} ps_suspect_t;

typedef struct ps_reordering {
    int64_t window_ns; /* a gap younger than this is not requested; 0: nothing seen */
    ps_suspect_t suspects[PS_REORDERING_SUSPECTS];
    uint32_t next;
} ps_reordering_t;

/* [from, to) of a gap came late_ns >= 0 after it opened; the gap was requested so often.  least_ns:
 * least round trip of the path, 0 unknown. */
void ps_reordering_filled(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t late_ns,
                          int32_t requested, int64_t least_ns);
/* [from, to) came though it was there. */
void ps_reordering_twice(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t least_ns);
/* A gap was not closed within the window: it fades by a sixteenth. */
void ps_reordering_lost(ps_reordering_t *reordering);

#endif
