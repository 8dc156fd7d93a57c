/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_img.c: what must hold of an image: everything that it took is in its log, everything
 * that it misses is in its list of gaps and nothing else, readers are seen, counters show what is.
 */
#include "ps_sim_probe.h"

/* MOST_AFTER_A_PART: NAKs that count for a gap of which a part has just arrived, and one more. */
enum { WALK_EVERY = 8, WALK_FRAMES = 4096, MOST_AFTER_A_PART = 7 + 1 };

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static void promise(ps_probe_t *probe, ps_probe_image_t *model, enum ps_probe_image_promise which,
                    bool holds, int64_t now_ns, const char *name)
{
    ps_probe_promise(probe, &model->promises[which], holds, now_ns,
                     ps_probe_slack_ns(probe, model->host), name, model->host,
                     model->image->params.session_id);
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* ---- what was read --------------------------------------------------------------------------- */

/* A frame that states more than all before it begins a new count of lower heartbeats. */
static bool is_furthest(ps_probe_image_t *model, int64_t end)
{
    if (end <= model->furthest) {
        return false;
    }
    model->furthest = end;
    model->stated_low = -1;
    model->twice_low = -1;
    model->sure_low = -1;
    model->due_low = -1;
    return true;
}

/* The mark rises again if another heartbeat states more in the same cycle. */
static void state_low(ps_probe_image_t *model, int64_t position)
{
    if (is_furthest(model, position)) {
        return;
    }
    if (position >= model->edge) {
        model->sure_low = -1;
        model->due_low = -1;
        return;
    }
    if (model->stated_low >= 0 && position >= model->stated_low) {
        model->twice_low = position;
    }
    if (model->sure_low >= 0 && position >= model->sure_low) {
        model->due_low = position;
    }
    model->stated_low = position;
    model->sure_low = position;
}

static void take_heartbeat(ps_probe_t *probe, ps_probe_image_t *model, const ps_data_t *data,
                           int64_t position, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t term = image->log.term_length;
    const int64_t oldest = image->sm_position - term > 0 ? image->sm_position - term : 0;
    const int64_t most = ps_probe_accepted_to(image);
    const bool ends_term = (position & (term - 1)) == 0; /* else an aborted claim of one frame */
    const bool padded = position - most < (ends_term ? term : image->log.mtu);
    if ((position > most && !padded) || position < oldest) {
        ps_probe_count(probe, model->host, position > most ? PS_SYS_OVER_RUNS : PS_SYS_UNDER_RUNS,
                       1);
        return;
    }
    ps_probe_count(probe, model->host, PS_SYS_HEARTBEATS_RECEIVED, 1);
    model->path_ns = now_ns;
    /* The sender retransmits T/2 (fc=nak: 3/4 T) and the longest padding. A gap that lies further
     * back ends the image. */
    const int64_t reach = ps_log_repair_reach(term, image->log.mtu, ps_image_under_nak(image));
    const bool lost =
        position > most && image->params.reliable && position - ps_image_contiguous(image) > reach;
    model->heard_ns = lost ? model->heard_ns : now_ns;
    state_low(model, position);
    const int64_t edge = position > most ? most : position;
    if (ps_probe_path_has_room(image, edge)) {
        ps_probe_path_raised(model, edge);
        model->edge = edge > model->edge ? edge : model->edge;
    }
    if (position > most) { /* behind padding that began in the window: the rest is missing */
        return;
    }
    if ((data->flags & PS_FLAG_EOS) != 0) {
        if (position > model->eos) {
            model->eos = position;
            model->eos_since_ns = now_ns;
        }
    }
}

/* Only the header of padding is written, so padding at the end of a term needs no memory up to its
 * end. */
static bool has_memory(const ps_image_t *image, int64_t position, uint32_t length, int64_t end)
{
    const int64_t term = image->log.term_length;
    const int64_t released = image->free_to + 3 * term - PS_FRAME_ALIGNMENT;
    const int64_t written = end % term == 0 ? position + ps_align32_64(length) : end;
    return written <= image->reserved_position && end <= released;
}

/* A sender under NAK-strength control does not keep to windows: another receiver may let it go
 * beyond the storage of this one, whose conductor provides more in its next turn. */
static void note_unstored(const ps_probe_t *probe, const ps_probe_image_t *model, int64_t position)
{
    ps_sim_unstored_t *unstored = &probe->world->unstored;
    if (ps_image_under_nak(model->image)) {
        unstored->datagrams++;
        unstored->ranges += position == model->edge;
    }
}

void ps_simworld_unstored(const ps_simworld_t *world, ps_sim_unstored_t *out)
{
    *out = world->unstored;
}

void ps_probe_image_data(ps_probe_t *probe, ps_probe_image_t *model, const ps_data_t *data,
                         const ps_sim_packet_t *packet, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t term = image->log.term_length;
    int32_t span = 0;
    int32_t messages = 0;
    if (image->rejected || image->state != PS_IMAGE_ACTIVE || image->endpoint == NULL ||
        data->term_offset < 0 || data->term_offset % PS_FRAME_ALIGNMENT != 0) {
        return;
    }
    const int64_t position =
        (int64_t)ps_wrap_sub(data->term_id, image->log.initial_term_id) * term + data->term_offset;
    if (!ps_probe_is_heard(image, now_ns)) {
        model->sm_forced_ns = now_ns; /* a new connection to the sender, which gets a status message
                                       * at once */
    }
    if (data->is_heartbeat) {
        ps_probe_beyond_read(model, position, position);
        take_heartbeat(probe, model, data, position, now_ns);
        return;
    }
    if (ps_wire_chain(packet->data, packet->length, image->log.term_length, &span, &messages) !=
        PS_WIRE_OK) {
        return;
    }
    const int64_t end = position + span;
    ps_probe_beyond_read(model, position, end);
    if (end > ps_probe_accepted_to(image)) {
        ps_probe_count(probe, model->host, PS_SYS_OVER_RUNS, 1);
        return; /* beyond what is accepted */
    }
    if (position < image->sm_position) {
        ps_probe_path_stale(model, position, end, now_ns);
        ps_probe_count(probe, model->host, PS_SYS_UNDER_RUNS, 1);
        return;
    }
    model->heard_ns = now_ns;
    model->path_ns = now_ns;
    (void)is_furthest(model, end);
    if (!has_memory(image, position, packet->length, end)) {
        note_unstored(probe, model, position);
        return;
    }
    if (ps_probe_path_data(model, packet, position, end, now_ns) && model->took < 64) {
        model->took_from[model->took] = position;
        model->took_to[model->took++] = end;
    }
}

/* ---- gaps ------------------------------------------------------------------------------------ */

/* Returns the gap of which this one is the rest. If more data is missing directly after the last
 * gap, that gap grows and keeps its timer. Its rest may therefore lie beyond its old end. Gaps are
 * sorted and apart, so only the last one that begins no later can hold this one. `at` is where the
 * search for the gap before this one ended: lists of thousands of gaps are walked once a cycle. */
static const ps_probe_gap_t *gap_before(const ps_probe_image_t *model, const ps_gap_t *gap,
                                        int32_t *at)
{
    const int32_t last = model->gap_count - 1;
    while (*at < last && model->gaps[*at + 1].from <= gap->from) {
        (*at)++;
    }
    if (last < 0 || model->gaps[*at].from > gap->from) {
        return NULL;
    }
    const ps_probe_gap_t *known = &model->gaps[*at];
    const bool grew = *at == last && known->opened_ns == gap->opened_ns;
    return known->to >= gap->to || grew ? known : NULL;
}

/* The list is sorted, its gaps apart and below the mark; what is in it was missing before, or is
 * new.  Then the model's list is renewed. */
static void check_gaps(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    ps_probe_gap_t *next = probe->next_gaps;
    const ps_image_t *image = model->image;
    const int32_t count = image->gaps.count < PS_PROBE_GAPS ? image->gaps.count : PS_PROBE_GAPS;
    int64_t end = -1;
    int64_t missing = 0;
    int32_t at = 0;
    if (count == 0 && model->gap_count == 0) {
        return;
    }
    for (int32_t i = 0; i < image->gaps.count; i++) {
        const ps_gap_t *gap = &image->gaps.items[i];
        if (gap->from >= gap->to || gap->from <= end || gap->to > image->hwm) {
            complain(probe, model, "the list of gaps is not in order", gap->from, gap->to);
        }
        end = gap->to;
        missing += gap->to - gap->from;
    }
    if (missing != image->gaps.missing) {
        complain(probe, model, "missing bytes are counted wrong", image->gaps.missing, missing);
    }
    for (int32_t i = 0; i < count; i++) {
        const ps_gap_t *gap = &image->gaps.items[i];
        const ps_probe_gap_t *before = gap_before(model, gap, &at);
        next[i] = (ps_probe_gap_t){ .from = gap->from,
                                    .to = gap->to,
                                    .opened_ns = gap->opened_ns,
                                    .timed = image->rtt.smoothed_ns > 0,
                                    .lost = gap->lost,
                                    .fresh_loss = gap->lost && gap->opened_ns == now_ns };
        if (before != NULL) {
            if (before->timed && before->from < gap->from && gap->requested > MOST_AFTER_A_PART) {
                complain(probe, model, "a gap that fills is requested less often", gap->from,
                         gap->requested);
            }
            next[i].fresh_loss = gap->lost && !before->lost;
            next[i].first_ns = before->first_ns;
            next[i].requested_ns = before->requested_ns;
            /* Of two that were one, a cycle may have requested the first only. */
            next[i].requested =
                before->requested < gap->requested ? before->requested : gap->requested;
            next[i].placed = before->placed;
        }
    }
    memcpy(model->gaps, next, (size_t)count * sizeof *next);
    model->gap_count = count;
}

/* From the contiguous end to the mark: frames where no gap is, nothing where one is. */
static void walk(ps_probe_t *probe, const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    int64_t at = ps_image_contiguous(image);
    int32_t gap = 0;
    for (int32_t i = 0; i < WALK_FRAMES && at < image->hwm; i++) {
        const int64_t next_gap = gap < image->gaps.count ? image->gaps.items[gap].from : image->hwm;
        const ps_frame_t *frame = ps_frame_at(&image->log, at);
        const int32_t length = ps_frame_length_acquire(frame);
        if (at == next_gap && gap < image->gaps.count) {
            if (length != 0) {
                complain(probe, model, "what is called missing is here", at, length);
                return;
            }
            at = image->gaps.items[gap++].to;
            continue;
        }
        const int64_t offset = at & image->log.term_mask;
        if (length < PS_HEADER_BYTES || at + ps_align32(length) > next_gap ||
            frame->term_offset != offset ||
            frame->term_id != ps_term_id_at(at, image->log.shift, image->log.initial_term_id)) {
            complain(probe, model, "what is called here is not", at, length);
            return;
        }
        at += ps_align32(length);
    }
}

/* Whether nothing arrived above the position of two heartbeats in a row, and no other connection
 * may be ahead. */
static bool is_withdrawn(const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    const int32_t gaps = image->gaps.count;
    int32_t connections = 0;
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        connections += image->connections[i].established != 0;
    }
    return model->due_low >= 0 && connections == 1 && gaps > 0 &&
           image->gaps.items[gaps - 1].to == image->hwm &&
           image->gaps.items[gaps - 1].from <= model->due_low;
}

