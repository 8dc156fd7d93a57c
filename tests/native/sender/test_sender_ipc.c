/* SPDX-License-Identifier: Apache-2.0
 * Publisher, sender and subscriber as threads that sleep whenever they can, on one host's log.  A
 * wake-up that gets lost, a frame overwritten too early or a position believed too late would show:
 * every wait ends by being woken, never by its time.
 */
#include <pthread.h>
#include <sched.h>

#include "ps_frame.h"
#include "ps_publication.h"
#include "stream.h"

enum { MESSAGES = 60000, SIZE = 100, POLL = 32 };
#define PATIENCE_NS INT64_C(60000000000)

typedef struct host {
    char directory[256];
    char path[300];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
    ps_publication_t *publication;
    ps_client_t *publisher, *subscriber;
    ps_pub_t *pub;
    ps_sub_t *sub;
    ps_img_t *img;
    int32_t slots[2];
    int32_t slot; /* of the publication */
    int32_t exclusive;
    int32_t term;
    const int32_t *bursts;    /* lengths, 0 ends; all is read before the next.  NULL: one */
    int32_t burst, burst_end; /* the publisher's: the next length, where this burst ends */
    _Atomic int32_t received;
} host_t;

static int32_t counter(host_t *host)
{
    const int32_t id = ps_counter_allocate(host->cnc, 1, NULL, 0, "test", 4, 1, 1, 1, 0, 1);
    CHECK(id >= 0);
    return id;
}

static ps_client_t *open_client(host_t *host, int32_t index)
{
    ps_client_t *client = NULL;
    host->slots[index] = ps_slot_allocate(host->shared, PS_SLOT_CLIENT, 100 + index);
    CHECK(host->slots[index] >= 0);
    const ps_client_params_t params = { host->directory,
                                        100 + index,
                                        host->slots[index],
                                        ps_driver_wake_fd(host->driver, PS_AGENT_SENDER),
                                        ps_driver_wake_fd(host->driver, PS_AGENT_RECEIVER),
                                        -1 };
    CHECK_EQ(ps_client_open(&params, &client), PS_OK);
    return client;
}

static void open_host(host_t *host, int32_t exclusive, int32_t term, const int32_t *bursts)
{
    memset(host, 0, sizeof(*host));
    host->exclusive = exclusive;
    host->term = term;
    host->bursts = bursts;
    directory_make(host->directory, sizeof(host->directory));
    host->cnc = cnc_make(host->directory);
    host->shared = shared_make(host->directory);
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = ps_net_udp();
    params.cnc = host->cnc;
    params.shared = host->shared;
    params.threading = PS_DEDICATED;
    params.idle = PS_IDLE_PARK;
    params.seed = 3;
    params.receiver_id_base = 3;
    CHECK_EQ(ps_driver_create(&params, &host->driver), PS_OK);
    CHECK_EQ(ps_driver_start(host->driver), PS_OK);
    host->publisher = open_client(host, 0);
    host->subscriber = open_client(host, 1);
}

