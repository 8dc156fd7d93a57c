/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_bands.h"

#include <string.h>

#include "ps_assert.h"
#include "ps_priority.h"

#define QUANTUM_NS INT64_C(50000)
#define SECOND_NS  INT64_C(1000000000)
/* Three missed rounds repay any debt: a debt is two quanta at most, and a share is at least 3/4 of
 * a quantum. */
enum { REPAID = 3 };
#define ROUND_NS (PS_BANDS_WEIGHT_SUM * QUANTUM_NS / PS_BANDS_WEIGHT_UNIT)

void ps_bands_init(ps_bands_t *bands)
{
    static const int32_t weights[PS_BAND_COUNT] = { 6, 8, 8, 16, 32, 64 };
    memset(bands, 0, sizeof(*bands));
    for (int32_t i = 0; i < PS_BAND_COUNT; i++) {
        bands->lists[i].weight = weights[i];
        bands->lists[i].granted = UINT64_MAX; /* the round before the first */
    }
    bands->quantum = PS_BANDS_QUANTUM_MAX;
    bands->lone_turn = PS_BANDS_QUANTUM_MAX;
    bands->round_ns = ROUND_NS;
    bands->at = PS_BAND_B4;
    bands->swept_ns = INT64_MIN / 2;
}

/* Gives a band its share of the present round. A rest of an earlier share is lost. The rounds that
 * the band missed also repay its debt. */
static void grant(ps_bands_t *bands, ps_band_list_t *list)
{
    const int64_t share = list->weight * bands->quantum / PS_BANDS_WEIGHT_UNIT;
    const uint64_t missed = bands->rounds - list->granted - 1;
    PS_ASSERT(list->granted != bands->rounds);
    list->deficit += share * (int64_t)(missed < REPAID ? missed : REPAID);
    list->deficit = share + (list->deficit < 0 ? list->deficit : 0);
    list->granted = bands->rounds;
}

static void append(ps_bands_t *bands, ps_band_entry_t *entry, int32_t list)
{
    ps_band_list_t *to = &bands->lists[list];
    entry->list = (int8_t)list;
    entry->next = NULL;
    entry->prev = to->tail;
    if (to->tail != NULL) {
        to->tail->next = entry;
    } else {
        to->head = entry;
    }
    to->tail = entry;
    to->count++;
}

/* Appends a stream that begins to wait. If its band was empty, and the round has passed the band,
 * the band has the rest of its share of this round at once. */
static void append_new(ps_bands_t *bands, ps_band_entry_t *entry)
{
    ps_band_list_t *list = &bands->lists[entry->list];
    if (list->head == NULL && entry->list >= bands->at && entry->list < PS_BAND_COUNT) {
        if (list->granted != bands->rounds) {
            grant(bands, list);
        }
        bands->early |= 1u << entry->list;
    }
    append(bands, entry, entry->list);
}

/* Takes an entry out of its list; a sweep continues behind the entry. */
static void unlink_entry(ps_bands_t *bands, ps_band_entry_t *entry)
{
    ps_band_list_t *from = &bands->lists[entry->list];
    if (entry->prev != NULL) {
        entry->prev->next = entry->next;
    } else {
        from->head = entry->next;
    }
    if (entry->next != NULL) {
        entry->next->prev = entry->prev;
    } else {
        from->tail = entry->prev;
    }
    from->count--;
    PS_ASSERT(from->count >= 0 && (from->head == NULL) == (from->count == 0));
    if (bands->age_list == entry->list) {
        bands->age_index -= bands->age_index > 0;
        bands->age_next = bands->age_next == entry ? entry->next : bands->age_next;
    }
}

void ps_bands_append(ps_bands_t *bands, ps_band_entry_t *entry)
{
    PS_ASSERT(entry->list >= 0 && entry->list < PS_BAND_LISTS && bands->waiting > 1);
    if (bands->only != NULL) {
        /* It had its share of a round, and more, while no other entry waited. */
        bands->rounds +=
            bands->alone * PS_BANDS_WEIGHT_UNIT > bands->lists[bands->only->list].weight;
        append_new(bands, bands->only);
        bands->only = NULL;
    }
    append_new(bands, entry);
}

void ps_bands_remove(ps_bands_t *bands, ps_band_entry_t *entry)
{
    if (!entry->queued) {
        return;
    }
    if (bands->only == entry) {
        bands->only = NULL;
    } else {
        unlink_entry(bands, entry);
    }
    entry->queued = false;
    bands->waiting--;
    PS_ASSERT(bands->waiting >= 0);
}

