/* SPDX-License-Identifier: Apache-2.0 */
#include "sender_rig.h"

#include <unistd.h>

int32_t rig_make_counter(rig_t *rig, int64_t value)
{
    const int32_t id = ps_counter_allocate(rig->cnc, 999, "", 0, "test", 4, 1, 1, 1, value, 0);
    CHECK(id >= 0);
    return id;
}

int64_t rig_counter(const rig_t *rig, int32_t id)
{
    return ps_counter_get(rig->cnc, id);
}

static void make_files(rig_t *rig, const rig_options_t *options)
{
    strcpy(rig->directory, "/dev/shm/ps-rig-XXXXXX");
    CHECK(mkdtemp(rig->directory) != NULL);
    const ps_cnc_params_t cnc = { .directory = rig->directory,
                                  .client_liveness_timeout_ns = 10 * S,
                                  .pid = getpid(),
                                  .counter_values_bytes = 128 * 1024,
                                  .error_log_bytes = 64 * 1024,
                                  .file_mode = 0600 };
    CHECK_EQ(ps_cnc_create(&cnc, &rig->cnc), PS_OK);
    const ps_shared_params_t shared = { .directory = rig->directory,
                                        .clients = 8,
                                        .publications =
                                            options->publications != 0 ? options->publications : 64,
                                        .images = 8,
                                        .subscribers = 8,
                                        .groups = 1,
                                        .file_mode = 0600,
                                        .daemon_id = 1,
                                        .daemon_epoch = 1,
                                        .receiver_id_base = 1,
                                        .pid = getpid() };
    CHECK_EQ(ps_shared_create(&shared, &rig->shared), PS_OK);
}

static void make_driver(rig_t *rig, const rig_options_t *options)
{
    rig->net = memnet_create();
    ps_driver_params_t params = memnet_driver_params(rig->net, rig->cnc, rig->shared);
    params.seed = 1;
    params.receiver_id_base = 1;
    params.daemon_id = 1;
    params.daemon_epoch = 1;
    params.advertise = (uint8_t)options->advertise;
    params.retransmit_delay_ns = options->retransmit_delay_ns;
    CHECK_EQ(ps_driver_create(&params, &rig->driver), PS_OK);
    CHECK_EQ(ps_driver_start(rig->driver), PS_OK);
}

static void open_endpoint(rig_t *rig, int32_t kind)
{
    ps_send_endpoint_params_t params = { .id = 1,
                                         .status_counter_id = rig->status,
                                         .destinations_counter_id = rig->destinations,
                                         .refused_counter_id = rig->refused };
    params.data.bind = memnet_addr(1, RIG_CONTROL);
    rig->local = params.data.bind;
    if (kind == RIG_DYNAMIC || kind == RIG_MANUAL) {
        params.mdc = kind == RIG_DYNAMIC ? PS_MDC_DYNAMIC : PS_MDC_MANUAL;
    } else {
        params.data.connect = rig->peer;
    }
    if (kind == RIG_MULTICAST) {
        params.multicast = 1;
        params.control.bind = memnet_addr(2, RIG_CONTROL + 1);
        rig->local = params.control.bind;
    }
    CHECK_EQ(ps_send_endpoint_open(rig->driver, &params, &rig->endpoint), PS_OK);
}

ps_publication_params_t rig_publication_params(const rig_t *rig, int64_t id, const char *log_path,
                                               int32_t slot)
{
    return (ps_publication_params_t){ .id = id,
                                      .log_path = log_path,
                                      .endpoint = rig->endpoint,
                                      .slot = slot,
                                      .publisher_limit_counter_id = rig->limit,
                                      .publisher_position_counter_id = rig->position,
                                      .sender_position_counter_id = rig->sender_position,
                                      .sender_limit_counter_id = rig->sender_limit,
                                      .back_pressure_counter_id = rig->back_pressure,
                                      .naks_counter_id = rig->naks,
                                      .receivers_counter_id = rig->receivers,
                                      .flow_control = PS_FC_UNICAST,
                                      .max_resend = 16,
                                      .reserved_position = INT64_MAX,
                                      .untethered_window_limit_timeout_ns = 5 * S,
                                      .untethered_linger_timeout_ns = 5 * S,
                                      .untethered_resting_timeout_ns = 10 * S };
}

