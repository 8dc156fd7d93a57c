// SPDX-License-Identifier: Apache-2.0
package dev.penstock.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.YieldingIdleStrategy;

/** The client's side of the harness's protocol; see penstock/_bench/worker_io.py. */
final class Harness {
    static volatile boolean stopped;
    static volatile long expected = -1;
    private static final CountDownLatch GO = new CountDownLatch(1);

    private Harness() {
    }

    static void say(final String event, final String facts) {
        System.out.println("{\"event\": \"" + event + "\"" + (facts.isEmpty() ? "" : ", " + facts)
            + "}");
        System.out.flush();
    }

    static void listen() {
        final Thread thread = new Thread(Harness::orders);
        thread.setDaemon(true);
        thread.start();
    }

    static void awaitGo() throws InterruptedException {
        GO.await();
    }

    private static void orders() {
        try (BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.equals("go")) {
                    GO.countDown();
                } else if (line.equals("stop")) {
                    stopped = true;
                } else if (line.startsWith("expect ")) {
                    expected = Long.parseLong(line.substring(7));
                }
            }
        } catch (final java.io.IOException ignored) {
            // Our parent has gone, which the end of the input says too.
        }
        Runtime.getRuntime().halt(0);
    }

    /** "spin", "yield" or "backoff:SPINS:YIELDS:MIN_NS:MAX_NS". */
    static IdleStrategy idle(final String text) {
        final String[] parts = text.split(":");
        switch (parts[0]) {
            case "spin":
                return BusySpinIdleStrategy.INSTANCE;
            case "yield":
                return YieldingIdleStrategy.INSTANCE;
            case "backoff":
                return new BackoffIdleStrategy(Long.parseLong(parts[1]), Long.parseLong(parts[2]),
                    Long.parseLong(parts[3]), Long.parseLong(parts[4]));
            default:
                throw new IllegalArgumentException(text);
        }
    }

    static String argument(final String[] args, final String name, final String otherwise) {
        final String prefix = "--" + name + "=";
        for (final String arg : args) {
            if (arg.startsWith(prefix)) {
                return arg.substring(prefix.length());
            }
        }
        return otherwise;
    }

    static long number(final String[] args, final String name, final long otherwise) {
        return Long.parseLong(argument(args, name, Long.toString(otherwise)));
    }
}
