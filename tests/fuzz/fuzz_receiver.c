/* SPDX-License-Identifier: Apache-2.0
 * Hostile datagrams to a receiver with a subscription, and an application that reads what comes of
 * them.  Memory stays ours, positions only go forward, and the answers are bounded in number.
 */
#include "golden.h"
#include "penstock.h"
#include "ps_log.h"
#include "sequence.h"
#include "setup_image.h"
#include "stream.h"

enum { MOST_ANSWERS = 64, POLL = 16 };

typedef struct world {
    fuzz_world_t *base;
    ps_recv_endpoint_t *endpoint;
    ps_image_t *image;
    ps_img_t *img;
    int32_t position_counter;
    int64_t position; /* highest contiguous seen */
    bool corrupt;     /* the hostile sender spoilt its own stream */
} world_t;

static void open_receiver(world_t *world)
{
    fuzz_world_t *base = world->base;
    ps_recv_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = 1;
    endpoint.status_counter_id = -1;
    endpoint.receiver_id = 77;
    CHECK_EQ(ps_recv_endpoint_open(base->driver, &endpoint, &world->endpoint), PS_OK);
    ps_recv_destination_params_t destination;
    memset(&destination, 0, sizeof destination);
    destination.id = 2;
    destination.socket.bind = memnet_addr(1, FUZZ_PORT);
    ps_addr_t local;
    CHECK_EQ(ps_recv_endpoint_add_destination(base->driver, world->endpoint, &destination, &local),
             PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_interest(base->driver, world->endpoint, GOLDEN_STREAM, 0, 1),
             PS_OK);
}

/* The conductor makes an image when a sane setup of the golden session arrives. */
static void make_image(world_t *world, const ps_event_t *event)
{
    fuzz_world_t *base = world->base;
    fuzz_make_log(base, event->setup.active_term_id, event->setup.term_offset, PS_LOG_IMAGE);
    ps_image_params_t params = setup_image_params(event, 11);
    params.log_path = base->log_path;
    params.endpoint = world->endpoint;
    params.slot = ps_slot_allocate(base->shared, PS_SLOT_IMAGE, 11);
    params.high_water_counter_id = fuzz_counter(base, 0);
    params.position_counter_id = fuzz_counter(base, 0);
    params.naks_counter_id = fuzz_counter(base, 0);
    params.window_bytes = 32 * 1024;
    params.peer_capabilities = 0;
    params.reliable = (uint8_t)(event->setup.ttl != 1);
    CHECK_EQ(ps_image_add(base->driver, &params, &world->image), PS_OK);
    world->position = ps_image_join_position(world->image);
    world->position_counter = fuzz_counter(base, world->position);
    const ps_subscriber_params_t subscriber = { .position_counter_id = world->position_counter,
                                                .slot = ps_slot_allocate(base->shared,
                                                                         PS_SLOT_SUBSCRIBER, 1),
                                                .client_slot = base->client_slot,
                                                .tether = 1 };
    CHECK_EQ(ps_image_add_subscriber(base->driver, world->image, &subscriber), PS_OK);
    const ps_img_params_t img = { .log_path = base->log_path,
                                  .correlation_id = 11,
                                  .subscription_id = 1,
                                  .position_counter_id = world->position_counter,
                                  .subscriber_slot = subscriber.slot,
                                  .image_slot = params.slot,
                                  .publication_slot = -1 };
    CHECK_EQ(ps_img_open(base->client, &img, &world->img), PS_OK);
}

static void serve(world_t *world)
{
    ps_event_t event;
    while (ps_driver_poll_event(world->base->driver, &event)) {
        const bool golden_setup = event.type == PS_EV_SETUP && event.session_id == GOLDEN_SESSION &&
                                  event.setup.initial_term_id == GOLDEN_TERM &&
                                  event.setup.term_length == PS_TERM_MIN &&
                                  event.setup.mtu <= 32 * 1024;
        if (golden_setup && world->image == NULL &&
            ps_wrap_sub(event.setup.active_term_id, GOLDEN_TERM) >= 0) {
            make_image(world, &event);
        } else if (event.type == PS_EV_SETUP) {
            (void)ps_recv_endpoint_forget_session(world->base->driver, world->endpoint,
                                                  event.stream_id, event.session_id, 0);
        }
    }
}

static void read_some(world_t *world)
{
    ps_message_t messages[POLL];
    if (world->img == NULL || world->corrupt) {
        return;
    }
    const int64_t before = ps_img_position(world->img);
    const int32_t count = ps_img_poll(world->img, messages, POLL, PS_POLL_ASSEMBLE);
    FUZZ_CHECK(count >= 0 || count == PS_E_CORRUPT || count == PS_E_NO_MEMORY);
    world->corrupt = count < 0;
    uint64_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        FUZZ_CHECK(messages[i].length >= 0 && messages[i].length <= PS_MESSAGE_MAX);
        for (int64_t at = 0; at < messages[i].length; at++) {
            sum += messages[i].data[at]; /* all of it is readable */
        }
    }
    FUZZ_CHECK(sum != UINT64_MAX && ps_img_position(world->img) >= before);
}

static void check_positions(world_t *world)
{
    ps_image_status_t status;
    if (world->image == NULL) {
        return;
    }
    ps_image_get_status(world->image, &status);
    FUZZ_CHECK(status.position >= world->position && status.high_water >= status.position);
    FUZZ_CHECK(status.position % PS_FRAME_ALIGNMENT == 0 && status.gaps >= 0 && status.gaps <= 8);
    FUZZ_CHECK(status.high_water - ps_image_join_position(world->image) < INT64_C(1) << 40);
    world->position = status.position;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world_t world;
    sequence_t sequence = { .data = data, .left = size };
    memset(&world, 0, sizeof world);
    world.base = fuzz_world_begin();
    open_receiver(&world);
    const ps_addr_t to = memnet_addr(1, FUZZ_PORT), from = memnet_addr(2, FUZZ_PEER_PORT);
    fuzz_step(world.base, MOST_ANSWERS);
    for (;;) {
        const sequence_step_t step = sequence_next(&sequence);
        if (step.kind == SEQUENCE_END) {
            break;
        }
        if (step.kind == SEQUENCE_DATAGRAM) {
            FUZZ_CHECK(memnet_inject(world.base->memnet, &to, &from, step.data, step.length));
        } else if (step.kind == SEQUENCE_WAIT) {
            world.base->now_ns += step.wait_ns;
        } else {
            read_some(&world);
        }
        world.base->now_ns += 1000;
        fuzz_step(world.base, MOST_ANSWERS);
        serve(&world);
        check_positions(&world);
    }
    read_some(&world);
    if (world.img != NULL) {
        ps_img_close(world.img);
    }
    fuzz_world_end(world.base); /* frees image and endpoint, with whatever state they are in */
    return 0;
}
