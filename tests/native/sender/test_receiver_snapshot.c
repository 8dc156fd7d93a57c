/* SPDX-License-Identifier: Apache-2.0
 * What receivers said last, read by the conductor while the sender writes it: whole or not at all.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ps_driver_state.h"
#include "ps_publication.h"

enum { VIEWS = 300 };

static atomic_bool enough;

static void *write_on(void *argument)
{
    ps_snapshot_entry_t *snapshot = argument;
    for (int64_t i = 1; !atomic_load(&enough); i++) {
        const ps_receiver_view_t view = { .receiver_id = i,
                                          .heard_ns = i,
                                          .position = i,
                                          .group_tag = i,
                                          .reason_client = i,
                                          .backlog_bytes = i };
        ps_snapshot_write(snapshot, 0, &view);
    }
    return NULL;
}

static void views_are_never_torn(void)
{
    ps_publication_t *pub = aligned_alloc(PS_LINE, sizeof *pub);
    pthread_t writer;
    int64_t last = 0;
    CHECK(pub != NULL);
    memset(pub, 0, sizeof *pub);
    pub->receiver_capacity = 2;
    pub->snapshot = ps_snapshot_make(pub->receiver_capacity);
    CHECK(pub->snapshot != NULL);
    ps_receiver_view_t view[2];
    CHECK_EQ(ps_publication_receivers(pub, view, 2), 0);
    CHECK_EQ(pthread_create(&writer, NULL, write_on, pub->snapshot), 0);
    for (int32_t seen = 0; seen < VIEWS;) {
        if (ps_publication_receivers(pub, view, 2) == 0) {
            continue; /* not yet, or written all the while */
        }
        const int64_t now = view[0].receiver_id;
        CHECK(now >= last);
        CHECK(view[0].heard_ns == now && view[0].position == now && view[0].group_tag == now);
        CHECK(view[0].reason_client == now && view[0].backlog_bytes == now);
        seen += now > last;
        last = now;
    }
    atomic_store(&enough, true);
    CHECK_EQ(pthread_join(writer, NULL), 0);
    free(pub->snapshot);
    free(pub);
}

int main(void)
{
    RUN(views_are_never_torn);
    return 0;
}
