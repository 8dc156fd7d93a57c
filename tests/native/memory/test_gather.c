/* SPDX-License-Identifier: Apache-2.0
 * test_gather.c: ranges of a log as columns; random ones: tests/unit/spark/test_spark_gather.py. */
#include "ps_frame.h"
#include "ps_gather.h"
#include "stream.h"

enum { ROWS = 64, VALUES = 4096 };

typedef struct columns {
    uint8_t *values; /* from malloc: the sanitizer sees each byte too many */
    int32_t offsets[ROWS + 1];
    int64_t positions[ROWS], reserved[ROWS];
    ps_gather_rows_t rows;
} columns_t;

static void columns_open(columns_t *columns, int64_t value_limit, int32_t row_limit)
{
    memset(columns, 0, sizeof *columns);
    columns->values = malloc((size_t)value_limit);
    CHECK(columns->values != NULL);
    columns->rows = (ps_gather_rows_t){ .values = columns->values,
                                        .offsets = columns->offsets,
                                        .positions = columns->positions,
                                        .reserved_values = columns->reserved,
                                        .value_limit = value_limit,
                                        .row_limit = row_limit };
}

static void columns_close(columns_t *columns)
{
    free(columns->values);
}

/* Writes one frame at position; returns the position after it. */
static int64_t put(const stream_t *stream, int64_t position, const char *payload, uint8_t flags,
                   uint16_t type, int64_t reserved)
{
    ps_frame_t *frame = ps_frame_at(&stream->log, position);
    const int32_t length = PS_HEADER_BYTES + (int32_t)strlen(payload);
    ps_frame_fields(frame, (int32_t)(position & stream->log.term_mask), stream->log.session_id,
                    stream->log.stream_id,
                    ps_term_id_at(position, stream->log.shift, stream->log.initial_term_id));
    ps_frame_reserved(frame, reserved);
    memcpy((uint8_t *)frame + PS_HEADER_BYTES, payload, strlen(payload));
    atomic_store(ps_frame_word(frame), ps_frame_word_of(length, flags, type));
    return position + ps_align32(length);
}

static ps_gather_log_t *open_log(const stream_t *stream)
{
    ps_gather_log_t *log;
    ps_gather_facts_t facts;
    CHECK_EQ(ps_gather_open(stream->path, &log, &facts), PS_OK);
    CHECK_EQ(facts.correlation_id, stream->params.correlation_id);
    CHECK_EQ(facts.session_id, stream->params.session_id);
    CHECK_EQ(facts.initial_term_id, stream->params.initial_term_id);
    CHECK_EQ(facts.mtu, stream->params.mtu);
    return log;
}

static ps_gather_frames_t frames_of(const ps_gather_log_t *log, int64_t from, int64_t to)
{
    ps_gather_frames_t frames;
    CHECK_EQ(ps_gather_locate(log, from, to, &frames), PS_OK);
    return frames;
}

static void fragments_become_one_row_and_padding_none(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t end = put(&stream, 0, "whole", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 7);
    end = put(&stream, end, "padding", PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD, ps_gap_mark(3));
    const int64_t begin = end;
    end = put(&stream, end, "one ", PS_FLAG_BEGIN, PS_TYPE_DATA, 8);
    end = put(&stream, end, "and ", 0, PS_TYPE_DATA, 0);
    end = put(&stream, end, "two", PS_FLAG_END, PS_TYPE_DATA, 0);
    ps_gather_log_t *log = open_log(&stream);
    columns_t columns;
    columns_open(&columns, VALUES, ROWS);
    ps_gather_frames_t frames = frames_of(log, 0, end);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_END);
    CHECK_EQ(columns.rows.rows, 2);
    CHECK_EQ(memcmp(columns.values, "wholeone and two", 16), 0);
    CHECK_EQ(columns.offsets[0], 0);
    CHECK_EQ(columns.offsets[1], 5);
    CHECK_EQ(columns.offsets[2], 16);
    CHECK_EQ(columns.positions[1], end);
    CHECK_EQ(columns.reserved[0], 7);
    CHECK_EQ(columns.reserved[1], 8);
    CHECK_EQ(columns.rows.gaps, 1);
    CHECK_EQ(columns.rows.gap_messages, 3);
    columns_close(&columns);
    /* Cut off behind the second fragment: the message waits, from its first one on. */
    columns_open(&columns, VALUES, ROWS);
    frames = frames_of(log, begin, end - 64);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_INCOMPLETE);
    CHECK_EQ(columns.rows.rows, 0);
    CHECK_EQ(columns.rows.position, begin);
    columns_close(&columns);
    ps_gather_close(log);
    stream_close(&stream);
}