static void add_publication(rig_t *rig, const rig_options_t *options)
{
    snprintf(rig->log_path, sizeof(rig->log_path), "%s/1.log", rig->directory);
    const ps_log_params_t log = { .path = rig->log_path,
                                  .correlation_id = 1,
                                  .session_id = GOLDEN_SESSION,
                                  .stream_id = GOLDEN_STREAM,
                                  .initial_term_id = GOLDEN_TERM,
                                  .term_id = ps_wrap_add(GOLDEN_TERM, options->term_count),
                                  .term_offset = options->first_offset,
                                  .term_length = RIG_TERM,
                                  .mtu = RIG_MTU,
                                  .page_size = 4096,
                                  .sparse = 1,
                                  .signal_eos = 1,
                                  .file_mode = 0600,
                                  .type = options->sealed      ? PS_LOG_SEALED
                                          : options->exclusive ? PS_LOG_EXCLUSIVE
                                                               : PS_LOG_CONCURRENT,
                                  .reserve_terms = 3 };
    CHECK_EQ(ps_log_create(&log), PS_OK);
    CHECK_EQ(ps_log_map(rig->log_path, 0, &rig->log), PS_OK);
    const int32_t slot = ps_slot_allocate(rig->shared, PS_SLOT_PUBLICATION, 1);
    CHECK(slot >= 0);
    rig->slot = &rig->shared->publications[slot];
    ps_publication_params_t params = rig_publication_params(rig, 1, rig->log_path, slot);
    if (options->kind == RIG_IPC) {
        params.sender_position_counter_id = -1;
        params.sender_limit_counter_id = -1;
        params.back_pressure_counter_id = -1;
        params.naks_counter_id = -1;
    }
    params.group = options->kind != RIG_IPC && options->kind != RIG_UNICAST;
    if (options->flow_control != 0) {
        params.flow_control = options->flow_control;
    } else if (params.group) {
        params.flow_control = PS_FC_MAX;
    }
    params.fc_group_min_size = options->group_min_size;
    params.fc_group_tag = options->group_tag;
    params.fc_receiver_timeout_ns = options->fc_timeout_ns;
    params.rate_bytes_per_s = options->rate_bytes_per_s;
    params.rate_messages_per_s = options->rate_messages_per_s;
    params.policy = options->policy;
    params.low_watermark_bytes = options->low_watermark_bytes;
    params.depth_messages = options->depth_messages;
    params.window_bytes = options->window_bytes != 0 ? options->window_bytes : RIG_TERM / 2;
    if (options->reserved_position != 0) {
        params.reserved_position = options->reserved_position;
    }
    params.exclusive = (uint8_t)(options->exclusive || options->sealed);
    params.spies_simulate_connection = (uint8_t)options->ssc;
    params.signal_eos = 1;
    params.channel_timestamp = options->timestamp_offset != 0;
    params.channel_timestamp_offset = options->timestamp_offset;
    CHECK_EQ(ps_publication_add(rig->driver, &params, &rig->pub), PS_OK);
}

rig_t *rig_open(const rig_options_t *options)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    CHECK(rig != NULL);
    rig->kind = options->kind;
    rig->now_ns = 1000 * S;
    rig->peer = memnet_addr(9, RIG_PORT);
    make_files(rig, options);
    make_driver(rig, options);
    int32_t *const ids[] = { &rig->limit,        &rig->position,      &rig->sender_position,
                             &rig->sender_limit, &rig->back_pressure, &rig->naks,
                             &rig->receivers,    &rig->destinations,  &rig->status,
                             &rig->refused };
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        *ids[i] = rig_make_counter(rig, 0);
    }
    if (options->kind != RIG_IPC) {
        open_endpoint(rig, options->kind);
    }
    add_publication(rig, options);
    return rig;
}

void rig_succeed(rig_t *rig)
{
    ps_driver_destroy(rig->driver);
    ps_driver_params_t params = memnet_driver_params(rig->net, rig->cnc, rig->shared);
    params.seed = 2;
    params.receiver_id_base = 2;
    CHECK_EQ(ps_driver_create(&params, &rig->driver), PS_OK);
    CHECK_EQ(ps_driver_start(rig->driver), PS_OK);
    if (rig->kind != RIG_IPC) {
        open_endpoint(rig, rig->kind);
    }
}

