/* SPDX-License-Identifier: Apache-2.0
 * streams.c: many open streams between two simulated hosts, of which a few carry messages.
 * `measure_streams.py` runs it under callgrind and counts the instructions that one host's daemon
 * needs for a message.
 *
 *   streams HOST OPEN MILLISECONDS    HOST: sender or receiver
 *
 * The busy streams carry 200,000 messages a second, as in `penstock bench streams`. Counted are the
 * steps of the host, in MILLISECONDS of virtual time, after all streams have been idle or busy for
 * some seconds. */
#define _GNU_SOURCE 1

#include "setup_image.h"
#include "stream.h"
#include "ps_priority.h"
#include "ps_simnet.h"

enum {
    TERM = 64 * 1024,
    MTU = 1408,
    WINDOW = TERM / 2,
    BUSY = 10,
    OPEN_MOST = 20000,
    SLOTS_LEAST = 4096, /* as in the configuration of a daemon */
    BURST = 10,         /* messages of one stream */
    LENGTH = 32,
    STREAM = 1001,
    SESSION = 0x5E55,
    FIRST_TERM = 17,
    PORT = 40123,
    POLL = 64,
    BUFFER = 4 * 1024 * 1024,
    SETTLE_MS = 3000,
    SET_UP_MS = 60000,
    TURNS_PER_MS = 20
};
#define MS_NS INT64_C(1000000)

typedef struct side {
    char directory[256];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
    ps_client_t *client;
    int32_t client_slot;
} side_t;

typedef struct world {
    side_t sides[2]; /* publisher, subscriber */
    ps_simnet_t *net;
    int64_t now_ns;
    int32_t open, images;
    int32_t counted; /* the side whose steps are counted; -1: none yet */
    ps_send_endpoint_t *out;
    ps_recv_endpoint_t *in;
    ps_pub_t *pubs[BUSY];
    ps_sub_t *subs[BUSY];
    ps_img_t *imgs[BUSY];
    int64_t offered[BUSY], received[BUSY];
    uint8_t message[LENGTH];
} world_t;

static ps_addr_t address(int32_t host, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { 10, 0, 0, (uint8_t)(host + 1) } };
}

static int32_t counter(side_t *side)
{
    const int32_t id = ps_counter_allocate(side->cnc, 1, NULL, 0, "streams", 7, 1, 5, 0, 0, 1);
    CHECK(id >= 0);
    return id;
}

static ps_cnc_t *counters_of(const side_t *side, int32_t open)
{
    const ps_cnc_params_t params = { .directory = side->directory,
                                     .client_liveness_timeout_ns = INT64_C(10000000000),
                                     .start_ms = 1000000,
                                     .pid = 42,
                                     .counter_values_bytes = 128 * (2 * (open / 64 + 4) * 64),
                                     .error_log_bytes = 4096,
                                     .file_mode = 0600,
                                     .software_version = 256 };
    ps_cnc_t *cnc = NULL;
    CHECK_EQ(ps_cnc_create(&params, &cnc), PS_OK);
    return cnc;
}

static ps_shared_t *slots_of(const side_t *side, int32_t open)
{
    const int32_t room = open < SLOTS_LEAST ? SLOTS_LEAST : (open / 64 + 2) * 64;
    const ps_shared_params_t params = { .directory = side->directory,
                                        .clients = 4,
                                        .publications = room,
                                        .images = room,
                                        .subscribers = room,
                                        .groups = 2,
                                        .file_mode = 0600,
                                        .daemon_id = 7,
                                        .daemon_epoch = 3,
                                        .receiver_id_base = 99,
                                        .pid = 42,
                                        .start_ms = 1000000 };
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    return shared;
}

static void open_side(world_t *world, int32_t which)
{
    side_t *side = &world->sides[which];
    directory_make(side->directory, sizeof side->directory);
    side->cnc = counters_of(side, world->open);
    side->shared = slots_of(side, world->open);
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = ps_simnet_host_net(world->net, which);
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
    const ps_client_params_t client = { side->directory, 5, side->client_slot, -1, -1, -1 };
    CHECK_EQ(ps_client_open(&client, &side->client), PS_OK);
}

static ps_log_params_t log_of(const char *path, int64_t id, int32_t stream_id, uint8_t type)
{
    ps_log_params_t params = log_params(path);
    params.correlation_id = id;
    params.session_id = SESSION;
    params.stream_id = stream_id;
    params.initial_term_id = FIRST_TERM;
    params.term_id = FIRST_TERM;
    params.term_length = TERM;
    params.mtu = MTU;
    params.publication_window_bytes = TERM / 2;
    params.receiver_window_bytes = WINDOW;
    params.type = type;
    return params;
}

