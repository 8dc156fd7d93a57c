/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_governor.c: the governor of a host, and how it and the bands delay data.
 *
 *   pressure   follows from the published waits; the delays follow from the pressure
 *   depth      counts the streams that wait for longer than a round
 *   priority   follows from the stated value or the recency, and from the aging
 *   data       a priority below 0: once a second while the governor defers; less than a datagram:
 *              for the stated time, but not in band B4
 *   turns      no stream waits for its turn longer than the bound of its band
 *   status     messages for released data keep the interval while half a window is open
 *   refusals   THROTTLED at full pressure, and only then
 */
#include <math.h>

#include "ps_client_publication.h"
#include "ps_driver_state.h"
#include "ps_priority.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

enum {
    FULL = 1000000,
    BUSY_ALONE = 150000,
    COALESCES_FROM = 200000,
    DELAYS_STATUS_FROM = 400000,
    RELEASES_BELOW = 600000,
    DEFERS_FROM = 800000,
    THROTTLES_FROM = 980000,
    LEAST_WAITS = 32,
    DEPTH_FULL = 32,
    RECENT = 500,
    AGING_MOST = 1000,
    TURN_BYTES_LEAST = 256
};

static void complain(ps_probe_t *probe, int32_t host, const char *what, int64_t a, int64_t b)
{
    ps_probe_fail(probe, host, 0, "%s (%lld, %lld)", what, (long long)a, (long long)b);
}

static void note(ps_probe_t *probe, enum ps_sim_rule rule, bool met)
{
    probe->world->rules |= met ? UINT64_C(1) << rule : 0;
}

/* ---- pressure -------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the pressure that follows from the waits and from the other two signals. */
static int64_t expected_pressure(ps_probe_governor_t *model, const ps_driver_slot_t *slot)
{
    const int64_t waits = atomic_load_explicit(&slot->waits, memory_order_relaxed);
    const int64_t waited_ns = atomic_load_explicit(&slot->waited_ns, memory_order_relaxed);
    const int64_t depth = atomic_load_explicit(&slot->depth_ppm, memory_order_relaxed);
    const int64_t busy = atomic_load_explicit(&slot->busy_ppm, memory_order_relaxed);
    const int64_t mean_ns =
        (waited_ns - model->waited_ns) / most(waits - model->waits, LEAST_WAITS);
    model->latency_ns += (mean_ns - model->latency_ns) / 2;
    const int64_t latency = least(FULL, most(0, model->latency_ns) * FULL / (5 * MS));
    return most(most(depth, latency), least(busy, BUSY_ALONE + latency));
}

/* The delays that follow from the pressure. */
static void climb(ps_probe_governor_t *model, int64_t now_ns)
{
    const int64_t pressure = model->pressure;
    const bool deferred = model->defers;
    model->last_coalesce_ns = model->coalesce_ns;
    model->coalesce_ns = most(0, pressure - COALESCES_FROM) * 20 * MS / (FULL - COALESCES_FROM);
    model->last_interval_ns = model->interval_ns;
    model->interval_ns = pressure <= DELAYS_STATUS_FROM
                             ? 0
                             : MS / 2 + (10 * MS - MS / 2) * (pressure - DELAYS_STATUS_FROM) /
                                            (FULL - DELAYS_STATUS_FROM);
    model->high_since_ns = pressure <= DEFERS_FROM    ? -1
                           : model->high_since_ns < 0 ? now_ns
                                                      : model->high_since_ns;
    if (pressure < RELEASES_BELOW) {
        model->defers = false;
    } else if (model->high_since_ns >= 0 && now_ns - model->high_since_ns >= SECOND / 2) {
        model->defers = true;
    }
    if (deferred != model->defers) {
        model->turned_ns = now_ns;
    }
}

