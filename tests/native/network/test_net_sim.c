/* SPDX-License-Identifier: Apache-2.0
 * The simulated network: order, loss, delay, sockets, and that a seed alone decides the trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_net.h"
#include "ps_driver.h"
#include "ps_simnet.h"
#include "penstock.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct inbox {
    int32_t count;
    uint8_t first[4096]; /* first byte of each datagram, in order of arrival */
    ps_addr_t from;
    int64_t rx_ns;
} inbox_t;

typedef struct world {
    ps_simnet_t *simnet;
    ps_net_t *nets[3];
} world_t;

static ps_addr_t address(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { a, b, c, d } };
}

static ps_addr_t host_address(int host, uint16_t port)
{
    return address(10, 0, 0, (uint8_t)(host + 1), port);
}

static world_t make_world(uint64_t seed, const ps_simnet_link_t *link)
{
    world_t world;
    CHECK(ps_simnet_create(seed, &world.simnet) == PS_OK);
    for (int i = 0; i < 3; i++) {
        ps_addr_t ip = host_address(i, 0);
        CHECK(ps_simnet_add_host(world.simnet) == i);
        CHECK(ps_simnet_add_address(world.simnet, i, &ip) == PS_OK);
        world.nets[i] = ps_simnet_host_net(world.simnet, i);
        CHECK(world.nets[i] != NULL);
    }
    CHECK(ps_simnet_set_link(world.simnet, -1, -1, link) == PS_OK);
    return world;
}

static void end_world(world_t *world)
{
    for (int i = 0; i < 3; i++) {
        ps_net_free(world->nets[i]);
    }
    ps_simnet_destroy(world->simnet);
}

static ps_socket_t *open_socket(world_t *world, int host, ps_socket_params_t params)
{
    ps_socket_t *socket = NULL;
    ps_net_t *net = world->nets[host];
    CHECK(net->ops->open(net->state, &params, &socket) == PS_OK);
    CHECK(net->ops->fd(socket) == -1);
    return socket;
}

static void send_bytes(world_t *world, ps_socket_t *socket, const ps_addr_t *to, int count,
                       int64_t now_ns)
{
    for (int i = 0; i < count; i++) {
        uint8_t data[100];
        memset(data, i, sizeof data);
        ps_dgram_t dgram = { data, sizeof data };
        CHECK(world->nets[0]->ops->send(socket, to, &dgram, 1, now_ns) == 1);
    }
}

static void on_datagram(void *context, const uint8_t *data, uint32_t length, const ps_addr_t *from,
                        int64_t rx_ns)
{
    inbox_t *inbox = context;
    CHECK(length == 100);
    CHECK(inbox->count < (int32_t)sizeof inbox->first);
    inbox->first[inbox->count++] = data[0];
    inbox->from = *from;
    inbox->rx_ns = rx_ns;
}

static void receive(world_t *world, ps_socket_t *socket, inbox_t *inbox, int64_t now_ns)
{
    CHECK(world->nets[0]->ops->recv(socket, 4096, on_datagram, inbox, now_ns) >= 0);
}

static void close_socket(world_t *world, ps_socket_t *socket)
{
    world->nets[0]->ops->close(socket);
}

static void test_unicast_arrives_after_the_delay(void)
{
    world_t world = make_world(1, &(ps_simnet_link_t){ .delay_ns = 20 });
    ps_socket_t *rx = open_socket(&world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000) });
    ps_socket_t *tx = open_socket(
        &world, 0,
        (ps_socket_params_t){ .bind = address(0, 0, 0, 0, 0), .connect = host_address(1, 4000) });
    inbox_t inbox = { 0 };
    send_bytes(&world, tx, NULL, 3, 100);
    CHECK(ps_simnet_next_event_ns(world.simnet) == 120);
    CHECK(ps_simnet_advance(world.simnet, 119) == 0);
    receive(&world, rx, &inbox, 119);
    CHECK(inbox.count == 0);
    CHECK(ps_simnet_advance(world.simnet, 120) == 3);
    CHECK(ps_simnet_next_event_ns(world.simnet) == INT64_MAX);
    receive(&world, rx, &inbox, 130);
    CHECK(inbox.count == 3 && inbox.first[0] == 0 && inbox.first[1] == 1 && inbox.first[2] == 2);
    CHECK(inbox.rx_ns == 120);
    ps_addr_t local;
    world.nets[0]->ops->local(tx, &local);
    CHECK(local.port != 0 && inbox.from.port == local.port);
    CHECK(memcmp(inbox.from.ip, host_address(0, 0).ip, 4) == 0);
    close_socket(&world, rx);
    close_socket(&world, tx);
    end_world(&world);
}

