/* SPDX-License-Identifier: Apache-2.0
 * test_pub_sealed.c: exclusive publications whose end is sealed, in memory full of litter: claims,
 * and owners that stop anywhere. */
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "stream.h"

enum { WINDOW = PS_TERM_MIN / 2 };

static void sealed(ps_log_params_t *params)
{
    params->type = PS_LOG_SEALED;
}

static int32_t length_at(const stream_t *stream, int64_t position)
{
    return ps_frame_length_acquire(ps_frame_at(&stream->log, position));
}

/* What the daemon does with what a dead owner left: as ps_publication_unblock_client. */
static void unblock_all(const stream_t *stream, int64_t position)
{
    while (position < ps_log_producer_position(&stream->log)) {
        int32_t claimer;
        const int32_t length = length_at(stream, position);
        const int32_t bytes =
            length > 0 ? ps_align32(length) : ps_log_unblock(&stream->log, position, -1, &claimer);
        CHECK(bytes > 0);
        position += bytes;
    }
    CHECK_EQ(position, ps_log_producer_position(&stream->log));
}

static void claims_end_at_a_seal(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_message_t messages[4];
    ps_claim_t first, second;
    ps_counter_set(stream.cnc, stream.limit, WINDOW);
    CHECK_EQ(ps_pub_try_claim(pub, 32, &first), 64);
    CHECK_EQ(ps_pub_try_claim(pub, 33, &second), 160);
    CHECK_EQ(ps_pub_commit(pub, &second, 0), PS_OK);
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 0);
    CHECK_EQ(ps_pub_commit(pub, &first, 0), PS_OK);
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 2);
    CHECK_EQ(messages[1].position, 160);
    CHECK_EQ(length_at(&stream, 160), 0);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* Every point at which an owner may stop between taking the space and its frame. */
static void what_was_reserved_and_not_written_is_padded_in_one_piece(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *pub = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    ps_message_t messages[4];
    ps_claim_t claim;
    ps_counter_set(stream.cnc, stream.limit, WINDOW);
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
    CHECK_EQ(ps_pub_try_claim(pub, 1000, &claim), 64 + 1056);
    CHECK_EQ(ps_pub_try_claim(pub, 500, &claim), 64 + 1056 + 544);
    /* It died before the second claim's word. */
    atomic_store(ps_frame_word(ps_frame_at(&stream.log, 64 + 1056)), 0);
    unblock_all(&stream, 64);
    CHECK_EQ(ps_frame_at(&stream.log, 64)->type, PS_TYPE_PAD);
    CHECK_EQ(length_at(&stream, 64), 1032);
    CHECK_EQ(length_at(&stream, 64 + 1056), 544);
    CHECK_EQ(ps_frame_at(&stream.log, 64 + 1056)->reserved_value, 0); /* litter may be a gap mark */
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 1);
    CHECK_EQ(ps_img_poll(image, messages, 4, 0), 0);
    CHECK_EQ(ps_img_position(image), 64 + 1056 + 544);
    ps_img_close(image);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* An owner that padded the term's end and stopped, before the pad and before the turn. */
static void a_turn_that_was_begun_is_finished(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *pub = stream_pub(&stream);
    uint8_t message[1376] = { 0 };
    int64_t position = 0;
    ps_counter_set(stream.cnc, stream.limit, PS_TERM_MIN);
    while (PS_TERM_MIN - position >= 1408) {
        position = ps_pub_offer(pub, message, sizeof message, 0);
    }
    CHECK_EQ(ps_pub_offer(pub, message, sizeof message, 0), PS_ADMIN_ACTION);
    CHECK_EQ(ps_frame_at(&stream.log, position)->reserved_value, 0);
    atomic_store(&stream.log.meta->active_term_count, 0);
    atomic_store(ps_frame_word(ps_frame_at(&stream.log, position)), 0);
    int32_t claimer;
    CHECK_EQ(ps_log_unblock(&stream.log, position, -1, &claimer), PS_TERM_MIN - position);
    CHECK_EQ(atomic_load(&stream.log.meta->active_term_count), 1);
    CHECK_EQ(length_at(&stream, PS_TERM_MIN), 0); /* litter in the next term is out of reach */
    ps_pub_close(pub);
    stream_close(&stream);
}

