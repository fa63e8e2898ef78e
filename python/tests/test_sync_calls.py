"""Calls of synchronous channels to synchronous servers, by generated stubs as they are."""

import threading
import time

import grpc
import pytest
from support import message, pair


def error_of(call, *arguments, **given):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **given)
    return caught.value


def test_all_four_kinds():
    with pair() as both:
        assert both.stub.Unary(message("hello", count=1)) == message("hello", count=2)
        assert [each.count for each in both.stub.Download(message(count=100))] == list(range(100))
        assert both.stub.Upload(iter([message(count=1), message(count=2)])).count == 3
        assert both.stub.Upload([message(count=5)] * 200).count == 1000
        texts = [each.text for each in both.stub.Chat(iter([message("a"), message("b")]))]
        assert texts == ["a", "b"]


def test_chats_go_to_and_fro():
    with pair() as both:
        turn = threading.Semaphore(1)

        def requests():
            for count in range(50):
                turn.acquire()
                yield message(count=count)

        for count, answer in enumerate(both.stub.Chat(requests())):
            assert answer.count == count + 1
            turn.release()


@pytest.mark.parametrize("size", [0, 1, 5000, 100_000, 3 << 20])
def test_messages_of_all_sizes(size):
    with pair() as both:
        data = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert both.stub.Unary(message(data=data)).data == data
        assert [each.data for each in both.stub.Download(message(data=data, count=3))] == [data] * 3


def test_a_handlers_end_is_the_callers_error():
    with pair() as both:
        error = error_of(both.stub.Unary, message("fail"))
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "as asked: 100 % ü")
        error = error_of(both.stub.Unary, message("code"))
        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "by code")
        error = error_of(both.stub.Unary, message("raise"))
        assert error.code() is grpc.StatusCode.UNKNOWN and "an error of the handler's" in error.details()
        call = both.stub.Download(message("fail", count=9))
        seen = []
        with pytest.raises(grpc.RpcError) as caught:
            seen.extend(iter(lambda: next(call).count, None))
        assert caught.value is call and call.code() is grpc.StatusCode.DATA_LOSS


def test_metadata_go_both_ways():
    with pair() as both:
        sent = (("one", "1"), ("two-bin", b"\x00\x80\xff"), ("one", "again"))
        answer, call = both.stub.Unary.with_call(message("metadata"), metadata=sent)
        assert answer.text == "metadata"
        assert [pair for pair in both.servicer.seen if pair[0] in ("one", "two-bin")] == list(sent)
        assert call.initial_metadata() == (("first", "1"), ("raw-bin", b"\x00\xff"))
        assert call.trailing_metadata() == (("last", "2"), ("tail-bin", b"\x01\x02"))
        assert call.code() is grpc.StatusCode.OK
        call = both.stub.Chat(iter([message("metadata")]), metadata=sent)
        assert call.initial_metadata() == (("first", "1"), ("raw-bin", b"\x00\xff"))
        list(call)
        assert call.trailing_metadata()[0].key == "last"


@pytest.mark.parametrize("pairs", [(("Upper", "x"),), (("name", "ü"),), (("", "x"),), (("name", 1),), ("name",)])
def test_metadata_that_cant_be_sent_are_refused_before_the_call(pairs):
    with pair() as both:
        with pytest.raises((ValueError, TypeError), match="metadata|pairs"):
            both.stub.Unary(message(), metadata=pairs)


def test_deadlines_end_calls_at_both_ends():
    with pair() as both:
        began = time.monotonic()
        error = error_of(both.stub.Unary, message("wait"), timeout=0.05)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert 0.04 < time.monotonic() - began < 2
        assert both.servicer.cancelled.wait(5)
        assert 3000 < both.stub.Unary(message("remaining"), timeout=5).count <= 5000
        error = error_of(both.stub.Unary, message(), timeout=0)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_call_that_is_cancelled_is_over_for_both():
    with pair() as both:
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        call.cancel()
        assert both.servicer.cancelled.wait(5)
        assert call.cancelled() and call.code() is grpc.StatusCode.CANCELLED
        with pytest.raises(grpc.FutureCancelledError):
            call.result()


