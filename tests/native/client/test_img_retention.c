/* SPDX-License-Identifier: Apache-2.0
 * A reader of a stream whose publisher limits the amount or the age of the data that readers get.
 */
#include "ps_client_internal.h"
#include "ps_times.h"
#include "stream.h"

enum { PAYLOAD = 20, FRAME = 64, MESSAGES = 40 };

#define MS INT64_C(1000000)

typedef struct reader {
    stream_t stream;
    ps_pub_t *pub;
    ps_img_t *image;
    int64_t now_ns;
} reader_t;

static ps_subscriber_slot_t *slot_of(const reader_t *reader)
{
    return &reader->stream.shared->subscribers[reader->stream.subscriber_slot];
}

/* The sender looks at the log. */
static void note_time(reader_t *reader)
{
    const stream_t *stream = &reader->stream;
    ps_times_note(&stream->shared->publication_histories[stream->publication_slot].times,
                  ps_log_producer_position(&stream->log),
                  reader->now_ns + PS_INVOKER_EPOCH_OFFSET_NS, PS_TERM_MIN);
}

static void open_reader(reader_t *reader, int64_t bytes, int64_t age_ns, int32_t isolation)
{
    stream_open(&reader->stream, NULL);
    const stream_t *stream = &reader->stream;
    ps_publication_slot_t *slot = &stream->shared->publications[stream->publication_slot];
    atomic_store(&slot->retention_bytes, bytes);
    atomic_store(&slot->retention_ns, age_ns);
    reader->now_ns = 1000 * MS;
    ps_client_set_clock(stream->client, &reader->now_ns);
    const ps_img_params_t params = stream_img_params(stream, isolation);
    reader->pub = stream_pub(&reader->stream);
    CHECK_EQ(ps_img_open(stream->client, &params, &reader->image), PS_OK);
    ps_img_report_gaps(reader->image);
    ps_counter_set(stream->cnc, stream->limit, PS_TERM_MIN);
}

static void close_reader(reader_t *reader)
{
    ps_img_close(reader->image);
    ps_pub_close(reader->pub);
    stream_close(&reader->stream);
}

static void publish(reader_t *reader, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        uint8_t source[PAYLOAD];
        memset(source, i, sizeof source);
        CHECK(ps_pub_offer(reader->pub, source, PAYLOAD, 0) > 0);
    }
    note_time(reader);
}

static void expect_gap(const reader_t *reader, int64_t from, int64_t to, int64_t messages)
{
    int64_t got[3] = { -7, -7, -7 };
    CHECK_EQ(ps_img_take_gap(reader->image, &got[0], &got[1], &got[2]), 1);
    CHECK_EQ(got[0], from);
    CHECK_EQ(got[1], to);
    CHECK_EQ(got[2], messages);
}

static int32_t poll(const reader_t *reader, ps_message_t *messages, int32_t limit)
{
    return ps_img_poll(reader->image, messages, limit, PS_POLL_ASSEMBLE);
}

static void test_a_reader_gets_the_newest_bytes(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 5 * FRAME, 0, PS_READER_GATES);
    publish(&reader, 0, 5);
    CHECK_EQ(poll(&reader, messages, 2), 2); /* exactly at the limit */
    publish(&reader, 5, MESSAGES);
    CHECK_EQ(poll(&reader, messages, 2), PS_E_GAP);
    expect_gap(&reader, 2 * FRAME, (MESSAGES - 5) * FRAME, MESSAGES - 7);
    CHECK_EQ(atomic_load(&slot_of(&reader)->expired_messages), MESSAGES - 7);
    CHECK_EQ(atomic_load(&slot_of(&reader)->expired_bytes), (MESSAGES - 7) * FRAME);
    CHECK_EQ(atomic_load(&slot_of(&reader)->skipped_messages), 0);
    CHECK_EQ(poll(&reader, messages, MESSAGES), 5);
    CHECK_EQ(messages[0].data[0], MESSAGES - 5);
    CHECK_EQ(poll(&reader, messages, MESSAGES), 0);
    close_reader(&reader);
}

static void test_a_limit_inside_a_message_drops_the_message(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 5 * FRAME + 32, 0, PS_READER_GATES);
    publish(&reader, 0, MESSAGES);
    CHECK_EQ(poll(&reader, messages, MESSAGES), PS_E_GAP);
    expect_gap(&reader, 0, (MESSAGES - 5) * FRAME, MESSAGES - 5);
    close_reader(&reader);
}

static void test_the_newest_message_stays_however_long_it_is(void)
{
    reader_t reader;
    ps_message_t messages[4];
    static uint8_t source[4000];
    open_reader(&reader, 2 * 1408, 0, PS_READER_GATES);
    publish(&reader, 0, 3);
    CHECK(ps_pub_offer(reader.pub, source, sizeof source, 0) > 0);
    CHECK_EQ(poll(&reader, messages, 4), PS_E_GAP);
    expect_gap(&reader, 0, INT64_C(3) * FRAME, 3);
    CHECK_EQ(poll(&reader, messages, 4), 1);
    CHECK_EQ(messages[0].length, sizeof source);
    close_reader(&reader);
}

