/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_work.c: what a duty cycle says of itself and whom it wakes.
 *
 *   work     a cycle that read, sent or moved anything says so, or its thread would go to sleep
 *            while there is more; one that did nothing says none, or it would never sleep
 *   look     what a thread checks before it parks: work is seen, and no work is not
 *   wake     whoever sleeps until there is news is woken by the cycle that brings it, and nobody
 *            is woken by one that brings none
 */
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

/* Datagrams and commands in a second of a host that has little to do. */
enum { QUIET = 20 };
#define SECOND INT64_C(1000000000)

static void complain(ps_probe_t *probe, int32_t host, const char *what, int64_t a, int64_t b)
{
    ps_probe_fail(probe, host, 0, "%s (%lld, %lld)", what, (long long)a, (long long)b);
}

/* Mixed, so that one going up by what another goes down by is seen. */
static uint64_t mix(uint64_t sum, int64_t value)
{
    return (sum ^ (uint64_t)value) * UINT64_C(0x9E3779B97F4A7C15);
}

/* Returns a hash over all positions. */
static uint64_t positions(const ps_driver_t *driver)
{
    /* An answer counts even when it has nowhere to go. */
    uint64_t sum = mix(0, atomic_load_explicit(ps_counter_cell(driver->context.params.cnc,
                                                               PS_SYS_RETRANSMITTED_BYTES),
                                               memory_order_relaxed));
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        sum =
            mix(mix(mix(sum, pub->sender_position), pub->producer_position), pub->slowest_position);
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        /* A request that leaves counts as work even if no sender receives it. */
        sum = mix(mix(mix(mix(sum, image->position), image->consumption), image->ordinal_position),
                  atomic_load_explicit(image->naks_cell, memory_order_relaxed));
    }
    return sum;
}

static int64_t readers(const ps_driver_t *driver)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        sum = mix(sum, pub->gating_count > 0 ? pub->slowest_position : 0);
    }
    return (int64_t)sum;
}

static bool is_notified(const ps_driver_t *driver)
{
    const ps_sender_t *sender = driver->sender;
    for (int32_t word = 0; word * 64 < sender->capacity; word++) {
        if (atomic_load_explicit(&sender->shared->dirty[word], memory_order_relaxed) != 0) {
            return true;
        }
    }
    return false;
}

/* ---- before a thread parks ------------------------------------------------------------------- */

static bool is_released_to(int64_t slowest, int64_t wake)
{
    return slowest != INT64_MAX && slowest >= wake;
}

/* The less of the two, if the reader counts. */
static int64_t slower(int64_t slowest, const ps_tether_t *tether, const ps_isolation_t *isolation,
                      const _Atomic int64_t *position)
{
    const int64_t at = atomic_load_explicit(position, memory_order_relaxed);
    const bool gates = !isolation->lagged &&
                       (tether->state == PS_TETHER_ACTIVE || tether->state == PS_TETHER_LINGER);
    return gates && at < slowest ? at : slowest;
}

static int64_t slowest_local(const ps_publication_t *pub)
{
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        const ps_publication_subscriber_t *reader = &pub->subscribers[i];
        slowest = slower(slowest, &reader->tether, &reader->isolation, reader->cell);
    }
    return slowest;
}

/* A reader has returned as many credits as the receiver waits for. */
static bool is_returned(const ps_image_t *image)
{
    bool returned = false;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_subscriber_slot_t *slot = image->subscribers[i].credit.slot;
        returned =
            returned ||
            (slot != NULL && atomic_load_explicit(&slot->credit_returned, memory_order_relaxed) >=
                                 atomic_load_explicit(&slot->credit_wake, memory_order_relaxed));
    }
    return returned;
}

