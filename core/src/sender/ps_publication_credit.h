/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_credit.h: functions that ps_publication_credit.c and ps_publication_grants.c
 * share. */
#ifndef PS_PUBLICATION_CREDIT_H
#define PS_PUBLICATION_CREDIT_H

#include "ps_publication.h"

static inline ps_counted_t ps_publication_credit_counted(const ps_publication_t *pub)
{
    return pub->endpoint == NULL
               ? pub->credits.counted
               : (ps_counted_t){ .position = pub->sender_position, .ordinal = pub->sent_ordinal };
}

/* Returns the number of messages whose credits publishers have taken. */
int64_t ps_publication_credit_taken(const ps_publication_t *pub);
/* Call this function after a client has left the stream: a lease of this client ends. */
void ps_publication_credit_client_gone(ps_publication_t *pub);
/* On a network channel, the sender counts messages as it sends them. On IPC nothing is sent, so
 * this function counts the messages in the log. Returns true if messages remain to be counted. */
bool ps_publication_credit_count_log(ps_publication_t *pub);
/* An adopted stream begins to await the receivers that granted credits to the dead daemon's stream,
 * if there were any. */
void ps_publication_credit_await_granters(ps_publication_t *pub);
/* A receiver was heard, or left. */
void ps_publication_credit_arrived(ps_publication_t *pub, int64_t receiver_id);
/* Returns true if the credit limit of the dead daemon still applies to an adopted stream. This
 * limit applies until the awaited receivers have been heard or have timed out. */
bool ps_publication_credit_await(ps_publication_t *pub, int64_t now_ns);
/* Stores in the slot which receivers grant credits. If this daemon dies, the new daemon reads this.
 * Cost: visits
 * all receivers, but only after a receiver began or ceased to grant credits. */
void ps_publication_credit_show_granters(ps_publication_t *pub);
/* Computes the lowest credit limit of the remote receivers. Cost: visits all receivers, but only
 * after a receiver has changed the credits that it grants. */
void ps_publication_credit_combine_receivers(ps_publication_t *pub, int64_t now_ns);
/* Combines the limit of the remote receivers with the limits of the local readers. Returns the
 * lowest limit. A local reader grants no further credits while the ordinal at which it joined is
 * unknown. */
int64_t ps_publication_credit_combine(ps_publication_t *pub, bool *frozen);
/* Stores the state of the credits in the slots of the local readers. The readers' clients read the
 * state from these slots. */
void ps_publication_credit_show(ps_publication_t *pub);

#endif
