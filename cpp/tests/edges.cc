// What is at the edges: servers that come and go, credentials, what is refused, and how it says so.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <tollfree/client_context.h>
#include <tollfree/credentials.h>

#include "place.h"

namespace tollfree {
namespace tests {

std::unique_ptr<Server> Serve(BlockingProbe* service, const std::string& address) {
  auto server = std::make_unique<Server>();
  grpc::Status status = ProbeTollfree::Register(server.get(), service);
  if (status.ok()) status = server->Listen(address);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return server;
}

grpc::Status CallOnce(Probe::StubInterface* stub, bool waits = false, int seconds = 20) {
  grpc::ClientContext context;
  Answer answer;
  context.set_wait_for_ready(waits);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
  return stub->Unary(&context, Ask(), &answer);
}

TEST(Edges, WithoutAServerACallFailsAtOnceAndNamesTheSocket) {
  Directory directory;
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  for (int at = 0; at < 3; at++) {
    grpc::Status status = CallOnce(stub.get());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(status.error_message().find(directory.socket()), std::string::npos) << status.error_message();
  }
  EXPECT_EQ(CallOnce(StubTo("http://nowhere", Calls::kGenerated).get()).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Edges, ACallThatWaitsForAServerIsAnsweredWhenThereIsOne) {
  Directory directory;
  BlockingProbe service;
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  EXPECT_EQ(CallOnce(stub.get(), true, 1).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  std::unique_ptr<Server> server;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server = Serve(&service, directory.address());
  });
  grpc::Status status = CallOnce(stub.get(), true);
  late.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(Edges, AChannelFindsTheServersSuccessor) {
  Directory directory;
  BlockingProbe service;
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  for (int turn = 0; turn < 5; turn++) {
    auto server = Serve(&service, directory.address());
    for (int at = 0; at < 20; at++) {
      grpc::Status status = CallOnce(stub.get(), true);
      ASSERT_TRUE(status.ok()) << turn << " " << at << " " << status.error_message();
    }
    server->Shutdown(std::chrono::seconds(5));
    EXPECT_EQ(CallOnce(stub.get()).error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST(Edges, AServerThatIsShutDownEndsCallsAfterItsGrace) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  ASSERT_TRUE(CallOnce(stub.get()).ok());
  cancelled_count = 0;
  for (uint32_t wait_ms : {300u, 60'000u}) {
    if (wait_ms > 1'000) server = Serve(&service, directory.address());
    grpc::Status status;
    std::thread caller([&] {
      grpc::ClientContext context;
      Ask ask;
      Answer answer;
      ask.set_wait_ms(wait_ms);
      status = stub->Unary(&context, ask, &answer);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    server->Shutdown(std::chrono::milliseconds(wait_ms > 1'000 ? 100 : 5'000));
    caller.join();
    EXPECT_EQ(status.ok(), wait_ms < 1'000) << status.error_message();
  }
  EXPECT_EQ(cancelled_count, 1);
}

// Longer than the client gives credit for at once: its handler is done long before the answer is on its way.
TEST(Edges, AServerThatIsShutDownSendsItsLongAnswersWithinItsGrace) {
  struct Begins : BlockingProbe {
    std::atomic<bool> has_begun{false};
    grpc::Status Unary(grpc::ServerContext* context, const Ask* ask, Answer* answer) override {
      has_begun = ask->wait_ms() > 0;
      return BlockingProbe::Unary(context, ask, answer);
    }
  };
  for (int turn = 0; turn < 10; turn++) {
    Directory directory;
    Begins service;
    auto server = Serve(&service, directory.address());
    auto stub = StubTo(directory.address(), Calls::kGenerated);
    ASSERT_TRUE(CallOnce(stub.get()).ok());
    grpc::Status status;
    Answer answer;
    std::thread caller([&] {
      grpc::ClientContext context;
      Ask ask;
      ask.set_wait_ms(20);
      ask.set_body(std::string(3 << 20, 'x'));
      status = stub->Unary(&context, ask, &answer);
    });
    for (int ms = 0; ms < 20'000 && !service.has_begun; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(service.has_begun);
    server->Shutdown(std::chrono::seconds(10));
    caller.join();
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
    EXPECT_EQ(answer.body().size(), 3u << 20);
  }
}

TEST(Edges, AnAddressInUseIsRefusedWithItsName) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  Server other;
  grpc::Status status = other.Listen(directory.address());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find(directory.socket()), std::string::npos) << status.error_message();
  EXPECT_FALSE(other.Listen("unix:///x").ok());
}

TEST(Edges, AContextIsForOneCall) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  grpc::ClientContext context;
  Answer answer;
  EXPECT_TRUE(stub->Unary(&context, Ask(), &answer).ok());
  EXPECT_EQ(stub->Unary(&context, Ask(), &answer).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// A method that the server does not have, by a stock stub of bytes: messages of ByteBuffer pass as they are.
TEST(Edges, UnknownMethodsAreUnimplementedAndGenericStubsWork) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  grpc::GenericStub stub(CreateStockChannel(directory.address()));
  for (std::string method : {"/tollfree.cpp.probe.Probe/Unary", "/no.Such/Method"}) {
    grpc::ClientContext context;
    Ask ask;
    ask.set_text("x");
    grpc::Slice slice(ask.SerializeAsString());
    grpc::ByteBuffer request(&slice, 1), response;
    std::atomic<bool> is_done{false};
    grpc::Status status;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response, [&](grpc::Status of) {
      status = of;
      is_done = true;
    });
    for (int ms = 0; ms < 20'000 && !is_done; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(is_done);
    EXPECT_EQ(status.error_code(), method[1] == 'n' ? grpc::StatusCode::UNIMPLEMENTED : grpc::StatusCode::OK) << status.error_message();
    grpc::Slice got;
    Answer answer;
    EXPECT_EQ(response.DumpToSingleSlice(&got).ok(), status.ok());
    ASSERT_TRUE(answer.ParseFromArray(got.begin(), static_cast<int>(got.size())));
    EXPECT_EQ(answer.text(), status.ok() ? "re: x" : "");
  }
}

class Token final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit Token(grpc::Status status) : status_(status) {}
  grpc::Status GetMetadata(grpc::string_ref url, grpc::string_ref method, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization", "token for " + std::string(method.data(), method.size()));
    metadata->emplace("x-url", std::string(url.data(), url.size()));
    return status_;
  }

 private:
  const grpc::Status status_;
};

TEST(Edges, CredentialsOfACallBecomeMetadata) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  for (Calls calls : {Calls::kGenerated, Calls::kStock}) {
    auto stub = StubTo(directory.address(), calls);
    grpc::ClientContext context;
    Answer answer;
    context.set_credentials(CredentialsFromPlugin(std::make_unique<Token>(grpc::Status::OK)));
    grpc::Status status = stub->Unary(&context, Ask(), &answer);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(answer.metadata_size(), 2);
    EXPECT_EQ(answer.metadata(0), "authorization=token for Unary");
    EXPECT_EQ(answer.metadata(1), "x-url=" + directory.address() + "/tollfree.cpp.probe.Probe");
    grpc::ClientContext failing;
    failing.set_credentials(CredentialsFromPlugin(std::make_unique<Token>(grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no key"))));
    status = stub->Unary(&failing, Ask(), &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_NE(status.error_message().find("no key"), std::string::npos) << status.error_message();
    grpc::ClientContext stock;
    stock.set_credentials(grpc::AccessTokenCredentials("token"));
    EXPECT_EQ(stub->Unary(&stock, Ask(), &answer).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
}

// Calls on for its own caller, with its deadline or by gRPC's own function.
class Passing : public Probe::Service {
 public:
  explicit Passing(Probe::StubInterface* to) : to_(to) {}
  grpc::Status Unary(grpc::ServerContext* context, const Ask* ask, Answer* answer) override {
    auto made = ask->text() == "core" ? grpc::ClientContext::FromServerContext(*context) : ClientContextFrom(*context);
    return to_->Unary(made.get(), Ask(), answer);
  }

 private:
  Probe::StubInterface* const to_;
};

TEST(Edges, DeadlinesArePassedOnAndTheCoresWayIsRefused) {
  Directory directory, behind;
  BlockingProbe service;
  auto server = Serve(&service, behind.address());
  auto to = StubTo(behind.address(), Calls::kGenerated);
  Passing passing(to.get());
  Server front;
  ASSERT_TRUE(ProbeTollfree::Register(&front, &passing).ok());
  ASSERT_TRUE(front.Listen(directory.address()).ok());
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  for (std::string way : {"ours", "core"}) {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    ask.set_text(way);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
    grpc::Status status = stub->Unary(&context, ask, &answer);
    EXPECT_EQ(status.error_code(), way == "core" ? grpc::StatusCode::FAILED_PRECONDITION : grpc::StatusCode::OK) << status.error_message();
    EXPECT_EQ(answer.deadline_ms() > 50'000, way == "ours");
  }
}

TEST(Edges, CompletionQueuesAreRefused) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Status status;
  Answer answer;
  void* tag = nullptr;
  bool ok = false;
  auto reader = stub->AsyncUnary(&context, Ask(), &queue);
  reader->Finish(&answer, &status, &context);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(tag, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  grpc::ClientContext other;
  auto stream = stub->AsyncChat(&other, &queue, &other);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(tag == &other && !ok);
  stream->Finish(&status, &other);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(tag == &other && ok && status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &ok));
}

TEST(Edges, AServiceThatABaseClassHidesIsRefused) {
  ReactorProbe reactors;
  Probe::AsyncService queues;
  Server server;
  grpc::Status status = ProbeTollfree::Register(&server, static_cast<Probe::Service*>(&reactors));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("by its own type"), std::string::npos);
  status = ProbeTollfree::Register(&server, static_cast<Probe::Service*>(&queues));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("completion queues"), std::string::npos);
}

// One method of bytes with a reactor, the others blocking.
class Mixed : public Probe::WithRawCallbackMethod_Unary<Probe::Service> {
 public:
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* response) override {
    *response = *request;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

TEST(Edges, MethodsOfBytesAreServedBesideOthers) {
  Directory directory;
  Mixed service;
  Server server;
  ASSERT_TRUE(ProbeTollfree::Register(&server, &service).ok());
  ASSERT_TRUE(server.Listen(directory.address()).ok());
  auto stub = StubTo(directory.address(), Calls::kGenerated);
  grpc::ClientContext context, other;
  Ask ask;
  Answer answer;
  ask.set_text("same");
  ask.set_body(std::string(200'000, 'b'));
  ASSERT_TRUE(stub->Unary(&context, ask, &answer).ok());
  EXPECT_EQ(answer.text(), "same");
  EXPECT_EQ(answer.body(), ask.body());
  auto reader = stub->List(&other, ask);
  EXPECT_FALSE(reader->Read(&answer));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(Edges, ManyChannelsComeAndGoWithCallsUnderWay) {
  Directory directory;
  BlockingProbe service;
  auto server = Serve(&service, directory.address());
  for (int turn = 0; turn < 30; turn++) {
    auto stub = StubTo(directory.address(), Calls::kGenerated);
    auto context = std::make_unique<grpc::ClientContext>();
    auto stream = stub->Chat(context.get());
    EXPECT_TRUE(stream->Write(Ask()));
    stub.reset();
    Answer answer;
    EXPECT_TRUE(stream->Read(&answer));
    if (turn % 2 == 0) context->TryCancel();
    stream.reset();
  }
}

}  // namespace tests
}  // namespace tollfree