static void check_intervals(ps_probe_t *probe, int32_t host)
{
    ps_driver_t *driver = ps_probe_driver(probe, host);
    bool sender_due = is_notified(driver) || driver->sender->bands.waiting > 0;
    bool receiver_due = false;
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        const int64_t wake = atomic_load_explicit(&pub->slot->wake_position, memory_order_relaxed);
        const bool wants = wake != INT64_MAX && is_released_to(slowest_local(pub), wake);
        sender_due = sender_due || (wants && pub->in_watch);
        if (ps_publication_wants_sender(pub) != wants && pub->gating_count > 0) {
            complain(probe, host, "a reader's release is seen otherwise", wants, wake);
        }
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        int64_t slowest = INT64_MAX;
        for (int32_t j = 0; j < image->n_subscribers; j++) {
            const ps_image_subscriber_t *reader = &image->subscribers[j];
            slowest = slower(slowest, &reader->tether, &reader->isolation, reader->position);
        }
        receiver_due = receiver_due ||
                       (image->hot != 0 &&
                        ((is_released_to(slowest, ps_probe_sm_due(image, image->sm_position)) &&
                          image->sm_postponed == 0) ||
                         is_returned(image)));
    }
    if (ps_sender_has_work(driver->sender) != sender_due) {
        complain(probe, host, "the sender looks for work and sees otherwise", sender_due, 0);
    }
    if (ps_receiver_has_work(driver->receiver) != receiver_due) {
        complain(probe, host, "the receiver looks for work and sees otherwise", receiver_due, 0);
    }
}

/* ---- who sleeps ------------------------------------------------------------------------------ */

static uint32_t word_of(const ps_shared_t *shared, int32_t slot)
{
    return atomic_load_explicit(&shared->clients[slot].futex_word, memory_order_relaxed);
}

/* Returns a hash over all states that a thread may wait for, except positions. */
static uint64_t reported(const ps_driver_t *driver)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        sum = mix(mix(mix(mix(sum, pub->publisher_limit), pub->connected), pub->state),
                  atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed));
    }
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        sum = mix(mix(sum, image->end_position), image->state);
    }
    return sum;
}

static void note_sleepers(ps_probe_t *probe, int32_t host)
{
    for (int32_t i = 0; i < probe->pub_count; i++) {
        ps_probe_pub_t *model = probe->pubs[i];
        const ps_publication_t *pub = model->pub;
        if (model->host != host) {
            continue;
        }
        /* A publisher whose offer was refused sleeps until there is room. */
        if (pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked && pub->client_count > 0 &&
            ps_log_producer_position(&pub->log) >= pub->publisher_limit) {
            atomic_store_explicit(&pub->slot->want_room, 1, memory_order_relaxed);
        }
        model->shown.marked =
            atomic_load_explicit(&pub->slot->dirty, memory_order_relaxed) == PS_DIRTY_DATA;
        model->shown.connected = pub->connected;
        model->shown.state = pub->state;
        model->shown.limit = pub->publisher_limit;
    }
    for (int32_t i = 0; i < probe->image_count; i++) {
        ps_probe_image_t *model = probe->images[i];
        if (model->host == host) {
            model->shown.limit = model->image->position;
            model->shown.state = model->image->end_position != INT64_MAX;
        }
    }
}

static bool is_woken(const ps_probe_t *probe, int32_t host, int32_t slot)
{
    const ps_shared_t *shared = ps_probe_driver(probe, host)->sender->shared;
    return slot < 0 || slot >= PS_PROBE_CLIENTS || slot >= shared->n_clients ||
           word_of(shared, slot) != probe->cycles[host].woken[slot];
}

