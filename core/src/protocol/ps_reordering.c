/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_reordering.c: see ps_reordering.h. The window is a quarter longer than the delay of the latest
 * late datagram, so that the receiver waits for equally late ones. It is at most a round trip,
 * because a retransmit would have arrived by then. Each true loss shortens it, so that one odd
 * datagram, or a network that duplicates some, does not slow retransmission permanently. */
#include "ps_reordering.h"

#define PS_REORDERING_UNKNOWN_NS INT64_C(1000000) /* until a round trip is measured */

static void learn(ps_reordering_t *reordering, int64_t late_ns, int64_t least_ns)
{
    int64_t wanted_ns = late_ns + late_ns / 4;
    int64_t most_ns = least_ns > 0 ? least_ns : PS_REORDERING_UNKNOWN_NS;

    wanted_ns = wanted_ns < most_ns ? wanted_ns : most_ns;
    if (wanted_ns > reordering->window_ns) {
        reordering->window_ns = wanted_ns;
    }
}

void ps_reordering_filled(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t late_ns,
                          int32_t requested, int64_t least_ns)
{
    if (requested == 0) {
        learn(reordering, late_ns, least_ns);
    } else if (requested == 1) {
        reordering->suspects[reordering->next++ % PS_REORDERING_SUSPECTS] =
            (ps_suspect_t){ .from = from, .to = to, .late_ns = late_ns };
    }
}

void ps_reordering_twice(ps_reordering_t *reordering, int64_t from, int64_t to, int64_t least_ns)
{
    for (int32_t i = 0; i < PS_REORDERING_SUSPECTS; i++) {
        ps_suspect_t *suspect = &reordering->suspects[i];

        if (from < suspect->to && to > suspect->from) {
            learn(reordering, suspect->late_ns, least_ns);
            suspect->to = suspect->from;
        }
    }
}

void ps_reordering_lost(ps_reordering_t *reordering)
{
    reordering->window_ns -= (reordering->window_ns + 15) / 16;
}
