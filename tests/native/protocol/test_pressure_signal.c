/* SPDX-License-Identifier: Apache-2.0
 * NAK-strength control, the receiver's half: how fast readers consume, in any cadence, and when the
 * fill of a queue is signalled.
 */
#include "check.h"
#include "ps_pressure_signal.h"

#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)
#define MB INT64_C(1000000)

/* ---- receiver's half ------------------------------------------------------------------------- */

static int32_t check(ps_pressure_signal_t *signal, int64_t now_ns, int64_t fill_percent)
{
    int64_t due_ns;
    const ps_pressure_input_t in = { .now_ns = now_ns,
                                     .fill = fill_percent * 10000,
                                     .capacity = MB };
    return ps_pressure_signal_step(signal, &in, &due_ns);
}

static void levels_begin_at_50_75_87_and_100(void)
{
    for (int64_t capacity = 32768; capacity <= 8388608; capacity *= 2) {
        for (int64_t percent = 0; percent <= 250; percent++) {
            const int32_t level =
                (percent >= 50) + (percent >= 75) + (percent >= 87) + (percent >= 100);
            CHECK_EQ(ps_pressure_level((capacity * percent + 99) / 100, capacity), level);
        }
        CHECK_EQ(ps_pressure_level(capacity / 2 - 1, capacity), 0);
        CHECK_EQ(ps_pressure_level(capacity - 1, capacity), 3);
    }
}

static void silence_below_half(void)
{
    ps_pressure_signal_t signal = { 0 };
    for (int64_t i = 0; i < 10000; i++) { /* up and down, however fast */
        CHECK_EQ(check(&signal, i * MS, (i * 37) % 50), 0);
    }
}

static void levels_once_a_window(void)
{
    static const int32_t fills[] = { 50, 75, 88, 100 };
    for (int32_t level = 1; level <= 4; level++) {
        ps_pressure_signal_t signal = { 0 };
        int32_t signals = 0;
        for (int64_t i = 2000; i < 3000; i++) {
            const int32_t said = check(&signal, i * MS, fills[level - 1]);
            CHECK(said == 0 || said == level);
            signals += said != 0;
        }
        CHECK_EQ(signals, 20);
    }
}

/* Each level at once when it is reached first, never the same twice in a window. */
static void a_growing_queue_signals_each_level(void)
{
    ps_pressure_signal_t signal = { 0 };
    int32_t said[5] = { 0 };
    for (int64_t i = 0; i < 45; i++) {
        said[check(&signal, S + i * MS, 10 + i * 3)]++;
    }
    CHECK(said[1] == 1 && said[2] == 1 && said[3] == 1 && said[4] == 1);
    CHECK_EQ(check(&signal, S + 46 * MS, 20), 0);
    CHECK_EQ(check(&signal, S + 47 * MS, 90), 0); /* said in this window */
    CHECK_EQ(check(&signal, S + 80 * MS, 90), 3); /* another window */
}

/* The window is as long as the cadence: a batch reader is not worth more signals than batches. */
static void a_window_is_a_cadence(void)
{
    ps_pressure_signal_t signal = { 0 };
    int32_t signals = 0;
    for (int64_t i = 0; i < 4000; i++) {
        int64_t due_ns;
        const ps_pressure_input_t in = {
            .now_ns = S + i * MS, .fill = 60, .capacity = 100, .cadence_ns = 400 * MS
        };
        signals += ps_pressure_signal_step(&signal, &in, &due_ns) != 0;
        CHECK(due_ns > in.now_ns && due_ns <= in.now_ns + 400 * MS);
    }
    CHECK_EQ(signals, 10);
}

