/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_recv_endpoint_api.c: the conductor's half of receive endpoints: opens sockets, allocates, and
 * hands over by command.
 */
#include "ps_set_up.h"

#include "ps_assert.h"
#include <stdlib.h>
#include <string.h>

#include "ps_driver_state.h"
#include "ps_receiver.h"

static int allocate(ps_recv_endpoint_t *endpoint, const ps_shared_t *shared)
{
    const uint64_t salt = endpoint->context->params.seed * UINT64_C(0x9e3779b97f4a7c15);
    int code;

    endpoint->interests_limit = shared->n_subscribers;
    endpoint->sessions_limit = shared->n_images + 2 * PS_RECV_PENDING_MAX + PS_RECV_KEPT_MAX;
    code = ps_map_init(&endpoint->any_interest, endpoint->interests_limit, salt);

    if (code == PS_OK) {
        code = ps_map_init(&endpoint->session_interest, endpoint->interests_limit, salt);
    }
    if (code == PS_OK) {
        code = ps_map_init(&endpoint->session_index, endpoint->sessions_limit, salt);
    }
    if (code != PS_OK) {
        return code;
    }
    /* Untouched entries take no memory. */
    endpoint->sessions = calloc((size_t)endpoint->sessions_limit, sizeof(*endpoint->sessions));
    if (endpoint->sessions == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for %d sessions", endpoint->sessions_limit);
    }
    return PS_OK;
}

int ps_recv_endpoint_open(ps_driver_t *driver, const ps_recv_endpoint_params_t *params,
                          ps_recv_endpoint_t **out)
{
    ps_receiver_t *receiver = driver->receiver;
    ps_command_t command = { .type = PS_RCMD_ADD_ENDPOINT };
    ps_recv_endpoint_t *endpoint;
    int code;

    if (params->receiver_id == 0) {
        return ps_fail(PS_E_INVALID, "a receiver id of 0 is not allowed");
    }
    if (receiver->opened_endpoints == PS_RECEIVER_ENDPOINTS_MAX) {
        return ps_fail(PS_E_NO_SPACE, "more than %d receive endpoints", PS_RECEIVER_ENDPOINTS_MAX);
    }
    endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a receive endpoint");
    }
    endpoint->context = &driver->context;
    endpoint->receiver = driver->receiver;
    endpoint->params = *params;
    endpoint->pending_due_ns = INT64_MAX;
    code = allocate(endpoint, receiver->shared);
    if (code == PS_OK) {
        command.recv_endpoint = endpoint;
        code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    }
    if (code != PS_OK) {
        ps_recv_endpoint_free(endpoint);
        return code;
    }
    receiver->opened_endpoints++;
    *out = endpoint;
    return PS_OK;
}

static int32_t index_of(const ps_recv_endpoint_t *endpoint, int64_t destination_id,
                        enum ps_destination_use use)
{
    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (endpoint->destination_used[i] == use &&
            endpoint->destination_ids[i] == destination_id) {
            return i;
        }
    }
    return ps_fail(PS_E_INVALID, "destination %lld does not exist", (long long)destination_id);
}

static int32_t free_index(const ps_recv_endpoint_t *endpoint, int64_t destination_id)
{
    int32_t found = -1;

    for (int32_t i = 0; i < PS_RECV_DESTINATIONS_MAX; i++) {
        if (endpoint->destination_used[i] == PS_DESTINATION_UNUSED) {
            found = found < 0 ? i : found;
        } else if (endpoint->destination_ids[i] == destination_id) {
            return ps_fail(PS_E_INVALID, "destination %lld exists", (long long)destination_id);
        }
    }
    return found >= 0 ? found
                      : ps_fail(PS_E_NO_SPACE, "more than %d destinations on one subscription",
                                PS_RECV_DESTINATIONS_MAX);
}

int ps_recv_endpoint_add_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     const ps_recv_destination_params_t *params, ps_addr_t *local)
{
    const ps_net_ops_t *ops = driver->context.params.net->ops;
    ps_command_t command = { .type = PS_RCMD_ADD_DESTINATION, .recv_endpoint = endpoint };
    ps_socket_params_t socket = params->socket;
    ps_recv_destination_t *destination;
    int32_t index = free_index(endpoint, params->id);
    int code;

    if (index < 0) {
        return index;
    }
    destination = calloc(1, sizeof(*destination));
    if (destination == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a receive destination");
    }
    *destination = (ps_recv_destination_t){ .id = params->id,
                                            .endpoint = endpoint,
                                            .control = params->control,
                                            .group_control = params->group_control,
                                            .index = index,
                                            .ttl = params->socket.multicast_ttl,
                                            .multicast = params->multicast };
    socket.role = PS_SOCKET_RECEIVER;
    code = ops->open(driver->context.params.net->state, &socket, &destination->socket);
    if (code != PS_OK) {
        free(destination);
        return code;
    }
    if (local != NULL) {
        ops->local(destination->socket, local);
    }
    command.new_destination = destination;
    code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    if (code != PS_OK) {
        ops->close(destination->socket);
        free(destination);
        return code;
    }
    endpoint->sockets[index] = destination->socket;
    endpoint->destination_used[index] = PS_DESTINATION_USED;
    endpoint->destination_ids[index] = params->id;
    if (endpoint->params.status_counter_id >= 0) {
        atomic_store_explicit(
            ps_counter_cell(driver->context.params.cnc, endpoint->params.status_counter_id), 1,
            memory_order_release);
    }
    return PS_OK;
}

