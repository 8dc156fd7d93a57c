/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_half_open.h"
#include "ps_assert.h"

#include <stdlib.h>
#include <string.h>

static int32_t lower(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int ps_half_open_init(ps_half_open_t *half_open, int32_t images, uint64_t salt)
{
    int32_t limit = lower(images / 4, PS_HALF_OPEN_MAX);

    limit = limit < PS_HALF_OPEN_LEAST ? PS_HALF_OPEN_LEAST : limit;
    *half_open = (ps_half_open_t){ .limit = limit,
                                   .per_address = lower(limit, PS_HALF_OPEN_PER_ADDRESS),
                                   .salt = salt,
                                   .oldest = -1,
                                   .newest = -1 };
    half_open->entries = calloc((size_t)limit, sizeof(*half_open->entries));
    half_open->addresses = calloc((size_t)limit, sizeof(*half_open->addresses));
    if (half_open->entries == NULL || half_open->addresses == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d half-open images", (int)limit);
    }
    for (int32_t i = 0; i < limit; i++) {
        half_open->entries[i].next_free = i + 1 < limit ? i + 1 : -1;
        half_open->addresses[i].next_free = i + 1 < limit ? i + 1 : -1;
    }
    return ps_map_init(&half_open->index, limit, salt);
}

void ps_half_open_fini(ps_half_open_t *half_open)
{
    free(half_open->entries);
    free(half_open->addresses);
    half_open->entries = NULL;
    half_open->addresses = NULL;
    ps_map_fini(&half_open->index);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Uses the IP address only, because a sender can change its port freely. */
static void words_of(const ps_addr_t *from, uint64_t words[2])
{
    words[0] = 0;
    words[1] = 0;
    memcpy(words, from->ip, from->family == 6 ? 16 : 4);
}

static uint64_t key_of(const ps_half_open_t *half_open, const ps_addr_t *from)
{
    uint64_t words[2];
    uint64_t key;

    words_of(from, words);
    key = (words[0] ^ half_open->salt) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 31) ^ words[1]) * UINT64_C(0x94d049bb133111eb);
    return key ^ (key >> 29) ^ (uint64_t)from->family;
}

static bool is_of(const ps_half_open_address_t *address, const ps_addr_t *from)
{
    uint64_t words[2];

    words_of(from, words);
    return address->family == from->family && memcmp(address->words, words, sizeof(words)) == 0;
}

/* -1: not there, and `add` says whether to make it; -1 then: its key is taken by another. */
static int32_t address_of(ps_half_open_t *half_open, const ps_addr_t *from, bool add)
{
    uint64_t key = key_of(half_open, from);
    int32_t index = ps_map_get(&half_open->index, key) - 1;

    if (index >= 0) {
        return is_of(&half_open->addresses[index], from) ? index : -1;
    }
    if (!add) {
        return -1;
    }
    index = half_open->free_address;
    PS_ASSERT(index >= 0); /* as many as entries */
    half_open->free_address = half_open->addresses[index].next_free;
    half_open->addresses[index] =
        (ps_half_open_address_t){ .family = from->family, .oldest = -1, .newest = -1 };
    words_of(from, half_open->addresses[index].words);
    (void)ps_map_put(&half_open->index, key, index + 1);
    return index;
}

static void forget_address(ps_half_open_t *half_open, int32_t index)
{
    ps_half_open_address_t *address = &half_open->addresses[index];
    ps_addr_t from = { .family = (uint16_t)address->family };

    memcpy(from.ip, address->words, sizeof(from.ip));
    ps_map_remove(&half_open->index, key_of(half_open, &from));
    address->next_free = half_open->free_address;
    half_open->free_address = index;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void append(ps_half_open_t *half_open, int32_t index)
{
    ps_half_open_entry_t *entries = half_open->entries;
    ps_half_open_entry_t *entry = &entries[index];
    ps_half_open_address_t *address = &half_open->addresses[entry->address];

    entry->older = half_open->newest;
    entry->newer = -1;
    *(half_open->newest >= 0 ? &entries[half_open->newest].newer : &half_open->oldest) = index;
    half_open->newest = index;
    entry->same_older = address->newest;
    entry->same_newer = -1;
    *(address->newest >= 0 ? &entries[address->newest].same_newer : &address->oldest) = index;
    address->newest = index;
    address->count++;
    half_open->count++;
    half_open->waiting++;
}

static void take_out(ps_half_open_t *half_open, int32_t index)
{
    ps_half_open_entry_t *entries = half_open->entries;
    ps_half_open_entry_t *entry = &entries[index];
    ps_half_open_address_t *address = &half_open->addresses[entry->address];

    *(entry->older >= 0 ? &entries[entry->older].newer : &half_open->oldest) = entry->newer;
    *(entry->newer >= 0 ? &entries[entry->newer].older : &half_open->newest) = entry->older;
    *(entry->same_older >= 0 ? &entries[entry->same_older].same_newer : &address->oldest) =
        entry->same_newer;
    *(entry->same_newer >= 0 ? &entries[entry->same_newer].same_older : &address->newest) =
        entry->same_older;
    half_open->count--;
    half_open->waiting -= entry->image == NULL;
    if (--address->count == 0) {
        forget_address(half_open, entry->address);
    }
    entry->address = -1;
    entry->next_free = half_open->free_entry;
    half_open->free_entry = index;
}

/* Makes room for one more session of an address. False: the session has to wait. */
static bool make_room(ps_half_open_t *half_open, int32_t address, int64_t now_ns,
                      ps_image_t **victim)
{
    int32_t index = -1;
    const ps_half_open_entry_t *entry;

    if (half_open->waiting == PS_HALF_OPEN_WAITING) {
        return false;
    }
    if (address >= 0 && half_open->addresses[address].count >= half_open->per_address) {
        index = half_open->addresses[address].oldest;
    } else if (half_open->count == half_open->limit) {
        index = half_open->oldest;
    }
    if (index < 0) {
        return true;
    }
    entry = &half_open->entries[index];
    if (entry->image == NULL || now_ns - entry->since_ns < PS_HALF_OPEN_NS) {
        return false;
    }
    *victim = entry->image;
    half_open->evicted++;
    take_out(half_open, index);
    return true;
}

int32_t ps_half_open_enter(ps_half_open_t *half_open, const ps_addr_t *from, int64_t now_ns,
                           ps_image_t **victim)
{
    int32_t address = address_of(half_open, from, false);
    int32_t index;

    *victim = NULL;
    if (!make_room(half_open, address, now_ns, victim)) {
        half_open->refused++;
        return 0;
    }
    address = address_of(half_open, from, true);
    if (address < 0) {
        half_open->refused++;
        return 0;
    }
    index = half_open->free_entry;
    PS_ASSERT(index >= 0);
    half_open->free_entry = half_open->entries[index].next_free;
    half_open->entries[index] = (ps_half_open_entry_t){ .since_ns = now_ns, .address = address };
    append(half_open, index);
    return index + 1;
}

void ps_half_open_answered(ps_half_open_t *half_open, int32_t handle, ps_image_t *image)
{
    ps_half_open_entry_t *entry = &half_open->entries[handle - 1];

    PS_ASSERT(handle > 0 && entry->address >= 0 && entry->image == NULL && image != NULL);
    entry->image = image;
    half_open->waiting--;
}

void ps_half_open_leave(ps_half_open_t *half_open, int32_t handle)
{
    if (handle > 0) {
        PS_ASSERT(half_open->entries[handle - 1].address >= 0);
        take_out(half_open, handle - 1);
    }
}
