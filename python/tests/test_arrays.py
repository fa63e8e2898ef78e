"""Arrays in messages: buffers of a pool, fields that go by reference, and views of what came."""

import asyncio
import contextlib
import gc
import logging
import os
import pathlib
import random as random_numbers
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent import futures

import conftest
import grpc
import numpy
import pytest

import tollfree
from tollfree import _native

conftest.generate(pathlib.Path(__file__).parent / "array_protos", "*.proto")

import arrays_pb2 as pb  # noqa: E402
import arrays_pb2_grpc as pb_grpc  # noqa: E402
import groups_pb2 as groups_pb  # noqa: E402

LARGE = 1 << 20
LIMITS = [("grpc.max_receive_message_length", 64 << 20)]


class Store(pb_grpc.StoreServicer):
    """Keeps what comes; answers as its name says."""

    def __init__(self, pool=None):
        self.pool = pool
        self.kept = []

    @tollfree.views
    def Put(self, request, context):
        self.kept.append(request)
        if request.name == "back":
            return request
        if request.name == "array":
            buffer = self.pool.buffer(LARGE)
            numpy.frombuffer(buffer, numpy.uint8)[:] = 7
            return tollfree.message(pb.Everything(name="made"), data=buffer)
        return pb.Everything(name=request.name, sum=sum(memoryview(request.data)[:100]))

    def Each(self, request, context):
        for value in range(3):
            buffer = self.pool.buffer(LARGE)
            numpy.frombuffer(buffer, numpy.uint8)[:] = value
            yield tollfree.message(pb.Everything(sum=value), part={"body": buffer})

    @tollfree.views
    def Total(self, request_iterator, context):
        return pb.Everything(sum=sum(int(numpy.frombuffer(each.data, numpy.uint8).sum()) for each in request_iterator))

    def Chat(self, request_iterator, context):
        yield from request_iterator


@pytest.fixture(autouse=True)
def no_descriptor_is_left():
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 4, lambda: "descriptors are left")


