/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_bands.h: the ready set of the sender (docs/scheduling.md). Ready streams wait in six lists,
 * the bands. The sender divides its bytes among the bands by deficit weighted round robin. Bands B4
 * to B0 have the weights 8:4:2:1:1; the background band has the weight 3/4. The sender serves each
 * list first in, first out. Streams with due retransmits wait in a separate list, the repair list.
 * While streams with new data also wait, the sender sends at least as many bytes of new data as of
 * retransmits.
 *
 *   add --> list of its band --> pick --> (one turn) --> charge --> add again if more is there
 *
 * No clock, no allocation, no I/O. Owner: one thread. All operations take constant time, except
 * that ps_bands_age visits up to PS_BANDS_AGE_SLICE entries in a call. */
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
    PS_BAND_REPAIR = 6, /* The repair list, which is not a band: streams with due retransmits. */
    PS_BAND_LISTS = 7
};

enum {
    PS_BANDS_WEIGHT_UNIT = 8,      /* Unit of the weights: a band of weight PS_BANDS_WEIGHT_UNIT may
                                    * send one quantum in each round. */
    PS_BANDS_WEIGHT_SUM = 134,     /* Sum of the weights of all bands, in units of 1 /
                                    * PS_BANDS_WEIGHT_UNIT. */
    PS_BANDS_TURN_COST = 256,      /* Least number of bytes charged to a band for a turn, even if
                                    * the stream sent fewer bytes. */
    PS_BANDS_QUANTUM_MIN = 16384,  /* bytes */
    PS_BANDS_QUANTUM_MAX = 131072, /* bytes */
    PS_BANDS_AGE_SLICE = 256
};

typedef struct ps_band_entry {
    struct ps_band_entry *next, *prev;
    int64_t since_ns; /* when the wait began */
    int32_t base;     /* Priority of the stream when the entry was added, without the bonus for its
                       * waiting time (aging). */
    int8_t list;      /* Index of the list that contains the entry: a ps_band. */
    bool queued;
    bool held; /* The entry is in no list, because its socket is full (ps_sender_full.c). */
} ps_band_entry_t;

typedef struct ps_band_list {
    ps_band_entry_t *head, *tail;
    int64_t deficit;  /* Number of bytes that the band may still send in this round. */
    uint64_t granted; /* The round in which the band last got its share. */
    int32_t count;
    int32_t weight;
} ps_band_list_t;

typedef struct ps_bands {
    ps_band_list_t lists[PS_BAND_LISTS];
    int64_t quantum;       /* Number of bytes that a band of weight PS_BANDS_WEIGHT_UNIT may send in
                            * a round. In its turn, a stream sends at most one quantum plus one
                            * datagram. */
    int64_t lone_turn;     /* Largest number of bytes in a turn of a stream that is the only waiting
                            * one: two quanta, and at most PS_BANDS_QUANTUM_MAX. */
    int64_t round_ns;      /* Duration of one round if each band sends all bytes that it may send,
                            * at the measured rate. */
    int64_t repair_credit; /* Number of bytes that the sender may retransmit now although streams
                            * with new data wait. */
    int32_t waiting;       /* number of waiting entries in all lists, the repair list included */
    int32_t held;     /* number of entries of bands that are in no list, because their socket is
                            * full */
    int32_t at;       /* Band from which the sender picks the next stream. */
    uint32_t lowered; /* Not 0: the governor delays streams, so retransmits may use only half
                            * of their usual bytes. */
    uint64_t rounds;  /* completed */
    int64_t alone;    /* Number of entries in a row, up to the last picked one, that were the
                            * only waiting entry when they were picked. If it is not 0, the bytes of
                            * the last picked entry are not charged to its band. */
    uint32_t early;   /* One bit for each band. 1: the band got data after the present round had
                            * passed it, and has its turns of this round before the other bands. */
    ps_band_entry_t *only; /* If only one entry waits: this entry, which is then in none of the
                            * lists. Otherwise NULL. */
    int32_t age_list;      /* ps_bands_age visits one list after the other; this is the list that it
                            * visits now. 0: none. */
    int32_t age_index;
    ps_band_entry_t *age_next;
    int64_t swept_ns; /* when the last sweep began */
} ps_bands_t;

void ps_bands_init(ps_bands_t *bands);
/* Removes an entry from the list that contains it, if any. */
void ps_bands_remove(ps_bands_t *bands, ps_band_entry_t *entry);
/* The inline functions below call these four functions if several entries wait. No other code calls
 * them. */
void ps_bands_append(ps_bands_t *bands, ps_band_entry_t *entry);
ps_band_entry_t *ps_bands_choose(ps_bands_t *bands);
void ps_bands_spend(ps_bands_t *bands, int32_t list, int64_t bytes);
void ps_bands_sweep(ps_bands_t *bands, int64_t now_ns);
/* Counts the entries of all bands that have waited since a time before before_ns. The count stops
 * at `most`. Cost: visits at most `most` entries, plus one entry of each list. */
int32_t ps_bands_late(const ps_bands_t *bands, int64_t before_ns, int32_t most);
/* Sets the quantum for a measured rate: the number of bytes sent in 50 us at this rate. The quantum
 * is at least the largest datagram, and lies between PS_BANDS_QUANTUM_MIN and PS_BANDS_QUANTUM_MAX.
 * The rate 0 means that the rate is unknown. */
void ps_bands_set_quantum(ps_bands_t *bands, int64_t bytes_per_s, int64_t largest_datagram);
/* Returns the quantum for a known rate. */
int64_t ps_bands_quantum(int64_t bytes_per_s, int64_t largest_datagram);
/* Returns an upper bound for an entry that waits in the band `list` behind `ahead` other entries:
 * the number of bytes that all other entries can send before this entry's turn. A turn sends at
 * most quantum + largest_datagram - 1 bytes. docs/scheduling.md has the proof. */
int64_t ps_bands_bound(const ps_bands_t *bands, int32_t list, int64_t ahead,
                       int64_t largest_datagram);

/* ps_bands_add, ps_bands_pick and ps_bands_charge are inline. If only one stream is busy, the
 * sender calls each of them once for each turn of this stream. */

/* Appends an entry, which must not be in a list. since_ns is the time at which the stream began to
 * wait. */
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

/* Removes and returns the entry that the sender must serve next; NULL: no entry waits. */
static inline ps_band_entry_t *ps_bands_pick(ps_bands_t *bands)
{
    ps_band_entry_t *only = bands->only;
    if (only == NULL) {
        return ps_bands_choose(bands);
    }
    bands->only = NULL;
    bands->waiting = 0;
    bands->alone++;
    only->queued = false;
    return only;
}

/* Charges the band of the last picked entry with the bytes that this entry's stream sent. If the
 * stream has more data, the caller must add its entry to the ready set again before this call. */
static inline void ps_bands_charge(ps_bands_t *bands, int32_t list, int64_t bytes)
{
    if (bands->alone == 0) {
        ps_bands_spend(bands, list, bytes);
    }
}

/* Moves an entry to a higher band under two conditions: the entry's waiting time has raised its
 * priority into the higher band, and the entry's turn comes earlier there. Call this function in
 * each duty cycle. Each call examines some of the entries. At most once in 50 ms, the function
 * begins a new round through all entries. */
static inline void ps_bands_age(ps_bands_t *bands, int64_t now_ns)
{
    if (bands->waiting > 1) {
        ps_bands_sweep(bands, now_ns);
    }
}

#endif
