/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_model.c: which publication or image a datagram is of, promises with a time to keep
 * them in, and failures.  The other files of the probe call it; it calls none of their checks.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

#define TICKS_NS INT64_C(2500000)
/* Turns of each stream of a host before one of them has its turn, in generated loads. */
enum { TURNS_EACH = 8 };
#define MS INT64_C(1000000)

ps_probe_t *ps_probe_create(ps_simworld_t *world)
{
    ps_probe_t *probe = calloc(1, sizeof *probe);
    if (probe != NULL) {
        probe->world = world;
        for (int32_t i = 0; i < PS_SIM_MAX_HOSTS; i++) {
            probe->refused_ns[i] = INT64_MIN / 2;
            probe->crowded_ns[i] = INT64_MIN / 2;
        }
    }
    return probe;
}

void ps_probe_destroy(ps_probe_t *probe)
{
    for (int32_t i = 0; probe != NULL && i < probe->pub_count; i++) {
        free(probe->pubs[i]);
    }
    for (int32_t i = 0; probe != NULL && i < probe->image_count; i++) {
        free(probe->images[i]);
    }
    free(probe);
}

void ps_probe_forget_host(ps_probe_t *probe, int32_t host)
{
    probe->counts[host].known = false;
    ps_probe_readers_forget(probe, host);
    probe->governors[host] = (ps_probe_governor_t){ .high_since_ns = -1 };
    probe->bands[host] = (ps_probe_bands_t){ 0 };
    for (int32_t i = 0; i < probe->pub_count;) {
        if (probe->pubs[i]->host == host) {
            free(probe->pubs[i]);
            probe->pubs[i] = probe->pubs[--probe->pub_count];
        } else {
            i++;
        }
    }
    for (int32_t i = 0; i < probe->image_count;) {
        if (probe->images[i]->host == host) {
            free(probe->images[i]);
            probe->images[i] = probe->images[--probe->image_count];
        } else {
            i++;
        }
    }
}

/* ---- promises -------------------------------------------------------------------------------- */

int64_t ps_probe_slack_ns(const ps_probe_t *probe, int32_t host)
{
    return TICKS_NS + 3 * probe->world->slots[host].cycle_ns;
}

int64_t ps_probe_turn_slack_ns(const ps_probe_t *probe, int32_t host)
{
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    const int64_t cycle_ns = probe->world->slots[host].cycle_ns;
    const bool waits = sender->params->governor != 0 && cycle_ns < PS_SLOW_CYCLE_NS;
    return ps_probe_slack_ns(probe, host) +
           (waits ? TURNS_EACH * sender->publication_count * cycle_ns : 0);
}

void ps_probe_fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *format, ...)
{
    char text[PS_SIM_VIOLATION_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ps_sim_violate(probe->world, "host %d, session %d, %lld ns: %s", host, session_id,
                   (long long)probe->world->now_ns, text);
}

void ps_probe_promise_moved(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds,
                            int64_t now_ns, int64_t grace_ns, const char *name, int32_t host,
                            int32_t session_id)
{
    if (promise->since_ns == 0) {
        promise->since_ns = now_ns + 1; /* 0: it holds */
    }
    if (now_ns + 1 - promise->since_ns > grace_ns && !promise->broken) {
        promise->broken = true;
        ps_probe_fail(probe, host, session_id, "%s: not after %lld ns", name,
                      (long long)(now_ns + 1 - promise->since_ns));
    }
    if (holds) {
        promise->since_ns = 0;
        promise->broken = false;
    }
}

bool ps_probe_is_full(const ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    return now_ns - probe->refused_ns[host] <= ps_probe_slack_ns(probe, host);
}

/* True: an event found no room lately. It waits for the conductor, and a few ticks more. */
bool ps_probe_is_crowded(const ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    return now_ns - probe->crowded_ns[host] <= 2 * ps_probe_slack_ns(probe, host);
}

/* ---- models ---------------------------------------------------------------------------------- */

ps_driver_t *ps_probe_driver(const ps_probe_t *probe, int32_t host)
{
    return probe->world->slots[host].driver;
}

ps_probe_pub_t *ps_probe_pub_of(ps_probe_t *probe, int32_t host, const ps_publication_t *pub,
                                int64_t now_ns)
{
    for (int32_t i = 0; i < probe->pub_count; i++) {
        ps_probe_pub_t *model = probe->pubs[i];
        if (model->pub == pub && model->id == pub->id && model->host == host) {
            return model;
        }
    }
    ps_probe_pub_t *model = probe->pub_count == PS_PROBE_PUBS ? NULL : calloc(1, sizeof *model);
    if (model != NULL) {
        model->host = host;
        model->pub = pub;
        model->id = pub->id;
        ps_probe_pub_begin(model, now_ns);
        probe->pubs[probe->pub_count++] = model;
    }
    return model;
}

ps_probe_pub_t *ps_probe_pub(ps_probe_t *probe, int32_t host, int32_t session_id, int32_t stream_id)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    for (int32_t i = 0; driver != NULL && i < driver->sender->publication_count; i++) {
        const ps_publication_t *pub = driver->sender->publications[i];
        if (pub->log.session_id == session_id && pub->log.stream_id == stream_id) {
            return ps_probe_pub_of(probe, host, pub, driver->sender->now_ns);
        }
    }
    return NULL;
}

