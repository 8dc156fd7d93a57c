/* SPDX-License-Identifier: Apache-2.0 */
#include "sequence.h"

#include "golden.h"
#include "ps_wire.h"
#include "stream.h"

uint8_t sequence_byte(sequence_t *sequence)
{
    if (sequence->left == 0) {
        return 0;
    }
    sequence->left--;
    return *sequence->data++;
}

static unsigned long long the_steps; /* of all stories */

sequence_step_t sequence_next(sequence_t *sequence)
{
    sequence_step_t step = { .kind = SEQUENCE_END };
    if (sequence->left < 2 || sequence->steps++ >= SEQUENCE_STEPS) {
        return step;
    }
    the_steps++;
    const uint32_t value = sequence->data[0] | (uint32_t)sequence->data[1] << 8;
    sequence->data += 2;
    sequence->left -= 2;
    if ((value & SEQUENCE_TIME) != 0) {
        step.kind = SEQUENCE_WAIT;
        step.wait_ns = (int64_t)(value & 0x7FFF) * 100000;
    } else if ((value & SEQUENCE_TURN) != 0) {
        step.kind = SEQUENCE_APPLICATION;
        step.length = value & SEQUENCE_LENGTH;
    } else {
        step.kind = SEQUENCE_DATAGRAM;
        step.data = sequence->data;
        step.length = value & SEQUENCE_LENGTH;
        step.length = step.length > sequence->left ? (uint32_t)sequence->left : step.length;
        sequence->data += step.length;
        sequence->left -= step.length;
    }
    return step;
}

static fuzz_world_t the_world; /* one for the life of the process: making files is slow */

static void remove_world(void)
{
    fuzz_world_t *world = &the_world;
    ps_client_close(world->client);
    ps_shared_close(world->shared);
    ps_cnc_close(world->cnc);
    directory_remove(world->directory);
    fprintf(stderr, "%llu steps\n", the_steps);
}

static void open_world(fuzz_world_t *world)
{
    if (access("/dev/shm", W_OK) == 0) {
        (void)setenv("TMPDIR", "/dev/shm", 0);
    }
    directory_make(world->directory, sizeof world->directory);
    world->cnc = cnc_make(world->directory);
    world->shared = shared_make(world->directory);
    for (int32_t i = 0; i < FUZZ_COUNTERS; i++) {
        world->counters[i] = ps_counter_allocate(world->cnc, 1, NULL, 0, "fuzz", 4, 1, 5, 0, 0, 1);
        CHECK(world->counters[i] >= 0);
    }
    world->client_slot = ps_slot_allocate(world->shared, PS_SLOT_CLIENT, 5);
    const ps_client_params_t client = { .directory = world->directory,
                                        .client_id = 5,
                                        .client_slot = world->client_slot,
                                        .sender_wake_fd = -1,
                                        .receiver_wake_fd = -1,
                                        .watch_fd = -1 };
    CHECK_EQ(ps_client_open(&client, &world->client), PS_OK);
    snprintf(world->log_path, sizeof world->log_path, "%s/golden.logbuffer", world->directory);
    world->is_open = true;
    CHECK_EQ(atexit(remove_world), 0);
}

fuzz_world_t *fuzz_world_begin(void)
{
    fuzz_world_t *world = &the_world;
    if (!world->is_open) {
        open_world(world);
    }
    for (int32_t i = 0; i < ps_counter_capacity(world->cnc); i++) {
        ps_counter_set(world->cnc, i, 0);
    }
    world->counters_used = 0;
    world->memnet = memnet_create();
    world->now_ns = 1000000000;
    ps_driver_params_t params = memnet_driver_params(world->memnet, world->cnc, world->shared);
    params.seed = 1;
    params.receiver_id_base = 1;
    params.daemon_id = 1;
    params.daemon_epoch = 1;
    params.event_capacity = 16; /* full rings are part of the story */
    params.command_capacity = 16;
    params.max_gaps = 8;
    CHECK_EQ(ps_driver_create(&params, &world->driver), PS_OK);
    return world;
}

void fuzz_world_end(fuzz_world_t *world)
{
    static const int32_t kinds[] = { PS_SLOT_PUBLICATION, PS_SLOT_IMAGE, PS_SLOT_SUBSCRIBER };
    ps_driver_destroy(world->driver);
    memnet_destroy(world->memnet);
    (void)unlink(world->log_path);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ps_slot_free(world->shared, kinds[i], 0); /* an input takes one of each at most */
        FUZZ_CHECK(ps_slot_id(world->shared, kinds[i], 1) == 0);
    }
}

int32_t fuzz_counter(fuzz_world_t *world, int64_t value)
{
    FUZZ_CHECK(world->counters_used < FUZZ_COUNTERS);
    const int32_t id = world->counters[world->counters_used++];
    ps_counter_set(world->cnc, id, value);
    return id;
}

void fuzz_make_log(fuzz_world_t *world, int32_t term_id, int32_t term_offset, uint8_t type)
{
    ps_log_params_t params = log_params(world->log_path);
    params.session_id = GOLDEN_SESSION;
    params.stream_id = GOLDEN_STREAM;
    params.initial_term_id = GOLDEN_TERM;
    params.term_id = term_id;
    params.term_offset = term_offset;
    params.type = type;
    CHECK_EQ(ps_log_create(&params), PS_OK);
}

void fuzz_step(fuzz_world_t *world, int32_t most)
{
    static memnet_dgram_t out;
    (void)ps_driver_step(world->driver, world->now_ns);
    FUZZ_CHECK(ps_driver_next_deadline_ns(world->driver, world->now_ns) >= 0);
    FUZZ_CHECK(memnet_pending(world->memnet) <= most);
    while (memnet_take(world->memnet, &out)) {
        uint16_t type;
        FUZZ_CHECK(out.length > 0 && ps_wire_check(out.data, out.length, &type) == PS_WIRE_OK);
        if (type == PS_TYPE_DATA || type == PS_TYPE_PAD) {
            ps_data_t data;
            int32_t span, messages;
            FUZZ_CHECK(ps_wire_data(out.data, out.length, &data) == PS_WIRE_OK);
            FUZZ_CHECK(data.is_heartbeat || ps_wire_chain(out.data, out.length, PS_TERM_MIN, &span,
                                                          &messages) == PS_WIRE_OK);
        }
    }
}
