/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_app.c: scripted applications.  A publisher's messages follow from its ledger's seed and
 * their numbers; the ledger keeps where each ended.  A subscriber finds each message that it gets
 * in the ledger of its session: unknown, changed, repeated, or skipped without notice is a
 * violation.
 */
#include <stdlib.h>

#include "ps_client_publication.h"
#include "ps_sim_world.h"

enum {
    ROTATIONS = 4,
    MAX_POLL = 256,
    OFFERS_PER_TURN = 256,
    DROP_PAUSE_NS = 20000 /* from a message that was dropped to the next */
};

/* ---- publishers ------------------------------------------------------------------------------ */

int32_t ps_simworld_add_publisher(ps_simworld_t *world, const ps_sim_publisher_params_t *params)
{
    if (world->publisher_count == PS_SIM_MAX_APPS || params->size_low < 0 ||
        params->size_high < params->size_low || params->size_high > PS_SIM_MESSAGE_MAX) {
        return ps_fail(PS_E_NO_SPACE, "simulator: at most %d publishers of messages up to %d bytes",
                       PS_SIM_MAX_APPS, PS_SIM_MESSAGE_MAX);
    }
    ps_sim_publisher_t *publisher = &world->publishers[world->publisher_count];
    *publisher = (ps_sim_publisher_t){
        .params = *params, .due_ns = params->start_ns, .blocked_since_ns = -1, .attached = true
    };
    return world->publisher_count++;
}

void ps_simworld_detach_publisher(ps_simworld_t *world, int32_t publisher)
{
    world->publishers[publisher].attached = false;
}

void ps_simworld_kill_publisher(ps_simworld_t *world, int32_t publisher)
{
    ps_sim_publisher_t *app = &world->publishers[publisher];
    ps_pub_t *pub = app->params.pub;
    uint32_t epoch = 0;
    if (app->attached && (atomic_load_explicit(&pub->slot->metered, memory_order_relaxed) &
                          PS_METERED_CREDITS & (uint32_t)ps_pub_metered(pub)) != 0) {
        ps_pub_set_clock(pub, &world->now_ns);
        world->ledgers[app->params.ledger].killed += ps_pub_take(pub, 1, &epoch) > 0;
    }
    app->attached = false;
    /* The other publishers of the session publish as many messages as without the killed one. */
    for (int32_t i = 0; i < world->publisher_count; i++) {
        if (world->publishers[i].params.ledger == app->params.ledger) {
            world->publishers[i].params.count += app->stats.messages;
        }
    }
}

void ps_simworld_pause_publisher(ps_simworld_t *world, int32_t publisher, int32_t paused)
{
    ps_sim_publisher_t *app = &world->publishers[publisher];
    app->paused = paused != 0;
    app->refused = false;
    app->due_ns = app->due_ns > world->now_ns ? app->due_ns : world->now_ns;
}

void ps_simworld_publisher(const ps_simworld_t *world, int32_t publisher,
                           ps_sim_publisher_stats_t *out)
{
    *out = world->publishers[publisher].stats;
}

static bool is_idle(const ps_simworld_t *world, const ps_sim_publisher_t *publisher)
{
    return !publisher->attached || publisher->paused || publisher->stats.at_end ||
           world->ledgers[publisher->params.ledger].count >= publisher->params.count;
}

int64_t ps_sim_publisher_due_ns(const ps_simworld_t *world, const ps_sim_publisher_t *publisher)
{
    return is_idle(world, publisher) || publisher->refused ? INT64_MAX : publisher->due_ns;
}

/* A message was accepted: what was dropped before it is stated before it. */
static void check_stated(ps_simworld_t *world, ps_sim_ledger_t *ledger, const ps_pub_t *pub)
{
    const int64_t end = ledger->ends[ledger->count - 1];
    ps_sim_note_marks(ledger, &pub->log, end);
    if (ps_sim_marked(ledger, end) != ledger->dropped) {
        ps_sim_violate(world, "session %d: %lld messages were dropped, the log states %lld",
                       ledger->session_id, (long long)ledger->dropped,
                       (long long)ps_sim_marked(ledger, end));
    }
}

