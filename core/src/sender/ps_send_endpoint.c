/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_send_endpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ps_sender.h"

#define REPORT_INTERVAL_NS INT64_C(1000000000)
enum { STATUS_ERRORED = -1, STATUS_ACTIVE = 1, STATUS_CLOSING = 2 };

/* ---- conductor ------------------------------------------------------------------------------- */

static void set_status(ps_send_endpoint_t *endpoint, int64_t status)
{
    if (endpoint->status_cell != NULL) {
        atomic_store_explicit(endpoint->status_cell, status, memory_order_release);
    }
}

static _Atomic int64_t *cell_or_null(ps_driver_t *driver, int32_t counter_id)
{
    return counter_id < 0 ? NULL : ps_counter_cell(ps_driver_cnc(driver), counter_id);
}

void ps_send_endpoint_free(ps_send_endpoint_t *endpoint)
{
    if (endpoint->data != NULL) {
        endpoint->ops->close(endpoint->data);
    }
    if (endpoint->control != NULL) {
        endpoint->ops->close(endpoint->control);
    }
    ps_destinations_fini(&endpoint->destinations);
    free(endpoint);
}

int ps_send_endpoint_open(ps_driver_t *driver, const ps_send_endpoint_params_t *params,
                          ps_send_endpoint_t **out)
{
    ps_net_t *net = ps_driver_net(driver);
    ps_send_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a send endpoint");
    }
    endpoint->id = params->id;
    endpoint->driver = driver;
    endpoint->ops = net->ops;
    endpoint->params = *params;
    endpoint->remote = params->data.connect;
    endpoint->destinations_cell = cell_or_null(driver, params->destinations_counter_id);
    endpoint->status_cell = cell_or_null(driver, params->status_counter_id);
    endpoint->refused_cell = cell_or_null(driver, params->refused_counter_id);
    int result = PS_OK;
    if (params->mdc != PS_MDC_NONE) {
        result = ps_destinations_init(&endpoint->destinations, params->mdc == PS_MDC_DYNAMIC,
                                      ps_driver_params(driver)->seed ^ (uint64_t)params->id);
    }
    if (result == PS_OK) {
        result = net->ops->open(net->state, &params->data, &endpoint->data);
    }
    if (result == PS_OK && params->control.bind.family != 0) {
        result = net->ops->open(net->state, &params->control, &endpoint->control);
    }
    if (result == PS_OK) {
        const ps_command_t command = { .type = PS_SC_ADD_ENDPOINT, .object = endpoint };
        result = ps_driver_command(driver, PS_AGENT_SENDER, &command);
    }
    if (result != PS_OK) {
        set_status(endpoint, STATUS_ERRORED);
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
    const ps_command_t command = {
        .type = PS_SC_ADD_DESTINATION, .object = endpoint, .a = destination_id, .address = *address
    };
    if (endpoint->params.mdc != PS_MDC_MANUAL) {
        return ps_fail(PS_E_INVALID, "destinations need control-mode=manual");
    }
    if (endpoint->manual_count >= PS_DESTINATIONS_MANUAL_MAX) {
        return ps_fail(PS_E_NO_SPACE, "an endpoint has at most %d destinations",
                       (int)PS_DESTINATIONS_MANUAL_MAX);
    }
    const int result = ps_driver_command(driver, PS_AGENT_SENDER, &command);
    endpoint->manual_count += result == PS_OK;
    return result;
}

int ps_send_endpoint_remove_destination(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                        int64_t destination_id)
{
    const ps_command_t command = { .type = PS_SC_REMOVE_DESTINATION,
                                   .object = endpoint,
                                   .a = destination_id };
    const int result = ps_driver_command(driver, PS_AGENT_SENDER, &command);
    endpoint->manual_count -= result == PS_OK && endpoint->manual_count > 0;
    return result;
}

int ps_send_endpoint_set_address(ps_driver_t *driver, ps_send_endpoint_t *endpoint,
                                 int64_t destination_id, const ps_addr_t *address)
{
    const ps_command_t command = {
        .type = PS_SC_SET_ADDRESS, .object = endpoint, .a = destination_id, .address = *address
    };
    return ps_driver_command(driver, PS_AGENT_SENDER, &command);
}

