/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as frames of a log: rows within the arrays, one after another, or a refusal; a scan
 * goes as far as a copy.  The first byte chooses the limits; bit 7 repairs what a writer always
 * gets right, so that deeper states are reached; with bit 5 the last frame may go on beyond the
 * end.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ps_frame.h"
#include "ps_gather.h"

enum { TERM = 65536, MOST = 4096, ROWS = 16 };

static void repair(uint8_t *data, int64_t length, int64_t start, int cut)
{
    int64_t at = 0;
    while (at < length) {
        ps_frame_t *frame = (ps_frame_t *)(void *)(data + at);
        ps_frame_fields(frame, (int32_t)((start + at) % TERM), 5, 6, 7);
        frame->type = (uint16_t)(frame->type & 1U);
        int32_t size = atomic_load(&frame->frame_length) & 255;
        size = size < PS_HEADER_BYTES ? PS_HEADER_BYTES : size;
        size = cut && size > length - at ? (int32_t)(length - at) : size;
        atomic_store(&frame->frame_length, size);
        at += ps_align32(size);
    }
}

static void check_rows(const ps_gather_rows_t *rows, const ps_gather_frames_t *frames, int code)
{
    FUZZ_CHECK(code >= PS_GATHER_END && code <= PS_GATHER_INCOMPLETE);
    FUZZ_CHECK(rows->rows <= rows->row_limit && rows->used <= rows->value_limit);
    FUZZ_CHECK(rows->offsets[0] == 0 && rows->offsets[rows->rows] == rows->used);
    FUZZ_CHECK(rows->position >= frames->start);
    FUZZ_CHECK(rows->position <= frames->start + frames->length);
    int64_t before = frames->start;
    for (int32_t i = 0; i < rows->rows; i++) {
        FUZZ_CHECK(rows->offsets[i] <= rows->offsets[i + 1]);
        FUZZ_CHECK(rows->positions[i] > before && rows->positions[i] <= rows->position);
        before = rows->positions[i];
    }
    FUZZ_CHECK(code != PS_GATHER_TOO_LONG || rows->needed > rows->value_limit);
    FUZZ_CHECK(code != PS_GATHER_END || rows->position == frames->start + frames->length);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const uint8_t choice = input[0];
    const int64_t length = (int64_t)(size - 1 > MOST ? MOST : size - 1) / 32 * 32;
    const int64_t start = (choice & 0x40) != 0 ? TERM - length : 0;
    const int64_t value_limit = 1 + (int64_t)(choice & 7) * 37;
    uint8_t *data = malloc(length > 0 ? (size_t)length : 1);
    uint8_t *values = malloc((size_t)value_limit);
    FUZZ_CHECK(data != NULL && values != NULL);
    memcpy(data, input + 1, (size_t)length);
    if ((choice & 0x80) != 0) {
        repair(data, length, start, (choice & 0x20) == 0);
    }
    const ps_gather_frames_t frames = { .data = data,
                                        .start = start,
                                        .length = length,
                                        .session_id = 5,
                                        .stream_id = 6,
                                        .initial_term_id = 7,
                                        .term_length = TERM };
    int32_t offsets[ROWS + 1];
    int64_t positions[ROWS], reserved[ROWS];
    ps_gather_rows_t rows = { .values = values,
                              .offsets = offsets,
                              .positions = positions,
                              .reserved_values = reserved,
                              .value_limit = value_limit,
                              .row_limit = 1 + (choice >> 3 & 7) * 2 };
    const int code = ps_gather_copy(&frames, &rows);
    if (code >= 0) {
        check_rows(&rows, &frames, code);
    }
    ps_gather_scan_t scan = { .byte_limit = MOST };
    const int scanned = ps_gather_scan(&frames, &scan);
    FUZZ_CHECK(code != PS_GATHER_END || (scanned == 0 && scan.messages == rows.rows));
    FUZZ_CHECK(scanned != 0 || (scan.position >= start && scan.position <= start + length));
    free(values);
    free(data);
    return 0;
}
