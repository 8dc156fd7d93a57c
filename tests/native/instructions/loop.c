/* SPDX-License-Identifier: Apache-2.0
 * loop.c: one thread offers, steps the sender, moves the simulated network, steps the receiver and
 * polls, again and again.  `measure.py` runs it under callgrind and counts instructions a message,
 * which no load on the machine changes.
 *
 *   loop ROW MESSAGES    ROW: one of ROWS
 *
 * Counted is what measured() does: MESSAGES messages, after a fifth of them to warm up.
 */
#define _GNU_SOURCE 1

#include "setup_image.h"
#include "stream.h"
#include "ps_simnet.h"

enum {
    TERM = 1 << 20,
    MTU = 1408,
    WINDOW = 128 * 1024,
    STREAM = 1001,
    SESSION = 0x5E55,
    FIRST_TERM = 17,
    PORT = 40123,
    OFFERS = 16,
    POLL = 64,
    CREDITS = 1024,
    TURN_NS = 20000,
    SET_UP_TURNS = 100000
};

typedef struct row {
    const char *name;
    int32_t length;
    bool ipc, exclusive;
    int64_t credits;
} row_t;

static const row_t ROWS[] = { { "udp-32", 32, false, true, 0 },
                              { "udp-1344", 1344, false, true, 0 },
                              { "shared-32", 32, false, false, 0 },
                              { "ipc-32", 32, true, true, 0 },
                              { "ipc-shared-32", 32, true, false, 0 },
                              { "udp-32-credits", 32, false, true, CREDITS },
                              { "shared-32-credits", 32, false, false, CREDITS },
                              { "ipc-32-credits", 32, true, true, CREDITS },
                              { "ipc-shared-32-credits", 32, true, false, CREDITS } };

typedef struct side {
    char directory[256];
    char path[300];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
    ps_client_t *client;
    int32_t client_slot;
} side_t;

typedef struct loop {
    row_t row;
    side_t sides[2]; /* publisher, subscriber */
    ps_simnet_t *net;
    int64_t now_ns;
    ps_pub_t *pub;
    ps_sub_t *sub;
    ps_img_t *img;
    ps_recv_endpoint_t *endpoint;
    ps_image_t *image;
    int64_t offered, received;
    uint8_t message[MTU];
} loop_t;

/* ---- set-up ---------------------------------------------------------------------------------- */

static ps_addr_t address(int32_t host, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { 10, 0, 0, (uint8_t)(host + 1) } };
}

static int32_t counter(side_t *side, int64_t value)
{
    const int32_t id = ps_counter_allocate(side->cnc, 1, NULL, 0, "loop", 4, 1, 5, 0, value, 1);
    CHECK(id >= 0);
    return id;
}

static void open_side(loop_t *loop, int32_t which)
{
    side_t *side = &loop->sides[which];
    directory_make(side->directory, sizeof side->directory);
    side->cnc = cnc_make(side->directory);
    side->shared = shared_make(side->directory);
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = ps_simnet_host_net(loop->net, which);
    params.cnc = side->cnc;
    params.shared = side->shared;
    params.threading = PS_INVOKER;
    params.seed = 1 + (uint64_t)which;
    params.receiver_id_base = 1000 + which;
    params.daemon_id = 1 + (uint64_t)which;
    params.daemon_epoch = 1;
    CHECK_EQ(ps_driver_create(&params, &side->driver), PS_OK);
    CHECK_EQ(ps_driver_start(side->driver), PS_OK);
    side->client_slot = ps_slot_allocate(side->shared, PS_SLOT_CLIENT, 5);
    const ps_client_params_t client = { .directory = side->directory,
                                        .client_id = 5,
                                        .client_slot = side->client_slot,
                                        .sender_wake_fd = -1,
                                        .receiver_wake_fd = -1,
                                        .watch_fd = -1 };
    CHECK_EQ(ps_client_open(&client, &side->client), PS_OK);
}

static ps_log_params_t log_of(const char *path, int64_t id, uint8_t type)
{
    ps_log_params_t params = log_params(path);
    params.correlation_id = id;
    params.session_id = SESSION;
    params.stream_id = STREAM;
    params.initial_term_id = FIRST_TERM;
    params.term_id = FIRST_TERM;
    params.term_length = TERM;
    params.mtu = MTU;
    params.publication_window_bytes = TERM / 2;
    params.receiver_window_bytes = WINDOW;
    params.type = type;
    return params;
}

static void read_through(loop_t *loop, side_t *side, const ps_img_params_t *params)
{
    CHECK_EQ(ps_img_open(side->client, params, &loop->img), PS_OK);
    CHECK_EQ(ps_sub_open(side->client, 1, STREAM, &loop->sub), PS_OK);
    CHECK_EQ(ps_sub_add_image(loop->sub, loop->img), PS_OK);
}

