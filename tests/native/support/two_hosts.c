/* SPDX-License-Identifier: Apache-2.0
 * two_hosts.c: the simulated hosts of two_hosts.h.
 */
#define _GNU_SOURCE 1

#include "two_hosts.h"

enum { STREAM = 1001, SESSION = 0x5E55, FIRST_TERM = 17, PORT = 40123 };

static ps_addr_t address(int32_t host, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { 10, 0, 0, (uint8_t)(host + 1) } };
}

static int32_t counter(two_hosts_side_t *side, int64_t value)
{
    const int32_t id = ps_counter_allocate(side->cnc, 1, NULL, 0, "hosts", 4, 1, 5, 0, value, 1);
    CHECK(id >= 0);
    return id;
}

static void path_in(two_hosts_side_t *side, const char *name)
{
    const size_t length = strlen(side->directory);
    CHECK(length + 1 + strlen(name) < sizeof side->path);
    memcpy(side->path, side->directory, length);
    side->path[length] = '/';
    strcpy(side->path + length + 1, name);
}

static void open_side(two_hosts_t *hosts, int32_t which)
{
    two_hosts_side_t *side = &hosts->sides[which];
    directory_make(side->directory, sizeof side->directory);
    side->cnc = cnc_make(side->directory);
    side->shared = shared_make(side->directory);
    ps_driver_params_t params;
    ps_driver_params_default(&params);
    params.net = ps_simnet_host_net(hosts->net, which);
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

static int64_t depth_of(const two_hosts_t *hosts)
{
    return hosts->params.depth > 0 ? hosts->params.depth : TWO_HOSTS_TERM / 2;
}

static ps_log_params_t log_of(const two_hosts_t *hosts, const char *path, int64_t id, uint8_t type)
{
    ps_log_params_t params = log_params(path);
    params.correlation_id = id;
    params.session_id = SESSION;
    params.stream_id = STREAM;
    params.initial_term_id = FIRST_TERM;
    params.term_id = FIRST_TERM;
    params.term_length = TWO_HOSTS_TERM;
    params.mtu = TWO_HOSTS_MTU;
    params.publication_window_bytes = depth_of(hosts);
    params.receiver_window_bytes = TWO_HOSTS_WINDOW;
    params.type = type;
    return params;
}

static void read_through(two_hosts_t *hosts, two_hosts_side_t *side, const ps_img_params_t *params)
{
    CHECK_EQ(ps_img_open(side->client, params, &hosts->img), PS_OK);
    CHECK_EQ(ps_sub_open(side->client, 1, STREAM, &hosts->sub), PS_OK);
    CHECK_EQ(ps_sub_add_image(hosts->sub, hosts->img), PS_OK);
}

static ps_subscriber_params_t reader_of(two_hosts_side_t *side, int64_t credits)
{
    return (ps_subscriber_params_t){ .position_counter_id = counter(side, 0),
                                     .slot = ps_slot_allocate(side->shared, PS_SLOT_SUBSCRIBER, 1),
                                     .client_slot = side->client_slot,
                                     .tether = 1,
                                     .credits = credits,
                                     .credit_burst = credits };
}

static int32_t mode_of(const two_hosts_t *hosts)
{
    return hosts->params.credits > 0 ? PS_CREDIT_AUTOMATIC : PS_CREDIT_PLAIN;
}

static ps_send_endpoint_t *open_socket(two_hosts_side_t *side)
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

static void publish(two_hosts_t *hosts)
{
    two_hosts_side_t *side = &hosts->sides[0];
    path_in(side, "out.log");
    const ps_log_params_t log = log_of(
        hosts, side->path, 11, hosts->params.exclusive ? PS_LOG_EXCLUSIVE : PS_LOG_CONCURRENT);
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_publication_params_t params;
    memset(&params, 0, sizeof params);
    params.id = 11;
    params.log_path = side->path;
    params.endpoint = hosts->params.ipc ? NULL : open_socket(side);
    params.slot = ps_slot_allocate(side->shared, PS_SLOT_PUBLICATION, 11);
    params.publisher_limit_counter_id = counter(side, 0);
    params.publisher_position_counter_id = counter(side, 0);
    params.sender_position_counter_id = counter(side, 0);
    params.sender_limit_counter_id = counter(side, 0);
    params.back_pressure_counter_id = counter(side, 0);
    params.naks_counter_id = counter(side, 0);
    params.receivers_counter_id = -1;
    params.flow_control = PS_FC_UNICAST;
    params.window_bytes = depth_of(hosts);
    params.policy = hosts->params.policy;
    params.max_resend = 16;
    params.reserved_position = INT64_MAX;
    params.exclusive = hosts->params.exclusive;
    CHECK_EQ(ps_publication_add(side->driver, &params, &hosts->publication), PS_OK);
    CHECK_EQ(ps_publication_add_client(side->driver, hosts->publication, side->client_slot), PS_OK);
    const ps_pub_params_t pub = { .log_path = side->path,
                                  .registration_id = 11,
                                  .publication_slot = params.slot,
                                  .exclusive = hosts->params.exclusive,
                                  .limit_counter_id = params.publisher_limit_counter_id };
    CHECK_EQ(ps_pub_open(side->client, &pub, &hosts->pub), PS_OK);
    if (hosts->params.ipc) {
        const ps_subscriber_params_t reader = reader_of(side, hosts->params.credits);
        CHECK_EQ(ps_publication_add_subscriber(side->driver, hosts->publication, &reader), PS_OK);
        const ps_img_params_t img = { .log_path = side->path,
                                      .correlation_id = 11,
                                      .subscription_id = 1,
                                      .position_counter_id = reader.position_counter_id,
                                      .subscriber_slot = reader.slot,
                                      .image_slot = -1,
                                      .publication_slot = params.slot,
                                      .credit_mode = mode_of(hosts) };
        read_through(hosts, side, &img);
    }
}

static void subscribe(two_hosts_t *hosts)
{
    two_hosts_side_t *side = &hosts->sides[1];
    ps_addr_t local;
    ps_recv_endpoint_params_t endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.id = 20;
    endpoint.status_counter_id = counter(side, 0);
    endpoint.receiver_id = 4711;
    CHECK_EQ(ps_recv_endpoint_open(side->driver, &endpoint, &hosts->endpoint), PS_OK);
    ps_recv_destination_params_t destination;
    memset(&destination, 0, sizeof destination);
    destination.id = 21;
    destination.socket.bind = address(1, PORT);
    destination.socket.rcvbuf_bytes = 4 * TWO_HOSTS_WINDOW;
    CHECK_EQ(ps_recv_endpoint_add_destination(side->driver, hosts->endpoint, &destination, &local),
             PS_OK);
    CHECK_EQ(ps_recv_endpoint_add_interest(side->driver, hosts->endpoint, STREAM, 0, 1), PS_OK);
}

static void make_image(two_hosts_t *hosts, const ps_event_t *event)
{
    two_hosts_side_t *side = &hosts->sides[1];
    path_in(side, "in.log");
    ps_log_params_t log = log_of(hosts, side->path, 22, PS_LOG_IMAGE);
    log.term_id = event->setup.active_term_id;
    log.term_offset = event->setup.term_offset;
    CHECK_EQ(ps_log_create(&log), PS_OK);
    ps_image_params_t params = setup_image_params(event, 22);
    params.log_path = side->path;
    params.endpoint = hosts->endpoint;
    params.slot = ps_slot_allocate(side->shared, PS_SLOT_IMAGE, 22);
    params.high_water_counter_id = counter(side, 0);
    params.position_counter_id = counter(side, 0);
    params.naks_counter_id = counter(side, 0);
    params.window_bytes = TWO_HOSTS_WINDOW;
    CHECK_EQ(ps_image_add(side->driver, &params, &hosts->image), PS_OK);
    const ps_subscriber_params_t reader = reader_of(side, hosts->params.credits);
    CHECK_EQ(ps_image_add_subscriber(side->driver, hosts->image, &reader), PS_OK);
    const ps_img_params_t img = { .log_path = side->path,
                                  .correlation_id = 22,
                                  .subscription_id = 1,
                                  .position_counter_id = reader.position_counter_id,
                                  .subscriber_slot = reader.slot,
                                  .image_slot = params.slot,
                                  .publication_slot = -1,
                                  .credit_mode = mode_of(hosts) };
    read_through(hosts, side, &img);
}

void two_hosts_serve(two_hosts_t *hosts)
{
    ps_event_t event;
    for (int32_t which = 0; which < (hosts->params.ipc ? 1 : 2); which++) {
        while (ps_driver_poll_event(hosts->sides[which].driver, &event)) {
            CHECK(event.type != PS_EV_ENDPOINT_ERROR);
            if (event.type == PS_EV_SETUP && hosts->image == NULL) {
                make_image(hosts, &event);
            }
        }
    }
}

void two_hosts_step(two_hosts_t *hosts, int64_t by_ns)
{
    for (int32_t which = 0; which < (hosts->params.ipc ? 1 : 2); which++) {
        (void)ps_driver_step(hosts->sides[which].driver, hosts->now_ns);
        (void)ps_simnet_advance(hosts->net, hosts->now_ns);
    }
    hosts->now_ns += by_ns;
}

void two_hosts_open(two_hosts_t *hosts, const two_hosts_params_t *params)
{
    *hosts = (two_hosts_t){ .params = *params, .now_ns = INT64_C(1000000000) };
    CHECK_EQ(ps_simnet_create(1, &hosts->net), PS_OK);
    for (int32_t host = 0; host < 2; host++) {
        const ps_addr_t at = address(host, 0);
        CHECK_EQ(ps_simnet_add_host(hosts->net), host);
        CHECK_EQ(ps_simnet_add_address(hosts->net, host, &at), PS_OK);
        open_side(hosts, host);
    }
    subscribe(hosts);
    publish(hosts);
}

void two_hosts_close(two_hosts_t *hosts)
{
    ps_sub_close(hosts->sub);
    ps_img_close(hosts->img);
    ps_pub_close(hosts->pub);
    for (int32_t which = 0; which < 2; which++) {
        ps_client_close(hosts->sides[which].client);
        ps_driver_destroy(hosts->sides[which].driver);
        ps_shared_close(hosts->sides[which].shared);
        ps_cnc_close(hosts->sides[which].cnc);
        directory_remove(hosts->sides[which].directory);
    }
    ps_simnet_destroy(hosts->net);
}
