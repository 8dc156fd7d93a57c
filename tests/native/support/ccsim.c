/* SPDX-License-Identifier: Apache-2.0
 *
 * ccsim.c: see ccsim.h.  Time goes in steps of a thousandth of the round trip: what arrives within
 * one is handled together, as a busy machine would.
 */
#include "ccsim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "stream.h"

enum { STREAM = 1001, PORT = 40000, FIRST_TERM = 7, SETTLE_STEPS = 64, SMALL_DATAGRAM = 128 };
#define SECOND_NS     INT64_C(1000000000)
#define STEP_LEAST_NS INT64_C(10000)

typedef struct flow {
    int64_t start_ns;
    ps_send_endpoint_t *send_endpoint;
    ps_publication_t *pub;
    ps_log_t out;
    ps_publication_slot_t *slot;
    int32_t slot_index;
    int32_t limit; /* counter of the publisher limit */
    ps_recv_endpoint_t *recv_endpoint;
    ps_image_t *image;
    ps_image_slot_t *image_slot;
    int32_t position, reader; /* counters of the image and its subscriber */
    char out_path[128], in_path[128];
} flow_t;

typedef struct side {
    char directory[64];
    ps_cnc_t *cnc;
    ps_shared_t *shared;
    ps_driver_t *driver;
} side_t;

struct ccsim {
    ccsim_options_t options;
    int64_t now_ns, started_ns, step_ns;
    ps_simnet_t *net;
    side_t sides[2];
    flow_t flows[CCSIM_FLOWS_MAX];
    ps_net_t *path; /* under the wrapper that drops */
    int64_t data_sent, lossy_sent;
};

/* ---- a network that loses each n-th data datagram -------------------------------------------- */

static ccsim_t *dropping; /* the ps_net interface gives a socket only; one at a time is enough */

static int drop_open(void *net, const ps_socket_params_t *params, ps_socket_t **out)
{
    ccsim_t *sim = net;
    return sim->path->ops->open(sim->path->state, params, out);
}

static void drop_close(ps_socket_t *socket)
{
    dropping->path->ops->close(socket);
}

static int32_t session_of(const ps_dgram_t *dgram)
{
    int32_t session_id;
    memcpy(&session_id, dgram->data + 12, sizeof session_id);
    return session_id;
}

/* The datagram that was sent last is one of the scripted losses. */
static bool is_scripted(const ccsim_t *sim)
{
    const int64_t each = sim->options.drop_each;
    const int64_t first = sim->options.drop_first > 0 ? sim->options.drop_first : each;

    return each > 0 && sim->data_sent >= first && (sim->data_sent - first) % each == 0;
}

static int drop_send(ps_socket_t *socket, const ps_addr_t *to, const ps_dgram_t *dgrams,
                     int32_t count, int64_t now_ns)
{
    ccsim_t *sim = dropping;
    for (int32_t i = 0; i < count; i++) {
        const bool data = dgrams[i].length >= SMALL_DATAGRAM;
        sim->data_sent += data;
        if (data && is_scripted(sim)) {
            continue;
        }
        if (data && sim->options.lossy_flow > 0 &&
            session_of(&dgrams[i]) == sim->options.lossy_flow + 1 && sim->lossy_sent++ % 3 == 0) {
            continue;
        }
        CHECK_EQ(sim->path->ops->send(socket, to, &dgrams[i], 1, now_ns), 1);
    }
    return count;
}

static int drop_recv(ps_socket_t *socket, int32_t limit, ps_on_datagram_fn fn, void *context,
                     int64_t now_ns)
{
    return dropping->path->ops->recv(socket, limit, fn, context, now_ns);
}

static int drop_fd(const ps_socket_t *socket)
{
    return dropping->path->ops->fd(socket);
}

static void drop_local(const ps_socket_t *socket, ps_addr_t *out)
{
    dropping->path->ops->local(socket, out);
}

static int drop_reconnect(ps_socket_t *socket, const ps_addr_t *remote)
{
    return dropping->path->ops->reconnect(socket, remote);
}

static const ps_net_ops_t drop_ops = { drop_open,  drop_close,     drop_send, drop_recv, drop_fd,
                                       drop_local, drop_reconnect, NULL,      NULL };

