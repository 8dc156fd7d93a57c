/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_send_endpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ps_sender.h"

#define REPORT_INTERVAL_NS INT64_C(1000000000)

void ps_send_endpoint_set_status(ps_send_endpoint_t *endpoint, int64_t status)
{
    if (endpoint->status_cell != NULL) {
        atomic_store_explicit(endpoint->status_cell, status, memory_order_release);
    }
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

static void store_count(ps_send_endpoint_t *endpoint)
{
    if (endpoint->destinations_cell != NULL) {
        atomic_store_explicit(endpoint->destinations_cell, endpoint->destinations.count,
                              memory_order_release);
    }
}

static void report_error(ps_send_endpoint_t *endpoint, int32_t code, int64_t now_ns)
{
    ps_system_add(endpoint->context, PS_SYS_ERRORS, 1);
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
    if (ps_agent_emit(endpoint->sender->agent, &event)) {
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
        ps_system_add(endpoint->context, PS_SYS_SHORT_SENDS, 1);
    }
    for (int32_t i = 0; i < taken; i++) {
        bytes += dgrams[i].length;
    }
    if (bytes > 0) {
        ps_system_add(endpoint->context, PS_SYS_BYTES_SENT, bytes);
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
    const int64_t due_ns = now_ns + endpoint->context->params.heartbeat_interval_ns;
    for (int32_t i = taken; i < count; i++) {
        ps_publication_t *pub = box->of[i];
        pub->heartbeat_sent_ns = INT64_MIN / 2;
        *pub->due_ns = due_ns < *pub->due_ns ? due_ns : *pub->due_ns;
        ps_sender_due(endpoint->sender, due_ns);
    }
    if (taken > 0) {
        ps_system_add(endpoint->context, PS_SYS_HEARTBEATS_SENT, taken);
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
        ps_sender_due(endpoint->sender, now_ns);
        ps_sender_ready_endpoint(endpoint->sender, endpoint);
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
    if (ps_agent_emit(endpoint->sender->agent, &event)) {
        endpoint->full_reported_ns = now_ns;
    }
}

void ps_send_endpoint_heard(ps_send_endpoint_t *endpoint, const ps_sm_t *sm, int32_t heard,
                            const ps_addr_t *from, int64_t now_ns)
{
    ps_destinations_t *list = &endpoint->destinations;
    const int64_t again_ns = endpoint->context->params.setup_interval_ns;
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
        (void)ps_agent_emit(endpoint->sender->agent, &event); /* a counter tells it too */
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
    return ps_agent_emit(endpoint->sender->agent, &event);
}

int64_t ps_send_endpoint_on_timer(ps_send_endpoint_t *endpoint, int64_t now_ns)
{
    const int64_t timeout_ns = endpoint->context->params.connection_timeout_ns;
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
        (void)ps_agent_emit(endpoint->sender->agent, &event);
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
    ps_sender_t *sender = endpoint->sender;
    ps_destinations_t *list = &endpoint->destinations;
    switch (command->type) {
    case PS_SC_ADD_ENDPOINT:
        endpoint->silence_reported_ns = -1; /* from the first timer on */
        ps_send_endpoint_set_status(endpoint, PS_CHANNEL_ACTIVE);
        store_count(endpoint);
        break;
    case PS_SC_ADD_DESTINATION:
        (void)ps_destinations_add(list, command->a, &command->address, now_ns);
        ps_sender_ready_endpoint(sender, endpoint);
        break;
    case PS_SC_REMOVE_DESTINATION: (void)ps_destinations_remove(list, command->a); break;
    case PS_SC_SET_ADDRESS: set_address(endpoint, command, now_ns); break;
    case PS_SC_REMOVE_ENDPOINT: ps_send_endpoint_set_status(endpoint, PS_CHANNEL_CLOSING); break;
    default: break;
    }
    store_count(endpoint);
    endpoint->due_ns = now_ns;
    ps_sender_due(sender, now_ns);
}
