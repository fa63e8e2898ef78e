// Calls of generated clients, with reactors and callbacks. Not for programs.
//
// An object lives until its reactor's OnDone: until its call is over, each operation has had its reaction, and no hold is left.
#ifndef TOLLFREE_INTERNAL_CLIENT_REACTORS_H
#define TOLLFREE_INTERNAL_CLIENT_REACTORS_H

#include <grpcpp/support/client_callback.h>
#include <tollfree/internal/client_calls.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tollfree {
namespace internal {

// What all of them do. `Base` is gRPC's interface, `Reactor` the program's.
template <class Base, class Reactor>
class ReactorCall : public Base {
 public:
  ReactorCall(const Channel& channel, const char* path, grpc::ClientContext* context, Reactor* reactor)
      : connection_(channel.connection()), path_(path), context_(context), reactor_(reactor) {
    this->BindReactor(reactor);
  }

 protected:
  Call& call() { return link_.call(); }
  Reactor& reactor() { return *reactor_; }

  void AddOperations(int count) { outstanding_.fetch_add(count, std::memory_order_relaxed); }

  // Runs once the call has begun, in order.
  void OnceStarted(std::function<void()> operation) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!is_started_) {
        backlog_.push_back(std::move(operation));
        return;
      }
    }
    operation();
  }

  void Start(const Payload* message, bool is_last) {
    link_.Start(connection_, path_, context_, message, is_last, false);
    call().WhenHeaders([this](bool ok) {
      if (ok) link_.StoreHeaders();
      reactor_->OnReadInitialMetadataDone(ok);
      OperationDone();
    });
    std::vector<std::function<void()>> backlog;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_started_ = true;
      backlog.swap(backlog_);
    }
    for (auto& operation : backlog) operation();
    call().WhenDrained([this] {
      status_ = link_.StoreEnd();
      OnEnd(&status_);
      OperationDone();
    });
  }

  // What a single answer has to be decoded for.
  virtual void OnEnd(grpc::Status*) {}

  template <class Response>
  void StartRead(Response* response) {
    AddOperations(1);
    OnceStarted([this, response] {
      call().WhenReadable([this, response] {
        Message message;
        bool ok = call().Take(&message);
        if (ok) {
          link_.StoreHeaders();
          grpc::Status status = Decode(&message, response);
          if (!status.ok()) Unsendable(&call(), status);
          ok = status.ok();
        }
        reactor_->OnReadDone(ok);
        OperationDone();
      });
    });
  }

  template <class Request>
  void StartWrite(const Request* request, grpc::WriteOptions options) {
    AddOperations(1);
    OnceStarted([this, request, options] {
      Payload payload;
      grpc::Status status = Encode(*request, true, &payload);
      if (!status.ok()) Unsendable(&call(), status);
      call().WhenSent(std::move(payload), options.is_last_message(), [this](bool ok) {
        reactor_->OnWriteDone(ok);
        OperationDone();
      });
    });
  }

  void StartWritesDone() {
    AddOperations(1);
    OnceStarted([this] {
      call().FinishWriting();
      call().WhenWritable([this](bool ok) {
        reactor_->OnWritesDoneDone(ok);
        OperationDone();
      });
    });
  }

  void OperationDone() {
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    grpc::Status status = std::move(status_);
    Reactor* reactor = reactor_;
    delete this;
    reactor->OnDone(status);
  }

  // Not in a reaction: OnDone must not run within the program's own call.
  void RemoveOneHold() {
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    outstanding_.store(1, std::memory_order_relaxed);
    call().WhenDrained([this] { OperationDone(); });
  }

 private:
  ClientLink link_;
  const std::shared_ptr<Connection> connection_;
  const char* const path_;
  grpc::ClientContext* const context_;
  Reactor* const reactor_;
  grpc::Status status_;
  // Headers, and the end.
  std::atomic<int> outstanding_{2};
  std::mutex mutex_;
  bool is_started_ = false;
  std::vector<std::function<void()>> backlog_;
};

// What a call without a message in the request, or with a single answer, ends with.
template <class Response>
void TakeAnswer(Call* call, bool has_answer, Message* answer, Response* response, grpc::Status* status) {
  (void)call;
  if (status->ok()) *status = has_answer ? Decode(answer, response) : WithoutMessage(*status);
}

template <class Response>
class UnaryReactorCall final : public ReactorCall<grpc::ClientCallbackUnary, grpc::ClientUnaryReactor> {
 public:
  template <class Request>
  static void Make(const Channel& channel, const char* path, grpc::ClientContext* context, const Request* request, Response* response,
                   grpc::ClientUnaryReactor* reactor) {
    auto* made = new UnaryReactorCall(channel, path, context, response, reactor);
    made->encoded_ = Encode(*request, true, &made->message_);
  }

  void StartCall() override {
    AddOperations(1);
    Start(&message_, true);
    if (!encoded_.ok()) Unsendable(&call(), encoded_);
    call().WhenReadable([this] {
      has_answer_ = call().Take(&answer_);
      OperationDone();
    });
  }

