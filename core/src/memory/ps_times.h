/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_times.h: when a stream reached its positions, for the whole of what its log retains.  One
 * table a publication (its sender writes it) and one an image (its receiver).
 *
 * A table has levels.  Level 0 has an entry for each millisecond in which the stream moved; each
 * next level takes the entries that the level before it has closed, four times coarser.  The last
 * level goes by bytes, a 256th of a term an entry, so that it covers two terms however long the
 * stream rested.  An entry is (position, time): the stream was there at that time at the latest.
 * It is stretched while the stream moves on within its span, so a rest always lies between entries.
 *
 * Bound: what arrived `age` ago is known to PS_TIMES_SPAN_NS << (2 * level) of the first level
 * with age <= 384 * that span: 1 ms, or 1.1 % of the age.  Behind that: the time that a 256th of a
 * term took.
 */
#ifndef PS_TIMES_H
#define PS_TIMES_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ps_line.h"

enum { PS_TIMES_LEVELS = 10, PS_TIMES_ENTRIES = 512, PS_TIMES_PARTS = 256 };
enum { PS_TIMES_MOST = PS_TIMES_LEVELS * PS_TIMES_ENTRIES };
#define PS_TIMES_SPAN_NS INT64_C(1000000)

typedef struct ps_time_entry {
    _Atomic int64_t position;
    _Atomic int64_t time_ns; /* epoch ns */
} ps_time_entry_t;

/* One writer; newest at count - 1. */
typedef struct ps_time_level {
    alignas(PS_LINE) _Atomic uint64_t count;
    int64_t first_ns, first_position; /* of the newest entry, the writer's own */
    alignas(PS_LINE) ps_time_entry_t entries[PS_TIMES_ENTRIES];
} ps_time_level_t;

typedef struct ps_time_table {
    ps_time_level_t levels[PS_TIMES_LEVELS];
} ps_time_table_t;

/* The statement of an entry. */
typedef struct ps_time_point {
    int64_t position, time_ns;
} ps_time_point_t;

/* No entries: for another stream.  Its one writer. */
void ps_times_reset(ps_time_table_t *table);
/* The stream is at `position`, beyond all that was noted.  The table's one writer; bounded time. */
void ps_times_note(ps_time_table_t *table, int64_t position, int64_t time_ns, int64_t term_length);
/* Points for [start, end), ascending: the first lies beyond start, the last at end or beyond, if
 * known.  Returns how many, at most capacity, which is 2 or more; of too many, neighbours in time
 * are joined.  Any thread. */
int32_t ps_times_read(const ps_time_table_t *table, int64_t start, int64_t end,
                      ps_time_point_t points[PS_TIMES_MOST], int32_t capacity);

#endif
