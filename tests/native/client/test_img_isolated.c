/* SPDX-License-Identifier: Apache-2.0
 * A reader for which the stream does not wait: its memory is written over while it reads.
 */
#include "stream.h"

enum { PAYLOAD = 20, FRAME = 64, MESSAGES = 40 };

typedef struct reader {
    stream_t stream;
    ps_pub_t *pub;
    ps_img_t *image;
} reader_t;

static void open_with(reader_t *reader, const ps_img_params_t *params)
{
    CHECK_EQ(ps_img_open(reader->stream.client, params, &reader->image), PS_OK);
    ps_img_report_gaps(reader->image);
}

static void open_image(reader_t *reader, int32_t isolation, int64_t depth_bytes)
{
    ps_img_params_t params = stream_img_params(&reader->stream, isolation);
    params.depth_bytes = depth_bytes;
    open_with(reader, &params);
}

/* The agent has not stated yet which message the reader joined at, and no index ring helps. */
static void open_unknown(reader_t *reader)
{
    ps_img_params_t params = stream_img_params(&reader->stream, PS_READER_INDEPENDENT);
    params.join_ordinal = PS_ORDINAL_UNKNOWN;
    params.publication_slot = -1;
    ps_img_close(reader->image);
    open_with(reader, &params);
}

static void open_reader(reader_t *reader, int32_t isolation, int64_t depth_bytes)
{
    stream_open(&reader->stream, NULL);
    const stream_t *stream = &reader->stream;
    reader->pub = stream_pub(&reader->stream);
    open_image(reader, isolation, depth_bytes);
    ps_counter_set(stream->cnc, stream->limit, PS_TERM_MIN);
    for (int32_t i = 0; i < MESSAGES; i++) {
        uint8_t source[PAYLOAD];
        memset(source, i, sizeof source);
        CHECK(ps_pub_offer(reader->pub, source, PAYLOAD, 0) > 0);
        ps_index_append(&stream->shared->publication_histories[stream->publication_slot].ring,
                        (i + 1) * FRAME, i + 1, 0);
    }
}

static void close_reader(reader_t *reader)
{
    ps_img_close(reader->image);
    ps_pub_close(reader->pub);
    stream_close(&reader->stream);
}

/* Memory below is in use for other messages: the mark comes first. */
static void write_over(const reader_t *reader, int64_t mark)
{
    ps_subscriber_slot_t *slot =
        &reader->stream.shared->subscribers[reader->stream.subscriber_slot];
    atomic_store(&slot->skip_to, MESSAGES * FRAME);
    atomic_store(&slot->overwritten, mark);
    stream_litter(&reader->stream, 0, mark, INT64_C(3) * PS_TERM_MIN);
}

static void expect_gap(ps_img_t *image, int64_t from, int64_t to, int64_t messages)
{
    int64_t got[3] = { -7, -7, -7 };
    CHECK_EQ(ps_img_take_gap(image, &got[0], &got[1], &got[2]), 1);
    CHECK_EQ(got[0], from);
    CHECK_EQ(got[1], to);
    CHECK_EQ(got[2], messages);
}

static void test_messages_are_copies(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    write_over(&reader, 2 * FRAME);
    for (int32_t i = 0; i < 4; i++) {
        CHECK_EQ(messages[i].length, PAYLOAD);
        CHECK_EQ(messages[i].data[0], i);
        CHECK_EQ(messages[i].assembled, 1);
    }
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4); /* it was not outrun */
    CHECK_EQ(messages[0].data[0], 4);
    close_reader(&reader);
}

static void test_an_outrun_reader_continues_with_the_oldest(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    write_over(&reader, 10 * FRAME - 32); /* not at a boundary */
    CHECK_EQ(ps_img_has_data(reader.image), 1);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 4 * FRAME, 10 * FRAME, 6);
    const ps_subscriber_slot_t *slot =
        &reader.stream.shared->subscribers[reader.stream.subscriber_slot];
    CHECK_EQ(atomic_load(&slot->skipped_messages), 6);
    CHECK_EQ(atomic_load(&slot->skipped_bytes), 6 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, MESSAGES, PS_POLL_ASSEMBLE), MESSAGES - 10);
    CHECK_EQ(messages[0].data[0], 10);
    close_reader(&reader);
}

static void test_under_drop_oldest_it_continues_with_the_newest(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_DROP_OLDEST, 5 * FRAME);
    write_over(&reader, FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 0, (MESSAGES - 5) * FRAME, MESSAGES - 5);
    CHECK_EQ(ps_img_poll(reader.image, messages, MESSAGES, PS_POLL_ASSEMBLE), 5);
    close_reader(&reader);
}

/* The agent states the newest position, and for which data a reader is late; nothing was written
 * over. */
static void show(const reader_t *reader, int64_t newest, int64_t late)
{
    ps_subscriber_slot_t *slot =
        &reader->stream.shared->subscribers[reader->stream.subscriber_slot];
    atomic_store(&slot->skip_to, newest);
    atomic_store(&slot->late, late);
}

