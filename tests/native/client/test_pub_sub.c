/* SPDX-License-Identifier: Apache-2.0
 * test_pub_sub.c: publications and images over one log, the test moving the limit. */
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "ps_client_internal.h"
#include "stream.h"

enum { BIG = 8192 };

static uint8_t source[BIG + 64];

static void fill_source(void)
{
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)(i * 7 + i / 251);
    }
}

static void exclusive(ps_log_params_t *params)
{
    params->type = PS_LOG_EXCLUSIVE;
}

static void sealed(ps_log_params_t *params)
{
    params->type = PS_LOG_SEALED;
}

static void at_the_last_term(ps_log_params_t *params)
{
    params->term_id = ps_wrap_add(params->initial_term_id, INT32_MAX);
    params->term_offset = 65536 - 64;
}

/* Publishes and polls every size in order over several terms; checks each byte. */
static void go_through_sizes(void (*adjust)(ps_log_params_t *), int gather)
{
    stream_t stream;
    stream_open(&stream, adjust);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    int64_t clean = 0;
    stream_turn(&stream, &clean);
    static const int32_t sizes[] = { 0,    1,    31,   32,   33,   63,   64,   1375, 1376,
                                     1377, 1408, 2751, 2752, 2753, 4096, 8191, 8192 };
    int32_t rotations = 0;
    for (int32_t round = 0; round < 12; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t size = (size_t)sizes[i];
            int64_t position = 0;
            for (int32_t attempt = 0; attempt < 4; attempt++) {
                const size_t half = size / 3;
                const ps_iov_t pieces[3] = { { source, half },
                                             { NULL, 0 },
                                             { source + half, size - half } };
                position = gather ? ps_pub_offerv(pub, pieces, 3, 77)
                                  : ps_pub_offer(pub, source, size, 77);
                if (position != PS_ADMIN_ACTION) {
                    break;
                }
                rotations++;
            }
            CHECK(position > 0);
            ps_message_t message;
            /* Also where a term ends in padding: 0 would send a reader to sleep. */
            CHECK_EQ(ps_img_poll(image, &message, 1, PS_POLL_ASSEMBLE), 1);
            CHECK_EQ(message.length, size);
            CHECK_EQ(memcmp(message.data, source, size), 0);
            CHECK_EQ(message.position, position);
            CHECK_EQ(message.reserved_value, 77);
            CHECK_EQ(message.session_id, 0x11223344);
            CHECK_EQ(message.flags, 0xC0);
            CHECK_EQ(message.assembled, size > 1376);
            ps_img_release(image);
            stream_turn(&stream, &clean);
        }
    }
    CHECK(rotations >= 5);
    CHECK_EQ(atomic_load(&stream.shared->publications[stream.publication_slot].published_ordinal),
             12 * 17);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void every_boundary_size_comes_through_shared(void)
{
    go_through_sizes(NULL, 0);
    go_through_sizes(NULL, 1);
}

static void every_boundary_size_comes_through_exclusive(void)
{
    go_through_sizes(exclusive, 0);
    go_through_sizes(exclusive, 1);
    go_through_sizes(sealed, 0);
    go_through_sizes(sealed, 1);
}

