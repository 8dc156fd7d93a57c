/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_accepted.h: promises that are checked when a message is accepted: rates (ps_sim_lead.c)
 * and credits (ps_sim_credit.c). */
#ifndef PS_SIM_ACCEPTED_H
#define PS_SIM_ACCEPTED_H

#include "ps_publication.h"
#include "ps_sim_world.h"

struct ps_probe; /* ps_sim_probe.h */

/* Credits in the last status message of an image. */
typedef struct ps_sim_stated {
    int64_t limit;
    int64_t changed_ns;
    int64_t asked_ns; /* time of the last statement that requested an answer */
    uint32_t epoch;
    int32_t readers; /* that grant */
} ps_sim_stated_t;

/* Returns the bytes of log that a message takes. */
int64_t ps_sim_framed_bytes(const ps_publication_t *pub, int32_t size);
/* Checks that the rate allows the latest accepted message of a ledger. */
void ps_sim_lead_check(ps_simworld_t *world, const ps_sim_publisher_t *publisher,
                       const ps_publication_t *pub, int64_t start);
/* Checks that readers granted a credit for the latest accepted message. */
void ps_sim_credit_check(struct ps_probe *probe, const ps_sim_publisher_t *publisher);
/* After a duty cycle of the host, checks the subscriptions whose credits are withheld and settled.
 * Bound: its subscribers. */
void ps_sim_credit_watch(ps_simworld_t *world, int32_t host);
/* Returns true if a status message may leave because of its credits. Changed credits leave at once,
 * also after one of the readers that grant has left. A receiver repeats a limit that rose from 0
 * twice, and repeats a new epoch until the sender answers. While it waits for that answer, the two
 * repetitions wait too: an answer to an earlier statement does not confirm the limit. */
bool ps_sim_states_credits(ps_sim_stated_t *stated, const ps_trailer_t *trailer, int32_t readers,
                           int64_t now_ns, int64_t slack_ns);

#endif