static void a_group_spreads_first_signals(void)
{
    int64_t first = INT64_MAX, last = 0;
    for (uint32_t r = 0; r < 16; r++) {
        ps_pressure_signal_t signal = { 0 };
        int64_t due_ns, said_ns = -1;
        for (int64_t i = -1000; i < 100 && said_ns < 0; i++) { /* it took a second to fill */
            const ps_pressure_input_t in = { .now_ns = 2 * S + i * MS,
                                             .fill = i == -1000 ? 0
                                                     : i < 0    ? 40
                                                                : 60,
                                             .capacity = 100,
                                             .group = true,
                                             .random = r * UINT32_C(0x10000000) };
            if (ps_pressure_signal_step(&signal, &in, &due_ns) != 0) {
                said_ns = i * MS;
            }
        }
        CHECK(said_ns >= 0 && said_ns <= 25 * MS);
        first = said_ns < first ? said_ns : first;
        last = said_ns > last ? said_ns : last;
    }
    CHECK(last - first >= 20 * MS);
}

/* A queue that fills in a millisecond is not delayed by more than a quarter of that. */
static void a_fast_queue_is_not_delayed(void)
{
    ps_pressure_signal_t signal = { 0 };
    int64_t due_ns;
    ps_pressure_input_t in = { .now_ns = S, .capacity = 100, .group = true, .random = UINT32_MAX };
    CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
    in.now_ns += MS;
    in.fill = 60;
    CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
    CHECK(due_ns <= in.now_ns + MS / 4);
}

/* The time of filling begins when the queue was last less than a quarter full. */
static void a_queue_fills_from_a_quarter_on(void)
{
    static const int64_t fills[][2] = { { -1000, 10 }, { 0, 24 }, { 20, 25 }, { 40, 60 } };
    ps_pressure_signal_t signal = { 0 };
    int64_t due_ns;
    for (int32_t i = 0; i < 4; i++) {
        const ps_pressure_input_t in = { .now_ns = 2 * S + fills[i][0] * MS,
                                         .fill = fills[i][1],
                                         .capacity = 100,
                                         .group = true,
                                         .random = UINT32_C(1) << 31 };
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
    }
    CHECK_EQ(due_ns, 2 * S + 40 * MS + 40 * MS / 4 / 2); /* half of a quarter of 40 ms */
}

/* Each episode has a delay of its own: from half a queue on, until it is below half again. */
static void each_episode_is_spread(void)
{
    ps_pressure_signal_t signal = { 0 };
    ps_pressure_input_t in = { .capacity = 100, .group = true, .random = UINT32_C(1) << 31 };
    for (int64_t i = 1; i <= 5; i++) {
        int64_t due_ns;
        in.now_ns = i * S;
        in.fill = 20;
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
        in.now_ns += S / 2;
        in.fill = 50;
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
        CHECK_EQ(due_ns, in.now_ns + 25 * MS / 2); /* half of half a window */
        in.now_ns = due_ns - 1;
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
        in.now_ns = due_ns;
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 1);
        CHECK_EQ(due_ns, in.now_ns + 50 * MS);
    }
}

static void a_paused_reader_is_silent(void)
{
    ps_pressure_signal_t signal = { 0 };
    int64_t due_ns;
    ps_pressure_input_t in = { .now_ns = S, .fill = 300, .capacity = 100, .paused = true };
    for (; in.now_ns < 3 * S; in.now_ns += MS) {
        CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 0);
    }
    in.paused = false;
    CHECK_EQ(ps_pressure_signal_step(&signal, &in, &due_ns), 4);
}

/* ---- readers --------------------------------------------------------------------------------- */

/* `batch` bytes each `cadence_ms` of what comes at `arrival` bytes a millisecond. */
static ps_pressure_reader_t reader_after(int64_t batch, int64_t cadence_ms, int64_t arrival,
                                         int64_t ms)
{
    ps_pressure_reader_t reader = { 0 };
    int64_t position = 0, end = 0;
    for (int64_t i = 0; i < ms; i++) {
        end += arrival;
        if (i % cadence_ms == cadence_ms - 1) {
            position += end - position < batch ? end - position : batch;
        }
        ps_pressure_reader_check(&reader, position, end, S + i * MS);
    }
    return reader;
}

static bool is_within(int64_t value, int64_t wanted, int64_t percent)
{
    return value >= wanted - wanted * percent / 100 && value <= wanted + wanted * percent / 100;
}