void ps_sim_note_accepted(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t end,
                          int32_t size)
{
    ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    ledger->ends[ledger->count] = end;
    ledger->sizes[ledger->count] = size;
    ledger->times_ns[ledger->count] = world->now_ns;
    ledger->max_payload = publisher->params.pub->max_payload;
    ledger->count++;
    if (ledger->dropped > 0) {
        check_stated(world, ledger, publisher->params.pub);
    }
    publisher->stats.messages++;
    publisher->stats.bytes += size;
    publisher->stats.position = end;
    publisher->stats.last_ns = world->now_ns;
    if (world->observer != NULL) {
        world->observer->accepted(world->observer_context, publisher, end, size);
    }
}

static void note_refusal(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t code,
                         int64_t now_ns)
{
    publisher->refused = true;
    publisher->stats.refusals++;
    if (world->observer != NULL) {
        world->observer->refused(world->observer_context, publisher, code);
    }
    if (publisher->blocked_since_ns < 0) {
        publisher->blocked_since_ns = now_ns;
    }
}

/* Returns the content of the message to offer. A refused message is offered again, often in each
 * duty cycle, and has the same content. */
static const uint8_t *content(ps_simworld_t *world, const ps_sim_ledger_t *ledger, int64_t number,
                              int32_t size)
{
    if (world->offered_of != ledger || world->offered_number != number ||
        world->offered_size != size) {
        ps_sim_write_content(world->offered, size, ledger, number);
        world->offered_of = ledger;
        world->offered_number = number;
        world->offered_size = size;
    }
    return world->offered;
}

/* Offers the next message. After a refusal, the limit must change before the next offer: a refusal
 * wakes the sender, which would otherwise never become idle. */
static bool offer(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t now_ns)
{
    ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    ps_pub_t *pub = publisher->params.pub;
    const int64_t limit = ps_pub_limit(pub);
    const int64_t ordinals = ps_pub_credits(pub) > 0 ? ps_pub_ordinal_limit(pub) : -1;
    const int32_t connected = ps_pub_is_connected(pub);
    if ((publisher->refused && publisher->refused_limit == limit &&
         publisher->refused_ordinals == ordinals && publisher->refused_connected == connected) ||
        !ps_sim_ledger_grow(ledger)) {
        return false;
    }
    ps_pub_set_clock(pub, &world->now_ns);
    ps_sim_reset_failed(world, ledger, pub);
    const int64_t number = ledger->count;
    const int32_t size = ps_sim_message_size(ledger, number, publisher->params.size_low,
                                             publisher->params.size_high);
    const int64_t reserved = ps_sim_reserved_value(ledger, number);
    const uint8_t *message = content(world, ledger, number, size);
    int64_t position = ps_sim_publish(publisher, ledger, number, message, size, reserved);
    for (int i = 0; i < ROTATIONS && position == PS_ADMIN_ACTION; i++) {
        position = ps_sim_publish(publisher, ledger, number, message, size, reserved);
    }
    if (position == PS_MAX_POSITION_EXCEEDED) {
        publisher->stats.at_end = 1;
        return false;
    }
    if (position == PS_DROPPED) {
        ps_sim_note_drop(ledger, &pub->log);
        publisher->refused = false;
        publisher->due_ns =
            now_ns + (publisher->params.interval_ns > DROP_PAUSE_NS ? publisher->params.interval_ns
                                                                    : DROP_PAUSE_NS);
        return false;
    }
    if (position <= 0) {
        publisher->refused_limit = limit;
        publisher->refused_ordinals = ordinals;
        publisher->refused_connected = connected;
        ps_sim_check_refusal(world, ledger, pub, position);
        note_refusal(world, publisher, position, now_ns);
        return false;
    }
    if (publisher->blocked_since_ns >= 0) {
        publisher->stats.blocked_ns += now_ns - publisher->blocked_since_ns;
        publisher->blocked_since_ns = -1;
        publisher->due_ns = now_ns; /* what was not sent in time is not made up for */
    }
    publisher->refused = false;
    ps_sim_note_accepted(world, publisher, position, size);
    return true;
}

bool ps_sim_publisher_act(ps_simworld_t *world, ps_sim_publisher_t *publisher, int64_t now_ns)
{
    int32_t offers = 0;
    while (offers < OFFERS_PER_TURN && !is_idle(world, publisher) && now_ns >= publisher->due_ns &&
           offer(world, publisher, now_ns)) {
        publisher->due_ns += publisher->params.interval_ns;
        offers++;
    }
    return offers > 0;
}

