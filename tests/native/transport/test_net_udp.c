/* SPDX-License-Identifier: Apache-2.0
 * Kernel UDP on the loopback interface: both families, multicast, segmentation offload, and what an
 * operator is told when it does not work.  Then the impairing wrapper around it.
 */
#define _GNU_SOURCE 1

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_net_udp.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, __func__, #condition,      \
                    ps_last_error());                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MOST = 4096, PATIENCE_MS = 5000 };

typedef struct inbox {
    int32_t count;
    uint32_t length[MOST];
    uint8_t first[MOST];
    uint64_t hash; /* of all bytes in order */
    ps_addr_t from;
    int64_t rx_ns;
} inbox_t;

static uint64_t hash_bytes(uint64_t hash, const uint8_t *data, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    }
    return hash * 31 + length;
}

static void on_datagram(void *context, const uint8_t *data, uint32_t length, const ps_addr_t *from,
                        int64_t rx_ns)
{
    inbox_t *inbox = context;
    CHECK(inbox->count < MOST);
    inbox->length[inbox->count] = length;
    inbox->first[inbox->count] = length > 0 ? data[0] : 0;
    inbox->hash = hash_bytes(inbox->hash, data, length);
    inbox->from = *from;
    inbox->rx_ns = rx_ns;
    inbox->count++;
}

/* Receives until expected datagrams are there (or patience ends). */
static void receive(ps_net_t *net, ps_socket_t *socket, inbox_t *inbox, int32_t expected)
{
    while (inbox->count < expected) {
        struct pollfd ready = { .fd = net->ops->fd(socket), .events = POLLIN };
        if (poll(&ready, 1, PATIENCE_MS) <= 0) {
            return;
        }
        CHECK(net->ops->recv(socket, 64, on_datagram, inbox, ps_monotonic_ns()) >= 0);
    }
}

static ps_addr_t v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port)
{
    return (ps_addr_t){ .family = 4, .port = port, .ip = { a, b, c, d } };
}

static ps_addr_t v6_loopback(uint16_t port)
{
    ps_addr_t addr = { .family = 6, .port = port };
    addr.ip[15] = 1;
    return addr;
}

static bool same_address(const ps_addr_t *a, const ps_addr_t *b)
{
    return a->family == b->family && a->port == b->port && memcmp(a->ip, b->ip, 16) == 0;
}

/* A receiver at addr (port 0) and a sender connected to it. */
static void open_pair(ps_net_t *net, ps_addr_t addr, bool offload, ps_socket_t **rx,
                      ps_socket_t **tx)
{
    ps_socket_params_t params = { .bind = addr, .rcvbuf_bytes = 128 * 1024, .gro = offload };
    CHECK(net->ops->open(net->state, &params, rx) == PS_OK);
    memset(&params, 0, sizeof params);
    net->ops->local(*rx, &params.connect);
    CHECK(params.connect.port != 0);
    params.gso = offload;
    CHECK(net->ops->open(net->state, &params, tx) == PS_OK);
}

static void test_a_pair(ps_addr_t addr)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    static inbox_t inbox, answer;
    memset(&inbox, 0, sizeof inbox);
    memset(&answer, 0, sizeof answer);
    open_pair(net, addr, false, &rx, &tx);
    const ps_dgram_t dgrams[] = { { (const uint8_t *)"hello", 5 }, { (const uint8_t *)"a", 1 } };
    CHECK(net->ops->send(tx, NULL, dgrams, 2, 0) == 2);
    receive(net, rx, &inbox, 2);
    CHECK(inbox.count == 2 && inbox.length[0] == 5 && inbox.first[0] == 'h');
    ps_addr_t local;
    net->ops->local(tx, &local);
    CHECK(same_address(&local, &inbox.from));
    CHECK(net->ops->send(rx, &inbox.from, dgrams, 1, 0) == 1); /* as a receiver answers */
    receive(net, tx, &answer, 1);
    CHECK(answer.count == 1 && answer.length[0] == 5);
    CHECK(net->ops->recv(rx, 64, on_datagram, &inbox, 0) == 0);
    net->ops->close(tx);
    net->ops->close(rx);
    ps_net_free(net);
}

