/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_observer.c: what a simulated network and its world report goes to the watch and to the
 * probe.  Network and world call through their tables and know neither.
 */
#include <stdlib.h>

#include "ps_driver_state.h"
#include "ps_sim_oracle.h"
#include "ps_sim_probe.h"
#include "ps_sim_stamp.h"

/* The observers of one network. */
typedef struct observers {
    ps_sim_watch_t *watch; /* NULL: no watch */
    ps_probe_t *probe;     /* NULL: no probe */
} observers_t;

/* ---- of the network -------------------------------------------------------------------------- */

static void on_sent(void *context, int32_t host, enum ps_socket_role role,
                    const ps_sim_packet_t *packet, int64_t now_ns)
{
    const observers_t *of = context;
    enum ps_sim_kind kind = PS_SIM_OTHER;
    if (of->watch != NULL) {
        kind = ps_sim_watch_sent(of->watch, host, packet);
    }
    if (of->probe != NULL && role != PS_SOCKET_ANY) {
        ps_probe_sent(of->probe, host, packet, kind, now_ns);
        ps_sim_stamp_sent(of->probe, host, packet, kind, now_ns);
    }
}

static void on_refused(void *context, int32_t host, const ps_dgram_t *dgrams, int32_t count,
                       int64_t now_ns)
{
    ps_probe_t *probe = ((const observers_t *)context)->probe;
    if (probe == NULL) {
        return;
    }
    ps_probe_count_short(probe, host, dgrams[0].data, dgrams[0].length);
    for (int32_t i = 0; i < count; i++) {
        ps_probe_refused(probe, host, dgrams[i].data, dgrams[i].length, now_ns);
        ps_sim_stamp_refused(probe, host, dgrams[i].data, dgrams[i].length, now_ns);
    }
}

static void on_arrived(void *context, int32_t host, const ps_sim_packet_t *packet)
{
    ps_sim_watch_t *watch = ((const observers_t *)context)->watch;
    if (watch != NULL && !ps_sim_is_forged(packet)) {
        ps_sim_watch_arrived(watch, host, packet);
    }
}

static void on_read(void *context, int32_t host, enum ps_socket_role role,
                    const ps_sim_packet_t *packet, int64_t rx_ns, int64_t now_ns)
{
    ps_probe_t *probe = ((const observers_t *)context)->probe;
    if (probe != NULL) {
        ps_probe_read(probe, host, packet, role == PS_SOCKET_SENDER, now_ns);
        ps_sim_stamp_read(probe, host, packet, rx_ns, now_ns);
    }
}

static bool may_join(void *context, int32_t host, const ps_sim_packet_t *packet)
{
    const ps_probe_t *probe = ((const observers_t *)context)->probe;
    return probe == NULL || ps_probe_is_next(probe, host, packet);
}

static void free_observers(void *context)
{
    observers_t *of = context;
    free(of->watch);
    free(of);
}

static const ps_sim_observer_t OF_NETWORK = { .sent = on_sent,
                                              .refused = on_refused,
                                              .arrived = on_arrived,
                                              .read = on_read,
                                              .may_join = may_join,
                                              .free = free_observers };

/* Returns the observers of the network; makes them if there are none.  NULL: no memory. */
static observers_t *observers_of(ps_simnet_t *simnet)
{
    if (simnet->observer == NULL) {
        simnet->observer_context = calloc(1, sizeof(observers_t));
        simnet->observer = simnet->observer_context != NULL ? &OF_NETWORK : NULL;
    }
    return simnet->observer_context;
}

int ps_simnet_watch(ps_simnet_t *simnet, int32_t half_term_stream_id)
{
    observers_t *of = observers_of(simnet);
    if (of != NULL && of->watch == NULL) {
        of->watch = ps_sim_watch_create();
    }
    if (of == NULL || of->watch == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a watch");
    }
    ps_sim_watch_half_term(of->watch, half_term_stream_id);
    return PS_OK;
}

void ps_simnet_wire(const ps_simnet_t *simnet, ps_sim_wire_t *out)
{
    const observers_t *of = simnet->observer_context;
    memset(out, 0, sizeof *out);
    if (of != NULL && of->watch != NULL) {
        ps_sim_watch_wire(of->watch, out);
    }
}

/* ---- of the world ---------------------------------------------------------------------------- */

static void on_driver_set(void *context, int32_t host)
{
    ps_probe_forget_host(context, host);
}

static void on_step_begins(void *context, int32_t host, int64_t now_ns)
{
    ps_probe_before(context, host, now_ns);
}

static bool follows_stranger(const ps_image_t *image)
{
    bool strange = false;
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        strange = strange || ps_sim_is_stranger(&image->connections[i].source);
    }
    return strange;
}

/* Notes the sessions of which an image of the host follows a stranger. */
static void note_strangers(ps_simworld_t *world, int32_t host)
{
    const ps_driver_t *driver = world->slots[host].driver;
    if (driver == NULL || world->simnet->stats.forged == 0) {
        return;
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        for (int32_t j = 0; follows_stranger(image) && j < world->ledger_count; j++) {
            ps_sim_ledger_t *of = &world->ledgers[j];
            if (of->session_id == image->params.session_id &&
                of->stream_id == image->params.stream_id) {
                of->estranged |= UINT64_C(1) << host;
            }
        }
    }
}

static void on_stepped(void *context, int32_t host, int32_t work, int64_t now_ns)
{
    ps_probe_t *probe = context;
    ps_probe_step(probe, host, work, now_ns);
    ps_sim_bound_watch(probe, host);
    note_strangers(probe->world, host);
    ps_sim_credit_watch(probe->world, host);
}

static void on_accepted(void *context, const ps_sim_publisher_t *publisher, int64_t end,
                        int32_t size)
{
    ps_sim_bound_check(context, publisher, end, size);
}

static void on_refused_offer(void *context, const ps_sim_publisher_t *publisher, int64_t code)
{
    ps_probe_t *probe = context;
    ps_probe_offer_refused(probe, publisher, code, probe->world->now_ns);
}

static bool has_stamps(const void *context)
{
    return ((const ps_probe_t *)context)->stamps != NULL;
}

static const char *expected(void *context, int32_t host, const ps_message_t *message,
                            bool estranged, uint8_t *published)
{
    return ps_sim_stamp_expected(context, host, message, estranged, published);
}

static void free_probe(void *context)
{
    ps_probe_t *probe = context;
    observers_t *of = probe->world->simnet->observer_context;
    of->probe = NULL;
    ps_sim_stamps_free(probe);
    ps_probe_destroy(probe);
}

static const ps_sim_world_observer_t OF_WORLD = { .driver_set = on_driver_set,
                                                  .step_begins = on_step_begins,
                                                  .stepped = on_stepped,
                                                  .accepted = on_accepted,
                                                  .refused = on_refused_offer,
                                                  .has_stamps = has_stamps,
                                                  .expected = expected,
                                                  .free = free_probe };

int ps_simworld_probe(ps_simworld_t *world)
{
    observers_t *of = observers_of(world->simnet);
    if (of != NULL && of->probe == NULL) {
        of->probe = ps_probe_create(world);
    }
    if (of == NULL || of->probe == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a probe");
    }
    world->observer = &OF_WORLD;
    world->observer_context = of->probe;
    return PS_OK;
}