static void show_newest(const reader_t *reader, int64_t newest)
{
    show(reader, newest, newest);
}

static void test_under_drop_oldest_a_burst_makes_no_reader_late(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_DROP_OLDEST, 8 * FRAME);
    show(&reader, MESSAGES * FRAME, 0); /* all came at once, just now */
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    CHECK_EQ(messages[0].data[0], 0);
    show(&reader, MESSAGES * FRAME, 12 * FRAME); /* late for its depth, and not for more */
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    CHECK_EQ(messages[0].data[0], 4);
    show(&reader, MESSAGES * FRAME, 17 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 8 * FRAME, 32 * FRAME, 24);
    close_reader(&reader);
}

static void test_under_drop_oldest_a_lagged_reader_skips_what_the_log_still_has(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_DROP_OLDEST, 8 * FRAME);
    show_newest(&reader, 8 * FRAME); /* its depth, and not more */
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), 2);
    CHECK_EQ(messages[0].data[0], 0);
    show_newest(&reader, 30 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 2 * FRAME, 22 * FRAME, 20);
    show_newest(&reader, MESSAGES * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), 2); /* it gets on */
    CHECK_EQ(messages[0].data[0], 22);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 24 * FRAME, 32 * FRAME, 8);
    const ps_subscriber_slot_t *slot =
        &reader.stream.shared->subscribers[reader.stream.subscriber_slot];
    CHECK_EQ(atomic_load(&slot->skipped_messages), 28);
    CHECK_EQ(atomic_load(&slot->skipped_bytes), 28 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, MESSAGES, PS_POLL_ASSEMBLE), 8);
    CHECK_EQ(messages[0].data[0], 32);
    close_reader(&reader);
}

static void test_under_independent_a_lagged_reader_reads_what_the_log_still_has(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_INDEPENDENT, 8 * FRAME);
    show_newest(&reader, MESSAGES * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, MESSAGES, PS_POLL_ASSEMBLE), MESSAGES);
    close_reader(&reader);
}

/* Publishes a message of 4000 bytes behind the others, and returns its end. */
static int64_t offer_long(reader_t *reader)
{
    uint8_t source[4000];
    memset(source, 200, sizeof source);
    ps_counter_set(reader->stream.cnc, reader->stream.limit, PS_TERM_MIN);
    const int64_t newest = ps_pub_offer(reader->pub, source, sizeof source, 0);
    CHECK(newest > MESSAGES * FRAME);
    return newest;
}

static void test_a_message_longer_than_the_depth_is_not_skipped(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_DROP_OLDEST, FRAME);
    const int64_t newest = offer_long(&reader);
    show_newest(&reader, newest);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 0, MESSAGES * FRAME, MESSAGES);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].length, 4000);
    CHECK_EQ(messages[0].data[3999], 200);
    close_reader(&reader);
}

/* The same for a reader whose data was written over (seed 9623). */
static void test_outrun_before_a_message_longer_than_the_depth_it_gets_this_message(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_DROP_OLDEST, FRAME);
    const int64_t newest = offer_long(&reader);
    write_over(&reader, 6 * FRAME);
    show_newest(&reader, newest);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 0, MESSAGES * FRAME, MESSAGES);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].length, 4000);
    close_reader(&reader);
}

static void test_an_impossible_newest_position_is_not_believed(void)
{
    reader_t reader;
    ps_message_t messages[4];
    open_reader(&reader, PS_READER_DROP_OLDEST, 5 * FRAME);
    const int64_t impossible[] = { -32, INT64_MIN, INT64_MAX, INT64_C(1) << 50 };
    for (int32_t i = 0; i < 4; i++) {
        show_newest(&reader, impossible[i]);
        CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), 2);
        CHECK_EQ(messages[0].data[0], 2 * i);
    }
    close_reader(&reader);
}

static void test_a_rewound_message_is_delivered_again_or_lost(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    CHECK_EQ(ps_img_rewind(reader.image, 2 * FRAME), PS_OK);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), 2);
    CHECK_EQ(messages[0].data[0], 2);
    CHECK_EQ(ps_img_rewind(reader.image, 2 * FRAME), PS_OK);
    write_over(&reader, 8 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 2 * FRAME, 8 * FRAME, 6);
    close_reader(&reader);
}

/* A process that takes over passes over what the dead one had, and counts from there. */
static void test_a_process_that_takes_over_counts_what_it_misses(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_ordinal(reader.image), 0);
    CHECK_EQ(ps_img_poll(reader.image, messages, 2, PS_POLL_ASSEMBLE), 2);
    CHECK_EQ(ps_img_ordinal(reader.image), 2);
    ps_img_release(reader.image);
    ps_img_close(reader.image);

    open_image(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_position(reader.image), 2 * FRAME);
    CHECK_EQ(ps_img_take_over(reader.image, INT64_C(4) * PS_TERM_MIN, 3), PS_E_INVALID);
    CHECK_EQ(ps_img_take_over(reader.image, 3 * FRAME, 3), PS_OK);
    CHECK_EQ(ps_img_poll(reader.image, messages, 1, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].data[0], 3);
    ps_img_close(reader.image);

    open_image(&reader, PS_READER_INDEPENDENT, 0);
    CHECK_EQ(ps_img_take_over(reader.image, 4 * FRAME, 5), PS_OK); /* one was dropped before */
    CHECK_EQ(ps_img_ordinal(reader.image), 5);
    write_over(&reader, 8 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 1, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 4 * FRAME, 8 * FRAME, 3);
    close_reader(&reader);
}

