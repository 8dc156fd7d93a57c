/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_credit.c: what credits promise to those who receive: of a stream, never more messages are
 * accepted and not released than the reader allows, and none is accepted while it withholds. Both
 * ends are the applications' own.
 */
#include "ps_client_internal.h"
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

/* The image repeats a new limit after 10 ms and 40 ms more, at the end of a cycle each time. */
#define RESTATED_NS INT64_C(50000000)
/* An answer comes within 20 ms of the last request for it. The limit is repeated then, and after
 * 40 ms more. */
#define ANSWERED_NS INT64_C(60000000)

bool ps_sim_states_credits(ps_sim_stated_t *stated, const ps_trailer_t *trailer, int32_t readers,
                           int64_t now_ns, int64_t slack_ns)
{
    const bool news = trailer->credit_limit != stated->limit ||
                      trailer->credit_epoch != stated->epoch || readers < stated->readers;
    const bool asks = (trailer->credit_flags & PS_CREDIT_FLAG_ANSWER) != 0;
    stated->changed_ns = news ? now_ns : stated->changed_ns;
    stated->asked_ns = asks ? now_ns : stated->asked_ns;
    stated->limit = trailer->credit_limit;
    stated->epoch = trailer->credit_epoch;
    stated->readers = readers;
    return news || trailer->credit_flags != 0 ||
           (trailer->credit_limit >= 0 &&
            (now_ns - stated->changed_ns <= RESTATED_NS + 2 * slack_ns ||
             now_ns - stated->asked_ns <= ANSWERED_NS + 2 * slack_ns));
}

/* The image of a subscriber that reads this ledger; NULL: none. */
static const ps_img_t *image_of(const ps_sim_subscriber_t *subscriber, const ps_sim_ledger_t *of)
{
    const int32_t count = ps_sub_image_count(subscriber->params.sub);
    for (int32_t i = 0; i < count; i++) {
        const ps_img_t *image = ps_sub_image(subscriber->params.sub, i);
        if (image->log.session_id == of->session_id && image->log.stream_id == of->stream_id) {
            return image;
        }
    }
    return NULL;
}

static bool is_settled(const ps_img_t *image)
{
    return image != NULL && image->credit_mode != PS_CREDIT_PLAIN &&
           atomic_load_explicit(&image->subscriber->credit_state, memory_order_relaxed) ==
               PS_CREDIT_SETTLED;
}

/* A sender that does not support credits is bound by its window alone. An image that a stranger's
 * SETUP has begun belongs to such a sender, until its own is heard and the stranger is silent. */
static bool is_unpaid(const ps_img_t *image)
{
    return image != NULL && atomic_load_explicit(&image->subscriber->credit_state,
                                                 memory_order_relaxed) == PS_CREDIT_UNSUPPORTED;
}

/* A reader that was there from the first message on, and missed none. */
static bool is_whole(const ps_sim_reader_t *reader)
{
    return reader->stats.first == 0 && !reader->may_jump && reader->stats.gaps == 0;
}

/* An image that its receiver has made since the reader's image ended, and that joined beyond
 * messages which the reader has not read. It grants from where it joined on, also before its
 * application knows of it. */
static bool joins_again(const ps_simworld_t *world, const ps_sim_subscriber_t *subscriber,
                        const ps_sim_reader_t *reader)
{
    const ps_driver_t *driver = world->slots[subscriber->params.host].driver;
    const ps_sim_ledger_t *of = &world->ledgers[reader->ledger];
    const int64_t next = reader->stats.next;
    if (driver == NULL || reader->receiver_id == 0 || next >= of->count) {
        return false;
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        if (image->params.session_id == of->session_id &&
            image->params.stream_id == of->stream_id && image->endpoint != NULL &&
            image->endpoint->params.receiver_id == reader->receiver_id &&
            image->join_position >= of->ends[next]) {
            return true;
        }
    }
    return false;
}

