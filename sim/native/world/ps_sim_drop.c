/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_drop.c: what publications drop by their policy.  The publishers of a session are told of
 * each message; padding in its log must state as many, before the next message that is accepted.
 * And what a policy answers: a full log holds no publisher under a policy that drops, and fails the
 * publication under `error` until it is reset.
 */
#include <stdlib.h>

#include "ps_client_publication.h"
#include "ps_log.h"
#include "ps_policy.h"
#include "ps_sim_world.h"

enum { FIRST_MARKS = 16 };

static bool keep(ps_sim_ledger_t *ledger, int64_t end, int64_t messages)
{
    if (ledger->mark_count == ledger->mark_capacity) {
        const int64_t capacity =
            ledger->mark_capacity == 0 ? FIRST_MARKS : 2 * ledger->mark_capacity;
        ps_sim_mark_t *marks = realloc(ledger->marks, (size_t)capacity * sizeof *marks);
        if (marks == NULL) {
            return false;
        }
        ledger->marks = marks;
        ledger->mark_capacity = capacity;
    }
    const int64_t before = ledger->mark_count > 0 ? ledger->marks[ledger->mark_count - 1].total : 0;
    ledger->marks[ledger->mark_count++] = (ps_sim_mark_t){ end, before + messages };
    return true;
}

void ps_sim_note_drop(ps_sim_ledger_t *ledger, const ps_log_t *log)
{
    /* Nothing before the first drop states one, and that memory may be in use again already. */
    if (ledger->dropped == 0) {
        ledger->walked = ps_log_producer_position(log);
    }
    ledger->dropped++;
}

void ps_sim_check_refusal(ps_simworld_t *world, ps_sim_ledger_t *ledger, const ps_pub_t *pub,
                          int64_t code)
{
    const bool full = code == PS_BACK_PRESSURED || code == PS_STORAGE;
    const bool rated = code == PS_RATE_LIMITED;
    if (ps_policy_drops(pub->policy) && (full || rated)) {
        ps_sim_violate(world, "session %d: an offer was refused (%lld), its policy drops",
                       ledger->session_id, (long long)code);
    }
    if (pub->policy == PS_POLICY_ERROR && full) {
        ps_sim_violate(world, "session %d: an offer was refused (%lld), its policy is error",
                       ledger->session_id, (long long)code);
    }
    ledger->failed = ledger->failed || code == PS_FAILED;
}

void ps_sim_reset_failed(ps_simworld_t *world, ps_sim_ledger_t *ledger, ps_pub_t *pub)
{
    if (!ps_pub_is_failed(pub)) {
        return;
    }
    if (!ledger->failed) {
        ps_sim_violate(world, "session %d: failed without a refusal", ledger->session_id);
    }
    (void)ps_pub_reset(pub);
    if (ps_pub_is_failed(pub)) {
        ps_sim_violate(world, "session %d: a reset did not end the failure", ledger->session_id);
    }
    ledger->failed = false;
}

void ps_sim_note_marks(ps_sim_ledger_t *ledger, const ps_log_t *log, int64_t to)
{
    while (ledger->walked < to) {
        const ps_frame_t *frame = ps_frame_at(log, ledger->walked);
        const int32_t length = ps_frame_length_acquire(frame);
        const int32_t messages = frame->type == PS_TYPE_PAD ? ps_frame_messages(frame) : 0;
        const int64_t end = ledger->walked + ps_align32(length);
        if (length <= 0 || (messages > 0 && !keep(ledger, end, messages))) {
            return;
        }
        ledger->walked = end;
    }
}

/* Returns the number of marks that end at the position or before it. */
static int64_t marks_to(const ps_sim_ledger_t *ledger, int64_t position)
{
    int64_t low = 0;
    int64_t high = ledger->mark_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (ledger->marks[middle].end <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int64_t ps_sim_marked(const ps_sim_ledger_t *ledger, int64_t position)
{
    const int64_t marks = marks_to(ledger, position);
    return marks > 0 ? ledger->marks[marks - 1].total : 0;
}

int64_t ps_sim_mark_end(const ps_sim_ledger_t *ledger, int64_t position)
{
    const int64_t marks = marks_to(ledger, position);
    return marks > 0 ? ledger->marks[marks - 1].end : 0;
}

int64_t ps_simworld_ledger_dropped(const ps_simworld_t *world, int32_t ledger)
{
    return world->ledgers[ledger].dropped;
}