/* ---- offloads -------------------------------------------------------------------------------- */

/* count datagrams of `length` and one shorter, twice: back to back in memory, and scattered. */
static void exchange(bool offload, uint32_t length, int32_t count, inbox_t *inbox)
{
    static uint8_t bytes[512 * 1024], scattered[512 * 1024];
    ps_dgram_t dgrams[2 * 256];
    CHECK((size_t)count < 256 && (size_t)(count + 1) * (length + 64) <= sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
        scattered[i] = (uint8_t)(i * 13 + i / 241);
    }
    int32_t used = 0;
    for (int32_t i = 0; i <= count; i++) {
        const uint32_t size = i == count ? length / 2 : length;
        dgrams[used++] = (ps_dgram_t){ bytes + (size_t)i * length, size };
    }
    for (int32_t i = 0; i <= count; i++) {
        const uint32_t size = i == count ? length / 2 : length;
        dgrams[used++] = (ps_dgram_t){ scattered + (size_t)i * (length + 64), size };
    }
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    open_pair(net, v4(127, 0, 0, 1, 0), offload, &rx, &tx);
    memset(inbox, 0, sizeof *inbox);
    for (int32_t at = 0; at < used;) { /* in portions that the receive buffer can hold */
        const int32_t most = length > 2048 ? 4 : 24;
        const int32_t portion = used - at < most ? used - at : most;
        const int sent = net->ops->send(tx, NULL, dgrams + at, portion, 0);
        CHECK(sent == portion);
        at += sent;
        receive(net, rx, inbox, at);
    }
    CHECK(inbox->count == used);
    net->ops->close(tx);
    net->ops->close(rx);
    ps_net_free(net);
}

static void test_offloads_change_nothing(void)
{
    static inbox_t plain, joined;
    static const uint32_t lengths[] = { 64, 1408, 1472 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        exchange(false, lengths[i], 150, &plain);
        exchange(true, lengths[i], 150, &joined);
        CHECK(plain.hash == joined.hash && plain.count == joined.count);
        CHECK(memcmp(plain.length, joined.length, sizeof plain.length) == 0);
    }
    exchange(true, 16 * 1024, 20, &joined); /* the largest runs: 3 to a message */
    exchange(false, 16 * 1024, 20, &plain);
    CHECK(plain.hash == joined.hash);
}

static void test_a_segment_the_path_cannot_carry_goes_out_plain(void)
{
    static uint8_t bytes[8 * 1400];
    static inbox_t inbox;
    memset(&inbox, 0, sizeof inbox);
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    open_pair(net, v6_loopback(0), true, &rx, &tx);
    const int path_mtu = 1280; /* below the segments: the kernel refuses to cut them */
    CHECK(setsockopt(net->ops->fd(tx), IPPROTO_IPV6, IPV6_MTU, &path_mtu, sizeof path_mtu) == 0);
    CHECK(((ps_udp_socket_t *)(void *)tx)->gso);
    ps_dgram_t dgrams[8];
    for (int i = 0; i < 8; i++) {
        dgrams[i] = (ps_dgram_t){ bytes + i * 1400, 1400 };
    }
    CHECK(net->ops->send(tx, NULL, dgrams, 8, 0) == 8);
    CHECK(!((ps_udp_socket_t *)(void *)tx)->gso);
    receive(net, rx, &inbox, 8);
    CHECK(inbox.count == 8 && inbox.length[7] == 1400);
    net->ops->close(tx);
    net->ops->close(rx);
    ps_net_free(net);
}

/* ---- multicast ------------------------------------------------------------------------------- */

