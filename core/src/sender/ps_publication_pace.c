/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_pace.c: the two token buckets of congestion control and loss recovery.
 *
 * The congestion bucket spreads a congestion window over its round trip. A receiver that runs CUBIC
 * states window, rate and round trip in the trailer of its status messages. A penstock sender keeps
 * to that rate (docs/congestion-control.md). The members of a group state different rates: the
 * highest one applies, so no member receives less than its window permits. A member that states no
 * rate has the highest one, and the group is not paced (docs/decisions/0680).
 *
 * The repair bucket bounds retransmits: a number of bytes for each new byte, and some bytes by
 * time, so that an idle stream can retransmit too (docs/loss-recovery.md). */
#include "ps_sender.h"

enum { BURST_DATAGRAMS = 10, BURST_PARTS = 500, REPAIR_BURST_MAX = 8 * 1024 * 1024 };

void ps_publication_pace_init(ps_publication_t *pub)
{
    const ps_driver_params_t *params = &pub->context->params;
    const int64_t half = ps_publication_term(pub) / 2;
    ps_pacer_init(&pub->congestion_pace);
    ps_pacer_init(&pub->repair);
    ps_pacer_set(&pub->repair,
                 params->retransmit_bytes_per_s > 0 ? params->retransmit_bytes_per_s : 1,
                 half < REPAIR_BURST_MAX ? half : REPAIR_BURST_MAX, 0);
    pub->paced_until_ns = INT64_MAX;
}

static int64_t highest_rate(const ps_publication_t *pub)
{
    int64_t highest = 0;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        const int64_t rate = pub->receivers[i].pacing_rate;
        highest = rate > highest ? rate : highest;
    }
    return highest;
}

static void apply(ps_publication_t *pub, int64_t highest, int64_t now_ns)
{
    const int64_t rate = highest == INT64_MAX ? 0 : highest;
    const int64_t least = (int64_t)BURST_DATAGRAMS * pub->log.mtu;
    pub->highest_pace = highest;
    if (rate != pub->congestion_pace.rate) {
        ps_pacer_set(&pub->congestion_pace, rate,
                     rate / BURST_PARTS > least ? rate / BURST_PARTS : least, now_ns);
    }
}

/* The receivers are compared only if the highest rate falls: with n receivers, for about one status
 * message of n. A unicast stream has one receiver; a second one in the table has been replaced. */
void ps_publication_on_congestion(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                                  const ps_sm_t *sm, int64_t now_ns)
{
    const int64_t stated = sm->trailer.capabilities != 0 ? sm->trailer.pacing_rate : 0;
    const int64_t rate = stated > 0 ? stated : INT64_MAX;
    const bool was_highest = receiver->pacing_rate == pub->highest_pace;
    receiver->pacing_rate = rate;
    if (!pub->params.group || rate >= pub->highest_pace) {
        apply(pub, rate, now_ns);
    } else if (was_highest) {
        apply(pub, highest_rate(pub), now_ns);
    }
}

void ps_publication_pace_left(ps_publication_t *pub, int64_t rate, int64_t now_ns)
{
    if (pub->params.group && rate == pub->highest_pace) {
        apply(pub, highest_rate(pub), now_ns);
    }
}

static void wait_until(ps_publication_t *pub, int64_t due_ns)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    pub->paced_until_ns = due_ns < pub->paced_until_ns ? due_ns : pub->paced_until_ns;
    ps_publication_due(pub, due_ns);
    sender->urgent = true;
}

bool ps_publication_pace_shut(ps_publication_t *pub, int64_t now_ns)
{
    if (ps_pacer_room(&pub->congestion_pace, now_ns) > 0) {
        return false;
    }
    wait_until(pub, ps_pacer_ready_ns(&pub->congestion_pace, pub->log.mtu, now_ns));
    return true;
}

bool ps_publication_repair_shut(ps_publication_t *pub, int64_t now_ns)
{
    if (ps_pacer_room(&pub->repair, now_ns) > 0) {
        return false;
    }
    wait_until(pub, ps_pacer_ready_ns(&pub->repair, pub->log.mtu, now_ns));
    return true;
}

void ps_publication_paced(ps_publication_t *pub, int64_t fresh_bytes, int64_t repair_bytes)
{
    ps_pacer_spend(&pub->congestion_pace, fresh_bytes + repair_bytes);
    ps_pacer_earn(&pub->repair, fresh_bytes * pub->context->params.retransmit_percent / 100);
    ps_pacer_spend(&pub->repair, repair_bytes);
}

int64_t ps_publication_pace_timer(ps_publication_t *pub, int64_t now_ns)
{
    if (now_ns < pub->paced_until_ns) {
        return pub->paced_until_ns;
    }
    pub->paced_until_ns = INT64_MAX;
    ps_sender_ready(ps_publication_sender(pub), pub);
    ps_sender_ready_repair(ps_publication_sender(pub), pub);
    return INT64_MAX;
}