int ps_send_endpoint_remove(ps_driver_t *driver, ps_send_endpoint_t *endpoint)
{
    const ps_command_t command = { .type = PS_SC_REMOVE_ENDPOINT, .object = endpoint };
    return ps_driver_command(driver, PS_AGENT_SENDER, &command);
}

void ps_send_endpoint_destroy(ps_driver_t *driver, ps_send_endpoint_t *endpoint)
{
    (void)driver;
    assert(endpoint->removed);
    ps_send_endpoint_free(endpoint);
}

/* ---- sender ---------------------------------------------------------------------------------- */

static void store_count(ps_send_endpoint_t *endpoint)
{
    if (endpoint->destinations_cell != NULL) {
        atomic_store_explicit(endpoint->destinations_cell, endpoint->destinations.count,
                              memory_order_release);
    }
}

static void report_error(ps_send_endpoint_t *endpoint, int32_t code, int64_t now_ns)
{
    ps_system_add(endpoint->driver, PS_SYS_ERRORS, 1);
    if (endpoint->error_reported_ns != 0 &&
        now_ns - endpoint->error_reported_ns < REPORT_INTERVAL_NS) {
        return;
    }
    ps_event_t event = { .type = PS_EV_ENDPOINT_ERROR,
                         .kind = PS_KIND_SEND_ENDPOINT,
                         .id = endpoint->id,
                         .now_ns = now_ns,
                         .reason = code };
    strncpy(event.text, ps_last_error(), sizeof(event.text) - 1);
    if (ps_driver_emit(endpoint->driver, PS_AGENT_SENDER, &event)) {
        endpoint->error_reported_ns = now_ns;
    }
}

int32_t ps_send_endpoint_send(ps_send_endpoint_t *endpoint, const ps_dgram_t *dgrams, int32_t count,
                              int64_t now_ns)
{
    int32_t errors = 0;
    int32_t taken;
    int64_t bytes = 0;
    assert(count > 0 && count <= PS_TURN_DATAGRAMS);
    endpoint->poll_now = true;
    if (endpoint->params.mdc != PS_MDC_NONE) {
        taken = ps_destinations_send(&endpoint->destinations, endpoint->ops, endpoint->data, dgrams,
                                     count, now_ns, &errors);
        if (errors > 0) {
            report_error(endpoint, PS_E_SYSTEM, now_ns);
        }
    } else {
        const int result = endpoint->ops->send(endpoint->data, NULL, dgrams, count, now_ns);
        if (result < 0) {
            report_error(endpoint, result, now_ns);
        }
        errors = result < 0;
        taken = result < 0 ? 0 : result;
    }
    endpoint->failed = errors > 0;
    if (taken < count) {
        ps_system_add(endpoint->driver, PS_SYS_SHORT_SENDS, 1);
    }
    for (int32_t i = 0; i < taken; i++) {
        bytes += dgrams[i].length;
    }
    if (bytes > 0) {
        ps_system_add(endpoint->driver, PS_SYS_BYTES_SENT, bytes);
    }
    return taken;
}

void ps_send_endpoint_flush(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    ps_dgram_t dgrams[PS_SEND_OUTBOX];
    ps_send_outbox_t *box = &endpoint->outbox;
    const int32_t count = box->count;
    if (count == 0) {
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        dgrams[i] = (ps_dgram_t){ box->frames[i], PS_HEARTBEAT_BYTES };
    }
    box->count = 0;
    const int32_t taken = ps_send_endpoint_send(endpoint, dgrams, count, now_ns);
    const int64_t due_ns = now_ns + ps_driver_params(endpoint->driver)->heartbeat_interval_ns;
    for (int32_t i = taken; i < count; i++) {
        ps_publication_t *pub = box->of[i];
        pub->heartbeat_sent_ns = INT64_MIN / 2;
        *pub->due_ns = due_ns < *pub->due_ns ? due_ns : *pub->due_ns;
        ps_sender_due(ps_driver_sender(endpoint->driver), due_ns);
    }
    if (taken > 0) {
        ps_system_add(endpoint->driver, PS_SYS_HEARTBEATS_SENT, taken);
    }
}