static ps_net_t *dropping_net(ccsim_t *sim)
{
    ps_net_t *net = calloc(1, sizeof(*net));
    CHECK(net != NULL && dropping == NULL);
    sim->path = ps_simnet_host_net(sim->net, 0);
    dropping = sim;
    net->ops = &drop_ops;
    net->state = sim;
    return net;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static ps_addr_t address(uint8_t host, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { 10, 0, 0, (uint8_t)(host + 1) } };
}

static int32_t counter(side_t *side)
{
    const int32_t id = ps_counter_allocate(side->cnc, 999, "", 0, "ccsim", 5, 1, 1, 1, 0, 0);
    CHECK(id >= 0);
    return id;
}

static void open_side(ccsim_t *sim, int32_t which)
{
    side_t *side = &sim->sides[which];
    ps_driver_params_t params;
    snprintf(side->directory, sizeof side->directory, "/dev/shm/ps-ccsim-XXXXXX");
    CHECK(mkdtemp(side->directory) != NULL);
    const ps_cnc_params_t cnc = { .directory = side->directory,
                                  .pid = getpid(),
                                  .client_liveness_timeout_ns = 10 * SECOND_NS,
                                  .counter_values_bytes = 128 * 1024,
                                  .error_log_bytes = 64 * 1024,
                                  .file_mode = 0600 };
    CHECK_EQ(ps_cnc_create(&cnc, &side->cnc), PS_OK);
    const ps_shared_params_t shared = { .directory = side->directory,
                                        .clients = 8,
                                        .publications = 64,
                                        .images = 8,
                                        .subscribers = 8,
                                        .groups = 1,
                                        .file_mode = 0600,
                                        .daemon_id = (uint64_t)which + 1,
                                        .daemon_epoch = 1,
                                        .receiver_id_base = 1,
                                        .pid = getpid() };
    CHECK_EQ(ps_shared_create(&shared, &side->shared), PS_OK);
    ps_driver_params_default(&params);
    params.net = which == 0 ? dropping_net(sim) : ps_simnet_host_net(sim->net, which);
    params.cnc = side->cnc;
    params.shared = side->shared;
    params.threading = PS_INVOKER;
    params.seed = sim->options.seed + (uint64_t)which;
    params.receiver_id_base = 1 + which;
    params.daemon_id = (uint64_t)which + 1;
    params.daemon_epoch = 1;
    params.advertise = !sim->options.plain;
    params.loss_recovery = sim->options.loss_recovery;
    params.max_gaps = sim->options.max_gaps > 0 ? sim->options.max_gaps : params.max_gaps;
    params.connection_timeout_ns = 60 * SECOND_NS;
    params.image_liveness_timeout_ns = 60 * SECOND_NS;
    CHECK_EQ(ps_driver_create(&params, &side->driver), PS_OK);
    CHECK_EQ(ps_driver_start(side->driver), PS_OK);
}

static ps_log_params_t log_of(const ccsim_t *sim, int32_t flow, const char *path)
{
    return (ps_log_params_t){ .path = path,
                              .correlation_id = flow + 1,
                              .session_id = flow + 1,
                              .stream_id = STREAM,
                              .initial_term_id = FIRST_TERM,
                              .term_id = FIRST_TERM,
                              .term_length = sim->options.term_length,
                              .mtu = sim->options.mtu,
                              .page_size = 4096,
                              .sparse = 1,
                              .signal_eos = 1,
                              .file_mode = 0600,
                              .reserve_terms = 0 };
}

