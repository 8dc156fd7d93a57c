/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_receivers.c: processes frames of receivers for a publication: status messages,
 * NAKs, errors (docs/spec/wire-format.md section 5). */
#include <string.h>

#include "ps_publication_credit.h"
#include "ps_sender.h"
#include "ps_assert.h"

enum { RESEND_WINDOW = 128 * 1024, UNICAST_MULTIPLE = 16 };
#define JOIN_REPORT_NS INT64_C(1000000000) /* refusals are reported no more often */

static ps_publication_receiver_t *find_receiver(ps_publication_t *pub, int64_t receiver_id)
{
    const int32_t index = ps_map_get(&pub->receiver_index, (uint64_t)receiver_id);
    return index == 0 ? NULL : &pub->receivers[index - 1];
}

_Static_assert(sizeof(((ps_receiver_view_t *)0)->reason_name) == PS_NAME_MAX + 1 &&
                   sizeof(((ps_receiver_view_t *)0)->reason_host) == PS_NAME_MAX + 1,
               "names as in trailers");

static void show_receiver(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                          const ps_sm_t *sm, int64_t position, const ps_addr_t *from)
{
    const bool speaks = sm->trailer.capabilities != 0;
    receiver->view =
        (ps_receiver_view_t){ .receiver_id = receiver->id,
                              .heard_ns = receiver->heard_ns,
                              .position = position,
                              .window = sm->window,
                              .has_group_tag = sm->has_group_tag,
                              .group_tag = sm->group_tag,
                              .capabilities = sm->trailer.capabilities,
                              .reason = receiver->reason,
                              .reason_client = receiver->reason_client,
                              .backlog_bytes = speaks ? sm->trailer.reason_backlog_bytes : 0,
                              .fill_ppm = speaks ? sm->trailer.fill_ppm : 0,
                              .address = *from };
    if (speaks) {
        memcpy(receiver->view.reason_name, sm->trailer.client_name, PS_NAME_MAX + 1);
        memcpy(receiver->view.reason_host, sm->trailer.host, PS_NAME_MAX + 1);
    }
    ps_snapshot_write(pub->snapshot, (int32_t)(receiver - pub->receivers), &receiver->view);
    ps_publication_account_restated(pub, receiver);
}

/* Notes a receiver that left or refused, for the cause no_receiver. A stream that requires
 * receivers with a tag does not wait for others. */
static void note_absent(ps_publication_t *pub, int64_t id, const ps_addr_t *address, bool has_tag,
                        int64_t tag)
{
    if (pub->fc.min_size == 0 || ps_fc_counts(&pub->fc, has_tag, tag)) {
        pub->absent_id = id;
        pub->absent_address = *address;
    }
}

static void forget_receiver(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                            int64_t now_ns)
{
    static const ps_receiver_view_t nobody;
    const int64_t pacing_rate = receiver->pacing_rate;
    const ps_receiver_view_t *view = &receiver->view;
    note_absent(pub, receiver->id, &view->address, view->has_group_tag != 0, view->group_tag);
    PS_ASSERT(receiver >= pub->receivers && receiver < pub->receivers + pub->receiver_count);
    ps_publication_receiver_t *last = &pub->receivers[--pub->receiver_count];
    pub->credits.granters_changed =
        pub->credits.granters_changed || receiver->credit_limit != PS_CREDIT_OPEN;
    ps_map_remove(&pub->receiver_index, (uint64_t)receiver->id);
    if (receiver != last) {
        *receiver = *last;
        (void)ps_map_put(&pub->receiver_index, (uint64_t)receiver->id,
                         (int32_t)(receiver - pub->receivers) + 1);
    }
    ps_snapshot_write(pub->snapshot, (int32_t)(receiver - pub->receivers), &receiver->view);
    ps_snapshot_write(pub->snapshot, (int32_t)(last - pub->receivers), &nobody);
    pub->has_receivers = pub->receiver_count > 0;
    pub->credits.stale = pub->credits.on;
    ps_publication_pace_left(pub, pacing_rate, now_ns);
}

/* The last time that a receiver stated more than before: the stream advances (semantics of
 * last_consumed_ns, docs/spec/shared-memory.md).  Its first statement is no advance. */
static void note_consumed(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                          int64_t position, int64_t now_ns)
{
    if (position > receiver->consumed) {
        receiver->consumed = position;
        atomic_store_explicit(&pub->slot->last_consumed_ns, now_ns, memory_order_relaxed);
    }
}