static void test_multicast_reaches_members_only(void)
{
    world_t world = make_world(1, &(ps_simnet_link_t){ .delay_ns = 5 });
    ps_addr_t group = address(239, 1, 1, 1, 4000);
    ps_socket_params_t member = { .bind = group, .group = group, .reuse = 1 };
    ps_socket_t *one = open_socket(&world, 1, member);
    ps_socket_t *two = open_socket(&world, 2, member);
    ps_socket_t *own = open_socket(&world, 0, member);
    ps_socket_t *own_too = open_socket(&world, 0, member);
    ps_socket_t *other =
        open_socket(&world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000) });
    ps_socket_t *tx =
        open_socket(&world, 0, (ps_socket_params_t){ .bind = address(0, 0, 0, 0, 0) });
    send_bytes(&world, tx, &group, 2, 0);
    ps_simnet_advance(world.simnet, 0);
    inbox_t boxes[5] = { 0 };
    ps_socket_t *sockets[5] = { own, own_too, one, two, other };
    static const int32_t EXPECTED[5] = { 2, 2, 2, 2, 0 };
    for (int i = 0; i < 5; i++) {
        receive(&world, sockets[i], &boxes[i], 0);
        CHECK(boxes[i].count == (i < 2 ? 2 : 0)); /* own host: no link to cross */
    }
    ps_simnet_advance(world.simnet, 5);
    for (int i = 0; i < 5; i++) {
        receive(&world, sockets[i], &boxes[i], 5);
        CHECK(boxes[i].count == EXPECTED[i]);
        close_socket(&world, sockets[i]);
    }
    close_socket(&world, tx);
    end_world(&world);
}

static int32_t lossy_run(uint64_t seed, uint64_t *hash)
{
    ps_simnet_link_t link = { .delay_ns = 1000, .jitter_ns = 500, .loss_ppm = 50000 };
    world_t world = make_world(seed, &link);
    ps_socket_t *rx = open_socket(&world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000) });
    ps_socket_t *tx = open_socket(&world, 0, (ps_socket_params_t){ .bind = host_address(0, 4001) });
    ps_addr_t to = host_address(1, 4000);
    inbox_t inbox = { 0 };
    for (int64_t now = 0; now < 20; now++) {
        send_bytes(&world, tx, &to, 100, now * 10000);
        ps_simnet_advance(world.simnet, now * 10000 + 5000);
        receive(&world, rx, &inbox, now * 10000 + 5000);
    }
    ps_simnet_stats_t stats;
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.sent == 2000 && stats.bytes_sent == 200000);
    CHECK(stats.lost + stats.delivered == 2000);
    CHECK(stats.delivered == (uint64_t)inbox.count);
    int reordered = 0;
    for (int32_t i = 1; i < inbox.count; i++) {
        reordered += inbox.first[i] + 1 == inbox.first[i - 1];
    }
    CHECK(reordered > 0);
    *hash = ps_simnet_trace_hash(world.simnet);
    close_socket(&world, rx);
    close_socket(&world, tx);
    end_world(&world);
    return inbox.count;
}

static void test_the_seed_decides_the_trace(void)
{
    uint64_t first, again, other;
    int32_t count = lossy_run(7, &first);
    CHECK(count > 1800 && count < 1970); /* 5 % of 2000, five standard deviations */
    CHECK(lossy_run(7, &again) == count);
    lossy_run(8, &other);
    CHECK(first == again);
    CHECK(first != other);
}

static void test_bandwidth_and_queue(void)
{
    /* 100 bytes at 1 MB/s: 100 us each; the queue holds three. */
    ps_simnet_link_t link = { .bandwidth_bytes_per_s = 1000000, .queue_bytes = 300 };
    world_t world = make_world(1, &link);
    ps_socket_t *rx = open_socket(&world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000) });
    ps_socket_t *tx = open_socket(&world, 0, (ps_socket_params_t){ .bind = host_address(0, 4001) });
    ps_addr_t to = host_address(1, 4000);
    inbox_t inbox = { 0 };
    send_bytes(&world, tx, &to, 5, 0);
    CHECK(ps_simnet_advance(world.simnet, 299999) == 2);
    CHECK(ps_simnet_advance(world.simnet, 300000) == 1);
    receive(&world, rx, &inbox, 300000);
    CHECK(inbox.count == 3);
    ps_simnet_stats_t stats;
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.queue_full == 2);
    close_socket(&world, rx);
    close_socket(&world, tx);
    end_world(&world);
}

