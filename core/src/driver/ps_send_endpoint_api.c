/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_send_endpoint_api.c: the conductor's half of send endpoints: opens sockets, allocates, and
 * hands over by command.
 */
#include "ps_assert.h"
#include <stdlib.h>
#include <string.h>

#include "ps_driver_state.h"
#include "ps_sender.h"

static _Atomic int64_t *cell_or_null(const ps_context_t *context, int32_t counter_id)
{
    return counter_id < 0 ? NULL : ps_counter_cell(context->params.cnc, counter_id);
}

static int open_socket(const ps_net_t *net, const ps_socket_params_t *params, ps_socket_t **out)
{
    ps_socket_params_t of_sender = *params;
    of_sender.role = PS_SOCKET_SENDER;
    return net->ops->open(net->state, &of_sender, out);
}

int ps_send_endpoint_open(ps_driver_t *driver, const ps_send_endpoint_params_t *params,
                          ps_send_endpoint_t **out)
{
    ps_net_t *net = driver->context.params.net;
    ps_send_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a send endpoint");
    }
    endpoint->id = params->id;
    endpoint->context = &driver->context;
    endpoint->sender = driver->sender;
    endpoint->ops = net->ops;
    endpoint->params = *params;
    endpoint->remote = params->data.connect;
    ps_send_endpoint_drain_init(endpoint);
    endpoint->destinations_cell = cell_or_null(&driver->context, params->destinations_counter_id);
    endpoint->status_cell = cell_or_null(&driver->context, params->status_counter_id);
    endpoint->refused_cell = cell_or_null(&driver->context, params->refused_counter_id);
    int result = PS_OK;
    if (params->mdc != PS_MDC_NONE) {
        result = ps_destinations_init(&endpoint->destinations, params->mdc == PS_MDC_DYNAMIC,
                                      driver->context.params.seed ^ (uint64_t)params->id);
    }
    if (result == PS_OK) {
        result = open_socket(net, &params->data, &endpoint->data);
    }
    if (result == PS_OK && params->control.bind.family != 0) {
        result = open_socket(net, &params->control, &endpoint->control);
    }
    if (result == PS_OK) {
        const ps_command_t command = { .type = PS_SC_ADD_ENDPOINT, .send_endpoint = endpoint };
        result = ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
    }
    if (result != PS_OK) {
        ps_send_endpoint_set_status(endpoint, PS_CHANNEL_ERRORED);
        ps_send_endpoint_free(endpoint);
        return result;
    }
    *out = endpoint;
    return PS_OK;
}

void ps_send_endpoint_local(const ps_send_endpoint_t *endpoint, ps_addr_t *out)
{
    endpoint->ops->local(endpoint->data, out);
}

int ps_send_endpoint_add_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                     int64_t destination_id, const ps_addr_t *address)
{
    const ps_command_t command = { .type = PS_SC_ADD_DESTINATION,
                                   .send_endpoint = endpoint,
                                   .destination = { .id = destination_id, .address = *address } };
    if (endpoint->params.mdc != PS_MDC_MANUAL) {
        return ps_fail(PS_E_INVALID, "destinations need control-mode=manual");
    }
    if (endpoint->manual_count >= PS_DESTINATIONS_MANUAL_MAX) {
        return ps_fail(PS_E_NO_SPACE, "an endpoint has at most %d destinations",
                       (int)PS_DESTINATIONS_MANUAL_MAX);
    }
    const int result = ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
    endpoint->manual_count += result == PS_OK;
    return result;
}

int ps_send_endpoint_remove_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                        int64_t destination_id)
{
    const ps_command_t command = { .type = PS_SC_REMOVE_DESTINATION,
                                   .send_endpoint = endpoint,
                                   .destination = { .id = destination_id } };
    const int result = ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
    endpoint->manual_count -= result == PS_OK && endpoint->manual_count > 0;
    return result;
}

int ps_send_endpoint_set_address(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *address)
{
    const ps_command_t command = { .type = PS_SC_SET_ADDRESS,
                                   .send_endpoint = endpoint,
                                   .destination = { .id = destination_id, .address = *address } };
    return ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
}

int ps_send_endpoint_remove(ps_driver_t *driver, ps_send_endpoint_t *endpoint)
{
    const ps_command_t command = { .type = PS_SC_REMOVE_ENDPOINT, .send_endpoint = endpoint };
    return ps_agent_command(&driver->agents[PS_AGENT_SENDER], &command);
}

void ps_send_endpoint_destroy(ps_driver_t *driver, ps_send_endpoint_t *endpoint)
{
    (void)driver;
    PS_ASSERT(endpoint->removed);
    ps_send_endpoint_free(endpoint);
}
