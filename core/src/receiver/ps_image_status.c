/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_image_status.c: once a duty cycle for each hot image: publishes the contiguous position, reads
 * the consumed positions, and decides whether to send a status message.
 *
 * A status message leaves when consumption advanced by more than a quarter window or into another
 * term. It also leaves when the window changed, when it is forced, and by time. It states the
 * current consumption of the slowest gating subscriber (docs/decisions/0013). */
#include <string.h>

#include "ps_image.h"
#include "ps_relay.h"
#include "ps_assert.h"
#include "ps_inline.h"

#include "ps_receiver.h"

enum { PS_PPM = 1000000 };

/* ---- consumption ----------------------------------------------------------------------------- */

/* Another process writes the counter, so a position outside [join, rcv-pos] or between frames is
 * corrected. */
int64_t ps_image_position_of(const ps_image_t *image, const ps_image_subscriber_t *subscriber)
{
    /* Acquire: the client's reads precede its release store, and overwriting follows this load. */
    int64_t position = atomic_load_explicit(subscriber->position, memory_order_acquire);
    int64_t end = ps_image_contiguous(image);

    position &= ~(int64_t)(PS_FRAME_ALIGNMENT - 1);
    if (position < image->join_position) {
        return image->join_position;
    }
    return position < end ? position : end;
}

/* Slowest gating subscriber (-1 none), its index in *who, and the fastest in *fastest. */
static int64_t slowest_of(const ps_image_t *image, int32_t *who, int64_t *fastest)
{
    int64_t slowest = INT64_MAX;

    *who = -1;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        int64_t position;

        if (!ps_tether_gates(&subscriber->tether)) {
            continue;
        }
        position = ps_image_position_of(image, subscriber);
        if (position < slowest) {
            slowest = position;
            *who = i;
        }
        *fastest = position > *fastest ? position : *fastest;
    }
    return *who < 0 ? -1 : slowest;
}

/* Emits PS_EV_READER_LAGGED if that is due; if the ring is full, at a later look. */
static void report_reader(ps_image_t *image, ps_image_subscriber_t *subscriber, int64_t behind)
{
    ps_isolation_t *isolation = &subscriber->isolation;
    const int64_t now_ns = image->receiver->now_ns;
    if (!ps_isolation_due(isolation, now_ns)) {
        return;
    }
    ps_event_t event = { .type = PS_EV_READER_LAGGED,
                         .reader = { .behind = behind,
                                     .messages = ps_isolation_skipped(isolation),
                                     .duration_ns = now_ns - isolation->since_ns,
                                     .position_counter_id = subscriber->position_counter_id,
                                     .lagged = isolation->lagged } };
    if (ps_image_emit(image, &event)) {
        ps_isolation_reported(isolation, now_ns);
    }
}

/* Looks which isolated readers are behind their depth. When the image ends nothing is written any
 * more, and each reader reads the rest. The mark is not below what this cycle releases: consumption
 * is at most the leader. */
static PS_NOINLINE void look_at_isolated(ps_image_t *image)
{
    const int64_t leader = ps_image_contiguous(image);
    const int64_t kept = leader - image->log.term_length;
    const int64_t mark = kept > image->free_to ? kept : image->free_to;
    atomic_store_explicit(&image->leader, leader, memory_order_relaxed);
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        ps_image_subscriber_t *subscriber = &image->subscribers[i];
        if (subscriber->isolation.slot == NULL) {
            continue;
        }
        subscriber->position = subscriber->cell;
        const int64_t position = ps_image_position_of(image, subscriber);
        (void)ps_isolation_count(&subscriber->isolation, &image->log, leader);
        (void)ps_isolation_step(&subscriber->isolation, position, leader);
        if (subscriber->isolation.lagged && image->state == PS_IMAGE_ACTIVE) {
            subscriber->position = &image->leader;
        }
        ps_isolation_mark(&subscriber->isolation, mark, leader, image->receiver->now_ns);
        ps_image_timer(image, ps_isolation_next_ns(&subscriber->isolation, position, leader));
        report_reader(image, subscriber, leader - position);
    }
    ps_isolation_publish();
}