static void compare(ps_probe_t *probe, int32_t host, const ps_driver_slot_t *slot)
{
    const ps_probe_governor_t *model = &probe->governors[host];
    const int64_t retry_ns =
        model->pressure < THROTTLES_FROM ? 0 : least(SECOND, 10 * MS + 2 * model->latency_ns);
    const struct {
        const char *what;
        int64_t is, expected;
    } values[] = {
        { "another pressure", atomic_load_explicit(&slot->pressure_ppm, memory_order_relaxed),
          model->pressure },
        { "another delay of partial datagrams",
          atomic_load_explicit(&slot->coalesce_ns, memory_order_relaxed), model->coalesce_ns },
        { "another interval of status messages",
          atomic_load_explicit(&slot->status_interval_ns, memory_order_relaxed),
          model->interval_ns },
        { "another time to wait", atomic_load_explicit(&slot->retry_after_ns, memory_order_relaxed),
          retry_ns },
        { "the governor defers otherwise",
          atomic_load_explicit(&slot->defers, memory_order_relaxed), model->defers },
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i].is != values[i].expected) {
            complain(probe, host, values[i].what, values[i].is, values[i].expected);
        }
    }
}

/* The driver takes its sample before the turns: the streams that waited after the last cycle still
 * wait. A stream that waits alone is in no list. */
static void check_depth(ps_probe_t *probe, int32_t host, int64_t at_ns)
{
    const ps_probe_governor_t *model = &probe->governors[host];
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    int64_t late = 0;
    for (int32_t i = 0; i < model->queued; i++) {
        late += model->queued_ns[i] < at_ns - model->round_ns;
    }
    const int64_t depth =
        atomic_load_explicit(&sender->shared->driver->depth_ppm, memory_order_relaxed);
    if (model->queued > 1 && depth != least(late, DEPTH_FULL) * FULL / DEPTH_FULL) {
        complain(probe, host, "another number of late streams", depth, late);
    }
}

/* Follows the governor of the host. The driver takes its sample before it sends, so the probe calls
 * this function before it checks a datagram, too. */
static ps_probe_governor_t *follow(ps_probe_t *probe, int32_t host)
{
    ps_probe_governor_t *model = &probe->governors[host];
    const ps_driver_slot_t *slot = ps_probe_driver(probe, host)->sender->shared->driver;
    const int64_t at_ns = atomic_load_explicit(&slot->pressure_ns, memory_order_acquire);
    if (at_ns == model->sampled_ns) {
        return model;
    }
    const int64_t elapsed_ns = at_ns - model->sampled_ns;
    const int64_t busy = atomic_load_explicit(&slot->busy_ppm, memory_order_relaxed);
    if (elapsed_ns > SECOND / 2) {
        const ps_probe_governor_t fresh = { .high_since_ns = -1,
                                            .turned_ns = at_ns,
                                            .sent_bytes = model->sent_bytes };
        *model = fresh;
    } else {
        model->pressure = expected_pressure(model, slot);
        check_depth(probe, host, at_ns);
        if (busy * elapsed_ns / FULL + MS / 1000 < model->ready_ns) {
            complain(probe, host, "the sender was busy for longer", busy, model->ready_ns);
        }
    }
    model->sampled_ns = at_ns;
    model->ready_ns = 0;
    model->waits = atomic_load_explicit(&slot->waits, memory_order_relaxed);
    model->waited_ns = atomic_load_explicit(&slot->waited_ns, memory_order_relaxed);
    climb(model, at_ns);
    compare(probe, host, slot);
    note(probe, PS_SIM_RULE_COALESCES, model->coalesce_ns > 0);
    note(probe, PS_SIM_RULE_DEFERS, model->defers);
    return model;
}

static void note_queued(ps_probe_governor_t *model, const ps_sender_t *sender)
{
    model->queued = 0;
    model->round_ns = sender->bands.round_ns;
    for (int32_t i = 0; i < sender->publication_count; i++) {
        const ps_band_entry_t *turn = &sender->publications[i]->turn;
        if (!turn->queued || turn->list == PS_BAND_BACKGROUND) {
            continue;
        }
        if (model->queued == PS_PROBE_QUEUED) {
            model->queued = -1;
            return;
        }
        model->queued_ns[model->queued++] = turn->since_ns;
    }
}

static bool is_governed(const ps_probe_t *probe, int32_t host)
{
    return ps_probe_driver(probe, host)->sender->params->governor != 0;
}

