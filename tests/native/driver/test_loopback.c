/* SPDX-License-Identifier: Apache-2.0
 * Two drivers with their own threads and directories, a publication on one and an image on the
 * other, across kernel UDP that loses and reorders.  The test plays both conductors and both
 * applications: what goes in comes out, in order, whole, once.
 */
#define _GNU_SOURCE 1

#include <poll.h>
#include <sys/eventfd.h>

#include "setup_image.h"
#include "stream.h"

enum {
    TERM = 256 * 1024,
    MTU = 1408,
    WINDOW = 64 * 1024,
    STREAM = 1001,
    SESSION = 0x5E55,
    INITIAL_TERM = 17,
    MESSAGES = 4000,
    LONGEST = 9000,
    POLL = 64,
    PATIENCE_MS = 60000
};

typedef struct node {
    char directory[256];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
    ps_client_t *client;
    int32_t client_slot;
    int sender_wake_fd; /* the client's own */
    int64_t next_id;
} node_t;

typedef struct sending {
    char path[300];
    ps_send_endpoint_t *endpoint;
    ps_publication_t *publication;
    ps_pub_t *pub;
    uint64_t hash;
    int32_t sent;
    int32_t sender_position; /* counter id */
    bool drained;
    bool eos_acked;
    int32_t released;
} sending_t;

typedef struct receiving {
    char path[300];
    ps_recv_endpoint_t *endpoint;
    ps_image_t *image;
    ps_sub_t *sub;
    ps_img_t *img;
    int32_t position; /* counter id */
    uint64_t hash;
    int32_t received;
    int32_t end; /* ps_image_end, 0: lives */
    int32_t released;
} receiving_t;

typedef struct plan {
    int32_t sender_threading;
    int32_t receiver_threading;
    int32_t idle;
    uint32_t loss_ppm;
    uint8_t exclusive;
} plan_t;

/* ---- nodes ----------------------------------------------------------------------------------- */

static void open_node(node_t *node, int32_t threading, int32_t idle, uint32_t loss_ppm,
                      uint64_t seed)
{
    memset(node, 0, sizeof *node);
    directory_make(node->directory, sizeof node->directory);
    node->cnc = cnc_make(node->directory);
    node->shared = shared_make(node->directory);
    const ps_impair_params_t impair = { .recv_loss_ppm = loss_ppm,
                                        .reorder_ppm = loss_ppm / 2,
                                        .duplicate_ppm = loss_ppm / 5,
                                        .seed = seed };
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = loss_ppm > 0 ? ps_net_impair(ps_net_udp(), &impair) : ps_net_udp();
    CHECK(params.net != NULL);
    params.cnc = node->cnc;
    params.shared = node->shared;
    params.threading = threading;
    params.idle = idle;
    params.seed = seed;
    params.receiver_id_base = (int64_t)seed + 1000;
    params.daemon_id = seed;
    params.daemon_epoch = 1;
    CHECK_EQ(ps_driver_create(&params, &node->driver), PS_OK);
    CHECK_EQ(ps_driver_start(node->driver), PS_OK);
    node->client_slot = ps_slot_allocate(node->shared, PS_SLOT_CLIENT, 5);
    CHECK(node->client_slot >= 0);
    node->sender_wake_fd = dup(ps_driver_wake_fd(node->driver, PS_AGENT_SENDER));
    const ps_client_params_t client = { .directory = node->directory,
                                        .client_id = 5,
                                        .client_slot = node->client_slot,
                                        .sender_wake_fd = node->sender_wake_fd,
                                        .receiver_wake_fd =
                                            ps_driver_wake_fd(node->driver, PS_AGENT_RECEIVER),
                                        .watch_fd = -1 };
    CHECK(client.sender_wake_fd >= 0 && client.receiver_wake_fd >= 0);
    CHECK_EQ(ps_client_open(&client, &node->client), PS_OK);
    node->next_id = 100;
}

static void close_node(node_t *node)
{
    ps_client_close(node->client);
    (void)close(node->sender_wake_fd);
    ps_driver_destroy(node->driver);
    ps_shared_close(node->shared);
    ps_cnc_close(node->cnc);
    directory_remove(node->directory);
}

