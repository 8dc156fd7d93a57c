/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_isolation.h"
#include "check.h"

enum { MS = 1000 * 1000, DEPTH = 4096, WINDOW = 32768 };

static void look(ps_isolation_t *isolation, int64_t newest, int64_t now_ns, int64_t late)
{
    ps_isolation_mark(isolation, 0, newest, now_ns);
    CHECK_EQ(atomic_load(&isolation->slot->skip_to), newest);
    CHECK_EQ(atomic_load(&isolation->slot->late), late);
}

static void test_a_reader_is_late_for_data_of_five_to_ten_milliseconds_ago(void)
{
    static ps_subscriber_slot_t slot;
    const int64_t start = INT64_C(1000) * MS;
    ps_isolation_t isolation;
    ps_isolation_init(&isolation, &slot, DEPTH, WINDOW);
    look(&isolation, 1024, start, 0);
    look(&isolation, 2048, start + 1, 0);
    look(&isolation, 3072, start + PS_ISOLATION_LATE_NS - 1, 0);
    look(&isolation, 4096, start + PS_ISOLATION_LATE_NS, 1024);
    look(&isolation, 5120, start + 2 * PS_ISOLATION_LATE_NS - 1, 1024);
    look(&isolation, 6144, start + 2 * PS_ISOLATION_LATE_NS, 4096);
}

static void test_after_a_time_without_looks_what_was_seen_before_it_counts(void)
{
    static ps_subscriber_slot_t slot;
    const int64_t start = INT64_C(1000) * MS;
    ps_isolation_t isolation;
    ps_isolation_init(&isolation, &slot, DEPTH, WINDOW);
    look(&isolation, 1024, start, 0);
    look(&isolation, 65536, start + INT64_C(60000) * MS, 1024);
    look(&isolation, 65536, start + INT64_C(60000) * MS + PS_ISOLATION_LATE_NS, 65536);
}

static void test_an_adopted_slot_keeps_what_its_reader_is_late_for(void)
{
    static ps_subscriber_slot_t slot;
    ps_isolation_t isolation;
    atomic_store(&slot.late, 2048);
    atomic_store(&slot.skip_to, 4096);
    ps_isolation_init(&isolation, &slot, DEPTH, WINDOW);
    look(&isolation, 4096, INT64_C(1000) * MS, 2048);
    look(&isolation, 8192, INT64_C(1000) * MS + PS_ISOLATION_LATE_NS, 4096);
}

int main(void)
{
    RUN(test_a_reader_is_late_for_data_of_five_to_ten_milliseconds_ago);
    RUN(test_after_a_time_without_looks_what_was_seen_before_it_counts);
    RUN(test_an_adopted_slot_keeps_what_its_reader_is_late_for);
    return 0;
}
