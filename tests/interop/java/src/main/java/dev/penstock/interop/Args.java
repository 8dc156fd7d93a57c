// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import java.util.ArrayList;
import java.util.List;

/** Arguments of the form {@code --name=value}; a name may repeat. */
final class Args {
    private final String[] args;

    Args(final String[] args) {
        this.args = args;
    }

    List<String> all(final String name) {
        final String prefix = "--" + name + "=";
        final List<String> values = new ArrayList<>();
        for (final String arg : args) {
            if (arg.startsWith(prefix)) {
                values.add(arg.substring(prefix.length()));
            }
        }
        return values;
    }

    String text(final String name) {
        final List<String> values = all(name);
        if (values.size() != 1) {
            throw new IllegalArgumentException("expected one --" + name + "=, got " + values.size());
        }
        return values.get(0);
    }

    String text(final String name, final String otherwise) {
        return all(name).isEmpty() ? otherwise : text(name);
    }

    long number(final String name, final long otherwise) {
        return all(name).isEmpty() ? otherwise : Long.parseLong(text(name));
    }
}