ps_publication_params_t rig_adopted_publication(const rig_t *rig)
{
    const int32_t slot = (int32_t)(rig->slot - rig->shared->publications);
    ps_publication_params_t params = rig_publication_params(rig, 1, rig->log_path, slot);
    params.window_bytes = RIG_TERM / 2;
    params.signal_eos = 1;
    params.adopted = 1;
    return params;
}

void rig_close(rig_t *rig)
{
    char command[128];
    ps_driver_destroy(rig->driver);
    memnet_destroy(rig->net);
    ps_log_unmap(&rig->log);
    ps_shared_close(rig->shared);
    ps_cnc_close(rig->cnc);
    snprintf(command, sizeof(command), "rm -rf '%s'", rig->directory);
    CHECK(system(command) == 0);
    free(rig);
}

void rig_step(rig_t *rig, int64_t by_ns)
{
    rig->now_ns += by_ns;
    for (int i = 0; i < 64 && ps_driver_step(rig->driver, rig->now_ns) > 0; i++) {
    }
}

int64_t rig_tail(const rig_t *rig)
{
    return ps_log_producer_position(&rig->log);
}

void rig_dirty(rig_t *rig)
{
    const int64_t index = rig->slot - rig->shared->publications;
    const uint32_t before = atomic_load(&rig->slot->dirty);
    if (before == PS_DIRTY_HOT || before == PS_DIRTY_DATA) {
        return;
    }
    if (atomic_exchange(&rig->slot->dirty, PS_DIRTY_DATA) == PS_DIRTY_NOT) {
        ps_shared_set_dirty(rig->shared, (int32_t)index);
    }
}

static int64_t reserve(rig_t *rig, int32_t span)
{
    int64_t position = rig_tail(rig);
    const int32_t rest = RIG_TERM - (int32_t)(position & rig->log.term_mask);
    const int32_t count = atomic_load(&rig->log.meta->active_term_count);
    _Atomic int64_t *tail = &rig->log.meta->tail[count % PS_PARTITIONS];
    const int64_t raw = atomic_load(tail);
    if ((raw & 0xFFFFFFFF) >= RIG_TERM || rest < span) {
        if ((raw & 0xFFFFFFFF) < RIG_TERM) {
            CHECK(ps_log_pad(&rig->log, position, rest, 0));
            atomic_fetch_add(tail, rest);
        }
        CHECK(ps_log_rotate(&rig->log, count, (int32_t)(raw >> 32)));
        return reserve(rig, span);
    }
    atomic_fetch_add(tail, span);
    return position;
}

static void fill_header(const rig_t *rig, int64_t position)
{
    ps_frame_t *frame = ps_frame_at(&rig->log, position);
    frame->term_offset = (int32_t)(position & rig->log.term_mask);
    frame->session_id = rig->log.session_id;
    frame->stream_id = rig->log.stream_id;
    frame->term_id = ps_term_id_at(position, rig->log.shift, rig->log.initial_term_id);
    frame->reserved_value = 0;
}

int64_t rig_offer(rig_t *rig, const void *payload, int32_t length, uint8_t flags)
{
    const int32_t span = ps_align32(length + PS_HEADER_BYTES);
    const int64_t position = reserve(rig, span);
    ps_frame_t *frame = ps_frame_at(&rig->log, position);
    fill_header(rig, position);
    if (payload != NULL) {
        memcpy((uint8_t *)frame + PS_HEADER_BYTES, payload, (size_t)length);
    }
    atomic_store(ps_frame_word(frame),
                 ps_frame_word_of(length + PS_HEADER_BYTES, flags, PS_TYPE_DATA));
    rig_dirty(rig);
    return position + span;
}

int64_t rig_claim(rig_t *rig, int32_t payload_length, int32_t client_slot)
{
    const int32_t length = payload_length + PS_HEADER_BYTES;
    const int64_t position = reserve(rig, ps_align32(length));
    fill_header(rig, position);
    atomic_store(ps_frame_word(ps_frame_at(&rig->log, position)),
                 ps_claim_word_of(length, client_slot));
    rig_dirty(rig);
    return position;
}

int rig_commit(rig_t *rig, int64_t position, int32_t payload_length, int32_t client_slot)
{
    const int32_t length = payload_length + PS_HEADER_BYTES;
    uint64_t expected = ps_claim_word_of(length, client_slot);
    const bool done = atomic_compare_exchange_strong(
        ps_frame_word(ps_frame_at(&rig->log, position)), &expected,
        ps_frame_word_of(length, PS_FLAG_UNFRAGMENTED, PS_TYPE_DATA));
    if (!done) {
        atomic_fetch_add(&rig->shared->clients[client_slot].claims_lost, 1);
    }
    rig_dirty(rig);
    return done;
}

