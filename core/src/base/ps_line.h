/* SPDX-License-Identifier: Apache-2.0
 * ps_line.h: size of a cache line. Fields that different threads write lie on different lines. */
#ifndef PS_LINE_H
#define PS_LINE_H

#define PS_LINE 64

#endif