void ps_image_consumption(ps_image_t *image)
{
    if (__builtin_expect(image->n_isolated != 0, 0)) {
        look_at_isolated(image);
    }

    int32_t who;
    int64_t slowest = slowest_of(image, &who, &image->fastest);
    int64_t unread;
    int64_t fill = 0;
    int64_t client = 0;
    int32_t limiting_slot = -1;
    int32_t limiting_subscriber = -1;

    image->gating = who >= 0;
    if (slowest > image->consumption) {
        image->consumption = slowest; /* a late joiner behind it holds the rest, not this back */
        atomic_store_explicit(&image->shown_slowest, slowest, memory_order_release);
    }
    unread = ps_image_contiguous(image) - image->consumption;
    if (image->congestion.window_max > 0) {
        int64_t most =
            ps_image_under_nak(image) ? image->log.term_length / 2 : image->congestion.window_max;

        fill = unread >= most ? PS_PPM : unread * PS_PPM / most;
    }
    if (unread > 0 && who >= 0) {
        int32_t slot = image->subscribers[who].client_slot;

        if (slot >= 0 && slot < image->receiver->shared->n_clients) {
            limiting_slot = slot;
            limiting_subscriber = image->subscribers[who].slot;
            client = atomic_load_explicit(&image->receiver->shared->clients[slot].id,
                                          memory_order_relaxed);
        }
    }
    atomic_store_explicit(&image->slot->fill_ppm, (int32_t)fill, memory_order_relaxed);
    atomic_store_explicit(&image->slot->limiting_client, client, memory_order_relaxed);
    image->limiting_slot = limiting_slot;
    image->limiting_subscriber = limiting_subscriber;
}

int64_t ps_image_rejoin_position(const ps_image_t *image)
{
    int32_t who;
    int64_t fastest = 0;
    int64_t slowest = slowest_of(image, &who, &fastest);

    return slowest >= 0 ? slowest : ps_image_contiguous(image);
}

/* Returns the position at which a release makes a status message due. */
static int64_t due_position(const ps_image_t *image)
{
    if (ps_image_is_silent(image)) {
        const int64_t eighth = image->log.term_length / 8;

        /* The sender ends a window with what does not fit: that much less must do. */
        return image->sm_position +
               (image->log.mtu < eighth / 2 ? eighth - image->log.mtu : eighth / 2);
    }

    int64_t quarter = image->sm_position + image->window / 4 + 1;
    int64_t term_end = (image->sm_position | image->log.term_mask) + 1;

    return quarter < term_end ? quarter : term_end;
}

bool ps_image_release_due(const ps_image_t *image)
{
    int32_t who;
    int64_t fastest = 0;

    return (!image->sm_postponed && slowest_of(image, &who, &fastest) >= due_position(image)) ||
           ps_image_credit_is_due(image);
}

/* ---- status messages ------------------------------------------------------------------------- */

/* Returns the number of messages below the consumed position from the index: exact at the end, else
 * a lower bound. */
static int64_t released_ordinal(const ps_image_t *image)
{
    uint64_t count = atomic_load_explicit(&image->ring->count, memory_order_relaxed);
    const uint64_t first = count > PS_INDEX_ENTRIES ? count - PS_INDEX_ENTRIES : 0;
    uint64_t oldest = first;

    if (image->ordinal < 0) {
        return -1;
    }
    if (image->consumption >= image->ordinal_position) {
        return image->ordinal;
    }
    while (oldest < count) { /* newest entry at or below consumption */
        uint64_t middle = oldest + (count - oldest) / 2;
        const ps_index_entry_t *entry = &image->ring->entries[middle % PS_INDEX_ENTRIES];

        if (atomic_load_explicit(&((ps_index_entry_t *)(uintptr_t)entry)->position,
                                 memory_order_relaxed) <= image->consumption) {
            oldest = middle + 1;
        } else {
            count = middle;
        }
    }
    if (oldest == first) {
        return -1; /* the ring does not reach back so far */
    }
    return atomic_load_explicit(&image->ring->entries[(oldest - 1) % PS_INDEX_ENTRIES].ordinal,
                                memory_order_relaxed);
}

