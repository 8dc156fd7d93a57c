/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_isolation.h: readers for which a stream does not wait (ps-sub-policy=independent, drop_oldest;
 * docs/decisions/0272).
 *
 *            depth behind the leader
 *   KEEPS UP ----------------------> LAGGED
 *            <----------------------
 *              half of it or less
 *
 * A lagged reader counts as the leader: it gates neither window nor publisher limit, and the stream
 * stays connected. Its memory may be written over, up to the mark in its slot of penstock.dat. The
 * agent stores the mark before it releases memory. The client copies, then looks at the mark, and
 * drops a copy that lies below.
 * Publications (for spies and IPC readers) and images use the same rules. */
#ifndef PS_ISOLATION_H
#define PS_ISOLATION_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_shared.h"

typedef struct ps_isolation {
    ps_subscriber_slot_t *slot; /* NULL: the stream waits for the reader */
    int64_t depth_bytes;
    bool lagged;
} ps_isolation_t;

/* Makes a reader isolated. slot: its slot of penstock.dat; window_bytes: the largest window of the
 * stream, of which at most half waits for the reader; depth_bytes 0: a quarter. */
void ps_isolation_init(ps_isolation_t *isolation, ps_subscriber_slot_t *slot, int64_t depth_bytes,
                       int64_t window_bytes);
/* Looks at one reader. Returns true if it became lagged, or keeps up again. */
bool ps_isolation_step(ps_isolation_t *isolation, int64_t position, int64_t leader);
/* States that memory below `mark` may be written over from now on. boundary: a position between two
 * messages that is not below the mark. */
void ps_isolation_mark(const ps_isolation_t *isolation, int64_t mark, int64_t boundary);
/* Makes the marks visible before any store that writes over memory. */
void ps_isolation_publish(void);

#endif
