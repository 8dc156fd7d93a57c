/* SPDX-License-Identifier: Apache-2.0
 * test_pub_threads.c: publishers, reader and unblocker at the same time. */
#define _GNU_SOURCE /* pthread_tryjoin_np */
#include <pthread.h>
#include <sched.h>

#include "ps_client_publication.h"
#include "stream.h"

static void exclusive(ps_log_params_t *params)
{
    params->type = PS_LOG_EXCLUSIVE;
}

static void sealed(ps_log_params_t *params)
{
    params->type = PS_LOG_SEALED;
}

/* ---- concurrency ----------------------------------------------------------------------------- */

/* ThreadSanitizer follows addresses: let publisher, reader and daemon see the log and the counters
 * through one mapping, as if they had the same addresses in their processes. */
static void share_mappings(stream_t *stream, ps_pub_t *pub, ps_img_t *image)
{
    ps_log_unmap(&pub->log);
    ps_log_unmap(&image->log);
    pub->log = stream->log;
    image->log = stream->log;
    pub->limit = ps_counter_cell(stream->cnc, stream->limit);
    image->position_cell = ps_counter_cell(stream->cnc, stream->position);
}

static void close_shared(ps_pub_t *pub, ps_img_t *image)
{
    memset(&pub->log, 0, sizeof pub->log);
    memset(&image->log, 0, sizeof image->log);
    ps_pub_close(pub);
    ps_img_close(image);
}

enum { PUBLISHERS = 4, PER_PUBLISHER = 4000 };

typedef struct publisher {
    ps_pub_t *pub;
    uint64_t number;
} publisher_t;

/* Message: {publisher, sequence}, sometimes long enough to be fragmented. */
static void *publish(void *argument)
{
    const publisher_t *self = argument;
    uint64_t words[256];
    for (uint64_t sequence = 0; sequence < PER_PUBLISHER; sequence++) {
        for (size_t i = 0; i < 256; i += 2) {
            words[i] = self->number;
            words[i + 1] = sequence;
        }
        const size_t length = sequence % 50 == 7 ? sizeof words : 16 + sequence % 3 * 16;
        int64_t code;
        do {
            int32_t accepted = 0;
            if (sequence % 5 == 1) {
                code = ps_pub_offer_strided(self->pub, (const uint8_t *)words, (int64_t)length, 1,
                                            &accepted);
            } else if (sequence % 5 == 2 && length < 1000) {
                ps_claim_t claim;
                code = ps_pub_try_claim(self->pub, length, &claim);
                if (code > 0) {
                    memcpy(claim.data, words, length);
                    CHECK_EQ(ps_pub_commit(self->pub, &claim, 0), PS_OK);
                }
            } else {
                code = ps_pub_offer(self->pub, words, length, 0);
            }
            CHECK(code > 0 || code == PS_ADMIN_ACTION || code == PS_BACK_PRESSURED);
            if (code < 0) {
                sched_yield();
            }
        } while (code < 0);
    }
    return NULL;
}

