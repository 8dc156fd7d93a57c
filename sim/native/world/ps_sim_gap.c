/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_gap.c: what a subscriber of an unreliable stream is told of what it will never get.  Every
 * message that it misses must lie in a range that it was told, and a range counts the messages that
 * end in it.
 */
#include <stdlib.h>

#include "ps_client_internal.h"
#include "ps_sim_world.h"

enum { FIRST_CAPACITY = 16 };

int64_t ps_sim_first_beyond(const ps_sim_ledger_t *ledger, int64_t position)
{
    int64_t low = 0;
    int64_t high = ledger->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (ledger->ends[middle] <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool keep(ps_sim_reader_t *reader, int64_t from, int64_t to)
{
    if (reader->gap_count == reader->gap_capacity) {
        const int32_t capacity =
            reader->gap_capacity == 0 ? FIRST_CAPACITY : 2 * reader->gap_capacity;
        ps_sim_gap_t *gaps = realloc(reader->gaps, (size_t)capacity * sizeof *gaps);
        if (gaps == NULL) {
            return false;
        }
        reader->gaps = gaps;
        reader->gap_capacity = capacity;
    }
    reader->gaps[reader->gap_count++] = (ps_sim_gap_t){ from, to };
    return true;
}

static void take(ps_simworld_t *world, int32_t index, ps_sim_reader_t *reader, int64_t from,
                 int64_t to, int64_t messages)
{
    const ps_sim_ledger_t *ledger = &world->ledgers[reader->ledger];
    const int64_t before =
        reader->gap_count > 0 ? reader->gaps[reader->gap_count - 1].to : reader->stats.position;
    const int64_t ended = ps_sim_first_beyond(ledger, to) - ps_sim_first_beyond(ledger, from) +
                          ps_sim_marked(ledger, to) - ps_sim_marked(ledger, from);
    reader->stats.uncounted += messages < 0;
    reader->stats.dropped += ps_sim_marked(ledger, to) - ps_sim_marked(ledger, from);
    if (from >= to || from < before) {
        ps_sim_violate(world, "subscriber %d was told of a gap from %lld to %lld after %lld", index,
                       (long long)from, (long long)to, (long long)before);
    }
    if (messages >= 0 && messages != ended) {
        ps_sim_violate(world,
                       "subscriber %d was told of %lld messages in the gap from %lld to "
                       "%lld, %lld end there",
                       index, (long long)messages, (long long)from, (long long)to,
                       (long long)ended);
    }
    if (!keep(reader, from, to)) {
        ps_sim_violate(world, "simulator: no memory for the gaps of subscriber %d", index);
    }
}

bool ps_sim_take_gaps(ps_simworld_t *world, int32_t subscriber)
{
    const ps_sim_subscriber_params_t *params = &world->subscribers[subscriber].params;
    bool any = false;
    for (int32_t i = 0; i < ps_sub_image_count(params->sub); i++) {
        ps_img_t *image = ps_sub_image(params->sub, i);
        int64_t from;
        int64_t to;
        int64_t messages;
        ps_img_report_gaps(image);
        if (ps_img_take_gap(image, &from, &to, &messages) == 0) {
            continue;
        }
        any = true;
        ps_sim_reader_t *reader =
            ps_sim_reader_of(world, subscriber, ps_img_session_id(image), params->stream_id);
        if (reader == NULL) {
            ps_sim_violate(world,
                           "subscriber %d was told of a gap in session %d that nobody "
                           "publishes",
                           subscriber, ps_img_session_id(image));
        } else if (!reader->may_jump) {
            take(world, subscriber, reader, from, to, messages);
        }
    }
    return any;
}

void ps_sim_note_skips(ps_simworld_t *world, int32_t subscriber, int64_t now_ns)
{
    const ps_sim_subscriber_params_t *params = &world->subscribers[subscriber].params;
    for (int32_t i = 0; i < ps_sub_image_count(params->sub); i++) {
        const ps_img_t *image = ps_sub_image(params->sub, i);
        ps_sim_reader_t *reader =
            image->isolated == NULL
                ? NULL
                : ps_sim_reader_of(world, subscriber, ps_img_session_id(image), params->stream_id);
        if (reader == NULL) {
            continue;
        }
        const int64_t skipped =
            atomic_load_explicit(&image->subscriber->skipped_bytes, memory_order_relaxed);
        const int64_t grown = skipped - reader->skipped_bytes;
        reader->skipped_bytes = skipped;
        if (grown > 0 && grown == image->gap_to - image->gap_from) {
            reader->skip_ns = now_ns; /* otherwise the gap has another reason */
        }
    }
}

int64_t ps_sim_paused_after_skip_ns(const ps_sim_subscriber_t *subscriber,
                                    const ps_sim_reader_t *reader, int64_t accepted_ns)
{
    /* The poll after a skip is due after one interval. */
    const int64_t due_ns = reader->skip_ns + subscriber->params.poll_interval_ns;
    const int64_t from_ns = due_ns > accepted_ns ? due_ns : accepted_ns;
    return reader->skip_ns > 0 && subscriber->resumed_ns > from_ns
               ? subscriber->resumed_ns - from_ns
               : 0;
}

void ps_sim_forget_skips(ps_sim_subscriber_t *subscriber, int64_t now_ns)
{
    for (int32_t i = 0; i < subscriber->reader_count; i++) {
        ps_sim_reader_t *reader = &subscriber->readers[i];
        reader->skip_ns = reader->stats.last_ns == now_ns ? 0 : reader->skip_ns;
    }
}

int64_t ps_sim_untold(const ps_sim_ledger_t *ledger, const ps_sim_reader_t *reader, int64_t first,
                      int64_t end)
{
    int64_t untold = 0;
    int32_t gap = 0;
    for (int64_t number = first; number < end; number++) {
        const int64_t from = number > 0 ? ledger->ends[number - 1] : 0;
        while (gap < reader->gap_count && reader->gaps[gap].to <= from) {
            gap++;
        }
        untold += gap == reader->gap_count || reader->gaps[gap].from >= ledger->ends[number];
    }
    return untold;
}

void ps_sim_forget_gaps(ps_sim_reader_t *reader)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < reader->gap_count; i++) {
        if (reader->gaps[i].to > reader->stats.position) {
            reader->gaps[kept++] = reader->gaps[i];
        }
    }
    reader->gap_count = kept;
}
