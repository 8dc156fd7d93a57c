/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_half_open.h: half-open sessions: a SETUP has arrived, but no data (docs/decisions/0076). With
 * a SETUP of only 40 bytes from a forged address, an attacker could make the daemon create an
 * image, which needs files and counters. To limit such an attack, the table of half-open sessions
 * is small, and a new session replaces the oldest. Owner: the receiver agent. After
 * ps_half_open_init, the functions allocate no memory, and their cost is bounded. */
#ifndef PS_HALF_OPEN_H
#define PS_HALF_OPEN_H

#include <stdint.h>

#include "ps_error.h"
#include "ps_image_params.h"
#include "ps_net.h"
#include "ps_map.h"

enum {
    PS_HALF_OPEN_MAX = 1024,       /* entries of all addresses */
    PS_HALF_OPEN_PER_ADDRESS = 64, /* entries of one IP address */
    PS_HALF_OPEN_WAITING = 64,     /* Largest number of SETUPs that the receiver has reported and
                                    * the conductor has not yet answered. */
    PS_HALF_OPEN_LEAST = 16
};
/* A new session does not replace an entry younger than PS_HALF_OPEN_NS, because the first data of
 * the entry's session may still be on the network. */
#define PS_HALF_OPEN_NS INT64_C(1000000000)

/* Limits on the SETUPs that one endpoint reports to the conductor: first up to PS_SETUP_BURST
 * SETUPs at once, then one SETUP in each PS_SETUP_INTERVAL_NS. A SETUP counts toward these limits
 * only until data of its session arrives. */
enum { PS_SETUP_BURST = 1024 };
#define PS_SETUP_INTERVAL_NS INT64_C(4000000)

typedef struct ps_half_open_entry {
    int64_t since_ns;
    ps_image_t *image;              /* The session's image; NULL: the conductor has not yet created
                                     * the image. */
    int32_t older, newer;           /* Links of the list that is sorted by age: indexes of the next
                                     * older and the next newer entry; -1: none. */
    int32_t same_older, same_newer; /* of the same address */
    int32_t address;                /* index */
    int32_t next_free;
} ps_half_open_entry_t;

typedef struct ps_half_open_address {
    uint64_t words[2]; /* the IP address */
    int32_t family;
    int32_t count;
    int32_t oldest, newest;
    int32_t next_free;
} ps_half_open_address_t;

typedef struct ps_half_open {
    ps_half_open_entry_t *entries;
    ps_half_open_address_t *addresses;
    ps_map_t index; /* Map from the key of an address to 1 + the index of its entry. */
    uint64_t salt;
    int32_t limit, per_address;
    int32_t count, waiting;
    int32_t oldest, newest;
    int32_t free_entry, free_address;
    uint64_t refused; /* Number of SETUPs that the receiver ignored because no entry was free. The
                       * senders repeat these SETUPs later. */
    uint64_t evicted;
} ps_half_open_t;

/* `images` is the daemon's limit on the number of images; `salt` is a random value for the table's
 * hash map, derived from the driver's seed. PS_E_NO_MEMORY. */
int ps_half_open_init(ps_half_open_t *half_open, int32_t images, uint64_t salt);
void ps_half_open_fini(ps_half_open_t *half_open);
/* Adds an unknown session whose SETUP came from address `from`. Returns a handle > 0 of the new
 * entry, or 0 if the table has no room. If the new session replaced a session that has an image,
 * *victim gets this image, and the caller must end it. In all other cases *victim is NULL. */
int32_t ps_half_open_enter(ps_half_open_t *half_open, const ps_addr_t *from, int64_t now_ns,
                           ps_image_t **victim);
/* Records that the conductor has created the image of the session. */
void ps_half_open_answered(ps_half_open_t *half_open, int32_t handle, ps_image_t *image);
/* Removes the entry of a session when its data has arrived, or when the session was refused or has
 * ended. With the handle 0, the function does nothing. */
void ps_half_open_leave(ps_half_open_t *half_open, int32_t handle);

#endif