/* A group may have more members than the table; further members count in flow control but not in
 * the table. */
static void refresh_receiver(ps_publication_t *pub, const ps_sm_t *sm, int64_t position,
                             const ps_addr_t *from, int64_t now_ns)
{
    ps_publication_receiver_t *receiver = find_receiver(pub, sm->receiver_id);
    if (receiver == NULL) {
        if (pub->credits.awaits) {
            ps_publication_credit_arrived(pub, sm->receiver_id);
        }
        if (pub->receiver_count == pub->receiver_capacity) {
            return;
        }
        receiver = &pub->receivers[pub->receiver_count++];
        receiver->id = sm->receiver_id;
        receiver->consumed = position;
        receiver->pacing_rate = 0;
        receiver->credit_limit = PS_CREDIT_OPEN;
        receiver->credit_frozen = false;
        receiver->credit_answer = false;
        (void)ps_map_put(&pub->receiver_index, (uint64_t)receiver->id, pub->receiver_count);
        pub->greets = true;
        ps_publication_due(pub, now_ns);
    }
    pub->absent_id = pub->absent_id == receiver->id ? 0 : pub->absent_id;
    receiver->heard_ns = now_ns;
    note_consumed(pub, receiver, position, now_ns);
    receiver->edge = position + sm->window;
    receiver->capabilities = sm->trailer.capabilities;
    const uint32_t reason = sm->trailer.capabilities != 0 ? sm->trailer.reason : 0;
    const bool restated = receiver->reason != reason;
    receiver->reason = reason;
    receiver->reason_client = sm->trailer.capabilities != 0 ? sm->trailer.reason_client : 0;
    ps_publication_credit_heard(pub, receiver, sm);
    PS_ASSERT(receiver < pub->receivers + pub->receiver_count);
    show_receiver(pub, receiver, sm, position, from);
    if (restated) { /* its own reason may be the cause */
        ps_publication_account(pub, now_ns);
    }
    pub->has_receivers = true;
    pub->has_initial_connection = true;
    if (!pub->params.group) {
        /* An Aeron receiver requests one gap at a time and relies on one action that a NAK
         * replaces. A penstock receiver requests all gaps. */
        const bool many = (sm->trailer.capabilities & PS_CAP_PENSTOCK) != 0 &&
                          pub->context->params.loss_recovery == PS_LOSS_ALL_GAPS;
        ps_retransmit_set_capacity(&pub->retransmit, many ? PS_RESEND_MAX : 1);
    }
    ps_publication_on_congestion(pub, receiver, sm, now_ns);
}

static void on_receiver_leaving(ps_publication_t *pub, const ps_sm_t *sm, int64_t now_ns)
{
    ps_publication_receiver_t *receiver = find_receiver(pub, sm->receiver_id);
    if (pub->credits.awaits) {
        ps_publication_credit_arrived(pub, sm->receiver_id);
    }
    if (receiver != NULL) {
        forget_receiver(pub, receiver, now_ns);
    }
    /* A receiver that leaves an active stream confirms no end, because another may join. A silent
     * receiver confirms none either while another is heard, which may need retransmits. */
    const bool last = pub->receiver_count == 0;
    if (!pub->params.group && pub->end_of_stream && !pub->eos_acked && last) {
        pub->eos_acked = true;
        pub->pending |= PS_PEND_EOS_ACK;
    }
}

static void set_limit(ps_publication_t *pub, int64_t limit)
{
    if (limit != pub->sender_limit) {
        pub->sender_limit = limit;
        atomic_store_explicit(pub->sender_limit_cell, limit, memory_order_release);
    }
}

/* ---- receivers that ask to join -------------------------------------------------------------- */

static void report_join(ps_publication_t *pub, int32_t verdict, int64_t receiver_id,
                        const ps_addr_t *from, int64_t now_ns)
{
    if (verdict != PS_JOIN_EXPIRED) {
        pub->join_refused++;
        if (now_ns - pub->join_notified_ns < JOIN_REPORT_NS) {
            return;
        }
        pub->join_notified_ns = now_ns;
    }
    pub->join_verdict = verdict;
    pub->join_id = receiver_id;
    pub->join_from = *from;
    pub->pending |= PS_PEND_JOIN;
    ps_publication_flush_events(pub, now_ns);
}

void ps_publication_show_joiner(ps_publication_t *pub, int64_t now_ns)
{
    const ps_join_t *join = pub->fc.join;
    if (join == NULL || !ps_join_holds(join)) {
        return;
    }
    const ps_receiver_view_t view = { .receiver_id = join->joiner,
                                      .heard_ns = now_ns,
                                      .address = join->joiner_address };
    ps_snapshot_write(pub->snapshot, pub->receiver_capacity, &view);
}