static ps_subscriber_params_t reader_of(side_t *side, int64_t credits)
{
    return (ps_subscriber_params_t){ .position_counter_id = counter(side, 0),
                                     .slot = ps_slot_allocate(side->shared, PS_SLOT_SUBSCRIBER, 1),
                                     .client_slot = side->client_slot,
                                     .tether = 1,
                                     .credits = credits,
                                     .credit_burst = credits };
}

static int32_t mode_of(const loop_t *loop)
{
    return loop->row.credits > 0 ? PS_CREDIT_AUTOMATIC : PS_CREDIT_PLAIN;
}

static ps_send_endpoint_t *open_socket(side_t *side)
{
    ps_send_endpoint_params_t params;
    ps_send_endpoint_t *endpoint = NULL;
    memset(&params, 0, sizeof params);
    params.id = 10;
    params.data.bind = address(0, PORT + 1);
    params.data.connect = address(1, PORT);
    params.status_counter_id = counter(side, 0);
    params.destinations_counter_id = -1;
    params.refused_counter_id = -1;
    CHECK_EQ(ps_send_endpoint_open(side->driver, &params, &endpoint), PS_OK);
    return endpoint;
}

static void publish(loop_t *loop)
{
    side_t *side = &loop->sides[0];
    ps_publication_t *publication = NULL;
    snprintf(side->path, sizeof side->path, "%s/out.log", side->directory);
    const ps_log_params_t log =
        log_of(side->path, 11, loop->row.exclusive ? PS_LOG_EXCLUSIVE : PS_LOG_CONCURRENT);
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_publication_params_t params;
    memset(&params, 0, sizeof params);
    params.id = 11;
    params.log_path = side->path;
    params.endpoint = loop->row.ipc ? NULL : open_socket(side);
    params.slot = ps_slot_allocate(side->shared, PS_SLOT_PUBLICATION, 11);
    params.publisher_limit_counter_id = counter(side, 0);
    params.publisher_position_counter_id = counter(side, 0);
    params.sender_position_counter_id = counter(side, 0);
    params.sender_limit_counter_id = counter(side, 0);
    params.back_pressure_counter_id = counter(side, 0);
    params.naks_counter_id = counter(side, 0);
    params.receivers_counter_id = -1;
    params.flow_control = PS_FC_UNICAST;
    params.window_bytes = TERM / 2;
    params.max_resend = 16;
    params.reserved_position = INT64_MAX;
    params.exclusive = loop->row.exclusive;
    CHECK_EQ(ps_publication_add(side->driver, &params, &publication), PS_OK);
    CHECK_EQ(ps_publication_add_client(side->driver, publication, side->client_slot), PS_OK);
    const ps_pub_params_t pub = { .log_path = side->path,
                                  .registration_id = 11,
                                  .publication_slot = params.slot,
                                  .exclusive = loop->row.exclusive,
                                  .limit_counter_id = params.publisher_limit_counter_id };
    CHECK_EQ(ps_pub_open(side->client, &pub, &loop->pub), PS_OK);
    if (loop->row.ipc) {
        const ps_subscriber_params_t reader = reader_of(side, loop->row.credits);
        CHECK_EQ(ps_publication_add_subscriber(side->driver, publication, &reader), PS_OK);
        const ps_img_params_t img = { .log_path = side->path,
                                      .correlation_id = 11,
                                      .subscription_id = 1,
                                      .position_counter_id = reader.position_counter_id,
                                      .subscriber_slot = reader.slot,
                                      .image_slot = -1,
                                      .publication_slot = params.slot,
                                      .credit_mode = mode_of(loop) };
        read_through(loop, side, &img);
    }
}

static void subscribe(loop_t *loop)
{
    side_t *side = &loop->sides[1];
    ps_addr_t local;
    ps_recv_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = 20;
    endpoint.status_counter_id = counter(side, 0);
    endpoint.receiver_id = 4711;
    CHECK_EQ(ps_recv_endpoint_open(side->driver, &endpoint, &loop->endpoint), PS_OK);
    ps_recv_destination_params_t destination;
    memset(&destination, 0, sizeof destination);
    destination.id = 21;
    destination.socket.bind = address(1, PORT);
    destination.socket.rcvbuf_bytes = 4 * WINDOW;
    CHECK_EQ(ps_recv_endpoint_add_destination(side->driver, loop->endpoint, &destination, &local),
             PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_interest(side->driver, loop->endpoint, STREAM, 0, 1), PS_OK);
}