static void check_log(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const bool active = image->state == PS_IMAGE_ACTIVE;
    const int64_t here = ps_image_contiguous(image);
    uint64_t word = 0;
    if (here < image->reserved_position) {
        memcpy(&word, ps_log_at(&image->log, here), sizeof word);
    }
    if (word != 0) {
        complain(probe, model, "there is something behind the end", here, (int64_t)word);
    }
    for (int32_t i = 0; i < model->took && active; i++) {
        const int64_t from = model->took_from[i];
        if (image->hwm < model->took_to[i] ||
            (from >= here && ps_frame_length_acquire(ps_frame_at(&image->log, from)) <= 0)) {
            complain(probe, model, "what was taken is not in the log", from, model->took_to[i]);
        }
    }
    /* Data that was sent beyond the kept range counts as missing as soon as there is room. */
    const bool caught_up = image->sent_seen > model->edge && image->hwm > model->edge &&
                           image->hwm <= image->sent_seen;
    /* Two heartbeats have withdrawn what a forged heartbeat stated. */
    const bool withdrawn =
        image->hwm < model->edge && model->twice_low >= 0 && image->hwm >= model->twice_low;
    if (active && image->hwm != model->edge && !caught_up && !withdrawn) {
        complain(probe, model, "the mark is not the end of what was read", image->hwm, model->edge);
    }
    if (caught_up && model->gap_count > 0 && model->gap_count == image->gaps.count) {
        const ps_probe_gap_t *last = &model->gaps[model->gap_count - 1];
        const bool joined = last->from < model->edge && last->lost && !last->fresh_loss;
        model->joined_bytes += joined ? image->hwm - model->edge : 0;
    }
    if (withdrawn) {
        model->furthest = image->hwm;
        model->stated_low = -1;
        model->twice_low = -1;
        model->sure_low = -1;
        model->due_low = -1;
    }
    promise(probe, model, P_IMAGE_WITHDRAWN, !active || !is_withdrawn(model), now_ns,
            "two lower heartbeats withdraw a mark");
    model->edge = image->hwm;
    if (image->sent_seen > image->hwm && image->packet_ns > model->heard_ns) {
        model->heard_ns = image->packet_ns; /* so is its sender, while nothing can be kept */
    }
    if ((model->took > 0 || image->gaps.count > 0) && probe->checks % WALK_EVERY == 0) {
        walk(probe, model);
    }
    model->took = 0;
}