static int32_t counter(node_t *node, int64_t value)
{
    const int32_t id =
        ps_counter_allocate(node->cnc, 1, NULL, 0, "test", 4, node->next_id, 5, 0, value, 1);
    CHECK(id >= 0);
    return id;
}

static ps_log_params_t log_of(const char *path, int64_t id, uint8_t type)
{
    ps_log_params_t params = log_params(path);
    params.correlation_id = id;
    params.session_id = SESSION;
    params.stream_id = STREAM;
    params.initial_term_id = INITIAL_TERM;
    params.term_id = INITIAL_TERM;
    params.term_length = TERM;
    params.mtu = MTU;
    params.publication_window_bytes = TERM / 2;
    params.receiver_window_bytes = WINDOW;
    params.signal_eos = 1;
    params.type = type;
    return params;
}

/* ---- the sending conductor ------------------------------------------------------------------- */

static void publish(node_t *node, sending_t *sending, const ps_addr_t *to, uint8_t exclusive)
{
    const int64_t id = node->next_id++;
    ps_send_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = node->next_id++;
    endpoint.data.connect = *to;
    endpoint.data.gso = 1;
    endpoint.status_counter_id = counter(node, 0);
    endpoint.destinations_counter_id = -1;
    endpoint.refused_counter_id = -1;
    CHECK_EQ(ps_send_endpoint_open(node->driver, &endpoint, &sending->endpoint), PS_OK);
    snprintf(sending->path, sizeof sending->path, "%s/out.logbuffer", node->directory);
    const ps_log_params_t log =
        log_of(sending->path, id, exclusive ? PS_LOG_EXCLUSIVE : PS_LOG_CONCURRENT);
    CHECK_EQ(ps_log_create(&log), PS_OK);
    const int32_t slot = ps_slot_allocate(node->shared, PS_SLOT_PUBLICATION, id);
    CHECK(slot >= 0);
    ps_publication_params_t params;
    memset(&params, 0, sizeof params);
    params.id = id;
    params.log_path = sending->path;
    params.endpoint = sending->endpoint;
    params.slot = slot;
    params.publisher_limit_counter_id = counter(node, 0);
    params.publisher_position_counter_id = counter(node, 0);
    params.sender_position_counter_id = sending->sender_position = counter(node, 0);
    params.sender_limit_counter_id = counter(node, 0);
    params.back_pressure_counter_id = counter(node, 0);
    params.naks_counter_id = counter(node, 0);
    params.receivers_counter_id = -1;
    params.flow_control = PS_FC_UNICAST;
    params.window_bytes = TERM / 2;
    params.max_resend = 16;
    params.reserved_position = INT64_MAX;
    params.exclusive = exclusive;
    params.signal_eos = 1;
    CHECK_EQ(ps_publication_add(node->driver, &params, &sending->publication), PS_OK);
    CHECK_EQ(ps_publication_add_client(node->driver, sending->publication, node->client_slot),
             PS_OK);
    const ps_pub_params_t pub = { .log_path = sending->path,
                                  .registration_id = id,
                                  .publication_slot = slot,
                                  .exclusive = exclusive,
                                  .limit_counter_id = params.publisher_limit_counter_id };
    CHECK_EQ(ps_pub_open(node->client, &pub, &sending->pub), PS_OK);
}

static void serve_sender(node_t *node, sending_t *sending)
{
    ps_event_t event;
    while (ps_driver_poll_event(node->driver, &event)) {
        sending->drained = sending->drained || event.type == PS_EV_PUB_DRAINED;
        sending->eos_acked = sending->eos_acked || event.type == PS_EV_PUB_EOS_ACK;
        sending->released += event.type == PS_EV_RELEASED;
        CHECK(event.type != PS_EV_ENDPOINT_ERROR && event.type != PS_EV_REMOTE_ERROR);
    }
}

/* ---- the receiving conductor ----------------------------------------------------------------- */

