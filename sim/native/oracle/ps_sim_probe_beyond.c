/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe_beyond.c: what a receiver believes of a sender that is beyond its repair or its
 * window (docs/nak-strength.md). One datagram may be forged or stray. Only the third in a row that
 * continues where the one before ended, within half a term, shows where the sender is; a heartbeat
 * below them withdraws them.
 *
 * A driver reads several datagrams before it takes the first, so whether data fills what is missing
 * is not always known. A datagram that may count is taken to count, so the model believes no less
 * than a receiver may.
 */
#include "ps_sim_probe.h"

enum { FURTHER = 2 }; /* datagrams that continue where the one before ended */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Whether [position, end) is beyond what a receiver with this contiguous end would repair. */
static bool is_beyond(const ps_image_t *image, int64_t end, int64_t contiguous)
{
    const int64_t term = image->log.term_length;
    const int64_t reach = ps_log_repair_reach((int32_t)term, image->log.mtu, 1);
    const bool kept = end <= ps_probe_accepted_to(image) && end <= ps_image_room(image);
    return end - contiguous > term / 2 && (!kept || end - contiguous > reach);
}

void ps_probe_beyond_read(ps_probe_image_t *model, int64_t position, int64_t end)
{
    const ps_image_t *image = model->image;
    ps_probe_row_t *row = &model->row;
    const bool under_nak = (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    if (under_nak && position == end && position < row->end && !row->unsure) {
        row->further = 0; /* a heartbeat */
    }
    if (!is_beyond(image, end, ps_image_contiguous(image))) {
        return; /* and what the driver has taken meanwhile brings it nearer */
    }
    const int64_t most = larger(model->edge, image->hwm);
    const bool surely =
        under_nak && position - most > image->log.term_length / 2 && is_beyond(image, end, most);
    const int64_t half = image->log.term_length / 2;
    const bool follows = row->unsure || (position >= row->end && position - row->end <= half);
    row->further = follows ? row->further + 1 : 0;
    row->end = end;
    row->unsure = !surely;
    if (row->further >= FURTHER) {
        row->believed = larger(row->believed, end);
    }
}

void ps_probe_beyond_check(ps_probe_t *probe, ps_probe_image_t *model)
{
    const ps_image_t *image = model->image;
    ps_probe_row_t *row = &model->row;
    if (image->sent_seen > row->seen && image->sent_seen > row->believed) {
        ps_probe_fail(probe, model->host, image->params.session_id,
                      "a sender is believed to be beyond before three datagrams in a row "
                      "(%lld, %lld)",
                      (long long)image->sent_seen, (long long)row->believed);
    }
    row->seen = image->sent_seen;
}
