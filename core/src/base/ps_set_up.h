/* SPDX-License-Identifier: Apache-2.0
 * ps_set_up.h: included by files whose code only creates, opens and removes objects. The
 * conductor's thread runs it, never for each message, so the compiler optimises it for size. */
#ifndef PS_SET_UP_H
#define PS_SET_UP_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os")
#endif

#endif