static void test_a_burst_ends_by_time_on_a_quiet_link(void)
{
    /* For ever, by number of datagrams. */
    ps_simnet_link_t link = { .burst_enter_ppm = 1000000, .burst_loss_ppm = 1000000 };
    const int64_t second = 1000000000;
    world_t world = make_world(1, &link);
    ps_socket_t *tx = open_socket(&world, 0, (ps_socket_params_t){ .bind = host_address(0, 4001) });
    ps_addr_t to = host_address(1, 4000);
    ps_simnet_stats_t stats;
    send_bytes(&world, tx, &to, 1, second);
    send_bytes(&world, tx, &to, 20, 3 * second - 1);
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.lost == 21);
    send_bytes(&world, tx, &to, 1, 3 * second);
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.lost == 21);
    close_socket(&world, tx);
    end_world(&world);
}

static void test_sockets_refuse_as_the_kernel_does(void)
{
    world_t world = make_world(1, &(ps_simnet_link_t){ 0 });
    ps_net_t *net = world.nets[0];
    ps_socket_t *tx = open_socket(&world, 0, (ps_socket_params_t){ .bind = host_address(0, 4000) });
    ps_socket_t *none = NULL;
    ps_socket_params_t taken = { .bind = address(0, 0, 0, 0, 4000) };
    CHECK(net->ops->open(net->state, &taken, &none) == PS_E_ADDRESS_IN_USE);
    ps_socket_params_t foreign = { .bind = host_address(1, 4000) };
    CHECK(net->ops->open(net->state, &foreign, &none) == PS_E_NO_INTERFACE);
    ps_socket_params_t range = { .bind = host_address(0, 0), .port_low = 4000, .port_high = 4001 };
    ps_socket_t *last = open_socket(&world, 0, range);
    ps_addr_t local;
    net->ops->local(last, &local);
    CHECK(local.port == 4001);
    CHECK(net->ops->open(net->state, &range, &none) == PS_E_ADDRESS_IN_USE);
    CHECK(none == NULL);
    close_socket(&world, tx);
    close_socket(&world, last);
    end_world(&world);
}

static void test_a_connected_socket_hears_its_peer_only(void)
{
    world_t world = make_world(1, &(ps_simnet_link_t){ 0 });
    ps_socket_t *one = open_socket(
        &world, 0,
        (ps_socket_params_t){ .bind = host_address(0, 4000), .connect = host_address(1, 4000) });
    ps_socket_t *peer =
        open_socket(&world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000) });
    ps_socket_t *alien =
        open_socket(&world, 2, (ps_socket_params_t){ .bind = host_address(2, 4000) });
    ps_addr_t to = host_address(0, 4000);
    ps_addr_t nowhere = address(10, 9, 9, 9, 1);
    inbox_t inbox = { 0 };
    send_bytes(&world, alien, &to, 1, 0);
    send_bytes(&world, alien, &nowhere, 1, 0);
    send_bytes(&world, peer, &to, 2, 0);
    ps_simnet_advance(world.simnet, 0);
    receive(&world, one, &inbox, 0);
    CHECK(inbox.count == 2);
    ps_addr_t moved = host_address(2, 4000);
    CHECK(world.nets[0]->ops->reconnect(one, &moved) == PS_OK);
    send_bytes(&world, alien, &to, 1, 1);
    ps_simnet_advance(world.simnet, 1);
    receive(&world, one, &inbox, 1);
    CHECK(inbox.count == 3);
    ps_simnet_stats_t stats;
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.unreachable == 2);
    close_socket(&world, one);
    close_socket(&world, peer);
    close_socket(&world, alien);
    end_world(&world);
}

static void test_a_full_receive_buffer_drops(void)
{
    world_t world = make_world(1, &(ps_simnet_link_t){ 0 });
    ps_socket_t *rx = open_socket(
        &world, 1, (ps_socket_params_t){ .bind = host_address(1, 4000), .rcvbuf_bytes = 450 });
    ps_socket_t *tx = open_socket(&world, 0, (ps_socket_params_t){ .bind = host_address(0, 4000) });
    ps_addr_t to = host_address(1, 4000);
    inbox_t inbox = { 0 };
    send_bytes(&world, tx, &to, 6, 0);
    ps_simnet_advance(world.simnet, 0);
    receive(&world, rx, &inbox, 0);
    CHECK(inbox.count == 4);
    ps_simnet_stats_t stats;
    ps_simnet_statistics(world.simnet, &stats);
    CHECK(stats.buffer_full == 2);
    close_socket(&world, rx);
    close_socket(&world, tx);
    end_world(&world);
}

