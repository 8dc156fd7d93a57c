/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_reader.c: the receiver's measuring under NAK-strength control by its rules
 * (docs/nak-strength.md), in reals: cadence, rate and residue of each reader.  In each cycle, the
 * model starts from the driver's values of the cycle before, so that errors do not add up.
 */
#include "ps_sim_probe.h"
#include "ps_sim_probe_number.h"

#define MS            1e6
#define SECOND        1e9
#define SPAN_NS       25000000
#define PAUSE_MOST_NS INT64_C(2000000000)
#define FORGOTTEN_NS  16e9 /* time over which a rate that is only a lower bound falls */
#define NO_LOW        INT64_MAX

/* Measured values of a reader after a check. */
typedef struct measured {
    double cadence_ns, longest_ns, rate;
    double error; /* of the rate */
    int64_t span_ns, span_position, taken, low, residue;
    bool at_least, starved;
    bool open; /* two rates are so near that the driver may take either for the larger */
} measured_t;

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, double a,
                     double b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "reader: %s (%.0f, %.0f)",
                  what, a, b);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static void begin_span(measured_t *now, const ps_pressure_reader_t *before, int64_t now_ns)
{
    now->span_ns = now_ns;
    now->span_position = before->position;
    now->longest_ns = 0;
    now->starved = before->empty;
}

/* If the reader never emptied the queue, its rate becomes the mean of the rate in this span and the
 * rate before.  If the reader emptied the queue, the rate in this span is only a lower bound.  The
 * rate before then loses its weight over 16 s. */
static void end_span(measured_t *now, const ps_pressure_reader_t *before, int64_t now_ns)
{
    const double span_ns = (double)(now_ns - now->span_ns);
    const double sample = (double)(before->position - now->span_position) * SECOND / span_ns;
    const double known = now->rate;
    now->error = 4 + most(sample, known) / 10000;
    if (!now->starved) {
        const bool first = known <= 0 || (now->at_least && sample > known);
        now->rate = first ? sample : (known + sample) / 2;
        now->at_least = false;
    } else {
        const double part = least(span_ns / FORGOTTEN_NS, 0.5);
        const double faded = known * (1 - part);
        now->error += known * 2 * part * part;
        now->open = apart(sample, faded) <= now->error;
        now->rate = most(sample, faded);
        now->at_least = now->at_least || sample >= faded;
    }
    if (now->longest_ns < now->cadence_ns) {
        now->cadence_ns -= (now->cadence_ns - now->longest_ns) / 4;
    }
}

static void begin_batch(measured_t *now, const ps_pressure_reader_t *before, int64_t now_ns)
{
    const int64_t span_ns = now_ns - now->span_ns;
    if (now->low != NO_LOW) {
        now->residue = now->low;
        now->low = NO_LOW;
    }
    now->taken = 0;
    if (now->span_ns == 0) {
        begin_span(now, before, now_ns);
    } else if (span_ns >= SPAN_NS && (double)span_ns >= now->cadence_ns) {
        end_span(now, before, now_ns);
        begin_span(now, before, now_ns);
    }
}

/* The reader has read data that it had left unread since before->waiting_ns. */
static void learn(measured_t *now, const ps_pressure_reader_t *before, int64_t now_ns)
{
    const int64_t waited_ns = now_ns - before->waiting_ns;
    if (waited_ns >= PAUSE_MOST_NS) { /* a pause changes no measured value */
        begin_span(now, before, now_ns);
        return;
    }
    now->cadence_ns = most(now->cadence_ns, (double)waited_ns);
    now->longest_ns = most(now->longest_ns, (double)waited_ns);
    if (2 * (double)waited_ns >= now->cadence_ns) {
        if (before->term > 0 &&
            before->position % before->term == 0) { /* the end of the term ended its poll */
            now->starved = true;
            now->low = 0;
        }
        begin_batch(now, before, now_ns);
    } else if ((double)(now_ns - now->span_ns) >= most(3 * now->cadence_ns, SPAN_NS)) {
        begin_batch(now, before, now_ns);
    }
}

