# SPDX-License-Identifier: Apache-2.0
#
# make bench         measures penstock beside its peers; BENCH_ARGS="--rounds 3 --seconds 2"
# make bench-readme  writes the last run's tables into bench/README.md
# make bench-peers   only builds the peers
# make bench-spark   records into Spark, beside its Kafka source; BENCH_SPARK_ARGS="--rounds 3"
# make flame         a flame graph: FLAME_ARGS="--out FILE.svg udp --client native --size 1344"
# make bench-sim    datagrams that the simulator handles a second
# make bench-kafka   only fetches a Kafka broker and Spark's connector to it

.PHONY: bench bench-readme bench-peers bench-kafka bench-sim bench-spark flame

BENCH_BUILD := build/bench
BENCH_ARGS ?=
BENCH_SPARK_ARGS ?=
FLAME_ARGS ?=
INFERNO_VERSION := 0.12.8
AERON_SOURCES := $(wildcard bench/peers/aeron/src/main/java/dev/penstock/bench/*.java)

bench: setup ext bench-peers
	$(BIN)/python -m bench run $(BENCH_ARGS)
	$(MAKE) --no-print-directory bench-spark

bench-spark: setup ext bench-kafka
	$(BIN)/python -m bench.spark --kafka $(BENCH_SPARK_ARGS)

bench-sim: setup ext
	$(BIN)/python -m bench.sim

bench-readme: setup ext
	$(BIN)/python -m bench readme

flame: setup ext $(BENCH_BUILD)/inferno/bin/inferno-flamegraph
	$(BIN)/python -m bench.flame --flamegraph $(BENCH_BUILD)/inferno/bin $(FLAME_ARGS)

# Draws what perf recorded (CDDL-1.0, a tool: nothing of it is in what we distribute).
$(BENCH_BUILD)/inferno/bin/inferno-flamegraph:
	cargo install --quiet --locked --root $(BENCH_BUILD)/inferno --version $(INFERNO_VERSION) inferno

bench-peers: $(BENCH_BUILD)/plain $(BENCH_BUILD)/aeron/bench.jar $(BENCH_BUILD)/site/.installed

$(BENCH_BUILD)/plain: bench/peers/plain.c
	@mkdir -p $(BENCH_BUILD)
	$(CC) -O2 -std=gnu11 -Wall -Wextra -Werror -Wshadow -pthread -o $@ $<

# Offline when Maven has everything already.
$(BENCH_BUILD)/aeron/bench.jar: bench/peers/aeron/pom.xml $(AERON_SOURCES)
	@mvn -o -q -B -f $< -Dbench.build=$(abspath $(@D)) -Dmaven.test.skip=true package \
	    >/dev/null 2>&1 || \
	    mvn -q -B -f $< -Dbench.build=$(abspath $(@D)) -Dmaven.test.skip=true package
	@touch $@

# Apart from the virtual environment: the daemon's dependencies stay what they are.
$(BENCH_BUILD)/site/.installed: bench/requirements.lock | $(STAMPS)/lock
	@rm -rf $(@D)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    --target $(@D) -r $<
	@touch $@

# A broker, and Spark's own source of it.
bench-kafka: $(BENCH_BUILD)/kafka-broker/.fetched $(BENCH_BUILD)/kafka-connector/.fetched

$(BENCH_BUILD)/kafka-%/.fetched: bench/peers/kafka/%/pom.xml
	@mvn -o -q -B -f $< dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(abspath $(@D)) >/dev/null 2>&1 || \
	    mvn -q -B -f $< dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(abspath $(@D))
	@touch $@
