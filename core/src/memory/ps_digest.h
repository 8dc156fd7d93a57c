/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_digest.h: digests of rows. Two sets that have the same rows, in any order, have the same
 * digest.
 *
 * The digest of a set is the sum of the digests of its rows, modulo 2^64. The digest detects
 * mistakes, not attacks. A caller that compares two sets must compare their numbers of rows, too.
 *
 * Any thread may call ps_digest_rows; the arrays belong to the caller. The digest follows no
 * standard: penstock defines it.
 */
#ifndef PS_DIGEST_H
#define PS_DIGEST_H

#include <stdint.h>

/* Adds the values of one column to the digests of `count` rows; the caller calls this function once
 * for each column. Before the first call, the caller must set all digests to 0. Row i has the bytes
 * from offsets[i] up to offsets[i + 1] of `data`, which is `length` bytes long. PS_E_INVALID: an
 * offset decreases or lies outside of the data; the digests are then undefined. */
int ps_digest_rows(const uint8_t *data, int64_t length, const int64_t *offsets, int64_t count,
                   uint64_t *digests);

#endif
