/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_bands.c: how the sender divides its bytes among bands and retransmits, and the order
 * of turns (docs/scheduling.md).
 *
 * A band that always has data has its share in each round, and no other band has more than its own
 * share. So, in any time, what another band sends exceeds what this band sends by a bounded number
 * of shares:
 *
 *   one share      the other band may have its turns first
 *   one more       if the other band is the higher one: it may come late in the first round, and
 *                  first in the last round
 *   a turn of each a turn that begins with a byte of the share left may exceed the share
 *
 * The bound does not depend on the length of the time, so a wrong weight exceeds it after some
 * rounds. The bytes of a turn and the band are those of its datagrams. A turn without data counts
 * too: the counter `waits` of its stream has it.
 */
#include "ps_driver_state.h"
#include "ps_sender.h"
#include "ps_sim_probe.h"

_Static_assert((int)PS_PROBE_BANDS == PS_BAND_COUNT, "one entry for each band");

enum { LEAST_CHARGE = 256 };

/* Share of a band in a round, in bytes: its weight times the quantum. */
static int64_t share_of(int32_t band, int64_t quantum)
{
    return band == PS_BAND_BACKGROUND ? quantum * 3 / 4
           : band <= PS_BAND_B1       ? quantum
                                      : quantum << (band - PS_BAND_B1);
}

static void complain(ps_probe_t *probe, int32_t host, const char *what, double a, double b)
{
    ps_probe_fail(probe, host, 0, "%s (%.2f, %.2f)", what, a, b);
}

static int64_t waits_of(const ps_probe_pub_t *model)
{
    return atomic_load_explicit(&model->pub->slot->waits, memory_order_relaxed);
}

static ps_probe_pub_t *model_of(const ps_probe_t *probe, int32_t host, const ps_publication_t *pub)
{
    for (int32_t i = 0; i < probe->pub_count; i++) {
        ps_probe_pub_t *model = probe->pubs[i];
        if (model->pub == pub && model->id == pub->id && model->host == host) {
            return model;
        }
    }
    return NULL;
}

/* ---- datagrams ------------------------------------------------------------------------------- */

void ps_probe_bands_begin(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    ps_probe_bands_t *bands = &probe->bands[host];
    bands->cycle++;
    bands->quantum = sender->bands.quantum;
    bands->alone = sender->bands.alone;
    bands->datagram = sender->largest_datagram;
    bands->count = sender->publication_count;
    bands->slow = now_ns - bands->step_ns >= PS_SLOW_CYCLE_NS;
    bands->step_ns = now_ns;
    for (int32_t i = 0; i < bands->count; i++) {
        ps_probe_pub_t *model = model_of(probe, host, sender->publications[i]);
        if (model != NULL) {
            model->band_cycle = bands->cycle;
            model->band_queued = model->pub->turn.queued;
            model->band_list = model->pub->turn.list;
            model->band_since_ns = model->pub->turn.since_ns;
            model->band_waits = waits_of(model);
            model->band_bytes = 0;
            model->band_repaired = 0;
        }
    }
}

/* Returns true if the stream has waited for its turn since the beginning of the duty cycle, in the
 * same band. */
static bool still_waits(const ps_probe_pub_t *model)
{
    const ps_band_entry_t *turn = &model->pub->turn;
    return model->band_queued && turn->queued && turn->list == model->band_list &&
           turn->since_ns == model->band_since_ns && model->band_bytes == 0 &&
           waits_of(model) == model->band_waits;
}

/* A stream has its turn: no stream of its band has waited for longer. */
static void check_order(ps_probe_t *probe, const ps_probe_pub_t *model)
{
    const int64_t cycle = probe->bands[model->host].cycle;
    const bool waited = model->band_queued && model->band_list == model->band_of;
    for (int32_t i = 0; i < probe->pub_count; i++) {
        const ps_probe_pub_t *other = probe->pubs[i];
        if (other->host == model->host && other != model && other->band_cycle == cycle &&
            still_waits(other) && other->band_list == model->band_of &&
            other->band_joined < (waited ? model->band_joined : cycle)) {
            ps_probe_fail(probe, model->host, model->pub->log.session_id,
                          "a stream has its turn before another one of its band, %lld",
                          (long long)other->id);
            return;
        }
    }
}

