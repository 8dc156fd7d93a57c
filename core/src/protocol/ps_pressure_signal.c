/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_signal.c: see ps_pressure_signal.h.
 */
#include "ps_pressure_signal.h"

#include "ps_assert.h"

#define SECOND_NS INT64_C(1000000000)
#define FORGET_NS INT64_C(16000000000) /* time over which an observed rate loses its weight */
enum { SPAN_CADENCES = 3 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Bytes a second; within a few terms and 2 s: no overflow in microseconds. */
static int64_t per_second(int64_t bytes, int64_t elapsed_ns)
{
    return bytes * (SECOND_NS / 1000) / larger(elapsed_ns / 1000, 1);
}

static void begin_span(ps_pressure_reader_t *reader, int64_t now_ns)
{
    reader->span_ns = now_ns;
    reader->span_position = reader->position;
    reader->longest_ns = 0;
    reader->starved = reader->empty;
}

static void end_span(ps_pressure_reader_t *reader, int64_t now_ns)
{
    const int64_t sample =
        per_second(reader->position - reader->span_position, now_ns - reader->span_ns);
    if (!reader->starved) {
        const bool first = reader->rate == 0 || (reader->at_least && sample > reader->rate);
        reader->rate = first ? sample : (reader->rate + sample) / 2;
        reader->at_least = false;
    } else {
        const int64_t parts = FORGET_NS / larger(now_ns - reader->span_ns, 1);
        reader->rate = larger(sample, reader->rate - reader->rate / larger(parts, 2));
        reader->at_least = reader->at_least || sample >= reader->rate;
    }
    if (reader->longest_ns < reader->cadence_ns) {
        reader->cadence_ns -= (reader->cadence_ns - reader->longest_ns) / 4;
    }
}

/* A batch begins after data lay untouched for half a cadence or more. */
static void begin_batch(ps_pressure_reader_t *reader, int64_t now_ns)
{
    const int64_t elapsed_ns = now_ns - reader->span_ns;
    if (reader->low != INT64_MAX) {
        reader->residue = reader->low;
        reader->low = INT64_MAX;
    }
    reader->taken = 0;
    if (reader->span_ns == 0) {
        begin_span(reader, now_ns);
    } else if (elapsed_ns >= PS_NAK_SPAN_NS && elapsed_ns >= reader->cadence_ns) {
        end_span(reader, now_ns);
        begin_span(reader, now_ns);
    }
}

static void on_moved(ps_pressure_reader_t *reader, int64_t now_ns)
{
    const int64_t waited_ns = now_ns - reader->waiting_ns;
    if (waited_ns >= PS_NAK_PAUSE_MAX_NS) { /* a pause changes no learned value */
        begin_span(reader, now_ns);
        return;
    }
    reader->cadence_ns = larger(reader->cadence_ns, waited_ns);
    reader->longest_ns = larger(reader->longest_ns, waited_ns);
    if (2 * waited_ns >= reader->cadence_ns) {
        if (reader->term > 0 && reader->position % reader->term == 0) {
            reader->starved = true; /* the end of the term ended its poll: it may take more */
            reader->low = 0;
        }
        begin_batch(reader, now_ns);
    } else if (now_ns - reader->span_ns >=
               larger(SPAN_CADENCES * reader->cadence_ns, PS_NAK_SPAN_NS)) {
        begin_batch(reader, now_ns); /* it reads more often than it did */
    }
}

ps_pressure_learned_t ps_pressure_reader_learned(const ps_pressure_reader_t *reader)
{
    const bool known = reader->cadence_ns >= SECOND_NS / 1000;
    const bool once = reader->rate == 0 && known;
    int64_t rate = once ? per_second(reader->taken, reader->cadence_ns) : reader->rate;
    if (known && reader->term > 0) { /* no more is kept for it */
        rate = smaller(rate, per_second(reader->term, reader->cadence_ns));
    }
    return (ps_pressure_learned_t){ .cadence_ns = reader->cadence_ns,
                                    .rate = rate,
                                    .at_least = once ? reader->starved : reader->at_least };
}

void ps_pressure_reader_check(ps_pressure_reader_t *reader, int64_t position, int64_t end,
                              int64_t now_ns)
{
    const bool empty = position >= end;
    /* It took all that was there at the check before: what is unread came since. */
    const bool took_all = position > reader->position && position >= reader->end;
    if (!reader->started) {
        reader->started = true;
        reader->position = position;
        reader->end = end;
        reader->waiting_ns = now_ns;
        reader->low = INT64_MAX;
        reader->empty = empty;
        return;
    }
    if (position > reader->position) {
        on_moved(reader, now_ns);
        reader->taken += position - reader->position;
        reader->position = position;
        reader->waiting_ns = now_ns;
        reader->low = smaller(reader->low, end - position);
    } else if (empty || reader->empty) {
        reader->waiting_ns = now_ns; /* there was no unread data until now */
    }
    reader->empty = empty;
    reader->end = end;
    if (empty || took_all) {
        reader->low = 0;
        reader->starved = true;
    }
}

void ps_pressure_reader_skip(ps_pressure_reader_t *reader)
{
    reader->started = false;
    reader->span_ns = 0;
    reader->taken = 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

int32_t ps_pressure_level(int64_t fill, int64_t capacity)
{
    static const int64_t percent[PS_PRESSURE_LEVELS] = { 50, 75, 87, 100 };
    int32_t level = 0;
    while (level < PS_PRESSURE_LEVELS &&
           fill >= capacity / 100 * percent[level] + capacity % 100 * percent[level] / 100) {
        level++;
    }
    return level;
}

static void begin_episode(ps_pressure_signal_t *signal, const ps_pressure_input_t *in,
                          int64_t window_ns)
{
    const int64_t spread_ns = smaller(window_ns / 2, (in->now_ns - signal->low_ns) / 4);
    const int64_t delay_ns = (int64_t)(((uint64_t)in->random * (uint64_t)spread_ns) >> 32);
    signal->episode = true;
    signal->first_ns = in->now_ns + (in->group ? delay_ns : 0);
}

int32_t ps_pressure_signal_step(ps_pressure_signal_t *signal, const ps_pressure_input_t *in,
                                int64_t *due_ns)
{
    const int64_t window_ns = ps_pressure_window_ns(in->rtt_ns, in->cadence_ns);
    const int32_t level = ps_pressure_level(in->fill, in->capacity);
    PS_ASSERT(in->capacity > 0);
    *due_ns = INT64_MAX;
    if (in->fill < in->capacity / 4 || signal->low_ns == 0) {
        signal->low_ns = in->now_ns;
    }
    if (level == 0) {
        signal->episode = false;
        return 0;
    }
    if (in->paused) {
        return 0; /* no rate would help a paused reader, and the others must not wait for it */
    }
    if (!signal->episode) {
        begin_episode(signal, in, window_ns);
    }
    const bool over = in->now_ns >= signal->window_end_ns;
    if (in->now_ns < signal->first_ns || (!over && level <= signal->level)) {
        *due_ns = level <= signal->level ? larger(signal->first_ns, signal->window_end_ns)
                                         : signal->first_ns;
        return 0;
    }
    if (over) {
        signal->window_end_ns = in->now_ns + window_ns;
    }
    signal->level = level;
    *due_ns = signal->window_end_ns;
    return level;
}
