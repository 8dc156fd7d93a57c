/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_receiver_snapshot.c: the last status message of each receiver, readable by the conductor: for
 * pressure reports, and for strategies in the control plane. One entry a receiver, bounded by the
 * receiver table; a later status message replaces an earlier one. The sender writes an entry
 * between two increments of its sequence; a reader that sees it odd or changed takes the entry
 * again. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ps_publication.h"

enum { WORDS = (sizeof(ps_receiver_view_t) + 7) / 8, TRIES = 1000 };

_Static_assert(offsetof(ps_receiver_view_t, heard_ns) % 8 == 0, "a word of its own");
_Static_assert(offsetof(ps_receiver_view_t, receiver_id) % 8 == 0, "a word of its own");

struct ps_snapshot_entry {
    _Atomic uint32_t sequence; /* odd: being written */
    _Atomic uint64_t words[WORDS];
};

ps_snapshot_entry_t *ps_snapshot_make(int32_t capacity)
{
    return calloc((size_t)capacity + 1, sizeof(ps_snapshot_entry_t));
}

void ps_snapshot_write(ps_snapshot_entry_t *snapshot, int32_t index, const ps_receiver_view_t *view)
{
    ps_snapshot_entry_t *entry = &snapshot[index];
    uint64_t words[WORDS] = { 0 };
    const uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_relaxed);
    memcpy(words, view, sizeof(*view));
    /* release before and after: the words lie between the two values of the sequence */
    atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < WORDS; i++) {
        atomic_store_explicit(&entry->words[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
}

void ps_snapshot_heard(ps_snapshot_entry_t *snapshot, int32_t index, int64_t heard_ns)
{
    /* One word changes, so no reader can see a part of the change. */
    atomic_store_explicit(&snapshot[index].words[offsetof(ps_receiver_view_t, heard_ns) / 8],
                          (uint64_t)heard_ns, memory_order_relaxed);
}

static uint64_t word_of(ps_snapshot_entry_t *entry, size_t offset)
{
    return atomic_load_explicit(&entry->words[offset / 8], memory_order_relaxed);
}

/* Most entries of a table are free: two words show this, and the others are not copied. */
static bool is_free(ps_snapshot_entry_t *entry)
{
    return word_of(entry, offsetof(ps_receiver_view_t, receiver_id)) == 0 &&
           word_of(entry, offsetof(ps_receiver_view_t, heard_ns)) == 0;
}

static bool read_entry(ps_snapshot_entry_t *entry, ps_receiver_view_t *out)
{
    uint64_t words[WORDS];
    for (int32_t i = 0; i < TRIES; i++) {
        const uint32_t before = atomic_load_explicit(&entry->sequence, memory_order_acquire);
        const bool taken = !is_free(entry);
        for (size_t w = 0; w < WORDS && taken; w++) {
            words[w] = atomic_load_explicit(&entry->words[w], memory_order_relaxed);
        }
        atomic_thread_fence(memory_order_acquire);
        if ((before & 1) == 0 &&
            atomic_load_explicit(&entry->sequence, memory_order_relaxed) == before) {
            if (!taken) {
                return false;
            }
            memcpy(out, words, sizeof(*out));
            return out->receiver_id != 0 || out->heard_ns != 0;
        }
    }
    return false;
}

int32_t ps_publication_receivers(const ps_publication_t *publication, ps_receiver_view_t *out,
                                 int32_t capacity)
{
    int32_t count = 0;
    if (publication->snapshot == NULL) {
        return 0;
    }
    for (int32_t i = 0; i < publication->receiver_capacity && count < capacity; i++) {
        count += read_entry(&publication->snapshot[i], &out[count]);
    }
    return count;
}

int32_t ps_publication_joiner(const ps_publication_t *publication, ps_receiver_view_t *out)
{
    return publication->snapshot != NULL &&
           read_entry(&publication->snapshot[publication->receiver_capacity], out);
}
