/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_account.h: the account of a blocked publication. The account states the cause, the time since
 * the block began, and the receiver or client that is the culprit (docs/spec/rules.md section 6).
 * An interval lasts as long as cause and culprit stay the same. The account adds the duration of
 * the interval to the total time of the cause, and to the total time of the culprit. The times of
 * all causes therefore add up to the total blocked time. The times of all culprits also add up to
 * the total blocked time. */
#ifndef PS_ACCOUNT_H
#define PS_ACCOUNT_H

#include <stdbool.h>

#include "ps_shared.h"
#include "ps_types.h"

/* The receiver or client that blocks a publication. The sender copies the first 32 bytes of this
 * structure into the list of culprits. */
typedef struct ps_holder {
    ps_addr_t address;     /* Address of the receiver; family 0: the culprit is a client of this
                            * host, or unknown. */
    int32_t client_slot;   /* of that client; -1 none */
    int32_t counter_id;    /* Id of the slowest reader's position counter, if the culprit is a
                            * client of this host; -1: none. */
    int64_t reason_client; /* If the culprit is a receiver: id of its slowest client; 0: the
                            * receiver states no such id. */
    int64_t backlog_bytes; /* of that client */
    char name[33];         /* of that client */
    char host[33];
    uint8_t reason; /* The cause (ps_cause) that limits the receiver, as its status messages state;
                     * 0: none. */
} ps_holder_t;

_Static_assert(sizeof(ps_holder_t) <= PS_HOLDER_WORDS * sizeof(uint64_t),
               "a holder fits its words");

/* Records the cause (ps_cause) and the culprit (receiver or client id, 0 unknown) that block the
 * publication from now_ns on. If the cause or the culprit changed, the account adds the time since
 * the last change to two totals: that of the old cause and that of the old culprit. `holder` is
 * NULL if the culprit is unknown. Sender thread. Cost: visits at most PS_CULPRITS entries. */
void ps_account_bind(ps_publication_slot_t *slot, int32_t cause, int64_t culprit,
                     const ps_holder_t *holder, int64_t now_ns);
/* Returns true if the account already states this cause and this culprit, so that a call of
 * ps_account_bind would change nothing. Sender thread. */
bool ps_account_binds(const ps_publication_slot_t *slot, int32_t cause, int64_t culprit);
/* Updates the details of the present culprit (ps_holder_t). Sender thread. */
void ps_account_describe(ps_publication_slot_t *slot, const ps_holder_t *holder);
/* Stores the state of a publication's fill level (ps_watermark). The state HIGH begins an episode
 * of pressure. The states LOW and NORMAL end the episode of pressure. `drained` is the number of
 * messages consumed during the episode; the function adds this number to the count in the slot.
 * Sender thread. */
void ps_account_press(ps_publication_slot_t *slot, int32_t state, int64_t drained, int64_t now_ns);
/* Called when a new daemon adopts the slot. If the old daemon died during an update of the account,
 * completes this update. Adds the time since `alive_until_ns`, the last heartbeat of the old
 * daemon, to the time of PS_CAUSE_DAEMON_AWAY. If `alive_until_ns` is 0, the old daemon shut down
 * cleanly, and recorded the cause PS_CAUSE_DAEMON_AWAY itself. Call this function while no agent
 * runs. */
void ps_account_adopt(ps_publication_slot_t *slot, int64_t alive_until_ns);

#endif
