/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_destinations.h: the addresses to which a multi-destination endpoint sends
 * (docs/spec/wire-format.md section 7). The sender adds a dynamic destination when a status message
 * arrives from a new address, and removes a dynamic destination that is silent. The conductor adds
 * manual destinations. When the first status message from a manual destination arrives, the sender
 * stores the receiver id of this message in the destination's entry.
 *
 * A list of dynamic destinations has two kinds of entries (docs/decisions/0075). A receiver whose
 * status message names a publication of the channel gets a confirmed entry. The sender sends the
 * stream to a confirmed entry, and keeps the entry while the receiver sends status messages. A join
 * message (session 0, stream 0, S flag) names no publication, and its 36 bytes are easily forged. A
 * receiver that sends a join message therefore gets only a provisional entry. The sender sends only
 * SETUPs to a provisional entry, and removes the entry after a short time. The number of
 * provisional entries is small; a new provisional entry replaces the oldest one. */
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
    int64_t heard_ns;     /* Time of the last status message from this destination; before the first
                           * status message, the time at which the destination was added. */
    int64_t reported_ns;  /* last report of silence */
    int32_t older, newer; /* Links of the list that is sorted by heard_ns: indexes of the next older
                           * and the next newer destination; -1: none. */
} ps_destination_t;

typedef struct ps_provisional {
    ps_addr_t address;
    int64_t heard_ns;    /* last join message */
    int64_t answered_ns; /* Time at which the sender last answered this provisional address with
                          * SETUPs. */
} ps_provisional_t;

typedef struct ps_destinations {
    bool dynamic;
    int32_t count; /* confirmed, or manual */
    int32_t limit;
    int32_t start;          /* Index of the destination to which the sender sends first. The index
                             * rotates, so that no destination is always the first. */
    int32_t oldest, newest; /* by heard_ns, -1 none */
    int32_t provisional_count;
    uint64_t salt;
    uint64_t refused;                                 /* Number of status messages whose source
                                                       * address got no entry, because the list was
                                                       * full. */
    ps_destination_t *items;                          /* [limit], dense */
    ps_map_t by_address;                              /* -> index + 1 */
    ps_map_t by_receiver;                             /* (receiver id, port) -> index + 1 */
    ps_provisional_t provisional[PS_PROVISIONAL_MAX]; /* oldest first */
} ps_destinations_t;

enum ps_destination_verdict {
    PS_DESTINATION_KNOWN = 0,  /* The list was not changed, because the address already has an entry
                                * or needs none. */
    PS_DESTINATION_ADDED = 1,  /* the address was added */
    PS_DESTINATION_ANSWER = 2, /* send SETUPs to the address */
    PS_DESTINATION_FULL = 3    /* The list was full, so the receiver was refused and counted in
                                * `refused`. */
};

/* The conductor thread calls this function before it hands the endpoint over to the sender. `salt`
 * is a random value for the hash maps of the list, derived from the driver's seed.
 * PS_E_NO_MEMORY. */
int ps_destinations_init(ps_destinations_t *list, bool dynamic, uint64_t salt);
void ps_destinations_fini(ps_destinations_t *list);

/* Only the sender thread may call the functions below this comment; they allocate no memory. */

/* Records a valid status message from address `from`. `names` is true if the status message names a
 * publication of the channel. Expected constant time. Returns ps_destination_verdict. */
int ps_destinations_on_sm(ps_destinations_t *list, int64_t receiver_id, const ps_addr_t *from,
                          bool names, int64_t now_ns);
/* Records a join message from address `from`, in O(PS_PROVISIONAL_MAX). The sender answers join
 * messages of the same address at most once in again_ns. Returns ps_destination_verdict, never
 * FULL. */
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
/* Removes one dynamic destination that was silent for at least the time-out. If a destination was
 * removed, sets *gone to its address and returns true. The function also removes provisional
 * entries that have expired, but does not report their addresses. Constant time. */
bool ps_destinations_expire(ps_destinations_t *list, int64_t timeout_ns, int64_t now_ns,
                            ps_addr_t *gone);
/* Returns the earliest time at which a destination must be removed or reported as silent;
 * INT64_MAX: none. */
int64_t ps_destinations_next_ns(const ps_destinations_t *list, int64_t timeout_ns);
/* Sends the datagrams to every confirmed or manual destination. Returns the smallest number of
 * datagrams that a destination accepted. Destinations with an error do not count. If a send to one
 * destination fails, the function counts the error in *errors, and continues with the next
 * destination. Loss recovery later retransmits the data. */
int32_t ps_destinations_send(ps_destinations_t *list, const ps_net_ops_t *ops, ps_socket_t *socket,
                             const ps_dgram_t *dgrams, int32_t count, int64_t now_ns,
                             int32_t *errors);

#endif