void ps_send_endpoint_queue(ps_send_endpoint_t *endpoint, ps_publication_t *pub,
                            const uint8_t *frame, int64_t now_ns)
{
    ps_send_outbox_t *box = &endpoint->outbox;
    if (box->count == PS_SEND_OUTBOX) {
        ps_send_endpoint_flush(endpoint, now_ns);
    }
    memcpy(box->frames[box->count], frame, PS_HEARTBEAT_BYTES);
    box->of[box->count++] = pub;
}

int32_t ps_send_endpoint_poll(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    int32_t seen = 0;
    ps_socket_t *const sockets[2] = { endpoint->data, endpoint->control };
    endpoint->poll_now = false;
    for (int32_t i = 0; i < 2; i++) {
        if (sockets[i] == NULL || (i == 0 && endpoint->control != NULL)) {
            continue; /* multicast: only the control group is listened to */
        }
        const int result =
            endpoint->ops->recv(sockets[i], PS_POLL_LIMIT, ps_sender_on_datagram, endpoint, now_ns);
        if (result < 0) {
            report_error(endpoint, result, now_ns);
        }
        seen += result > 0 ? result : 0;
    }
    if (endpoint->join_count > 0) {
        ps_send_endpoint_answer(endpoint, now_ns);
    }
    if (endpoint->grew) {
        endpoint->grew = false;
        store_count(endpoint);
        endpoint->due_ns = now_ns; /* its timeout is not known to the scan yet */
        ps_sender_due(ps_driver_sender(endpoint->driver), now_ns);
        ps_sender_ready_endpoint(ps_driver_sender(endpoint->driver), endpoint);
    }
    return seen;
}

static void refuse(ps_send_endpoint_t *endpoint, const ps_addr_t *from, int64_t now_ns)
{
    const int64_t refused = (int64_t)endpoint->destinations.refused;
    if (endpoint->refused_cell != NULL) {
        atomic_store_explicit(endpoint->refused_cell, refused, memory_order_release);
    }
    if (endpoint->full_reported_ns != 0 &&
        now_ns - endpoint->full_reported_ns < REPORT_INTERVAL_NS) {
        return;
    }
    const ps_event_t event = { .type = PS_EV_DESTINATION,
                               .kind = PS_KIND_SEND_ENDPOINT,
                               .id = endpoint->id,
                               .now_ns = now_ns,
                               .a = -1,
                               .b = refused,
                               .from = *from };
    if (ps_driver_emit(endpoint->driver, PS_AGENT_SENDER, &event)) {
        endpoint->full_reported_ns = now_ns;
    }
}

void ps_send_endpoint_heard(ps_send_endpoint_t *endpoint, const ps_sm_t *sm, int32_t heard,
                            const ps_addr_t *from, int64_t now_ns)
{
    ps_destinations_t *list = &endpoint->destinations;
    const int64_t again_ns = ps_driver_params(endpoint->driver)->setup_interval_ns;
    int verdict;
    endpoint->heard_ns = now_ns;
    endpoint->silence_reported_ns = now_ns;
    if (endpoint->params.mdc == PS_MDC_NONE) {
        return;
    }
    verdict = heard == PS_HEARD_JOIN ? ps_destinations_on_join(list, from, again_ns, now_ns)
                                     : ps_destinations_on_sm(list, sm->receiver_id, from,
                                                             heard == PS_HEARD_NAMES, now_ns);
    if (verdict == PS_DESTINATION_FULL) {
        refuse(endpoint, from, now_ns);
    } else if (verdict == PS_DESTINATION_ANSWER) {
        ps_send_endpoint_join(endpoint, from, now_ns);
    } else if (verdict == PS_DESTINATION_ADDED) {
        const ps_event_t event = { .type = PS_EV_DESTINATION,
                                   .kind = PS_KIND_SEND_ENDPOINT,
                                   .id = endpoint->id,
                                   .now_ns = now_ns,
                                   .a = 1,
                                   .from = *from };
        (void)ps_driver_emit(endpoint->driver, PS_AGENT_SENDER,
                             &event); /* a counter tells it too */
        endpoint->grew = true;
    }
}

