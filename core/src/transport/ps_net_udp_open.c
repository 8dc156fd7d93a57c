/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_net_udp_open.c: opens sockets: binding, multicast, buffers, and error texts. */
#define _GNU_SOURCE 1

#include "ps_set_up.h"

#include <arpa/inet.h>
#include "ps_assert.h"
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ps_error.h"
#include "ps_net_udp.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

/* ---- addresses ------------------------------------------------------------------------------- */

socklen_t ps_udp_to_sockaddr(const ps_addr_t *addr, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (addr->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(addr->port);
        memcpy(&in->sin_addr, addr->ip, 4);
        return sizeof *in;
    }
    if (addr->family == 6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)out;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(addr->port);
        in6->sin6_scope_id = addr->scope_id;
        memcpy(&in6->sin6_addr, addr->ip, 16);
        return sizeof *in6;
    }
    return 0;
}

void ps_udp_from_sockaddr(const struct sockaddr_storage *from, ps_addr_t *out)
{
    memset(out, 0, sizeof *out);
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        out->family = 4;
        out->port = ntohs(in->sin_port);
        memcpy(out->ip, &in->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
        out->family = 6;
        out->port = ntohs(in6->sin6_port);
        out->scope_id = in6->sin6_scope_id;
        memcpy(out->ip, &in6->sin6_addr, 16);
    }
}

const char *ps_addr_text(const ps_addr_t *addr, char *text)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (addr->family == 4) {
        (void)inet_ntop(AF_INET, addr->ip, ip, sizeof ip);
        (void)snprintf(text, PS_ADDR_TEXT, "%s:%u", ip, addr->port);
    } else if (addr->family == 6) {
        (void)inet_ntop(AF_INET6, addr->ip, ip, sizeof ip);
        if (addr->scope_id != 0) {
            (void)snprintf(text, PS_ADDR_TEXT, "[%s%%%u]:%u", ip, addr->scope_id, addr->port);
        } else {
            (void)snprintf(text, PS_ADDR_TEXT, "[%s]:%u", ip, addr->port);
        }
    } else {
        (void)snprintf(text, PS_ADDR_TEXT, "(no address)");
    }
    return text;
}