/* What padding cuts off belongs to no message, neither its beginning nor its end. */
static void a_message_that_lost_its_middle_is_left_out(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t end = put(&stream, 0, "begun ", PS_FLAG_BEGIN, PS_TYPE_DATA, 0);
    end = put(&stream, end, "lost", PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD, ps_gap_mark(PS_GAP_UNKNOWN));
    end = put(&stream, end, "ended", PS_FLAG_END, PS_TYPE_DATA, 0);
    const int64_t between = end;
    end = put(&stream, end, "lost", PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD, ps_gap_mark(-4));
    end = put(&stream, end, "lost", PS_FLAG_UNFRAGMENTED, PS_TYPE_PAD, ps_gap_mark(2));
    end = put(&stream, end, "whole", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    ps_gather_log_t *log = open_log(&stream);
    ps_gather_frames_t frames = frames_of(log, 0, end);
    columns_t columns;
    columns_open(&columns, VALUES, ROWS);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_END);
    CHECK_EQ(columns.rows.rows, 1);
    CHECK_EQ(memcmp(columns.values, "whole", 5), 0);
    CHECK_EQ(columns.rows.orphans, 2);
    CHECK_EQ(columns.rows.gaps, 3);
    CHECK_EQ(columns.rows.gap_messages, 2); /* where it is known */
    columns_close(&columns);
    ps_gather_scan_t scan = { .byte_limit = 1 << 20 };
    frames = frames_of(log, 0, between);
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_OK);
    CHECK_EQ(scan.messages, 0);
    CHECK_EQ(scan.position, between);
    ps_gather_close(log);
    stream_close(&stream);
}

static void a_message_is_found_by_its_reserved_value(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t end = put(&stream, 0, "row", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    const int64_t begin = end;
    end = put(&stream, end, "mar", PS_FLAG_BEGIN, PS_TYPE_DATA, 9);
    end = put(&stream, end, "ker", PS_FLAG_END, PS_TYPE_DATA, 0);
    const int64_t after = end;
    end = put(&stream, end, "row", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    const int64_t open = end;
    end = put(&stream, end, "mar", PS_FLAG_BEGIN, PS_TYPE_DATA, 9);
    ps_gather_log_t *log = open_log(&stream);
    ps_gather_find_t find = { .reserved_value = 9, .byte_limit = 32 };
    ps_gather_frames_t frames = frames_of(log, 0, end);
    CHECK_EQ(ps_gather_find(&frames, &find), PS_OK);
    CHECK_EQ(find.found, 0);
    CHECK_EQ(find.position, begin); /* at the limit */
    CHECK_EQ(find.stop, PS_GATHER_FULL);
    find.byte_limit = 1 << 20;
    CHECK_EQ(ps_gather_find(&frames, &find), PS_OK);
    CHECK_EQ(find.found, 1);
    CHECK_EQ(find.begin, begin);
    CHECK_EQ(find.position, after);
    frames = frames_of(log, after, end); /* the last one goes on behind the end */
    CHECK_EQ(ps_gather_find(&frames, &find), PS_OK);
    CHECK_EQ(find.found, 0);
    CHECK_EQ(find.position, open);
    CHECK_EQ(find.stop, PS_GATHER_INCOMPLETE);
    ps_gather_close(log);
    stream_close(&stream);
}

static void what_does_not_fit_waits_for_the_next_arrays(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int64_t second = put(&stream, 0, "0123456789", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    const int64_t end = put(&stream, second, "abcdefghij", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    ps_gather_log_t *log = open_log(&stream);
    const ps_gather_frames_t frames = frames_of(log, 0, end);
    columns_t columns;
    columns_open(&columns, 19, ROWS); /* one byte too few for both */
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_FULL);
    CHECK_EQ(columns.rows.rows, 1);
    CHECK_EQ(columns.rows.position, second);
    columns_close(&columns);
    columns_open(&columns, 20, 1); /* one row too few */
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_FULL);
    CHECK_EQ(columns.rows.position, second);
    columns_close(&columns);
    columns_open(&columns, 9, ROWS);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_TOO_LONG);
    CHECK_EQ(columns.rows.needed, 10);
    CHECK_EQ(columns.rows.position, 0);
    columns_close(&columns);
    columns_open(&columns, 20, ROWS);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_GATHER_END);
    CHECK_EQ(columns.rows.rows, 2);
    CHECK_EQ(columns.rows.used, 20);
    columns_close(&columns);
    ps_gather_close(log);
    stream_close(&stream);
}

static int copy_of(const ps_gather_log_t *log, int64_t end)
{
    columns_t columns;
    columns_open(&columns, VALUES, ROWS);
    const ps_gather_frames_t frames = frames_of(log, 0, end);
    const int code = ps_gather_copy(&frames, &columns.rows);
    columns_close(&columns);
    return code;
}

