"""How servers, channels and processes end; what interceptors and other packages of gRPC do with them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent import futures

import echo_pb2
import echo_pb2_grpc
import grpc
import pytest
from support import Echo, Pair, message, pair

import tollfree


def test_a_channel_without_a_server_names_the_socket(tmp_path):
    with tollfree.insecure_channel(f"shm://{tmp_path}/nobody.sock") as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Unary(message())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "nobody.sock" in caught.value.details()


def test_wait_for_ready_waits_for_a_server(tmp_path):
    address = f"shm://{tmp_path}/late.sock"
    with tollfree.insecure_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        call = stub.Unary.future(message("late"), wait_for_ready=True, timeout=20)
        time.sleep(0.05)
        server = tollfree.server(futures.ThreadPoolExecutor(2))
        echo_pb2_grpc.add_EchoServicer_to_server(Echo(), server)
        server.add_insecure_port(address)
        server.start()
        assert call.result().text == "late"
        server.stop(None)


def test_a_channel_goes_on_after_its_server_was_restarted(tmp_path):
    for _ in range(3):
        both = Pair(tmp_path)
        if _ == 0:
            channel = tollfree.insecure_channel(both.address)
            stub = echo_pb2_grpc.EchoStub(channel)
        assert stub.Unary(message("again")).text == "again"
        both.close()
    channel.close()


@pytest.mark.parametrize("target", ["localhost:50051", "unix:/tmp/x.sock", "dns:///x", "shm:relative", "shm://host/x", ""])
def test_targets_that_are_none_are_refused_when_the_channel_is_made(target):
    with pytest.raises(ValueError):
        tollfree.insecure_channel(target)
    with pytest.raises((ValueError, OSError)):
        tollfree.server(None).add_insecure_port(target)


def test_a_closed_channel_says_so():
    with pair() as both:
        both.stub.Unary(message())
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        both.channel.close()
        assert call.code() is grpc.StatusCode.CANCELLED
        with pytest.raises(ValueError, match="closed channel"):
            both.stub.Unary(message())


def test_several_servers_have_their_turns(tmp_path):
    pairs = []
    for nth in range(3):
        (tmp_path / str(nth)).mkdir()
        pairs.append(Pair(tmp_path / str(nth)))
    config = '{"loadBalancingConfig": [{"round_robin": {}}]}'
    target = ",".join(each.address for each in pairs)
    with tollfree.insecure_channel(target, options=[("grpc.service_config", config)]) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        grpc.channel_ready_future(channel).result(timeout=5)
        for _ in range(60):
            stub.Unary(message())
            for each in pairs:
                if each.servicer.entered.is_set():
                    each.servicer.calls = getattr(each.servicer, "calls", 0) + 1
                    each.servicer.entered.clear()
        assert min(getattr(each.servicer, "calls", 0) for each in pairs) >= 10
    for each in pairs:
        each.close()


def test_a_service_config_retries_and_sets_deadlines():
    retry = """{"methodConfig": [
        {"name": [{"service": "tollfree.test.Echo", "method": "Unary"}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.01s",
         "maxBackoff": "0.02s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}},
        {"name": [{"service": "tollfree.test.Echo"}], "timeout": "0.05s"}]}"""

    class Flaky(Echo):
        count = 0

        def Unary(self, request, context):
            Flaky.count += 1
            if Flaky.count < 3:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            self.seen = list(context.invocation_metadata())
            return request

    with pair(servicer=Flaky(), channel={"options": [("grpc.service_config", retry)]}) as both:
        assert both.stub.Unary(message("third")).text == "third"
        assert ("grpc-previous-rpc-attempts", "2") in both.servicer.seen
        call = both.stub.Chat(iter([message("wait")]))
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    for field, words in [
        ('"methodConfig": [{"hedgingPolicy": {"maxAttempts": 2}}]', "is not served"),
        ('"healthCheckConfig": {"serviceName": 5}', "healthCheckConfig has to be an object"),
        ('"healthCheckConfig": ["x"]', "healthCheckConfig has to be an object"),
    ]:
        with pytest.raises(ValueError, match=words):
            tollfree.insecure_channel("shm:///tmp/x", options=[("grpc.service_config", f"{{{field}}}")])
    with pytest.raises(ValueError, match="maxAttempts"):
        tollfree.insecure_channel("shm:///tmp/x", options=[("grpc.service_config", retry.replace("4", "1", 1))])


def test_options_that_are_not_known_are_warned_of(caplog):
    tollfree.insecure_channel("shm:///tmp/x", options=[("grpc.keepalive_time_ms", 1), ("grpc.nonsense", 1)]).close()
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1 and "grpc.nonsense" in warned[0]


def test_connectivity_is_told(tmp_path):
    states, ready = [], threading.Event()

    def told(state):
        states.append(state)
        if state is grpc.ChannelConnectivity.READY:
            ready.set()

    channel = tollfree.insecure_channel(f"shm://{tmp_path}/echo.sock")
    channel.subscribe(told, try_to_connect=True)
    time.sleep(0.05)
    both = Pair(tmp_path)
    assert ready.wait(5)
    assert states[0] is grpc.ChannelConnectivity.IDLE and grpc.ChannelConnectivity.TRANSIENT_FAILURE in states
    channel.unsubscribe(told)
    channel.close()
    both.close()


class _Names(grpc.ServerInterceptor, grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    def __init__(self):
        self.names = []

    def intercept_service(self, continuation, details):
        self.names.append(details.method)
        return continuation(details)

    def intercept_unary_unary(self, continuation, details, request):
        self.names.append(details.method)
        return continuation(details, request)

    def intercept_stream_stream(self, continuation, details, requests):
        self.names.append(details.method)
        return continuation(details, requests)


def test_interceptors_of_both_sides():
    at_server, at_client = _Names(), _Names()
    with pair(interceptors=[at_server]) as both:
        stub = echo_pb2_grpc.EchoStub(grpc.intercept_channel(both.channel, at_client))
        assert stub.Unary(message("x")).text == "x"
        assert stub.Unary.future(message("y")).result().text == "y"
        assert len(list(stub.Chat(iter([message()])))) == 1
        expected = ["/tollfree.test.Echo/Unary"] * 2 + ["/tollfree.test.Echo/Chat"]
        assert at_server.names == expected and at_client.names == expected


def test_health_and_reflection_of_grpcio():
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    with pair() as both:
        servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, both.server)
        name = echo_pb2.DESCRIPTOR.services_by_name["Echo"].full_name
        reflection.enable_server_reflection((name, reflection.SERVICE_NAME), both.server)
        servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        stub = health_pb2_grpc.HealthStub(both.channel)
        assert stub.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=name))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        servicer.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        assert name in ProtoReflectionDescriptorDatabase(both.channel).get_services()


def test_call_credentials_are_sent():
    class Plugin(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            callback((("authorization", f"{context.method_name} {context.service_url}"),), None)

    class Broken(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            callback((), ValueError("no token"))

    with pair() as both:
        both_of = grpc.composite_call_credentials(grpc.metadata_call_credentials(Plugin()), grpc.access_token_call_credentials("secret"))
        both.stub.Unary(message("metadata"), credentials=both_of)
        sent = [value for name, value in both.servicer.seen if name == "authorization"]
        assert sent == ["Unary https://localhost/tollfree.test.Echo", "Bearer secret"]
        with pytest.raises(grpc.RpcError) as caught:
            both.stub.Unary(message(), credentials=grpc.metadata_call_credentials(Broken()))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE and "no token" in caught.value.details()


def test_a_server_with_as_many_calls_as_may_be():
    with pair(maximum_concurrent_rpcs=1) as both:
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        with pytest.raises(grpc.RpcError) as caught:
            both.stub.Unary(message())
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call.cancel()


def test_stop_lets_calls_end_within_its_grace():
    with pair() as both:
        release = threading.Event()

        def requests():
            yield message("in time")
            release.wait(5)

        answers = both.stub.Chat(requests())
        assert next(answers).text == "in time"
        stopped = both.server.stop(10)
        assert not stopped.wait(0.1)
        with pytest.raises(grpc.RpcError):
            both.stub.Unary(message(), timeout=1)
        release.set()
        assert list(answers) == [] and answers.code() is grpc.StatusCode.OK
        assert stopped.wait(5) and not both.server.wait_for_termination(5)


def test_stop_without_grace_cancels_calls():
    with pair() as both:
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        both.server.stop(None)
        assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        assert both.servicer.cancelled.wait(5)


def test_inline_handlers_run_in_the_serving_thread():
    class Inline(Echo):
        @tollfree.inline
        def Unary(self, request, context):
            if request.text == "raise":
                raise ValueError("inline")
            return message(threading.current_thread().name)

    with pair(servicer=Inline()) as both:
        assert both.stub.Unary(message()).text == "tollfree-server"
        with pytest.raises(grpc.RpcError):
            both.stub.Unary(message("raise"))
        assert both.stub.Unary(message()).text == "tollfree-server"
        assert len(list(both.stub.Download(message(count=3)))) == 3


def _child(stub, queue):
    queue.put(stub.Unary(message("child")).text)


def test_a_child_of_fork_has_channels_of_its_own():
    with pair() as both:
        open_call = both.stub.Chat(iter([message("open")]))
        assert next(open_call).text == "open"
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=_child, args=(both.stub, queue)) for _ in range(3)]
        for child in children:
            child.start()
        assert [queue.get(timeout=20) for _ in children] == ["child"] * 3
        for child in children:
            child.join(20)
            assert child.exitcode == 0
            child.close()
        queue.close()
        queue.join_thread()
        assert both.stub.Unary(message("parent")).text == "parent"


def test_a_call_of_the_parents_is_refused_in_a_child():
    with pair() as both:
        call = both.stub.Unary.future(message("wait"))
        assert both.servicer.entered.wait(5)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                call.cancel()
                os.write(write, b"cancelled")
            except RuntimeError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert b"forked" in os.read(read, 1000)
        os.close(read)
        os.close(write)
        assert call.is_active()
        call.cancel()


def _run(script, *arguments):
    code = textwrap.dedent(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


_CALLER = """
    import sys, threading, time
    import echo_pb2, echo_pb2_grpc, tollfree
    channel = tollfree.insecure_channel(sys.argv[1])
    stub = echo_pb2_grpc.EchoStub(channel)
    stub.Unary(echo_pb2.Message())
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "call = stub.Unary.future(echo_pb2.Message(text='wait'))",
        "call = stub.Download(echo_pb2.Message(count=1000000, data=bytes(1000))); next(call)",
        "call = stub.Unary.future(echo_pb2.Message(text='wait')); call.add_done_callback(print)",
        "threading.Thread(target=lambda: stub.Unary(echo_pb2.Message(text='wait')), daemon=True).start(); time.sleep(0.1)",
    ],
)
def test_an_interpreter_ends_cleanly_whatever_is_open(ending):
    with pair() as both:
        child = _run(_CALLER + "    " + ending, both.address)
        out, err = child.communicate(timeout=20)
        assert child.returncode == 0 and err == "", err
        until = time.monotonic() + 5
        while both.server._calls.count() and time.monotonic() < until:
            time.sleep(0.01)
        assert both.server._calls.count() == 0, "what a process had ends with it"


