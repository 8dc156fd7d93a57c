/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_path.c: what a receiver learns of its path, and who may be left behind.
 *
 *   reordering   a gap is not requested before it is a quarter older than the latest that came late
 *                (a round trip at most, 1 ms while none is measured); each loss lets that fade by a
 *                sixteenth; what comes twice after it was requested once was late, not lost
 *   way          each datagram that is taken and each SETUP renews it
 *   tether       a reader three quarters of a window behind for so long, then so long again, rests;
 *                then it comes back to where the others are
 */
#include "ps_sim_probe.h"

#define MS INT64_C(1000000)

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

/* ---- reordering ------------------------------------------------------------------------------ */

static void learn(ps_probe_image_t *model, int64_t late_ns)
{
    const int64_t path_ns = model->image->rtt.least_ns;
    const int64_t most_ns = path_ns > 0 ? path_ns : MS;
    const int64_t wanted_ns = late_ns + late_ns / 4 < most_ns ? late_ns + late_ns / 4 : most_ns;
    model->late_ns = wanted_ns > model->late_ns ? wanted_ns : model->late_ns;
    model->late_top_ns = model->late_ns > model->late_top_ns ? model->late_ns : model->late_top_ns;
}

static void came_twice(ps_probe_image_t *model, int64_t from, int64_t to)
{
    for (int32_t i = 0; i < PS_PROBE_SUSPECTS; i++) {
        ps_probe_suspect_t *suspect = &model->suspects[i];
        if (suspect->from < to && from < suspect->to) {
            learn(model, suspect->late_ns);
            suspect->to = suspect->from;
        }
    }
}

static const ps_gap_t *gap_of(const ps_image_t *image, int64_t from, int64_t to)
{
    for (int32_t i = 0; i < image->gaps.count; i++) {
        const ps_gap_t *gap = &image->gaps.items[i];
        if (gap->from <= from && to <= gap->to) {
            return gap;
        }
    }
    return NULL;
}

/* The last gap, if what comes to be missing behind the mark joins it. */
static const ps_gap_t *joined_by(const ps_image_t *image)
{
    const ps_gap_t *last = image->gaps.count > 0 ? &image->gaps.items[image->gaps.count - 1] : NULL;
    return last != NULL && last->to == image->hwm ? last : NULL;
}

/* Frames of a datagram that fill a part of one gap. */
typedef struct run {
    int64_t from, to; /* from -1: none */
    ps_gap_t gap;
} run_t;

/* Bytes of a gap came.  A first question leaves open whether this is the answer.  The middle of a
 * gap needs one gap more; without room for it nothing is taken, and will be requested again. */
static bool came(ps_probe_image_t *model, const run_t *run, int32_t *count, int64_t now_ns)
{
    const bool middle = run->from > run->gap.from && run->to < run->gap.to;
    const bool whole = run->from == run->gap.from && run->to == run->gap.to;
    const bool fits = !middle || *count < model->image->gaps.capacity;
    const int64_t late_ns = now_ns - run->gap.opened_ns;
    *count += fits && middle ? 1 : whole ? -1 : 0;
    if (run->gap.requested == 0) {
        learn(model, late_ns);
    } else if (run->gap.requested == 1 && fits) {
        model->suspects[model->suspect_next++ % PS_PROBE_SUSPECTS] =
            (ps_probe_suspect_t){ .from = run->from, .to = run->to, .late_ns = late_ns };
    }
    return fits;
}

/* The gap that a frame is missing from, end being that of its datagram: above the mark, all of the
 * datagram counts as missing until it is written. */
static bool is_missing(const ps_image_t *image, int64_t from, int64_t to, int64_t end,
                       int64_t now_ns, ps_gap_t *out)
{
    const ps_gap_t *gap = gap_of(image, from, to);
    const ps_gap_t *last = joined_by(image);
    if (end > image->hwm && last != NULL && from >= last->from) {
        *out = *last;
        out->to = end;
    } else if (gap != NULL) {
        *out = *gap;
    } else {
        *out = (ps_gap_t){ .from = image->hwm, .to = end, .opened_ns = now_ns };
        return from >= image->hwm;
    }
    return true;
}

/* Frame by frame: what is missing comes, in runs.  When nothing of it was taken, what is there came
 * twice. */