static void subscribe(node_t *node, receiving_t *receiving, ps_addr_t *local)
{
    ps_recv_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = node->next_id++;
    endpoint.status_counter_id = counter(node, 0);
    endpoint.receiver_id = 4711;
    CHECK_EQ(ps_recv_endpoint_open(node->driver, &endpoint, &receiving->endpoint), PS_OK);
    ps_recv_destination_params_t destination;
    memset(&destination, 0, sizeof destination);
    destination.id = node->next_id++;
    destination.socket.bind = (ps_addr_t){ .family = 4, .ip = { 127, 0, 0, 1 } };
    destination.socket.gro = 1;
    destination.socket.rcvbuf_bytes = 256 * 1024;
    CHECK_EQ(
        ps_recv_endpoint_add_destination(node->driver, receiving->endpoint, &destination, local),
        PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_interest(node->driver, receiving->endpoint, STREAM, 0, 1), PS_OK);
    CHECK_EQ(ps_sub_open(node->client, 1, STREAM, &receiving->sub), PS_OK);
}

static void make_image(node_t *node, receiving_t *receiving, const ps_event_t *event)
{
    CHECK(receiving->image == NULL);
    CHECK(event->session_id == SESSION && event->stream_id == STREAM &&
          event->setup.term_length == TERM);
    CHECK(event->setup.mtu == MTU && (event->setup.peer_capabilities & 1) != 0);
    const int64_t id = node->next_id++;
    snprintf(receiving->path, sizeof receiving->path, "%s/in.logbuffer", node->directory);
    ps_log_params_t log = log_of(receiving->path, id, PS_LOG_IMAGE);
    log.term_id = event->setup.active_term_id;
    log.term_offset = event->setup.term_offset;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_image_params_t params = setup_image_params(event, id);
    params.log_path = receiving->path;
    params.endpoint = receiving->endpoint;
    params.slot = ps_slot_allocate(node->shared, PS_SLOT_IMAGE, id);
    params.high_water_counter_id = counter(node, 0);
    params.position_counter_id = counter(node, 0);
    params.naks_counter_id = counter(node, 0);
    params.window_bytes = WINDOW;
    CHECK(params.slot >= 0);
    CHECK_EQ(ps_image_add(node->driver, &params, &receiving->image), PS_OK);
    receiving->position = counter(node, 0);
    const ps_subscriber_params_t subscriber = { .position_counter_id = receiving->position,
                                                .slot = ps_slot_allocate(node->shared,
                                                                         PS_SLOT_SUBSCRIBER, 1),
                                                .client_slot = node->client_slot,
                                                .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(node->driver, receiving->image, &subscriber), PS_OK);
    const ps_img_params_t img = { .log_path = receiving->path,
                                  .correlation_id = id,
                                  .subscription_id = 1,
                                  .position_counter_id = receiving->position,
                                  .subscriber_slot = subscriber.slot,
                                  .image_slot = params.slot,
                                  .publication_slot = -1 };
    CHECK_EQ(ps_img_open(node->client, &img, &receiving->img), PS_OK);
    CHECK_EQ(ps_sub_add_image(receiving->sub, receiving->img), PS_OK);
}

static void serve_receiver(node_t *node, receiving_t *receiving)
{
    ps_event_t event;
    while (ps_driver_poll_event(node->driver, &event)) {
        if (event.type == PS_EV_SETUP && receiving->image == NULL) {
            make_image(node, receiving, &event);
        }
        if (event.type == PS_EV_IMAGE_INACTIVE) {
            receiving->end = event.ended.reason;
        }
        receiving->released += event.type == PS_EV_RELEASED;
        CHECK(event.type != PS_EV_ENDPOINT_ERROR);
    }
}

/* ---- applications ---------------------------------------------------------------------------- */

/* Message `number`: mixed sizes, some empty, some in several fragments. */
static size_t message_of(int32_t number, uint8_t *out)
{
    ps_random_t random;
    ps_random_seed(&random, (uint64_t)number + 1);
    const size_t length =
        number % 50 == 0 ? ps_random_below(&random, LONGEST) : ps_random_below(&random, 600);
    for (size_t i = 0; i < length; i++) {
        out[i] = (uint8_t)(i * 31 + (size_t)number);
    }
    return length;
}

static uint64_t mix(uint64_t hash, const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    }
    return hash * 31 + length;
}

static int offer_some(sending_t *sending)
{
    static uint8_t message[LONGEST];
    int count = 0;
    while (sending->sent < MESSAGES && count < 100) {
        const size_t length = message_of(sending->sent, message);
        const int64_t result = ps_pub_offer(sending->pub, message, length, sending->sent);
        if (result == PS_ADMIN_ACTION) {
            continue;
        }
        if (result < 0) {
            CHECK(result == PS_BACK_PRESSURED || result == PS_NOT_CONNECTED);
            ps_pub_want_room(sending->pub);
            break;
        }
        sending->hash = mix(sending->hash, message, length);
        sending->sent++;
        count++;
    }
    return count;
}

