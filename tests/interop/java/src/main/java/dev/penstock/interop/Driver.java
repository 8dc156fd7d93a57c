// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.driver.MediaDriver;

/**
 * A media driver configured by Aeron's own properties.  Reports "ready", ends when its standard
 * input ends: it can never outlive the test.
 */
public final class Driver {
    private Driver() {
    }

    public static void main(final String[] args) throws Exception {
        final MediaDriver.Context context = new MediaDriver.Context()
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true);
        try (MediaDriver driver = MediaDriver.launch(context)) {
            Report.event("ready", "dir", driver.aeronDirectoryName());
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
        }
    }
}