static bool fill_gaps(ps_probe_image_t *model, const ps_sim_packet_t *packet, int64_t start,
                      int64_t end, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    int32_t count = image->gaps.count + (end > image->hwm && joined_by(image) == NULL);
    run_t run = { .from = -1 };
    int32_t taken = 0;
    int32_t runs = 0;
    for (uint32_t at = 0; at < packet->length;) {
        int32_t frame;
        ps_gap_t gap;
        memcpy(&frame, packet->data + at, sizeof frame);
        const int64_t from = start + at;
        const int64_t to = from + ps_align32(frame);
        const bool missing = is_missing(image, from, to, end, now_ns, &gap);
        if (run.from >= 0 && (!missing || from != run.to)) {
            taken += came(model, &run, &count, now_ns);
            runs++;
            run.from = -1;
        }
        if (missing) {
            run = (run_t){ .from = run.from < 0 ? from : run.from, .to = to, .gap = gap };
        }
        at += (uint32_t)ps_align32(frame);
    }
    if (run.from >= 0) {
        taken += came(model, &run, &count, now_ns);
        runs++;
    }
    if (taken == 0) {
        came_twice(model, start, end);
    }
    return taken == runs;
}

bool ps_probe_path_has_room(const ps_image_t *image, int64_t position)
{
    return position <= image->hwm || joined_by(image) != NULL ||
           image->gaps.count < image->gaps.capacity;
}

/* The mark rises to position: what is missing then joins a loss that ends there. */
void ps_probe_path_raised(ps_probe_image_t *model, int64_t position)
{
    const ps_image_t *image = model->image;
    const ps_gap_t *last = joined_by(image);
    if (last != NULL && last->lost && position > image->hwm) {
        model->joined_bytes += position - image->hwm;
    }
}

void ps_probe_path_stale(ps_probe_image_t *model, int64_t from, int64_t to, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    if (to >= image->sm_position - image->congestion.window_max) {
        model->path_ns = now_ns;
        came_twice(model, from, to);
    }
}

bool ps_probe_path_data(ps_probe_image_t *model, const ps_sim_packet_t *packet, int64_t from,
                        int64_t to, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    if (!ps_probe_path_has_room(image, from >= image->hwm ? from : to)) {
        came_twice(model, from, to);
        return false;
    }
    model->edge = to > model->edge ? to : model->edge;
    if (from >= image->hwm) {
        ps_probe_path_raised(model, from);
        return true;
    }
    return fill_gaps(model, packet, from, to, now_ns);
}

/* A gap counts as lost once its first timer ran out, not before, with all its bytes. */
static void check_losses(ps_probe_t *probe, ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    const int64_t counted = atomic_load_explicit(&image->slot->lost_bytes, memory_order_relaxed);
    int64_t bytes = model->joined_bytes;
    for (int32_t i = 0; i < model->gap_count && i < image->gaps.count; i++) {
        const ps_probe_gap_t *known = &model->gaps[i];
        bytes += known->fresh_loss ? known->to - known->from : 0;
        model->lost_gaps += known->fresh_loss;
        if (image->gaps.items[i].requested > 0 && !known->lost) {
            complain(probe, model, "what is requested does not count as lost", known->from,
                     known->to);
        }
    }
    if (counted - model->lost_bytes != bytes && image->params.reliable) {
        complain(probe, model, "lost bytes are counted wrong", counted - model->lost_bytes, bytes);
    }
    model->lost_bytes = counted;
    model->joined_bytes = 0;
}

static void check_reordering(ps_probe_t *probe, ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    int32_t lost = 0;
    for (int32_t i = 0; i < model->gap_count; i++) {
        lost += model->gaps[i].fresh_loss;
    }
    check_losses(probe, model);
    if (image->params.group || !image->params.reliable) { /* they learn no delay */
        return;
    }
    for (int32_t i = 0; i < lost; i++) {
        model->late_ns -= (model->late_ns + 15) / 16;
    }
    if (model->late_ns != image->reordering.window_ns) {
        complain(probe, model, "reordering is learned wrong", image->reordering.window_ns,
                 model->late_ns);
    }
    model->late_ns = image->reordering.window_ns;
    model->late_least_ns = model->late_start_ns;
    model->late_most_ns = model->late_top_ns;
    model->late_start_ns = model->late_ns;
    model->late_top_ns = model->late_ns;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static void check_path(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_connection_t *only = NULL;
    int32_t paths = 0;
    for (int32_t i = 0; image->endpoint != NULL && i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (image->endpoint->destinations[i] != NULL) {
            only = &image->connections[i];
            paths++;
        }
    }
    if (paths != 1 || image->state != PS_IMAGE_ACTIVE || image->rejected) {
        return;
    }
    const bool foreign = ps_sim_is_stranger(&only->source);
    if (only->established && !foreign && model->path_ns >= 0 &&
        only->activity_ns != model->path_ns) {
        complain(probe, model, "a way to the sender was heard at another time", only->activity_ns,
                 model->path_ns);
    }
    model->path_ns = only->established ? only->activity_ns : -1;
    const int32_t live = only->established && now_ns - only->activity_ns <
                                                  image->receiver->params->connection_timeout_ns;
    ps_probe_promise(
        probe, &model->promises[P_IMAGE_PATHS],
        atomic_load_explicit(&image->log.meta->transport_count, memory_order_relaxed) == live,
        now_ns, PS_SM_IDLE_NS + ps_probe_slack_ns(probe, model->host),
        "ways to the sender are shown", model->host, image->params.session_id);
}

bool ps_probe_is_heard(const ps_image_t *image, int64_t now_ns)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (image->connections[i].established &&
            now_ns - image->connections[i].activity_ns <
                image->receiver->params->connection_timeout_ns) {
            return true;
        }
    }
    return false;
}

