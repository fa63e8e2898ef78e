// gRPC's interoperability cases, with the reference at the other end. Compression is left out: Tollfree for C++ has none.
#include <sys/stat.h>

#include <fstream>

#include "interop_service.h"
#include "place.h"
#include "process.h"

namespace tollfree {
namespace tests {

class Interop : public ::testing::TestWithParam<Calls> {
 protected:
  void SetUp() override {
    program_ = ProgramAt("TOLLFREE_INTEROP");
    if (program_.empty()) GTEST_SKIP() << "TOLLFREE_INTEROP does not say where tollfree-interop is: run make cpp";
  }

  std::string program_;
  Directory directory_;
};

// They ask whether a message came compressed, or one of a stream goes as it is; or for load reports.
const char* const kLeftOut[] = {"client_compressed_unary", "client_compressed_streaming", "server_compressed_streaming", "orca_per_rpc", "orca_oob"};

TEST_P(Interop, TheReferencesClientPassesEachCase) {
  InteropService service;
  ServerOptions options;
  options.message_len_max = 32 << 20;
  Server server(options);
  ASSERT_TRUE(TestServiceTollfree::Register(&server, &service).ok());
  ASSERT_TRUE(server.Listen(directory_.address()).ok());
  std::vector<std::string> arguments{program_, "call", directory_.address()};
  for (const char* each : kLeftOut) arguments.insert(arguments.end(), {"--except", each});
  Process client(arguments);
  std::string said = client.Rest();
  EXPECT_EQ(client.Wait(60), 0) << said;
  server.Shutdown(std::chrono::seconds(10));
}

// The reference's client calls a gateway over HTTP/2, which passes each call to a server of ours.
TEST_P(Interop, AGatewaysClientsPassEachCase) {
  int port = 20'000 + getpid() % 20'000;
  std::string at = "127.0.0.1:" + std::to_string(port), config = directory_.socket() + ".toml";
  std::ofstream(config) << "[listeners.world]\naddress = \"" << at << "\"\n[backends]\nsocket = \"" << directory_.address() << "\"\n[groups.default]\n";
  InteropService service;
  ServerOptions options;
  options.message_len_max = 32 << 20;
  Server server(options);
  ASSERT_TRUE(TestServiceTollfree::Register(&server, &service).ok());
  // Before there is a gateway: it is told so, and attaches when there is one.
  EXPECT_EQ(server.Attach(directory_.address(), "default").error_code(), grpc::StatusCode::UNAVAILABLE);
  auto gateway = std::make_unique<Process>(std::vector<std::string>{program_, "gateway", config});
  std::vector<std::string> arguments{program_, "call", "http://" + at};
  for (const char* each : kLeftOut) arguments.insert(arguments.end(), {"--except", each});
  std::string said;
  bool is_passed = false;
  for (int turn = 0; turn < 20 && !is_passed; turn++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    Process client(arguments);
    said = client.Rest();
    is_passed = client.Wait(60) == 0;
  }
  EXPECT_TRUE(is_passed) << said;
  server.Shutdown(std::chrono::seconds(10));
}

// The cases by a stub of ours, against the reference's server.
class Cases : public Interop {
 protected:
  void SetUp() override {
    Interop::SetUp();
    if (IsSkipped()) return;
    server_ = std::make_unique<Process>(std::vector<std::string>{program_, "serve", directory_.address()});
    struct stat status;
    for (int ms = 0; ms < 20'000 && stat(directory_.socket().c_str(), &status) != 0; ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    channel_ = CreateChannel(directory_.address());
    if (GetParam() == Calls::kStock) {
      stub_ = TestService::NewStub(CreateStockChannel(directory_.address()));
    } else {
      stub_ = TestServiceTollfree::NewStub(channel_);
    }
  }

  std::unique_ptr<Process> server_;
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<TestService::StubInterface> stub_;
};

TEST_P(Cases, EmptyAndLargeUnary) {
  grpc::ClientContext context, large;
  Empty empty;
  ASSERT_TRUE(stub_->EmptyCall(&context, empty, &empty).ok());
  SimpleRequest request;
  SimpleResponse response;
  request.set_response_size(314159);
  request.mutable_payload()->set_body(std::string(271828, '\0'));
  grpc::Status status = stub_->UnaryCall(&large, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.payload().body(), std::string(314159, '\0'));
}

TEST_P(Cases, ClientStreaming) {
  grpc::ClientContext context;
  StreamingInputCallResponse response;
  auto writer = stub_->StreamingInputCall(&context, &response);
  for (size_t size : {27182u, 8u, 1828u, 45904u}) {
    StreamingInputCallRequest request;
    request.mutable_payload()->set_body(std::string(size, '\0'));
    ASSERT_TRUE(writer->Write(request));
  }
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(response.aggregated_payload_size(), 74922);
}

TEST_P(Cases, ServerStreaming) {
  grpc::ClientContext context;
  StreamingOutputCallRequest request;
  StreamingOutputCallResponse response;
  const int sizes[] = {31415, 9, 2653, 58979};
  for (int size : sizes) request.add_response_parameters()->set_size(size);
  auto reader = stub_->StreamingOutputCall(&context, request);
  for (int size : sizes) {
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.payload().body().size(), static_cast<size_t>(size));
  }
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_P(Cases, PingPongAndEmptyStream) {
  grpc::ClientContext context, none;
  auto stream = stub_->FullDuplexCall(&context);
  StreamingOutputCallResponse response;
  const int requests[] = {27182, 8, 1828, 45904}, responses[] = {31415, 9, 2653, 58979};
  for (int at = 0; at < 4; at++) {
    StreamingOutputCallRequest request;
    request.add_response_parameters()->set_size(responses[at]);
    request.mutable_payload()->set_body(std::string(static_cast<size_t>(requests[at]), '\0'));
    ASSERT_TRUE(stream->Write(request));
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.payload().body().size(), static_cast<size_t>(responses[at]));
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  auto empty = stub_->FullDuplexCall(&none);
  empty->WritesDone();
  EXPECT_FALSE(empty->Read(&response));
  EXPECT_TRUE(empty->Finish().ok());
}

TEST_P(Cases, CustomMetadata) {
  std::string binary("\xab\xab\xab", 3);
  for (bool streams : {false, true}) {
    grpc::ClientContext context;
    context.AddMetadata(kEchoInitial, "test_initial_metadata_value");
    context.AddMetadata(kEchoTrailing, binary);
    if (streams) {
      auto stream = stub_->FullDuplexCall(&context);
      StreamingOutputCallRequest request;
      StreamingOutputCallResponse response;
      request.add_response_parameters()->set_size(314159);
      ASSERT_TRUE(stream->Write(request));
      ASSERT_TRUE(stream->Read(&response));
      stream->WritesDone();
      EXPECT_FALSE(stream->Read(&response));
      ASSERT_TRUE(stream->Finish().ok());
    } else {
      SimpleRequest request;
      SimpleResponse response;
      ASSERT_TRUE(stub_->UnaryCall(&context, request, &response).ok());
    }
    auto initial = context.GetServerInitialMetadata().find(kEchoInitial);
    ASSERT_NE(initial, context.GetServerInitialMetadata().end());
    EXPECT_EQ(std::string(initial->second.data(), initial->second.size()), "test_initial_metadata_value");
    auto trailing = context.GetServerTrailingMetadata().find(kEchoTrailing);
    ASSERT_NE(trailing, context.GetServerTrailingMetadata().end());
    EXPECT_EQ(std::string(trailing->second.data(), trailing->second.size()), binary);
  }
}

TEST_P(Cases, StatusCodeMessageAndSpecialStatus) {
  for (std::string text : {std::string("test status message"), std::string("\t\ntest with whitespace\r\nand Unicode BMP \xe2\x98\xba and non-BMP \xf0\x9f\x98\x88\t\n")}) {
    grpc::ClientContext context;
    SimpleRequest request;
    SimpleResponse response;
    request.mutable_response_status()->set_code(2);
    request.mutable_response_status()->set_message(text);
    grpc::Status status = stub_->UnaryCall(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNKNOWN);
    EXPECT_EQ(status.error_message(), text);
  }
}

TEST_P(Cases, UnimplementedMethodAndService) {
  grpc::ClientContext context, other;
  Empty empty;
  EXPECT_EQ(stub_->UnimplementedCall(&context, empty, &empty).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(UnimplementedServiceTollfree::NewStub(channel_)->UnimplementedCall(&other, empty, &empty).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_P(Cases, CancelAfterBeginAndFirstResponseAndTimeout) {
  grpc::ClientContext begun, responded, late;
  StreamingInputCallResponse sum;
  auto writer = stub_->StreamingInputCall(&begun, &sum);
  begun.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  auto stream = stub_->FullDuplexCall(&responded);
  StreamingOutputCallRequest request;
  StreamingOutputCallResponse response;
  request.add_response_parameters()->set_size(31415);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  responded.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(10));
  auto sleeping = stub_->FullDuplexCall(&late);
  request.mutable_response_parameters(0)->set_interval_us(2'000'000);
  sleeping->Write(request);
  EXPECT_EQ(sleeping->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

INSTANTIATE_TEST_SUITE_P(Stubs, Cases, ::testing::Values(Calls::kGenerated, Calls::kStock),
                         [](const auto& info) { return info.param == Calls::kGenerated ? "Generated" : "Stock"; });
INSTANTIATE_TEST_SUITE_P(Reference, Interop, ::testing::Values(Calls::kGenerated));

}  // namespace tests
}  // namespace tollfree
