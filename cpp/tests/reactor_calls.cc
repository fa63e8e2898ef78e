// The same calls by a stub's async(): with functions and with reactors.
#include <condition_variable>

#include "place.h"

namespace tollfree {
namespace tests {

class ReactorCalls : public Place {};
FOR_ALL_KINDS(ReactorCalls);

// A thing that a test waits for.
class Event {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(5), [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

TEST_P(ReactorCalls, AFunctionIsCalledOnceWithTheStatus) {
  for (uint32_t code : {0u, 5u}) {
    grpc::ClientContext context;
    Ask ask;
    Answer answer;
    Event done;
    grpc::Status status;
    std::atomic<int> calls{0};
    ask.set_text("x");
    ask.set_code(code);
    stub_->async()->Unary(&context, &ask, &answer, [&](grpc::Status of) {
      status = of;
      calls++;
      done.Set();
    });
    ASSERT_TRUE(done.Wait());
    EXPECT_EQ(status.error_code(), static_cast<int>(code));
    EXPECT_EQ(answer.text(), code == 0 ? "re: x" : "");
    EXPECT_EQ(calls, 1);
  }
}

TEST_P(ReactorCalls, AFunctionMayMakeTheNextCallAndManyAreUnderWay) {
  struct Chain {
    Probe::StubInterface* stub;
    Event* done;
    std::atomic<int>* left;
    int count = 0;
    std::unique_ptr<grpc::ClientContext> context;
    Ask ask;
    Answer answer;
    void Next() {
      context = std::make_unique<grpc::ClientContext>();
      stub->async()->Unary(context.get(), &ask, &answer, [this](grpc::Status status) {
        EXPECT_TRUE(status.ok()) << status.error_message();
        if (++count < 100) return Next();
        if (--*left == 0) done->Set();
      });
    }
  };
  Event done;
  std::atomic<int> left{20};
  std::vector<Chain> chains(20);
  for (Chain& chain : chains) {
    chain.stub = stub_.get();
    chain.done = &done;
    chain.left = &left;
    chain.Next();
  }
  EXPECT_TRUE(done.Wait());
}

class UnaryClient final : public grpc::ClientUnaryReactor {
 public:
  void OnReadInitialMetadataDone(bool ok) override { has_headers = ok; }
  void OnDone(const grpc::Status& of) override {
    status = of;
    done.Set();
  }
  bool has_headers = false;
  grpc::Status status;
  Event done;
};

TEST_P(ReactorCalls, AUnaryReactorIsToldHeadersAndTheEnd) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  UnaryClient client;
  ask.set_text("x");
  context.AddMetadata("x-a", "one");
  stub_->async()->Unary(&context, &ask, &answer, &client);
  client.StartCall();
  ASSERT_TRUE(client.done.Wait());
  EXPECT_TRUE(client.status.ok()) << client.status.error_message();
  EXPECT_TRUE(client.has_headers);
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-a"), 1u);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("tx-a"), 1u);
  EXPECT_EQ(answer.text(), "re: x");
}

TEST_P(ReactorCalls, ACallIsCancelled) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  UnaryClient client;
  ask.set_wait_ms(60'000);
  stub_->async()->Unary(&context, &ask, &answer, &client);
  client.StartCall();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  context.TryCancel();
  ASSERT_TRUE(client.done.Wait());
  EXPECT_EQ(client.status.error_code(), grpc::StatusCode::CANCELLED);
}

class ReadClient final : public grpc::ClientReadReactor<Answer> {
 public:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    EXPECT_EQ(answer.count(), count);
    count++;
    StartRead(&answer);
  }
  void OnDone(const grpc::Status& of) override {
    status = of;
    done.Set();
  }
  Answer answer;
  uint32_t count = 0;
  grpc::Status status;
  Event done;
};

TEST_P(ReactorCalls, ServerStreams) {
  for (uint32_t code : {0u, 11u}) {
    grpc::ClientContext context;
    Ask ask;
    ReadClient client;
    ask.set_count(1'000);
    ask.set_code(code);
    stub_->async()->List(&context, &ask, &client);
    client.StartRead(&client.answer);
    client.StartCall();
    ASSERT_TRUE(client.done.Wait());
    EXPECT_EQ(client.status.error_code(), static_cast<int>(code));
    EXPECT_EQ(client.count, 1'000u);
  }
}

class WriteClient final : public grpc::ClientWriteReactor<Ask> {
 public:
  explicit WriteClient(bool ends_with_message) : ends_with_message_(ends_with_message) { ask_.set_text("x"); }
  void Go() { Next(); }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnDone(const grpc::Status& of) override {
    status = of;
    done.Set();
  }
  grpc::Status status;
  Event done;

 private:
  void Next() {
    if (count_ == 100) {
      if (!ends_with_message_) StartWritesDone();
      count_++;
    } else if (count_ < 100) {
      count_++;
      if (count_ == 100 && ends_with_message_) return StartWriteLast(&ask_, grpc::WriteOptions());
      StartWrite(&ask_);
    }
  }

  const bool ends_with_message_;
  Ask ask_;
  int count_ = 0;
};

TEST_P(ReactorCalls, ClientStreams) {
  for (bool ends_with_message : {false, true}) {
    grpc::ClientContext context;
    Answer answer;
    WriteClient client(ends_with_message);
    stub_->async()->Collect(&context, &answer, &client);
    client.Go();
    client.StartCall();
    ASSERT_TRUE(client.done.Wait());
    EXPECT_TRUE(client.status.ok()) << client.status.error_message();
    EXPECT_EQ(answer.count(), 100u);
  }
}

class ChatClient final : public grpc::ClientBidiReactor<Ask, Answer> {
 public:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (++count == 200) {
      StartWritesDone();
      StartRead(&answer);
      return;
    }
    StartWrite(&ask);
    StartRead(&answer);
  }
  void OnDone(const grpc::Status& of) override {
    status = of;
    done.Set();
  }
  Ask ask;
  Answer answer;
  int count = 0;
  grpc::Status status;
  Event done;
};

TEST_P(ReactorCalls, BothDirectionsStreamAndAHoldKeepsTheCall) {
  grpc::ClientContext context;
  ChatClient client;
  stub_->async()->Chat(&context, &client);
  client.AddHold();
  client.StartCall();
  std::thread outside([&] {
    client.StartWrite(&client.ask);
    client.StartRead(&client.answer);
    client.RemoveHold();
  });
  ASSERT_TRUE(client.done.Wait());
  outside.join();
  EXPECT_TRUE(client.status.ok()) << client.status.error_message();
  EXPECT_EQ(client.count, 200);
}

TEST_P(ReactorCalls, AHoldThatIsRemovedLastEndsTheCall) {
  grpc::ClientContext context;
  ChatClient client;
  stub_->async()->Chat(&context, &client);
  client.AddHold();
  client.StartCall();
  client.StartWritesDone();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  client.RemoveHold();
  ASSERT_TRUE(client.done.Wait());
  EXPECT_TRUE(client.status.ok()) << client.status.error_message();
}

TEST_P(ReactorCalls, AReactionMayMakeABlockingCall) {
  grpc::ClientContext context;
  Ask ask;
  Answer answer;
  Event done;
  grpc::Status inner;
  if (is_stock()) GTEST_SKIP() << "gRPC's own threads must not wait in a reaction";
  stub_->async()->Unary(&context, &ask, &answer, [&](grpc::Status) {
    grpc::ClientContext other;
    Answer another;
    inner = stub_->Unary(&other, ask, &another);
    done.Set();
  });
  ASSERT_TRUE(done.Wait());
  EXPECT_TRUE(inner.ok()) << inner.error_message();
}

}  // namespace tests
}  // namespace tollfree
