/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as commands of an Aeron client in cnc.dat, with any cursor in front of them: the ring
 * is taken to its first empty record and zeroed behind the head, and each command that names a
 * correlation id gets one whole answer.
 *
 * Input: the ring's head (i64), the broadcast's tail (i64), then what lies at the head.
 */
#include <string.h>

#include "fuzz.h"
#include "ps_cnc_internal.h"
#include "stream.h"

enum { CURSORS = 16, MOST = 4096, AT_ONCE = 64, EVENT_ERROR = 0x0F01, EVENT_HEAD = 24 };
static const char REASON[] = "not served";

typedef struct world {
    char directory[256];
    ps_cnc_t *cnc;
} world_t;

static world_t the_world; /* one for the life of the process: making files is slow */

static void remove_world(void)
{
    ps_cnc_close(the_world.cnc);
    directory_remove(the_world.directory);
}

static ps_cnc_t *open_world(void)
{
    if (the_world.cnc == NULL) {
        if (access("/dev/shm", W_OK) == 0) {
            (void)setenv("TMPDIR", "/dev/shm", 0);
        }
        directory_make(the_world.directory, sizeof the_world.directory);
        the_world.cnc = cnc_make(the_world.directory);
        FUZZ_CHECK(atexit(remove_world) == 0);
    }
    return the_world.cnc;
}

static uint64_t broadcast_tail(const ps_cnc_t *cnc)
{
    uint64_t tail;
    memcpy(&tail, cnc->broadcast + cnc->broadcast_capacity + 8, sizeof tail);
    return tail & ~UINT64_C(7);
}

/* Whole answers between two places of the broadcast; padding only at the end of the buffer. */
static int32_t count_answers(const ps_cnc_t *cnc, uint64_t from, uint64_t to)
{
    const uint64_t mask = (uint64_t)cnc->broadcast_capacity - 1;
    int32_t found = 0;
    while (from != to) {
        int32_t head[2], error[2];
        const uint8_t *at = cnc->broadcast + (from & mask);
        memcpy(head, at, sizeof head);
        const uint64_t bytes = ((uint64_t)head[0] + 7) & ~UINT64_C(7);
        FUZZ_CHECK(head[0] > 0 && bytes <= to - from);
        FUZZ_CHECK((from & mask) + bytes <= (uint64_t)cnc->broadcast_capacity);
        if (head[1] == EVENT_ERROR) {
            memcpy(error, at + 16, sizeof error);
            FUZZ_CHECK(error[1] == (int32_t)strlen(REASON) && head[0] == EVENT_HEAD + error[1]);
            FUZZ_CHECK(memcmp(at + EVENT_HEAD, REASON, (size_t)error[1]) == 0);
            found++;
        } else {
            FUZZ_CHECK(head[1] == -1 && ((from + bytes) & mask) == 0);
        }
        from += bytes;
    }
    return found;
}

static void answer_all(ps_cnc_t *cnc, int32_t start, size_t length)
{
    uint64_t head = (uint64_t)atomic_load(ps_ring_field(cnc, PS_RING_HEAD)) & ~UINT64_C(7);
    const uint64_t first = head;
    for (size_t calls = 0;; calls++) {
        const uint64_t notified = broadcast_tail(cnc);
        const int32_t answered = ps_cnc_answer_commands(cnc, REASON);
        const uint64_t now = (uint64_t)atomic_load(ps_ring_field(cnc, PS_RING_HEAD));
        FUZZ_CHECK(answered >= 0 && answered <= AT_ONCE && calls <= length / 8 + 2);
        if ((now & ~UINT64_C(7)) == head) {
            FUZZ_CHECK(answered == 0);
            break;
        }
        FUZZ_CHECK(now % 8 == 0 && now - first <= (uint64_t)(cnc->ring_capacity - start));
        FUZZ_CHECK(count_answers(cnc, notified, broadcast_tail(cnc)) <= answered);
        head = now;
        if (now - first == (uint64_t)(cnc->ring_capacity - start)) {
            break; /* round: what follows is the empty beginning */
        }
    }
    const size_t taken = head - first < length ? (size_t)(head - first) : length;
    for (size_t i = 0; i < taken; i++) {
        FUZZ_CHECK(cnc->ring[(size_t)start + i] == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < CURSORS) {
        return 0;
    }
    ps_cnc_t *cnc = open_world();
    int64_t cursors[2];
    memcpy(cursors, input, sizeof cursors);
    const int32_t start = (int32_t)(cursors[0] & ~INT64_C(7) & (cnc->ring_capacity - 1));
    size_t length = size - CURSORS > MOST ? MOST : size - CURSORS;
    if (length > (size_t)(cnc->ring_capacity - start)) {
        length = (size_t)(cnc->ring_capacity - start);
    }
    memcpy(cnc->ring + start, input + CURSORS, length);
    atomic_store(ps_ring_field(cnc, PS_RING_HEAD), cursors[0]);
    memcpy(cnc->broadcast + cnc->broadcast_capacity + 8, &cursors[1], sizeof cursors[1]);
    answer_all(cnc, start, length);
    memset(cnc->ring + start, 0, length);
    return 0;
}