static void consumption_is_measured_at_any_cadence(void)
{
    for (int64_t cadence_ms = 1; cadence_ms <= 1000; cadence_ms = cadence_ms * 5 / 4 + 1) {
        const int64_t rate = MB / 1000; /* bytes a millisecond */
        ps_pressure_reader_t slow =
            reader_after(rate * cadence_ms, cadence_ms, 3 * rate, 6 * cadence_ms + 200);
        CHECK(is_within(slow.rate, MB, 5));
        CHECK(!slow.at_least && slow.residue > 0);
        CHECK(is_within(slow.cadence_ns, cadence_ms * MS, 10) || cadence_ms <= 2);
        ps_pressure_reader_t copes =
            reader_after(INT64_MAX, cadence_ms, 3 * rate, 6 * cadence_ms + 200);
        CHECK(is_within(copes.rate, 3 * MB, 5));
        CHECK(copes.at_least && copes.residue == 0);
    }
}

/* A reader with a backlog begins to read more often, with a higher or a lower rate than before. */
static void a_reader_that_reads_more_often_is_measured_anew(void)
{
    for (int64_t old_ms = 4; old_ms <= 500; old_ms = old_ms * 3 / 2 + 1) {
        for (int64_t new_ms = 1; new_ms <= old_ms; new_ms = new_ms * 2) {
            for (int64_t rate = 100; rate <= 10000; rate *= 10) { /* 1000 bytes a ms until then */
                const int64_t before = 20 * old_ms + 200, after = 20 * old_ms + 300;
                ps_pressure_reader_t reader = { 0 };
                int64_t position = 0;
                for (int64_t i = 0; i < before + after; i++) {
                    const int64_t each_ms = i < before ? old_ms : new_ms;
                    position += i % each_ms == 0 ? (i < before ? 1000 : rate) * each_ms : 0;
                    ps_pressure_reader_check(&reader, position, INT64_MAX / 2, S + i * MS);
                }
                CHECK(is_within(reader.rate, rate * 1000, 10));
                CHECK(reader.cadence_ns <= new_ms * MS + old_ms * MS / 4);
            }
        }
    }
}

/* If the reader never waits for half a cadence, a span lasts exactly three cadences. A shorter span
 * could end within one batch of the reader. */
static void a_span_without_batches_lasts_three_cadences(void)
{
    for (int64_t cadence_ms = 2; cadence_ms <= 1000; cadence_ms = cadence_ms * 2) {
        ps_pressure_reader_t reader = { 0 };
        int64_t position = 0, spans = 0;
        for (int64_t i = 0; i < 40 * cadence_ms; i++) {
            position += i % cadence_ms == 0 ? 1000 : 0;
            ps_pressure_reader_check(&reader, position, INT64_MAX / 2, S + i * MS);
        }
        for (int64_t i = 40 * cadence_ms; i < 60 * cadence_ms + 400; i++) {
            const int64_t began_ns = reader.span_ns, cadence_ns = reader.cadence_ns;
            const int64_t least_ns = 3 * cadence_ns < 25 * MS ? 25 * MS : 3 * cadence_ns;
            ps_pressure_reader_check(&reader, position += 100, INT64_MAX / 2, S + i * MS);
            if (cadence_ns < 2 * MS) {
                break; /* each millisecond is a batch now */
            }
            if (i > 40 * cadence_ms) {
                const bool ended = reader.span_ns != began_ns;
                CHECK(ended == (S + i * MS - began_ns >= least_ns) || cadence_ns <= 2 * MS);
                spans += ended;
            }
        }
        CHECK(spans > 1 || cadence_ms == 2);
    }
}

/* It took all of a trickle; then more comes than a batch takes.  Before a span without the end of
 * the queue is over, what it left behind must not brake the sender to the trickle. */