static void on_setup_requested(ps_publication_t *pub, const ps_sm_t *sm, const ps_addr_t *from,
                               int64_t now_ns)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    const int32_t verdict = pub->fc.ops->on_setup_requested(&pub->fc, sm, from, now_ns);
    pub->setup_elicited = true;
    if (verdict != PS_JOIN_GRANTED) {
        report_join(pub, verdict, sm->receiver_id, from, now_ns);
    }
    ps_publication_due(pub, now_ns);
    sender->urgent = true;
}

int64_t ps_publication_step_flow_control(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t before = pub->sender_limit;
    const int32_t tracked = pub->fc.tracked;
    const bool held = pub->fc.join != NULL && ps_join_holds(pub->fc.join);
    set_limit(pub, pub->fc.ops->on_idle(&pub->fc, before, pub->sender_position, now_ns));
    if (held && !ps_join_holds(pub->fc.join)) {
        report_join(pub, PS_JOIN_EXPIRED, pub->fc.join->joiner, &pub->fc.join->joiner_address,
                    now_ns);
    }
    pub->credits.stale = pub->credits.stale || (pub->credits.on && pub->fc.tracked != tracked);
    const bool gone = pub->fc.tracked != tracked;
    if (gone) { /* of those required one may have gone */
        (void)ps_publication_update(pub, pub->turn.queued, now_ns);
    }
    if (gone || pub->sender_limit > before) { /* a receiver that held it is gone */
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    return pub->fc.due_ns;
}

void ps_publication_set_custom_limit(ps_publication_t *pub, int64_t limit, int64_t until_ns,
                                     int64_t now_ns)
{
    if (pub->endpoint == NULL || pub->fc.kind != PS_FC_CUSTOM) {
        return;
    }
    const int64_t before = pub->sender_limit;
    set_limit(pub, ps_fc_set_custom(&pub->fc, limit, until_ns, now_ns));
    if (pub->sender_limit > before) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
}

void ps_publication_on_sm(ps_publication_t *pub, const ps_sm_t *sm, int64_t position,
                          const ps_addr_t *from, int64_t now_ns)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    if ((sm->flags & PS_SM_SETUP) != 0) {
        if (!pub->end_of_stream) {
            on_setup_requested(pub, sm, from, now_ns);
        }
        return;
    }
    if ((sm->flags & PS_SM_EOS) != 0) {
        on_receiver_leaving(pub, sm, now_ns);
    } else {
        const bool first = !pub->has_initial_connection;
        refresh_receiver(pub, sm, position, from, now_ns);
        if (first) { /* timers of a connected publication begin */
            pub->heartbeat_sent_ns = now_ns;
        }
    }
    set_limit(pub, pub->fc.ops->on_sm(&pub->fc, sm, position, pub->sender_limit, from, now_ns));
    if (pub->fc.due_ns < *pub->due_ns) {
        ps_publication_due(pub, pub->fc.due_ns);
    }
    if (pub->credits.stale) { /* before a publisher sees the connection */
        (void)ps_publication_credit_step(pub, now_ns);
    }
    ps_publication_update_connected(pub, now_ns);
    ps_sender_ready(sender, pub);
}

/* Processes a range that a receiver requests; false: malformed. */
static bool request_again(ps_publication_t *pub, const ps_nak_t *nak, int64_t now_ns)
{
    const ps_log_t *log = &pub->log;
    const int32_t term = log->term_length;
    if (nak->term_offset < 0 || nak->term_offset >= term || (nak->term_offset & 31) != 0 ||
        nak->length < 0 || nak->length > term - nak->term_offset) {
        return false;
    }
    const int64_t from =
        ps_position(nak->term_id, nak->term_offset, log->shift, log->initial_term_id);
    int64_t multiple = pub->params.retransmit_window_multiple;
    multiple = multiple <= 0 ? (pub->params.group ? pub->fc.ops->retransmit_window_multiple
                                                  : UNICAST_MULTIPLE)
                             : multiple;
    const int64_t most = multiple * (term / 2 < RESEND_WINDOW ? term / 2 : RESEND_WINDOW);
    const int64_t length = nak->length < most ? nak->length : most;
    if (length == 0 || from < 0 || from < ps_publication_sent_floor(pub) ||
        from >= pub->sender_position) {
        return true;
    }
    const int verdict = ps_retransmit_on_nak(&pub->retransmit, from, from + length, now_ns);
    if (verdict == PS_RESEND_OVERFLOW) {
        ps_system_add(pub->context, PS_SYS_RETRANSMIT_OVERFLOW, 1);
    } else if (verdict == PS_RESEND_ADDED && pub->retransmit.delay_ns == 0) {
        ps_sender_ready_repair(ps_publication_sender(pub), pub);
    } else if (verdict == PS_RESEND_ADDED) {
        ps_publication_due(pub, now_ns + pub->retransmit.delay_ns);
    }
    return true;
}