/* A reader that joined later, or joins again, finds what others had granted. */
static bool is_bound(const ps_simworld_t *world, const ps_sim_subscriber_t *subscriber,
                     const ps_sim_reader_t *reader)
{
    return is_whole(reader) && !reader->unpaid && !joins_again(world, subscriber, reader);
}

/* ---- members ------------------------------------------------------------------------------- */

/* Notes which receiver states the credits of a reader. */
static void note_receiver(const ps_simworld_t *world, const ps_sim_subscriber_t *subscriber,
                          ps_sim_reader_t *reader)
{
    const ps_driver_t *driver = world->slots[subscriber->params.host].driver;
    const ps_sim_ledger_t *of = &world->ledgers[reader->ledger];
    const ps_img_t *read = image_of(subscriber, of);
    if (read == NULL || driver == NULL) {
        return;
    }
    const int64_t slot = read->subscriber - read->client->shared->subscribers;
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        for (int32_t j = 0; image->endpoint != NULL && j < image->n_subscribers; j++) {
            if (image->params.session_id == of->session_id &&
                image->params.stream_id == of->stream_id && image->subscribers[j].slot == slot) {
                reader->receiver_id = image->endpoint->params.receiver_id;
            }
        }
    }
}

/* Credits of a group combine by the minimum of its members. A receiver is no member any more when
 * no status message of it counted for its time-out: its host is dead, or it is so far behind the
 * receivers that the strategy follows that the sender has nothing for it. Its first message
 * afterwards makes it a member again. */
static bool is_silent(const ps_probe_pub_t *model, int64_t receiver_id, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool follows =
        pub->params.flow_control == PS_FC_MIN || pub->params.flow_control == PS_FC_TAGGED;
    const int64_t stated_ns = pub->params.fc_receiver_timeout_ns;
    const int64_t connection_ns = pub->context->params.connection_timeout_ns;
    const int64_t silent_ns =
        follows && stated_ns > 0 && stated_ns < connection_ns ? stated_ns : connection_ns;
    for (int32_t i = 0; i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        if (receiver->id == receiver_id) {
            return now_ns - receiver->heard_ns >= silent_ns;
        }
    }
    /* It was silent for so long that a receiver that joined later has taken its entry. */
    for (uint32_t i = 0; i < model->replaced_count && i < PS_PROBE_RECEIVERS; i++) {
        if (model->replaced[i] == receiver_id) {
            return true;
        }
    }
    /* It has joined, and the sender has not heard of it yet: each status message was lost. Not
     * heard since a new daemon adopted the stream: its time-out began with the adoption. */
    const int64_t adopted_ns = pub->adopted_until_ns - connection_ns;
    return pub->adopted_until_ns == 0 || now_ns - adopted_ns >= silent_ns;
}

/* Returns true if a settled withhold states the last message that was accepted. It counts dropped
 * messages too, where marks state them: before that message all of them, since then those that a
 * mark states before the next message. */
static bool states_last(const ps_sim_ledger_t *of, int64_t final)
{
    const int64_t end = of->count > 0 ? of->ends[of->count - 1] : 0;
    return final >= of->count + ps_sim_marked(of, end) && final <= of->count + of->dropped;
}

/* ---- pools --------------------------------------------------------------------------------- */

/* Returns true if the reader's share counts in the pool: its image has not ended. A share of a
 * session that has ended belongs to the other sessions, although the application may still read. */
static bool is_pooled(const ps_simworld_t *world, const ps_sim_subscriber_t *subscriber,
                      const ps_sim_ledger_t *of)
{
    const ps_driver_t *driver = world->slots[subscriber->params.host].driver;
    const ps_img_t *read = image_of(subscriber, of);
    if (read == NULL || driver == NULL) {
        return false;
    }
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        if (pub->log.session_id == of->session_id && pub->log.stream_id == of->stream_id) {
            return pub->endpoint == NULL && pub->state == PS_PUBLICATION_ACTIVE;
        }
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        if (image->params.session_id == of->session_id &&
            image->params.stream_id == of->stream_id) {
            return image->state == PS_IMAGE_ACTIVE;
        }
    }
    return false;
}

