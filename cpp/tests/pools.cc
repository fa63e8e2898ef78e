// Long messages by reference, between two members of a pool.
#include <gtest/gtest.h>
#include <tollfree/pool.h>

#include "place.h"
#include "services.h"

namespace tollfree {
namespace tests {
namespace {

constexpr size_t kLong = 4 << 20;

// Answers with the slices that came, as they are.
class Forwards : public Probe::WithRawCallbackMethod_Unary<Probe::CallbackService> {
 public:
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* ask, grpc::ByteBuffer* answer) override {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(ask->Dump(&slices).ok());
    for (const grpc::Slice& slice : slices) longest = std::max(longest.load(), slice.size());
    *answer = *ask;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::atomic<size_t> longest{0};
};

class Pools : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::Status status;
    std::string address = directory_.address() + ".pool";
    ours_ = Pool::Create(address, &status);
    ASSERT_NE(ours_, nullptr) << status.error_message();
    theirs_ = Pool::Join(address, &status);
    ASSERT_NE(theirs_, nullptr) << status.error_message();
  }

  template <class Service>
  void Serve(Service* service, bool is_member) {
    ServerOptions options;
    options.message_len_max = 2 * kLong;
    if (is_member) options.pool = theirs_;
    server_ = std::make_unique<Server>(options);
    ASSERT_TRUE(ProbeTollfree::Register(server_.get(), service).ok());
    ASSERT_TRUE(server_->Listen(directory_.address()).ok());
  }

  std::unique_ptr<Probe::StubInterface> Stub() {
    ChannelOptions options;
    options.message_len_max = 2 * kLong;
    options.pool = ours_;
    return ProbeTollfree::NewStub(CreateChannel(directory_.address(), options));
  }

  Directory directory_;
  std::shared_ptr<Pool> ours_, theirs_;
  std::unique_ptr<Server> server_;
};

TEST_F(Pools, MessagesOfProtobufGoToMembersAndOthers) {
  BlockingProbe service;
  for (bool is_member : {true, false}) {
    Serve(&service, is_member);
    auto stub = Stub();
    for (size_t size : {size_t{10}, size_t{100'000}, kLong}) {
      grpc::ClientContext context;
      Ask ask;
      Answer answer;
      ask.set_text("t");
      ask.set_body(std::string(size, 'x'));
      grpc::Status status = stub->Unary(&context, ask, &answer);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(answer.body(), ask.body());
    }
    server_->Shutdown();
  }
}

TEST_F(Pools, ABufferOfThePoolIsReadInPlace) {
  Forwards service;
  Serve(&service, true);
  uint8_t* memory = nullptr;
  grpc::Slice slice;
  ASSERT_TRUE(ours_->Buffer(kLong, &memory, &slice).ok());
  // An Ask of one body: a header of five bytes, then the bytes.
  const uint8_t header[] = {0x12, 0xfb, 0xff, 0xff, 0x01};
  std::copy(header, header + sizeof header, memory);
  std::fill(memory + sizeof header, memory + kLong, 'y');
  ChannelOptions options;
  options.message_len_max = 2 * kLong;
  options.pool = ours_;
  Ask ask;
  ASSERT_TRUE(ask.ParseFromArray(memory, kLong));
  grpc::ClientContext context;
  grpc::ByteBuffer request(&slice, 1), answer;
  grpc::Status status = internal::UnaryCall(*CreateChannel(directory_.address(), options), "/tollfree.cpp.probe.Probe/Unary", &context, request, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(service.longest, kLong);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 1u);
  // It came back as a reference to where this process wrote it.
  EXPECT_EQ(slices[0].begin(), memory);
  slices.clear();
  answer.Clear();
}

TEST_F(Pools, WhatCanNotBeHadIsSaid) {
  grpc::Status status;
  EXPECT_EQ(Pool::Join("shm:///nowhere/pool.sock", &status), nullptr);
  EXPECT_NE(status.error_message().find("/nowhere/pool.sock"), std::string::npos);
  EXPECT_EQ(Pool::Create(directory_.address() + ".pool", &status), nullptr);
  EXPECT_FALSE(status.ok());
  uint8_t* memory = nullptr;
  grpc::Slice slice;
  EXPECT_EQ(ours_->Buffer(size_t{1} << 40, &memory, &slice).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace tests
}  // namespace tollfree
