/* SPDX-License-Identifier: Apache-2.0
 * ps_digest.c: digests of rows. */

#include "ps_digest.h"

#include <string.h>

#include "ps_error.h"

/* Odd, with bits as irregular as those of sqrt(2), sqrt(3), sqrt(5). */
#define PS_DIGEST_FIRST UINT64_C(0x6a09e667f3bcc909)
#define PS_DIGEST_WORD  UINT64_C(0xbb67ae8584caa73b)
#define PS_DIGEST_LAST  UINT64_C(0x3c6ef372fe94f82b)

/* Both halves of a product of 128 bits, so that each bit of `a` moves all of the result. */
static uint64_t ps_digest_mix(uint64_t a, uint64_t factor)
{
    const unsigned __int128 product = (unsigned __int128)(a ^ PS_DIGEST_FIRST) * factor;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t ps_digest_bytes(uint64_t digest, const uint8_t *data, int64_t length)
{
    uint64_t word;
    digest = ps_digest_mix(digest + (uint64_t)length, PS_DIGEST_LAST);
    while (length >= 8) {
        memcpy(&word, data, sizeof word);
        digest = ps_digest_mix(digest ^ word, PS_DIGEST_WORD) + word;
        data += 8;
        length -= 8;
    }
    if (length > 0) {
        word = 0;
        memcpy(&word, data, (size_t)length);
        digest = ps_digest_mix(digest ^ word, PS_DIGEST_WORD) + word;
    }
    return ps_digest_mix(digest, PS_DIGEST_LAST);
}

int ps_digest_rows(const uint8_t *data, int64_t length, const int64_t *offsets, int64_t count,
                   uint64_t *digests)
{
    for (int64_t row = 0; row < count; row++) {
        const int64_t from = offsets[row];
        const int64_t to = offsets[row + 1];
        if (from < 0 || to < from || to > length) {
            return ps_fail(PS_E_INVALID, "row %lld: bytes %lld to %lld of %lld", (long long)row,
                           (long long)from, (long long)to, (long long)length);
        }
        digests[row] = ps_digest_bytes(digests[row], data + from, to - from);
    }
    return PS_OK;
}