static void what_is_left_of_a_burst_after_a_trickle_is_not_stated(void)
{
    for (int64_t cadence_ms = 2; cadence_ms <= 500; cadence_ms *= 2) {
        ps_pressure_reader_t reader = { 0 };
        const int64_t batch = 50000 * cadence_ms;
        int64_t position = 0, end = 0;
        int32_t stated = 0;
        for (int64_t i = 0; i < 40 * cadence_ms + 400; i++) {
            const bool burst = i >= 20 * cadence_ms + 200;
            end += burst ? 100000 : 1000;
            if (i % cadence_ms == cadence_ms - 1) {
                position += end - position < batch ? end - position : batch;
            }
            ps_pressure_reader_check(&reader, position, end, S + i * MS);
            const int64_t residue = ps_pressure_reader_residue(&reader);
            CHECK(residue == 0 || is_within(reader.rate, 50 * MB, 10));
            stated += residue > 0;
        }
        CHECK(stated > 0); /* then its rate is known */
    }
}

/* A reader that joins a running stream has read none of the data before its first position. Until a
 * span is over, its rate is that of its last batch alone. */
static void a_reader_begins_where_it_joins(void)
{
    ps_pressure_reader_t reader = { 0 };
    const int64_t joined = 1000 * MB;
    for (int64_t ms = 0; ms <= 20; ms++) {
        const int64_t position = joined + ms / 10 * 1000;
        ps_pressure_reader_check(&reader, position, joined + MB, S + ms * MS);
        CHECK(ms < 10 || reader.taken == 1000);
    }
    CHECK_EQ(reader.rate, 0); /* no span is over */
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 100000);
    CHECK_EQ(ps_pressure_reader_residue(&reader), MB - 1000);
    for (int64_t ms = 21; ms <= 40; ms++) {
        ps_pressure_reader_check(&reader, joined + ms / 10 * 1000, joined + MB, S + ms * MS);
    }
    CHECK(reader.rate == 100000 && !reader.at_least && reader.cadence_ns == 10 * MS);
}

/* A reader of 1000 bytes each 10 ms skips a megabyte. Neither the megabyte nor the time until the
 * reader continues is part of what is learned. */
static void skipped_data_is_not_consumed(void)
{
    for (int64_t away_ms = 1; away_ms <= 8000; away_ms *= 2) {
        ps_pressure_reader_t reader = { 0 };
        int64_t ms = 0;
        for (; ms <= 200; ms++) {
            ps_pressure_reader_check(&reader, ms / 10 * 1000, 10 * MB, S + ms * MS);
        }
        CHECK(reader.rate == 100000 && reader.cadence_ns == 10 * MS);
        ps_pressure_reader_skip(&reader);
        CHECK(reader.rate == 100000 && reader.cadence_ns == 10 * MS);
        ms += away_ms;
        for (const int64_t end_ms = ms + 200; ms <= end_ms; ms++) {
            ps_pressure_reader_check(&reader, MB + ms / 10 * 1000, 10 * MB, S + ms * MS);
            CHECK(reader.rate == 100000 && reader.cadence_ns == 10 * MS);
            CHECK(reader.taken <= 1000);
        }
    }
}

/* Of a rate that is left of a shorter cadence, at most a term in each cadence is kept. */
static void what_is_learned_is_at_most_a_term_in_a_cadence(void)
{
    ps_pressure_reader_t reader = { .rate = 10 * MB, .cadence_ns = 100 * MS };
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 10 * MB); /* a queue without terms */
    reader.term = MB;
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 10 * MB);
    reader.term = 65536;
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 655360);
    reader.cadence_ns = MS;
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 10 * MB);
    reader.term = 4096;
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 4096000);
    reader.cadence_ns = MS - 1; /* too short to count */
    CHECK_EQ(ps_pressure_reader_learned(&reader).rate, 10 * MB);
}

/* The span after a pause begins when the pause ends, so the rate stays as it was. */
static void a_span_begins_when_a_pause_ends(void)
{
    ps_pressure_reader_t reader = { 0 };
    int64_t position = 0, now_ns = S;
    for (int64_t i = 0; i < 200; i++) {
        if (i == 105) {
            now_ns += 2 * S;
        }
        ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, now_ns += 10 * MS);
        CHECK(i < 10 || reader.rate == 100000);
        CHECK(i < 10 || reader.cadence_ns == 10 * MS);
    }
}