static void make_image(loop_t *loop, const ps_event_t *event)
{
    side_t *side = &loop->sides[1];
    snprintf(side->path, sizeof side->path, "%s/in.log", side->directory);
    ps_log_params_t log = log_of(side->path, 22, PS_LOG_IMAGE);
    log.term_id = event->setup.active_term_id;
    log.term_offset = event->setup.term_offset;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_image_params_t params = setup_image_params(event, 22);
    params.log_path = side->path;
    params.endpoint = loop->endpoint;
    params.slot = ps_slot_allocate(side->shared, PS_SLOT_IMAGE, 22);
    params.high_water_counter_id = counter(side, 0);
    params.position_counter_id = counter(side, 0);
    params.naks_counter_id = counter(side, 0);
    params.window_bytes = WINDOW;
    CHECK_EQ(ps_image_add(side->driver, &params, &loop->image), PS_OK);
    const ps_subscriber_params_t reader = reader_of(side, loop->row.credits);
    CHECK_EQ(ps_image_add_subscriber(side->driver, loop->image, &reader), PS_OK);
    const ps_img_params_t img = { .log_path = side->path,
                                  .correlation_id = 22,
                                  .subscription_id = 1,
                                  .position_counter_id = reader.position_counter_id,
                                  .subscriber_slot = reader.slot,
                                  .image_slot = params.slot,
                                  .publication_slot = -1,
                                  .credit_mode = mode_of(loop) };
    read_through(loop, side, &img);
}

/* The events of both conductors. */
static void serve(loop_t *loop)
{
    ps_event_t event;
    for (int32_t which = 0; which < (loop->row.ipc ? 1 : 2); which++) {
        while (ps_driver_poll_event(loop->sides[which].driver, &event)) {
            CHECK(event.type != PS_EV_ENDPOINT_ERROR);
            if (event.type == PS_EV_SETUP && loop->image == NULL) {
                make_image(loop, &event);
            }
        }
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void offer_some(loop_t *loop, int64_t most)
{
    for (int32_t i = 0; i < OFFERS && loop->offered < most; i++) {
        int64_t position =
            ps_pub_offer(loop->pub, loop->message, (size_t)loop->row.length, loop->offered);
        if (position == PS_ADMIN_ACTION) {
            position = ps_pub_offer(loop->pub, loop->message, (size_t)loop->row.length, 0);
        }
        if (position < 0) {
            CHECK(position == PS_BACK_PRESSURED || position == PS_NOT_CONNECTED ||
                  position == PS_NO_CREDIT);
            return;
        }
        loop->offered++;
    }
}

static void poll_some(loop_t *loop)
{
    ps_message_t messages[POLL];
    const int32_t count = ps_sub_poll(loop->sub, messages, POLL, PS_POLL_ASSEMBLE);
    CHECK(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        CHECK(messages[i].length == loop->row.length);
    }
    loop->received += count;
}

static void turn(loop_t *loop, int64_t most)
{
    offer_some(loop, most);
    for (int32_t which = 0; which < (loop->row.ipc ? 1 : 2); which++) {
        (void)ps_driver_step(loop->sides[which].driver, loop->now_ns);
        (void)ps_simnet_advance(loop->net, loop->now_ns);
    }
    if (loop->sub != NULL) {
        poll_some(loop);
    }
    loop->now_ns += TURN_NS;
}

/* Callgrind collects between entry and return. */
__attribute__((noinline)) static void measured(loop_t *loop, int64_t most)
{
    while (loop->received < most) {
        turn(loop, most);
    }
    __asm__ volatile("" : : : "memory");
}

int main(int argc, char **argv)
{
    static loop_t loop;
    for (size_t i = 0; argc == 3 && i < sizeof ROWS / sizeof ROWS[0]; i++) {
        loop.row = strcmp(ROWS[i].name, argv[1]) == 0 ? ROWS[i] : loop.row;
    }
    const int64_t messages = argc == 3 ? atoll(argv[2]) : 0;
    if (loop.row.name == NULL || messages < 1) {
        fprintf(stderr, "loop: expected the name of a row, and a number of messages from 1 on\n");
        return 2;
    }
    loop.now_ns = INT64_C(1000000000);
    CHECK_EQ(ps_simnet_create(1, &loop.net), PS_OK);
    for (int32_t host = 0; host < 2; host++) {
        const ps_addr_t at = address(host, 0);
        CHECK_EQ(ps_simnet_add_host(loop.net), host);
        CHECK_EQ(ps_simnet_add_address(loop.net, host, &at), PS_OK);
        open_side(&loop, host);
    }
    subscribe(&loop);
    publish(&loop);
    const int64_t warm = messages / 5;
    for (int32_t i = 0; i < SET_UP_TURNS && loop.received < warm; i++) {
        turn(&loop, warm);
        serve(&loop);
    }
    CHECK_EQ(loop.received, warm);
    measured(&loop, warm + messages);
    ps_sub_close(loop.sub);
    ps_img_close(loop.img);
    ps_pub_close(loop.pub);
    for (int32_t which = 0; which < 2; which++) {
        ps_client_close(loop.sides[which].client);
        ps_driver_destroy(loop.sides[which].driver);
        ps_shared_close(loop.sides[which].shared);
        ps_cnc_close(loop.sides[which].cnc);
        directory_remove(loop.sides[which].directory);
    }
    ps_simnet_destroy(loop.net);
    return 0;
}
