/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_net_udp_io.c: sending and receiving in batches.
 *
 * Sending: neighbouring datagrams of equal length (the last may be shorter) become one message,
 * which the kernel splits (UDP_SEGMENT); one sendmmsg sends the messages. Receiving: recvmmsg;
 * buffers that the kernel joined (UDP_GRO) are split again for recv.
 *
 * ICMP errors of earlier datagrams appear in later calls. They mean that no process listens (yet),
 * which setup and liveness timers handle, so the call is repeated. */
#define _GNU_SOURCE 1

#include "ps_assert.h"
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <time.h>

#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net_udp.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { MOST_STALE_ERRORS = 4 };

_Static_assert(PS_UDP_CONTROL_BYTES >= CMSG_SPACE(sizeof(uint16_t)), "room for UDP_SEGMENT");
_Static_assert(PS_UDP_CONTROL_BYTES >=
                   CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct timespec)),
               "room for UDP_GRO and a time stamp");

/* An error report about an earlier datagram, not about this call. */
static bool is_stale_error(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == EHOSTDOWN ||
           error == ENETUNREACH || error == ENOPROTOOPT || error == EPROTO || error == EINTR;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Returns the number of datagrams from dgrams[0] that may leave as one message: at least 1. */
static int32_t run_length(const ps_udp_socket_t *udp, const ps_dgram_t *dgrams, int32_t count)
{
    if (!udp->gso) {
        return 1;
    }
    const uint32_t segment = dgrams[0].length;
    uint32_t total = segment;
    int32_t run = 1;
    while (run < count && run < PS_UDP_GSO_SEGMENTS) {
        const uint32_t length = dgrams[run].length;
        if (length > segment || length == 0 || total + length > PS_UDP_GSO_BYTES) {
            break;
        }
        total += length;
        run++;
        if (length < segment) {
            break; /* one shorter, and it is the last */
        }
    }
    return run;
}

/* Describes dgrams[0..run) with as few pieces as memory allows.  Returns pieces used. */
static int32_t gather(struct iovec *pieces, const ps_dgram_t *dgrams, int32_t run)
{
    int32_t used = 0;
    for (int32_t i = 0; i < run; i++) {
        if (used > 0 && (const uint8_t *)pieces[used - 1].iov_base + pieces[used - 1].iov_len ==
                            dgrams[i].data) {
            pieces[used - 1].iov_len += dgrams[i].length;
            continue;
        }
        pieces[used].iov_base = (void *)(uintptr_t)dgrams[i].data;
        pieces[used].iov_len = dgrams[i].length;
        used++;
    }
    return used;
}

static void set_segment(ps_udp_socket_t *udp, int32_t message, uint32_t segment)
{
    struct msghdr *header = &udp->out[message].msg_hdr;
    header->msg_control = udp->out_control[message];
    header->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    control->cmsg_level = IPPROTO_UDP;
    control->cmsg_type = UDP_SEGMENT;
    control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    const uint16_t bytes = (uint16_t)segment;
    memcpy(CMSG_DATA(control), &bytes, sizeof bytes);
}

/* Fills messages from dgrams.  Returns how many. */
static int32_t prepare(ps_udp_socket_t *udp, struct sockaddr_storage *to, socklen_t to_length,
                       const ps_dgram_t *dgrams, int32_t count)
{
    int32_t messages = 0;
    int32_t pieces = 0;
    int32_t at = 0;
    while (at < count && messages < PS_UDP_SEND_BATCH) {
        const int32_t run = run_length(udp, dgrams + at, count - at);
        if (pieces + run > PS_UDP_SEND_PIECES) {
            break;
        }
        struct msghdr *header = &udp->out[messages].msg_hdr;
        const int32_t used = gather(&udp->pieces[pieces], dgrams + at, run);
        memset(header, 0, sizeof *header);
        header->msg_name = to_length > 0 ? to : NULL;
        header->msg_namelen = to_length;
        header->msg_iov = &udp->pieces[pieces];
        header->msg_iovlen = (size_t)used;
        if (run > 1) {
            set_segment(udp, messages, dgrams[at].length);
        }
        udp->run[messages] = run;
        pieces += used;
        at += run;
        messages++;
    }
    PS_ASSERT(messages > 0);
    return messages;
}

static bool refuses_gso(const ps_udp_socket_t *udp, int error)
{
    return udp->run[0] > 1 && (error == EIO || error == EINVAL || error == EOPNOTSUPP ||
                               error == EMSGSIZE || error == ENOPROTOOPT);
}

/* Classifies a send that accepted no datagram: 0 = short, > 0 = try again, < 0 = error code. */
static int judge_send_error(ps_udp_socket_t *udp, int error, int32_t *stale)
{
    if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) {
        return 0;
    }
    if (refuses_gso(udp, error)) {
        udp->gso = false;
        return 1;
    }
    if (is_stale_error(error) && (*stale)++ < MOST_STALE_ERRORS) {
        return 1;
    }
    if (error == ECONNREFUSED || error == EINTR) {
        return 0;
    }
    return ps_fail(error == EPERM || error == EACCES ? PS_E_PERMISSION : PS_E_SYSTEM,
                   "cannot send: %s", strerror(error));
}