static void open_sockets(world_t *world)
{
    ps_addr_t local;
    const ps_send_endpoint_params_t out = { .id = 1,
                                            .data = { .bind = address(0, PORT + 1),
                                                      .connect = address(1, PORT),
                                                      .rcvbuf_bytes = BUFFER },
                                            .status_counter_id = counter(&world->sides[0]),
                                            .destinations_counter_id = -1,
                                            .refused_counter_id = -1 };
    CHECK_EQ(ps_send_endpoint_open(world->sides[0].driver, &out, &world->out), PS_OK);
    const ps_recv_endpoint_params_t in = { .id = 2,
                                           .status_counter_id = counter(&world->sides[1]),
                                           .receiver_id = 4711 };
    CHECK_EQ(ps_recv_endpoint_open(world->sides[1].driver, &in, &world->in), PS_OK);
    const ps_recv_destination_params_t destination = {
        .id = 3, .socket = { .bind = address(1, PORT), .rcvbuf_bytes = BUFFER }
    };
    CHECK_EQ(
        ps_recv_endpoint_add_destination(world->sides[1].driver, world->in, &destination, &local),
        PS_OK);
}

static void publish(world_t *world, int32_t number)
{
    side_t *side = &world->sides[0];
    char path[300];
    snprintf(path, sizeof path, "%s/out%d.log", side->directory, number);
    const ps_log_params_t log = log_of(path, 1 + number, STREAM + number, PS_LOG_EXCLUSIVE);
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_publication_t *publication = NULL;
    const ps_publication_params_t params = { .id = 1 + number,
                                             .log_path = path,
                                             .endpoint = world->out,
                                             .slot = ps_slot_allocate(
                                                 side->shared, PS_SLOT_PUBLICATION, 1 + number),
                                             .publisher_limit_counter_id = counter(side),
                                             .publisher_position_counter_id = -1,
                                             .sender_position_counter_id = -1,
                                             .sender_limit_counter_id = -1,
                                             .back_pressure_counter_id = -1,
                                             .naks_counter_id = -1,
                                             .receivers_counter_id = -1,
                                             .flow_control = PS_FC_UNICAST,
                                             .window_bytes = TERM / 2,
                                             .max_resend = 16,
                                             .reserved_position = INT64_MAX,
                                             .priority = PS_PRIORITY_AUTO,
                                             .exclusive = true };
    CHECK_EQ(ps_publication_add(side->driver, &params, &publication), PS_OK);
    if (number < BUSY) {
        CHECK_EQ(ps_publication_add_client(side->driver, publication, side->client_slot), PS_OK);
        const ps_pub_params_t pub = { .log_path = path,
                                      .registration_id = 1 + number,
                                      .publication_slot = params.slot,
                                      .exclusive = true,
                                      .limit_counter_id = params.publisher_limit_counter_id };
        CHECK_EQ(ps_pub_open(side->client, &pub, &world->pubs[number]), PS_OK);
    }
}

static void make_image(world_t *world, const ps_event_t *event)
{
    side_t *side = &world->sides[1];
    const int32_t number = event->stream_id - STREAM;
    char path[300];
    snprintf(path, sizeof path, "%s/in%d.log", side->directory, number);
    ps_log_params_t log = log_of(path, 1 + number, event->stream_id, PS_LOG_IMAGE);
    log.term_id = event->setup.active_term_id;
    log.term_offset = event->setup.term_offset;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_image_t *image = NULL;
    ps_image_params_t params = setup_image_params(event, 1 + number);
    params.log_path = path;
    params.endpoint = world->in;
    params.slot = ps_slot_allocate(side->shared, PS_SLOT_IMAGE, 1 + number);
    params.high_water_counter_id = -1;
    params.position_counter_id = -1;
    params.naks_counter_id = -1;
    params.window_bytes = WINDOW;
    CHECK_EQ(ps_image_add(side->driver, &params, &image), PS_OK);
    const ps_subscriber_params_t reader = { .position_counter_id = counter(side),
                                            .slot = ps_slot_allocate(
                                                side->shared, PS_SLOT_SUBSCRIBER, 1 + number),
                                            .client_slot = side->client_slot,
                                            .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(side->driver, image, &reader), PS_OK);
    world->images++;
    if (number < BUSY) {
        const ps_img_params_t img = { .log_path = path,
                                      .correlation_id = 1 + number,
                                      .subscription_id = 1 + number,
                                      .position_counter_id = reader.position_counter_id,
                                      .subscriber_slot = reader.slot,
                                      .image_slot = params.slot,
                                      .publication_slot = -1 };
        CHECK_EQ(ps_img_open(side->client, &img, &world->imgs[number]), PS_OK);
        CHECK_EQ(ps_sub_open(side->client, 1 + number, event->stream_id, &world->subs[number]),
                 PS_OK);
        CHECK_EQ(ps_sub_add_image(world->subs[number], world->imgs[number]), PS_OK);
    }
}

