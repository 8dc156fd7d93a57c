/* SPDX-License-Identifier: Apache-2.0
 * test_log.c: log files, positions, cleaning, rotation, unblocking. */
#include <fcntl.h>
#include <sys/stat.h>

#include "stream.h"

static void exclusive(ps_log_params_t *params)
{
    params->type = PS_LOG_EXCLUSIVE;
}

static void as_image(ps_log_params_t *params)
{
    params->type = PS_LOG_IMAGE;
}

static void in_fifth_term(ps_log_params_t *params)
{
    params->term_id = ps_wrap_add(params->initial_term_id, 4);
    params->term_offset = 4096;
}

static int64_t tail_of(const stream_t *stream, int32_t partition)
{
    return atomic_load(&stream->log.meta->tail[partition]);
}

static int64_t raw_tail(int32_t term_id, int32_t offset)
{
    return (int64_t)(((uint64_t)(uint32_t)term_id << 32) | (uint32_t)offset);
}

static void a_new_log_has_the_tails_and_header_of_the_reference(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int32_t initial = stream.params.initial_term_id;
    CHECK_EQ(tail_of(&stream, 0), raw_tail(initial, 0));
    CHECK_EQ(tail_of(&stream, 1), raw_tail(initial - 2, 0));
    CHECK_EQ(tail_of(&stream, 2), raw_tail(initial - 1, 0));
    const uint8_t *header = stream.log.meta->default_header;
    const uint8_t expected[24] = {
        0,    0,    0,    0,    0,    0xC0, 1, 0, 0,    0,    0,    0,
        0x44, 0x33, 0x22, 0x11, 0xE9, 3,    0, 0, 0xFE, 0xFF, 0xFF, 0x7F
    };
    CHECK_EQ(memcmp(header, expected, sizeof expected), 0);
    CHECK_EQ(stream.log.meta->header_length, 32);
    CHECK_EQ(atomic_load(&stream.log.meta->end_of_stream), INT64_MAX);
    CHECK_EQ(ps_log_producer_position(&stream.log), 0);
    struct stat info;
    CHECK_EQ(stat(stream.path, &info), 0);
    CHECK_EQ(info.st_size, 3 * 65536 + 4096);
    CHECK(info.st_blocks * 512 < 65536); /* sparse */
    stream_close(&stream);
}

static void a_log_may_start_in_a_later_term(void)
{
    stream_t stream;
    stream_open(&stream, in_fifth_term);
    const int32_t id = stream.params.term_id;
    CHECK_EQ(ps_log_producer_position(&stream.log), 4 * 65536 + 4096);
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 4);
    CHECK_EQ(tail_of(&stream, 1), raw_tail(id, 4096));
    CHECK_EQ(tail_of(&stream, 2), raw_tail(ps_wrap_add(id, -2), 0));
    CHECK_EQ(tail_of(&stream, 0), raw_tail(ps_wrap_add(id, -1), 0));
    CHECK_EQ(ps_log_rotate(&stream.log, 4, id), 1);
    CHECK_EQ(tail_of(&stream, 2), raw_tail(ps_wrap_add(id, 1), 0));
    CHECK_EQ(ps_log_producer_position(&stream.log), 5 * 65536);
    CHECK_EQ(ps_log_rotate(&stream.log, 4, id), 0); /* somebody else did it */
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 5);
    stream_close(&stream);
}

static void an_image_log_has_no_tails(void)
{
    stream_t stream;
    stream_open(&stream, as_image);
    for (int32_t i = 0; i < 3; i++) {
        CHECK_EQ(tail_of(&stream, i), 0);
    }
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 0);
    stream_close(&stream);
}

static void terms_are_reserved_for_real(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    struct stat before;
    struct stat after;
    CHECK_EQ(stat(stream.path, &before), 0);
    CHECK_EQ(ps_log_reserve(stream.path, 65536, 65536 * 4, 65536 * 4 + 65536), PS_OK);
    CHECK_EQ(stat(stream.path, &after), 0);
    /* A term's first page is reserved from the beginning.  (A file system may count a block of its
     * own on top, or not: that depends on where the extents came to lie.) */
    CHECK(after.st_blocks >= before.st_blocks + (65536 - 4096) / 512);
    CHECK_EQ(after.st_size, before.st_size);
    CHECK_EQ(ps_log_reserve(stream.path, 65537, 0, 65537), PS_E_INVALID);
    CHECK_EQ(ps_log_reserve(stream.path, 1 << 20, 0, 1 << 20), PS_E_CORRUPT);
    stream_close(&stream);
}

