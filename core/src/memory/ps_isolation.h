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
 * A reader becomes lagged when it is too far behind the leading reader of the stream. The position
 * of a lagged reader limits neither the window nor the publisher limit, and the stream stays
 * connected. The writer may overwrite data that a lagged reader has not read, up to the mark: a
 * position in the reader's slot of penstock.dat. The agent stores the mark before it releases the
 * memory below the mark. The client of the reader copies data from the log, then reads the mark. If
 * the copied data lies below the mark, the client drops the copy. Publications (for spies and IPC
 * readers) and images use the same rules. */
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

/* Makes a reader isolated; `slot` is its slot in penstock.dat. The reader becomes lagged when it is
 * depth_bytes behind the leading reader. depth_bytes is at most half of window_bytes, the stream's
 * largest window; 0 means a quarter of window_bytes. */
void ps_isolation_init(ps_isolation_t *isolation, ps_subscriber_slot_t *slot, int64_t depth_bytes,
                       int64_t window_bytes);
/* Compares the position of a reader with the position of the leading reader, and decides whether
 * the reader is lagged. Returns true if the reader has become lagged or has ceased to be lagged. */
bool ps_isolation_step(ps_isolation_t *isolation, int64_t position, int64_t leader);
/* Stores in the reader's slot that memory below the position `mark` may be overwritten from now on.
 * `boundary` is a position between two messages, at or above the mark, at which the reader can
 * continue. */
void ps_isolation_mark(const ps_isolation_t *isolation, int64_t mark, int64_t boundary);
/* Makes the stored marks visible to the clients. Call this function before any store that
 * overwrites memory below a new mark. */
void ps_isolation_publish(void);

#endif
