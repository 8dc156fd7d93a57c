/* SPDX-License-Identifier: Apache-2.0
 *
 * test_img_outrun.c: the writer overtakes an isolated reader again while the reader searches the
 * place at which it continues. Each gap still states the number of its messages. The search is
 * compiled here with two places at which the test lets the writer work: before the search reads a
 * frame, and after it has read entries of the index ring. */
#include "stream.h"

static void before_a_frame_is_read(void);
static void after_entries_were_read(void);

static inline int32_t length_with_hook(const ps_frame_t *frame)
{
    before_a_frame_is_read();
    return ps_frame_length_acquire(frame);
}

#define ps_frame_length_acquire(frame) length_with_hook(frame)
#undef atomic_thread_fence
#define atomic_thread_fence(order)                                                                 \
    do {                                                                                           \
        after_entries_were_read();                                                                 \
        __atomic_thread_fence(__ATOMIC_SEQ_CST);                                                   \
    } while (0)
#include "ps_client_image_isolated.c"
#undef ps_frame_length_acquire
#undef atomic_thread_fence

enum { PAYLOAD = 20, FRAME = 64, TERM = PS_TERM_MIN, WARM = 8, ENTRY = 4 * FRAME };

typedef struct world {
    ps_pub_t *pub;
    stream_t stream;
    ps_img_t *image;
    int64_t published; /* messages */
    int64_t cleared;   /* memory below is in use for other messages */
    int64_t next;      /* message that the reader gets next */
    int64_t gaps;
    int64_t at_frames, at_entries; /* messages that the writer publishes there */
    int64_t times;                 /* that the writer still works */
} world_t;

static world_t *world; /* NULL: the writer does nothing */

/* ---- the writer ------------------------------------------------------------------------------ */

/* As the sender does: it states the newest position and the mark, then memory is used again, and
 * the index gets an entry. */
static void publish(world_t *its, int64_t messages)
{
    ps_subscriber_slot_t *slot = &its->stream.shared->subscribers[its->stream.subscriber_slot];
    ps_index_ring_t *ring =
        &its->stream.shared->publication_histories[its->stream.publication_slot].ring;
    for (int64_t i = 0; i < messages; i++) {
        uint8_t body[PAYLOAD] = { 0 };
        memcpy(body, &its->published, sizeof its->published);
        ps_counter_set(its->stream.cnc, its->stream.limit, (its->published + 2) * FRAME);
        int64_t code = ps_pub_offer(its->pub, body, PAYLOAD, 0);
        code = code == PS_ADMIN_ACTION ? ps_pub_offer(its->pub, body, PAYLOAD, 0) : code;
        CHECK_EQ(code, (its->published + 1) * FRAME);
        const int64_t newest = ++its->published * FRAME;
        const int64_t mark = newest - TERM;
        atomic_store(&slot->skip_to, newest);
        if (mark > its->cleared) {
            atomic_store(&slot->overwritten, mark);
            for (; its->cleared < mark; its->cleared += FRAME) {
                atomic_store(ps_frame_word(ps_frame_at(&its->stream.log, its->cleared)), 0);
            }
        }
        if (newest % ENTRY == 0) {
            ps_index_append(ring, newest, its->published, 0);
        }
    }
}

static void work(int64_t messages)
{
    if (world != NULL && messages > 0 && world->times > 0) {
        world_t *its = world;
        world = NULL; /* the writer's own reads are not hooks */
        its->times--;
        publish(its, messages);
        world = its;
    }
}

static void before_a_frame_is_read(void)
{
    work(world != NULL ? world->at_frames : 0);
}

static void after_entries_were_read(void)
{
    work(world != NULL ? world->at_entries : 0);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static void poll_once(world_t *its)
{
    ps_message_t messages[16];
    int64_t from, to, missed;
    const int32_t got = ps_img_poll(its->image, messages, 16, PS_POLL_ASSEMBLE);
    for (int32_t i = 0; i < got; i++, its->next++) {
        int64_t index;
        memcpy(&index, messages[i].data, sizeof index);
        CHECK_EQ(index, its->next);
    }
    if (got == PS_E_GAP) {
        CHECK_EQ(ps_img_take_gap(its->image, &from, &to, &missed), 1);
        CHECK_EQ(missed, (to - from) / FRAME);
        its->next += missed;
        its->gaps++;
    } else {
        CHECK(got >= 0);
    }
}

/* The reader has read some messages, and is then outrun by several terms. */
static void begin(world_t *its)
{
    *its = (world_t){ 0 };
    stream_open(&its->stream, NULL);
    const ps_img_params_t params = stream_img_params(&its->stream, PS_READER_INDEPENDENT);
    its->pub = stream_pub(&its->stream);
    CHECK_EQ(ps_img_open(its->stream.client, &params, &its->image), PS_OK);
    ps_img_report_gaps(its->image);
    publish(its, WARM);
    while (its->next < WARM) {
        poll_once(its);
    }
    publish(its, 5 * TERM / FRAME);
}

/* The reader gets the rest, and misses at most the most messages that it may. */
static void end(world_t *its, int64_t missed_most)
{
    world = its;
    poll_once(its);
    world = NULL;
    CHECK_EQ(its->gaps, 1);
    CHECK(its->next <= its->published - TERM / FRAME + missed_most);
    while (its->next < its->published) {
        poll_once(its);
    }
    CHECK_EQ(its->next, its->published);
    ps_img_close(its->image);
    ps_pub_close(its->pub);
    stream_close(&its->stream);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_memory_is_released_before_the_search_reads_it(void)
{
    for (int64_t messages = 1; messages <= 3 * TERM / FRAME; messages += 97) {
        world_t its;
        begin(&its);
        its.at_frames = messages;
        its.times = 2;
        end(&its, 8);
    }
}

static void test_memory_is_released_whenever_the_search_reads_it(void)
{
    world_t its;
    begin(&its);
    its.at_frames = 4 * ENTRY / FRAME;
    its.times = INT64_MAX;
    end(&its, TERM / FRAME / 8);
}

static void test_entries_are_replaced_whenever_the_search_has_read_them(void)
{
    world_t its;
    begin(&its);
    its.at_entries = ENTRY / FRAME;
    its.times = INT64_MAX;
    end(&its, TERM / FRAME / 4);
}

int main(void)
{
    RUN(test_memory_is_released_before_the_search_reads_it);
    RUN(test_memory_is_released_whenever_the_search_reads_it);
    RUN(test_entries_are_replaced_whenever_the_search_has_read_them);
    return 0;
}