static void refusals_come_in_order_of_precedence(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_BACK_PRESSURED);
    CHECK_EQ(atomic_load(&stream.shared->publications[stream.publication_slot].dirty),
             PS_DIRTY_CHECK);
    atomic_store(&stream.shared->publications[stream.publication_slot].cause, PS_CAUSE_STORAGE);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_STORAGE);
    atomic_store(&stream.log.meta->is_connected, 0);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_NOT_CONNECTED);
    CHECK_EQ(ps_pub_is_connected(pub), 0);
    ps_client_set_daemon_away(stream.client, 1);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_DAEMON_AWAY);
    ps_pub_mark_closed(pub);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_CLOSED);
    CHECK_EQ(ps_pub_position(pub), PS_CLOSED);
    CHECK_EQ(ps_pub_available_window(pub), PS_CLOSED);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void a_message_over_the_limit_is_refused_with_both_numbers(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    CHECK_EQ(ps_pub_offer(pub, source, BIG + 1, 0), PS_E_TOO_LONG);
    CHECK(strstr(ps_last_error(), "8193") != NULL && strstr(ps_last_error(), "8192") != NULL);
    CHECK_EQ(ps_pub_offer(pub, source, SIZE_MAX, 0), PS_E_TOO_LONG);
    const ps_iov_t pieces[2] = { { source, SIZE_MAX }, { source, 2 } };
    CHECK_EQ(ps_pub_offerv(pub, pieces, 2, 0), PS_E_TOO_LONG);
    ps_claim_t claim;
    CHECK_EQ(ps_pub_try_claim(pub, 1377, &claim), PS_E_TOO_LONG);
    CHECK(claim.data == NULL);
    CHECK_EQ(ps_pub_position(pub), 0);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void the_last_term_ends_with_max_position(void (*adjust)(ps_log_params_t *))
{
    stream_t stream;
    stream_open(&stream, adjust);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, INT64_MAX);
    ps_pub_constants_t constants;
    ps_pub_get_constants(pub, &constants);
    CHECK_EQ(constants.max_position, INT64_C(65536) << 31);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), constants.max_position);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_MAX_POSITION_EXCEEDED);
    CHECK_EQ(ps_pub_offer(pub, "a", 1, 0), PS_MAX_POSITION_EXCEEDED);
    int32_t accepted = 1;
    CHECK_EQ(ps_pub_offer_strided(pub, source, 8, 2, &accepted), PS_MAX_POSITION_EXCEEDED);
    CHECK_EQ(accepted, 0);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void at_the_last_term_exclusive(ps_log_params_t *params)
{
    at_the_last_term(params);
    exclusive(params);
}

static void at_the_last_term_sealed(ps_log_params_t *params)
{
    at_the_last_term(params);
    sealed(params);
}

static void max_position_is_final(void)
{
    the_last_term_ends_with_max_position(at_the_last_term_sealed);
    the_last_term_ends_with_max_position(at_the_last_term);
    the_last_term_ends_with_max_position(at_the_last_term_exclusive);
}

static void claims_commit_and_abort(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    ps_claim_t aborted;
    ps_claim_t kept;
    CHECK_EQ(ps_pub_try_claim(pub, 10, &aborted), 64);
    CHECK_EQ(ps_pub_try_claim(pub, 1376, &kept), 64 + 1408);
    ps_message_t messages[4];
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 0);
    CHECK_EQ(ps_img_has_data(image), 0);
    memcpy(kept.data, source, kept.length);
    CHECK_EQ(ps_pub_commit(pub, &kept, 5), PS_OK);
    CHECK_EQ(ps_pub_abort(pub, &aborted), PS_OK);
    CHECK_EQ(ps_pub_abort(pub, &aborted), PS_E_INVALID);
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 1);
    CHECK_EQ(messages[0].length, 1376);
    CHECK_EQ(messages[0].reserved_value, 5);
    CHECK_EQ(messages[0].start_position, 64);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* ---- unblocking under a publisher's feet ----------------------------------------------------- */