/* Returns true if the data above the first gap takes at least half of the window. */
static bool waits_for_repair(const ps_image_t *image)
{
    return image->gaps.count > 0 && image->hwm - ps_image_contiguous(image) >= image->window / 2;
}

/* States the client that limits this image: behind a relay the application that holds the relay. */
static void state_reason(const ps_image_t *image, ps_trailer_t *trailer)
{
    const ps_shared_t *shared = image->receiver->shared;
    const char *host = image->receiver->params->host;
    ps_beyond_t beyond;

    trailer->reason = PS_CAUSE_SLOW_SUBSCRIBER;
    trailer->reason_client =
        atomic_load_explicit(&image->slot->limiting_client, memory_order_relaxed);
    trailer->reason_backlog_bytes = ps_image_contiguous(image) - image->consumption;
    if (image->limiting_slot < 0) {
        return;
    }
    if (ps_relay_beyond(shared, image->limiting_subscriber, &beyond)) {
        trailer->reason_client = beyond.client;
        trailer->reason_backlog_bytes += beyond.backlog_bytes;
        ps_name_copy(trailer->client_name, beyond.name);
        ps_name_copy(trailer->host, beyond.host[0] != '\0' ? beyond.host : host);
        return;
    }
    ps_name_copy(trailer->client_name, shared->clients[image->limiting_slot].name);
    ps_name_copy(trailer->host, host);
}

static void fill_trailer(const ps_image_t *image, ps_trailer_t *trailer)
{
    const ps_driver_params_t *params = image->receiver->params;
    int32_t fill = atomic_load_explicit(&image->slot->fill_ppm, memory_order_relaxed);

    *trailer = (ps_trailer_t){ .capabilities = PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_PRESSURE |
                                               PS_CAP_KEEPS_TERM | PS_CAP_CREDITS,
                               .daemon_id = params->daemon_id,
                               .daemon_epoch = params->daemon_epoch,
                               .ordinal = -1,
                               .credit_limit = -1,
                               .released_ordinal = released_ordinal(image),
                               .fill_ppm = (uint32_t)fill };
    if (image->storage_binds) {
        trailer->reason = PS_CAUSE_STORAGE;
    } else if (fill >= PS_PPM / 2) {
        state_reason(image, trailer);
    } else if (image->congestion.binds) {
        trailer->reason = PS_CAUSE_CONGESTION_WINDOW;
    } else if (waits_for_repair(image)) {
        trailer->reason = PS_CAUSE_LOSS_REPAIR;
    }
    ps_image_credit_fill(image, trailer);
    trailer->congestion_window = ps_congestion_window(&image->congestion);
    trailer->pacing_rate = ps_congestion_rate(&image->congestion);
    trailer->rtt_ns = image->rtt.smoothed_ns;
}

/* Returns the longest time between status messages while the stream moves. */
static int64_t sm_interval_ns(const ps_image_t *image)
{
    const int64_t timeout_ns = image->receiver->params->status_message_timeout_ns;

    return ps_image_is_silent(image) && timeout_ns < PS_SM_IDLE_NS ? PS_SM_IDLE_NS : timeout_ns;
}

static void arm_sm_timer(ps_image_t *image, int64_t now_ns)
{
    const ps_driver_params_t *params = image->receiver->params;
    int64_t interval_ns = sm_interval_ns(image);

    if (image->state == PS_IMAGE_ACTIVE && now_ns - image->moved_ns >= params->idle_after_ns &&
        interval_ns < PS_SM_IDLE_NS) {
        interval_ns = PS_SM_IDLE_NS;
    }
    image->sm_due_ns = now_ns + interval_ns;
    if (interval_ns == PS_SM_IDLE_NS) {
        /* On a common grid, so that many idle streams share few wake-ups. */
        image->sm_due_ns -= image->sm_due_ns % PS_SM_IDLE_GRID_NS;
    }
    ps_image_timer(image, image->sm_due_ns);
}

