/* SPDX-License-Identifier: Apache-2.0
 * test_pressure_view.c: what it costs to read both accounts of a publication: at most 1 us of CPU
 * time, with one publication as with 4 096, whose slots do not fit a processor's cache together.
 */
#include <time.h>

#include "ps_account.h"
#include "stream.h"

enum { SLOTS = 4096, READS = 1000 * 1000, ROUNDS = 5, MOST_NS = 1000, CLIENTS = 4 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 40 };
#else
enum { SLOWER = 1 };
#endif

static int64_t cpu_ns(void)
{
    struct timespec now;
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Every slot is held by a client of this host, and eight more have held it: nothing is left out. */
static void fill_account(const ps_shared_t *shared, int32_t slot, int32_t client)
{
    ps_publication_slot_t *publication = &shared->publications[slot];
    const ps_holder_t holder = { .client_slot = client, .counter_id = -1 };
    for (int32_t id = 1; id <= PS_CULPRITS + 1; id++) {
        ps_account_bind(publication, PS_CAUSE_SLOW_SUBSCRIBER, id, &holder, (int64_t)id * 1000);
    }
}

/* Nanoseconds a read of `count` slots in turn: the least of some rounds. */
static int64_t cost_of(const ps_shared_t *shared, int32_t count)
{
    int64_t least = INT64_MAX;
    for (int32_t round = 0; round < ROUNDS; round++) {
        const int64_t before = cpu_ns();
        for (int32_t i = 0; i < READS / ROUNDS; i++) {
            ps_pressure_view_t view;
            CHECK_EQ(ps_slot_read_pressure(shared, i % count, &view), PS_OK);
            CHECK(view.cause == PS_CAUSE_SLOW_SUBSCRIBER && view.culprit.id == PS_CULPRITS + 1);
        }
        const int64_t took = (cpu_ns() - before) / (READS / ROUNDS);
        least = took < least ? took : least;
    }
    return least;
}

int main(void)
{
    char directory[256];
    directory_make(directory, sizeof directory);
    const ps_shared_params_t params = { .directory = directory,
                                        .clients = CLIENTS,
                                        .publications = SLOTS,
                                        .images = 4,
                                        .subscribers = 4,
                                        .groups = 1,
                                        .file_mode = 0600 };
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    const int32_t client = ps_slot_allocate(shared, PS_SLOT_CLIENT, PS_CULPRITS + 1);
    ps_slot_describe_client(shared, client, 77, 1000, "slow reader");
    for (int32_t i = 0; i < SLOTS; i++) {
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 100 + i), i);
        fill_account(shared, i, client);
    }
    const int64_t one_ns = cost_of(shared, 1);
    const int64_t all_ns = cost_of(shared, SLOTS);
    printf("both accounts: %lld ns of one slot, %lld ns of %d in turn\n", (long long)one_ns,
           (long long)all_ns, SLOTS);
    CHECK(one_ns <= MOST_NS * SLOWER);
    CHECK(all_ns <= MOST_NS * SLOWER);
    ps_shared_close(shared);
    directory_remove(directory);
    return 0;
}
