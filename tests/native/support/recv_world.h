/* SPDX-License-Identifier: Apache-2.0
 * recv_world.h: a receiver on a transport in memory, in virtual time; the test plays sender,
 * conductor and subscribers.  The session is that of golden.h.
 */
#ifndef RECV_WORLD_H
#define RECV_WORLD_H

#include "golden.h"
#include "memnet.h"
#include "ps_receiver.h"
#include "stream.h"

enum { WORLD_PORT = 40124, WORLD_TERM_LENGTH = 65536, WORLD_WINDOW = 32768 };
#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

typedef struct world {
    char directory[256];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    memnet_t *memnet;
    ps_driver_t *driver;
    ps_recv_endpoint_t *endpoint;
    ps_addr_t local;
    ps_addr_t sender;
    ps_image_t *image;
    ps_log_t log; /* as a client maps it */
    char path[300];
    int64_t now_ns;
    int32_t sub_pos, hwm_counter, pos_counter, naks_counter;
    int32_t client_slot, image_slot, subscriber_slot;
} world_t;

/* What a test may change before the world starts. */
typedef struct world_options {
    uint8_t advertise, unreliable, group, no_subscriber, untethered;
    uint32_t peer_capabilities;
    int64_t reserved_position; /* 0: all */
    int64_t join_ordinal;
    int64_t window_limit_ns; /* of an untethered reader; 0: default */
    int32_t max_gaps;        /* 0: default */
    int32_t event_capacity;  /* 0: default */
    int32_t term_offset;
    int32_t initial_term_id; /* 0: golden */
    int32_t terms_before;    /* of the join position */
} world_options_t;

UNUSED_OK static int32_t world_step(world_t *world)
{
    int32_t work = 0;
    for (int i = 0; i < 4; i++) {
        work += ps_driver_step(world->driver, world->now_ns);
    }
    return work;
}

UNUSED_OK static void world_pass(world_t *world, int64_t ns)
{
    const int64_t end = world->now_ns + ns;
    world_step(world); /* what was injected arrives now */
    while (world->now_ns < end) {
        int64_t due = ps_driver_next_deadline_ns(world->driver, world->now_ns);
        due = due <= world->now_ns ? world->now_ns + 1 : due;
        world->now_ns = due < end ? due : end;
        world_step(world);
    }
}

UNUSED_OK static void world_inject(world_t *world, const void *data, uint32_t length)
{
    CHECK_EQ(memnet_inject(world->memnet, &world->local, &world->sender, data, length), 1);
}

UNUSED_OK static void world_golden(world_t *world, const char *name)
{
    uint8_t frame[256];
    const uint32_t length = golden(name, frame);
    CHECK(length > 0);
    world_inject(world, frame, length);
}

/* Next event of type; others are dropped.  0 = none. */
UNUSED_OK static int world_event(world_t *world, int32_t type, ps_event_t *out)
{
    ps_event_t event;
    while (ps_driver_poll_event(world->driver, &event)) {
        if (event.type == type) {
            *out = event;
            return 1;
        }
    }
    return 0;
}

/* Next sent datagram of a frame type; others are dropped.  0 = none. */
UNUSED_OK static int world_sent(world_t *world, uint16_t type, memnet_dgram_t *out)
{
    while (memnet_take(world->memnet, out)) {
        if (out->data[6] + 256 * out->data[7] == type) {
            return 1;
        }
    }
    return 0;
}

UNUSED_OK static int32_t world_count_sent(world_t *world, uint16_t type)
{
    static memnet_dgram_t dgram;
    int32_t count = 0;
    while (world_sent(world, type, &dgram)) {
        count++;
    }
    return count;
}

UNUSED_OK static int64_t world_system(const world_t *world, int32_t id)
{
    return ps_counter_get(world->cnc, id);
}

static int32_t world_counter(world_t *world, const char *label, int64_t value)
{
    const int32_t id = ps_counter_allocate(world->cnc, 4, NULL, 0, label, (int32_t)strlen(label), 1,
                                           0, 0, value, 0);
    CHECK(id >= 0);
    return id;
}

/* Opens the socket of the world's driver. */
UNUSED_OK static void world_listen(world_t *world)
{
    const ps_recv_endpoint_params_t endpoint = { .id = 500,
                                                 .status_counter_id = -1,
                                                 .receiver_id = GOLDEN_RECEIVER };
    CHECK_EQ(ps_recv_endpoint_open(world->driver, &endpoint, &world->endpoint), PS_OK);
    const ps_recv_destination_params_t destination = {
        .id = 1, .socket = { .bind = memnet_addr(2, WORLD_PORT) }
    };
    CHECK_EQ(ps_recv_endpoint_add_destination(world->driver, world->endpoint, &destination,
                                              &world->local),
             PS_OK);
}

