/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_times.h: a table of the times at which a stream reached its positions. The table covers all
 * data that the stream's log retains. Each publication has one table, which the sender writes. Each
 * image has one table, which the receiver writes.
 *
 * A table has levels. Level 0 of a time table has an entry for each millisecond in which data
 * arrived. An entry of each higher level covers four times as much time as an entry of the level
 * below. When an entry is complete, the writer adds it to the next level. On that level, the writer
 * either extends the newest entry or appends a new entry. An entry of the last level covers a 256th
 * of a term, no matter how long this data took to arrive. The entries of the last level therefore
 * cover two terms, even if the stream was idle for long. An entry (position, time) states that the
 * stream had reached the position at that time. The writer extends the newest entry with all data
 * that arrives within the time of this entry. On all levels except the last, data that arrives
 * later begins a new entry. A long idle time therefore separates the entries before and after the
 * idle time.
 *
 * The table states the time at which data arrived. The stated time is wrong by at most 1 ms or 1.1
 * % of the data's age, whichever is larger. The span of a level is the time that one of its entries
 * covers: PS_TIMES_SPAN_NS << (2 * level). To find the error for data of a given age, take the
 * lowest level whose span is at least age / 384: the error is this span. Data that is older than
 * all entries of the lower levels has entries only in the last level. For data that only the last
 * level covers, the error is the time that a 256th of a term took to arrive. */
#ifndef PS_TIMES_H
#define PS_TIMES_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ps_line.h"

enum { PS_TIMES_LEVELS = 10, PS_TIMES_ENTRIES = 512, PS_TIMES_PARTS = 256 };
enum { PS_TIMES_MOST = PS_TIMES_LEVELS * PS_TIMES_ENTRIES };
#define PS_TIMES_SPAN_NS INT64_C(1000000)
/* If a reader has no room for all entries, entries are joined within the age / PS_TIMES_SHARE. */
#define PS_TIMES_SHARE 96

typedef struct ps_time_entry {
    _Atomic int64_t position;
    _Atomic int64_t time_ns; /* epoch ns */
} ps_time_entry_t;

/* One level of a time table. A time table has one writer; the newest entry of a level has number
 * count - 1. */
typedef struct ps_time_level {
    alignas(PS_LINE) _Atomic uint64_t count;
    int64_t first_ns, first_position; /* Time and position at which the newest entry starts; only
                                       * the writer uses these fields. */
    alignas(PS_LINE) ps_time_entry_t entries[PS_TIMES_ENTRIES];
} ps_time_level_t;

typedef struct ps_time_table {
    ps_time_level_t levels[PS_TIMES_LEVELS];
} ps_time_table_t;

/* A stream position, and the time at which the stream had reached it. */
typedef struct ps_time_point {
    int64_t position, time_ns;
} ps_time_point_t;

/* Removes all entries, so that another stream can use the table. Only the table's writer may call
 * this function. */
void ps_times_reset(ps_time_table_t *table);
/* Records that the stream has reached `position`, which must be beyond all recorded positions. Only
 * the table's writer may call this function, which takes bounded time. */
void ps_times_note(ps_time_table_t *table, int64_t position, int64_t time_ns, int64_t term_length);
/* Returns the newest recorded position; 0: none. Any thread. */
int64_t ps_times_newest(const ps_time_table_t *table);
/* Returns the highest recorded position above `floor` that the stream had reached at `time_ns` or
 * before; 0: none is known. All data below the returned position arrived at `time_ns` or before.
 * Cost: visits the younger entries. Any thread. */
int64_t ps_times_reached(const ps_time_table_t *table, int64_t time_ns, int64_t floor);
/* Copies from a time table the points (position, time) for the positions [start, end), in ascending
 * order. The first copied point lies beyond `start`. The last copied point lies at `end` or beyond,
 * if the table has such a point. Returns the number of points, at most capacity (>= 2). If the
 * table has more points than `capacity`, the function joins points: see ps_times_join. Any
 * thread. */
int32_t ps_times_read(const ps_time_table_t *table, int64_t start, int64_t end,
                      ps_time_point_t points[PS_TIMES_MOST], int32_t capacity);
/* Joins points in ascending order of position until at most capacity (>= 2) are left. Returns their
 * number. A point gets the time of the last point that it is joined with. This time is later by at
 * most a joint span. First the function tries 1 ms, or a 96th of the point's age before the last
 * point if that is longer. With these spans, 2048 points are enough for two years. If the spans are
 * too short, the function takes a single span: the time from the first to the last point, divided
 * by capacity - 1, and at least 1 ms. The span is longer only if the clock was set back. */
int32_t ps_times_join(ps_time_point_t *points, int32_t count, int32_t capacity);

#endif
