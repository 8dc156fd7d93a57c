/* SPDX-License-Identifier: Apache-2.0
 *
 * A slot that is freed keeps its hands off its neighbours' histories. tests/unit/test_page_sizes.py
 * runs this program with pages of 4, 16 and 64 KiB. */
#include "check.h"
#include "ps_shared.h"
#include "stream.h"
#include <unistd.h>

static void free_every_second(ps_shared_t *shared, int32_t first, int32_t slots)
{
    for (int32_t i = first; i < slots; i += 2) {
        ps_slot_free(shared, PS_SLOT_PUBLICATION, i);
        ps_slot_free(shared, PS_SLOT_IMAGE, i);
    }
    for (int32_t i = first; i < slots; i += 2) {
        const int32_t kept = i ^ 1;
        CHECK_EQ(atomic_load(&shared->publication_histories[kept].ring.count), 1);
        CHECK_EQ(atomic_load(&shared->image_histories[kept].ring.count), 1);
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 500 + i), i);
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 500 + i), i);
        CHECK_EQ(atomic_load(&shared->publication_histories[i].ring.count), 0);
        ps_index_append(&shared->publication_histories[i].ring, 1000 + i, i, 0);
        ps_index_append(&shared->image_histories[i].ring, 1000 + i, i, 0);
    }
}

int main(void)
{
    enum { SLOTS = 64 };
    char directory[256];
    directory_make(directory, sizeof directory);
    const ps_shared_params_t params = { .directory = directory,
                                        .clients = 4,
                                        .publications = SLOTS,
                                        .images = SLOTS,
                                        .subscribers = 4,
                                        .groups = 1,
                                        .file_mode = 0600 };
    ps_shared_t *shared = NULL;
    CHECK_EQ(ps_shared_create(&params, &shared), PS_OK);
    for (int32_t i = 0; i < SLOTS; i++) {
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_PUBLICATION, 1 + i), i);
        CHECK_EQ(ps_slot_allocate(shared, PS_SLOT_IMAGE, 100 + i), i);
        ps_index_append(&shared->publication_histories[i].ring, 1000 + i, i, 0);
        ps_index_append(&shared->image_histories[i].ring, 1000 + i, i, 0);
    }
    for (int32_t first = 0; first < 2; first++) { /* the even ones, then the odd ones */
        free_every_second(shared, first, SLOTS);
    }
    printf("pages of %ld bytes\n", sysconf(_SC_PAGESIZE));
    ps_shared_close(shared);
    directory_remove(directory);
    return 0;
}