static bool is_multicast(const ps_addr_t *addr)
{
    return (addr->family == 4 && (addr->ip[0] & 0xF0) == 0xE0) ||
           (addr->family == 6 && addr->ip[0] == 0xFF);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Converts errno to a ps_error_code with a text that names the address. */
static int fail_with_errno(const char *what, const ps_addr_t *addr)
{
    const int error = errno;
    char text[PS_ADDR_TEXT];
    int code = PS_E_SYSTEM;
    const char *advice = "";
    switch (error) {
    case EADDRINUSE:
        code = PS_E_ADDRESS_IN_USE;
        advice = ": choose another port, or end the process that has it (see: ss -uapn)";
        break;
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENXIO:
        code = PS_E_NO_INTERFACE;
        advice = ": no interface of this host that is up has it (see: ip addr)";
        break;
    case EACCES:
    case EPERM:
        code = PS_E_PERMISSION;
        advice = ": the daemon's user may not; a port below 1024 needs CAP_NET_BIND_SERVICE";
        break;
    case ENOMEM: code = PS_E_NO_MEMORY; break;
    default: break;
    }
    return ps_fail(code, "cannot %s %s: %s%s", what, ps_addr_text(addr, text), strerror(error),
                   advice);
}

static int set_int(ps_udp_socket_t *udp, int level, int option, int value, const char *name)
{
    if (setsockopt(udp->fd, level, option, &value, sizeof value) == 0) {
        return PS_OK;
    }
    return ps_fail(errno == EPERM ? PS_E_PERMISSION : PS_E_SYSTEM, "cannot set %s to %d: %s", name,
                   value, strerror(errno));
}

/* ---- options --------------------------------------------------------------------------------- */

static int set_buffer(ps_udp_socket_t *udp, int force, int option, int32_t requested,
                      const char *name, const char *limit)
{
    if (requested <= 0) {
        return PS_OK;
    }
    if (setsockopt(udp->fd, SOL_SOCKET, force, &requested, sizeof requested) != 0) {
        const int result = set_int(udp, SOL_SOCKET, option, requested, name);
        if (result != PS_OK) {
            return result;
        }
    }
    int doubled = 0; /* the kernel counts its own overhead: twice what was set */
    socklen_t size = sizeof doubled;
    if (getsockopt(udp->fd, SOL_SOCKET, option, &doubled, &size) != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot read %s: %s", name, strerror(errno));
    }
    if (doubled / 2 < requested) {
        return ps_fail(PS_E_NO_BUFFER, "requested %s of %d bytes, got %d: raise %s to %d or more",
                       name, requested, doubled / 2, limit, requested);
    }
    return PS_OK;
}

static int set_multicast_v4(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    struct ip_mreqn request;
    memset(&request, 0, sizeof request);
    request.imr_ifindex = (int)params->interface_index;
    if (params->interface_addr.family == 4) {
        memcpy(&request.imr_address, params->interface_addr.ip, 4);
    }
    if (params->interface_index != 0 || params->interface_addr.family == 4) {
        if (setsockopt(udp->fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request) != 0) {
            return fail_with_errno("send multicast from", &params->interface_addr);
        }
    }
    int result = set_int(udp, IPPROTO_IP, IP_MULTICAST_LOOP, 1, "IP_MULTICAST_LOOP");
    if (result == PS_OK) {
        result = set_int(udp, IPPROTO_IP, IP_MULTICAST_ALL, 0, "IP_MULTICAST_ALL");
    }
    if (result == PS_OK && params->multicast_ttl > 0) {
        result =
            set_int(udp, IPPROTO_IP, IP_MULTICAST_TTL, params->multicast_ttl, "IP_MULTICAST_TTL");
    }
    if (result == PS_OK && params->group.family == 4) {
        memcpy(&request.imr_multiaddr, params->group.ip, 4);
        if (setsockopt(udp->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) != 0) {
            return fail_with_errno(errno == ENOBUFS ? "join (net.ipv4.igmp_max_memberships reached)"
                                                    : "join",
                                   &params->group);
        }
    }
    return result;
}

static int set_multicast_v6(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    int result = PS_OK;
    if (params->interface_index != 0) {
        const int index = (int)params->interface_index;
        if (setsockopt(udp->fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index) != 0) {
            return fail_with_errno("send multicast from the interface of", &params->group);
        }
    }
    result = set_int(udp, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1, "IPV6_MULTICAST_LOOP");
    if (result == PS_OK) {
        /* since Linux 4.20; before, port and session distinguish foreign groups */
        const int off = 0;
        (void)setsockopt(udp->fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &off, sizeof off);
    }
    if (result == PS_OK && params->multicast_ttl > 0) {
        result = set_int(udp, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, params->multicast_ttl,
                         "IPV6_MULTICAST_HOPS");
    }
    if (result == PS_OK && params->group.family == 6) {
        struct ipv6_mreq request;
        memset(&request, 0, sizeof request);
        request.ipv6mr_interface = params->interface_index;
        memcpy(&request.ipv6mr_multiaddr, params->group.ip, 16);
        if (setsockopt(udp->fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request) != 0) {
            return fail_with_errno("join", &params->group);
        }
    }
    return result;
}

static int set_options(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    int result = PS_OK;
    if (udp->family == AF_INET6) {
        result = set_int(udp, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY");
    }
    if (result == PS_OK && params->reuse) {
        /* Never set SO_REUSEPORT. With it, Linux 6.18 delivers a datagram for a group with one
         * member to any socket of the port, by a hash. */
        result = set_int(udp, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
    }
    if (result == PS_OK) {
        result = set_buffer(udp, SO_RCVBUFFORCE, SO_RCVBUF, params->rcvbuf_bytes, "SO_RCVBUF",
                            "net.core.rmem_max");
    }
    if (result == PS_OK) {
        result = set_buffer(udp, SO_SNDBUFFORCE, SO_SNDBUF, params->sndbuf_bytes, "SO_SNDBUF",
                            "net.core.wmem_max");
    }
    if (result == PS_OK && params->timestamps) {
        result = set_int(udp, SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
        udp->timestamps = result == PS_OK;
    }
    if (result == PS_OK && (params->group.family != 0 || is_multicast(&params->connect))) {
        result =
            udp->family == AF_INET ? set_multicast_v4(udp, params) : set_multicast_v6(udp, params);
    }
    return result;
}

/* Both offloads are optional: an option that the kernel does not know is not used. */
static void probe_offloads(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    int value = 0;
    socklen_t size = sizeof value;
    udp->gso = params->gso && getsockopt(udp->fd, IPPROTO_UDP, UDP_SEGMENT, &value, &size) == 0;
    value = 1;
    udp->gro = params->gro && setsockopt(udp->fd, IPPROTO_UDP, UDP_GRO, &value, sizeof value) == 0;
}

/* ---- binding --------------------------------------------------------------------------------- */

static int bind_at(ps_udp_socket_t *udp, const ps_addr_t *addr)
{
    struct sockaddr_storage raw;
    const socklen_t length = ps_udp_to_sockaddr(addr, &raw);
    return bind(udp->fd, (const struct sockaddr *)&raw, length);
}

/* Bound: the ports of the range. */
static int bind_in_range(ps_udp_socket_t *udp, const ps_socket_params_t *params, ps_addr_t addr)
{
    for (uint32_t port = params->port_low; port <= params->port_high; port++) {
        addr.port = (uint16_t)port;
        if (bind_at(udp, &addr) == 0) {
            return PS_OK;
        }
        if (errno != EADDRINUSE) {
            return fail_with_errno("bind to", &addr);
        }
    }
    char text[PS_ADDR_TEXT];
    return ps_fail(PS_E_ADDRESS_IN_USE, "cannot bind to %s: all ports from %u to %u are in use",
                   ps_addr_text(&params->bind, text), params->port_low, params->port_high);
}

static int bind_socket(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    ps_addr_t addr = params->bind;
    if (addr.family == 0) { /* the wildcard of this family */
        memset(&addr, 0, sizeof addr);
        addr.family = udp->family == AF_INET ? 4 : 6;
        addr.port = params->bind.port;
    }
    if (addr.port == 0 && params->port_low != 0) {
        return bind_in_range(udp, params, addr);
    }
    return bind_at(udp, &addr) == 0 ? PS_OK : fail_with_errno("bind to", &addr);
}

static int read_local(ps_udp_socket_t *udp)
{
    struct sockaddr_storage raw;
    socklen_t length = sizeof raw;
    memset(&raw, 0, sizeof raw);
    if (getsockname(udp->fd, (struct sockaddr *)&raw, &length) != 0) {
        return ps_fail(PS_E_SYSTEM, "getsockname: %s", strerror(errno));
    }
    ps_udp_from_sockaddr(&raw, &udp->local);
    return PS_OK;
}

static int connect_to(ps_udp_socket_t *udp, const ps_addr_t *remote)
{
    struct sockaddr_storage raw;
    const socklen_t length = ps_udp_to_sockaddr(remote, &raw);
    if (length == 0 || raw.ss_family != udp->family) {
        char text[PS_ADDR_TEXT];
        return ps_fail(PS_E_INVALID, "cannot connect an IPv%d socket to %s",
                       udp->family == AF_INET ? 4 : 6, ps_addr_text(remote, text));
    }
    if (connect(udp->fd, (const struct sockaddr *)&raw, length) != 0) {
        return fail_with_errno("connect to", remote);
    }
    return read_local(udp);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void udp_close(ps_socket_t *handle)
{
    ps_udp_socket_t *udp = (ps_udp_socket_t *)(void *)handle;
    if (udp == NULL) {
        return;
    }
    if (udp->fd >= 0) {
        (void)close(udp->fd);
    }
    if (udp->buffers != NULL) {
        (void)munmap(udp->buffers, (size_t)PS_UDP_RECV_BATCH * PS_UDP_RECV_BYTES);
    }
    free(udp);
}

/* Pages of the buffers are taken as datagrams first reach them: small traffic, little memory. */
static int allocate_buffers(ps_udp_socket_t *udp)
{
    void *buffers = mmap(NULL, (size_t)PS_UDP_RECV_BATCH * PS_UDP_RECV_BYTES,
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for receive buffers: %s", strerror(errno));
    }
    udp->buffers = buffers;
    for (int i = 0; i < PS_UDP_RECV_BATCH; i++) {
        udp->in_piece[i].iov_base = udp->buffers + (size_t)i * PS_UDP_RECV_BYTES;
        udp->in_piece[i].iov_len = PS_UDP_RECV_BYTES;
        udp->in[i].msg_hdr.msg_iov = &udp->in_piece[i];
        udp->in[i].msg_hdr.msg_iovlen = 1;
        udp->in[i].msg_hdr.msg_name = &udp->in_from[i];
    }
    return PS_OK;
}

static int set_up(ps_udp_socket_t *udp, const ps_socket_params_t *params)
{
    udp->fd = socket(udp->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (udp->fd < 0) {
        return fail_with_errno("make a socket for", &params->bind);
    }
    int result = set_options(udp, params);
    if (result == PS_OK) {
        result = bind_socket(udp, params);
    }
    if (result == PS_OK) {
        result = params->connect.family != 0 ? connect_to(udp, &params->connect) : read_local(udp);
    }
    if (result == PS_OK) {
        result = allocate_buffers(udp);
    }
    if (result == PS_OK) {
        probe_offloads(udp, params);
    }
    return result;
}

static int udp_open(void *net, const ps_socket_params_t *params, ps_socket_t **out)
{
    (void)net;
    PS_ASSERT(params != NULL && out != NULL);
    *out = NULL;
    const uint16_t families[] = { params->bind.family, params->connect.family,
                                  params->group.family };
    uint16_t family = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (families[i] == 0) {
            continue;
        }
        if ((families[i] != 4 && families[i] != 6) || (family != 0 && families[i] != family)) {
            return ps_fail(PS_E_INVALID, "a socket needs addresses of one family, 4 or 6");
        }
        family = families[i];
    }
    if (family == 0) {
        return ps_fail(PS_E_INVALID, "a socket needs an address");
    }
    if (params->port_low > params->port_high) {
        return ps_fail(PS_E_INVALID, "port range %u-%u is empty", params->port_low,
                       params->port_high);
    }
    ps_udp_socket_t *udp = calloc(1, sizeof *udp);
    if (udp == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a socket");
    }
    udp->fd = -1;
    udp->family = family == 4 ? AF_INET : AF_INET6;
    const int result = set_up(udp, params);
    if (result != PS_OK) {
        udp_close((ps_socket_t *)(void *)udp);
        return result;
    }
    *out = (ps_socket_t *)(void *)udp;
    return PS_OK;
}

static int udp_fd(const ps_socket_t *handle)
{
    return ((const ps_udp_socket_t *)(const void *)handle)->fd;
}

static void udp_local(const ps_socket_t *handle, ps_addr_t *out)
{
    *out = ((const ps_udp_socket_t *)(const void *)handle)->local;
}

static int udp_reconnect(ps_socket_t *handle, const ps_addr_t *remote)
{
    return connect_to((ps_udp_socket_t *)(void *)handle, remote);
}

static int read_recv_buffer(const ps_udp_socket_t *udp, int32_t *got)
{
    int doubled = 0; /* the kernel counts its own overhead: twice what was set */
    socklen_t size = sizeof doubled;
    if (getsockopt(udp->fd, SOL_SOCKET, SO_RCVBUF, &doubled, &size) != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot read SO_RCVBUF: %s", strerror(errno));
    }
    *got = doubled / 2;
    return PS_OK;
}

static int udp_fit_recv_buffer(ps_socket_t *handle, int32_t bytes, int32_t *got)
{
    const ps_udp_socket_t *udp = (const ps_udp_socket_t *)(const void *)handle;
    PS_ASSERT(bytes > 0 && bytes <= PS_RECV_BUFFER_MAX);
    int code = read_recv_buffer(udp, got);
    if (code != PS_OK || *got >= bytes) {
        return code;
    }
    /* Without CAP_NET_ADMIN the kernel grants net.core.rmem_max at most, and says nothing. */
    if (setsockopt(udp->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
        if (setsockopt(udp->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) != 0) {
            return ps_fail(PS_E_SYSTEM, "cannot set SO_RCVBUF to %d: %s", bytes, strerror(errno));
        }
    }
    return read_recv_buffer(udp, got);
}

static const ps_net_ops_t UDP_OPS = {
    .open = udp_open,
    .close = udp_close,
    .send = ps_udp_send,
    .recv = ps_udp_recv,
    .recv_runs = ps_udp_recv_runs,
    .fd = udp_fd,
    .local = udp_local,
    .reconnect = udp_reconnect,
    .fit_recv_buffer = udp_fit_recv_buffer,
};

ps_net_t *ps_net_udp(void)
{
    ps_net_t *net = calloc(1, sizeof *net);
    if (net == NULL) {
        (void)ps_fail(PS_E_NO_MEMORY, "no memory for a network");
        return NULL;
    }
    net->ops = &UDP_OPS;
    return net;
}

void ps_net_free(ps_net_t *net)
{
    if (net == NULL) {
        return;
    }
    if (net->free_state != NULL) {
        net->free_state(net->state);
    }
    free(net);
}