static void count_nak(ps_publication_t *pub, bool valid)
{
    if (!valid) {
        ps_system_add(pub->context, PS_SYS_INVALID_PACKETS, 1);
        return;
    }
    atomic_fetch_add_explicit(pub->naks_cell, 1, memory_order_relaxed);
    ps_system_add(pub->context, PS_SYS_NAKS_RECEIVED, 1);
}

void ps_publication_on_nak(ps_publication_t *pub, const ps_nak_t *nak, int64_t now_ns)
{
    count_nak(pub, request_again(pub, nak, now_ns));
}

void ps_publication_on_nak_list(ps_publication_t *pub, const ps_nak_list_t *list, int64_t now_ns)
{
    bool valid = true;
    for (int32_t i = 0; i < list->count && valid; i++) {
        const ps_nak_t nak = { .session_id = list->session_id,
                               .stream_id = list->stream_id,
                               .term_id = list->ranges[i].term_id,
                               .term_offset = list->ranges[i].term_offset,
                               .length = list->ranges[i].length };
        valid = request_again(pub, &nak, now_ns);
    }
    count_nak(pub, valid);
}

void ps_publication_on_error(ps_publication_t *pub, const ps_err_t *err, const ps_addr_t *from,
                             int64_t now_ns)
{
    ps_publication_receiver_t *receiver = find_receiver(pub, err->receiver_id);
    ps_event_t event = {
        .type = PS_EV_REMOTE_ERROR,
        .kind = PS_KIND_PUBLICATION,
        .id = pub->id,
        .now_ns = now_ns,
        .session_id = err->session_id,
        .stream_id = err->stream_id,
        .remote_error = { .source = *from, .receiver_id = err->receiver_id, .code = err->code }
    };
    const size_t room = sizeof(event.remote_error.text) - 1;
    const size_t length = (size_t)err->text_length < room ? (size_t)err->text_length : room;
    if (length > 0) { /* else there may be no text at all */
        memcpy(event.remote_error.text, err->text, length);
    }
    (void)ps_agent_emit(pub->sender->agent, &event); /* it is repeated by its sender */
    if (receiver != NULL) { /* the receiver accepts no data any more and sends no status message */
        forget_receiver(pub, receiver, now_ns);
        (void)ps_publication_credit_step(pub, now_ns); /* it may have granted the last credits */
        ps_publication_update_connected(pub, now_ns);
        ps_sender_ready(ps_publication_sender(pub), pub);
    } else {
        note_absent(pub, err->receiver_id, from, err->has_group_tag != 0, err->group_tag);
    }
    ps_publication_account(pub, now_ns); /* the receiver that refused may be the culprit */
    pub->fc.ops->on_error(&pub->fc, err->receiver_id, now_ns);
    if (pub->fc.due_ns < *pub->due_ns) {
        ps_publication_due(pub, pub->fc.due_ns);
    }
}

int64_t ps_publication_expire_receivers(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t timeout_ns = pub->context->params.connection_timeout_ns;
    if (now_ns < pub->receivers_check_ns) {
        return pub->receivers_check_ns;
    }
    int64_t next_ns = INT64_MAX;
    const int32_t before = pub->receiver_count;
    for (int32_t i = 0; i < pub->receiver_count;) {
        const int64_t end_ns = pub->receivers[i].heard_ns + timeout_ns;
        if (end_ns <= now_ns) {
            forget_receiver(pub, &pub->receivers[i], now_ns);
        } else {
            next_ns = end_ns < next_ns ? end_ns : next_ns;
            i++;
        }
    }
    if (pub->receiver_count != before) { /* its credits may have held what is in the log */
        (void)ps_publication_update(pub, pub->turn.queued, now_ns);
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    /* Without receivers, the first status message starts the timer again. */
    pub->receivers_check_ns = next_ns == INT64_MAX ? 0 : next_ns;
    return next_ns;
}