void ps_probe_turn_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t bytes)
{
    if (model->band_bytes == 0 && model->band_cycle == probe->bands[model->host].cycle) {
        model->band_of = model->pub->turn.list;
        check_order(probe, model);
    }
    model->band_bytes += bytes;
}

void ps_probe_repair_sent(ps_probe_pub_t *model, int64_t bytes)
{
    /* Each destination gets the datagram, and one of them counts. */
    model->band_repaired += model->pub->endpoint->params.mdc == PS_MDC_NONE ? bytes : 0;
}

/* ---- after a duty cycle ---------------------------------------------------------------------- */

/* Bytes and waiting streams of a duty cycle. `known`: false if the probe cannot know all turns. */
typedef struct cycle {
    int64_t bytes[PS_PROBE_BANDS], repaired;
    bool saturated[PS_PROBE_BANDS], any, known;
} cycle_t;

/* Returns the bytes that the turns of a stream cost its band. */
static int64_t charged(const ps_probe_pub_t *model)
{
    const int64_t turns = waits_of(model) - model->band_waits;
    const int64_t sent = model->band_bytes;
    const int64_t empty = turns - (sent > 0);
    return (sent > 0 && sent < LEAST_CHARGE ? LEAST_CHARGE : sent) +
           (empty > 0 ? empty : 0) * LEAST_CHARGE;
}

/* Returns true if the stream had data before, during and after its only turn of this cycle: the
 * turn ended because it was long. */
static bool had_a_full_turn(const ps_probe_pub_t *model, const ps_probe_bands_t *bands)
{
    return model->band_queued && model->pub->turn.queued && model->band_bytes >= bands->quantum &&
           waits_of(model) == model->band_waits + 1;
}

static void add_stream(ps_probe_t *probe, ps_probe_pub_t *model, cycle_t *cycle)
{
    const ps_probe_bands_t *bands = &probe->bands[model->host];
    const ps_band_entry_t *turn = &model->pub->turn;
    const bool stays = still_waits(model);
    const int32_t list = model->band_bytes > 0 ? model->band_of
                         : model->band_queued  ? model->band_list
                                               : turn->list;
    const bool full = had_a_full_turn(model, bands);
    const int64_t turns = waits_of(model) - model->band_waits;
    cycle->bytes[list] += charged(model);
    cycle->repaired += model->band_repaired;
    if (stays || (full && turn->list == list && list == model->band_list)) {
        cycle->saturated[list] = true;
        cycle->any = true;
    }
    /* A turn for which no other stream waits is not counted. If it sends nothing, its stream may be
     * one that seems to have waited. */
    if (!stays || model->pub->sender->bands.alone > 0 || bands->alone > 0) {
        model->band_joined = bands->cycle;
    }
    if (turns > 0 && model->band_bytes >= turns * (bands->quantum + model->pub->log.mtu)) {
        complain(probe, model->host, "a turn is longer than a quantum", (double)model->band_bytes,
                 (double)bands->quantum);
    }
}

/* Adds a duty cycle to the counts of the bands i and j, of which i always has data. */
static void add_pair(ps_probe_t *probe, int32_t host, const cycle_t *cycle, int32_t i, int32_t j)
{
    ps_probe_bands_t *bands = &probe->bands[host];
    const double own = (double)share_of(i, bands->quantum);
    const double share = (double)share_of(j, bands->quantum);
    const double turns = bands->turn[i] * (double)bands->quantum * (1 / own + 1 / share);
    double *ahead = &bands->ahead[i][j];
    double *least = &bands->least[i][j];
    *ahead += (double)cycle->bytes[j] / share - (double)cycle->bytes[i] / own;
    *least = *ahead < *least ? *ahead : *least;
    const double most = (j > i ? 2 : 1) + turns + bands->rounding[i][j];
    if (*ahead - *least > most) {
        ps_probe_fail(probe, host, 0,
                      "band %d sends more than its share beside band %d, in %lld cycles (%.2f, "
                      "%.2f)",
                      j, i, (long long)bands->cycles[i], *ahead - *least, most);
        *ahead = *least = 0;
    }
}