static void open_sender(ccsim_t *sim, int32_t index)
{
    flow_t *flow = &sim->flows[index];
    side_t *side = &sim->sides[0];
    const ps_send_endpoint_params_t endpoint = {
        .id = index + 1,
        .status_counter_id = counter(side),
        .destinations_counter_id = -1,
        .refused_counter_id = -1,
        .data = { .bind = address(0, (uint16_t)(PORT + 100 + index)),
                  .connect = address(1, (uint16_t)(PORT + index)),
                  .rcvbuf_bytes = 1 << 24 }
    };
    CHECK_EQ(ps_send_endpoint_open(side->driver, &endpoint, &flow->send_endpoint), PS_OK);
    snprintf(flow->out_path, sizeof flow->out_path, "%.63s/%d.log", side->directory, index);
    ps_log_params_t log = log_of(sim, index, flow->out_path);
    log.type = PS_LOG_EXCLUSIVE;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    CHECK_EQ(ps_log_map(flow->out_path, 0, &flow->out), PS_OK);
    flow->slot_index = ps_slot_allocate(side->shared, PS_SLOT_PUBLICATION, index + 1);
    flow->slot = &side->shared->publications[flow->slot_index];
    flow->limit = counter(side);
    const ps_publication_params_t params = { .id = index + 1,
                                             .log_path = flow->out_path,
                                             .endpoint = flow->send_endpoint,
                                             .slot = flow->slot_index,
                                             .publisher_limit_counter_id = flow->limit,
                                             .publisher_position_counter_id = counter(side),
                                             .sender_position_counter_id = counter(side),
                                             .sender_limit_counter_id = counter(side),
                                             .back_pressure_counter_id = counter(side),
                                             .naks_counter_id = counter(side),
                                             .receivers_counter_id = counter(side),
                                             .flow_control = PS_FC_UNICAST,
                                             .window_bytes = sim->options.term_length / 2,
                                             .reserved_position = INT64_MAX,
                                             .untethered_window_limit_timeout_ns = 5 * SECOND_NS,
                                             .untethered_linger_timeout_ns = 5 * SECOND_NS,
                                             .untethered_resting_timeout_ns = 10 * SECOND_NS,
                                             .exclusive = 1,
                                             .signal_eos = 1 };
    CHECK_EQ(ps_publication_add(side->driver, &params, &flow->pub), PS_OK);
}

static void open_receiver(ccsim_t *sim, int32_t index)
{
    flow_t *flow = &sim->flows[index];
    side_t *side = &sim->sides[1];
    const ps_recv_endpoint_params_t endpoint = { .id = 100 + index,
                                                 .status_counter_id = counter(side),
                                                 .receiver_id = 1000 + index };
    const ps_recv_destination_params_t destination = {
        .id = 1, .socket = { .bind = address(1, (uint16_t)(PORT + index)), .rcvbuf_bytes = 1 << 24 }
    };
    ps_addr_t local;
    CHECK_EQ(ps_recv_endpoint_open(side->driver, &endpoint, &flow->recv_endpoint), PS_OK);
    CHECK_EQ(
        ps_recv_endpoint_add_destination(side->driver, flow->recv_endpoint, &destination, &local),
        PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_interest(side->driver, flow->recv_endpoint, STREAM, 0, 1), PS_OK);
}

static void make_image(ccsim_t *sim, const ps_event_t *event)
{
    const int32_t index = (int32_t)event->id - 100;
    flow_t *flow = &sim->flows[index];
    side_t *side = &sim->sides[1];
    snprintf(flow->in_path, sizeof flow->in_path, "%.63s/%d.log", side->directory, index);
    ps_log_params_t log = log_of(sim, index, flow->in_path);
    log.type = PS_LOG_IMAGE;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    const int32_t slot = ps_slot_allocate(side->shared, PS_SLOT_IMAGE, index + 1);
    flow->image_slot = &side->shared->images[slot];
    flow->position = counter(side);
    flow->reader = counter(side);
    const ps_image_params_t params = { .id = index + 1,
                                       .log_path = flow->in_path,
                                       .endpoint = flow->recv_endpoint,
                                       .slot = slot,
                                       .high_water_counter_id = counter(side),
                                       .position_counter_id = flow->position,
                                       .naks_counter_id = counter(side),
                                       .session_id = index + 1,
                                       .stream_id = STREAM,
                                       .initial_term_id = FIRST_TERM,
                                       .active_term_id = event->setup.active_term_id,
                                       .term_offset = event->setup.term_offset,
                                       .window_bytes = sim->options.window_bytes,
                                       .congestion_control = sim->options.congestion_control,
                                       .cubic_only = sim->options.not_friendly,
                                       .congestion_rtt_counter_id = counter(side),
                                       .congestion_window_counter_id = counter(side),
                                       .destination = event->setup.destination,
                                       .source = event->setup.source,
                                       .nak_delay_ns = -1,
                                       .reserved_position = INT64_MAX,
                                       .join_ordinal = -1,
                                       .peer_capabilities = event->setup.peer_capabilities,
                                       .untethered_window_limit_timeout_ns = 5 * SECOND_NS,
                                       .untethered_linger_timeout_ns = 5 * SECOND_NS,
                                       .untethered_resting_timeout_ns = 10 * SECOND_NS,
                                       .reliable = 1,
                                       .rejoin = 1 };
    const ps_subscriber_params_t reader = { .position_counter_id = flow->reader,
                                            .slot = ps_slot_allocate(side->shared,
                                                                     PS_SLOT_SUBSCRIBER, index + 1),
                                            .client_slot = 0,
                                            .tether = 1,
                                            .rejoin = 1 };
    CHECK_EQ(ps_image_add(side->driver, &params, &flow->image), PS_OK);
    CHECK_EQ(ps_image_add_subscriber(side->driver, flow->image, &reader), PS_OK);
}

