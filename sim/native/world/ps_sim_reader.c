/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_reader.c: finds a subscriber's progress in one session.
 */
#include "ps_sim_world.h"

static ps_sim_reader_t *reader_of(ps_sim_subscriber_t *subscriber, int32_t ledger)
{
    for (int32_t i = 0; i < subscriber->reader_count; i++) {
        if (subscriber->readers[i].ledger == ledger) {
            return &subscriber->readers[i];
        }
    }
    if (subscriber->reader_count == PS_SIM_MAX_READERS) {
        return NULL;
    }
    ps_sim_reader_t *reader = &subscriber->readers[subscriber->reader_count++];
    *reader = (ps_sim_reader_t){ .ledger = ledger, .may_jump = true, .stats = { .first = -1 } };
    return reader;
}

int32_t ps_sim_ledger_of(const ps_simworld_t *world, int32_t session_id, int32_t stream_id)
{
    for (int32_t i = 0; i < world->ledger_count; i++) {
        if (world->ledgers[i].session_id == session_id &&
            world->ledgers[i].stream_id == stream_id) {
            return i;
        }
    }
    return -1;
}

ps_sim_reader_t *ps_sim_reader_of(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                                  int32_t stream_id)
{
    const int32_t ledger = ps_sim_ledger_of(world, session_id, stream_id);
    return ledger < 0 ? NULL : reader_of(&world->subscribers[subscriber], ledger);
}
