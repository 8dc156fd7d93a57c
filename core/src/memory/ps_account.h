/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_account.h: which cause holds a publication, since when, and through whose fault
 * (docs/spec/rules.md section 6). Intervals close at each change, so that the sums by cause and
 * the sums by culprit both equal the time held. */
#ifndef PS_ACCOUNT_H
#define PS_ACCOUNT_H

#include <stdbool.h>

#include "ps_shared.h"
#include "ps_types.h"

/* The one that holds a publication, as a reader of the account wants to know it.  Its first 32
 * bytes go into the sketch of culprits. */
typedef struct ps_holder {
    ps_addr_t address;     /* of a receiver; family 0: a client of this host, or unknown */
    int32_t client_slot;   /* of that client; -1 none */
    int32_t counter_id;    /* position of its slowest reader; -1 none */
    int64_t reason_client; /* client beyond the receiver which is behind; 0 not stated */
    int64_t backlog_bytes; /* of that client */
    char name[33];         /* of that client */
    char host[33];
    uint8_t reason; /* ps_cause that the receiver states for itself; 0 none */
} ps_holder_t;

_Static_assert(sizeof(ps_holder_t) <= PS_HOLDER_WORDS * sizeof(uint64_t),
               "a holder fits its words");

/* Binds cause (ps_cause) and culprit (receiver or client id, 0 unknown) from now_ns on.  Closes the
 * running interval into blocked_ns[old cause] and the sketch when either changed; else does
 * nothing.  holder: NULL unknown.  Sender thread.  Bound: PS_CULPRITS entries. */
void ps_account_bind(ps_publication_slot_t *slot, int32_t cause, int64_t culprit,
                     const ps_holder_t *holder, int64_t now_ns);
/* Whether these bind already: then ps_account_bind does nothing.  Sender thread. */
bool ps_account_binds(const ps_publication_slot_t *slot, int32_t cause, int64_t culprit);
/* Restates what the culprit that binds says of itself.  Sender thread. */
void ps_account_describe(ps_publication_slot_t *slot, const ps_holder_t *holder);
/* A new daemon takes the slot: what the old one left half-written is ended.  No agent runs. */
void ps_account_adopt(ps_publication_slot_t *slot);

#endif
