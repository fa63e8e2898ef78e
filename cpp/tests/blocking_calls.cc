// Calls of all four kinds by a stub's blocking functions: what gRPC says of them holds with each kind of stub and service.
#include <fcntl.h>

#include "place.h"

namespace tollfree {
namespace tests {

class BlockingCalls : public Place {};
FOR_ALL_KINDS(BlockingCalls);

TEST_P(BlockingCalls, UnaryMessagesOfEachLengthComeBack) {
  for (size_t len : {size_t{0}, size_t{1}, size_t{64}, size_t{4095}, size_t{4097}, size_t{100'000}, size_t{3'000'000}}) {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    ask.set_text("x");
    ask.set_body(std::string(len, 'b'));
    grpc::Status status = stub_->Unary(&context, ask, &answer);
    ASSERT_TRUE(status.ok()) << len << " " << status.error_message();
    EXPECT_EQ(answer.text(), "re: x");
    EXPECT_EQ(answer.body(), ask.body());
  }
}

TEST_P(BlockingCalls, StatusesComeWithTheirTextAndDetails) {
  for (uint32_t code = 1; code <= 16; code++) {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    ask.set_code(code);
    ask.set_message("not so: 50 % \xc3\xbc\n");
    ask.set_details(std::string("d\0\xff", 3));
    grpc::Status status = stub_->Unary(&context, ask, &answer);
    EXPECT_EQ(status.error_code(), static_cast<int>(code));
    EXPECT_EQ(status.error_message(), ask.message());
    EXPECT_EQ(status.error_details(), ask.details());
  }
}

TEST_P(BlockingCalls, MetadataGoesBothWays) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  context.AddMetadata("x-a", "one");
  context.AddMetadata("x-a", "two");
  std::string binary("\0\x01\xff,", 4);
  context.AddMetadata("x-b-bin", binary);
  grpc::Status status = stub_->Unary(&context, ask, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answer.metadata_size(), 3);
  for (const auto* map : {&context.GetServerInitialMetadata(), &context.GetServerTrailingMetadata()}) {
    std::string prefix = map == &context.GetServerTrailingMetadata() ? "t" : "";
    EXPECT_EQ(map->count(prefix + "x-a"), 2u);
    auto found = map->find(prefix + "x-b-bin");
    ASSERT_NE(found, map->end());
    EXPECT_EQ(std::string(found->second.data(), found->second.size()), binary);
  }
}

TEST_P(BlockingCalls, MetadataThatCannotBeSentFailsTheCall) {
  grpc::ClientContext context;
  Answer answer;
  context.AddMetadata("X-Upper", "one");
  grpc::Status status = stub_->Unary(&context, Ask(), &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_NE(status.error_message().find("X-Upper"), std::string::npos) << status.error_message();
}

TEST_P(BlockingCalls, ServersKnowWhoCalls) {
  grpc::ClientContext context;
  Answer answer;
  ASSERT_TRUE(stub_->Unary(&context, Ask(), &answer).ok());
  EXPECT_EQ(answer.uid(), std::to_string(getuid()));
  EXPECT_EQ(answer.peer(), "shm:pid:" + std::to_string(getpid()));
  if (is_stock()) return;
  EXPECT_EQ(context.peer(), directory_.address());
  EXPECT_EQ(context.auth_context()->FindPropertyValues("transport_security_type").size(), 1u);
}

TEST_P(BlockingCalls, DeadlinesReachTheServerAndEndTheCall) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
  ASSERT_TRUE(stub_->Unary(&context, ask, &answer).ok());
  EXPECT_GT(answer.deadline_ms(), 50'000);
  EXPECT_LE(answer.deadline_ms(), 100'000);
  grpc::ClientContext late;
  ask.set_wait_ms(60'000);
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(stub_->Unary(&late, ask, &answer).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Soon([] { return cancelled_count > 0; }));
  grpc::ClientContext past;
  past.set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(5));
  EXPECT_EQ(stub_->Unary(&past, ask, &answer).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_P(BlockingCalls, AnotherThreadCancelsACall) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  ask.set_wait_ms(60'000);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    context.TryCancel();
  });
  EXPECT_EQ(stub_->Unary(&context, ask, &answer).error_code(), grpc::StatusCode::CANCELLED);
  canceller.join();
  EXPECT_TRUE(Soon([] { return cancelled_count > 0; }));
  grpc::ClientContext before;
  before.TryCancel();
  EXPECT_EQ(stub_->Unary(&before, Ask(), &answer).error_code(), grpc::StatusCode::CANCELLED);
}

TEST_P(BlockingCalls, HandlersThatThrowOrCancelEndTheirCall) {
  for (bool throws : {false, true}) {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    ask.set_throws(throws);
    ask.set_cancels(!throws);
    grpc::Status status = stub_->Unary(&context, ask, &answer);
    bool is_blocking = std::get<0>(GetParam()) == Serves::kBlocking;
    auto thrown = is_blocking ? grpc::StatusCode::UNKNOWN : grpc::StatusCode::UNIMPLEMENTED;
    EXPECT_EQ(status.error_code(), throws ? thrown : grpc::StatusCode::CANCELLED) << status.error_message();
  }
}

TEST_P(BlockingCalls, ClientStreams) {
  grpc::ClientContext context;
  Answer answer;
  auto writer = stub_->Collect(&context, &answer);
  Ask ask;
  for (int at = 0; at < 500; at++) {
    ask.set_text(std::to_string(at % 10));
    ASSERT_TRUE(writer->Write(ask));
  }
  EXPECT_TRUE(writer->WritesDone());
  grpc::Status status = writer->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.count(), 500u);
  EXPECT_EQ(answer.text().substr(0, 10), "0123456789");
  // By the last message, and with a server that has enough before.
  grpc::ClientContext last;
  auto other = stub_->Collect(&last, &answer);
  EXPECT_TRUE(other->Write(ask, grpc::WriteOptions().set_last_message()));
  EXPECT_TRUE(other->Finish().ok());
  EXPECT_EQ(answer.count(), 1u);
  grpc::ClientContext refused;
  auto third = stub_->Collect(&refused, &answer);
  ask.set_code(9);
  EXPECT_TRUE(third->Write(ask));
  EXPECT_EQ(third->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_P(BlockingCalls, AStreamThatIsReadSlowlyHoldsUpItsSender) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  ask.set_count(20'000);
  ask.set_body(std::string(1'000, 'b'));
  listed_count = 0;
  auto reader = stub_->List(&context, ask);
  ASSERT_TRUE(reader->Read(&answer));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(listed_count.load(), 2'000);
  // Other calls go on beside it.
  grpc::ClientContext beside;
  Answer other;
  EXPECT_TRUE(stub_->Unary(&beside, Ask(), &other).ok());
  uint32_t count = 1;
  while (reader->Read(&answer)) count++;
  EXPECT_EQ(count, 20'000u);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_P(BlockingCalls, ServerStreams) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  context.AddMetadata("x-a", "one");
  ask.set_count(2'000);
  ask.set_body(std::string(300, 'b'));
  auto reader = stub_->List(&context, ask);
  reader->WaitForInitialMetadata();
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-a"), 1u);
  uint32_t count = 0;
  for (; reader->Read(&answer); count++) {
    ASSERT_EQ(answer.count(), count);
    ASSERT_EQ(answer.body(), ask.body());
  }
  EXPECT_EQ(count, 2'000u);
  EXPECT_TRUE(reader->Finish().ok());
  // None, and one before an error.
  for (uint32_t some : {0u, 1u}) {
    grpc::ClientContext failing;
    ask.set_count(some);
    ask.set_code(11);
    auto other = stub_->List(&failing, ask);
    for (count = 0; other->Read(&answer);) count++;
    EXPECT_EQ(count, some);
    EXPECT_EQ(other->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  }
}

TEST_P(BlockingCalls, BothDirectionsStream) {
  grpc::ClientContext context;
  auto stream = stub_->Chat(&context);
  Ask ask;
  Answer answer;
  for (uint32_t at = 0; at < 300; at++) {
    ask.set_text(std::to_string(at));
    ASSERT_TRUE(stream->Write(ask));
    ASSERT_TRUE(stream->Read(&answer));
    ASSERT_EQ(answer.text(), "re: " + std::to_string(at));
    ASSERT_EQ(answer.count(), at);
  }
  EXPECT_TRUE(stream->WritesDone());
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_P(BlockingCalls, OneThreadWritesWhileAnotherReads) {
  grpc::ClientContext context;
  auto stream = stub_->Chat(&context);
  std::thread writer([&] {
    Ask ask;
    ask.set_body(std::string(2'000, 'b'));
    for (int at = 0; at < 1'000; at++) ASSERT_TRUE(stream->Write(ask));
    stream->WritesDone();
  });
  Answer answer;
  int count = 0;
  while (stream->Read(&answer)) count++;
  writer.join();
  EXPECT_EQ(count, 1'000);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_P(BlockingCalls, AStreamThatIsCancelledOrDroppedEndsAtTheServer) {
  for (bool drops : {false, true}) {
    if (drops && is_stock()) continue;
    cancelled_count = 0;
    grpc::ClientContext context;
    auto stream = stub_->Chat(&context);
    Ask ask;
    Answer answer;
    ASSERT_TRUE(stream->Write(ask));
    ASSERT_TRUE(stream->Read(&answer));
    if (drops) {
      stream.reset();
    } else {
      context.TryCancel();
      EXPECT_FALSE(stream->Read(&answer));
      EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
    EXPECT_TRUE(Soon([] { return cancelled_count > 0; })) << drops;
  }
}

TEST_P(BlockingCalls, ThreadsShareAChannel) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int thread = 0; thread < 16; thread++) {
    threads.emplace_back([&, thread] {
      for (int at = 0; at < 200; at++) {
        grpc::ClientContext context;
        Ask ask;
        Answer answer;
        ask.set_text(std::to_string(thread * 1'000 + at));
        grpc::Status status = stub_->Unary(&context, ask, &answer);
        if (status.ok() && answer.text() == "re: " + ask.text()) good++;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16 * 200);
}

TEST_P(BlockingCalls, AHandlerThatTakesLongDelaysNobodyElse) {
  std::thread slow([&] {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    ask.set_wait_ms(3'000);
    EXPECT_TRUE(stub_->Unary(&context, ask, &answer).ok());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto began = std::chrono::steady_clock::now();
  for (int at = 0; at < 50; at++) {
    grpc::ClientContext context;
    Answer answer;
    EXPECT_TRUE(stub_->Unary(&context, Ask(), &answer).ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(2'500));
  slow.join();
}

TEST_P(BlockingCalls, MessagesThatAreTooLongEndTheirCall) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  ask.set_body(std::string(5 << 20, 'b'));
  EXPECT_EQ(stub_->Unary(&context, ask, &answer).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext other;
  EXPECT_TRUE(stub_->Unary(&other, Ask(), &answer).ok());
}

}  // namespace tests
}  // namespace tollfree