static void impossible_parameters_are_refused(void)
{
    char directory[256];
    char path[300];
    directory_make(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/x.logbuffer", directory);
    ps_log_params_t params = log_params(path);
    params.term_length = 65536 + 4096;
    CHECK_EQ(ps_log_create(&params), PS_E_INVALID);
    CHECK(strstr(ps_last_error(), "69632") != NULL);
    params = log_params(path);
    params.mtu = 1409;
    CHECK_EQ(ps_log_create(&params), PS_E_INVALID);
    params = log_params(path);
    params.term_offset = 65536 + 32;
    CHECK_EQ(ps_log_create(&params), PS_E_INVALID);
    params = log_params(path);
    params.term_id--;
    CHECK_EQ(ps_log_create(&params), PS_E_INVALID);
    params = log_params(path);
    CHECK_EQ(ps_log_create(&params), PS_OK);
    CHECK_EQ(ps_log_create(&params), PS_E_SYSTEM); /* exists */
    directory_remove(directory);
}

static void a_full_file_system_is_reported_with_both_numbers(void)
{
    char directory[256];
    char path[300];
    directory_make(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/x.logbuffer", directory);
    ps_log_params_t params = log_params(path);
    params.term_length = PS_TERM_MAX;
    params.reserve_terms = 3;
    if (ps_free_bytes(directory) < INT64_C(3) << 30) {
        CHECK_EQ(ps_log_create(&params), PS_E_NO_SPACE);
        CHECK(strstr(ps_last_error(), "needs 3221229568 bytes") != NULL);
        CHECK_EQ(access(path, F_OK), -1);
    }
    directory_remove(directory);
}

static void damage(const stream_t *stream, size_t meta_offset, int32_t value)
{
    const int fd = open(stream->path, O_RDWR);
    CHECK(fd >= 0);
    const off_t at = 3 * 65536 + (off_t)meta_offset;
    int32_t old = 0;
    CHECK_EQ(pread(fd, &old, 4, at), 4);
    CHECK_EQ(pwrite(fd, &value, 4, at), 4);
    ps_log_t log;
    CHECK_EQ(ps_log_map(stream->path, 1, &log), PS_E_CORRUPT);
    CHECK_EQ(pwrite(fd, &old, 4, at), 4);
    CHECK_EQ(ps_log_map(stream->path, 1, &log), PS_OK);
    ps_log_unmap(&log);
    close(fd);
}

static void damaged_metadata_is_refused(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int32_t bad_terms[] = { 0, -1, 65535, 65536 * 2, INT32_MIN, 1 << 30 };
    for (size_t i = 0; i < sizeof bad_terms / sizeof *bad_terms; i++) {
        damage(&stream, offsetof(ps_log_meta_t, term_length), bad_terms[i]);
    }
    damage(&stream, offsetof(ps_log_meta_t, page_size), 0);
    damage(&stream, offsetof(ps_log_meta_t, page_size), 3 << 12);
    damage(&stream, offsetof(ps_log_meta_t, mtu), 31);
    damage(&stream, offsetof(ps_log_meta_t, mtu), 1 << 20);
    damage(&stream, offsetof(ps_log_meta_t, header_length), 24);
    ps_log_t log;
    CHECK_EQ(truncate(stream.path, 100), 0);
    CHECK_EQ(ps_log_map(stream.path, 1, &log), PS_E_CORRUPT);
    CHECK_EQ(ps_log_map("does-not-exist", 1, &log), PS_E_SYSTEM);
    ps_client_close(stream.client);
    ps_shared_close(stream.shared);
    ps_cnc_close(stream.cnc);
    directory_remove(stream.directory);
}

static void message_space_counts_each_header(void)
{
    CHECK_EQ(ps_log_message_space(0, 1376), 32);
    CHECK_EQ(ps_log_message_space(1, 1376), 64);
    CHECK_EQ(ps_log_message_space(1376, 1376), 1408);
    CHECK_EQ(ps_log_message_space(1377, 1376), 1408 + 64);
    CHECK_EQ(ps_log_message_space(2 * 1376, 1376), 2 * 1408);
}

static void cleaning_zeroes_exactly_the_range(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    memset(stream.log.term[0], 0xff, 65536);
    ps_log_clean(&stream.log, 64, 128);
    for (int32_t i = 0; i < 256; i++) {
        CHECK_EQ(stream.log.term[0][i], i >= 64 && i < 128 ? 0 : 0xff);
    }
    ps_log_clean(&stream.log, 65536 - 32, 65536 + 4096); /* never past the term's end */
    CHECK_EQ(stream.log.term[0][65535], 0);
    CHECK_EQ(stream.log.term[0][65536 - 33], 0xff);
    stream_close(&stream);
}

/* ---- unblocking ------------------------------------------------------------------------------ */

static void take_tail(stream_t *stream, int32_t bytes)
{
    atomic_fetch_add(&stream->log.meta->tail[0], bytes);
}

static void a_dead_claim_is_padded_for_its_claimer_only(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    ps_claim_t claim;
    CHECK_EQ(ps_pub_try_claim(pub, 100, &claim), 160);
    CHECK_EQ(ps_pub_offer(pub, "abc", 3, 0), 224);
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 0, 3, &claimer), 0); /* another client's death */
    CHECK_EQ(claimer, stream.client_slot);
    CHECK_EQ(ps_log_unblock(&stream.log, 0, stream.client_slot, &claimer), 160);
    CHECK_EQ(ps_log_unblock(&stream.log, 160, -1, &claimer), 0); /* complete */
    CHECK_EQ(ps_log_unblock(&stream.log, 224, -1, &claimer), 0); /* the end */
    CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_E_UNBLOCKED);
    CHECK_EQ(atomic_load(&stream.shared->clients[stream.client_slot].claims_lost), 1);
    const ps_frame_t *frame = ps_frame_at(&stream.log, 0);
    CHECK_EQ(ps_frame_length_acquire(frame), 132);
    CHECK_EQ(frame->type, PS_TYPE_PAD);
    CHECK_EQ(frame->term_id, stream.params.initial_term_id);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void a_hole_is_padded_up_to_the_next_frame(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    take_tail(&stream, 320); /* a publisher that died between reserving and claiming */
    CHECK_EQ(ps_pub_offer(pub, "abc", 3, 0), 384);
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 0, stream.client_slot, &claimer), 0); /* holes stay */
    CHECK_EQ(ps_log_unblock(&stream.log, 0, -1, &claimer), 320);
    CHECK_EQ(claimer, -1);
    CHECK_EQ(ps_frame_length_acquire(ps_frame_at(&stream.log, 0)), 320);
    /* Whoever wakes up inside the hole finds every slot taken: nothing is lost in silence. */
    for (int64_t at = 0; at < 320; at += 32) {
        CHECK(atomic_load(ps_frame_word(ps_frame_at(&stream.log, at))) != 0);
    }
    ps_pub_close(pub);
    stream_close(&stream);
}