static void test_multicast(const char *device, ps_addr_t group, ps_addr_t foreign)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx[2], *tx, *other;
    static inbox_t inbox;
    const uint32_t index = if_nametoindex(device);
    ps_socket_params_t params = { .group = group, .interface_index = index, .reuse = 1 };
    params.bind = (ps_addr_t){ .family = group.family, .port = group.port };
    CHECK(net->ops->open(net->state, &params, &rx[0]) == PS_OK);
    CHECK(net->ops->open(net->state, &params, &rx[1]) == PS_OK);
    memset(&params, 0, sizeof params);
    params.connect = group;
    params.connect.scope_id = group.family == 6 ? index : 0;
    params.interface_index = index;
    params.multicast_ttl = 1;
    CHECK(net->ops->open(net->state, &params, &tx) == PS_OK);
    params.connect = foreign;
    params.connect.scope_id = group.family == 6 ? index : 0;
    CHECK(net->ops->open(net->state, &params, &other) == PS_OK);
    const ps_dgram_t wanted = { (const uint8_t *)"wanted", 6 },
                     alien = { (const uint8_t *)"alien", 5 };
    CHECK(net->ops->send(other, NULL, &alien, 1, 0) == 1); /* same port, a group nobody joined */
    CHECK(net->ops->send(tx, NULL, &wanted, 1, 0) == 1);
    for (int i = 0; i < 2; i++) { /* each member hears it once, and nothing else */
        memset(&inbox, 0, sizeof inbox);
        receive(net, rx[i], &inbox, 1);
        CHECK(inbox.count == 1 && inbox.first[0] == 'w');
    }
    net->ops->close(rx[0]);
    net->ops->close(rx[1]);
    net->ops->close(tx);
    net->ops->close(other);
    ps_net_free(net);
}

/* Several senders of two groups of one port: each member hears its own group, whoever sends.  The
 * kernel looks a lone member up before it delivers, and only for what comes from a network device:
 * one end of a cable sends here, the other one listens. */
static void two_groups_of_one_port(void)
{
    enum { SENDERS = 8 };
    ps_net_t *net = ps_net_udp();
    const ps_addr_t group[2] = { v4(239, 20, 0, 1, 40456), v4(239, 20, 0, 3, 40456) };
    ps_socket_t *rx[2], *tx[2][SENDERS];
    static inbox_t inbox;
    for (int i = 0; i < 2; i++) {
        const ps_socket_params_t member = { .bind = v4(0, 0, 0, 0, 40456),
                                            .group = group[i],
                                            .reuse = 1,
                                            .gro = (uint8_t)i,
                                            .interface_addr = v4(10, 9, 0, 2, 0),
                                            .interface_index = if_nametoindex("mc1") };
        CHECK(net->ops->open(net->state, &member, &rx[i]) == PS_OK);
        const ps_socket_params_t sender = { .connect = group[i],
                                            .interface_addr = v4(10, 9, 0, 1, 0),
                                            .interface_index = if_nametoindex("mc0"),
                                            .multicast_ttl = 1 };
        for (int j = 0; j < SENDERS; j++) {
            CHECK(net->ops->open(net->state, &sender, &tx[i][j]) == PS_OK);
        }
    }
    const ps_dgram_t names[2] = { { (const uint8_t *)"one", 3 }, { (const uint8_t *)"three", 5 } };
    for (int j = 0; j < SENDERS; j++) {
        CHECK(net->ops->send(tx[0][j], NULL, &names[0], 1, 0) == 1);
        CHECK(net->ops->send(tx[1][j], NULL, &names[1], 1, 0) == 1);
    }
    for (int i = 0; i < 2; i++) {
        memset(&inbox, 0, sizeof inbox);
        receive(net, rx[i], &inbox, SENDERS);
        CHECK(inbox.count == SENDERS);
        for (int j = 0; j < SENDERS; j++) {
            CHECK(inbox.length[j] == names[i].length);
            net->ops->close(tx[i][j]);
        }
        net->ops->close(rx[i]);
    }
    ps_net_free(net);
}