/* ---- readers --------------------------------------------------------------------------------- */

/* A lagged reader counts as the leader: all data was there for it. */
static int64_t slowest_reader(const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    int64_t slowest = INT64_MAX;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *reader = &image->subscribers[i];
        if (ps_tether_gates(&reader->tether)) {
            const int64_t shown = reader->isolation.lagged && image->state == PS_IMAGE_ACTIVE
                                      ? ps_image_contiguous(image)
                                      : load(reader->position);
            slowest = shown < slowest ? shown : slowest;
        }
    }
    return slowest;
}

/* Returns the position from which the log must keep data for the slowest reader; INT64_MAX: no
 * reader gates. If an image ends while a reader is lagged, this reader reads on from the oldest
 * data that the image still had. */
static int64_t slowest_kept(const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    int64_t slowest = slowest_reader(model);
    if (image->state == PS_IMAGE_ACTIVE || slowest >= model->freed) {
        return slowest;
    }
    slowest = INT64_MAX;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *reader = &image->subscribers[i];
        const int64_t position = load(reader->position);
        const int64_t kept =
            reader->isolation.lagged && position < model->freed ? model->freed : position;
        slowest = ps_tether_gates(&reader->tether) && kept < slowest ? kept : slowest;
    }
    return slowest;
}

static bool has_isolated(const ps_image_t *image)
{
    bool any = false;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        any = any || image->subscribers[i].isolation.slot != NULL;
    }
    return any;
}

