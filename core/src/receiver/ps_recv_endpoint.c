/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_recv_endpoint.c: the receiver thread's half: sessions, interest, elicitation of SETUPs,
 * commands. The conductor's half is ps_recv_endpoint_api.c.
 */
#include "ps_recv_endpoint.h"
#include "ps_assert.h"

#include <stdlib.h>
#include <string.h>

#include "ps_addr.h"
#include "ps_receiver.h"

#define PS_ELICIT_NS INT64_C(1000000000)
#define PS_SILENT_NS INT64_C(5000000000)

/* ---- sessions -------------------------------------------------------------------------------- */

ps_session_t *ps_recv_endpoint_find(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                    int32_t session_id)
{
    uint64_t key = ps_map_key(stream_id, session_id);
    int32_t index;

    if (endpoint->cached != NULL && endpoint->cached_key == key) {
        return endpoint->cached;
    }
    index = ps_map_get(&endpoint->session_index, key);
    if (index == 0) {
        return NULL;
    }
    endpoint->cached_key = key;
    endpoint->cached = &endpoint->sessions[index - 1];
    return endpoint->cached;
}

static bool is_kept(int32_t state)
{
    return state == PS_SESSION_COOL_DOWN || state == PS_SESSION_NO_INTEREST;
}

static bool has_deadline(int32_t state)
{
    return state == PS_SESSION_PENDING_SETUP || state == PS_SESSION_REFUSED;
}

void ps_recv_endpoint_set_state(ps_recv_endpoint_t *endpoint, ps_session_t *session, int32_t state)
{
    endpoint->pending -= has_deadline(session->state);
    endpoint->pending += has_deadline(state);
    endpoint->kept += is_kept(state) - is_kept(session->state);
    session->state = state;
    PS_ASSERT(endpoint->pending >= 0 && endpoint->kept >= 0);
}

ps_session_t *ps_recv_endpoint_insert(ps_recv_endpoint_t *endpoint, int32_t stream_id,
                                      int32_t session_id, int32_t state)
{
    const bool is_new = endpoint->free_session == 0;
    const int32_t index = is_new ? endpoint->sessions_used + 1 : endpoint->free_session;
    ps_session_t *session;

    if (ps_recv_endpoint_is_full(endpoint) ||
        (state == PS_SESSION_PENDING_SETUP && endpoint->pending >= PS_RECV_PENDING_MAX)) {
        return NULL;
    }
    PS_ASSERT(index > 0 && index <= endpoint->sessions_limit);
    session = &endpoint->sessions[index - 1];
    PS_ASSERT(session->state == PS_SESSION_FREE);
    if (!ps_map_put(&endpoint->session_index, ps_map_key(stream_id, session_id), index)) {
        return NULL;
    }
    if (is_new) {
        endpoint->sessions_used = index;
    } else {
        endpoint->free_session = session->next_free;
    }
    *session = (ps_session_t){ .stream_id = stream_id,
                               .session_id = session_id,
                               .deadline_ns = INT64_MAX };
    ps_recv_endpoint_set_state(endpoint, session, state);
    return session;
}

void ps_recv_endpoint_erase(ps_recv_endpoint_t *endpoint, ps_session_t *session)
{
    ps_half_open_leave(&endpoint->receiver->half_open, session->half_open);
    session->half_open = 0;
    ps_map_remove(&endpoint->session_index, ps_map_key(session->stream_id, session->session_id));
    ps_recv_endpoint_set_state(endpoint, session, PS_SESSION_FREE);
    session->image = NULL;
    session->next_free = endpoint->free_session;
    PS_ASSERT(session >= endpoint->sessions &&
              session < endpoint->sessions + endpoint->sessions_used);
    endpoint->free_session = (int32_t)(session - endpoint->sessions) + 1;
    endpoint->cached = NULL;
}

/* Tells the conductor, for information only: a full ring may drop this event. */
static void leave_kept(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, ps_session_t *session)
{
    ps_event_t event = { .type = PS_EV_SESSION_LEFT,
                         .kind = PS_KIND_RECV_ENDPOINT,
                         .id = endpoint->params.id,
                         .now_ns = receiver->now_ns,
                         .stream_id = session->stream_id,
                         .session_id = session->session_id };

    (void)ps_agent_emit(receiver->agent, &event);
    ps_recv_endpoint_erase(endpoint, session);
}

