/* SPDX-License-Identifier: Apache-2.0
 * ps_line.h: bytes of a cache line: what two threads write lies on two. */
#ifndef PS_LINE_H
#define PS_LINE_H

#define PS_LINE 64

#endif
