/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_destinations.h: the addresses to which a multi-destination endpoint sends
 * (docs/spec/wire-format.md section 7). Dynamic destinations are learned from status messages and
 * removed after silence. The conductor adds manual destinations; a status message binds a receiver
 * id to a manual destination.
 *
 * A dynamic list has two kinds of places (docs/decisions/0075). If a status message names a
 * publication of the channel, the receiver that sent it gets a confirmed place. A confirmed place
 * gets the stream, and lasts while the receiver is heard. A join message (session 0, stream 0, S
 * flag) names no publication, and its 36 bytes are easily forged. The receiver that sent a join
 * message therefore gets only a provisional place. A provisional place gets only SETUPs and lasts
 * for a short time. There are few provisional places, and a new one replaces the oldest. */
#ifndef PS_DESTINATIONS_H
#define PS_DESTINATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_addr.h"
#include "ps_net.h"
#include "ps_map.h"

enum {
    PS_DESTINATIONS_MANUAL_MAX = 64,
    PS_DESTINATIONS_DYNAMIC_MAX = 2048, /* confirmed */
    PS_PROVISIONAL_MAX = 64,
    PS_PROVISIONAL_PER_ADDRESS = 4 /* for each IP address */
};
#define PS_PROVISIONAL_NS INT64_C(2000000000)

typedef struct ps_destination {
    int64_t id; /* conductor's (manual), -1 dynamic */
    ps_addr_t address;
    int64_t receiver_id; /* valid when bound */
    bool bound;
    int64_t heard_ns;     /* time of the last status message, or of the addition */
    int64_t reported_ns;  /* last report of silence */
    int32_t older, newer; /* neighbours in the list ordered by heard_ns, -1 none */
} ps_destination_t;

typedef struct ps_provisional {
    ps_addr_t address;
    int64_t heard_ns;    /* last join message */
    int64_t answered_ns; /* time at which SETUPs were last sent only to this address */
} ps_provisional_t;

typedef struct ps_destinations {
    bool dynamic;
    int32_t count; /* confirmed, or manual */
    int32_t limit;
    int32_t start;          /* first destination of the next send; rotates, so that no destination
                             * is always first */
    int32_t oldest, newest; /* by heard_ns, -1 none */
    int32_t provisional_count;
    uint64_t salt;
    uint64_t refused;        /* number of status messages whose receiver was refused */
    ps_destination_t *items; /* [limit], dense */
    ps_map_t by_address;     /* -> index + 1 */
    ps_map_t by_receiver;    /* (receiver id, port) -> index + 1 */
    ps_provisional_t provisional[PS_PROVISIONAL_MAX]; /* oldest first */
} ps_destinations_t;

enum ps_destination_verdict {
    PS_DESTINATION_KNOWN = 0,  /* the address is already in the list, or needs no entry */
    PS_DESTINATION_ADDED = 1,  /* the address was added */
    PS_DESTINATION_ANSWER = 2, /* send SETUPs to the address */
    PS_DESTINATION_FULL = 3    /* the list was full; counted in refused */
};

/* Conductor thread, before the hand-over to the sender. salt: from the injected seed.
 * PS_E_NO_MEMORY. */
int ps_destinations_init(ps_destinations_t *list, bool dynamic, uint64_t salt);
void ps_destinations_fini(ps_destinations_t *list);

/* All below: sender thread, no allocation. */

/* Records a valid status message from `from`. names: the status message names a publication of the
 * channel. Expected constant time. Returns ps_destination_verdict. */
int ps_destinations_on_sm(ps_destinations_t *list, int64_t receiver_id, const ps_addr_t *from,
                          bool names, int64_t now_ns);
/* Records a join message from `from`. O(PS_PROVISIONAL_MAX). again_ns: least time between two
 * answers to one place. Returns ps_destination_verdict, never FULL. */
int ps_destinations_on_join(ps_destinations_t *list, const ps_addr_t *from, int64_t again_ns,
                            int64_t now_ns);
/* Returns true if a confirmed or manual destination has this address. */
bool ps_destinations_has(const ps_destinations_t *list, const ps_addr_t *address);
/* Manual lists; O(count). */
bool ps_destinations_add(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns);
bool ps_destinations_remove(ps_destinations_t *list, int64_t id);
bool ps_destinations_set(ps_destinations_t *list, int64_t id, const ps_addr_t *address,
                         int64_t now_ns);
/* Removes one dynamic destination that is silent since heard_ns <= now - timeout. True: *gone
 * filled. Constant time. Also removes expired provisional places, which are not reported. */
bool ps_destinations_expire(ps_destinations_t *list, int64_t timeout_ns, int64_t now_ns,
                            ps_addr_t *gone);
/* Returns the earliest time at which a removal or a report of silence can be due; INT64_MAX:
 * none. */
int64_t ps_destinations_next_ns(const ps_destinations_t *list, int64_t timeout_ns);
/* Sends the batch to every confirmed or manual destination. Returns the number of datagrams that
 * every destination accepted. An error of one destination is counted in *errors and does not delay
 * other destinations; loss recovery retransmits the data. */
int32_t ps_destinations_send(ps_destinations_t *list, const ps_net_ops_t *ops, ps_socket_t *socket,
                             const ps_dgram_t *dgrams, int32_t count, int64_t now_ns,
                             int32_t *errors);

#endif