static ps_band_entry_t *take(ps_bands_t *bands, ps_band_list_t *list)
{
    ps_band_entry_t *entry = list->head;
    ps_bands_remove(bands, entry);
    return entry;
}

/* Goes to the next band and grants it its share of the round. */
static void next_band(ps_bands_t *bands)
{
    bands->rounds += bands->at == 0;
    bands->at = bands->at == 0 ? PS_BAND_B4 : bands->at - 1;
    if (bands->lists[bands->at].head != NULL) {
        grant(bands, &bands->lists[bands->at]);
    }
}

/* Takes the first entry of the highest band that caught up with the round and has bytes left; NULL:
 * there is none. */
static ps_band_entry_t *take_early(ps_bands_t *bands)
{
    while (bands->early != 0) {
        const int32_t band = 31 - __builtin_clz(bands->early);
        if (bands->lists[band].head != NULL && bands->lists[band].deficit > 0) {
            return take(bands, &bands->lists[band]);
        }
        bands->early &= ~(1u << band);
    }
    return NULL;
}

/* Returns the number of entries that wait in bands. */
static int32_t in_bands(const ps_bands_t *bands)
{
    const bool repairs = bands->only != NULL && bands->only->list == PS_BAND_REPAIR;
    return bands->waiting - bands->lists[PS_BAND_REPAIR].count - repairs;
}

ps_band_entry_t *ps_bands_choose(ps_bands_t *bands)
{
    ps_band_list_t *repair = &bands->lists[PS_BAND_REPAIR];
    bands->alone = bands->waiting <= 1 ? bands->alone + 1 : 0;
    if (repair->head != NULL && (in_bands(bands) == 0 || bands->repair_credit > 0)) {
        return take(bands, repair);
    }
    if (bands->waiting == 0) {
        return NULL;
    }
    ps_band_entry_t *early = take_early(bands);
    if (early != NULL) {
        return early;
    }
    /* A deficit is at least -2 quanta, as a turn sends at most quantum + a datagram. Even the
     * background class has bytes again after three rounds. */
    for (int32_t step = 0; bands->lists[bands->at].head == NULL ||
                           (bands->lists[bands->at].deficit <= 0 && bands->alone == 0);
         step++) {
        PS_ASSERT(step < 8 * PS_BAND_COUNT);
        next_band(bands);
    }
    return take(bands, &bands->lists[bands->at]);
}

void ps_bands_spend(ps_bands_t *bands, int32_t list, int64_t bytes)
{
    const int64_t charge = bytes > PS_BANDS_TURN_COST ? bytes : PS_BANDS_TURN_COST;
    ps_band_list_t *charged = &bands->lists[list];
    if (list == PS_BAND_REPAIR) {
        const int64_t least = -2 * bands->quantum;
        bands->repair_credit -= in_bands(bands) + bands->held > 0 ? charge : 0;
        bands->repair_credit = bands->repair_credit < least ? least : bands->repair_credit;
        return;
    }
    const int64_t earned = bands->repair_credit + charge / (bands->lowered != 0 ? 2 : 1);
    bands->repair_credit = earned < bands->quantum ? earned : bands->quantum;
    const int64_t least = -2 * bands->quantum; /* a smaller quantum since the pick */
    charged->deficit -= charge;
    charged->deficit = charged->deficit < least ? least : charged->deficit;
}

/* ---- aging ----------------------------------------------------------------------------------- */

/* Returns the higher band that age lifts the entry at this index to, or its own. The expected wait
 * in the higher band must be shorter, or aging would delay the entry. */
static int32_t aged_band(const ps_bands_t *bands, const ps_band_entry_t *entry, int32_t index,
                         int64_t now_ns)
{
    const int64_t aged = entry->base + ps_priority_aging(now_ns - entry->since_ns);
    const ps_band_list_t *own = &bands->lists[entry->list];
    for (int32_t band = ps_priority_band((int32_t)aged); band > entry->list; band--) {
        const ps_band_list_t *higher = &bands->lists[band];
        if ((int64_t)higher->count * own->weight < (int64_t)index * higher->weight) {
            return band;
        }
    }
    return entry->list;
}

static void age_slice(ps_bands_t *bands, int64_t now_ns)
{
    for (int32_t i = 0; i < PS_BANDS_AGE_SLICE && bands->age_list > 0; i++) {
        ps_band_entry_t *entry = bands->age_next;
        if (entry == NULL) { /* the highest band has none to move; the background class is fixed */
            bands->age_list--;
            bands->age_index = 0;
            bands->age_next =
                bands->age_list > PS_BAND_BACKGROUND ? bands->lists[bands->age_list].head : NULL;
            continue;
        }
        const int32_t band = aged_band(bands, entry, bands->age_index, now_ns);
        bands->age_next = entry->next;
        bands->age_index++;
        if (band != entry->list) {
            unlink_entry(bands, entry);
            append(bands, entry, band);
        }
    }
}

