/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_credit.c: the credits that the readers of an image grant (docs/decisions/0240). Each
 * status message states the least limit of them. A limit that decreases, or a freeze, begins a new
 * epoch; the receiver states it until the sender answers. */
#include "ps_image.h"
#include "ps_receiver.h"
#include "ps_wire_credit.h"

#define EPOCH_NS_SHIFT 24 /* a later image of the stream begins with a later epoch */
#define ASK_NS         INT64_C(20000000)
#define RESTATE_NS     INT64_C(10000000)
enum { QUARTER = 4, RESTATES = 2, RESTATE_FACTOR = 4 };

static ps_counted_t counted_of(const ps_image_t *image)
{
    return (ps_counted_t){ .position = image->ordinal_position, .ordinal = image->ordinal };
}

bool ps_image_obeys_credits(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_CREDITS) != 0 && image->ordinal >= 0 &&
           image->receiver->params->advertise;
}

/* ---- readers --------------------------------------------------------------------------------- */

static void count_readers(ps_image_t *image)
{
    image->credits.readers = 0;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        image->credits.readers += image->subscribers[i].credit.credits > 0;
    }
}

static void begin_epoch(ps_image_t *image)
{
    ps_image_credits_t *credits = &image->credits;
    credits->epoch++;
    credits->epoch += credits->epoch == 0;
    credits->asks = true;
    credits->settled = false;
    credits->final = -1;
    credits->limit = 0;
    credits->ask_ns = 0;
    image->force_sm = image->force_sm || ps_image_obeys_credits(image);
}

static void first_epoch(ps_image_t *image, uint32_t before)
{
    ps_image_credits_t *credits = &image->credits;
    if (credits->epoch == 0) {
        const uint32_t by_time = (uint32_t)(image->receiver->now_ns >> EPOCH_NS_SHIFT);
        credits->epoch = (int32_t)(by_time - before) > 0 || before == 0 ? by_time : before + 1;
        credits->epoch += credits->epoch == 0;
        credits->final = -1;
    }
}

/* Returns the position from which a reader counts. It may have read on since it joined, and what it
 * returned counts from there; what is no longer stored cannot be counted. */
static int64_t counts_from(const ps_image_t *image, const ps_image_subscriber_t *subscriber,
                           int64_t join)
{
    const int64_t position = atomic_load_explicit(subscriber->position, memory_order_acquire);
    const int64_t least =
        image->free_to > image->join_position ? image->free_to : image->join_position;
    return join >= least && join <= position ? join : position;
}

void ps_image_credit_join(ps_image_t *image, ps_image_subscriber_t *subscriber,
                          const ps_subscriber_params_t *params)
{
    const ps_shared_t *shared = image->receiver->shared;
    if (params->credits > 0 && params->slot >= 0 && params->slot < shared->n_subscribers) {
        ps_subscriber_slot_t *slot = &shared->subscribers[params->slot];
        const uint32_t before = atomic_load_explicit(&slot->credit_epoch, memory_order_relaxed);
        ps_credit_join(&subscriber->credit, slot,
                       counts_from(image, subscriber, params->join_position), true);
        (void)ps_credit_set(&subscriber->credit, params->credits, params->credit_burst,
                            params->frozen != 0);
        first_epoch(image, before);
        if (params->frozen != 0) {
            begin_epoch(image);
        }
    }
    count_readers(image);
    image->credits.joined = true;
}

/* The stream has no reader yet: the image grants what the first reader will. */
static bool grants_ahead(const ps_image_t *image)
{
    return !image->credits.joined && image->params.credits > 0;
}

static void grant_ahead(ps_image_t *image)
{
    ps_image_credits_t *credits = &image->credits;
    const ps_image_params_t *params = &image->params;
    const int64_t most =
        params->credit_burst > params->credits ? params->credit_burst : params->credits;
    credits->released = image->slot->join_ordinal > 0 ? image->slot->join_ordinal : 0;
    credits->messages = (uint32_t)(most < PS_CREDITS_MAX ? most : PS_CREDITS_MAX);
    credits->limit = credits->released + credits->messages;
    credits->frozen = params->frozen != 0;
}

void ps_image_credit_leave(ps_image_t *image)
{
    const int32_t before = image->credits.readers;
    count_readers(image);
    if (image->credits.readers != before) {
        image->force_sm = 1;
    }
}