def test_a_call_that_nobody_holds_is_cancelled():
    with pair() as both:
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        del call
        assert both.servicer.cancelled.wait(5)


def test_futures_and_callbacks():
    with pair() as both:
        call = both.stub.Unary.future(message("later"))
        done = threading.Event()
        call.add_done_callback(lambda of: done.set() if of is call else None)
        assert done.wait(5) and call.result().text == "later"
        assert call.done() and call.exception() is None and not call.running()
        late = threading.Event()
        call.add_done_callback(lambda _: late.set())
        assert late.wait(5)
        slow = both.stub.Unary.future(message("wait"))
        with pytest.raises(grpc.FutureTimeoutError):
            slow.result(timeout=0.02)
        slow.cancel()
        failed = both.stub.Unary.future(message("fail"))
        assert failed.exception().code() is grpc.StatusCode.FAILED_PRECONDITION


def test_many_threads_and_many_streams_at_once():
    with pair(threads=32) as both:
        failed = []

        def calls(nth):
            try:
                for count in range(100):
                    assert both.stub.Unary(message(str(nth), count=count)) == message(str(nth), count=count + 1)
                assert sum(1 for _ in both.stub.Download(message(count=500))) == 500
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=calls, args=(nth,)) for nth in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failed


def test_a_reader_that_is_slow_holds_up_its_own_stream_only():
    with pair() as both:
        call = both.stub.Download(message(count=20000, data=bytes(1000)))
        next(call)
        time.sleep(0.3)
        ahead = len(both.servicer.seen)
        assert ahead < 2000, "the server waits"
        assert both.stub.Unary(message("beside")).text == "beside"
        assert sum(1 for _ in call) == 19999


def test_a_server_that_reads_slowly_holds_up_the_sender():
    with pair() as both:
        sent = []

        def requests():
            for count in range(20000):
                sent.append(count)
                yield message("wait" if count == 0 else "", data=bytes(1000))

        call = both.stub.Chat(requests())
        time.sleep(0.3)
        assert len(sent) < 2000
        call.cancel()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compression(compression):
    with pair(compression=compression, channel={"compression": compression}) as both:
        data = bytes(100_000)
        assert both.stub.Unary(message(data=data)).data == data
        assert [each.data for each in both.stub.Download(message(data=data, count=3))] == [data] * 3
        assert both.stub.Unary(message(data=data), compression=grpc.Compression.NoCompression).data == data


def test_limits_of_length():
    options = [("grpc.max_receive_message_length", 1000), ("grpc.max_send_message_length", 5000)]
    with pair(channel={"options": options}) as both:
        assert len(both.stub.Unary(message(data=bytes(900))).data) == 900
        error = error_of(both.stub.Unary, message(data=bytes(2000)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        error = error_of(both.stub.Unary, message(data=bytes(6000)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in error.details()
    with pair(options=[("grpc.max_receive_message_length", 1000)]) as both:
        error = error_of(both.stub.Unary, message(data=bytes(2000)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_cant_be_serialized_is_an_error_of_the_call():
    with pair() as both:
        assert error_of(both.stub.Unary, "no message").code() is grpc.StatusCode.INTERNAL
        broken = both.channel.unary_unary("/tollfree.test.Echo/Unary", None, lambda _: 1 // 0)
        assert error_of(broken, b"").code() is grpc.StatusCode.INTERNAL
        assert error_of(both.stub.Upload, iter(["no message"])).code() is grpc.StatusCode.INTERNAL


def test_an_iterator_that_raises_ends_its_call():
    def requests():
        yield message(count=1)
        raise ValueError("the iterator's")

    with pair() as both:
        error = error_of(both.stub.Upload, requests())
        assert error.code() is grpc.StatusCode.UNKNOWN and "the iterator's" in error.details()


def test_the_kernel_says_who_calls():
    with pair() as both:
        import os

        answer = both.stub.Unary(message("peer"))
        assert f"pid={os.getpid()}" in answer.text and answer.data == str(os.getuid()).encode()


def test_a_method_that_is_not_there():
    with pair() as both:
        nothing = both.channel.unary_unary("/tollfree.test.Echo/Nothing")
        assert error_of(nothing, b"").code() is grpc.StatusCode.UNIMPLEMENTED