/* ---- readers that may be left behind --------------------------------------------------------- */

static ps_probe_tether_t *tether_of(ps_probe_tether_t *known, int32_t id, const ps_tether_t *tether,
                                    int64_t now_ns)
{
    for (int32_t i = 0; i < PS_PROBE_TETHERS; i++) {
        if (known[i].known && known[i].id == id) {
            return &known[i];
        }
    }
    for (int32_t i = 0; i < PS_PROBE_TETHERS; i++) {
        if (!known[i].known) {
            known[i] = (ps_probe_tether_t){ .known = true,
                                            .id = id,
                                            .state = tether->state,
                                            .since_ns = now_ns,
                                            .near_ns = now_ns,
                                            .surely_ns = now_ns,
                                            .far_ns = now_ns };
            return &known[i];
        }
    }
    return NULL;
}

/* Sixteen times in the limit, and ten times a second at least. */
static int64_t checks_each(const ps_tether_timeouts_t *timeouts)
{
    return timeouts->window_limit_ns < 1600 * MS ? timeouts->window_limit_ns / 16 : 100 * MS;
}

static const char *follow(ps_probe_tether_t *known, const ps_tether_t *tether, bool near,
                          const ps_tether_timeouts_t *timeouts, int64_t check_ns, int64_t now_ns)
{
    const int64_t state_ns = now_ns - known->since_ns;
    const int32_t before = known->state;
    const char *wrong = NULL;
    if (tether->state == before) {
        if (before == PS_TETHER_ACTIVE && near) {
            known->near_ns = now_ns;
            known->surely_ns = now_ns - known->far_ns >= check_ns ? now_ns : known->surely_ns;
        } else {
            known->far_ns = now_ns;
        }
        return before == PS_TETHER_ACTIVE &&
                       now_ns - known->near_ns > timeouts->window_limit_ns + 2 * check_ns
                   ? "a reader that is behind is waited for too long"
               : before == PS_TETHER_LINGER && state_ns > timeouts->linger_ns + check_ns
                   ? "a reader lingers for too long"
               : before == PS_TETHER_RESTING && state_ns > timeouts->resting_ns + check_ns
                   ? "a reader rests for too long"
                   : NULL;
    }
    if (before == PS_TETHER_ACTIVE) {
        wrong = tether->state != PS_TETHER_LINGER ||
                        now_ns - known->surely_ns < timeouts->window_limit_ns - check_ns
                    ? "a reader is given up too soon"
                    : NULL;
    } else if (before == PS_TETHER_LINGER) {
        wrong = tether->state != (tether->rejoin ? PS_TETHER_RESTING : PS_TETHER_CLOSED) ||
                        state_ns < timeouts->linger_ns
                    ? "a reader does not linger"
                    : NULL;
    } else if (before == PS_TETHER_RESTING) {
        wrong = tether->state != PS_TETHER_ACTIVE || state_ns < timeouts->resting_ns
                    ? "a reader does not rest"
                    : NULL;
    } else {
        wrong = "a reader that was closed is back";
    }
    known->state = tether->state;
    known->since_ns = now_ns;
    known->near_ns = now_ns;
    known->surely_ns = now_ns;
    known->far_ns = now_ns;
    return wrong;
}

static void forget_others(ps_probe_tether_t *known, const int32_t *ids, int32_t count)
{
    for (int32_t i = 0; i < PS_PROBE_TETHERS; i++) {
        bool there = false;
        for (int32_t k = 0; k < count && k < PS_PROBE_TETHERS; k++) {
            there = there || ids[k] == known[i].id;
        }
        known[i].known = known[i].known && there;
    }
}

