/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a datagram: the first check, then every decoder and the chain walk, whatever the
 * check said about the type.  Stated properties hold, and nothing reads outside the datagram.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ps_cause.h"
#include "ps_wire_nak_list.h"
#include "ps_wire_pressure.h"
#include "ps_wire.h"

static void check_trailer(const ps_trailer_t *trailer)
{
    FUZZ_CHECK(trailer->ordinal >= -1 && trailer->credit_limit >= -1);
    FUZZ_CHECK(trailer->released_ordinal >= -1 && trailer->fill_ppm <= 1000000);
    FUZZ_CHECK(trailer->flow_control >= PS_WIRE_FC_UNKNOWN);
    FUZZ_CHECK(trailer->flow_control < PS_WIRE_FC_COUNT);
    FUZZ_CHECK(trailer->reason < PS_CAUSE_COUNT && trailer->reason_backlog_bytes >= 0);
}

static void check_control(const uint8_t *data, uint32_t length)
{
    uint8_t built[PS_CONTROL_MAX];
    ps_setup_t setup;
    if (ps_wire_setup(data, length, &setup) == PS_WIRE_OK) {
        FUZZ_CHECK(setup.term_offset >= 0 && setup.term_offset < setup.term_length);
        FUZZ_CHECK(ps_wire_build_setup(built, &setup, &setup.trailer) <= PS_CONTROL_MAX);
        check_trailer(&setup.trailer);
    }
    ps_sm_t sm, again;
    if (ps_wire_sm(data, length, &sm) == PS_WIRE_OK) {
        FUZZ_CHECK(sm.window >= 0 && sm.window <= PS_TERM_MAX / 2);
        check_trailer(&sm.trailer);
        sm.trailer.ordinal = -1; /* a status message does not carry it */
        const uint32_t size = ps_wire_build_sm(built, &sm, &sm.trailer);
        FUZZ_CHECK(ps_wire_sm(built, size, &again) == PS_WIRE_OK);
        FUZZ_CHECK(again.receiver_id == sm.receiver_id && again.group_tag == sm.group_tag);
        FUZZ_CHECK(again.trailer.capabilities == sm.trailer.capabilities);
        FUZZ_CHECK(again.trailer.credit_limit == sm.trailer.credit_limit);
    }
    ps_nak_t nak;
    if (ps_wire_nak(data, length, &nak) == PS_WIRE_OK) {
        FUZZ_CHECK((int64_t)nak.term_offset + nak.length <= PS_TERM_MAX);
    }
    ps_err_t err;
    if (ps_wire_err(data, length, &err) == PS_WIRE_OK) {
        FUZZ_CHECK(err.text + err.text_length <= data + length);
        FUZZ_CHECK(ps_wire_build_err(built, &err) <= PS_CONTROL_MAX);
    }
    ps_pressure_t pressure, pressure_again;
    if (ps_wire_pressure(data, length, &pressure) == PS_WIRE_OK) {
        FUZZ_CHECK(pressure.level >= 1 && pressure.level <= 4 && pressure.fill_ppm <= 1000000);
        FUZZ_CHECK(pressure.rtt_ns >= 0 && pressure.backlog_bytes >= 0);
        const uint32_t size = ps_wire_build_pressure(built, &pressure);
        FUZZ_CHECK(ps_wire_pressure(built, size, &pressure_again) == PS_WIRE_OK);
        FUZZ_CHECK(memcmp(&pressure, &pressure_again, sizeof(pressure)) == 0);
    }
    ps_nak_list_t list, list_again;
    if (ps_wire_nak_list(data, length, &list) == PS_WIRE_OK) {
        FUZZ_CHECK(list.count >= 1 && list.count <= PS_NAK_LIST_MAX);
        const uint32_t size = ps_wire_build_nak_list(built, &list);
        FUZZ_CHECK(size <= PS_CONTROL_MAX && size <= length);
        FUZZ_CHECK(ps_wire_nak_list(built, size, &list_again) == PS_WIRE_OK);
        FUZZ_CHECK(list_again.session_id == list.session_id && list_again.count == list.count);
        FUZZ_CHECK(memcmp(list.ranges, list_again.ranges,
                          (size_t)list.count * sizeof(list.ranges[0])) == 0);
    } else {
        FUZZ_CHECK(list.count == 0);
    }
    ps_rttm_t rttm;
    (void)ps_wire_rttm(data, length, &rttm);
    ps_rsp_setup_t response;
    (void)ps_wire_rsp_setup(data, length, &response);
}

static void check_data(const uint8_t *data, uint32_t length)
{
    ps_data_t first;
    if (ps_wire_data(data, length, &first) == PS_WIRE_OK) {
        FUZZ_CHECK(first.term_offset >= 0 && first.term_offset % PS_FRAME_ALIGNMENT == 0);
    }
    for (int32_t term_length = PS_TERM_MIN; term_length <= PS_TERM_MAX / 64; term_length *= 64) {
        int32_t span, messages;
        if (ps_wire_chain(data, length, term_length, &span, &messages) == PS_WIRE_OK) {
            FUZZ_CHECK(span > 0 && first.term_offset + span <= term_length);
            FUZZ_CHECK(messages >= 0 && messages <= (int32_t)(length / PS_HEADER_BYTES));
            FUZZ_CHECK(span >= (int32_t)length && span % PS_FRAME_ALIGNMENT == 0);
        } else {
            FUZZ_CHECK(span == 0 && messages == 0);
        }
    }
}

/* The same bytes as datagrams that the kernel joined: what is taken of them as a run is what they
 * are one by one. */
static void check_run(const uint8_t *data, uint32_t length)
{
    const uint32_t whole = length & ~31U; /* of another length no run is taken */
    for (uint32_t segment = 32; segment <= 1024; segment *= 2) {
        int32_t messages, found = 0;
        const uint32_t taken = ps_wire_run(data, whole, segment, PS_TERM_MIN, &messages);
        FUZZ_CHECK(taken <= whole && (taken == whole || taken % segment == 0));
        for (uint32_t at = 0; at < taken; at += segment) {
            const uint32_t size = taken - at < segment ? taken - at : segment;
            int32_t span, ends;
            FUZZ_CHECK(ps_wire_chain(data + at, size, PS_TERM_MIN, &span, &ends) == PS_WIRE_OK);
            FUZZ_CHECK(span == (int32_t)size);
            found += ends;
        }
        FUZZ_CHECK(messages == found);
        FUZZ_CHECK(ps_wire_run(data, length | 1U, segment, PS_TERM_MIN, &messages) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size > 65507) {
        return 0;
    }
    /* Its own allocation: the sanitizer sees the first byte read beyond it. */
    uint8_t *data = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(data != NULL);
    memcpy(data, input, size);
    uint16_t type;
    const int fault = ps_wire_check(data, (uint32_t)size, &type);
    FUZZ_CHECK(fault >= PS_WIRE_OK && fault < PS_WIRE_FAULTS);
    check_control(data, (uint32_t)size);
    check_data(data, (uint32_t)size);
    check_run(data, (uint32_t)size);
    free(data);
    return 0;
}
