/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_relay.c: checks what relays publish and release. A relay publishes each message of the
 * session that it reads once, in order, with its content and its reserved value, and leaves out
 * only messages of a gap that was reported to the relay. No session passes a relay twice. A relay
 * releases a message only after its publication has accepted the message. A gap is reported to one
 * process of the relay; the next process continues behind it. The ledger of the relay's
 * session, which this file writes, checks the readers behind the relay.
 */
#include <stdlib.h>

#include "ps_log.h"
#include "ps_sim_world.h"

/* Checks that a relay has not relayed the session before: it refuses a session whose RELAY_PATH has
 * its own id. */
static void check_path(ps_simworld_t *world, int32_t source, int32_t relay)
{
    const ps_sim_ledger_t *passed = &world->ledgers[source];
    while (passed->relay > 0) {
        if (passed->relay == relay + 1) {
            ps_sim_violate(world, "relay %d relays session %d, which has passed it before", relay,
                           world->ledgers[source].session_id);
            return;
        }
        passed = &world->ledgers[passed->source];
    }
}

/* Returns true if a message begins below the position and ends beyond it. */
static bool is_within_message(const ps_sim_ledger_t *source, int64_t position)
{
    const int64_t number = ps_sim_first_beyond(source, position);
    return number < source->count &&
           source->ends[number] - ps_log_message_space(source->sizes[number], source->max_payload) <
               position;
}

int32_t ps_simworld_add_relayed(ps_simworld_t *world, int32_t session_id, int32_t stream_id,
                                int32_t source_session_id, int32_t source_stream_id, int32_t relay,
                                int64_t join_position)
{
    const int32_t count = world->ledger_count;
    const int32_t source = ps_sim_ledger_of(world, source_session_id, source_stream_id);
    if (source < 0) {
        return ps_fail(PS_E_INVALID, "simulator: relay %d reads session %d that nobody publishes",
                       relay, source_session_id);
    }
    const int32_t index =
        ps_simworld_add_ledger(world, session_id, stream_id, world->ledgers[source].seed);
    if (index < count) { /* a failure, or another process of the relay continues the session */
        return index;
    }
    check_path(world, source, relay);
    ps_sim_ledger_t *ledger = &world->ledgers[index];
    ledger->relay = relay + 1;
    ledger->source = source;
    ledger->reserved = world->ledgers[source].reserved;
    ledger->next = ps_sim_first_beyond(&world->ledgers[source], join_position);
    ledger->within = is_within_message(&world->ledgers[source], join_position);
    for (int32_t i = 0; i < count; i++) {
        const ps_sim_ledger_t *before = &world->ledgers[i];
        if (before->relay == relay + 1 && before->source == source && before->next > ledger->next) {
            ledger->next = before->next; /* an earlier session has all messages below */
            ledger->within = false;
        }
    }
    ledger->first = ledger->next;
    return index;
}

/* The relay publishes what it read, also if its image followed a stranger that changed it. */
static bool is_message(ps_simworld_t *world, const ps_sim_publisher_t *app, int64_t number,
                       const uint8_t *data, int64_t length)
{
    const ps_sim_ledger_t *source = &world->ledgers[world->ledgers[app->params.ledger].source];
    if (number >= source->count || source->sizes[number] != length) {
        return false;
    }
    if (ps_sim_is_content(data, (int32_t)length, source, number)) {
        return true;
    }
    if (!ps_sim_is_estranged(source, app->params.host)) {
        return false;
    }
    ps_sim_write_content(world->expected, (int32_t)length, source, number);
    return ps_sim_is_forged_content(data, world->expected, (int32_t)length);
}

/* Keeps the content of the message that the ledger is about to note, if it is not the publisher's:
 * the readers behind the relay get exactly these bytes. */
static bool keep_changed(ps_sim_ledger_t *ledger, const uint8_t *data, int64_t length)
{
    uint8_t **changed = &ledger->changed[ledger->count];
    *changed = NULL;
    if (ps_sim_is_content(data, (int32_t)length, ledger, ledger->count)) {
        return true;
    }
    *changed = malloc((size_t)length);
    if (*changed != NULL) {
        memcpy(*changed, data, (size_t)length);
    }
    return *changed != NULL;
}

