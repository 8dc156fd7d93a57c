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
 * connected. The writer may overwrite data that a lagged reader has not read. The writer overwrites
 * only data below the mark: a position that the agent stores in the reader's slot of penstock.dat.
 * The agent stores the mark before it releases the memory below the mark. The reader's client
 * copies data from the log, then reads the mark. If the copied data begins below the mark, the
 * client discards the copy. Publications (for spies and IPC readers) and images use the same rules.
 *
 * The depth can also be a number of messages (docs/decisions/0410). The agent then follows the
 * frames of the log with cursors: the end of the counted data, and the positions from which a given
 * number of messages lies before this end.
 */
#ifndef PS_ISOLATION_H
#define PS_ISOLATION_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_log.h"
#include "ps_shared.h"

/* A reader is late if it has not read data that the agent saw PS_ISOLATION_LATE_NS ago. The agent
 * stores the end of the data only once every PS_ISOLATION_LATE_NS. The agent may therefore detect a
 * late reader up to PS_ISOLATION_LATE_NS too late. A burst of data, for example after a retransmit
 * has closed a gap, does not make a reader late at once. */
enum { PS_ISOLATION_LATE_NS = 5 * 1000 * 1000, PS_ISOLATION_REPORT_NS = 1000 * 1000 * 1000 };

typedef struct ps_isolation_cursor {
    int64_t position;
    int64_t messages; /* number of messages that end between the begin of the count and position */
} ps_isolation_cursor_t;

/* A depth in messages. */
typedef struct ps_isolation_messages {
    bool on;
    int64_t depth; /* largest number of unread messages before a late reader skips; INT64_MAX: no
                    * limit */
    int64_t waits; /* largest number of unread messages for which the stream waits */
    ps_isolation_cursor_t end;    /* end of the counted data */
    ps_isolation_cursor_t newest; /* `depth` messages before `end` */
    ps_isolation_cursor_t lagged; /* `waits` messages before `end` */
    ps_isolation_cursor_t caught; /* half of `waits` before `end` */
    int64_t seen_newest;          /* position of the cursor `newest` when the agent stored `seen` */
} ps_isolation_messages_t;

typedef struct ps_isolation {
    ps_subscriber_slot_t *slot; /* NULL: the reader is not isolated */
    int64_t depth_bytes;
    int64_t seen;    /* newest position at seen_ns */
    int64_t seen_ns; /* Time at which the agent stored `seen`; it stores `seen` again when
                      * PS_ISOLATION_LATE_NS have passed. */
    bool lagged;
    ps_isolation_messages_t messages;
    /* Reports to the conductor (ps_isolation_due). */
    bool noted;          /* since_ns and `skipped` describe the reader's present lag */
    bool reported;       /* the agent has reported that the reader is lagged */
    int64_t since_ns;    /* when the reader became lagged */
    int64_t reported_ns; /* when the agent last reported that the reader is lagged */
    int64_t skipped;     /* number of messages that the reader had skipped at since_ns */
} ps_isolation_t;

/* Makes a reader isolated; `slot` is its slot in penstock.dat. The reader becomes lagged when it is
 * depth_bytes behind the leading reader. The parameter depth_bytes is at most half of window_bytes,
 * the stream's largest window; 0 means a quarter of window_bytes. */
void ps_isolation_init(ps_isolation_t *isolation, ps_subscriber_slot_t *slot, int64_t depth_bytes,
                       int64_t window_bytes);
/* Limits the messages that the reader may be behind. Call this function after ps_isolation_init.
 * depth_messages is the reader's own depth, `most` the number of messages that publishers may be
 * ahead of this reader; 0: no limit. The stream waits for at most half of `most`. The count begins
 * at `position`: the reader's position, or the end of the data if the log no longer has the
 * reader's position. */
void ps_isolation_limit(ps_isolation_t *isolation, int64_t depth_messages, int64_t most,
                        int64_t position);
/* Counts the messages up to `available`, the end of the data that readers can read. Call this
 * function before ps_isolation_step. Returns true if the count has not reached `available`: the
 * agent must call the function again in its next turn. */
bool ps_isolation_count(ps_isolation_t *isolation, const ps_log_t *log, int64_t available);
/* Compares the position of a reader with the position of the leading reader, and decides whether
 * the reader is lagged. Returns true if the reader becomes lagged, or ceases to be lagged, in this
 * call. */
bool ps_isolation_step(ps_isolation_t *isolation, int64_t position, int64_t leader);
/* Stores the position `mark` in the reader's slot: after this call, the writer may overwrite memory
 * below `mark`. `newest` is the end of the available data, at or above `mark`. A reader can
 * continue at `newest`. Also stores the limit for late readers: the end of the data that the agent
 * saw PS_ISOLATION_LATE_NS ago. A reader below this position is late. */
void ps_isolation_mark(ps_isolation_t *isolation, int64_t mark, int64_t newest, int64_t now_ns);
/* Returns the time at which the agent must call ps_isolation_mark again, also if the stream is idle
 * then; INT64_MAX: the reader has read everything, or the slot states that the reader is late. Call
 * this function after ps_isolation_mark. `position` is the reader's position. */
int64_t ps_isolation_next_ns(const ps_isolation_t *isolation, int64_t position, int64_t newest);
/* Returns true if the agent must report that the reader has become lagged, or has ceased to be
 * lagged. For each reader, the agent reports at most one lag every PS_ISOLATION_REPORT_NS. */
bool ps_isolation_due(ps_isolation_t *isolation, int64_t now_ns);
/* Call this function when the report has been emitted. */
void ps_isolation_reported(ps_isolation_t *isolation, int64_t now_ns);
/* Returns the number of messages that the reader has skipped in the reported lag. */
int64_t ps_isolation_skipped(const ps_isolation_t *isolation);
/* Makes the stored marks visible to the clients. Call this function before any store that
 * overwrites memory below a new mark. */
void ps_isolation_publish(void);

#endif
