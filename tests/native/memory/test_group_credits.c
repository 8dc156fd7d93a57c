/* SPDX-License-Identifier: Apache-2.0
 * test_group_credits.c: the credits that the commits of a consumer group return. */
#include "ps_credit.h"
#include "ps_frame.h"
#include "stream.h"

static int64_t put(const stream_t *stream, int64_t position, int32_t length, uint8_t flags,
                   uint16_t type, int64_t reserved)
{
    ps_frame_t *frame = ps_frame_at(&stream->log, position);
    ps_frame_fields(frame, (int32_t)(position & stream->log.term_mask), stream->log.session_id,
                    stream->log.stream_id,
                    ps_term_id_at(position, stream->log.shift, stream->log.initial_term_id));
    ps_frame_reserved(frame, reserved);
    atomic_store(ps_frame_word(frame), ps_frame_word_of(length, flags, type));
    return position + ps_align32(length);
}

/* Three messages: whole, dropped at the publisher, in two fragments. Then a fragment alone. */
static int64_t fill(const stream_t *stream, int64_t *middle)
{
    int64_t end = put(stream, 0, 40, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    *middle = end;
    end = put(stream, end, 96, PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD, ps_gap_mark(1));
    end = put(stream, end, 64, PS_FLAG_BEGIN, PS_TYPE_DATA, 0);
    end = put(stream, end, 64, PS_FLAG_END, PS_TYPE_DATA, 0);
    return put(stream, end, 64, PS_FLAG_BEGIN, PS_TYPE_DATA, 0);
}

static ps_subscriber_slot_t *slot_of(const stream_t *stream)
{
    return &stream->shared->subscribers[stream->subscriber_slot];
}

static void set(ps_subscriber_slot_t *slot, int64_t passed, int64_t delivered, int64_t returned)
{
    atomic_store(&slot->credit_passed, passed);
    atomic_store(&slot->delivered, delivered);
    atomic_store(&slot->credit_returned, returned);
}

static void check(const ps_subscriber_slot_t *slot, int64_t messages, int64_t position)
{
    CHECK_EQ(atomic_load(&slot->credit_passed), messages);
    CHECK_EQ(atomic_load(&slot->credit_returned), messages);
    CHECK_EQ(atomic_load(&slot->delivered), position);
}

static void a_release_returns_each_message_once(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t middle;
    const int64_t end = fill(&stream, &middle);
    ps_subscriber_slot_t *slot = slot_of(&stream);
    CHECK_EQ(ps_credit_release(slot, &stream.log, 0, middle), middle);
    check(slot, 1, middle);
    CHECK_EQ(ps_credit_release(slot, &stream.log, middle, end), end);
    check(slot, 3, end);
    CHECK_EQ(ps_credit_release(slot, &stream.log, end, end), end);
    check(slot, 3, end);
    stream_close(&stream);
}

static void a_release_ends_with_the_log(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t middle;
    const int64_t end = fill(&stream, &middle);
    ps_subscriber_slot_t *slot = slot_of(&stream);
    CHECK_EQ(ps_credit_release(slot, &stream.log, 0, end + 4096), end);
    check(slot, 3, end);
    const int64_t more = put(&stream, end, 64, PS_FLAG_END, PS_TYPE_DATA, 0);
    CHECK_EQ(ps_credit_release(slot, &stream.log, end, end + 4096), more);
    check(slot, 4, more);
    stream_close(&stream);
}

/* A daemon that dies between two stores: its successor releases the same range again, or more. */
static void a_dead_daemons_release_is_counted_once(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t middle;
    const int64_t end = fill(&stream, &middle);
    ps_subscriber_slot_t *slot = slot_of(&stream);
    const int64_t words[][3] = { { 0, 0, 0 }, { 1, 0, 0 }, { 1, middle, 0 }, { 1, middle, 1 } };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        set(slot, words[i][0], words[i][1], words[i][2]);
        CHECK_EQ(ps_credit_release(slot, &stream.log, 0, middle), middle);
        check(slot, 1, middle);
        set(slot, words[i][0], words[i][1], words[i][2]);
        CHECK_EQ(ps_credit_release(slot, &stream.log, 0, end), end);
        check(slot, 3, end);
    }
    stream_close(&stream);
}

int main(void)
{
    RUN(a_release_returns_each_message_once);
    RUN(a_release_ends_with_the_log);
    RUN(a_dead_daemons_release_is_counted_once);
    return 0;
}