static void open_stream(host_t *host)
{
    snprintf(host->path, sizeof(host->path), "%s/1.logbuffer", host->directory);
    ps_log_params_t log = log_params(host->path);
    log.type = host->exclusive ? PS_LOG_EXCLUSIVE : PS_LOG_CONCURRENT;
    log.term_length = host->term;
    log.publication_window_bytes = host->term / 2;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    host->slot = ps_slot_allocate(host->shared, PS_SLOT_PUBLICATION, 11);
    const ps_publication_params_t params = { .id = 11,
                                             .log_path = host->path,
                                             .slot = host->slot,
                                             .publisher_limit_counter_id = counter(host),
                                             .publisher_position_counter_id = counter(host),
                                             .sender_position_counter_id = -1,
                                             .sender_limit_counter_id = -1,
                                             .back_pressure_counter_id = -1,
                                             .naks_counter_id = -1,
                                             .receivers_counter_id = -1,
                                             .window_bytes = host->term / 4,
                                             .reserved_position = INT64_MAX,
                                             .exclusive = (uint8_t)host->exclusive };
    CHECK_EQ(ps_publication_add(host->driver, &params, &host->publication), PS_OK);
    CHECK_EQ(ps_publication_add_client(host->driver, host->publication, host->slots[0]), PS_OK);
    const ps_pub_params_t pub = { .log_path = host->path,
                                  .registration_id = 11,
                                  .publication_slot = host->slot,
                                  .limit_counter_id = params.publisher_limit_counter_id,
                                  .exclusive = (uint8_t)host->exclusive };
    CHECK_EQ(ps_pub_open(host->publisher, &pub, &host->pub), PS_OK);
    const ps_subscriber_params_t subscriber = { .position_counter_id = counter(host),
                                                .slot = ps_slot_allocate(host->shared,
                                                                         PS_SLOT_SUBSCRIBER, 12),
                                                .client_slot = host->slots[1],
                                                .tether = 1 };
    CHECK_EQ(ps_publication_add_subscriber(host->driver, host->publication, &subscriber), PS_OK);
    const ps_img_params_t img = { .log_path = host->path,
                                  .correlation_id = 11,
                                  .subscription_id = 12,
                                  .position_counter_id = subscriber.position_counter_id,
                                  .subscriber_slot = subscriber.slot,
                                  .image_slot = -1,
                                  .publication_slot = host->slot };
    CHECK_EQ(ps_img_open(host->subscriber, &img, &host->img), PS_OK);
    CHECK_EQ(ps_sub_open(host->subscriber, 12, log.stream_id, &host->sub), PS_OK);
    CHECK_EQ(ps_sub_add_image(host->sub, host->img), PS_OK);
}

static void close_host(host_t *host)
{
    ps_sub_close(host->sub);
    ps_img_close(host->img);
    ps_pub_close(host->pub);
    ps_client_close(host->publisher);
    ps_client_close(host->subscriber);
    ps_driver_destroy(host->driver);
    ps_shared_close(host->shared);
    ps_cnc_close(host->cnc);
    directory_remove(host->directory);
}

/* Long bursts make a stream hot; after each it cools, while the reader goes to sleep: whatever is
 * missed then stays missed, for nothing is published that could make up for it. */
static const int32_t mixed[] = { 700, 1, 90, 3, 1500, 2, 40, 0 };
/* The same where it is padding that the reader comes to first: what lies behind a term's end was
 * announced before the reader took its ticket, and no other word of it follows. */
enum { IN_A_TERM = PS_TERM_MIN / ((SIZE + PS_HEADER_BYTES + 31) / 32 * 32) };
static const int32_t at_term_ends[] = { 1, IN_A_TERM - 1, 0 };

static void end_burst(host_t *host, int32_t number)
{
    if (host->bursts == NULL || number < host->burst_end) {
        return;
    }
    while (atomic_load(&host->received) < number) {
        (void)sched_yield();
    }
    host->burst = host->bursts[host->burst] == 0 ? 0 : host->burst;
    host->burst_end = number + host->bursts[host->burst++];
}

/* What a wait that ended by its time had before it. */
static void explain(const host_t *host, const char *who)
{
    ps_publication_slot_t *slot = &host->shared->publications[host->slot];
    const ps_log_t *log = &host->publication->log;
    const int64_t delivered = ps_img_position(host->img);
    fprintf(stderr,
            "%s waited in vain: %s, received %d\n"
            "tail %lld, limit %lld, delivered %lld, released %lld, frame length there %d\n"
            "dirty %u, its bit %d, sender parked %u, want_room %u, wake_position %lld\n",
            who, host->exclusive ? "exclusive" : "shared", atomic_load(&host->received),
            (long long)ps_log_producer_position(log), (long long)ps_pub_limit(host->pub),
            (long long)delivered, (long long)ps_img_released(host->img),
            ps_frame_length_acquire(ps_frame_at(log, delivered)), atomic_load(&slot->dirty),
            (int)(atomic_load(&host->shared->dirty[host->slot / 64]) >> (host->slot % 64) & 1),
            atomic_load(&host->shared->driver->sender_parked), atomic_load(&slot->want_room),
            (long long)atomic_load(&slot->wake_position));
    for (int32_t i = 0; i < 2; i++) {
        const ps_client_slot_t *client = &host->shared->clients[host->slots[i]];
        fprintf(stderr, "%s: futex word %u, waiting %llx\n", i == 0 ? "publisher" : "subscriber",
                atomic_load(&client->futex_word),
                (unsigned long long)atomic_load(&client->waiting));
    }
}

