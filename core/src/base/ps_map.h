/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_map.h: a fixed-size hash map from a 64-bit key to a positive 32-bit value. The map uses open
 * addressing with linear probing and no tombstones. The size of a map is fixed at init. The map
 * refuses entries beyond its limit, so that session ids of forged datagrams cannot make it grow.
 * One owner thread. */
#ifndef PS_MAP_H
#define PS_MAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ps_map {
    uint64_t *keys;
    int32_t *values; /* 0: empty */
    uint32_t mask;   /* capacity - 1; capacity >= 2 * limit */
    int32_t count;
    int32_t limit;
    uint64_t salt; /* Random value, from which the map computes the hash of each key. Remote peers
                    * choose the keys. Without the random value, the peers could choose keys with
                    * equal hashes and so slow the map down. */
} ps_map_t;

static inline uint64_t ps_map_key(int32_t stream_id, int32_t session_id)
{
    return ((uint64_t)(uint32_t)stream_id << 32) | (uint32_t)session_id;
}

/* `limit` is the largest number of entries, 1 to 2^20; `salt` comes from the driver's seed.
 * PS_E_NO_MEMORY. */
int ps_map_init(ps_map_t *map, int32_t limit, uint64_t salt);
void ps_map_fini(ps_map_t *map);
/* Returns the value of key; 0 if the map does not contain key. The expected time is constant,
 * because the map is at most half full. */
int32_t ps_map_get(const ps_map_t *map, uint64_t key);
/* Sets key to value > 0. Returns false if key is new and the map is at its limit. */
bool ps_map_put(ps_map_t *map, uint64_t key, int32_t value);
void ps_map_remove(ps_map_t *map, uint64_t key);

#endif
