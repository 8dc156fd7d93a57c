/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_bands.h: the ready set of the sender (docs/scheduling.md). Six lists in priority order share
 * the sender by deficit weighted round robin in bytes: B4 to B0 with the weights 8:4:2:1:1, and the
 * background class with 3/8. Each list is served first in, first out. Streams with due retransmits
 * wait in a separate list. This list may send at most one byte for each byte that the other lists
 * send.
 *
 *   add --> list of its band --> pick --> (one turn) --> charge --> add again if more is there
 *
 * No clock, no allocation, no I/O. Owner: one thread. All operations take constant time, except
 * ps_bands_age: PS_BANDS_AGE_SLICE entries a call. */
#ifndef PS_BANDS_H
#define PS_BANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_band {
    PS_BAND_BACKGROUND = 0,
    PS_BAND_B0 = 1,
    PS_BAND_B1 = 2,
    PS_BAND_B2 = 3,
    PS_BAND_B3 = 4,
    PS_BAND_B4 = 5,
    PS_BAND_COUNT = 6,
    PS_BAND_REPAIR = 6, /* the list of retransmits, not a band */
    PS_BAND_LISTS = 7
};

enum {
    PS_BANDS_WEIGHT_UNIT = 8,      /* a weight of 8 grants one quantum a round */
    PS_BANDS_WEIGHT_SUM = 131,     /* total weight of all bands, in the same unit */
    PS_BANDS_TURN_COST = 256,      /* least charge of a turn, in bytes */
    PS_BANDS_QUANTUM_MIN = 16384,  /* bytes */
    PS_BANDS_QUANTUM_MAX = 131072, /* bytes */
    PS_BANDS_AGE_SLICE = 256
};

typedef struct ps_band_entry {
    struct ps_band_entry *next, *prev;
    int64_t since_ns; /* when the wait began */
    int32_t base;     /* priority, without aging, that the stream had when the entry was added */
    int8_t list;      /* ps_band of the list that holds it */
    bool queued;
} ps_band_entry_t;

typedef struct ps_band_list {
    ps_band_entry_t *head, *tail;
    int64_t deficit; /* bytes that the band may still send in this round */
    int32_t count;
    int32_t weight;
} ps_band_list_t;

typedef struct ps_bands {
    ps_band_list_t lists[PS_BAND_LISTS];
    int64_t quantum;       /* bytes that a band of weight PS_BANDS_WEIGHT_UNIT may send in a round;
                            * a turn sends at most this and one datagram */
    int64_t round_ns;      /* duration of a round in which all bands have data, at the measured
                            * rate */
    int64_t repair_credit; /* bytes of retransmits that may be sent while bands wait */
    int32_t waiting;       /* entries, retransmits included */
    int32_t at;            /* the band whose turn it is */
    uint32_t lowered;      /* retransmits earn half as much */
    uint64_t rounds;       /* completed */
    bool alone;            /* no entry waited after the last pick, so the turn of the picked entry
                            * is not charged */
    ps_band_entry_t *only; /* the only waiting entry, which is in no list yet */
    int32_t age_list;      /* position of the sweep of ps_bands_age; 0: no sweep runs */
    int32_t age_index;
    ps_band_entry_t *age_next;
    int64_t swept_ns; /* when the last sweep began */
} ps_bands_t;

void ps_bands_init(ps_bands_t *bands);
/* Removes an entry from its list, if it is in one. */
void ps_bands_remove(ps_bands_t *bands, ps_band_entry_t *entry);
/* Parts of the inline functions below, for the case of several entries. */
void ps_bands_append(ps_bands_t *bands, ps_band_entry_t *entry);
ps_band_entry_t *ps_bands_choose(ps_bands_t *bands);
void ps_bands_spend(ps_bands_t *bands, int32_t list, int64_t bytes);
void ps_bands_sweep(ps_bands_t *bands, int64_t now_ns);
/* Returns the number of entries in the bands whose wait began before before_ns, at most `most`.
 * Bound: Bound: `most` entries, and one of each list. */
int32_t ps_bands_late(const ps_bands_t *bands, int64_t before_ns, int32_t most);
/* Sets the quantum for a measured rate: 50 us of it, at least the largest datagram, within
 * PS_BANDS_QUANTUM_*. rate 0: not known. */
void ps_bands_set_quantum(ps_bands_t *bands, int64_t bytes_per_s, int64_t largest_datagram);
/* Returns the largest number of bytes that can be charged while an entry waits, if `ahead` entries
 * precede this entry in its band. A turn sends at most quantum + largest_datagram - 1 bytes.
 * docs/scheduling.md has the proof. */
int64_t ps_bands_bound(const ps_bands_t *bands, int32_t list, int64_t ahead,
                       int64_t largest_datagram);

/* The next three functions are inline, because a single busy stream calls them once a turn. */

/* Appends an entry that is in no list. since_ns: when its wait began. */
static inline void ps_bands_add(ps_bands_t *bands, ps_band_entry_t *entry, int32_t list,
                                int64_t since_ns)
{
    entry->queued = true;
    entry->list = (int8_t)list;
    entry->since_ns = since_ns;
    if (bands->waiting++ == 0) {
        bands->only = entry;
    } else {
        ps_bands_append(bands, entry);
    }
}

/* Removes and returns the entry whose turn it is; NULL: none waits. */
static inline ps_band_entry_t *ps_bands_pick(ps_bands_t *bands)
{
    ps_band_entry_t *only = bands->only;
    if (only == NULL) {
        return ps_bands_choose(bands);
    }
    bands->only = NULL;
    bands->waiting = 0;
    bands->alone = true;
    only->queued = false;
    return only;
}

/* Charges the turn of the last picked entry. If the entry is added again, charge after the
 * addition. bytes: number of bytes sent in the turn. */
static inline void ps_bands_charge(ps_bands_t *bands, int32_t list, int64_t bytes)
{
    if (!bands->alone) {
        ps_bands_spend(bands, list, bytes);
    }
}

/* Moves entries whose age raises them to a higher band, if they are served earlier there. Call it
 * in each cycle. Each call examines a part of the set, so that the whole set is examined once in 50
 * ms. */
static inline void ps_bands_age(ps_bands_t *bands, int64_t now_ns)
{
    if (bands->waiting > 1) {
        ps_bands_sweep(bands, now_ns);
    }
}

#endif
