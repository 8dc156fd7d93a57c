/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_cubic.h: CUBIC (RFC 9438) with HyStart++ (RFC 9406), run by the receiver of a stream.
 *
 * The window in the receiver's status messages limits the sender. The received bytes correspond to
 * TCP's "acknowledged" bytes. The receiver does not know which bytes are in flight. In place of
 * TCP's bytes "in flight", the receiver uses the bytes that its window allows, minus the bytes that
 * have arrived. Penstock differs from TCP in three points. First, a gap does not stop the growth of
 * the window. Bytes above the gap have arrived and are no longer in flight, so the receiver allows
 * the same number of new bytes. TCP does the same with selective acknowledgement. Second, a
 * congestion event is a new gap. When the gap opens, the sender may already have sent data up to
 * the limit that the receiver last advertised. A later gap below that limit therefore belongs to
 * the same congestion event. Third, a round of HyStart++ lasts one measured round-trip time,
 * whereas RFC 9406 delimits a round by sequence numbers.
 *
 * The functions are pure and use only integers, so the same input gives the same window on every
 * machine. Windows are in bytes. A field whose name ends with _q is a fixed-point number with 16
 * bits of fraction, so that the functions can add small amounts. Owner: the receiver thread. */
#ifndef PS_CUBIC_H
#define PS_CUBIC_H

#include <stdbool.h>
#include <stdint.h>

enum ps_cubic_phase { PS_CUBIC_SLOW_START = 0, PS_CUBIC_CONSERVATIVE = 1, PS_CUBIC_AVOIDANCE = 2 };

typedef struct ps_cubic {
    /* constants */
    int64_t segment;     /* bytes of a full datagram */
    int64_t least, most; /* bounds of the window, bytes */
    bool friendly;       /* True: the window is never smaller than the window that Reno would have
                          * (RFC 9438 section 4.3). */
    /* window */
    int32_t phase;     /* ps_cubic_phase */
    int64_t window_q;  /* cwnd, bytes << 16 */
    int64_t threshold; /* ssthresh, bytes */
    int64_t peak;      /* W_max, bytes */
    int64_t prior;     /* congestion window before the last congestion event, in bytes */
    int64_t reno_q;    /* W_est, bytes << 16 */
    int64_t k_ticks;   /* K of RFC 9438: time from t = 0 until the cubic curve reaches W_max, in
                        * units of 100 us */
    int64_t epoch_ns;  /* Time at which the cubic curve has t = 0. In some rounds the window does
                        * not limit the sender. The functions add the length of such a round to
                        * epoch_ns, so that the round does not raise the window. */
    int64_t grown_ns;  /* Time at which the window was last computed from the cubic curve. */
    int64_t credit;    /* Number of bytes that arrived since epoch_ns and have not yet increased the
                        * window. */
    bool epoch_set;
    int64_t recovery; /* Gaps that begin below this position belong to the last congestion event. */
    bool had_event;
    /* round trip */
    int64_t smoothed_ns; /* 0 unknown */
    int64_t least_ns;    /* smallest seen */
    /* rounds */
    int64_t round_ns; /* when it began */
    bool round_set;
    int64_t round_received; /* bytes in this round */
    int64_t round_window;   /* cwnd when it began */
    bool limited;           /* True if the window limited the sender in the last round. */
    /* HyStart++ */
    int64_t last_least_ns, this_least_ns, baseline_ns;
    int32_t samples;
    int32_t conservative_rounds;
} ps_cubic_t;

/* `segment` is the size of a datagram (>= 32 bytes), `window_max` the largest window in bytes;
 * `friendly` turns RFC 9438's Reno-friendly region on. */
void ps_cubic_init(ps_cubic_t *cubic, int64_t segment, int64_t window_max, bool friendly);
/* Processes a sample of the round-trip time (ns > 0) and the smoothed round-trip time. */
void ps_cubic_on_rtt(ps_cubic_t *cubic, int64_t sample_ns, int64_t smoothed_ns);
/* Records the number of bytes that arrived since the last call, including retransmitted bytes. Call
 * this function even if no bytes arrived, because it also ends rounds of HyStart++. */
void ps_cubic_on_received(ps_cubic_t *cubic, int64_t bytes, int64_t now_ns);
/* Processes a new gap that begins at `from`. Before the next status message, the sender may send up
 * to the position `granted_to`. If the gap is a congestion event, the function reduces the window
 * and returns true. */
bool ps_cubic_on_loss(ps_cubic_t *cubic, int64_t from, int64_t granted_to, int64_t now_ns);
/* The window in bytes, least..most. */
static inline int64_t ps_cubic_window(const ps_cubic_t *cubic)
{
    return cubic->window_q >> 16;
}
/* Returns the pacing rate in bytes a second; 0: not yet known. The rate is two windows for each
 * round trip in slow start, 1.25 windows afterwards. */
int64_t ps_cubic_rate(const ps_cubic_t *cubic);
/* Floor of the cube root. */
uint32_t ps_cube_root(uint64_t value);

#endif
