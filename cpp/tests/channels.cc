// Channels to several servers, servers that go and return, and what a service config says of calls.
#include <vector>

#include "place.h"

namespace tollfree {
namespace tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Counts its calls, and lets some of them fail.
class Counting : public Probe::Service {
 public:
  grpc::Status Unary(grpc::ServerContext* context, const Ask* ask, Answer* answer) override {
    calls++;
    auto attempts = context->client_metadata().find("grpc-previous-rpc-attempts");
    answer->set_text(attempts == context->client_metadata().end() ? "0" : std::string(attempts->second.data(), attempts->second.size()));
    answer->set_body(ask->body());
    if (failing-- > 0) return grpc::Status(grpc::StatusCode::ABORTED, "not yet");
    return grpc::Status::OK;
  }
  grpc::Status Collect(grpc::ServerContext*, grpc::ServerReader<Ask>* reader, Answer* answer) override {
    calls++;
    Ask ask;
    uint32_t count = 0;
    while (reader->Read(&ask)) count++;
    answer->set_count(count);
    if (failing-- > 0) return grpc::Status(grpc::StatusCode::ABORTED, "not yet");
    return grpc::Status::OK;
  }

  std::atomic<int> calls{0};
  std::atomic<int> failing{0};
};

// A server with a socket of its own.
struct Serving {
  Serving() { Start(); }
  void Start() {
    server = std::make_unique<Server>();
    grpc::Status status = ProbeTollfree::Register(server.get(), &service);
    if (status.ok()) status = server->Listen(directory.address());
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  Directory directory;
  Counting service;
  std::unique_ptr<Server> server;
};

std::unique_ptr<Probe::StubInterface> StubOf(const std::shared_ptr<Channel>& channel) { return ProbeTollfree::NewStub(channel); }

grpc::Status CallTo(Probe::StubInterface* stub, Answer* answer = nullptr) {
  grpc::ClientContext context;
  Answer unused;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  return stub->Unary(&context, Ask(), answer == nullptr ? &unused : answer);
}

std::string Retries(int attempts) {
  return R"({"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": )" + std::to_string(attempts) +
         R"(, "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["ABORTED"]}}]})";
}