/* ---- subscribers ----------------------------------------------------------------------------- */

int32_t ps_simworld_add_subscriber(ps_simworld_t *world, const ps_sim_subscriber_params_t *params)
{
    if (world->subscriber_count == PS_SIM_MAX_APPS || params->poll_limit < 1 ||
        params->poll_limit > MAX_POLL || params->batch < 0 ||
        (params->batch > 0 && params->poll_interval_ns <= 0)) {
        return ps_fail(PS_E_NO_SPACE, "simulator: at most %d subscribers, %d messages a turn",
                       PS_SIM_MAX_APPS, MAX_POLL);
    }
    ps_sim_subscriber_t *subscriber = &world->subscribers[world->subscriber_count];
    *subscriber = (ps_sim_subscriber_t){ .params = *params, .attached = true };
    subscriber->readers = calloc(PS_SIM_MAX_READERS, sizeof *subscriber->readers);
    if (subscriber->readers == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "simulator: no memory for a subscriber");
    }
    return world->subscriber_count++;
}

void ps_simworld_detach_subscriber(ps_simworld_t *world, int32_t subscriber)
{
    world->subscribers[subscriber].attached = false;
}

void ps_simworld_pause_subscriber(ps_simworld_t *world, int32_t subscriber, int32_t paused)
{
    world->subscribers[subscriber].paused = paused != 0;
    world->subscribers[subscriber].resumed_ns = paused != 0 ? INT64_MAX : world->now_ns;
    world->subscribers[subscriber].ready_ns = world->now_ns;
}

void ps_simworld_pace_subscriber(ps_simworld_t *world, int32_t subscriber, int64_t interval_ns,
                                 int32_t batch)
{
    ps_sim_subscriber_t *changed = &world->subscribers[subscriber];
    const int64_t next_ns = world->now_ns + interval_ns;
    changed->params.poll_interval_ns = interval_ns;
    changed->params.batch = batch;
    changed->ready_ns = changed->ready_ns < next_ns ? changed->ready_ns : next_ns;
}

void ps_simworld_allow_gaps(ps_simworld_t *world, int32_t subscriber)
{
    world->subscribers[subscriber].gaps_allowed = true;
}

void ps_sim_apps_free(ps_simworld_t *world)
{
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        for (int32_t r = 0; r < world->subscribers[i].reader_count; r++) {
            free(world->subscribers[i].readers[r].gaps);
        }
        free(world->subscribers[i].readers);
    }
    ps_sim_ledgers_free(world);
}

void ps_simworld_expect_gap(ps_simworld_t *world, int32_t subscriber, int32_t session_id,
                            int32_t stream_id)
{
    ps_sim_reader_t *reader = ps_sim_reader_of(world, subscriber, session_id, stream_id);
    if (reader != NULL) {
        reader->may_jump = true;
    }
}

void ps_simworld_reader(const ps_simworld_t *world, int32_t subscriber, int32_t ledger,
                        ps_sim_reader_stats_t *out)
{
    const ps_sim_subscriber_t *of = &world->subscribers[subscriber];
    *out = (ps_sim_reader_stats_t){ .first = -1 };
    for (int32_t i = 0; i < of->reader_count; i++) {
        const ps_sim_reader_t *reader = &of->readers[i];
        if (reader->ledger == ledger) {
            *out = reader->stats;
            out->untold = reader->may_jump
                              ? 0
                              : ps_sim_untold(&world->ledgers[ledger], reader, reader->stats.next,
                                              world->ledgers[ledger].count);
        }
    }
}

uint64_t ps_simworld_digest(const ps_simworld_t *world, int32_t subscriber)
{
    return world->subscribers[subscriber].digest;
}