static void a_claim_that_was_padded_over_is_not_accepted(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    /* As if the unblocker had filled the place between reserving and claiming. */
    CHECK_EQ(ps_log_pad(&stream.log, 0, 32, 0), 1);
    CHECK_EQ(ps_log_pad(&stream.log, 32, 32, 0), 1);
    CHECK_EQ(ps_pub_offer(pub, "abc", 3, 0), PS_ADMIN_ACTION);
    CHECK_EQ(ps_pub_offer(pub, "abc", 3, 0), 128);
    ps_message_t messages[4];
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 1);
    CHECK_EQ(messages[0].start_position, 64);
    /* A fragment in the middle: what was claimed before becomes padding. */
    CHECK_EQ(ps_log_pad(&stream.log, 128 + 1408, 1408 + 96, 0), 1);
    CHECK_EQ(ps_pub_offer(pub, source, 2 * 1376 + 40, 0), PS_ADMIN_ACTION);
    CHECK_EQ(ps_pub_offer(pub, "def", 3, 0), 128 + 2 * 1408 + 96 + 64);
    CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(memcmp(messages[0].data, "def", 3), 0);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void go_through_batches(void (*adjust)(ps_log_params_t *))
{
    stream_t stream;
    stream_open(&stream, adjust);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    int64_t clean = 0;
    int64_t offsets[42];
    offsets[0] = 3;
    for (int32_t i = 0; i < 41; i++) {
        offsets[i + 1] = offsets[i] + (i == 20 ? 3000 : i % 7 * 11); /* one is fragmented */
    }
    for (int32_t round = 0; round < 60; round++) {
        stream_turn(&stream, &clean);
        int32_t sent = 0;
        int32_t seen = 0;
        while (seen < 41) {
            if (sent < 41) {
                int32_t accepted = 0;
                const int64_t code =
                    ps_pub_offer_batch(pub, source, offsets + sent, 41 - sent, &accepted);
                CHECK(code > 0 || code == PS_BACK_PRESSURED);
                sent += accepted;
            }
            ps_message_t messages[16];
            const int32_t got = ps_img_poll(image, messages, 16, PS_POLL_ASSEMBLE);
            for (int32_t i = 0; i < got; i++, seen++) {
                const int64_t length = offsets[seen + 1] - offsets[seen];
                CHECK_EQ(messages[i].length, length);
                CHECK_EQ(memcmp(messages[i].data, source + offsets[seen], (size_t)length), 0);
            }
            stream_turn(&stream, &clean);
        }
        CHECK_EQ(seen, 41);
    }
    int32_t accepted = 0;
    ps_counter_set(stream.cnc, stream.limit, ps_pub_position(pub) + 100);
    const int64_t code = ps_pub_offer_strided(pub, source, 32, 100, &accepted);
    CHECK(code > 0);
    CHECK_EQ(accepted, 2); /* a message may begin below the limit and end past it */
    CHECK_EQ(ps_pub_offer_strided(pub, source, 32, 100, &accepted), PS_BACK_PRESSURED);
    CHECK_EQ(accepted, 0);
    CHECK_EQ(ps_pub_offer_strided(pub, source, -1, 100, &accepted), PS_E_INVALID);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void batches_keep_order_and_content(void)
{
    go_through_batches(NULL);
    go_through_batches(exclusive);
    go_through_batches(sealed);
}

/* ---- images ---------------------------------------------------------------------------------- */

static void an_image_continues_with_the_message_of_which_a_part_was_released(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_message_t messages[4];
    ps_counter_set(stream.cnc, stream.limit, 65536);
    CHECK_EQ(ps_pub_offer(pub, "abc", 3, 0), 64);
    CHECK(ps_pub_offer(pub, source, 3000, 0) > 0);
    CHECK_EQ(ps_img_poll(image, messages, 2, 0), 2); /* one fragment of the second message */
    ps_img_release(image);
    CHECK_EQ(ps_counter_get(stream.cnc, stream.position), 64 + 1408);
    ps_img_close(image);

    image = stream_img(&stream);
    CHECK_EQ(ps_img_position(image), 64 + 1408);
    CHECK_EQ(ps_img_take_over(image, 31, -1), PS_E_INVALID);
    CHECK_EQ(ps_img_ordinal(image), -1); /* the stream waits for this reader */
    CHECK_EQ(ps_img_take_over(image, 64, 1), PS_OK);
    CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].length, 3000);
    CHECK_EQ(memcmp(messages[0].data, source, 3000), 0);
    CHECK_EQ(ps_counter_get(stream.cnc, stream.position), 64 + 1408); /* it never goes back */
    ps_img_release(image);
    CHECK_EQ(ps_counter_get(stream.cnc, stream.position), ps_pub_position(pub));
    ps_img_close(image);

    image = stream_img(&stream);
    CHECK_EQ(ps_img_take_over(image, ps_pub_position(pub), 2), PS_OK);
    CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), 0);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void rewinding_hands_messages_out_again(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_sub_t *sub = NULL;
    CHECK_EQ(ps_sub_open(stream.client, 12, 1001, &sub), PS_OK);
    CHECK_EQ(ps_sub_add_image(sub, image), PS_OK);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    for (int32_t i = 0; i < 4; i++) {
        CHECK(ps_pub_offer(pub, &i, sizeof i, 0) > 0);
    }
    CHECK(ps_pub_offer(pub, source, 3000, 0) > 0);
    ps_message_t messages[8];
    CHECK_EQ(ps_sub_poll(sub, messages, 8, PS_POLL_ASSEMBLE), 5);
    ps_sub_rewind(sub, messages, 5, 2); /* the handler of the third failed */
    CHECK_EQ(ps_img_position(image), 128);
    CHECK_EQ(ps_sub_poll(sub, messages, 8, PS_POLL_ASSEMBLE), 3);
    CHECK_EQ(ps_counter_get(stream.cnc, stream.position), 128);
    CHECK_EQ(messages[0].start_position, 128);
    ps_sub_rewind(sub, messages, 3, 2); /* only the assembled one */
    CHECK_EQ(ps_sub_has_data(sub), 1);
    CHECK_EQ(ps_sub_poll(sub, messages, 8, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].length, 3000);
    CHECK_EQ(memcmp(messages[0].data, source, 3000), 0);
    CHECK_EQ(ps_counter_get(stream.cnc, stream.position), 256);
    CHECK_EQ(ps_img_rewind(image, 0), PS_E_INVALID); /* released already */
    CHECK_EQ(ps_sub_poll(sub, messages, 8, PS_POLL_KEEP), 0);
    CHECK_EQ(ps_img_released(image), 256);
    ps_sub_release(sub);
    CHECK_EQ(ps_img_released(image), ps_pub_position(pub));
    CHECK_EQ(ps_sub_remove_image(sub, image), PS_OK);
    CHECK_EQ(ps_sub_image_count(sub), 0);
    ps_sub_close(sub);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void an_assembled_message_survives_release_of_its_fragments(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_img_t *image = stream_img(&stream);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    CHECK(ps_pub_offer(pub, source, 3000, 0) > 0);
    _Atomic uint64_t *third = ps_frame_word(ps_frame_at(&stream.log, 2 * 1408));
    const uint64_t word = atomic_exchange(third, 0); /* not there yet */
    ps_message_t message;
    CHECK_EQ(ps_img_poll(image, &message, 1, PS_POLL_ASSEMBLE), 0);
    CHECK_EQ(ps_img_poll(image, &message, 1, PS_POLL_ASSEMBLE), 0);
    CHECK_EQ(ps_img_released(image), 2 * 1408);
    atomic_store(third, word);
    CHECK_EQ(ps_img_poll(image, &message, 1, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(ps_img_rewind(image, message.start_position), PS_OK);
    CHECK_EQ(ps_img_poll(image, &message, 1, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(message.length, 3000);
    CHECK_EQ(memcmp(message.data, source, 3000), 0);
    ps_pub_close(pub);
    ps_img_close(image);
    stream_close(&stream);
}

static void a_message_joined_in_its_middle_is_skipped(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    CHECK(ps_pub_offer(pub, source, 3000, 0) > 0);
    CHECK(ps_pub_offer(pub, "x", 1, 0) > 0);
    ps_counter_set(stream.cnc, stream.position, 1408);
    ps_img_t *image = stream_img(&stream);
    CHECK_EQ(ps_img_join_position(image), 1408);
    ps_message_t messages[4];
    CHECK_EQ(ps_img_poll(image, messages, 4, PS_POLL_ASSEMBLE), 1);
    CHECK_EQ(messages[0].length, 1);
    CHECK_EQ(ps_img_rewind(image, 1408), PS_OK);
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 3); /* raw fragments */
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void end_of_stream_is_seen(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
    atomic_store(&stream.log.meta->end_of_stream, 64);
    CHECK_EQ(ps_img_is_end_of_stream(image), 0);
    ps_message_t message;
    CHECK_EQ(ps_img_poll(image, &message, 1, 0), 1);
    CHECK_EQ(ps_img_is_end_of_stream(image), 1);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static int32_t offer_and_poll(stream_t *stream, ps_pub_t *pub, ps_img_t *image, int32_t count)
{
    ps_message_t messages[64];
    int64_t position = 0;
    for (int32_t i = 0; i < count; i++) {
        position = ps_pub_offer(pub, "x", 1, 0);
        CHECK(position > 0);
        ps_counter_set(stream->cnc, stream->limit, position + 32768);
    }
    CHECK_EQ(ps_img_poll(image, messages, 64, PS_POLL_ASSEMBLE), count);
    return image->short_polls;
}

/* A reader at a busy publisher's heels is told apart from one that waits for single messages, and
 * from one that is behind. */
static void a_reader_at_the_heels_is_known(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_counter_set(stream.cnc, stream.limit, 32768);
    for (int32_t i = 1; i <= 4; i++) {
        CHECK_EQ(offer_and_poll(&stream, pub, image, 1), i);
    }
    CHECK_EQ(offer_and_poll(&stream, pub, image, 31), 4);
    CHECK_EQ(offer_and_poll(&stream, pub, image, 0), 0); /* nothing: it waits */
    CHECK_EQ(offer_and_poll(&stream, pub, image, 1), 1);
    CHECK_EQ(offer_and_poll(&stream, pub, image, 32), 0); /* plenty */
    CHECK_EQ(image->behind, 0);
    CHECK_EQ(offer_and_poll(&stream, pub, image, 64), 0); /* as many as it takes */
    CHECK_EQ(image->behind, 1);
    CHECK_EQ(offer_and_poll(&stream, pub, image, 3), 1);
    CHECK_EQ(image->behind, 0);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void releasing_past_the_wake_position_kicks_the_parked_sender(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(fd >= 0);
    ps_client_close(stream.client);
    const ps_client_params_t params = { stream.directory, 5, stream.client_slot, fd, -1, -1 };
    CHECK_EQ(ps_client_open(&params, &stream.client), PS_OK);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_publication_slot_t *slot = &stream.shared->publications[stream.publication_slot];
    ps_counter_set(stream.cnc, stream.limit, 65536);
    uint64_t kicks = 0;
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
    CHECK_EQ(read(fd, &kicks, 8), -1); /* not parked: no system call */
    CHECK_EQ(atomic_load(&slot->dirty), 1);
    CHECK_EQ(atomic_load(&stream.shared->dirty[0]), UINT64_C(1) << stream.publication_slot);
    atomic_store(&slot->dirty, 0);
    atomic_store(&stream.shared->driver->sender_parked, 1);
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 128);
    CHECK_EQ(read(fd, &kicks, 8), 8);
    atomic_store(&slot->dirty, 0);
    ps_message_t messages[4];
    CHECK_EQ(ps_img_poll(image, messages, 1, 0), 1);
    CHECK_EQ(ps_img_poll(image, messages, 1, 0), 1);
    CHECK_EQ(read(fd, &kicks, 8), -1); /* nobody waits for that */
    atomic_store(&slot->wake_position, 128);
    ps_img_release(image);
    CHECK_EQ(read(fd, &kicks, 8), 8);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
    close(fd);
}

static void handles_are_refused_in_a_forked_child(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_counter_set(stream.cnc, stream.limit, 65536);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ps_message_t message;
        const int right = ps_pub_offer(pub, "x", 1, 0) == PS_E_FORKED &&
                          ps_img_poll(image, &message, 1, 0) == PS_E_FORKED &&
                          ps_client_sleep(stream.client, 0, 0) == PS_E_FORKED &&
                          ps_client_await(stream.client, 7) == 0;
        _exit(right ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

int main(void)
{
    fill_source();
    RUN(every_boundary_size_comes_through_shared);
    RUN(every_boundary_size_comes_through_exclusive);
    RUN(refusals_come_in_order_of_precedence);
    RUN(a_message_over_the_limit_is_refused_with_both_numbers);
    RUN(max_position_is_final);
    RUN(claims_commit_and_abort);
    RUN(a_claim_that_was_padded_over_is_not_accepted);
    RUN(batches_keep_order_and_content);
    RUN(an_image_continues_with_the_message_of_which_a_part_was_released);
    RUN(rewinding_hands_messages_out_again);
    RUN(an_assembled_message_survives_release_of_its_fragments);
    RUN(a_message_joined_in_its_middle_is_skipped);
    RUN(end_of_stream_is_seen);
    RUN(a_reader_at_the_heels_is_known);
    RUN(releasing_past_the_wake_position_kicks_the_parked_sender);
    RUN(handles_are_refused_in_a_forked_child);
    return 0;
}