void rig_inject(rig_t *rig, const ps_addr_t *from, const void *data, uint32_t length)
{
    CHECK(memnet_inject(rig->net, &rig->local, from, data, length));
}

void rig_sm(rig_t *rig, int64_t receiver_id, const ps_addr_t *from, int64_t position,
            int32_t window, uint8_t flags)
{
    uint8_t out[PS_CONTROL_MAX];
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = ps_term_id_at(position, rig->log.shift, GOLDEN_TERM),
                         .term_offset = (int32_t)(position & rig->log.term_mask),
                         .window = window,
                         .receiver_id = receiver_id,
                         .flags = flags };
    rig_inject(rig, from, out, ps_wire_build_sm(out, &sm, NULL));
}

const memnet_dgram_t *rig_take(rig_t *rig)
{
    CHECK(memnet_take(rig->net, &rig->got));
    return &rig->got;
}

int rig_event(rig_t *rig, int32_t type, ps_event_t *out)
{
    while (ps_driver_poll_event(rig->driver, out)) {
        if (out->type == type) {
            return 1;
        }
    }
    return 0;
}

void rig_expect_golden(rig_t *rig, const char *name)
{
    uint8_t expected[256];
    const uint32_t length = golden(name, expected);
    CHECK(length > 0);
    rig_take(rig);
    if (rig->got.length != length || memcmp(rig->got.data, expected, length) != 0) {
        fprintf(stderr, "not the golden %s (%u bytes, type %u)\n", name, rig->got.length,
                rig->got.data[6]);
        exit(1);
    }
}

void rig_connect(rig_t *rig)
{
    rig_step(rig, 0);
    memnet_discard(rig->net);
    rig_sm(rig, GOLDEN_RECEIVER, &rig->peer,
           rig_tail(rig) > 0 ? rig_counter(rig, rig->sender_position) : 0, RIG_TERM / 2, 0);
    rig_step(rig, 0);
    memnet_discard(rig->net);
}

int32_t rig_add_reader(rig_t *rig, int64_t position, int32_t client_slot, int tether)
{
    const int32_t counter = rig_make_counter(rig, position);
    const ps_subscriber_params_t params = { .position_counter_id = counter,
                                            .slot = 0,
                                            .client_slot = client_slot,
                                            .tether = (uint8_t)tether,
                                            .rejoin = 1 };
    CHECK_EQ(ps_publication_add_subscriber(rig->driver, rig->pub, &params), PS_OK);
    return counter;
}

int32_t rig_add_client(rig_t *rig, int64_t id)
{
    const int32_t slot = ps_slot_allocate(rig->shared, PS_SLOT_CLIENT, id);
    CHECK(slot >= 0);
    CHECK_EQ(ps_publication_add_client(rig->driver, rig->pub, slot), PS_OK);
    return slot;
}

int32_t rig_cause(const rig_t *rig)
{
    return atomic_load(&rig->slot->cause);
}

int32_t rig_fill(rig_t *rig)
{
    int32_t count = 0;
    while (rig_tail(rig) < rig_counter(rig, rig->limit)) {
        rig_offer(rig, NULL, 992, PS_FLAG_UNFRAGMENTED);
        count++;
    }
    return count;
}

void rig_open_publisher(rig_t *rig, int64_t client_id, int exclusive, ps_client_t **client,
                        ps_pub_t **pub)
{
    const ps_client_params_t opened = { .directory = rig->directory,
                                        .client_id = client_id,
                                        .client_slot = ps_slot_allocate(rig->shared, PS_SLOT_CLIENT,
                                                                        client_id),
                                        .sender_wake_fd = -1,
                                        .receiver_wake_fd = -1,
                                        .watch_fd = -1 };
    CHECK_EQ(ps_client_open(&opened, client), PS_OK);
    const ps_pub_params_t params = { .log_path = rig->log_path,
                                     .registration_id = 1,
                                     .publication_slot =
                                         (int32_t)(rig->slot - rig->shared->publications),
                                     .limit_counter_id = rig->limit,
                                     .exclusive = (uint8_t)exclusive };
    CHECK_EQ(ps_pub_open(*client, &params, pub), PS_OK);
}
