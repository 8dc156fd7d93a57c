// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

/** One JSON object a line on standard output: what the tests wait for. */
final class Report {
    private Report() {
    }

    /** Pairs of name and value; numbers stay numbers, the rest are plain strings. */
    static synchronized void event(final String event, final Object... pairs) {
        final StringBuilder line = new StringBuilder("{\"event\": \"").append(event).append('"');
        for (int i = 0; i < pairs.length; i += 2) {
            line.append(", \"").append(pairs[i]).append("\": ");
            if (pairs[i + 1] instanceof Number) {
                line.append(pairs[i + 1]);
            } else {
                line.append('"').append(pairs[i + 1]).append('"');
            }
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }
}