ccsim_t *ccsim_open(const ccsim_options_t *options)
{
    ccsim_t *sim = calloc(1, sizeof(*sim));
    CHECK(sim != NULL && options->flows >= 1 && options->flows <= CCSIM_FLOWS_MAX);
    sim->options = *options;
    sim->started_ns = 100 * SECOND_NS;
    sim->now_ns = sim->started_ns;
    sim->step_ns = options->rtt_ns / 1000 > STEP_LEAST_NS ? options->rtt_ns / 1000 : STEP_LEAST_NS;
    CHECK_EQ(ps_simnet_create(options->seed, &sim->net), PS_OK);
    const ps_simnet_link_t there = { .delay_ns = options->rtt_ns / 2,
                                     .loss_ppm = options->loss_ppm,
                                     .reorder_ppm = options->reorder_ppm,
                                     .reorder_ns = options->reorder_ns,
                                     .duplicate_ppm = options->duplicate_ppm,
                                     .bandwidth_bytes_per_s = options->bandwidth_bytes_per_s,
                                     .queue_bytes = options->queue_bytes };
    const ps_simnet_link_t back = { .delay_ns = options->rtt_ns - options->rtt_ns / 2,
                                    .loss_ppm = options->loss_ppm };
    for (int32_t host = 0; host < 2; host++) {
        const ps_addr_t at = address((uint8_t)host, 0);
        CHECK_EQ(ps_simnet_add_host(sim->net), host);
        CHECK_EQ(ps_simnet_add_address(sim->net, host, &at), PS_OK);
    }
    CHECK_EQ(ps_simnet_set_link(sim->net, 0, 1, &there), PS_OK);
    CHECK_EQ(ps_simnet_set_link(sim->net, 1, 0, &back), PS_OK);
    open_side(sim, 0);
    open_side(sim, 1);
    for (int32_t i = 0; i < options->flows; i++) {
        sim->flows[i].start_ns = sim->started_ns + i * options->start_apart_ns;
        open_receiver(sim, i);
        open_sender(sim, i);
    }
    return sim;
}

void ccsim_close(ccsim_t *sim)
{
    for (int32_t i = 0; i < sim->options.flows; i++) {
        ps_log_unmap(&sim->flows[i].out);
    }
    for (int32_t which = 0; which < 2; which++) {
        side_t *side = &sim->sides[which];
        ps_driver_destroy(side->driver);
        ps_shared_close(side->shared);
        ps_cnc_close(side->cnc);
        directory_remove(side->directory);
    }
    ps_net_free(sim->path);
    ps_simnet_destroy(sim->net);
    dropping = NULL;
    free(sim);
}

/* ---- producers and readers ------------------------------------------------------------------- */