 private:
  UnaryReactorCall(const Channel& channel, const char* path, grpc::ClientContext* context, Response* response, grpc::ClientUnaryReactor* reactor)
      : ReactorCall(channel, path, context, reactor), response_(response) {}

  void OnEnd(grpc::Status* status) override { TakeAnswer(&call(), has_answer_, &answer_, response_, status); }

  Response* const response_;
  grpc::Status encoded_;
  Payload message_;
  Message answer_;
  bool has_answer_ = false;
};

// A unary call with a function, which is called once, in a thread of the crew.
template <class Response>
class UnaryFunctionReactor final : public grpc::ClientUnaryReactor {
 public:
  template <class Request>
  static void Call(const Channel& channel, const char* path, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> then) {
    auto* made = new UnaryFunctionReactor(std::move(then));
    UnaryReactorCall<Response>::Make(channel, path, context, request, response, made);
    made->StartCall();
  }

  void OnDone(const grpc::Status& status) override {
    std::function<void(grpc::Status)> then = std::move(then_);
    delete this;
    then(status);
  }

 private:
  explicit UnaryFunctionReactor(std::function<void(grpc::Status)> then) : then_(std::move(then)) {}

  std::function<void(grpc::Status)> then_;
};

template <class Response>
class ReadReactorCall final : public ReactorCall<grpc::ClientCallbackReader<Response>, grpc::ClientReadReactor<Response>> {
 public:
  template <class Request>
  static void Make(const Channel& channel, const char* path, grpc::ClientContext* context, const Request* request,
                   grpc::ClientReadReactor<Response>* reactor) {
    auto* made = new ReadReactorCall(channel, path, context, reactor);
    made->encoded_ = Encode(*request, true, &made->message_);
  }

  void StartCall() override {
    this->AddOperations(1);
    this->Start(&message_, true);
    if (!encoded_.ok()) Unsendable(&this->call(), encoded_);
    this->RemoveOneHold();
  }
  void Read(Response* response) override { this->StartRead(response); }
  void AddHold(int holds) override { this->AddOperations(holds); }
  void RemoveHold() override { this->RemoveOneHold(); }

 private:
  using ReactorCall<grpc::ClientCallbackReader<Response>, grpc::ClientReadReactor<Response>>::ReactorCall;

  grpc::Status encoded_;
  Payload message_;
};

template <class Request, class Response>
class WriteReactorCall final : public ReactorCall<grpc::ClientCallbackWriter<Request>, grpc::ClientWriteReactor<Request>> {
 public:
  static void Make(const Channel& channel, const char* path, grpc::ClientContext* context, Response* response,
                   grpc::ClientWriteReactor<Request>* reactor) {
    new WriteReactorCall(channel, path, context, response, reactor);
  }

  void StartCall() override {
    this->AddOperations(1);
    this->Start(nullptr, false);
    this->call().WhenReadable([this] {
      has_answer_ = this->call().Take(&answer_);
      this->OperationDone();
    });
  }
  void Write(const Request* request, grpc::WriteOptions options) override { this->StartWrite(request, options); }
  void WritesDone() override { this->StartWritesDone(); }
  void AddHold(int holds) override { this->AddOperations(holds); }
  void RemoveHold() override { this->RemoveOneHold(); }

 private:
  WriteReactorCall(const Channel& channel, const char* path, grpc::ClientContext* context, Response* response,
                   grpc::ClientWriteReactor<Request>* reactor)
      : ReactorCall<grpc::ClientCallbackWriter<Request>, grpc::ClientWriteReactor<Request>>(channel, path, context, reactor), response_(response) {}

  void OnEnd(grpc::Status* status) override { TakeAnswer(&this->call(), has_answer_, &answer_, response_, status); }

  Response* const response_;
  Message answer_;
  bool has_answer_ = false;
};

template <class Request, class Response>
class BidiReactorCall final : public ReactorCall<grpc::ClientCallbackReaderWriter<Request, Response>, grpc::ClientBidiReactor<Request, Response>> {
 public:
  static void Make(const Channel& channel, const char* path, grpc::ClientContext* context, grpc::ClientBidiReactor<Request, Response>* reactor) {
    new BidiReactorCall(channel, path, context, reactor);
  }

  void StartCall() override {
    this->AddOperations(1);
    this->Start(nullptr, false);
    this->RemoveOneHold();
  }
  void Read(Response* response) override { this->StartRead(response); }
  void Write(const Request* request, grpc::WriteOptions options) override { this->StartWrite(request, options); }
  void WritesDone() override { this->StartWritesDone(); }
  void AddHold(int holds) override { this->AddOperations(holds); }
  void RemoveHold() override { this->RemoveOneHold(); }

 private:
  using ReactorCall<grpc::ClientCallbackReaderWriter<Request, Response>, grpc::ClientBidiReactor<Request, Response>>::ReactorCall;
};

}  // namespace internal
}  // namespace tollfree

#endif
