/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_times.c: notes and reads the times of a stream's positions.
 */
#include "ps_times.h"

#include <stdbool.h>

#include "ps_error.h"

static ps_time_entry_t *entry_of(const ps_time_level_t *level, uint64_t number)
{
    return (ps_time_entry_t *)(uintptr_t)&level->entries[number % PS_TIMES_ENTRIES];
}

/* ---- the writer ------------------------------------------------------------------------------ */

void ps_times_reset(ps_time_table_t *table)
{
    for (int32_t i = 0; i < PS_TIMES_LEVELS; i++) {
        atomic_store_explicit(&table->levels[i].count, 0, memory_order_release);
    }
}

/* Returns true if the newest entry can be extended by this position and time. */
static bool stretches(const ps_time_level_t *level, int32_t number, int64_t position,
                      int64_t time_ns, int64_t term_length)
{
    if (number == PS_TIMES_LEVELS - 1) {
        return position - level->first_position < term_length / PS_TIMES_PARTS;
    }
    /* After the clock was set back, a new entry begins. */
    return (uint64_t)(time_ns - level->first_ns) < (uint64_t)PS_TIMES_SPAN_NS << (2 * number);
}

void ps_times_note(ps_time_table_t *table, int64_t position, int64_t time_ns, int64_t term_length)
{
    int64_t first_ns = time_ns;
    int64_t first_position = position;
    for (int32_t i = 0; i < PS_TIMES_LEVELS; i++) {
        ps_time_level_t *level = &table->levels[i];
        const uint64_t count = atomic_load_explicit(&level->count, memory_order_relaxed);
        ps_time_entry_t *entry = entry_of(level, count - 1);
        const bool any = count > 0;
        if (any && stretches(level, i, position, time_ns, term_length)) {
            /* Release: a reader that sees the position sees its time, or a later one. */
            atomic_store_explicit(&entry->time_ns, time_ns, memory_order_relaxed);
            atomic_store_explicit(&entry->position, position, memory_order_release);
            return;
        }
        const int64_t closed_position =
            atomic_load_explicit(&entry->position, memory_order_relaxed);
        const int64_t closed_ns = atomic_load_explicit(&entry->time_ns, memory_order_relaxed);
        const int64_t closed_first_ns = level->first_ns;
        const int64_t closed_first_position = level->first_position;
        entry = entry_of(level, count);
        /* Release: a reader that sees these stores also sees the count before them. */
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&entry->time_ns, time_ns, memory_order_relaxed);
        atomic_store_explicit(&entry->position, position, memory_order_relaxed);
        level->first_ns = first_ns;
        level->first_position = first_position;
        /* Release: a reader that sees the count sees the entry. */
        atomic_store_explicit(&level->count, count + 1, memory_order_release);
        if (!any) {
            return;
        }
        position = closed_position;
        time_ns = closed_ns;
        first_ns = closed_first_ns;
        first_position = closed_first_position;
    }
}

/* ---- readers --------------------------------------------------------------------------------- */

int64_t ps_times_newest(const ps_time_table_t *table)
{
    const ps_time_level_t *level = &table->levels[0];
    const uint64_t count = atomic_load_explicit(&level->count, memory_order_acquire);
    return count == 0
               ? 0
               : atomic_load_explicit(&entry_of(level, count - 1)->position, memory_order_acquire);
}

int64_t ps_times_reached(const ps_time_table_t *table, int64_t time_ns, int64_t floor)
{
    for (int32_t i = 0; i < PS_TIMES_LEVELS; i++) {
        const ps_time_level_t *level = &table->levels[i];
        const uint64_t count = atomic_load_explicit(&level->count, memory_order_acquire);
        const uint64_t oldest = count > PS_TIMES_ENTRIES ? count - PS_TIMES_ENTRIES : 0;
        for (uint64_t number = count; number > oldest; number--) {
            ps_time_entry_t *entry = entry_of(level, number - 1);
            /* The position first: the writer stores it last. */
            const int64_t position = atomic_load_explicit(&entry->position, memory_order_acquire);
            const int64_t at_ns = atomic_load_explicit(&entry->time_ns, memory_order_relaxed);
            atomic_thread_fence(memory_order_acquire);
            const uint64_t now = atomic_load_explicit(&level->count, memory_order_relaxed);
            if (number - 1 + PS_TIMES_ENTRIES <= now) {
                break; /* overwritten; the next level has it */
            }
            if (position <= floor) {
                return 0;
            }
            if (at_ns <= time_ns) {
                return position;
            }
        }
    }
    return 0;
}

typedef struct ps_time_walk {
    ps_time_point_t *points; /* newest first */
    int32_t count;
    int64_t start, end;
    bool done;
} ps_time_walk_t;

