/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe_number.h: numbers that models compare. Any thread.
 */
#ifndef PS_SIM_PROBE_NUMBER_H
#define PS_SIM_PROBE_NUMBER_H

static inline double least(double a, double b)
{
    return a < b ? a : b;
}
static inline double most(double a, double b)
{
    return a > b ? a : b;
}
static inline double apart(double a, double b)
{
    return a > b ? a - b : b - a;
}

#endif
