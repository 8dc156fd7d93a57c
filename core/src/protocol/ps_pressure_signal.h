/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_signal.h: the receiver's half of NAK-strength control (docs/nak-strength.md). It
 * measures how fast the readers of a queue consume, and decides when to signal the fill of the
 * queue. Pure and in integers: no clock, no allocation; the caller passes random numbers.
 *
 * Reader. Each check reads the reader's position. A batch is the data that a reader reads at once,
 * before it pauses. A span lasts from the start of one batch to the start of a later one. The
 * cadence is the longest time within a span in which the reader left data unread. The cadence rises
 * at once, and falls by a quarter of the difference in each span. A span lasts at least a cadence
 * and at least 25 ms. The bytes consumed in a span, divided by its length, are therefore
 * the exact rate for batches of any size. If the queue was never empty in a span, this quotient is
 * the rate that the reader can consume; if the reader emptied the queue, the quotient is a lower
 * bound. A reader that leaves data unread for longer than max(2 cadences, 250 ms), at most 2 s, is
 * paused; a pause changes neither cadence nor rate.
 *
 * Signal. Levels 1..4 begin at 50, 75, 87 and 100 % of the capacity. In a window of max(50 ms,
 * round trip, cadence) each level is signalled when it is first reached, so at most four times.
 * While a queue stays above 50 %, the receiver repeats the signal in each window. In a group the
 * receiver delays the first signal of an episode at random, by at most half a window. The delay is
 * also at most a quarter of the time in which the queue filled. */
#ifndef PS_PRESSURE_SIGNAL_H
#define PS_PRESSURE_SIGNAL_H

#include <stdbool.h>
#include <stdint.h>

#define PS_PRESSURE_WINDOW_NS     INT64_C(50000000)
#define PS_PRESSURE_WINDOW_MAX_NS INT64_C(1000000000) /* a longer round trip counts as this value */
#define PS_NAK_SPAN_NS            INT64_C(25000000)   /* shortest time of a rate */
#define PS_NAK_PAUSE_NS           INT64_C(250000000)
#define PS_NAK_PAUSE_MAX_NS       INT64_C(2000000000)
enum { PS_PRESSURE_LEVELS = 4, PS_PRESSURE_PPM = 1000000 };

/* One reader of a queue. */
typedef struct ps_pressure_reader {
    int64_t position;      /* consumed position at the last check */
    int64_t waiting_ns;    /* time since which data is unread */
    int64_t span_ns;       /* time at which the running span began; 0: no span */
    int64_t span_position; /* consumed position at its start */
    int64_t longest_ns;    /* longest time in the running span in which data was unread */
    int64_t low;           /* least unread bytes since the running batch began */
    int64_t cadence_ns;    /* learned value; 0 none */
    int64_t rate;          /* bytes per second that the reader can consume; 0 unknown */
    int64_t taken;         /* bytes of the last batch so far */
    int64_t residue;       /* least number of bytes that stayed unread after the last batch */
    int64_t term;          /* term length, because a poll ends at the end of a term; 0: no terms */
    bool started;
    bool empty;    /* true: no data was unread at the last check */
    bool at_least; /* rate is a lower bound, because the reader emptied the queue */
    bool starved;  /* the reader emptied the queue in the running span */
} ps_pressure_reader_t;

/* Learned values of a reader, kept beyond the life of its image. */
typedef struct ps_pressure_learned {
    int64_t cadence_ns, rate;
    bool at_least; /* the reader emptied the queue, so it may consume faster */
} ps_pressure_learned_t;

/* Records that the reader has consumed up to position, and that data is available up to end. */
void ps_pressure_reader_check(ps_pressure_reader_t *reader, int64_t position, int64_t end,
                              int64_t now_ns);
/* Returns the learned values of the reader. After a single batch the rate is computed from the size
 * of this batch and the cadence. */
ps_pressure_learned_t ps_pressure_reader_learned(const ps_pressure_reader_t *reader);
/* Returns the bytes that were unread after the last batch. Returns 0 while the rate is only a lower
 * bound. */
static inline int64_t ps_pressure_reader_residue(const ps_pressure_reader_t *reader)
{
    return reader->at_least ? 0 : reader->residue;
}
/* Returns the time without consumption after which a reader is paused. */
static inline int64_t ps_nak_pause_ns(int64_t cadence_ns)
{
    const int64_t twice_ns = 2 * cadence_ns;
    return twice_ns < PS_NAK_PAUSE_NS       ? PS_NAK_PAUSE_NS
           : twice_ns < PS_NAK_PAUSE_MAX_NS ? twice_ns
                                            : PS_NAK_PAUSE_MAX_NS;
}
static inline bool ps_pressure_reader_paused(const ps_pressure_reader_t *reader, int64_t now_ns)
{
    return reader->started && !reader->empty &&
           now_ns - reader->waiting_ns >= ps_nak_pause_ns(reader->cadence_ns);
}

typedef struct ps_pressure_signal {
    int64_t window_end_ns; /* end of the last signal's window */
    int64_t first_ns;      /* earliest time of this episode's first signal */
    int64_t low_ns;        /* time at which the queue was last below a quarter */
    int32_t level;         /* highest level signalled in the window */
    bool episode;          /* true: the queue has reached 50 % since it was last below a quarter */
} ps_pressure_signal_t;

typedef struct ps_pressure_input {
    int64_t now_ns;
    int64_t fill;       /* bytes sent to the slowest reader and not consumed, including bytes beyond
                         * the window */
    int64_t capacity;   /* bytes, > 0 */
    int64_t rtt_ns;     /* 0 unknown */
    int64_t cadence_ns; /* of that reader; 0 unknown */
    uint32_t random;    /* uniform random number; spreads the first signals of a group in time */
    bool group;
    bool paused; /* the reader is paused: send no signal */
} ps_pressure_input_t;

static inline int64_t ps_pressure_window_ns(int64_t rtt_ns, int64_t cadence_ns)
{
    const int64_t longest = rtt_ns > cadence_ns ? rtt_ns : cadence_ns;
    return longest < PS_PRESSURE_WINDOW_NS       ? PS_PRESSURE_WINDOW_NS
           : longest < PS_PRESSURE_WINDOW_MAX_NS ? longest
                                                 : PS_PRESSURE_WINDOW_MAX_NS;
}
/* Returns the level of a fill, 0..4. */
int32_t ps_pressure_level(int64_t fill, int64_t capacity);
/* Checks the queue. Returns the level to signal now, 1..4, or 0. *due_ns: time of the next check
 * (INT64_MAX: when data arrives). */
int32_t ps_pressure_signal_step(ps_pressure_signal_t *signal, const ps_pressure_input_t *input,
                                int64_t *due_ns);

#endif