/* Moves the reader to the message; what it passes over must have been announced. */
static bool in_order(ps_simworld_t *world, int32_t index, ps_sim_reader_t *reader, int64_t number)
{
    ps_sim_reader_stats_t *stats = &reader->stats;
    if (number < stats->next) {
        ps_sim_violate(world, "subscriber %d got message %lld of session %d again", index,
                       (long long)number, world->ledgers[reader->ledger].session_id);
        return false;
    }
    if (number > stats->next && stats->first >= 0) {
        const ps_sim_ledger_t *ledger = &world->ledgers[reader->ledger];
        if (!reader->may_jump && ps_sim_untold(ledger, reader, stats->next, number) > 0) {
            ps_sim_violate(world,
                           "subscriber %d missed messages %lld to %lld of session %d "
                           "without a word",
                           index, (long long)stats->next, (long long)number - 1,
                           ledger->session_id);
            return false;
        }
        stats->gaps++;
        stats->missed += number - stats->next;
    }
    return true;
}

/* Not one byte is other than it was published, but for the timestamps that its channel requests.
 * A stranger that the image followed may have changed further bytes. */
static bool as_published(ps_simworld_t *world, int32_t index, const ps_message_t *message,
                         const ps_sim_ledger_t *ledger, int64_t number)
{
    uint8_t *published = world->expected;
    const int32_t length = (int32_t)message->length;
    const int32_t host = world->subscribers[index].params.host;
    const bool estranged = ps_sim_is_estranged(ledger, host);
    const ps_sim_world_observer_t *observer = world->observer;
    if (ledger->reserved || observer == NULL || !observer->has_stamps(world->observer_context)) {
        if (message->reserved_value != ps_sim_reserved_value(ledger, number)) {
            ps_sim_violate(world,
                           "subscriber %d: message %lld of session %d has another reserved value "
                           "than it should",
                           index, (long long)number, ledger->session_id);
        }
        if (!estranged) {
            return ps_sim_is_content(message->data, length, ledger, number);
        }
        ps_sim_write_content(published, length, ledger, number);
        return ps_sim_is_forged_content(message->data, published, length);
    }
    ps_sim_write_content(published, length, ledger, number);
    const char *wrong =
        observer->expected(world->observer_context, host, message, estranged, published);
    if (wrong != NULL) {
        ps_sim_violate(world, "subscriber %d: message %lld of session %d %s", index,
                       (long long)number, ledger->session_id, wrong);
    }
    return memcmp(published, message->data, (size_t)length) == 0 ||
           (estranged && ps_sim_is_forged_content(message->data, published, length));
}

/* `first`: it is the first message of its image in this poll. */
static void check(ps_simworld_t *world, int32_t index, const ps_message_t *message, bool first,
                  int64_t now_ns)
{
    ps_sim_reader_t *reader =
        ps_sim_reader_of(world, index, message->session_id, message->stream_id);
    if (reader == NULL) {
        ps_sim_violate(world, "subscriber %d got a message of session %d that nobody publishes",
                       index, message->session_id);
        return;
    }
    const ps_sim_ledger_t *ledger = &world->ledgers[reader->ledger];
    const int64_t number = ps_sim_number_at(ledger, message->position, reader->stats.next);
    if (number < 0 || message->length != ledger->sizes[number] ||
        !as_published(world, index, message, ledger, number)) {
        ps_sim_violate(world,
                       "subscriber %d got %lld bytes at position %lld of session %d that "
                       "were not sent",
                       index, (long long)message->length, (long long)message->position,
                       message->session_id);
        return;
    }
    if (!in_order(world, index, reader, number)) {
        reader->stats.next = number + 1;
        return;
    }
    if (first) {
        ps_sim_check_retained(world, index, ledger, message, number, now_ns);
    }
    reader->may_jump = false;
    reader->stats.first = reader->stats.first < 0 ? number : reader->stats.first;
    reader->stats.next = number + 1;
    reader->stats.messages++;
    reader->stats.bytes += message->length;
    reader->stats.position = message->position;
    reader->stats.last_ns = now_ns;
    const int64_t latency_ns =
        now_ns - ledger->times_ns[number] -
        ps_sim_paused_after_skip_ns(&world->subscribers[index], reader, ledger->times_ns[number]);
    if (latency_ns > reader->stats.latency_ns) {
        reader->stats.latency_ns = latency_ns;
    }
    ps_sim_forget_gaps(reader);
}

