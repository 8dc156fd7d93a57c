/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_pressure_signal.h: the receiver's part of NAK-strength control (fc=nak; docs/nak-strength.md).
 * The receiver measures how fast the readers of a receive queue consume data. From the readers'
 * speed, the receiver decides when to signal the fill level of the queue to the sender. The
 * functions are pure and use only integers: no clock, no allocation; the caller passes random
 * numbers.
 *
 * Reader. At each check of a receive queue, the receiver loads the position of each reader. A batch
 * is the data that a reader reads without a break. A span is an interval in which the receiver
 * measures a reader. A span lasts from the start of one batch to the start of a later batch. The
 * cadence of a reader is an estimate of the time between the reader's batches. In each span, the
 * receiver measures the longest time for which the reader left data unread. If the measured time is
 * longer than the cadence, the measured time becomes the new cadence at once. If the measured time
 * is shorter than the cadence, the cadence falls by a quarter of the difference. A span lasts at
 * least as long as the cadence, and at least 25 ms. The rate of a reader is the number of bytes
 * that the reader consumes in a span, divided by the length of the span. A span begins and ends at
 * the start of a batch. The measured rate is therefore exact for batches of any size. A batch
 * starts when the reader reads after a wait of at least half the cadence. If the reader begins to
 * read more than twice as often, no wait is that long. A span therefore also ends at the first read
 * after three cadences. If the queue was never empty in a span, the measured rate is the highest
 * rate that the reader can reach. If the reader emptied the queue, the measured rate is only a
 * lower bound. A reader that consumed all that was available at the check before has emptied the
 * queue, even if data arrived since then. A reader is paused if data is unread, and the reader has
 * read nothing for longer than min(2 s, max(2 cadences, 250 ms)). A pause changes neither the
 * cadence nor the rate of the reader.
 *
 * Signal. A signal states a level: levels 1 to 4 begin when the data in the queue reaches 50, 75,
 * 87 and 100 % of the capacity. The receiver divides time into windows of max(50 ms, round trip,
 * cadence). When the queue first reaches a level in a window, the receiver sends a signal with this
 * level. A receiver therefore sends at most four signals in each window, one for each level. While
 * a queue stays above 50 % of its capacity, the receiver repeats the signal in each window. An
 * episode begins when the queue reaches 50 % of its capacity, and ends when the queue is below 50 %
 * again. In a group, the receiver delays the first signal of an episode by a random time. The
 * random delay is at most half a window. The random delay is also at most a quarter of the time
 * that the queue took to fill. */
#ifndef PS_PRESSURE_SIGNAL_H
#define PS_PRESSURE_SIGNAL_H

#include <stdbool.h>
#include <stdint.h>

/* A window lasts as long as the round trip or the cadence, whichever is longer. The length is at
 * least PS_PRESSURE_WINDOW_NS and at most PS_PRESSURE_WINDOW_MAX_NS. The receiver measures a rate
 * over at least PS_NAK_SPAN_NS. */
#define PS_PRESSURE_WINDOW_NS     INT64_C(50000000)
#define PS_PRESSURE_WINDOW_MAX_NS INT64_C(1000000000)
#define PS_NAK_SPAN_NS            INT64_C(25000000)
#define PS_NAK_PAUSE_NS           INT64_C(250000000)
#define PS_NAK_PAUSE_MAX_NS       INT64_C(2000000000)
enum { PS_PRESSURE_LEVELS = 4, PS_PRESSURE_PPM = 1000000 };

/* One reader of a queue. */
typedef struct ps_pressure_reader {
    int64_t position;      /* Position that the reader had consumed at the last check. */
    int64_t end;           /* End of the available data at the last check. */
    int64_t waiting_ns;    /* Time at which the reader began to leave data unread. */
    int64_t span_ns;       /* Time at which the running span of measurement began; 0: no span
                            * runs. */
    int64_t span_position; /* consumed position at span_ns */
    int64_t longest_ns;    /* Longest time in the running span for which the reader left data
                            * unread. */
    int64_t low;           /* Least number of unread bytes since the running batch began. */
    int64_t cadence_ns;    /* learned value; 0 none */
    int64_t rate;          /* Bytes per second that the reader can consume; 0: unknown. */
    int64_t taken;         /* Number of bytes that the reader has read so far in its running
                            * batch. */
    int64_t residue;       /* Number of bytes that the reader left unread after its last batch. */
    int64_t term;          /* Term length of the log; 0: the queue has no terms. A poll and its
                            * batch end at the end of a term. */
    bool started;
    bool empty;    /* True if no data was unread at the last check. */
    bool at_least; /* True if `rate` is only a lower bound, because the reader emptied the queue. */
    bool starved;  /* True if the reader emptied the queue since the running span of measurement
                    * began. */
} ps_pressure_reader_t;