/* Of all sessions of a pool together, no more messages are accepted and not released than the pool
 * has credits. */
static void check_pool(ps_simworld_t *world, const ps_sim_subscriber_t *member)
{
    int64_t outstanding = 0;
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        const ps_sim_subscriber_t *subscriber = &world->subscribers[i];
        if (!subscriber->attached || subscriber->params.pool != member->params.pool ||
            subscriber->params.host != member->params.host) {
            continue;
        }
        for (int32_t j = 0; j < subscriber->reader_count; j++) {
            const ps_sim_reader_t *reader = &subscriber->readers[j];
            const ps_sim_ledger_t *of = &world->ledgers[reader->ledger];
            if (is_bound(world, subscriber, reader) && is_pooled(world, subscriber, of)) {
                outstanding += of->count - reader->released;
            }
        }
    }
    if (outstanding > member->params.credits) {
        ps_sim_violate(world,
                       "host %d: %lld messages are accepted and not released in pool %d, which "
                       "has %lld credits",
                       member->params.host, (long long)outstanding, member->params.pool,
                       (long long)member->params.credits);
    }
}

void ps_sim_credit_watch(ps_simworld_t *world, int32_t host)
{
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        const ps_sim_subscriber_t *subscriber = &world->subscribers[i];
        if (subscriber->params.credits == 0 || !subscriber->attached ||
            subscriber->params.host != host) {
            continue;
        }
        for (int32_t j = 0; j < subscriber->reader_count; j++) {
            ps_sim_reader_t *reader = &subscriber->readers[j];
            const ps_sim_ledger_t *of = &world->ledgers[reader->ledger];
            note_receiver(world, subscriber, reader);
            const ps_img_t *read = image_of(subscriber, of);
            reader->unpaid = reader->unpaid || is_unpaid(read);
            const ps_img_t *image = is_whole(reader) ? read : NULL;
            if (!is_settled(image)) {
                continue;
            }
            const int64_t final =
                atomic_load_explicit(&image->subscriber->credit_final, memory_order_relaxed);
            if (!states_last(of, final)) {
                ps_sim_violate(world,
                               "session %d: subscriber %d withholds after message %lld, and %lld "
                               "are accepted",
                               of->session_id, i, (long long) final, (long long)of->count);
            }
        }
    }
}

void ps_sim_credit_check(ps_probe_t *probe, const ps_sim_publisher_t *publisher)
{
    ps_simworld_t *world = probe->world;
    const int32_t ledger = publisher->params.ledger;
    const ps_sim_ledger_t *of = &world->ledgers[ledger];
    const ps_probe_pub_t *model =
        ps_probe_pub(probe, publisher->params.host, of->session_id, of->stream_id);
    for (int32_t i = 0; i < world->subscriber_count; i++) {
        const ps_sim_subscriber_t *subscriber = &world->subscribers[i];
        if (subscriber->params.credits == 0 || !subscriber->attached ||
            subscriber->params.stream_id != of->stream_id) {
            continue;
        }
        if (is_settled(image_of(subscriber, of))) {
            ps_sim_violate(world,
                           "session %d: message %lld is accepted, which subscriber %d withholds",
                           of->session_id, (long long)of->count - 1, i);
        }
        for (int32_t j = 0; j < subscriber->reader_count; j++) {
            const ps_sim_reader_t *reader = &subscriber->readers[j];
            if (reader->ledger != ledger || !is_bound(world, subscriber, reader) ||
                (model != NULL && reader->receiver_id != 0 &&
                 is_silent(model, reader->receiver_id, world->now_ns))) {
                continue;
            }
            if (subscriber->params.pool > 0) {
                check_pool(world, subscriber);
            }
            if (of->count - reader->released > subscriber->params.credits) {
                ps_sim_violate(world,
                               "session %d: %lld messages are accepted and not released by "
                               "subscriber %d, which grants %lld",
                               of->session_id, (long long)(of->count - reader->released), i,
                               (long long)subscriber->params.credits);
            }
        }
    }
}