static measured_t expect(const ps_pressure_reader_t *before, int64_t position, int64_t now_ns)
{
    measured_t now = { .cadence_ns = (double)before->cadence_ns,
                       .longest_ns = (double)before->longest_ns,
                       .rate = (double)before->rate,
                       .span_ns = before->span_ns,
                       .span_position = before->span_position,
                       .taken = before->taken,
                       .low = before->low,
                       .residue = before->residue,
                       .at_least = before->at_least,
                       .starved = before->starved };
    if (before->started && position > before->position) {
        learn(&now, before, now_ns);
        now.taken += position - before->position;
    }
    return now;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Within a cycle a reader is checked once or twice, while data arrives: at its first check between
 * before->end and `end` bytes had arrived. */
static bool is_low(const measured_t *now, const ps_pressure_reader_t *before,
                   const ps_pressure_reader_t *reader, int64_t end)
{
    const bool moved = before->started && reader->position > before->position;
    if (reader->empty || (moved && reader->position >= before->end)) {
        return reader->low == 0 || !before->started ||
               (!moved && before->empty && reader->low == before->low);
    }
    if (!moved) {
        return reader->low == before->low || (before->empty && reader->low == 0) ||
               !before->started;
    }
    return reader->low >= lower(now->low, before->end - reader->position) &&
           reader->low <= lower(now->low, end - reader->position);
}

static bool is_starved(const measured_t *now, const ps_pressure_reader_t *before,
                       const ps_pressure_reader_t *reader)
{
    const bool took_all = reader->position > before->position && reader->position >= before->end;
    if (!before->started || before->empty) {
        return reader->starved || reader->starved == now->starved;
    }
    return reader->starved == (now->starved || took_all || reader->empty);
}

static void compare(ps_probe_t *probe, const ps_probe_image_t *model,
                    const ps_pressure_reader_t *before, const ps_pressure_reader_t *reader,
                    int64_t now_ns)
{
    const int64_t end = ps_image_contiguous(model->image);
    const measured_t now = expect(before, reader->position, now_ns);
    const bool moved = reader->position > before->position;
    if (apart((double)reader->cadence_ns, now.cadence_ns) > 2) {
        complain(probe, model, "another cadence", (double)reader->cadence_ns, now.cadence_ns);
    }
    if (apart((double)reader->rate, now.rate) > now.error ||
        (!now.open && reader->at_least != now.at_least)) {
        complain(probe, model, "another rate", (double)reader->rate, now.rate);
    }
    if (reader->residue != now.residue || !is_low(&now, before, reader, end)) {
        complain(probe, model, "another residue", (double)reader->residue, (double)now.residue);
    }
    if (reader->span_ns != now.span_ns || reader->taken != now.taken ||
        apart((double)reader->longest_ns, now.longest_ns) > 0 ||
        !is_starved(&now, before, reader)) {
        complain(probe, model, "another span", (double)reader->span_ns, (double)now.span_ns);
    }
    if (reader->waiting_ns != now_ns &&
        (reader->waiting_ns != before->waiting_ns || (before->started && moved))) {
        complain(probe, model, "another wait", (double)reader->waiting_ns,
                 (double)before->waiting_ns);
    }
    if (before->started && reader->waiting_ns != before->waiting_ns && !moved && !before->empty &&
        !reader->empty) {
        complain(probe, model, "a wait begins again", (double)reader->waiting_ns,
                 (double)before->waiting_ns);
    }
}

/* Returns true if the receiver measures how the reader consumes. A resting reader and one that was
 * left behind continue later, at a position up to which they did not read. */
static bool counts(const ps_image_subscriber_t *subscriber)
{
    return subscriber->tether.state <= PS_TETHER_LINGER && !subscriber->isolation.lagged;
}

/* Returns true if the receiver began to measure the reader again, which it may do in this cycle. */
static bool has_skipped(ps_probe_t *probe, const ps_probe_image_t *model,
                        const ps_probe_reader_t *known, const ps_image_subscriber_t *subscriber)
{
    const ps_pressure_reader_t *before = &known->reader;
    const ps_pressure_reader_t *reader = &subscriber->reader;
    if (!counts(subscriber) && !known->counts && reader->started) {
        complain(probe, model, "measured while it skips", (double)reader->position,
                 (double)before->position);
    }
    if ((counts(subscriber) && known->counts) || reader->span_ns != 0 || reader->taken != 0) {
        return false;
    }
    if (reader->cadence_ns != before->cadence_ns || reader->rate != before->rate ||
        reader->at_least != before->at_least || reader->residue != before->residue) {
        complain(probe, model, "skipped data changes what was learned", (double)reader->rate,
                 (double)before->rate);
    }
    return true;
}

/* ---- values that survive an image ------------------------------------------------------------ */

static ps_probe_learned_t *learned_of(ps_probe_t *probe, const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    for (int32_t i = 0; i < PS_PROBE_LEARNED && image->endpoint != NULL; i++) {
        ps_probe_learned_t *learned = &probe->learned[i];
        if (learned->known && learned->host == model->host &&
            learned->receiver_id == image->endpoint->params.receiver_id &&
            learned->session_id == image->params.session_id &&
            learned->stream_id == image->params.stream_id) {
            return learned;
        }
    }
    return NULL;
}

/* Checks the first values of a reader.  If the last image of its session was outrun, the reader
 * starts with the values that the receiver measured on that image. */
static void check_first(ps_probe_t *probe, const ps_probe_image_t *model,
                        const ps_pressure_reader_t *reader)
{
    const ps_probe_learned_t *learned = learned_of(probe, model);
    const double cadence_ns = learned != NULL ? learned->cadence_ns : 0;
    const double rate = learned != NULL ? learned->rate : 0;
    if (probe->next_learned >= PS_RECV_LEARNED || (learned != NULL && learned->open)) {
        return; /* the endpoint may have overwritten its entry */
    }
    if (apart((double)reader->cadence_ns, cadence_ns) > 1 ||
        apart((double)reader->rate, rate) > 4 + rate / 10000) {
        complain(probe, model, "a first rate that was not learned", (double)reader->rate, rate);
    }
    if (reader->residue != (reader->rate > 0)) {
        complain(probe, model, "a first residue", (double)reader->residue, (double)reader->rate);
    }
}

/* Bytes a second. The driver counts whole microseconds, which a cadence has few of. */
static double per_cadence(int64_t bytes, const ps_pressure_reader_t *reader)
{
    return (double)bytes * SECOND / (double)(reader->cadence_ns / 1000 * 1000);
}

static void remember(ps_probe_t *probe, const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    ps_probe_learned_t *learned = learned_of(probe, model);
    if (image->endpoint == NULL || image->n_subscribers == 0) {
        return;
    }
    if (learned == NULL) {
        learned = &probe->learned[probe->next_learned % PS_PROBE_LEARNED];
        probe->next_learned++;
    }
    const ps_pressure_reader_t *reader = &image->subscribers[0].reader;
    const double cadence_ns = (double)reader->cadence_ns;
    const bool known = cadence_ns >= MS;
    double rate = (double)reader->rate;
    if (reader->rate == 0 && known) { /* it has read one batch */
        rate = per_cadence(reader->taken, reader);
    }
    if (known && reader->term > 0) {
        rate = least(rate, per_cadence(reader->term, reader));
    }
    *learned = (ps_probe_learned_t){ .known = true,
                                     .open = image->n_subscribers > 1,
                                     .host = model->host,
                                     .receiver_id = image->endpoint->params.receiver_id,
                                     .session_id = image->params.session_id,
                                     .stream_id = image->params.stream_id,
                                     .cadence_ns = cadence_ns,
                                     .rate = rate };
}

void ps_probe_readers_forget(ps_probe_t *probe, int32_t host)
{
    for (int32_t i = 0; i < PS_PROBE_LEARNED; i++) {
        probe->learned[i].known = probe->learned[i].known && probe->learned[i].host != host;
    }
}

/* ---- tethers --------------------------------------------------------------------------------- */

bool ps_probe_gated(const ps_probe_image_t *model, const ps_image_subscriber_t *reader)
{
    for (int32_t i = 0; i < PS_PROBE_TETHERS; i++) {
        const ps_probe_tether_t *known = &model->tethers[i];
        if (known->known && known->id == reader->position_counter_id) {
            return known->state < PS_TETHER_RESTING;
        }
    }
    return ps_tether_gates(&reader->tether);
}

bool ps_probe_left_behind(const ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *reader = &image->subscribers[i];
        if (ps_probe_gated(model, reader) && !ps_tether_gates(&reader->tether)) {
            return true;
        }
    }
    return false;
}

