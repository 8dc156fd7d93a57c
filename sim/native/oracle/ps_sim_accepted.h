/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_accepted.h: checks that the simulator makes when a publication has accepted a message: of
 * rates (ps_sim_lead.c) and of credits (ps_sim_credit.c). */
#ifndef PS_SIM_ACCEPTED_H
#define PS_SIM_ACCEPTED_H

#include "ps_publication.h"
#include "ps_sim_world.h"

struct ps_probe; /* ps_sim_probe.h */

/* The credits of an image, as its status messages have stated them so far. */
typedef struct ps_sim_stated {
    int64_t limit;
    int64_t changed_ns;
    int64_t asked_ns; /* Time of the last status message that requested a CREDIT frame. */
    uint32_t epoch;
    int32_t readers; /* that grant */
} ps_sim_stated_t;

/* Returns the number of bytes that a message takes in the log. */
int64_t ps_sim_framed_bytes(const ps_publication_t *pub, int32_t size);
/* Checks the latest message that the publication accepted: the rate limit of the stream must have
 * allowed this message at this time. */
void ps_sim_lead_check(ps_simworld_t *world, const ps_sim_publisher_t *publisher,
                       const ps_publication_t *pub, int64_t start);
/* Checks the latest message that the publication accepted: the readers must have granted a credit
 * for this message. */
void ps_sim_credit_check(struct ps_probe *probe, const ps_sim_publisher_t *publisher);
/* Call this function after each duty cycle of the host. The function checks that a subscription
 * gets no further message once its credits are frozen and in the state SETTLED. Cost: visits the
 * host's subscribers. */
void ps_sim_credit_watch(ps_simworld_t *world, int32_t host);
/* Returns true if a receiver may send a status message because of its credits. If the credits of a
 * receiver change, for example because a reader with credits leaves, the receiver sends a status
 * message at once. If the credit limit has risen from 0, the receiver sends two further status
 * messages with the new limit. If a new credit epoch has begun, the receiver repeats its status
 * message until the sender answers. After this answer, the receiver sends the two further status
 * messages about a raised limit. */
bool ps_sim_states_credits(ps_sim_stated_t *stated, const ps_trailer_t *trailer, int32_t readers,
                           int64_t now_ns, int64_t slack_ns);

#endif