void ps_recv_endpoint_keep(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                           ps_session_t *session, int32_t state)
{
    ps_session_t *oldest = NULL;

    PS_ASSERT(is_kept(state));
    ps_recv_endpoint_set_state(endpoint, session, state);
    session->kept_ns = receiver->now_ns;
    if (endpoint->kept <= PS_RECV_KEPT_MAX) {
        return;
    }
    for (int32_t i = 0; i < endpoint->sessions_used; i++) {
        ps_session_t *other = &endpoint->sessions[i];

        if (is_kept(other->state) && other != session &&
            (oldest == NULL || other->kept_ns < oldest->kept_ns)) {
            oldest = other;
        }
    }
    PS_ASSERT(oldest != NULL);
    leave_kept(receiver, endpoint, oldest);
}

/* ---- interest -------------------------------------------------------------------------------- */

bool ps_recv_endpoint_wants(const ps_recv_endpoint_t *endpoint, int32_t stream_id,
                            int32_t session_id)
{
    return ps_map_get(&endpoint->any_interest, ps_map_key(stream_id, 0)) > 0 ||
           ps_map_get(&endpoint->session_interest, ps_map_key(stream_id, session_id)) > 0;
}

bool ps_recv_endpoint_has_interest(const ps_recv_endpoint_t *endpoint)
{
    return endpoint->any_interest.count + endpoint->session_interest.count > 0;
}

static void elicit_everywhere(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        ps_recv_destination_t *destination = endpoint->destinations[i];

        if (destination != NULL && destination->control.family != 0) {
            destination->elicit_due_ns = receiver->now_ns;
            ps_receiver_timer(receiver, receiver->now_ns);
        }
    }
}

static void add_interest(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                         const ps_command_t *command)
{
    bool any_session = command->interest.any_session;
    int32_t stream_id = command->interest.stream_id;
    int32_t session_id = any_session ? 0 : command->interest.session_id;
    ps_map_t *map = any_session ? &endpoint->any_interest : &endpoint->session_interest;
    uint64_t key = ps_map_key(stream_id, session_id);
    bool first = !ps_recv_endpoint_has_interest(endpoint);

    if (!ps_map_put(map, key, ps_map_get(map, key) + 1)) {
        return; /* the conductor counts too and refuses first */
    }
    if (first) {
        elicit_everywhere(receiver, endpoint);
    }
    for (int32_t i = 0; !any_session && i < PS_RECV_DESTINATIONS_MAX; i++) {
        ps_recv_destination_t *destination = endpoint->destinations[i];

        if (destination != NULL && destination->control.family != 0) {
            ps_recv_endpoint_elicit(receiver, destination, &destination->control, stream_id,
                                    session_id, receiver->now_ns);
        }
    }
}

static void purge_unwanted(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint)
{
    for (int32_t i = 0; i < endpoint->sessions_used; i++) {
        ps_session_t *session = &endpoint->sessions[i];

        if (session->state == PS_SESSION_FREE || session->state == PS_SESSION_ACTIVE ||
            ps_recv_endpoint_wants(endpoint, session->stream_id, session->session_id)) {
            continue;
        }
        if (is_kept(session->state)) {
            leave_kept(receiver, endpoint, session);
        } else {
            ps_recv_endpoint_erase(endpoint, session);
        }
    }
}

static void remove_interest(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                            const ps_command_t *command)
{
    bool any_session = command->interest.any_session;
    int32_t session_id = any_session ? 0 : command->interest.session_id;
    ps_map_t *map = any_session ? &endpoint->any_interest : &endpoint->session_interest;
    uint64_t key = ps_map_key(command->interest.stream_id, session_id);
    int32_t count = ps_map_get(map, key);

    if (count > 1) {
        (void)ps_map_put(map, key, count - 1);
    } else if (count == 1) {
        ps_map_remove(map, key);
        purge_unwanted(receiver, endpoint);
    }
}

