/* SPDX-License-Identifier: Apache-2.0 */

#include "ps_edges.h"

#include "ps_assert.h"
#include <stdlib.h>

#include "ps_error.h"

int ps_edges_init(ps_edges_t *edges, int32_t capacity)
{
    PS_ASSERT(capacity >= 1 && capacity <= 1 << 20 && (capacity & (capacity - 1)) == 0);
    const size_t nodes = 2 * (size_t)capacity;
    *edges = (ps_edges_t){ .least = malloc(nodes * sizeof(*edges->least)),
                           .largest = malloc(nodes * sizeof(*edges->largest)),
                           .capacity = capacity };
    if (edges->least == NULL || edges->largest == NULL) {
        ps_edges_fini(edges);
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d positions", (int)capacity);
    }
    for (size_t i = 0; i < nodes; i++) {
        edges->least[i] = INT64_MAX;
        edges->largest[i] = INT64_MIN;
    }
    return PS_OK;
}

void ps_edges_fini(ps_edges_t *edges)
{
    free(edges->least);
    free(edges->largest);
    edges->least = NULL;
    edges->largest = NULL;
}

static void change(ps_edges_t *edges, int32_t index, int64_t least, int64_t largest)
{
    PS_ASSERT(index >= 0 && index < edges->capacity);
    int32_t node = edges->capacity + index;
    edges->least[node] = least;
    edges->largest[node] = largest;
    for (node /= 2; node >= 1; node /= 2) {
        const int32_t left = 2 * node;
        const int64_t *low = edges->least;
        const int64_t *high = edges->largest;
        edges->least[node] = low[left] <= low[left + 1] ? low[left] : low[left + 1];
        edges->largest[node] = high[left] >= high[left + 1] ? high[left] : high[left + 1];
    }
}

void ps_edges_set(ps_edges_t *edges, int32_t index, int64_t position)
{
    change(edges, index, position, position);
}

void ps_edges_clear(ps_edges_t *edges, int32_t index)
{
    change(edges, index, INT64_MAX, INT64_MIN);
}

int32_t ps_edges_first_least(const ps_edges_t *edges)
{
    int32_t node = 1;
    if (edges->largest[1] == INT64_MIN) {
        return -1;
    }
    while (node < edges->capacity) {
        node = edges->least[2 * node] == edges->least[node] ? 2 * node : 2 * node + 1;
    }
    return node - edges->capacity;
}