TEST(Channels, ServersHaveTheirTurnsAndTheOthersServeWhileOneIsGone) {
  Serving first, second;
  ChannelOptions options;
  options.balance = Balance::kRoundRobin;
  auto channel = CreateChannel(first.directory.address() + "," + second.directory.address(), options);
  ASSERT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + seconds(20)));
  auto stub = StubOf(channel);
  // Both are connected by then.
  for (int ms = 0; ms < 20'000 && (first.service.calls == 0 || second.service.calls == 0); ms++) ASSERT_TRUE(CallTo(stub.get()).ok());
  int before = first.service.calls, other = second.service.calls;
  for (int at = 0; at < 100; at++) ASSERT_TRUE(CallTo(stub.get()).ok());
  EXPECT_EQ(first.service.calls - before, 50);
  EXPECT_EQ(second.service.calls - other, 50);

  first.server->Shutdown(seconds(5));
  before = second.service.calls;
  for (int at = 0; at < 50; at++) {
    grpc::Status status = CallTo(stub.get());
    ASSERT_TRUE(status.ok()) << at << " " << status.error_message();
  }
  EXPECT_EQ(second.service.calls - before, 50);
  // It returns, and gets its calls again.
  first.Start();
  before = first.service.calls;
  for (int ms = 0; ms < 20'000 && first.service.calls < before + 10; ms++) {
    ASSERT_TRUE(CallTo(stub.get()).ok());
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(first.service.calls, before + 10);
}

TEST(Channels, ALowerPriorityServesWhileTheHigherIsGone) {
  Serving first, second;
  Target low(second.directory.address()), high(first.directory.address());
  low.priority = 1;
  auto stub = StubOf(CreateChannel({low, high}));
  for (int at = 0; at < 20; at++) ASSERT_TRUE(CallTo(stub.get()).ok());
  EXPECT_EQ(first.service.calls, 20);
  first.server->Shutdown(seconds(5));
  for (int at = 0; at < 20; at++) ASSERT_TRUE(CallTo(stub.get()).ok());
  EXPECT_EQ(second.service.calls, 20);
}

TEST(Channels, AStockChannelHasSeveralServersAndAServiceConfigToo) {
  Serving first, second;
  ChannelOptions options;
  options.service_config = Retries(3);
  auto stub = Probe::NewStub(CreateStockChannel(first.directory.address() + "," + second.directory.address(), options));
  first.service.failing = 2;
  Answer answer;
  grpc::Status status = CallTo(stub.get(), &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(first.service.calls, 3);
  EXPECT_EQ(answer.text(), "2");
  first.server->Shutdown(seconds(5));
  EXPECT_TRUE(CallTo(stub.get()).ok());
  EXPECT_EQ(second.service.calls, 1);
}

TEST(Channels, FailedCallsAreMadeAgainAsOftenAsTheServiceConfigSays) {
  Serving serving;
  ChannelOptions options;
  options.service_config = Retries(4);
  auto stub = StubOf(CreateChannel(serving.directory.address(), options));
  for (auto [failing, calls, ends] : {std::tuple{3, 4, true}, std::tuple{4, 4, false}, std::tuple{0, 1, true}}) {
    serving.service.failing = failing;
    serving.service.calls = 0;
    Answer answer;
    grpc::Status status = CallTo(stub.get(), &answer);
    EXPECT_EQ(status.ok(), ends) << status.error_message();
    EXPECT_EQ(serving.service.calls, calls);
    EXPECT_EQ(answer.text(), ends ? std::to_string(failing) : "");
  }
  // A stream of the client's, with all that was written.
  serving.service.failing = 1;
  serving.service.calls = 0;
  grpc::ClientContext context;
  Answer answer;
  auto writer = stub->Collect(&context, &answer);
  for (int at = 0; at < 10; at++) ASSERT_TRUE(writer->Write(Ask()));
  writer->WritesDone();
  grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.count(), 10u);
  EXPECT_EQ(serving.service.calls, 2);
  // By a reactor.
  serving.service.failing = 2;
  std::atomic<bool> is_done{false};
  grpc::ClientContext other;
  Ask ask;
  stub->async()->Unary(&other, &ask, &answer, [&](grpc::Status of) {
    status = of;
    is_done = true;
  });
  for (int ms = 0; ms < 20'000 && !is_done; ms++) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(is_done && status.ok()) << status.error_message();
}

TEST(Channels, WithoutAServiceConfigNothingIsMadeAgain) {
  Serving serving;
  auto stub = StubOf(CreateChannel(serving.directory.address()));
  serving.service.failing = 1;
  EXPECT_EQ(CallTo(stub.get()).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(serving.service.calls, 1);
}

TEST(Channels, TheServiceConfigHasCallsWaitAndEnd) {
  Directory directory;
  ChannelOptions options;
  options.service_config = R"({"methodConfig": [{"name": [{"service": "tollfree.cpp.probe.Probe"}], "waitForReady": true, "timeout": "0.05s"}]})";
  auto stub = StubOf(CreateChannel(directory.address(), options));
  EXPECT_EQ(CallTo(stub.get()).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  grpc::ClientContext context;
  Answer answer;
  context.set_wait_for_ready(false);
  EXPECT_EQ(stub->Unary(&context, Ask(), &answer).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Channels, AWrongServiceConfigIsNamedByEachCall) {
  Serving serving;
  ChannelOptions options;
  options.service_config = Retries(1);
  auto channel = CreateChannel(serving.directory.address(), options);
  auto stub = StubOf(channel);
  for (int at = 0; at < 2; at++) {
    grpc::Status status = CallTo(stub.get());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(status.error_message().find("maxAttempts"), std::string::npos) << status.error_message();
  }
  EXPECT_EQ(channel->GetState(true), GRPC_CHANNEL_TRANSIENT_FAILURE);
}

TEST(Channels, TheStateSaysHowAChannelFares) {
  Serving serving;
  auto soon = [] { return std::chrono::system_clock::now() + seconds(20); };
  auto channel = CreateChannel(serving.directory.address());
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_IDLE);
  EXPECT_FALSE(channel->WaitForStateChange(GRPC_CHANNEL_IDLE, std::chrono::system_clock::now() + milliseconds(20)));
  EXPECT_TRUE(channel->WaitForConnected(soon()));
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  serving.server->Shutdown();
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, soon()));
  serving.server.reset();
  for (grpc_connectivity_state state; (state = channel->GetState(true)) != GRPC_CHANNEL_TRANSIENT_FAILURE;) {
    ASSERT_TRUE(channel->WaitForStateChange(state, soon()));
  }
  serving.Start();
  EXPECT_TRUE(channel->WaitForConnected(soon()));
}

// One of two servers goes again and again, under calls of several threads: those that it has begun may fail, and no other.
TEST(Channels, CallsGoOnWhileServersComeAndGo) {
  Serving first, second;
  ChannelOptions options;
  options.balance = Balance::kRoundRobin;
  auto stub = StubOf(CreateChannel(first.directory.address() + "," + second.directory.address(), options));
  std::atomic<bool> ends{false};
  std::atomic<int> count{0}, failed{0};
  std::vector<std::thread> callers;
  for (int at = 0; at < 3; at++) {
    callers.emplace_back([&] {
      while (!ends) {
        grpc::Status status = CallTo(stub.get());
        count++;
        if (!status.ok()) failed++;
        EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
      }
    });
  }
  for (int turn = 0; turn < 5; turn++) {
    int before = count;
    for (int ms = 0; ms < 20'000 && count < before + 50; ms++) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_GE(count, before + 50);
    // With grace: what it has begun is answered.
    first.server->Shutdown(seconds(10));
    first.Start();
  }
  ends = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace tests
}  // namespace tollfree