/* ---- measured readers ------------------------------------------------------------------------ */

/* Returns true if the receiver has measured each reader up to the position that the image counts as
 * consumed. A reader that skipped data may be behind this position, and is measured from the next
 * look at the image. */
static bool all_measured(const ps_image_t *image)
{
    bool all = true;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        const bool skips = subscriber->isolation.slot != NULL || !subscriber->tether.tethered;
        all = all &&
              (!counts(subscriber) || skips ||
               (subscriber->reader.started && subscriber->reader.position >= image->consumption));
    }
    return all;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const ps_probe_reader_t *before_of(const ps_probe_readers_t *before, int32_t id)
{
    for (int32_t i = 0; i < before->count; i++) {
        if (before->of[i].id == id) {
            return &before->of[i];
        }
    }
    return NULL;
}

/* The receiver checks each reader that it waits for before it builds a PRESSURE frame. If the
 * reader came to rest after that, the end of the measurement has reset `started` and `taken`. It
 * has reset no other value that a frame depends on. */
ps_pressure_reader_t ps_probe_reader_at(const ps_probe_image_t *model,
                                        const ps_image_subscriber_t *subscriber,
                                        ps_probe_moment_t moment)
{
    ps_pressure_reader_t reader = subscriber->reader;
    const ps_probe_reader_t *known =
        before_of(&model->readers_before, subscriber->position_counter_id);
    if (moment == PS_PROBE_BEFORE_TETHERS && known != NULL && ps_probe_gated(model, subscriber) &&
        !ps_tether_gates(&subscriber->tether)) {
        const ps_pressure_reader_t *before = &known->reader;
        const bool moved = before->started && reader.position > before->position;
        reader.started = true;
        reader.taken = before->taken + (moved ? reader.position - before->position : 0);
    }
    return reader;
}