/* The bytes of retransmits are at most those of new data (half of them while the governor defers),
 * and a quantum and a turn more. */
static void add_repair(ps_probe_t *probe, int32_t host, const cycle_t *cycle)
{
    ps_probe_bands_t *bands = &probe->bands[host];
    const double quantum = (double)bands->quantum;
    double earned = 0;
    for (int32_t i = 0; i < PS_PROBE_BANDS; i++) {
        earned += (double)cycle->bytes[i] / (probe->governors[host].defers ? 2 : 1);
    }
    const double turn = (quantum + (double)bands->datagram) / quantum;
    bands->repair_turn = turn > bands->repair_turn ? turn : bands->repair_turn;
    bands->repair_ahead += ((double)cycle->repaired - earned) / quantum;
    bands->repair_least =
        bands->repair_ahead < bands->repair_least ? bands->repair_ahead : bands->repair_least;
    const double most = 1 + bands->repair_turn + bands->repair_rounding;
    if (bands->repair_ahead - bands->repair_least > most) {
        complain(probe, host, "retransmits have more than their share",
                 bands->repair_ahead - bands->repair_least, most);
        bands->repair_ahead = bands->repair_least = 0;
    }
}

/* The quantum has changed. Counters change by the same factor, rounded to a byte; and a debt that
 * is longer than a turn of the new quantum is shortened. */
static void rescale(ps_probe_bands_t *bands, int64_t quantum, int64_t datagram)
{
    const double longest = (double)datagram / (double)bands->quantum;
    const double now = (double)datagram / (double)quantum;
    const double forgiven = now < longest ? longest - now : 0;
    const double byte = 1 / (double)quantum;
    for (int32_t i = 0; i < PS_PROBE_BANDS; i++) {
        for (int32_t j = 0; j < PS_PROBE_BANDS; j++) {
            bands->rounding[i][j] +=
                (forgiven + byte) * (double)quantum / (double)share_of(j, quantum) +
                1 / (double)share_of(i, quantum);
        }
    }
    bands->repair_rounding += forgiven + byte;
}

static void forget_band(ps_probe_bands_t *bands, int32_t i)
{
    for (int32_t j = 0; j < PS_PROBE_BANDS; j++) {
        bands->ahead[i][j] = bands->least[i][j] = bands->rounding[i][j] = 0;
    }
    bands->turn[i] = 0;
    bands->cycles[i] = 0;
}

void ps_probe_bands_check(ps_probe_t *probe, int32_t host, int64_t now_ns)
{
    const ps_sender_t *sender = ps_probe_driver(probe, host)->sender;
    ps_probe_bands_t *bands = &probe->bands[host];
    cycle_t cycle = { .known = !bands->slow && probe->refused_ns[host] != now_ns &&
                               sender->publication_count == bands->count &&
                               sender->bands.alone == 0 };
    for (int32_t i = 0; i < sender->publication_count; i++) {
        ps_probe_pub_t *model = model_of(probe, host, sender->publications[i]);
        if (model == NULL || model->band_cycle != bands->cycle) {
            cycle.known = false;
        } else {
            add_stream(probe, model, &cycle);
        }
    }
    for (int32_t i = 0; i < PS_PROBE_BANDS; i++) {
        if (!cycle.known || !cycle.saturated[i]) {
            forget_band(bands, i);
            continue;
        }
        const double turn = (double)(bands->quantum + bands->datagram) / (double)bands->quantum;
        bands->turn[i] = turn > bands->turn[i] ? turn : bands->turn[i];
        bands->cycles[i]++;
        for (int32_t j = 0; j < PS_PROBE_BANDS; j++) {
            if (j != i) {
                add_pair(probe, host, &cycle, i, j);
            }
        }
    }
    if (cycle.known && cycle.any) {
        add_repair(probe, host, &cycle);
    } else {
        bands->repair_ahead = bands->repair_least = 0;
        bands->repair_turn = bands->repair_rounding = 0;
    }
    if (sender->bands.quantum != bands->quantum) {
        rescale(bands, sender->bands.quantum, bands->datagram);
    }
}
