/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_digest.h: digests of rows, which show whether two sets have the same rows in any order.
 *
 * The digest of a set is the sum of the digests of its rows, modulo 2^64. The digest detects
 * mistakes, not attacks. A caller that compares two sets must compare their numbers of rows, too.
 *
 * Any thread may call the function; the arrays belong to the caller. The digest follows no
 * standard: penstock defines it.
 */
#ifndef PS_DIGEST_H
#define PS_DIGEST_H

#include <stdint.h>

/* Mixes one column of `count` rows into the digests of the rows. Before the call for the first
 * column, the caller must set all digests to 0. Row i has the bytes from offsets[i] up to offsets[i
 * + 1] of `data`, which is `length` bytes long. PS_E_INVALID: an offset decreases or lies outside
 * of the data; the digests are then undefined. */
int ps_digest_rows(const uint8_t *data, int64_t length, const int64_t *offsets, int64_t count,
                   uint64_t *digests);

#endif