UNUSED_OK static void world_open(world_t *world, const world_options_t *options)
{
    memset(world, 0, sizeof *world);
    directory_make(world->directory, sizeof world->directory);
    world->cnc = cnc_make(world->directory);
    world->shared = shared_make(world->directory);
    world->memnet = memnet_create();
    world->now_ns = 100 * SECOND;
    ps_driver_params_t params = memnet_driver_params(world->memnet, world->cnc, world->shared);
    params.seed = 99;
    params.receiver_id_base = GOLDEN_RECEIVER;
    params.daemon_id = 7;
    params.daemon_epoch = 3;
    params.advertise = options->advertise;
    if (options->max_gaps > 0) {
        params.max_gaps = options->max_gaps;
    }
    if (options->event_capacity > 0) {
        params.event_capacity = options->event_capacity;
    }
    CHECK_EQ(ps_driver_create(&params, &world->driver), PS_OK);
    world->sender = memnet_addr(1, 50000);
    world_listen(world);
    CHECK_EQ(ps_recv_endpoint_add_interest(world->driver, world->endpoint, GOLDEN_STREAM, 0, 1),
             PS_OK);
    world_step(world);
}

UNUSED_OK static void world_subscribe(world_t *world, const world_options_t *options)
{
    const ps_subscriber_params_t subscriber = { .position_counter_id = world->sub_pos,
                                                .slot = world->subscriber_slot,
                                                .client_slot = world->client_slot,
                                                .tether = !options->untethered,
                                                .rejoin = 1 };
    CHECK_EQ(ps_image_add_subscriber(world->driver, world->image, &subscriber), PS_OK);
}

/* The conductor's answer to a SETUP. */
UNUSED_OK static void world_make_image(world_t *world, const world_options_t *options)
{
    ps_log_params_t log;
    const int32_t initial = options->initial_term_id ? options->initial_term_id : GOLDEN_TERM;
    snprintf(world->path, sizeof world->path, "%s/77.logbuffer", world->directory);
    log = log_params(world->path);
    log.initial_term_id = initial;
    log.term_id = (int32_t)((uint32_t)initial + (uint32_t)options->terms_before);
    log.type = PS_LOG_IMAGE;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    CHECK_EQ(ps_log_map(world->path, 0, &world->log), PS_OK);
    world->sub_pos =
        world_counter(world, "sub-pos",
                      (int64_t)options->terms_before * WORLD_TERM_LENGTH + options->term_offset);
    world->hwm_counter = world_counter(world, "rcv-hwm", 0);
    world->pos_counter = world_counter(world, "rcv-pos", 0);
    world->naks_counter = world_counter(world, "rcv-naks", 0);
    world->client_slot = ps_slot_allocate(world->shared, PS_SLOT_CLIENT, 5);
    world->image_slot = ps_slot_allocate(world->shared, PS_SLOT_IMAGE, 77);
    world->subscriber_slot = ps_slot_allocate(world->shared, PS_SLOT_SUBSCRIBER, 12);
    const ps_image_params_t params = {
        .id = 77,
        .log_path = world->path,
        .endpoint = world->endpoint,
        .slot = world->image_slot,
        .high_water_counter_id = world->hwm_counter,
        .position_counter_id = world->pos_counter,
        .naks_counter_id = world->naks_counter,
        .session_id = GOLDEN_SESSION,
        .stream_id = GOLDEN_STREAM,
        .initial_term_id = initial,
        .active_term_id = log.term_id,
        .term_offset = options->term_offset,
        .window_bytes = WORLD_WINDOW,
        .destination = 0,
        .source = world->sender,
        .nak_delay_ns = -1,
        .reserved_position = options->reserved_position ? options->reserved_position : INT64_MAX,
        .join_ordinal = options->join_ordinal,
        .peer_capabilities = options->peer_capabilities,
        .untethered_window_limit_timeout_ns =
            options->window_limit_ns ? options->window_limit_ns : 5 * SECOND,
        .untethered_linger_timeout_ns = 5 * SECOND,
        .untethered_resting_timeout_ns = 10 * SECOND,
        .group = options->group,
        .reliable = !options->unreliable,
        .rejoin = 1
    };
    CHECK_EQ(ps_image_add(world->driver, &params, &world->image), PS_OK);
    if (!options->no_subscriber) {
        world_subscribe(world, options);
    }
    world_step(world);
}