@contextlib.contextmanager
def pools():
    """Two memberships of one pool, of which nothing is in use afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        ours = tollfree.Pool.create(f"shm://{directory}/pool.sock", 256 << 20)
        theirs = tollfree.Pool.join(f"shm://{directory}/pool.sock")
        yield ours, theirs
        until(lambda: ours.used == 0 and theirs.used == 0, lambda: f"in use: {ours.used}, {theirs.used}")


def until(is_so, words):
    end = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < end, words()
        gc.collect()
        time.sleep(0.005)


@contextlib.contextmanager
def store(server_pool=None, client_pool=None):
    """A servicer, and a channel to its server."""
    with tempfile.TemporaryDirectory() as directory:
        threads = futures.ThreadPoolExecutor(4)
        server = tollfree.server(threads, options=LIMITS, pool=server_pool)
        servicer = Store(server_pool)
        pb_grpc.add_StoreServicer_to_server(servicer, server)
        server.add_insecure_port(f"shm://{directory}/store.sock")
        server.start()
        with tollfree.insecure_channel(f"shm://{directory}/store.sock", options=LIMITS, pool=client_pool) as channel:
            yield servicer, channel, server
        server.stop(None)
        threads.shutdown()
        servicer.kept.clear()


def filled(pool, value=1, length=LARGE):
    buffer = pool.buffer(length)
    numpy.frombuffer(buffer, numpy.uint8)[:] = value
    return buffer


# Buffers.


def test_a_buffer_is_filled_in_place_by_numpy_and_arrow():
    with pools() as (pool, _):
        buffer = pool.buffer(LARGE)
        array = numpy.frombuffer(buffer, numpy.float32)
        assert array.flags.writeable and len(array) == LARGE // 4 and not array.any()
        array[:] = numpy.arange(len(array))
        by_dlpack = numpy.from_dlpack(buffer)
        assert by_dlpack.flags.writeable and by_dlpack.dtype == numpy.uint8
        by_dlpack[0:4] = 255
        view = memoryview(buffer)
        assert view[:4] == b"\xff" * 4 and not view.readonly
        assert buffer.__dlpack_device__() == (1, 0)
        assert repr(buffer) == f"<tollfree.Buffer of {LARGE} bytes, writable, in a pool>"
        del array, by_dlpack, view
        buffer.freeze()
        shown = numpy.frombuffer(buffer, numpy.float32)
        assert shown[1000] == 1000.0 and not shown.flags.writeable
        pyarrow = pytest.importorskip("pyarrow")
        arrow = pyarrow.py_buffer(buffer)
        assert arrow.size == LARGE and not arrow.is_mutable and arrow.address == shown.ctypes.data
        back = memoryview(arrow)
        assert bytes(back[4:8]) == numpy.float32(1.0).tobytes()
        del arrow, back, shown, buffer


def test_a_buffer_with_an_array_is_not_frozen():
    with pools() as (pool, _):
        buffer = pool.buffer(4096)
        kept = [numpy.frombuffer(buffer, numpy.uint8), memoryview(buffer), numpy.from_dlpack(buffer), buffer.__dlpack__()]
        for count in range(4, 0, -1):
            with pytest.raises(BufferError, match=f"through {count} array"):
                buffer.freeze()
            with pytest.raises(BufferError, match="before the buffer is frozen or sent"):
                tollfree.message(pb.Everything(), data=buffer)
            kept.pop()
        assert not buffer.readonly
        assert buffer.freeze() is buffer and buffer.readonly
        del buffer


def test_a_buffer_is_frozen_once_its_arrays_are_gone():
    with pools() as (pool, _):
        buffer = pool.buffer(4096)
        for _ in range(3):
            with memoryview(buffer) as view:
                view[0] += 1
        # What can't be had leaves nothing behind.
        with pytest.raises(BufferError):
            buffer.__dlpack__(dl_device=(2, 0))
        with pytest.raises(BufferError):
            buffer.__dlpack__(copy=True)
        with pytest.raises(ValueError):
            buffer.__dlpack__(stream=1)
        assert bytes(buffer.freeze())[:2] == b"\x03\x00"
        with pytest.raises((BufferError, TypeError)):
            bytes_io = __import__("io").BytesIO(b"x" * 10)
            bytes_io.readinto(buffer)
        del buffer


def test_a_view_outlives_its_buffer():
    with pools() as (pool, _):
        view, array = memoryview(filled(pool, 5)), numpy.from_dlpack(filled(pool, 6))
        gc.collect()
        assert view[LARGE - 1] == 5 and array[LARGE - 1] == 6
        assert pool.used >= 2 * LARGE
        del view, array


def test_arrays_by_dlpack_hold_the_memory_and_are_read_only():
    with pools() as (pool, _):
        buffer = filled(pool, 9).freeze()
        array = numpy.from_dlpack(buffer)
        assert not array.flags.writeable
        with pytest.raises(BufferError, match="read-only"):
            buffer.__dlpack__()
        del buffer
        gc.collect()
        assert array[100] == 9 and pool.used >= LARGE
        del array


def test_a_capsule_that_nobody_takes_is_freed():
    with pools() as (pool, _):
        for version in (None, (1, 0)):
            capsule = pool.buffer(LARGE).__dlpack__(max_version=version)
            assert pool.used >= LARGE
            del capsule
            until(lambda: pool.used == 0, lambda: "the capsule's memory is left")


def test_what_a_pool_has_not_is_refused_with_words():
    with pools() as (pool, _):
        held = pool.buffer(100 << 20)
        with pytest.raises(MemoryError, match="in use"):
            pool.buffer(100 << 20, wait=False)
        del held
        with pytest.raises(ValueError, match="more than a member"):
            pool.buffer(200 << 20)
        with pytest.raises(ValueError):
            pool.buffer(0)
        with pytest.raises(BufferError, match="int has no bytes"):
            pool.copy(5)
        with pytest.raises(BufferError, match="contiguous"):
            pool.copy(numpy.zeros((10, 10))[:, 0])
        copy = pool.copy(numpy.arange(1000))
        assert copy.readonly and copy.pooled and numpy.frombuffer(copy, numpy.int64)[999] == 999
        assert not _native.Buffer.copy(b"abc").pooled
        del copy
    with pytest.raises(ValueError):
        tollfree.Pool.create("shm:///tmp/x.sock", 1000)
    with pytest.raises(ValueError):
        tollfree.Pool.join("file:///x")
    with pytest.raises(OSError, match="no pool at"):
        tollfree.Pool.join("shm-abstract:no-such-pool")
    with pytest.raises(ValueError, match="invitation"):
        tollfree.Pool.join("shm-abstract:no-such-pool", "xyz")


# Messages that go.


def everything():
    return pb.Everything(
        name="all",
        chunks=[b"small", b"x" * 5000],
        part=pb.Part(name="part", inner=pb.Part(name="inner")),
        parts=[pb.Part(name="0"), pb.Part(name="1", body=b"old"), pb.Part(name="2")],
        blobs={"had": b"value"},
        by_number={7: pb.Part(name="seven")},
        numbers=range(5000),
        next=pb.Everything(name="next"),
    )


def expected(body):
    message = everything()
    message.data = message.maybe = message.first = body
    message.chunks.extend([body, b""])
    message.part.body = message.part.inner.body = body
    message.parts[1].body = body
    message.parts[2].inner.body = body
    message.blobs["had"] = message.blobs["new"] = body
    message.by_number[7].body = message.by_number[8].body = body
    message.next.next.data = body
    return message


def placements(make):
    return dict(
        data=make(),
        maybe=make(),
        first=make(),
        chunks=[make(), b""],
        part={"body": make(), "inner": {"body": make()}},
        parts={1: {"body": make()}, 2: {"inner": {"body": make()}}},
        blobs={"had": make(), "new": make()},
        by_number={7: {"body": make()}, 8: {"body": make()}},
        next={"next": {"data": make()}},
    )


@pytest.mark.parametrize("length", [0, 1, 127, 4095, 4096, 20_000, 300_000])
def test_arrays_stand_in_all_places_that_bytes_have(length):
    body = bytes(at % 251 for at in range(length))
    request = everything()
    made = tollfree.message(request, **placements(lambda: numpy.frombuffer(body, numpy.uint8)))
    assert pb.Everything.FromString(bytes(made)) == expected(body)
    assert request == everything()
    # What has no pool goes in pieces too, without being encoded.
    assert length < 4096 or made.count > 20
    assert len(made) == len(bytes(made))


def test_arrays_that_belong_nowhere_are_refused_by_name():
    message = pb.Everything(parts=[pb.Part()])
    for fields, kind, words in [
        (dict(absent=b""), ValueError, "tollfree.arrays.Everything has no field 'absent'"),
        (dict(name=b""), TypeError, "Everything.name is not of type bytes"),
        (dict(numbers=b""), TypeError, "Everything.numbers is not of type bytes"),
        (dict(data=5), BufferError, "int has no bytes"),
        (dict(data="text"), BufferError, "str has no bytes"),
        (dict(chunks=b"x"), TypeError, "Everything.chunks takes a list or tuple here, not bytes"),
        (dict(part=b"x"), TypeError, "Everything.part takes a dict here, not bytes"),
        (dict(part=dict(absent=b"")), ValueError, "Part has no field 'absent'"),
        (dict(parts=[b"x"]), TypeError, "Everything.parts takes a dict"),
        (dict(parts={1: {"body": b""}}), ValueError, "Everything.parts has no element"),
        (dict(blobs=[b"x"]), TypeError, "Everything.blobs takes a dict"),
        (dict(by_number={1: b"x"}), TypeError, "Everything.by_number takes a dict"),
        (dict(first=b"x", second={"body": b"x"}), ValueError, "array 0 is not in the encoded message"),
        (dict(data=numpy.zeros((4, 4))[:, 1]), BufferError, "contiguous"),
    ]:
        with pytest.raises(kind, match=words):
            tollfree.message(message, **fields)
    with pytest.raises(TypeError, match="takes a protobuf message, not bytes"):
        tollfree.message(b"x", data=b"x")
    assert message == pb.Everything(parts=[pb.Part()])


def test_a_field_goes_by_reference_and_is_read_where_it_lies():
    with pools() as (ours, theirs), store(theirs, ours) as (servicer, channel, server):
        stub = pb_grpc.StoreStub(channel)
        buffer = filled(ours, 3)
        assert stub.Put(tollfree.message(pb.Everything(name="x"), data=buffer)).sum == 300
        assert channel.payloads()["sent_by_ref"] == 1 and channel.payloads()["copied_bytes"] < 100
        assert server.payloads()["received_by_ref"] == 1
        (view,) = servicer.kept
        array = numpy.frombuffer(view.data, numpy.uint8)
        assert not array.flags.writeable and array[LARGE - 1] == 3
        # The server reads the client's memory.
        del buffer
        gc.collect()
        assert ours.used >= LARGE and theirs.used == 0
        with pytest.raises(ValueError):
            array[0] = 1
        del view
        servicer.kept.clear()
        gc.collect()
        assert array[7] == 3 and ours.used >= LARGE
        del array
        until(lambda: ours.used == 0, lambda: "the server's last array is gone")


def test_answers_go_by_reference_and_come_as_views():
    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, server):
        stub = pb_grpc.StoreStub(tollfree.views(channel))
        answer = stub.Put(pb.Everything(name="array"))
        assert isinstance(answer, tollfree.View) and answer.name == "made" and len(answer.data) == LARGE
        assert numpy.from_dlpack(answer.data)[-1] == 7 and answer.data.pooled and answer.data.readonly
        assert server.payloads()["sent_by_ref"] == 1 and theirs.used >= LARGE
        # The same answer without views is the message itself.
        plain = pb_grpc.StoreStub(channel).Put(pb.Everything(name="array"))
        assert type(plain) is pb.Everything and plain.data == b"\x07" * LARGE
        each = list(stub.Each(pb.Everything()))
        assert [view.sum for view in each] == [0, 1, 2]
        assert [numpy.frombuffer(view.part.body, numpy.uint8)[5] for view in each] == [0, 1, 2]
        del answer, each


def test_a_view_goes_on_by_reference():
    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, server):
        stub = pb_grpc.StoreStub(tollfree.views(channel))
        sent = filled(ours, 4)
        answer = stub.Put(tollfree.message(pb.Everything(name="back"), data=sent))
        # The server gave back the client's own memory.
        address = numpy.frombuffer(sent, numpy.uint8).ctypes.data
        assert numpy.frombuffer(answer.data, numpy.uint8)[0] == 4 and server.payloads()["copied_bytes"] < 200
        assert stub.Put(answer).name == "back" and channel.payloads()["sent_by_ref"] == 2
        part = answer.part
        assert pb.Part.FromString(bytes(tollfree._arrays.placed(part))) == pb.Part()
        del answer, sent, part, address


def test_streams_of_requests_go_by_reference():
    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, server):
        stub = pb_grpc.StoreStub(channel)
        requests = (tollfree.message(pb.Everything(), data=filled(ours, value)) for value in range(4))
        assert stub.Total(requests).sum == 6 * LARGE
        assert server.payloads()["received_by_ref"] == 4


def test_a_whole_message_is_a_buffer():
    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, server):
        encoded = ours.copy(pb.Everything(name="whole", data=b"\x02" * LARGE).SerializeToString())
        assert pb_grpc.StoreStub(channel).Put(encoded).sum == 200
        assert server.payloads()["received_by_ref"] == 1 and channel.payloads()["copied_bytes"] < 100
        raw = tollfree.views(channel).unary_unary("/tollfree.arrays.Store/Put")
        answer = raw(encoded)
        assert isinstance(answer, tollfree.Buffer) and pb.Everything.FromString(bytes(answer)).sum == 200
        del encoded


@pytest.mark.parametrize("ends", ["none", "server's", "client's", "another's"])
def test_without_a_common_pool_arrays_are_copied(ends):
    with pools() as (ours, theirs):
        given = {"none": (None, None), "server's": (theirs, None), "client's": (None, ours), "another's": (None, None)}[ends]
        with store(*given) as (servicer, channel, _):
            stub = pb_grpc.StoreStub(tollfree.views(channel))
            answer = stub.Put(tollfree.message(everything(), data=filled(ours, 1), parts={0: {"body": filled(theirs, 2)}}))
            assert answer.sum == 100
            (view,) = servicer.kept
            assert not view.data.pooled and bytes(view.parts[0].body) == b"\x02" * LARGE
            assert view.ToMessage().parts[1] == everything().parts[1]
            del view


def test_compressed_messages_and_limits_hold_for_arrays():
    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, _):
        stub = pb_grpc.StoreStub(channel)
        request = tollfree.message(pb.Everything(name="x"), data=filled(ours, 3))
        assert stub.Put(request, compression=grpc.Compression.Gzip).sum == 300
        with tollfree.insecure_channel(channel._targets[0][0], options=[("grpc.max_send_message_length", 1000)], pool=ours) as short:
            with pytest.raises(grpc.RpcError, match="Sent message larger than max"):
                pb_grpc.StoreStub(short).Put(request)
        del request


def test_interceptors_and_futures_pass_arrays_on():
    class Seeing(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation, details, request):
            return continuation(details, request)

    with pools() as (ours, theirs), store(theirs, ours) as (_, channel, _):
        stub = pb_grpc.StoreStub(grpc.intercept_channel(tollfree.views(channel), Seeing()))
        request = tollfree.message(pb.Everything(name="array"), data=filled(ours, 3))
        answers = [stub.Put(request), stub.Put.future(request).result(), stub.Put.with_call(request)[0]]
        assert [numpy.frombuffer(answer.data, numpy.uint8)[9] for answer in answers] == [7, 7, 7]
        del answers, request


def test_grpcio_refuses_what_it_would_have_to_copy():
    with grpc.insecure_channel("unix:/nowhere") as channel:
        with pytest.raises(grpc.RpcError, match="serializing"):
            pb_grpc.StoreStub(channel).Put(tollfree.message(pb.Everything(), data=numpy.zeros(1000)))


# Messages that come.


def test_views_show_each_field_as_it_is():
    body = bytes(at % 251 for at in range(10_000))
    message = expected(body)
    view = tollfree._arrays.Viewing(pb.Everything)(message.SerializeToString())
    assert view.name == "all" and view.numbers[4999] == 4999 and view.sum == 0
    assert [bytes(chunk) for chunk in view.chunks] == list(message.chunks) and len(view.chunks[1:3]) == 2
    assert bytes(view.part.inner.body) == body and view.part.name == "part"
    assert [bytes(part.body) for part in view.parts] == [b"", body, b""]
    assert {key: bytes(value) for key, value in view.blobs.items()} == dict(message.blobs)
    assert bytes(view.by_number[8].body) == body and 9 not in view.by_number and len(view.by_number) == 2
    with pytest.raises(KeyError):
        view.by_number[9]
    assert view.HasField("maybe") and not view.HasField("second") and view.WhichOneof("one") == "first"
    assert bytes(view.next.next.data) == body and view.DESCRIPTOR is pb.Everything.DESCRIPTOR
    assert view.ToMessage() == message and view.next.ToMessage() == message.next
    assert "parts" in dir(view) and repr(view) == "<tollfree.View of tollfree.arrays.Everything>"
    with pytest.raises(AttributeError, match="read-only"):
        view.name = "y"
    with pytest.raises(AttributeError):
        _ = view.absent
    with pytest.raises(AttributeError, match="ToMessage"):
        _ = view.SerializeToString


def test_the_last_of_a_field_that_comes_twice_counts():
    twice = pb.Everything(data=b"a" * 5000, part=pb.Part(name="x", body=b"a" * 5000)).SerializeToString()
    twice += pb.Everything(data=b"b" * 6000, part=pb.Part(body=b"b" * 6000)).SerializeToString()
    view = tollfree._arrays.Viewing(pb.Everything)(twice)
    assert bytes(view.data) == b"b" * 6000 and bytes(view.part.body) == b"b" * 6000 and view.part.name == "x"
    assert view.ToMessage() == pb.Everything.FromString(twice)


def test_malformed_messages_fail_as_they_do_without_views():
    good = expected(b"z" * 5000).SerializeToString()
    viewing = tollfree._arrays.Viewing(pb.Everything)
    for cut in [*range(0, 200), *range(200, len(good), 997)]:
        try:
            wanted = pb.Everything.FromString(good[:cut])
        except Exception as error:
            with pytest.raises(type(error)):
                viewing(good[:cut])
        else:
            assert viewing(good[:cut]).ToMessage() == wanted
    deep = b""
    for _ in range(200):
        deep = b"\x6a" + tollfree_varint(len(deep)) + deep
    for wrong in (b"\x00" * 5000, b"\x12" + b"\xff" * 9 + b"\x01" + b"x" * 5000, b"\x13" * 5000, b"\x14" * 5000, b"\x17" * 5000, deep * 20):
        with pytest.raises(Exception, match="[Pp]ars"):
            pb.Everything.FromString(wrong)
        with pytest.raises(Exception, match="[Pp]ars"):
            viewing(wrong)


def tollfree_varint(value):
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded + bytes([value]))


def test_a_peer_can_send_no_mark():
    viewing = tollfree._arrays.Viewing(pb.Everything)
    forged = bytes(16) + (0).to_bytes(4, "little")
    view = viewing(pb.Everything(data=forged, maybe=b"x" * 5000).SerializeToString())
    assert bytes(view.data) == forged
    # A mark of this process's that names nothing is no mark of this message's.
    assert view.ToMessage().data == forged


def test_views_of_what_is_no_protobuf_are_refused():
    with tollfree.insecure_channel("shm-abstract:nobody") as channel:
        with pytest.raises(TypeError, match="/x/Y can't give views"):
            tollfree.views(channel).unary_unary("/x/Y", None, lambda data: data)
    with pytest.raises(TypeError):
        tollfree.views(5)


# Processes.


def test_a_child_of_fork_has_none_of_the_memory():
    with pools() as (pool, _):
        buffer, made = filled(pool), tollfree.message(pb.Everything(), data=filled(pool))
        acts = [memoryview, lambda buffer: buffer.__dlpack__(max_version=(1, 0)), lambda buffer: buffer.freeze()]
        for act, given in [*((act, buffer) for act in acts), (bytes, made), (lambda pool: pool.buffer(10), pool)]:
            child = os.fork()
            if child == 0:
                try:
                    act(given)
                except RuntimeError as error:
                    os._exit(0 if "forked" in str(error) else 2)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        del buffer, made, given


def test_the_memory_is_free_when_a_peer_is_killed_that_reads_it():
    with pools() as (ours, theirs), tempfile.TemporaryDirectory() as directory:
        reader = textwrap.dedent(f"""
            import sys
            sys.path[:0] = {sys.path!r}
            import test_arrays, tollfree, time
            pool = tollfree.Pool.join(sys.argv[1])
            servicer = test_arrays.Store(pool)
            server = tollfree.server(test_arrays.futures.ThreadPoolExecutor(2), options=test_arrays.LIMITS, pool=pool)
            test_arrays.pb_grpc.add_StoreServicer_to_server(servicer, server)
            server.add_insecure_port(sys.argv[2])
            server.start()
            print("ready", flush=True)
            server.wait_for_termination()
        """)
        pool_address = f"shm://{directory}/again.sock"
        pool = tollfree.Pool.create(pool_address, 64 << 20)
        address = f"shm://{directory}/store.sock"
        process = subprocess.Popen([sys.executable, "-c", reader, pool_address, address], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        with tollfree.insecure_channel(address, pool=pool) as channel:
            stub = pb_grpc.StoreStub(channel)
            assert stub.Put(tollfree.message(pb.Everything(), data=filled(pool, 2))).sum == 200
            gc.collect()
            assert pool.used >= LARGE
            process.kill()
            process.wait()
            process.stdout.close()
            until(lambda pool=pool: pool.used == 0, lambda: "bytes are held by a process that is gone")
        del pool


def test_many_threads_send_and_read_arrays_at_once():
    with pools() as (ours, theirs), store(theirs, ours) as (servicer, channel, _):
        stub = pb_grpc.StoreStub(tollfree.views(channel))
        wrong = []

        def work(value):
            for _ in range(20):
                answer = stub.Put(tollfree.message(pb.Everything(name="back"), part={"body": filled(ours, value, 100_000)}))
                if not (numpy.frombuffer(answer.part.body, numpy.uint8) == value).all():
                    wrong.append(value)
                del answer
                servicer.kept.clear()

        threads = [threading.Thread(target=work, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# asyncio.


class AioStore(pb_grpc.StoreServicer):
    def __init__(self, pool):
        self.pool = pool

    @tollfree.views
    async def Put(self, request, context):
        if request.name == "back":
            return request
        return tollfree.message(pb.Everything(sum=sum(memoryview(request.data)[:100])), data=filled(self.pool, 7))

    async def Each(self, request, context):
        for value in range(3):
            yield tollfree.message(pb.Everything(sum=value), part={"body": filled(self.pool, value)})

    @tollfree.views
    async def Total(self, request_iterator, context):
        total = 0
        async for request in request_iterator:
            total += int(numpy.frombuffer(request.data, numpy.uint8).sum())
        return pb.Everything(sum=total)


def test_asyncio_ends_send_and_read_arrays_by_reference():
    async def scenario(ours, theirs, address):
        server = tollfree.aio.server(options=LIMITS, pool=theirs)
        pb_grpc.add_StoreServicer_to_server(AioStore(theirs), server)
        server.add_insecure_port(address)
        await server.start()
        async with tollfree.aio.insecure_channel(address, options=LIMITS, pool=ours) as channel:
            stub = pb_grpc.StoreStub(tollfree.views(channel))
            answer = await stub.Put(tollfree.message(pb.Everything(), data=filled(ours, 3)))
            assert answer.sum == 300 and answer.data.pooled and numpy.from_dlpack(answer.data)[5] == 7
            back = await stub.Put(tollfree.message(pb.Everything(name="back"), data=filled(ours, 4)))
            assert numpy.frombuffer(back.data, numpy.uint8)[5] == 4
            bodies = [numpy.frombuffer(each.part.body, numpy.uint8)[0] async for each in stub.Each(pb.Everything())]
            assert bodies == [0, 1, 2]

            async def requests():
                for value in range(3):
                    yield tollfree.message(pb.Everything(), data=filled(ours, value))

            assert (await stub.Total(requests())).sum == 3 * LARGE
            plain = await pb_grpc.StoreStub(channel).Put(pb.Everything(data=b"\x01" * LARGE))
            assert plain.sum == 100 and plain.data == b"\x07" * LARGE
            assert channel.payloads()["received_by_ref"] == 6 and server.payloads()["received_by_ref"] == 6
            with pytest.raises(grpc.RpcError, match="serializing"):
                await stub.Put(5)
        await server.stop(None)
        assert server.payloads() == {}

    with pools() as (ours, theirs), tempfile.TemporaryDirectory() as directory:
        asyncio.run(scenario(ours, theirs, f"shm://{directory}/aio.sock"))


# The Rust implementation at the other end.

INTEROP = os.environ.get("TOLLFREE_INTEROP")
with_rust = pytest.mark.skipif(INTEROP is None, reason="TOLLFREE_INTEROP names no reference; `make python` builds one")


@pytest.fixture
def interop():
    conftest.generate(pathlib.Path(__file__).parents[2] / "tests/interop/proto", "grpc/testing/*.proto")
    import interop_service
    from grpc.testing import messages_pb2, test_pb2_grpc

    return interop_service, messages_pb2, test_pb2_grpc


@with_rust
def test_arrays_go_to_a_rust_server_and_back_by_reference(interop, tmp_path):
    _, messages, stubs = interop
    pool_address, address = f"shm://{tmp_path}/pool.sock", f"shm://{tmp_path}/rust.sock"
    rust = subprocess.Popen(
        [INTEROP, "serve", address, "--pool", pool_address, "--invite", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pool = tollfree.Pool.join(pool_address, rust.stdout.readline().strip())
    with tollfree.insecure_channel(address, pool=pool) as channel:
        stub = stubs.TestServiceStub(tollfree.views(channel))
        request = tollfree.message(messages.SimpleRequest(response_size=314159), payload={"body": filled(pool, 1, 271828)})
        answer = stub.UnaryCall(request, wait_for_ready=True)
        assert len(answer.payload.body) == 314159 and answer.payload.body.pooled
        assert not numpy.frombuffer(answer.payload.body, numpy.uint8).any()
        counts = channel.payloads()
        assert counts["sent_by_ref"] == 1 and counts["received_by_ref"] == 1 and counts["copied_bytes"] < 100
    del answer, request, pool
    rust.stdin.close()
    assert rust.wait(20) == 0
    rust.stdout.close()


@with_rust
def test_a_rust_client_sends_to_a_python_server_by_reference(interop, tmp_path, monkeypatch):
    # A record of an error holds the frames of its handler, and these the server.
    monkeypatch.setattr(logging.getLogger("tollfree"), "disabled", True)
    service, _, stubs = interop
    pool_address, address = f"shm://{tmp_path}/pool.sock", f"shm://{tmp_path}/python.sock"
    server = tollfree.server(futures.ThreadPoolExecutor(8), pool=tollfree.Pool.create(pool_address))
    stubs.add_TestServiceServicer_to_server(service.TestService(), server)
    server.add_insecure_port(address)
    server.start()
    # A handler can't tell which message of a stream was compressed, and grpcio has no load reports.
    absent = ["client_compressed_streaming", "pick_first_unary", "orca_per_rpc", "orca_oob"]
    skipped = [word for case in absent for word in ("--except", case)]
    ran = subprocess.run([INTEROP, "call", address, "--pool", pool_address, *skipped], capture_output=True, text=True, timeout=120)
    counts = server.payloads()
    server.stop(None)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert counts["received_by_ref"] > 0 and counts["sent_by_ref"] > 0, counts


def test_groups_are_messages_and_extensions_are_left_to_protobuf():
    message = groups_pb.Old(data=b"")
    message.entry.add(inner=groups_pb.Old(data=b"i" * 5000))
    message.Extensions[groups_pb.more] = b"e" * 5000
    made = tollfree.message(message, data=b"d" * 5000, entry={0: {"body": b"b" * 5000}})
    wanted = groups_pb.Old.FromString(bytes(made))
    assert (wanted.data, wanted.entry[0].body, wanted.entry[0].inner.data) == (b"d" * 5000, b"b" * 5000, b"i" * 5000)
    view = tollfree._arrays.Viewing(groups_pb.Old)(made)
    assert bytes(view.entry[0].body) == b"b" * 5000 and bytes(view.entry[0].inner.data) == b"i" * 5000
    assert view.ToMessage() == wanted and view.ToMessage().Extensions[groups_pb.more] == b"e" * 5000
    with pytest.raises(ValueError, match="has no field"):
        tollfree.message(message, more=b"x")


def test_what_has_another_form_than_its_field_stays_unknown():
    # A group where a message belongs, and a message where a group does.
    inner = pb.Part(body=b"x" * 5000).SerializeToString()
    as_group = b"\x2b" + inner + b"\x2c"
    view = tollfree._arrays.Viewing(pb.Everything)(as_group)
    assert view.ToMessage().SerializeToString() == pb.Everything.FromString(as_group).SerializeToString() == as_group
    body = b"\x12" + tollfree_varint(5000) + b"y" * 5000
    as_message = b"\x22\x00\x0a" + tollfree_varint(len(body)) + body
    view = tollfree._arrays.Viewing(groups_pb.Old)(as_message)
    assert view.ToMessage().SerializeToString() == groups_pb.Old.FromString(as_message).SerializeToString()


def test_entries_of_maps_that_protobuf_does_not_know_stay_unknown():
    value = b"\x12" + tollfree_varint(5000) + b"y" * 5000
    for entry in (b"\x0a\x01k\x18\x05" + value, b"\x08\x05" + value, value + b"\x10\x01", b"\x0a\x01k" + value):
        encoded = b"\x3a" + tollfree_varint(len(entry)) + entry
        message = pb.Everything.FromString(encoded)
        view = tollfree._arrays.Viewing(pb.Everything)(encoded)
        assert view.ToMessage().SerializeToString() == message.SerializeToString()
        assert {key: bytes(value) for key, value in view.blobs.items()} == dict(message.blobs)


# Against protobuf's own decoder, by seed.


def random_message(random, depth=0):
    def body():
        return random.randbytes(random.choice((0, 1, 20, 4095, 4096, 4097, 9000)))

    def part(depth=0):
        made = pb.Part(name="p" * random.randrange(3), body=body())
        if depth < 3 and random.random() < 0.4:
            made.inner.CopyFrom(part(depth + 1))
        return made

    message = pb.Everything(data=body(), chunks=[body() for _ in range(random.randrange(3))], numbers=range(random.randrange(3000)))
    message.parts.extend(part() for _ in range(random.randrange(3)))
    for _ in range(random.randrange(3)):
        message.blobs[str(random.randrange(3))] = body()
        message.by_number[random.randrange(-2, 2)].CopyFrom(part())
    if random.random() < 0.5:
        message.second.CopyFrom(part())
    elif random.random() < 0.5:
        message.first = body()
    if depth < 2 and random.random() < 0.5:
        message.next.CopyFrom(random_message(random, depth + 1))
    return message


def test_views_and_messages_agree_with_protobuf_on_any_bytes():
    random = random_numbers.Random(int(os.environ.get("TOLLFREE_SEED", "39")))
    viewing = tollfree._arrays.Viewing(pb.Everything)
    refused = 0
    for _ in range(150):
        # Fields that come again, in any order, merge.
        encoded = b"".join(random_message(random).SerializeToString() for _ in range(random.randrange(1, 3)))
        message = pb.Everything.FromString(encoded)
        view = viewing(encoded)
        assert view.ToMessage() == message
        made = tollfree.message(message, data=b"n" * random.choice((0, 5000)), chunks=[b"m" * 5000])
        message.data, _ = pb.Everything.FromString(bytes(made)).data, message.chunks.append(b"m" * 5000)
        assert pb.Everything.FromString(bytes(made)) == message
        damaged = bytearray(encoded)
        for _ in range(random.randrange(1, 4)):
            if damaged:
                damaged[random.randrange(min(len(damaged), random.choice((30, 10**6))))] = random.randrange(256)
        damaged = bytes(damaged[: random.randrange(len(damaged) + 1)] if random.random() < 0.2 else damaged)
        try:
            message = pb.Everything.FromString(damaged)
        except Exception as error:
            refused += 1
            with pytest.raises(type(error)):
                viewing(damaged)
        else:
            assert viewing(damaged).ToMessage().SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    assert refused > 10