/* A wait of exactly half the cadence begins a batch; a shorter one does not. */
static void a_wait_of_half_a_cadence_begins_a_batch(void)
{
    for (int64_t less_ns = 0; less_ns <= 1; less_ns++) {
        ps_pressure_reader_t reader = { 0 };
        int64_t position = 0, now_ns = S;
        for (int64_t i = 0; i < 5; i++) {
            ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, now_ns += 100 * MS);
        }
        now_ns += 50 * MS - less_ns;
        ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, now_ns);
        CHECK_EQ(reader.taken, less_ns == 0 ? 1000 : 2000);
    }
}

/* In each span, the cadence falls by a quarter of its difference from the longest wait. */
static void the_cadence_falls_by_a_quarter_of_the_difference(void)
{
    ps_pressure_reader_t reader = { 0 };
    int64_t position = 0, now_ns = S;
    for (int64_t i = 0; i < 50; i++) {
        ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, now_ns += 100 * MS);
    }
    CHECK_EQ(reader.cadence_ns, 100 * MS);
    for (int64_t i = 0; i < 50; i++) {
        const int64_t before_ns = reader.cadence_ns, began_ns = reader.span_ns;
        ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, now_ns += 60 * MS);
        const int64_t falls_ns = reader.span_ns != began_ns ? (before_ns - 60 * MS) / 4 : 0;
        CHECK_EQ(reader.cadence_ns, before_ns - falls_ns);
    }
    CHECK(reader.cadence_ns < 61 * MS);
}

static void a_pause_teaches_nothing(void)
{
    for (int64_t pause_ms = 2000; pause_ms <= 20000; pause_ms += 1500) {
        ps_pressure_reader_t reader = { 0 };
        int64_t position = 0;
        for (int64_t i = 0; i < 500; i++) {
            ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2, S + i * MS);
        }
        const int64_t rate = reader.rate, cadence_ns = reader.cadence_ns;
        const int64_t since_ns = S + 499 * MS;
        CHECK(!ps_pressure_reader_paused(&reader, since_ns + 249 * MS));
        CHECK(ps_pressure_reader_paused(&reader, since_ns + 250 * MS));
        ps_pressure_reader_check(&reader, position += 1000, INT64_MAX / 2,
                                 since_ns + pause_ms * MS);
        CHECK_EQ(reader.rate, rate);
        CHECK_EQ(reader.cadence_ns, cadence_ns);
        CHECK(!ps_pressure_reader_paused(&reader, since_ns + pause_ms * MS));
    }
}

/* max(2 cadences, 250 ms), at most 2 s. */
static void who_pauses_depends_on_the_cadence(void)
{
    CHECK_EQ(ps_nak_pause_ns(0), 250 * MS);
    CHECK_EQ(ps_nak_pause_ns(125 * MS), 250 * MS);
    CHECK_EQ(ps_nak_pause_ns(300 * MS), 600 * MS);
    CHECK_EQ(ps_nak_pause_ns(1000 * MS), 2 * S);
    CHECK_EQ(ps_nak_pause_ns(1900 * MS), 2 * S);
}

/* Nothing to take is no pause, and no cadence. */
static void an_empty_queue_is_no_pause(void)
{
    ps_pressure_reader_t reader = { 0 };
    ps_pressure_reader_check(&reader, 1000, 1000, S);
    for (int64_t i = 0; i < 5000; i++) {
        ps_pressure_reader_check(&reader, 1000, 1000, S + i * MS);
        CHECK(!ps_pressure_reader_paused(&reader, S + i * MS));
    }
    ps_pressure_reader_check(&reader, 1000, 2000, 6 * S);
    ps_pressure_reader_check(&reader, 2000, 2000, 6 * S + 3 * MS);
    CHECK(reader.cadence_ns <= 3 * MS);
}