UNUSED_OK static void world_close(world_t *world)
{
    if (world->log.map != NULL) {
        ps_log_unmap(&world->log);
    }
    ps_driver_destroy(world->driver);
    memnet_destroy(world->memnet);
    ps_shared_close(world->shared);
    ps_cnc_close(world->cnc);
    directory_remove(world->directory);
}

/* One unfragmented frame of length bytes (header included) at position, filled from its
 * position. */
UNUSED_OK static uint32_t world_frame(const world_t *world, uint8_t *out, int64_t position,
                                      int32_t length, uint16_t type)
{
    const int32_t aligned = ps_align32(length);
    const int32_t on_wire = type == PS_TYPE_PAD ? PS_HEADER_BYTES : aligned;
    const int32_t values[6] = { length,
                                0,
                                (int32_t)(position & world->log.term_mask),
                                GOLDEN_SESSION,
                                GOLDEN_STREAM,
                                ps_term_id_at(position, world->log.shift,
                                              world->log.initial_term_id) };
    memset(out, 0, (size_t)on_wire);
    memcpy(out, values, sizeof values);
    out[5] = PS_FLAG_UNFRAGMENTED;
    memcpy(out + 6, &type, sizeof type);
    for (int32_t i = PS_HEADER_BYTES; type == PS_TYPE_DATA && i < length; i++) {
        out[i] = (uint8_t)((position + i) * 31 >> 3);
    }
    return (uint32_t)on_wire;
}

/* A datagram of frames of `size` bytes (multiple of 32) that covers [from, to). */
UNUSED_OK static void world_data(world_t *world, int64_t from, int64_t to, int32_t size)
{
    uint8_t datagram[65536];
    uint32_t length = 0;
    for (int64_t at = from; at < to; at += size) {
        length += world_frame(world, datagram + length, at, size, PS_TYPE_DATA);
    }
    world_inject(world, datagram, length);
}

UNUSED_OK static void world_heartbeat(world_t *world, int64_t position, uint8_t flags)
{
    uint8_t frame[PS_CONTROL_MAX];
    const uint32_t length = ps_wire_build_heartbeat(
        frame, GOLDEN_SESSION, GOLDEN_STREAM,
        ps_term_id_at(position, world->log.shift, world->log.initial_term_id),
        (int32_t)(position & world->log.term_mask), flags);
    world_inject(world, frame, length);
}

/* The sender states its end and repeats it, as long as an end takes to be believed. */
UNUSED_OK static void world_end(world_t *world, int64_t position, uint8_t more_flags)
{
    const uint8_t flags = PS_FLAG_UNFRAGMENTED | PS_FLAG_EOS | more_flags;
    world_heartbeat(world, position, flags);
    world_pass(world, 100 * MS);
    world_heartbeat(world, position, flags);
    world_pass(world, 2 * MS);
}

/* [from, to) of the log holds exactly what world_data made of it. */
UNUSED_OK static int world_holds(const world_t *world, int64_t from, int64_t to, int32_t size)
{
    uint8_t frame[65536];
    for (int64_t at = from; at < to; at += size) {
        const uint32_t length = world_frame(world, frame, at, size, PS_TYPE_DATA);
        if (memcmp(ps_log_at(&world->log, at), frame, length) != 0) {
            return 0;
        }
    }
    return 1;
}

UNUSED_OK static void world_consume(world_t *world, int64_t position)
{
    ps_counter_set(world->cnc, world->sub_pos, position);
}

UNUSED_OK static ps_image_status_t world_status(const world_t *world)
{
    ps_image_status_t status;
    ps_image_get_status(world->image, &status);
    return status;
}

/* Where a subscriber that walks the log stops: it must be where the stream is complete. */
UNUSED_OK static void world_check_reader(const world_t *world, int64_t from)
{
    const int64_t position = world_status(world).position;
    int64_t at = from;
    while (ps_frame_length_acquire(ps_frame_at(&world->log, at)) != 0) {
        const ps_frame_t *frame = ps_frame_at(&world->log, at);
        CHECK(frame->frame_length >= PS_HEADER_BYTES && at < position);
        CHECK_EQ(frame->term_offset, at & world->log.term_mask);
        CHECK_EQ(frame->term_id, ps_term_id_at(at, world->log.shift, world->log.initial_term_id));
        at += ps_align32(frame->frame_length);
    }
    CHECK_EQ(at, position);
}

#endif