ps_probe_image_t *ps_probe_image_of(ps_probe_t *probe, int32_t host, const ps_image_t *image,
                                    int64_t now_ns)
{
    for (int32_t i = 0; i < probe->image_count; i++) {
        ps_probe_image_t *model = probe->images[i];
        if (model->image == image && model->id == image->params.id && model->host == host) {
            return model;
        }
    }
    ps_probe_image_t *model =
        probe->image_count == PS_PROBE_IMAGES ? NULL : calloc(1, sizeof *model);
    if (model != NULL) {
        model->host = host;
        model->image = image;
        model->id = image->params.id;
        ps_probe_image_begin(model, now_ns);
        probe->images[probe->image_count++] = model;
    }
    return model;
}

ps_probe_image_t *ps_probe_image(ps_probe_t *probe, int32_t host, int32_t session_id,
                                 int32_t stream_id, int64_t now_ns)
{
    const ps_driver_t *driver = ps_probe_driver(probe, host);
    ps_probe_image_t *found = NULL;
    for (int32_t i = 0; driver != NULL && i < driver->receiver->n_images; i++) {
        const ps_image_t *image = driver->receiver->images[i];
        if (image->params.session_id == session_id && image->params.stream_id == stream_id) {
            ps_probe_image_t *model = ps_probe_image_of(probe, host, image, now_ns);
            const bool before = found != NULL && found->image->state == PS_IMAGE_ACTIVE;
            if (before && image->state == PS_IMAGE_ACTIVE) {
                return NULL; /* two endpoints have it: whose datagram it is, is not known */
            }
            found = before ? found : model;
        }
    }
    return found;
}

const ps_sim_ledger_t *ps_probe_ledger(const ps_probe_t *probe, int32_t session_id,
                                       int32_t stream_id)
{
    const ps_simworld_t *world = probe->world;
    for (int32_t i = 0; i < world->ledger_count; i++) {
        if (world->ledgers[i].session_id == session_id &&
            world->ledgers[i].stream_id == stream_id) {
            return &world->ledgers[i];
        }
    }
    return NULL;
}

int64_t ps_probe_ordinal(const ps_sim_ledger_t *ledger, int64_t position)
{
    return ledger != NULL ? ps_sim_first_beyond(ledger, position) + ps_sim_marked(ledger, position)
                          : -1;
}

const char *ps_probe_index_check(ps_probe_index_t *model, const ps_index_ring_t *ring, int64_t end,
                                 int32_t term_length, int64_t epoch_offset_ns, int64_t now_ns)
{
    const uint64_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    const ps_index_entry_t *entry = &ring->entries[(count - 1) % PS_INDEX_ENTRIES];
    const int64_t position = atomic_load_explicit(&entry->position, memory_order_relaxed);
    const int64_t at_ns =
        atomic_load_explicit(&entry->time_ns, memory_order_relaxed) - epoch_offset_ns;
    const int64_t step = term_length / 256;
    const ps_probe_index_t before = *model;
    const bool known = before.count > 0;
    const bool moved = known && end != before.end;
    *model = (ps_probe_index_t){ .count = count, .position = position, .at_ns = at_ns, .end = end };
    if (known && count != before.count) {
        return at_ns != now_ns             ? "the index has another time"
               : count != before.count + 1 ? "the index has two entries of one time"
               : position - before.position < step && now_ns - before.at_ns < MS
                   ? "the index has an entry too soon"
                   : NULL;
    }
    return moved && end > position && (end - position >= step || now_ns - at_ns >= MS)
               ? "the index stands still"
               : NULL;
}

int64_t ps_probe_sent_floor(const ps_publication_t *pub, int64_t high)
{
    const int32_t term = pub->log.term_length;
    int64_t left = term / 8 < PS_MESSAGE_MAX ? term / 8 : PS_MESSAGE_MAX;
    int64_t padding = 0; /* a message's fragments, one after the other */
    for (; left > 0; left -= pub->log.mtu - PS_HEADER_BYTES) {
        const int64_t frame = left + PS_HEADER_BYTES;
        padding += frame < pub->log.mtu ? (frame + 31) & ~INT64_C(31) : pub->log.mtu;
    }
    padding = padding < pub->log.mtu ? pub->log.mtu : padding;
    padding = padding < term / 2 ? padding : term / 2;
    if (pub->params.flow_control == PS_FC_PRESSURE && pub->endpoint != NULL) {
        const int64_t reach = term / 4 * 3 + padding;
        return high - (reach < term ? reach : term);
    }
    return high - term / 2 - padding;
}

bool ps_probe_may_grant(const ps_publication_t *pub, int64_t high, int64_t position)
{
    const int32_t term = pub->log.term_length;
    const bool nak = pub->params.flow_control == PS_FC_PRESSURE;
    const int64_t least = nak                ? high - term
                          : high % term == 0 ? ps_probe_sent_floor(pub, high)
                                             : high - term / 2;
    return position >= least && position - high <= term / 2;
}