void ps_image_credit_change(ps_image_t *image, const ps_credit_change_t *change)
{
    if (change->position_counter_id < 0 && !image->credits.joined) {
        image->params.credits = change->credits;
        image->params.credit_burst = change->credit_burst;
        image->params.frozen = change->frozen;
        begin_epoch(image);
    }
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        ps_credit_reader_t *reader = &image->subscribers[i].credit;
        if (image->subscribers[i].position_counter_id == change->position_counter_id &&
            reader->slot != NULL &&
            ps_credit_set(reader, change->credits, change->credit_burst, change->frozen != 0)) {
            ps_credit_restart(reader);
            begin_epoch(image);
        }
    }
    ps_image_credit_leave(image);
    ps_receiver_make_hot(image->receiver, image);
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* Finds the least limit. False: a base is not known yet. */
static bool combine(ps_image_t *image)
{
    ps_image_credits_t *credits = &image->credits;
    const ps_counted_t counted = counted_of(image);
    int64_t limit = PS_CREDIT_OPEN;
    bool known = true;
    credits->frozen = false;
    credits->outstanding = false;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        ps_credit_reader_t *reader = &image->subscribers[i].credit;
        if (reader->credits == 0) {
            continue;
        }
        if (!ps_credit_step(reader, &image->log, &counted, counted.ordinal)) {
            known = false;
            continue;
        }
        credits->frozen = credits->frozen || reader->frozen;
        credits->outstanding =
            credits->outstanding || reader->base + reader->returned < counted.ordinal;
        if (reader->limit < limit) {
            const int64_t most = reader->burst > reader->credits ? reader->burst : reader->credits;
            limit = reader->limit;
            credits->released = reader->base + reader->returned;
            /* After a lower N the limit may exceed the new one for a while. */
            credits->messages = (uint32_t)(limit - credits->released > most &&
                                                   limit - credits->released < PS_CREDITS_MAX
                                               ? limit - credits->released
                                               : most);
        }
    }
    if (known && limit < credits->limit) {
        begin_epoch(image); /* a reader joined that grants less */
    }
    credits->limit = known ? limit : credits->limit;
    return known;
}

static int32_t state_of(const ps_image_t *image, const ps_credit_reader_t *reader)
{
    const ps_image_credits_t *credits = &image->credits;
    if (!ps_image_obeys_credits(image)) {
        return PS_CREDIT_UNSUPPORTED;
    }
    return !reader->frozen    ? PS_CREDIT_GRANTING
           : credits->settled ? PS_CREDIT_SETTLED
           : credits->asks    ? PS_CREDIT_FREEZING
                              : PS_CREDIT_FROZEN;
}

static void show(ps_image_t *image)
{
    const ps_image_credits_t *credits = &image->credits;
    const bool zero = image->ordinal >= credits->stated;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_credit_reader_t *reader = &image->subscribers[i].credit;
        if (reader->credits == 0) {
            continue;
        }
        const int32_t state = state_of(image, reader);
        image->wake = image->wake || atomic_load_explicit(&reader->slot->credit_state,
                                                          memory_order_relaxed) != state;
        ps_credit_show(reader, credits->epoch, state, credits->final);
        const int64_t step = zero || reader->credits < QUARTER ? 1 : reader->credits / QUARTER;
        const int64_t at = credits->stated + step - reader->base - reader->credits;
        ps_credit_wake_at(reader, at > reader->returned ? at : reader->returned + 1);
    }
}

/* Returns true if the limit has risen enough, or from nothing. */
static bool has_risen(const ps_image_t *image)
{
    const ps_image_credits_t *credits = &image->credits;
    const int64_t by = credits->limit - credits->stated;
    return by > 0 && (image->ordinal >= credits->stated ||
                      by >= (credits->messages < QUARTER ? 1 : credits->messages / QUARTER));
}

static bool waits_for_answer(const ps_image_credits_t *credits)
{
    return credits->asks || (credits->frozen && !credits->settled);
}

/* Returns the time of the next statement that is repeated; INT64_MAX: there is none. */
static int64_t restate_due_ns(const ps_image_credits_t *credits)
{
    return waits_for_answer(credits) ? credits->ask_ns
           : credits->restates > 0   ? credits->restate_ns
                                     : INT64_MAX;
}

/* A statement that raised the limit from nothing may be lost: it is repeated twice. Without a path
 * to the sender nothing is repeated until a frame of the sender arrives. */
static void restate(ps_image_t *image, int64_t now_ns)
{
    ps_image_credits_t *credits = &image->credits;
    if (image->ordinal != credits->restate_ordinal) {
        credits->restates = 0;
    }
    const int64_t due_ns = restate_due_ns(credits);
    if (due_ns == INT64_MAX) {
        return;
    }
    if (now_ns >= due_ns) {
        if (!ps_image_has_path(image, now_ns)) {
            return;
        }
        image->force_sm = 1;
        if (waits_for_answer(credits)) {
            credits->ask_ns = now_ns + ASK_NS;
        } else {
            credits->restates--;
            credits->restate_ns = now_ns + RESTATE_FACTOR * RESTATE_NS;
        }
    }
    ps_image_timer(image, restate_due_ns(credits));
}

/* Returns true if the last reader has left. The sender counts the receiver until the image has
 * closed, so what was granted is stated until then, and nothing more. Otherwise publishers would
 * meanwhile write without credit. */
static bool is_abandoned(const ps_image_t *image)
{
    return image->n_subscribers == 0 && image->credits.joined && image->credits.known;
}