static void check_readers(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t slowest = slowest_reader(model);
    const int64_t term = image->log.term_length;
    if (slowest != INT64_MAX && slowest > model->consumption &&
        slowest <= ps_image_contiguous(image)) {
        model->consumption = slowest;
    }
    if (image->consumption > model->consumption) {
        complain(probe, model, "consumed is what was not read", image->consumption,
                 model->consumption);
    }
    /* A reader's progress is checked once it makes a status message due, or by the timer. If the
     * governor delays a message that is due already, the next progress is checked with it. */
    const int64_t due = ps_probe_sm_due(image, image->sm_position);
    promise(probe, model, P_IMAGE_CONSUMED,
            image->consumption == model->consumption || model->consumption < due ||
                image->state != PS_IMAGE_ACTIVE ||
                (image->consumption >= due && ps_probe_sm_delayed(probe, model, now_ns)),
            now_ns, "what readers released is seen");
    /* A term is kept below the slowest reader. An isolated reader that was lagged counted as the
     * leader meanwhile: when it keeps up again, all that it has not read is still there. */
    if (image->state == PS_IMAGE_ACTIVE || !model->inactive) {
        model->freed = image->free_to;
    }
    model->inactive = image->state != PS_IMAGE_ACTIVE;
    const int64_t needed = slowest_kept(model);
    const int64_t waited_for = needed == INT64_MAX ? image->consumption : needed;
    const int64_t kept = has_isolated(image) ? model->consumption : waited_for;
    if ((image->free_to > kept - term || image->free_to > waited_for) &&
        image->free_to > image->join_position && image->n_subscribers > 0 &&
        !image->params.adopted) {
        complain(probe, model, "what may still be read is given up", image->free_to, slowest);
    }
    const bool held =
        atomic_load_explicit(&image->join_hold, memory_order_relaxed) != PS_JOIN_HOLD_NONE;
    promise(probe, model, P_IMAGE_CLEANED,
            held || image->free_to >= image->consumption - term ||
                image->consumption != model->consumption,
            now_ns, "what nobody reads any more is given up");
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void check_cells(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const bool hot = image->hot != 0;
    const bool shown =
        load(image->position_cell) == ps_image_contiguous(image) &&
        load(image->high_water_cell) == image->hwm &&
        atomic_load_explicit(&image->slot->gaps, memory_order_relaxed) == image->gaps.count;
    promise(probe, model, P_IMAGE_SHOWN, shown || (!hot && image->state != PS_IMAGE_ACTIVE), now_ns,
            "counters show what has come");
    ps_probe_count(probe, model->host, PS_SYS_NAKS_SENT,
                   load(image->naks_cell) - model->naks_shown);
    model->naks_shown = load(image->naks_cell);
    if (load(image->naks_cell) != (int64_t)model->naks && image->params.naks_counter_id >= 0) {
        if (ps_probe_is_heard(image, now_ns)) { /* else they are counted, and go nowhere */
            complain(probe, model, "NAKs are counted wrong", load(image->naks_cell),
                     (int64_t)model->naks);
        }
        model->naks = (uint64_t)load(image->naks_cell);
    }
    const int64_t unread = ps_image_contiguous(image) - image->consumption;
    const int64_t most = (image->peer_capabilities & PS_CAP_PRESSURE) != 0
                             ? image->log.term_length / 2
                             : image->congestion.window_max;
    const int64_t fill = unread >= most ? 1000000 : unread * 1000000 / most;
    const int64_t shown_fill = atomic_load_explicit(&image->slot->fill_ppm, memory_order_relaxed);
    promise(probe, model, P_IMAGE_COUNTED,
            fill == shown_fill || image->state != PS_IMAGE_ACTIVE || image->gating == 0 ||
                image->consumption != model->consumption,
            now_ns, "the fill shown is that of the queue");
}

static void check_ordinals(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_sim_ledger_t *ledger =
        ps_probe_ledger(probe, image->params.session_id, image->params.stream_id);
    if (model->counted && image->ordinal < 0) {
        model->counted = false;
        complain(probe, model, "messages are not counted any more", image->ordinal_position,
                 ps_image_contiguous(image));
    }
    if (ledger == NULL || image->ordinal < 0) {
        return;
    }
    model->counted = true;
    const int64_t expected = ps_probe_ordinal(ledger, image->ordinal_position);
    if (image->ordinal != expected) {
        complain(probe, model, "messages are counted wrong", image->ordinal, expected);
    }
    const uint64_t count = atomic_load_explicit(&image->ring->count, memory_order_relaxed);
    if (count > 0) {
        const ps_index_entry_t *entry = &image->ring->entries[(count - 1) % PS_INDEX_ENTRIES];
        const char *wrong = ps_probe_index_check(
            &model->index, image->ring, image->ordinal_position, image->log.term_length,
            ps_context_epoch_offset_ns(image->context), now_ns);
        if (wrong != NULL) {
            complain(probe, model, wrong, load(&entry->position), image->ordinal_position);
        }
        if (load(&entry->ordinal) != ps_probe_ordinal(ledger, load(&entry->position))) {
            complain(probe, model, "the index counts messages wrong", load(&entry->ordinal),
                     load(&entry->position));
        }
    }
}

/* Checks the readers: the image ends with its last reader, and not earlier for that reason. */
static void check_life(ps_probe_t *probe, ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    const bool left = model->readers > 0 && image->n_subscribers == 0;
    const bool one_left = model->readers > 1 && image->n_subscribers == model->readers - 1;
    if (left && image->state == PS_IMAGE_ACTIVE) {
        complain(probe, model, "nobody reads it, and it goes on", model->readers, 0);
    }
    if (one_left && image->n_subscribers > 0 && model->last_state == PS_IMAGE_ACTIVE &&
        image->state == PS_IMAGE_ENDED && image->end_reason == PS_END_NO_SUBSCRIBER) {
        complain(probe, model, "it ends while somebody reads it", model->readers,
                 image->n_subscribers);
    }
    model->readers = image->n_subscribers;
    model->last_state = image->state;
}

void ps_probe_image_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    if (model->image->receiver == NULL) {
        return;
    }
    check_life(probe, model);
    check_gaps(probe, model, now_ns);
    check_log(probe, model, now_ns);
    check_readers(probe, model, now_ns);
    check_cells(probe, model, now_ns);
    check_ordinals(probe, model, now_ns);
}