/* The events of both conductors. */
static void serve(world_t *world)
{
    ps_event_t event;
    for (int32_t which = 0; which < 2; which++) {
        while (ps_driver_poll_event(world->sides[which].driver, &event)) {
            CHECK(event.type != PS_EV_ENDPOINT_ERROR && event.type != PS_EV_IMAGE_INACTIVE);
            if (event.type == PS_EV_SETUP) {
                make_image(world, &event);
                (void)ps_driver_step(world->sides[1].driver, world->now_ns);
            }
        }
    }
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Callgrind collects between entry and return. */
__attribute__((noinline)) static void measured(ps_driver_t *driver, int64_t now_ns)
{
    (void)ps_driver_step(driver, now_ns);
    __asm__ volatile("" : : : "memory");
}

static void step(world_t *world)
{
    for (int32_t which = 0; which < 2; which++) {
        if (which == world->counted) {
            measured(world->sides[which].driver, world->now_ns);
        } else {
            (void)ps_driver_step(world->sides[which].driver, world->now_ns);
        }
        (void)ps_simnet_advance(world->net, world->now_ns);
    }
}

static void offer_some(world_t *world, int32_t number)
{
    for (int32_t i = 0; i < BURST; i++) {
        int64_t position = PS_ADMIN_ACTION;
        while (position == PS_ADMIN_ACTION) {
            position = ps_pub_offer(world->pubs[number], world->message, LENGTH, 0);
        }
        CHECK(position > 0);
        world->offered[number]++;
    }
}

static void poll_some(world_t *world, int32_t number)
{
    ps_message_t messages[POLL];
    const int32_t count = ps_sub_poll(world->subs[number], messages, POLL, PS_POLL_ASSEMBLE);
    CHECK(count >= 0);
    world->received[number] += count;
}

/* Runs for some virtual time. In each turn one busy stream carries a burst; the daemons of two
 * parked threads run about as often. */
static void run(world_t *world, int64_t milliseconds)
{
    for (int64_t turn = 0; turn < milliseconds * TURNS_PER_MS; turn++) {
        const int32_t number = (int32_t)(turn % BUSY);
        offer_some(world, number);
        step(world);
        poll_some(world, number);
        world->now_ns += MS_NS / TURNS_PER_MS;
    }
}

static void set_up(world_t *world)
{
    CHECK_EQ(ps_simnet_create(1, &world->net), PS_OK);
    for (int32_t host = 0; host < 2; host++) {
        const ps_addr_t at = address(host, 0);
        CHECK_EQ(ps_simnet_add_host(world->net), host);
        CHECK_EQ(ps_simnet_add_address(world->net, host, &at), PS_OK);
        open_side(world, host);
    }
    open_sockets(world);
    for (int32_t number = 0; number < world->open; number++) {
        CHECK_EQ(
            ps_recv_endpoint_add_interest(world->sides[1].driver, world->in, STREAM + number, 0, 1),
            PS_OK);
        publish(world, number);
        if (number % 16 == 15) {
            step(world);
            serve(world);
            world->now_ns += MS_NS;
        }
    }
    for (int32_t i = 0; i < SET_UP_MS && world->images < world->open; i++) {
        step(world);
        serve(world);
        world->now_ns += MS_NS;
    }
    CHECK_EQ(world->images, world->open);
    for (int32_t i = 0; i < SETTLE_MS; i++) {
        step(world);
        world->now_ns += MS_NS;
    }
    serve(world);
}

static void tear_down(world_t *world)
{
    for (int32_t i = 0; i < BUSY; i++) {
        CHECK_EQ(world->received[i], world->offered[i]);
        ps_sub_close(world->subs[i]);
        ps_img_close(world->imgs[i]);
        ps_pub_close(world->pubs[i]);
    }
    for (int32_t which = 0; which < 2; which++) {
        ps_client_close(world->sides[which].client);
        ps_driver_destroy(world->sides[which].driver);
        ps_shared_close(world->sides[which].shared);
        ps_cnc_close(world->sides[which].cnc);
        directory_remove(world->sides[which].directory);
    }
    ps_simnet_destroy(world->net);
}

int main(int argc, char **argv)
{
    static world_t world;
    static const char *const names[] = { "sender", "receiver" };
    int32_t host = -1;
    world.open = argc == 4 ? atoi(argv[2]) : 0;
    const int64_t milliseconds = argc == 4 ? atoll(argv[3]) : 0;
    for (int32_t i = 0; argc == 4 && i < 2; i++) {
        host = strcmp(names[i], argv[1]) == 0 ? i : host;
    }
    if (host < 0 || world.open < BUSY || world.open > OPEN_MOST || milliseconds < 1) {
        fprintf(stderr,
                "streams: expected sender or receiver, %d to %d open streams, and "
                "milliseconds from 1 on\n",
                BUSY, OPEN_MOST);
        return 2;
    }
    world.now_ns = INT64_C(1000000000);
    world.counted = -1;
    set_up(&world);
    run(&world, 100);
    world.counted = host;
    run(&world, milliseconds);
    world.counted = -1;
    run(&world, 10);
    tear_down(&world);
    return 0;
}
