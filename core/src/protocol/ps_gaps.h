/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_gaps.h: the bounded, sorted list of missing ranges of one image (docs/decisions/0012).
 *
 *   received          missing      received   missing      hwm
 *   ------------------[from, to)---------------[from, to)---|
 *
 * Pure data structure: no clock, no log, no allocation after init.  Ranges are stream positions,
 * not empty, disjoint, sorted, and never adjacent.  Owner: the receiver agent.
 */
#ifndef PS_GAPS_H
#define PS_GAPS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ps_gap {
    int64_t from;      /* first missing position */
    int64_t to;        /* first position after the gap */
    int64_t due_ns;    /* when to request the range (again); until then it counts as late, not
                        * lost */
    int64_t opened_ns; /* when the gap was found */
    int32_t requested; /* number of requests, saturating */
    bool lost;         /* due_ns has passed: counted as a loss */
} ps_gap_t;

typedef struct ps_gaps {
    ps_gap_t *items; /* caller's storage, capacity elements */
    int32_t count;
    int32_t capacity; /* >= 1 */
    int64_t missing;  /* bytes in all gaps */
} ps_gaps_t;

void ps_gaps_init(ps_gaps_t *gaps, ps_gap_t *storage, int32_t capacity);

/* Appends [from, to); joins it with the last gap if they touch. from >= end of the last gap. false:
 * the list is full, and nothing changed. The times apply to a new gap only. */
bool ps_gaps_append(ps_gaps_t *gaps, int64_t from, int64_t to, int64_t due_ns, int64_t now_ns);

/* Returns the index of the first gap that ends above position; count if there is none. O(log
 * count). */
int32_t ps_gaps_find(const ps_gaps_t *gaps, int64_t position);

/* Takes [from, to), which lies inside one gap, out of the list: shrinks, splits or removes the gap.
 * false: a split found the list full, or the range is not inside one gap; nothing changed.
 * Both halves of a split keep times and count. */
bool ps_gaps_fill(ps_gaps_t *gaps, int64_t from, int64_t to);

/* Counts the bytes missing in all gaps; equals gaps->missing. O(count). */
int64_t ps_gaps_bytes(const ps_gaps_t *gaps);

#endif