void ps_bands_sweep(ps_bands_t *bands, int64_t now_ns)
{
    if (bands->age_list == 0) {
        if (now_ns - bands->swept_ns < PS_PRIORITY_TICK_NS) {
            return;
        }
        bands->swept_ns = now_ns;
        bands->age_list = PS_BAND_B3;
        bands->age_index = 0;
        bands->age_next = bands->lists[PS_BAND_B3].head;
    }
    age_slice(bands, now_ns);
}

int32_t ps_bands_late(const ps_bands_t *bands, int64_t before_ns, int32_t most)
{
    int32_t late = 0;
    for (int32_t list = PS_BAND_B0; list <= PS_BAND_B4; list++) {
        const ps_band_entry_t *entry = bands->lists[list].head;
        for (; entry != NULL && late < most && entry->since_ns < before_ns; entry = entry->next) {
            late++;
        }
    }
    return late;
}

/* ---- quantum and bound ----------------------------------------------------------------------- */

/* Sets the quantum. Rests of shares and debts change by the same factor. A debt is at most that of
 * one turn. */
static void set_quantum(ps_bands_t *bands, int64_t quantum, int64_t largest_datagram)
{
    const int64_t least = -(quantum + largest_datagram);
    if (quantum == bands->quantum) {
        return;
    }
    for (int32_t i = 0; i < PS_BAND_COUNT; i++) {
        const int64_t deficit = bands->lists[i].deficit * quantum / bands->quantum;
        bands->lists[i].deficit = deficit > least ? deficit : least;
    }
    const int64_t credit = bands->repair_credit * quantum / bands->quantum;
    bands->repair_credit = credit > least ? credit : least;
    bands->quantum = quantum;
    bands->lone_turn = quantum < PS_BANDS_QUANTUM_MAX / 2 ? 2 * quantum : PS_BANDS_QUANTUM_MAX;
}

int64_t ps_bands_quantum(int64_t bytes_per_s, int64_t largest_datagram)
{
    const int64_t measured = bytes_per_s / (SECOND_NS / QUANTUM_NS);
    int64_t quantum = measured < PS_BANDS_QUANTUM_MAX ? measured : PS_BANDS_QUANTUM_MAX;
    quantum = quantum > PS_BANDS_QUANTUM_MIN ? quantum : PS_BANDS_QUANTUM_MIN;
    return quantum > largest_datagram ? quantum : largest_datagram;
}

void ps_bands_set_quantum(ps_bands_t *bands, int64_t bytes_per_s, int64_t largest_datagram)
{
    const int64_t quantum = ps_bands_quantum(bytes_per_s, largest_datagram);
    if (bytes_per_s <= 0) {
        set_quantum(bands, PS_BANDS_QUANTUM_MAX, largest_datagram);
        bands->round_ns = ROUND_NS;
        return;
    }
    set_quantum(bands, quantum, largest_datagram);
    bands->round_ns =
        quantum * PS_BANDS_WEIGHT_SUM / PS_BANDS_WEIGHT_UNIT * 1000 / (bytes_per_s / 1000000 + 1);
}

int64_t ps_bands_bound(const ps_bands_t *bands, int32_t list, int64_t ahead,
                       int64_t largest_datagram)
{
    const int64_t turn = bands->quantum + largest_datagram;
    if (list == PS_BAND_REPAIR) { /* each of its turns earns its bytes from as many of the bands */
        const int64_t repaid = bands->lowered != 0 ? 2 : 1;
        return (ahead + 1) * turn * (1 + repaid) + (2 + 2 * repaid) * turn;
    }
    const int64_t grant = bands->lists[list].weight * bands->quantum / PS_BANDS_WEIGHT_UNIT;
    const int64_t lifts = list == PS_BAND_BACKGROUND ? 0 : PS_BAND_B4 - list;
    const int64_t rounds = ((ahead + 2) * turn + grant - 1) / grant + 2 + 7 * lifts;
    const int64_t round = PS_BANDS_WEIGHT_SUM * bands->quantum / PS_BANDS_WEIGHT_UNIT;
    return 2 * (rounds * round + PS_BAND_COUNT * turn) + 2 * turn;
}