static void show_congestion(const ps_image_t *image)
{
    int64_t window = ps_congestion_window(&image->congestion);

    atomic_store_explicit(&image->slot->congestion_window, window, memory_order_relaxed);
    if (window > 0) {
        atomic_store_explicit(image->congestion_window_cell, window, memory_order_relaxed);
    }
}

/* Keeps a status message, so that an image that rests can send it again (ps_image_rest.c). */
static void keep_sm(ps_image_t *image, const uint8_t *frame, uint32_t length)
{
    image->sm_length = length <= sizeof(image->sm_bytes) ? length : 0;
    memcpy(image->sm_bytes, frame, image->sm_length);
}

void ps_image_send_sm(ps_image_t *image, int64_t now_ns)
{
    ps_receiver_t *receiver = image->receiver;
    const ps_log_t *log = &image->log;
    int64_t position = image->consumption;
    const ps_place_t place = ps_place_of(position, log->shift, log->initial_term_id);
    ps_trailer_t trailer;
    ps_sm_t sm;

    image->force_sm = 0;
    image->sm_postponed = 0;
    image->last_sm_ns = now_ns;
    arm_sm_timer(image, now_ns);
    if (image->endpoint == NULL || image->rejected) {
        return;
    }
    sm = (ps_sm_t){ .session_id = image->params.session_id,
                    .stream_id = image->params.stream_id,
                    .term_id = place.term_id,
                    .term_offset = place.term_offset,
                    .window = image->window,
                    .receiver_id = image->endpoint->params.receiver_id,
                    .group_tag = image->endpoint->params.group_tag,
                    .has_group_tag = image->endpoint->params.has_group_tag,
                    .flags = image->state >= PS_IMAGE_DRAINING ? PS_SM_EOS : 0 };
    if (receiver->params->advertise) {
        fill_trailer(image, &trailer);
    }
    for (int32_t i = 0; i < image->endpoint->destinations_end; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(receiver, destination, &image->connections[i].control);
            const uint32_t length =
                ps_wire_build_sm(frame, &sm, receiver->params->advertise ? &trailer : NULL);

            ps_receiver_outbox_commit(receiver, length);
            receiver->sm_sent++;
            if (image->resting) {
                keep_sm(image, frame, length);
            }
        }
    }
    image->credits.stated = image->credits.limit;
    image->sm_position = position;
    image->sent_window = image->window;
    image->sent_bound = image->storage_binds;
    atomic_store_explicit(&image->slot->window_bytes, image->window, memory_order_relaxed);
    show_congestion(image);
}

void ps_image_send_rttm(ps_image_t *image, int64_t now_ns)
{
    ps_receiver_t *receiver = image->receiver;
    ps_rttm_t rttm = { .session_id = image->params.session_id,
                       .stream_id = image->params.stream_id,
                       .echo_ns = now_ns,
                       .flags = PS_RTTM_REPLY };

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX && image->endpoint != NULL; i++) {
        const ps_recv_destination_t *destination = image->endpoint->destinations[i];

        if (destination != NULL && ps_image_connection_live(image, i, now_ns)) {
            uint8_t *frame =
                ps_receiver_outbox(receiver, destination, &image->connections[i].control);

            rttm.receiver_id = image->endpoint->params.receiver_id;
            ps_receiver_outbox_commit(receiver, ps_wire_build_rttm(frame, &rttm));
            ps_rtt_requested(&image->rtt, now_ns);
            image->rtt_due_ns =
                now_ns + ps_congestion_rtt_interval_ns(&image->congestion, image->rtt.smoothed_ns);
            break;
        }
    }
}

/* ---- the cycle ------------------------------------------------------------------------------- */

static void start(ps_image_t *image, int64_t now_ns)
{
    image->started = 1;
    image->packet_ns = now_ns;
    image->moved_ns = now_ns;
    ps_image_timer(image, now_ns + image->receiver->params->image_liveness_timeout_ns);
}