void ps_probe_governor_check(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    if (!is_governed(probe, host)) {
        return;
    }
    ps_probe_governor_t *model = follow(probe, host);
    const bool waits = sender->bands.waiting > 0;
    /* The set had streams before and after this cycle's turns: none of the time was idle. */
    model->ready_ns += model->waited_before && model->waited_twice ? now_ns - model->step_ns : 0;
    model->waited_twice = model->waited_before;
    model->waited_before = waits;
    model->step_ns = now_ns;
    note_queued(model, sender);
    /* Several streams wait: within two intervals there is a sample. */
    ps_probe_promise(
        probe, &model->samples, sender->bands.waiting < 2 || now_ns - model->sampled_ns <= 200 * MS,
        now_ns, 200 * MS + ps_probe_slack_ns(probe, host), "the governor takes a sample", host, 0);
}

/* ---- data ------------------------------------------------------------------------------------ */

static bool is_exempt(const ps_publication_t *pub)
{
    return pub->params.never_throttle || pub->state != PS_PUBLICATION_ACTIVE;
}

static int32_t base_of(const ps_publication_t *pub)
{
    const int32_t stated = pub->params.priority;
    return stated <= PS_PRIORITY_MAX
               ? stated
               : atomic_load_explicit(&pub->slot->base_priority, memory_order_relaxed);
}

/* Returns true if the frames from the position on fill less than a datagram. */
static bool is_partial(const ps_publication_t *pub, int64_t position)
{
    int64_t bytes = 0;
    while (bytes < pub->log.mtu &&
           ((position + bytes) & pub->log.term_mask) >= (position & pub->log.term_mask)) {
        const int32_t length = ps_frame_length_acquire(ps_frame_at(&pub->log, position + bytes));
        if (length <= 0) {
            return true;
        }
        bytes += ps_align32(length);
    }
    return false;
}

bool ps_probe_may_hold(const ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_probe_governor_t *governor = &probe->governors[model->host];
    const bool defers =
        governor->defers || now_ns - governor->turned_ns <= ps_probe_slack_ns(probe, model->host);
    return is_governed(probe, model->host) && !is_exempt(model->pub) &&
           ((defers && base_of(model->pub) < 0) ||
            (base_of(model->pub) < 750 &&
             most(governor->coalesce_ns, governor->last_coalesce_ns) > 0));
}

bool ps_probe_is_delayed(ps_probe_t *probe, ps_probe_pub_t *model, bool sendable, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_probe_governor_t *governor = &probe->governors[model->host];
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    if (!is_governed(probe, model->host)) {
        return false;
    }
    const bool partial = sendable && is_partial(pub, pub->sender_position);
    if (!partial || model->high != model->last_high) {
        model->partial_ns = partial ? now_ns : 0;
    } else if (model->partial_ns == 0) {
        model->partial_ns = now_ns;
    }
    model->step_ns = now_ns;
    const int64_t coalesce_ns = most(governor->coalesce_ns, governor->last_coalesce_ns);
    const bool defers = governor->defers || now_ns - governor->turned_ns <= slack_ns;
    const bool deferred = defers && base_of(pub) < 0 && now_ns - model->data_ns < SECOND + slack_ns;
    const bool coalesced = partial && coalesce_ns > 0 && base_of(pub) < 750 &&
                           now_ns - model->partial_ns <= coalesce_ns + slack_ns;
    /* Streams wait for each other; ps_probe_turn_check bounds the wait. */
    const bool queued = pub->turn.queued && pub->sender->bands.waiting > 1;
    return queued || (!is_exempt(pub) && (deferred || coalesced));
}

void ps_probe_governed_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t bytes, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    if (!is_governed(probe, model->host)) {
        return;
    }
    ps_probe_governor_t *governor = follow(probe, model->host);
    model->partial_bytes = model->turn_ns == now_ns ? 0 : bytes; /* 0: several datagrams */
    if (model->turn_ns != now_ns && governor->defers && base_of(pub) < 0 && !is_exempt(pub) &&
        now_ns - model->data_ns < SECOND) {
        complain(probe, model->host, "a deferred stream sends within a second", pub->id,
                 now_ns - model->data_ns);
    }
    model->turn_ns = now_ns;
}