/* Walks back through a level, from the point that finer levels reached. Only falling positions are
 * accepted, because another process wrote the table. */
static void walk_level(ps_time_walk_t *walk, const ps_time_level_t *level)
{
    const uint64_t count = atomic_load_explicit(&level->count, memory_order_acquire);
    const uint64_t oldest = count > PS_TIMES_ENTRIES ? count - PS_TIMES_ENTRIES : 0;
    const int32_t before = walk->count;
    uint64_t number = count;
    while (number > oldest && !walk->done) {
        const ps_time_entry_t *entry = entry_of(level, number - 1);
        ps_time_entry_t *cell = (ps_time_entry_t *)(uintptr_t)entry;
        const ps_time_point_t point = {
            .position = atomic_load_explicit(&cell->position, memory_order_acquire),
            .time_ns = atomic_load_explicit(&cell->time_ns, memory_order_relaxed),
        };
        number--;
        /* Entries that the writer overwrote during the walk are left out; the next level has
         * them. */
        atomic_thread_fence(memory_order_acquire);
        const uint64_t now = atomic_load_explicit(&level->count, memory_order_relaxed);
        if (number + PS_TIMES_ENTRIES <= now) {
            break;
        }
        if (point.position <= walk->start) {
            walk->done = true;
        } else if (walk->count == before && before > 0 &&
                   point.position >= walk->points[before - 1].position) {
            continue; /* a finer level has this time */
        } else if (walk->count > 0 && point.position >= walk->points[walk->count - 1].position) {
            if (point.position > walk->points[walk->count - 1].position) {
                break; /* not written by the table's writer */
            }
            walk->points[walk->count - 1] = point; /* the next daemon noted the position again */
        } else {
            /* Of the points at the end or beyond, the lowest is enough. */
            const bool beyond = walk->count > 0 && point.position >= walk->end;
            walk->points[beyond ? 0 : walk->count++] = point;
        }
    }
}

/* Joins each point with the points that follow it within `span`. If a share of its age before the
 * last point is longer, this is its span. Returns the number of points that remain. */
static int32_t joined(ps_time_point_t *points, int32_t count, int64_t span, int64_t share,
                      bool write)
{
    const int64_t end_ns = points[count - 1].time_ns;
    int32_t kept = 0;
    for (int32_t i = 0; i < count;) {
        const int64_t age = (end_ns - points[i].time_ns) / share;
        const int64_t most = age > span ? age : span;
        int32_t last = i;
        /* A point from before the clock was set back is not joined with one after it. */
        while (last + 1 < count && points[last + 1].time_ns >= points[last].time_ns &&
               points[last + 1].time_ns - points[i].time_ns < most) {
            last++;
        }
        if (write) {
            points[kept] = points[last];
        }
        kept++;
        i = last + 1;
    }
    return kept;
}

int32_t ps_times_join(ps_time_point_t *points, int32_t count, int32_t capacity)
{
    if (count < 0 || capacity < 2) {
        return ps_fail(PS_E_INVALID, "join %d times, room for %d", count, capacity);
    }
    if (count <= capacity) {
        return count;
    }
    int64_t span = PS_TIMES_SPAN_NS;
    int64_t share = PS_TIMES_SHARE;
    if (joined(points, count, span, share, false) > capacity) {
        /* The joined points start at least a span apart, so this span is enough unless the clock
         * was set back. */
        const int64_t even = (points[count - 1].time_ns - points[0].time_ns) / (capacity - 1) + 1;
        share = INT64_MAX;
        span = even > span ? even : span;
        while (span < INT64_MAX / 2 && joined(points, count, span, share, false) > capacity) {
            span += span / 8;
        }
    }
    count = joined(points, count, span, share, true);
    return count < capacity ? count : capacity;
}

int32_t ps_times_read(const ps_time_table_t *table, int64_t start, int64_t end,
                      ps_time_point_t points[PS_TIMES_MOST], int32_t capacity)
{
    if (capacity < 2 || capacity > PS_TIMES_MOST || start > end) {
        return ps_fail(PS_E_INVALID, "times of [%lld, %lld), room for %d", (long long)start,
                       (long long)end, capacity);
    }
    ps_time_walk_t walk = { .points = points, .start = start, .end = end };
    for (int32_t i = 0; i < PS_TIMES_LEVELS && !walk.done; i++) {
        walk_level(&walk, &table->levels[i]);
    }
    for (int32_t i = 0; i < walk.count / 2; i++) {
        const ps_time_point_t other = points[walk.count - 1 - i];
        points[walk.count - 1 - i] = points[i];
        points[i] = other;
    }
    return ps_times_join(points, walk.count, capacity);
}