/* Runs in a network of its own that `setup` makes: the loopback interface is not enough. */
static void in_a_namespace(const char *setup, void (*test)(void))
{
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if ((unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
            system("ip link add mc0 type veth peer name mc1 && ip link set mc1 up && "
                   "ip link set mc0 up multicast on") != 0 ||
            system(setup) != 0) {
            printf("skipped: a network namespace and ip(8) are needed for: %s\n", setup);
            exit(0);
        }
        test();
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void ipv6_multicast(void)
{
    ps_addr_t group = { .family = 6, .port = 40457, .ip = { 0xff, 0x02 } };
    ps_addr_t foreign = group;
    group.ip[15] = 41;
    foreign.ip[15] = 43;
    test_multicast("mc0", group, foreign);
}

static void test_multicast_in_a_namespace(void)
{
    in_a_namespace("ip addr add fd00::1/64 dev mc0 nodad", ipv6_multicast);
    /* both ends are this host's: what comes from an address of its own is taken too */
    in_a_namespace("cd /proc/sys/net/ipv4/conf && echo 1 >mc1/accept_local && "
                   "echo 0 >all/rp_filter && echo 0 >mc1/rp_filter && "
                   "ip addr add 10.9.0.1/24 dev mc0 && ip addr add 10.9.0.2/24 dev mc1",
                   two_groups_of_one_port);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int open_error(const ps_socket_params_t *params)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *socket;
    const int result = net->ops->open(net->state, params, &socket);
    CHECK((result == PS_OK) == (socket != NULL));
    if (socket != NULL) {
        net->ops->close(socket);
    }
    ps_net_free(net);
    return result;
}

static void test_what_an_operator_reads(void)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *first;
    ps_socket_params_t params = { .bind = v4(127, 0, 0, 1, 0) };
    CHECK(net->ops->open(net->state, &params, &first) == PS_OK);
    net->ops->local(first, &params.bind);
    CHECK(open_error(&params) == PS_E_ADDRESS_IN_USE);
    char text[PS_ADDR_TEXT];
    CHECK(strstr(ps_last_error(), ps_addr_text(&params.bind, text)) != NULL);
    params.port_low = params.port_high = params.bind.port;
    params.bind.port = 0;
    CHECK(open_error(&params) == PS_E_ADDRESS_IN_USE);
    CHECK(strstr(ps_last_error(), "all ports from") != NULL);
    params.port_high = (uint16_t)(params.port_low < 65000 ? params.port_low + 200 : 65535);
    CHECK(open_error(&params) == PS_OK);
    net->ops->close(first);
    ps_net_free(net);
    const ps_socket_params_t nowhere = { .bind = v4(192, 0, 2, 77, 0) };
    CHECK(open_error(&nowhere) == PS_E_NO_INTERFACE);
    CHECK(strstr(ps_last_error(), "192.0.2.77:0") != NULL);
    const ps_socket_params_t no_device = { .bind = v4(0, 0, 0, 0, 0),
                                           .group = v4(224, 1, 2, 3, 5),
                                           .interface_index = 99999 };
    CHECK(open_error(&no_device) == PS_E_NO_INTERFACE);
    const ps_socket_params_t mixed = { .bind = v4(127, 0, 0, 1, 0), .connect = v6_loopback(9) };
    CHECK(open_error(&mixed) == PS_E_INVALID);
    const ps_socket_params_t nothing = { .gso = 1 };
    CHECK(open_error(&nothing) == PS_E_INVALID);
    const ps_socket_params_t greedy = { .bind = v4(127, 0, 0, 1, 0), .rcvbuf_bytes = 2000000000 };
    const int result = open_error(&greedy);
    CHECK(result == PS_E_NO_BUFFER);
    CHECK(strstr(ps_last_error(), "net.core.rmem_max") != NULL);
}

static void test_a_receive_buffer_grows_as_far_as_the_kernel_allows(void)
{
    ps_net_t *net = ps_net_udp();
    const ps_socket_params_t params = { .bind = v4(127, 0, 0, 1, 0), .rcvbuf_bytes = 64 * 1024 };
    static const int32_t asked[] = { 1, 100 * 1024, 50 * 1024, 200 * 1024, PS_RECV_BUFFER_MAX };
    ps_socket_t *socket;
    int32_t before = params.rcvbuf_bytes;
    CHECK(net->ops->open(net->state, &params, &socket) == PS_OK);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        int32_t got = 0;
        CHECK(net->ops->fit_recv_buffer(socket, asked[i], &got) == PS_OK);
        CHECK(got >= before);
        CHECK(got == (asked[i] > before ? asked[i] : before) || asked[i] > 200 * 1024);
        before = got;
    }
    net->ops->close(socket);
    ps_net_free(net);
}