/* A reader that was seen to take one batch only: that, over its cadence. */
static void one_batch_is_learned_from(void)
{
    ps_pressure_reader_t reader = { 0 };
    ps_pressure_reader_check(&reader, 0, 0, S);
    ps_pressure_reader_check(&reader, 0, 50000, S + MS);
    ps_pressure_reader_check(&reader, 50000, 50000, S + 501 * MS);
    const ps_pressure_learned_t learned = ps_pressure_reader_learned(&reader);
    CHECK_EQ(learned.cadence_ns, 500 * MS);
    CHECK_EQ(learned.rate, 100000);
    CHECK(learned.at_least); /* it came to the end of the queue */
    reader = (ps_pressure_reader_t){ 0 };
    ps_pressure_reader_check(&reader, 0, 0, S);
    ps_pressure_reader_check(&reader, 0, 90000, S + MS);
    ps_pressure_reader_check(&reader, 50000, 90000, S + 501 * MS);
    CHECK(!ps_pressure_reader_learned(&reader).at_least);
}

/* A poll takes `limit` bytes and ends where a term does.  The reader copes: what the end of a term
 * made it leave behind is no backlog. */
static void the_end_of_a_term_is_no_backlog(void)
{
    for (int64_t limit = 2000; limit <= 100000; limit *= 2) {
        ps_pressure_reader_t reader = { .term = 262144 };
        int64_t position = 0, end = 0;
        int32_t lower = 0, looks = 0;
        for (int64_t i = 0; i < 20000; i++) {
            end += limit / 200; /* half of what it can take each 100 ms */
            if (i % 100 == 99) {
                const int64_t stop = (position / reader.term + 1) * reader.term;
                const int64_t most = position + limit < end ? position + limit : end;
                position = most < stop ? most : stop;
            }
            ps_pressure_reader_check(&reader, position, end, S + i * MS);
            looks += i > 1000;
            lower += i > 1000 && ps_pressure_reader_residue(&reader) == 0;
        }
        CHECK_EQ(lower, looks);
    }
}

/* A reader with a backlog rests at the end of a term after a short batch.  Until its next batch it
 * states no residue: it can take more than that batch, and may take more than it did before. */
/* Each batch is a span here. A batch that ended at the end of a term may have ended for that reason
 * alone: then the rate is a lower bound, and no residue is stated. */
static void a_batch_up_to_the_end_of_a_term_gives_a_lower_bound(void)
{
    ps_pressure_reader_t reader = { .term = 4000 };
    for (int64_t i = 0; i < 100; i++) {
        ps_pressure_reader_check(&reader, 1000 * i, 1000 * i + 8000, S + 30 * i * MS);
        CHECK(i < 4 || reader.at_least == (i % 4 == 1));
        CHECK(i < 4 || reader.residue == (i % 4 == 1 ? 0 : 8000));
        CHECK(i < 4 || (ps_pressure_reader_residue(&reader) == 0) == (i % 4 <= 1));
        CHECK(i < 4 || reader.rate == 1000 * 1000 / 30);
    }
}

/* The receiver looks late: after each read of all data, more data arrives before the next check.
 * Such a reader may take more than it gets, so its rate is a lower bound, without a residue. If it
 * leaves more unread than arrived, its rate is exact. */
static void data_that_arrives_before_the_check_is_no_residue(void)
{
    for (int64_t unread = 0; unread <= 20000; unread += 1000) {
        ps_pressure_reader_t reader = { 0 };
        for (int64_t i = 0; i < 2000; i++) { /* 1000 bytes each ms; checks each 10 ms */
            const int64_t batches = i / 100;
            const int64_t took = i % 100 >= 5 ? batches : batches - 1;
            const int64_t position = took < 0 ? 0 : 1000 * (took * 100 + 5) - unread;
            if (i % 10 == 0) {
                ps_pressure_reader_check(&reader, position < 0 ? 0 : position, 1000 * i,
                                         S + i * MS);
            }
        }
        CHECK(reader.rate >= 99 * MB / 100 && reader.rate <= 101 * MB / 100);
        if (unread <= 5000) { /* it had taken all that was there at the check before */
            CHECK(reader.at_least);
            CHECK_EQ(ps_pressure_reader_residue(&reader), 0);
        } else {
            CHECK(!reader.at_least);
            CHECK_EQ(ps_pressure_reader_residue(&reader), unread + 5000);
        }
    }
}