static void a_hole_at_the_tail_is_padded_to_the_tail(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    take_tail(&stream, 96);
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 0, -1, &claimer), 96);
    CHECK_EQ(ps_log_unblock(&stream.log, 96, -1, &claimer), 0);
    stream_close(&stream);
}

static void a_hole_that_reaches_the_end_of_the_term_rotates(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    take_tail(&stream, 65536 - 64);
    take_tail(&stream, 1000); /* tripped, and died before it padded */
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 65536 - 64, -1, &claimer), 64);
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 1);
    CHECK_EQ(ps_log_producer_position(&stream.log), 65536);
    stream_close(&stream);
}

static void a_rotation_left_half_done_is_finished(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    take_tail(&stream, 65536);
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 65536, -1, &claimer), 0);
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 1);
    stream_close(&stream);
}

static void nonsense_claims_are_stepped_over(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    take_tail(&stream, 4096);
    const int32_t lengths[] = { 1, 31, 65536 * 2, INT32_MAX };
    for (int32_t i = 0; i < 4; i++) {
        const int64_t at = i * 32;
        atomic_store(ps_frame_word(ps_frame_at(&stream.log, at)), ps_claim_word_of(lengths[i], 2));
        int32_t claimer = 0;
        CHECK_EQ(ps_log_unblock(&stream.log, at, -1, &claimer), 32);
        CHECK_EQ(claimer, 2);
    }
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, -32, -1, &claimer), 0);
    CHECK_EQ(ps_log_unblock(&stream.log, 33, -1, &claimer), 0);
    CHECK_EQ(ps_log_unblock(&stream.log, INT64_MAX, -1, &claimer), 0);
    stream_close(&stream);
}

static void an_exclusive_claim_is_unblocked_too(void)
{
    stream_t stream;
    stream_open(&stream, exclusive);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    ps_claim_t claim;
    CHECK_EQ(ps_pub_try_claim(pub, 32, &claim), 64);
    int32_t claimer = 0;
    CHECK_EQ(ps_log_unblock(&stream.log, 0, stream.client_slot, &claimer), 64);
    CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_E_UNBLOCKED);
    CHECK_EQ(ps_pub_commit(pub, &claim, 0), PS_E_INVALID);
    ps_pub_close(pub);
    stream_close(&stream);
}

int main(void)
{
    RUN(a_new_log_has_the_tails_and_header_of_the_reference);
    RUN(a_log_may_start_in_a_later_term);
    RUN(an_image_log_has_no_tails);
    RUN(terms_are_reserved_for_real);
    RUN(impossible_parameters_are_refused);
    RUN(a_full_file_system_is_reported_with_both_numbers);
    RUN(damaged_metadata_is_refused);
    RUN(message_space_counts_each_header);
    RUN(cleaning_zeroes_exactly_the_range);
    RUN(a_dead_claim_is_padded_for_its_claimer_only);
    RUN(a_hole_is_padded_up_to_the_next_frame);
    RUN(a_hole_at_the_tail_is_padded_to_the_tail);
    RUN(a_hole_that_reaches_the_end_of_the_term_rotates);
    RUN(a_rotation_left_half_done_is_finished);
    RUN(nonsense_claims_are_stepped_over);
    RUN(an_exclusive_claim_is_unblocked_too);
    return 0;
}
