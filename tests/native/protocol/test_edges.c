/* SPDX-License-Identifier: Apache-2.0 */
/* The least and largest of many positions against a walk over all of them. */
#include "check.h"
#include "ps_driver_state.h"
#include "ps_clock.h"
#include "ps_error.h"
#include "ps_net.h"
#include "ps_random.h"
#include "ps_edges.h"

enum { CAPACITY = 64, STEPS = 20000 };

static void compare(const ps_edges_t *edges, const int64_t *positions)
{
    int64_t least = INT64_MAX;
    int64_t largest = INT64_MIN;
    int32_t first = -1;
    for (int32_t i = 0; i < CAPACITY; i++) {
        if (positions[i] < least) {
            least = positions[i];
            first = i;
        }
        if (positions[i] != INT64_MAX && positions[i] > largest) {
            largest = positions[i];
        }
    }
    CHECK_EQ(ps_edges_least(edges), least);
    CHECK_EQ(ps_edges_largest(edges), largest);
    CHECK_EQ(ps_edges_first_least(edges), first);
}

int main(void)
{
    ps_edges_t edges;
    ps_random_t random;
    int64_t positions[CAPACITY];
    ps_random_seed(&random, 3);
    CHECK_EQ(ps_edges_init(&edges, CAPACITY), PS_OK);
    for (int32_t i = 0; i < CAPACITY; i++) {
        positions[i] = INT64_MAX;
    }
    compare(&edges, positions);
    for (int32_t step = 0; step < STEPS; step++) {
        const int32_t index = (int32_t)ps_random_below(&random, CAPACITY);
        if (ps_random_below(&random, 3) == 0) {
            positions[index] = INT64_MAX;
            ps_edges_clear(&edges, index);
        } else {
            positions[index] = (int64_t)ps_random_below(&random, 40);
            ps_edges_set(&edges, index, positions[index]);
        }
        compare(&edges, positions);
    }
    ps_edges_fini(&edges);
    return 0;
}
