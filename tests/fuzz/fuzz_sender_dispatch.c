/* SPDX-License-Identifier: Apache-2.0
 * Hostile status messages, NAKs and the rest to a sender with a publication that has messages,
 * under the flow control that the first byte names.  What leaves is always valid frames of the
 * stream, never beyond what was published, and one hostile datagram cannot set off a flood.
 *
 * First byte: flow control (ps_flow_control) modulo 6, + 8 a group of at least one, + 16 a rate,
 * + 32 receivers may be many (max_resend).
 */
#include "golden.h"
#include "penstock.h"
#include "sequence.h"
#include "stream.h"

/* Of one step: a window of data, or of a repaired gap, in the smallest datagrams, and answers. */
enum { MOST_DATAGRAMS = 2 * PS_TERM_MIN / 64 + 64, MESSAGES = 40 };

typedef struct world {
    fuzz_world_t *base;
    ps_send_endpoint_t *endpoint;
    ps_publication_t *publication;
    ps_pub_t *pub;
    int32_t limit_counter, sender_counter;
    int64_t sent;
} world_t;

static void choose(ps_publication_params_t *params, uint8_t kind)
{
    static const int32_t strategies[] = { PS_FC_MAX,    PS_FC_UNICAST,  PS_FC_MIN,
                                          PS_FC_TAGGED, PS_FC_PRESSURE, PS_FC_CUSTOM };
    params->flow_control = strategies[(kind & 7) % 6];
    params->group = params->flow_control != PS_FC_UNICAST;
    if (params->flow_control == PS_FC_MIN || params->flow_control == PS_FC_TAGGED) {
        params->fc_group_min_size = (kind & 8) != 0;
        params->fc_group_tag = 101; /* that of the golden sm_tag */
    }
    params->rate_bytes_per_s = (kind & 16) != 0 ? 100000 : 0;
    params->max_resend = (kind & 32) != 0 ? 256 : 4;
}

static void open_sender(world_t *world, uint8_t kind)
{
    fuzz_world_t *base = world->base;
    ps_send_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = 1;
    endpoint.data.bind = memnet_addr(2, FUZZ_PEER_PORT);
    endpoint.data.connect = memnet_addr(1, FUZZ_PORT);
    endpoint.status_counter_id = -1;
    endpoint.destinations_counter_id = -1;
    CHECK_EQ(ps_send_endpoint_open(base->driver, &endpoint, &world->endpoint), PS_OK);
    fuzz_make_log(base, GOLDEN_TERM, 0, PS_LOG_CONCURRENT);
    ps_publication_params_t params;
    memset(&params, 0, sizeof params);
    params.id = 11;
    params.log_path = base->log_path;
    params.endpoint = world->endpoint;
    params.slot = ps_slot_allocate(base->shared, PS_SLOT_PUBLICATION, 11);
    params.publisher_limit_counter_id = world->limit_counter = fuzz_counter(base, 0);
    params.publisher_position_counter_id = fuzz_counter(base, 0);
    params.sender_position_counter_id = world->sender_counter = fuzz_counter(base, 0);
    params.sender_limit_counter_id = fuzz_counter(base, 0);
    params.back_pressure_counter_id = fuzz_counter(base, 0);
    params.naks_counter_id = fuzz_counter(base, 0);
    params.receivers_counter_id = -1;
    choose(&params, kind);
    params.window_bytes = PS_TERM_MIN / 2;
    params.reserved_position = INT64_MAX;
    params.signal_eos = 1;
    CHECK_EQ(ps_publication_add(base->driver, &params, &world->publication), PS_OK);
    const ps_pub_params_t pub = { .log_path = base->log_path,
                                  .registration_id = 11,
                                  .publication_slot = params.slot,
                                  .limit_counter_id = params.publisher_limit_counter_id };
    CHECK_EQ(ps_pub_open(base->client, &pub, &world->pub), PS_OK);
}

static void offer_some(world_t *world, uint32_t length)
{
    static const uint8_t message[SEQUENCE_LENGTH + 1];
    for (int i = 0; i < MESSAGES; i++) {
        const int64_t result = ps_pub_offer(world->pub, message, length, i);
        FUZZ_CHECK(result > 0 || result == PS_NOT_CONNECTED || result == PS_BACK_PRESSURED ||
                   result == PS_ADMIN_ACTION || result == PS_RATE_LIMITED);
        if (result < 0 && result != PS_ADMIN_ACTION) {
            break;
        }
    }
}

static void check_positions(world_t *world)
{
    const int64_t sent = ps_counter_get(world->base->cnc, world->sender_counter);
    const int64_t published = ps_pub_position(world->pub);
    FUZZ_CHECK(sent >= world->sent && sent <= published && sent % PS_FRAME_ALIGNMENT == 0);
    const int64_t limit = ps_counter_get(world->base->cnc, world->limit_counter);
    FUZZ_CHECK(limit <= sent + PS_TERM_MIN); /* the publisher never gets a term ahead */
    world->sent = sent;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world_t world;
    sequence_t sequence = { .data = data, .left = size };
    memset(&world, 0, sizeof world);
    const uint8_t kind = sequence_byte(&sequence);
    world.base = fuzz_world_begin();
    open_sender(&world, kind);
    const ps_addr_t to = memnet_addr(2, FUZZ_PEER_PORT), from = memnet_addr(1, FUZZ_PORT);
    fuzz_step(world.base, MOST_DATAGRAMS);
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
            offer_some(&world, step.length);
            if ((kind & 7) % 6 == 5) { /* a strategy in Python says something, sense or nonsense */
                (void)ps_publication_set_limit(world.base->driver, world.publication,
                                               (int64_t)step.length * 64 - 1024,
                                               world.base->now_ns + 100000000);
            }
        }
        world.base->now_ns += 1000;
        fuzz_step(world.base, MOST_DATAGRAMS);
        ps_event_t event;
        while (ps_driver_poll_event(world.base->driver, &event)) {
            FUZZ_CHECK(event.type != PS_EV_REMOTE_ERROR ||
                       memchr(event.remote_error.text, 0, sizeof event.remote_error.text) != NULL);
            FUZZ_CHECK(event.type != PS_EV_ENDPOINT_ERROR ||
                       memchr(event.error.text, 0, sizeof event.error.text) != NULL);
        }
        check_positions(&world);
    }
    ps_pub_close(world.pub);
    fuzz_world_end(world.base);
    return 0;
}
