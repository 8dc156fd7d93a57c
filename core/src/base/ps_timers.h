/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_timers.h: a binary heap of timers, ordered by due time. Each timer belongs to one object. With
 * this heap, an agent that has thousands of objects visits only the objects whose timer is due. The
 * heap's size is fixed at init. One owner thread. With n timers, adding, moving or removing a timer
 * takes O(log n) steps. Reading the earliest due time takes one step. */
#ifndef PS_TIMERS_H
#define PS_TIMERS_H

#include <stdint.h>

/* The timer of one object, as a member of the object's struct. */
typedef struct ps_timer {
    int32_t at; /* index of this timer's entry in the heap; -1: the timer is in no heap */
} ps_timer_t;

typedef struct ps_timers_entry {
    int64_t due_ns;
    ps_timer_t *timer;
} ps_timers_entry_t;

typedef struct ps_timers {
    ps_timers_entry_t *entries;
    int32_t count;
    int32_t limit;
} ps_timers_t;

/* limit: largest number of timers, >= 1. PS_E_NO_MEMORY. */
int ps_timers_init(ps_timers_t *timers, int32_t limit);
void ps_timers_fini(ps_timers_t *timers);
/* Adds a timer that is in no heap. If due_ns is INT64_MAX, the timer is never due. */
void ps_timers_add(ps_timers_t *timers, ps_timer_t *timer, int64_t due_ns);
/* Removes a timer that is in this heap. */
void ps_timers_remove(ps_timers_t *timers, ps_timer_t *timer);
/* Sets a new due time, earlier or later, for a timer that is in this heap. */
void ps_timers_set(ps_timers_t *timers, ps_timer_t *timer, int64_t due_ns);

/* Returns the due time of a timer that is in this heap. */
static inline int64_t ps_timers_due_ns(const ps_timers_t *timers, const ps_timer_t *timer)
{
    return timers->entries[timer->at].due_ns;
}

/* Returns the earliest due time; INT64_MAX if no timer runs. */
static inline int64_t ps_timers_first_ns(const ps_timers_t *timers)
{
    return timers->count > 0 ? timers->entries[0].due_ns : INT64_MAX;
}

/* Returns the timer with the earliest due time; the heap must not be empty. */
static inline ps_timer_t *ps_timers_first(const ps_timers_t *timers)
{
    return timers->entries[0].timer;
}

#endif