static void forget_session(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                           const ps_command_t *command)
{
    int32_t stream_id = command->forget.stream_id;
    int32_t session_id = command->forget.session_id;
    ps_session_t *session = ps_recv_endpoint_find(endpoint, stream_id, session_id);

    if (session != NULL && session->state == PS_SESSION_ACTIVE) {
        return; /* an image overtook the refusal */
    }
    if (!command->forget.keep) {
        if (session != NULL) {
            ps_recv_endpoint_erase(endpoint, session);
        }
        return;
    }
    if (session == NULL && ps_recv_endpoint_wants(endpoint, stream_id, session_id)) {
        session = ps_recv_endpoint_insert(endpoint, stream_id, session_id, PS_SESSION_NO_INTEREST);
    }
    if (session != NULL) {
        ps_half_open_leave(&receiver->half_open, session->half_open);
        session->half_open = 0;
        ps_recv_endpoint_keep(receiver, endpoint, session, PS_SESSION_NO_INTEREST);
    }
}

static void refuse_session(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                           const ps_command_t *command)
{
    const ps_recv_destination_t *destination = endpoint->destinations[command->refuse.destination];
    ps_session_t *session =
        ps_recv_endpoint_find(endpoint, command->refuse.stream_id, command->refuse.session_id);
    ps_err_t error = { .session_id = command->refuse.session_id,
                       .stream_id = command->refuse.stream_id,
                       .receiver_id = endpoint->params.receiver_id,
                       .has_group_tag = endpoint->params.has_group_tag,
                       .group_tag =
                           endpoint->params.has_group_tag ? endpoint->params.group_tag : -1,
                       .code = PS_ERR_IMAGE_REJECTED,
                       .text = (const uint8_t *)command->refuse.reason,
                       .text_length = (int32_t)strlen(command->refuse.reason) };

    if (session == NULL || session->state != PS_SESSION_INIT) {
        return;
    }
    ps_half_open_leave(&receiver->half_open, session->half_open);
    session->half_open = 0;
    ps_recv_endpoint_set_state(endpoint, session, PS_SESSION_REFUSED);
    session->deadline_ns = receiver->now_ns + PS_REFUSED_NS;
    if (session->deadline_ns < endpoint->pending_due_ns) {
        endpoint->pending_due_ns = session->deadline_ns;
    }
    ps_receiver_timer(receiver, session->deadline_ns);
    if (destination != NULL) {
        const ps_addr_t *to = ps_recv_destination_reply_to(destination, &command->refuse.source);

        ps_receiver_outbox_commit(
            receiver, ps_wire_build_err(ps_receiver_outbox(receiver, destination, to), &error));
        ps_system_add(receiver->context, PS_SYS_ERROR_FRAMES_SENT, 1);
    }
}

/* ---- elicitation and timers ------------------------------------------------------------------ */

const ps_addr_t *ps_recv_destination_reply_to(const ps_recv_destination_t *destination,
                                              const ps_addr_t *from)
{
    if (destination->multicast && destination->group_control.family != 0) {
        return &destination->group_control;
    }
    return destination->control.family != 0 ? &destination->control : from;
}

void ps_recv_endpoint_elicit(ps_receiver_t *receiver, const ps_recv_destination_t *destination,
                             const ps_addr_t *to, int32_t stream_id, int32_t session_id,
                             int64_t now_ns)
{
    const ps_recv_endpoint_params_t *params = &destination->endpoint->params;
    ps_sm_t sm = { .session_id = session_id,
                   .stream_id = stream_id,
                   .flags = PS_SM_SETUP,
                   .receiver_id = params->receiver_id,
                   .group_tag = params->group_tag,
                   .has_group_tag = params->has_group_tag };

    (void)now_ns;
    ps_receiver_outbox_commit(
        receiver, ps_wire_build_sm(ps_receiver_outbox(receiver, destination, to), &sm, NULL));
    receiver->sm_sent++;
}