@pytest.mark.parametrize(
    "waiting",
    [
        "stub.Unary(echo_pb2.Message(text='wait'))",
        "next(stub.Chat(iter([echo_pb2.Message(text='wait')])))",
        "stub.Unary.future(echo_pb2.Message(text='wait')).result()",
        "stub.Upload(iter(lambda: time.sleep(0.01) or echo_pb2.Message(), None))",
    ],
)
def test_ctrl_c_interrupts_a_thread_that_waits(waiting):
    with pair() as both:
        child = _run(_CALLER + "    print('waits', flush=True)\n    " + waiting, both.address)
        assert child.stdout.readline() == "waits\n"
        assert both.servicer.entered.wait(10)
        time.sleep(0.2)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
        assert "KeyboardInterrupt" in err and time.monotonic() - began < 3


def test_clients_and_servers_that_are_killed():
    with pair() as both:
        child = _run(_CALLER + "    stub.Unary(echo_pb2.Message(text='wait'))", both.address)
        assert both.servicer.entered.wait(10)
        time.sleep(0.3)
        child.kill()
        child.communicate()
        until = time.monotonic() + 5
        while both.server._calls.count() and time.monotonic() < until:
            time.sleep(0.01)
        assert both.server._calls.count() == 0
        assert both.stub.Unary(message("others")).text == "others"


def test_builds_without_the_interpreters_lock_are_refused():
    script = """
        import sysconfig
        known = sysconfig.get_config_var
        sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
        import tollfree
    """
    child = _run(script)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 1 and "ImportError: Tollfree does not run in free-threaded builds" in err


def test_ends_that_rest_take_no_processor_time():
    with pair() as both:
        channels = [tollfree.insecure_channel(both.address) for _ in range(10)]
        for channel in channels:
            assert echo_pb2_grpc.EchoStub(channel).Unary(message("once")).text == "once"
        assert len(both.server._sessions) == 10
        open_call = both.stub.Chat(iter([message("open")]))
        assert next(open_call).text == "open"
        # What is left of looking goes by first.
        time.sleep(0.1)
        before = time.process_time()
        time.sleep(2)
        took = time.process_time() - before
        # A thousandth of a core, for both ends together, would be 2 ms.
        assert took < 0.004, took
        for channel in channels:
            channel.close()