static void test_a_dead_peer_is_no_error(void)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    static inbox_t inbox;
    memset(&inbox, 0, sizeof inbox);
    open_pair(net, v4(127, 0, 0, 1, 0), false, &rx, &tx);
    ps_addr_t local;
    net->ops->local(rx, &local);
    net->ops->close(rx); /* from now on each datagram is answered by an ICMP error */
    const ps_dgram_t dgram = { (const uint8_t *)"x", 1 };
    const ps_dgram_t many[] = { dgram, dgram, dgram, dgram, dgram, dgram };
    for (int i = 0; i < 20; i++) {
        CHECK(net->ops->send(tx, NULL, many, 6, 0) == 6);
        CHECK(net->ops->recv(tx, 8, on_datagram, &inbox, 0) == 0);
    }
    const ps_socket_params_t again = { .bind = local };
    CHECK(net->ops->open(net->state, &again, &rx) == PS_OK);
    CHECK(net->ops->send(tx, NULL, &dgram, 1, 0) == 1);
    receive(net, rx, &inbox, 1);
    CHECK(inbox.count == 1);
    net->ops->close(rx);
    net->ops->close(tx);
    ps_net_free(net);
}

static void test_a_full_send_buffer_is_a_short_send(void)
{
    /* A datagram that leaves by loopback is charged to the sender until it is read. */
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    ps_socket_params_t params = { .bind = v4(127, 0, 0, 1, 0), .rcvbuf_bytes = 16 << 20 };
    if (net->ops->open(net->state, &params, &rx) != PS_OK) {
        params.rcvbuf_bytes = 0;
        CHECK(net->ops->open(net->state, &params, &rx) == PS_OK);
    }
    static uint8_t bytes[32768];
    memset(&params, 0, sizeof params);
    net->ops->local(rx, &params.connect);
    params.sndbuf_bytes = 64 * 1024;
    CHECK(net->ops->open(net->state, &params, &tx) == PS_OK);
    ps_dgram_t dgrams[64];
    for (int i = 0; i < 64; i++) {
        dgrams[i] = (ps_dgram_t){ bytes, sizeof bytes };
    }
    const int sent = net->ops->send(tx, NULL, dgrams, 64, 0);
    CHECK(sent >= 0 && sent <= 64);
    static inbox_t inbox;
    memset(&inbox, 0, sizeof inbox);
    receive(net, rx, &inbox, 1);
    CHECK(net->ops->send(tx, NULL, dgrams, 1, 0) == 1);
    net->ops->close(rx);
    net->ops->close(tx);
    ps_net_free(net);
}

static void test_kernel_time_stamps_are_near_now(void)
{
    ps_net_t *net = ps_net_udp();
    ps_socket_t *rx, *tx;
    static inbox_t inbox;
    memset(&inbox, 0, sizeof inbox);
    ps_socket_params_t params = { .bind = v4(127, 0, 0, 1, 0), .timestamps = 1 };
    CHECK(net->ops->open(net->state, &params, &rx) == PS_OK);
    memset(&params, 0, sizeof params);
    net->ops->local(rx, &params.connect);
    CHECK(net->ops->open(net->state, &params, &tx) == PS_OK);
    const ps_dgram_t dgram = { (const uint8_t *)"x", 1 };
    const int64_t before_ns = ps_monotonic_ns();
    CHECK(net->ops->send(tx, NULL, &dgram, 1, 0) == 1);
    receive(net, rx, &inbox, 1);
    const int64_t after_ns = ps_monotonic_ns();
    CHECK(inbox.count == 1);
    CHECK(inbox.rx_ns > before_ns - 50000000 && inbox.rx_ns < after_ns + 50000000);
    net->ops->close(rx);
    net->ops->close(tx);
    ps_net_free(net);
}

/* ---- impairment ------------------------------------------------------------------------------ */

