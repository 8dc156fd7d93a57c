/* SPDX-License-Identifier: Apache-2.0
 * What a reader is told of ranges that will not come: padding that says so, in the log of an image.
 */
#include "stream.h"

enum { PAYLOAD = 20, FRAME = 64, PIECE = 1408, UNKNOWN = PS_GAP_UNKNOWN };

typedef struct reader {
    stream_t stream;
    ps_pub_t *pub;
    ps_img_t *image;
} reader_t;

static uint8_t source[3000];

static void open_reader(reader_t *reader)
{
    stream_open(&reader->stream, NULL);
    reader->pub = stream_pub(&reader->stream);
    reader->image = stream_img(&reader->stream);
    ps_counter_set(reader->stream.cnc, reader->stream.limit, PS_TERM_MIN);
}

static void close_reader(reader_t *reader)
{
    ps_img_close(reader->image);
    ps_pub_close(reader->pub);
    stream_close(&reader->stream);
}

static void offer(reader_t *reader, int32_t messages)
{
    for (int32_t i = 0; i < messages; i++) {
        CHECK(ps_pub_offer(reader->pub, source, PAYLOAD, 0) > 0);
    }
}

/* The frame at position becomes padding that stands for so many messages. */
static void lose(const reader_t *reader, int64_t position, int32_t messages)
{
    ps_frame_t *frame = ps_frame_at(&reader->stream.log, position);
    const int32_t length = atomic_load(&frame->frame_length);
    atomic_store(ps_frame_word(frame), 0);
    CHECK_EQ(
        ps_log_pad_marked(&reader->stream.log, position, ps_align32(length), ps_gap_mark(messages)),
        1);
}

static void expect_gap(ps_img_t *image, int64_t from, int64_t to, int64_t messages)
{
    int64_t got[3] = { -7, -7, -7 };
    CHECK_EQ(ps_img_take_gap(image, &got[0], &got[1], &got[2]), 1);
    CHECK_EQ(got[0], from);
    CHECK_EQ(got[1], to);
    CHECK_EQ(got[2], messages);
    CHECK_EQ(ps_img_take_gap(image, &got[0], &got[1], &got[2]), 0);
}

static void a_gap_comes_in_its_place(void)
{
    reader_t reader;
    ps_message_t messages[8];
    open_reader(&reader);
    ps_img_report_gaps(reader.image);
    offer(&reader, 4);
    lose(&reader, FRAME, 1);
    CHECK_EQ(ps_img_poll(reader.image, messages, 8, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(ps_img_position(reader.image), FRAME);
    CHECK_EQ(ps_img_poll(reader.image, messages, 8, PS_POLL_ASSEMBLE), PS_E_GAP);
    CHECK_EQ(ps_img_poll(reader.image, messages, 8, PS_POLL_ASSEMBLE), PS_E_GAP);
    expect_gap(reader.image, FRAME, 2 * FRAME, 1);
    CHECK_EQ(ps_img_poll(reader.image, messages, 8, PS_POLL_ASSEMBLE), 2);
    CHECK_EQ(messages[0].start_position, 2 * FRAME);
    close_reader(&reader);
}

static void neighbours_are_one_gap(void)
{
    reader_t reader;
    ps_message_t message;
    open_reader(&reader);
    ps_img_report_gaps(reader.image);
    offer(&reader, 9);
    lose(&reader, 0, 2);
    lose(&reader, FRAME, 3);
    lose(&reader, 3 * FRAME, 4);
    lose(&reader, 4 * FRAME, UNKNOWN); /* one that nobody counted: no number for all */
    lose(&reader, 5 * FRAME, 1);
    lose(&reader, 8 * FRAME, -5); /* a peer's word that makes no sense */
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), PS_E_GAP);
    expect_gap(reader.image, 0, 2 * FRAME, 5);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), 1);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), PS_E_GAP);
    expect_gap(reader.image, 3 * FRAME, 6 * FRAME, -1);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), 1);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), 1);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), PS_E_GAP);
    expect_gap(reader.image, 8 * FRAME, 9 * FRAME, -1);
    close_reader(&reader);
}

/* With and without reports: what is left of a message must not be joined over what is lost. */
static void a_message_that_lost_its_middle_is_not_delivered(void)
{
    for (int32_t report = 0; report <= 1; report++) {
        reader_t reader;
        ps_message_t messages[4];
        open_reader(&reader);
        if (report) {
            ps_img_report_gaps(reader.image);
        }
        CHECK(ps_pub_offer(reader.pub, source, sizeof source, 0) > 0);
        CHECK(ps_pub_offer(reader.pub, "x", 1, 0) > 0);
        lose(&reader, PIECE, UNKNOWN);
        if (report) {
            CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), PS_E_GAP);
            expect_gap(reader.image, PIECE, 2 * PIECE, -1);
        }
        CHECK_EQ(ps_img_poll(reader.image, messages, 4, PS_POLL_ASSEMBLE), 1);
        CHECK_EQ(messages[0].length, 1);
        close_reader(&reader);
    }
}

/* Two images, one of which always has something to hand out. */
static void a_busy_image_does_not_hide_another_ones_gap(void)
{
    reader_t lossy, busy;
    ps_message_t messages[4];
    ps_sub_t *sub = NULL;
    int32_t polls = 0;
    int32_t got;
    open_reader(&lossy);
    open_reader(&busy);
    ps_img_report_gaps(lossy.image);
    ps_img_report_gaps(busy.image);
    CHECK_EQ(ps_sub_open(lossy.stream.client, 12, 1001, &sub), PS_OK);
    CHECK_EQ(ps_sub_add_image(sub, busy.image), PS_OK);
    CHECK_EQ(ps_sub_add_image(sub, lossy.image), PS_OK);
    offer(&lossy, 1);
    lose(&lossy, 0, 1);
    offer(&busy, 1);
    while ((got = ps_sub_poll(sub, messages, 4, 0)) > 0) {
        CHECK(++polls <= 1); /* each image is first in its turn */
        offer(&busy, 1);
    }
    CHECK_EQ(got, PS_E_GAP);
    CHECK_EQ(ps_img_released(busy.image), FRAME * polls); /* also by the poll that ended early */
    expect_gap(lossy.image, 0, FRAME, 1);
    CHECK_EQ(ps_sub_poll(sub, messages, 4, 0), 1);
    CHECK_EQ(messages[0].start_position, FRAME * polls);
    ps_sub_close(sub);
    close_reader(&busy);
    close_reader(&lossy);
}

/* Who asks before sleeping hears of it: the poll that passed it may have handed out another
 * image's messages. */
static void an_untaken_gap_is_something_to_poll_for(void)
{
    reader_t reader;
    ps_message_t message;
    int64_t ignored;
    open_reader(&reader);
    ps_img_report_gaps(reader.image);
    offer(&reader, 1);
    lose(&reader, 0, 1);
    CHECK_EQ(ps_img_has_data(reader.image), 1);
    CHECK_EQ(ps_img_poll(reader.image, &message, 1, 0), PS_E_GAP);
    CHECK_EQ(ps_img_has_data(reader.image), 1);
    CHECK_EQ(ps_img_take_gap(reader.image, &ignored, &ignored, &ignored), 1);
    CHECK_EQ(ps_img_has_data(reader.image), 0);
    close_reader(&reader);
}

int main(void)
{
    RUN(a_gap_comes_in_its_place);
    RUN(neighbours_are_one_gap);
    RUN(a_message_that_lost_its_middle_is_not_delivered);
    RUN(a_busy_image_does_not_hide_another_ones_gap);
    RUN(an_untaken_gap_is_something_to_poll_for);
    return 0;
}