static void a_rest_at_the_end_of_a_term_states_no_residue(void)
{
    ps_pressure_reader_t reader = { .term = 262144 };
    int64_t position = 0, rests = 0;
    for (int64_t i = 0; i < 20000; i++) {
        if (i % 100 == 99) { /* polls of 30000 bytes; the queue is never empty */
            const int64_t stop = (position / reader.term + 1) * reader.term;
            position = position + 30000 < stop ? position + 30000 : stop;
        }
        ps_pressure_reader_check(&reader, position, position + 100000, S + i * MS);
        const bool rest = position % reader.term == 0;
        rests += i > 3000 && rest;
        CHECK(i <= 3000 || !rest || ps_pressure_reader_residue(&reader) == 0);
    }
    CHECK(rests > 1000);
    /* A reader that was outrun states 1 until its first batch, wherever it joins again. */
    ps_pressure_reader_t outrun = { .term = 262144, .rate = MB, .residue = 1 };
    ps_pressure_reader_check(&outrun, 262144, 300000, S);
    CHECK_EQ(ps_pressure_reader_residue(&outrun), 1);
}

/* The queue is empty at the first check: until the reader has consumed its first batch, what was
 * learned in the image before counts. */
static void a_first_check_of_an_empty_queue_is_no_batch(void)
{
    ps_pressure_reader_t reader = { .term = 262144, .cadence_ns = 20 * MS, .rate = MB };
    reader.residue = 1;
    ps_pressure_reader_check(&reader, 1000, 1000, S);
    ps_pressure_reader_check(&reader, 1000, 50000, S + MS);
    ps_pressure_reader_check(&reader, 20000, 50000, S + 30 * MS);
    CHECK_EQ(ps_pressure_reader_residue(&reader), 1);
    ps_pressure_reader_check(&reader, 20000, 80000, S + 31 * MS);
    ps_pressure_reader_check(&reader, 40000, 80000, S + 60 * MS);
    CHECK_EQ(ps_pressure_reader_residue(&reader), 30000);
}

int main(void)
{
    RUN(levels_begin_at_50_75_87_and_100);
    RUN(silence_below_half);
    RUN(levels_once_a_window);
    RUN(a_growing_queue_signals_each_level);
    RUN(a_window_is_a_cadence);
    RUN(a_group_spreads_first_signals);
    RUN(a_fast_queue_is_not_delayed);
    RUN(a_queue_fills_from_a_quarter_on);
    RUN(each_episode_is_spread);
    RUN(a_paused_reader_is_silent);
    RUN(consumption_is_measured_at_any_cadence);
    RUN(a_reader_that_reads_more_often_is_measured_anew);
    RUN(a_span_without_batches_lasts_three_cadences);
    RUN(what_is_left_of_a_burst_after_a_trickle_is_not_stated);
    RUN(a_reader_begins_where_it_joins);
    RUN(skipped_data_is_not_consumed);
    RUN(what_is_learned_is_at_most_a_term_in_a_cadence);
    RUN(a_span_begins_when_a_pause_ends);
    RUN(a_wait_of_half_a_cadence_begins_a_batch);
    RUN(the_cadence_falls_by_a_quarter_of_the_difference);
    RUN(a_pause_teaches_nothing);
    RUN(who_pauses_depends_on_the_cadence);
    RUN(an_empty_queue_is_no_pause);
    RUN(one_batch_is_learned_from);
    RUN(the_end_of_a_term_is_no_backlog);
    RUN(a_batch_up_to_the_end_of_a_term_gives_a_lower_bound);
    RUN(a_rest_at_the_end_of_a_term_states_no_residue);
    RUN(data_that_arrives_before_the_check_is_no_residue);
    RUN(a_first_check_of_an_empty_queue_is_no_batch);
    return 0;
}