static bool publish(ps_image_t *image, int64_t now_ns)
{
    int64_t contiguous = ps_image_contiguous(image);
    bool advanced = contiguous != image->position;

    atomic_store_explicit(image->high_water_cell, image->hwm, memory_order_release);
    atomic_store_explicit(&image->slot->gaps, image->gaps.count, memory_order_relaxed);
    atomic_store_explicit(&image->shown_gaps, image->gaps.count, memory_order_relaxed);
    atomic_store_explicit(&image->shown_subscribers, image->n_subscribers, memory_order_relaxed);
    if (advanced) {
        PS_ASSERT(contiguous > image->position);
        image->position = contiguous;
        /* Noted before the position is stored, so that a batch that ends there finds its time. */
        ps_times_note(image->times, contiguous, now_ns + ps_context_epoch_offset_ns(image->context),
                      image->log.term_length);
        atomic_store_explicit(image->position_cell, contiguous, memory_order_release);
        image->wake = 1;
        if (now_ns >= image->rtt_due_ns && image->state == PS_IMAGE_ACTIVE &&
            ps_rtt_ready(&image->rtt, now_ns)) {
            ps_image_send_rttm(image, now_ns);
        }
    }
    return advanced;
}

static void note_movement(ps_image_t *image, int64_t now_ns)
{
    int64_t sum = image->position + image->consumption;
    int64_t due_ns = image->last_sm_ns + sm_interval_ns(image);

    if (sum != image->moved_position) {
        image->moved_position = sum;
        image->moved_ns = now_ns;
        if (image->sm_due_ns > due_ns) { /* was backed off */
            image->sm_due_ns = due_ns;
            ps_image_timer(image, due_ns);
        }
    }
}

/* The window ends at the end of storage, because data beyond would be dropped. Under NAK-strength
 * control the sender ignores the window up to half a term, unless storage is the stated reason or a
 * congestion window is stated. */
void ps_image_bound_window(ps_image_t *image)
{
    bool ahead = ps_image_under_nak(image) && ps_congestion_window(&image->congestion) == 0;
    int64_t most = ahead ? image->log.term_length / 2 : image->window;
    int64_t room = image->reserved_position - image->consumption;

    room = room > 0 ? room & ~(int64_t)(PS_FRAME_ALIGNMENT - 1) : 0;
    image->storage_binds = most > room;
    if (image->storage_binds) {
        image->window = (int32_t)room;
    }
}

/* Stores the input of a congestion control in the control plane (ps_image_get_congestion). */
static void show_to_class(ps_image_t *image, const ps_congestion_input_t *input)
{
    const int64_t from = image->join_position;
    const struct {
        _Atomic int64_t *cell;
        int64_t value;
    } rows[] = {
        { &image->shown_congestion.window, ps_congestion_window(&image->congestion) },
        { &image->shown_congestion.received, input->received - from },
        { &image->shown_congestion.consumed, input->consumption - from },
        { &image->shown_congestion.granted, input->granted - from },
        { &image->shown_congestion.losses, image->congestion.losses },
        { &image->shown_congestion.missing, image->gaps.missing },
        { &image->shown_congestion.rtt_ns, image->rtt.smoothed_ns },
        { &image->shown_congestion.least_rtt_ns, image->rtt.least_ns },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        atomic_store_explicit(rows[i].cell, rows[i].value, memory_order_relaxed);
    }
}

bool ps_image_update_window(ps_image_t *image, int64_t now_ns)
{
    ps_congestion_input_t input = { .now_ns = now_ns,
                                    .consumption = image->consumption,
                                    .granted = image->sm_position + image->sent_window,
                                    .received = image->hwm - image->gaps.missing,
                                    .new_loss = image->new_loss != 0,
                                    .loss_position = image->loss_position };
    bool forced = false;

    image->new_loss = 0;
    image->window = image->congestion.ops->on_rebuild(&image->congestion, &input, &forced);
    if (image->window_share > 0 && image->window > image->window_share) {
        image->window = (int32_t)image->window_share;
    }
    ps_image_bound_window(image);
    if (image->params.congestion_control == PS_CC_CUSTOM) {
        show_to_class(image, &input);
    }
    return forced;
}

/* Returns the least time between two status messages that the governor of this host states; 0:
 * none. Clients can write to the words, so an impossible value counts as none. */
