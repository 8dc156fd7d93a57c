/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_send_endpoint_drain.c: bounds the turns of streams whose socket is full. The kernel makes room
 * when a whole message has left the socket. The next stream waits until the link has sent this
 * message. While the socket is full again and again, a turn therefore sends at most the bytes that
 * the link takes in 50 us (docs/decisions/0630). Otherwise there is no bound. */
#include "ps_sender.h"

#define IN_A_ROW_NS INT64_C(1000000) /* between two refusals of a socket that stays full */
#define MEASURE_NS  INT64_C(1000000)
#define LASTS_NS    INT64_C(10000000) /* the bound, after the last refusal */
#define SECOND_NS   INT64_C(1000000000)

void ps_send_endpoint_drain_init(ps_send_endpoint_t *endpoint)
{
    endpoint->turn_most = INT64_MAX;
    endpoint->refused_ns = INT64_MIN / 2;
}

static void restart(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    endpoint->drain_since_ns = now_ns;
    endpoint->drain_from_bytes = endpoint->sent_bytes;
}

void ps_send_endpoint_refused(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t took_ns = now_ns - endpoint->drain_since_ns;
    if (now_ns - endpoint->refused_ns > IN_A_ROW_NS) {
        restart(endpoint, now_ns); /* the socket may have been empty since */
    } else if (took_ns >= MEASURE_NS) {
        const int64_t bytes = endpoint->sent_bytes - endpoint->drain_from_bytes;
        const int64_t rate = bytes * SECOND_NS / took_ns; /* of at most 2 ms */
        endpoint->turn_most = ps_bands_quantum(rate, endpoint->sender->largest_datagram);
        restart(endpoint, now_ns);
    }
    endpoint->refused_ns = now_ns;
    if (endpoint->due_ns > now_ns + LASTS_NS) { /* the retry of the full socket also notes this */
        endpoint->due_ns = now_ns + LASTS_NS;
    }
}

int64_t ps_send_endpoint_drain_timer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t until_ns = endpoint->refused_ns + LASTS_NS;
    if (now_ns < until_ns) {
        return until_ns;
    }
    endpoint->turn_most = INT64_MAX;
    return INT64_MAX;
}