static void headers_that_cannot_be_are_refused(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int64_t end = put(&stream, 0, "hello", PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA, 0);
    ps_gather_log_t *log = open_log(&stream);
    ps_frame_t *frame = ps_frame_at(&stream.log, 0);
    CHECK_EQ(copy_of(log, end), PS_GATHER_END);
    const int32_t lengths[] = { 0, -37, 31, 65, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        atomic_store(&frame->frame_length, lengths[i]);
        CHECK_EQ(copy_of(log, end), PS_E_CORRUPT);
    }
    atomic_store(&frame->frame_length, 37);
    frame->type = PS_TYPE_SETUP;
    CHECK_EQ(copy_of(log, end), PS_E_CORRUPT);
    frame->type = PS_TYPE_DATA;
    int32_t *const fields[] = { &frame->term_offset, &frame->session_id, &frame->stream_id,
                                &frame->term_id };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        *fields[i] ^= 1 << 5;
        CHECK_EQ(copy_of(log, end), PS_E_CORRUPT);
        CHECK_EQ(ps_gather_intact(log, 0), 0);
        *fields[i] ^= 1 << 5;
    }
    CHECK_EQ(copy_of(log, end), PS_GATHER_END);
    CHECK_EQ(ps_gather_intact(log, 0), 1);
    CHECK_EQ(ps_gather_intact(log, 3 * 65536), 0); /* the same place, three terms on */
    CHECK_EQ(ps_gather_intact(log, INT64_MAX - 31), 0);
    CHECK_EQ(ps_gather_intact(log, INT64_MIN), 0);
    CHECK_EQ(ps_gather_intact(log, 8), 0);
    ps_gather_close(log);
    stream_close(&stream);
}

static void a_scan_stops_between_messages(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    int64_t ends[10];
    int64_t at = 0;
    for (int i = 0; i < 10; i++) {
        at = put(&stream, at, "half", PS_FLAG_BEGIN, PS_TYPE_DATA, 0);
        at = put(&stream, at, "half", PS_FLAG_END, PS_TYPE_DATA, 0);
        ends[i] = at;
    }
    ps_gather_log_t *log = open_log(&stream);
    const ps_gather_frames_t frames = frames_of(log, 0, at);
    ps_gather_scan_t scan = { .byte_limit = ends[3] + 64 };
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_OK);
    CHECK_EQ(scan.stop, PS_GATHER_FULL);
    CHECK_EQ(scan.position, ends[3]);
    CHECK_EQ(scan.messages, 4);
    scan = (ps_gather_scan_t){ .byte_limit = 1 << 20, .message_limit = 7 };
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_OK);
    CHECK_EQ(scan.position, ends[6]);
    scan = (ps_gather_scan_t){ .byte_limit = 1 }; /* one message is always admitted */
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_OK);
    CHECK_EQ(scan.position, ends[0]);
    scan = (ps_gather_scan_t){ .byte_limit = 1, .messages = 5 }; /* but not a further one */
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_OK);
    CHECK_EQ(scan.position, 0);
    const ps_gather_frames_t half = frames_of(log, 0, ends[1] + 64);
    scan = (ps_gather_scan_t){ .byte_limit = 1 << 20 };
    CHECK_EQ(ps_gather_scan(&half, &scan), PS_OK);
    CHECK_EQ(scan.stop, PS_GATHER_INCOMPLETE);
    CHECK_EQ(scan.position, ends[1]);
    ps_gather_close(log);
    stream_close(&stream);
}

static void arguments_are_checked(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_gather_log_t *log = open_log(&stream);
    ps_gather_frames_t frames;
    CHECK_EQ(ps_gather_locate(log, 16, 64, &frames), PS_E_INVALID);
    CHECK_EQ(ps_gather_locate(log, 64, 32, &frames), PS_E_INVALID);
    CHECK_EQ(ps_gather_locate(log, -32, 32, &frames), PS_E_INVALID);
    CHECK_EQ(ps_gather_locate(log, INT64_MAX - 31, INT64_MAX - 31, &frames), PS_E_INVALID);
    frames = frames_of(log, 65536 - 32, 2 * 65536);
    CHECK_EQ(frames.length, 32); /* to the end of the term */
    ps_gather_scan_t scan = { .byte_limit = 1 };
    frames.length = 64;
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_E_INVALID);
    frames = frames_of(log, 0, 64);
    frames.term_length = 65537;
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_E_INVALID);
    frames = frames_of(log, 0, 64);
    frames.data++;
    CHECK_EQ(ps_gather_scan(&frames, &scan), PS_E_INVALID);
    columns_t columns;
    columns_open(&columns, VALUES, ROWS);
    columns.rows.rows = ROWS + 1;
    frames = frames_of(log, 0, 64);
    CHECK_EQ(ps_gather_copy(&frames, &columns.rows), PS_E_INVALID);
    columns_close(&columns);
    ps_gather_close(log);
    ps_gather_facts_t facts;
    CHECK_EQ(ps_gather_open("/no/such/log", &log, &facts), PS_E_SYSTEM);
    ps_gather_close(NULL);
    stream_close(&stream);
}

int main(void)
{
    RUN(fragments_become_one_row_and_padding_none);
    RUN(a_message_that_lost_its_middle_is_left_out);
    RUN(a_message_is_found_by_its_reserved_value);
    RUN(what_does_not_fit_waits_for_the_next_arrays);
    RUN(headers_that_cannot_be_are_refused);
    RUN(a_scan_stops_between_messages);
    RUN(arguments_are_checked);
    return 0;
}