static int64_t least_interval_ns(const ps_image_t *image, int64_t now_ns)
{
    const ps_driver_slot_t *driver = image->receiver->shared->driver;
    /* Acquire, before the other word: see publish() of the governor. */
    const int64_t age_ns =
        now_ns - atomic_load_explicit(&driver->pressure_ns, memory_order_acquire);
    const int64_t interval_ns =
        atomic_load_explicit(&driver->status_interval_ns, memory_order_relaxed);

    return age_ns >= 0 && age_ns < PS_PRESSURE_STALE_NS && interval_ns <= PS_STATUS_MOST_NS
               ? interval_ns
               : 0;
}

/* Returns true if a status message for released data waits: the host is under pressure, and the
 * sender still has more than half of the window. The controls of congestion and of NAK-strength
 * have intervals of their own. */
static PS_NOINLINE bool postpone_sm(ps_image_t *image, int64_t now_ns)
{
    const int64_t due_ns = image->last_sm_ns + least_interval_ns(image, now_ns);
    const int64_t open = image->sm_position + image->sent_window - image->hwm;

    image->sm_postponed = now_ns < due_ns && open > image->sent_window / 2 &&
                          image->params.congestion_control == PS_CC_STATIC &&
                          !ps_image_under_nak(image) && image->state == PS_IMAGE_ACTIVE;
    if (image->sm_postponed && due_ns < image->sm_due_ns) {
        image->sm_due_ns = due_ns;
        ps_image_timer(image, due_ns);
    }
    return image->sm_postponed;
}

static bool decide_sm(ps_image_t *image, int64_t now_ns)
{
    bool forced = ps_image_update_window(image, now_ns);

    forced |= ps_image_has_credits(image) && ps_image_credit_step(image, now_ns);
    forced |= image->force_sm != 0;
    if (forced || (image->consumption >= due_position(image) && !postpone_sm(image, now_ns))) {
        const int64_t before = image->receiver->sm_sent;
        ps_image_send_sm(image, now_ns);
        return image->receiver->sm_sent != before; /* without a path no frame leaves */
    }
    return false;
}

int32_t ps_image_cycle(ps_image_t *image, int64_t now_ns, bool *stay)
{
    int32_t work = 0;
    bool behind;
    int64_t wake_position;

    if (!image->started) {
        start(image, now_ns);
    }
    if (image->state == PS_IMAGE_DRAINING && image->drain_ns == 0) {
        image->drain_ns = now_ns;
        ps_image_timer(image, now_ns);
    }
    ps_image_catch_up(image);
    if (image->gaps.count == 0) {
        image->nak_due_ns = INT64_MAX;
    } else {
        work += ps_image_request(image, now_ns);
    }
    work += publish(image, now_ns);
    ps_image_consumption(image);
    note_movement(image, now_ns);
    work += ps_image_pressure(image, now_ns);
    ps_image_count_messages(image);
    if (image->state < PS_IMAGE_DRAINED && image->end_reason != PS_END_OUTRUN) {
        work += decide_sm(image, now_ns);
    }
    ps_image_reclaim(image);
    ps_image_check_storage(image);
    if (image->lost_bytes > 0) {
        ps_image_report_loss(image, now_ns);
    }
    if (image->ending) {
        ps_image_check_end(image);
    }
    /* A release changes nothing for a postponed message: data or a timer ends the delay. */
    wake_position = image->gating && image->consumption < image->position && !image->sm_postponed
                        ? due_position(image)
                        : INT64_MAX;
    /* Pairs with a subscriber that stores its position, then reads this after a full fence. */
    atomic_store_explicit(&image->slot->wake_position, wake_position, memory_order_release);
    behind = image->ordinal >= 0 && image->ordinal_position < image->position;
    *stay = image->credits.outstanding ||
            (image->gaps.count > 0 && image->state == PS_IMAGE_ACTIVE) ||
            wake_position != INT64_MAX || behind || image->sent_seen > image->hwm;
    return work + behind; /* the thread must not park before the count has caught up */
}
