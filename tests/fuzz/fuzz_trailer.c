/* SPDX-License-Identifier: Apache-2.0
 * Any bytes behind a frame: either a trailer whose values are in range, or no trailer; what was
 * read is written and read back the same.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ps_cause.h"
#include "ps_wire_fields.h"

static void check_same(const ps_trailer_t *a, const ps_trailer_t *b)
{
    FUZZ_CHECK(a->capabilities == b->capabilities && a->daemon_id == b->daemon_id);
    FUZZ_CHECK(a->daemon_epoch == b->daemon_epoch && a->fill_ppm == b->fill_ppm);
    FUZZ_CHECK(a->credit_limit == b->credit_limit && a->released_ordinal == b->released_ordinal);
    FUZZ_CHECK(a->reason == b->reason && a->congestion_window == b->congestion_window);
    FUZZ_CHECK(a->congestion_window == 0 ||
               (a->pacing_rate == b->pacing_rate && a->rtt_ns == b->rtt_ns));
    FUZZ_CHECK(a->reason == 0 || (a->reason_client == b->reason_client &&
                                  a->reason_backlog_bytes == b->reason_backlog_bytes));
    FUZZ_CHECK(a->reason == 0 || a->client_name[0] == '\0' ||
               (strcmp(a->client_name, b->client_name) == 0 && strcmp(a->host, b->host) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size > 4096) {
        return 0;
    }
    uint8_t *data = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(data != NULL);
    memcpy(data, input, size);
    ps_trailer_t read, again;
    ps_trailer_read(data, (uint32_t)size, &read);
    free(data);
    if (read.capabilities == 0) {
        ps_trailer_t none;
        ps_trailer_clear(&none);
        FUZZ_CHECK(memcmp(&none, &read, sizeof none) == 0);
        return 0;
    }
    FUZZ_CHECK((read.capabilities & PS_CAP_PENSTOCK) != 0 && read.reason < PS_CAUSE_COUNT);
    FUZZ_CHECK(read.fill_ppm <= 1000000 && read.reason_backlog_bytes >= 0);
    FUZZ_CHECK(read.flow_control >= PS_WIRE_FC_UNKNOWN && read.flow_control < PS_WIRE_FC_COUNT);
    uint8_t out[PS_TRAILER_MAX];
    ps_trailer_read(out, ps_trailer_write_sm(out, &read), &again);
    check_same(&read, &again);
    ps_trailer_read(out, ps_trailer_write_setup(out, &read), &again);
    FUZZ_CHECK(again.ordinal == read.ordinal && again.capabilities == read.capabilities);
    FUZZ_CHECK(again.flow_control == read.flow_control && again.group_tag == read.group_tag);
    FUZZ_CHECK(read.relay_path.count >= 0 && read.relay_path.count <= PS_RELAYS_MAX);
    FUZZ_CHECK(memcmp(&again.relay_path, &read.relay_path, sizeof read.relay_path) == 0);
    FUZZ_CHECK(read.credit_weight <= PS_CREDIT_WEIGHT_MAX &&
               again.credit_weight == read.credit_weight);
    FUZZ_CHECK(read.priority >= PS_PRIORITY_MIN && read.priority <= PS_PRIORITY_MAX &&
               again.priority == read.priority);
    return 0;
}