bool ps_image_credit_step(ps_image_t *image, int64_t now_ns)
{
    ps_image_credits_t *credits = &image->credits;
    if (is_abandoned(image)) {
        credits->outstanding = false;
        restate(image, now_ns);
        return false;
    }
    if (credits->readers == 0 && !grants_ahead(image)) {
        image->force_sm = image->force_sm || credits->known; /* its reader joined after others */
        credits->known = false;
        credits->outstanding = false;
        credits->limit = 0;
        return false;
    }
    const bool obeys = ps_image_obeys_credits(image);
    /* While a new reader's base is not known, the limit of the others is stated. */
    if (credits->readers == 0) {
        first_epoch(image, 0);
        grant_ahead(image);
        credits->known = obeys;
    } else {
        credits->known = obeys && (combine(image) || credits->known);
    }
    bool due = false;
    if (credits->known) {
        due = has_risen(image);
        if (due && image->ordinal >= credits->stated) {
            credits->restates = RESTATES;
            credits->restate_ns = now_ns + RESTATE_NS;
            credits->restate_ordinal = image->ordinal;
        }
        restate(image, now_ns);
    }
    show(image);
    return due;
}

/* States the client that returned the fewest credits, or that withholds, if the publisher had no
 * credit when this message was written: also with a new limit, which the publisher may spend before
 * the next message. */
static void state_holder(const ps_image_t *image, ps_trailer_t *trailer)
{
    const ps_image_credits_t *credits = &image->credits;
    const ps_shared_t *shared = image->receiver->shared;
    const ps_image_subscriber_t *holder = NULL;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        const ps_credit_reader_t *reader = &subscriber->credit;
        if (reader->credits > 0 && reader->base >= 0 &&
            (holder == NULL || reader->frozen ||
             (reader->limit < holder->credit.limit && !holder->credit.frozen))) {
            holder = subscriber;
        }
    }
    if (holder == NULL || (!credits->frozen && image->ordinal < credits->stated)) {
        return;
    }
    trailer->reason = PS_CAUSE_CREDIT;
    /* The client writes its position. */
    const int64_t at = atomic_load_explicit(holder->position, memory_order_relaxed);
    const int64_t behind = ps_image_contiguous(image) - at;
    trailer->reason_backlog_bytes = behind > 0 && behind <= image->log.term_length ? behind : 0;
    if (holder->client_slot >= 0 && holder->client_slot < shared->n_clients) {
        const ps_client_slot_t *client = &shared->clients[holder->client_slot];
        trailer->reason_client = atomic_load_explicit(&client->id, memory_order_relaxed);
        ps_name_copy(trailer->client_name, client->name);
        ps_name_copy(trailer->host, image->receiver->params->host);
    }
}

void ps_image_credit_fill(const ps_image_t *image, ps_trailer_t *trailer)
{
    const ps_image_credits_t *credits = &image->credits;
    if (!credits->known) {
        return;
    }
    trailer->credit_limit = credits->limit;
    trailer->released_ordinal = credits->released;
    trailer->credit_epoch = credits->epoch;
    trailer->credit_messages = credits->messages;
    trailer->credit_flags = (credits->frozen ? PS_CREDIT_FLAG_FROZEN : 0u) |
                            (waits_for_answer(credits) ? PS_CREDIT_FLAG_ANSWER : 0u);
    if (trailer->reason == PS_CAUSE_NONE) {
        state_holder(image, trailer);
    }
}

void ps_image_credit_tick(ps_image_t *image, int64_t now_ns)
{
    const ps_image_credits_t *credits = &image->credits;
    const int64_t due_ns = restate_due_ns(credits);
    if (!credits->known || due_ns == INT64_MAX) {
        return;
    }
    if (now_ns < due_ns) {
        ps_image_timer(image, due_ns);
    } else if (ps_image_has_path(image, now_ns)) {
        ps_receiver_make_hot(image->receiver, image); /* its cycle states the credits again */
    }
}

bool ps_image_credit_is_due(const ps_image_t *image)
{
    bool due = false;
    for (int32_t i = 0; image->credits.readers > 0 && i < image->n_subscribers; i++) {
        due = due || ps_credit_is_due(&image->subscribers[i].credit);
    }
    return due;
}

void ps_image_on_credit(ps_image_t *image, const ps_recv_destination_t *destination,
                        const ps_credit_frame_t *frame, const ps_addr_t *from)
{
    ps_image_credits_t *credits = &image->credits;
    if (!ps_image_admits(image, destination->index, from)) {
        ps_image_count_foreign(image, destination->index, from);
        return;
    }
    if (!credits->known || image->endpoint == NULL ||
        frame->receiver_id != image->endpoint->params.receiver_id) {
        return; /* for another member of the group */
    }
    if (frame->epoch != credits->epoch) {
        return; /* an answer to an earlier epoch */
    }
    credits->asks = false;
    credits->final = frame->ordinal;
    if (credits->frozen) {
        credits->settled = credits->settled || (frame->flags & PS_CREDIT_ANSWER_SETTLED) != 0;
    }
    ps_receiver_make_hot(image->receiver, image);
}
