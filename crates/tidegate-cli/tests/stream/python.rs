//! Tests of the server with the client nats.py, in the ways in which its users use it (`make deps-python`
//! installs it).

use std::process::Command;

use super::server::Server;

const SCRIPT: &str = r#"
import asyncio, sys, time, nats
from nats.errors import TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

async def streams(js):
    info = await js.add_stream(name="ORDERS", subjects=["orders.*"], max_msgs=1000)
    assert info.config.subjects == ["orders.*"], info
    for i in range(20):
        ack = await js.publish(f"orders.{i % 2}", b"%d" % i, headers={"N": str(i)})
        assert (ack.stream, ack.seq) == ("ORDERS", i + 1), ack
    again = [await js.publish("orders.0", b"x", headers={"Nats-Msg-Id": "same"}) for _ in range(2)]
    assert again[0].seq == again[1].seq and again[1].duplicate, again
    try:
        await js.publish("orders.0", b"x", headers={"Nats-Expected-Last-Sequence": "1"})
        assert False
    except BadRequestError as e:
        assert e.err_code == 10071, e
    m = await js.get_msg("ORDERS", 3)
    assert (m.subject, m.data, m.headers) == ("orders.0", b"2", {"N": "2"}), m
    m = await js.get_last_msg("ORDERS", "orders.1")
    assert m.data == b"19", m
    await js.delete_msg("ORDERS", 3)
    try:
        await js.get_msg("ORDERS", 3)
        assert False
    except NotFoundError:
        pass
    info = await js.stream_info("ORDERS")
    assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (20, 1, 21), info
    assert [s.config.name for s in await js.streams_info()] == ["ORDERS"]
    assert await js.find_stream_name_by_subject("orders.9") == "ORDERS"

async def consumers(nc, js):
    sub = await js.pull_subscribe("orders.*", durable="pull")
    seen = []
    while len(seen) < 20:
        for m in await sub.fetch(7, timeout=20):
            seen.append(int(m.metadata.sequence.stream))
            await m.ack_sync(timeout=20)
    assert seen == sorted(seen) and 3 not in seen, seen
    try:
        await sub.fetch(1, timeout=0.2)
        assert False
    except TimeoutError:
        pass
    info = await js.consumer_info("ORDERS", "pull")
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 21), info
    # A message given back comes again, at once.
    await js.publish("orders.0", b"again")
    (m,) = await sub.fetch(1, timeout=20)
    await m.nak()
    (m,) = await sub.fetch(1, timeout=20)
    assert (m.data, m.metadata.num_delivered) == (b"again", 2), m
    await m.in_progress()
    await m.term()
    # Push, with acknowledgements by hand; and ordered.
    push = await js.subscribe("orders.1", durable="push", manual_ack=True)
    got = []
    for _ in range(10):
        m = await push.next_msg(timeout=20)
        got.append(m.data)
        await m.ack()
    assert got == [b"%d" % i for i in range(1, 20, 2)], got
    ordered = await js.subscribe("orders.*", ordered_consumer=True)
    first = await ordered.next_msg(timeout=20)
    assert first.data == b"0", first
    for _ in range(19):
        await ordered.next_msg(timeout=20)
    # The ordered one has a name of the server's choice.
    names = {c.name for c in await js.consumers_info("ORDERS")}
    assert names >= {"pull", "push"} and len(names) == 3, names
    await ordered.unsubscribe()
    await js.delete_consumer("ORDERS", "pull")
    await js.purge_stream("ORDERS", subject="orders.0")
    info = await js.stream_info("ORDERS")
    assert info.state.messages == 10, info
    assert await js.delete_stream("ORDERS")

async def key_value(js):
    kv = await js.create_key_value(bucket="conf", history=3)
    one = await kv.put("a", b"one")
    await kv.update("a", b"two", last=one)
    try:
        await kv.update("a", b"three", last=one)
        assert False
    except KeyWrongLastSequenceError:
        pass
    entry = await kv.get("a")
    assert (entry.value, entry.revision) == (b"two", 2), entry
    watcher = await kv.watchall()
    assert (await watcher.updates(timeout=20)).key == "a"
    assert await watcher.updates(timeout=20) is None
    await kv.put("b", b"here")
    assert (await watcher.updates(timeout=20)).value == b"here"
    await watcher.stop()
    assert sorted(await kv.keys()) == ["a", "b"]
    assert [e.value for e in await kv.history("a")] == [b"one", b"two"]
    await kv.delete("a")
    try:
        await kv.get("a")
        assert False
    except KeyNotFoundError:
        pass
    await kv.purge("b")
    assert (await kv.status()).bucket == "conf"
    await js.delete_key_value("conf")

async def objects(js):
    store = await js.create_object_store("files")
    data = bytes(range(256)) * 2000
    await store.put("a", data)
    got = await store.get("a")
    assert got.data == data
    assert [i.name for i in await store.list()] == ["a"]
    await store.delete("a")
    await js.delete_object_store("files")

async def main():
    nc = await nats.connect(sys.argv[1])
    js = nc.jetstream(timeout=20)
    await streams(js)
    await consumers(nc, js)
    await key_value(js)
    await objects(js)
    assert (await js.account_info()).streams == 0
    await nc.close()

asyncio.run(main())
print("good")
"#;

#[test]
fn nats_py() {
    let Some(python) = tidegate_testing::python_with_nats() else {
        return;
    };
    let server = Server::start();
    let url = format!("nats://{}", server.url);
    let output = Command::new(python)
        .args(["-c", SCRIPT, &url])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}\n{}", server.log());
}
