/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.c: the same messages over bare UDP sockets, as the floor and the ceiling of the benchmarks.
 *
 *   plain pub  ADDRESS PORT SIZE MTU BUFFERS WINDOW MODE
 *   plain sub  ADDRESS PORT SIZE MTU BUFFERS WINDOW MODE WARMUP_NS MEASURE_NS
 *
 * MODE is mmsg (sendmmsg and recvmmsg, one datagram an entry) or gso (UDP segmentation and GRO).  A
 * datagram holds what a penstock datagram of the same MTU holds: frames of 32 bytes of header and
 * the message, aligned to 32.  A subscriber tells what it has received every quarter of WINDOW, and
 * the publisher keeps no more than WINDOW under way, so that nothing is lost; that is all the
 * protocol there is: no repair, no order, no shared memory.  Speaks the harness's lines on standard
 * input and output (penstock/_bench/worker_io.py).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { HEADER = 32, BATCH = 32, RUN_BYTES = 65000, RUN_SEGMENTS = 64, LINE = 64 };

static atomic_bool going;
static atomic_bool stopped;
static atomic_llong expected = -1;

typedef struct task {
    struct sockaddr_in address;
    size_t size;         /* bytes of a message */
    size_t frame;        /* with header, aligned */
    size_t per_datagram; /* messages */
    size_t datagram;     /* bytes */
    int buffers;         /* socket buffers in bytes */
    uint64_t window;     /* messages under way */
    bool gso;
    int64_t warmup_ns;
    int64_t measure_ns;
} task_t;

typedef struct receiver {
    int fd;
    int64_t messages;
    int64_t out_of_order;
    uint64_t hash;
    uint64_t notified;
} receiver_t;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "plain: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void *listen_for_orders(void *unused)
{
    char line[LINE];
    (void)unused;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "go", 2) == 0) {
            going = true;
        } else if (strncmp(line, "stop", 4) == 0) {
            stopped = true;
        } else if (strncmp(line, "expect ", 7) == 0) {
            expected = atoll(line + 7);
        }
    }
    _exit(0);
}

static int open_socket(const task_t *task)
{
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &task->buffers, sizeof task->buffers) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &task->buffers, sizeof task->buffers) != 0) {
        die("socket");
    }
    return fd;
}

/* ---- publisher ------------------------------------------------------------------------------ */

static void write_datagram(const task_t *task, uint8_t *datagram, uint64_t number)
{
    for (size_t i = 0; i < task->per_datagram; i++, number++) {
        uint8_t *message = datagram + i * task->frame + HEADER;
        memcpy(message, &number, sizeof number);
        memset(message + task->size - 8, (int)(number & 0xff), 8);
    }
}

/* Takes what the subscriber told; waits up to a second for it when the window is full. */
static uint64_t hear(int fd, uint64_t heard, bool wait)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };
    uint64_t count;
    if (wait && poll(&one, 1, 1000) <= 0) {
        return heard;
    }
    while (recv(fd, &count, sizeof count, MSG_DONTWAIT) == (ssize_t)sizeof count) {
        heard = count > heard ? count : heard;
    }
    return heard;
}

static void send_gso(int fd, const task_t *task, uint8_t *bytes, size_t datagrams)
{
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr align;
    } control;
    struct iovec piece = { bytes, datagrams * task->datagram };
    struct msghdr header = { .msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes };
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    const uint16_t segment = (uint16_t)task->datagram;
    message->cmsg_level = IPPROTO_UDP;
    message->cmsg_type = UDP_SEGMENT;
    message->cmsg_len = CMSG_LEN(sizeof segment);
    memcpy(CMSG_DATA(message), &segment, sizeof segment);
    if (sendmsg(fd, &header, 0) < 0) {
        die("sendmsg");
    }
}

static void send_mmsg(int fd, const task_t *task, uint8_t *bytes, size_t datagrams)
{
    struct iovec pieces[BATCH];
    struct mmsghdr headers[BATCH] = { 0 };
    for (size_t i = 0; i < datagrams; i++) {
        pieces[i] = (struct iovec){ bytes + i * task->datagram, task->datagram };
        headers[i].msg_hdr.msg_iov = &pieces[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    for (size_t sent = 0; sent < datagrams;) {
        const int count = sendmmsg(fd, headers + sent, (unsigned)(datagrams - sent), 0);
        if (count < 0) {
            die("sendmmsg");
        }
        sent += (size_t)count;
    }
}

static void publish(const task_t *task)
{
    const int fd = open_socket(task);
    size_t run = task->gso ? RUN_BYTES / task->datagram : BATCH;
    run = task->gso && run > RUN_SEGMENTS ? RUN_SEGMENTS : run;
    uint8_t *bytes = calloc(run, task->datagram);
    if (bytes == NULL || connect(fd, (const void *)&task->address, sizeof task->address) != 0) {
        die("connect");
    }
    printf("{\"event\": \"ready\"}\n");
    fflush(stdout);
    while (!going) {
        usleep(1000);
    }
    const uint64_t step = run * task->per_datagram;
    uint64_t sent = 0;
    uint64_t heard = 0;
    while (!stopped) {
        heard = hear(fd, heard, sent + step - heard > task->window);
        if (sent + step - heard > task->window) {
            continue;
        }
        for (size_t i = 0; i < run; i++) {
            write_datagram(task, bytes + i * task->datagram, sent + i * task->per_datagram);
        }
        (task->gso ? send_gso : send_mmsg)(fd, task, bytes, run);
        sent += step;
    }
    printf("{\"event\": \"done\", \"messages\": %" PRIu64 "}\n", sent);
    fflush(stdout);
    pause();
}

/* ---- subscriber ----------------------------------------------------------------------------- */

static void take(receiver_t *self, const task_t *task, const uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at + task->frame <= length; at += task->frame) {
        uint64_t first;
        uint64_t last;
        memcpy(&first, bytes + at + HEADER, sizeof first);
        memcpy(&last, bytes + at + HEADER + task->size - 8, sizeof last);
        self->out_of_order += first != (uint64_t)self->messages;
        self->hash = (self->hash ^ first) * UINT64_C(0x9E3779B97F4A7C15) + last;
        self->messages++;
    }
}

static void notify(receiver_t *self, const task_t *task, const struct sockaddr_in *from)
{
    const uint64_t count = (uint64_t)self->messages;
    if (count - self->notified < task->window / 4) {
        return;
    }
    self->notified = count;
    if (sendto(self->fd, &count, sizeof count, 0, (const void *)from, sizeof *from) < 0) {
        die("sendto");
    }
}

/* One batched receive; false when there was nothing for 20 ms. */
static bool receive(receiver_t *self, const task_t *task, struct mmsghdr *headers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        headers[i].msg_hdr.msg_namelen = sizeof(struct sockaddr_in);
    }
    int got = recvmmsg(self->fd, headers, count, MSG_DONTWAIT, NULL);
    if (got < 0 && errno == EAGAIN) {
        struct pollfd one = { .fd = self->fd, .events = POLLIN };
        if (poll(&one, 1, 20) <= 0) {
            return false;
        }
        got = recvmmsg(self->fd, headers, count, MSG_DONTWAIT, NULL);
    }
    for (int i = 0; i < got; i++) {
        /* Every datagram is full, so GRO's runs are cut at multiples of the frame. */
        take(self, task, headers[i].msg_hdr.msg_iov->iov_base, headers[i].msg_len);
    }
    if (got > 0) {
        notify(self, task, headers[0].msg_hdr.msg_name);
    }
    return got > 0;
}

