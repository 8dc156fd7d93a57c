/* SPDX-License-Identifier: Apache-2.0
 * ps_timers.c: see ps_timers.h. */
#include "ps_timers.h"

#include <stdlib.h>

#include "ps_assert.h"
#include "ps_error.h"

int ps_timers_init(ps_timers_t *timers, int32_t limit)
{
    PS_ASSERT(limit >= 1);
    timers->entries = calloc((size_t)limit, sizeof(*timers->entries));
    timers->count = 0;
    timers->limit = limit;
    return timers->entries != NULL ? PS_OK
                                   : ps_fail(PS_E_NO_MEMORY, "no memory for %d timers", limit);
}

void ps_timers_fini(ps_timers_t *timers)
{
    free(timers->entries);
    timers->entries = NULL;
    timers->count = 0;
}

static void put(ps_timers_t *timers, int32_t at, ps_timers_entry_t entry)
{
    timers->entries[at] = entry;
    entry.timer->at = at;
}

/* Moves the entry towards the top while it is due before its parent. Returns its new index. */
static int32_t rise(ps_timers_t *timers, int32_t at)
{
    const ps_timers_entry_t entry = timers->entries[at];

    while (at > 0 && entry.due_ns < timers->entries[(at - 1) / 2].due_ns) {
        put(timers, at, timers->entries[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(timers, at, entry);
    return at;
}

/* Moves the entry down while a child is due before it. */
static void sink(ps_timers_t *timers, int32_t at)
{
    const ps_timers_entry_t entry = timers->entries[at];

    for (int32_t child = 2 * at + 1; child < timers->count; child = 2 * at + 1) {
        if (child + 1 < timers->count &&
            timers->entries[child + 1].due_ns < timers->entries[child].due_ns) {
            child++;
        }
        if (entry.due_ns <= timers->entries[child].due_ns) {
            break;
        }
        put(timers, at, timers->entries[child]);
        at = child;
    }
    put(timers, at, entry);
}

void ps_timers_add(ps_timers_t *timers, ps_timer_t *timer, int64_t due_ns)
{
    PS_ASSERT(timers->count < timers->limit);
    timers->entries[timers->count] = (ps_timers_entry_t){ .due_ns = due_ns, .timer = timer };
    (void)rise(timers, timers->count++);
}

void ps_timers_remove(ps_timers_t *timers, ps_timer_t *timer)
{
    const int32_t at = timer->at;

    PS_ASSERT(at >= 0 && at < timers->count && timers->entries[at].timer == timer);
    timers->count--;
    timer->at = -1;
    if (at < timers->count) {
        put(timers, at, timers->entries[timers->count]);
        sink(timers, rise(timers, at));
    }
}

void ps_timers_set(ps_timers_t *timers, ps_timer_t *timer, int64_t due_ns)
{
    PS_ASSERT(timer->at >= 0 && timer->at < timers->count &&
              timers->entries[timer->at].timer == timer);
    timers->entries[timer->at].due_ns = due_ns;
    sink(timers, rise(timers, timer->at));
}