static void state_join(const reader_t *reader, int64_t ordinal)
{
    atomic_store(&reader->stream.shared->subscribers[reader->stream.subscriber_slot].join_ordinal,
                 ps_ordinal_stated(ordinal));
}

/* Message 0 is a message as the others, and a count of IPC is negative. */
static void test_the_ordinal_of_the_join_counts_from_the_first_message(void)
{
    const int64_t ordinals[] = { 0, 1, 100, PS_ORDINAL_FIRST, PS_ORDINAL_FIRST + 7 };
    reader_t reader;
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    for (size_t i = 0; i < sizeof ordinals / sizeof ordinals[0]; i++) {
        state_join(&reader, ordinals[i]);
        open_unknown(&reader);
        CHECK_EQ(ps_img_ordinal(reader.image), ordinals[i]);
    }
    close_reader(&reader);
}

/* Reads the first messages before the agent states the ordinal of the join. */
static void read_unknown(reader_t *reader, ps_message_t *messages, int32_t count)
{
    open_reader(reader, PS_READER_INDEPENDENT, 0);
    open_unknown(reader);
    CHECK_EQ(ps_img_poll(reader->image, messages, count, PS_POLL_ASSEMBLE), count);
}

/* The reader has read and rewound before the agent states the ordinal of the join. */
static void test_a_join_that_is_stated_late_counts(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    read_unknown(&reader, messages, 4);
    CHECK_EQ(ps_img_rewind(reader.image, 3 * FRAME), PS_OK);
    CHECK_EQ(ps_img_ordinal(reader.image), PS_ORDINAL_UNKNOWN);
    state_join(&reader, 100);
    CHECK_EQ(ps_img_ordinal(reader.image), 103);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 4);
    CHECK_EQ(ps_img_ordinal(reader.image), 107);
    close_reader(&reader);
}

/* How many messages are between the join and the reader is not known after a gap without a number,
 * and the process that takes over did not join. */
static void test_a_join_that_is_stated_too_late_is_not_taken(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    read_unknown(&reader, messages, 4);
    write_over(&reader, 8 * FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, 4 * FRAME, MESSAGES * FRAME, PS_ORDINAL_UNKNOWN);
    state_join(&reader, 100);
    CHECK_EQ(ps_img_ordinal(reader.image), PS_ORDINAL_UNKNOWN);
    ps_img_release(reader.image);

    open_unknown(&reader); /* not where it joined */
    CHECK_EQ(ps_img_ordinal(reader.image), PS_ORDINAL_UNKNOWN);
    CHECK_EQ(ps_img_take_over(reader.image, MESSAGES * FRAME, PS_ORDINAL_UNKNOWN), PS_OK);
    CHECK_EQ(ps_img_ordinal(reader.image), PS_ORDINAL_UNKNOWN);
    close_reader(&reader);
}

static void test_impossible_boundaries_stop_the_image(void)
{
    reader_t reader;
    ps_message_t messages[4];
    open_reader(&reader, PS_READER_INDEPENDENT, 0);
    ps_subscriber_slot_t *slot = &reader.stream.shared->subscribers[reader.stream.subscriber_slot];
    atomic_store(&slot->skip_to, -32);
    atomic_store(&slot->overwritten, INT64_MAX - 4096);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_CORRUPT);
    CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_CORRUPT);
    close_reader(&reader);
}

int main(void)
{
    RUN(test_messages_are_copies);
    RUN(test_an_outrun_reader_continues_with_the_oldest);
    RUN(test_under_drop_oldest_it_continues_with_the_newest);
    RUN(test_under_drop_oldest_a_lagged_reader_skips_what_the_log_still_has);
    RUN(test_under_drop_oldest_a_burst_makes_no_reader_late);
    RUN(test_under_independent_a_lagged_reader_reads_what_the_log_still_has);
    RUN(test_a_message_longer_than_the_depth_is_not_skipped);
    RUN(test_outrun_before_a_message_longer_than_the_depth_it_gets_this_message);
    RUN(test_an_impossible_newest_position_is_not_believed);
    RUN(test_a_rewound_message_is_delivered_again_or_lost);
    RUN(test_a_process_that_takes_over_counts_what_it_misses);
    RUN(test_the_ordinal_of_the_join_counts_from_the_first_message);
    RUN(test_a_join_that_is_stated_late_counts);
    RUN(test_a_join_that_is_stated_too_late_is_not_taken);
    RUN(test_impossible_boundaries_stop_the_image);
    return 0;
}