/* Returns the position of a reader that rejoins: that of the slowest other one, or the end. */
static int64_t rejoin_position(const ps_image_t *image, int32_t who)
{
    int64_t slowest = INT64_MAX;
    const int64_t end = ps_image_contiguous(image);
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const int64_t shown =
            atomic_load_explicit(image->subscribers[i].position, memory_order_relaxed);
        const int64_t at = shown < image->join_position ? image->join_position
                           : shown < end                ? shown
                                                        : end;
        if (i != who && ps_tether_gates(&image->subscribers[i].tether)) {
            slowest = at < slowest ? at : slowest;
        }
    }
    return slowest == INT64_MAX ? end : slowest;
}

static void check_image_tethers(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_tether_timeouts_t timeouts = { .window_limit_ns =
                                                image->params.untethered_window_limit_timeout_ns,
                                            .linger_ns = image->params.untethered_linger_timeout_ns,
                                            .resting_ns =
                                                image->params.untethered_resting_timeout_ns };
    const int64_t check_ns = checks_each(&timeouts) + ps_probe_slack_ns(probe, model->host);
    int32_t ids[PS_PROBE_TETHERS] = { 0 };
    for (int32_t i = 0; i < image->n_subscribers && i < PS_PROBE_TETHERS; i++) {
        const ps_image_subscriber_t *reader = &image->subscribers[i];
        const int64_t at = atomic_load_explicit(reader->position, memory_order_relaxed);
        ids[i] = reader->position_counter_id;
        ps_probe_tether_t *known =
            tether_of(model->tethers, reader->position_counter_id, &reader->tether, now_ns);
        if (known == NULL || reader->tether.tethered) {
            continue;
        }
        const bool back =
            known->state == PS_TETHER_RESTING && reader->tether.state == PS_TETHER_ACTIVE;
        const char *wrong =
            follow(known, &reader->tether, at > image->fastest - image->window / 4 * 3, &timeouts,
                   check_ns, now_ns);
        if (wrong != NULL) {
            complain(probe, model, wrong, now_ns - known->since_ns, reader->tether.state);
        }
        if (back && at != rejoin_position(image, i)) {
            complain(probe, model, "a reader comes back elsewhere", at, rejoin_position(image, i));
        }
    }
    forget_others(model->tethers, ids, image->n_subscribers);
}

void ps_probe_pub_tethers(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_tether_timeouts_t timeouts = { .window_limit_ns =
                                                pub->params.untethered_window_limit_timeout_ns,
                                            .linger_ns = pub->params.untethered_linger_timeout_ns,
                                            .resting_ns =
                                                pub->params.untethered_resting_timeout_ns };
    const int64_t check_ns = checks_each(&timeouts) + 2 * ps_probe_slack_ns(probe, model->host);
    const int64_t leader = pub->endpoint != NULL ? pub->sender_position : pub->consumer_position;
    int32_t ids[PS_PROBE_TETHERS] = { 0 };
    for (int32_t i = 0; i < pub->subscriber_count && i < PS_PROBE_TETHERS; i++) {
        const ps_publication_subscriber_t *reader = &pub->subscribers[i];
        ids[i] = reader->counter_id;
        ps_probe_tether_t *known =
            tether_of(model->tethers, reader->counter_id, &reader->tether, now_ns);
        if (known == NULL || reader->tether.tethered) {
            continue;
        }
        const bool back =
            known->state == PS_TETHER_RESTING && reader->tether.state == PS_TETHER_ACTIVE;
        const char *wrong =
            follow(known, &reader->tether, reader->position > leader - pub->window_bytes / 4 * 3,
                   &timeouts, check_ns, now_ns);
        if (wrong != NULL) {
            ps_probe_fail(probe, model->host, pub->log.session_id, "%s (%lld, %d)", wrong,
                          (long long)(now_ns - known->since_ns), reader->tether.state);
        }
        const int64_t shown = atomic_load_explicit(reader->cell, memory_order_relaxed);
        if (back && (reader->position < model->last_leader || reader->position > leader ||
                     shown != reader->position)) {
            ps_probe_fail(probe, model->host, pub->log.session_id,
                          "a reader comes back at %lld, the others are at %lld",
                          (long long)reader->position, (long long)leader);
        }
    }
    forget_others(model->tethers, ids, pub->subscriber_count);
    model->last_leader = leader;
}

void ps_probe_path_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    if (model->image->receiver == NULL) {
        return;
    }
    check_reordering(probe, model);
    check_path(probe, model, now_ns);
    check_image_tethers(probe, model, now_ns);
}