/* Says the marks; false when everything that was sent is there. */
static bool tick(const receiver_t *self, const task_t *task, int64_t *next_ns, int *marks,
                 int64_t *drain_ns)
{
    const int64_t now = now_ns();
    if (*next_ns == 0) {
        *next_ns = self->messages > 0 ? now + task->warmup_ns : 0;
    } else if (*marks < 2 && now >= *next_ns) {
        printf("{\"event\": \"mark\", \"messages\": %" PRId64 ", \"ns\": %" PRId64 "}\n",
               self->messages, now);
        fflush(stdout);
        *next_ns = now + task->measure_ns;
        (*marks)++;
    }
    if (expected < 0) {
        return true;
    }
    *drain_ns = *drain_ns == 0 ? now + INT64_C(1000000000) : *drain_ns;
    return self->messages < expected && now < *drain_ns;
}

static void subscribe(const task_t *task)
{
    receiver_t self = { .fd = open_socket(task) };
    const size_t room = task->gso ? 65536 : task->datagram;
    const unsigned count = task->gso ? 4 : BATCH;
    uint8_t *bytes = malloc(room * count);
    struct iovec pieces[BATCH];
    struct mmsghdr headers[BATCH] = { 0 };
    struct sockaddr_in names[BATCH];
    const int on = 1;
    if (bytes == NULL || bind(self.fd, (const void *)&task->address, sizeof task->address) != 0 ||
        (task->gso && setsockopt(self.fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0)) {
        die("bind");
    }
    for (unsigned i = 0; i < count; i++) {
        pieces[i] = (struct iovec){ bytes + i * room, room };
        headers[i].msg_hdr.msg_iov = &pieces[i];
        headers[i].msg_hdr.msg_iovlen = 1;
        headers[i].msg_hdr.msg_name = &names[i];
    }
    printf("{\"event\": \"ready\"}\n");
    fflush(stdout);
    int64_t next_ns = 0;
    int64_t drain_ns = 0;
    int marks = 0;
    do {
        for (int i = 0; i < 64 && receive(&self, task, headers, count); i++) {
        }
    } while (tick(&self, task, &next_ns, &marks, &drain_ns));
    printf("{\"event\": \"done\", \"messages\": %" PRId64 ", \"hash\": \"%016" PRIx64
           "\", \"out_of_order\": %" PRId64 "}\n",
           self.messages, self.hash, self.out_of_order);
    fflush(stdout);
    pause();
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 9) {
        fprintf(stderr, "usage: plain pub|sub ADDRESS PORT SIZE MTU BUFFERS WINDOW mmsg|gso ...\n");
        return 2;
    }
    const uint16_t port = htons((uint16_t)atoi(argv[3]));
    task_t task = { .address = { .sin_family = AF_INET, .sin_port = port },
                    .size = (size_t)atol(argv[4]),
                    .buffers = atoi(argv[6]),
                    .gso = strcmp(argv[8], "gso") == 0 };
    task.frame = (task.size + HEADER + 31) / 32 * 32;
    task.per_datagram = (size_t)atol(argv[5]) / task.frame;
    task.datagram = task.per_datagram * task.frame;
    if (task.per_datagram == 0 || task.size < 16 ||
        inet_pton(AF_INET, argv[2], &task.address.sin_addr) != 1) {
        fprintf(stderr, "plain: a message must be 16 bytes or more and fit into a datagram\n");
        return 2;
    }
    task.window = (uint64_t)atol(argv[7]) / task.frame;
    task.warmup_ns = argc > 9 ? atoll(argv[9]) : 0;
    task.measure_ns = argc > 10 ? atoll(argv[10]) : 0;
    if (pthread_create(&thread, NULL, listen_for_orders, NULL) != 0) {
        die("pthread_create");
    }
    (strcmp(argv[1], "pub") == 0 ? publish : subscribe)(&task);
    return 0;
}