void ps_probe_host_sent(ps_probe_t *probe, int32_t host, int64_t bytes)
{
    probe->governors[host].sent_bytes += bytes;
}

/* A datagram that was not full left alone, with nothing behind it. */
static void check_partial(ps_probe_t *probe, ps_probe_pub_t *model, int64_t since_ns,
                          int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_probe_governor_t *governor = &probe->governors[model->host];
    const int64_t end = model->high;
    if (model->turn_ns != now_ns || model->partial_bytes == 0 || is_exempt(pub) ||
        pub->params.priority >= 750 || model->partial_bytes >= pub->log.mtu ||
        (end & pub->log.term_mask) == 0 || pub->sender_limit - end < pub->log.mtu ||
        ps_frame_length_acquire(ps_frame_at(&pub->log, end)) > 0) {
        return;
    }
    note(probe, PS_SIM_RULE_COALESCED, governor->coalesce_ns > 0);
    /* The delay includes the wait for a turn, which may begin before the data is there. */
    const bool queued = model->wait_since_ns >= 0 && model->wait_since_ns < since_ns;
    since_ns = queued ? model->wait_since_ns : since_ns;
    /* Half of the delay: the governor may have raised it, or the window may have been closed. */
    const int64_t age_ns = now_ns - since_ns + 2 * probe->world->slots[model->host].cycle_ns;
    if (age_ns < governor->coalesce_ns / 2) {
        complain(probe, model->host, "a partial datagram is sent too soon", now_ns - since_ns,
                 governor->coalesce_ns);
    }
}

void ps_probe_partial_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    if (is_governed(probe, model->host) && !ps_probe_is_full(probe, model->host, now_ns)) {
        check_partial(probe, model, model->partial_ns > 0 ? model->partial_ns : model->step_ns,
                      now_ns);
    }
}

/* ---- priorities ------------------------------------------------------------------------------ */

/* 500 * 2^(-t / 30 s), for the next tick of 50 ms. */
static int32_t recency(int64_t t_ns)
{
    const double ticks = (double)(t_ns / (50 * MS) + 1);
    return t_ns < 0 || t_ns >= 300 * SECOND ? 0 : (int32_t)(RECENT * exp2(-ticks / 600));
}

static int32_t band_of(int64_t priority)
{
    return priority < 0      ? PS_BAND_B0
           : priority >= 750 ? PS_BAND_B4
                             : PS_BAND_B1 + (int32_t)(priority / 250);
}

/* The sender computes a priority at the beginning of a tick of 50 ms. */
static void check_priority(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_band_entry_t *turn = &pub->turn;
    const int64_t computed_ns = pub->priority_until_ns - 50 * MS;
    const int64_t consumed_ns =
        atomic_load_explicit(&pub->slot->last_consumed_ns, memory_order_relaxed);
    const bool automatic = pub->params.priority == PS_PRIORITY_AUTO;
    if (computed_ns <= 0 || pub->params.priority == PS_PRIORITY_BACKGROUND ||
        (automatic && consumed_ns >= computed_ns)) {
        return;
    }
    const int32_t expected = !automatic         ? base_of(pub)
                             : consumed_ns <= 0 ? 0
                                                : recency(computed_ns - consumed_ns);
    if (pub->turn.base < expected - 1 || pub->turn.base > expected + 1) {
        complain(probe, model->host, "another priority", pub->turn.base, expected);
    }
    if (!turn->queued) {
        return;
    }
    const int64_t aging = least(AGING_MOST, most(0, now_ns - turn->since_ns) / (50 * MS) * 5);
    if (turn->list < band_of(turn->base) || turn->list > band_of(turn->base + aging)) {
        complain(probe, model->host, "another band than that of its priority", turn->list,
                 turn->base + aging);
    }
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* The bytes that the host sends while a stream waits for its turn are bounded by its band. */
void ps_probe_turn_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_sender_t *sender = pub->sender;
    const ps_band_entry_t *turn = &pub->turn;
    const int64_t sent = probe->governors[model->host].sent_bytes;
    check_priority(probe, model, now_ns);
    if (!turn->queued || turn->since_ns != model->wait_since_ns || turn->list != model->wait_list ||
        model->high != model->wait_high || ps_probe_is_full(probe, model->host, now_ns)) {
        model->wait_since_ns = turn->queued ? turn->since_ns : -1;
        model->wait_list = turn->list;
        model->wait_high = model->high;
        model->wait_bytes = sent;
        model->wait_ahead = turn->queued ? sender->bands.lists[turn->list].count : 0;
        model->wait_bound = 0;
        return;
    }
    const int64_t bound = ps_bands_bound(&sender->bands, turn->list, model->wait_ahead,
                                         most(sender->largest_datagram, TURN_BYTES_LEAST));
    model->wait_bound = most(model->wait_bound, bound);
    if (sent - model->wait_bytes > model->wait_bound) {
        complain(probe, model->host, "a stream waits for longer than the bound of its band",
                 sent - model->wait_bytes, model->wait_bound);
        model->wait_since_ns = -1;
    }
}

