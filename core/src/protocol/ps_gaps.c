/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_gaps.c: see ps_gaps.h.  Gaps are few, so a sorted array with binary search and memmove is both
 * the simplest and the fastest shape; each operation touches at most `capacity` elements.
 */
#include "ps_gaps.h"

#include "ps_assert.h"
#include <string.h>

void ps_gaps_init(ps_gaps_t *gaps, ps_gap_t *storage, int32_t capacity)
{
    PS_ASSERT(capacity >= 1);
    gaps->items = storage;
    gaps->count = 0;
    gaps->capacity = capacity;
    gaps->missing = 0;
}

bool ps_gaps_append(ps_gaps_t *gaps, int64_t from, int64_t to, int64_t due_ns, int64_t now_ns)
{
    PS_ASSERT(from < to);
    if (gaps->count > 0) {
        ps_gap_t *last = &gaps->items[gaps->count - 1];

        PS_ASSERT(from >= last->to);
        if (last->to == from) {
            last->to = to;
            gaps->missing += to - from;
            return true;
        }
    }
    if (gaps->count == gaps->capacity) {
        return false;
    }
    gaps->items[gaps->count++] =
        (ps_gap_t){ .from = from, .to = to, .due_ns = due_ns, .opened_ns = now_ns };
    gaps->missing += to - from;
    return true;
}

int32_t ps_gaps_find(const ps_gaps_t *gaps, int64_t position)
{
    int32_t low = 0;
    int32_t high = gaps->count;

    while (low < high) {
        int32_t middle = low + (high - low) / 2;

        if (gaps->items[middle].to > position) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

bool ps_gaps_fill(ps_gaps_t *gaps, int64_t from, int64_t to)
{
    int32_t index = ps_gaps_find(gaps, from);
    size_t behind;
    ps_gap_t *gap;

    PS_ASSERT(from < to);
    if (index == gaps->count) {
        return false;
    }
    gap = &gaps->items[index];
    if (from < gap->from || to > gap->to) {
        return false;
    }
    behind = (size_t)(gaps->count - index - 1) * sizeof(*gap);
    if (from == gap->from && to == gap->to) {
        memmove(gap, gap + 1, behind);
        gaps->count--;
    } else if (from == gap->from) {
        gap->from = to;
    } else if (to == gap->to) {
        gap->to = from;
    } else {
        if (gaps->count == gaps->capacity) {
            return false;
        }
        memmove(gap + 2, gap + 1, behind);
        gap[1] = *gap;
        gap[0].to = from;
        gap[1].from = to;
        gaps->count++;
    }
    gaps->missing -= to - from;
    return true;
}

int64_t ps_gaps_bytes(const ps_gaps_t *gaps)
{
    int64_t bytes = 0;

    for (int32_t i = 0; i < gaps->count; i++) {
        bytes += gaps->items[i].to - gaps->items[i].from;
    }
    return bytes;
}