static bool report_silence(ps_send_endpoint_t *endpoint, const ps_addr_t *of,
                           int64_t destination_id, int64_t now_ns)
{
    const ps_event_t event = { .type = PS_EV_SILENT,
                               .kind = PS_KIND_SEND_ENDPOINT,
                               .id = endpoint->id,
                               .now_ns = now_ns,
                               .a = destination_id,
                               .from = *of };
    return ps_driver_emit(endpoint->driver, PS_AGENT_SENDER, &event);
}

int64_t ps_send_endpoint_on_timer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t timeout_ns = ps_driver_params(endpoint->driver)->connection_timeout_ns;
    ps_destinations_t *list = &endpoint->destinations;
    ps_addr_t gone;
    if (endpoint->silence_reported_ns < 0) {
        endpoint->silence_reported_ns = now_ns;
    }
    while (ps_destinations_expire(list, timeout_ns, now_ns, &gone)) {
        const ps_event_t event = { .type = PS_EV_DESTINATION,
                                   .kind = PS_KIND_SEND_ENDPOINT,
                                   .id = endpoint->id,
                                   .now_ns = now_ns,
                                   .a = 0,
                                   .from = gone };
        (void)ps_driver_emit(endpoint->driver, PS_AGENT_SENDER, &event);
        store_count(endpoint);
    }
    for (int32_t i = 0; !list->dynamic && i < list->count; i++) {
        ps_destination_t *item = &list->items[i];
        if (now_ns - item->reported_ns >= timeout_ns &&
            report_silence(endpoint, &item->address, item->id, now_ns)) {
            item->reported_ns = now_ns;
        }
    }
    const bool unicast = endpoint->params.mdc == PS_MDC_NONE && !endpoint->params.multicast;
    if (unicast && now_ns - endpoint->silence_reported_ns >= timeout_ns &&
        report_silence(endpoint, &endpoint->remote, -1, now_ns)) {
        endpoint->silence_reported_ns = now_ns;
    }
    int64_t due_ns = ps_destinations_next_ns(list, timeout_ns);
    const int64_t join_ns = ps_send_endpoint_join_timer(endpoint, now_ns);
    due_ns = join_ns < due_ns ? join_ns : due_ns;
    if (unicast && endpoint->silence_reported_ns + timeout_ns < due_ns) {
        due_ns = endpoint->silence_reported_ns + timeout_ns;
    }
    return due_ns > now_ns ? due_ns : now_ns + PS_TICK_NS;
}

static void set_address(ps_send_endpoint_t *endpoint, const ps_command_t *command, int64_t now_ns)
{
    if (command->a != -1) {
        (void)ps_destinations_set(&endpoint->destinations, command->a, &command->address, now_ns);
        return;
    }
    if (endpoint->params.mdc != PS_MDC_NONE ||
        ps_addr_equal(&endpoint->remote, &command->address)) {
        return;
    }
    const int result = endpoint->ops->reconnect(endpoint->data, &command->address);
    if (result == PS_OK) {
        endpoint->remote = command->address;
        endpoint->silence_reported_ns = now_ns;
    } else {
        report_error(endpoint, result, now_ns);
    }
}

void ps_send_endpoint_on_command(ps_send_endpoint_t *endpoint, const ps_command_t *command,
                                 int64_t now_ns)
{
    ps_sender_t *sender = ps_driver_sender(endpoint->driver);
    ps_destinations_t *list = &endpoint->destinations;
    switch (command->type) {
    case PS_SC_ADD_ENDPOINT:
        endpoint->silence_reported_ns = -1; /* from the first timer on */
        set_status(endpoint, STATUS_ACTIVE);
        store_count(endpoint);
        break;
    case PS_SC_ADD_DESTINATION:
        (void)ps_destinations_add(list, command->a, &command->address, now_ns);
        ps_sender_ready_endpoint(sender, endpoint);
        break;
    case PS_SC_REMOVE_DESTINATION: (void)ps_destinations_remove(list, command->a); break;
    case PS_SC_SET_ADDRESS: set_address(endpoint, command, now_ns); break;
    case PS_SC_REMOVE_ENDPOINT: set_status(endpoint, STATUS_CLOSING); break;
    default: break;
    }
    store_count(endpoint);
    endpoint->due_ns = now_ns;
    ps_sender_due(sender, now_ns);
}