int64_t ps_sim_subscriber_due_ns(const ps_sim_subscriber_t *subscriber)
{
    if (!subscriber->attached || subscriber->paused) {
        return INT64_MAX;
    }
    if (subscriber->params.batch > 0) {
        return subscriber->ready_ns;
    }
    return subscriber->holds || (subscriber->params.poll_interval_ns > 0 &&
                                 ps_sub_has_data(subscriber->params.sub) != 0)
               ? subscriber->ready_ns
               : INT64_MAX;
}

/* A poll, or a release, releases what was delivered before. */
static void note_released(ps_sim_subscriber_t *subscriber)
{
    for (int32_t i = 0; i < subscriber->reader_count; i++) {
        subscriber->readers[i].released = subscriber->readers[i].stats.next;
    }
}

/* Checks the messages of one poll; returns their number, or -1 after a poll that failed. */
static int32_t take(ps_simworld_t *world, int32_t index, int32_t limit, bool *gap, int64_t now_ns)
{
    ps_message_t messages[MAX_POLL];
    ps_sim_subscriber_t *subscriber = &world->subscribers[index];
    note_released(subscriber);
    ps_sub_set_clock(subscriber->params.sub, &world->now_ns);
    ps_sim_fan_in_before(subscriber);
    const int32_t count = ps_sub_poll(subscriber->params.sub, messages, limit, PS_POLL_ASSEMBLE);
    ps_sim_fan_in_after(world, index, messages, count, limit);
    *gap = count == PS_E_GAP && subscriber->gaps_allowed;
    if (count < 0 && !*gap) {
        ps_sim_violate(world, "subscriber %d: poll answered %d: %s", index, count, ps_last_error());
        subscriber->attached = false;
        return -1;
    }
    if (*gap) {
        ps_sim_check_expired(world, index, now_ns);
    }
    if (subscriber->gaps_allowed) {
        ps_sim_note_skips(world, index, now_ns);
    }
    for (int32_t i = 0; i < count; i++) {
        const bool first = i == 0 || messages[i].image_index != messages[i - 1].image_index;
        check(world, index, &messages[i], first, now_ns);
        subscriber->digest =
            ps_sim_scramble(subscriber->digest ^ (uint64_t)now_ns) + (uint64_t)messages[i].position;
    }
    if (count > 0) {
        ps_sim_forget_skips(subscriber, now_ns);
    }
    return *gap ? 0 : count;
}

/* One batch at each multiple of the interval: polls up to the stated number of messages and
 * releases them. */
static bool act_in_batches(ps_simworld_t *world, int32_t index, int64_t now_ns)
{
    ps_sim_subscriber_t *subscriber = &world->subscribers[index];
    int32_t left = subscriber->params.batch;
    int32_t count = 1;
    bool gap = false;
    subscriber->ready_ns += (now_ns - subscriber->ready_ns) / subscriber->params.poll_interval_ns *
                                subscriber->params.poll_interval_ns +
                            subscriber->params.poll_interval_ns;
    while (left > 0 && (count > 0 || gap)) {
        if (subscriber->gaps_allowed) {
            (void)ps_sim_take_gaps(world, index);
        }
        count = take(world, index, left < MAX_POLL ? left : MAX_POLL, &gap, now_ns);
        if (count < 0) {
            return false;
        }
        left -= count;
    }
    note_released(subscriber);
    ps_sub_release(subscriber->params.sub);
    return left < subscriber->params.batch;
}

bool ps_sim_subscriber_act(ps_simworld_t *world, int32_t index, int64_t now_ns)
{
    ps_sim_subscriber_t *subscriber = &world->subscribers[index];
    if (!subscriber->attached || subscriber->paused || now_ns < subscriber->ready_ns) {
        return false;
    }
    if (subscriber->params.batch > 0) {
        return act_in_batches(world, index, now_ns);
    }
    bool gap = false;
    /* A gap is after the messages that were delivered before it, and before those of the next
     * poll. */
    const bool notified = subscriber->gaps_allowed && ps_sim_take_gaps(world, index);
    const int32_t count = take(world, index, subscriber->params.poll_limit, &gap, now_ns);
    if (count < 0) {
        return false;
    }
    /* The next poll releases what this one delivered, which is news for the driver too. */
    const bool released = subscriber->holds;
    subscriber->holds = count > 0 || gap || notified;
    if (count > 0 || gap) {
        subscriber->ready_ns = now_ns + subscriber->params.poll_interval_ns;
    }
    return count > 0 || released;
}