/* ---- runs ------------------------------------------------------------------------------------ */

enum { FRAME = 128 };

typedef struct runs {
    int32_t count;
    uint32_t lengths[8], segments[8];
    int32_t landings; /* so many to offer */
    uint64_t memory[PS_DIRECT_LEAST / 8];
    uint64_t first_word;
    uint32_t stays;
} runs_t;

static void send_frame(world_t *world, ps_socket_t *socket, const ps_addr_t *to, int32_t offset,
                       int64_t now_ns)
{
    uint8_t data[FRAME] = { 0 };
    const int32_t header[8] = { FRAME, 0x01c0 << 8, offset, 7, 1001, 3, 0, 0 };
    memcpy(data, header, sizeof header);
    const ps_dgram_t dgram = { data, sizeof data };
    CHECK(world->nets[0]->ops->send(socket, to, &dgram, 1, now_ns) == 1);
}

static void on_run(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                   const ps_addr_t *from, int64_t rx_ns)
{
    runs_t *runs = context;
    int32_t frame_length;
    memcpy(&frame_length, data, sizeof frame_length);
    CHECK(frame_length == FRAME && from->port != 0 && rx_ns == 5);
    runs->lengths[runs->count] = length;
    runs->segments[runs->count++] = segment;
}

static bool prepare(void *context, ps_direct_range_t *out)
{
    runs_t *runs = context;
    *out = (ps_direct_range_t){ .at = (uint8_t *)runs->memory, .length = sizeof runs->memory };
    return runs->landings-- > 0;
}

static uint32_t received(void *context, const ps_direct_range_t *range, uint64_t first_word,
                         uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns,
                         uint64_t *next_word)
{
    runs_t *runs = context;
    CHECK(range->at == (uint8_t *)runs->memory && segment == FRAME && from->port != 0);
    CHECK(length == 3 * FRAME && rx_ns == 5);
    runs->first_word = first_word;
    if (runs->stays > 0 && runs->stays < range->length) {
        memcpy(next_word, range->at + runs->stays, sizeof *next_word);
    }
    return runs->stays;
}

/* What arrived together and follows in its stream comes in one piece, and may land. */
static void test_datagrams_that_follow_are_joined(void)
{
    static const int32_t offsets[] = { 0, FRAME, 2 * FRAME, 4 * FRAME, 5 * FRAME };
    static const ps_direct_t direct = { prepare, received };
    for (uint32_t stays = 0; stays <= 3 * FRAME; stays += 2 * FRAME) {
        world_t world = make_world(1, &(ps_simnet_link_t){ .delay_ns = 5 });
        const ps_addr_t to = host_address(1, 4000);
        ps_socket_t *rx = open_socket(&world, 1, (ps_socket_params_t){ .bind = to });
        ps_socket_t *tx = open_socket(
            &world, 0, (ps_socket_params_t){ .bind = address(0, 0, 0, 0, 0), .connect = to });
        runs_t runs = { .landings = 1, .stays = stays };
        for (int i = 0; i < 5; i++) {
            send_frame(&world, tx, NULL, offsets[i], 0);
        }
        CHECK(ps_simnet_advance(world.simnet, 5) == 5);
        CHECK(world.nets[0]->ops->recv_runs(rx, 64, on_run, &direct, &runs, 5) == 5);
        CHECK(runs.count == 2);
        CHECK(runs.lengths[0] == 3 * FRAME - stays && runs.segments[0] == FRAME);
        CHECK(runs.lengths[1] == 2 * FRAME && runs.segments[1] == FRAME);
        CHECK((runs.first_word & 0xffffffffu) == FRAME);
        CHECK(runs.memory[0] == 0 && (int32_t)runs.memory[1] == 0);
        CHECK((int32_t)runs.memory[(FRAME + 8) / 8] == FRAME);
        close_socket(&world, rx);
        close_socket(&world, tx);
        end_world(&world);
    }
}

int main(void)
{
    test_datagrams_that_follow_are_joined();
    test_unicast_arrives_after_the_delay();
    test_multicast_reaches_members_only();
    test_the_seed_decides_the_trace();
    test_bandwidth_and_queue();
    test_a_burst_ends_by_time_on_a_quiet_link();
    test_sockets_refuse_as_the_kernel_does();
    test_a_connected_socket_hears_its_peer_only();
    test_a_full_receive_buffer_drops();
    puts("ok");
    return 0;
}
