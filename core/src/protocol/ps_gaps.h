/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_gaps.h: the bounded, sorted list of missing ranges of one image (docs/decisions/0012).
 *
 *   received          missing      received   missing      hwm
 *   ------------------[from, to)---------------[from, to)---|
 *
 * A pure data structure: it uses no clock and no log, and allocates no memory. The ranges are
 * stream positions. The list is sorted by position. Each range in the list has at least one byte,
 * and received data lies between any two ranges. Owner: the receiver agent.
 */
#ifndef PS_GAPS_H
#define PS_GAPS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ps_gap {
    int64_t from;      /* first missing position */
    int64_t to;        /* first position after the gap */
    int64_t due_ns;    /* Time at which the receiver next requests the missing range. Before the
                        * receiver's first request for the missing range, the range counts as late,
                        * not as lost. */
    int64_t opened_ns; /* when the gap was found */
    int32_t requested; /* Number of requests, saturating. When a part of the gap arrives and
                        * the round trip is known, the receiver lowers it to PS_NAK_PATIENCE. */
    bool lost;         /* True if the receiver has counted the missing range as a loss, because
                        * due_ns has passed. */
} ps_gap_t;

typedef struct ps_gaps {
    ps_gap_t *items; /* caller's storage, capacity elements */
    int32_t count;
    int32_t capacity; /* >= 1 */
    int64_t missing;  /* bytes in all gaps */
} ps_gaps_t;

void ps_gaps_init(ps_gaps_t *gaps, ps_gap_t *storage, int32_t capacity);

/* Appends the range [from, to), or extends the last gap if the range touches this gap. `from` must
 * not lie below the end of the last gap. Returns false if the list is full; the list is then
 * unchanged. If the range extends the last gap, the function ignores due_ns and now_ns. */
bool ps_gaps_append(ps_gaps_t *gaps, int64_t from, int64_t to, int64_t due_ns, int64_t now_ns);

/* Returns the index of the first gap that ends above `position`; gaps->count if there is none.
 * O(log count). */
int32_t ps_gaps_find(const ps_gaps_t *gaps, int64_t position);

/* Removes [from, to), which must be inside one gap, from the list: shrinks, splits or removes the
 * gap. Returns false and changes nothing in two cases: the range is not inside one gap, or the gap
 * must be split and the list is full. If the function splits a gap, both parts keep the times and
 * the number of requests of the gap. */
bool ps_gaps_fill(ps_gaps_t *gaps, int64_t from, int64_t to);

/* Counts the bytes that are missing in all gaps. The result always equals gaps->missing.
 * O(count). */
int64_t ps_gaps_bytes(const ps_gaps_t *gaps);

#endif