/* Sends numbered datagrams through an impaired pair; virtual time steps by 1 ms per datagram. */
static void impaired(const ps_impair_params_t *impair, int32_t count, inbox_t *inbox)
{
    ps_net_t *net = ps_net_impair(ps_net_udp(), impair);
    ps_socket_t *rx, *tx;
    memset(inbox, 0, sizeof *inbox);
    open_pair(net, v4(127, 0, 0, 1, 0), false, &rx, &tx);
    int64_t now_ns = 1000;
    for (int32_t i = 0; i < count; i++, now_ns += 1000000) {
        const uint8_t bytes[4] = { (uint8_t)i, 0, 0, 0 };
        const ps_dgram_t dgram = { bytes, 4 };
        CHECK(net->ops->send(tx, NULL, &dgram, 1, now_ns) == 1);
        CHECK(net->ops->recv(rx, 64, on_datagram, inbox, now_ns) >= 0);
    }
    for (int32_t i = 0; i < 200; i++, now_ns += 1000000) {
        CHECK(net->ops->recv(rx, 64, on_datagram, inbox, now_ns) >= 0);
    }
    net->ops->close(tx);
    net->ops->close(rx);
    ps_net_free(net);
}

static void test_impairments(void)
{
    static inbox_t clean, a, b;
    const ps_impair_params_t none = { .seed = 1 };
    impaired(&none, 1000, &clean);
    CHECK(clean.count == 1000);
    const ps_impair_params_t loss = { .seed = 7, .send_loss_ppm = 100000, .recv_loss_ppm = 100000 };
    impaired(&loss, 1000, &a);
    CHECK(a.count > 700 && a.count < 900);
    const ps_impair_params_t twice = { .seed = 7, .duplicate_ppm = 200000 };
    impaired(&twice, 1000, &a);
    CHECK(a.count > 1100 && a.count < 1300);
    const ps_impair_params_t corrupt = { .seed = 7, .corrupt_ppm = 1000000 };
    impaired(&corrupt, 100, &a);
    impaired(&none, 100, &b);
    CHECK(a.count == 100 && a.hash != b.hash);
    const ps_impair_params_t swap = { .seed = 7, .reorder_ppm = 300000 };
    impaired(&swap, 200, &a);
    int swaps = 0;
    for (int32_t i = 1; i < a.count; i++) {
        swaps += a.first[i] + 1 == a.first[i - 1];
    }
    CHECK(a.count == 200 && swaps > 20 && swaps < 100);
    const ps_impair_params_t late = { .seed = 7, .delay_ns = 50000000, .jitter_ns = 5000000 };
    impaired(&late, 20, &a);
    CHECK(a.count == 20 && a.rx_ns >= 19000000 + 50000000 && a.rx_ns <= 19001000 + 55000000);
}

static void test_a_seed_is_a_fate(void)
{
    static inbox_t a, b, c;
    ps_impair_params_t all = { .seed = 11,
                               .send_loss_ppm = 50000,
                               .recv_loss_ppm = 50000,
                               .duplicate_ppm = 50000,
                               .reorder_ppm = 50000,
                               .corrupt_ppm = 50000,
                               .delay_ns = 2000000,
                               .jitter_ns = 4000000 };
    impaired(&all, 500, &a);
    impaired(&all, 500, &b);
    all.seed = 12;
    impaired(&all, 500, &c);
    CHECK(a.hash == b.hash && a.count == b.count && a.hash != c.hash);
}

int main(void)
{
    test_a_pair(v4(127, 0, 0, 1, 0));
    test_a_pair(v6_loopback(0));
    test_offloads_change_nothing();
    test_a_segment_the_path_cannot_carry_goes_out_plain();
    test_multicast("lo", v4(224, 20, 30, 41, 40456), v4(224, 20, 30, 43, 40456));
    test_multicast_in_a_namespace();
    test_what_an_operator_reads();
    test_a_receive_buffer_grows_as_far_as_the_kernel_allows();
    test_a_dead_peer_is_no_error();
    test_a_full_send_buffer_is_a_short_send();
    test_kernel_time_stamps_are_near_now();
    test_impairments();
    test_a_seed_is_a_fate();
    puts("ok");
    return 0;
}
