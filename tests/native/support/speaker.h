/* SPDX-License-Identifier: Apache-2.0
 * speaker.h: several hosts that send frames of one session to a world's image.
 */
#ifndef SPEAKER_H
#define SPEAKER_H

#include "recv_world.h"

enum { MTU = 1408 };

typedef struct speaker {
    ps_addr_t address;
    uint32_t capabilities; /* 0: SETUPs without a trailer */
    uint64_t daemon_id, daemon_epoch;
} speaker_t;

UNUSED_OK static speaker_t speaker(uint8_t host, uint16_t port)
{
    return (speaker_t){ .address = memnet_addr(host, port) };
}

/* What follows is sent by him. */
UNUSED_OK static void as(world_t *world, const speaker_t *who)
{
    world->sender = who->address;
}

UNUSED_OK static ps_setup_t setup_at(const world_t *world, int64_t position)
{
    return (ps_setup_t){ .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .initial_term_id = world->log.initial_term_id,
                         .active_term_id =
                             ps_term_id_at(position, world->log.shift, world->log.initial_term_id),
                         .term_offset = (int32_t)(position & world->log.term_mask),
                         .term_length = WORLD_TERM_LENGTH,
                         .mtu = MTU };
}

UNUSED_OK static void say_setup(world_t *world, const speaker_t *who, const ps_setup_t *setup)
{
    uint8_t frame[PS_CONTROL_MAX];
    const ps_trailer_t trailer = { .capabilities = who->capabilities,
                                   .daemon_id = who->daemon_id,
                                   .daemon_epoch = who->daemon_epoch,
                                   .ordinal = -1,
                                   .flow_control = PS_WIRE_FC_UNKNOWN };
    const uint32_t length =
        ps_wire_build_setup(frame, setup, who->capabilities != 0 ? &trailer : NULL);
    as(world, who);
    world_inject(world, frame, length);
}

UNUSED_OK static void setup(world_t *world, const speaker_t *who, int64_t position)
{
    const ps_setup_t frame = setup_at(world, position);
    say_setup(world, who, &frame);
    world_step(world);
}

UNUSED_OK static void data(world_t *world, const speaker_t *who, int64_t from, int64_t to)
{
    as(world, who);
    world_data(world, from, to, 64);
    world_step(world);
}

UNUSED_OK static void beat(world_t *world, const speaker_t *who, int64_t position)
{
    as(world, who);
    world_heartbeat(world, position, PS_FLAG_UNFRAGMENTED);
    world_step(world);
}

UNUSED_OK static void eos(world_t *world, const speaker_t *who, int64_t position, uint8_t more)
{
    as(world, who);
    world_heartbeat(world, position, (uint8_t)(PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS | more));
    world_step(world);
}

/* The sender of the SETUP that the image was made of is sender. */
UNUSED_OK static void open_image(world_t *world, const world_options_t *options, speaker_t *sender)
{
    world_open(world, options);
    *sender = (speaker_t){ .address = world->sender, .capabilities = options->peer_capabilities };
    world_make_image(world, options);
    memnet_discard(world->memnet);
}

/* Where status messages of the last second and more went: 0 nowhere, -1 to several. */
UNUSED_OK static int32_t notified(world_t *world)
{
    static memnet_dgram_t dgram;
    int32_t port = 0;
    memnet_discard(world->memnet);
    for (int32_t i = 0; i < 12; i++) {
        world_pass(world, 100 * MS);
    }
    while (world_sent(world, PS_TYPE_SM, &dgram)) {
        port = port == 0 || port == dgram.to.port ? dgram.to.port : -1;
    }
    return port;
}

/* As told(), while he is alive at position. */
UNUSED_OK static int32_t notified_beside(world_t *world, const speaker_t *who, int64_t position)
{
    static memnet_dgram_t dgram;
    int32_t port = 0;
    memnet_discard(world->memnet);
    for (int32_t i = 0; i < 12; i++) {
        beat(world, who, position);
        world_pass(world, 100 * MS);
    }
    while (world_sent(world, PS_TYPE_SM, &dgram)) {
        port = port == 0 || port == dgram.to.port ? dgram.to.port : -1;
    }
    return port;
}

UNUSED_OK static bool has_ended(world_t *world, int32_t *reason)
{
    ps_event_t event;
    const bool ended = world_event(world, PS_EV_IMAGE_INACTIVE, &event) != 0;
    *reason = ended ? event.ended.reason : 0;
    return ended;
}

#endif
