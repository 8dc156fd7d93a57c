/* SPDX-License-Identifier: Apache-2.0
 * The policy that a SETUP states (docs/wire-extensions.md). */
#include "check.h"
#include "ps_types.h"
#include "ps_wire_fields.h"

static const ps_trailer_t stated = { .capabilities = PS_CAP_PENSTOCK,
                                     .ordinal = 7,
                                     .flow_control = PS_WIRE_FC_TAGGED,
                                     .group_tag = -77,
                                     .policy = PS_WIRE_POLICY_COUNT - 1,
                                     .depth_bytes = INT64_C(1) << 33,
                                     .relay_path = { .count = 2, .ids = { 4, 5 } } };

/* A policy of a later version is none, and a negative depth is no depth. */
static void test_a_policy_comes_back_or_is_none(void)
{
    static const struct {
        uint32_t policy;
        int64_t depth;
        int32_t read;
        int64_t read_depth;
    } rows[] = { { 5, 4096, 5, 4096 },       { 1, 0, 1, 0 },  { PS_WIRE_POLICY_COUNT, 4096, 0, 0 },
                 { UINT32_MAX, 4096, 0, 0 }, { 5, -1, 5, 0 }, { 0, 4096, 0, 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[PS_TRAILER_MAX];
        ps_trailer_t read;
        const uint32_t length = ps_trailer_write_setup(out, &stated);
        uint32_t at = PS_TRAILER_HEADER_BYTES;
        while (ps_get_u16(out + at) != PS_TLV_POLICY) {
            at += PS_TLV_HEADER_BYTES + ps_get_u16(out + at + 2);
        }
        ps_put_u32(out + at + 4, rows[i].policy);
        ps_put_i64(out + at + 8, rows[i].depth);
        ps_trailer_read(out, length, &read);
        CHECK_EQ(read.policy, rows[i].read);
        CHECK_EQ(read.depth_bytes, rows[i].read_depth);
    }
}

int main(void)
{
    RUN(test_a_policy_comes_back_or_is_none);
    return 0;
}