static void check_publishers(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const bool notifies =
        pub->connected != model->shown.connected || pub->state != model->shown.state;
    const bool waits = atomic_load_explicit(&pub->slot->want_room, memory_order_relaxed) != 0 &&
                       !ps_probe_relay_goes_on(probe, pub);
    bool readers_woken = true;
    bool clients_woken = true;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        readers_woken =
            readers_woken && is_woken(probe, model->host, pub->subscribers[i].client_slot);
    }
    for (int32_t i = 0; i < pub->client_count; i++) {
        clients_woken = clients_woken && is_woken(probe, model->host, pub->clients[i]);
    }
    /* Readers are woken when the end becomes known. When all readers have reached it, only the
     * conductor is notified. */
    const bool ends = pub->state != model->shown.state && pub->state != PS_PUBLICATION_DRAINED;
    if (!readers_woken && (model->shown.marked || ends)) {
        complain(probe, model->host, "readers are not told of what was published",
                 pub->producer_position, pub->slowest_position);
    }
    if (!clients_woken && notifies) {
        complain(probe, model->host, "publishers are not told of their connection or its end",
                 pub->connected, pub->state);
    }
    /* While the sender has more to send at once, a little room waits for more. */
    const int64_t room = pub->publisher_limit - ps_log_producer_position(&pub->log);
    const int64_t least = pub->turn.queued ? pub->window_bytes / 8 : 1;
    ps_probe_promise(probe, &model->promises[P_PUB_WAKE],
                     !waits || clients_woken || room < least || pub->state != PS_PUBLICATION_ACTIVE,
                     now_ns, ps_probe_turn_slack_ns(probe, model->host),
                     "who waits for room is woken", model->host, pub->log.session_id);
}

static void check_sleepers(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    const ps_probe_cycle_t *cycle = &probe->cycles[host];
    for (int32_t i = 0; i < probe->pub_count; i++) {
        if (probe->pubs[i]->host == host && probe->pubs[i]->seen && !cycle->commanded) {
            check_publishers(probe, probe->pubs[i], now_ns);
        }
    }
    for (int32_t i = 0; i < probe->image_count; i++) {
        const ps_probe_image_t *model = probe->images[i];
        const ps_image_t *image = model->image;
        if (model->host != host || !model->seen || cycle->commanded) {
            continue;
        }
        const bool notifies = image->position != model->shown.limit ||
                              (image->end_position != INT64_MAX) != model->shown.state;
        for (int32_t j = 0; notifies && j < image->n_subscribers; j++) {
            if (!is_woken(probe, host, image->subscribers[j].client_slot)) {
                complain(probe, host, "readers are not told of what came", image->position,
                         model->shown.limit);
            }
        }
    }
    /* A status message may connect again what was cut off in the same cycle. */
    const bool none = !cycle->commanded && !cycle->notified && cycle->read == 0 &&
                      reported(driver) == cycle->reported && positions(driver) == cycle->positions;
    for (int32_t i = 0; none && i < PS_PROBE_CLIENTS; i++) {
        if (i < driver->sender->shared->n_clients &&
            word_of(driver->sender->shared, i) != cycle->woken[i]) {
            complain(probe, host, "a client is woken for nothing", i, 0);
        }
    }
}

/* ---- around a cycle -------------------------------------------------------------------------- */

void ps_probe_before(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    ps_driver_t *driver = ps_probe_driver(probe, host);
    ps_probe_cycle_t *cycle = &probe->cycles[host];
    check_intervals(probe, host);
    *cycle = (ps_probe_cycle_t){ .commanded = !ps_ring_is_empty(&driver->agents[0].commands) ||
                                              !ps_ring_is_empty(&driver->agents[1].commands),
                                 .notified = is_notified(driver),
                                 .turns = driver->sender->bands.waiting > 0 ||
                                          driver->sender->scan_index >= 0 ||
                                          driver->sender->min_due_ns <= now_ns,
                                 .timed = ps_driver_next_deadline_ns(driver, now_ns) <= now_ns,
                                 .tick_ns = driver->receiver->last_tick_ns,
                                 .positions = positions(driver),
                                 .readers = readers(driver) };
    for (int32_t i = 0; i < PS_PROBE_CLIENTS; i++) {
        cycle->woken[i] =
            i < driver->sender->shared->n_clients ? word_of(driver->sender->shared, i) : 0;
    }
    note_sleepers(probe, host);
    ps_probe_bands_begin(probe, host, now_ns);
    cycle->reported = reported(driver);
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        cycle->events[id] =
            atomic_load_explicit(&driver->agents[id].events.tail, memory_order_relaxed);
    }
}

