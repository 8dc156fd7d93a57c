/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_signal.h: the receiver's half of NAK-strength control (docs/nak-strength.md): how
 * fast the readers of a queue consume, and when the queue's fill is signalled.  Pure and in
 * integers: no clock, no allocation, no randomness but what is passed in.
 *
 * Reader.  A reader is watched at each look.  The cadence is the longest time that it left data
 * untouched, within a span; it rises at once and falls by a quarter of the difference each span.  A
 * span runs from the start of one batch to the start of another.  It lasts a cadence and 25 ms at
 * least.  So bytes / time is exact whatever the batches are.  When the reader left data
 * behind all through a span, that quotient is what it can take; when it came to the end of the
 * queue, it can take at least so much.  A reader that leaves data untouched for longer than
 * max(2 cadences, 250 ms), at most 2 s, is paused; a pause teaches nothing.
 *
 * Signal.  Levels 1..4 begin at 50, 75, 87 and 100 % of the capacity and nowhere else.  In a window
 * of max(50 ms, round trip, cadence) each level is signalled when it is first reached, so at most
 * four times.  A queue that stays above 50 % signals again in each window.  In a group the first
 * signal of an episode is delayed at random, by half a window at most.  The delay is also at most a
 * quarter of the time that the queue took to fill.
 */
#ifndef PS_PRESSURE_SIGNAL_H
#define PS_PRESSURE_SIGNAL_H

#include <stdbool.h>
#include <stdint.h>

#define PS_PRESSURE_WINDOW_NS     INT64_C(50000000)
#define PS_PRESSURE_WINDOW_MAX_NS INT64_C(1000000000) /* a longer round trip is not believed */
#define PS_NAK_SPAN_NS            INT64_C(25000000)   /* rates are measured over this at least */
#define PS_NAK_PAUSE_NS           INT64_C(250000000)
#define PS_NAK_PAUSE_MAX_NS       INT64_C(2000000000)
enum { PS_PRESSURE_LEVELS = 4, PS_PRESSURE_PPM = 1000000 };

/* One reader of a queue. */
typedef struct ps_pressure_reader {
    int64_t position;      /* consumed, at the last look */
    int64_t waiting_ns;    /* since then data lay there untouched */
    int64_t span_ns;       /* when the running span began; 0: none runs */
    int64_t span_position; /* what was consumed before it */
    int64_t longest_ns;    /* data lay untouched in the running span, at most */
    int64_t low;           /* least unread bytes since the running batch began */
    int64_t cadence_ns;    /* learned; 0 none */
    int64_t rate;          /* bytes per second that it can take; 0 unknown */
    int64_t taken;         /* bytes of the last batch so far */
    int64_t residue;       /* bytes that the last batch left behind, at least */
    bool started;
    bool empty;    /* at the last look there was nothing to take */
    bool at_least; /* the rate is what it took when it came to the end, maybe it takes more */
    bool starved;  /* in the running span it came to the end of the queue */
} ps_pressure_reader_t;

/* Knowledge of a reader that outlives its image. */
typedef struct ps_pressure_learned {
    int64_t cadence_ns, rate;
} ps_pressure_learned_t;

/* One look: the reader has consumed up to position, and may go to end. */
void ps_pressure_reader_check(ps_pressure_reader_t *reader, int64_t position, int64_t end,
                              int64_t now_ns);
/* Returns what is known of it.  If it was seen to take one batch only: that, and the cadence. */
ps_pressure_learned_t ps_pressure_reader_learned(const ps_pressure_reader_t *reader);
/* Bytes that its last batch left behind, of a rate that is known.  While that is a lower bound
 * only, what was left behind tells nothing: 0. */
static inline int64_t ps_pressure_reader_residue(const ps_pressure_reader_t *reader)
{
    return reader->at_least ? 0 : reader->residue;
}
/* After so long without consumption it is paused. */
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
    int64_t window_end_ns; /* of the last signal's window */
    int64_t first_ns;      /* this episode's first signal: not before */
    int64_t low_ns;        /* when the queue was last below a quarter */
    int32_t level;         /* highest signalled in the window */
    bool episode;          /* at 50 % or above since the last look below it */
} ps_pressure_signal_t;

typedef struct ps_pressure_input {
    int64_t now_ns;
    int64_t fill;       /* bytes sent to the slowest reader and not taken by it, those beyond the
                           window included */
    int64_t capacity;   /* bytes, > 0 */
    int64_t rtt_ns;     /* 0 unknown */
    int64_t cadence_ns; /* of that reader; 0 unknown */
    uint32_t random;    /* uniform; in a group it spreads first signals */
    bool group;
    bool paused; /* it is paused: silence */
} ps_pressure_input_t;

static inline int64_t ps_pressure_window_ns(int64_t rtt_ns, int64_t cadence_ns)
{
    const int64_t longest = rtt_ns > cadence_ns ? rtt_ns : cadence_ns;
    return longest < PS_PRESSURE_WINDOW_NS       ? PS_PRESSURE_WINDOW_NS
           : longest < PS_PRESSURE_WINDOW_MAX_NS ? longest
                                                 : PS_PRESSURE_WINDOW_MAX_NS;
}
/* 0..4. */
int32_t ps_pressure_level(int64_t fill, int64_t capacity);
/* One check the queue.  Returns the level to signal now, 1..4, or 0.  *due_ns: when to check again
 * (INT64_MAX: when data comes). */
int32_t ps_pressure_signal_step(ps_pressure_signal_t *signal, const ps_pressure_input_t *input,
                                int64_t *due_ns);

#endif
