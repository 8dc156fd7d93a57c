/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_ledger.c: the content of the published messages, and the ledgers: records of the messages
 * that each session has accepted. The content of a message follows from the seed of its ledger and
 * from its number. A relay publishes the messages of another session: the ledger of its session has
 * the seed of that session, and the number that each message has there. If a relay published what a
 * stranger on the network had changed, the ledger holds the changed content.
 */
#include <stdlib.h>

#include "ps_sim_world.h"

enum { FIRST_LEDGER_CAPACITY = 1024 };

uint64_t ps_sim_scramble(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* ---- messages -------------------------------------------------------------------------------- */

int32_t ps_sim_message_size(const ps_sim_ledger_t *ledger, int64_t number, int32_t low,
                            int32_t high)
{
    const uint64_t span = (uint64_t)(high - low) + 1u;
    return low + (int32_t)(ps_sim_scramble(ledger->seed ^ (uint64_t)number) % span);
}

/* Returns the number that a message has in the session of its publisher. */
static uint64_t origin_of(const ps_sim_ledger_t *ledger, int64_t number)
{
    return (uint64_t)(ledger->origins == NULL ? number : ledger->origins[number]);
}

static uint64_t first_word(const ps_sim_ledger_t *ledger, int64_t number)
{
    return ps_sim_scramble(ledger->seed + origin_of(ledger, number) * 3u);
}

static const uint8_t *changed_content(const ps_sim_ledger_t *ledger, int64_t number)
{
    return ledger->changed == NULL || number >= ledger->count ? NULL : ledger->changed[number];
}

void ps_sim_write_content(uint8_t *out, int32_t length, const ps_sim_ledger_t *ledger,
                          int64_t number)
{
    const uint8_t *changed = changed_content(ledger, number);
    if (changed != NULL) {
        memcpy(out, changed, (size_t)length);
        return;
    }
    uint64_t word = first_word(ledger, number);
    int32_t at = 0;
    for (; at + 8 <= length; at += 8) {
        memcpy(out + at, &word, sizeof word);
        word += UINT64_C(0x9e3779b97f4a7c15);
    }
    memcpy(out + at, &word, (size_t)(length - at));
}

bool ps_sim_is_content(const uint8_t *data, int32_t length, const ps_sim_ledger_t *ledger,
                       int64_t number)
{
    const uint8_t *changed = changed_content(ledger, number);
    if (changed != NULL) {
        return memcmp(data, changed, (size_t)length) == 0;
    }
    uint64_t word = first_word(ledger, number);
    uint64_t different = 0;
    int32_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t found;
        memcpy(&found, data + at, sizeof found);
        different |= found ^ word;
        word += UINT64_C(0x9e3779b97f4a7c15);
    }
    return different == 0 && memcmp(data + at, &word, (size_t)(length - at)) == 0;
}

bool ps_sim_is_estranged(const ps_sim_ledger_t *ledger, int32_t host)
{
    return (ledger->estranged >> host & 1) != 0;
}

bool ps_sim_is_forged_content(const uint8_t *data, const uint8_t *published, int32_t length)
{
    bool same = true;
    for (int32_t i = 0; same && i < length; i++) {
        same = data[i] == published[i] || data[i] == (published[i] ^ PS_SIM_FORGED_BITS);
    }
    return same;
}

int64_t ps_sim_reserved_value(const ps_sim_ledger_t *ledger, int64_t number)
{
    return ledger->reserved
               ? (int64_t)(ps_sim_scramble(~ledger->seed - origin_of(ledger, number)) | 1u)
               : 0;
}

/* ---- ledgers --------------------------------------------------------------------------------- */

int32_t ps_simworld_add_ledger(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                               uint64_t seed)
{
    for (int32_t i = 0; i < world->ledger_count; i++) {
        if (world->ledgers[i].session_id == session_id &&
            world->ledgers[i].stream_id == stream_id) {
            return i; /* shared by publishers, or gone on with after a restart */
        }
    }
    if (world->ledger_count == PS_SIM_MAX_LEDGERS) {
        return ps_fail(PS_E_NO_SPACE, "simulator: at most %d sessions", PS_SIM_MAX_LEDGERS);
    }
    ps_sim_ledger_t *ledger = &world->ledgers[world->ledger_count];
    *ledger = (ps_sim_ledger_t){ .session_id = session_id, .stream_id = stream_id, .seed = seed };
    return world->ledger_count++;
}

void ps_simworld_reserve(ps_simworld_t *world, int32_t ledger)
{
    world->ledgers[ledger].reserved = true;
}

int64_t ps_simworld_ledger_messages(const ps_simworld_t *world, int32_t ledger)
{
    return world->ledgers[ledger].count;
}

int64_t ps_simworld_ledger_position(const ps_simworld_t *world, int32_t ledger)
{
    const ps_sim_ledger_t *of = &world->ledgers[ledger];
    return of->count > 0 ? of->ends[of->count - 1] : 0;
}

bool ps_sim_ledger_grow(ps_sim_ledger_t *ledger)
{
    if (ledger->count < ledger->capacity) {
        return true;
    }
    const int64_t capacity = ledger->capacity == 0 ? FIRST_LEDGER_CAPACITY : ledger->capacity * 2;
    int64_t *ends = realloc(ledger->ends, (size_t)capacity * sizeof *ends);
    if (ends == NULL) {
        return false;
    }
    ledger->ends = ends;
    int32_t *sizes = realloc(ledger->sizes, (size_t)capacity * sizeof *sizes);
    if (sizes == NULL) {
        return false;
    }
    ledger->sizes = sizes;
    int64_t *times_ns = realloc(ledger->times_ns, (size_t)capacity * sizeof *times_ns);
    if (times_ns == NULL) {
        return false;
    }
    ledger->times_ns = times_ns;
    if (ledger->relay > 0) {
        int64_t *origins = realloc(ledger->origins, (size_t)capacity * sizeof *origins);
        if (origins == NULL) {
            return false;
        }
        ledger->origins = origins;
        uint8_t **changed = realloc(ledger->changed, (size_t)capacity * sizeof *changed);
        if (changed == NULL) {
            return false;
        }
        ledger->changed = changed;
    }
    ledger->capacity = capacity;
    return true;
}

int64_t ps_sim_number_at(const ps_sim_ledger_t *ledger, int64_t position, int64_t guess)
{
    if (guess >= 0 && guess < ledger->count && ledger->ends[guess] == position) {
        return guess;
    }
    int64_t low = 0;
    int64_t high = ledger->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (ledger->ends[middle] < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < ledger->count && ledger->ends[low] == position ? low : -1;
}

static void free_changed(ps_sim_ledger_t *ledger)
{
    for (int64_t i = 0; ledger->changed != NULL && i < ledger->count; i++) {
        free(ledger->changed[i]);
    }
    free(ledger->changed);
}

void ps_sim_ledgers_free(ps_simworld_t *world)
{
    for (int32_t i = 0; i < world->ledger_count; i++) {
        free(world->ledgers[i].ends);
        free(world->ledgers[i].sizes);
        free(world->ledgers[i].times_ns);
        free(world->ledgers[i].origins);
        free_changed(&world->ledgers[i]);
        free(world->ledgers[i].marks);
    }
}