/* Fills up to the publisher limit with frames of a full datagram. */
static void produce(ccsim_t *sim, flow_t *flow)
{
    const int64_t offered = sim->options.offered_bytes_per_s;
    int64_t limit = ps_counter_get(sim->sides[0].cnc, flow->limit);
    ps_log_t *log = &flow->out;
    bool any = false;
    if (sim->now_ns < flow->start_ns) {
        return;
    }
    if (offered > 0) {
        const int64_t due = (sim->now_ns - flow->start_ns) / 1000 * offered / 1000000;
        limit = due < limit ? due : limit;
    }
    for (int64_t at = ps_log_producer_position(log); at < limit;
         at = ps_log_producer_position(log)) {
        const int32_t rest = log->term_length - (int32_t)(at & log->term_mask);
        const int32_t count = atomic_load(&log->meta->active_term_count);
        _Atomic int64_t *tail = &log->meta->tail[count % PS_PARTITIONS];
        const int64_t raw = atomic_load(tail);
        any = true;
        if ((raw & 0xFFFFFFFF) >= log->term_length) {
            CHECK(ps_log_rotate(log, count, (int32_t)(raw >> 32)));
            continue;
        }
        if (rest < sim->options.mtu) {
            CHECK(ps_log_pad(log, at, rest, 0));
            atomic_fetch_add(tail, rest);
            continue;
        }
        ps_frame_t *frame = ps_frame_at(log, at);
        frame->term_offset = (int32_t)(at & log->term_mask);
        frame->session_id = log->session_id;
        frame->stream_id = log->stream_id;
        frame->term_id = ps_term_id_at(at, log->shift, log->initial_term_id);
        frame->reserved_value = 0;
        atomic_store(ps_frame_word(frame),
                     ps_frame_word_of(sim->options.mtu, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA));
        atomic_fetch_add(tail, sim->options.mtu);
    }
    if (any && atomic_exchange(&flow->slot->dirty, 1) == 0) {
        ps_shared_set_dirty(sim->sides[0].shared, flow->slot_index);
    }
}

static void step(ccsim_t *sim)
{
    ps_event_t event;
    ps_simnet_advance(sim->net, sim->now_ns);
    for (int32_t i = 0; i < sim->options.flows; i++) {
        produce(sim, &sim->flows[i]);
    }
    for (int32_t side = 0; side < 2; side++) {
        ps_driver_t *driver = sim->sides[side].driver;
        for (int32_t i = 0; i < SETTLE_STEPS && ps_driver_step(driver, sim->now_ns) > 0; i++) {
        }
        while (ps_driver_poll_event(driver, &event)) {
            if (event.type == PS_EV_SETUP) {
                make_image(sim, &event);
            }
        }
    }
    for (int32_t i = 0; i < sim->options.flows; i++) {
        flow_t *flow = &sim->flows[i];
        if (flow->image != NULL) {
            ps_counter_set(sim->sides[1].cnc, flow->reader,
                           ps_counter_get(sim->sides[1].cnc, flow->position));
        }
    }
}

void ccsim_run(ccsim_t *sim, int64_t ns)
{
    const int64_t end_ns = sim->now_ns + ns;
    while (sim->now_ns < end_ns) {
        sim->now_ns += sim->step_ns;
        step(sim);
    }
}

int64_t ccsim_now(const ccsim_t *sim)
{
    return sim->now_ns - sim->started_ns;
}

void ccsim_flow(const ccsim_t *sim, int32_t index, ccsim_flow_state_t *out)
{
    const flow_t *flow = &sim->flows[index];
    *out = (ccsim_flow_state_t){ 0 };
    if (flow->image == NULL) {
        return;
    }
    out->delivered = ps_counter_get(sim->sides[1].cnc, flow->position);
    out->congestion_window = atomic_load(&flow->image_slot->congestion_window);
    out->rtt_ns = atomic_load(&flow->image_slot->rtt_ns);
    out->lost_bytes = atomic_load(&flow->image_slot->lost_bytes);
    out->missing_gaps = atomic_load(&flow->image_slot->gaps);
    out->cause = atomic_load(&flow->slot->cause);
    out->blocked_congestion_ns = atomic_load(&flow->slot->blocked_ns[PS_CAUSE_CONGESTION_WINDOW]);
}

int64_t ccsim_system(const ccsim_t *sim, int32_t side, int32_t id)
{
    return ps_counter_get(sim->sides[side].cnc, id);
}

void ccsim_path(const ccsim_t *sim, ps_simnet_stats_t *out)
{
    ps_simnet_statistics(sim->net, out);
}