static void tick_destination(ps_receiver_t *receiver, ps_recv_destination_t *destination,
                             int64_t now_ns, int64_t *due_ns)
{
    if (destination->control.family == 0 || !ps_recv_endpoint_has_interest(destination->endpoint)) {
        return;
    }
    if (now_ns >= destination->elicit_due_ns) {
        ps_recv_endpoint_elicit(receiver, destination, &destination->control, 0, 0, now_ns);
        destination->elicit_due_ns = now_ns + PS_ELICIT_NS;
    }
    if (destination->elicit_due_ns < *due_ns) {
        *due_ns = destination->elicit_due_ns;
    }
    if (now_ns >= destination->heard_ns + PS_SILENT_NS && now_ns >= destination->silent_due_ns) {
        ps_event_t event = { .type = PS_EV_SILENT,
                             .kind = PS_KIND_RECV_ENDPOINT,
                             .id = destination->endpoint->params.id,
                             .now_ns = now_ns,
                             .silent = { .source = destination->control,
                                         .destination_id = destination->id } };

        if (ps_agent_emit(receiver->agent, &event)) {
            destination->silent_due_ns = now_ns + PS_SILENT_NS;
        }
    }
}

static void expire_pending(ps_recv_endpoint_t *endpoint, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;

    for (int32_t i = 0; i < endpoint->sessions_used && endpoint->pending > 0; i++) {
        ps_session_t *session = &endpoint->sessions[i];

        if (!has_deadline(session->state)) {
            continue;
        }
        if (session->deadline_ns <= now_ns) {
            ps_recv_endpoint_erase(endpoint, session);
        } else if (session->deadline_ns < due_ns) {
            due_ns = session->deadline_ns;
        }
    }
    endpoint->pending_due_ns = due_ns;
}

void ps_recv_endpoint_tick(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, int64_t now_ns,
                           int64_t *due_ns)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (endpoint->destinations[i] != NULL) {
            tick_destination(receiver, endpoint->destinations[i], now_ns, due_ns);
        }
    }
    if (now_ns >= endpoint->pending_due_ns) {
        expire_pending(endpoint, now_ns);
    }
    if (endpoint->pending_due_ns < *due_ns) {
        *due_ns = endpoint->pending_due_ns;
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Stops using the destination. The conductor closes and frees it, because this thread must do
 * neither. */
static void detach_destination(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, int32_t index)
{
    ps_recv_destination_t *destination = endpoint->destinations[index];

    if (destination == NULL) {
        return;
    }
    ps_receiver_flush(receiver);
    ps_agent_unwatch(receiver->agent, receiver->ops->fd(destination->socket));
    PS_ASSERT(endpoint->left[index] == NULL);
    endpoint->left[index] = destination;
    endpoint->destinations[index] = NULL;
    PS_ASSERT(receiver->n_destinations > 0);
    receiver->n_destinations--;
    receiver->outbox.destination = NULL;
    for (int32_t i = 0; i < receiver->n_images; i++) {
        if (receiver->images[i]->endpoint == endpoint) {
            receiver->images[i]->connections[index] = (ps_connection_t){ 0 };
        }
    }
}

static void remove_endpoint(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint)
{
    ps_recv_endpoint_t *last = receiver->endpoints[receiver->n_endpoints - 1];

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        detach_destination(receiver, endpoint, i);
    }
    for (int32_t i = 0; i < endpoint->sessions_used; i++) {
        ps_half_open_leave(&receiver->half_open, endpoint->sessions[i].half_open);
        endpoint->sessions[i].half_open = 0;
    }
    for (int32_t i = 0; i < receiver->n_images; i++) {
        if (receiver->images[i]->endpoint == endpoint) {
            receiver->images[i]->endpoint = NULL;
        }
    }
    PS_ASSERT(receiver->endpoints[endpoint->slot] == endpoint);
    receiver->endpoints[endpoint->slot] = last;
    last->slot = endpoint->slot;
    PS_ASSERT(receiver->n_endpoints > 0);
    receiver->n_endpoints--;
    ps_receiver_release(receiver, PS_KIND_RECV_ENDPOINT, endpoint->params.id, 0);
}

static void remove_destination(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint, int32_t index)
{
    ps_recv_destination_t *destination = endpoint->destinations[index];

    if (destination != NULL) {
        detach_destination(receiver, endpoint, index);
        ps_receiver_release(receiver, PS_KIND_RECV_DESTINATION, endpoint->params.id,
                            destination->id);
    }
}