int ps_udp_send(ps_socket_t *handle, const ps_addr_t *to, const ps_dgram_t *dgrams, int32_t count,
                int64_t now_ns)
{
    (void)now_ns;
    ps_udp_socket_t *udp = (ps_udp_socket_t *)(void *)handle;
    struct sockaddr_storage raw;
    const socklen_t raw_length = to != NULL ? ps_udp_to_sockaddr(to, &raw) : 0;
    PS_ASSERT(count >= 0 && (to == NULL || raw_length > 0));
    int32_t done = 0;
    int32_t stale = 0; /* in a row */
    while (done < count) {
        const int32_t messages = prepare(udp, &raw, raw_length, dgrams + done, count - done);
        const int sent = sendmmsg(udp->fd, udp->out, (unsigned)messages, MSG_DONTWAIT);
        if (sent > 0) {
            for (int32_t i = 0; i < sent; i++) {
                done += udp->run[i];
            }
            stale = 0;
            continue; /* the next call returns the reason */
        }
        const int verdict = judge_send_error(udp, errno, &stale);
        if (verdict <= 0) {
            return done > 0 || verdict == 0 ? done : verdict;
        }
    }
    return done;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Ancillary data of a message. */
typedef struct ancillary {
    uint32_t segment; /* bytes, 0: not joined */
    int64_t epoch_ns; /* 0: no time stamp */
} ancillary_t;

static ancillary_t read_ancillary(struct msghdr *header)
{
    ancillary_t found = { 0, 0 };
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control != NULL;
         control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(control), sizeof segment);
            found.segment = segment > 0 ? (uint32_t)segment : 0;
        } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
            found.epoch_ns = (int64_t)stamp.tv_sec * 1000000000 + stamp.tv_nsec;
        }
    }
    return found;
}

/* The callbacks of a receive call. */
typedef struct taker {
    ps_on_run_fn fn;
    const ps_direct_t *direct; /* or NULL */
    void *context;
    int64_t now_ns;
    int64_t clock_offset_ns;
} taker_t;

/* The bytes that stay where they were received; the others are moved to the buffer of this
 * message. */
static uint32_t settle(ps_udp_socket_t *udp, const taker_t *taker, const ps_direct_range_t *range,
                       uint32_t length, uint32_t segment, const ps_addr_t *from, int64_t rx_ns)
{
    uint8_t *buffer = udp->in_piece[0].iov_base;
    uint64_t first_word;
    uint64_t next_word = 0;
    uint32_t stays = 0;
    const uint32_t there = length < range->length ? length : range->length;
    const uint32_t whole = there == length ? length : there - there % segment;
    if (length >= sizeof udp->direct_header && whole > 0) {
        memcpy(&first_word, udp->direct_header, sizeof first_word);
        memcpy(range->at + sizeof first_word, udp->direct_header + sizeof first_word,
               sizeof udp->direct_header - sizeof first_word);
        stays = taker->direct->received(taker->context, range, first_word, whole, segment, from,
                                        rx_ns, &next_word);
        PS_ASSERT(stays <= whole);
    }
    if (stays == 0) {
        memcpy(buffer, udp->direct_header, sizeof udp->direct_header);
    }
    const uint32_t moved = stays > sizeof udp->direct_header ? stays : sizeof udp->direct_header;
    if (moved < there && stays < length) {
        memcpy(buffer + moved, range->at + moved, there - moved);
        if (stays >= sizeof udp->direct_header) {
            memcpy(buffer + stays, &next_word, sizeof next_word);
        }
    }
    return stays;
}

/* Passes one buffer to the caller. Returns how many datagrams are in it. */
static int32_t hand_out(ps_udp_socket_t *udp, int32_t message, const taker_t *taker,
                        const ps_direct_range_t *range)
{
    struct mmsghdr *in = &udp->in[message];
    const uint8_t *data = udp->in_piece[message].iov_base;
    const uint32_t length = in->msg_len;
    const ancillary_t found = read_ancillary(&in->msg_hdr);
    const int64_t rx_ns =
        found.epoch_ns != 0 ? found.epoch_ns - taker->clock_offset_ns : taker->now_ns;
    const uint32_t segment = found.segment == 0 || found.segment > length ? length : found.segment;
    uint32_t done = 0;
    ps_addr_t from;
    ps_udp_from_sockaddr(&udp->in_from[message], &from);
    if (range != NULL) {
        done = settle(udp, taker, range, length, segment, &from, rx_ns);
    }
    if (done < length || length == 0) {
        const uint32_t rest = length - done;
        taker->fn(taker->context, data + done, rest, segment < rest ? segment : rest, &from, rx_ns);
    }
    return length == 0 ? 1 : (int32_t)((length + segment - 1) / segment);
}