/* ---- another process continues ---- */

/* The dead owner published five messages, one of them in fragments, and stopped with a claim, and
 * with space that has no word yet. */
static void a_successor_counts_what_was_published(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *dead = stream_pub(&stream);
    ps_img_t *image = stream_img(&stream);
    static uint8_t words[4000];
    ps_message_t messages[16];
    ps_claim_t claim;
    ps_counter_set(stream.cnc, stream.limit, WINDOW);
    const int64_t first = ps_pub_offer(dead, "x", 1, 0);
    CHECK_EQ(first, 64);
    CHECK(ps_pub_offer(dead, words, sizeof words, 0) > 0);
    for (int32_t i = 0; i < 3; i++) {
        CHECK(ps_pub_offer(dead, "y", 1, 0) > 0);
    }
    const int64_t end = ps_pub_position(dead);
    CHECK_EQ(ps_pub_try_claim(dead, 1000, &claim), end + 1056);
    CHECK_EQ(ps_pub_try_claim(dead, 500, &claim), end + 1056 + 544);
    atomic_store(ps_frame_word(ps_frame_at(&stream.log, end + 1056)), 0);
    ps_pub_t *pub = stream_pub(&stream);
    CHECK_EQ(ps_pub_take_over(pub, first, 1), 4);
    CHECK_EQ(atomic_load(&stream.shared->publications[stream.publication_slot].published_ordinal),
             5);
    CHECK_EQ(ps_pub_position(pub), end + 1056 + 544);
    CHECK_EQ(ps_pub_offer(pub, "z", 1, 0), end + 1056 + 544 + 64);
    CHECK_EQ(ps_img_poll(image, messages, 16, 0), 4 + 3 + 1); /* three fragments */
    CHECK_EQ(ps_img_position(image), ps_pub_position(pub));
    CHECK_EQ(ps_pub_take_over(pub, ps_pub_position(pub), 6), 0);
    ps_img_close(image);
    ps_pub_close(dead);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* The dead owner stopped between the mark and the notification of the sender. */
static void a_successor_notifies_the_sender(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *dead = stream_pub(&stream);
    const int32_t slot = stream.publication_slot;
    ps_counter_set(stream.cnc, stream.limit, WINDOW);
    CHECK_EQ(ps_pub_offer(dead, "x", 1, 0), 64);
    CHECK_EQ(atomic_load(&stream.shared->publications[slot].dirty), PS_DIRTY_DATA);
    atomic_store(&stream.shared->dirty[slot / 64], 0);
    ps_pub_t *pub = stream_pub(&stream);
    CHECK_EQ(ps_pub_take_over(pub, 0, 0), 1);
    CHECK(atomic_load(&stream.shared->dirty[slot / 64]) == UINT64_C(1) << slot % 64);
    ps_pub_close(dead);
    ps_pub_close(pub);
    stream_close(&stream);
}

static void a_successor_refuses_a_wrong_place(void)
{
    stream_t stream;
    stream_open(&stream, sealed);
    ps_pub_t *pub = stream_pub(&stream);
    ps_counter_set(stream.cnc, stream.limit, WINDOW);
    CHECK_EQ(ps_pub_offer(pub, "x", 1, 0), 64);
    CHECK_EQ(ps_pub_take_over(pub, 128, 0), PS_E_INVALID); /* behind the tail */
    CHECK_EQ(ps_pub_take_over(pub, 1, 0), PS_E_INVALID);
    CHECK_EQ(ps_pub_take_over(pub, -32, 0), PS_E_INVALID);
    CHECK_EQ(ps_pub_take_over(pub, 0, -1), PS_E_INVALID);
    atomic_store(&ps_frame_at(&stream.log, 0)->frame_length, PS_TERM_MIN + 32); /* scribbled */
    CHECK_EQ(ps_pub_take_over(pub, 0, 0), PS_E_CORRUPT);
    ps_pub_close(pub);
    stream_close(&stream);
}

/* ---- owners that stop anywhere --------------------------------------------------------------- */

/* Near a term's end, so that what is published passes it. */
static void sealed_at_the_end(ps_log_params_t *params)
{
    params->type = PS_LOG_SEALED;
    params->term_offset = PS_TERM_MIN - 8192;
}

/* All ways to publish, a turn of the term among them. */
static void publish_all_ways(ps_pub_t *pub)
{
    static const uint8_t words[4096];
    int32_t accepted;
    ps_claim_t first, second;
    (void)ps_pub_offer(pub, words, 40, 0);
    (void)ps_pub_offer_strided(pub, words, 32, 20, &accepted);
    (void)ps_pub_offer(pub, words, 3000, 0);
    (void)ps_pub_try_claim(pub, 100, &first);
    (void)ps_pub_try_claim(pub, 10, &second);
    (void)ps_pub_commit(pub, &second, 0);
    (void)ps_pub_abort(pub, &first);
    for (int32_t i = 0; i < 3; i++) {
        (void)ps_pub_offer(pub, words, 4000, 0);
    }
    (void)ps_pub_offer_strided(pub, words, 8, 3, &accepted);
}

/* A reader that walks the log as it stands meets frames of the owner's only; unblocked, it comes to
 * the tail.  Works on a copy. */
static void check_as_it_stands(const stream_t *stream, uint8_t *copy, int64_t position)
{
    ps_log_t log = stream->log;
    memcpy(copy, log.map, log.map_length);
    for (int32_t i = 0; i < PS_PARTITIONS; i++) {
        log.term[i] = copy + (log.term[i] - log.map);
    }
    log.meta = (ps_log_meta_t *)(void *)(copy + ((uint8_t *)log.meta - log.map));
    log.map = copy;
    for (;;) {
        const ps_frame_t *frame = ps_frame_at(&log, position);
        const int32_t length = ps_frame_length_acquire(frame);
        if (length > 0) {
            CHECK(length >= PS_HEADER_BYTES && length <= log.term_length);
            CHECK_EQ(frame->term_offset, (int32_t)(position & log.term_mask));
            CHECK_EQ(frame->term_id, ps_term_id_at(position, log.shift, log.initial_term_id));
            CHECK(frame->type == PS_TYPE_PAD || frame->reserved_value == 0); /* no litter */
            position += ps_align32(length);
            continue;
        }
        int32_t claimer;
        const int32_t bytes = ps_log_unblock(&log, position, -1, &claimer);
        if (bytes == 0) {
            break;
        }
        position += bytes;
    }
    CHECK_EQ(position, ps_log_producer_position(&log));
}

/* Instruction by instruction. */
static void an_owner_may_stop_anywhere(void)
{
    stream_t stream;
    stream_open(&stream, sealed_at_the_end);
    const int64_t start = ps_log_producer_position(&stream.log);
    uint8_t *copy = malloc(stream.log.map_length);
    int status = 0;
    ps_counter_set(stream.cnc, stream.limit, start + PS_TERM_MIN);
    const pid_t owner = fork();
    CHECK(copy != NULL && owner >= 0);
    if (owner == 0) {
        const ps_client_params_t params = { stream.directory, 5, stream.client_slot, -1, -1, -1 };
        if (ps_client_open(&params, &stream.client) != PS_OK) {
            _exit(1);
        }
        ps_pub_t *pub = stream_pub(&stream);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0) {
            _exit(2);
        }
        publish_all_ways(pub);
        raise(SIGKILL);
    }
    CHECK_EQ(waitpid(owner, &status, 0), owner);
    int64_t steps = 0;
    while (WIFSTOPPED(status)) {
        check_as_it_stands(&stream, copy, start);
        CHECK_EQ(ptrace(PTRACE_SINGLESTEP, owner, NULL, NULL), 0);
        CHECK_EQ(waitpid(owner, &status, 0), owner);
        steps++;
    }
    CHECK(WIFSIGNALED(status) && steps > 1000);
    CHECK(ps_log_producer_position(&stream.log) > PS_TERM_MIN);
    free(copy);
    stream_close(&stream);
}

int main(void)
{
    RUN(claims_end_at_a_seal);
    RUN(what_was_reserved_and_not_written_is_padded_in_one_piece);
    RUN(a_turn_that_was_begun_is_finished);
    RUN(a_successor_counts_what_was_published);
    RUN(a_successor_notifies_the_sender);
    RUN(a_successor_refuses_a_wrong_place);
    RUN(an_owner_may_stop_anywhere);
    return 0;
}
