/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.h: frames of a worked session (docs/spec/wire-format.md0), byte for byte.  The numbered
 * ones were exchanged with the reference driver.  Publication on stream 1001, session 0x11223344,
 * initial term id 7, term length 64 KiB, MTU 1408; receiver id 0x0102030405060708.
 */
#ifndef PS_GOLDEN_H
#define PS_GOLDEN_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { GOLDEN_SESSION = 0x11223344, GOLDEN_STREAM = 1001, GOLDEN_TERM = 7 };
#define GOLDEN_RECEIVER INT64_C(0x0102030405060708)

typedef struct golden {
    const char *name;
    const char *hex; /* zeroes at the end are left out; length counts them */
    uint32_t length;
} golden_t;

static const golden_t GOLDEN[] = {
    { "setup",
      "28000000000005000000000044332211"
      "e9030000070000000700000000000100"
      "80050000",
      40 },
    { "sm",
      "2400000000000300443322"
      "11e9030000"
      "0700000000000000008000000807060504030201",
      36 },
    { "data_hello",
      "2500000000c001000000000044332211"
      "e9030000070000000000000000000000"
      "48656c6c6f",
      64 },
    { "data_33",
      "4100000000c001004000000044332211"
      "e9030000070000000000000000000000"
      "303132333435363738393a3b3c3d3e3f"
      "404142434445464748494a4b4c4d4e4f50",
      96 },
    { "data_two",
      "2200000000c00100a000000044332211"
      "e9030000070000000000000000000000"
      "43430000000000000000000000000000"
      "00000000000000000000000000000000"
      "2200000000c00100e000000044332211"
      "e9030000070000000000000000000000"
      "4444",
      128 },
    { "nak",
      "1c00000000000200443322"
      "11e90300000700000040000000"
      "60000000",
      28 },
    { "heartbeat",
      "0000000000c001002001000044332211"
      "e903000007",
      32 },
    { "pad",
      "4000000000c00000c0ff000044332211"
      "e903000007",
      32 },
    { "eos",
      "0000000000e001002001000044332211"
      "e903000007",
      32 },
    { "sm_eos",
      "2400000000400300443322"
      "11e9030000"
      "0700000000000000008000000807060504030201",
      36 },
    { "sm_setup",
      "240000000080030044332211e9030000"
      "000000000000000000000000"
      "0807060504030201",
      36 },
    { "sm_join",
      "24000000008003000000000000000000"
      "000000000000000000000000"
      "0807060504030201",
      36 },
    { "sm_tag",
      "2c0000000000030044332211e9030000"
      "070000000000000000800000"
      "0807060504030201"
      "6500000000000000",
      44 },
    { "rttm_request",
      "280000000080060044332211e9030000"
      "15cd5b07000000000000000000000000"
      "0807060504030201",
      40 },
    { "rttm_reply",
      "280000000000060044332211e9030000"
      "15cd5b07000000000000000000000000"
      "0807060504030201",
      40 },
    { "err",
      "2c0000000000040044332211e9030000"
      "0807060504030201ffffffffffffffff"
      "0d000000040000006e6f7065",
      44 },
    { "rsp_setup",
      "1400000000000b0044332211e9030000"
      "88776655",
      20 },
};
enum { GOLDEN_COUNT = sizeof GOLDEN / sizeof GOLDEN[0] };

/* Bytes of a golden frame into out (256 bytes); returns the length, 0 for an unknown name. */
static inline uint32_t golden(const char *name, uint8_t *out)
{
    memset(out, 0, 256);
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        if (strcmp(GOLDEN[i].name, name) != 0) {
            continue;
        }
        const char *hex = GOLDEN[i].hex;
        for (size_t at = 0; hex[2 * at] != '\0'; at++) {
            unsigned value = 0;
            if (sscanf(hex + 2 * at, "%2x", &value) != 1) {
                return 0;
            }
            out[at] = (uint8_t)value;
        }
        return GOLDEN[i].length;
    }
    return 0;
}

#endif