static void test_a_reader_gets_no_old_data(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 0, 100 * MS, PS_READER_GATES);
    publish(&reader, 0, 10);
    reader.now_ns += 60 * MS;
    CHECK_EQ(poll(&reader, messages, 4), 4);
    publish(&reader, 10, 20);
    reader.now_ns += 60 * MS;
    CHECK_EQ(poll(&reader, messages, MESSAGES), PS_E_GAP);
    expect_gap(&reader, INT64_C(4) * FRAME, INT64_C(10) * FRAME, 6);
    CHECK_EQ(poll(&reader, messages, 3), 3);
    CHECK_EQ(messages[0].data[0], 10);
    reader.now_ns += 100 * MS; /* what remains is too old, to the last message */
    CHECK_EQ(poll(&reader, messages, MESSAGES), PS_E_GAP);
    expect_gap(&reader, INT64_C(13) * FRAME, INT64_C(20) * FRAME, 7);
    CHECK_EQ(poll(&reader, messages, MESSAGES), 0);
    close_reader(&reader);
}

static void test_a_clock_that_was_set_back_does_not_end_the_limit(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 0, 100 * MS, PS_READER_GATES);
    reader.now_ns = 500 * MS;
    CHECK_EQ(poll(&reader, messages, 4), 0);
    reader.now_ns = 50 * MS;
    publish(&reader, 0, 10);
    reader.now_ns += 101 * MS;
    CHECK_EQ(poll(&reader, messages, MESSAGES), PS_E_GAP);
    expect_gap(&reader, 0, INT64_C(10) * FRAME, 10);
    close_reader(&reader);
}

static void test_dropped_messages_count(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    const int64_t marks[][2] = {
        { INT64_C(7), 16 }, { PS_GAP_UNKNOWN, -1 }, { 0, 9 } /* of the messages; of the gap */
    };
    for (int32_t i = 0; i < 3; i++) {
        open_reader(&reader, 2 * 1408, 0, PS_READER_GATES);
        publish(&reader, 0, 10);
        ps_frame_t *frame = ps_frame_at(&reader.stream.log, FRAME);
        frame->reserved_value = (int64_t)((uint64_t)PS_GAP_MAGIC << 32 | (uint64_t)marks[i][0]);
        atomic_store(ps_frame_word(frame), ps_frame_word_of(FRAME, 0, PS_TYPE_PAD));
        static uint8_t source[4000];
        CHECK(ps_pub_offer(reader.pub, source, sizeof source, 0) > 0);
        CHECK_EQ(poll(&reader, messages, 4), PS_E_GAP);
        expect_gap(&reader, 0, INT64_C(10) * FRAME, marks[i][1]);
        close_reader(&reader);
    }
}

static void test_a_reader_for_which_nobody_waits_counts_both_kinds_of_loss(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 5 * FRAME, 0, PS_READER_INDEPENDENT);
    publish(&reader, 0, 10);
    CHECK_EQ(poll(&reader, messages, 4), PS_E_GAP);
    expect_gap(&reader, 0, INT64_C(5) * FRAME, 5);
    publish(&reader, 10, MESSAGES);
    const stream_t *stream = &reader.stream;
    ps_index_append(&stream->shared->publication_histories[stream->publication_slot].ring,
                    INT64_C(20) * FRAME, 20, 0);
    atomic_store(&slot_of(&reader)->skip_to, MESSAGES * FRAME);
    atomic_store(&slot_of(&reader)->overwritten, INT64_C(12) * FRAME);
    stream_litter(stream, 0, INT64_C(12) * FRAME, INT64_C(3) * PS_TERM_MIN);
    CHECK_EQ(poll(&reader, messages, 4), PS_E_GAP); /* outrun, so its poll cannot count */
    expect_gap(&reader, INT64_C(5) * FRAME, INT64_C(20) * FRAME, 15);
    CHECK_EQ(atomic_load(&slot_of(&reader)->skipped_messages), 15);
    CHECK_EQ(poll(&reader, messages, 4), PS_E_GAP);
    expect_gap(&reader, INT64_C(20) * FRAME, (MESSAGES - 5) * FRAME, MESSAGES - 25);
    CHECK_EQ(atomic_load(&slot_of(&reader)->expired_messages), MESSAGES - 20);
    close_reader(&reader);
}

static void test_without_reports_the_poll_delivers_at_once(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 5 * FRAME, 0, PS_READER_GATES);
    reader.image->report_gaps = 0;
    publish(&reader, 0, MESSAGES);
    CHECK_EQ(poll(&reader, messages, MESSAGES), 5);
    CHECK_EQ(messages[0].data[0], MESSAGES - 5);
    close_reader(&reader);
}

static void test_an_impossible_frame_stops_the_image(void)
{
    reader_t reader;
    ps_message_t messages[MESSAGES];
    open_reader(&reader, 5 * FRAME, 0, PS_READER_GATES);
    publish(&reader, 0, MESSAGES);
    atomic_store(ps_frame_word(ps_frame_at(&reader.stream.log, 0)),
                 ps_frame_word_of(PS_TERM_MIN + 32, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA));
    CHECK_EQ(poll(&reader, messages, MESSAGES), PS_E_CORRUPT);
    close_reader(&reader);
}

int main(void)
{
    RUN(test_a_reader_gets_the_newest_bytes);
    RUN(test_a_limit_inside_a_message_drops_the_message);
    RUN(test_the_newest_message_stays_however_long_it_is);
    RUN(test_a_reader_gets_no_old_data);
    RUN(test_a_clock_that_was_set_back_does_not_end_the_limit);
    RUN(test_dropped_messages_count);
    RUN(test_a_reader_for_which_nobody_waits_counts_both_kinds_of_loss);
    RUN(test_without_reports_the_poll_delivers_at_once);
    RUN(test_an_impossible_frame_stops_the_image);
    return 0;
}