static void add_destination(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                            ps_recv_destination_t *destination)
{
    PS_ASSERT(endpoint->destinations[destination->index] == NULL);
    endpoint->destinations[destination->index] = destination;
    if (destination->index >= endpoint->destinations_end) {
        endpoint->destinations_end = destination->index + 1;
    }
    destination->elicit_due_ns = receiver->now_ns;
    destination->heard_ns = receiver->now_ns;
    receiver->n_destinations++;
    ps_agent_watch(receiver->agent, receiver->ops->fd(destination->socket));
    ps_receiver_timer(receiver, receiver->now_ns);
}

/* The control address moved: what is said about live sessions goes there from now on. */
static void set_control(ps_receiver_t *receiver, ps_recv_endpoint_t *endpoint,
                        const ps_command_t *command)
{
    const int32_t index = command->control.index;
    ps_recv_destination_t *destination;
    bool moved;

    PS_ASSERT(index >= 0 && index < PS_RECV_DESTINATIONS_MAX);
    destination = endpoint->destinations[index];
    if (destination == NULL) {
        return;
    }
    moved = !ps_addr_equal(&destination->control, &command->control.address);
    destination->control = command->control.address;
    destination->elicit_due_ns = receiver->now_ns;
    ps_receiver_timer(receiver, receiver->now_ns);
    for (int32_t i = 0; i < receiver->n_images; i++) {
        ps_image_t *image = receiver->images[i];

        if (image->endpoint == endpoint && image->connections[index].established &&
            destination->control.family != 0) {
            image->connections[index].control =
                *ps_recv_destination_reply_to(destination, &destination->control);
            if (moved) { /* the sender moved too: its next frame shows its address */
                image->connections[index].source.family = 0;
            }
        }
    }
}

bool ps_recv_endpoint_on_command(ps_receiver_t *receiver, const ps_command_t *command)
{
    ps_recv_endpoint_t *endpoint = command->recv_endpoint;

    switch (command->type) {
    case PS_RCMD_ADD_ENDPOINT:
        PS_ASSERT(receiver->n_endpoints < PS_RECEIVER_ENDPOINTS_MAX);
        endpoint->slot = receiver->n_endpoints;
        receiver->endpoints[receiver->n_endpoints++] = endpoint;
        break;
    case PS_RCMD_REMOVE_ENDPOINT: remove_endpoint(receiver, endpoint); break;
    case PS_RCMD_ADD_DESTINATION:
        add_destination(receiver, endpoint, command->new_destination);
        break;
    case PS_RCMD_REMOVE_DESTINATION:
        remove_destination(receiver, endpoint, command->control.index);
        break;
    case PS_RCMD_SET_CONTROL: set_control(receiver, endpoint, command); break;
    case PS_RCMD_ADD_INTEREST: add_interest(receiver, endpoint, command); break;
    case PS_RCMD_REMOVE_INTEREST: remove_interest(receiver, endpoint, command); break;
    case PS_RCMD_FORGET_SESSION: forget_session(receiver, endpoint, command); break;
    case PS_RCMD_REFUSE_SESSION: refuse_session(receiver, endpoint, command); break;
    default: return false;
    }
    return true;
}

/* ---- end of life ---------------------------------------------------------------------------- */

void ps_recv_destination_close(ps_recv_endpoint_t *endpoint, ps_recv_destination_t *destination)
{
    if (destination != NULL) {
        endpoint->context->params.net->ops->close(destination->socket);
        free(destination);
    }
}

void ps_recv_endpoint_free(ps_recv_endpoint_t *endpoint)
{
    if (endpoint == NULL) {
        return;
    }
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        ps_recv_destination_close(endpoint, endpoint->destinations[i]);
        ps_recv_destination_close(endpoint, endpoint->left[i]);
    }
    ps_map_fini(&endpoint->any_interest);
    ps_map_fini(&endpoint->session_interest);
    ps_map_fini(&endpoint->session_index);
    free(endpoint->sessions);
    free(endpoint);
}
