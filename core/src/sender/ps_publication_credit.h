/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_credit.h: between ps_publication_credit.c and ps_publication_grants.c. */
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
/* IPC: the log has no sender position, so its messages are counted here. True: more remain. */
bool ps_publication_credit_count_log(ps_publication_t *pub);
/* Combines the statements of the receivers. Bound: the receivers, once a changed statement. */
void ps_publication_credit_combine_receivers(ps_publication_t *pub, int64_t now_ns);
/* Adds the local readers. Returns the lowest limit. A reader whose base is not known yet admits
 * nothing new. */
int64_t ps_publication_credit_combine(ps_publication_t *pub, bool *frozen);
/* Stores the state for the clients of the local readers. */
void ps_publication_credit_show(ps_publication_t *pub);

#endif
