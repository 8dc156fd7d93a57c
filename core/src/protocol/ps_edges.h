/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_edges.h: finds the least and the largest of many positions. Each call changes one position.
 * The structure is a complete binary tree. Each inner node has the least and the largest position
 * of its subtree. One owner thread. */
#ifndef PS_EDGES_H
#define PS_EDGES_H

#include <stdint.h>

typedef struct ps_edges {
    int64_t *least;   /* Array of 2 * capacity nodes of the tree; node 1 is the root, and the leaves
                       * begin at index capacity. */
    int64_t *largest; /* the same */
    int32_t capacity;
} ps_edges_t;

/* `capacity` must be a power of two from 1 to 2^20. PS_E_NO_MEMORY. */
int ps_edges_init(ps_edges_t *edges, int32_t capacity);
void ps_edges_fini(ps_edges_t *edges);
/* Sets the position at index. O(log capacity), no allocation. */
void ps_edges_set(ps_edges_t *edges, int32_t index, int64_t position);
void ps_edges_clear(ps_edges_t *edges, int32_t index);
/* ps_edges_least returns the least position, ps_edges_largest the largest. If no position is set,
 * ps_edges_least returns INT64_MAX, and ps_edges_largest returns INT64_MIN. */
static inline int64_t ps_edges_least(const ps_edges_t *edges)
{
    return edges->least[1];
}
static inline int64_t ps_edges_largest(const ps_edges_t *edges)
{
    return edges->largest[1];
}
/* Returns the lowest index at which the least position is stored; -1 if no position is set. */
int32_t ps_edges_first_least(const ps_edges_t *edges);

#endif
