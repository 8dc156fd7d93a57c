/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_relay.c: the client that a status message names as the reason for a full window.
 *
 *   reader          the slowest client, its name, this host, and the bytes that it has not read
 *   relay           what blocks the relay's publication, if an application does: the client that
 *                   the publication's receiver names, with its name and host, or a reader on this
 *                   host. The bytes that this application has not read count, too
 *   otherwise       a relay is named like any other reader */
#include "ps_account.h"
#include "ps_sim_probe.h"

typedef struct reason {
    int64_t client;
    int64_t backlog_bytes;
    const char *name;
    const char *host;
} reason_t;

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* The publication of a relay that reads this image; NULL: the slowest reader is no relay. */
static const ps_publication_slot_t *target_of(const ps_image_t *image)
{
    const ps_shared_t *shared = image->receiver->shared;
    if (image->limiting_subscriber < 0) {
        return NULL;
    }
    const int32_t target = atomic_load_explicit(
        &shared->subscribers[image->limiting_subscriber].relayed_to, memory_order_relaxed);
    return target == 0 ? NULL : &shared->publications[target - 1];
}

/* Changes *reason to the application that blocks the publication.  false: none does. */
static bool look_through(const ps_publication_slot_t *target, const ps_shared_t *shared,
                         const char *here, const ps_holder_t *holder, reason_t *reason)
{
    const int64_t culprit = load(&target->cause_culprit);
    if (atomic_load_explicit(&target->cause, memory_order_relaxed) == PS_CAUSE_NONE) {
        return false;
    }
    if (holder->reason_client != 0) {
        reason->client = holder->reason_client;
        reason->backlog_bytes += holder->backlog_bytes > 0 ? holder->backlog_bytes : 0;
        reason->name = holder->name;
        reason->host = holder->host[0] != '\0' ? holder->host : here;
        return true;
    }
    if (holder->address.family == 0 && holder->client_slot >= 0 && culprit != 0 &&
        load(&shared->clients[holder->client_slot].id) == culprit) {
        reason->client = culprit;
        reason->name = shared->clients[holder->client_slot].name;
        return true;
    }
    return false;
}

static bool is_name(const char *stated, const char *name)
{
    return strncmp(stated, name, PS_NAME_MAX) == 0;
}

bool ps_probe_relay_goes_on(const ps_probe_t *probe, const ps_publication_t *pub)
{
    const ps_simworld_t *world = probe->world;
    bool goes_on = false;
    for (int32_t i = 0; i < world->publisher_count; i++) { /* the last one is of the last process */
        const ps_sim_publisher_t *publisher = &world->publishers[i];
        const ps_sim_ledger_t *ledger = &world->ledgers[publisher->params.ledger];
        if (ledger->relay > 0 && ledger->session_id == pub->log.session_id &&
            ledger->stream_id == pub->log.stream_id) {
            goes_on = !publisher->refused;
        }
    }
    return goes_on;
}

int64_t ps_probe_check_reason(ps_probe_t *probe, const ps_probe_image_t *model,
                              const ps_trailer_t *trailer)
{
    const ps_image_t *image = model->image;
    const ps_shared_t *shared = image->receiver->shared;
    const char *here = image->receiver->params->host;
    const bool known = image->limiting_slot >= 0;
    reason_t reason = { .client = load(&image->slot->limiting_client),
                        .name = known ? shared->clients[image->limiting_slot].name : "",
                        .host = known ? here : "" };
    ps_holder_t holder;
    const ps_publication_slot_t *target = known ? target_of(image) : NULL;
    if (target != NULL) {
        memcpy(&holder, (const void *)target->holder, sizeof holder);
        if (look_through(target, shared, here, &holder, &reason)) {
            probe->world->rules |= UINT64_C(1) << PS_SIM_RULE_RELAYED_REASON;
        }
    }
    if (trailer->reason_client != reason.client || !is_name(trailer->client_name, reason.name) ||
        !is_name(trailer->host, reason.host)) {
        complain(probe, model, "a status message names another client", trailer->reason_client,
                 reason.client);
    }
    return reason.backlog_bytes;
}
