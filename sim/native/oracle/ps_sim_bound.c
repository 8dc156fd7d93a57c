/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_bound.c: what has been accepted by offer and is not yet released never exceeds the
 * publication window and the receiver window together.
 *
 * Both ends are the applications' own: where an accepted message begins, and what readers have
 * released, by the counters that they write themselves.  Which reader counts, by strategy:
 *
 *   every strategy   the receiver that was ever furthest on (max, unicast; nak with a window of
 *                    half a term; custom may hold the sender back, never send it further)
 *   min, tagged      each receiver that is followed, from when the sender is within its window
 *   on this host     IPC readers and spies: the slowest; the publication window alone
 *
 * Of the readers of one receiver the slowest that is tethered counts; where none is, what has come
 * counts as released.  A lagged reader that catches up may be behind what the others released while
 * it did not count (semantics, section 11).  The receiver cannot withdraw a window, so it has room
 * up to the highest edge that it had.
 */
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

static bool gates(int32_t state)
{
    return state == PS_TETHER_ACTIVE || state == PS_TETHER_LINGER;
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static int64_t image_released(const ps_image_t *image)
{
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const int64_t position = load(image->subscribers[i].position);
        if (gates(image->subscribers[i].tether.state) && !image->subscribers[i].isolation.lagged &&
            position < slowest) {
            slowest = position;
        }
    }
    return slowest == INT64_MAX ? ps_image_contiguous(image) : slowest;
}

/* Of the padding that ends a term only the header travels: a sender that has room for that much
 * stands at the next term. Frames that state drops may stand before the padding, and between the
 * start of the term and its first message. The padding of aborted claims may stand anywhere between
 * two messages, and of it, too, only the header travels. */
static int64_t past_padding(const ps_sim_ledger_t *ledger, const ps_publication_t *pub,
                            int64_t edge)
{
    const int64_t number = ps_sim_first_beyond(ledger, edge); /* the first that ends beyond */
    if (number >= ledger->count) {
        return edge;
    }
    const int64_t start = ledger->ends[number] - ps_sim_framed_bytes(pub, ledger->sizes[number]);
    const int64_t term = start & ~(int64_t)pub->log.term_mask;
    const int64_t ended = number > 0 ? ledger->ends[number - 1] : 0;
    if (ledger->aborts && edge >= ended + PS_HEADER_BYTES && edge < start) {
        return start;
    }
    const int64_t marked = ps_sim_mark_end(ledger, term);
    const int64_t before = marked > ended ? marked : ended;
    const bool padded = term > before;
    return padded && edge < term && edge >= before + PS_HEADER_BYTES ? term : edge;
}

/* Up to where a receiver has room, as configured. */
static int64_t edge_of(const ps_image_t *image)
{
    const int64_t half = image->log.term_length / 2;
    const bool pressure = (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    const int64_t window = pressure                            ? half + half / 2
                           : image->params.window_bytes > half ? half
                                                               : image->params.window_bytes;
    return image_released(image) + window;
}

static const ps_publication_t *publication_of(const ps_simworld_t *world,
                                              const ps_sim_publisher_t *publisher)
{
    const ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    const ps_driver_t *driver = world->slots[publisher->params.host].driver;
    for (int32_t i = 0; driver != NULL && i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        if (pub->log.session_id == ledger->session_id && pub->log.stream_id == ledger->stream_id) {
            return pub;
        }
    }
    return NULL;
}

/* Notes what was stated to the publications of a host: a later daemon adopts their limits. */
static void note_stated(ps_probe_t *probe, int32_t host)
{
    ps_simworld_t *world = probe->world;
    for (int32_t i = 0; i < probe->pub_count; i++) {
        const ps_probe_pub_t *model = probe->pubs[i];
        for (int32_t at = 0; model->host == host && at < world->ledger_count; at++) {
            ps_sim_ledger_t *ledger = &world->ledgers[at];
            if (ledger->session_id == model->pub->log.session_id &&
                ledger->stream_id == model->pub->log.stream_id &&
                model->stated_edge > ledger->stated) {
                ledger->stated = model->stated_edge;
            }
        }
    }
}

void ps_sim_bound_watch(ps_probe_t *probe, int32_t host)
{
    ps_simworld_t *world = probe->world;
    const ps_driver_t *driver = world->slots[host].driver;
    if (world->simnet->injected) {
        note_stated(probe, host);
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        if (image->state != PS_IMAGE_ACTIVE) {
            continue;
        }
        ps_probe_image_t *model = ps_probe_image_of(probe, host, image, world->now_ns);
        const int64_t edge = edge_of(image);
        if (model != NULL && edge > model->granted) {
            model->granted = edge;
        }
        for (int32_t at = 0; at < world->ledger_count; at++) {
            ps_sim_ledger_t *ledger = &world->ledgers[at];
            if (ledger->session_id == image->params.session_id &&
                ledger->stream_id == image->params.stream_id) {
                ledger->edge = edge > ledger->edge ? edge : ledger->edge;
            }
        }
    }
}

static void fail(ps_simworld_t *world, const ps_sim_publisher_t *publisher, int64_t start,
                 int64_t bound, const char *who)
{
    ps_sim_violate(world,
                   "stream %d: a message was accepted at %lld, the windows of %s end at "
                   "%lld",
                   world->ledgers[publisher->params.ledger].stream_id, (long long)start, who,
                   (long long)bound);
}

static void check_local(ps_simworld_t *world, const ps_sim_publisher_t *publisher,
                        const ps_publication_t *pub, int64_t start, int64_t window)
{
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const int64_t position = load(pub->subscribers[i].cell);
        if (gates(pub->subscribers[i].tether.state) && !pub->subscribers[i].isolation.lagged &&
            position < slowest) {
            slowest = position;
        }
    }
    if (slowest != INT64_MAX && start >= slowest + window) {
        fail(world, publisher, start, slowest + window, "a reader on its host");
    }
}

