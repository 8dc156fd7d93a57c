/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_assert.h: assertions for the agents' code; release builds check them, too.
 *
 * PS_ASSERT checks an invariant of this thread's own data: a state, a range or an owner. The agents
 * use no assertion for values from the wire, from memory that another process writes, or from an
 * adopted directory. The agents check such values and count the invalid values. With an assertion,
 * a forged value could end the daemon. An assertion costs a compare and a branch that is never
 * taken. A failed assertion prints only its file and line, so that many assertions need little
 * space (docs/decisions/0131-assertions-of-the-agents.md). */
#ifndef PS_ASSERT_H
#define PS_ASSERT_H

/* Writes the file and the line to stderr, and aborts.  Any thread. */
_Noreturn void ps_assert_failed(const char *file, int line) __attribute__((cold));

#ifdef __FILE_NAME__
#define PS_ASSERT_FILE __FILE_NAME__
#else
#define PS_ASSERT_FILE __FILE__
#endif

#define PS_ASSERT(condition)                                                                       \
    (__builtin_expect(!(condition), 0) ? ps_assert_failed(PS_ASSERT_FILE, __LINE__) : (void)0)

#endif
