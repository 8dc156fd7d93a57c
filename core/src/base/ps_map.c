/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_map.c: see ps_map.h. Removal shifts the following run back, so that no tombstones are
 * needed. */

#include "ps_map.h"

#include "ps_assert.h"
#include <stdlib.h>

#include "ps_error.h"

static uint32_t home_of(const ps_map_t *map, uint64_t key)
{
    key ^= map->salt;
    key = (key ^ (key >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    key = (key ^ (key >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(key >> 32) & map->mask;
}

int ps_map_init(ps_map_t *map, int32_t limit, uint64_t salt)
{
    uint32_t capacity = 8;

    PS_ASSERT(limit >= 1 && limit <= 1 << 20);
    while (capacity < 2 * (uint32_t)limit) {
        capacity *= 2;
    }
    map->keys = calloc(capacity, sizeof(*map->keys));
    map->values = calloc(capacity, sizeof(*map->values));
    map->mask = capacity - 1;
    map->count = 0;
    map->limit = limit;
    map->salt = salt;
    if (map->keys == NULL || map->values == NULL) {
        ps_map_fini(map);
        return ps_fail(PS_E_NO_MEMORY, "no memory for a table of %d entries", limit);
    }
    return PS_OK;
}

void ps_map_fini(ps_map_t *map)
{
    free(map->keys);
    free(map->values);
    map->keys = NULL;
    map->values = NULL;
}

static uint32_t slot_of(const ps_map_t *map, uint64_t key)
{
    uint32_t slot = home_of(map, key);

    while (map->values[slot] != 0 && map->keys[slot] != key) {
        slot = (slot + 1) & map->mask;
    }
    return slot;
}

int32_t ps_map_get(const ps_map_t *map, uint64_t key)
{
    return map->values[slot_of(map, key)];
}

bool ps_map_put(ps_map_t *map, uint64_t key, int32_t value)
{
    uint32_t slot = slot_of(map, key);

    PS_ASSERT(value > 0);
    if (map->values[slot] == 0) {
        if (map->count == map->limit) {
            return false;
        }
        map->count++;
        map->keys[slot] = key;
    }
    map->values[slot] = value;
    return true;
}

void ps_map_remove(ps_map_t *map, uint64_t key)
{
    uint32_t hole = slot_of(map, key);
    uint32_t slot = hole;

    if (map->values[hole] == 0) {
        return;
    }
    map->values[hole] = 0;
    map->count--;
    for (;;) {
        uint32_t distance;

        slot = (slot + 1) & map->mask;
        if (map->values[slot] == 0) {
            return;
        }
        distance = (slot - home_of(map, map->keys[slot])) & map->mask;
        if (distance >= ((slot - hole) & map->mask)) {
            map->keys[hole] = map->keys[slot];
            map->values[hole] = map->values[slot];
            map->values[slot] = 0;
            hole = slot;
        }
    }
}