static void four_threads_share_a_publication(void)
{
    stream_t stream;
    stream_open(&stream, NULL);
    ps_img_t *image = stream_img(&stream);
    ps_pub_t *pub = stream_pub(&stream);
    share_mappings(&stream, pub, image);
    int64_t clean = 0;
    stream_turn(&stream, &clean);
    pthread_t threads[PUBLISHERS];
    publisher_t publishers[PUBLISHERS];
    for (uint64_t i = 0; i < PUBLISHERS; i++) {
        publishers[i] = (publisher_t){ pub, i };
        CHECK_EQ(pthread_create(&threads[i], NULL, publish, &publishers[i]), 0);
    }
    uint64_t next[PUBLISHERS] = { 0 };
    int64_t total = 0;
    while (total < PUBLISHERS * PER_PUBLISHER) {
        ps_message_t messages[64];
        const int32_t got = ps_img_poll(image, messages, 64, PS_POLL_ASSEMBLE);
        CHECK(got >= 0);
        for (int32_t i = 0; i < got; i++) {
            const uint8_t *data = messages[i].data;
            uint64_t head[2];
            memcpy(head, data, sizeof head);
            CHECK(head[0] < PUBLISHERS);
            CHECK_EQ(head[1], next[head[0]]); /* each publisher's messages once and in order */
            CHECK_EQ(memcmp(data, data + messages[i].length - 16, 16), 0);
            next[head[0]]++;
            total++;
        }
        stream_turn(&stream, &clean);
        if (got == 0) {
            sched_yield();
        }
    }
    for (int32_t i = 0; i < PUBLISHERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK_EQ(atomic_load(&stream.shared->publications[stream.publication_slot].published_ordinal),
             PUBLISHERS * PER_PUBLISHER);
    close_shared(pub, image);
    stream_close(&stream);
}

static void *publish_exclusive(void *argument)
{
    ps_pub_t *pub = argument;
    uint64_t words[64][4];
    uint64_t sequence = 0;
    while (sequence < 20000) {
        int32_t count = 0;
        for (; count < 64 && sequence + (uint64_t)count < 20000; count++) {
            words[count][0] = words[count][3] = sequence + (uint64_t)count;
        }
        int32_t accepted = 0;
        const int64_t code =
            ps_pub_offer_strided(pub, (const uint8_t *)words, 32, count, &accepted);
        CHECK(code > 0 || code == PS_ADMIN_ACTION || code == PS_BACK_PRESSURED);
        sequence += (uint64_t)accepted;
        if (accepted == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void one_publisher_and_a_reader(void (*adjust)(ps_log_params_t *))
{
    stream_t stream;
    stream_open(&stream, adjust);
    ps_img_t *image = stream_img(&stream);
    ps_pub_t *pub = stream_pub(&stream);
    share_mappings(&stream, pub, image);
    int64_t clean = 0;
    stream_turn(&stream, &clean);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, publish_exclusive, pub), 0);
    uint64_t next = 0;
    while (next < 20000) {
        ps_message_t messages[64];
        const int32_t got = ps_img_poll(image, messages, 64, 0);
        CHECK(got >= 0);
        for (int32_t i = 0; i < got; i++, next++) {
            uint64_t words[4];
            memcpy(words, messages[i].data, sizeof words);
            CHECK_EQ(words[0], next);
            CHECK_EQ(words[3], next);
        }
        stream_turn(&stream, &clean);
        if (got == 0) {
            sched_yield();
        }
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close_shared(pub, image);
    stream_close(&stream);
}

static void an_exclusive_publisher_and_a_reader(void)
{
    one_publisher_and_a_reader(exclusive);
    one_publisher_and_a_reader(sealed);
}

/* ---- an impatient unblocker ---------------------------------------------------------------------
 * Publishers fall asleep at the worst moments while the daemon pads over whatever blocks the
 * reader. Whatever the outcome says was accepted arrives exactly once; what was refused never
 * arrives.  The log is long enough that no memory is used twice: a writer that stays behind for a
 * whole lap is the daemon's affair. */

enum { SLEEPERS = 3, PER_SLEEPER = 3000, FIRST_BYTES = 16 };

typedef struct sleeper {
    ps_pub_t *pub;
    uint64_t number;
    uint64_t random;
    uint8_t accepted[PER_SLEEPER];
    uint8_t seen[PER_SLEEPER];
} sleeper_t;

static void doze(sleeper_t *self)
{
    self->random = self->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    for (uint64_t i = 0; i < (self->random >> 60) % 4; i++) {
        sched_yield();
    }
}

static bool sleepy_offer(sleeper_t *self, const uint64_t *words, int32_t length)
{
    const int32_t frame_length = length + PS_HEADER_BYTES;
    ps_space_t space;
    int64_t code;
    do {
        code = ps_pub_reserve(self->pub, ps_align32(frame_length), &space);
        CHECK(code == 0 || code == PS_ADMIN_ACTION);
    } while (code != 0);
    doze(self);
    if (!ps_pub_claim(self->pub, space.at, frame_length)) {
        return false;
    }
    doze(self);
    ps_pub_header(self->pub, &space, 0, 0);
    memcpy(space.at + PS_HEADER_BYTES, words, (size_t)length);
    doze(self);
    return ps_pub_settle(self->pub, space.at, frame_length, frame_length, PS_FLAG_UNFRAGMENTED,
                         PS_TYPE_DATA);
}

static void *sleep_and_publish(void *argument)
{
    sleeper_t *self = argument;
    uint64_t words[512];
    for (uint64_t sequence = 0; sequence < PER_SLEEPER; sequence++) {
        for (size_t i = 0; i < 512; i += 2) {
            words[i] = self->number;
            words[i + 1] = sequence;
        }
        if (sequence % 4 != 3) {
            self->accepted[sequence] = sleepy_offer(self, words, FIRST_BYTES);
            continue;
        }
        /* Fragments, or a run of messages of which the first counts. */
        int32_t accepted = 0;
        const int64_t code = sequence % 8 == 3
                                 ? ps_pub_offer(self->pub, words, sizeof words, 0)
                                 : ps_pub_offer_strided(self->pub, (const uint8_t *)words,
                                                        FIRST_BYTES, 1, &accepted);
        CHECK(code > 0 || code == PS_ADMIN_ACTION || code == PS_E_UNBLOCKED);
        self->accepted[sequence] = code > 0;
    }
    return NULL;
}

static void long_terms(ps_log_params_t *params)
{
    params->term_length = 16 * 1024 * 1024;
}

/* Polls, and pads over what blocks.  Returns whether there was anything to do. */
static bool read_and_unblock(stream_t *stream, ps_img_t *image, sleeper_t *sleepers,
                             int64_t *padded)
{
    ps_message_t messages[32];
    const int32_t got = ps_img_poll(image, messages, 32, PS_POLL_ASSEMBLE);
    CHECK(got >= 0);
    for (int32_t i = 0; i < got; i++) {
        uint64_t head[2];
        memcpy(head, messages[i].data, sizeof head);
        CHECK(head[0] < SLEEPERS && head[1] < PER_SLEEPER);
        CHECK_EQ(sleepers[head[0]].seen[head[1]], 0);
        sleepers[head[0]].seen[head[1]] = 1;
    }
    const int64_t position = ps_img_position(image);
    if (got > 0 || position >= ps_log_producer_position(&stream->log)) {
        return got > 0;
    }
    int32_t claimer = 0;
    *padded += ps_log_unblock(&stream->log, position, -1, &claimer);
    return true;
}

static void what_was_accepted_arrives_in_spite_of_the_unblocker(void)
{
    static sleeper_t sleepers[SLEEPERS];
    stream_t stream;
    stream_open(&stream, long_terms);
    ps_img_t *image = stream_img(&stream);
    ps_pub_t *pub = stream_pub(&stream);
    share_mappings(&stream, pub, image);
    ps_counter_set(stream.cnc, stream.limit, INT64_MAX);
    pthread_t threads[SLEEPERS];
    for (uint64_t i = 0; i < SLEEPERS; i++) {
        memset(&sleepers[i], 0, sizeof sleepers[i]);
        sleepers[i].pub = pub;
        sleepers[i].number = i;
        sleepers[i].random = i * 77 + 1;
        CHECK_EQ(pthread_create(&threads[i], NULL, sleep_and_publish, &sleepers[i]), 0);
    }
    int64_t padded = 0;
    int32_t alive = SLEEPERS;
    while (alive > 0) {
        if (!read_and_unblock(&stream, image, sleepers, &padded)) {
            sched_yield();
        }
        if (pthread_tryjoin_np(threads[alive - 1], NULL) == 0) {
            alive--;
        }
    }
    while (read_and_unblock(&stream, image, sleepers, &padded)) {
        /* what is left */
    }
    int64_t lost = 0;
    for (int32_t i = 0; i < SLEEPERS; i++) {
        for (int32_t j = 0; j < PER_SLEEPER; j++) {
            CHECK_EQ(sleepers[i].seen[j], sleepers[i].accepted[j]);
            lost += !sleepers[i].accepted[j];
        }
    }
    printf("  %lld bytes padded, %lld messages refused\n", (long long)padded, (long long)lost);
    CHECK(lost > 0);
    close_shared(pub, image);
    stream_close(&stream);
}

/* ---- credits --------------------------------------------------------------------------------- */

enum { SPENDERS = 4, SPENDS = 20000 };

typedef struct spender {
    ps_pub_t *pub;
    _Atomic uint64_t *place;
    int64_t moves; /* how often it got another place than before */
} spender_t;

static void *look_for_its_place(void *argument)
{
    spender_t *self = argument;
    self->place = ps_pub_spend_place(self->pub);
    for (int32_t i = 0; i < SPENDS; i++) {
        self->moves += ps_pub_spend_place(self->pub) != self->place;
        if (i % 64 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

/* The publication remembers the place of the latest thread, whichever that was. */
static void each_thread_keeps_a_place_of_its_own(void)
{
    spender_t spenders[SPENDERS] = { 0 };
    pthread_t threads[SPENDERS];
    stream_t stream;
    stream_open(&stream, NULL);
    ps_pub_t *pub = stream_pub(&stream);
    for (int32_t i = 0; i < SPENDERS; i++) {
        spenders[i].pub = pub;
        CHECK_EQ(pthread_create(&threads[i], NULL, look_for_its_place, &spenders[i]), 0);
    }
    for (int32_t i = 0; i < SPENDERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(spenders[i].moves, 0);
        for (int32_t j = 0; j < i; j++) {
            CHECK(spenders[i].place != spenders[j].place);
        }
    }
    ps_pub_close(pub);
    stream_close(&stream);
}

int main(void)
{
    RUN(four_threads_share_a_publication);
    RUN(an_exclusive_publisher_and_a_reader);
    RUN(what_was_accepted_arrives_in_spite_of_the_unblocker);
    RUN(each_thread_keeps_a_place_of_its_own);
    return 0;
}