static int poll_some(receiving_t *receiving)
{
    static ps_message_t messages[POLL];
    const int32_t count = ps_sub_poll(receiving->sub, messages, POLL, PS_POLL_ASSEMBLE);
    CHECK(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        const ps_message_t *message = &messages[i];
        CHECK_EQ(message->reserved_value, receiving->received);
        receiving->hash = mix(receiving->hash, message->data, (size_t)message->length);
        receiving->received++;
    }
    return count;
}

/* Until either driver has an event, or a moment has passed: no busy loop on two CPUs. */
static void wait_a_moment(const node_t *a, const node_t *b)
{
    struct pollfd ready[2] = { { .fd = ps_driver_event_fd(a->driver), .events = POLLIN },
                               { .fd = ps_driver_event_fd(b->driver), .events = POLLIN } };
    (void)poll(ready, 2, 1);
    for (int i = 0; i < 2; i++) {
        uint64_t value;
        (void)!read(ready[i].fd, &value, sizeof value);
    }
}

static int64_t deadline_ns(void)
{
    return ps_monotonic_ns() + PATIENCE_MS * INT64_C(1000000);
}

static void transfer(node_t *from, sending_t *sending, node_t *to, receiving_t *receiving)
{
    const int64_t give_up_ns = deadline_ns();
    while (receiving->received < MESSAGES) {
        CHECK(ps_monotonic_ns() < give_up_ns);
        serve_sender(from, sending);
        serve_receiver(to, receiving);
        int work = offer_some(sending);
        work += poll_some(receiving);
        if (work == 0) {
            wait_a_moment(from, to);
        }
    }
    CHECK(sending->sent == MESSAGES && sending->hash == receiving->hash);
}

/* Publisher leaves; the image ends where the stream ends; objects come back and are destroyed. */
static void finish(node_t *from, sending_t *sending, node_t *to, receiving_t *receiving)
{
    const int64_t give_up_ns = deadline_ns();
    const int64_t end = ps_pub_position(sending->pub);
    ps_pub_close(sending->pub);
    CHECK_EQ(ps_publication_drain(from->driver, sending->publication), PS_OK);
    while (!sending->drained || !ps_img_is_end_of_stream(receiving->img)) {
        CHECK(ps_monotonic_ns() < give_up_ns);
        serve_sender(from, sending);
        serve_receiver(to, receiving);
        CHECK_EQ(poll_some(receiving), 0);
        wait_a_moment(from, to);
    }
    CHECK_EQ(ps_img_end_of_stream_position(receiving->img), end);
    CHECK_EQ(ps_img_position(receiving->img), end);
    CHECK_EQ(ps_sub_remove_image(receiving->sub, receiving->img), PS_OK);
    ps_img_close(receiving->img);
    ps_sub_close(receiving->sub);
    CHECK_EQ(ps_image_remove_subscriber(to->driver, receiving->image, receiving->position), PS_OK);
    CHECK_EQ(ps_image_remove(to->driver, receiving->image, 0), PS_OK);
    CHECK_EQ(ps_publication_remove(from->driver, sending->publication), PS_OK);
    while (sending->released < 1 || receiving->released < 1) {
        CHECK(ps_monotonic_ns() < give_up_ns);
        serve_sender(from, sending);
        serve_receiver(to, receiving);
        wait_a_moment(from, to);
    }
    ps_image_destroy(to->driver, receiving->image);
    ps_publication_destroy(from->driver, sending->publication);
    /* the endpoints stay: the drivers free what is left */
}