/* Measured values of a reader. The endpoint keeps these values when the reader's image ends. */
typedef struct ps_pressure_learned {
    int64_t cadence_ns, rate;
    bool at_least; /* True if `rate` is only a lower bound: the reader emptied the queue, so the
                    * reader may be able to consume faster. */
} ps_pressure_learned_t;

/* Records that the reader has consumed the data up to `position`, and that data is available up to
 * `end`. */
void ps_pressure_reader_check(ps_pressure_reader_t *reader, int64_t position, int64_t end,
                              int64_t now_ns);
/* Ends the running measurement, because the reader will continue at another position, and what lies
 * between was not read. The learned values remain. */
void ps_pressure_reader_skip(ps_pressure_reader_t *reader);
/* Returns the measured values of the reader. If the reader has read only one batch, its rate is the
 * size of this batch divided by the cadence. The returned rate is at most a term in each cadence,
 * because the receiver stores no more data for the reader. */
ps_pressure_learned_t ps_pressure_reader_learned(const ps_pressure_reader_t *reader);
/* Returns true if the reader's last batch ended at the end of a term. The end of the term also
 * ended the poll, so the reader may be able to read more in one poll. */
static inline bool ps_pressure_reader_rests(const ps_pressure_reader_t *reader)
{
    return reader->term > 0 && reader->taken > 0 && reader->position % reader->term == 0;
}
/* Returns the residue: the number of bytes that the reader left unread after its last batch.
 * Returns 0 if the reader's rate is only a lower bound, or if its last batch ended at the end of a
 * term. */
static inline int64_t ps_pressure_reader_residue(const ps_pressure_reader_t *reader)
{
    return reader->at_least || ps_pressure_reader_rests(reader) ? 0 : reader->residue;
}
/* Returns the time after which a reader counts as paused if data is unread and the reader reads
 * nothing. */
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
    int64_t window_end_ns; /* Time at which the window of the last signal ends. */
    int64_t first_ns;      /* Earliest time at which the receiver may send the first signal of this
                            * episode. */
    int64_t low_ns;        /* Time at which the queue was last less than a quarter full. */
    int32_t level;         /* Highest level that the receiver has signalled in the running
                            * window. */
    bool episode;          /* True during an episode: from the time at which the queue reaches 50 %
                            * of its capacity until it is below 50 % again. */
} ps_pressure_signal_t;

typedef struct ps_pressure_input {
    int64_t now_ns;
    int64_t fill;       /* Fill level: number of bytes that the sender has sent and the slowest
                         * reader has not consumed, including bytes beyond the window. */
    int64_t capacity;   /* bytes, > 0 */
    int64_t rtt_ns;     /* 0 unknown */
    int64_t cadence_ns; /* of that reader; 0 unknown */
    uint32_t random;    /* Uniform random number, which delays the first signal so that the
                         * receivers of a group do not all signal at once. */
    bool group;
    bool paused; /* True if the slowest reader is paused (ps_nak_pause_ns); the receiver then sends
                  * no signal. */
} ps_pressure_input_t;

static inline int64_t ps_pressure_window_ns(int64_t rtt_ns, int64_t cadence_ns)
{
    const int64_t longest = rtt_ns > cadence_ns ? rtt_ns : cadence_ns;
    return longest < PS_PRESSURE_WINDOW_NS       ? PS_PRESSURE_WINDOW_NS
           : longest < PS_PRESSURE_WINDOW_MAX_NS ? longest
                                                 : PS_PRESSURE_WINDOW_MAX_NS;
}
/* Returns the level, 0 to 4, that corresponds to the fill level of a queue. */
int32_t ps_pressure_level(int64_t fill, int64_t capacity);
/* Checks the fill level of the queue. Returns the level that the receiver must signal now, 1 to 4;
 * 0: no signal. *due_ns gets the time of the next check; INT64_MAX: the next check is due when data
 * arrives. */
int32_t ps_pressure_signal_step(ps_pressure_signal_t *signal, const ps_pressure_input_t *input,
                                int64_t *due_ns);

#endif