static void check_work(ps_probe_t *probe, int32_t host, int32_t work)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    const ps_probe_cycle_t *cycle = &probe->cycles[host];
    bool behind = false;
    for (int32_t i = 0; i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        behind = behind || (image->ordinal >= 0 && image->ordinal_position < image->position);
    }
    const bool ticked = driver->receiver->last_tick_ns != cycle->tick_ns;
    const bool moved = positions(driver) != cycle->positions;
    const bool did = cycle->commanded || cycle->notified || cycle->read > 0 || cycle->data > 0 ||
                     cycle->answers > 0 || ticked || moved || behind;
    const bool must = cycle->commanded || cycle->notified || cycle->read > 0 || cycle->data > 0 ||
                      cycle->answers > 0 || behind ||
                      (!cycle->turns && readers(driver) != cycle->readers);
    if (work > 0 && !did) {
        complain(probe, host, "a cycle that did nothing reports work", work, 0);
    }
    if (work == 0 && must) {
        complain(probe, host, "a cycle that did something reports no work", cycle->read,
                 cycle->data);
    }
}

/* Returns the number of publications that wait until all that their publishers took before a freeze
 * is in the log and sent. Each looks once in a tick, for the publishers do not tell. */
static int32_t settling(const ps_driver_t *driver)
{
    int32_t count = 0;
    for (int32_t i = 0; i < driver->sender->publication_count; i++) {
        const ps_publication_credits_t *credits = &driver->sender->publications[i]->credits;
        count += credits->revoked && !credits->settled;
    }
    return count;
}

/* Timers wake a thread, most of them for something. On a host with little work each stream may run
 * a check from time to time; a timer that is due in each cycle was not moved. Other events that
 * step a host, such as a datagram without a socket, would not wake a thread. */
static void check_vain(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    const ps_probe_cycle_t *cycle = &probe->cycles[host];
    bool quiet = true;
    for (int32_t id = 0; id < PS_AGENTS; id++) {
        const ps_ring_t *ring = &driver->agents[id].events;
        const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        quiet = quiet && cycle->events[id] - head + 1 < ring->capacity &&
                cycle->events[id] == atomic_load_explicit(&ring->tail, memory_order_relaxed);
    }
    const int64_t objects = driver->sender->publication_count + driver->receiver->n_images;
    probe->settling_ns[host] += settling(driver) * (now_ns - probe->checked_ns[host]);
    probe->checked_ns[host] = now_ns;
    if (now_ns - probe->vain_ns[host] >= SECOND) {
        if (probe->busy[host] < QUIET && now_ns - probe->vain_ns[host] < 2 * SECOND &&
            probe->vain[host] > 300 + 50 * objects + probe->settling_ns[host] / PS_TICK_NS) {
            complain(probe, host, "a host that has nothing to do does not rest", probe->vain[host],
                     probe->busy[host]);
        }
        probe->vain_ns[host] = now_ns;
        probe->settling_ns[host] = 0;
        probe->vain[host] = 0;
        probe->busy[host] = 0;
    }
    probe->busy[host] += cycle->read + cycle->sent + cycle->notified + cycle->commanded;
    probe->vain[host] += quiet && cycle->timed && !cycle->commanded && !cycle->notified &&
                         cycle->read == 0 && cycle->sent == 0 &&
                         reported(driver) == cycle->reported &&
                         positions(driver) == cycle->positions;
}

void ps_probe_work_check(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns)
{
    check_vain(probe, host, now_ns);
    check_work(probe, host, work);
    check_sleepers(probe, host, now_ns);
}