static void prepare_in(ps_udp_socket_t *udp, int32_t i)
{
    struct msghdr *header = &udp->in[i].msg_hdr;
    header->msg_namelen = sizeof udp->in_from[i];
    header->msg_control = udp->gro || udp->timestamps ? udp->in_control[i] : NULL;
    header->msg_controllen = header->msg_control != NULL ? PS_UDP_CONTROL_BYTES : 0;
    header->msg_flags = 0;
}

/* One buffer, received into the range but for its first header. */
static int receive_direct(ps_udp_socket_t *udp, const ps_direct_range_t *range)
{
    struct msghdr header = udp->in[0].msg_hdr;
    uint8_t *buffer = udp->in_piece[0].iov_base;
    const size_t head = sizeof udp->direct_header;
    struct iovec pieces[] = {
        { udp->direct_header, head },
        { range->at + head, range->length - head },
        { buffer + range->length, PS_UDP_RECV_BYTES - range->length },
    };
    PS_ASSERT(range->length >= PS_DIRECT_LEAST && range->length <= PS_UDP_RECV_BYTES);
    prepare_in(udp, 0);
    header = udp->in[0].msg_hdr;
    header.msg_iov = pieces;
    header.msg_iovlen = range->length < PS_UDP_RECV_BYTES ? 3 : 2;
    const ssize_t got = recvmsg(udp->fd, &header, MSG_DONTWAIT);
    if (got < 0) {
        return -1;
    }
    udp->in[0].msg_len = (unsigned)got;
    udp->in[0].msg_hdr.msg_controllen = header.msg_controllen;
    udp->in[0].msg_hdr.msg_namelen = header.msg_namelen;
    return 1;
}

static int receive_batch(ps_udp_socket_t *udp, int32_t buffers)
{
    for (int32_t i = 0; i < buffers; i++) {
        prepare_in(udp, i);
    }
    return recvmmsg(udp->fd, udp->in, (unsigned)buffers, MSG_DONTWAIT, NULL);
}

int ps_udp_recv_runs(ps_socket_t *handle, int32_t limit, ps_on_run_fn fn, const ps_direct_t *direct,
                     void *context, int64_t now_ns)
{
    ps_udp_socket_t *udp = (ps_udp_socket_t *)(void *)handle;
    PS_ASSERT(fn != NULL && limit >= 0);
    const taker_t taker = { fn, udp->gro ? direct : NULL, context, now_ns,
                            udp->timestamps ? ps_epoch_offset_ns() : 0 };
    int32_t seen = 0;
    int32_t stale = 0;
    while (seen < limit) {
        ps_direct_range_t range;
        const bool is_direct = taker.direct != NULL && taker.direct->prepare(context, &range);
        /* A joined buffer is delivered whole, so the limit may be exceeded by one batch. */
        int32_t buffers = is_direct ? 1 : limit - seen;
        buffers = buffers > PS_UDP_RECV_BATCH ? PS_UDP_RECV_BATCH : buffers;
        const int got = is_direct ? receive_direct(udp, &range) : receive_batch(udp, buffers);
        if (got < 0) {
            if (is_stale_error(errno) && stale++ < MOST_STALE_ERRORS) {
                continue;
            }
            if (errno == EAGAIN || errno == EWOULDBLOCK || is_stale_error(errno)) {
                break;
            }
            return seen > 0 ? seen : ps_fail(PS_E_SYSTEM, "cannot receive: %s", strerror(errno));
        }
        for (int32_t i = 0; i < got; i++) {
            seen += hand_out(udp, i, &taker, is_direct ? &range : NULL);
        }
        if (got < buffers) {
            break; /* drained */
        }
    }
    return seen;
}

/* The caller of recv. */
typedef struct splitter {
    ps_on_datagram_fn fn;
    void *context;
} splitter_t;

/* Bound: length / segment. */
static void split(void *context, const uint8_t *data, uint32_t length, uint32_t segment,
                  const ps_addr_t *from, int64_t rx_ns)
{
    const splitter_t *splitter = context;
    uint32_t at = 0;
    do {
        const uint32_t size = length - at < segment ? length - at : segment;
        splitter->fn(splitter->context, data + at, size, from, rx_ns);
        at += size;
    } while (at < length);
}

int ps_udp_recv(ps_socket_t *handle, int32_t limit, ps_on_datagram_fn fn, void *context,
                int64_t now_ns)
{
    splitter_t splitter = { fn, context };
    PS_ASSERT(fn != NULL);
    return ps_udp_recv_runs(handle, limit, split, NULL, &splitter, now_ns);
}
