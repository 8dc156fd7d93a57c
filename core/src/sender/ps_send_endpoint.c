/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_send_endpoint.h"
#include "ps_assert.h"

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

void ps_send_endpoint_store_count(ps_send_endpoint_t *endpoint)
{
    if (endpoint->destinations_cell != NULL) {
        atomic_store_explicit(endpoint->destinations_cell, endpoint->destinations.count,
                              memory_order_release);
    }
}

void ps_send_endpoint_report_error(ps_send_endpoint_t *endpoint, int32_t code, int64_t now_ns)
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
                         .error = { .code = code } };
    strncpy(event.error.text, ps_last_error(), sizeof(event.error.text) - 1);
    if (ps_agent_emit(endpoint->sender->agent, &event)) {
        endpoint->error_reported_ns = now_ns;
    }
}

static int64_t sum_of(const ps_dgram_t *dgrams, int32_t count)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        bytes += dgrams[i].length;
    }
    return bytes;
}

int32_t ps_send_endpoint_send(ps_send_endpoint_t *endpoint, const ps_dgram_t *dgrams, int32_t count,
                              int64_t now_ns)
{
    return ps_send_endpoint_send_sum(endpoint, dgrams, count, sum_of(dgrams, count), now_ns);
}

int32_t ps_send_endpoint_send_sum(ps_send_endpoint_t *endpoint, const ps_dgram_t *dgrams,
                                  int32_t count, int64_t bytes, int64_t now_ns)
{
    int32_t errors = 0;
    int32_t taken;
    PS_ASSERT(count > 0 && count <= PS_TURN_DATAGRAMS);
    endpoint->poll_now = true;
    if (endpoint->params.mdc != PS_MDC_NONE) {
        taken = ps_destinations_send(&endpoint->destinations, endpoint->ops, endpoint->data, dgrams,
                                     count, now_ns, &errors);
        if (errors > 0) {
            ps_send_endpoint_report_error(endpoint, PS_E_SYSTEM, now_ns);
        }
    } else {
        const int result = endpoint->ops->send(endpoint->data, NULL, dgrams, count, now_ns);
        if (result < 0) {
            ps_send_endpoint_report_error(endpoint, result, now_ns);
        }
        errors = result < 0;
        taken = result < 0 ? 0 : result;
    }
    PS_ASSERT(taken >= 0 && taken <= count);
    endpoint->failed = errors > 0;
    if (taken < count) {
        ps_system_add(endpoint->context, PS_SYS_SHORT_SENDS, 1);
        bytes = sum_of(dgrams, taken);
    }
    endpoint->sent_bytes += bytes;
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
        ps_publication_due(pub, due_ns);
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
    PS_ASSERT(box->count < PS_SEND_OUTBOX && pub->endpoint == endpoint);
    memcpy(box->frames[box->count], frame, PS_HEARTBEAT_BYTES);
    box->of[box->count++] = pub;
}

static void set_address(ps_send_endpoint_t *endpoint, const ps_command_t *command, int64_t now_ns)
{
    const ps_addr_t *address = &command->destination.address;
    if (command->destination.id != -1) {
        (void)ps_destinations_set(&endpoint->destinations, command->destination.id, address,
                                  now_ns);
        return;
    }
    if (endpoint->params.mdc != PS_MDC_NONE || ps_addr_equal(&endpoint->remote, address)) {
        return;
    }
    const int result = endpoint->ops->reconnect(endpoint->data, address);
    if (result == PS_OK) {
        endpoint->remote = *address;
        endpoint->silence_reported_ns = now_ns;
    } else {
        ps_send_endpoint_report_error(endpoint, result, now_ns);
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
        ps_send_endpoint_store_count(endpoint);
        break;
    case PS_SC_ADD_DESTINATION:
        (void)ps_destinations_add(list, command->destination.id, &command->destination.address,
                                  now_ns);
        ps_sender_ready_endpoint(sender, endpoint);
        break;
    case PS_SC_REMOVE_DESTINATION:
        (void)ps_destinations_remove(list, command->destination.id);
        break;
    case PS_SC_SET_ADDRESS: set_address(endpoint, command, now_ns); break;
    case PS_SC_REMOVE_ENDPOINT: ps_send_endpoint_set_status(endpoint, PS_CHANNEL_CLOSING); break;
    default: break;
    }
    ps_send_endpoint_store_count(endpoint);
    endpoint->due_ns = now_ns;
    ps_sender_due(sender, now_ns);
}