static void sleep_until_woken(const host_t *host, ps_client_t *client, uint32_t ticket)
{
    const int result = ps_client_sleep(client, ticket, PATIENCE_NS);
    if (result != PS_OK) {
        explain(host, client == host->publisher ? "the publisher" : "the subscriber");
    }
    CHECK_EQ(result, PS_OK);
}

static void *publish_all(void *context)
{
    host_t *host = context;
    uint8_t message[SIZE] = { 0 };
    for (int32_t number = 0; number < MESSAGES;) {
        memcpy(message, &number, sizeof(number));
        end_burst(host, number);
        const uint32_t ticket = ps_client_ticket(host->publisher);
        int64_t result = ps_pub_offer(host->pub, message, SIZE, number);
        if (result == PS_BACK_PRESSURED || result == PS_NOT_CONNECTED) {
            ps_pub_want_room(host->pub);
            result = ps_pub_offer(host->pub, message, SIZE, number);
            if (result == PS_BACK_PRESSURED || result == PS_NOT_CONNECTED) {
                sleep_until_woken(host, host->publisher, ticket);
            }
        }
        CHECK(result > 0 || result == PS_ADMIN_ACTION || result == PS_BACK_PRESSURED ||
              result == PS_NOT_CONNECTED);
        number += result > 0;
    }
    return NULL;
}

static void receive_all(host_t *host)
{
    ps_message_t messages[POLL];
    for (int32_t number = 0; number < MESSAGES;) {
        const uint32_t ticket = ps_client_ticket(host->subscriber);
        const int32_t count = ps_sub_poll(host->sub, messages, POLL, PS_POLL_ASSEMBLE);
        CHECK(count >= 0);
        for (int32_t i = 0; i < count; i++, number++) {
            int32_t got;
            CHECK_EQ(messages[i].length, SIZE);
            memcpy(&got, messages[i].data, sizeof(got));
            CHECK_EQ(got, number);
            CHECK_EQ(messages[i].reserved_value, number);
        }
        atomic_store(&host->received, number);
        if (count == 0) {
            ps_sub_release(host->sub);
            sleep_until_woken(host, host->subscriber, ticket);
        }
    }
}

static void run(int32_t exclusive, int32_t term, const int32_t *bursts)
{
    host_t host;
    pthread_t thread;
    open_host(&host, exclusive, term, bursts);
    open_stream(&host);
    CHECK_EQ(pthread_create(&thread, NULL, publish_all, &host), 0);
    receive_all(&host);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    close_host(&host);
}

/* A window that is wide enough for the sender to nap beside the stream. */
enum { NAP_TERM = 4 * 1024 * 1024 };

static void test_shared_publication(void)
{
    run(0, PS_TERM_MIN, NULL);
    run(0, PS_TERM_MIN, mixed);
    run(0, PS_TERM_MIN, at_term_ends);
    run(0, NAP_TERM, NULL);
    run(0, NAP_TERM, mixed);
}

static void test_exclusive_publication(void)
{
    run(1, PS_TERM_MIN, NULL);
    run(1, PS_TERM_MIN, mixed);
    run(1, PS_TERM_MIN, at_term_ends);
    run(1, NAP_TERM, NULL);
    run(1, NAP_TERM, mixed);
}

int main(void)
{
    RUN(test_shared_publication);
    RUN(test_exclusive_publication);
    return 0;
}
