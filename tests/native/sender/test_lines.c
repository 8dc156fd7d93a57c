/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lines.c: what two threads write lies on two cache lines, in the type and in memory.
 */
#include <stddef.h>
#include <stdint.h>

#include "ps_image.h"
#include "ps_line.h"
#include "ps_publication.h"
#include "sender_rig.h"

/* A group begins a line, and the field before it lies in front of that line. */
#define BEGINS_LINE(type, field, before)                                                           \
    _Static_assert(offsetof(type, field) % PS_LINE == 0, #field " begins no line");                \
    _Static_assert(offsetof(type, before) / PS_LINE < offsetof(type, field) / PS_LINE,             \
                   #before " shares a line with " #field)

BEGINS_LINE(ps_publication_t, subscribers_requested, receivers);
BEGINS_LINE(ps_publication_t, status_consumer, clients_requested);
BEGINS_LINE(ps_publication_t, unused_cell, status_receivers);
_Static_assert(offsetof(ps_publication_t, status_signals) < offsetof(ps_publication_t, unused_cell),
               "all of status_ lies together");
_Static_assert(sizeof(ps_publication_t) % PS_LINE == 0, "nothing shares its last line");

BEGINS_LINE(ps_image_t, endpoint, gap_storage);
BEGINS_LINE(ps_image_t, shown_slowest, reject_text);
BEGINS_LINE(ps_image_t, join_hold, shown_foreign);
_Static_assert(offsetof(ps_image_t, join_hold) < offsetof(ps_image_t, joined) &&
                   offsetof(ps_image_t, joined) < offsetof(ps_image_t, n_joined),
               "what the conductor writes lies together");
_Static_assert(sizeof(ps_image_t) % PS_LINE == 0, "nothing shares its last line");

static void a_publication_begins_a_line(void)
{
    const rig_options_t options = { .kind = RIG_IPC };
    rig_t *rig = rig_open(&options);
    CHECK_EQ((uintptr_t)rig->pub % PS_LINE, 0);
    rig_close(rig);
}

int main(void)
{
    a_publication_begins_a_line();
    return 0;
}