void ps_probe_readers_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_probe_readers_t before = model->readers_before;
    const bool outrun = image->end_reason == PS_END_OUTRUN && image->state == PS_IMAGE_DRAINED;
    model->readers_before.count = 0;
    model->readers_before.outrun = outrun;
    if (!ps_image_under_nak(image) || image->n_subscribers > PS_PROBE_READERS) {
        return;
    }
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        const ps_probe_reader_t *known = before_of(&before, subscriber->position_counter_id);
        if (known == NULL) {
            check_first(probe, model, &subscriber->reader);
        } else if (!has_skipped(probe, model, known, subscriber)) {
            compare(probe, model, &known->reader, &subscriber->reader, now_ns);
        }
        model->readers_before.of[model->readers_before.count++] =
            (ps_probe_reader_t){ .id = subscriber->position_counter_id,
                                 .counts = counts(subscriber),
                                 .reader = subscriber->reader };
    }
    ps_probe_promise(probe, &model->promises[P_IMAGE_MEASURED],
                     image->state != PS_IMAGE_ACTIVE || all_measured(image), now_ns,
                     ps_probe_slack_ns(probe, model->host), "each reader is measured", model->host,
                     image->params.session_id);
    if (outrun && !before.outrun) {
        remember(probe, model);
    }
}