int ps_recv_endpoint_remove_destination(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                        int64_t destination_id)
{
    int32_t index = index_of(endpoint, destination_id, PS_DESTINATION_USED);
    ps_command_t command = { .type = PS_RCMD_REMOVE_DESTINATION,
                             .recv_endpoint = endpoint,
                             .control = { .index = index } };
    int code;

    if (index < 0) {
        return index;
    }
    code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    if (code == PS_OK) {
        endpoint->destination_used[index] = PS_DESTINATION_LEAVING;
    }
    return code;
}

int ps_recv_endpoint_destroy_destination(ps_recv_endpoint_t *endpoint, int64_t destination_id)
{
    int32_t index = index_of(endpoint, destination_id, PS_DESTINATION_LEAVING);

    if (index < 0) {
        return index;
    }
    PS_ASSERT(endpoint->left[index] != NULL);
    ps_recv_destination_close(endpoint, endpoint->left[index]);
    endpoint->left[index] = NULL;
    endpoint->destination_used[index] = PS_DESTINATION_UNUSED;
    return PS_OK;
}

int ps_recv_endpoint_fit_buffer(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                int64_t destination_id, int32_t bytes, int32_t *got)
{
    const ps_net_ops_t *ops = driver->context.params.net->ops;
    int32_t index = index_of(endpoint, destination_id, PS_DESTINATION_USED);

    if (index < 0) {
        return index;
    }
    if (bytes < 1 || bytes > PS_RECV_BUFFER_MAX) {
        return ps_fail(PS_E_INVALID, "a receive buffer of %d bytes: give 1 to %d", bytes,
                       PS_RECV_BUFFER_MAX);
    }
    *got = bytes;
    return ops->fit_recv_buffer == NULL
               ? PS_OK
               : ops->fit_recv_buffer(endpoint->sockets[index], bytes, got);
}

int ps_recv_endpoint_set_control(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *control)
{
    int32_t index = index_of(endpoint, destination_id, PS_DESTINATION_USED);
    ps_command_t command = { .type = PS_RCMD_SET_CONTROL,
                             .recv_endpoint = endpoint,
                             .control = { .index = index, .address = *control } };

    return index < 0 ? index : ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_recv_endpoint_add_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                  int32_t stream_id, int32_t session_id, int32_t any_session)
{
    ps_command_t command = { .type = PS_RCMD_ADD_INTEREST,
                             .recv_endpoint = endpoint,
                             .interest = { .stream_id = stream_id,
                                           .session_id = session_id,
                                           .any_session = any_session != 0 } };
    int code;

    if (endpoint->interests == endpoint->interests_limit) {
        return ps_fail(PS_E_NO_SPACE,
                       "more than %d subscriptions on one endpoint; raise limits.subscribers",
                       endpoint->interests_limit);
    }
    code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
    endpoint->interests += code == PS_OK;
    return code;
}

int ps_recv_endpoint_remove_interest(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                     int32_t stream_id, int32_t session_id, int32_t any_session)
{
    ps_command_t command = { .type = PS_RCMD_REMOVE_INTEREST,
                             .recv_endpoint = endpoint,
                             .interest = { .stream_id = stream_id,
                                           .session_id = session_id,
                                           .any_session = any_session != 0 } };
    int code = ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);

    endpoint->interests -= code == PS_OK && endpoint->interests > 0;
    return code;
}

int ps_recv_endpoint_forget_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t keep)
{
    ps_command_t command = {
        .type = PS_RCMD_FORGET_SESSION,
        .recv_endpoint = endpoint,
        .forget = { .stream_id = stream_id, .session_id = session_id, .keep = keep != 0 }
    };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_recv_endpoint_refuse_session(ps_driver_t *driver, ps_recv_endpoint_t *endpoint,
                                    int32_t stream_id, int32_t session_id, int32_t destination,
                                    const ps_addr_t *source, const char *reason)
{
    ps_command_t command = { .type = PS_RCMD_REFUSE_SESSION,
                             .recv_endpoint = endpoint,
                             .refuse = { .stream_id = stream_id,
                                         .session_id = session_id,
                                         .destination = destination,
                                         .source = *source } };

    strncpy(command.refuse.reason, reason, sizeof(command.refuse.reason) - 1);
    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

int ps_recv_endpoint_remove(ps_driver_t *driver, ps_recv_endpoint_t *endpoint)
{
    ps_command_t command = { .type = PS_RCMD_REMOVE_ENDPOINT, .recv_endpoint = endpoint };

    return ps_agent_command(&driver->agents[PS_AGENT_RECEIVER], &command);
}

void ps_recv_endpoint_destroy(ps_driver_t *driver, ps_recv_endpoint_t *endpoint)
{
    ps_receiver_t *receiver = driver->receiver;

    PS_ASSERT(receiver->opened_endpoints > 0);
    receiver->opened_endpoints--;
    ps_recv_endpoint_free(endpoint);
}