int32_t ps_simworld_relayed(ps_simworld_t *world, int32_t publisher, int64_t position,
                            const uint8_t *data, int64_t length, int64_t reserved_value)
{
    ps_sim_publisher_t *app = &world->publishers[publisher];
    ps_sim_ledger_t *ledger = &world->ledgers[app->params.ledger];
    const ps_sim_ledger_t *source = &world->ledgers[ledger->source];
    if (!ps_sim_ledger_grow(ledger)) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a relayed message");
    }
    /* A relay that joins, or that could not continue a session, may miss one message: the one in
     * whose middle it joined, or the one that it was publishing. */
    if (!ledger->begun && !is_message(world, app, ledger->next, data, length) &&
        is_message(world, app, ledger->next + 1, data, length)) {
        ledger->next++;
        ledger->first++;
    }
    const int64_t number = ledger->next;
    const bool sent = is_message(world, app, number, data, length);
    if (!sent) {
        ps_sim_violate(world,
                       "relay %d: the message at position %lld of session %d is not message %lld "
                       "of session %d",
                       ledger->relay - 1, (long long)position, ledger->session_id,
                       (long long)number, source->session_id);
    } else if (reserved_value != ps_sim_reserved_value(source, number)) {
        ps_sim_violate(world, "relay %d: message %lld of session %d has another reserved value",
                       ledger->relay - 1, (long long)number, source->session_id);
    }
    ledger->begun = true;
    app->refused = false;
    ledger->origins[ledger->count] = source->origins == NULL ? number : source->origins[number];
    ledger->changed[ledger->count] = NULL;
    if (sent && !keep_changed(ledger, data, length)) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a changed message");
    }
    ledger->next++;
    ps_sim_note_accepted(world, app, position, (int32_t)length);
    return PS_OK;
}

void ps_simworld_relay_refused(ps_simworld_t *world, int32_t publisher)
{
    world->publishers[publisher].refused = true;
}

/* The message that the publication refused is missing now: the relay waits for room no more. */
static void forget_refusal(ps_simworld_t *world, int32_t ledger)
{
    for (int32_t i = 0; i < world->publisher_count; i++) {
        if (world->publishers[i].params.ledger == ledger) {
            world->publishers[i].refused = false;
        }
    }
}

/* The relay has read past the message in whose middle it joined, which it does not publish. */
static void pass_cut_message(ps_sim_ledger_t *relayed)
{
    relayed->next++;
    relayed->first++;
    relayed->within = false;
}

void ps_simworld_relay_gap(ps_simworld_t *world, int32_t ledger, int64_t from, int64_t to,
                           int64_t messages, int32_t may_not_know)
{
    ps_sim_ledger_t *relayed = &world->ledgers[ledger];
    const ps_sim_ledger_t *source = &world->ledgers[relayed->source];
    const int64_t first = ps_sim_first_beyond(source, from);
    const int64_t next = ps_sim_first_beyond(source, to);
    if (relayed->within && !relayed->begun && first == relayed->next + 1) {
        pass_cut_message(relayed);
    }
    const int64_t dropped = ps_sim_marked(source, to) - ps_sim_marked(source, from);
    const int64_t missing = next - first + dropped;
    const bool unknown = messages < 0 && may_not_know != 0;
    if ((!unknown && messages != missing) || first != relayed->next) {
        ps_sim_violate(world,
                       "relay %d was told of %lld messages from message %lld of session %d on, "
                       "%lld are missing from message %lld on",
                       relayed->relay - 1, (long long)messages, (long long)first,
                       source->session_id, (long long)missing, (long long)relayed->next);
    }
    if (next > relayed->next) {
        relayed->next = next;
        forget_refusal(world, ledger);
    }
    relayed->left_out += next - first;
    relayed->told += dropped;
}

void ps_simworld_relay_released(ps_simworld_t *world, int32_t ledger, int64_t position)
{
    ps_sim_ledger_t *relayed = &world->ledgers[ledger];
    const ps_sim_ledger_t *source = &world->ledgers[relayed->source];
    const int64_t released = ps_sim_first_beyond(source, position);
    if (relayed->within && !relayed->begun && released == relayed->next + 1) {
        pass_cut_message(relayed);
    }
    if (released > relayed->next) {
        ps_sim_violate(world,
                       "relay %d has released %lld messages of session %d, its publication has "
                       "accepted them up to %lld",
                       relayed->relay - 1, (long long)released, source->session_id,
                       (long long)relayed->next);
    }
}

void ps_simworld_relay_account(const ps_simworld_t *world, int32_t ledger,
                               ps_sim_relay_account_t *out)
{
    const ps_sim_ledger_t *relayed = &world->ledgers[ledger];
    *out = (ps_sim_relay_account_t){ .source = relayed->source,
                                     .first = relayed->first,
                                     .next = relayed->next,
                                     .messages = relayed->count,
                                     .left_out = relayed->left_out,
                                     .told = relayed->told };
}

int64_t ps_simworld_relay_next(const ps_simworld_t *world, int32_t ledger)
{
    return world->ledgers[ledger].next;
}
