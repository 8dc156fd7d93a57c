# SPDX-License-Identifier: Apache-2.0
"""Options of the Spark source: what is taken, and what each mistake is told."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
import zmq.auth

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._options import Daemon, StreamName, read_options
from penstock.spark_bridge._settings import tuned_settings

UDP = "aeron:udp?endpoint=localhost:40456|term-length=1m"
GOOD = {"channel": UDP, "streamid": "1001", "subscription": "flights"}


def test_the_least_that_is_needed() -> None:
    options = read_options(GOOD)
    assert options.streams == (StreamName(channel=UDP, stream_id=1001),)
    assert options.daemons == (Daemon(),)
    assert (options.ack_on, options.starting) == ("batch", "latest")
    assert options.fail_on_data_loss
    assert pickle.loads(pickle.dumps(options)) == options
    assert read_options(GOOD, streaming=False).starting == "earliest"


def test_every_option_is_read() -> None:
    options = read_options(GOOD | {
        "streamid": "1, -2", "channel": f"aeron:ipc, {UDP}", "sessions": "5,-6",
        "ackon": "commit", "startingoffsets": '{"aeron:ipc|1|-7|8": 64}',
        "maxbytespertrigger": "64m", "maxoffsetspertrigger": "1000", "minpartitions": "4",
        "failondataloss": "FALSE", "daemondir": "/dev/shm/penstock", "payload": "arrow",
        "arrowschema": "a int", "includemetadata": "true", "groupexpiry": "1h",
        "batchbytes": "1m", "retry": "500ms", "locality": "barrier",
    })
    assert [(s.channel, s.stream_id) for s in options.streams] == [
        ("aeron:ipc", 1), ("aeron:ipc", -2), (UDP, 1), (UDP, -2)
    ]
    assert options.sessions == (5, -6)
    assert options.starting == {"aeron:ipc|1|-7|8": 64}
    assert (options.max_bytes, options.max_messages) == (64 * 1024 * 1024, 1000)
    assert (options.expiry_ns, options.retry_ns) == (3600 * 10**9, 5 * 10**8)
    assert options.daemons == (Daemon(directory="/dev/shm/penstock"),)
    assert not options.remote


def test_streams_with_channels_of_their_own() -> None:
    text = json.dumps([{"channel": "aeron:ipc", "streamId": 7}, {"channel": UDP, "streamId": 8}])
    options = read_options({"streams": text, "subscription": "s"})
    assert [s.stream_id for s in options.streams] == [7, 8]


def test_daemons_of_other_hosts_are_read(tmp_path: Path) -> None:
    public, _ = zmq.auth.create_certificates(tmp_path, "server")
    key = zmq.curve_keypair()[0].decode()
    remote = GOOD | {"control": "tcp://a:1,tcp://b:2", "keyfile": "me.key_secret"}
    same = read_options(remote | {"serverkey": key})
    assert same.daemons == (
        Daemon(address="tcp://a:1", server_key=key), Daemon(address="tcp://b:2", server_key=key)
    )
    assert same.remote
    read = read_options(remote | {"serverkeyfile": public})
    assert len(read.daemons[0].server_key) == 40
    own = read_options(remote | {"serverkeys": json.dumps({"tcp://a:1": key, "tcp://b:2": key})})
    assert own.daemons == same.daemons


@pytest.mark.parametrize(("given", "words"), [
    ({"subscription": ""}, "option subscription=''.*give the name"),
    ({"subscription": "x" * 81}, "option subscription"),
    ({"channel": ""}, "option channel is missing.*aeron:udp"),
    ({"channel": "udp://a"}, "option channel=udp://a"),
    ({"channel": "aeron:udp?endpoint=localhost:1|x=1"}, "option channel.*x=1.*unknown parameter"),
    ({"channel": "aeron:ipc,aeron:ipc"}, "named twice"),
    ({"streamid": ""}, "option streamId=''"),
    ({"streamid": "2147483648"}, "option streamId='2147483648'"),
    ({"streams": "[]"}, "options streams and channel contradict"),
    ({"chanel": "aeron:ipc"}, "option chanel.*did you mean channel"),
    ({"path": "/x"}, "the source has no path"),
    ({"sessions": "1,x"}, "option sessions='1,x'"),
    ({"ackon": "never"}, "option ackOn='never': expected batch or commit"),
    ({"startingoffsets": "soon"}, "option startingOffsets='soon'.*earliest, latest or JSON"),
    ({"startingoffsets": '{"aeron:ipc|1|2|3": 33}'}, "option startingOffsets"),
    ({"startingoffsets": '{"aeron:ipc|1": 32}'}, "option startingOffsets"),
    ({"endingoffsets": "latest"}, "option endingOffsets: is for spark.read"),
    ({"maxbytespertrigger": "lots"}, "option maxBytesPerTrigger='lots'"),
    ({"maxbytespertrigger": "0"}, "option maxBytesPerTrigger='0'"),
    ({"maxoffsetspertrigger": "-1"}, "option maxOffsetsPerTrigger='-1'"),
    ({"minpartitions": "1025"}, "option minPartitions='1025'.*1 to 1024"),
    ({"failondataloss": "perhaps"}, "option failOnDataLoss='perhaps': expected true or false"),
    ({"payload": "json"}, "option payload='json': expected binary or arrow"),
    ({"arrowschema": "a int"}, "option arrowSchema: needs payload=arrow"),
    ({"includemetadata": "true"}, "option includeMetadata: needs payload=arrow"),
    ({"groupexpiry": "soon"}, "option groupExpiry='soon'.*30s"),
    ({"batchbytes": "1"}, "option batchBytes=1: expected 64k to 1g"),
    ({"minoffsetspertrigger": "9", "maxoffsetspertrigger": "8"}, "9: is more than max.*=8"),
    ({"maxtriggerdelay": "1m"}, "maxTriggerDelay: needs minOffsetsPerTrigger"),
    ({"startingtimestamp": "now"}, "startingTimestamp='now': expected milliseconds since 1970"),
    ({"startingtimestamp": "1", "startingoffsets": "latest"}, "contradict each other"),
    ({"endingtimestamp": "1"}, "option endingTimestamp: is for spark.read"),
    ({"endingtimestamp": "1", "maxoffsetspertrigger": "5"},
     r"endingTimestamp and maxOffsetsPerTrigger contradict.*for spark\.read, .*readStream: give"),
    ({"option.channel": "x"}, "Spark does not pass the options of a table"),
    ({"locality": "rack"}, "option locality='rack': expected none or barrier"),
    ({"keyfile": "x"}, "option keyFile: needs control"),
    ({"control": "tcp://a:1"}, "option keyFile is missing.*keygen"),
    ({"control": "a:1", "keyfile": "k", "serverkey": "x" * 40},
     "option control=a:1: expected tcp://HOST:PORT"),
    ({"control": "tcp://a:1,tcp://a:1", "keyfile": "k", "serverkey": "x" * 40},
     "an address is named twice"),
    ({"control": "tcp://a:1", "keyfile": "k"}, "one of serverKey, serverKeyFile and serverKeys"),
    ({"control": "tcp://a:1", "keyfile": "k", "serverkey": "short"}, "option serverKey: 'short'"),
    ({"control": "tcp://a:1", "keyfile": "k", "serverkeys": "{}"}, "no key for tcp://a:1"),
    ({"control": "tcp://a:1", "keyfile": "k", "serverkeyfile": "/no"}, "option serverKeyFile"),
])
def test_a_mistake_is_told_by_its_name_and_the_fix(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read_options(GOOD | given)


@pytest.mark.parametrize("name", [
    "media-rcv-ts-offset", "channel-rcv-ts-offset", "channel-snd-ts-offset",
])
def test_time_stamps_that_overwrite_markers_or_arrow_data_are_refused(name: str) -> None:
    def given(where: str, **more: str) -> dict[str, str]:
        return GOOD | {"channel": f"aeron:udp?endpoint=localhost:1|{name}={where}"} | more

    for where in ("reserved", "0", "96"):
        read_options(given(where))
        read_options(given(where, readcommitted="false"))
        with pytest.raises(InvalidArgument, match=f"readCommitted=true: {name}={where} of .*104"):
            read_options(given(where, readcommitted="true"))
    assert read_options(given("104", readcommitted="true")).read_committed is True
    read_options(given("reserved", payload="arrow"))
    with pytest.raises(InvalidArgument, match=f"payload=arrow: {name}=104 of .* Arrow data: set"):
        read_options(given("104", payload="arrow"))


def test_a_table_without_options_is_refused_with_what_works() -> None:
    for given in ({}, {"path": "/warehouse/t"}, {"owner": "me", "option.channel": "x"},
                  {"owner": "me"}, {"location": "/warehouse/t", "path": "/warehouse/t"}):
        with pytest.raises(InvalidArgument, match="CREATE TEMPORARY VIEW") as raised:
            read_options(given, streaming=False)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["ackon", "maxbytespertrigger", "maxoffsetspertrigger"])
def test_a_batch_has_no_options_of_streaming(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is for spark\.readStream"):
        read_options(GOOD | {name: "1"}, streaming=False)
    with pytest.raises(InvalidArgument, match="there is no earlier data"):
        read_options(GOOD | {"endingoffsets": "earliest"}, streaming=False)
    with pytest.raises(InvalidArgument, match="endingOffsets='soon': expected latest or JSON"):
        read_options(GOOD | {"endingoffsets": "soon"}, streaming=False)


def test_tuned_settings_are_sparks() -> None:
    assert all(key.startswith("spark.") for key in tuned_settings())
    assert tuned_settings()["spark.python.authenticate.socketTimeout"] == "600s"
    assert len(tuned_settings()) == len(tuned_settings(local_checkpoints=False)) + 1


@pytest.mark.parametrize(("given", "words"), [
    ({"startingtimestamp": "6", "endingtimestamp": "5"},
     "endingTimestamp=5: lies before startingTimestamp=6"),
    ({"startingoffsets": '{"aeron:ipc|1|2|3": 64, "aeron:ipc|1|2|4": 0}',
      "endingoffsets": '{"aeron:ipc|1|2|4": 32, "aeron:ipc|1|2|3": 32}'},
     "endingOffsets: aeron:ipc.1.2.3: position 32 lies before position 64 in startingOffsets"),
])
def test_a_batch_does_not_end_before_its_start(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        read_options(GOOD | given, streaming=False)
    same = {key: text.replace("6", "5") for key, text in given.items() if "timestamp" in key}
    assert read_options(GOOD | same, streaming=False)


WITHHOLD = {
    "channel": "aeron:ipc?ps-credits=5", "streamId": "1", "subscription": "s",
    "withholdOnCheckpoint": "true",
}


def test_a_query_may_withhold_the_credits_of_its_channels() -> None:
    assert read_options(WITHHOLD).withhold
    assert not read_options({**WITHHOLD, "withholdOnCheckpoint": "false"}).withhold


@pytest.mark.parametrize(("change", "words"), [
    ({"channel": "aeron:ipc"}, "the channel aeron:ipc states no credits: add ps-credits=N"),
    ({"channel": "aeron:ipc?ps-credits=5,aeron:ipc"}, "the channel aeron:ipc states no credits"),
    ({"maxBytesPerTrigger": "1m"}, "contradicts option maxBytesPerTrigger=1m"),
    ({"maxOffsetsPerTrigger": "9"}, "contradicts option maxOffsetsPerTrigger=9"),
    ({"ackOn": "commit"}, "contradicts option ackOn=commit"),
    ({"readCommitted": "true"}, "contradicts option readCommitted=true"),
    ({"withholdOnCheckpoint": "yes"}, "expected true or false"),
])
def test_a_batch_that_may_leave_messages_out_withholds_nothing(
    change: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        read_options({**WITHHOLD, **change})


def test_a_batch_read_withholds_nothing() -> None:
    with pytest.raises(InvalidArgument, match="option withholdOnCheckpoint: is for spark"):
        read_options(WITHHOLD, streaming=False)