/* The image of a receiver; NULL: it has gone, or its host has. */
static const ps_probe_image_t *image_of(ps_probe_t *probe, const ps_publication_t *pub,
                                        int64_t receiver_id)
{
    const ps_simworld_t *world = probe->world;
    for (int32_t host = 0; host < world->simnet->host_count; host++) {
        const ps_driver_t *driver = world->slots[host].driver;
        for (int32_t i = 0; driver != NULL && i < driver->receiver->n_images; i++) {
            const ps_image_t *image = driver->receiver->images[i];
            if (image->params.session_id == pub->log.session_id &&
                image->params.stream_id == pub->log.stream_id && image->state == PS_IMAGE_ACTIVE &&
                image->endpoint != NULL && image->endpoint->params.receiver_id == receiver_id) {
                return ps_probe_image_of(probe, host, image, world->now_ns);
            }
        }
    }
    return NULL;
}

static void check_followed(ps_probe_t *probe, const ps_sim_publisher_t *publisher,
                           const ps_publication_t *pub, int64_t start, int64_t window)
{
    ps_simworld_t *world = probe->world;
    const ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    ps_probe_pub_t *model =
        ps_probe_pub(probe, publisher->params.host, pub->log.session_id, pub->log.stream_id);
    for (int32_t i = 0; model != NULL && i < model->receiver_count; i++) {
        ps_probe_receiver_t *receiver = &model->receivers[i];
        const ps_probe_image_t *image =
            receiver->followed && !receiver->leaving ? image_of(probe, pub, receiver->id) : NULL;
        if (image == NULL) {
            continue;
        }
        const int64_t edge = past_padding(ledger, pub, image->granted);
        /* A receiver that joins, or returns to the group, may have been left behind before. */
        receiver->within = receiver->within || (model->high <= edge && pub->sender_limit <= edge);
        if (receiver->within && start >= edge + window) {
            fail(world, publisher, start, edge + window, "a receiver that is followed");
            receiver->within = false;
        }
    }
}

void ps_sim_bound_check(ps_probe_t *probe, const ps_sim_publisher_t *publisher, int64_t end,
                        int32_t size)
{
    ps_simworld_t *world = probe->world;
    ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
    const ps_publication_t *pub = publication_of(world, publisher);
    if (pub == NULL) {
        return;
    }
    const int64_t start = end - ps_sim_framed_bytes(pub, size);
    ps_sim_lead_check(world, publisher, pub, start);
    ps_sim_credit_check(probe, publisher);
    const int64_t window = pub->params.window_bytes < pub->log.term_length
                               ? pub->params.window_bytes
                               : pub->log.term_length;
    check_local(world, publisher, pub, start, window);
    if (pub->endpoint == NULL || pub->params.spies_simulate_connection) {
        return; /* spies that stand for receivers: no receiver needs room */
    }
    for (int32_t host = 0; host < world->simnet->host_count; host++) {
        if (world->slots[host].driver != NULL) {
            ps_sim_bound_watch(probe, host);
        }
    }
    /* Strangers state windows, too: what any of them ever said counts, whatever it has. */
    const int64_t furthest = ledger->stated > ledger->edge ? ledger->stated : ledger->edge;
    const int64_t edge = past_padding(ledger, pub, furthest);
    if (ledger->edge > 0 && start >= edge + window) {
        fail(world, publisher, start, edge + window, "the receiver furthest on");
        ledger->edge = INT64_MAX / 2;
    }
    if (pub->params.flow_control == PS_FC_MIN || pub->params.flow_control == PS_FC_TAGGED) {
        check_followed(probe, publisher, pub, start, window);
    }
}
