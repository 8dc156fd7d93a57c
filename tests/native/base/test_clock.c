/* SPDX-License-Identifier: Apache-2.0
 * The distance between the clocks: times of messages that are made with it are late, never early.
 */
#include "check.h"
#include "ps_clock.h"

enum { LOOKS = 20000 };

static void test_the_offset_is_never_less_than_a_later_pair_shows(void)
{
    for (int i = 0; i < 20; i++) {
        const int64_t offset = ps_epoch_offset_ns();
        int64_t least = INT64_MIN;
        for (int look = 0; look < LOOKS; look++) {
            const int64_t epoch = ps_epoch_ns();
            const int64_t shown = epoch - ps_monotonic_ns(); /* at most the distance */
            least = shown > least ? shown : least;
        }
        CHECK(offset >= least);
    }
}

int main(void)
{
    test_the_offset_is_never_less_than_a_later_pair_shows();
    return 0;
}