/* ---- status messages ------------------------------------------------------------------------- */

/* Returns true if the receiver may delay a status message that reports released data. */
static bool may_delay(const ps_probe_image_t *model, int64_t hwm)
{
    const ps_image_t *image = model->image;
    return image->params.congestion_control == PS_CC_STATIC && !ps_image_under_nak(image) &&
           image->state == PS_IMAGE_ACTIVE &&
           model->sm_position + model->sm_window - hwm > model->sm_window / 2;
}

bool ps_probe_sm_delayed(ps_probe_t *probe, const ps_probe_image_t *model, int64_t now_ns)
{
    if (!is_governed(probe, model->host)) {
        return false;
    }
    const ps_probe_governor_t *governor = follow(probe, model->host);
    const int64_t interval_ns = most(governor->interval_ns, governor->last_interval_ns);
    const bool delayed =
        may_delay(model, model->image->hwm) &&
        now_ns - model->sm_ns < interval_ns + ps_probe_slack_ns(probe, model->host);
    note(probe, PS_SIM_RULE_DELAYS_STATUS, delayed && interval_ns > 0);
    return delayed && interval_ns > 0;
}

void ps_probe_sm_governed(ps_probe_t *probe, const ps_probe_image_t *model, int64_t now_ns)
{
    if (!is_governed(probe, model->host)) {
        return;
    }
    const ps_probe_governor_t *governor = follow(probe, model->host);
    int64_t interval_ns = now_ns - governor->sampled_ns < SECOND / 2 ? governor->interval_ns : 0;
    /* A delay that began before the last sample ends after the interval of that time. A delay is
     * shorter than the time between two samples. */
    if (model->sm_ns <= governor->sampled_ns && governor->last_interval_ns > 0) {
        interval_ns = least(interval_ns, governor->last_interval_ns);
    }
    if (now_ns - model->sm_ns < interval_ns && may_delay(model, model->image->hwm)) {
        complain(probe, model->host, "a status message within the governor's interval",
                 now_ns - model->sm_ns, interval_ns);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

void ps_probe_offer_refused(ps_probe_t *probe, const ps_sim_publisher_t *publisher, int64_t code,
                            int64_t now_ns)
{
    const int32_t host = publisher->params.host;
    if (ps_probe_driver(probe, host) == NULL ||
        (code != PS_THROTTLED && code != PS_BACK_PRESSURED)) {
        return;
    }
    const ps_probe_governor_t *governor = follow(probe, host);
    const bool never = atomic_load_explicit(&publisher->params.pub->slot->never_throttle,
                                            memory_order_relaxed) != 0;
    const bool throttles = governor->pressure >= THROTTLES_FROM && !never &&
                           now_ns - governor->sampled_ns < SECOND / 2;
    note(probe, PS_SIM_RULE_THROTTLES, code == PS_THROTTLED);
    if (throttles != (code == PS_THROTTLED)) {
        complain(probe, host, "an offer is throttled otherwise", code, governor->pressure);
    }
}