static void run_plan(const plan_t *plan)
{
    node_t from, to;
    static sending_t sending;
    static receiving_t receiving;
    memset(&sending, 0, sizeof sending);
    memset(&receiving, 0, sizeof receiving);
    open_node(&from, plan->sender_threading, plan->idle, plan->loss_ppm, 21);
    open_node(&to, plan->receiver_threading, plan->idle, plan->loss_ppm, 22);
    ps_addr_t local;
    subscribe(&to, &receiving, &local);
    publish(&from, &sending, &local, plan->exclusive);
    transfer(&from, &sending, &to, &receiving);
    finish(&from, &sending, &to, &receiving);
    CHECK(ps_counter_get(to.cnc, PS_SYS_INVALID_PACKETS) == 0);
    CHECK(ps_counter_get(from.cnc, PS_SYS_INVALID_PACKETS) == 0);
    CHECK(plan->loss_ppm == 0 || ps_counter_get(from.cnc, PS_SYS_RETRANSMITS_SENT) > 0);
    CHECK(ps_driver_duty_cycles(to.driver, PS_AGENT_RECEIVER) > 0);
    close_node(&from);
    close_node(&to);
}

static void two_threads_each_clean(void)
{
    const plan_t plan = { PS_DEDICATED, PS_DEDICATED, PS_IDLE_PARK, 0, 0 };
    run_plan(&plan);
}

static void two_threads_each_lossy(void)
{
    const plan_t plan = { PS_DEDICATED, PS_DEDICATED, PS_IDLE_PARK, 50000, 0 };
    run_plan(&plan);
}

static void one_thread_each_lossy(void)
{
    const plan_t plan = { PS_SHARED, PS_SHARED, PS_IDLE_PARK, 50000, 1 };
    run_plan(&plan);
}

static void backing_off_lossy(void)
{
    const plan_t plan = { PS_SHARED, PS_DEDICATED, PS_IDLE_BACKOFF, 50000, 0 };
    run_plan(&plan);
}

static bool sender_is_parked(const node_t *node)
{
    return atomic_load_explicit(&node->shared->driver->sender_parked, memory_order_seq_cst) == 1;
}

/* The sender sleeps and is not woken: a stop alone makes it send what was accepted. */
static void a_stop_sends_what_was_accepted(void)
{
    node_t from, to;
    static sending_t sending;
    static receiving_t receiving;
    memset(&sending, 0, sizeof sending);
    memset(&receiving, 0, sizeof receiving);
    open_node(&from, PS_SHARED, PS_IDLE_PARK, 0, 21);
    open_node(&to, PS_SHARED, PS_IDLE_PARK, 0, 22);
    ps_addr_t local;
    subscribe(&to, &receiving, &local);
    publish(&from, &sending, &local, 0);
    transfer(&from, &sending, &to, &receiving);
    const int silent = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(dup2(silent, from.sender_wake_fd) >= 0);
    (void)close(silent);
    const int64_t give_up_ns = deadline_ns();
    while (!sender_is_parked(&from)) {
        CHECK(ps_monotonic_ns() < give_up_ns);
        wait_a_moment(&from, &to);
    }
    const uint8_t message[64] = { 0 };
    for (int i = 0; i < 8; i++) {
        CHECK(ps_pub_offer(sending.pub, message, sizeof message, 0) > 0);
    }
    ps_driver_stop(from.driver);
    CHECK_EQ(ps_counter_get(from.cnc, sending.sender_position), ps_pub_position(sending.pub));
    ps_pub_close(sending.pub);
    ps_img_close(receiving.img);
    ps_sub_close(receiving.sub);
    close_node(&from);
    close_node(&to);
}

/* A driver that nobody uses sleeps: duty cycles come from timers only. */
static void an_idle_driver_sleeps(void)
{
    node_t node;
    open_node(&node, PS_SHARED, PS_IDLE_PARK, 0, 5);
    const int64_t until_ns = ps_monotonic_ns() + 300000000;
    struct pollfd nothing = { .fd = ps_driver_event_fd(node.driver), .events = POLLIN };
    const uint64_t before = ps_driver_duty_cycles(node.driver, PS_AGENT_SENDER);
    while (ps_monotonic_ns() < until_ns) {
        (void)poll(&nothing, 1, 50);
    }
    CHECK(ps_driver_duty_cycles(node.driver, PS_AGENT_SENDER) - before < 50);
    close_node(&node);
}

int main(void)
{
    RUN(two_threads_each_clean);
    RUN(two_threads_each_lossy);
    RUN(one_thread_each_lossy);
    RUN(backing_off_lossy);
    RUN(a_stop_sends_what_was_accepted);
    RUN(an_idle_driver_sleeps);
    return 0;
}
